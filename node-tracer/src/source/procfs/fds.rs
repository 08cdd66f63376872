//! Who holds a descriptor of a network namespace: such a process keeps the
//! namespace alive without being in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::{Duration, Instant},
};

use super::{Procfs, ProcfsError, WALK_PATIENCE, namespace_inode, numbers, processes, read_link};

/// How long the search may go on. Nodes with a hundred thousand open files
/// take a fraction of this.
const SEARCH: Duration = Duration::from_secs(5);

/// Holders that are kept of one namespace.
pub(crate) const MAX_HOLDERS: usize = 32;

/// A descriptor of a network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FdHolder {
    /// The process.
    pub(crate) pid: u32,
    /// The number of its descriptor.
    pub(crate) fd: u32,
}

/// Who holds descriptors of the namespaces asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FdHolders {
    /// By the namespace's inode; at most [`MAX_HOLDERS`] of each.
    pub(crate) holders: BTreeMap<u32, Vec<FdHolder>>,
    /// Every process could be looked at. If not, there may be more holders.
    pub(crate) complete: bool,
}

impl Procfs {
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
                    found.search(&proc.join(pid.to_string()).join("fd"), pid, &inodes);
                }
            }
            Ok(found)
        })
    }
}

impl FdHolders {
    fn search(&mut self, folder: &Path, pid: u32, inodes: &BTreeSet<u32>) {
        let Ok(fds) = numbers(folder) else {
            self.complete = false;
            return;
        };
        for fd in fds {
            let Ok(link) = read_link(&folder.join(fd.to_string())) else {
                self.complete = false;
                return;
            };
            let inode = link.and_then(|link| namespace_inode(link.as_os_str(), "net"));
            if let Some(inode) = inode.filter(|inode| inodes.contains(inode)) {
                let holders = self.holders.entry(inode).or_default();
                if holders.len() < MAX_HOLDERS {
                    holders.push(FdHolder { pid, fd });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::source::procfs::Bounded;

    fn fd(root: &Path, pid: u32, fd: u32, target: &str) {
        let folder = root.join(format!("proc/{pid}/fd"));
        fs::create_dir_all(&folder).unwrap();
        symlink(target, folder.join(fd.to_string())).unwrap();
    }

    #[test]
    fn the_holders_of_the_namespaces_asked_for_are_found_in_one_walk() {
        let root = tempfile::tempdir().unwrap();
        fd(root.path(), 7, 3, "net:[4026532157]");
        fd(root.path(), 7, 4, "socket:[4026532157]");
        fd(root.path(), 7, 5, "/tmp/net:[4026532157]");
        fd(root.path(), 8, 9, "net:[4026532261]");
        fd(root.path(), 9, 1, "net:[4026532999]");
        fs::create_dir_all(root.path().join("proc/10")).unwrap();
        let procfs = Procfs::new(root.path(), Bounded::default());
        let found = procfs
            .fd_holders(&BTreeSet::from([4_026_532_157, 4_026_532_261]))
            .unwrap();
        assert_eq!(
            found,
            FdHolders {
                holders: BTreeMap::from([
                    (4_026_532_157, vec![FdHolder { pid: 7, fd: 3 }]),
                    (4_026_532_261, vec![FdHolder { pid: 8, fd: 9 }]),
                ]),
                complete: true,
            }
        );
    }

    #[test]
    fn a_process_that_cannot_be_searched_leaves_the_answer_incomplete() {
        let root = tempfile::tempdir().unwrap();
        fd(root.path(), 7, 3, "net:[5]");
        fs::create_dir_all(root.path().join("proc/8")).unwrap();
        fs::write(root.path().join("proc/8/fd"), "").unwrap();
        let procfs = Procfs::new(root.path(), Bounded::default());
        let found = procfs.fd_holders(&BTreeSet::from([5])).unwrap();
        assert_eq!((found.holders.len(), found.complete), (1, false));
    }
}
