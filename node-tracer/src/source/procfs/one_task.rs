//! One task, asked for by its ID.

use std::path::Path;

use super::{Procfs, ProcfsError, TaskEntry, read_file, read_stat, tasks};

impl Procfs {
    /// One task, by its thread ID; `None` if there is none or it cannot be
    /// read.
    pub(crate) fn task(&self, tid: u32) -> Option<TaskEntry> {
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
        self.bounded(self.patience, folder, read).ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::procfs::Bounded;

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
}
