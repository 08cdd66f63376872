//! The kernel's workers: the one that takes network namespaces down, and those
//! that write to the file systems of users.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

use super::{
    Procfs, ProcfsError, WALK_PATIENCE, frame, processes, read_file, read_stat, status_field,
    tasks::PF_KTHREAD, whose::Whose,
};
use event::sleep;

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
const KTHREADD: &str = "2";

fn any_at_work(proc: &Path) -> Result<bool, ProcfsError> {
    // Not the list of kthreadd's children, which may skip some of them.
    for pid in processes(proc)? {
        let folder = proc.join(pid.to_string());
        let name = read_file(&folder.join("comm"))?;
        // Every process can take such a name, but none is a kernel thread.
        if name.is_some_and(|name| is_at_work(&name))
            // Not `stat`, which waits for an exec that hangs.
            && read_file(&folder.join("status"))?
                .is_some_and(|status| status_field(&status, "PPid:").as_deref() == Some(KTHREADD))
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

/// Who answers for a thread of the kernel; `None` if a task is none. It is the
/// host, or who has mounted the FUSE file system that a worker waits for.
///
/// While a worker writes back, its name has the device (`flush-0:MINOR`), and
/// the minor number is the name of a folder in `connections` whose owner is the
/// user who has mounted it.
pub(super) fn who_answers(folder: &Path, connections: &Path) -> Option<Whose> {
    let stat = read_stat(&folder.join("stat")).ok()??;
    if stat.flags & PF_KTHREAD == 0 {
        return None;
    }
    let stack = read_file(&folder.join("stack")).ok().flatten();
    let stack = stack.unwrap_or_default();
    let stack = String::from_utf8_lossy(&stack);
    let stack: Vec<String> = stack.lines().filter_map(frame).collect();
    if !sleep::is_fuse_worker(&stat.comm, &stack) {
        return Some(Whose::Host);
    }
    let device = stat.comm.split_once("flush-0:");
    let minor = device.and_then(|(_, minor)| minor.parse::<u32>().ok());
    let connection = minor.map(|minor| connections.join(minor.to_string()));
    let owner = connection.and_then(|folder| fs::metadata(folder).ok());
    Some(match owner.map(|owner| owner.uid()) {
        None => Whose::User(u32::MAX),
        Some(0) => Whose::Host,
        Some(uid) => Whose::User(uid),
    })
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
    fn a_worker_that_waits_for_fuse_is_its_users_and_other_threads_are_the_hosts() {
        let root = tempfile::tempdir().unwrap();
        let connections = root.path().join("connections");
        fs::create_dir_all(connections.join("42")).unwrap();
        let owner = match fs::metadata(&connections).unwrap().uid() {
            0 => Whose::Host,
            uid => Whose::User(uid),
        };
        let zeros = "0 ".repeat(43);
        let answers = |comm: &str, flags: u32, function: &str| {
            let stat = format!("7 ({comm}) D 2 0 0 0 -1 {flags} {zeros}\n");
            fs::write(root.path().join("stat"), stat).unwrap();
            let stack = format!("[<0>] {function}+0xaa/0x210\n");
            fs::write(root.path().join("stack"), stack).unwrap();
            who_answers(root.path(), &connections)
        };
        let wait = "request_wait_answer";
        let nobody = Some(Whose::User(u32::MAX));
        let worker = "kworker/u8:0+flush-0:42";
        assert_eq!(answers(worker, PF_KTHREAD, wait), Some(owner));
        assert_eq!(answers("kworker/u8:0+flush-0:43", PF_KTHREAD, wait), nobody);
        assert_eq!(answers("kworker/u8:0", PF_KTHREAD, wait), nobody);
        let hosts = Some(Whose::Host);
        assert_eq!(answers(worker, PF_KTHREAD, "io_schedule"), hosts);
        assert_eq!(answers("kswapd0", PF_KTHREAD, wait), hosts);
        assert_eq!(answers(worker, 0, wait), None, "a process of that name");
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
            let status = format!("Name:\t{name}PPid:\t{parent}\n");
            fs::write(folder.join("status"), status).unwrap();
        };
        process(2, 0, "kthreadd\n");
        process(70, 2, "kworker/u8:1-netns\n");
        process(80, 1, "kworker/u8:3+netns\n");
        // It hangs in an exec.
        fs::write(root.path().join("proc/80/stat"), "").unwrap();
        assert!(!procfs.takes_namespaces_down().unwrap(), "a user's");
        process(71, 2, "kworker/u8:2+netns\n");
        assert!(procfs.takes_namespaces_down().unwrap());
    }
}
