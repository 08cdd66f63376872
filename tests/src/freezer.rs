//! A cgroup of version 1 that stops its tasks: to /proc they are in
//! uninterruptible sleep.
//!
//! Needs root and [`Need::Freezer`](crate::stage::Need).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;

use crate::scratch::unique_name;
use crate::wait;

const MOUNT_POINT: &str = "/sys/fs/cgroup/freezer";

/// Thawed and removed on drop.
#[derive(Debug)]
pub struct Freezer {
    folder: PathBuf,
}

/// Whether there is one.
pub(crate) fn is_mounted() -> bool {
    Path::new(MOUNT_POINT).join("cgroup.procs").exists()
}

impl Freezer {
    /// Makes one without tasks.
    pub fn create() -> anyhow::Result<Self> {
        let folder = Path::new(MOUNT_POINT).join(unique_name());
        fs::create_dir(&folder).with_context(|| format!("mkdir {}", folder.display()))?;
        Ok(Self { folder })
    }

    /// Takes a process in.
    pub fn add(&self, pid: u32) -> anyhow::Result<()> {
        self.write("cgroup.procs", &pid.to_string())
    }

    /// Back when the kernel has them all.
    pub fn freeze(&self) -> anyhow::Result<()> {
        self.write("freezer.state", "FROZEN")?;
        wait::until("the tasks to be frozen", Duration::from_secs(10), || {
            let state = fs::read_to_string(self.folder.join("freezer.state"))?;
            Ok((state.trim() == "FROZEN").then_some(()))
        })
    }

    pub fn thaw(&self) -> anyhow::Result<()> {
        self.write("freezer.state", "THAWED")
    }

    fn write(&self, file: &str, text: &str) -> anyhow::Result<()> {
        let path = self.folder.join(file);
        fs::write(&path, text).with_context(|| format!("write {text} to {}", path.display()))
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        if let Err(error) = self.thaw() {
            eprintln!("stage: {error:#}");
        }
        // What is still in it goes to the top.
        let all = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        for pid in all.lines() {
            let _ = fs::write(Path::new(MOUNT_POINT).join("cgroup.procs"), pid);
        }
        let removed = || fs::remove_dir(&self.folder).is_ok();
        if !wait::settle(Duration::from_secs(5), removed) {
            eprintln!("stage: cannot remove {}", self.folder.display());
        }
    }
}
