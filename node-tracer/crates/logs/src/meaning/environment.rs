//! The environment that a CNI plugin was called with, as it is printed. Only
//! CNI's own variables, and the pod's in `CNI_ARGS`, are read: others can hold
//! tokens.

use super::{
    calls::{About, Verb},
    tokens::{id, is_uid, pod},
};
use crate::entry::Entry;
use event::PodRef;

/// What is called, and for what; `None` if that is not told.
pub(super) fn read(text: &str, entry: &Entry<'_>) -> Option<(Verb, About)> {
    let verb = Verb::parse(value(text, "CNI_COMMAND")?)?;
    let container_id = value(text, "CNI_CONTAINERID").and_then(id)?;
    Some((
        verb,
        About {
            container_id: container_id.to_owned(),
            pod: pod_in(text),
            ifname: value(text, "CNI_IFNAME").map(str::to_owned),
            netns_path: value(text, "CNI_NETNS").map(str::to_owned),
            pid: None,
            plugin: None,
            caller: entry.ident.map(str::to_owned),
        },
    ))
}

/// The pod that `CNI_ARGS` names.
pub(super) fn pod_in(text: &str) -> PodRef {
    let names = value(text, "K8S_POD_NAMESPACE").zip(value(text, "K8S_POD_NAME"));
    let named = names.and_then(|(namespace, name)| pod(namespace, name));
    let uid = value(text, "K8S_POD_UID").filter(|uid| is_uid(uid));
    PodRef {
        uid: uid.map(str::to_owned),
        ..named.unwrap_or_default()
    }
}

/// A variable's value. It is looked for wherever it stands: lines that were
/// folded may have a space too many.
pub(super) fn value<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let mut from = 0;
    loop {
        let at = text.get(from..)?.find(name)? + from;
        let before = text.get(..at)?.chars().next_back();
        let value = text.get(at + name.len()..)?.strip_prefix('=');
        let begins = before.is_none_or(|c| !c.is_ascii_alphanumeric() && c != '_');
        if let Some(value) = value.filter(|_| begins) {
            let end = value.find([' ', ';', ']', '"', ')', '\t', '\n']);
            return value.get(..end.unwrap_or(value.len()));
        }
        from = at + name.len();
    }
}
