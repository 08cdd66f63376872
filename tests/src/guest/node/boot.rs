//! From the initramfs to the node: its disk gets what this build and these
//! tests bring, and its own systemd takes over.
//!
//! The disk is the same for all kernels, and a guest's changes to it are
//! thrown away. So nothing of a kernel is on it (the modules that the node uses
//! are loaded before), and nothing of this build.

use std::convert::Infallible;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, chroot, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;

use super::super::report::Host;
use super::{FOLDER, PODS, SECRET, cluster};
use crate::containerd::{Generation, Subnet};
use crate::syscall::mount;
use crate::wait;

/// Where the disk is mounted before it becomes the root.
const ROOT: &str = "/disk";
/// What is mounted already, and goes on with the node.
const MOVED: [&str; 3] = ["dev", "proc", "sys"];
/// (in the initramfs, on the node): files, or folders with files.
const COPIED: [(&str, &str); 4] = [
    ("/init", "usr/local/bin/node-tracer-guest"),
    ("/node", FOLDER),
    ("/node/kube", cluster::KUBE),
    ("/node/packages", cluster::PACKAGES),
];
const TESTS: &str = include_str!("files/nt-tests.service");
/// (path, content) of what is always the same.
const FILES: [(&str, &str); 5] = [
    (
        "etc/systemd/system/node-tracer.service.d/output.conf",
        include_str!("files/output.conf"),
    ),
    (
        "etc/systemd/system/nt-private.service",
        include_str!("files/nt-private.service"),
    ),
    (
        "etc/containerd/config.toml",
        include_str!("files/containerd.toml"),
    ),
    ("etc/hostname", "guest\n"),
    ("etc/hosts", "127.0.0.1 localhost guest\n"),
];
/// Started by multi-user.target.
const ENABLED: [&str; 1] = ["nt-tests.service"];
/// Debian's housekeeping, which only costs time here.
const MASKED: [&str; 6] = [
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
    "systemd-firstboot.service",
];

fn mount_disk(disk: &Path) -> anyhow::Result<&'static Path> {
    wait::until("the disk", Duration::from_secs(30), || {
        Ok(disk.exists().then_some(()))
    })?;
    let root = Path::new(ROOT);
    fs::create_dir_all(root).context(ROOT)?;
    mount(Some(disk), root, Some("ext4"), 0)?;
    Ok(root)
}

/// Sets up the packages that debootstrap has put on the disk of another
/// architecture. What it says goes to the console.
pub(in crate::guest) fn set_up(disk: &Path, host: &mut Host) -> anyhow::Result<()> {
    let root = mount_disk(disk)?;
    chroot(root).context(ROOT)?;
    std::env::set_current_dir("/").context("/")?;
    for (kind, folder) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        mount(None, Path::new(folder), Some(kind), 0)?;
    }
    let mut debootstrap = Command::new("/debootstrap/debootstrap")
        .arg("--second-stage")
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdout(Stdio::piped())
        .spawn()
        .context("start debootstrap")?;
    if let Some(said) = debootstrap.stdout.take() {
        for line in BufReader::new(said).lines() {
            println!("{}", line?);
            host.alive();
        }
    }
    let status = debootstrap.wait()?;
    if !status.success() {
        let log = fs::read_to_string("/debootstrap/debootstrap.log").unwrap_or_default();
        anyhow::bail!("debootstrap: {status}\n{log}");
    }
    for folder in ["/var/cache/apt/archives", "/var/lib/apt/lists"] {
        for entry in fs::read_dir(folder).context(folder)?.flatten() {
            if entry.path().is_file() {
                fs::remove_file(entry.path())?;
            }
        }
    }
    // The machine is gone as soon as the host is told of the end.
    // SAFETY: sync takes nothing.
    unsafe { libc::sync() };
    Ok(())
}

/// Goes on as the node's first process; comes back only with what went wrong.
pub(in crate::guest) fn switch_root(
    disk: &Path,
    suite: &str,
    tests: &[String],
) -> anyhow::Result<Infallible> {
    let root = mount_disk(disk)?;
    furnish(root, suite, tests)?;
    for name in MOVED {
        let to = root.join(name);
        mount(Some(&Path::new("/").join(name)), &to, None, libc::MS_MOVE)?;
    }
    std::env::set_current_dir(root).context(ROOT)?;
    mount(Some(Path::new(".")), Path::new("/"), None, libc::MS_MOVE)?;
    chroot(".").context("chroot")?;
    std::env::set_current_dir("/").context("/")?;
    Err(Command::new("/sbin/init").exec()).context("start systemd")
}

/// Puts everything in its place.
fn furnish(root: &Path, suite: &str, tests: &[String]) -> anyhow::Result<()> {
    let write = |path: &str, content: &str| {
        let path = root.join(path.trim_start_matches('/'));
        let folder = path.parent().unwrap_or(root);
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&path, content))
            .with_context(|| path.display().to_string())
    };
    for (from, to) in COPIED {
        copy(Path::new(from), &root.join(to.trim_start_matches('/')))?;
    }
    for (path, content) in FILES {
        write(path, content)?;
    }
    let unit = TESTS
        .replace("@SUITE@", suite)
        .replace("@TESTS@", &tests.join(" "));
    write("etc/systemd/system/nt-tests.service", &unit)?;
    write("etc/cni/net.d/10-stage.conflist", &network())?;
    // The tracer starts before the first pod does.
    let none = json!({ "apiVersion": "v1", "kind": "List", "items": [] });
    write(PODS, &none.to_string())?;
    let units = root.join("etc/systemd/system");
    let link = |target: &Path, link: &Path| {
        let _ = fs::remove_file(link);
        symlink(target, link).with_context(|| link.display().to_string())
    };
    let wants = units.join("multi-user.target.wants");
    fs::create_dir_all(&wants)?;
    for name in ENABLED {
        link(&Path::new("..").join(name), &wants.join(name))?;
    }
    for name in MASKED {
        link(Path::new("/dev/null"), &units.join(name))?;
    }
    Ok(())
}

/// A file, or the files of a folder. What is not there need not be copied.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let what = || format!("{} to {}", from.display(), to.display());
    if from.is_file() {
        fs::create_dir_all(to.parent().unwrap_or(to))?;
        fs::copy(from, to).with_context(what)?;
        return fs::set_permissions(to, fs::Permissions::from_mode(0o755)).with_context(what);
    }
    for entry in fs::read_dir(from).into_iter().flatten().flatten() {
        if entry.path().is_file() {
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// The pod network, with something in it that must not be told.
fn network() -> String {
    let mut network = Subnet::Small.network(Generation::Machine.cni_versions());
    network["plugins"][0]["policy"] = json!({ "type": "k8s", "k8s_auth_token": SECRET });
    network.to_string()
}
