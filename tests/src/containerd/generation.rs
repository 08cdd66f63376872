//! Whose containerd, runc and CNI plugins a node runs.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context as _;

use crate::cni;

/// The variable that names the root with a newer Debian's programs, which `cargo
/// xtask setup` fills.
pub const FOLDER: &str = "NODE_TRACER_NEWER_NODE";

/// What that has to have.
pub const PROGRAMS: [&str; 9] = [
    "bin/sh",
    "usr/bin/containerd",
    "usr/bin/containerd-shim-runc-v2",
    "usr/bin/ctr",
    "usr/bin/crun",
    "usr/sbin/runc",
    "usr/bin/busybox",
    "usr/lib/cni/bridge",
    "usr/lib/cni/host-local",
];

/// Where Debian has the CNI plugins.
const PLUGINS: &str = "/usr/lib/cni";

/// Whose programs a node runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Generation {
    /// This machine's: containerd 1.6 on Debian 12.
    #[default]
    Machine,
    /// A newer Debian's, whole with its C library: containerd 2, runc 1.3, and CNI
    /// plugins of version 1.1 of the specification.
    Newer,
    /// The same, and crun starts the containers. It refuses to where both versions of
    /// cgroups have controllers, so version 2 beside version 1 is out of its sight.
    Crun,
}

/// The newer root, if it is there.
pub fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os(FOLDER).map(PathBuf::from);
    folder.filter(|folder| is_whole(folder))
}

/// Whether all of [`PROGRAMS`] is there.
pub fn is_whole(root: &Path) -> bool {
    PROGRAMS.iter().all(|program| root.join(program).is_file())
}

impl Generation {
    const ALL: [Self; 3] = [Self::Machine, Self::Newer, Self::Crun];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Newer => "newer",
            Self::Crun => "crun",
        }
    }

    /// The root whose programs are the node's.
    pub(crate) fn system(self) -> anyhow::Result<PathBuf> {
        match self {
            Self::Machine => Ok(PathBuf::from("/")),
            Self::Newer | Self::Crun => {
                folder().with_context(|| format!("{FOLDER} names no whole root"))
            }
        }
    }

    /// The folder of its CNI plugins, on the node.
    pub fn plugins(self) -> Option<&'static Path> {
        match self {
            Self::Machine => cni::folder(),
            Self::Newer | Self::Crun => Some(Path::new(PLUGINS)),
        }
    }

    /// The versions of the CNI specification that its pod network is configured with,
    /// the oldest first.
    pub(crate) const fn cni_versions(self) -> &'static [&'static str] {
        match self {
            Self::Machine => &["0.4.0"],
            Self::Newer | Self::Crun => &["0.4.0", "1.0.0", "1.1.0"],
        }
    }

    /// The one of them that its runtime takes.
    pub fn cni_version(self) -> &'static str {
        self.cni_versions().last().copied().unwrap_or_default()
    }

    /// What containerd starts containers with.
    pub(crate) const fn starter(self) -> &'static str {
        match self {
            Self::Machine | Self::Newer => "runc",
            Self::Crun => "crun",
        }
    }
}

impl FromStr for Generation {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|one| one.as_str() == text)
            .with_context(|| format!("no generation {text}"))
    }
}
