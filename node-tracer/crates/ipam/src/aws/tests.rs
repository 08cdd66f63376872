use super::{super::tests::host, *};

const ONE: &str = r#"{"version":"vpc-cni-ipam/1","allocations":[
    {"networkName":"aws-cni","containerID":"aaa","ifName":"eth0","ipv4":"192.168.5.7",
     "allocationTimestamp":1700000000500000000,
     "metadata":{"k8sPodNamespace":"shop","k8sPodName":"web-1","interfacesCount":1}},
    {"networkName":"_migrated-from-cri","containerID":"bbb","ifName":"unknown","ipv4":"192.168.5.6",
     "allocationTimestamp":0},
    {"networkName":"aws-cni","containerID":"ccc","ifName":"eth0","ipv6":"fd00::7","ipv4":""}]}"#;

fn of(files: &[(&str, &str)]) -> Vec<StoreReading> {
    let files: Vec<_> = files
        .iter()
        .map(|(name, content)| (format!("{FOLDER}/{name}"), *content))
        .collect();
    let files: Vec<_> = files
        .iter()
        .map(|(name, content)| (name.as_str(), *content))
        .collect();
    let host = host(&files);
    read(&Root::open(host.path()).unwrap())
}

fn only(content: &str) -> Result<Store, String> {
    let [answer] = <[StoreReading; 1]>::try_from(of(&[("ipam.json", content)])).unwrap();
    answer.store
}

#[test]
fn what_ipamd_has_given_out_is_read_out_of_its_checkpoint() {
    let store = only(ONE).unwrap();
    assert_eq!(
        (store.kind, store.path.to_str()),
        (StoreKind::Aws, Some(FILE))
    );
    assert!(store.unread.is_empty(), "{:?}", store.unread);
    let told = store.reservations.iter().map(|each| {
        let ifname = each.holder.ifname.as_deref().unwrap_or_default();
        format!("{} {} {ifname}", each.address, each.holder.container_id)
    });
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            "192.168.5.6 bbb unknown",
            "192.168.5.7 aaa eth0",
            "fd00::7 ccc eth0"
        ]
    );
    let first = &store.reservations[1];
    assert_eq!(first.modified.to_string(), "2023-11-14T22:13:20.500000Z");
    assert_eq!(first.holder.pod.as_ref().unwrap().label(), "shop/web-1");
    let recent = sys::clock::now().since(store.reservations[0].modified);
    assert!(
        recent.as_secs() < 60,
        "without a time of its own it has the file's"
    );
}

#[test]
fn every_card_has_a_store() {
    let answers = of(&[
        ("ipam.json", ONE),
        (
            "ipam-nic-1.json",
            r#"{"version":"vpc-cni-ipam/1","allocations":null}"#,
        ),
        ("ipam-nic-12.json", ""),
        ("ipam-nic-x.json", ""),
        ("ipam.json.tmp1", ""),
    ]);
    let told: Vec<_> = answers
        .iter()
        .map(|answer| {
            let name = answer.path.file_name().unwrap().to_str().unwrap();
            let store = answer.store.as_ref();
            (name, store.ok().map(|store| store.reservations.len()))
        })
        .collect();
    assert_eq!(
        told,
        [
            ("ipam-nic-1.json", Some(0)),
            ("ipam-nic-12.json", None),
            ("ipam.json", Some(3))
        ]
    );
    assert_eq!(of(&[]), []);
}

#[test]
fn an_unknown_version_is_not_read() {
    for (content, why) in [
        (
            r#"{"version":"vpc-cni-ipam/2","allocations":[]}"#,
            "is of an unknown version vpc-cni-ipam/2; vpc-cni-ipam/1 is understood",
        ),
        (r#"{"allocations":[]}"#, "is no checkpoint of ipamd"),
        (
            "{\"version\":\"vpc-cni-ipam/1\",",
            "is no checkpoint of ipamd",
        ),
        ("\u{fffd}", "is no checkpoint of ipamd"),
        ("", "is no checkpoint of ipamd"),
    ] {
        assert_eq!(only(content), Err(format!("{FILE} {why}")));
    }
}

#[test]
fn an_allocation_that_is_none_is_told_and_the_others_are_read() {
    let content = r#"{"version":"vpc-cni-ipam/1","allocations":[
        {"containerID":"aaa","ipv4":"10.0.0"}, {"containerID":"../x","ipv4":"10.0.0.1"},
        {"containerID":"","ipv4":"10.0.0.2"}, {"containerID":"aaa"}, 7,
        {"containerID":"aaa","ifName":"a b","ipv4":"10.0.0.3"}]}"#;
    let store = only(content).unwrap();
    assert_eq!(store.reservations.len(), 1);
    assert_eq!(store.reservations[0].holder.ifname, None);
    assert_eq!(store.unread.len(), 5, "{:?}", store.unread);
    assert_eq!(
        store.unread[4],
        format!("{FILE} has an allocation (number 4) that is none")
    );
}

#[test]
fn a_file_of_many_elements_that_are_none_takes_no_more_room_than_what_is_read() {
    let elements = "0,".repeat(MAX_RESERVATIONS + 9);
    let text = format!(r#"{{"version":"vpc-cni-ipam/1","allocations":[{elements}0]}}"#);
    let read: Checkpoint = serde_json::from_str(&text).unwrap();
    let allocations = read.allocations.unwrap();
    assert_eq!(allocations.read.len(), MAX_RESERVATIONS);
    assert!(allocations.has_more && allocations.read.iter().all(Option::is_none));
}
