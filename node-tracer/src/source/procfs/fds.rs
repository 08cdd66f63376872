//! Who holds a descriptor of a network namespace: such a process keeps the
//! namespace alive without being in it.
//!
//! A descriptor that was opened by `/proc/PID/ns/net` has a link of the form
//! `net:[inode]`. One that was opened by a mount (`/run/netns/NAME`, as the
//! runtimes and `ip netns exec` do) has that path, or `/` once it is no longer
//! mounted, and is known by its `fdinfo` alone. The file behind a descriptor
//! is not touched before `fdinfo` says that it is of interest: it can lie on a
//! file system that hangs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::fd::AsRawFd as _,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use super::{
    Procfs, ProcfsError, WALK_PATIENCE, mounts, namespace_inode, numbers, processes, read_file,
    read_link, status_field,
};
use crate::{
    event::{FdHolder, MAX_HOLDERS},
    report,
};

/// How long the search may go on. Nodes with a hundred thousand open files
/// take a fraction of this.
const SEARCH: Duration = Duration::from_secs(5);

/// Who holds descriptors of the namespaces asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FdHolders {
    /// By the namespace's inode; at most [`MAX_HOLDERS`] of each.
    pub(crate) holders: BTreeMap<u32, Vec<FdHolder>>,
    /// Every process could be looked at. If not, there may be more holders.
    pub(crate) complete: bool,
}

/// What the descriptors of processes lead to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// Who holds namespaces that nothing else is known to lead to, by the
    /// namespace's inode; at most [`MAX_HOLDERS`] of each.
    pub(crate) namespaces: BTreeMap<u32, Vec<FdHolder>>,
    /// The sockets of each process that has any: its number, and descriptor
    /// and inode of each socket.
    pub(crate) sockets: BTreeMap<u32, Vec<(u32, u64)>>,
    /// The first thing that could not be looked at.
    pub(crate) unread: Option<String>,
}

/// Sockets of one process that are listed.
const MAX_SOCKETS: usize = 65_536;

impl Procfs {
    /// The descriptors of network namespaces other than the `known` ones, and
    /// those of sockets, found within the time given. A namespace that is
    /// mounted nowhere and that no task is in is known by these alone.
    ///
    /// Looked at are those of the `processes` that are in the host's network
    /// namespace (`true`) or have `CAP_SYS_ADMIN`, but for the tracer itself:
    /// the processes of an ordinary pod cannot have been in another namespace
    /// than they are in now, and they have most of a node's descriptors.
    ///
    /// # Errors
    /// `/proc` does not answer.
    pub(crate) fn descriptors(
        &self,
        processes: &BTreeMap<u32, bool>,
        known: &BTreeSet<u32>,
        limit: Duration,
    ) -> Result<Descriptors, ProcfsError> {
        let (processes, known) = (processes.clone(), known.clone());
        self.bounded(WALK_PATIENCE, self.proc.clone(), move |proc| {
            let mut found = Descriptors::default();
            let start = Instant::now();
            for (pid, host) in processes {
                if start.elapsed() > limit {
                    let text = format!("processes from {pid} on: it took too long");
                    found.unread = Some(text);
                    break;
                }
                let process = proc.join(pid.to_string());
                if pid != std::process::id() && (host || may_move(&process)) {
                    found.search(&process, pid, &known);
                }
            }
            Ok(found)
        })
    }

    /// The processes with a descriptor open on one of these namespaces, other
    /// than the tracer itself. One walk over all descriptors of the node,
    /// whatever the number of namespaces.
    ///
    /// # Errors
    /// The processes cannot be listed, or `/proc` does not answer.
    pub(crate) fn fd_holders(&self, inodes: &BTreeSet<u32>) -> Result<FdHolders, ProcfsError> {
        let inodes = inodes.clone();
        self.bounded(WALK_PATIENCE, self.proc.clone(), move |proc| {
            let mut found = FdHolders {
                complete: true,
                ..FdHolders::default()
            };
            let start = Instant::now();
            for pid in processes(proc)? {
                if start.elapsed() > SEARCH {
                    found.complete = false;
                    break;
                }
                if pid != std::process::id() {
                    found.search(&proc.join(pid.to_string()), pid, &inodes);
                }
            }
            Ok(found)
        })
    }
}

