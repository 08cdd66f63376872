//! Tasks in state D that are not stuck: by where they sleep, by the freezer of
//! their cgroup, and because the tracer itself has left them behind.
//!
//! A frozen task is in state D to /proc. Most wait in the freezer itself; from
//! Linux 6.1 on others are frozen where they sleep, which can be anywhere. Only
//! the cgroup tells of those, and only of version 1: a task that version 2 has
//! frozen sleeps interruptibly.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use super::{Procfs, ProcfsError, TaskEntry, frame, read_file};
use event::{NotStuck, sleep};

impl Procfs {
    /// Which of these are not stuck although they are in state D. What cannot
    /// be read makes nobody harmless.
    pub fn not_stuck(&self, tids: Vec<u32>) -> HashMap<u32, NotStuck> {
        if tids.is_empty() {
            return HashMap::new();
        }
        let (own, tids) = self.readers(tids);
        // They hang where a task is stuck that others wait for.
        let (found, missed) = self.apart().many(tids, |proc, tid| {
            Ok(not_stuck(proc, tid)?.map(|why| (tid, why)))
        });
        if let Some(missed) = missed.say(|n| format!("why {n} tasks are in state D")) {
            tracing::debug!("{missed}");
        }
        let own = own.into_iter().map(|tid| (tid, NotStuck::Reader));
        found.into_iter().chain(own).collect()
    }

    /// Which of these are readers of the tracer that runs, and the others. Not by
    /// their name, which anybody can take, and which those of an earlier tracer
    /// have.
    fn readers(&self, tids: Vec<u32>) -> (Vec<u32>, Vec<u32>) {
        let own = self.own_pid().map(|pid| self.task_path(pid, "task"));
        let is_own = |tid: &u32| match &own {
            Some(own) => own.join(tid.to_string()).exists(),
            None => false,
        };
        tids.into_iter().partition(is_own)
    }

    /// Notes it of all that are listed.
    pub(super) fn note_not_stuck(&self, tasks: &mut [TaskEntry]) {
        let in_d = |entry: &&TaskEntry| entry.task.state == Some('D') && !entry.kernel;
        let tids = tasks.iter().filter(in_d).map(|entry| entry.task.tid);
        let found = self.not_stuck(tids.collect());
        if found.is_empty() {
            return;
        }
        for entry in tasks {
            entry.task.not_stuck = found.get(&entry.task.tid).copied();
        }
    }
}

fn not_stuck(proc: &Path, tid: u32) -> Result<Option<NotStuck>, ProcfsError> {
    let folder = proc.join(tid.to_string());
    let text = |file: &str| -> Result<String, ProcfsError> {
        let bytes = read_file(&folder.join(file))?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    };
    let wchan = text("wchan").unwrap_or_default();
    let stack = match wchan.as_str() {
        // Kernels without symbols, or who may not see it.
        "" | "0" => text("stack").unwrap_or_default(),
        _ => String::new(),
    };
    let stack: Vec<String> = stack.lines().filter_map(frame).collect();
    if let Some(why) = sleep::not_stuck(&stack, Some(&wchan)) {
        return Ok(Some(why));
    }
    let Some(file) = freezer(proc, &text("cgroup")?) else {
        return Ok(None);
    };
    let state = read_file(&file)?.unwrap_or_default();
    // While some of a cgroup's tasks are not frozen yet it is "FREEZING", and
    // which ones they are it does not say.
    Ok((state.trim_ascii() == b"FROZEN").then_some(NotStuck::Frozen))
}

