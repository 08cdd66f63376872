//! Reading is tested on real namespaces, which needs root.

use std::{
    net::IpAddr,
    process::{Command, Stdio},
    thread,
    time::Instant,
};

use super::*;

fn addresses(path: &Path, bounded: &Bounded, time: Duration) -> Result<Snapshot, NetlinkError> {
    super::addresses(&Way::File(path.to_owned()), bounded, time)
}

const LONG: Duration = Duration::from_secs(20);

#[test]
fn what_is_no_namespace_is_an_error_with_its_path() {
    let bounded = Bounded::default();
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("gone");
    let error = addresses(&missing, &bounded, LONG).unwrap_err();
    assert!(
        matches!(&error, NetlinkError::Open { path, .. } if *path == missing),
        "{error}"
    );
    // What is left at a mount point whose mount is gone.
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = addresses(&file, &bounded, LONG).unwrap_err();
    assert!(error.is_gone() && matches!(&error, NetlinkError::Open { path, .. } if *path == file));
    let other = Path::new("/proc/self/ns/mnt");
    let error = addresses(other, &bounded, LONG).unwrap_err();
    assert!(
        matches!(&error, NetlinkError::Enter { path, .. } if path == other),
        "{error}"
    );
}

#[test]
fn what_is_opened_is_a_namespace_or_nothing() {
    // Opening a FIFO for real would wait for a writer.
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, Mode::RWXU, 0).unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&fifo, &link).unwrap();
    for path in [fifo, link] {
        let error = addresses(&path, &Bounded::default(), LONG).unwrap_err();
        assert!(error.is_gone(), "{error}");
    }
}

#[test]
fn links_of_a_container_lead_to_its_own_root() {
    let root = tempfile::tempdir().unwrap();
    let outside = tempfile::NamedTempFile::new().unwrap();
    let inside = root.path().join(outside.path().strip_prefix("/").unwrap());
    fs::create_dir_all(inside.parent().unwrap()).unwrap();
    fs::write(&inside, "").unwrap();
    std::os::unix::fs::symlink(outside.path(), root.path().join("link")).unwrap();
    let way = Way::Mount {
        root: root.path().to_owned(),
        path: PathBuf::from("/link"),
    };
    let error = way.open().unwrap_err();
    assert!(error.to_string().contains("no namespace"), "{error}");
    fs::remove_file(inside).unwrap();
    let error = way.open().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{error}");
}

#[test]
#[ignore = "needs root and ip (Debian: iproute2)"]
fn a_mount_is_reached_through_the_root_of_those_who_see_it() {
    let netns = TestNetns::new("mount");
    let inode = fs::metadata(netns.path()).unwrap().ino();
    for path in [
        netns.path(),
        Path::new("/var").join(netns.path().strip_prefix("/").unwrap()),
    ] {
        let way = Way::Mount {
            root: PathBuf::from("/proc/self/root"),
            path,
        };
        let snapshot = super::addresses(&way, &Bounded::default(), LONG).unwrap();
        assert_eq!(u64::from(snapshot.inode), inode);
    }
}

/// A network namespace below /run/netns, removed in the end.
struct TestNetns {
    name: String,
}

impl TestNetns {
    fn new(suffix: &str) -> Self {
        let name = format!("nt-src-{}-{suffix}", std::process::id());
        ip(&["netns", "add", &name]);
        Self { name }
    }

    fn ip(&self, arguments: &str) {
        let mut all = vec!["-n", &self.name];
        all.extend(arguments.split(' '));
        ip(&all);
    }

    fn path(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.name)
    }
}

impl Drop for TestNetns {
    fn drop(&mut self) {
        let _ = Command::new("ip")
            .args(["netns", "del", &self.name])
            .stderr(Stdio::null())
            .status();
    }
}

fn ip(arguments: &[&str]) {
    let status = Command::new("ip").args(arguments).status().unwrap();
    assert!(status.success(), "ip {arguments:?}");
}