impl Descriptors {
    fn search(&mut self, process: &Path, pid: u32, known: &BTreeSet<u32>) {
        let (task, fds) = match descriptors(process) {
            Ok(found) => found,
            Err(error) => return self.failed(&error),
        };
        let folder = task.join("fd");
        let mut sockets = Vec::new();
        for fd in fds {
            let path = folder.join(fd.to_string());
            let link = match read_link(&path) {
                Ok(Some(link)) => link,
                Ok(None) => continue,
                Err(error) => {
                    self.failed(&error);
                    continue;
                }
            };
            let link = link.as_os_str();
            if let Some(inode) = numbered(link.as_bytes(), b"socket:[") {
                if sockets.len() < MAX_SOCKETS {
                    sockets.push((fd, inode));
                }
                continue;
            }
            let inode = match link.as_bytes() {
                // Opened by a mount that is no more, or the root folder.
                b"/" => unmounted(&path),
                _ => namespace_inode(link, "net"),
            };
            if let Some(inode) = inode.filter(|inode| !known.contains(inode)) {
                let holders = self.namespaces.entry(inode).or_default();
                if holders.len() < MAX_HOLDERS {
                    let comm = name(process);
                    holders.push(FdHolder { pid, fd, comm });
                }
            }
        }
        if !sockets.is_empty() {
            self.sockets.insert(pid, sockets);
        }
    }

    fn failed(&mut self, error: &ProcfsError) {
        self.unread.get_or_insert_with(|| report::chain(error));
    }
}

/// Whether a process may enter namespaces.
fn may_move(process: &Path) -> bool {
    /// `CAP_SYS_ADMIN`
    const SYS_ADMIN: u64 = 1 << 21;
    let Ok(Some(status)) = read_file(&process.join("status")) else {
        return false;
    };
    let set = status_field(&status, "CapEff:");
    let set = set.and_then(|set| u64::from_str_radix(&set, 16).ok());
    set.is_some_and(|set| set & SYS_ADMIN != 0)
}

/// The number in `socket:[4711]`.
fn numbered(link: &[u8], prefix: &[u8]) -> Option<u64> {
    let number = link.strip_prefix(prefix)?.strip_suffix(b"]")?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// The network namespace that a descriptor is of, if it is of one at all.
fn unmounted(path: &Path) -> Option<u32> {
    if !is_namespace(path) {
        return None;
    }
    let mut options = fs::OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .ok()?;
    // SAFETY: takes no argument, and the descriptor is open.
    let kind = unsafe { libc::ioctl(file.as_raw_fd(), libc::NS_GET_NSTYPE) };
    let inode = file.metadata().ok()?.ino();
    (kind == libc::CLONE_NEWNET)
        .then(|| u32::try_from(inode).ok())
        .flatten()
}

impl FdHolders {
    fn search(&mut self, process: &Path, pid: u32, inodes: &BTreeSet<u32>) {
        let Ok((folder, fds)) = descriptors(process) else {
            self.complete = false;
            return;
        };
        let mut comm = None;
        for fd in fds {
            match namespace(&folder, fd, inodes) {
                Ok(Some(inode)) if inodes.contains(&inode) => {
                    let holders = self.holders.entry(inode).or_default();
                    if holders.len() < MAX_HOLDERS {
                        let comm = comm.get_or_insert_with(|| name(process)).clone();
                        holders.push(FdHolder { pid, fd, comm });
                    }
                }
                Ok(_) => {}
                Err(_) => self.complete = false,
            }
        }
    }
}

/// The name of a process; `None` if it is gone.
pub(super) fn name(process: &Path) -> Option<String> {
    let bytes = read_file(&process.join("comm")).ok()??;
    let name = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    Some(String::from_utf8_lossy(name).into_owned())
}

/// The descriptors of a process, and the folder of a task that has them: the
/// leader, or another thread if the leader is a zombie.
fn descriptors(process: &Path) -> Result<(PathBuf, Vec<u32>), ProcfsError> {
    let fds = numbers(&process.join("fd"))?;
    if !fds.is_empty() {
        return Ok((process.to_owned(), fds));
    }
    let tasks = process.join("task");
    for tid in numbers(&tasks)? {
        let folder = tasks.join(tid.to_string());
        let fds = numbers(&folder.join("fd"))?;
        if !fds.is_empty() {
            return Ok((folder, fds));
        }
    }
    Ok((process.to_owned(), fds))
}

/// The network namespace that a descriptor is of; if it is not one of those
/// asked for, the answer may be `None`.
fn namespace(task: &Path, fd: u32, inodes: &BTreeSet<u32>) -> Result<Option<u32>, ProcfsError> {
    let path = task.join("fd").join(fd.to_string());
    let Some(link) = read_link(&path)? else {
        return Ok(None);
    };
    if !link.as_os_str().as_bytes().starts_with(b"/") {
        return Ok(namespace_inode(link.as_os_str(), "net"));
    }
    let Some(info) = read_file(&task.join("fdinfo").join(fd.to_string()))? else {
        return Ok(None);
    };
    let info = String::from_utf8_lossy(&info);
    let field = |name: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(name))?;
        value.trim().parse::<u64>().ok()
    };
    match field("ino:") {
        Some(inode) => {
            let wanted = u32::try_from(inode)
                .ok()
                .filter(|inode| inodes.contains(inode));
            // Another file system can have a file of the same number.
            Ok(wanted.filter(|_| is_namespace(&path)))
        }
        // Linux before 5.14 tells the mount alone.
        None => {
            let mounts = mounts::nsfs_lines(&task.join("mountinfo"))?.unwrap_or_default();
            let mount = mounts
                .into_iter()
                .find(|mount| field("mnt_id:") == Some(mount.id));
            Ok(mount.map(|mount| mount.inode))
        }
    }
}

