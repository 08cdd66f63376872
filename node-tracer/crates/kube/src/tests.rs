use serde_json::json;

use super::{
    server::{Reply, Server, TOKEN, page, status},
    *,
};
use event::fault;

const SOON: Duration = Duration::from_secs(5);

fn names(listing: &Listing) -> Vec<&str> {
    listing.pods.iter().map(|pod| pod.name.as_str()).collect()
}

/// Why there is no list.
fn refusal(server: &Server) -> String {
    let error = list_blocking(&server.credentials(), "node-1", SOON).unwrap_err();
    let text = fault::chain(&error);
    assert!(!text.contains(TOKEN), "{text}");
    assert!(!text.contains('\n'), "{text}");
    let start = format!("API server {} (credentials: ", server.address);
    assert!(text.starts_with(&start), "{text}");
    text.split_once("): ").unwrap().1.to_owned()
}

#[test]
fn a_list_is_of_this_node_and_true_for_the_moment_before_it_was_asked_for() {
    let server = Server::listing(Reply::Json(200, page(&["a", "b"], 7, "")));
    let before = sys::clock::now();
    let listing = list_blocking(&server.credentials(), "Node-1", SOON).unwrap();
    assert_eq!(names(&listing), ["a", "b"]);
    assert!(listing.whole);
    assert!(listing.at >= before && listing.at <= sys::clock::now());
    // No resourceVersion: the server may not answer out of its cache.
    assert_eq!(
        server.requests(),
        ["/api/v1/pods?&fieldSelector=spec.nodeName%3Dnode-1&limit=500"]
    );
}

#[test]
fn pages_are_joined() {
    let server = Server::new(|path, _| match path.contains("continue=n%2Fext") {
        false => Reply::Json(200, page(&["a"], 7, "n/ext")),
        true => Reply::Json(200, page(&["b"], 7, "")),
    });
    let listing = list_blocking(&server.credentials(), "node-1", SOON).unwrap();
    assert_eq!(names(&listing), ["a", "b"]);
}

#[test]
fn a_list_whose_pages_expire_is_begun_again_once() {
    let expiring = |times: usize| {
        Server::new(move |path, count| match path.contains("continue=") {
            true if count < times * 2 => Reply::Json(410, status(410, "too old")),
            true => Reply::Json(200, page(&["b"], 9, "")),
            // Another pod each time: a part of the first attempt must not stay.
            false => Reply::Json(200, page(&[["a", "c"][count / 2 % 2]], 7, "next")),
        })
    };
    let listing = list_blocking(&expiring(1).credentials(), "node-1", SOON).unwrap();
    assert_eq!(names(&listing), ["b", "c"]);
    let server = expiring(2);
    assert!(refusal(&server).contains("(410 Gone)"));
    assert_eq!(server.requests().len(), 4);
}