#[test]
#[ignore = "needs root and ip (Debian: iproute2)"]
fn addresses_are_read_and_the_namespace_ends_as_soon_as_its_name_does() {
    let bounded = Bounded::default();
    let (pod, node) = (TestNetns::new("pod"), TestNetns::new("node"));
    pod.ip(&format!(
        "link add eth0 type veth peer name veth0 netns {}",
        node.name
    ));
    pod.ip("link add br0 type bridge");
    pod.ip("addr add 198.18.0.2/24 dev eth0");
    pod.ip("addr add 198.18.0.3/32 dev eth0");
    pod.ip("addr add 2001:db8::2/64 dev eth0 nodad");
    pod.ip("addr add 198.18.1.1/16 dev br0");
    pod.ip("link set lo up");
    let own = fs::metadata("/proc/self/ns/net").unwrap().ino();

    let snapshot = addresses(&pod.path(), &bounded, LONG).unwrap();
    assert_eq!(
        u64::from(snapshot.inode),
        fs::metadata(pod.path()).unwrap().ino()
    );
    let found: Vec<String> = snapshot
        .addresses
        .iter()
        .map(|found| {
            format!(
                "{found} {} {}",
                found.ifname,
                found.link_kind.as_deref().unwrap_or("-")
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            "198.18.0.2/24 eth0 veth",
            "198.18.0.3/32 eth0 veth",
            "198.18.1.1/16 br0 bridge",
            "2001:db8::2/64 eth0 veth",
        ]
    );
    assert_eq!(fs::metadata("/proc/thread-self/ns/net").unwrap().ino(), own);

    // With the namespace its end of the veth pair goes, and so the other end: the
    // proof that nothing holds it.
    let exists = || {
        let command = ["-n", &node.name, "link", "show", "veth0"];
        let output = Command::new("ip").args(command).output().unwrap();
        output.status.success()
    };
    assert!(exists());
    drop(pod);
    let start = Instant::now();
    while exists() {
        assert!(start.elapsed() < LONG, "the namespace is still held");
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(bounded.abandoned(), 0);
}

#[test]
#[ignore = "needs root and ip (Debian: iproute2)"]
fn a_namespace_with_many_addresses_is_read_as_a_whole() {
    let netns = TestNetns::new("many");
    netns.ip("link add br0 type bridge");
    let mut batch = String::new();
    for n in 0..2000 {
        batch += &format!("addr add 198.18.{}.{}/32 dev br0\n", n / 200, n % 200);
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), batch).unwrap();
    ip(&["-n", &netns.name, "-batch", file.path().to_str().unwrap()]);
    let snapshot = addresses(&netns.path(), &Bounded::default(), LONG).unwrap();
    assert_eq!(snapshot.addresses.len(), 2000);
}

#[test]
#[ignore = "needs root and ip (Debian: iproute2)"]
fn all_of_a_namespace_is_read_in_one_visit() {
    let (pod, node) = (TestNetns::new("calico"), TestNetns::new("calico-node"));
    pod.ip(&format!(
        "link add eth0 type veth peer name cali1 netns {}",
        node.name
    ));
    node.ip("link add br0 type bridge");
    node.ip("link set cali1 master br0");
    node.ip("link set cali1 up");
    node.ip("link set br0 up");
    pod.ip("addr add 198.18.0.2/32 dev eth0");
    pod.ip("link set eth0 up");
    pod.ip("route add 169.254.1.1 dev eth0 scope link");
    pod.ip("route add default via 169.254.1.1 dev eth0");
    pod.ip("-6 route add default via fe80::1 dev eth0");
    pod.ip("route add 198.19.0.0/16 via 169.254.1.1 dev eth0");
    pod.ip("neigh add 169.254.1.1 lladdr ee:ee:ee:ee:ee:ee dev eth0 nud permanent");
    node.ip("rule add from 198.18.0.2 lookup 1002 pref 2048 iif cali1");
    node.ip("-6 rule add to 2001:db8::2 lookup main pref 512");
    node.ip("route add 198.18.0.2 dev br0 table 1002 metric 7");
    node.ip("route add throw 198.20.0.0/16 table 1002");
    node.ip("neigh add 198.18.0.2 lladdr ee:ee:ee:ee:ee:01 dev br0 nud reachable");
    let fdb = ["-n", &node.name, "fdb", "add", "ee:ee:ee:ee:ee:01"];
    let fdb = [&fdb[..], &["dev", "cali1", "master", "static"]].concat();
    assert!(Command::new("bridge").args(fdb).status().unwrap().success());
    pod.ip("neigh add fe80::1 lladdr ee:ee:ee:ee:ee:ee dev eth0 nud stale");
    pod.ip("neigh add 169.254.1.9 lladdr ee:ee:ee:ee:ee:ee dev eth0 nud stale");

    let bounded = Bounded::default();
    let inode = fs::metadata(pod.path()).unwrap().ino() as u32;
    let ways = [Path::new("/run/netns/none"), Path::new("/proc/self/ns/net")];
    let mut ways: Vec<Way> = ways.map(|way| Way::File(way.to_owned())).to_vec();
    ways.push(Way::File(pod.path()));
    let gone = Target {
        inode: 1,
        ways: ways.clone(),
        is_hosts: false,
    };
    let targets = vec![
        gone,
        Target {
            inode,
            ways,
            is_hosts: false,
        },
    ];
    let mut outcomes = visit_all(targets, &bounded, LONG, LONG).into_iter();
    assert!(matches!(outcomes.next(), Some(Ok(None))));
    let found = outcomes.next().unwrap().unwrap().unwrap();
    assert_eq!(found.netns.inode, inode);

    let eth0 = &found.devices[0];
    assert_eq!(found.devices.len(), 1, "without the loopback device");
    assert_eq!((eth0.name.as_str(), eth0.up), ("eth0", true));
    assert!(eth0.mac.is_some() && eth0.link_nsid.is_some() && eth0.hardware.is_none());
    let target = Target {
        inode: fs::metadata(node.path()).unwrap().ino() as u32,
        ways: vec![Way::File(node.path())],
        is_hosts: true,
    };
    let mut outcomes = visit_all(vec![target], &bounded, LONG, LONG);
    let other = outcomes.remove(0).unwrap().unwrap();
    let named = |name| other.devices.iter().find(|device| device.name == name);
    let (cali, bridge) = (named("cali1").unwrap(), named("br0").unwrap());
    assert_eq!((eth0.link, cali.link), (Some(cali.index), Some(eth0.index)));
    assert_eq!(cali.master, Some(bridge.index));
    assert_ne!(other.netns.cookie, found.netns.cookie);

    assert!(found.forwarding.rules.is_empty(), "a pod's are ordinary");
    let forwarding = &other.forwarding;
    let rules = forwarding.rules.iter().filter(|rule| !rule.is_kernels());
    let rules: Vec<_> = rules.map(|rule| (rule.priority, rule.words())).collect();
    let expected = [
        (2048, "from 198.18.0.2 iif cali1 lookup 1002"),
        (512, "from all to 2001:db8::2 lookup main"),
    ];
    assert_eq!(rules, expected.map(|(at, words)| (at, words.to_owned())));
    let routes = forwarding.routes.iter().filter(|route| route.table == 1002);
    let mut routes: Vec<_> = routes
        .map(|route| (route.kind.as_str(), route.to.1, route.metric, route.device))
        .collect();
    // The kernel gives no order.
    routes.sort_unstable_by_key(|route| format!("{route:?}"));
    assert_eq!(
        routes,
        [
            ("throw", 16, 0, None),
            ("unicast", 32, 7, Some(bridge.index)),
        ]
    );
    let mac = "ee:ee:ee:ee:ee:01";
    let near = forwarding.neighbours.iter();
    let near: Vec<_> = near
        .filter(|each| each.neighbour.mac.as_deref() == Some(mac))
        .collect();
    assert_eq!(near.len(), 1);
    assert!(
        near[0]
            .confirmed
            .is_some_and(|at| sys::clock::now().since(at) < LONG)
    );
    let frames: Vec<_> = forwarding
        .frames
        .iter()
        .filter(|it| it.mac == mac)
        .collect();
    assert_eq!(frames.len(), 1);
    assert_eq!(frames[0].device, cali.index);

    let v6: IpAddr = "fe80::1".parse().unwrap();
    let v4 = IpAddr::from([169, 254, 1, 1]);
    let device = eth0.index;
    let route = |to, gateway| Route {
        to,
        gateway,
        device,
        by_kernel: false,
    };
    for expected in [
        route(Some((v4, 32)), None),
        route(None, Some(v4)),
        route(None, Some(v6)),
    ] {
        assert!(found.routes.contains(&expected), "{expected:?}");
    }
    assert_eq!(found.routes.len(), 3);
    let neighbours = found.neighbours.iter();
    let states: Vec<_> = neighbours.map(|n| (n.address, n.state.as_str())).collect();
    assert_eq!(states, [(v4, "permanent"), (v6, "stale")]);
    assert!(!found.cut);
    assert_eq!(bounded.abandoned(), 0);
}

#[test]
#[ignore = "needs root and ip (Debian: iproute2)"]
fn local_routes_are_kept_but_for_those_of_the_devices_addresses() {
    let netns = TestNetns::new("local");
    for change in [
        "link set lo up",
        "link add eth0 type bridge",
        "link set eth0 up",
        "addr add 192.0.2.9/24 dev eth0",
        "addr add 198.18.0.4/32 dev lo",
        "route add local 198.18.0.5 dev eth0 proto kernel scope host table local",
        "route add local 198.18.1.0/24 dev lo table 100",
        "-6 route add local 2001:db8::5 dev lo",
        // As a program joins one, and as a router has one of each network.
        "-6 route add anycast 2001:db8::6 dev lo table local",
        "-6 route add anycast 2001:db8:: dev lo table local",
    ] {
        netns.ip(change);
    }
    let inode = fs::metadata(netns.path()).unwrap().ino() as u32;
    let visit = || {
        let target = Target {
            inode,
            ways: vec![Way::File(netns.path())],
            is_hosts: false,
        };
        let mut outcomes = visit_all(vec![target], &Bounded::default(), LONG, LONG);
        outcomes.remove(0).unwrap().unwrap()
    };
    let found = visit().forwarding;
    let any_ip = found.routes.iter().filter(|route| route.is_any_ip());
    let mut local: Vec<_> = any_ip.map(|route| route.to).collect();
    local.sort_unstable();
    let expected = [
        ("198.18.0.4", 32),
        ("198.18.0.5", 32),
        ("198.18.1.0", 24),
        ("2001:db8::5", 128),
        ("2001:db8::6", 128),
    ];
    assert_eq!(
        local,
        expected.map(|(to, length)| (to.parse().unwrap(), length))
    );
    assert!(!found.rules.is_empty() && !found.local_cut);

    // Other routes, and addresses, take the place of none.
    let batch = |lines: String| {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), lines).unwrap();
        ip(&["-n", &netns.name, "-batch", file.path().to_str().unwrap()]);
    };
    let many = |what: &str, net: u8, count: u32| -> String {
        let line = |n: u32| format!("{what} {net}.{}.{}.1 dev eth0\n", n / 250, n % 250);
        (1..=count).map(line).collect()
    };
    batch(many("addr add", 10, 500) + &many("route add", 11, 20_000));
    let found = visit().forwarding;
    assert!(
        expected
            .iter()
            .all(|(to, _)| found.takes(to.parse().unwrap()) || *to == "198.18.1.0")
    );
    assert!(found.cut && !found.local_cut);
    batch(many("route add local", 12, 20_000));
    assert!(visit().forwarding.local_cut);
}

