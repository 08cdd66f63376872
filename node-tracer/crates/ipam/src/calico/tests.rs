use serde_json::{Value, json};

use super::*;
use kube::server::{Reply, Server, status};

fn block(cidr: &str, affinity: Option<&str>, allocations: Value, attributes: Value) -> Value {
    json!({
        "metadata": { "name": cidr.replace(['.', '/', ':'], "-") },
        "spec": {
            "cidr": cidr, "affinity": affinity, "allocations": allocations,
            "attributes": attributes, "unallocated": [3], "deleted": false,
        },
    })
}

fn attribute(handle: &str, node: &str, pod: Option<&str>) -> Value {
    json!({
        "handle_id": handle,
        "secondary": {
            "node": node, "pod": pod.unwrap_or_default(), "namespace": "shop",
            "timestamp": "2026-07-01 12:00:00.5 +0000 UTC",
        },
    })
}

fn taken(blocks: Vec<Value>) -> Store {
    let nodes = BTreeSet::from([String::from("node-1")]);
    let mut taken = Blocks::new(nodes, sys::clock::now());
    let list = json!({ "kind": "IPAMBlockList", "metadata": {}, "items": blocks });
    let page = taken.take(list.to_string().as_bytes());
    assert_eq!(page, Some(ListedPage::default()));
    taken.store(None)
}

fn lines(store: &Store) -> Vec<String> {
    let line = |each: &Reservation| {
        let pod = each
            .holder
            .pod
            .as_ref()
            .map(PodRef::label)
            .unwrap_or_default();
        format!("{} {} {pod}", each.address, each.holder.container_id)
    };
    store.reservations.iter().map(line).collect()
}

#[test]
fn this_nodes_allocations_are_taken_out_of_all_blocks() {
    let mut tunnel = attribute("ipip-tunnel-addr-node-1", "node-1", None);
    tunnel["secondary"] = json!({ "node": "node-1", "type": "ipipTunnelAddress" });
    let mut released = attribute("k8s-pod-network.ddd", "node-1", Some("web-4"));
    released["releasedAt"] = json!("2026-07-01T12:00:00Z");
    let store = taken(vec![
        block(
            "10.244.1.0/26",
            Some("host:node-1"),
            json!([0, null, 1, 2, 3, 4]),
            json!([
                tunnel,
                attribute("k8s-pod-network.aaa", "node-1", Some("web-1")),
                attribute("k8s-pod-network.bbb", "node-2", Some("web-2")),
                attribute("strange", "node-1", Some("web-3")),
                released,
            ]),
        ),
        block(
            "10.244.2.0/26",
            Some("host:node-2"),
            json!([0, 1]),
            json!([
                attribute("net.with.dots.ccc", "node-1", Some("web-5")),
                attribute("k8s-pod-network.eee", "node-2", Some("web-6")),
            ]),
        ),
        block(
            "fd00::/122",
            Some("host:node-1"),
            json!([null, 0]),
            json!([{ "handle_id": null }]),
        ),
    ]);
    assert_eq!(
        lines(&store),
        ["10.244.1.2 aaa shop/web-1", "10.244.2.0 ccc shop/web-5"]
    );
    let blocked: Vec<String> = store.blocked.iter().map(ToString::to_string).collect();
    assert_eq!(blocked, ["10.244.1.0", "10.244.1.4", "fd00::1"]);
    assert!(store.unread.is_empty(), "{:?}", store.unread);
    let first = &store.reservations[0];
    assert_eq!(first.modified.to_string(), "2026-07-01T12:00:00.500000Z");
    let path = format!("{STORE}/10-244-1-0-26");
    assert_eq!(first.holder.path, PathBuf::from(path));
}

#[test]
fn what_is_no_block_is_told() {
    let mut deleted = block("10.0.0.0/26", Some("host:node-1"), json!([0]), json!([]));
    deleted["spec"]["deleted"] = json!(true);
    let store = taken(vec![
        deleted,
        json!(5),
        block("10.0.0.0", Some("host:node-1"), json!([0]), json!([])),
        block(
            "10.0.0.0/31",
            Some("host:node-1"),
            json!([null, null, 0]),
            json!([]),
        ),
        block("10.0.1.0/26", Some("host:node-1"), json!([7]), json!([])),
    ]);
    assert_eq!(store.reservations, []);
    assert_eq!(
        store.blocked.len(),
        1,
        "an allocation without attributes is one"
    );
    assert_eq!(store.unread.len(), 3, "{:?}", store.unread);
    assert!(store.unread[1].ends_with("block 10-0-0-0, whose network is none"));
}

#[test]
fn what_is_no_list_of_blocks_is_none() {
    for body in [
        "",
        "{}",
        "[]",
        r#"{"kind":"IPAMBlockList"}"#,
        r#"{"kind":"PodList","items":[]}"#,
    ] {
        let mut blocks = Blocks::new(BTreeSet::new(), sys::clock::now());
        assert_eq!(blocks.take(body.as_bytes()), None, "{body}");
    }
}

