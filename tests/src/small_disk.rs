//! A disk that is soon full.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::fuse::detach;
use crate::scratch::Scratch;

/// A file system in memory of some hundred KiB.
#[derive(Debug)]
pub struct SmallDisk {
    // Dropped after the mount: the folder below it.
    folder: Scratch,
}

impl SmallDisk {
    /// Makes one of so many KiB.
    pub fn mount(kib: usize) -> anyhow::Result<Self> {
        let this = Self {
            folder: Scratch::create()?,
        };
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={kib}k"), "none"])
            .arg(this.path())
            .status()
            .context("mount")?;
        anyhow::ensure!(mounted.success(), "mount -t tmpfs: {mounted}");
        Ok(this)
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    /// Takes all the room that is left.
    pub fn fill(&self) -> anyhow::Result<()> {
        let mut file = File::create(self.filler())?;
        loop {
            match file.write(&[0; 4096]) {
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(error).context("fill the disk"),
            }
        }
    }

    pub fn free(&self) -> anyhow::Result<()> {
        fs::remove_file(self.filler()).context("free the disk")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        detach(self.path());
    }
}
