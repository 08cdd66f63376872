use serde_json::{Value, json};

use super::*;

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
    let mut taken = Blocks::new(nodes, Timestamp::now());
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
        let mut blocks = Blocks::new(BTreeSet::new(), Timestamp::now());
        assert_eq!(blocks.take(body.as_bytes()), None, "{body}");
    }
}

#[test]
fn an_allocation_without_a_time_may_be_of_just_now() {
    let mut young = attribute("k8s-pod-network.aaa", "node-1", Some("web-1"));
    young["secondary"]["timestamp"] = json!("yesterday");
    let store = taken(vec![block("10.0.0.0/26", None, json!([0]), json!([young]))]);
    let age = Timestamp::now().since(store.reservations[0].modified);
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
