//! Decoding is tested on made messages; reading on real namespaces, which
//! needs root.

use std::{
    net::IpAddr,
    process::{Command, Stdio},
    thread,
    time::Instant,
};

use super::{
    decode::{Answer, Link, address, link},
    *,
};

const LONG: Duration = Duration::from_secs(20);

/// One attribute, padded.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = (value.len() as u16 + 4).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn link_message(index: u32, flags: u32, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.extend(index.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(attributes.concat());
    bytes
}

fn address_message(prefix: u8, index: u32, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![0, prefix, 0, 0];
    bytes.extend(index.to_ne_bytes());
    bytes.extend(attributes.concat());
    bytes
}

#[test]
fn attributes_that_are_not_known_do_not_hide_those_that_are() {
    let info = attribute(libc::IFLA_INFO_KIND, b"veth\0");
    let message = link_message(
        7,
        0,
        &[
            attribute(4095, &[1, 2, 3]),
            attribute(libc::IFLA_STATS64, &[0; 3]),
            attribute(libc::IFLA_IFNAME, b"eth0\0"),
            attribute(libc::IFLA_LINKINFO | 0x8000, &info),
        ],
    );
    let expected = Link {
        name: String::from("eth0"),
        kind: Some(String::from("veth")),
        loopback: false,
    };
    assert_eq!(
        link(&message),
        Some(Answer::Link {
            index: 7,
            link: expected
        })
    );
}

#[test]
fn on_a_point_to_point_link_the_own_address_counts() {
    let message = address_message(
        32,
        7,
        &[
            attribute(libc::IFA_ADDRESS, &[198, 18, 0, 1]),
            attribute(libc::IFA_LOCAL, &[198, 18, 0, 2]),
        ],
    );
    let expected = Answer::Address {
        index: 7,
        address: IpAddr::from([198, 18, 0, 2]),
        prefix: 32,
    };
    assert_eq!(address(&message), Some(expected));
}

#[test]
fn messages_that_end_early_are_passed_over() {
    let message = address_message(24, 7, &[attribute(libc::IFA_LOCAL, &[198, 18, 0, 2])]);
    for length in 0..message.len() {
        assert_eq!(address(&message[..length]), None, "{length} bytes");
    }
    assert_eq!(link(&[0; 15]), None);
}

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
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = addresses(&file, &bounded, LONG).unwrap_err();
    assert!(
        matches!(&error, NetlinkError::Enter { path, .. } if *path == file),
        "{error}"
    );
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

/// Whether this test can run; if not, says so in one line.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn can_make_namespaces() -> bool {
    let root = rustix::process::geteuid().is_root();
    let tool = Command::new("ip").arg("-V").stdout(Stdio::null()).status();
    let able = root && tool.is_ok_and(|status| status.success());
    if !able {
        eprintln!("skipped: needs root and ip (Debian: iproute2)");
    }
    able
}

#[test]
fn addresses_are_read_and_the_namespace_ends_as_soon_as_its_name_does() {
    if !can_make_namespaces() {
        return;
    }
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

    // With the namespace its end of the cable goes, and so the other end: the
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
fn a_namespace_with_many_addresses_is_read_as_a_whole() {
    if !can_make_namespaces() {
        return;
    }
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
