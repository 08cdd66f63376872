//! Which pod and which container a task belongs to, from the text of its
//! `/proc/TID/cgroup`: an attribution that needs neither CRI nor the API
//! server, and that outlives the pod's deletion from both.
//!
//! Pure: files are read in `procfs`. The form of the path depends on kubelet's
//! cgroup driver, on the runtime's, and on what kubelet itself runs in; what
//! they share is a `kubepods` part followed by the pod's UID. It counts only
//! where this node's kubelet puts it: below the node's root, with nothing above
//! it that is a container's, a service's or a user's. What is inside those is
//! another node's (kind, k3d, Kubernetes in a pod), or whatever its owner likes
//! to write. Nor is a name enough: who may make cgroups below one (a service or
//! a user to whom it is delegated) may call them as kubelet does. What they make
//! is theirs, kubelet's is root's: the owner of a pod's folder, and of those
//! above it, tells.
//!
//! The kernel shows paths from the reader's own cgroup namespace. In a
//! container with one of its own another pod reads `/../../podUID/ID`: a
//! [`Place`] says what that is on the node, or that it is not known.

use event::order::Order as _;
use std::path::PathBuf;

/// Whose cgroup a task is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupOwner {
    /// The pod's UID as kubelet knows it: for a static pod 32 hex digits, not
    /// the UID of its mirror in the API server.
    pub pod_uid: String,
    /// The container, of the sandbox or of an application. Absent for a task
    /// in the pod's own cgroup, such as CRI-O's conmon.
    pub container_id: Option<String>,
    /// The path that says so.
    pub path: String,
    /// Nothing but that says so: whose the folders on it are is not known.
    pub by_name_alone: bool,
}

/// The folder that is a pod's by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodFolder {
    /// Its hierarchy's controllers: empty for cgroup2.
    pub hierarchy: String,
    /// Its path, from the top of the node's mount.
    pub path: Vec<String>,
    /// How many of its first parts are the folder of the node's own cgroups.
    pub node: usize,
}

/// Who has made a folder, and those above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// The node's own root, for each of them.
    Node,
    /// Somebody else, of one of them.
    Other,
    /// They cannot be looked at.
    Unknown,
}

/// Whose a task is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A pod's of this node.
    Pod(CgroupOwner),
    /// No pod's of this node: the node's own, or that of a container, a user or
    /// a nested node.
    NoPod,
    /// Its cgroup cannot be read, or it is gone, or where it is on the node
    /// cannot be told.
    Unknown,
}

/// Length of a container ID of every runtime that speaks CRI.
const ID_LEN: usize = 64;

/// Longest UID that is believed; the API server's are 36 characters.
const MAX_UID: usize = 128;

/// The cgroup in which systemd keeps itself, as the first process of a node.
const INIT_SCOPE: &str = "init.scope";

/// Where the node's cgroups are among the paths that the tracer is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Those that the node's first process is in.
    hierarchies: Vec<Hierarchy>,
}

/// One hierarchy of cgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    /// Its controllers, as in `/proc/TID/cgroup`: empty for cgroup2.
    name: String,
    base: Base,
    /// The folder below which this node's cgroups are, from the top: that of a
    /// container where the node is one.
    node: Vec<String>,
}

/// What paths are shown from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Base {
    /// The top of what this node has, or above.
    Top,
    /// The tracer's own cgroup namespace, which begins here.
    At(Vec<String>),
    /// The tracer's own cgroup namespace, so far below the node's root. What
    /// the folders between are called is not known.
    Below(usize),
    /// Not known at all.
    Unknown,
}

impl Place {
    /// `first` is the text of `/proc/1/cgroup` on the node. `own` is asked where
    /// the tracer's cgroup namespace begins in a hierarchy, counted from the
    /// top of the node's mount of it; only if the node's first process is
    /// outside it.
    pub fn of(first: &str, mut own: impl FnMut(&str) -> Option<Vec<String>>) -> Self {
        let mut lines: Vec<_> = first.lines().filter_map(line).collect();
        lines.order_by_key(|(rank, ..)| *rank);
        let hierarchies = lines.into_iter().map(|(rank, name, path)| {
            let (ups, below) = split(path);
            let parts: Vec<String> = below.iter().map(|part| (*part).to_owned()).collect();
            let (base, first) = match ups {
                0 => (Base::Top, parts),
                _ => match own(name).filter(|own| ups <= own.len()) {
                    Some(own) => {
                        let first = [&own[..own.len() - ups], &parts].concat();
                        (Base::At(own), first)
                    }
                    // What the first process is next to, or in, is the root.
                    None if matches!(*below, [] | [INIT_SCOPE]) => (Base::Below(ups), parts),
                    None => (Base::Unknown, parts),
                },
            };
            let name = name.to_owned();
            let node = node_root(first);
            (rank, Hierarchy { name, base, node })
        });
        let mut hierarchies: Vec<(u8, Hierarchy)> = hierarchies.collect();
        // One that every runtime uses is enough.
        let found =
            |(rank, each): &(u8, Hierarchy)| *rank < ANY && matches!(each.base, Base::At(_));
        let is_found = hierarchies.iter().any(found);
        hierarchies.retain(|(rank, each)| !is_found || *rank < ANY || each.is_known());
        Self {
            hierarchies: hierarchies.into_iter().map(|(_, each)| each).collect(),
        }
    }

