//! What CRI-O says of sandboxes and of the CNI calls for them. Lines of one
//! request of the kubelet have its number beside them (`id`).

use std::collections::{BTreeMap, VecDeque};

use crate::entry::Entry;
use event::{PodRef, RuntimeSandbox, What, clock::Timestamp};

use super::{
    calls::{About, Calls, Key, Reporter, Verb, unnamed},
    failure::{self, Failure},
    tokens::{after, between, field, id, is_uid, pod, slashed},
};

/// Words of which one is in each of its lines that count.
pub(super) const NEEDLES: &[&str] = &[
    "Got pod network",
    "CNI network",
    "Error adding network",
    "Error deleting network",
    "pod sandbox",
    "pod network sandbox",
];

/// Who lists the sandboxes.
const SOURCE: &str = "cri-o";
/// Requests that are under way, at most; the oldest is forgotten.
const MAX_REQUESTS: usize = 512;

/// What is being told of CRI-O's requests.
#[derive(Debug, Default)]
pub(super) struct Crio {
    /// The pod network that each is about.
    networks: BTreeMap<String, About>,
    order: VecDeque<String>,
    /// A DEL that failed, of which the next line will say whose it is.
    unplaced: Option<(Timestamp, Failure)>,
}

impl Crio {
    /// Takes a message in.
    pub(super) fn entry(&mut self, time: Timestamp, entry: &Entry<'_>, calls: &mut Calls) {
        let text = &*entry.message;
        let request = entry.field("id").unwrap_or_default();
        if let Some(rest) = text.strip_prefix("Got pod network &{") {
            self.network(rest, entry, request, calls);
        } else if let Some(rest) = text.strip_prefix("Ran pod sandbox ") {
            ran(time, rest, entry, calls);
        } else if let Some(rest) = after(text, "topped pod sandbox") {
            self.stopped(time, rest, request, calls);
        } else if let Some(rest) = after(text, "emoved pod sandbox: ") {
            if let Some(sandbox) = id(rest) {
                calls.is_over(time, calls.container(&(Verb::Del, sandbox.to_owned())));
                let what = What::SandboxRemoved {
                    source: SOURCE.to_owned(),
                    id: sandbox.to_owned(),
                };
                calls.tell(time, what);
            }
        } else if let Some(verb) = begins(text) {
            let network = self.networks.get(request).cloned();
            if let Some(about) = network {
                let plugin = between(text, "(type=", ")").map(str::to_owned);
                calls.about(time, verb, About { plugin, ..about });
            }
        } else if let Some(failure) = failure::read(text, None) {
            let Some(sandbox) = failure.container_id.clone() else {
                return;
            };
            let about = About {
                container_id: sandbox,
                pod: failure.pod,
                plugin: failure.plugin,
                caller: Some(SOURCE.to_owned()),
                ..About::default()
            };
            let said = &failure.message;
            self.unplaced = None;
            calls.fails(time, failure.verb, about, Reporter::Runtime, said);
        } else {
            self.errs(time, text, request, calls);
        }
    }

    /// What comes next is of another part of the story, or nothing does.
    pub(super) fn end(&mut self, calls: &mut Calls) {
        if let Some((time, failure)) = self.unplaced.take() {
            let about = About {
                container_id: unnamed(&failure.pod),
                plugin: failure.plugin,
                caller: Some(SOURCE.to_owned()),
                ..About::default()
            };
            calls.fails(time, Verb::Del, about, Reporter::Plugin, &failure.message);
        }
    }

    /// `Name:a Namespace:b ID:c UID:d NetNS:e Networks:[...`
    fn network(&mut self, text: &str, entry: &Entry<'_>, request: &str, calls: &mut Calls) {
        let part = |from: &str| between(text, from, " ");
        let named = || pod(part("Namespace:")?, part("Name:")?);
        let (Some(whose), Some(sandbox)) = (named(), part(" ID:").and_then(id)) else {
            return;
        };
        let uid = part(" UID:").filter(|uid| is_uid(uid));
        let pod = PodRef {
            uid: uid.map(str::to_owned),
            ..whose
        };
        calls.known.note_sandbox(sandbox, &pod);
        let about = About {
            container_id: sandbox.to_owned(),
            pod,
            ifname: between(text, "Ifname:", "}").map(str::to_owned),
            netns_path: part("NetNS:").map(str::to_owned),
            caller: Some(String::from(entry.ident.unwrap_or("crio"))),
            ..About::default()
        };
        if self.networks.insert(request.to_owned(), about).is_none() {
            self.order.push_back(request.to_owned());
        }
        if self.order.len() > MAX_REQUESTS
            && let Some(oldest) = self.order.pop_front()
        {
            self.networks.remove(&oldest);
        }
    }

