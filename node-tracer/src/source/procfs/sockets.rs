//! Sockets in network namespaces that their processes are not in: the last
//! thing that can keep such a namespace, and its addresses, alive.
//!
//! Nothing in `/proc` tells the namespace of a socket; the socket itself has to
//! be asked, by a duplicate of its descriptor that is closed at once. Meanwhile
//! the owner cannot close it for good, so only those few are asked that can be
//! of interest: of the processes that may enter namespaces, and not listed in
//! `/proc/PID/net`, as those are in the process's own namespace. The tables of
//! a namespace are read once; a node has few namespaces with such processes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    io::BufRead as _,
    os::fd::{AsRawFd as _, FromRawFd as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FileType, fstat},
    process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open},
};

use super::{Descriptors, Procfs, fds, namespace_inode, read_file, read_link, status_field};
use crate::event::{FdHolder, MAX_HOLDERS};

/// Tables of `/proc/PID/net`, and the column of the inode.
const TABLES: [(&str, usize); 13] = [
    ("unix", 6),
    ("netlink", 9),
    ("packet", 8),
    ("tcp", 9),
    ("tcp6", 9),
    ("udp", 9),
    ("udp6", 9),
    ("udplite", 9),
    ("udplite6", 9),
    ("raw", 9),
    ("raw6", 9),
    ("icmp", 9),
    ("icmp6", 9),
];

/// Sockets that are asked in one search.
const MAX_ASKED: usize = 4096;

/// Longest line of a table that is read: a path in `unix` has 108 bytes.
const MAX_LINE: u64 = 4096;

/// What the search for sockets has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SocketHolders {
    /// By the namespace's inode; at most [`MAX_HOLDERS`] of each.
    pub(crate) holders: BTreeMap<u32, Vec<FdHolder>>,
    /// How many sockets were asked.
    pub(crate) asked: usize,
    /// Why there may be more holders.
    pub(crate) incomplete: Option<&'static str>,
}

impl Procfs {
    /// The processes with a socket in a network namespace other than the
    /// `known` ones, found within the time given.
    pub(crate) fn socket_holders(
        &self,
        descriptors: &Descriptors,
        known: &BTreeSet<u32>,
        limit: Duration,
    ) -> SocketHolders {
        if !self.has_own_processes() {
            return SocketHolders {
                incomplete: Some("the tracer is not in the host's PID namespace"),
                ..SocketHolders::default()
            };
        }
        let search = Search {
            known: known.clone(),
            end: Instant::now() + limit,
            listed: BTreeMap::new(),
            found: SocketHolders::default(),
        };
        let sockets = descriptors.sockets.clone();
        let found = self.bounded(limit + self.patience, self.proc.clone(), move |proc| {
            Ok(search.run(proc, &sockets))
        });
        found.unwrap_or(SocketHolders {
            incomplete: Some("a process's sockets do not answer"),
            ..SocketHolders::default()
        })
    }

    /// Whether the processes have the same numbers here as for the tracer's
    /// own system calls.
    fn has_own_processes(&self) -> bool {
        let path = self.proc.join("self/status");
        let status = self.bounded(self.patience, path, read_file);
        let Ok(Some(status)) = status else {
            return false;
        };
        let own = std::process::id().to_string();
        status_field(&status, "NSpid:").is_some_and(|numbers| numbers == own)
    }
}

struct Search {
    known: BTreeSet<u32>,
    end: Instant,
    /// The sockets that the tables of a namespace list.
    listed: BTreeMap<u32, BTreeSet<u64>>,
    found: SocketHolders,
}

impl Search {
    fn run(mut self, proc: &Path, sockets: &BTreeMap<u32, Vec<(u32, u64)>>) -> SocketHolders {
        for (pid, sockets) in sockets {
            if self.is_over() {
                break;
            }
            let process = proc.join(pid.to_string());
            let own = read_link(&process.join("ns/net")).unwrap_or_default();
            let own = own.and_then(|link| namespace_inode(link.as_os_str(), "net"));
            if let Some(own) = own {
                self.ask(&process, *pid, own, sockets);
            }
        }
        self.found
    }

