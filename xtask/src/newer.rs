//! A node's programs out of a newer Debian, for the tests: containerd 2, runc
//! 1.3, crun, and CNI plugins of version 1.1 of the specification. They need a newer
//! C library than this machine has, so all that they depend on comes with them,
//! unpacked in a folder: the root of the tests' node. Nothing is installed.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use node_tracer_tests::containerd::generation::{PROGRAMS, is_whole};

use crate::apt::{self, Apt, Archive};
use crate::arch::Arch;
use crate::setup::{installing, missing, ok};

/// The release in which they are.
const SUITE: &str = "forky";

/// What the node is to run, and what runs it: these name no shell and no links
/// of /bin as what they depend on.
const PACKAGES: [&str; 9] = [
    "containerd",
    "runc",
    "crun",
    "containernetworking-plugins",
    "iproute2",
    "busybox-static",
    "coreutils",
    "dash",
    "base-files",
];

fn cache() -> anyhow::Result<PathBuf> {
    apt::cache("node-tracer-node")
}

/// Where they are: a root.
pub(crate) fn folder() -> anyhow::Result<PathBuf> {
    Ok(cache()?.join("root"))
}

/// Brings them, unless they are there.
pub(crate) fn bring() {
    const ITEM: &str = "newer node";
    match bring_into() {
        Ok(folder) => ok(ITEM, &folder.display().to_string()),
        Err(error) => {
            // apt says the same of each package.
            let error = format!("{error:#}");
            let why = error.lines().next().unwrap_or_default();
            missing(ITEM, &format!("{why}; tests of containerd 2 are skipped"));
        }
    }
}

fn bring_into() -> anyhow::Result<PathBuf> {
    let root = folder()?;
    if is_whole(&root) {
        return Ok(root);
    }
    installing("newer node", &format!("of Debian {SUITE}"));
    let apt = Apt::prepare(&cache()?, None, Arch::HOST, &[(Archive::Main, SUITE)])?;
    let packages = apt.with_dependencies(&PACKAGES)?;
    apt.unpack(&packages, whole)
}

fn whole(root: &Path) -> anyhow::Result<()> {
    let names = || PROGRAMS.join(", ");
    ensure!(is_whole(root), "not all there: {}", names());
    Ok(())
}
