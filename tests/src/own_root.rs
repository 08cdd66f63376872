//! A root directory of one's own, for a helper process that plays a node.
//!
//! It is a tmpfs with programs, the host's or another system's, and the host's /proc,
//! /sys and /dev bound in; /etc, /run and /var are empty. So programs have their usual paths and nothing of
//! the host's, and all of it is gone with the last process in it.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;

use crate::helper::{self, Helper};
use crate::scratch::Scratch;
use crate::syscall::{enter_netns, mount, unshare};

/// A helper that plays a node: its root and its network are the node's.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) helper: Helper,
    // Dropped last: the root is in it.
    _scratch: Scratch,
}

impl Node {
    /// Starts the helper of this role in a root of its own; `more` adds to its
    /// arguments, after the root, and may write to the folder that is the
    /// node's.
    pub(crate) fn start(
        role: &str,
        patience: Duration,
        more: impl FnOnce(&mut Command, &Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let scratch = Scratch::create()?;
        let root = scratch.path().join("node");
        make(&root)?;
        let mut command = helper::command(None, None, role);
        more(command.arg(&root), scratch.path())?;
        Ok(Self {
            helper: Helper::start(&mut command, patience)?,
            _scratch: scratch,
        })
    }

    /// The node's root, as the host sees it: for `--root`.
    pub(crate) fn root(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.helper.pid()))
    }

    /// A path of the node, as the host sees it.
    pub(crate) fn host_path(&self, path: &Path) -> PathBuf {
        // Its one symlink, which would lead to the host's own /run.
        let path = match path.strip_prefix("/var/run") {
            Ok(below) => Path::new("/run").join(below),
            Err(_) => path.to_owned(),
        };
        self.root().join(path.strip_prefix("/").unwrap_or(&path))
    }

    /// A command that runs in the node's network namespace, on the host's root.
    pub(crate) fn command(&self, program: &OsStr) -> anyhow::Result<Command> {
        let path = format!("/proc/{}/ns/net", self.helper.pid());
        let netns = fs::File::open(&path).with_context(|| path)?;
        let mut command = Command::new(program);
        // SAFETY: the closure makes one system call, which is allowed between fork and exec.
        unsafe { command.pre_exec(move || enter_netns(&netns)) };
        Ok(command)
    }
}

/// Folders of a system that hold programs.
const PROGRAMS: [&str; 6] = ["bin", "lib", "lib32", "lib64", "sbin", "usr"];
/// The kernel's own.
const KERNEL: [&str; 3] = ["dev", "proc", "sys"];
/// Folders that are the node's own.
const OWN: [&str; 5] = ["etc", "run/netns", "tmp", "var/lib", "var/log"];

/// Takes the calling process, which has one thread, into new mount and network
/// namespaces and to a new root, made in `folder`. The `volumes`, paths of the
/// host, are there too.
pub(crate) fn enter(folder: &Path, volumes: &[&Path]) -> anyhow::Result<()> {
    enter_system(folder, Path::new("/"), volumes)
}

/// The same with the programs of the system whose root is at `system`.
pub(crate) fn enter_system(folder: &Path, system: &Path, volumes: &[&Path]) -> anyhow::Result<()> {
    unshare(libc::CLONE_NEWNS | libc::CLONE_NEWNET)?;
    mount(None, Path::new("/"), None, libc::MS_REC | libc::MS_PRIVATE)?;
    mount(None, folder, Some("tmpfs"), libc::MS_NODEV)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    let of = |from: &Path, name| (from.join(name), folder.join(name));
    let programs = PROGRAMS.map(|name| of(system, name));
    let kernel = KERNEL.map(|name| of(Path::new("/"), name));
    for (there, own) in programs.into_iter().chain(kernel) {
        match fs::symlink_metadata(&there) {
            Ok(found) if found.is_symlink() => symlink(fs::read_link(&there)?, &own)?,
            Ok(_) => bind(&there, &own)?,
            Err(_) => {}
        }
    }
    for path in volumes {
        let below = path
            .strip_prefix("/")
            .context("a volume's path is not absolute")?;
        // Below /usr it is the system's.
        if !path.starts_with("/usr") {
            bind(path, &folder.join(below))?;
        }
    }
    for name in OWN {
        make(&folder.join(name))?;
    }
    symlink("/run", folder.join("var/run"))?;
    pivot(folder)
}

/// On a node, process 1 is in the node's own namespaces. Here it is not: who
/// looks at it on the node's root is shown this process.
pub(crate) fn become_first_process() -> anyhow::Result<()> {
    let own = format!("/proc/{}", std::process::id());
    let first = Path::new("/proc/1");
    mount(Some(Path::new(&own)), first, None, libc::MS_BIND)
}

fn pivot(folder: &Path) -> anyhow::Result<()> {
    std::env::set_current_dir(folder)?;
    // Onto itself: the old root is on top then, and needs no folder.
    // SAFETY: pivot_root reads two NUL-terminated strings.
    if unsafe { libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) } != 0 {
        return Err(io::Error::last_os_error()).context("pivot_root");
    }
    // With it go the copies of the host's mounts, which would keep what they are of.
    // SAFETY: umount2 reads a NUL-terminated string.
    if unsafe { libc::umount2(c".".as_ptr(), libc::MNT_DETACH) } != 0 {
        return Err(io::Error::last_os_error()).context("let go of the host's root");
    }
    Ok(std::env::set_current_dir("/")?)
}

fn make(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("mkdir {}", folder.display()))
}

fn bind(host: &Path, own: &Path) -> anyhow::Result<()> {
    make(own)?;
    mount(Some(host), own, None, libc::MS_BIND | libc::MS_REC)
}
