use super::*;
use kube::server::{Reply, Server, StreamEnd, event, page, pod};

fn news(events: &[Event]) -> Vec<String> {
    let short = |event: &Event| match &event.what {
        What::PodsListed {
            pods,
            whole,
            source,
            ..
        } => format!("{source} {} {whole}", pods.len()),
        What::PodChanged { pod } => format!("+{}", pod.name),
        What::PodDeleted { pod } => format!("-{}", pod.name.as_deref().unwrap_or_default()),
        What::SourceFailed { source, .. } => format!("{source} failed"),
        What::SourceRecovered { source } => format!("{source} recovered"),
        other => panic!("{other:?}"),
    };
    events.iter().map(short).collect()
}

/// All events until there are this many.
fn polled(pods: &mut PodsSource, count: usize) -> Vec<String> {
    let mut events = Vec::new();
    for _ in 0..500 {
        pods.poll(&mut events);
        if events.len() >= count {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    news(&events)
}

#[test]
fn a_pod_that_is_deleted_is_told_once() {
    let server = Server::new(|path, _| match path.contains("watch=") {
        true => Reply::Stream(
            vec![
                (Duration::from_millis(50), event("DELETED", pod("a", 11))),
                (Duration::ZERO, event("ADDED", pod("c", 12))),
            ],
            StreamEnd::Hang,
        ),
        false => Reply::Json(200, page(&["a", "b"], 10, "")),
    });
    let mut pods = PodsSource::server(server.credentials(), "node-1").unwrap();
    assert_eq!(pods.name().as_deref(), Some("API server"));
    assert_eq!(news(&pods.first().unwrap()), ["API server 2 true"]);
    assert_eq!(polled(&mut pods, 2), ["-a", "+c"]);
    let mut again = Vec::new();
    pods.tell_again(&mut again);
    assert_eq!(news(&again), ["API server 2 true"]);
    let What::PodsListed { pods, .. } = &again[0].what else {
        panic!("{again:?}");
    };
    let names: Vec<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(names, ["b", "c"], "as it is now");
}

#[test]
fn a_server_that_is_late_is_told_to_have_failed_and_recovered() {
    let server = Server::new(|path, count| match (count, path.contains("watch=")) {
        (0, _) => Reply::Json(500, serde_json::json!({})),
        (_, true) => Reply::Stream(Vec::new(), StreamEnd::Hang),
        (_, false) => Reply::Json(200, page(&["a"], 10, "")),
    });
    let mut pods = PodsSource::server(server.credentials(), "node-1").unwrap();
    assert_eq!(news(&pods.first().unwrap()), ["pods failed"]);
    assert_eq!(
        polled(&mut pods, 2),
        ["API server 1 true", "pods recovered"]
    );
}

#[test]
fn nothing_is_known_from_nowhere() {
    let mut pods = PodsSource::of(From::Nowhere);
    assert_eq!((pods.name(), pods.first().unwrap()), (None, Vec::new()));
    assert!(!pods.poll(&mut Vec::new()));
}

#[test]
fn what_is_missing_for_a_list_to_be_believed_stands_in_the_coverage() {
    let server = Server::new(|path, _| match path.contains("/nodes/") {
        true => Reply::Json(403, serde_json::json!({})),
        false => Reply::Json(200, page(&[], 10, "")),
    });
    let mut pods = PodsSource::server(server.credentials(), "node-1").unwrap();
    assert_eq!(news(&pods.first().unwrap()), ["API server 0 false"]);
    let item = crate::coverage::of_pods(&Pods::Auto, Some("API server"), None, pods.doubt());
    assert!(item.unknown[0].contains("grant get on nodes"), "{item:?}");
}
