//! What the kubelet says of pods, of sandboxes and of CNI calls: its own ones
//! while it had dockershim, the runtime's since.

use std::time::Duration;

use crate::entry::Entry;
use event::{PodRef, RuntimeSandbox, What, clock::Timestamp};

use super::{
    calls::{About, Calls, Reporter, Verb, unnamed},
    failure::{self, Failure},
    tokens::{after, between, field, id, is_uid, kubelet_pod, kubelet_pods, slashed, slashed_pods},
};

/// Words of which one is in each of its lines that count.
pub(super) const NEEDLES: &[&str] = &[
    "SyncLoop",
    "from runtime service failed",
    "Error adding ",
    "Error while adding to cni",
    "Error deleting ",
    "network for sandbox",
    "cni failed to ",
    "failed (delete)",
    "namespace for the terminated container",
];

/// Who lists the sandboxes.
const SOURCE: &str = "kubelet";

/// What is being told by a kubelet.
#[derive(Debug, Default)]
pub(super) struct Kubelet {
    /// A failure of which the next line will say whose it is.
    unplaced: Option<(Timestamp, Failure)>,
    /// A failure of a sandbox of which the next lines will name the pod.
    unnamed: Option<(Timestamp, Failure, About)>,
}

/// Lines about one failure come within this time.
const NAMED: Duration = Duration::from_secs(1);

impl Kubelet {
    /// Takes a message in.
    pub(super) fn entry(&mut self, time: Timestamp, entry: &Entry<'_>, calls: &mut Calls) {
        let text = &*entry.message;
        if let Some(rest) = text.strip_prefix("SyncLoop") {
            sync_loop(time, rest, entry, calls);
        } else if let Some(rest) = after(text, "namespace for the terminated container ") {
            if let Some(sandbox) = id(rest) {
                ended(time, sandbox, calls);
            }
        } else if let Some(failure) = failure::of_dockershim(text) {
            self.own(time, failure, entry, calls);
        } else {
            self.told(time, entry, calls);
        }
    }

    /// Tells what nothing more can be said of.
    pub(super) fn passes(&mut self, now: Timestamp, calls: &mut Calls) {
        let apart = |at: Timestamp| now.since(at).max(at.since(now));
        if self
            .unnamed
            .as_ref()
            .is_some_and(|(at, ..)| apart(*at) > NAMED)
        {
            self.settle(calls);
        }
    }

    /// What comes next is of another part of the story, or nothing does.
    pub(super) fn end(&mut self, calls: &mut Calls) {
        if let Some((time, failure)) = self.unplaced.take()
            && failure.verb == Verb::Del
        {
            let about = About {
                container_id: unnamed(&failure.pod),
                plugin: failure.plugin,
                ..About::default()
            };
            calls.fails(time, Verb::Del, about, Reporter::Plugin, &failure.message);
        }
        self.settle(calls);
    }

    /// Tells of a failure, whether or not its pod was named.
    fn settle(&mut self, calls: &mut Calls) {
        if let Some((time, failure, about)) = self.unnamed.take() {
            let said = &failure.message;
            calls.fails(time, failure.verb, about, Reporter::Kubelet, said);
        }
    }

    /// What dockershim says as the plugin has just ended.
    fn own(&mut self, time: Timestamp, failure: Failure, entry: &Entry<'_>, calls: &mut Calls) {
        let about = match &failure.container_id {
            Some(_) => about(&failure, entry),
            None => match calls.latest(failure.verb) {
                Some(key) => About {
                    plugin: failure.plugin.clone(),
                    ..calls.container(&key)
                },
                None => {
                    self.unplaced = Some((time, failure));
                    return;
                }
            },
        };
        let said = &failure.message;
        calls.fails(time, failure.verb, about, Reporter::Plugin, said);
    }

    /// What the runtime has answered.
    fn told(&mut self, time: Timestamp, entry: &Entry<'_>, calls: &mut Calls) {
        let text = &*entry.message;
        let direct = text.contains("from runtime service failed");
        let errors = ["err", "error"];
        let mut said = errors.iter().filter_map(|key| entry.field(key));
        let sandbox = field(entry, "podSandboxID");
        let failure = failure::read(text, sandbox);
        let failure = failure.or_else(|| said.find_map(|said| failure::read(said, sandbox)));
        let names = |it: &Failure| it.container_id.is_some() || it.pod.name.is_some();
        let is_told = failure.as_ref().is_some_and(names) || whose(entry).is_some();
        if let (false, Some(failure)) = (is_told, failure::of_plugin(text)) {
            let said = &failure.message;
            calls.fails(
                time,
                Verb::Del,
                about(&failure, entry),
                Reporter::Plugin,
                said,
            );
            return;
        }
        let Some(mut failure) = failure else {
            return;
        };
        if failure.pod.name.is_none()
            && let Some(pod) = whose(entry)
        {
            failure.pod = pod;
        }
        if failure.container_id.is_none() {
            // Those that name only the pod repeat what was said before, if
            // anything was.
            if failure.verb == Verb::Add || failure.pod.name.is_none() {
                return;
            }
            let held = self.unnamed.as_ref().map(|(_, held, _)| held);
            let held = held.filter(|held| is_same(held, &failure));
            let held = held.and_then(|held| held.container_id.clone());
            let known = held.or_else(|| calls.known.sandbox_of(&failure.pod));
            failure.container_id = Some(known.unwrap_or_else(|| unnamed(&failure.pod)));
        }
        let began = match self.unplaced.take() {
            Some((at, before)) if is_same(&before, &failure) && at <= time => Some(at),
            _ => None,
        };
        let time = began.unwrap_or(time);
        let mut about = about(&failure, entry);
        let id = &failure.container_id;
        if let Some((_, held, own)) = &mut self.unnamed
            && held.container_id == *id
        {
            own.pod.uid = own.pod.uid.take().or(about.pod.uid);
            if own.pod.name.is_none() {
                own.pod.name = about.pod.name;
                own.pod.namespace = about.pod.namespace;
            }
            if own.pod.uid.is_some() {
                self.settle(calls);
            }
            return;
        }
        self.settle(calls);
        if !direct {
            let said = &failure.message;
            calls.fails(time, failure.verb, about, Reporter::Repeated, said);
            return;
        }
        let key = (failure.verb, about.container_id.clone());
        if calls.is_told(&key, time, Reporter::Kubelet) {
            return;
        }
        let known = calls.known.pod_of(&about.container_id);
        if let Some(known) = known.filter(|known| known.name.is_some()) {
            about.pod = known.clone();
            let said = &failure.message;
            calls.fails(time, failure.verb, about, Reporter::Kubelet, said);
            return;
        }
        self.unnamed = Some((time, failure, about));
    }
}

