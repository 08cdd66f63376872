//! Where a network namespace is mounted, as the node sees it.
//!
//! A process with mounts of its own names them as it likes: at its path can be
//! another pod's namespace on the node, or a disk. Only the mounts of the node
//! itself are told by their paths alone. Those that root has made for a container
//! or a service stand behind the root folder of a process that has them, and those
//! in a user's mount namespace, whose names say nothing at all, behind that of a
//! thread.

use std::{
    borrow::Cow,
    path::{Path, PathBuf},
};

/// Who has made a mount, by the path that is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// The node: it is mounted at this path.
    Node(&'a Path),
    /// Root, for a container or a service: where its process sees it.
    Process(u32, PathBuf),
    /// A user, in a mount namespace of a user namespace: where its process sees
    /// it.
    User(u32, PathBuf),
}

/// A mount of a container's or a service's process.
pub fn of_process(tid: u32, path: &Path) -> PathBuf {
    behind(format!("/proc/{tid}/root"), path)
}

/// A mount of a user's process.
pub fn of_user(tid: u32, path: &Path) -> PathBuf {
    behind(format!("/proc/{tid}/task/{tid}/root"), path)
}

fn behind(root: String, path: &Path) -> PathBuf {
    let mut seen = PathBuf::from(root);
    seen.extend(path.components().filter(|part| part.as_os_str() != "/"));
    seen
}

/// Who has made the mount that is told by this path.
pub fn place(path: &Path) -> Place<'_> {
    behind_process(path).unwrap_or(Place::Node(path))
}

fn behind_process(path: &Path) -> Option<Place<'_>> {
    let mut parts = path.strip_prefix("/proc").ok()?.components();
    let tid = parts.next()?.as_os_str().to_str()?.parse().ok()?;
    let of_thread = match parts.next()?.as_os_str().to_str()? {
        "root" => false,
        "task" if parts.nth(1)?.as_os_str() == "root" => true,
        _ => return None,
    };
    let seen = Path::new("/").join(parts.as_path());
    Some(match of_thread {
        true => Place::User(tid, seen),
        false => Place::Process(tid, seen),
    })
}

/// The name that root has given to the mount; `None` if a user has.
pub fn name(path: &Path) -> Option<Cow<'_, Path>> {
    match place(path) {
        Place::Node(path) => Some(Cow::Borrowed(path)),
        Place::Process(_, path) => Some(Cow::Owned(path)),
        Place::User(..) => None,
    }
}

/// Whether two mounts of a namespace need telling once: a container's begin as a
/// copy of the node's, with the same names.
pub fn is_same(one: &Path, other: &Path) -> bool {
    one == other || name(one).is_some_and(|one| Some(one) == name(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_that_is_not_the_nodes_names_who_has_it() {
        for path in ["/run/netns/cni-1", "/", "/proc/1/root/run/netns/a"] {
            let (path, seen) = (Path::new(path), PathBuf::from(path));
            let told = of_process(7, path);
            assert!(told.starts_with("/proc/7/root"), "{told:?}");
            assert_eq!(place(&told), Place::Process(7, seen.clone()));
            let told = of_user(7, path);
            assert!(told.starts_with("/proc/7/task/7/root"), "{told:?}");
            assert_eq!(place(&told), Place::User(7, seen));
        }
        for own in [
            "/run/netns/cni-1",
            "/proc/1/ns/net",
            "/proc/1/task/1/ns/net",
            "/proc/self/root/a",
            "/",
        ] {
            assert_eq!(place(Path::new(own)), Place::Node(Path::new(own)));
        }
    }

    #[test]
    fn a_containers_copy_of_a_mount_is_the_same_and_a_users_is_not() {
        let path = Path::new("/run/netns/cni-1");
        assert!(is_same(path, &of_process(7, path)));
        assert!(!is_same(path, &of_user(7, path)));
        assert!(!is_same(
            path,
            &of_process(7, Path::new("/run/netns/cni-2"))
        ));
    }
}
