use std::fs;

use serde_json::json;

use super::{
    super::{
        bbolt::tests::{INLINE, PAGES},
        terway,
        tests::host,
    },
    *,
};
use kube::server::{Reply, Server, status};

const CALICO: &str = r#"{"name":"k8s-pod-network","plugins":[
    {"type":"calico","ipam":{"type":"calico-ipam"}}]}"#;

fn api(server: Option<&Server>) -> Api {
    Api {
        refused: server.is_none().then(|| String::from("not asked")),
        kubeconfig: server.map(Server::kubeconfig),
        node: String::from("node-1"),
    }
}

fn start(host: &tempfile::TempDir, api: Api) -> Watcher {
    Watcher::start(Root::open(host.path()).unwrap(), host.path(), api).unwrap()
}

fn word(event: &Event) -> String {
    match &event.what {
        What::StoreListed { store } => {
            let unread = store.unread.len();
            format!(
                "{} {} {unread}",
                store.kind.as_str(),
                store.reservations.len()
            )
        }
        What::SourceFailed { source, error } => format!("failed {source} {error}"),
        What::SourceRecovered { source } => format!("recovered {source}"),
        other => format!("{other:?}"),
    }
}

/// The next so many changes.
fn next(watcher: &mut Watcher, number: usize) -> Vec<String> {
    let started = Instant::now();
    let mut events = Vec::new();
    while events.len() < number && started.elapsed() < Duration::from_secs(20) {
        watcher.poll(&mut events);
        thread::sleep(Duration::from_millis(5));
    }
    events.iter().map(word).collect()
}

#[test]
fn a_file_is_read_when_it_changes_and_told_when_its_content_does() {
    let host = host(&[(terway::FILE, INLINE)]);
    let path = host.path().join(terway::FILE.trim_start_matches('/'));
    let mut watcher = start(&host, api(None));
    let items = watcher.coverage();
    assert_eq!(items.len(), 1, "{items:?}");
    let mechanism = format!("1 reservation in {}", terway::FILE);
    assert_eq!(items[0].mechanism.as_deref(), Some(mechanism.as_str()));
    assert_eq!(next(&mut watcher, 1), ["terway 1 0"]);
    fs::write(&path, PAGES).unwrap();
    // While it is written it may be seen as half of it.
    let mut told = next(&mut watcher, 1);
    while told.last().is_some_and(|last| last != "terway 21 0") {
        told = next(&mut watcher, 1);
    }
    assert_eq!(told, ["terway 21 0"]);
    fs::remove_file(&path).unwrap();
    let mut told = next(&mut watcher, 1);
    told.retain(|word| word != "recovered terway");
    assert!(told.is_empty() || told == ["terway 0 0"], "{told:?}");
}

#[test]
fn a_store_that_the_configuration_names_is_missed() {
    let host = host(&[(
        "/etc/cni/net.d/10-terway.conf",
        r#"{"name":"terway","type":"terway"}"#,
    )]);
    let mut watcher = start(&host, api(None));
    let items = watcher.coverage();
    assert_eq!(items[0].mechanism, None);
    assert_eq!(items[0].unknown, ["which addresses terway has given out"]);
    let told = next(&mut watcher, 2);
    assert_eq!(told[0], "terway 0 1");
    assert!(
        told[1].contains("although network terway needs it"),
        "{told:?}"
    );
    let path = host.path().join(terway::FILE.trim_start_matches('/'));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let new = path.with_extension("new");
    fs::write(&new, INLINE).unwrap();
    fs::rename(new, path).unwrap();
    assert_eq!(next(&mut watcher, 2), ["terway 1 0", "recovered terway"]);
}

#[test]
fn nothing_is_told_where_there_is_no_store() {
    let bare = host::<&str>(&[]);
    let mut watcher = start(&bare, api(None));
    assert_eq!(
        (watcher.coverage(), watcher.awaited().len()),
        (Vec::new(), 0)
    );
    thread::sleep(FILES_PAUSE * 2);
    let mut events = Vec::new();
    watcher.poll(&mut events);
    assert_eq!(events, []);
}

#[test]
fn the_api_server_is_asked_if_the_configuration_names_what_is_there() {
    let host = host(&[("/etc/cni/net.d/10-calico.conflist", CALICO)]);
    let block = json!({
        "kind": "IPAMBlock",
        "metadata": { "name": "10-0-0-0-26" },
        "spec": {
            "cidr": "10.0.0.0/26", "affinity": "host:node-1", "allocations": [0],
            "attributes": [{
                "handle_id": "k8s-pod-network.aaa",
                "secondary": { "node": "node-1", "namespace": "shop", "pod": "web" },
            }],
        },
    });
    let server = Server::new(move |path, count| match count {
        _ if path != "/apis/crd.projectcalico.org/v1/ipamblocks/10-0-0-0-26" => {
            Reply::Json(404, status(404, "another"))
        }
        1 => Reply::Json(503, status(503, "starting")),
        _ => Reply::Json(200, block.clone()),
    });
    let mut watcher = start(&host, api(Some(&server)));
    assert_eq!(watcher.awaited(), BTreeSet::from([StoreKind::Calico]));
    let items = watcher.coverage();
    assert!(
        items[0]
            .mechanism
            .as_deref()
            .unwrap()
            .ends_with("every 300 s"),
        "{items:?}"
    );
    watcher.want(&BTreeSet::new(), &["10.0.0.1".parse().unwrap()].into());
    let told = next(&mut watcher, 2);
    assert_eq!(told[0], "calico 0 1");
    assert!(
        told[1].ends_with("it answers with status 503; it says: starting"),
        "{told:?}"
    );
    watcher.soon();
    assert_eq!(next(&mut watcher, 2), ["calico 1 0", "recovered calico"]);
    let newer = server.requests().into_iter();
    let newer = newer.filter(|request| request.contains("projectcalico.org/v3"));
    assert_eq!((newer.count(), server.requests().len()), (2, 4));
}

#[test]
fn an_api_server_that_is_not_to_be_asked_is_not() {
    let host = host(&[("/etc/cni/net.d/10-calico.conflist", CALICO)]);
    let mut watcher = start(&host, api(None));
    let items = watcher.coverage();
    assert_eq!(items[0].reason.as_deref(), Some("not asked"));
    assert_eq!(
        next(&mut watcher, 2),
        ["calico 0 1", "failed calico not asked"]
    );
}
