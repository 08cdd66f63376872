//! What Calico's plugin and its IPAM say, of all ages: the old ones log their
//! environment and name the workload (`namespace.pod`), the newer ones name
//! the container in each line.
//!
//! Of an environment only CNI's own variables are read; it can hold tokens.

use crate::entry::Entry;
use event::{Endpoint, PodRef, What, clock::Timestamp};

use super::{
    calls::{About, Calls, Key, Reporter, Verb},
    environment,
    tokens::{after, between, dotted, field, id, ips, pod},
};

/// Words of which one is in each of its lines that count.
pub(super) const NEEDLES: &[&str] = &[
    "Configured environment: [",
    "Extracted identifiers",
    "Calico CNI using IPs",
    "Calico CNI IPAM",
    "Auto assigning IP",
    "Wrote updated endpoint",
    "WorkloadEndpoint",
    "address using",
    "Releasing IP address(es)",
    "/endpoint/",
    "Delete empty Key",
    "Key not found error",
    "Command completed without error",
    "Cleaning up netns",
    "CleanUpNamespace called",
    "workload's device in netns",
    "Teardown processing complete",
];

const PLUGIN: &str = "calico";
/// Where its endpoints are.
const STORE: &str = "calico";
/// How long nothing has to be said against a deletion.
const DOUBT: std::time::Duration = std::time::Duration::from_secs(2);

/// What is being told of Calico.
#[derive(Debug, Default)]
pub(super) struct Calico {
    /// The deletion of an endpoint that was begun.
    pending: Option<(Timestamp, Endpoint)>,
    /// An endpoint that was put into etcd: who did it says so, too.
    put: Option<(Timestamp, Endpoint)>,
}

/// Lines of a call that name its container, and what is called.
const NAMED: &[(&str, Verb, Step)] = &[
    ("Extracted identifiers for CmdAdd", Verb::Add, Step::Runs),
    ("Calico CNI IPAM request count", Verb::Add, Step::Ipam),
    ("Auto assigning IP", Verb::Add, Step::Ipam),
    (
        "Calico CNI IPAM assigned addresses",
        Verb::Add,
        Step::Assigned,
    ),
    ("Calico CNI using IPs", Verb::Add, Step::Uses),
    (
        "Wrote updated endpoint to datastore",
        Verb::Add,
        Step::Wrote,
    ),
    ("Extracted identifiers for CmdDel", Verb::Del, Step::Runs),
    ("Releasing IP address(es)", Verb::Del, Step::Runs),
    ("Cleaning up netns", Verb::Del, Step::Runs),
    (
        "CleanUpNamespace called with no netns",
        Verb::Del,
        Step::Runs,
    ),
    ("Deleting workload's device in netns", Verb::Del, Step::Runs),
    ("Releasing address using", Verb::Del, Step::Ipam),
    ("Released address using", Verb::Del, Step::Assigned),
    ("Teardown processing complete", Verb::Del, Step::Done),
];

/// What a line says of its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Runs,
    Ipam,
    /// Its IPAM has answered.
    Assigned,
    /// It uses these addresses.
    Uses,
    /// It has written the endpoint, the last thing that it does.
    Wrote,
    Done,
}

impl Calico {
    /// Takes a message in.
    pub(super) fn entry(&mut self, time: Timestamp, entry: &Entry<'_>, calls: &mut Calls) {
        let text = &*entry.message;
        self.doubt(time, text, calls);
        if let Some(environment) = after(text, "Configured environment: [") {
            if let Some((verb, about)) = environment::read(environment, entry) {
                self.settle(calls);
                let plugin = Some(PLUGIN.to_owned());
                calls.begins(time, verb, About { plugin, ..about });
            }
            return;
        }
        if let Some(endpoint) = deleted(text) {
            self.settle(calls);
            if let Some(key) = key_of(entry, calls, Verb::Del, Some(&endpoint.pod)) {
                calls.goes_on(time, &key);
            }
            self.pending = Some((time, endpoint));
            return;
        }
        if text.contains("does not match WorkloadEndpoint") {
            kept(time, entry, calls);
            return;
        }
        if text.contains("Set succeeded") {
            self.put(calls);
            self.put = set(entry).map(|endpoint| (time, endpoint));
            return;
        }
        if let Some((_, verb, step)) = NAMED.iter().find(|(words, ..)| text.contains(words)) {
            self.step(time, entry, calls, (*verb, *step));
        } else if text.contains("Extracted identifiers") {
            extracted(time, entry, calls);
        }
    }

    /// Tells what nothing was said against.
    pub(super) fn settle(&mut self, calls: &mut Calls) {
        if let Some((time, endpoint)) = self.pending.take() {
            calls.tell(time, What::EndpointDeleted { endpoint });
        }
        self.put(calls);
    }