    /// That of a reader who is shown the paths as they are on the node.
    #[cfg(any(test, feature = "testing"))]
    pub fn node() -> Self {
        Self::of(
            "0::/\n1:name=systemd:/\n2:pids:/\n3:cpu,cpuacct:/\n",
            |_| None,
        )
    }

    /// Whether every path can be told.
    pub fn is_known(&self) -> bool {
        !self.is_empty() && self.hierarchies.iter().all(Hierarchy::is_known)
    }

    /// Whether nothing is known of the node's first process.
    pub fn is_empty(&self) -> bool {
        self.hierarchies.is_empty()
    }

    /// Where the tracer's own cgroup namespace begins, if it has one and the
    /// place is known.
    pub fn own(&self) -> Option<String> {
        self.hierarchies.iter().find_map(|each| match &each.base {
            Base::At(own) if !own.is_empty() => Some(format!("/{}", own.join("/"))),
            Base::Top | Base::At(_) | Base::Below(_) | Base::Unknown => None,
        })
    }

    /// The owner that the text of `/proc/TID/cgroup` names.
    ///
    /// Of several hierarchies cgroup2 counts first, as it is the one that the
    /// runtimes will keep, then those of version 1 in which every runtime puts
    /// its processes, then any. One that cannot be told may be a pod's.
    ///
    /// `maker` is asked about pods' folders. What somebody else than the node
    /// has made is not a pod's, whatever it is called.
    pub fn owner(&self, text: &str, mut maker: impl FnMut(PodFolder) -> Maker) -> Owner {
        let mut owners: Vec<(u8, Owner)> = text
            .lines()
            .filter_map(line)
            .filter_map(|(rank, name, path)| {
                Some((rank, self.owner_of_path(name, path, &mut maker)?))
            })
            .collect();
        // What more than a name says comes first.
        owners.order_by_key(|(rank, owner)| {
            let by_name_alone = matches!(owner, Owner::Pod(owner) if owner.by_name_alone);
            (by_name_alone, *rank)
        });
        let unknown = owners.is_empty() || owners.iter().any(|(_, each)| *each == Owner::Unknown);
        let mut owners = owners.into_iter().map(|(_, owner)| owner);
        match owners.find(|owner| matches!(owner, Owner::Pod(_))) {
            Some(owner) => owner,
            None if unknown => Owner::Unknown,
            None => Owner::NoPod,
        }
    }

    /// Whether the text of `/proc/TID/cgroup` names a service of the node's first
    /// process: a folder of that name with nothing but slices above it, none of
    /// them the users' or Kubernetes'. No engine puts a container there. Of the
    /// hierarchies in which every runtime puts its containers each must say so,
    /// or end above it: a process can be a container's in one of them and its
    /// runtime's in another.
    pub fn is_service(&self, text: &str) -> bool {
        let mut all = Vec::new();
        for (rank, name, path) in text.lines().filter_map(line) {
            if rank >= ANY {
                continue;
            }
            let each = self.hierarchies.iter().find(|each| each.name == name);
            let own = each.and_then(|each| {
                let parts = each.absolute(path)?;
                below(&parts, &each.node).map(<[&str]>::to_vec)
            });
            match own {
                Some(own) => all.push(own),
                None => return false,
            }
        }
        let longest = all.iter().max_by_key(|parts| parts.len());
        longest.is_some_and(|longest| {
            is_service(longest) && all.iter().all(|parts| longest.starts_with(parts))
        })
    }

    /// `None` for a hierarchy that the node's first process is not in.
    fn owner_of_path(
        &self,
        hierarchy: &str,
        path: &str,
        maker: &mut impl FnMut(PodFolder) -> Maker,
    ) -> Option<Owner> {
        let mut all = self.hierarchies.iter();
        let each = all.find(|each| each.name == hierarchy)?;
        // What version 1 shows of a process that has ended, wherever it was,
        // also reads as the tracer's own cgroup.
        if path == "/" && !hierarchy.is_empty() && each.base != Base::Top {
            return Some(Owner::Unknown);
        }
        let Some(parts) = each.absolute(path) else {
            return Some(Owner::Unknown);
        };
        let found = below(&parts, &each.node).and_then(|below| owner_of_parts(below, path));
        let Some((mut owner, depth)) = found else {
            return Some(Owner::NoPod);
        };
        let node = each.node.len();
        let folder = parts.iter().take(node + depth);
        let folder = PodFolder {
            hierarchy: hierarchy.to_owned(),
            path: folder.map(|part| (*part).to_owned()).collect(),
            node,
        };
        Some(match maker(folder) {
            Maker::Node => Owner::Pod(owner),
            Maker::Other => Owner::NoPod,
            Maker::Unknown => {
                owner.by_name_alone = true;
                Owner::Pod(owner)
            }
        })
    }

