//! The disk of a guest that is a whole node: a Debian with systemd, containerd,
//! runc and the CNI plugins, made once by debootstrap and kept.
//!
//! Nothing of a kernel is on it, nothing of this build and nothing of a test:
//! those come with the initramfs. Guests work on it with their changes thrown
//! away.
//!
//! Packages are set up by their own programs. Those of another architecture run
//! in a guest of it: debootstrap's second stage.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use node_tracer_tests::stage::Need;

use crate::apt::{KEYS, Mirror, remake, run};
use crate::arch::Arch;

/// The suite of the node's packages, whatever its kernel is of.
pub(super) const SUITE: &str = "trixie";
/// With what they depend on, and what debootstrap's smallest variant has.
const PACKAGES: [&str; 11] = [
    "systemd",
    "systemd-sysv",
    "dbus",
    "udev",
    "kmod",
    "iproute2",
    "procps",
    "containerd",
    "runc",
    "containernetworking-plugins",
    "busybox-static",
];
/// What a cluster's part of the node needs besides.
const CLUSTER: [&str; 4] = ["etcd-server", "openssl", "curl", "zstd"];
/// Larger than what is on it: containers and journals grow. (The file has
/// holes.)
const SIZE: &str = "2G";

/// Makes the system in memory, where it takes a third of the time, and the
/// disk out of it. In a mount namespace of its own: whatever ends this, no
/// mount stays. `$1` folder, `$2` image, the rest debootstrap's arguments.
const SCRIPT: &str = r#"
set -e
tree=$1; image=$2; shift 2
mount -t tmpfs -o size=2g,mode=755 node "$tree"
debootstrap "$@" >&2
# The second stage needs them.
if [ ! -d "$tree/debootstrap" ]; then
    rm -rf "$tree"/var/cache/apt/archives/*.deb "$tree"/var/lib/apt/lists/*
fi
# In a container, debootstrap links to its own.
for name in proc sys dev; do
    if [ -L "$tree/$name" ]; then rm "$tree/$name"; mkdir "$tree/$name"; fi
done
umount "$tree/proc" 2>/dev/null || true
umount "$tree/sys" 2>/dev/null || true
mkfs.ext4 -q -F -L node -d "$tree" "$image" SIZE
"#;

/// What it is made by: another recipe makes another disk.
fn recipe(arch: Arch) -> String {
    format!("{SUITE} {} {SIZE}\n", packages(arch))
}

/// API server and kubelet are there for this machine alone.
fn packages(arch: Arch) -> String {
    match arch == Arch::HOST {
        true => [&PACKAGES[..], &CLUSTER].concat().join(","),
        false => PACKAGES.join(","),
    }
}

fn folder(cache: &Path) -> PathBuf {
    cache.join("node")
}

/// debootstrap says a line for each package; what matters comes last.
fn end_of(error: &anyhow::Error) -> anyhow::Error {
    let text = format!("{error:#}");
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(8);
    anyhow::anyhow!("the node's disk:\n{}", lines[from..].join("\n"))
}

/// The next one is made anew.
pub(crate) fn forget(cache: &Path) {
    // What is not there need not be removed; what cannot be is used again.
    let _ = fs::remove_dir_all(folder(cache));
}

/// Makes it in `cache`, unless it is there. `set_up` sets up the packages on a
/// disk of another architecture.
pub(crate) fn bring(
    arch: Arch,
    cache: &Path,
    mirror: Option<&str>,
    set_up: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<PathBuf> {
    let folder = folder(cache);
    let (image, made_by) = (folder.join("disk"), folder.join("recipe"));
    if image.is_file() && fs::read_to_string(&made_by).is_ok_and(|text| text == recipe(arch)) {
        return Ok(image);
    }
    anyhow::ensure!(
        Need::Root.missing().is_none(),
        "to make the node's disk takes root: run cargo xtask vm --suite node once with sudo -E"
    );
    let foreign = arch != Arch::HOST;
    let minutes = if foreign { "ten" } else { "two" };
    println!("vm: making the node's disk of Debian's packages ({minutes} minutes)");
    let mirror = Mirror::find(mirror)?;
    let tree = folder.join("tree");
    remake(&tree)?;
    let next = folder.join("disk.new");
    // An earlier one that was cut short.
    let _ = fs::remove_file(&next);
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c"])
        .arg(SCRIPT.replace("SIZE", SIZE))
        .arg("disk")
        .args([&tree, &next])
        .args(foreign.then_some("--foreign"))
        .arg("--variant=minbase")
        .arg(format!("--arch={}", arch.name()))
        .arg(format!("--include={}", packages(arch)))
        .arg(format!("--keyring={KEYS}"))
        .arg(SUITE)
        .arg(&tree)
        .arg(mirror.main());
    run(&mut command, "the node's disk").map_err(|error| end_of(&error))?;
    fs::remove_dir(&tree).with_context(|| tree.display().to_string())?;
    if foreign {
        set_up(&next)?;
    }
    // A disk without its recipe is made again.
    let _ = fs::remove_file(&made_by);
    fs::rename(&next, &image).with_context(|| image.display().to_string())?;
    fs::write(&made_by, recipe(arch)).with_context(|| made_by.display().to_string())?;
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_failure_the_end_is_told() {
        let lines: String = (0..50).map(|line| format!("I: {line}\n")).collect();
        let text = end_of(&anyhow::anyhow!("{lines}E: no such mirror")).to_string();
        assert!(text.ends_with("I: 49\nE: no such mirror"), "{text}");
        assert!(!text.contains("I: 0\n"), "{text}");
    }
}
