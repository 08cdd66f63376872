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

use crate::apt::Mirror;
use crate::setup::{installing, missing, ok};

/// Debian's package, and what it is for.
const PACKAGES: [(&str, &str); 27] = [
    ("iproute2", "ip"),
    ("containernetworking-plugins", "the real CNI plugins"),
    ("containerd", "a real container runtime"),
    ("runc", "what containerd starts containers with"),
    ("busybox-static", "what runs in the containers"),
    ("etcd-server", "what an API server keeps its objects in"),
    ("openssl", "certificates of a cluster"),
    ("curl", "calls of its API"),
    ("systemd", "systemd-journald"),
    (
        "systemd-journal-remote",
        "the journals of several nodes in one",
    ),
    ("util-linux", "unshare, nsenter, setpriv"),
    ("procps", "ps"),
    (
        "prometheus",
        "a real Prometheus for the alerts, and promtool",
    ),
    ("groff-base", "groff, for the man pages"),
    ("zsh", "what the completions are for"),
    ("fish", "what the completions are for"),
    (
        "musl-tools",
        "a C compiler for the guests of cargo xtask vm",
    ),
    ("g++", "the compiler of libFuzzer, for cargo xtask fuzz"),
    ("gcc-aarch64-linux-gnu", "a C compiler for arm64"),
    ("libc6-dev-arm64-cross", "the C headers that it looks for"),
    ("qemu-system-x86", "what runs these guests"),
    ("qemu-system-arm", "what runs guests of arm64"),
    ("kmod", "depmod"),
    ("xz-utils", "what kernel modules are compressed with"),
    ("debootstrap", "what makes the guests' node"),
    ("e2fsprogs", "mkfs.ext4, for its disk"),
    ("python3-pip", "pip, which brings kubectl and Helm"),
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

const INSTALL: [&str; 4] = ["install", "-y", "--no-install-recommends", "--no-remove"];

/// Tries again with the release's backports, and keeps what fails again. A
/// machine that has parts of a package from there (qemu-utils, say) can take
/// the others (qemu-system-x86) from nowhere else.
///
/// The machine's own list of sources is left as it is.
fn from_backports(packages: &mut Vec<&'static str>) {
    const SOURCES: &str = "/etc/apt/sources.list";
    let Some((release, mirror)) = fs::read_to_string("/etc/os-release")
        .ok()
        .as_deref()
        .and_then(codename)
        .zip(Mirror::find(None).ok())
    else {
        return;
    };
    let own = fs::read_to_string(SOURCES).unwrap_or_default();
    let suite = format!("{release}-backports");
    let list = std::env::temp_dir().join(format!("node-tracer-{}.list", std::process::id()));
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&list)
        .and_then(|mut file| write!(file, "{own}\n{}", mirror.main_line(&suite)));
    if written.is_ok() {
        let source = format!("Dir::Etc::sourcelist={}", list.display());
        if apt_get(&["-o", &source, "update"]) {
            let install = [&["-o", &source, "-t", &suite][..], &INSTALL].concat();
            packages.retain(|package| !apt_get(&[&install[..], &[package]].concat()));
        }
    }
    // Nothing can be done about one that cannot be removed.
    let _ = fs::remove_file(&list);
}

/// What this release of Debian is called.
fn codename(os_release: &str) -> Option<String> {
    let value = |key: &str| os_release.lines().find_map(|line| line.strip_prefix(key));
    let name = value("VERSION_CODENAME=")?.trim_matches('"');
    (value("ID=")? == "debian" && !name.is_empty()).then(|| name.to_owned())
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
    let mut failed = absent;
    failed.retain(|package| !updated || !apt_get(&[&INSTALL[..], &[package]].concat()));
    if updated && !failed.is_empty() {
        from_backports(&mut failed);
    }
    if !failed.is_empty() {
        let names = failed.join(" ");
        missing(
            "packages",
            &format!("apt-get could not install {names}; tests that need them are skipped"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::codename;

    #[test]
    fn only_debians_releases_have_debians_backports() {
        let debian = "ID=debian\nVERSION_CODENAME=bookworm\n";
        assert_eq!(codename(debian).as_deref(), Some("bookworm"));
        assert_eq!(codename("ID=ubuntu\nVERSION_CODENAME=noble\n"), None);
        assert_eq!(codename("ID=debian\n"), None);
    }
}