    /// The folder of the node's own cgroups in a mount of a hierarchy.
    pub fn node_folder(&self, mount: &str) -> Option<PathBuf> {
        Some(self.mounted(mount)?.node.iter().collect())
    }

    fn mounted(&self, mount: &str) -> Option<&Hierarchy> {
        let is_its = |each: &&Hierarchy| match mount {
            "" | "unified" => each.name.is_empty(),
            mount => each
                .name
                .split(',')
                .any(|name| name.trim_start_matches("name=") == mount),
        };
        self.hierarchies.iter().find(is_its)
    }

    /// The owner of a folder of the node's mount of a hierarchy, of which the
    /// mount's name tells; see [`owner_of_path`].
    pub fn owner_of_folder(&self, mount: &str, path: &str) -> Option<CgroupOwner> {
        let (_, parts) = split(path);
        let node = self.mounted(mount).map(|each| &each.node);
        // A mount can begin at the node's own folder, too.
        let below = node.and_then(|node| below(&parts, node)).unwrap_or(&parts);
        owner_of_parts(below, path).map(|(owner, _)| owner)
    }
}

impl Hierarchy {
    /// Whether every path in it can be told.
    fn is_known(&self) -> bool {
        matches!(self.base, Base::Top | Base::At(_))
    }

    /// The parts of a path that the tracer is shown, from the top; `None` if
    /// that cannot be told.
    fn absolute<'a>(&'a self, path: &'a str) -> Option<Vec<&'a str>> {
        let (ups, below) = split(path);
        match &self.base {
            Base::Top => (ups == 0).then_some(below),
            Base::At(own) => {
                let above = &own[..own.len().checked_sub(ups)?];
                Some(above.iter().map(String::as_str).chain(below).collect())
            }
            Base::Below(depth) => (ups == *depth).then_some(below),
            Base::Unknown => None,
        }
    }
}

/// The last rank of hierarchies: a runtime need not use them.
const ANY: u8 = 3;

/// A line of `/proc/TID/cgroup`: how early it counts, the hierarchy's
/// controllers, the path.
fn line(line: &str) -> Option<(u8, &str, &str)> {
    // A path may hold colons itself.
    let mut fields = line.splitn(3, ':');
    let (number, name) = (fields.next()?, fields.next()?);
    let rank = match (number, name) {
        ("0", "") => 0,
        (_, "name=systemd") => 1,
        (_, "pids") => 2,
        _ => ANY,
    };
    let path = fields.next()?;
    path.starts_with('/').then_some((rank, name, path))
}

/// How many folders a path goes up first, and its parts below.
fn split(path: &str) -> (usize, Vec<&str>) {
    // What the kernel appends once the cgroup has been removed.
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let ups = parts.iter().take_while(|part| **part == "..").count();
    (ups, parts.split_off(ups))
}

/// The parts below a folder; `None` for what is not in it.
fn below<'a, 'b>(parts: &'a [&'b str], folder: &[String]) -> Option<&'a [&'b str]> {
    let (above, below) = parts.split_at_checked(folder.len())?;
    let same = above.iter().zip(folder).all(|(part, name)| part == name);
    same.then_some(below)
}

/// The folder of a node's cgroups, from the parts of its first process's path:
/// that next to systemd, or the container in which another first process is.
fn node_root(mut first: Vec<String>) -> Vec<String> {
    let container = |part: &String| container_id(part).is_some() || part.starts_with(LXC);
    let len = match first.iter().rposition(container) {
        _ if first.last().is_some_and(|part| part == INIT_SCOPE) => first.len() - 1,
        Some(at) => at + 1,
        None => 0,
    };
    first.truncate(len);
    first
}

/// The owner that one path names, as the node itself has it.
pub fn owner_of_path(path: &str) -> Option<CgroupOwner> {
    let (ups, parts) = split(path);
    let (owner, _) = (ups == 0).then(|| owner_of_parts(&parts, path))??;
    Some(owner)
}

/// The owner that the parts below the node's root name. Where Kubernetes runs
/// in a pod of Kubernetes, the outermost pod counts: it is this node's. Also
/// told is how many parts lead to the pod's own folder.
fn owner_of_parts(parts: &[&str], path: &str) -> Option<(CgroupOwner, usize)> {
    let mut in_kubepods = false;
    for (at, part) in parts.iter().enumerate() {
        let slice = part.split_once(".slice").map(|(slice, _)| slice);
        // Below kubelet's root there are its own folders alone. The root that it
        // is given can have the name that it gives its own.
        let is_again =
            *part == "kubepods" && at.checked_sub(1).is_some_and(|at| parts[at] == *part);
        if in_kubepods && slice.is_none() && !is_again {
            return None;
        }
        if let Some((pod_uid, container, depth)) = pod_at(parts, at) {
            let owner = CgroupOwner {
                pod_uid,
                container_id: container.and_then(container_id).map(str::to_owned),
                path: path.strip_suffix(" (deleted)").unwrap_or(path).to_owned(),
                by_name_alone: false,
            };
            return Some((owner, depth));
        }
        if is_anothers(part) && !is_runtimes(&parts[..=at], parts.get(at + 1)) {
            return None;
        }
        let last = |slice: &str| slice.rsplit('-').next() == Some("kubepods");
        in_kubepods |= *part == "kubepods" || slice.is_some_and(last);
    }
    None
}