#[test]
fn an_allocation_without_a_time_may_be_of_just_now() {
    let mut young = attribute("k8s-pod-network.aaa", "node-1", Some("web-1"));
    young["secondary"]["timestamp"] = json!("yesterday");
    let store = taken(vec![block("10.0.0.0/26", None, json!([0]), json!([young]))]);
    let age = sys::clock::now().since(store.reservations[0].modified);
    assert!(age.as_secs() < 60);
}

#[test]
fn calico_may_have_another_name_for_the_node() {
    let host = super::super::tests::host(&[(NODENAME, "node-1.internal\n")]);
    let root = Root::open(host.path()).unwrap();
    let nodes = nodes(&root, "Node-1");
    assert_eq!(
        nodes.iter().map(String::as_str).collect::<Vec<_>>(),
        ["Node-1", "node-1", "node-1.internal"]
    );
}

/// A machine's allocation: the pod that runs it, and the one it migrates to.
fn machine(active: Option<(&str, &str)>, alternate: Option<(&str, &str)>) -> Value {
    let owner = |of: Option<(&str, &str)>| {
        of.map(|(node, pod)| json!({ "node": node, "pod": pod, "namespace": "vms" }))
    };
    json!({
        "handle_id": "k8s-pod-network.vmi.vms.vm1",
        "secondary": owner(active), "alternate": owner(alternate),
    })
}

#[test]
fn a_machines_allocation_names_no_container() {
    let of = |affinity: &str, attribute: Value| {
        lines(&taken(vec![block(
            "10.0.0.0/26",
            Some(affinity),
            json!([0]),
            json!([attribute]),
        )]))
    };
    let here = Some(("node-1", "virt-launcher-vm1-a"));
    let there = Some(("node-2", "virt-launcher-vm1-b"));
    let (ours, other) = ("host:node-1", "host:node-2");
    assert_eq!(
        of(other, machine(here, None)),
        ["10.0.0.0  vms/virt-launcher-vm1-a"]
    );
    assert_eq!(of(ours, machine(there, None)), [""; 0]);
    // It is stopped.
    assert_eq!(of(ours, machine(None, None)), ["10.0.0.0  "]);
    // It migrates, from here or to here.
    assert_eq!(of(other, machine(here, there)).len(), 1);
    assert_eq!(of(other, machine(there, here)).len(), 1);
    // A network can be named so, and a handle be shortened.
    let id = "291716a39be97105e9169863bf847e714b3e7aed9a9add7a330e79f8a089b97b";
    let handle = format!("net.vmi.x.{id}");
    let plain = attribute(&handle, "node-1", Some("web-1"));
    assert_eq!(of(ours, plain), [format!("10.0.0.0 {id} shop/web-1")]);
    assert!(is_machines("net.vmi._6QKgJ"));
}

#[test]
fn an_allocation_is_no_younger_than_its_blocks_last_change() {
    let mut silent = block(
        "10.0.0.0/26",
        Some("host:node-1"),
        json!([0]),
        json!([machine(None, None)]),
    );
    silent["metadata"]["managedFields"] = json!([{ "time": "2026-07-01T12:00:00Z" }]);
    let store = taken(vec![silent]);
    assert_eq!(
        store.reservations[0].modified.to_string(),
        "2026-07-01T12:00:00.000000Z"
    );
}

/// A server with these blocks, by the group that has them.
fn server(old: Vec<Value>, native: Option<Vec<Value>>) -> Server {
    let list = |blocks: Vec<Value>| json!({ "kind": "IPAMBlockList", "items": blocks });
    let old = list(old);
    Server::new(move |path, _| {
        let group = json!({
            "kind": "APIResourceList",
            "resources": [{ "name": "ippools" }, { "name": "ipamblocks" }],
        });
        match (path.split('?').next().unwrap_or_default(), &native) {
            ("/apis/projectcalico.org/v3", Some(_)) => Reply::Json(200, group),
            ("/apis/projectcalico.org/v3/ipamblocks", Some(blocks)) => {
                Reply::Json(200, list(blocks.clone()))
            }
            ("/apis/crd.projectcalico.org/v1/ipamblocks", _) => Reply::Json(200, old.clone()),
            _ => Reply::Json(404, status(404, "no such resource")),
        }
    })
}

fn asked(server: &Server) -> Store {
    asked_about(server, None)
}

fn asked_about(server: &Server, own: Option<&Own>) -> Store {
    let host = super::super::tests::host::<&str>(&[]);
    let given = server.kubeconfig();
    let credentials = Credentials::find(host.path(), Some(&given)).unwrap();
    let nodes = BTreeSet::from([String::from("node-1")]);
    let patience = Duration::from_secs(10);
    let known = PriorKnowledge {
        own,
        ..PriorKnowledge::default()
    };
    ask(&credentials, &nodes, patience, known).unwrap().0
}

