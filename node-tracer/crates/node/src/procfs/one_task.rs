//! One task, asked for by its ID.

use std::path::Path;

use super::{Procfs, ProcfsError, Stat, TaskEntry, read_file, read_stat, tasks};

/// Nanoseconds of one clock tick in /proc (`USER_HZ` is 100 everywhere).
const TICK: u64 = 10_000_000;

impl Procfs {
    /// One task, by its thread ID; `None` if there is none or it cannot be
    /// read.
    pub fn task(&self, tid: u32) -> Option<TaskEntry> {
        let folder = self.proc.join(tid.to_string());
        let read = move |folder: &Path| -> Result<Option<TaskEntry>, ProcfsError> {
            let Some(status) = read_file(&folder.join("status"))? else {
                return Ok(None);
            };
            let status = String::from_utf8_lossy(&status);
            let mut lines = status.lines();
            let pid = lines.find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
            let (Some(pid), Some(stat)) = (pid, read_stat(&folder.join("stat"))?) else {
                return Ok(None);
            };
            Ok(Some(tasks::entry(folder, pid, tid, stat).0))
        };
        let mut found = self.bounded(self.patience, folder, read).ok()??;
        self.note_not_stuck(std::slice::from_mut(&mut found));
        Some(found)
    }

    /// Whether the process of this number is there and was when one of its
    /// threads started (ns since boot): it is not another one that has the
    /// number now. `None` if that cannot be read, in time.
    pub fn still_lives(&self, pid: u32, thread_start: u64) -> Option<bool> {
        let stat = self.stat_of(pid).ok()?;
        Some(stat.is_some_and(|stat| {
            !matches!(stat.state, 'Z' | 'X') && stat.starttime <= thread_start / TICK
        }))
    }

    /// Whether the process that started then (ns since boot) may still be
    /// there: not if it has ended, or its number is another's.
    pub fn lives(&self, pid: u32, start_boottime: u64) -> bool {
        match self.stat_of(pid) {
            Ok(Some(stat)) => {
                let ticks = start_boottime / TICK;
                !matches!(stat.state, 'Z' | 'X') && stat.starttime == ticks
            }
            Ok(None) => false,
            Err(_) => self.proc.join(pid.to_string()).exists(),
        }
    }

    /// Not its `status`, which takes the kernel 40 ms if it is in 65,536 groups.
    fn stat_of(&self, pid: u32) -> Result<Option<Stat>, ProcfsError> {
        let folder = self.proc.join(pid.to_string());
        self.bounded(self.patience, folder, |folder| {
            read_stat(&folder.join("stat"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::Bounded;

    #[test]
    fn a_thread_is_found_with_its_process_and_what_is_not_there_is_not() {
        let (_release, wait) = std::sync::mpsc::channel::<()>();
        let (ready, started) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            ready
                .send(rustix::thread::gettid().as_raw_nonzero())
                .unwrap();
            let _ = wait.recv();
        });
        let tid = started.recv().unwrap().get() as u32;
        let procfs = Procfs::new(Path::new("/"), Bounded::default());
        let found = procfs.task(tid).unwrap();
        assert_eq!((found.task.pid, found.task.tid), (std::process::id(), tid));
        assert!(found.netns.is_some());
        assert_eq!(procfs.task(u32::MAX), None);
    }

    #[test]
    fn whether_a_process_lives_is_not_asked_of_its_status() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("proc/77");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::copy("/proc/self/stat", folder.join("stat")).unwrap();
        let stat = read_stat(&folder.join("stat")).unwrap().unwrap();
        let procfs = Procfs::new(root.path(), Bounded::default());
        assert!(procfs.lives(77, stat.starttime * TICK));
        assert!(!procfs.lives(77, (stat.starttime + 1) * TICK));
    }

    #[test]
    fn who_has_ended_or_whose_number_is_anothers_does_not_live() {
        let procfs = Procfs::new(Path::new("/"), Bounded::default());
        let start = procfs
            .task(std::process::id())
            .unwrap()
            .task
            .start_ticks
            .unwrap();
        assert!(procfs.lives(std::process::id(), start * TICK + 1));
        assert!(!procfs.lives(std::process::id(), (start + 1) * TICK));
        assert!(!procfs.lives(u32::MAX, 0));
        let still = |start: u64| procfs.still_lives(std::process::id(), start);
        assert_eq!(still((start + 700) * TICK), Some(true));
        assert_eq!(still(start * TICK - 1), Some(false));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let ticks = procfs.task(child.id()).unwrap().task.start_ticks.unwrap();
        let ended = || !procfs.lives(child.id(), ticks * TICK);
        let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !ended() && std::time::Instant::now() < end {
            std::thread::yield_now();
        }
        assert!(ended(), "a zombie has ended");
        child.wait().unwrap();
    }
}
