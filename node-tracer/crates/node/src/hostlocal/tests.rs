use std::{fs, os::unix::fs::symlink};

use super::{
    store::{MAX_FILE, file_name, parse},
    *,
};

const ID: &str = "3f2a9c0de1b4a5968778695a4b3c2d1e0f3f2a9c0de1b4a5968778695a4b3c2d";

/// A host's root with the given files.
fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    root
}

fn stores(root: &tempfile::TempDir) -> Stores {
    Stores::discover(root.path()).unwrap()
}

fn look_up(root: &tempfile::TempDir, address: &str) -> Lookup {
    stores(root).holder(address.parse().unwrap())
}

fn folders(lookup: &Lookup) -> Vec<&str> {
    lookup
        .stores
        .iter()
        .map(|path| path.to_str().unwrap())
        .collect()
}

mod golden;

#[test]
fn a_reservation_is_found_with_its_container_and_interface() {
    let root = host(&[
        (
            "var/lib/cni/networks/k8s/198.18.0.2",
            &format!("{ID}\r\neth0"),
        ),
        ("var/lib/cni/networks/k8s/lock", ""),
        ("var/lib/cni/networks/k8s/last_reserved_ip.0", "198.18.0.2"),
    ]);
    let lookup = look_up(&root, "198.18.0.2");
    assert_eq!(
        lookup.holder,
        Some(ReservationHolder {
            path: PathBuf::from("/var/lib/cni/networks/k8s/198.18.0.2"),
            container_id: ID.to_owned(),
            ifname: Some(String::from("eth0")),
            pod: None,
        })
    );
    assert_eq!(
        folders(&lookup),
        ["/var/lib/cni/networks", "/var/lib/cni/networks/k8s"]
    );
    let free = look_up(&root, "198.18.0.3");
    assert_eq!(
        (free.holder, free.unread.texts(), free.stores.len()),
        (None, vec![], 2)
    );
}

#[test]
fn every_form_of_a_reservation_is_understood() {
    for (content, id, ifname) in [
        (format!("{ID}\r\neth0"), ID, Some("eth0")),
        (format!("{ID}\neth0\n"), ID, Some("eth0")),
        (format!("{ID}\r\n"), ID, None),
        (ID.to_owned(), ID, None),
        (String::new(), "", None),
        (String::from("\r\n"), "", None),
        (format!("{ID}  \n\n"), ID, None),
        (String::from("\r\neth0"), "", Some("eth0")),
        (
            String::from("test.container_1-a"),
            "test.container_1-a",
            None,
        ),
    ] {
        let expected = (id.to_owned(), ifname.map(str::to_owned));
        assert_eq!(parse(content.as_bytes()), Some(expected), "{content:?}");
    }
    for content in [
        "{\"a\":1}",
        "an id\r\neth0",
        "id\r\neth0/x",
        "id\r\neth0\r\nmore",
        "\nid\r\neth0",
        "id\reth0",
        "id\r\na name that is far too long",
        "\0\0\0\0",
        "\u{1b}[2J",
    ] {
        assert_eq!(parse(content.as_bytes()), None, "{content:?}");
    }
    assert_eq!(parse(b"\xff\xfe"), None);
}

#[test]
fn an_address_of_ipv6_is_named_as_go_does() {
    for (address, name) in [
        ("2001:DB8:0:0:0:0:0:2", "2001:db8::2"),
        ("2001:db8:0:1:0:0:0:2", "2001:db8:0:1::2"),
        ("2001:db8:0:1:1:1:1:2", "2001:db8:0:1:1:1:1:2"),
        ("2001:0:0:1:0:0:1:2", "2001::1:0:0:1:2"),
        ("::ffff:198.18.0.2", "198.18.0.2"),
        ("::1", "::1"),
        ("fd00::", "fd00::"),
        ("198.18.0.2", "198.18.0.2"),
    ] {
        assert_eq!(file_name(address.parse().unwrap()), name);
    }
    let root = host(&[("var/lib/cni/networks/k8s/fd00::2", ID)]);
    assert_eq!(
        look_up(&root, "fd00:0:0:0:0:0:0:2")
            .holder
            .unwrap()
            .container_id,
        ID
    );
}

#[test]
fn the_folders_that_the_configuration_names_are_looked_at_first() {
    let root = host(&[
        (
            "etc/cni/net.d/10-k8s.conflist",
            r#"{"name":"k8s","cniVersion":"1.0.0","plugins":[
                {"type":"bridge","ipam":{"type":"host-local","dataDir":"/run/cni-ipam","ranges":[]}},
                {"type":"portmap"}]}"#,
        ),
        (
            "etc/cni/net.d/20-other.conf",
            r#"{"name":"other","type":"ptp","ipam":{"type":"host-local"}}"#,
        ),
        ("run/cni-ipam/k8s/198.18.0.2", "first"),
        ("var/lib/cni/networks/198.18.0.2", "flat"),
        ("var/lib/cni/networks/other/198.18.0.2", "second"),
        ("var/lib/cni/networks/other/198.18.0.3", "third"),
    ]);
    let lookup = look_up(&root, "198.18.0.2");
    assert_eq!(lookup.holder.as_ref().unwrap().container_id, "first");
    assert_eq!(
        folders(&lookup),
        [
            "/run/cni-ipam/k8s",
            "/var/lib/cni/networks/other",
            "/var/lib/cni/networks"
        ]
    );
    assert_eq!(
        look_up(&root, "198.18.0.3").holder.unwrap().container_id,
        "third"
    );
}