/// The file with the state of a task's freezer, its parents' included.
fn freezer(proc: &Path, cgroup: &str) -> Option<PathBuf> {
    let path = cgroup.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let mut controllers = fields.nth(1)?.split(',');
        controllers.find(|controller| *controller == "freezer")?;
        fields.next()
    })?;
    let path = path.strip_prefix('/')?;
    // The top one cannot be frozen; outside of the tracer's own cgroup
    // namespace paths lead elsewhere.
    if path.is_empty()
        || Path::new(path)
            .components()
            .any(|part| part.as_os_str() == "..")
    {
        return None;
    }
    let top = proc.parent()?.join("sys/fs/cgroup/freezer");
    Some(top.join(path).join("freezer.state"))
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use super::*;
    use crate::procfs::Bounded;

    fn task(root: &Path, tid: u32, files: &[(&str, &str)]) {
        let folder = root.join(format!("proc/{tid}"));
        fs::create_dir_all(&folder).unwrap();
        for (file, text) in files {
            fs::write(folder.join(file), text).unwrap();
        }
    }

    fn freeze(root: &Path, cgroup: &str, state: &str) {
        let folder = root.join("sys/fs/cgroup/freezer").join(cgroup);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("freezer.state"), format!("{state}\n")).unwrap();
    }

    fn why(root: &Path, tid: u32) -> Option<NotStuck> {
        let procfs = Procfs::new(root, Bounded::default());
        procfs.not_stuck(vec![tid]).get(&tid).copied()
    }

    #[test]
    fn who_sleeps_where_nobody_is_stuck_is_not_stuck() {
        let root = tempfile::tempdir().unwrap();
        task(root.path(), 7, &[("wchan", "kernel_clone")]);
        task(root.path(), 8, &[("wchan", "__refrigerator")]);
        let stack = "[<0>] kernel_clone+0x1af/0x3e0\n[<0>] __do_sys_vfork+0x43/0x70\n";
        task(root.path(), 9, &[("wchan", "0"), ("stack", stack)]);
        task(root.path(), 10, &[("wchan", "request_wait_answer")]);
        assert_eq!(why(root.path(), 7), Some(NotStuck::Vfork));
        assert_eq!(why(root.path(), 8), Some(NotStuck::Frozen));
        assert_eq!(why(root.path(), 9), Some(NotStuck::Vfork));
        assert_eq!(why(root.path(), 10), None);
        assert_eq!(why(root.path(), 11), None, "it has ended");
    }

    #[test]
    fn who_is_frozen_where_it_slept_is_known_by_its_cgroup() {
        let root = tempfile::tempdir().unwrap();
        let in_cgroup = |tid, path: &str| {
            let cgroup = format!("7:cpuset,freezer:/{path}\n0::/elsewhere\n");
            task(
                root.path(),
                tid,
                &[("wchan", "rpc_wait_bit_killable"), ("cgroup", &cgroup)],
            );
            why(root.path(), tid)
        };
        for (path, state) in [("a", "FROZEN"), ("a/b", "FREEZING"), ("c", "THAWED")] {
            freeze(root.path(), path, state);
        }
        assert_eq!(in_cgroup(7, "a"), Some(NotStuck::Frozen));
        assert_eq!(in_cgroup(8, "a/b"), None, "some are not, perhaps this one");
        assert_eq!(in_cgroup(9, "c"), None);
        assert_eq!(in_cgroup(10, "gone"), None);
        freeze(root.path(), "", "FROZEN");
        assert_eq!(in_cgroup(11, ""), None, "the top one has no freezer");
        assert_eq!(in_cgroup(12, "../a"), None);
    }

    #[test]
    fn a_reader_of_the_tracer_is_known_by_its_number_and_by_no_name() {
        let procfs = Procfs::new(Path::new("/"), Bounded::default());
        let reader = procfs.bounded.read(Duration::from_secs(20), || {
            let link = fs::read_link("/proc/thread-self").unwrap();
            link.file_name().unwrap().to_str().unwrap().parse().unwrap()
        });
        let mut other = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let reader = reader.unwrap();
        let found = procfs.not_stuck(vec![reader, other.id()]);
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(found.get(&reader), Some(&NotStuck::Reader));
        assert_ne!(found.get(&other.id()), Some(&NotStuck::Reader));
        // Of another tracer, with the name.
        let root = tempfile::tempdir().unwrap();
        task(
            root.path(),
            7,
            &[("comm", "node-tracer-rd\n"), ("wchan", "x")],
        );
        assert_eq!(why(root.path(), 7), None);
    }

    #[test]
    fn version_2_has_no_such_freezer() {
        let text = "0::/kubepods/pod1\n";
        assert_eq!(freezer(Path::new("/proc"), text), None);
    }
}
