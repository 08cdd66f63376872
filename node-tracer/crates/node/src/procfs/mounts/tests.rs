use std::os::unix::fs::symlink;

use super::*;
use crate::procfs::{Bounded, whose};

/// Lines of a containerd node.
const HOST: &str = "\
    22 28 0:20 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw\n\
    24 28 0:5 / /dev rw,nosuid - devtmpfs udev rw,size=4096k\n\
    612 25 0:4 net:[4026532157] /run/netns/cni-0f2b rw shared:310 - nsfs nsfs rw\n\
    613 25 0:4 net:[4026532261] /run/netns/with\\040space\\134and\\011tab rw shared:311 - nsfs nsfs rw\n\
    614 25 0:4 mnt:[4026532262] /run/snapd/ns/lxd.mnt rw - nsfs nsfs rw\n";
const CONTAINER: &str = "\
    900 800 0:55 / / rw,relatime - overlay overlay rw,lowerdir=/a\n\
    901 900 0:4 net:[4026532157] /var/run/netns/cni-0f2b//deleted rw - nsfs nsfs rw\n\
    902 900 0:4 net:[4026532999] /host/run/netns/\\303\\244 rw master:3 - nsfs nsfs rw\n";

fn process(root: &Path, pid: u32, mount_ns: u32, mountinfo: &str) {
    let folder = root.join(format!("proc/{pid}"));
    fs::create_dir_all(folder.join("ns")).unwrap();
    fs::write(folder.join("mountinfo"), mountinfo).unwrap();
    symlink(format!("mnt:[{mount_ns}]"), folder.join("ns/mnt")).unwrap();
}

fn paths(found: &NsfsMounts, inode: u32) -> Vec<(String, bool)> {
    let mounts = found
        .mounts
        .get(&inode)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let plain = |mount: &NsfsMount| (mount.path.display().to_string(), mount.host);
    mounts.iter().map(plain).collect()
}

#[test]
fn of_a_line_of_any_length_its_namespace_is_read() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut text = String::new();
    let lengths = [
        1, 4_000, 65_400, 65_450, 65_500, 65_536, 70_000, 140_000, 400_000,
    ];
    for (at, length) in lengths.into_iter().enumerate() {
        let path = "/x".repeat(length / 2);
        text += &format!("{at} 1 0:4 net:[{at}] {path} rw,relatime - nsfs nsfs rw\n");
    }
    fs::write(file.path(), text).unwrap();
    let read = nsfs_lines(file.path(), Duration::from_secs(9))
        .unwrap()
        .unwrap();
    let ids: Vec<u64> = read.mounts.iter().map(|mount| mount.id).collect();
    assert_eq!(ids, (0..lengths.len() as u64).collect::<Vec<_>>());
}

#[test]
fn each_mount_namespace_is_read_once_and_the_hosts_first() {
    let root = tempfile::tempdir().unwrap();
    process(root.path(), 40, 111, HOST);
    process(root.path(), 1, 111, HOST);
    process(root.path(), 30, 222, CONTAINER);
    process(root.path(), 31, 222, CONTAINER);
    let procfs = Procfs::new(root.path(), Bounded::default());
    let found = procfs.nsfs_mounts().unwrap();
    assert_eq!(
        paths(&found, 4_026_532_157),
        [
            (String::from("/run/netns/cni-0f2b"), true),
            (String::from("/var/run/netns/cni-0f2b"), false)
        ]
    );
    assert_eq!(
        paths(&found, 4_026_532_261),
        [(String::from("/run/netns/with space\\and\ttab"), true)]
    );
    assert_eq!(
        paths(&found, 4_026_532_999),
        [(String::from("/host/run/netns/ä"), false)]
    );
    assert_eq!(
        found.mounts.len(),
        3,
        "a mount namespace is no network namespace"
    );
    assert!(found.unread.is_empty());
}

