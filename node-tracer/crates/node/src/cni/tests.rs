use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use super::*;
use crate::root::Root;
use event::{Attachment, Event, Netns, Network, PodRef, What};

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

fn config(files: &[(&str, &str)]) -> (Vec<Network>, Vec<String>) {
    let host = host(files);
    let config = Configuration::read(&Root::open(host.path()).unwrap());
    let What::NetworksListed { networks, unread } = config.event(sys::clock::now()).what else {
        panic!("networks");
    };
    (networks, unread)
}

/// Name, plugin, IPAM, store and ranges of a network, in one line.
fn line(network: &Network) -> String {
    let ipam = network.ipam.as_deref().unwrap_or("-");
    let store = network.store.as_deref().unwrap_or(Path::new("-"));
    let mut line = format!(
        "{} {} {ipam} {}",
        network.name,
        network.plugin,
        store.display()
    );
    for range in &network.ranges {
        line += &format!(" {}-{}", range.first, range.last);
    }
    line
}

#[test]
fn the_device_that_pods_are_plugged_into_is_known_where_the_plugin_names_it() {
    for (plugin, device) in [
        (r#""type":"bridge""#, Some("cni0")),
        (r#""type":"bridge","bridge":"br-a""#, Some("br-a")),
        (r#""type":"macvlan","master":"eth1""#, Some("eth1")),
        (
            r#""type":"ipvlan","master":"eth1","linkInContainer":true"#,
            None,
        ),
        (r#""type":"macvlan""#, None),
        (r#""type":"macvlan","master":7"#, None),
        (r#""type":"ptp""#, None),
        (r#""type":"flannel""#, Some("cni0")),
        (
            r#""type":"flannel","delegate":{"bridge":"br-f"}"#,
            Some("br-f"),
        ),
        (r#""type":"flannel","delegate":{"type":"other"}"#, None),
        (r#""type":"other","bridge":"br-a","master":"eth1""#, None),
    ] {
        let file = format!(r#"{{"name":"pods","plugins":[{{{plugin}}}]}}"#);
        let (networks, _) = config(&[("etc/cni/net.d/10-a.conflist", &file)]);
        assert_eq!(networks[0].device.as_deref(), device, "{plugin}");
    }
}

#[test]
fn each_kind_of_network_is_known() {
    for (config_file, expected) in [
        (
            r#"{"name":"k8s-pod-network","plugins":[
                {"type":"calico","datastore_type":"kubernetes","ipam":{"type":"calico-ipam"},
                 "kubernetes":{"k8s_api_token":"secret"}},{"type":"portmap"}]}"#,
            "k8s-pod-network calico calico-ipam -",
        ),
        (
            r#"{"name":"k8s-pod-network","plugins":[{"type":"calico","ipam":
                {"type":"host-local","ranges":[[{"subnet":"usePodCidr"}],[{"subnet":"usePodCidrIPv6"}]]}}]}"#,
            "k8s-pod-network calico host-local /var/lib/cni/networks/k8s-pod-network",
        ),
        (
            r#"{"name":"terway","type":"terway"}"#,
            "terway terway terway -",
        ),
        (
            r#"{"name":"terway-chainer","plugins":[{"type":"terway"},{"type":"cilium-cni"}]}"#,
            "terway-chainer terway terway -",
        ),
        (
            r#"{"name":"networks","type":"veth","ipam":
                {"type":"host-local","dataDir":"/var/lib/cni/","subnet":"10.0.1.0/25"}}"#,
            "networks veth host-local /var/lib/cni/networks 10.0.1.1-10.0.1.126",
        ),
        (
            r#"{"name":"w","type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.0.0/16","ranges":"other"}}"#,
            "w macvlan whereabouts -",
        ),
        (
            r#"{"name":"z","type":"weave-net","ipam":{}}"#,
            "z weave-net - -",
        ),
        (
            r#"{"name":"z","plugins":[{"type":"x","plugins":null},{"type":"y","ipam":{"type":"dhcp"}}]}"#,
            "z x dhcp -",
        ),
        (
            r#"{"name":"kindnet","plugins":[{"type":"ptp","ipam":{"type":"host-local",
                "dataDir":"/run/cni-ipam-state","ranges":[[{"subnet":"10.244.0.0/24"}],[{"subnet":"fd00::/120"}]]}}]}"#,
            "kindnet ptp host-local /run/cni-ipam-state/kindnet 10.244.0.1-10.244.0.254 fd00::1-fd00::ff",
        ),
        (
            r#"{"name":"","type":"ptp","ipam":{"type":"host-local"}}"#,
            " ptp host-local -",
        ),
    ] {
        let (networks, unread) = config(&[
            ("etc/cni/net.d/06-empty.json", "{}"),
            ("etc/cni/net.d/10-first.conflist", config_file),
            (
                "etc/cni/net.d/09-no-config.conf.bak",
                r#"{"type":"bridge"}"#,
            ),
            (
                "etc/cni/net.d/87-podman-bridge.conflist",
                r#"{"name":"podman","plugins":[{"type":"bridge"}]}"#,
            ),
        ]);
        assert_eq!(line(&networks[0]), expected, "{config_file}");
        assert_eq!(
            networks[0].file,
            Path::new("/etc/cni/net.d/10-first.conflist")
        );
        assert_eq!(line(networks.last().unwrap()), "podman bridge - -");
        assert!(unread.is_empty(), "{unread:?}");
        assert!(!format!("{networks:?}").contains("secret"));
    }
}

