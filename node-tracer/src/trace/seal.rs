//! `--seal-root`: what is mounted below the host's root becomes read-only in the
//! tracer's container.
//!
//! A volume that is `readOnly` is so for the file system of the node's `/` alone;
//! what is mounted below it (`/run`, `/var`, ...) is as writable as on the node,
//! and Kubernetes takes `recursiveReadOnly` only where nothing is propagated. So
//! the tracer asks the kernel itself. What the node mounts later is not covered.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, stat, statx};
use sys::syscall;

/// It would change more than the tracer's container.
#[derive(Debug, thiserror::Error)]
#[error(
    "--seal-root: {} is not the node's root in a container of its own, and its mounts would be \
     read-only for others, too; leave it out",
    root.display()
)]
pub(super) struct SealError {
    root: PathBuf,
}

/// Seals it; a kernel that does not do that is said, and no more.
///
/// # Errors
/// These mounts are not of the tracer's container alone.
pub(super) fn seal(root: &Path) -> Result<(), SealError> {
    let namespace = |path: PathBuf| stat(&path).ok().map(|found| (found.st_dev, found.st_ino));
    let own = namespace(PathBuf::from("/proc/thread-self/ns/mnt"));
    let nodes = namespace(root.join("proc/1/ns/mnt"));
    let sealed = match (own, nodes) {
        (Some(own), Some(nodes)) => match is_own_root(root) {
            Ok(false) if own != nodes => make_readonly(root),
            Ok(_) => {
                return Err(SealError {
                    root: root.to_owned(),
                });
            }
            Err(error) => Err(error),
        },
        _ => Err(io::Error::other("the mounts of PID 1 are out of reach")),
    };
    if let Err(error) = sealed {
        tracing::warn!(
            "what is mounted below {} stays writable: {error} (it takes Linux 5.12, CAP_SYS_ADMIN \
             and CAP_SYS_PTRACE)",
            root.display()
        );
    }
    Ok(())
}

/// Whether this is what the tracer has at `/`, by whatever path.
fn is_own_root(root: &Path) -> io::Result<bool> {
    let place = |path: &Path| {
        let wanted = StatxFlags::INO | StatxFlags::MNT_ID;
        let found = statx(CWD, path, AtFlags::empty(), wanted)?;
        // Linux before 5.8, which seals nothing either.
        if found.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        let device = (found.stx_dev_major, found.stx_dev_minor);
        Ok((device, found.stx_ino, found.stx_mnt_id))
    };
    Ok(place(root)? == place(Path::new("/"))?)
}

fn make_readonly(root: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root: OwnedFd = openat(CWD, root, flags, Mode::empty())?;
    syscall::make_mounts_read_only(&root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_own_mounts_are_never_sealed() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        // Should it fail, it fails for this thread alone.
        let apart = move || {
            // SAFETY: it takes no pointers; the mounts are this thread's from now on.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0);
            for root in ["/", "/proc/..", "/proc/thread-self/root"] {
                // Where PID 1 is out of reach it is said, and nothing is done.
                let _ = seal(Path::new(root));
                assert!(is_own_root(Path::new(root)).unwrap());
                std::fs::write(&file, root).unwrap();
            }
            assert!(!is_own_root(Path::new("/proc")).unwrap());
        };
        std::thread::spawn(apart).join().unwrap();
    }

    #[test]
    fn what_is_mounted_below_is_read_only_too() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        let mount = |kind: &std::ffi::CStr, at: &Path, flags| {
            let at = std::ffi::CString::new(at.as_os_str().as_encoded_bytes()).unwrap();
            // SAFETY: all strings end with a zero and outlive the call.
            let done = unsafe {
                libc::mount(
                    kind.as_ptr(),
                    at.as_ptr(),
                    kind.as_ptr(),
                    flags,
                    std::ptr::null(),
                )
            };
            assert_eq!(done, 0, "{}", io::Error::last_os_error());
        };
        let apart = move || {
            // SAFETY: it takes no pointers; the mounts are this thread's from now on.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0);
            mount(c"none", Path::new("/"), libc::MS_REC | libc::MS_PRIVATE);
            mount(c"tmpfs", &root, 0);
            let below = root.join("below");
            std::fs::create_dir(&below).unwrap();
            mount(c"tmpfs", &below, 0);
            std::fs::write(below.join("before"), "").unwrap();
            make_readonly(&root).unwrap();
            std::fs::write(below.join("after"), "").unwrap_err().kind()
        };
        let refused = std::thread::spawn(apart).join().unwrap();
        assert_eq!(refused, io::ErrorKind::ReadOnlyFilesystem);
    }
}