#[test]
fn a_mount_namespace_that_cannot_be_read_is_named_and_hides_no_other() {
    let root = tempfile::tempdir().unwrap();
    process(root.path(), 1, 111, HOST);
    process(root.path(), 30, 222, "");
    let mountinfo = root.path().join("proc/30/mountinfo");
    fs::remove_file(&mountinfo).unwrap();
    fs::create_dir(&mountinfo).unwrap();
    let found = Procfs::new(root.path(), Bounded::default())
        .nsfs_mounts()
        .unwrap();
    assert_eq!((found.mounts.len(), found.partial), (2, true));
    assert!(
        matches!(found.unread.as_slice(), [ProcfsError::Read { path, .. }] if *path == mountinfo)
    );
}

#[test]
fn a_process_that_is_gone_leaves_its_mount_namespace_to_the_next() {
    let root = tempfile::tempdir().unwrap();
    process(root.path(), 1, 111, HOST);
    process(root.path(), 30, 222, CONTAINER);
    process(root.path(), 31, 222, CONTAINER);
    fs::remove_file(root.path().join("proc/30/mountinfo")).unwrap();
    let found = Procfs::new(root.path(), Bounded::default())
        .nsfs_mounts()
        .unwrap();
    assert_eq!(found.mounts[&4_026_532_999][0].tid, 31);
}

#[test]
fn a_zombies_mounts_are_read_by_a_thread_that_lives() {
    let root = tempfile::tempdir().unwrap();
    process(root.path(), 1, 111, "");
    let thread = root.path().join("proc/30/task/33");
    fs::create_dir_all(thread.join("ns")).unwrap();
    symlink("mnt:[222]", thread.join("ns/mnt")).unwrap();
    fs::write(thread.join("mountinfo"), CONTAINER).unwrap();
    let found = Procfs::new(root.path(), Bounded::default())
        .nsfs_mounts()
        .unwrap();
    assert_eq!(found.mounts.len(), 2);
    let reached = |mounts: &Vec<NsfsMount>| mounts.iter().all(|mount| mount.tid == 33);
    assert!(
        found.mounts.values().all(reached),
        "its root is by that thread"
    );
}

#[test]
fn mount_namespaces_that_hang_leave_threads_to_read_other_things_with() {
    let root = tempfile::tempdir().unwrap();
    let fifos: Vec<PathBuf> = (30..40)
        .map(|pid| {
            process(root.path(), pid, pid, "");
            let path = root.path().join(format!("proc/{pid}/mountinfo"));
            fs::remove_file(&path).unwrap();
            // Opening it waits for a writer.
            let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
            rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
            path
        })
        .collect();
    process(root.path(), 1, 111, HOST);
    let mut procfs = Procfs::new(root.path(), Bounded::default());
    procfs.patience = Duration::from_millis(50);
    let found = procfs.nsfs_mounts().unwrap();
    assert_eq!(found.mounts.len(), 2, "those of the host");
    assert_eq!(procfs.bounded.abandoned(), MAX_HUNG);
    assert!(
        matches!(found.unread.last(), Some(ProcfsError::NotTried { path }) if *path == fifos[MAX_HUNG])
    );
    for path in &fifos[..MAX_HUNG] {
        fs::write(path, "").unwrap();
    }
}

#[test]
fn the_mount_namespaces_of_a_user_take_little_time_from_all_others() {
    let root = tempfile::tempdir().unwrap();
    let mounts = |pid: u32, uid: u32, mount_ns: u32, user_ns: u32, text: &str| {
        whose::tests::process(root.path(), pid, uid, mount_ns, user_ns);
        fs::write(root.path().join(format!("proc/{pid}/mountinfo")), text).unwrap();
    };
    mounts(1, 0, 1, 20, HOST);
    mounts(400, 0, 500, 20, CONTAINER);
    for pid in 2..300 {
        mounts(pid, 1_000, 100 + pid, 21, "");
    }
    let procfs = Procfs::new(root.path(), Bounded::default());
    let start = Instant::now();
    let found = procfs.nsfs_mounts_by(|path, patience| {
        // None of them is long.
        std::thread::sleep(Duration::from_millis(20));
        nsfs_lines(path, patience)
    });
    let (found, took) = (found.unwrap(), start.elapsed());
    assert!(took < 2 * SEARCH, "{took:?}");
    assert_eq!((found.mounts.len(), found.partial), (3, true));
    let uid = fs::metadata(root.path().join("proc/2")).unwrap().uid();
    assert!(
        matches!(
            found.unread.as_slice(),
            [ProcfsError::NoTime { count: 200.., owner }] if *owner == format!("user {uid}")
        ),
        "{:?}",
        found.unread
    );
}