/// Whether the file at the end of a link is on the kernel's file system of
/// namespaces, which is one for all.
fn is_namespace(path: &Path) -> bool {
    let device = |path: &Path| {
        // Not asking a server for fresh attributes.
        let flags = AtFlags::STATX_DONT_SYNC;
        let file = statx(CWD, path, flags, StatxFlags::INO).ok()?;
        Some((file.stx_dev_major, file.stx_dev_minor))
    };
    device(path).is_some_and(|found| device(Path::new("/proc/self/ns/net")) == Some(found))
}

#[cfg(test)]
mod tests {
    use std::{fmt::Display, fs, os::unix::fs::symlink};

    use super::*;
    use crate::source::procfs::Bounded;

    fn fd(root: &Path, pid: impl Display, fd: u32, target: &str, info: &str) {
        let folder = root.join(format!("proc/{pid}"));
        fs::create_dir_all(folder.join("fd")).unwrap();
        fs::create_dir_all(folder.join("fdinfo")).unwrap();
        symlink(target, folder.join(format!("fd/{fd}"))).unwrap();
        fs::write(folder.join(format!("fdinfo/{fd}")), info).unwrap();
    }

    /// One whose process has no name.
    fn holder(pid: u32, fd: u32) -> FdHolder {
        FdHolder {
            pid,
            fd,
            comm: None,
        }
    }

    fn own_netns() -> u32 {
        let link = fs::read_link("/proc/self/ns/net").unwrap();
        namespace_inode(link.as_os_str(), "net").unwrap()
    }

    #[test]
    fn the_holders_of_the_namespaces_asked_for_are_found_in_one_walk() {
        let root = tempfile::tempdir().unwrap();
        fd(root.path(), 7, 3, "net:[4026532157]", "");
        fd(root.path(), 7, 4, "socket:[4026532157]", "");
        fd(root.path(), 7, 5, "/tmp/net:[4026532157]", "");
        fd(root.path(), 8, 9, "net:[4026532261]", "");
        fd(root.path(), 9, 1, "net:[4026532999]", "");
        // A thread under a leader that is a zombie.
        fs::create_dir_all(root.path().join("proc/10/fd")).unwrap();
        fd(root.path(), "10/task/12", 6, "net:[4026532261]", "");
        fs::create_dir_all(root.path().join("proc/11")).unwrap();
        let procfs = Procfs::new(root.path(), Bounded::default());
        let found = procfs
            .fd_holders(&BTreeSet::from([4_026_532_157, 4_026_532_261]))
            .unwrap();
        assert_eq!(
            found,
            FdHolders {
                holders: BTreeMap::from([
                    (4_026_532_157, vec![holder(7, 3)]),
                    (4_026_532_261, vec![holder(8, 9), holder(10, 6)]),
                ]),
                complete: true,
            }
        );
    }