#[test]
fn a_chained_plugin_with_addresses_of_its_own_is_a_network_too() {
    let aws = r#"{"name":"aws-cni","plugins":[{"name":"aws-cni","type":"aws-cni"},
        {"name":"egress","type":"egress-cni","ipam":{"type":"host-local","dataDir":"/run/cni/v4","subnet":"169.254.172.0/22"}}]}"#;
    let (networks, _) = config(&[("etc/cni/net.d/10-aws.conflist", aws)]);
    let lines: Vec<_> = networks.iter().map(line).collect();
    assert_eq!(
        lines,
        [
            "aws-cni aws-cni aws-cni -",
            "aws-cni egress-cni host-local /run/cni/v4/aws-cni 169.254.172.1-169.254.175.254",
        ]
    );
}

#[test]
fn networks_inside_multus_count_and_are_not_told_twice() {
    let inner = r#"{"name":"inner","plugins":[{"type":"bridge","ipam":{"type":"host-local","dataDir":"/data"}}]}"#;
    let multus = format!(
        r#"{{"name":"multus","type":"multus","kubeconfig":"/x","delegates":[{inner},{{"name":"second","type":"ipvlan"}}]}}"#
    );
    let (networks, _) = config(&[
        ("etc/cni/net.d/00-multus.conf", &multus),
        ("etc/cni/net.d/10-inner.conflist", inner),
    ]);
    let lines: Vec<_> = networks.iter().map(line).collect();
    assert_eq!(
        lines,
        ["inner bridge host-local /data/inner", "second ipvlan - -"]
    );
}

