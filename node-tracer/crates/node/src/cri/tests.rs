use std::{
    os::unix::net::UnixListener,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Instant,
};

use prost::Message as _;

use super::{api::*, asker::Asker, fake::*, *};
use crate::procfs::Bounded;
use event::{Event, What};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(400);
/// What a loaded machine may add to a time-out.
const SLACK: Duration = Duration::from_millis(1500);

const CONTAINERD: &str = "/run/containerd/containerd.sock";
const CRIO: &str = "/run/crio/crio.sock";
/// What the kubelet is configured with in these tests.
const OWN: &str = "/run/own.sock";
/// Until a runtime counts as moved, in tests that wait for it.
const MOVED: Duration = Duration::from_millis(300);

/// A root folder with a place for a socket.
struct Node {
    root: tempfile::TempDir,
}

impl Node {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("run/deep")).unwrap();
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        Self { root }
    }

    fn socket(&self) -> PathBuf {
        self.root.path().join("run/x.sock")
    }

    fn list(&self, timeout: Duration) -> Result<Listing, CriError> {
        self.list_at("/run/x.sock", timeout)
    }

    fn list_at(&self, path: &str, timeout: Duration) -> Result<Listing, CriError> {
        let procfs = Procfs::new(self.root.path(), Bounded::default());
        let endpoint = Endpoint::parse(path).unwrap();
        list(&endpoint, self.root.path(), &procfs, timeout)
    }

    /// The error, which must come in time.
    fn error(&self) -> CriError {
        let started = Instant::now();
        let error = self.list(SHORT).unwrap_err();
        let took = started.elapsed();
        assert!(took < SHORT + SLACK, "{took:?}: {error}");
        error
    }
}

fn pod_sandbox(id: &str, state: i32) -> PodSandbox {
    PodSandbox {
        id: id.to_owned(),
        metadata: Some(PodSandboxMetadata {
            name: format!("pod-{id}"),
            uid: format!("uid-{id}"),
            namespace: String::from("shop"),
            attempt: 3,
        }),
        state,
        created_at: 1_763_704_512_000_000_005,
    }
}

fn container(id: &str, sandbox: &str, state: i32) -> Container {
    Container {
        id: id.to_owned(),
        pod_sandbox_id: sandbox.to_owned(),
        metadata: Some(ContainerMetadata {
            name: String::from("box"),
        }),
        state,
    }
}

fn status(pid: u32) -> PodSandboxStatusResponse {
    let info = format!(
        r#"{{"pid": {pid}, "processStatus": "running", "runtimeSpec": {{"linux": {{"namespaces": [{{"type": "network", "path": "/var/run/netns/cni-{pid}"}}]}}}}}}"#
    );
    PodSandboxStatusResponse {
        status: Some(PodSandboxStatus {
            network: Some(PodSandboxNetworkStatus {
                ip: format!("10.0.0.{pid}"),
                additional_ips: Vec::new(),
            }),
            linux: None,
        }),
        info: [(String::from("info"), info)].into(),
    }
}