#[test]
#[ignore = "needs root and ip (Debian: iproute2)"]
fn a_change_is_news_and_so_is_that_news_were_lost() {
    let netns = TestNetns::new("news");
    netns.ip("link add d0 type bridge");
    let inode = u32::try_from(fs::metadata(netns.path()).unwrap().ino()).unwrap();
    let way = Way::File(netns.path());
    let mut changes = Changes::there(&way, inode, &Bounded::default(), LONG).unwrap();
    assert_eq!(changes.news().unwrap(), None);
    for change in [
        "rule add from 10.0.0.5 lookup 100",
        "-6 rule add from fd00::5 lookup 100",
        "link set d0 up",
        "route add 10.0.0.5 dev d0",
        "neigh add 10.0.0.5 lladdr 02:00:00:00:00:01 dev d0",
        "neigh del 10.0.0.5 dev d0",
        "rule del from 10.0.0.5 lookup 100",
    ] {
        netns.ip(change);
        assert_eq!(changes.news().unwrap(), Some(News::Much), "{change}");
        changes.pass_over().unwrap();
    }
    netns.ip("neigh add 10.0.0.5 lladdr 02:00:00:00:00:01 dev d0 nud stale");
    assert_eq!(changes.news().unwrap(), Some(News::Little));

    let lines: String = (0..5_000)
        .map(|n| format!("rule add from 10.1.{}.{} lookup 100\n", n / 250, n % 250))
        .collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), lines).unwrap();
    ip(&["-n", &netns.name, "-batch", file.path().to_str().unwrap()]);
    let mut kept = 0;
    while changes.news().unwrap().is_some() {
        kept += 1;
    }
    assert!((1..4_000).contains(&kept), "{kept} of 5000");
    let elsewhere = Changes::there(&way, inode + 1, &Bounded::default(), LONG);
    assert!(elsewhere.is_err());
}