#[test]
fn after_a_migration_only_the_newer_resource_is_believed() {
    let of = |pod: &str| {
        let attribute = attribute(&format!("k8s-pod-network.{pod}"), "node-1", Some(pod));
        vec![block("10.0.0.0/26", None, json!([0]), json!([attribute]))]
    };
    let old = asked(&server(of("old"), None));
    assert_eq!(
        (old.path.to_str(), lines(&old)),
        (Some(STORE), vec!["10.0.0.0 old shop/old".into()])
    );
    let migrated = asked(&server(of("old"), Some(of("new"))));
    assert_eq!(migrated.path, Path::new(NATIVE_STORE));
    assert_eq!(lines(&migrated), ["10.0.0.0 new shop/new"]);
    assert!(
        migrated.reservations[0]
            .holder
            .path
            .starts_with(NATIVE_STORE)
    );
    // The resource is there, and nothing was migrated to it yet.
    let before = asked(&server(of("old"), Some(Vec::new())));
    assert_eq!(
        (before.path.to_str(), before.reservations.len()),
        (Some(STORE), 1)
    );
}

/// Has one block that can be got by its name, and lists another one.
fn named(get: u16) -> Server {
    let of = |cidr: &str, pod: &str| {
        let attribute = attribute(&format!("k8s-pod-network.{pod}"), "node-1", Some(pod));
        block(cidr, None, json!([0]), json!([attribute]))
    };
    let mut one = of("10.0.0.0/26", "named");
    one["kind"] = json!("IPAMBlock");
    let listed = vec![of("10.0.9.0/26", "listed")];
    let list = json!({ "kind": "IPAMBlockList", "items": listed });
    let blocks = "/apis/crd.projectcalico.org/v1/ipamblocks";
    Server::new(
        move |path, _| match path.split('?').next().unwrap_or_default() {
            path if path == blocks => Reply::Json(200, list.clone()),
            path if path == format!("{blocks}/10-0-0-0-26") && get == 200 => {
                Reply::Json(200, one.clone())
            }
            path if path.starts_with(blocks) && get == 403 => Reply::Json(403, status(403, "no")),
            _ => Reply::Json(404, status(404, "no such")),
        },
    )
}

#[test]
fn of_thousands_of_nodes_each_asks_for_its_own_blocks_alone() {
    let own = |urgent: &[&str], living: &[&str]| {
        let set = |all: &[&str]| all.iter().map(|it| it.parse().unwrap()).collect();
        Own {
            urgent: set(urgent),
            living: set(living),
        }
    };
    let of = |server: &Server, own: &Own| {
        let store = asked_about(server, Some(own));
        (lines(&store), store.unread.len())
    };
    let by_name = (vec![String::from("10.0.0.0 named shop/named")], 0);
    let by_list = (vec![String::from("10.0.9.0 listed shop/listed")], 0);
    let server = named(200);
    assert_eq!(of(&server, &own(&[], &["10.0.0.5"])), by_name);
    let lists = |server: &Server| {
        let asked = server.requests().into_iter();
        asked.filter(|it| it.contains("ipamblocks?")).count()
    };
    let nothing_known = (Vec::new(), 1);
    assert_eq!(of(&server, &own(&[], &[])), nothing_known, "no pod yet");
    assert_eq!(lists(&server), 0);
    let (_, unread) = of(&server, &own(&[], &["10.0.0.5", "10.0.9.5"]));
    assert_eq!(unread, 1, "whether 10.0.9.5 is given out is not known");
    assert_eq!(lists(&server), 0);
    assert_eq!(of(&server, &own(&["10.0.9.5"], &["10.0.0.5"])), by_list);
    assert_eq!(of(&named(404), &own(&[], &["10.0.0.5"])), by_list);
    assert_eq!(
        of(&named(403), &own(&[], &["10.0.0.5"])),
        by_list,
        "an older role"
    );
}

#[test]
fn where_the_group_may_not_be_asked_for_free_is_unknown() {
    let server = Server::new(move |path, _| match path.starts_with("/apis/crd.") {
        true => Reply::Json(200, json!({ "kind": "IPAMBlockList", "items": [] })),
        false => Reply::Json(403, status(403, "no discovery")),
    });
    let store = asked(&server);
    assert_eq!(store.unread.len(), 1, "{:?}", store.unread);
    assert!(store.unread[0].starts_with("whether ipamblocks.projectcalico.org has the blocks"));
}

#[test]
fn blocks_without_end_take_no_more_room_than_what_is_kept() {
    let all = vec![Some(0); 60_000];
    let text = json!({"kind": "IPAMBlockList", "metadata": {}, "items": [{
        "metadata": {"name": "b"},
        "spec": {"cidr": "10.0.0.0/8", "affinity": "host:n", "allocations": all,
            "attributes": [{"handle_id": format!("k8s-pod-network.{}", "a".repeat(64)),
                "secondary": {"pod": "p", "namespace": "s", "node": "n"}}]},
    }]});
    let body = text.to_string();
    let mut blocks = Blocks::new(BTreeSet::from(["n".to_owned()]), Timestamp::from_nanos(9));
    for _ in 0..4 {
        blocks.take(body.as_bytes()).unwrap();
    }
    assert_eq!(blocks.reservations.len(), MAX_RESERVATIONS);
    let unread = blocks.store(None).unread;
    assert!(
        unread.iter().any(|it| it.contains("more than")),
        "{unread:?}"
    );
}
