//! The programs of others that run in guests: this machine's own, or, for another
//! architecture, those of Debian's packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use node_tracer_tests::cni;
use node_tracer_tests::stage::in_path;

use super::disk::SUITE;
use crate::apt::{Apt, Archive, run};
use crate::arch::Arch;

const PACKAGES: [&str; 3] = ["iproute2", "busybox-static", "containernetworking-plugins"];
/// Where those have programs.
const FOLDERS: [&str; 4] = ["usr/bin", "usr/sbin", "bin", "sbin"];

/// Where they are.
#[derive(Debug)]
pub(crate) enum Tools {
    Machine,
    /// Unpacked in this folder.
    Packages(Arch, PathBuf),
}

fn folder(cache: &Path) -> PathBuf {
    cache.join("tools")
}

/// The next are fetched anew.
pub(crate) fn forget(cache: &Path) {
    // What is not there need not be removed; what cannot be is used again.
    let _ = fs::remove_dir_all(folder(cache));
}

impl Tools {
    /// Fetches what this machine does not have, unless it is in `cache`.
    pub(crate) fn bring(arch: Arch, cache: &Path, mirror: Option<&str>) -> anyhow::Result<Self> {
        if arch == Arch::HOST {
            return Ok(Self::Machine);
        }
        let folder = folder(cache);
        let root = folder.join("root");
        if root.exists() {
            return Ok(Self::Packages(arch, root));
        }
        println!("vm: fetching Debian's {}", PACKAGES.join(", "));
        let apt = Apt::prepare(&folder, mirror, arch, &[(Archive::Main, SUITE)])?;
        let packages = apt.with_dependencies(&PACKAGES)?;
        Ok(Self::Packages(arch, apt.unpack(&packages, |_| Ok(()))?))
    }

    pub(crate) fn program(&self, name: &str) -> Option<PathBuf> {
        match self {
            Self::Machine => in_path(name),
            Self::Packages(_, root) => {
                let paths = FOLDERS.map(|folder| root.join(folder).join(name));
                paths.into_iter().find(|path| path.is_file())
            }
        }
    }

    /// The folder with the CNI plugins.
    pub(crate) fn plugins(&self) -> Option<PathBuf> {
        match self {
            Self::Machine => cni::folder().map(Path::to_owned),
            Self::Packages(_, root) => Some(root.join("usr/lib/cni")),
        }
    }

    /// The libraries that a program is linked to: (where each is, where it is looked
    /// for).
    pub(crate) fn libraries(&self, program: &Path) -> anyhow::Result<Vec<(PathBuf, PathBuf)>> {
        match self {
            Self::Machine => {
                // Of one that is linked to none it says so, and fails.
                let listed = Command::new("ldd").arg(program).output();
                let listed = listed.context("start ldd")?.stdout;
                let listed = String::from_utf8_lossy(&listed);
                let paths = paths(&listed).map(PathBuf::from);
                Ok(paths.map(|path| (path.clone(), path)).collect())
            }
            Self::Packages(arch, root) => {
                let folder = root.join(format!("usr/lib/{}-linux-gnu", arch.machine()));
                let mut found: Vec<(PathBuf, PathBuf)> = Vec::new();
                let mut next = vec![program.to_owned()];
                while let Some(program) = next.pop() {
                    let mut readelf = Command::new("readelf");
                    let listed = run(readelf.arg("-d").arg(&program), "readelf")?;
                    for name in needed(&listed) {
                        let from = folder.join(name);
                        let pair = (from.clone(), Path::new("/lib").join(name));
                        if !found.contains(&pair) {
                            found.push(pair);
                            next.push(from);
                        }
                    }
                }
                Ok(found)
            }
        }
    }
}

/// Paths in the output of ldd.
fn paths(listed: &str) -> impl Iterator<Item = &str> {
    let lines = listed.lines();
    lines.filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
}

/// Names in the output of readelf.
fn needed(listed: &str) -> impl Iterator<Item = &str> {
    let lines = listed.lines().filter(|line| line.contains("(NEEDED)"));
    lines.filter_map(|line| line.split_once('[')?.1.strip_suffix(']'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_with_and_without_an_arrow() {
        let listed =
            "\tlinux-vdso.so.1 (0x0)\n\tlibc.so.6 => /lib/libc.so.6 (0x1)\n\t/lib64/ld.so (0x2)\n";
        let found: Vec<&str> = paths(listed).collect();
        assert_eq!(found, ["/lib/libc.so.6", "/lib64/ld.so"]);
    }

    #[test]
    fn libraries_of_another_architecture_are_found_by_name() {
        let listed = " 0x0000000000000001 (NEEDED)             Shared library: [libmnl.so.0]\n \
                      0x000000000000001d (RUNPATH)            Library runpath: [/usr/lib]\n";
        assert_eq!(needed(listed).collect::<Vec<_>>(), ["libmnl.so.0"]);
    }
}
