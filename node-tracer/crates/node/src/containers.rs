//! Which containers still exist, whatever became of their pods: they have a
//! cgroup, or a shim watches over them.
//!
//! Only IDs are told, of sandboxes and containers alike. An ID that is found
//! is a container that exists; one that is not may be of a runtime that leaves
//! neither trace.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::fs::FileType;

use super::{
    bundles::spec::is_id,
    cgroup::Place,
    procfs::{
        NoAnswer, Owner, Procfs, ProcfsError, namespace_inode, read_file, read_link, status_field,
    },
    root::{Root, RootError},
};

/// The name of [`in_cgroups`] in events.
pub const CGROUP: &str = "cgroup";

/// The name of [`of_shims`] in events.
pub const SHIM: &str = "shim";

/// Folders of cgroups that are looked at.
const MAX_CGROUPS: usize = 65_536;

/// How deep they may lie: a kubelet's own cgroup, kubepods, the class of
/// service, the pod and the container take five, a nested node as many again.
const MAX_DEPTH: usize = 12;

/// How long all of the cgroups, or all shims, may take.
const PATIENCE: Duration = Duration::from_secs(5);

const MOUNT: &str = "/sys/fs/cgroup";

/// The node's first process.
const FIRST: u32 = 1;

/// Hierarchies of version 1 in which every runtime puts its containers, and
/// that of version 2 beside them; one is enough.
const HIERARCHIES: [&str; 5] = ["systemd", "pids", "memory", "cpuacct", "unified"];

