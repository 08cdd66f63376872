use std::fs;

use super::*;

/// A host's root with the given files.
pub(super) fn host<C: AsRef<[u8]>>(files: &[(&str, C)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = root.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    root
}

fn network(ipam: &str) -> Network {
    Network {
        name: String::from("pods"),
        ipam: Some(ipam.to_owned()),
        ..Network::default()
    }
}

fn all(root: &tempfile::TempDir, networks: &[Network]) -> Vec<StoreReading> {
    let root = Root::open(root.path()).unwrap();
    let expected = expected(networks);
    let read = |kind| files(&root, kind, expected.get(&kind).map(String::as_str));
    FILES.into_iter().flat_map(read).collect()
}

#[test]
fn stores_are_there_by_their_files_or_by_the_configuration() {
    let bare = host::<&str>(&[]);
    assert_eq!(
        all(&bare, &[network("host-local"), network("calico-ipam")]),
        []
    );
    let [terway] = <[StoreReading; 1]>::try_from(all(&bare, &[network("terway")])).unwrap();
    assert_eq!(
        terway.store.unwrap_err(),
        "there is no /var/lib/cni/terway/ResRelation.db, although network pods needs it"
    );
    let [aws] = <[StoreReading; 1]>::try_from(all(&bare, &[network("aws-cni")])).unwrap();
    assert!(
        aws.store
            .unwrap_err()
            .contains("AWS_VPC_K8S_CNI_BACKING_STORE")
    );
    let [cilium] = <[StoreReading; 1]>::try_from(all(&bare, &[network("cilium")])).unwrap();
    assert_eq!(cilium.store.unwrap().unread, [cilium::IN_MEMORY]);
    let there = host(&[
        (terway::FILE, bbolt::tests::INLINE),
        (
            aws::FILE,
            &br#"{"version":"vpc-cni-ipam/1","allocations":[]}"#[..],
        ),
    ]);
    let kinds: Vec<StoreKind> = all(&there, &[]).iter().map(|answer| answer.kind).collect();
    assert_eq!(kinds, [StoreKind::Terway, StoreKind::Aws]);
    let kinds: Vec<StoreKind> = expected(&[network("whereabouts"), network("calico-ipam")])
        .into_keys()
        .collect();
    assert_eq!(kinds, IN_API);
}

#[test]
fn a_link_out_of_the_root_is_not_followed() {
    let other = host(&[("secret.db", bbolt::tests::INLINE)]);
    let root = host::<&str>(&[]);
    let path = root.path().join("var/lib/cni/terway");
    fs::create_dir_all(&path).unwrap();
    std::os::unix::fs::symlink(other.path().join("secret.db"), path.join("ResRelation.db"))
        .unwrap();
    let [answer] = <[StoreReading; 1]>::try_from(all(&root, &[])).unwrap();
    assert!(answer.store.unwrap_err().ends_with("it is a link"));
}

#[test]
fn coverage_says_what_was_read_and_what_was_not() {
    let there = host(&[
        (aws::FILE, &br#"{"version":"vpc-cni-ipam/9"}"#[..]),
        (
            "/var/run/aws-node/ipam-nic-1.json",
            br#"{"version":"vpc-cni-ipam/1","allocations":[7,7,7,7,7,7]}"#,
        ),
    ]);
    let answers = all(&there, &[]);
    let [item] = <[CoverageItem; 1]>::try_from(coverage(&answers)).unwrap();
    assert_eq!(item.signal, "aws");
    let mechanism = "0 reservations in /var/run/aws-node/ipam-nic-1.json";
    assert_eq!(item.mechanism.as_deref(), Some(mechanism));
    assert!(
        item.reason
            .unwrap()
            .contains("unknown version vpc-cni-ipam/9")
    );
    assert_eq!(item.unknown.len(), 6, "{:?}", item.unknown);
    assert_eq!(item.unknown[4], "2 more like these");
    assert_eq!(item.unknown[5], "which addresses aws has given out");
    let told = events(&answers, sys::clock::now());
    let failed = |event: &&Event| matches!(event.what, What::SourceFailed { .. });
    assert_eq!((told.len(), told.iter().filter(failed).count()), (3, 1));
}
