//! How runtimes name the mounts of pod sandboxes' network namespaces.

use std::path::Path;

use crate::model::runtime::SandboxList;

/// Whether a mount is a pod sandbox's by its name: containerd's
/// `.../netns/cni-UUID`, and with CRI-O `.../netns/UUID`, which is too plain to
/// mean anything elsewhere. (podman has `netns-UUID`, docker
/// `/run/docker/netns/...`, and what a person types is no UUID.)
pub(super) fn is_sandbox(path: &Path, crio: bool) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let folder = path.parent().and_then(|folder| folder.file_name());
    let (Some(name), true) = (name, folder.is_some_and(|folder| folder == "netns")) else {
        return false;
    };
    match name.strip_prefix("cni-") {
        Some(rest) => is_uuid(rest),
        None => crio && is_uuid(name),
    }
}

/// Whether the runtime that answers is CRI-O.
pub(super) fn is_crio(list: &SandboxList) -> bool {
    let name = list.runtime.as_deref().unwrap_or_default();
    name.to_ascii_lowercase().starts_with("cri-o") || list.endpoint.contains("crio")
}

fn is_uuid(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    let hex = |c: u8| c == b'-' || c.is_ascii_hexdigit();
    lengths.eq([8, 4, 4, 4, 12]) && text.bytes().all(hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_runtimes_names_count() {
        let is = |path: &str, crio| is_sandbox(Path::new(path), crio);
        let uuid = "4f2a7c1e-9d3b-4f60-8a51-0c6e2d9b7f13";
        for folder in ["/run/netns", "/var/run/netns", "/run/containerd/netns"] {
            assert!(is(&format!("{folder}/cni-{uuid}"), false), "{folder}");
            assert!(is(&format!("{folder}/{uuid}"), true), "{folder}");
            assert!(!is(&format!("{folder}/{uuid}"), false), "{folder}");
        }
        for other in [
            "/run/netns/blue",
            "/run/netns/cni-1",
            "/run/netns/qdhcp-4f2a7c1e-9d3b-4f60-8a51-0c6e2d9b7f13",
            "/run/netns/netns-4f2a7c1e-9d3b-4f60-8a51-0c6e2d9b7f13",
            "/run/docker/netns/8d0f2b1c3a4e",
            "/run/docker/netns/default",
            "/tmp/cni-4f2a7c1e-9d3b-4f60-8a51-0c6e2d9b7f13",
            "/run/netns/cni-4f2a7c1e-9d3b-4f60-8a51-0c6e2d9b7f1g",
            "/",
        ] {
            assert!(!is(other, true), "{other}");
        }
    }
}
