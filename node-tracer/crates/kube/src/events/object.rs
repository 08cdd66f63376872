//! What an Event says, by the rules of `events.k8s.io/v1`.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use serde_json::{Value, json};

use event::{
    PodRef,
    clock::Timestamp,
    finding::{Finding, Phase, Rule, Severity, State},
    wording::{duration::length, escape::Printable},
};

/// Who reports: of this name is also the label to select by.
pub(super) const CONTROLLER: &str = "node-tracer";
/// Labels to find the Events of an address by: the finding's first IPv4 and its
/// first IPv6 address. A label has one value, and a pod can have both.
const ADDRESS: &str = "node-tracer/address";
const ADDRESS_V6: &str = "node-tracer/address-v6";
/// Bytes that a note may have.
const MOST: usize = 1_024;
/// Bytes that the name of the reporting instance may have.
const INSTANCE: usize = 128;
/// Where Events of what has no namespace are: `default` is refused for them by
/// API servers of 1.19 and 1.20, this by none.
const CLUSTER: &str = "kube-system";

/// Whose matter a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Whose {
    /// Of a user of the node, who can have as many as it likes.
    User(u32),
    /// Of the node or of a container that is in no pod.
    Node,
    /// Of a pod, by a hash of all that is known of it.
    Pod(u64),
}

/// A change of a finding, as far as it gets into Events.
#[derive(Clone, Debug)]
pub(super) struct EventChange {
    pub(super) id: String,
    pub(super) state: State,
    /// It is not over, but not bad enough either to be told of now.
    pub(super) mild: bool,
    pub(super) severity: Severity,
    uid: Option<u32>,
    time: Timestamp,
    rule: Rule,
    phase: Option<Phase>,
    note: String,
    pod: Option<PodRef>,
    ipv4: Option<Ipv4Addr>,
    ipv6: Option<Ipv6Addr>,
}

impl EventChange {
    pub(super) fn of(time: Timestamp, finding: &Finding, state: State) -> Self {
        Self {
            id: finding.id.clone(),
            state,
            mild: false,
            time,
            rule: finding.rule,
            severity: finding.severity,
            uid: finding.detail.uid,
            phase: finding.detail.phase,
            note: note(time, finding, state),
            pod: finding.pod.clone(),
            ipv4: finding.addresses.iter().find_map(|address| match address {
                IpAddr::V4(address) => Some(*address),
                IpAddr::V6(_) => None,
            }),
            ipv6: finding.addresses.iter().find_map(|address| match address {
                IpAddr::V4(_) => None,
                IpAddr::V6(address) => Some(*address),
            }),
        }
    }

    pub(super) fn whose(&self) -> Whose {
        match (&self.pod, self.uid) {
            (Some(pod), _) => {
                let mut hasher = DefaultHasher::new();
                pod.hash(&mut hasher);
                Whose::Pod(hasher.finish())
            }
            (None, Some(uid)) => Whose::User(uid),
            (None, None) => Whose::Node,
        }
    }

    /// The same of one that nobody is to be told of now.
    pub(super) fn into_mild(self) -> Self {
        Self { mild: true, ..self }
    }

    /// What is told later of the same stage: as it is then, since when it was.
    pub(super) fn with_news(&mut self, news: Self) {
        *self = Self {
            time: self.time,
            ..news
        };
    }

    /// Another one is another Event, with its own time.
    pub(super) fn stage(&self) -> &'static str {
        match (self.state, self.phase) {
            (State::Resolved, _) => "resolved",
            (_, _) if self.mild => "mild",
            (_, Some(phase)) => phase.as_str(),
            (_, None) => self.severity.as_str(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum About {
    Pod,
    Node,
}

/// An Event as it is created.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Object {
    pub(super) about: About,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) body: Value,
}

/// The Events of a finding: on the node, and on its pod, whether that still
/// exists or not.
pub(super) fn objects(told: &EventChange, node: &str) -> Vec<Object> {
    let mut objects = Vec::new();
    if let Some(PodRef {
        namespace: Some(namespace),
        name: Some(name),
        uid,
    }) = &told.pod
        && is_name(namespace, 63)
        && is_name(name, 253)
    {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name,
        });
        if let Some(uid) = uid {
            pod["uid"] = json!(uid);
        }
        objects.push(object(told, node, About::Pod, namespace, pod));
    }
    if is_name(node, 253) {
        // kubelet's Events have the node's name for its UID, and this is what
        // `kubectl describe node` looks for.
        let regarding = json!({ "apiVersion": "v1", "kind": "Node", "name": node, "uid": node });
        objects.push(object(told, node, About::Node, CLUSTER, regarding));
    }
    objects
}

