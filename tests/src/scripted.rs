//! CNI plugins that are scripts: for the ways of plugins that cannot be
//! installed here. The runtime that calls them is real, and so is what they do
//! to the kernel.

pub mod calico;
pub(crate) mod pods;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::cni;
use crate::scratch::Scratch;

/// Writes an executable script.
pub fn write(path: &Path, commands: &str) -> anyhow::Result<()> {
    fs::write(path, format!("#!/bin/sh\n{commands}\n"))
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)))
        .with_context(|| format!("write {}", path.display()))
}

/// A folder with one scripted plugin, the real `loopback` (which containerd
/// calls for every pod), and what the script keeps.
#[derive(Debug)]
pub struct Folder {
    scratch: Scratch,
    plugins: PathBuf,
}

impl Folder {
    /// One with the plugin `name`; `commands` gets the path of the folder for
    /// what is kept.
    pub fn create(name: &str, commands: impl FnOnce(&Path) -> String) -> anyhow::Result<Self> {
        let real = cni::folder().context("the CNI plugins are not installed")?;
        let scratch = Scratch::create()?;
        let this = Self {
            plugins: scratch.path().join("bin"),
            scratch,
        };
        fs::create_dir(&this.plugins).context("mkdir bin")?;
        fs::create_dir(this.state()).context("mkdir state")?;
        symlink(real.join("loopback"), this.plugins.join("loopback")).context("link loopback")?;
        write(&this.plugins.join(name), &commands(&this.state()))?;
        Ok(this)
    }

    /// The folder that the node must have.
    pub fn volume(&self) -> &Path {
        self.scratch.path()
    }

    pub fn plugins(&self) -> &Path {
        &self.plugins
    }

    /// The folder of what the script keeps.
    pub fn state(&self) -> PathBuf {
        self.scratch.path().join("state")
    }
}