/// What LXC calls the folder of a container.
const LXC: &str = "lxc.payload.";

/// Whether kubelet's root is never in a cgroup of this name: it is a
/// container's, a service's or a user's.
fn is_anothers(part: &str) -> bool {
    let engines = [
        "docker",
        "libpod_parent",
        "lxc",
        "machine",
        "machine.slice",
        "user.slice",
    ];
    container_id(part).is_some()
        || engines.contains(&part)
        || part.starts_with(LXC)
        || part.ends_with(".scope")
        || part.ends_with(".service")
}

/// Whether a service is one of the system's in which a runtime has put a pod:
/// what runc makes of "slice:prefix:id" without the systemd driver is below the
/// runtime's own cgroup.
fn is_runtimes(parts: &[&str], next: Option<&&str>) -> bool {
    let service = matches!(parts, ["system.slice", service] if service.ends_with(".service"));
    service && next.is_some_and(|next| next.contains(".slice:"))
}

/// See [`Place::is_service`].
fn is_service(parts: &[&str]) -> bool {
    let Some((service, slices)) = parts.split_last() else {
        return false;
    };
    let slice = |part: &&str| {
        part.ends_with(".slice") && !part.starts_with("user") && !part.starts_with("kubepods")
    };
    service.ends_with(".service") && !slices.is_empty() && slices.iter().all(slice)
}

/// The pod that the path names at one of its parts, the part that may name the
/// container, and how many parts lead to the pod's folder.
fn pod_at<'a>(parts: &[&'a str], at: usize) -> Option<(String, Option<&'a str>, usize)> {
    let (above, parts) = parts.split_at_checked(at)?;
    if let Some((slice, rest)) = parts.first()?.split_once(".slice") {
        // systemd: the slice's name repeats all its parents, whatever they are.
        let uid = systemd_uid(slice)?;
        return match rest.strip_prefix(':') {
            // What runc makes of "slice:prefix:id" without the systemd driver:
            // the container's folder is the pod's.
            Some(_) => Some((uid, Some(rest), at + 1)),
            None if rest.is_empty() && is_below_its_slices(above, slice) => {
                Some((uid, parts.get(1).copied(), at + 1))
            }
            None => None,
        };
    }
    // cgroupfs: kubepods, the class of service unless Guaranteed, the pod.
    let below = match parts {
        ["kubepods", "burstable" | "besteffort", below @ ..] | ["kubepods", below @ ..] => below,
        _ => return None,
    };
    let uid = below.first()?.strip_prefix("pod")?;
    let depth = at + parts.len() - below.len() + 1;
    is_uid(uid).then(|| (uid.to_owned(), below.get(1).copied(), depth))
}

/// Whether these are the folders above that of a slice: `a.slice/a-b.slice` above
/// `a-b-c.slice`.
fn is_below_its_slices(above: &[&str], slice: &str) -> bool {
    let ends = slice.match_indices('-').map(|(at, _)| &slice[..at]);
    let names = above.iter().map(|part| part.strip_suffix(".slice"));
    ends.map(Some).eq(names)
}

/// The UID in `…kubepods-burstable-pod0123_4567`. A dash in a slice's name
/// stands for a level, so kubelet writes those of the UID as underscores.
fn systemd_uid(slice: &str) -> Option<String> {
    let mut levels = slice.rsplit('-');
    let uid = levels.next()?.strip_prefix("pod")?;
    let above = match levels.next()? {
        "burstable" | "besteffort" => levels.next()?,
        other => other,
    };
    (above == "kubepods" && is_uid(uid)).then(|| uid.replace('_', "-"))
}

/// Whether this can be a pod's UID. One from a manifest may be anything.
fn is_uid(uid: &str) -> bool {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    !uid.is_empty() && uid.len() <= MAX_UID && uid.bytes().all(allowed)
}

/// The container ID at the end of `<id>`, `cri-containerd-<id>.scope`,
/// `crio-<id>`, `:cri-containerd:<id>`, `kata_<id>`, …
fn container_id(part: &str) -> Option<&str> {
    let name = part.strip_suffix(".scope").unwrap_or(part);
    let (prefix, id) = name.split_at_checked(name.len().checked_sub(ID_LEN)?)?;
    let hex = |c: u8| c.is_ascii_digit() || matches!(c, b'a'..=b'f');
    // conmon watches the container that it is named by; it is not in it.
    let named = match prefix.strip_suffix(['-', '_', ':']) {
        Some(runtime) => !runtime.ends_with("conmon"),
        None => prefix.is_empty(),
    };
    (named && id.bytes().all(hex)).then_some(id)
}

