//! Whose container a log is of: what one prints is its own word, unless it is
//! a daemon of the node.

/// Namespaces of networks and of Kubernetes itself, besides those that begin
/// with [`PREFIXES`].
const NAMESPACES: [&str; 10] = [
    "antrea",
    "calico-apiserver",
    "calico-system",
    "cilium",
    "cilium-system",
    "multus",
    "ovn-kubernetes",
    "spiderpool",
    "tigera-operator",
    "weave",
];
const PREFIXES: [&str; 2] = ["kube-", "openshift-"];

/// Whether only who runs the cluster can start pods in a namespace.
pub(super) fn is_of_the_system(namespace: &str) -> bool {
    NAMESPACES.contains(&namespace) || PREFIXES.iter().any(|prefix| namespace.starts_with(prefix))
}

/// The namespace of a pod by the name that docker has of its container:
/// `k8s_CONTAINER_POD_NAMESPACE_UID_0`.
pub(super) fn of_docker(name: &str) -> Option<&str> {
    let name = name.trim_start_matches('/').strip_prefix("k8s_")?;
    name.split('_').nth(2)
}

/// The pod whose log a file is, by its path:
/// `/var/log/pods/NAMESPACE_POD_UID/CONTAINER/0.log`,
/// `/var/log/containers/POD_NAMESPACE_CONTAINER-ID.log`.
pub(super) fn of_path(path: &str) -> Option<(&str, &str)> {
    let mut parts = path.rsplit('/');
    let file = parts.next()?;
    let (container, pod) = (parts.next(), parts.next());
    if container == Some("containers") && file.ends_with(".log") {
        let mut names = file.split('_');
        let (pod, namespace, _) = (names.next()?, names.next()?, names.next()?);
        return Some((namespace, pod));
    }
    let mut names = pod?.split('_');
    let (namespace, pod, uid) = (names.next()?, names.next()?, names.next()?);
    let is_uid = uid.len() >= 32 && uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    (is_uid && names.next().is_none()).then_some((namespace, pod))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_containers_log_says_by_its_path_whose_it_is() {
        let uid = "0a1b2c3d-0000-4000-8000-000000000001";
        let path = format!("/var/log/pods/shop_web-0_{uid}/app/0.log");
        assert_eq!(of_path(&path), Some(("shop", "web-0")));
        let path = "/var/log/containers/web-0_shop_app-5f3c.log";
        assert_eq!(of_path(path), Some(("shop", "web-0")));
        for path in ["kubelet.log", "/var/log/syslog", "/a/b_c_d/e/0.log", "-"] {
            assert_eq!(of_path(path), None, "{path}");
        }
        assert_eq!(of_docker("k8s_app_web-0_shop_u_0"), Some("shop"));
        assert_eq!(of_docker("kubelet"), None);
    }
}