#[test]
fn what_came_late_is_read_all_the_same() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("mountinfo");
    fs::write(&path, HOST).unwrap();
    let lines = nsfs_lines(&path, Duration::ZERO).unwrap().unwrap();
    assert_eq!((lines.mounts.len(), lines.whole), (2, false));
}

#[test]
fn a_namespace_mounted_without_end_is_listed_to_a_limit() {
    let root = tempfile::tempdir().unwrap();
    let line = "9 1 0:4 net:[5] /n rw - nsfs nsfs rw\n";
    process(root.path(), 1, 111, &line.repeat(MAX_PATHS + 5));
    let found = Procfs::new(root.path(), Bounded::default())
        .nsfs_mounts()
        .unwrap();
    assert_eq!(found.mounts[&5].len(), MAX_PATHS);
}

#[test]
fn what_is_no_escape_stays_as_it_is() {
    for (text, plain) in [
        (r"\040", " "),
        (r"a\134040b", r"a\040b"),
        (r"\04", r"\04"),
        (r"\999", r"\999"),
        (r"\777", r"\777"),
        ("", ""),
        (r"\", r"\"),
    ] {
        assert_eq!(unescape(text.as_bytes()), plain.as_bytes(), "{text}");
    }
}

#[test]
fn what_process_1_hides_is_read_by_the_kernels_threads() {
    let root = tempfile::tempdir().unwrap();
    process(root.path(), 2, 111, HOST);
    let zeros = " 0".repeat(40);
    let stat = format!("2 (kthreadd) S 0{zeros}\n");
    fs::write(root.path().join("proc/2/stat"), stat).unwrap();
    let guarded = root.path().join("proc/1/ns");
    fs::create_dir_all(&guarded).unwrap();
    fs::write(guarded.join("mnt"), "no link").unwrap();
    let found = Procfs::new(root.path(), Bounded::default())
        .nsfs_mounts()
        .unwrap();
    assert_eq!((found.mounts.len(), found.unread.len()), (2, 1));
    assert!(!found.partial);
}

#[test]
fn a_path_that_is_no_text_is_a_path_all_the_same() {
    let line = b"612 25 0:4 net:[4026532157] /run/netns/\xff\xfe\xc3\xa4 rw - nsfs nsfs rw\n";
    let mount = nsfs_mount(line).unwrap();
    let expected = OsStr::from_bytes(b"/run/netns/\xff\xfe\xc3\xa4");
    assert_eq!(
        (mount.inode, mount.path.as_os_str()),
        (4_026_532_157, expected)
    );
}

#[test]
fn a_path_that_nobody_could_open_is_cut() {
    let path = "/x".repeat(10_000);
    let line = format!("36 35 0:4 net:[4026532000] {path} rw - nsfs nsfs rw\n");
    let found = nsfs_mount(line.as_bytes()).unwrap();
    assert_eq!(found.inode, 4_026_532_000);
    assert_eq!(found.path.as_os_str().len(), MAX_PATH + CUT.len());
}

#[test]
fn a_mount_that_is_not_the_nodes_is_told_by_its_process_and_a_users_copy_is_none() {
    let lines = |paths: &[&str]| -> Vec<NsfsLine> {
        let line = |path: &&str| NsfsLine {
            id: 1,
            inode: 9,
            path: PathBuf::from(path),
        };
        paths.iter().map(line).collect()
    };
    let member = |tid: u32| Member {
        tid,
        folder: PathBuf::new(),
        mount_ns: tid,
        uid: 0,
    };
    let mut found = NsfsMounts::default();
    found.add(lines(&["/run/a"]), &member(1), true, false);
    found.add(lines(&["/run/b"]), &member(6), false, false);
    found.add(lines(&["/run/a", "/run/c"]), &member(7), false, true);
    let told = found.mounts[&9].iter().map(NsfsMount::on_node);
    let all = ["/run/a", "/proc/6/root/run/b", "/proc/7/task/7/root/run/c"];
    assert_eq!(told.collect::<Vec<_>>(), all.map(PathBuf::from));
}
