//! How many pods the kubelet runs at most, as its files say.
//!
//! Flags win over the configuration file, and a distribution has its files
//! where it likes. The kubelet's own command line is not read: that can wait for
//! a process that hangs. So a number is believed only if it is written
//! somewhere, and if no two files of a kind disagree; the kubelet's default is
//! not assumed.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::root::{Found, Root};
use event::MaxPods;

/// Files with the kubelet's flags, or folders of such.
const FLAGS: [&str; 7] = [
    "/var/lib/kubelet/kubeadm-flags.env",
    "/etc/default/kubelet",
    "/etc/sysconfig/kubelet",
    "/etc/systemd/system/kubelet.service.d",
    "/etc/rancher/k3s/config.yaml",
    "/etc/rancher/rke2/config.yaml",
    "/var/snap/microk8s/current/args/kubelet",
];
/// Files with its configuration, or folders of parts of it.
const FILES: [&str; 9] = [
    "/var/lib/kubelet/config.yaml",
    "/etc/kubernetes/kubelet/kubelet-config.json",
    "/etc/kubernetes/kubelet/config.json",
    "/etc/kubernetes/kubelet/config.json.d",
    "/etc/default/kubeletconfig.json",
    "/home/kubernetes/kubelet-config.yaml",
    "/var/lib/k0s/kubelet-config.yaml",
    "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d",
    "/var/lib/rancher/rke2/agent/etc/kubelet.conf.d",
];
/// Real ones have some 1,000 bytes.
const MAX_FILE: usize = 256 << 10;
/// Files of a folder that are looked at.
const MAX_ENTRIES: usize = 64;

/// The number, if it is written down.
pub fn max_pods(root: &Root) -> Option<MaxPods> {
    let flags = numbers(root, &FLAGS, flag);
    let found = match flags.is_empty() {
        true => numbers(root, &FILES, |text| configured(text).map(Some)),
        false => flags,
    };
    let all: BTreeSet<Option<u32>> = found.iter().map(|(pods, _)| *pods).collect();
    let (pods, file) = found.into_iter().next()?;
    let pods = pods.filter(|pods| all.len() == 1 && *pods > 0)?;
    Some(MaxPods { pods, file })
}

/// What is written in files, and in those of folders: a number, or something
/// that is none.
fn numbers(
    root: &Root,
    places: &[&str],
    of: fn(&str) -> Option<Option<u32>>,
) -> Vec<(Option<u32>, PathBuf)> {
    let read = |path: PathBuf| {
        let Ok(Found::File(content)) = root.read_linked(&path, MAX_FILE) else {
            return None;
        };
        let text = std::str::from_utf8(&content.bytes).ok()?;
        Some((of(text)?, path))
    };
    let paths = places.iter().map(Path::new).flat_map(|place| {
        let Ok(Some(folder)) = root.folder(place) else {
            return vec![place.to_owned()];
        };
        let listing = folder.list(MAX_ENTRIES);
        let entries = listing.into_iter().flat_map(|listing| listing.entries);
        let names: Vec<_> = entries
            .filter_map(|entry| Some(place.join(entry.text()?)))
            .collect();
        names
    });
    paths.filter_map(read).collect()
}

/// `--max-pods=N`, `--max-pods N` or `max-pods=N`, the last one; `Some(None)` if
/// that is no number (`--max-pods=$MAX_PODS`). What is behind a `#` is none.
fn flag(text: &str) -> Option<Option<u32>> {
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    let digits = |rest: &str| {
        let value = rest.strip_prefix(['=', ' '])?;
        let value = value.trim_start_matches(['"', '\'', ' ']);
        let end = value
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(value.len());
        Some(value.get(..end)?.parse().ok())
    };
    let found = lines.flat_map(|line| line.split("max-pods").skip(1));
    found.filter_map(digits).last()
}

/// `maxPods` of a `KubeletConfiguration`, in YAML or JSON.
fn configured(text: &str) -> Option<u32> {
    // A type of its own would need a YAML reader of its own in the binary.
    let found: Value = serde_saphyr::from_str(text).ok()?;
    let pods = found.get("maxPods")?.as_u64()?;
    let is_kubelets = found.get("kind")? == "KubeletConfiguration";
    is_kubelets.then(|| pods.try_into().ok())?
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn told(files: &[(&str, &str)]) -> Option<(u32, String)> {
        let host = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = host.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let found = max_pods(&Root::open(host.path()).unwrap())?;
        Some((found.pods, found.file.display().to_string()))
    }

    const CONFIG: &str = "/var/lib/kubelet/config.yaml";
    const ENV: &str = "/var/lib/kubelet/kubeadm-flags.env";

    #[test]
    fn the_configuration_says_it_and_a_flag_wins() {
        let config = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
                      maxPods: 64\n";
        assert_eq!(told(&[(CONFIG, config)]), Some((64, CONFIG.into())));
        for flags in [
            "KUBELET_KUBEADM_ARGS=\"--v=2 --max-pods=30 --x\"",
            "Environment='ARGS=--max-pods 30'",
        ] {
            let both = [(CONFIG, config), (ENV, flags)];
            assert_eq!(told(&both), Some((30, ENV.into())), "{flags}");
        }
        let k3s = "kubelet-arg:\n  - \"max-pods=250\"\n";
        let path = "/etc/rancher/k3s/config.yaml";
        assert_eq!(told(&[(path, k3s)]), Some((250, path.into())));
        let json = r#"{"kind":"KubeletConfiguration","maxPods":58}"#;
        let part = "/etc/kubernetes/kubelet/config.json.d/40-nodeadm.conf";
        assert_eq!(told(&[(part, json)]), Some((58, part.into())));
    }

    #[test]
    fn what_is_not_written_or_not_clear_is_not_known() {
        let config = "kind: KubeletConfiguration\n";
        assert_eq!(told(&[(CONFIG, config)]), None, "no default is assumed");
        assert_eq!(told(&[(CONFIG, "kind: Other\nmaxPods: 5\n")]), None);
        assert_eq!(told(&[(ENV, "# --max-pods=5\n")]), None);
        assert_eq!(told(&[(ENV, "--max-pods=none")]), None);
        let flag = (ENV, "KUBELET_ARGS=\"--max-pods=$MAX_PODS\"");
        let file = (CONFIG, "kind: KubeletConfiguration\nmaxPods: 110\n");
        assert_eq!(told(&[flag, file]), None, "the flag wins");
        let (a, b) = ("maxPods: 5\n", "maxPods: 6\n");
        let other = "/home/kubernetes/kubelet-config.yaml";
        let both = [
            (CONFIG, format!("{config}{a}")),
            (other, format!("{config}{b}")),
        ];
        let both = both.each_ref().map(|(path, text)| (*path, text.as_str()));
        assert_eq!(told(&both), None, "they disagree");
        assert_eq!(told(&[]), None);
    }
}