#[test]
fn a_server_that_pages_in_circles_is_left() {
    let server = Server::listing(Reply::Json(200, page(&["a"], 7, "next")));
    assert!(refusal(&server).contains("no list of pods"));
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn a_server_that_pages_without_end_is_left() {
    let server = Server::new(|_, count| {
        let names: Vec<String> = (0..500).map(|pod| format!("{pod:0>100}-{count}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        Reply::Json(200, page(&names, 7, &count.to_string()))
    });
    assert!(refusal(&server).contains("more than the pods of a node are"));
}

#[test]
fn pods_that_are_too_large_for_a_page_are_asked_for_in_smaller_ones() {
    let server = Server::new(|path, _| {
        let is_of_one = path.ends_with("limit=1") || path.contains("limit=1&");
        match path {
            path if path.contains("continue=") => Reply::Json(200, page(&["b"], 7, "")),
            _ if is_of_one => Reply::Json(200, page(&["a"], 7, "next")),
            _ => Reply::Text(200, " ".repeat(MAX_PAGE + 1)),
        }
    });
    let listing = list_blocking(&server.credentials(), "node-1", SOON).unwrap();
    assert_eq!(names(&listing), ["a", "b"]);
}

#[test]
fn each_refusal_says_what_it_means() {
    let cases = [
        (
            401,
            "Unauthorized",
            "it does not accept these credentials (401 Unauthorized)",
        ),
        (
            403,
            "pods is forbidden",
            "they do not allow to list pods (403 Forbidden); grant list and watch on pods in \
             a ClusterRole; it says: pods is forbidden",
        ),
        (
            500,
            "etcd\nis gone",
            "it answers with status 500; it says: etcd",
        ),
        (503, "", "it answers with status 503"),
    ];
    for (code, message, expected) in cases {
        let server = Server::listing(Reply::Json(code, status(code, message)));
        let text = refusal(&server);
        assert!(text.starts_with(expected), "{text}");
        assert_eq!(server.requests().len(), 1, "asked again");
    }
    let proxy = Server::listing(Reply::Text(502, format!("<html>{}", "x".repeat(9_999))));
    let text = refusal(&proxy);
    assert!(
        text.starts_with("it answers with status 502; it says: <html>xx"),
        "{text}"
    );
    assert!(text.len() < 400, "{text}");
}

/// [`refusal`] looks for it.
#[test]
fn a_server_that_quotes_the_token_does_not_make_it_known() {
    let quoting = format!("invalid bearer token [{TOKEN}], not {TOKEN}");
    let expected = "it says: invalid bearer token [[redacted]], not [redacted]";
    for answer in [
        Reply::Json(403, status(403, &quoting)),
        Reply::Json(500, status(500, &quoting)),
        Reply::Text(502, quoting.clone()),
    ] {
        let text = refusal(&Server::listing(answer));
        assert!(text.ends_with(expected), "{text}");
    }
}

#[test]
fn what_is_no_list_of_pods_is_not_taken_for_an_empty_one() {
    for body in [
        "",
        "<html>",
        "{}",
        "[]",
        r#"{"kind":"PodList"}"#,
        r#"{"kind":"NodeList","items":[]}"#,
        r#"{"kind":"PodList","items":[{"metadata":{"name":"a"}}]}"#,
        r#"{"kind":"PodList","items":[{"kind":"Node","metadata":{"uid":"u"}}]}"#,
        r#"{"kind":"PodList","items":[{"metadata":{"na"#,
        r#"{"kind":"PodList","items":[{"metadata":{"uid":"u","name":"NAME"}}]}"#,
        r#"{"kind":"PodList","items":[{"metadata":{"uid":"NAME"}}]}"#,
    ] {
        // Longer than any name.
        let body = body.replace("NAME", &"x".repeat(254));
        let server = Server::listing(Reply::Text(200, body.clone()));
        assert!(
            refusal(&server).contains("something that is no list of pods"),
            "{body}"
        );
    }
}

#[test]
fn a_server_that_never_answers_costs_no_more_than_the_time_out() {
    let server = Server::listing(Reply::Hang);
    let started = Instant::now();
    let after = Duration::from_millis(300);
    let error = list_blocking(&server.credentials(), "node-1", after).unwrap_err();
    assert!(started.elapsed() < 2 * after, "{:?}", started.elapsed());
    assert!(
        error.to_string().ends_with("no answer within 0.3 s"),
        "{error}"
    );
}

#[test]
fn a_server_that_is_not_there_is_said_to_be_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    let refuse = |url: &str| {
        std::fs::write(&path, server::kubeconfig(url, json!({ "token": TOKEN }))).unwrap();
        let credentials = Credentials::find(folder.path(), Some(&path)).unwrap();
        list_blocking(&credentials, "node-1", SOON)
            .unwrap_err()
            .to_string()
    };
    // A port that was given out and taken back.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let text = refuse(&format!("http://{port}"));
    assert!(
        text.contains("it cannot be reached: Connection refused"),
        "{text}"
    );
    let plain = Server::listing(Reply::Json(200, page(&["a"], 7, "")));
    let text = refuse(&format!("https://{}", plain.address));
    assert!(text.contains("no TLS connection: "), "{text}");
}

#[test]
fn no_pods_may_mean_no_such_node() {
    let node = |answer: Reply| {
        Server::new(
            move |path, _| match path.starts_with("/api/v1/nodes/node-1") {
                true => answer.clone(),
                false => Reply::Json(200, page(&[], 7, "")),
            },
        )
    };
    let list = |server: Server| list_blocking(&server.credentials(), "node-1", SOON);
    let idle = list(node(Reply::Json(
        200,
        json!({ "kind": "PartialObjectMetadata" }),
    )))
    .unwrap();
    assert!(idle.whole && idle.pods.is_empty());
    let unsure = list(node(Reply::Json(403, status(403, "no")))).unwrap();
    assert!(
        !unsure.whole,
        "it cannot vouch for a node that it may not know"
    );
    let doubt = unsure.doubt.unwrap();
    assert!(doubt.contains("no pod of node node-1"), "{doubt}");
    assert!(doubt.contains("grant get on nodes"), "{doubt}");
    assert_eq!(idle.doubt, None);
    let text = refusal(&node(Reply::Json(404, status(404, "not found"))));
    assert!(
        text.starts_with("it knows no node node-1; give --node-name"),
        "{text}"
    );
}

#[test]
fn a_name_that_would_select_other_pods_is_not_asked_for() {
    let server = Server::listing(Reply::Json(200, page(&["a"], 7, "")));
    for name in ["", "a,metadata.namespace=b", "a/b", "a b"] {
        let error = list_blocking(&server.credentials(), name, SOON).unwrap_err();
        assert!(
            error.to_string().contains("cannot be the name of a node"),
            "{error}"
        );
    }
    assert_eq!(server.requests().len(), 0);
}

/// What comes of a user's entry in the kubeconfig.
fn as_user(server: &Server, scheme: &str, user: serde_json::Value) -> Result<Listing, String> {
    let path = server.kubeconfig();
    let url = format!("{scheme}://{}", server.address);
    std::fs::write(&path, server::kubeconfig(&url, user)).unwrap();
    let credentials = Credentials::find(&path, Some(&path)).unwrap();
    list_blocking(&credentials, "node-1", SOON).map_err(|error| fault::chain(&error))
}

#[test]
fn the_users_credential_plugin_is_asked() {
    let server = Server::listing(Reply::Json(200, page(&["a"], 7, "")));
    let exec = |script: &str| json!({ "exec": { "command": "sh", "args": ["-c", script] } });
    let print = format!("echo '{{\"status\":{{\"token\":\"{TOKEN}\"}}}}'");
    assert_eq!(
        names(&as_user(&server, "http", exec(&print)).unwrap()),
        ["a"]
    );
    let error = as_user(&server, "http", exec("exit 7")).unwrap_err();
    assert!(
        error.ends_with("fails: exit status: 7; run it by hand to see why"),
        "{error}"
    );
}

#[test]
fn what_is_no_certificate_or_token_is_not_used() {
    let server = Server::listing(Reply::Json(200, page(&["a"], 7, "")));
    let none = "bm9uZQ==";
    for user in [
        json!({ "client-certificate-data": none, "client-key-data": none }),
        json!({ "client-certificate-data": none }),
        json!({ "token": "with\na line" }),
    ] {
        let error = as_user(&server, "https", user).unwrap_err();
        assert!(
            error.ends_with("the certificate, key or token cannot be used"),
            "{error}"
        );
    }
}
