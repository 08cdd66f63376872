//! The kernel's worker that takes network namespaces down.

use std::path::Path;

use super::{Procfs, ProcfsError, WALK_PATIENCE, processes, read_file, read_stat};

impl Procfs {
    /// Whether `cleanup_net` runs just now: one that began before the call and
    /// is still under way is always seen.
    ///
    /// It is the only work of the workqueue `netns` (net/core/net_namespace.c),
    /// and while a worker works, the workqueue's name follows its own after a
    /// plus (`wq_worker_comm`, since Linux 4.18).
    ///
    /// # Errors
    /// Processes cannot be listed, or a name cannot be read.
    pub fn takes_namespaces_down(&self) -> Result<bool, ProcfsError> {
        self.bounded(WALK_PATIENCE, self.proc.clone(), any_at_work)
    }
}

/// The parent of all kernel threads, by its process ID.
const KTHREADD: i32 = 2;

fn any_at_work(proc: &Path) -> Result<bool, ProcfsError> {
    // Not the list of kthreadd's children, which may skip some of them.
    for pid in processes(proc)? {
        let folder = proc.join(pid.to_string());
        let name = read_file(&folder.join("comm"))?;
        // Every process can take such a name, but none is a kernel thread.
        if name.is_some_and(|name| is_at_work(&name))
            && read_stat(&folder.join("stat"))?.is_some_and(|stat| stat.ppid == KTHREADD)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a worker of this name takes namespaces down.
fn is_at_work(comm: &[u8]) -> bool {
    comm.starts_with(b"kworker/") && comm.trim_ascii_end().ends_with(b"+netns")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::procfs::Bounded;

    #[test]
    fn a_worker_is_at_work_with_a_plus() {
        assert!(is_at_work(b"kworker/u8:1+netns\n"));
        assert!(is_at_work(b"kworker/R-netns+netns\n"));
        for other in [
            "kworker/u8:1-netns",
            "kworker/R-netns",
            "kworker/0:2+events",
            "a+netns",
        ] {
            assert!(!is_at_work(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn all_processes_are_asked_for_their_name() {
        let root = tempfile::tempdir().unwrap();
        let procfs = Procfs::new(root.path(), Bounded::default());
        assert!(procfs.takes_namespaces_down().is_err());
        let process = |pid: u32, parent: u32, name: &str| {
            let folder = root.path().join("proc").join(pid.to_string());
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("comm"), name).unwrap();
            let stat = format!("{pid} (x) S {parent} 0 0 {}\n", "0 ".repeat(45));
            fs::write(folder.join("stat"), stat).unwrap();
        };
        process(2, 0, "kthreadd\n");
        process(70, 2, "kworker/u8:1-netns\n");
        process(80, 1, "kworker/u8:3+netns\n");
        assert!(!procfs.takes_namespaces_down().unwrap(), "a user's");
        process(71, 2, "kworker/u8:2+netns\n");
        assert!(procfs.takes_namespaces_down().unwrap());
    }
}