    /// `Stopped pod sandbox: ID`: DEL, if one was called, has succeeded. One
    /// that had been stopped before needs none.
    fn stopped(&mut self, time: Timestamp, rest: &str, request: &str, calls: &mut Calls) {
        let Some(sandbox) = rest.split_once(": ").and_then(|(_, rest)| id(rest)) else {
            return;
        };
        let key: Key = (Verb::Del, sandbox.to_owned());
        if calls.what(&key).is_some() {
            let about = calls.container(&key);
            calls.succeeds(time, Verb::Del, about, Reporter::Runtime, None);
        }
        calls.is_over(time, calls.container(&key));
        self.networks.remove(request);
        let known = calls.known.pod_of(sandbox).cloned();
        let sandbox = RuntimeSandbox {
            id: sandbox.to_owned(),
            pod: known.unwrap_or_default(),
            ready: Some(false),
            ..RuntimeSandbox::default()
        };
        let source = SOURCE.to_owned();
        calls.tell(time, What::SandboxAdded { source, sandbox });
    }

    /// `Error adding network: SAID`, `Error deleting network: SAID`
    fn errs(&mut self, time: Timestamp, text: &str, request: &str, calls: &mut Calls) {
        let Some(failure) = failure::of_dockershim(text) else {
            return;
        };
        let Some(about) = self.networks.get(request).cloned() else {
            if failure.verb == Verb::Del {
                self.unplaced = Some((time, failure));
            }
            return;
        };
        let about = About {
            plugin: failure.plugin,
            ..about
        };
        let said = &failure.message;
        calls.fails(time, failure.verb, about, Reporter::Plugin, said);
    }

    /// Whether a line is CRI-O's: others use some of the same words.
    pub(super) fn is_its(&self, entry: &Entry<'_>) -> bool {
        const OWN: [&str; 5] = [
            "Got pod network",
            "CNI network",
            "pod sandbox ",
            "pod sandbox:",
            "pod network sandbox",
        ];
        let request = entry.field("id").unwrap_or_default();
        // What the kubelet was answered quotes them.
        let quoted = ["from runtime service failed", "rpc error"];
        if quoted.iter().any(|words| entry.message.contains(words)) {
            return false;
        }
        entry.ident == Some("crio")
            || self.networks.contains_key(request)
            || (entry.ident.is_none() && OWN.iter().any(|words| entry.message.contains(words)))
    }
}

/// What a line says is about to be called.
fn begins(text: &str) -> Option<Verb> {
    const BEGINNINGS: [(&str, Verb); 4] = [
        ("About to add CNI network", Verb::Add),
        ("Adding pod ", Verb::Add),
        ("About to del CNI network", Verb::Del),
        ("Deleting pod ", Verb::Del),
    ];
    let found = BEGINNINGS.iter().find(|(words, _)| text.starts_with(words));
    found.map(|(_, verb)| *verb)
}

/// `Ran pod sandbox ID with infra container: namespace/name/POD`
fn ran(time: Timestamp, rest: &str, entry: &Entry<'_>, calls: &mut Calls) {
    let Some(sandbox) = id(rest) else {
        return;
    };
    let named = after(rest, "container: ").and_then(|names| {
        let (names, _) = names.rsplit_once('/')?;
        slashed(names)
    });
    if let Some(named) = &named
        && calls.known.pod_of(sandbox).is_none()
    {
        calls.known.note_sandbox(sandbox, named);
    }
    let key: Key = (Verb::Add, sandbox.to_owned());
    if calls.what(&key).is_some() {
        let about = calls.container(&key);
        calls.succeeds(time, Verb::Add, about, Reporter::Runtime, None);
    }
    let pod = calls.known.pod_of(sandbox).cloned().or(named);
    let sandbox = RuntimeSandbox {
        id: sandbox.to_owned(),
        pod: pod.unwrap_or_default(),
        ready: Some(true),
        netns_path: field(entry, "netns").map(str::to_owned),
        ..RuntimeSandbox::default()
    };
    let source = SOURCE.to_owned();
    calls.tell(time, What::SandboxAdded { source, sandbox });
}
