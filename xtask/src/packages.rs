//! Packages of the system that the tests use.
//!
//! None of them is needed for the build. Where one cannot be installed the
//! tests that need it are skipped, and say so.

use std::process::{Command, Stdio};

use node_tracer_tests::stage::{Need, in_path};

use crate::setup::{installing, missing, ok};

/// Debian's package, and what it is for.
const PACKAGES: [(&str, &str); 5] = [
    ("iproute2", "ip"),
    ("containernetworking-plugins", "the real CNI plugins"),
    ("systemd", "systemd-journald"),
    ("util-linux", "unshare, nsenter, setpriv"),
    ("procps", "ps"),
];

fn installed(package: &str) -> bool {
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
    let mut install = vec!["install", "-y", "--no-install-recommends"];
    install.extend(&absent);
    if !(apt_get(&["update"]) && apt_get(&install)) {
        missing(
            "packages",
            &format!("apt-get could not install {names}; tests that need them are skipped"),
        );
    }
}
