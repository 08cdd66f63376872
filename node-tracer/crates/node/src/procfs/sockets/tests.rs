use std::{
    net::UdpSocket,
    os::{fd::AsRawFd as _, unix::fs::symlink},
};

use super::*;
use crate::procfs::Bounded;

const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   0: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 000000005d1ad6f5 100 0 0 10 0\n";
const UNIX: &str = "Num       RefCount Protocol Flags    Type St Inode Path\n00000000ae6d4a0e: 00000002 00000000 00010000 0001 01 4712 /run/a socket\n00000000ae6d4a0f: 00000003 00000000 00000000 0001 03 4713\n";
const NETLINK: &str = "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n00000000f1a7e4c5 0   2139064131 00000000 0        0        0     2        0        4714\n";
const PACKET: &str = "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n00000000f1a7e4c6 3      3    88cc   2     1 0      0      4715\n";

#[test]
fn the_tables_of_a_namespace_list_its_sockets() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("tcp", TCP),
        ("udplite6", "  sl  local_address\n"),
        ("unix", UNIX),
        ("netlink", NETLINK),
        ("packet", PACKET),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let soon = Instant::now() + Duration::from_secs(9);
    let expected = BTreeSet::from([4711, 4712, 4713, 4714, 4715]);
    assert_eq!(tables(folder.path(), soon), expected);
}

#[test]
fn the_running_process_finds_its_own_socket_in_its_tables_and_its_namespace() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let inode = fstat(&socket).unwrap().st_ino;
    let soon = Instant::now() + Duration::from_secs(9);
    assert!(tables(Path::new("/proc/self/net"), soon).contains(&inode));

    // Asking any socket needs CAP_NET_ADMIN; a file never passes for one.
    let file = tempfile::tempfile().unwrap();
    let error = socket_namespace(std::process::id(), file.as_raw_fd() as u32).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTSOCK));
}

fn process(root: &Path, pid: u32, netns: u32) {
    let folder = root.join(format!("proc/{pid}"));
    fs::create_dir_all(folder.join("ns")).unwrap();
    symlink(format!("net:[{netns}]"), folder.join("ns/net")).unwrap();
    fs::create_dir_all(folder.join("net")).unwrap();
    fs::write(folder.join("net/tcp"), TCP).unwrap();
}

#[test]
fn only_sockets_that_no_table_lists_are_asked_and_only_where_numbers_agree() {
    let root = tempfile::tempdir().unwrap();
    let procfs = own_numbers(root.path());
    // Numbers beyond any that a process can have: nobody is really asked.
    let pids = [1 << 30, (1 << 30) + 1];
    let sockets = pids.map(|pid| (pid, vec![(3, 4711), (4, 99)]));
    for pid in pids {
        process(root.path(), pid, pid);
    }
    let descriptors = Descriptors {
        sockets: sockets.into(),
        ..Descriptors::default()
    };
    let search = |limit| procfs.socket_holders(&descriptors, &BTreeSet::new(), limit);
    let found = search(Duration::from_secs(9));
    assert_eq!(
        (found.asked, found.incomplete),
        (2, None),
        "descriptor 4 of both"
    );
    assert!(search(Duration::ZERO).incomplete.is_some());

    let elsewhere = format!("NSpid:\t4711\t{}\n", std::process::id());
    fs::write(root.path().join("proc/self/status"), elsewhere).unwrap();
    let found = search(Duration::from_secs(9));
    assert_eq!(found.asked, 0, "the numbers mean other processes here");
    assert!(found.incomplete.is_some());
}

/// A proc file system whose numbers are those of the system's calls.
fn own_numbers(root: &Path) -> Procfs {
    let own = format!("NSpid:\t{}\n", std::process::id());
    fs::create_dir_all(root.join("proc/self")).unwrap();
    fs::write(root.join("proc/self/status"), own).unwrap();
    Procfs::new(root, Bounded::default())
}

#[test]
fn the_sockets_of_a_process_whose_leader_is_a_zombie_are_asked_by_a_thread() {
    let root = tempfile::tempdir().unwrap();
    let procfs = own_numbers(root.path());
    let pid = 1 << 30;
    process(root.path(), pid, 5);
    let folder = root.path().join(format!("proc/{pid}"));
    let thread = folder.join(format!("task/{}", pid + 1));
    fs::create_dir_all(&thread).unwrap();
    for name in ["ns", "net"] {
        fs::rename(folder.join(name), thread.join(name)).unwrap();
    }
    let descriptors = Descriptors {
        sockets: vec![(pid, vec![(3, 4711), (4, 99)])],
        ..Descriptors::default()
    };
    let search = || {
        let limit = Duration::from_secs(9);
        procfs.socket_holders(&descriptors, &BTreeSet::new(), limit)
    };
    assert_eq!(search().asked, 1, "the other is in the thread's tables");
    // One that cannot be read is not passed over in silence.
    fs::remove_file(thread.join("ns/net")).unwrap();
    fs::write(thread.join("ns/net"), "no link").unwrap();
    assert!(search().incomplete.is_some());
}

#[test]
fn a_thread_that_is_no_leader_is_asked_too() {
    let file = tempfile::tempfile().unwrap();
    let (_release, wait) = std::sync::mpsc::channel::<()>();
    let (ready, started) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        ready
            .send(rustix::thread::gettid().as_raw_nonzero())
            .unwrap();
        let _ = wait.recv();
    });
    let tid = started.recv().unwrap().get() as u32;
    let error = socket_namespace(tid, file.as_raw_fd() as u32).unwrap_err();
    // The latter before Linux 6.9.
    let expected = error.raw_os_error() == Some(libc::ENOTSOCK) || is_refused(&error);
    assert!(expected, "{error}");
}