/// An Event that is only checked, never written: whether it could be.
pub(super) fn trial(node: &str, now: Timestamp) -> Option<Object> {
    let told = EventChange {
        id: String::from("trial"),
        state: State::Open,
        mild: false,
        time: now,
        rule: Rule::EventsLost,
        severity: Severity::Info,
        uid: None,
        phase: None,
        note: String::from("whether Events can be written"),
        pod: None,
        ipv4: None,
        ipv6: None,
    };
    objects(&told, node).pop()
}

fn object(
    told: &EventChange,
    node: &str,
    about: About,
    namespace: &str,
    regarding: Value,
) -> Object {
    let resolved = told.state == State::Resolved;
    let kind = match about {
        About::Pod => "pod",
        About::Node => "node",
    };
    let name = format!(
        "{}.{}.{}.{kind}.{}",
        told.rule.as_str(),
        told.id,
        short(node),
        told.stage()
    );
    let body = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels(told),
        },
        "eventTime": told.time.to_string(),
        "reportingController": CONTROLLER,
        "reportingInstance": cut(node, INSTANCE, ""),
        "action": if resolved { "Resolved" } else { "Detected" },
        "reason": reason(told.rule, resolved),
        "type": if resolved { "Normal" } else { "Warning" },
        "note": told.note,
        "regarding": regarding,
    });
    Object {
        about,
        namespace: namespace.to_owned(),
        name,
        body,
    }
}

fn labels(told: &EventChange) -> Value {
    let mut labels = json!({ "app.kubernetes.io/name": CONTROLLER });
    if let Some(address) = told.ipv4 {
        labels[ADDRESS] = json!(address.to_string());
    }
    if let Some(address) = told.ipv6 {
        labels[ADDRESS_V6] = json!(label_value(address));
    }
    labels
}

/// As RFC 5952 writes it, with `-` for `:`, which no label's value can have. Nor
/// can one begin or end with a `-`: `::1` is `0--1`.
fn label_value(address: Ipv6Addr) -> String {
    let mut value = address.to_string().replace(':', "-");
    if value.starts_with('-') {
        value.insert(0, '0');
    }
    if value.ends_with('-') {
        value.push('0');
    }
    value
}

/// A node's name, short: nodes that share a kernel (kind, k3d) share its boot
/// ID, and what has no subject of the kernel's has one finding's ID on all.
fn short(node: &str) -> String {
    // FNV-1a, 32 bits.
    let hash = node.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    format!("{hash:08x}")
}

/// `GhostSandbox`; `GhostSandboxResolved`.
pub(crate) fn reason(rule: Rule, resolved: bool) -> String {
    let mut reason = String::new();
    for word in rule.as_str().split('-') {
        let mut letters = word.chars();
        reason.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        reason.push_str(letters.as_str());
    }
    if resolved {
        reason += "Resolved";
    }
    reason
}

/// The title, what to do first, and where to read on.
fn note(time: Timestamp, finding: &Finding, state: State) -> String {
    let title = Printable(&finding.title);
    let text = match (state, finding.advice.first()) {
        (State::Resolved, _) => {
            let lasted = length(time.since(finding.since));
            format!("over after {lasted}: {title}")
        }
        (_, Some(first)) => format!("{title}. First: {}", Printable(first)),
        (_, None) => title.to_string(),
    };
    let end = format!(" (node-tracer finding {})", Printable(&finding.id));
    cut(&text, MOST.saturating_sub(end.len()), "…") + &end
}

/// At most so many bytes of it, with this at the end if it is not all.
fn cut(text: &str, most: usize, end: &str) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let mut at = most.saturating_sub(end.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    format!("{}{end}", text.get(..at).unwrap_or_default())
}

/// Whether it can be an object's name: it becomes a part of a path.
pub(crate) fn is_name(text: &str, most: usize) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-');
    (1..=most).contains(&text.len()) && text.chars().all(plain) && !text.starts_with('.')
}