/// Whether two lines quote the same; lines that were folded may lack a space.
fn is_same(one: &Failure, other: &Failure) -> bool {
    let words = |failure: &Failure| -> String { failure.message.split_whitespace().collect() };
    words(one) == words(other)
}

/// The pod beside a message.
fn whose(entry: &Entry<'_>) -> Option<PodRef> {
    let pod = entry.field("pod").and_then(slashed)?;
    let uid = entry.field("podUID").filter(|uid| is_uid(uid));
    Some(PodRef {
        uid: uid.map(str::to_owned),
        ..pod
    })
}

fn about(failure: &Failure, entry: &Entry<'_>) -> About {
    // Calico is the only one that has these.
    let calico = || failure.message.contains("WorkloadEndpoint(");
    let plugin = failure.plugin.clone();
    About {
        container_id: failure.container_id.clone().unwrap_or_default(),
        pod: failure.pod.clone(),
        plugin: plugin.or_else(|| calico().then(|| String::from("calico"))),
        caller: Some(String::from(entry.ident.unwrap_or(SOURCE))),
        ..About::default()
    }
}

/// `(ADD, "api"): "name_namespace(uid)"`, or the newer ` ADD` with fields.
fn sync_loop(time: Timestamp, rest: &str, entry: &Entry<'_>, calls: &mut Calls) {
    let rest = rest.trim_start();
    if rest.starts_with("(PLEG)") {
        lifecycle(time, rest, entry, calls);
        return;
    }
    let is = |verb: &str| {
        let rest = rest.trim_start_matches('(');
        rest.starts_with(verb)
    };
    let (added, removed) = (is("ADD"), is("REMOVE"));
    if !added && !removed && !is("DELETE") && !is("UPDATE") && !is("RECONCILE") {
        return;
    }
    let pods: Vec<PodRef> = match entry.field("pods") {
        Some(pods) => slashed_pods(pods).collect(),
        None => kubelet_pods(rest).collect(),
    };
    let from_api = match entry.field("source") {
        Some(source) => source == "api",
        None => rest.contains("\"api\""),
    };
    for pod in pods {
        if removed && from_api {
            let uid = calls.known.uid(&pod);
            let pod = PodRef { uid, ..pod };
            calls.tell(time, What::PodDeleted { pod });
        } else if !removed {
            calls.known.note_pod(&pod);
        }
    }
}

/// The pod lifecycle event generator: `event for pod` with fields, or
/// `"name_namespace(uid)", event: &pleg.PodLifecycleEvent{ID:"", Type:"", Data:""}`.
fn lifecycle(time: Timestamp, rest: &str, entry: &Entry<'_>, calls: &mut Calls) {
    // Newer ones print it as JSON.
    let event = entry.field("event").unwrap_or(rest).replace("\":", ":");
    let part = |name: &str| {
        let value = after(&event, name)?;
        let value = value.trim_start_matches('"');
        let end = value.find(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        value.get(..end.unwrap_or(value.len()))
    };
    let named = entry.field("pod").and_then(slashed);
    let older = || between(rest, "\"", "\"").and_then(kubelet_pod);
    let Some(pod) = named.or_else(older) else {
        return;
    };
    let uid = pod.uid.clone();
    let told = || part("ID:").filter(|uid| is_uid(uid)).map(str::to_owned);
    let pod = PodRef {
        uid: uid.or_else(told),
        ..pod
    };
    calls.known.note_pod(&pod);
    let (Some(kind), Some(container)) = (part("Type:"), part("Data:").and_then(id)) else {
        return;
    };
    if kind == "ContainerStarted" {
        // The sandbox is the first container that is.
        calls.tell(time, What::PodStarted { pod: pod.clone() });
    }
    // Only sandboxes were told of before; others are the pod's containers.
    let known = calls.known.pod_of(container);
    if kind == "ContainerDied" && known.is_some_and(|known| known.name == pod.name) {
        ended(time, container, calls);
    }
}

/// A sandbox's infra container has ended.
fn ended(time: Timestamp, sandbox: &str, calls: &mut Calls) {
    let Some(pod) = calls.known.pod_of(sandbox).cloned() else {
        return;
    };
    let sandbox = RuntimeSandbox {
        id: sandbox.to_owned(),
        pod,
        ready: Some(false),
        ..RuntimeSandbox::default()
    };
    let source = SOURCE.to_owned();
    calls.tell(time, What::SandboxAdded { source, sandbox });
}
