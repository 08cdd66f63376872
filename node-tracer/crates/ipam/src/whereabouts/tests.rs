use serde_json::{Value, json};

use super::*;

fn pool(range: &str, allocations: Value, changed: &str) -> Value {
    json!({
        "metadata": {
            "name": range.replace('/', "-"),
            "managedFields": [{ "time": "2026-01-01T00:00:00Z" }, { "time": changed }, {}],
        },
        "spec": { "range": range, "allocations": allocations },
    })
}

fn taken(pools: Vec<Value>, before: Option<&Store>) -> Store {
    let mut taken = Pools::new(sys::clock::now());
    let list = json!({ "kind": "IPPoolList", "metadata": { "continue": "x" }, "items": pools });
    let page = taken.take(list.to_string().as_bytes()).unwrap();
    assert_eq!(page.next.as_deref(), Some("x"));
    taken.store(before)
}

#[test]
fn allocations_are_counted_from_the_ranges_address() {
    let allocations = json!({
        "5": { "id": "aaa", "podref": "shop/web-1", "ifname": "net1" },
        "256": { "id": "bbb", "podref": "shop/web-2" },
        "x": { "id": "ccc" }, "7": {}, "8": 5, "70000": { "id": "ddd" },
    });
    let store = taken(
        vec![
            pool("10.0.0.0/16", allocations, "2026-07-01T12:00:00Z"),
            pool(
                "fd00::/64",
                json!({ "1": { "id": "eee", "podref": "nowhere" } }),
                "",
            ),
            pool("nothing", json!({}), ""),
            json!(null),
        ],
        None,
    );
    let told = store.reservations.iter().map(|each| {
        let holder = &each.holder;
        let pod = holder.pod.as_ref().map(PodRef::label).unwrap_or_default();
        format!(
            "{} {} {pod} {}",
            each.address,
            holder.container_id,
            holder.ifname.is_some()
        )
    });
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            "10.0.0.5 aaa shop/web-1 true",
            "10.0.1.0 bbb shop/web-2 false",
            "fd00::1 eee  false"
        ]
    );
    let first = &store.reservations[0];
    assert_eq!(first.modified.to_string(), "2026-07-01T12:00:00.000000Z");
    assert_eq!(store.unread.len(), 3, "{:?}", store.unread);
    assert!(store.unread[0].ends_with("4 allocations of pool 10.0.0.0-16"));
}

#[test]
fn a_change_of_the_pool_does_not_make_an_allocation_younger() {
    let one = |id: &str, changed: &str, before: Option<&Store>| {
        let allocations = json!({ "5": { "id": id }, "6": { "id": "other" } });
        taken(vec![pool("10.0.0.0/24", allocations, changed)], before)
    };
    let first = one("aaa", "2026-07-01T12:00:00Z", None);
    let times = |store: &Store| -> Vec<String> {
        let times = store
            .reservations
            .iter()
            .map(|each| each.modified.time_of_day());
        times.collect()
    };
    let same = one("aaa", "2026-07-01T12:30:00Z", Some(&first));
    assert_eq!(times(&same), ["12:00:00.000", "12:00:00.000"]);
    assert_eq!(same, first, "nothing has changed");
    let other = one("bbb", "2026-07-01T12:30:00Z", Some(&first));
    assert_eq!(times(&other), ["12:30:00.000", "12:00:00.000"]);
}

#[test]
fn what_is_no_list_of_pools_is_none() {
    for body in [
        "",
        "{}",
        r#"{"kind":"IPPoolList"}"#,
        r#"{"kind":"IPPool","items":[]}"#,
    ] {
        assert!(
            Pools::new(sys::clock::now())
                .take(body.as_bytes())
                .is_none(),
            "{body}"
        );
    }
}
