//! `--seal-root`: what is mounted below the host's root becomes read-only in the
//! tracer's container.
//!
//! A volume that is `readOnly` is so for the file system of the node's `/` alone;
//! what is mounted below it (`/run`, `/var`, ...) is as writable as on the node,
//! and Kubernetes takes `recursiveReadOnly` only where nothing is propagated. So
//! the tracer asks the kernel itself. What the node mounts later is not covered.

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, Mode, OFlags, openat, stat};

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
    let own = namespace(PathBuf::from("/proc/self/ns/mnt"));
    let nodes = namespace(root.join("proc/1/ns/mnt"));
    if root == Path::new("/") || own.is_none() || nodes.is_none() || own == nodes {
        return Err(SealError {
            root: root.to_owned(),
        });
    }
    if let Err(error) = make_readonly(root) {
        tracing::warn!(
            "what is mounted below {} stays writable: {error} (Linux 5.12 and CAP_SYS_ADMIN are \
             needed)",
            root.display()
        );
    }
    Ok(())
}

fn make_readonly(root: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root: OwnedFd = openat(CWD, root, flags, Mode::empty())?;
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the path is empty and ends with a zero, the attributes are of the
    // size that is given, and both outlive the call, which keeps neither.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            root.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_own_mounts_are_never_sealed() {
        let folder = tempfile::tempdir().unwrap();
        assert!(seal(Path::new("/")).is_err());
        assert!(seal(folder.path()).is_err(), "no node's root");
        // The same namespace by another path.
        assert!(seal(Path::new("/proc/self/root")).is_err());
    }
}