    /// Tells of an endpoint of which only etcd's client has told.
    fn put(&mut self, calls: &mut Calls) {
        if let Some((time, endpoint)) = self.put.take() {
            calls.tell(time, What::EndpointWritten { endpoint });
        }
    }

    /// The endpoint that was to be deleted was not there.
    pub(super) fn was_not_there(&mut self) {
        self.pending = None;
    }

    /// What a line says of the deletion before it.
    fn doubt(&mut self, time: Timestamp, text: &str, calls: &mut Calls) {
        let Some((at, _)) = &self.pending else {
            return;
        };
        let apart = time.since(*at).max(at.since(time));
        let absent = text.contains("Key not found error")
            || text.contains("resource does not exist: WorkloadEndpoint")
            || text.contains("WorkloadEndpoint does not exist");
        if absent && apart <= DOUBT {
            self.was_not_there();
            return;
        }
        let done = text.contains("Delete empty Key") || text.contains("Command completed without");
        if done || apart > DOUBT {
            self.settle(calls);
        }
    }

    fn step(
        &mut self,
        time: Timestamp,
        entry: &Entry<'_>,
        calls: &mut Calls,
        (verb, step): (Verb, Step),
    ) {
        let text = &*entry.message;
        let Some(key) = key_of(entry, calls, verb, None) else {
            if step == Step::Wrote {
                self.written(time, entry, calls, None);
            }
            return;
        };
        match step {
            Step::Runs => calls.goes_on(time, &key),
            Step::Ipam => calls.ipam_begins(time, &key),
            Step::Assigned => {
                let given = ["IPv4", "IPv6"].map(|key| field(entry, key).unwrap_or_default());
                calls.ipam_ends(time, &key, ips(&given.join(" ")));
            }
            Step::Uses => {
                let used = between(text, "using IPs: [", "]").map(ips);
                calls.gives(time, &key, used.unwrap_or_default());
            }
            Step::Wrote => {
                self.written(time, entry, calls, Some(&key));
                let about = calls.container(&key);
                calls.succeeds(time, verb, about, Reporter::Plugin, None);
            }
            Step::Done => {
                self.settle(calls);
                let about = calls.container(&key);
                calls.succeeds(time, verb, about, Reporter::Plugin, None);
            }
        }
    }

    /// The endpoint of the call that says it has written it.
    fn written(
        &mut self,
        time: Timestamp,
        entry: &Entry<'_>,
        calls: &mut Calls,
        key: Option<&Key>,
    ) {
        let about = key.and_then(|key| calls.what(key)).cloned();
        let about = about.unwrap_or_default();
        let whose = pod_of(entry).unwrap_or(about.pod);
        let ifname = about.ifname.unwrap_or_else(|| String::from("eth0"));
        let (Some(namespace), Some(name)) = (&whose.namespace, &whose.name) else {
            return;
        };
        let workload = format!("{namespace}.{name}");
        let node = entry.host.unwrap_or_default();
        let own = field(entry, "WorkloadEndpoint").filter(|name| !name.is_empty());
        let put = self.put.take_if(|(_, put)| put.pod.name == whose.name);
        let put = put.map(|(_, put)| put);
        let given = key.map(|key| calls.ips(key)).unwrap_or_default();
        let endpoint = Endpoint {
            store: STORE.to_owned(),
            key: match own {
                Some(own) => own.to_owned(),
                None => match &put {
                    Some(put) => put.key.clone(),
                    None => key_in_etcd(node, &workload, &ifname),
                },
            },
            pod: whose,
            ifname: Some(ifname),
            container_id: Some(about.container_id).filter(|id| !id.is_empty()),
            ips: match put {
                Some(put) if given.is_empty() => put.ips,
                _ => given,
            },
        };
        calls.tell(time, What::EndpointWritten { endpoint });
    }
}

/// The call that a line is about: by the container that it names, which may
/// be news; by its workload; or that of the line before.
fn key_of(entry: &Entry<'_>, calls: &mut Calls, verb: Verb, whose: Option<&PodRef>) -> Option<Key> {
    if let Some(container) = field(entry, "ContainerID").and_then(id) {
        let about = About {
            container_id: container.to_owned(),
            pod: pod_of(entry).unwrap_or_default(),
            plugin: Some(PLUGIN.to_owned()),
            pid: entry.pid,
            ..About::default()
        };
        return Some(calls.about(entry.time?, verb, about));
    }
    let workload = || field(entry, "Workload").and_then(dotted);
    let is_its = |key: &Key| key.0 == verb;
    match whose.cloned().or_else(workload) {
        Some(pod) => calls.of_pod(&pod).filter(is_its),
        None => calls.latest(verb),
    }
}

