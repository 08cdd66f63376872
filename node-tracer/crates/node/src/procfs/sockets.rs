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
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    fs::{FileType, fstat},
    io::Errno,
    process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open},
};

use super::{
    Descriptors, Procfs, ProcfsError, fds, namespace_inode, numbers, read_file, read_link,
    status_field,
};
use event::{FdHolder, MAX_HOLDERS};
use sys::syscall;

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

/// `PIDFD_THREAD`
const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL as u32);

/// Longest line of a table that is read: a path in `unix` has 108 bytes.
const MAX_LINE: u64 = 4096;

/// What the search for sockets has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketHolders {
    /// By the namespace's inode; at most [`MAX_HOLDERS`] of each.
    pub holders: BTreeMap<u32, Vec<FdHolder>>,
    /// How many sockets were asked.
    pub asked: usize,
    /// Why there may be more holders.
    pub incomplete: Option<&'static str>,
}

impl Procfs {
    /// The processes with a socket in a network namespace other than the
    /// `known` ones, found within the time given.
    pub fn socket_holders(
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
            skipped: false,
            found: SocketHolders::default(),
        };
        let sockets = descriptors.sockets.clone();
        // Whoever has sockets answered just now, and may hang since.
        let proc = self.proc.clone();
        let search = move || search.run(&proc, &sockets);
        let found = self.bounded.read(limit + self.patience, search);
        found.unwrap_or(SocketHolders {
            incomplete: Some("a process's sockets do not answer"),
            ..SocketHolders::default()
        })
    }

    /// Whether the processes have the same numbers here as for the tracer's
    /// own system calls.
    pub(super) fn has_own_processes(&self) -> bool {
        let path = self.proc.join("self/status");
        // Both by the thread that reads: it may be of another process.
        let read = |path: &Path| Ok(read_file(path)?.map(|text| (text, std::process::id())));
        let Ok(Some((status, own))) = self.bounded(self.patience, path, read) else {
            return false;
        };
        status_field(&status, "NSpid:").is_some_and(|numbers| numbers == own.to_string())
    }
}

struct Search {
    known: BTreeSet<u32>,
    end: Instant,
    /// The sockets that the tables of a namespace list.
    listed: BTreeMap<u32, BTreeSet<u64>>,
    /// Some could not be asked.
    skipped: bool,
    found: SocketHolders,
}

/// A task that has a process's sockets.
struct Place {
    tid: u32,
    folder: PathBuf,
    /// The namespace that it is in.
    netns: u32,
}

/// The leader, or another thread if the leader is a zombie; `None` if the
/// process is gone.
fn place(process: &Path, pid: u32) -> Result<Option<Place>, ProcfsError> {
    let of = |tid: u32, folder: PathBuf| -> Result<Option<Place>, ProcfsError> {
        let link = read_link(&folder.join("ns/net"))?;
        let netns = link.and_then(|link| namespace_inode(link.as_os_str(), "net"));
        Ok(netns.map(|netns| Place { tid, folder, netns }))
    };
    if let Some(place) = of(pid, process.to_owned())? {
        return Ok(Some(place));
    }
    let tasks = process.join("task");
    for tid in numbers(&tasks)? {
        if let Some(place) = of(tid, tasks.join(tid.to_string()))? {
            return Ok(Some(place));
        }
    }
    Ok(None)
}

/// Whether the kernel does not let a socket be asked that is there: it is
/// guarded, or the kernel cannot name a thread that is no leader.
fn is_refused(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EPERM | libc::EACCES | libc::EINVAL | libc::ENOSYS)
    )
}

impl Search {
    fn run(mut self, proc: &Path, sockets: &[(u32, Vec<(u32, u64)>)]) -> SocketHolders {
        for (pid, sockets) in sockets {
            if self.is_over() {
                break;
            }
            let process = proc.join(pid.to_string());
            match place(&process, *pid) {
                Ok(Some(place)) => self.ask(&process, *pid, &place, sockets),
                Ok(None) => {}
                Err(_) => self.skipped = true,
            }
        }
        if self.skipped {
            let why = "those of some processes cannot be asked";
            self.found.incomplete.get_or_insert(why);
        }
        self.found
    }

    /// Asks those sockets of a process that are not in its own namespace's
    /// tables.
    fn ask(&mut self, process: &Path, pid: u32, place: &Place, sockets: &[(u32, u64)]) {
        let (own, end) = (place.netns, self.end);
        let listed = self
            .listed
            .entry(own)
            .or_insert_with(|| tables(&place.folder.join("net"), end));
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
            let inode = socket_namespace(place.tid, fd).and_then(|file| {
                // Inodes of the kernel's namespaces have 32 bits.
                Ok(file.metadata()?.ino() as u32)
            });
            let inode = match inode {
                Ok(inode) => inode,
                Err(error) => {
                    // Else it is gone, or of a kind that is in no namespace.
                    self.skipped |= is_refused(&error);
                    continue;
                }
            };
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

#[cfg(feature = "testing")]
pub(super) fn fuzz(line: &[u8]) {
    for column in [0, 6, 9] {
        inode(line, column);
    }
}

/// The file of the network namespace that a socket of another process is in,
/// by one of its threads that lives. The duplicate of the socket is closed when
/// this returns.
///
/// # Errors
/// The process is gone, or guarded; it is no socket; or it is in no namespace.
pub fn socket_namespace(tid: u32, fd: u32) -> io::Result<fs::File> {
    let (Ok(pid), Ok(fd)) = (i32::try_from(tid), i32::try_from(fd)) else {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    };
    let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        // Not a leader; since Linux 6.9 it can be said that none is meant.
        Err(Errno::INVAL | Errno::NOENT) => pidfd_open(pid, PIDFD_THREAD)?,
        result => result?,
    };
    let socket = pidfd_getfd(&process, fd, PidfdGetfdFlags::empty())?;
    // The number may be another file's by now, to which the request would mean
    // something else.
    if FileType::from_raw_mode(fstat(&socket)?.st_mode) != FileType::Socket {
        return Err(io::Error::from_raw_os_error(libc::ENOTSOCK));
    }
    syscall::namespace_of_socket(&socket)
}

#[cfg(test)]
mod tests;