    #[test]
    fn namespaces_that_nothing_else_leads_to_and_sockets_are_found_in_one_walk() {
        let root = tempfile::tempdir().unwrap();
        fd(root.path(), 7, 3, "net:[100]", "");
        fd(root.path(), 7, 4, "net:[200]", "");
        fd(root.path(), 7, 5, "mnt:[300]", "");
        fd(root.path(), 7, 6, "socket:[4711]", "");
        fd(root.path(), 7, 7, "/tmp/socket:[4712]", "");
        fd(root.path(), 7, 8, "/", "");
        for (pid, capabilities) in [(9, "000001ffffffffff"), (10, "00000000a80425fb")] {
            fd(root.path(), pid, 5, "net:[200]", "");
            let folder = root.path().join(format!("proc/{pid}"));
            fs::write(folder.join("comm"), "leaky\n").unwrap();
            let status = format!("Name:\tleaky\nCapEff:\t{capabilities}\n");
            fs::write(folder.join("status"), status).unwrap();
        }
        let procfs = Procfs::new(root.path(), Bounded::default());
        let known = BTreeSet::from([100]);
        let all = BTreeMap::from([(7, true), (9, false), (10, false)]);
        let search = |limit| procfs.descriptors(&all, &known, limit).unwrap();
        let found = search(Duration::from_secs(9));
        let named = FdHolder {
            comm: Some(String::from("leaky")),
            ..holder(9, 5)
        };
        let expected = Descriptors {
            namespaces: BTreeMap::from([(200, vec![holder(7, 4), named])]),
            sockets: BTreeMap::from([(7, vec![(6, 4711)])]),
            unread: None,
        };
        assert_eq!(found, expected);
        assert!(search(Duration::ZERO).unread.is_some(), "out of time");
    }

    #[test]
    fn a_process_that_cannot_be_searched_leaves_the_answer_incomplete() {
        let root = tempfile::tempdir().unwrap();
        fd(root.path(), 7, 3, "net:[5]", "");
        fs::create_dir_all(root.path().join("proc/8")).unwrap();
        fs::write(root.path().join("proc/8/fd"), "").unwrap();
        let procfs = Procfs::new(root.path(), Bounded::default());
        let found = procfs.fd_holders(&BTreeSet::from([5])).unwrap();
        assert_eq!((found.holders.len(), found.complete), (1, false));
    }

    #[test]
    fn a_descriptor_of_a_mounted_namespace_is_known_by_its_inode_and_file_system() {
        let root = tempfile::tempdir().unwrap();
        let own = own_netns();
        let info = format!("pos:\t0\nflags:\t0100000\nmnt_id:\t33\nino:\t{own}\n");
        // The link stands for the magic one, which leads to the namespace
        // whatever path it shows.
        fd(root.path(), 7, 3, "/proc/self/ns/net", &info);
        fd(root.path(), 8, 3, "/etc/passwd", &info);
        let procfs = Procfs::new(root.path(), Bounded::default());
        let found = procfs.fd_holders(&BTreeSet::from([own])).unwrap();
        let mine = vec![holder(7, 3)];
        assert_eq!(found.holders, BTreeMap::from([(own, mine)]));
        assert!(found.complete);
    }

    #[test]
    fn before_linux_5_14_the_mount_tells_the_namespace() {
        let root = tempfile::tempdir().unwrap();
        fd(root.path(), 7, 3, "/run/netns/a", "pos:\t0\nmnt_id:\t612\n");
        fs::write(root.path().join("proc/7/comm"), "a daemon\n").unwrap();
        fd(root.path(), 7, 4, "/etc/passwd", "pos:\t0\nmnt_id:\t22\n");
        let mountinfo = "612 25 0:4 net:[5] /run/netns/a rw shared:310 - nsfs nsfs rw\n";
        fs::write(root.path().join("proc/7/mountinfo"), mountinfo).unwrap();
        let procfs = Procfs::new(root.path(), Bounded::default());
        let found = procfs.fd_holders(&BTreeSet::from([5])).unwrap();
        let named = FdHolder {
            comm: Some(String::from("a daemon")),
            ..holder(7, 3)
        };
        assert_eq!(found.holders, BTreeMap::from([(5, vec![named])]));
    }
}
