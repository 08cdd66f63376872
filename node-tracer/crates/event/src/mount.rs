//! Mounts that are not the node's own.
//!
//! Any user can make a user namespace with a mount namespace, begin with a copy
//! of the node's mounts of network namespaces, and mount them where it likes:
//! over the path of another pod's, too. Such a path names nothing on the node, so
//! it is told as the node sees it, behind the root folder of a process.

use std::path::{Path, PathBuf};

/// A mount of a process that has mounts of its own, as the node sees it.
pub fn of_process(tid: u32, path: &Path) -> PathBuf {
    let mut seen = PathBuf::from(format!("/proc/{tid}/root"));
    seen.extend(path.components().filter(|part| part.as_os_str() != "/"));
    seen
}

/// Whose such a mount is, and where that process sees it; `None` for the node's
/// own.
pub fn process(path: &Path) -> Option<(u32, PathBuf)> {
    let mut parts = path.strip_prefix("/proc").ok()?.components();
    let tid = parts.next()?.as_os_str().to_str()?.parse().ok()?;
    (parts.next()?.as_os_str() == "root").then(|| (tid, Path::new("/").join(parts.as_path())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_of_a_process_names_it() {
        for path in ["/run/netns/cni-1", "/", "/proc/1/root/run/netns/a"] {
            let told = of_process(7, Path::new(path));
            assert!(told.starts_with("/proc/7/root"), "{told:?}");
            assert_eq!(process(&told), Some((7, PathBuf::from(path))));
        }
        for own in [
            "/run/netns/cni-1",
            "/proc/1/ns/net",
            "/proc/self/root/a",
            "/",
        ] {
            assert_eq!(process(Path::new(own)), None);
        }
    }
}
