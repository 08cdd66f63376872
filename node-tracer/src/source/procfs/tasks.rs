//! Every task on the node, thread by thread.
//!
//! A process can be a zombie while one of its threads still sleeps in the
//! kernel and holds its namespaces, so the thread is the unit here: the
//! leader's own `ns/net` is not readable any more then.

use std::path::Path;

use ::procfs::process::Stat;

use super::{Procfs, ProcfsError, namespace_inode, numbers, read_link, read_stat};
use crate::event::Task;

/// A task, and the network namespace that it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskEntry {
    /// The task; its pod and container are not looked up.
    pub(crate) task: Task,
    /// Inode of its network namespace. A task that is dead has none.
    pub(crate) netns: Option<u32>,
    /// It is one of the kernel's own.
    pub(crate) kernel: bool,
}

/// `PF_KTHREAD`
const PF_KTHREAD: u32 = 0x0020_0000;

impl Procfs {
    /// Every task of every process, zombies and kernel threads among them.
    ///
    /// # Errors
    /// `/proc` cannot be read or understood, has no process, or does not
    /// answer. One task that cannot be read does not hide the others: it is
    /// listed without a namespace, or left out if it is gone.
    pub(crate) fn tasks(&self) -> Result<Vec<TaskEntry>, ProcfsError> {
        self.each_process(threads)
    }
}

/// The threads of a process.
fn threads(proc: &Path, pid: u32) -> Result<Vec<TaskEntry>, ProcfsError> {
    let process = proc.join(pid.to_string());
    let Some(leader) = read_stat(&process.join("stat"))? else {
        return Ok(Vec::new());
    };
    // Most processes have one thread: their folder of threads, which the
    // kernel would have to make, is left alone.
    if leader.num_threads == 1 {
        return Ok(vec![entry(&process, pid, pid, leader)]);
    }
    let folder = process.join("task");
    let mut threads = Vec::new();
    for tid in numbers(&folder)? {
        let folder = folder.join(tid.to_string());
        if let Some(stat) = read_stat(&folder.join("stat"))? {
            threads.push(entry(&folder, pid, tid, stat));
        }
    }
    Ok(threads)
}

pub(super) fn entry(folder: &Path, pid: u32, tid: u32, stat: Stat) -> TaskEntry {
    let kernel = stat.flags & PF_KTHREAD != 0;
    let task = Task {
        pid,
        tid,
        comm: stat.comm,
        state: Some(stat.state),
        start_ticks: Some(stat.starttime),
        ..Task::default()
    };
    // The namespaces of another user's process are hidden from one who is not
    // root; that is no reason to lose the rest.
    let link = read_link(&folder.join("ns/net")).unwrap_or_default();
    let netns = link.and_then(|link| namespace_inode(link.as_os_str(), "net"));
    TaskEntry {
        task,
        netns,
        kernel,
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, sync::mpsc, thread};

    use super::*;
    use crate::source::procfs::Bounded;

    /// The folder of one of two threads, below `root`.
    fn make_task(root: &Path, pid: u32, tid: u32, comm: &str, state: char, netns: Option<u32>) {
        let process = root.join(format!("proc/{pid}"));
        let folder = process.join(format!("task/{tid}"));
        fs::create_dir_all(folder.join("ns")).unwrap();
        let zeros = " 0".repeat(30);
        let stat =
            format!("{tid} ({comm}) {state} 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0 4711{zeros}\n");
        fs::write(folder.join("stat"), &stat).unwrap();
        if tid == pid {
            fs::write(process.join("stat"), stat).unwrap();
        }
        if let Some(inode) = netns {
            symlink(format!("net:[{inode}]"), folder.join("ns/net")).unwrap();
        }
    }

    #[test]
    fn a_thread_that_still_sleeps_is_found_under_a_leader_that_is_dead() {
        let root = tempfile::tempdir().unwrap();
        make_task(root.path(), 7, 7, "app", 'Z', None);
        make_task(root.path(), 7, 9, "app) D 1", 'D', Some(4_026_532_157));
        fs::create_dir_all(root.path().join("proc/sys")).unwrap();
        let procfs = Procfs::new(root.path(), Bounded::default());
        let mut tasks = procfs.tasks().unwrap();
        tasks.sort_by_key(|entry| entry.task.tid);
        assert_eq!((tasks[0].task.state, tasks[0].netns), (Some('Z'), None));
        assert_eq!(
            tasks[1],
            TaskEntry {
                task: Task {
                    pid: 7,
                    tid: 9,
                    comm: String::from("app) D 1"),
                    state: Some('D'),
                    start_ticks: Some(4711),
                    ..Task::default()
                },
                netns: Some(4_026_532_157),
                kernel: false,
            }
        );
        assert_eq!(tasks.len(), 2);
    }

    #[test]
    fn of_a_process_with_one_thread_its_own_folder_is_read() {
        let root = tempfile::tempdir().unwrap();
        make_task(root.path(), 2, 2, "kthreadd", 'S', None);
        let process = root.path().join("proc/2");
        let stat = fs::read_to_string(process.join("stat")).unwrap();
        let stat = stat
            .replace("-1 0", "-1 2129984")
            .replace("20 0 2", "20 0 1");
        fs::write(process.join("stat"), stat).unwrap();
        fs::remove_dir_all(process.join("task")).unwrap();
        fs::create_dir_all(process.join("ns")).unwrap();
        symlink("net:[5]", process.join("ns/net")).unwrap();
        let tasks = Procfs::new(root.path(), Bounded::default())
            .tasks()
            .unwrap();
        assert_eq!(tasks.len(), 1);
        assert_eq!((tasks[0].netns, tasks[0].kernel), (Some(5), true));
    }

    #[test]
    fn a_folder_without_processes_is_not_taken_for_a_node_without_tasks() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("proc")).unwrap();
        let procfs = Procfs::new(root.path(), Bounded::default());
        assert!(matches!(procfs.tasks(), Err(ProcfsError::Empty { .. })));
    }

    #[test]
    fn the_threads_of_the_running_process_are_found_by_name() {
        let (_release, wait) = mpsc::channel::<()>();
        let (ready, started) = mpsc::channel();
        thread::Builder::new()
            .name(String::from("a) b (c"))
            .spawn(move || {
                ready.send(()).unwrap();
                let _ = wait.recv();
            })
            .unwrap();
        started.recv().unwrap();
        let procfs = Procfs::new(Path::new("/"), Bounded::default());
        let tasks = procfs.tasks().unwrap();
        let own = std::process::id();
        let thread = tasks
            .iter()
            .find(|entry| entry.task.pid == own && entry.task.comm == "a) b (c")
            .unwrap();
        let link = fs::read_link("/proc/self/ns/net").unwrap();
        assert_eq!(thread.netns, namespace_inode(link.as_os_str(), "net"));
        assert!(thread.netns.is_some());
        assert_ne!(thread.task.tid, own);
    }
}