/// The pod that a line names: `Namespace` and `Pod`, or `Workload`.
fn pod_of(entry: &Entry<'_>) -> Option<PodRef> {
    let named = || pod(field(entry, "Namespace")?, field(entry, "Pod")?);
    named().or_else(|| field(entry, "Workload").and_then(dotted))
}

/// Older versions list the identifiers of an ADD as they are held in memory;
/// those of a DEL stand beside the message.
fn extracted(time: Timestamp, entry: &Entry<'_>, calls: &mut Calls) {
    let text = &*entry.message;
    let part = |from: &str| between(text, from, "\"");
    let listed = part("ContainerID:\"").and_then(id);
    if let Some(container) = listed {
        let whose = part("Namespace:\"").zip(part("Pod:\""));
        let about = About {
            container_id: container.to_owned(),
            pod: whose
                .and_then(|(ns, name)| pod(ns, name))
                .unwrap_or_default(),
            plugin: Some(PLUGIN.to_owned()),
            pid: entry.pid,
            ..About::default()
        };
        let verb = match calls.current() {
            Some((verb, of)) if of == container => verb,
            _ => Verb::Add,
        };
        calls.about(time, verb, about);
    }
}

/// `Delete Key: /calico/v1/host/NODE/workload/k8s/NAMESPACE.POD/endpoint/eth0`
fn deleted(text: &str) -> Option<Endpoint> {
    let key = after(text, "Delete Key: ")?.split(' ').next()?;
    let key = key.trim_end_matches('"');
    endpoint(key)
}

/// What an endpoint's key in etcd says.
fn endpoint(key: &str) -> Option<Endpoint> {
    let rest = key.strip_prefix("/calico/v1/host/")?;
    let (_, rest) = rest.split_once("/workload/")?;
    let (_, rest) = rest.split_once('/')?;
    let (workload, ifname) = rest.split_once("/endpoint/")?;
    let bare = !ifname.is_empty() && !ifname.contains('/');
    bare.then(|| Endpoint {
        store: STORE.to_owned(),
        key: key.to_owned(),
        pod: dotted(workload).unwrap_or_default(),
        ifname: Some(ifname.to_owned()),
        ..Endpoint::default()
    })
}

fn key_in_etcd(node: &str, workload: &str, ifname: &str) -> String {
    format!("/calico/v1/host/{node}/workload/k8s/{workload}/endpoint/{ifname}")
}

/// `Set succeeded key=WorkloadEndpoint(node=, orchestrator=, workload=, name=)`
fn set(entry: &Entry<'_>) -> Option<Endpoint> {
    let text = match entry.field("key") {
        Some(key) => key,
        None => &entry.message,
    };
    let of = after(text, "WorkloadEndpoint(")?;
    let part = |from: &str| {
        let value = after(of, from)?;
        value.get(..value.find([',', ')'])?)
    };
    let (node, workload, ifname) = (part("node=")?, part("workload=")?, part("name=")?);
    let value = entry.field("value").unwrap_or_default();
    // The list that is of single addresses; others are of nets.
    let lists = value.split('[').filter_map(|list| list.split(']').next());
    let mut own = lists.filter(|list| list.ends_with("/32") || list.ends_with("/128"));
    Some(Endpoint {
        store: STORE.to_owned(),
        key: key_in_etcd(node, workload, ifname),
        pod: dotted(workload)?,
        ifname: Some(ifname.to_owned()),
        container_id: None,
        ips: own.next().map(ips).unwrap_or_default(),
    })
}

/// A DEL that found the endpoint to be another sandbox's.
fn kept(time: Timestamp, entry: &Entry<'_>, calls: &mut Calls) {
    let Some(key) = key_of(entry, calls, Verb::Del, None) else {
        return;
    };
    let whose = pod_of(entry).or_else(|| Some(calls.what(&key)?.pod.clone()));
    let Some(whose) = whose else {
        return;
    };
    let named = field(entry, "WorkloadEndpoint").filter(|name| super::tokens::is_name(name));
    // The whole endpoint is printed beside it, as it is held in memory.
    let whole = entry.fields.iter().map(|(_, value)| value.as_ref());
    let mut whole = whole.chain(std::iter::once(&*entry.message));
    let owner = whole.find_map(|text| id(after(text, ", ContainerID:\"")?));
    let ifname = calls.what(&key).and_then(|about| about.ifname.clone());
    let label = whose.label();
    let endpoint = Endpoint {
        store: STORE.to_owned(),
        key: named.unwrap_or(&label).to_owned(),
        pod: whose,
        ifname: Some(ifname.unwrap_or_else(|| String::from("eth0"))),
        container_id: owner.map(str::to_owned),
        ips: Vec::new(),
    };
    calls.tell(
        time,
        What::EndpointKept {
            del: key.1,
            endpoint,
        },
    );
}
