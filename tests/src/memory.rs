//! A memory cgroup with a small limit, and a process that does not fit into it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use crate::cgroup::Cgroup;
use crate::{helper, wait};

pub(crate) const ROLE: &str = "swell";
/// What the helper takes at most, should no limit stop it.
const ENOUGH: usize = 256 << 20;

/// The memory controller of cgroup version 1, if it is mounted.
pub(crate) fn root() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mount = mounts.lines().find_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut fields = file_system.split(' ');
        let kind = fields.next()?;
        let options = fields.nth(1).unwrap_or_default();
        let memory = kind == "cgroup" && options.split(',').any(|option| option == "memory");
        memory.then(|| mount.split(' ').nth(4).map(PathBuf::from))?
    });
    mount.filter(|root| root.join("memory.limit_in_bytes").exists())
}

/// The memory cgroup of a container. Removed on drop.
#[derive(Debug)]
pub struct Limit {
    root: PathBuf,
    folder: PathBuf,
}

impl Limit {
    /// Of so many bytes, at the container's own path.
    pub fn of(cgroup: &Cgroup, bytes: u64) -> anyhow::Result<Self> {
        let root = root().context("no memory controller")?;
        let folder = root.join(cgroup.path().trim_start_matches('/'));
        let this = Self { root, folder };
        fs::create_dir_all(&this.folder)
            .with_context(|| format!("mkdir {}", this.folder.display()))?;
        let file = this.folder.join("memory.limit_in_bytes");
        fs::write(&file, bytes.to_string()).with_context(|| format!("write {}", file.display()))?;
        Ok(this)
    }

    /// Runs a process of this name in both cgroups until the kernel ends it.
    pub fn burst(&self, comm: &str, cgroup: &Cgroup) -> anyhow::Result<ExitStatus> {
        let mut child = helper::command(None, None, ROLE)
            .arg(comm)
            .args(cgroup.procs())
            .arg(self.folder.join("cgroup.procs"))
            .stdout(Stdio::null())
            .spawn()
            .context("helper")?;
        // It takes memory for as long as its standard input is open.
        let input = child.stdin.take();
        let status = child.wait().context("wait");
        drop(input);
        status
    }
}

/// Takes more and more memory.
pub(crate) fn swell() -> anyhow::Result<()> {
    let mut all = Vec::new();
    while all.len() < ENOUGH {
        all.extend_from_slice(&[1; 64 << 10]);
    }
    anyhow::bail!("nothing has stopped it")
}

fn remove(folder: &Path) -> bool {
    fs::remove_dir(folder).is_ok() || !folder.exists()
}

impl Drop for Limit {
    fn drop(&mut self) {
        wait::settle(Duration::from_secs(5), || remove(&self.folder));
        let mut above = self.folder.parent();
        while let Some(folder) = above.filter(|folder| *folder != self.root && remove(folder)) {
            above = folder.parent();
        }
    }
}