/// What a task shows, seen from a place that is known and from one that is not.
#[cfg(feature = "testing")]
pub fn fuzz(text: &str) {
    Place::node().owner(text, |_| Maker::Unknown);
    for own in [
        None,
        Some(vec![String::from("kubepods"), String::from("pod1")]),
    ] {
        let place = Place::of(text, |_| own.clone());
        place.owner(text, |_| Maker::Node);
        place.owner_of_folder("pids", text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "2d3b9f5e-7a07-4c1b-9a51-0c6f2e8a4b11";
    const STATIC: &str = "a4f4d2f9b1c84e7f8e0f7c1d2b3a4958";

    /// `U` stands for the UID with underscores, `D` for it with dashes, `I`
    /// for a container ID, `S` for a static pod's UID.
    fn expand(text: &str) -> String {
        text.chars()
            .map(|c| match c {
                'U' => UID.replace('-', "_"),
                'D' => UID.to_owned(),
                'I' => "0123456789abcdef".repeat(4),
                'S' => STATIC.to_owned(),
                other => other.to_string(),
            })
            .collect()
    }

    /// All folders are of the node's own making.
    fn nodes(_: PodFolder) -> Maker {
        Maker::Node
    }

    #[test]
    fn a_service_of_systemd_is_told_from_a_container_that_is_called_like_one() {
        let place = Place::node();
        let is = |path: &str| place.is_service(&expand(&format!("0::{path}\n")));
        assert!(is("/system.slice/containerd.service"));
        assert!(is("/runtime.slice/snap.microk8s.daemon-containerd.service"));
        for other in [
            "/",
            "/docker/I",
            "/system.slice/docker-I.scope",
            "/system.slice/containerd.service/docker/I",
            "/containerd.service",
            "/user.slice/user-1000.slice/containerd.service",
            "/user.slice/user-1000.slice/user@1000.service/app.slice/containerd.service",
            "/kubepods.slice/kubepods-podU.slice/containerd.service",
            "/../system.slice/containerd.service",
        ] {
            assert!(!is(other), "{other}");
        }
        let of_v1 = "3:memory:/system.slice/a.service\n1:name=systemd:/docker/1\n0::/\n";
        assert!(!place.is_service(of_v1));
    }

    #[test]
    fn what_is_a_container_in_one_hierarchy_is_no_service_by_another() {
        let place = Place::node();
        let runtimes = "0::/system.slice/containerd.service\n";
        for (others, expected) in [
            ("", true),
            ("1:name=systemd:/system.slice/containerd.service\n", true),
            ("1:name=systemd:/\n2:pids:/system.slice\n", true),
            ("1:name=systemd:/docker/I\n", false),
            ("2:pids:/docker/I\n", false),
            ("2:pids:/default/web\n", false),
            ("1:name=systemd:/system.slice/kubelet.service\n", false),
            ("1:name=systemd:/../x\n", false),
        ] {
            let text = expand(&(others.to_owned() + runtimes));
            assert_eq!(place.is_service(&text), expected, "{others}");
        }
    }

    #[test]
    fn a_container_of_a_pod_is_known_by_every_form_of_its_path() {
        for path in [
            // systemd driver
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podU.slice/cri-containerd-I.scope",
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podU.slice/crio-I.scope",
            "/kubepods.slice/kubepods-podU.slice/docker-I.scope",
            "/kubepods.slice/kubepods-podU.slice/cri-containerd-I.scope/system.slice/nginx.service",
            "/kubepods.slice/kubepods-podU.slice/cri-containerd-I.scope/init.scope",
            "/kubepods.slice/kubepods-podU.slice/crio-I.scope/container",
            "/kubepods.slice/kubepods-podU.slice/cri-containerd-I.scope (deleted)",
            // containerd without the systemd driver under a kubelet that has it
            "/kubepods-burstable-podU.slice:cri-containerd:I",
            "/system.slice/containerd.service/kubepods-burstable-podU.slice:cri-containerd:I",
            "/system.slice/containerd.service/kubepods-podU.slice:cri-containerd:I/nested",
            // kubelet below another root
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-podU.slice/cri-containerd-I.scope",
            "/my.slice/my-own.slice/my-own-kubepods.slice/my-own-kubepods-podU.slice/crio-I.scope",
            "/kubelet/kubepods/burstable/podD/I",
            "/k3s/kubepods/besteffort/podD/I",
            "/kubepods/kubepods/burstable/podD/I",
            "/kubepods/kubepods/podD/I",
            // cgroupfs driver
            "/kubepods/burstable/podD/I",
            "/kubepods/besteffort/podD/I",
            "/kubepods/podD/I",
            "/kubepods/podD/crio-I",
            "/kubepods/podD/I/child/of/it",
            "/kubepods/podD/kata_I",
            "/nt-test-1-2/kubepods/besteffort/podD/I",
        ] {
            let path = expand(path);
            let owner = owner_of_path(&path).unwrap_or_else(|| panic!("{path}"));
            assert_eq!(owner.pod_uid, UID, "{path}");
            assert_eq!(owner.container_id, Some(expand("I")), "{path}");
        }
    }

    #[test]
    fn a_task_of_a_pod_outside_its_containers_has_no_container() {
        for path in [
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podU.slice",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podU.slice/crio-conmon-I.scope",
            "/kubepods/burstable/podD",
            "/kubepods/burstable/podD/crio-conmon-I",
            "/kubepods/burstable/podD/something",
            "/kubepods/burstable/podD/0123456789ab",
        ] {
            let owner = owner_of_path(&expand(path)).unwrap_or_else(|| panic!("{path}"));
            assert_eq!(
                (owner.pod_uid.as_str(), owner.container_id),
                (UID, None),
                "{path}"
            );
        }
    }

    #[test]
    fn a_static_pod_has_the_uid_that_kubelet_made_from_its_manifest() {
        for path in [
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podS.slice/cri-containerd-I.scope",
            "/kubepods/burstable/podS/I",
        ] {
            assert_eq!(
                owner_of_path(&expand(path)).unwrap().pod_uid,
                STATIC,
                "{path}"
            );
        }
    }

    #[test]
    fn what_kubelet_did_not_start_is_no_pod() {
        for path in [
            "/",
            "",
            "/docker/I",
            "/system.slice/docker-I.scope",
            "/machine.slice/libpod-I.scope",
            "/machine.slice/libpod-conmon-I.scope",
            "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-I.scope/container",
            "/machine.slice/libpod_pod_I.slice/libpod-I.scope",
            "/user.slice/user-1000.slice/session-1.scope",
            "/system.slice/containerd.service",
            "/system.slice/crio-I.scope",
            "/system.slice/kubelet.service",
            "/kubepods.slice",
            "/kubepods.slice/kubepods-burstable.slice",
            "/kubepods/burstable",
            "/podD/I",
            "/burstable/podD/I",
            "/system.slice/system-podU.slice/cri-containerd-I.scope",
            "/notkubepods-podU.slice/cri-containerd-I.scope",
            "/notkubepods/podD/I",
            "/kubepods/pod/I",
            "/kubepods-pod.slice/cri-containerd-I.scope",
            "/kubepods-podU.slicer/cri-containerd-I.scope",
            "/default/I",
            "/lxc.payload.web/system.slice",
            "/actions_job/I",
            // a kubelet in a container, and what a user may write
            "/docker/I/kubelet/kubepods/besteffort/podD/I",
            "/docker/web/kubepods/podD/I",
            "/actions_job/I/kubepods/podD/I",
            "/system.slice/docker-I.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podU.slice/cri-containerd-I.scope",
            "/libpod_parent/libpod-I/kubepods/podD/I",
            "/machine.slice/libpod-I.scope/container/kubepods.slice/kubepods-podU.slice/crio-I.scope",
            "/lxc.payload.web/kubepods/podD/I",
            "/lxc/web/kubepods/podD/I",
            "/user.slice/user-1000.slice/user@1000.service/app.slice/kubepods/podD/I",
            "/user.slice/user-kubepods.slice/user-kubepods-podU.slice/crio-I.scope",
            "/user.slice/user-1000.slice/user@1000.service/kubepods-podU.slice:cri-containerd:I",
            "/user.slice/user-1000.slice/session-1.scope/kubepods/podD/I",
            "/system.slice/web.service/kubepods/podD/I",
            "/system.slice/web.service/x/kubepods-podU.slice:cri-containerd:I",
            // not where a kubelet's driver puts it
            "/x/kubepods.slice/kubepods-podU.slice/cri-containerd-I.scope",
            "/kubepods-podU.slice/cri-containerd-I.scope",
            "/kubepods.slice/kubepods-burstable-podU.slice/cri-containerd-I.scope",
            "/kubepods.slice/x.slice/kubepods-podU.slice/cri-containerd-I.scope",
            "/kubepods.slice/kubepods/podD/I",
            "/kubepods/x/podD/I",
            "/kubepods/x/kubepods/podD/I",
            "/kubepods/burstable/kubepods/podD/I",
            "/kubepods/guaranteed/podD/I",
            // it is not known what is above it
            "/../podD/I",
            "/../../kubepods/podD/I",
        ] {
            assert_eq!(owner_of_path(&expand(path)), None, "{path}");
        }
    }

    #[test]
    fn in_a_cluster_within_a_pod_the_outer_pod_counts() {
        let inner = "11111111-2222-3333-4444-555555555555";
        let path = expand("/kubepods/podD/I/kubelet/kubepods/burstable/pod") + inner + "/x";
        assert_eq!(owner_of_path(&path).unwrap().pod_uid, UID);
    }

    #[test]
    fn what_somebody_else_has_made_is_no_pods_whatever_it_is_called() {
        let text = expand("9:name=systemd:/kubepods/podD/I\n8:pids:/\n0::/lab/kubepods/podS/I\n");
        let uid = |v2: Maker, v1: Maker| {
            let maker = |folder: PodFolder| match folder.hierarchy.as_str() {
                "" => v2,
                _ => v1,
            };
            match Place::node().owner(&text, maker) {
                Owner::Pod(owner) => Some((owner.pod_uid, owner.by_name_alone)),
                Owner::NoPod | Owner::Unknown => None,
            }
        };
        use Maker::{Node, Other, Unknown};
        let (static_pod, pod) = (STATIC.to_owned(), UID.to_owned());
        assert_eq!(uid(Node, Node), Some((static_pod.clone(), false)));
        assert_eq!(uid(Other, Node), Some((pod.clone(), false)));
        assert_eq!(uid(Unknown, Node), Some((pod.clone(), false)));
        assert_eq!(uid(Other, Unknown), Some((pod, true)));
        assert_eq!(uid(Unknown, Unknown), Some((static_pod, true)));
        assert_eq!(uid(Other, Other), None);
    }

    #[test]
    fn the_folder_that_is_asked_about_is_the_pods_own() {
        for (first, path, expected, node) in [
            (
                "/",
                "/kubepods/burstable/podS/I/x",
                "/kubepods/burstable/podS",
                0,
            ),
            ("/", "/k3s/kubepods/podS", "/k3s/kubepods/podS", 0),
            (
                "/docker/I/init",
                "/docker/I/kubepods/podS/I",
                "/docker/I/kubepods/podS",
                2,
            ),
            (
                "/init.scope",
                "/kubepods.slice/kubepods-podS.slice/crio-I.scope",
                "/kubepods.slice/kubepods-podS.slice",
                0,
            ),
            (
                "/",
                "/system.slice/containerd.service/kubepods-podS.slice:cri-containerd:I/x",
                "/system.slice/containerd.service/kubepods-podS.slice:cri-containerd:I",
                0,
            ),
        ] {
            let mut asked = Vec::new();
            place(first, None).owner(&expand(&format!("0::{path}\n")), |folder| {
                asked.push((format!("/{}", folder.path.join("/")), folder.node));
                Maker::Node
            });
            assert_eq!(asked, [(expand(expected), node)], "{path}");
        }
    }

    fn owner(place: &Place, path: &str) -> Option<Option<String>> {
        match place.owner(&expand(&format!("0::{path}\n")), nodes) {
            Owner::Pod(owner) => Some(Some(owner.pod_uid)),
            Owner::NoPod => Some(None),
            Owner::Unknown => None,
        }
    }

    fn place(first: &str, own: Option<&str>) -> Place {
        let own = own.map(|own| {
            split(&expand(own))
                .1
                .into_iter()
                .map(str::to_owned)
                .collect()
        });
        Place::of(&expand(&format!("0::{first}\n")), |_| own.clone())
    }

    /// What a path is from a tracer's own cgroup namespace.
    const SIBLINGS: [(&str, &str, &[&str]); 2] = [
        (
            "/kubepods/burstable/podtracer/I",
            "/../../../../init.scope",
            &[
                "/../../podD/I",
                "/../../../podD/I",
                "/../../../besteffort/podD/I",
            ],
        ),
        (
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podtracer.slice/cri-containerd-I.scope",
            "/../../../../init.scope",
            &[
                "/../../kubepods-burstable-podU.slice/cri-containerd-I.scope",
                "/../../../kubepods-podU.slice/crio-I.scope",
                "/../../../kubepods-besteffort.slice/kubepods-besteffort-podU.slice/crio-I.scope",
            ],
        ),
    ];

    #[test]
    fn pods_beside_a_tracer_with_a_cgroup_namespace_of_its_own_are_told() {
        for (own, first, paths) in SIBLINGS {
            let place = place(first, Some(own));
            assert!(place.is_known());
            assert_eq!(place.own(), Some(expand(own)));
            for path in paths {
                assert_eq!(owner(&place, path), Some(Some(UID.to_owned())), "{path}");
            }
            assert_eq!(owner(&place, "/"), Some(Some(String::from("tracer"))));
            let runtime = "/../../../../system.slice/containerd.service";
            assert_eq!(owner(&place, runtime), Some(None));
            assert_eq!(owner(&place, "/../../../../docker/I"), Some(None));
            assert_eq!(
                owner(&place, "/../../../../../docker/I"),
                None,
                "above the top"
            );
        }
    }

    #[test]
    fn while_the_tracers_own_place_is_not_known_its_siblings_are_unknown_not_no_pods() {
        for (_, first, paths) in SIBLINGS {
            // Also if what was found is less deep than it must be.
            for own in [None, Some("/kubepods")] {
                let place = place(first, own);
                assert!(!place.is_known());
                for path in paths {
                    assert_eq!(owner(&place, path), None, "{path}");
                }
                assert_eq!(owner(&place, "/"), None);
                // What is at the node's root is known, whatever is between.
                let runtime = "/../../../../system.slice/containerd.service";
                assert_eq!(owner(&place, runtime), Some(None));
                let other = "/../../../../other/podD/I";
                assert_eq!(owner(&place, other), Some(None));
                let pod = "/../../../../kubepods/podD/I";
                assert_eq!(owner(&place, pod), Some(Some(UID.to_owned())));
            }
        }
        assert_eq!(owner(&place("/../x/y", None), "/../kubepods/podD/I"), None);
        let nothing = Place::of("", |_| None);
        assert_eq!((nothing.is_known(), owner(&nothing, "/")), (false, None));
    }

    #[test]
    fn a_node_that_is_a_container_has_its_own_pods_and_no_others() {
        for (first, nested, other) in [
            (
                "/docker/I/init.scope",
                "/docker/I/kubelet/kubepods/podD/I",
                "/kubepods/podD/I",
            ),
            (
                "/docker/I/init",
                "/docker/I/kubepods/podD/I",
                "/kubepods/podD/I",
            ),
            (
                "/system.slice/docker-I.scope/init.scope",
                "/system.slice/docker-I.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podU.slice/cri-containerd-I.scope",
                "/kubepods.slice/kubepods-podU.slice/cri-containerd-I.scope",
            ),
            (
                "/kubepods/podouter/I/init",
                "/kubepods/podouter/I/kubelet/kubepods/podD/I",
                "/kubepods/podother/I",
            ),
            (
                "/lxc.payload.web/init.scope",
                "/lxc.payload.web/kubepods/podD/I",
                "/kubepods/podD/I",
            ),
        ] {
            let inside = place(first, None);
            assert_eq!(
                owner(&inside, nested),
                Some(Some(UID.to_owned())),
                "{nested}"
            );
            assert_eq!(owner(&inside, other), Some(None), "{other}");
            let folder = inside.owner_of_folder("", &expand(nested));
            assert_eq!(folder.unwrap().pod_uid, UID);
        }
        // In a cgroup namespace that begins at the container nothing shows of it;
        // and a tracer in a pod there has one of its own.
        let inside = place("/init.scope", None);
        assert_eq!(
            owner(&inside, "/kubelet/kubepods/podD/I"),
            Some(Some(UID.to_owned()))
        );
        let own = "/docker/I/kubelet/kubepods/besteffort/podtracer/I";
        let inside = place("/../../../../../init.scope", Some(own));
        assert_eq!(owner(&inside, "/../../podD/I"), Some(Some(UID.to_owned())));
    }

    #[test]
    fn one_hierarchy_that_every_runtime_uses_is_enough_and_no_other() {
        let first = "9:name=extra:/../../x\n8:pids:/../../init.scope\n";
        let found_in = |wanted: &'static str| {
            let own = [String::from("kubepods"), String::from("podtracer")];
            Place::of(first, |name| (name == wanted).then(|| own.to_vec()))
        };
        let task = "9:name=extra:/../pod1\n8:pids:/../pod1\n";
        let place = found_in("pids");
        assert!(place.is_known());
        assert!(matches!(place.owner(task, nodes), Owner::Pod(_)));
        let web = "9:name=extra:/../..\n8:pids:/../../web.service\n";
        assert_eq!(place.owner(web, nodes), Owner::NoPod);
        let place = found_in("name=extra");
        assert!(!place.is_known());
        let other = "9:name=extra:/../..\n8:pids:/../pod1\n";
        assert_eq!(place.owner(other, nodes), Owner::Unknown);
    }

    #[test]
    fn a_process_that_has_ended_is_not_taken_for_the_tracers_own_pod() {
        let own = || Some(vec![String::from("kubepods"), String::from("podtracer")]);
        let place = Place::of("8:pids:/../../init.scope\n0::/\n", |_| own());
        assert_eq!(place.owner("8:pids:/\n0::/\n", nodes), Owner::Unknown);
        assert!(matches!(
            place.owner("8:pids:/../pod1\n0::/\n", nodes),
            Owner::Pod(_)
        ));
    }

    #[test]
    fn cgroup2_counts_before_systemds_hierarchy_and_that_before_others() {
        let line = |head: &str, n: u8| format!("{head}:/kubepods/pod{n}\n");
        let text = [
            line("3:cpu,cpuacct", 1),
            line("8:pids", 2),
            line("1:name=systemd", 3),
            line("0:", 4),
        ];
        let uid = |text: &str| match Place::node().owner(text, nodes) {
            Owner::Pod(owner) => owner.pod_uid,
            other => panic!("{other:?}"),
        };
        assert_eq!(uid(&text.concat()), "4");
        assert_eq!(uid(&text[..3].concat()), "3");
        assert_eq!(uid(&text[..2].concat()), "2");
        assert_eq!(uid(&text[..1].concat()), "1");
        // A hybrid node leaves its processes in the root of cgroup2.
        assert_eq!(uid(&(text[..3].concat() + "0::/\n")), "3");
    }

    #[test]
    fn text_that_is_no_cgroup_file_says_nothing() {
        for text in ["", "\n", "0::", "0:", "nonsense", "::::::", "77:new:/\n"] {
            assert_eq!(Place::node().owner(text, nodes), Owner::Unknown, "{text:?}");
        }
        let text = "0::/\n1:name=systemd:/\n";
        assert_eq!(Place::node().owner(text, nodes), Owner::NoPod);
    }
}