/// A healthy runtime with these sandboxes; `None` leaves the rest to the test.
fn healthy(ids: &'static [&'static str], method: &str, request: &[u8]) -> Reply {
    match method {
        "Version" => Reply::message(&VersionResponse {
            runtime_name: String::from("containerd"),
            runtime_version: String::from("1.6.20"),
        }),
        "ListPodSandbox" => Reply::message(&ListPodSandboxResponse {
            items: ids.iter().map(|id| pod_sandbox(id, 0)).collect(),
            cut: false,
        }),
        "ListContainers" => Reply::message(&ListContainersResponse {
            items: ids
                .iter()
                .map(|id| container(&format!("{id}c"), id, 1))
                .collect(),
            cut: false,
        }),
        "PodSandboxStatus" => {
            let request = PodSandboxStatusRequest::decode(request).unwrap();
            assert!(request.verbose);
            let at = ids
                .iter()
                .position(|id| *id == request.pod_sandbox_id)
                .unwrap();
            Reply::message(&status(u32::try_from(at).unwrap() + 1))
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_runtimes_sandboxes_are_listed_with_their_containers() {
    let node = Node::new();
    serve(&node.socket(), |method, request| match method {
        "ListPodSandbox" => Reply::message(&ListPodSandboxResponse {
            items: vec![
                pod_sandbox("b", 0),
                pod_sandbox("a", 1),
                pod_sandbox("../x", 0),
            ],
            cut: false,
        }),
        "ListContainers" => Reply::message(&ListContainersResponse {
            items: vec![
                container("c2", "b", 2),
                container("c1", "b", 1),
                container("c3", "gone", 0),
            ],
            cut: false,
        }),
        _ => healthy(&["a", "b"], method, request),
    });
    let listing = node.list(LONG).unwrap();
    assert_eq!(listing.runtime.as_deref(), Some("containerd 1.6.20"));
    assert_eq!(listing.partial, None);
    assert_eq!(listing.endpoint.to_string(), "unix:///run/x.sock");
    let [a, b] = listing.sandboxes.as_slice() else {
        panic!("{listing:?}");
    };
    assert_eq!((a.id.as_str(), a.ready), ("a", Some(false)));
    assert_eq!(a.pid, None, "a number that nothing shows to be its own");
    assert_eq!((b.id.as_str(), b.ready, b.pid), ("b", Some(true), Some(2)));
    assert_eq!(b.pod.label(), "shop/pod-b");
    assert_eq!((b.pod.uid.as_deref(), b.attempt), (Some("uid-b"), 3));
    assert_eq!(b.netns_path.as_deref(), Some("/var/run/netns/cni-2"));
    assert_eq!(b.ips, ["10.0.0.2".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(
        serde_json::to_value(b.created).unwrap(),
        "2025-11-21T05:55:12.000000005Z"
    );
    let containers: Vec<_> = b
        .containers
        .iter()
        .map(|each| {
            (
                each.id.as_str(),
                each.name.as_str(),
                each.state.as_deref().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        containers,
        [("c1", "box", "running"), ("c2", "box", "exited")]
    );
    assert!(a.containers.is_empty());
}

#[test]
fn nobody_there_is_said_at_once() {
    let node = Node::new();
    let error = node.error();
    assert!(matches!(error, CriError::Connect { .. }), "{error}");
    drop(UnixListener::bind(node.socket()).unwrap());
    let error = node.error();
    assert!(matches!(error, CriError::Connect { .. }), "{error}");
    assert!(event::fault::chain(&error).contains("refused"), "{error:?}");
    std::fs::remove_file(node.socket()).unwrap();
    std::fs::write(node.socket(), "").unwrap();
    let text = event::fault::chain(&node.error());
    assert!(text.contains("no socket"), "{text}");
}

#[test]
fn a_socket_that_only_accepts_costs_the_time_out() {
    let node = Node::new();
    serve_bytes(&node.socket(), &[], Duration::ZERO);
    let error = node.error();
    assert!(matches!(error, CriError::TimedOut { .. }), "{error}");
    assert!(error.to_string().contains("ListPodSandbox"), "{error}");
}

#[test]
fn a_socket_that_does_not_even_accept_costs_the_time_out() {
    let node = Node::new();
    let listener = rustix::net::socket(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        None,
    )
    .unwrap();
    let address = rustix::net::SocketAddrUnix::new(node.socket()).unwrap();
    rustix::net::bind(&listener, &address).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _first = std::os::unix::net::UnixStream::connect(node.socket()).unwrap();
    let error = node.error();
    assert!(matches!(error, CriError::TimedOut { .. }), "{error}");
}

#[test]
fn garbage_is_no_grpc() {
    for garbage in [
        b"HTTP/1.1 400 Bad Request\r\n\r\n".as_slice(),
        b"\0\0\0\0\0\0\0\0\0\xff\xff\xff",
        b"hello\n",
    ] {
        let node = Node::new();
        serve_bytes(&node.socket(), garbage, Duration::ZERO);
        let error = node.error();
        assert!(matches!(error, CriError::Protocol { .. }), "{error:?}");
    }
}

#[test]
fn answers_that_trickle_cost_the_time_out() {
    let node = Node::new();
    // Empty SETTINGS frames, which are in order.
    serve_bytes(
        &node.socket(),
        b"\0\0\0\x04\0\0\0\0\0",
        Duration::from_millis(5),
    );
    let error = node.error();
    assert!(matches!(error, CriError::TimedOut { .. }), "{error}");
}

#[test]
fn a_runtime_without_cri_v1_is_told_so() {
    let node = Node::new();
    let unknown = "unknown service runtime.v1.RuntimeService";
    serve(&node.socket(), move |_, _| Reply::Status(12, unknown));
    let error = node.error();
    assert!(matches!(error, CriError::TooOld { .. }), "{error:?}");
    assert!(error.to_string().contains(unknown), "{error}");
}

#[test]
fn an_error_of_the_runtime_is_repeated() {
    let node = Node::new();
    serve(&node.socket(), |_, _| {
        Reply::Status(14, "server is not initialized yet")
    });
    let text = node.error().to_string();
    assert_eq!(
        text,
        "unix:///run/x.sock answers ListPodSandbox with Unavailable: server is not initialized yet"
    );
}

#[test]
fn what_is_no_message_is_an_error() {
    let node = Node::new();
    serve(&node.socket(), |_, _| Reply::Message(vec![0xff; 40]));
    let error = node.error();
    assert!(matches!(error, CriError::Refused { .. }), "{error:?}");
}

#[test]
fn one_that_docker_has_lost_is_listed_and_keeps_no_list_from_being_whole() {
    let node = Node::new();
    serve(&node.socket(), |method, request| match method {
        "PodSandboxStatus" if request.contains(&b'a') => {
            Reply::Status(2, "Error response from daemon: No such container: a")
        }
        _ => healthy(&["a", "b"], method, request),
    });
    let listing = node.list(LONG).unwrap();
    let pids: Vec<_> = listing.sandboxes.iter().map(|each| each.pid).collect();
    assert_eq!((pids, listing.partial), (vec![None, Some(2)], None));
}

#[test]
fn sandboxes_that_are_not_described_in_time_are_listed_without() {
    let node = Node::new();
    serve(&node.socket(), |method, request| match method {
        "PodSandboxStatus" => match PodSandboxStatusRequest::decode(request)
            .unwrap()
            .pod_sandbox_id
            .as_str()
        {
            "a" => Reply::Nothing,
            "b" => Reply::Status(2, "shim is gone"),
            _ => healthy(&["a", "b", "c"], method, request),
        },
        "Version" | "ListContainers" => Reply::Nothing,
        _ => healthy(&["a", "b", "c"], method, request),
    });
    let timeout = 4 * SHORT;
    let started = Instant::now();
    let listing = node.list(timeout).unwrap();
    assert!(started.elapsed() < timeout + SLACK);
    assert_eq!(listing.runtime, None);
    let pids: Vec<_> = listing.sandboxes.iter().map(|each| each.pid).collect();
    assert_eq!(pids, [None, None, Some(3)]);
    let partial = listing.partial.unwrap();
    assert!(
        partial.contains("2 of 3 sandboxes are not described"),
        "{partial}"
    );
    assert!(
        partial.contains("does not answer ListContainers"),
        "{partial}"
    );
}

#[test]
fn one_that_is_removed_while_it_is_asked_about_is_left_out() {
    let node = Node::new();
    serve(&node.socket(), |method, request| match method {
        "PodSandboxStatus" if request.contains(&b'a') => Reply::Status(5, "not found"),
        _ => healthy(&["a", "b"], method, request),
    });
    let listing = node.list(LONG).unwrap();
    assert_eq!(listing.partial, None);
    assert_eq!(listing.sandboxes.len(), 1);
}

#[test]
fn a_list_may_be_larger_than_grpc_allows_by_default() {
    let node = Node::new();
    serve(&node.socket(), |method, _| match method {
        "ListPodSandbox" => {
            let mut sandbox = pod_sandbox("a", 0);
            sandbox.metadata.as_mut().unwrap().name = "x".repeat(6 << 20);
            Reply::message(&ListPodSandboxResponse {
                items: vec![sandbox],
                cut: false,
            })
        }
        _ => Reply::message(&ListContainersResponse::default()),
    });
    let listing = node.list(LONG).unwrap();
    let name = listing.sandboxes[0].pod.name.clone().unwrap();
    assert!(name.len() < 1000, "and yet little of it is kept");
}

#[test]
fn what_is_known_is_not_asked_again_until_it_changes() {
    static IDS: [&str; 3] = ["a", "b", "c"];
    let node = Node::new();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    serve(&node.socket(), move |method, request| {
        if method == "PodSandboxStatus" {
            count.fetch_add(1, SeqCst);
        }
        healthy(&IDS, method, request)
    });
    let first = node.list(LONG).unwrap();
    assert_eq!(asked.swap(0, SeqCst), 3);
    let mut known: SandboxesById = first
        .sandboxes
        .iter()
        .map(|each| (each.id.clone(), each.clone()))
        .collect();
    known.get_mut("b").unwrap().ready = Some(false);
    let procfs = Procfs::new(node.root.path(), Bounded::default());
    let second = list_changes(&first.endpoint, node.root.path(), &procfs, LONG, known).unwrap();
    assert_eq!(asked.load(SeqCst), 1);
    assert_eq!(second, first);
}

#[test]
fn a_link_to_the_socket_is_followed_below_the_root_only() {
    let node = Node::new();
    serve(&node.socket(), |method, request| {
        healthy(&["a"], method, request)
    });
    let link = node.root.path().join("run/link.sock");
    std::os::unix::fs::symlink("/run/x.sock", &link).unwrap();
    assert!(node.list_at("/run/link.sock", LONG).is_ok());
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(node.socket(), &link).unwrap();
    let error = node.list_at("/run/link.sock", LONG).unwrap_err();
    assert!(matches!(error, CriError::Connect { .. }), "{error}");
}

#[test]
fn a_namespace_is_found_by_its_process_where_nothing_is_mounted() {
    let node = Node::new();
    let ns = node.root.path().join("proc/1/ns");
    std::fs::create_dir_all(&ns).unwrap();
    std::os::unix::fs::symlink("net:[4026532246]", ns.join("net")).unwrap();
    serve(&node.socket(), |method, request| {
        healthy(&["a", "b"], method, request)
    });
    let listing = node.list(LONG).unwrap();
    let netns: Vec<_> = listing
        .sandboxes
        .iter()
        .map(|each| each.netns.map(|it| it.inode))
        .collect();
    assert_eq!(netns, [Some(4_026_532_246), None]);
}

/// A watcher of a node that asks often.
fn watch(node: &Node, place: Place) -> Watcher {
    let procfs = Procfs::new(node.root.path(), Bounded::default());
    let (pause, patience) = (Duration::from_millis(20), SHORT);
    Watcher::start(place, node.root.path().to_owned(), procfs, pause, patience).unwrap()
}

/// Waits for so many events; their kinds.
fn told(watcher: &mut Watcher, count: usize) -> Vec<String> {
    let (start, mut events) = (Instant::now(), Vec::new());
    while events.len() < count && start.elapsed() < LONG {
        watcher.poll(&mut events);
        std::thread::sleep(Duration::from_millis(5));
    }
    let kind = |event: &Event| match &event.what {
        What::SandboxesListed { endpoint, .. } => format!("listed by {endpoint}"),
        What::SourceFailed { error, .. } => format!("failed: {error}"),
        What::SourceRecovered { .. } => String::from("recovered"),
        other => format!("{other:?}"),
    };
    events.iter().map(kind).collect()
}

impl Node {
    /// A path of the host, in a folder that is there.
    fn path(&self, path: &str) -> PathBuf {
        let path = self.root.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    /// A healthy runtime there.
    fn runtime(&self, path: &str, ids: &'static [&'static str]) -> PathBuf {
        let path = self.path(path);
        serve(&path, move |method, request| healthy(ids, method, request));
        path
    }

    /// A socket that nobody listens on.
    fn deaf(&self, path: &str) -> PathBuf {
        let path = self.path(path);
        drop(UnixListener::bind(&path).unwrap());
        path
    }

    /// Has the kubelet configured with [`OWN`].
    fn configure(&self) {
        let text = format!("containerRuntimeEndpoint: unix://{OWN}\n");
        std::fs::write(self.path("/var/lib/kubelet/config.yaml"), text).unwrap();
    }

    /// One that knows what is found now, as at the start of a trace.
    fn asker(&self, moved_after: Duration) -> Asker {
        let root = self.root.path();
        let procfs = Procfs::new(root, Bounded::default());
        let place = Place::Search(endpoints(root));
        Asker::new(place, root.to_owned(), procfs, LONG).moved_after(moved_after)
    }
}

/// Whose list it is.
fn answer(asker: &mut Asker) -> Result<String, CriError> {
    let listing = asker.ask(SandboxesById::new())?;
    Ok(listing.endpoint.path().display().to_string())
}

/// Nobody listens there, and no other is taken.
fn assert_fails(asker: &mut Asker, path: &str) {
    match answer(asker).unwrap_err() {
        CriError::Connect { endpoint, .. } => assert_eq!(endpoint.path(), Path::new(path)),
        other => panic!("{other}"),
    }
}

#[test]
fn a_runtime_that_comes_later_is_found_and_kept_when_it_fails() {
    let node = Node::new();
    let mut watcher = watch(&node, Place::Search(Vec::new()));
    std::thread::sleep(Duration::from_millis(100));
    let crio = node.runtime(CRIO, &["aa"]);
    assert_eq!(
        told(&mut watcher, 2),
        [format!("listed by unix://{CRIO}").as_str(), "recovered"]
    );
    node.runtime(CONTAINERD, &["bb"]);
    let hidden = crio.with_extension("away");
    std::fs::rename(&crio, &hidden).unwrap();
    let failed = told(&mut watcher, 1);
    assert!(failed[0].contains("crio.sock"), "{failed:?}");
    std::fs::rename(&hidden, &crio).unwrap();
    assert_eq!(told(&mut watcher, 1), ["recovered"]);
}

#[test]
fn the_first_that_answers_is_the_runtime() {
    let node = Node::new();
    node.deaf(CONTAINERD);
    node.runtime(CRIO, &["aa"]);
    assert_eq!(answer(&mut node.asker(LONG)).unwrap(), CRIO);
    let empty = Node::new();
    let error = answer(&mut empty.asker(LONG)).unwrap_err();
    assert!(matches!(error, CriError::NoSocket), "{error}");
}

#[test]
fn another_runtimes_list_is_not_taken_for_the_configured_ones() {
    let node = Node::new();
    node.configure();
    let own = node.deaf(OWN);
    node.runtime(CRIO, &["bb"]);
    let mut asker = node.asker(Duration::ZERO);
    // Not before it has answered, and not after.
    assert_fails(&mut asker, OWN);
    assert_fails(&mut asker, OWN);
    std::fs::remove_file(&own).unwrap();
    node.runtime(OWN, &["aa"]);
    assert_eq!(answer(&mut asker).unwrap(), OWN);
    std::fs::remove_file(&own).unwrap();
    for _ in 0..3 {
        assert_fails(&mut asker, OWN);
    }
}

#[test]
fn where_the_configured_one_is_missing_another_stands_in_until_it_comes() {
    let node = Node::new();
    node.configure();
    node.runtime(CRIO, &["bb"]);
    let mut asker = node.asker(LONG);
    for _ in 0..3 {
        assert_eq!(answer(&mut asker).unwrap(), CRIO);
    }
    let own = node.deaf(OWN);
    assert_eq!(answer(&mut asker).unwrap(), CRIO);
    std::fs::remove_file(own).unwrap();
    node.runtime(OWN, &["aa"]);
    for _ in 0..3 {
        assert_eq!(answer(&mut asker).unwrap(), OWN);
    }
}

#[test]
fn the_one_that_answered_last_is_kept_while_its_socket_is_there() {
    let node = Node::new();
    let containerd = node.runtime(CONTAINERD, &["aa"]);
    node.runtime(CRIO, &["bb"]);
    let mut asker = node.asker(Duration::ZERO);
    assert_eq!(answer(&mut asker).unwrap(), CONTAINERD);
    let hidden = containerd.with_extension("away");
    std::fs::rename(&containerd, &hidden).unwrap();
    node.deaf(CONTAINERD);
    for _ in 0..3 {
        assert_fails(&mut asker, CONTAINERD);
    }
    std::fs::rename(&hidden, &containerd).unwrap();
    assert_eq!(answer(&mut asker).unwrap(), CONTAINERD);
}

#[test]
fn one_whose_socket_is_gone_is_waited_for() {
    let node = Node::new();
    let containerd = node.runtime(CONTAINERD, &["aa"]);
    node.runtime(CRIO, &["bb"]);
    let mut asker = node.asker(LONG);
    assert_eq!(answer(&mut asker).unwrap(), CONTAINERD);
    std::fs::remove_file(&containerd).unwrap();
    for _ in 0..3 {
        assert_fails(&mut asker, CONTAINERD);
    }
    node.runtime(CONTAINERD, &["aa"]);
    assert_eq!(answer(&mut asker).unwrap(), CONTAINERD);
}

#[test]
fn one_that_moved_is_found_at_its_new_place_after_a_time() {
    let node = Node::new();
    let crio = node.runtime(CRIO, &["aa"]);
    let mut asker = node.asker(MOVED);
    assert_eq!(answer(&mut asker).unwrap(), CRIO);
    std::fs::rename(&crio, node.path(CONTAINERD)).unwrap();
    let start = Instant::now();
    // It counts from the first question that finds the socket gone.
    std::thread::sleep(MOVED);
    assert_fails(&mut asker, CRIO);
    let moved = loop {
        match answer(&mut asker) {
            Ok(path) => break path,
            Err(error) => assert!(start.elapsed() < LONG, "{error}"),
        }
        std::thread::sleep(MOVED / 10);
    };
    assert_eq!(moved, CONTAINERD);
    assert!(start.elapsed() >= 2 * MOVED);
}

#[test]
fn a_socket_that_was_back_meanwhile_is_waited_for_anew() {
    let node = Node::new();
    let crio = node.runtime(CRIO, &["aa"]);
    node.runtime(CONTAINERD, &["bb"]);
    let procfs = Procfs::new(node.root.path(), Bounded::default());
    let place = Place::Search(vec![Endpoint::parse(CRIO).unwrap()]);
    let mut asker = Asker::new(place, node.root.path().to_owned(), procfs, LONG).moved_after(MOVED);
    assert_eq!(answer(&mut asker).unwrap(), CRIO);
    std::fs::remove_file(&crio).unwrap();
    assert_fails(&mut asker, CRIO);
    // Back, if deaf yet.
    node.deaf(CRIO);
    std::thread::sleep(MOVED);
    assert_fails(&mut asker, CRIO);
    std::fs::remove_file(&crio).unwrap();
    assert_fails(&mut asker, CRIO);
    std::thread::sleep(MOVED);
    assert_eq!(answer(&mut asker).unwrap(), CONTAINERD);
}

#[test]
fn one_that_was_given_is_waited_for_and_no_other_taken() {
    let node = Node::new();
    std::fs::create_dir(node.root.path().join("run/crio")).unwrap();
    let crio = node.root.path().join("run/crio/crio.sock");
    serve(&crio, |method, request| healthy(&["aa"], method, request));
    let endpoint = Endpoint::parse("/run/x.sock").unwrap();
    let mut watcher = watch(&node, Place::Given(endpoint));
    let failed = told(&mut watcher, 1);
    assert!(failed[0].contains("x.sock"), "{failed:?}");
    serve(&node.socket(), |method, request| {
        healthy(&["aa"], method, request)
    });
    assert_eq!(
        told(&mut watcher, 2),
        ["listed by unix:///run/x.sock", "recovered"]
    );
}
