use serde_json::json;

use super::{
    super::server::{Reply, Server, TOKEN, status},
    *,
};
use event::fault;

const SOON: Duration = Duration::from_secs(5);
const THINGS: Resource = Resource {
    path: "/apis/example.org/v1/things",
    name: "things.example.org",
    kind: "ThingList",
    hint: "it is not installed",
};

fn page(items: &[u32], next: &str) -> Reply {
    Reply::Json(
        200,
        json!({ "kind": "ThingList", "items": items, "next": next }),
    )
}

fn take(taken: &mut Vec<u64>, body: &[u8]) -> Option<ListedPage> {
    let page: serde_json::Value = serde_json::from_slice(body).ok()?;
    taken.extend(
        page["items"]
            .as_array()?
            .iter()
            .filter_map(serde_json::Value::as_u64),
    );
    let next = page["next"].as_str().map(str::to_owned);
    Some(ListedPage { next })
}

fn list(server: &Server, after: Duration) -> Result<Vec<u64>, String> {
    let credentials = server.credentials();
    let listed = list_resource_blocking(&credentials, THINGS, after, Vec::new, take);
    listed
        .map(|(taken, size)| {
            assert!(size > 10);
            taken
        })
        .map_err(|error| fault::chain(&error))
}

#[test]
fn pages_are_joined_and_begun_again_once() {
    let server = Server::new(|path, count| match (path.contains("continue=b"), count) {
        (false, 0) => page(&[7], "b"),
        (false, _) => page(&[1, 2], "b"),
        (true, 1) => Reply::Json(410, status(410, "too old")),
        (true, _) => page(&[3], ""),
    });
    assert_eq!(list(&server, SOON), Ok(vec![1, 2, 3]));
    assert_eq!(
        server.requests()[0],
        "/apis/example.org/v1/things?&limit=200"
    );
    assert_eq!(server.requests().len(), 4);
}

#[test]
fn each_refusal_says_what_it_means() {
    for (answer, expected) in [
        (
            Reply::Json(403, status(403, "things is forbidden")),
            "they do not allow to list things.example.org (403 Forbidden); grant list on them in a \
             ClusterRole; it says: things is forbidden",
        ),
        (
            Reply::Json(404, status(404, "not found")),
            "has no things.example.org (404 Not Found): it is not installed",
        ),
        (
            Reply::Json(401, status(401, "")),
            "it does not accept these credentials",
        ),
        (
            Reply::Json(500, status(500, "etcd")),
            "it answers with status 500; it says: etcd",
        ),
        (
            Reply::Text(200, String::from("<html>")),
            "something that is no list",
        ),
        (page(&[1], "b"), "something that is no list"),
    ] {
        let text = list(&Server::listing(answer), SOON).unwrap_err();
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains(TOKEN) && !text.contains("pods ("), "{text}");
    }
}

#[test]
fn a_server_that_never_answers_costs_no_more_than_the_time_out() {
    let server = Server::listing(Reply::Hang);
    let started = Instant::now();
    let after = Duration::from_millis(300);
    let text = list(&server, after).unwrap_err();
    assert!(started.elapsed() < 2 * after, "{:?}", started.elapsed());
    assert!(text.ends_with("no answer within 0.3 s"), "{text}");
}

#[test]
fn what_takes_much_more_than_its_text_once_it_is_read_is_not_read() {
    let items = vec![r#"{"":0}"#; 100_000].join(",");
    let small = format!(r#"{{"kind":"ThingList","items":[{items}]}}"#);
    let server = Server::listing(Reply::Text(200, small));
    let text = list(&server, SOON).unwrap_err();
    assert!(text.contains("things.example.org than are read"), "{text}");
    let limits: Vec<bool> = [200, 20, 2]
        .iter()
        .zip(server.requests())
        .map(|(limit, path)| path.ends_with(&format!("limit={limit}")))
        .collect();
    assert_eq!(limits, [true; 3], "{:?}", server.requests());
    // What stands in a text takes no more than that.
    let text = vec![r#"{\"[,"#; 100_000].join("");
    let large = format!(r#"{{"kind":"ThingList","items":[7],"note":"{text}"}}"#);
    let server = Server::listing(Reply::Text(200, large));
    assert_eq!(list(&server, SOON), Ok(vec![7]));
}
