//! A root directory of one's own, for a helper process that plays a node.
//!
//! It is a tmpfs with the host's programs, /proc, /sys and /dev bound in; /etc,
//! /run and /var are empty. So programs have their usual paths and nothing of
//! the host's, and all of it is gone with the last process in it.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use anyhow::Context as _;

use crate::syscall::{mount, unshare};

/// Folders of the host that hold programs, and the kernel's own.
const BOUND: [&str; 9] = [
    "bin", "dev", "lib", "lib32", "lib64", "proc", "sbin", "sys", "usr",
];
/// Folders that are the node's own.
const OWN: [&str; 5] = ["etc", "run/netns", "tmp", "var/lib", "var/log"];

/// Takes the calling process, which has one thread, into new mount and network
/// namespaces and to a new root, made in `folder`. The `volumes`, paths of the
/// host, are there too.
pub(crate) fn enter(folder: &Path, volumes: &[&Path]) -> anyhow::Result<()> {
    unshare(libc::CLONE_NEWNS | libc::CLONE_NEWNET)?;
    mount(None, Path::new("/"), None, libc::MS_REC | libc::MS_PRIVATE)?;
    mount(None, folder, Some("tmpfs"), libc::MS_NODEV)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    for name in BOUND {
        let (host, own) = (Path::new("/").join(name), folder.join(name));
        match fs::symlink_metadata(&host) {
            Ok(found) if found.is_symlink() => symlink(fs::read_link(&host)?, &own)?,
            Ok(_) => bind(&host, &own)?,
            Err(_) => {}
        }
    }
    for path in volumes {
        let below = path
            .strip_prefix("/")
            .context("a volume's path is not absolute")?;
        // Below /usr it is there already.
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