/// Why it is not known which containers exist.
#[derive(Debug, thiserror::Error)]
pub enum ContainersError {
    /// The host's root cannot be opened.
    #[error(transparent)]
    Root(#[from] RootError),
    /// A folder is there and cannot be read, or should be there.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which, on the host.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A read does not return.
    #[error("{what} do not answer")]
    NoAnswer {
        what: &'static str,
        #[source]
        source: NoAnswer,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Existing {
    /// IDs of containers and sandboxes.
    pub ids: BTreeSet<String>,
    /// There may be more, and why.
    pub partial: Option<String>,
}

/// The containers of pods that have a cgroup.
///
/// # Errors
/// See [`ContainersError`].
pub fn in_cgroups(root: &Path, procfs: &Procfs) -> Result<Existing, ContainersError> {
    let (root, place) = (root.to_owned(), procfs.place());
    let walk = move || walk_cgroups(&Root::open(&root)?, &place);
    match procfs.bounded_reads().read(PATIENCE, walk) {
        Ok(result) => result,
        Err(source) => Err(ContainersError::NoAnswer {
            what: "the cgroups",
            source,
        }),
    }
}

fn walk_cgroups(root: &Root, place: &Place) -> Result<Existing, ContainersError> {
    let mount = Path::new(MOUNT);
    let read = |source| ContainersError::Read {
        path: mount.to_owned(),
        source,
    };
    let top = root.folder(mount).map_err(read)?;
    let top = top.ok_or_else(|| read(io::ErrorKind::NotFound.into()))?;
    let names = top.list(MAX_CGROUPS).map_err(read)?;
    let named = |name: &str| names.entries.iter().any(|entry| entry.text() == Some(name));
    if named("cgroup.controllers") {
        return walk(root, "", place);
    }
    let mut existing = Err(read(io::ErrorKind::NotFound.into()));
    for hierarchy in HIERARCHIES.into_iter().filter(|name| named(name)) {
        let found = walk(root, hierarchy, place)?;
        let enough = !found.ids.is_empty();
        existing = Ok(found);
        if enough {
            break;
        }
    }
    existing
}

/// Walks the hierarchy that is mounted at this name. A cgroup that goes away
/// meanwhile is none; what is in one that is not root's is its owner's word.
fn walk(root: &Root, mount: &str, place: &Place) -> Result<Existing, ContainersError> {
    let hierarchy = Path::new(MOUNT).join(mount);
    let node = place.node_folder(mount).map(|node| hierarchy.join(node));
    let root_of_node = node.and_then(|node| root.uid(&node));
    let root_of_node = root_of_node.or_else(|| root.uid(&hierarchy));
    let mut existing = Existing::default();
    let mut left = MAX_CGROUPS;
    let mut waiting = vec![(PathBuf::from("/"), 0)];
    while let Some((path, depth)) = waiting.pop() {
        let folder = hierarchy.join(path.strip_prefix("/").unwrap_or(&path));
        // It need not be readable either.
        let uid = root.uid(&folder);
        if uid.is_some_and(|uid| uid != 0) && uid != root_of_node {
            continue;
        }
        let listed = root
            .folder(&folder)
            .and_then(|opened| opened.map(|opened| opened.list(MAX_CGROUPS)).transpose());
        let entries = match listed {
            Ok(Some(listing)) => listing.entries,
            Ok(None) => continue,
            // What a cgroup answers that was removed after it was opened.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => continue,
            Err(source) => {
                return Err(ContainersError::Read {
                    path: folder,
                    source,
                });
            }
        };
        for entry in entries {
            if entry.kind != FileType::Directory {
                continue;
            }
            if left == 0 {
                existing.partial = Some(format!("more than {MAX_CGROUPS} cgroups"));
                return Ok(existing);
            }
            left -= 1;
            let Some(name) = entry.text() else {
                continue;
            };
            let path = path.join(name);
            let path_text = path.to_str();
            let owner = path_text.and_then(|path| place.owner_of_folder(mount, path));
            if let Some(id) = owner.and_then(|owner| owner.container_id) {
                // What is in it is the container's own.
                existing.ids.insert(id);
            } else if depth < MAX_DEPTH {
                waiting.push((path, depth + 1));
            }
        }
    }
    Ok(existing)
}

/// Which of these containers have a cgroup, in any hierarchy and under whatever
/// name: of pods or not, of whatever runtime.
///
/// # Errors
/// See [`ContainersError`].
pub fn named_in_cgroups(
    root: &Path,
    procfs: &Procfs,
    ids: BTreeSet<String>,
) -> Result<Existing, ContainersError> {
    let root = root.to_owned();
    let walk = move || search(&Root::open(&root)?, &ids);
    match procfs.bounded_reads().read(PATIENCE, walk) {
        Ok(result) => result,
        Err(source) => Err(ContainersError::NoAnswer {
            what: "the cgroups",
            source,
        }),
    }
}

fn search(root: &Root, ids: &BTreeSet<String>) -> Result<Existing, ContainersError> {
    let mut existing = Existing::default();
    let mut left = MAX_CGROUPS * HIERARCHIES.len();
    let mut waiting = vec![PathBuf::from(MOUNT)];
    // In a user namespace it may have no number of its own.
    let nodes_root = root.uid(Path::new(MOUNT));
    while let Some(path) = waiting.pop() {
        // What somebody else than root makes in a cgroup of theirs is no runtime's,
        // and can lie deeper than any path leads.
        if root
            .uid(&path)
            .is_some_and(|uid| uid != 0 && Some(uid) != nodes_root)
        {
            continue;
        }
        let listed = root
            .folder(&path)
            .and_then(|opened| opened.map(|opened| opened.list(MAX_CGROUPS)).transpose());
        let entries = match listed {
            Ok(Some(listing)) => listing.entries,
            Ok(None) => continue,
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => continue,
            Err(source) => return Err(ContainersError::Read { path, source }),
        };
        for entry in entries {
            if entry.kind != FileType::Directory {
                continue;
            }
            if left == 0 {
                existing.partial = Some(String::from("there are too many cgroups"));
                return Ok(existing);
            }
            left -= 1;
            let name = entry.name.to_string_lossy();
            // An ID stands alone or between what systemd and runtimes put
            // around it.
            let words = name.split(|c: char| !c.is_ascii_alphanumeric());
            let found = words
                .chain([name.as_ref()])
                .filter(|word| ids.contains(*word));
            existing.ids.extend(found.map(str::to_owned));
            waiting.push(path.join(&entry.name));
        }
    }
    Ok(existing)
}

/// Whether a process of this name watches over containers: containerd's shims
/// of all kinds, and the conmon of CRI-O.
pub fn is_shim(comm: &str) -> bool {
    comm.starts_with("containerd-shim") || comm == "conmon"
}

/// The sandboxes and containers that shims watch over. `pids` are processes
/// that have a shim's name ([`is_shim`]): names prove nothing, so each must
/// also be of the node's root, work in a container's folder of the node, and be
/// in no container itself.
///
/// # Errors
/// See [`ContainersError`].
pub fn of_shims(root: &Path, procfs: &Procfs, pids: Vec<u32>) -> Result<Existing, ContainersError> {
    let owners = procfs.task_owners(pids.clone());
    let outside = |owner: &Owner| match owner {
        Owner::Pod(owner) => owner.container_id.is_none(),
        Owner::NoPod | Owner::Unknown => true,
    };
    let pids: Vec<u32> = pids
        .into_iter()
        .zip(owners)
        .filter_map(|(pid, owner)| outside(&owner).then_some(pid))
        .collect();
    // A user's process may hang whoever reads its folder, not its `status`.
    let uids = |pids| procfs.many(pids, |proc, pid| uids(proc, pid).map(Some)).0;
    let first = uids(vec![FIRST])
        .into_iter()
        .next()
        .and_then(|(_, uids)| uids);
    let of_node = uids(pids).into_iter().filter(|(_, uids)| *uids == first);
    let pids = of_node.map(|(pid, _)| pid).collect();
    let opened = {
        let root = root.to_owned();
        procfs
            .bounded_reads()
            .read(PATIENCE, move || Root::open(&root))
    };
    let root = opened.map_err(|source| ContainersError::NoAnswer {
        what: "the shims' folders",
        source,
    })??;
    let nodes = procfs.mount_namespace(FIRST);
    // Not the command line: reading that can wait for a stuck process.
    let (ids, missed) = procfs.many(pids, move |proc, pid| {
        let shim = proc.join(pid.to_string());
        let Some(cwd) = read_link(&shim.join("cwd"))? else {
            return Ok(None);
        };
        let is_there = || root.uid(&cwd).is_some();
        let is_nodes = mounts(&shim) == nodes || is_there();
        Ok(watched(&cwd).filter(|_| is_nodes))
    });
    Ok(Existing {
        ids: ids.into_iter().collect(),
        partial: missed.say(|n| format!("the folders of {n} shims")),
    })
}

/// The users of a process, as `status` has them: whose its folder in proc is
/// depends on whether it is dumpable.
fn uids(proc: &Path, pid: u32) -> Result<(u32, Option<String>), ProcfsError> {
    let status = read_file(&proc.join(format!("{pid}/status")))?;
    let uids = status.and_then(|status| status_field(&status, "Uid:"));
    Ok((pid, uids))
}

/// The mount namespace of a process.
fn mounts(process: &Path) -> Option<u32> {
    let link = read_link(&process.join("ns/mnt")).ok()??;
    namespace_inode(link.as_os_str(), "mnt")
}

/// The container in whose folder a shim works:
/// `…/io.containerd.runtime.v2.task/NAMESPACE/ID` or
/// `…/overlay-containers/ID/userdata`.
fn watched(folder: &Path) -> Option<String> {
    let folder = folder.to_str()?;
    let folder = folder.strip_suffix(" (deleted)").unwrap_or(folder);
    let mut parts = folder.rsplit('/');
    let id = match (parts.next()?, parts.next()?, parts.next()?) {
        ("userdata", id, storage) if storage.ends_with("-containers") => id,
        (id, _, task) if task.starts_with("io.containerd.runtime.v") => id,
        _ => return None,
    };
    is_id(id).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::procfs::Bounded;

    const UID: &str = "2d3b9f5e-7a07-4c1b-9a51-0c6f2e8a4b11";

    fn id(start: char) -> String {
        format!("{start:0<64}")
    }

    /// A root with these folders.
    fn node(folders: &[String]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for folder in folders {
            fs::create_dir_all(root.path().join(folder.trim_start_matches('/'))).unwrap();
        }
        root
    }

    fn found(root: &tempfile::TempDir) -> Result<Existing, ContainersError> {
        in_cgroups(root.path(), &Procfs::new(root.path(), Bounded::default()))
    }

    fn ids(root: &tempfile::TempDir) -> String {
        let existing = found(root).unwrap();
        assert_eq!(existing.partial, None);
        existing.ids.iter().map(|id| &id[..1]).collect()
    }

    #[test]
    fn containers_are_found_in_cgroup2_whatever_wrote_the_path() {
        let slice = UID.replace('-', "_");
        let top = "/sys/fs/cgroup";
        let root = node(&[
            format!(
                "{top}/kubepods.slice/kubepods-pod{slice}.slice/cri-containerd-{}.scope/init",
                id('a')
            ),
            format!(
                "{top}/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice}.slice/crio-{}.scope",
                id('b')
            ),
            format!(
                "{top}/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice}.slice/crio-conmon-{}.scope",
                id('b')
            ),
            format!("{top}/kubepods/besteffort/pod{UID}/{}", id('c')),
            format!(
                "{top}/docker/{}/kubelet/kubepods/pod{UID}/{}",
                id('9'),
                id('d')
            ),
            format!("{top}/system.slice/docker-{}.scope", id('8')),
            format!(
                "{top}/system.slice/containerd.service/kubepods-pod{slice}.slice:cri-containerd:{}",
                id('e')
            ),
            format!(
                "{top}/kubepods/besteffort/pod{UID}/{}/kubepods/pod{UID}/{}",
                id('c'),
                id('7')
            ),
        ]);
        fs::write(
            root.path().join("sys/fs/cgroup/cgroup.controllers"),
            "pids\n",
        )
        .unwrap();
        assert_eq!(ids(&root), "abce", "d is of a node in a container");
    }

    #[test]
    fn what_a_user_has_made_in_a_delegated_cgroup_is_no_container() {
        let top = "/sys/fs/cgroup/systemd";
        let root = node(&[
            format!("{top}/kubepods/pod{UID}/{}", id('a')),
            format!("{top}/lab/kubepods/pod{UID}/{}", id('b')),
        ]);
        assert_eq!(ids(&root), "ab");
        let lab = root.path().join("sys/fs/cgroup/systemd/lab");
        match std::os::unix::fs::chown(lab, Some(65_534), None) {
            Ok(()) => assert_eq!(ids(&root), "a"),
            // Without root there is nobody else.
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
    }

    #[test]
    fn a_container_is_found_by_its_cgroup_whoever_made_it() {
        let top = "/sys/fs/cgroup";
        let root = node(&[
            format!(
                "{top}/systemd/machine.slice/libpod-{}.scope/container",
                id('a')
            ),
            format!("{top}/pids/docker/{}", id('b')),
            format!("{top}/x/kubepods-pod1.slice:cri-containerd:{}", id('c')),
            format!("{top}/x/nerdctl/web-1.2"),
            format!("{top}/x/{}0", id('d')),
        ]);
        let mut ids: BTreeSet<String> = "abcde".chars().map(id).collect();
        ids.insert(String::from("web-1.2"));
        let procfs = Procfs::new(root.path(), Bounded::default());
        let found = named_in_cgroups(root.path(), &procfs, ids).unwrap();
        assert_eq!(found.partial, None);
        let found: Vec<&str> = found.ids.iter().map(|id| &id[..1]).collect();
        assert_eq!(found, ["a", "b", "c", "w"]);
    }

    #[test]
    fn what_a_user_makes_in_a_cgroup_of_theirs_is_no_containers() {
        let root = node(&[format!("/sys/fs/cgroup/x/delegated/{}", id('a'))]);
        let delegated = root.path().join("sys/fs/cgroup/x/delegated");
        if let Err(error) = std::os::unix::fs::chown(delegated, Some(1_000), None) {
            // Without root there is nobody else.
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            return;
        }
        let procfs = Procfs::new(root.path(), Bounded::default());
        let found = named_in_cgroups(root.path(), &procfs, [id('a')].into()).unwrap();
        assert_eq!((found.ids.len(), found.partial), (0, None));
    }

    #[test]
    fn of_several_hierarchies_the_first_with_pods_is_enough() {
        let top = "/sys/fs/cgroup";
        let root = node(&[
            format!("{top}/systemd/system.slice"),
            format!("{top}/memory/kubepods/pod{UID}/{}", id('a')),
            format!("{top}/unified/kubepods/pod{UID}/{}", id('b')),
            format!("{top}/other/kubepods/pod{UID}/{}", id('c')),
        ]);
        assert_eq!(ids(&root), "a");
    }

    #[test]
    fn a_node_without_cgroups_is_an_error_and_one_without_pods_is_not() {
        let error = found(&node(&[])).unwrap_err();
        assert_eq!(error.to_string(), "cannot read /sys/fs/cgroup");
        found(&node(&[String::from("/sys/fs/cgroup")])).unwrap_err();
        assert_eq!(
            ids(&node(&[String::from("/sys/fs/cgroup/systemd/user.slice")])),
            ""
        );
    }

    #[test]
    fn a_link_is_not_walked_and_a_tree_without_end_neither() {
        let top = "/sys/fs/cgroup/systemd";
        let deep = format!("{top}{}/kubepods/pod{UID}/{}", "/x".repeat(20), id('a'));
        let root = node(&[
            top.to_owned(),
            deep,
            format!("/aside/kubepods/pod{UID}/{}", id('b')),
        ]);
        symlink("/aside", root.path().join("sys/fs/cgroup/systemd/link")).unwrap();
        assert_eq!(ids(&root), "");
    }

    #[test]
    fn a_shim_works_in_the_folder_of_its_container() {
        let task = "/run/containerd/io.containerd.runtime.v2.task";
        for (folder, expected) in [
            (format!("{task}/k8s.io/{}", id('a')), Some(id('a'))),
            (
                format!("{task}/k8s.io/{} (deleted)", id('a')),
                Some(id('a')),
            ),
            (
                format!(
                    "/run/k3s/containerd/io.containerd.runtime.v1.linux/k8s.io/{}",
                    id('b')
                ),
                Some(id('b')),
            ),
            (format!("{task}/moby/web-1"), Some(String::from("web-1"))),
            (
                format!(
                    "/run/containers/storage/overlay-containers/{}/userdata",
                    id('c')
                ),
                Some(id('c')),
            ),
            (String::from("/"), None),
            (format!("/home/{}", id('d')), None),
            (format!("{task}/k8s.io/.."), None),
            (format!("/run/userdata/{}", id('d')), None),
        ] {
            assert_eq!(watched(Path::new(&folder)), expected, "{folder}");
        }
    }

    #[test]
    fn a_process_in_a_container_is_no_shim_whatever_its_name() {
        let root = node(&[String::from("/proc/1")]);
        fs::write(root.path().join("proc/1/cgroup"), "0::/init.scope\n").unwrap();
        let shim = |pid: u32, container: char, cgroup: &str| {
            let folder = root.path().join("proc").join(pid.to_string());
            fs::create_dir_all(&folder).unwrap();
            let task = "/run/containerd/io.containerd.runtime.v2.task/k8s.io";
            symlink(format!("{task}/{}", id(container)), folder.join("cwd")).unwrap();
            fs::write(folder.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
        };
        shim(7, 'a', "/system.slice/containerd.service");
        shim(8, 'b', &format!("/kubepods/pod{UID}/{}", id('c')));
        shim(9, 'd', &format!("/kubepods/pod{UID}"));
        let procfs = Procfs::new(root.path(), Bounded::default());
        let existing = of_shims(root.path(), &procfs, vec![7, 8, 9, 10]).unwrap();
        assert_eq!(existing.ids, BTreeSet::from([id('a'), id('d')]));
    }

    #[test]
    fn a_users_process_is_no_shim_nor_is_one_with_mounts_of_its_own() {
        let task = "/run/containerd/io.containerd.runtime.v2.task/k8s.io";
        let root = node(&[format!("{task}/{}", id('c'))]);
        let process = |pid: u32, container: char, uid: u32, mounts: u32| {
            let folder = root.path().join("proc").join(pid.to_string());
            fs::create_dir_all(folder.join("ns")).unwrap();
            fs::write(folder.join("cgroup"), "0::/system.slice/x.service\n").unwrap();
            let status = format!("Name:\tcontainerd-shim\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n");
            fs::write(folder.join("status"), status).unwrap();
            symlink(format!("mnt:[{mounts}]"), folder.join("ns/mnt")).unwrap();
            let folder_of_it = format!("{task}/{}", id(container));
            symlink(folder_of_it, folder.join("cwd")).unwrap();
        };
        process(1, '0', 0, 5);
        process(7, 'a', 0, 5);
        process(8, 'b', 65_534, 5);
        process(9, 'c', 0, 6);
        process(10, 'd', 0, 6);
        let procfs = Procfs::new(root.path(), Bounded::default());
        let existing = of_shims(root.path(), &procfs, vec![7, 8, 9, 10]).unwrap();
        // Of one with mounts of its own the folder is on the node.
        assert_eq!(existing.ids, BTreeSet::from([id('a'), id('c')]));
    }

    #[test]
    fn a_shim_of_root_that_cannot_be_read_is_counted_and_a_users_is_not_even_read() {
        let root = node(&[]);
        let process = |pid: u32, uid: u32| {
            let folder = root.path().join("proc").join(pid.to_string());
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("cgroup"), "0::/system.slice/x.service\n").unwrap();
            fs::write(folder.join("status"), format!("Uid:\t{uid}\t0\t0\t0\n")).unwrap();
            // To read it as a link fails.
            fs::write(folder.join("cwd"), "").unwrap();
        };
        process(1, 0);
        (7..9).for_each(|pid| process(pid, 1_000));
        let procfs = Procfs::new(root.path(), Bounded::default());
        let found = of_shims(root.path(), &procfs, vec![7, 8]).unwrap();
        assert_eq!(found, Existing::default());
        process(9, 0);
        let found = of_shims(root.path(), &procfs, vec![7, 8, 9]).unwrap();
        let partial = found.partial.unwrap();
        assert!(partial.starts_with("the folders of 1 shims ("), "{partial}");
    }

    #[test]
    fn shims_are_known_by_the_name_that_the_kernel_cuts() {
        assert!(is_shim("containerd-shim"));
        assert!(is_shim("conmon"));
        assert!(!is_shim("containerd"));
        assert!(!is_shim("conmonitor"));
    }
}
