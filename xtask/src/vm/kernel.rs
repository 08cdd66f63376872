//! Debian's kernels.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::apt::{Apt, Archive, run};
use crate::arch::Arch;

/// A kernel that can be asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// What it is called here: the version's beginning.
    pub(crate) name: &'static str,
    /// (archive, suite); the newest version in them is taken.
    suites: &'static [(Archive, &'static str)],
}

/// All of them, oldest first.
pub(crate) const ALL: [Wanted; 5] = [
    Wanted {
        name: "5.10",
        suites: &[(Archive::Security, "bullseye-security")],
    },
    Wanted {
        name: "6.1",
        suites: &[
            (Archive::Main, "bookworm"),
            (Archive::Security, "bookworm-security"),
        ],
    },
    Wanted {
        name: "6.12",
        suites: &[
            (Archive::Main, "trixie"),
            (Archive::Security, "trixie-security"),
        ],
    },
    Wanted {
        name: "7.2",
        suites: &[(Archive::Main, "forky")],
    },
    Wanted {
        name: "7.3",
        suites: &[(Archive::Main, "trixie-backports")],
    },
];

/// A kernel that is unpacked.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) arch: Arch,
    /// As in [`Wanted`].
    pub(crate) name: &'static str,
    /// What `uname -r` says in it.
    pub(crate) release: String,
    pub(crate) image: PathBuf,
    /// `lib/modules/RELEASE`
    pub(crate) modules: PathBuf,
}

impl Wanted {
    /// The kernel of this name.
    pub(crate) fn of(name: &str) -> anyhow::Result<Self> {
        ALL.into_iter()
            .find(|wanted| wanted.name == name)
            .with_context(|| {
                format!(
                    "no kernel {name}: there are {}",
                    ALL.map(|wanted| wanted.name).join(", ")
                )
            })
    }

    /// Fetches and unpacks it into `cache`, unless it is there.
    pub(crate) fn bring(
        self,
        arch: Arch,
        cache: &Path,
        mirror: Option<&str>,
    ) -> anyhow::Result<Kernel> {
        let folder = cache.join(self.name);
        if let Ok(kernel) = self.unpacked(arch, &folder.join("root")) {
            return Ok(kernel);
        }
        println!("vm: {}: fetching Debian's kernel", self.name);
        let apt = Apt::prepare(&folder, mirror, arch, self.suites)?;
        // The flavour without drivers of real machines: a quarter of the size.
        let first = format!("linux-image-cloud-{}", arch.name());
        let mut packages = vec![first.clone()];
        let mut next = 0;
        while let Some(package) = packages.get(next) {
            next += 1;
            let shown = apt.run("apt-cache", &["show", "--no-all-versions", package])?;
            for name in kernel_packages(&shown) {
                if !packages.contains(&name) {
                    packages.push(name);
                }
            }
        }
        // It is empty: it only names the newest.
        packages.remove(0);
        anyhow::ensure!(!packages.is_empty(), "{first} names no kernel");
        let root = apt.unpack(&packages, |root| {
            let kernel = self.unpacked(arch, root)?;
            let mut depmod = Command::new("depmod");
            depmod.arg("-b").arg(root).arg(&kernel.release);
            run(&mut depmod, "depmod").map(drop)
        })?;
        self.unpacked(arch, &root)
    }

    /// What is unpacked below `root`.
    fn unpacked(self, arch: Arch, root: &Path) -> anyhow::Result<Kernel> {
        let folder = root.join("lib/modules");
        let release = fs::read_dir(&folder)
            .with_context(|| folder.display().to_string())?
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .max()
            .with_context(|| format!("no kernel in {}", folder.display()))?;
        let modules = folder.join(&release);
        let images = [
            root.join(format!("boot/vmlinuz-{release}")),
            modules.join("vmlinuz"),
        ];
        let image = images.into_iter().find(|image| image.is_file());
        Ok(Kernel {
            arch,
            name: self.name,
            image: image.with_context(|| format!("no vmlinuz below {}", root.display()))?,
            release,
            modules,
        })
    }
}

/// Packages of the kernel itself that a package depends on: not the tools that
/// an installed one needs.
fn kernel_packages(shown: &str) -> Vec<String> {
    const KINDS: [&str; 4] = [
        "linux-image-",
        "linux-binary-",
        "linux-modules-",
        "linux-base-",
    ];
    let depends = shown
        .lines()
        .filter_map(|line| line.strip_prefix("Depends: "));
    depends
        .flat_map(|line| line.split(','))
        .filter_map(|one| one.split_whitespace().next())
        .filter(|name| {
            // `linux-base-cloud-amd64` is empty, as the first one is.
            KINDS.iter().any(|kind| {
                name.strip_prefix(kind)
                    .is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
            })
        })
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packages_of_the_kernel_are_followed() {
        let shown = "Package: x\nDepends: dracut | initramfs-tools (>= 0.1), \
                     linux-base-7.2.12+deb14-cloud-amd64 (= 7.2.12-1), linux-base (>= 4.3~), \
                     linux-base-cloud-amd64 (= 7), linux-binary-7.2.12+deb14-cloud-amd64 (= 7.2.12-1)\n";
        assert_eq!(
            kernel_packages(shown),
            [
                "linux-base-7.2.12+deb14-cloud-amd64",
                "linux-binary-7.2.12+deb14-cloud-amd64"
            ]
        );
        assert_eq!(
            kernel_packages("Depends: kmod, linux-base (>= 4.3~)\n"),
            [""; 0]
        );
    }
}