#[test]
fn the_network_that_multus_names_is_the_one_in_use() {
    for cluster in ["/host/etc/cni/net.d/20-b.conf", "b"] {
        let multus = format!(r#"{{"name":"m","type":"multus-shim","clusterNetwork":"{cluster}"}}"#);
        let (networks, _) = config(&[
            ("etc/cni/net.d/00-multus.conf", &multus),
            ("etc/cni/net.d/10-a.conf", r#"{"name":"a","type":"ptp"}"#),
            ("etc/cni/net.d/20-b.conf", r#"{"name":"b","type":"ptp"}"#),
        ]);
        let names: Vec<_> = networks
            .iter()
            .map(|network| network.name.as_str())
            .collect();
        assert_eq!(names, ["b", "m", "a"], "{cluster}");
    }
}

#[test]
fn flannels_range_is_what_flanneld_has_written() {
    let flannel = r#"{"name":"cbr0","plugins":[{"type":"flannel","delegate":{"isDefaultGateway":true}},{"type":"portmap"}]}"#;
    let file = ("etc/cni/net.d/10-flannel.conflist", flannel);
    let env = ("run/flannel/subnet.env", "FLANNEL_SUBNET=10.244.1.1/24\n");
    let (networks, unread) = config(&[file, env]);
    assert_eq!(
        line(&networks[0]),
        "cbr0 flannel host-local /var/lib/cni/networks/cbr0 10.244.1.1-10.244.1.254"
    );
    assert!(unread.is_empty());
    let (networks, unread) = config(&[file]);
    assert_eq!(
        line(&networks[0]),
        "cbr0 flannel host-local /var/lib/cni/networks/cbr0"
    );
    assert!(unread[0].starts_with("/run/flannel/subnet.env is not there"));
}

#[test]
fn what_cannot_be_used_is_told_and_the_rest_is_used() {
    let deep = format!(
        r#"{{"name":"deep","type":"multus","delegates":{}{}}}"#,
        r#"[{"delegates":"#.repeat(6),
        format_args!("[]{}", "}]".repeat(6))
    );
    let (networks, unread) = config(&[
        ("etc/cni/net.d/05-broken.conf", r#"{"token":"secret"#),
        ("etc/cni/net.d/06-deep.conf", &deep),
        (
            "etc/cni/net.d/07-name.conf",
            r#"{"name":"../x","type":"ptp"}"#,
        ),
        (
            "etc/cni/net.d/08-range.conf",
            r#"{"name":"r","type":"ptp","ipam":{"type":"host-local","subnet":"10.0.0.0/31"}}"#,
        ),
        ("etc/cni/net.d/09-large.conf", &" ".repeat((1 << 20) + 1)),
    ]);
    let lines: Vec<_> = networks.iter().map(line).collect();
    assert_eq!(lines, ["r ptp host-local /var/lib/cni/networks/r"]);
    let folder = "/etc/cni/net.d";
    assert_eq!(
        unread,
        [
            format!("{folder}/05-broken.conf is no CNI configuration"),
            format!("{folder}/06-deep.conf has networks in networks, too many to look into"),
            format!("{folder}/07-name.conf has a network name that libcni refuses"),
            format!(
                "{folder}/08-range.conf has a range whose subnet 10.0.0.0/31 is too small for host-local; host-local refuses it"
            ),
            format!("cannot read {folder}/09-large.conf: file too large"),
        ]
    );
}

fn cache(files: &[(&str, &str)]) -> (Vec<Attachment>, Vec<String>) {
    let host = host(files);
    read_cache(host.path())
}

fn read_cache(host: &Path) -> (Vec<Attachment>, Vec<String>) {
    let resolve = |path: &str| {
        (path == "/run/netns/a").then_some(Netns {
            inode: 7,
            cookie: None,
        })
    };
    let events = attachments(&Root::open(host).unwrap(), &resolve, sys::clock::now());
    match events.as_slice() {
        [
            Event {
                what:
                    What::AttachmentsListed {
                        folder,
                        attachments,
                        unread,
                    },
                ..
            },
        ] => {
            assert_eq!(folder, Path::new("/var/lib/cni/results"));
            (attachments.clone(), unread.clone())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_attachment_is_taken_with_its_pod_and_addresses_and_without_its_configuration() {
    let file = format!("pods-{ID}-eth0");
    let content = format!(
        r#"{{"kind":"cniCacheV1","containerId":"{ID}","config":"c2VjcmV0","ifName":"eth0","networkName":"pods",
            "netns":"/run/netns/a","cniArgs":[["IgnoreUnknown","1"],["K8S_POD_NAMESPACE","shop"],
            ["K8S_POD_NAME","cart-0"],["K8S_POD_UID","u1"],["K8S_POD_TOKEN","secret"]],
            "capabilityArgs":{{"portMappings":[]}},
            "result":{{"cniVersion":"1.0.0","interfaces":[{{"name":"veth1","mac":"AA:00:00:00:00:01"}},{{"name":"eth0","mac":"AA:00:00:00:00:02","sandbox":"/run/netns/b"}}],"ips":[
            {{"address":"10.0.0.5/24","interface":0,"gateway":"10.0.0.1"}},{{"address":"fd00::5/64"}},{{"address":"x"}}]}}}}"#
    );
    let path = format!("var/lib/cni/results/{file}");
    let (attachments, unread) = cache(&[(&path, &content)]);
    assert_eq!(unread, [""; 0]);
    let expected = Attachment {
        path: PathBuf::from(format!("/{path}")),
        network: String::from("pods"),
        container_id: String::from(ID),
        ifname: String::from("eth0"),
        netns_path: String::from("/run/netns/a"),
        netns: Some(Netns {
            inode: 7,
            cookie: None,
        }),
        mac: Some(String::from("aa:00:00:00:00:02")),
        host_devices: vec![String::from("veth1")],
        pod: Some(PodRef {
            namespace: Some(String::from("shop")),
            name: Some(String::from("cart-0")),
            uid: Some(String::from("u1")),
        }),
        ips: vec!["10.0.0.5".parse().unwrap(), "fd00::5".parse().unwrap()],
        written: attachments[0].written,
    };
    assert_eq!(attachments, [expected]);
}

#[test]
fn the_annotations_of_a_pod_hide_no_attachment_however_they_are_escaped() {
    // The most that the API server takes, as Go writes it.
    let annotation = r"\u003c".repeat(256 << 10);
    let content = format!(
        r#"{{"kind":"cniCacheV1","containerId":"{ID}","ifName":"eth0","networkName":"pods",
            "capabilityArgs":{{"io.kubernetes.cri.pod-annotations":{{"x":"{annotation}"}}}},
            "result":{{"cniVersion":"1.0.0","ips":[{{"address":"10.0.0.5/24"}}]}}}}"#
    );
    let path = format!("var/lib/cni/results/pods-{ID}-eth0");
    let (attachments, unread) = cache(&[(&path, &content)]);
    assert_eq!((attachments.len(), unread.len()), (1, 0), "{unread:?}");
}

#[test]
fn older_libcni_has_the_namespace_only_in_the_plugins_answer() {
    let path = format!("var/lib/cni/results/pods-{ID}-eth0");
    let content = format!(
        r#"{{"kind":"cniCacheV1","containerId":"{ID}","ifName":"eth0","networkName":"pods",
            "result":{{"cniVersion":"0.4.0","interfaces":[{{"name":"cni0"}},
            {{"name":"eth0","mac":"aa:00:00:00:00:02","sandbox":"/run/netns/b"}}],"ips":[]}}}}"#
    );
    let (attachments, _) = cache(&[(&path, &content)]);
    assert_eq!(attachments[0].netns_path, "/run/netns/b");
}

#[test]
fn results_of_every_version_are_understood() {
    let of = |name: &str, content: &str| {
        let path = format!("var/lib/cni/results/{name}");
        let (attachments, unread) = cache(&[(&path, content)]);
        let [one] = attachments.as_slice() else {
            panic!("{unread:?}");
        };
        let ips: Vec<_> = one.ips.iter().map(ToString::to_string).collect();
        format!(
            "{} {} {} {}",
            one.network,
            one.container_id,
            one.ifname,
            ips.join(",")
        )
    };
    let old = r#"{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.5/24","gateway":"10.0.0.1"},"ip6":{"ip":"fd00::5/64"},"dns":{}}"#;
    let name = format!("my-net-{ID}-net-1");
    assert_eq!(
        of(&name, old),
        format!("my-net {ID} net-1 10.0.0.5,fd00::5")
    );
    let newer = r#"{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.0.0.5/24"}]}"#;
    assert_eq!(of("my-net-abc-eth0", newer), "my-net abc eth0 10.0.0.5");
    let newest = r#"{"kind":"cniCacheV1","containerId":"abc","ifName":"eth0","networkName":"n","netns":"/run/netns/a","cniArgs":[],
        "result":{"cniVersion":"1.1.0","interfaces":[{"name":"veth1","mac":"aa:bb","mtu":1500},
            {"name":"eth0","mac":"aa:cc","mtu":1500,"sandbox":"/run/netns/a","pciID":"0000:00:1f.6"},
            {"name":"net1","socketPath":"/run/vhost/net1.sock"}],"ips":[{"address":"10.0.0.5/24","interface":1}],
            "routes":[{"dst":"0.0.0.0/0","mtu":1400,"advmss":1360,"priority":100,"table":10,"scope":0}]}}"#;
    assert_eq!(of("n-abc-eth0", newest), "n abc eth0 10.0.0.5");
    let none = r#"{"kind":"cniCacheV1","containerId":"abc","ifName":"lo","networkName":"cni-loopback","cniArgs":null,"result":{"cniVersion":"1.0.0","ips":null}}"#;
    assert_eq!(of("cni-loopback-abc-lo", none), "cni-loopback abc lo ");
}