#[test]
fn terways_flat_layout_is_known() {
    let root = host(&[("var/lib/cni/networks/198.18.0.2", &format!("{ID}\r\neth0"))]);
    let lookup = look_up(&root, "198.18.0.2");
    assert_eq!(
        lookup.holder.unwrap().path,
        Path::new("/var/lib/cni/networks/198.18.0.2")
    );
}

#[test]
fn networks_inside_multus_count_too() {
    let root = host(&[
        (
            "etc/cni/net.d/00-multus.conf",
            r#"{"name":"multus","type":"multus","kubeconfig":"/x","delegates":[
                {"name":"inner","plugins":[{"type":"bridge","ipam":{"type":"host-local","dataDir":"/data"}}]}]}"#,
        ),
        ("data/inner/198.18.0.2", ID),
    ]);
    assert_eq!(
        look_up(&root, "198.18.0.2").holder.unwrap().path,
        Path::new("/data/inner/198.18.0.2")
    );
}

#[test]
fn a_store_made_after_the_start_is_found() {
    let root = host(&[]);
    let stores = stores(&root);
    let address = "198.18.0.2".parse().unwrap();
    assert!(stores.holder(address).stores.is_empty());
    let folder = root.path().join("var/lib/cni/networks/new");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("198.18.0.2"), ID).unwrap();
    assert_eq!(stores.holder(address).holder.unwrap().container_id, ID);
}

#[test]
fn no_link_leads_out_of_the_root_and_none_is_taken_for_a_reservation() {
    let outside = host(&[("secret", ID)]);
    let root = host(&[
        ("var/lib/cni/networks/k8s/198.18.0.9", ID),
        ("real/198.18.0.4", ID),
    ]);
    let networks = root.path().join("var/lib/cni/networks");
    symlink(
        outside.path().join("secret"),
        networks.join("k8s/198.18.0.2"),
    )
    .unwrap();
    symlink("/real/198.18.0.4", networks.join("k8s/198.18.0.3")).unwrap();
    symlink(outside.path(), networks.join("outside")).unwrap();
    // Within the root, and absolute as on the host.
    symlink("/real", networks.join("inside")).unwrap();
    let stores = stores(&root);
    for address in ["198.18.0.2", "198.18.0.3"] {
        let lookup = stores.holder(address.parse().unwrap());
        assert_eq!(lookup.holder, None, "{address}");
        assert_eq!(lookup.unread.texts().len(), 1, "{address}");
        assert!(
            !folders(&lookup).contains(&"/var/lib/cni/networks/k8s"),
            "{address}"
        );
    }
    let lookup = stores.holder("198.18.0.4".parse().unwrap());
    assert_eq!(
        lookup.holder.unwrap().path,
        Path::new("/var/lib/cni/networks/inside/198.18.0.4")
    );
}

#[test]
fn what_is_no_reservation_leaves_the_answer_unknown_and_the_other_stores_known() {
    let root = host(&[
        (
            "var/lib/cni/networks/a/198.18.0.2",
            &"x".repeat(MAX_FILE + 1),
        ),
        (
            "var/lib/cni/networks/b/198.18.0.2",
            "some text\nof somebody",
        ),
        // host-local cannot make its file where a folder is.
        ("var/lib/cni/networks/c/198.18.0.2/folder", ""),
        ("var/lib/cni/networks/d/198.18.0.2", ID),
    ]);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.path().join("var/lib/cni/networks/a/198.18.0.3"),
        FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let lookup = look_up(&root, "198.18.0.2");
    assert_eq!(lookup.holder.as_ref().unwrap().container_id, ID);
    assert_eq!(lookup.unread.texts().len(), 3);
    let names = ["/var/lib/cni/networks", "/var/lib/cni/networks/d"];
    assert_eq!(folders(&lookup), names);
    assert_eq!(look_up(&root, "198.18.0.3").unread.texts().len(), 1);
}

#[test]
fn a_node_without_configuration_is_no_error() {
    let root = host(&[]);
    let stores = stores(&root);
    assert!(stores.is_bare());
    assert!(stores.configuration().networks.is_empty());
    assert!(stores.configuration().unread.texts().is_empty());
    let error = Stores::discover(&root.path().join("gone")).unwrap_err();
    assert!(error.to_string().contains("--root"));
}

#[test]
fn a_configuration_that_comes_later_is_read_and_what_it_said_once_is_still_looked_at() {
    let root = host(&[("run/ipam/pods/198.18.0.2", ID)]);
    let stores = stores(&root);
    let address = "198.18.0.2".parse().unwrap();
    assert!(stores.holder(address).holder.is_none());
    let folder = root.path().join("etc/cni/net.d");
    fs::create_dir_all(&folder).unwrap();
    let write = |data_dir: &str| {
        let conf = format!(
            r#"{{"name": "pods", "plugins": [{{"type": "ptp", "ipam": {{"type": "host-local", "dataDir": "{data_dir}"}}}}]}}"#
        );
        fs::write(folder.join("10-pods.conflist"), conf).unwrap();
    };
    write("/run/ipam");
    assert!(
        stores.holder(address).holder.is_none(),
        "not read each time"
    );
    let again = || stores.configuration_within(Duration::ZERO);
    assert_eq!(again().networks.len(), 1);
    assert_eq!(stores.holder(address).holder.unwrap().container_id, ID);
    write("/run/other");
    let networks = again().networks.clone();
    let paths: Vec<_> = networks
        .iter()
        .filter_map(|each| each.store.clone())
        .collect();
    assert_eq!(
        paths,
        ["/run/other/pods", "/run/ipam/pods"].map(PathBuf::from)
    );
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(again().networks.len(), 2);
    assert!(stores.holder(address).holder.is_some());
}
