//! kubectl and Helm, in several versions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

/// The variable that names the folder with pairs of them, a folder each, which
/// `cargo xtask setup` fills.
pub const FOLDER: &str = "NODE_TRACER_KUBE_CLIENTS";

/// What each pair has.
pub const PROGRAMS: [&str; 2] = ["kubectl", "helm"];

/// A folder with one kubectl and one Helm.
#[derive(Clone, Debug)]
pub struct Clients {
    folder: PathBuf,
}

/// All pairs, the oldest first.
pub fn all() -> Vec<Clients> {
    let folder = std::env::var_os(FOLDER).map(PathBuf::from);
    let entries = folder.and_then(|folder| fs::read_dir(folder).ok());
    let folders = entries.into_iter().flatten().flatten();
    let is_whole = |folder: &PathBuf| PROGRAMS.iter().all(|it| folder.join(it).is_file());
    let mut folders: Vec<PathBuf> = folders.map(|it| it.path()).filter(is_whole).collect();
    folders.sort();
    folders
        .into_iter()
        .map(|folder| Clients { folder })
        .collect()
}

impl Clients {
    pub fn kubectl(&self) -> Command {
        Command::new(self.folder.join("kubectl"))
    }

    pub fn helm(&self) -> Command {
        Command::new(self.folder.join("helm"))
    }

    /// What they are: the folder's name.
    pub fn name(&self) -> String {
        let name = self.folder.file_name().unwrap_or_default();
        name.display().to_string()
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What `helm ARGS` prints.
    pub fn helm_says(&self, args: &[&str]) -> anyhow::Result<String> {
        let mut helm = self.helm();
        let output = helm.args(args).stdin(Stdio::null()).output();
        let output = output.context("start helm")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{}: helm {args:?}: {stderr}",
            self.name()
        );
        Ok(String::from_utf8(output.stdout)?)
    }
}
