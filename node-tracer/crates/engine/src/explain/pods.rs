//! What runtimes and the API server say of a subject's sandboxes and pods.

use std::collections::{BTreeMap, BTreeSet};

use super::{related::Related, resolve::Seeds};
use crate::{
    detect::View,
    model::{Model, pods::reference},
};
use event::explanation::{PodPart, SandboxPart};
use event::{Pod, PodRef, clock::Timestamp, order::Order as _};

/// Sandboxes, in every list that has them.
pub(super) fn sandboxes(related: &Related<'_>) -> Vec<SandboxPart> {
    let listed = related.sandboxes.values();
    let mut parts: Vec<_> = listed
        .map(|(list, sandbox)| SandboxPart {
            source: list.source.clone(),
            endpoint: list.endpoint.clone(),
            sandbox: (*sandbox).clone(),
        })
        .collect();
    // A stable sort: of one sandbox the runtime's own answer stays first.
    parts.order_by_key(|part| part.sandbox.created);
    parts
}

/// Pods: as listed, or as missing from the list.
pub(super) fn pods(view: &View<'_>, seeds: &Seeds, related: &Related<'_>) -> Vec<PodPart> {
    let model = view.model;
    let names = names(related);
    let mut parts = Vec::new();
    let mut told: BTreeSet<&str> = BTreeSet::new();
    for uid in &related.uids {
        if told.contains(uid.as_str()) {
            continue;
        }
        // A mirror pod has two UIDs and is one pod.
        if let Some(pod) = model.pods.listed_pod(uid) {
            told.extend(pod.uids.iter().map(String::as_str));
            parts.push(on_list(model, pod, Some(true), None));
            continue;
        }
        let mut departed = model.pods.departed();
        let departed = departed.find(|(pod, _)| pod.uids.contains(uid));
        parts.push(match departed {
            Some((pod, at)) => on_list(model, pod, Some(false), Some(at)),
            None => {
                let name = names.get(uid.as_str());
                unlisted(view, related, uid, name.copied())
            }
        });
    }
    // Those of other nodes, as far as somebody asked.
    let cluster = seeds.address.and_then(|it| model.cluster.get(it));
    for pod in cluster.map_or(&[][..], |known| &known.pods) {
        if !pod.uids.iter().any(|uid| told.contains(uid.as_str())) {
            parts.push(PodPart {
                at: cluster.map(|known| known.at),
                ..on_list(model, pod, Some(true), None)
            });
        }
    }
    // A name that nobody has any more, or ever had.
    if let Some((namespace, name)) = &seeds.name
        && parts.is_empty()
        && let Some(list) = model.pods.list()
    {
        parts.push(PodPart {
            namespace: Some(namespace.clone()),
            name: Some(name.clone()),
            source: Some(list.source.clone()),
            at: Some(list.at),
            listed: Some(model.pods.namesake(namespace, name).is_some()),
            ..PodPart::default()
        });
    }
    parts
        .order_by(|a, b| (&a.namespace, &a.name, a.listed).cmp(&(&b.namespace, &b.name, b.listed)));
    parts
}

fn on_list(
    model: &Model,
    pod: &Pod,
    listed: Option<bool>,
    missing_since: Option<Timestamp>,
) -> PodPart {
    let list = model.pods.list();
    let PodRef {
        namespace,
        name,
        uid,
    } = reference(pod);
    PodPart {
        namespace,
        name,
        uid,
        phase: pod.phase.clone(),
        deletion: pod.deletion,
        node: pod.node.clone(),
        host_network: pod.host_network,
        ips: pod.ips.clone(),
        source: list.map(|list| list.source.clone()),
        at: list.map(|list| list.at),
        listed,
        missing_since,
        doubt: None,
    }
}

/// A pod that is known only from what is left of it on the node.
fn unlisted(view: &View<'_>, related: &Related<'_>, uid: &str, name: Option<&PodRef>) -> PodPart {
    use crate::model::pods::PodPresence;
    let list = view.model.pods.list();
    let mut entries = related.netns.values();
    let entry = entries.find(|entry| entry.sandbox.uid() == Some(uid));
    let missing_since = entry.and_then(|entry| match entry.sandbox.presence {
        PodPresence::Gone(at) | PodPresence::Unlisted(at) => Some(at),
        _ => None,
    });
    let doubt = list.and_then(|_| {
        if !uid.contains('-') {
            return Some("a static pod runs without the API");
        }
        let namespace = name.and_then(|name| name.namespace.as_deref());
        if missing_since.is_some() && !view.list_covers(namespace) {
            return Some(
                "the list has no pod of its namespace or none of this node, so the pod may exist",
            );
        }
        let is_older = entry.is_some_and(|entry| entry.sandbox.presence == PodPresence::Unknown);
        is_older.then_some("the list is older than the pod's sandbox")
    });
    PodPart {
        namespace: name.and_then(|name| name.namespace.clone()),
        name: name.and_then(|name| name.name.clone()),
        uid: Some(uid.to_owned()),
        source: list.map(|list| list.source.clone()),
        at: list.map(|list| list.at),
        listed: list.map(|_| false),
        missing_since,
        doubt: doubt.map(str::to_owned),
        ..PodPart::default()
    }
}

/// Names of pods as sandboxes have them, by UID.
fn names<'a>(related: &Related<'a>) -> BTreeMap<&'a str, &'a PodRef> {
    let entries = related.netns.values();
    let entries = entries.filter_map(|entry| entry.sandbox.pod.as_ref());
    let sandboxes = related.sandboxes.values().map(|(_, sandbox)| &sandbox.pod);
    let attachments = related.attachments.values();
    let attachments = attachments.filter_map(|attachment| attachment.pod.as_ref());
    let all = entries.chain(sandboxes).chain(attachments);
    all.filter(|pod| pod.name.is_some())
        .filter_map(|pod| Some((pod.uid.as_deref()?, pod)))
        .collect()
}
