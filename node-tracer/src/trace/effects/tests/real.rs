//! Real namespaces, veth pairs, routes and files.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    process::{Command, Stdio},
};

use super::*;
use event::TraceKind;

/// A network namespace below /run/netns, removed in the end.
struct Sandbox {
    name: String,
}

impl Sandbox {
    /// With a veth pair to the host, an address, and a route to it there.
    fn new(suffix: &str, address: &str) -> Self {
        let name = format!("nt-eff-{}-{suffix}", std::process::id());
        ip(&format!("netns add {name}"));
        let this = Self { name };
        let (name, end) = (&this.name, this.end());
        ip(&format!(
            "-n {name} link add eth0 type veth peer name {end} netns {}",
            std::process::id()
        ));
        ip(&format!("-n {name} addr add {address}/32 dev eth0"));
        ip(&format!("-n {name} link set eth0 up"));
        ip(&format!("link set {end} up"));
        ip(&format!("route add {address}/32 dev {end}"));
        this
    }

    fn end(&self) -> String {
        format!("nt{}", self.name.replace(['-', 'n', 't', 'e', 'f'], ""))
    }

    fn path(&self) -> String {
        format!("/run/netns/{}", self.name)
    }

    fn netns(&self) -> Netns {
        let inode = fs::metadata(self.path()).unwrap().ino() as u32;
        let cookie = None;
        Netns { inode, cookie }
    }

    fn call(&self, command: &str, id: &str) -> CniCall {
        CniCall {
            netns: Some(self.netns()),
            netns_path: self.path(),
            parent_pid: std::process::id(),
            ipam: Some(String::from("host-local")),
            ..call(command, id, 0, NEW, "db-0")
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = Command::new("ip")
            .args(["netns", "del", &self.name])
            .stderr(Stdio::null())
            .status();
    }
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.unwrap().success(), "ip {arguments}");
}

/// Effects on this machine; stores and names are below a folder.
fn effects(root: &Path) -> Effects {
    let mut effects = Effects::new(&procfs(), root, true);
    let own = fs::metadata("/proc/self/ns/net").unwrap().ino() as u32;
    let netns = Netns {
        inode: own,
        cookie: None,
    };
    let host = What::NetnsFound {
        netns,
        host: true,
        node: false,
        user_ns: None,
    };
    effects.step(&BTreeSet::new(), &mut vec![at(0, host)]);
    effects
}

/// What is told in some time after these.
fn after(effects: &mut Effects, events: &[Event], time: Duration) -> Vec<CniEffect> {
    let mut events = events.to_vec();
    let (mut told, end) = (Vec::new(), Instant::now() + time);
    while Instant::now() < end {
        effects.step(&BTreeSet::new(), &mut events);
        for event in events.drain(..) {
            if let What::CniEffect { effect } = event.what {
                told.push(effect);
            }
        }
        thread::sleep(effects.pause().min(10 * MS));
    }
    told
}

fn answered(call: CniCall, address: &str) -> Event {
    let mut event = ended(1, call);
    if let What::CniCall { result, .. } = &mut event.what {
        *result = Some(CniResult {
            ips: vec![address.parse().unwrap()],
            ..CniResult::default()
        });
    }
    event
}

fn there(effect: &CniEffect) -> Vec<(TraceKind, Option<bool>)> {
    let traces = effect.traces.iter();
    traces.map(|trace| (trace.kind, trace.there)).collect()
}

fn four(there: bool) -> [(TraceKind, Option<bool>); 4] {
    [
        TraceKind::Address,
        TraceKind::Veth,
        TraceKind::Route,
        TraceKind::Reservation,
    ]
    .map(|kind| (kind, Some(there)))
}