    /// Asks those sockets of a process that are not in its own namespace's
    /// tables.
    fn ask(&mut self, process: &Path, pid: u32, own: u32, sockets: &[(u32, u64)]) {
        let end = self.end;
        let listed = self
            .listed
            .entry(own)
            .or_insert_with(|| tables(&process.join("net"), end));
        let mut fds = Vec::new();
        for (fd, inode) in sockets {
            if !listed.contains(inode) {
                fds.push(*fd);
            }
        }
        for fd in fds {
            if self.is_over() {
                return;
            }
            self.found.asked += 1;
            let inode = socket_namespace(pid, fd).and_then(|file| {
                // Inodes of the kernel's namespaces have 32 bits.
                Ok(file.metadata()?.ino() as u32)
            });
            // Gone, guarded, or of a kind that is in no namespace.
            let Ok(inode) = inode else { continue };
            if inode == own || self.known.contains(&inode) {
                continue;
            }
            let holders = self.found.holders.entry(inode).or_default();
            if holders.len() < MAX_HOLDERS {
                let comm = fds::name(process);
                holders.push(FdHolder { pid, fd, comm });
            }
        }
    }

    fn is_over(&mut self) -> bool {
        if self.found.asked >= MAX_ASKED {
            self.found.incomplete = Some("there are too many");
        } else if Instant::now() >= self.end {
            self.found.incomplete = Some("it took too long");
        }
        self.found.incomplete.is_some()
    }
}

/// The inodes of all sockets that the tables in a folder list, as far as they
/// can be read by then.
fn tables(folder: &Path, end: Instant) -> BTreeSet<u64> {
    let mut inodes = BTreeSet::new();
    for (name, column) in TABLES {
        // Not every kernel has every protocol.
        if let Ok(file) = fs::File::open(folder.join(name)) {
            let mut file = io::BufReader::with_capacity(32 << 10, file);
            let mut line = Vec::new();
            loop {
                line.clear();
                let mut rest = io::Read::take(&mut file, MAX_LINE);
                match rest.read_until(b'\n', &mut line) {
                    Ok(1..) if Instant::now() < end => inodes.extend(inode(&line, column)),
                    _ => break,
                }
            }
        }
    }
    inodes
}

/// The inode in one line of a table.
fn inode(line: &[u8], column: usize) -> Option<u64> {
    let mut fields = line
        .split(u8::is_ascii_whitespace)
        .filter(|field| !field.is_empty());
    std::str::from_utf8(fields.nth(column)?).ok()?.parse().ok()
}

/// The file of the network namespace that a socket of another process is in.
/// The duplicate of the socket is closed when this returns.
///
/// # Errors
/// The process is gone, or guarded; it is no socket; or it is in no namespace.
pub(crate) fn socket_namespace(pid: u32, fd: u32) -> io::Result<fs::File> {
    let (Ok(pid), Ok(fd)) = (i32::try_from(pid), i32::try_from(fd)) else {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    };
    let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let socket = pidfd_getfd(&process, fd, PidfdGetfdFlags::empty())?;
    // The number may be another file's by now, to which the request would mean
    // something else.
    if FileType::from_raw_mode(fstat(&socket)?.st_mode) != FileType::Socket {
        return Err(io::Error::from_raw_os_error(libc::ENOTSOCK));
    }
    // SAFETY: takes no argument, and the descriptor is open.
    let netns = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGSKNS as libc::Ioctl) };
    if netns < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just opened it for us, with close-on-exec.
    Ok(unsafe { fs::File::from_raw_fd(netns) })
}

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, os::unix::fs::symlink};

    use super::*;
    use crate::source::procfs::Bounded;

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
        let own = format!("NSpid:\t{}\n", std::process::id());
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::write(root.path().join("proc/self/status"), own).unwrap();
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
        let procfs = Procfs::new(root.path(), Bounded::default());
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
}
