//! Packages of the system that the tests use.
//!
//! None of them is needed for the build. Where one cannot be installed the
//! tests that need it are skipped, and say so.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use node_tracer_tests::stage::{Need, in_path};

use crate::setup::{installing, missing, ok};

/// Debian's package, and what it is for.
const PACKAGES: [(&str, &str); 22] = [
    ("iproute2", "ip"),
    ("containernetworking-plugins", "the real CNI plugins"),
    ("containerd", "a real container runtime"),
    ("runc", "what containerd starts containers with"),
    ("busybox-static", "what runs in the containers"),
    ("etcd-server", "what an API server keeps its objects in"),
    ("openssl", "certificates of a cluster"),
    ("curl", "calls of its API"),
    ("systemd", "systemd-journald"),
    ("util-linux", "unshare, nsenter, setpriv"),
    ("procps", "ps"),
    ("prometheus", "promtool, for the alerts"),
    ("groff-base", "groff, for the man pages"),
    ("zsh", "what the completions are for"),
    ("fish", "what the completions are for"),
    (
        "musl-tools",
        "a C compiler for the guests of cargo xtask vm",
    ),
    ("g++", "the compiler of libFuzzer, for cargo xtask fuzz"),
    ("qemu-system-x86", "what runs these guests"),
    ("kmod", "depmod"),
    ("xz-utils", "what kernel modules are compressed with"),
    ("debootstrap", "what makes the guests' node"),
    ("e2fsprogs", "mkfs.ext4, for its disk"),
];

/// Whether a package is there, or a program of its name from elsewhere.
fn installed(package: &str) -> bool {
    if in_path(package).is_some() {
        return true;
    }
    Command::new("dpkg-query")
        .args(["-W", "-f", "${db:Status-Abbrev}", package])
        .output()
        .is_ok_and(|output| output.status.success() && output.stdout.starts_with(b"ii"))
}

fn apt_get(args: &[&str]) -> bool {
    Command::new("apt-get")
        .args(["-q", "-o", "DPkg::Lock::Timeout=60"])
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// While this exists, Debian's packages start no services: what the tests need
/// of containerd is its program. One that is there already stays.
struct NoServices(Option<&'static Path>);

impl NoServices {
    fn begin() -> Self {
        let path = Path::new("/usr/sbin/policy-rc.d");
        let made = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(path)
            .and_then(|mut file| file.write_all(b"#!/bin/sh\nexit 101\n"));
        Self(made.is_ok().then_some(path))
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            // Nothing can be done about one that cannot be removed.
            let _ = fs::remove_file(path);
        }
    }
}

/// Installs what is missing, where that is possible.
pub(crate) fn bring() {
    if in_path("dpkg-query").is_none() || in_path("apt-get").is_none() {
        let names = PACKAGES
            .map(|(package, what)| format!("{package} ({what})"))
            .join(", ");
        missing(
            "packages",
            &format!("not Debian or Ubuntu; the tests use what these hold: {names}"),
        );
        return;
    }
    let (there, absent): (Vec<_>, Vec<_>) = PACKAGES
        .map(|(package, _)| package)
        .into_iter()
        .partition(|package| installed(package));
    if !there.is_empty() {
        ok("packages", &there.join(", "));
    }
    if absent.is_empty() {
        return;
    }
    let names = absent.join(" ");
    if Need::Root.missing().is_some() {
        missing(
            "packages",
            &format!("as root: apt-get install --no-install-recommends {names}"),
        );
        return;
    }
    installing("packages", &names);
    let _guard = NoServices::begin();
    let updated = apt_get(&["update"]);
    // One by one, and never at another's cost: Docker's containerd.io, say,
    // and Debian's containerd exclude each other.
    let install = ["install", "-y", "--no-install-recommends", "--no-remove"];
    let failed: Vec<&str> = absent
        .into_iter()
        .filter(|package| !updated || !apt_get(&[&install[..], &[package]].concat()))
        .collect();
    if !failed.is_empty() {
        let names = failed.join(" ");
        missing(
            "packages",
            &format!("apt-get could not install {names}; tests that need them are skipped"),
        );
    }
}