#[test]
fn what_is_no_attachment_is_told_without_quoting_it() {
    let whole = r#"{"kind":"cniCacheV1","containerId":"abc","ifName":"eth0","networkName":"n","config":"secret"}"#;
    let bad_id = whole.replace("abc", "a/c");
    let odd_kind = whole.replace("cniCacheV1", "secret");
    let huge = format!(r#"{{"kind":"{}"}}"#, "x".repeat(4 << 20));
    let files = [
        ("n-abc-eth0", whole, None),
        (
            "n-abc-eth0.bak",
            whole,
            Some("another attachment than its name says"),
        ),
        ("n-b-eth0", "", Some("is empty")),
        ("n-c-eth0", &whole[..40], Some("is cut off")),
        ("n-d-eth0", "secret", Some("is no cached result of libcni")),
        ("n-e-eth0", "{}", Some("is no cached result of libcni")),
        (
            "n-f-eth0",
            odd_kind.as_str(),
            Some("a kind that is not known"),
        ),
        ("n-g-eth0", bad_id.as_str(), Some("names no attachment")),
        ("n-h-eth0", huge.as_str(), Some("file too large")),
        (
            "noname",
            r#"{"cniVersion":"0.2.0"}"#,
            Some("a name that libcni gives to no file"),
        ),
    ];
    let host = tempfile::tempdir().unwrap();
    let folder = host.path().join("var/lib/cni/results");
    fs::create_dir_all(folder.join("z-folder")).unwrap();
    for (name, content, _) in &files {
        fs::write(folder.join(name), content).unwrap();
    }
    symlink("n-abc-eth0", folder.join("z-link")).unwrap();
    // Another way to the same folder.
    fs::create_dir(host.path().join("var/lib/cni/cache")).unwrap();
    symlink("../results", host.path().join("var/lib/cni/cache/results")).unwrap();
    let (attachments, unread) = read_cache(host.path());
    let found: Vec<_> = attachments.iter().map(|each| each.path.as_path()).collect();
    assert_eq!(found, [Path::new("/var/lib/cni/results/n-abc-eth0")]);
    let mut expected: Vec<_> = files
        .iter()
        .filter_map(|(name, _, why)| Some((*name, (*why)?)))
        .collect();
    expected.extend([("z-folder", "is a folder"), ("z-link", "it is a link")]);
    assert_eq!(unread.len(), expected.len(), "{unread:?}");
    for (name, why) in expected {
        let told = |text: &String| text.contains(name) && text.contains(why);
        assert!(unread.iter().any(told), "{name} {why}: {unread:?}");
    }
    assert!(!unread.concat().contains("secret"), "{unread:?}");
}

#[test]
fn a_node_without_cni_is_no_error() {
    assert_eq!(config(&[]), (Vec::new(), Vec::new()));
    let host = host(&[]);
    let root = Root::open(host.path()).unwrap();
    assert!(attachments(&root, &|_| None, sys::clock::now()).is_empty());
}
