//! Which pod and which container a task belongs to, from the text of its
//! `/proc/TID/cgroup`: an attribution that needs neither CRI nor the API
//! server, and that outlives the pod's deletion from both.
//!
//! Pure: the file is read in `procfs`. The form of the path depends on
//! kubelet's cgroup driver, on the runtime's, and on what kubelet itself runs
//! in; what they share is a `kubepods` part followed by the pod's UID. Without
//! those two nothing is matched, so containers of docker, podman and systemd
//! services are never taken for pods.

/// Whose cgroup a task is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CgroupOwner {
    /// The pod's UID as kubelet knows it: for a static pod 32 hex digits, not
    /// the UID of its mirror in the API server.
    pub(crate) pod_uid: String,
    /// The container, of the sandbox or of an application. Absent for a task
    /// in the pod's own cgroup, such as CRI-O's conmon.
    pub(crate) container_id: Option<String>,
    /// The path that says so.
    pub(crate) path: String,
}

/// Length of a container ID of every runtime that speaks CRI.
const ID_LEN: usize = 64;

/// Longest UID that is believed; the API server's are 36 characters.
const MAX_UID: usize = 128;

/// The owner that the text of `/proc/TID/cgroup` names.
///
/// Of several hierarchies cgroup2 counts first, as it is the one that the
/// runtimes will keep, then those of version 1 in which every runtime puts
/// its processes, then any.
pub(crate) fn owner(text: &str) -> Option<CgroupOwner> {
    text.lines()
        .filter_map(|line| {
            // A path may hold colons itself.
            let mut fields = line.splitn(3, ':');
            let rank = match (fields.next()?, fields.next()?) {
                ("0", "") => 0,
                (_, "name=systemd") => 1,
                (_, "pids") => 2,
                _ => 3,
            };
            Some((rank, owner_of_path(fields.next()?)?))
        })
        // The first of those with the lowest rank.
        .min_by_key(|(rank, _)| *rank)
        .map(|(_, owner)| owner)
}

/// The owner that one cgroup path names. Where Kubernetes runs in a pod of
/// Kubernetes, the outermost pod counts: it is this node's.
pub(crate) fn owner_of_path(path: &str) -> Option<CgroupOwner> {
    // What the kernel appends once the cgroup has been removed.
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    (0..parts.len()).find_map(|at| {
        let (pod_uid, container) = pod_at(&parts[at..])?;
        Some(CgroupOwner {
            pod_uid,
            container_id: container.and_then(container_id).map(str::to_owned),
            path: path.to_owned(),
        })
    })
}

/// The pod that the path names at its first part, and the part that may name
/// the container.
fn pod_at<'a>(parts: &[&'a str]) -> Option<(String, Option<&'a str>)> {
    if let Some((slice, rest)) = parts[0].split_once(".slice") {
        // systemd: the slice's name repeats all its parents, whatever they are.
        let uid = systemd_uid(slice)?;
        let container = match rest.strip_prefix(':') {
            // What runc makes of "slice:prefix:id" without the systemd driver.
            Some(_) => Some(rest),
            None if rest.is_empty() => parts.get(1).copied(),
            None => return None,
        };
        return Some((uid, container));
    }
    // cgroupfs: kubepods, the class of service unless Guaranteed, the pod.
    let below = match parts {
        [
            "kubepods",
            "burstable" | "besteffort" | "guaranteed",
            below @ ..,
        ]
        | ["kubepods", below @ ..] => below,
        _ => return None,
    };
    let uid = below.first()?.strip_prefix("pod")?;
    is_uid(uid).then(|| (uid.to_owned(), below.get(1).copied()))
}

/// The UID in `…kubepods-burstable-pod0123_4567`. A dash in a slice's name
/// stands for a level, so kubelet writes those of the UID as underscores.
fn systemd_uid(slice: &str) -> Option<String> {
    let mut levels = slice.rsplit('-');
    let uid = levels.next()?.strip_prefix("pod")?;
    let above = match levels.next()? {
        "burstable" | "besteffort" | "guaranteed" => levels.next()?,
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
            "/docker/I/kubelet/kubepods/besteffort/podD/I",
            "/system.slice/docker-I.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podU.slice/cri-containerd-I.scope",
            "/libpod_parent/libpod-I/kubepods/podD/I",
            "/k3s/kubepods/besteffort/podD/I",
            // as seen from a cgroup namespace beside it
            "/../../kubepods/burstable/podD/I",
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
            "/kubepods.slice/kubepods-burstable-podU.slice/crio-conmon-I.scope",
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
    fn cgroup2_counts_before_systemds_hierarchy_and_that_before_others() {
        let line = |head: &str, n: u8| format!("{head}:/kubepods/pod{n}\n");
        let text = [
            line("9:cpu,cpuacct", 1),
            line("8:pids", 2),
            line("1:name=systemd", 3),
            line("0:", 4),
        ];
        let uid = |text: &str| owner(text).unwrap().pod_uid;
        assert_eq!(uid(&text.concat()), "4");
        assert_eq!(uid(&text[..3].concat()), "3");
        assert_eq!(uid(&text[..2].concat()), "2");
        assert_eq!(uid(&text[..1].concat()), "1");
        // A hybrid node leaves its processes in the root of cgroup2.
        assert_eq!(uid(&(text[..3].concat() + "0::/\n")), "3");
    }

    #[test]
    fn text_that_is_no_cgroup_file_names_nobody() {
        for text in [
            "",
            "\n",
            "0::",
            "0:",
            "nonsense",
            "::::::",
            "0::/\n1:name=systemd:/\n",
        ] {
            assert_eq!(owner(text), None, "{text:?}");
        }
    }
}