#[test]
#[ignore = "needs root and ip (Debian: iproute2)"]
fn add_and_del_are_looked_at_where_they_take_effect() {
    const ADDRESS: &str = "198.18.77.5";
    let root = tempfile::tempdir().unwrap();
    let store = root.path().join("var/lib/cni/networks/pods");
    fs::create_dir_all(&store).unwrap();
    let file = store.join(ADDRESS);
    fs::write(&file, "new\r\neth0").unwrap();
    let mut effects = effects(root.path());
    let sandbox = Sandbox::new("one", ADDRESS);
    let add = sandbox.call("ADD", "new");
    let told = after(
        &mut effects,
        &[calls(1, add.clone()), answered(add, ADDRESS)],
        400 * MS,
    );
    let [effect] = told.as_slice() else {
        panic!("{told:#?}")
    };
    assert_eq!(there(effect), four(true));
    assert_eq!(effect.traces[1].name, sandbox.end());
    assert!(effect.netns.unwrap().cookie.is_some());
    assert_eq!(
        effect.traces[3].name,
        format!("/var/lib/cni/networks/pods/{ADDRESS}"),
        "as the host has it"
    );

    // A DEL that says it succeeded and has done nothing.
    let del = sandbox.call("DEL", "new");
    let ends = [calls(2, del.clone()), ended(2, del)];
    let told = after(&mut effects, &ends, 400 * MS);
    assert_eq!(there(&told[0]), four(true));
    assert_eq!(told[0].failures().count(), 4);

    // One that has.
    let netns = sandbox.netns();
    drop(sandbox);
    fs::remove_file(file).unwrap();
    let gone = at(3, What::NetnsDestroyed { netns });
    let told = after(&mut effects, &[gone, ends[1].clone()], 400 * MS);
    assert_eq!(there(&told[0]), four(false));
}

#[test]
#[ignore = "needs root and ip (Debian: iproute2)"]
fn a_del_of_an_old_sandbox_has_the_new_one_looked_at() {
    const ADDRESS: &str = "198.18.77.6";
    let root = tempfile::tempdir().unwrap();
    let mut effects = effects(root.path());
    let sandbox = Sandbox::new("two", ADDRESS);
    let add = sandbox.call("ADD", "new");
    after(&mut effects, &[answered(add, ADDRESS)], 300 * MS);
    let del = CniCall {
        netns: None,
        netns_path: String::new(),
        ..sandbox.call("DEL", "old")
    };
    let told = after(&mut effects, &[calls(2, del.clone())], 300 * MS);
    assert_eq!(told.len(), 1, "what it has as the DEL starts: {told:#?}");
    let there = |effect: &CniEffect, kind: TraceKind| {
        let mut traces = effect.traces.iter();
        traces.find(|it| it.kind == kind).unwrap().there
    };
    assert_eq!(there(&told[0], TraceKind::Route), Some(true));
    ip(&format!("route del {ADDRESS}/32 dev {}", sandbox.end()));
    let told = after(&mut effects, &[ended(2, del)], 1_500 * MS);
    assert!(told.len() >= 2, "at once and a second later: {told:#?}");
    for effect in told {
        assert_eq!(
            (effect.command.as_str(), effect.container_id.as_str()),
            ("ADD", "new")
        );
        assert_eq!(there(&effect, TraceKind::Route), Some(false));
        assert_eq!(there(&effect, TraceKind::Address), Some(true));
    }
}

#[test]
#[ignore = "needs root and ip (Debian: iproute2)"]
fn a_sandbox_of_libcnis_cache_is_looked_at_once() {
    const ADDRESS: &str = "198.18.77.7";
    let mut effects = effects(Path::new("/"));
    let sandbox = Sandbox::new("three", ADDRESS);
    let mut cached = attachment("new", None, 5, 0);
    cached.netns = Some(sandbox.netns());
    cached.netns_path = sandbox.path();
    cached.ips = vec![ADDRESS.parse().unwrap()];
    let told = after(&mut effects, &[attached(1, &[cached.clone()])], 300 * MS);
    assert_eq!(there(&told[0]), four(true)[..3], "nothing is reserved");
    assert_eq!(told.len(), 1);
    let told = after(&mut effects, &[attached(2, &[cached])], 300 * MS);
    assert_eq!(told, []);
}
