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
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::{Duration, Instant},
};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use super::{Procfs, ProcfsError, mounts, namespace_inode, numbers, read_file, read_link};
use event::{FdHolder, MAX_HOLDERS};

/// How long the search may go on. Nodes with a hundred thousand open files
/// take a fraction of this.
const SEARCH: Duration = Duration::from_secs(5);

/// Who holds descriptors of the namespaces asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FdHolders {
    /// By the namespace's inode; at most [`MAX_HOLDERS`] of each.
    pub holders: BTreeMap<u32, Vec<FdHolder>>,
    /// Every process could be looked at. If not, there may be more holders.
    pub complete: bool,
}

impl Procfs {
    /// The processes with a descriptor open on one of these namespaces, other
    /// than the tracer itself. One walk over all descriptors of the node,
    /// whatever the number of namespaces.
    ///
    /// # Errors
    /// The processes cannot be listed, or `/proc` does not answer.
    pub fn fd_holders(&self, inodes: &BTreeSet<u32>) -> Result<FdHolders, ProcfsError> {
        let (inodes, own) = (inodes.clone(), self.own_pid());
        let pids = self.processes()?.into_iter();
        let pids = pids.filter(|pid| Some(*pid) != own).collect();
        let (_, answers) = self.share(pids, SEARCH, move |proc, pid, end| {
            let mut found = FdHolders {
                complete: true,
                ..FdHolders::default()
            };
            found.search(&proc.join(pid.to_string()), pid, &inodes, end);
            found
        });
        let mut all = FdHolders {
            complete: true,
            ..FdHolders::default()
        };
        for answer in answers.each {
            let found = answer.unwrap_or_default();
            all.complete &= found.complete;
            for (inode, holders) in found.holders {
                add(&mut all.holders, inode, holders);
            }
        }
        Ok(all)
    }
}

/// Adds holders of a namespace, as many as are kept.
pub(super) fn add(
    all: &mut BTreeMap<u32, Vec<FdHolder>>,
    inode: u32,
    holders: impl IntoIterator<Item = FdHolder>,
) {
    let kept = all.entry(inode).or_default();
    let room = MAX_HOLDERS.saturating_sub(kept.len());
    kept.extend(holders.into_iter().take(room));
}

impl FdHolders {
    fn search(&mut self, process: &Path, pid: u32, inodes: &BTreeSet<u32>, end: Instant) {
        let is_late = || Instant::now() >= end;
        let Some(Ok((folder, fds))) = (!is_late()).then(|| descriptors(process)) else {
            self.complete = false;
            return;
        };
        let mut comm = None;
        for fd in fds {
            if is_late() {
                self.complete = false;
                return;
            }
            match namespace(&folder, fd, inodes, end) {
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
pub(super) fn descriptors(process: &Path) -> Result<(PathBuf, Vec<u32>), ProcfsError> {
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
fn namespace(
    task: &Path,
    fd: u32,
    inodes: &BTreeSet<u32>,
    end: Instant,
) -> Result<Option<u32>, ProcfsError> {
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
            let path = task.join("mountinfo");
            let left = end.saturating_duration_since(Instant::now());
            let Some(lines) = mounts::nsfs_lines(&path, left)? else {
                return Ok(None);
            };
            let mut mounts = lines.mounts.into_iter();
            match mounts.find(|mount| field("mnt_id:") == Some(mount.id)) {
                None if !lines.whole => Err(ProcfsError::TooLong { path }),
                mount => Ok(mount.map(|mount| mount.inode)),
            }
        }
    }
}

/// Whether the file at the end of a link is on the kernel's file system of
/// namespaces, which is one for all.
pub(super) fn is_namespace(path: &Path) -> bool {
    let own = namespaces_device();
    own.is_some() && device(path) == own
}

/// The device of the kernel's file system of namespaces, as major and minor number.
pub(super) fn namespaces_device() -> Option<(u32, u32)> {
    static OWN: OnceLock<Option<(u32, u32)>> = OnceLock::new();
    *OWN.get_or_init(|| device(Path::new("/proc/self/ns/net")))
}

fn device(path: &Path) -> Option<(u32, u32)> {
    // Not asking a server for fresh attributes.
    let flags = AtFlags::STATX_DONT_SYNC;
    let file = statx(CWD, path, flags, StatxFlags::INO).ok()?;
    Some((file.stx_dev_major, file.stx_dev_minor))
}

#[cfg(test)]
pub(super) mod tests {
    use std::{fmt::Display, fs, os::unix::fs::symlink};

    use super::*;
    use crate::procfs::Bounded;

    pub(in super::super) fn fd(root: &Path, pid: impl Display, fd: u32, target: &str, info: &str) {
        let folder = root.join(format!("proc/{pid}"));
        fs::create_dir_all(folder.join("fd")).unwrap();
        fs::create_dir_all(folder.join("fdinfo")).unwrap();
        symlink(target, folder.join(format!("fd/{fd}"))).unwrap();
        fs::write(folder.join(format!("fdinfo/{fd}")), info).unwrap();
    }

    /// One whose process has no name.
    pub(in super::super) fn holder(pid: u32, fd: u32) -> FdHolder {
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
    fn the_tracer_is_left_out_by_the_number_that_it_has_there() {
        let root = tempfile::tempdir().unwrap();
        let here = std::process::id();
        fd(root.path(), here, 3, "net:[5]", "");
        fd(root.path(), here + 1, 3, "net:[5]", "");
        // In a PID namespace of its own the tracer has another number than the
        // host knows it by.
        symlink((here + 1).to_string(), root.path().join("proc/self")).unwrap();
        let procfs = Procfs::new(root.path(), Bounded::default());
        let found = procfs.fd_holders(&BTreeSet::from([5])).unwrap();
        assert_eq!(found.holders, BTreeMap::from([(5, vec![holder(here, 3)])]));
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
