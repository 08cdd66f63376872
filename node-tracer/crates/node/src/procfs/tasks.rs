//! Every task on the node, thread by thread.
//!
//! A process can be a zombie while one of its threads still sleeps in the
//! kernel and holds its namespaces, so the thread is the unit here: the
//! leader's own `ns/net` is not readable any more then.

use std::path::Path;

use ::procfs::process::Stat;

use super::{
    Missed, PROCESS_PATIENCE, Procfs, ProcfsError, namespace_inode, numbers, read_link, read_stat,
};
use event::Task;

/// A task, and the network namespace that it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskEntry {
    /// The task; its pod and container are not looked up.
    pub task: Task,
    /// Inode of its network namespace. A task that is dead has none.
    pub netns: Option<u32>,
    pub kernel: bool,
}

/// `PF_KTHREAD`
pub(super) const PF_KTHREAD: u32 = 0x0020_0000;

/// All tasks that could be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tasks {
    pub list: Vec<TaskEntry>,
    /// Processes of which some task, or all, could not be read.
    pub missed: Missed,
    /// Living tasks that are listed, but not the namespace that they are in. The
    /// threads of process 1 are not counted, which can be guarded even from
    /// root: they are the host's.
    pub hidden: Missed,
}

impl Procfs {
    /// Every task of every process, zombies and kernel threads among them.
    ///
    /// # Errors
    /// `/proc` cannot be read, has no process, or does not answer at all. One
    /// task that cannot be read does not hide the others: it is listed without
    /// a namespace, or left out if it is gone.
    pub fn tasks(&self) -> Result<Tasks, ProcfsError> {
        let answers = self.each(self.processes()?, PROCESS_PATIENCE, None, threads);
        let mut all = Tasks::default();
        for answer in answers.each {
            let Some(threads) = answer else {
                all.missed.add_all(1, answers.hung.as_ref());
                continue;
            };
            all.list.extend(threads.list);
            if let Some(error) = &threads.failed {
                all.missed.add(error);
            }
            all.hidden.add_all(threads.hidden, threads.unseen.as_ref());
        }
        self.note_not_stuck(&mut all.list);
        match answers.hung {
            Some(error) if all.list.is_empty() => Err(error),
            _ => Ok(all),
        }
    }
}

/// The threads of one process.
#[derive(Default)]
struct Threads {
    list: Vec<TaskEntry>,
    /// Why one is not listed.
    failed: Option<ProcfsError>,
    /// How many have a namespace that cannot be read, and why.
    hidden: usize,
    unseen: Option<ProcfsError>,
}

impl Threads {
    fn add(&mut self, (entry, error): (TaskEntry, Option<ProcfsError>)) {
        // The kernel's own are in the host's namespace, the dead in none.
        let dead = matches!(entry.task.state, Some('Z' | 'X'));
        if let Some(error) = error.filter(|_| !entry.kernel && !dead && entry.task.pid != 1) {
            self.hidden += 1;
            self.unseen.get_or_insert(error);
        }
        self.list.push(entry);
    }
}

fn threads(proc: &Path, pid: u32) -> Threads {
    let process = proc.join(pid.to_string());
    let mut threads = Threads::default();
    match read_stat(&process.join("stat")) {
        // Most processes have one thread: their folder of threads, which the
        // kernel would have to make, is left alone.
        Ok(Some(leader)) if leader.num_threads == 1 => {
            threads.add(entry(&process, pid, pid, leader));
            return threads;
        }
        Ok(Some(_)) => {}
        Ok(None) => return threads,
        // The others may be readable.
        Err(error) => threads.failed = Some(error),
    }
    let folder = process.join("task");
    let tids = numbers(&folder).unwrap_or_else(|error| {
        threads.failed.get_or_insert(error);
        Vec::new()
    });
    for tid in tids {
        let folder = folder.join(tid.to_string());
        match read_stat(&folder.join("stat")) {
            Ok(Some(stat)) => threads.add(entry(&folder, pid, tid, stat)),
            Ok(None) => {}
            Err(error) => {
                threads.failed.get_or_insert(error);
            }
        }
    }
    threads
}

/// A task, and why its namespace is not known, if it cannot be read.
pub(super) fn entry(
    folder: &Path,
    pid: u32,
    tid: u32,
    stat: Stat,
) -> (TaskEntry, Option<ProcfsError>) {
    let kernel = stat.flags & PF_KTHREAD != 0;
    let task = Task {
        pid,
        tid,
        comm: stat.comm,
        state: Some(stat.state),
        start_ticks: Some(stat.starttime),
        kernel_thread: kernel,
        ..Task::default()
    };
    // The namespaces of another user's process are hidden from one who is not
    // root; that is no reason to lose the rest.
    let (link, error) = match read_link(&folder.join("ns/net")) {
        Ok(link) => (link, None),
        Err(error) => (None, Some(error)),
    };
    let netns = link.and_then(|link| namespace_inode(link.as_os_str(), "net"));
    let entry = TaskEntry {
        task,
        netns,
        kernel,
    };
    (entry, error)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, sync::mpsc, thread};

    use super::*;
    use crate::procfs::Bounded;

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
        let mut tasks = procfs.tasks().unwrap().list;
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
            .unwrap()
            .list;
        assert_eq!(tasks.len(), 1);
        assert_eq!((tasks[0].netns, tasks[0].kernel), (Some(5), true));
    }

    #[test]
    fn what_cannot_be_read_of_one_process_hides_no_other_and_is_counted() {
        let root = tempfile::tempdir().unwrap();
        for pid in [7, 8, 9] {
            make_task(root.path(), pid, pid, "app", 'S', Some(5));
        }
        make_task(root.path(), 8, 12, "app", 'D', Some(5));
        fs::write(root.path().join("proc/8/stat"), "8 (app) ?\n").unwrap();
        fs::write(root.path().join("proc/8/task/8/stat"), "8 (app) ?\n").unwrap();
        let link = root.path().join("proc/9/task/9/ns/net");
        fs::remove_file(&link).unwrap();
        fs::write(link, "no link").unwrap();
        let found = Procfs::new(root.path(), Bounded::default())
            .tasks()
            .unwrap();
        let mut tids: Vec<u32> = found.list.iter().map(|entry| entry.task.tid).collect();
        tids.sort_unstable();
        assert_eq!(tids, [7, 9, 12]);
        assert_eq!((found.missed.count, found.hidden.count), (1, 1));
        let said = found.missed.say(|n| format!("{n} processes")).unwrap();
        assert!(said.contains("proc/8/stat"), "{said}");
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
        let tasks = procfs.tasks().unwrap().list;
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
