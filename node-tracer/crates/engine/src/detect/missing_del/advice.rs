//! What to do about attachments that nobody has taken back, in order.

use crate::detect::{
    View,
    facts::{calls::is_host_locals, command::is_plain, stays::Stays},
    heard, logged_of,
    missing_del::Missing,
    remove_sandbox, repair,
};
use event::{StoreKind, wording::advice::commented};

/// In order.
pub(super) fn of(view: &View<'_>, all: &[&Missing<'_>]) -> Vec<String> {
    if all.iter().all(|each| each.left_over) {
        return vec![String::from(
            "nothing to do: no configured network gives these IPs out",
        )];
    }
    let mut advice = Vec::new();
    let plain = |missing: &&&Missing<'_>| is_plain(missing.case.id);
    let listed = heard(view.model);
    let known = |missing: &&&Missing<'_>| {
        listed.is_some_and(|list| list.of_container(missing.case.id).is_some())
    };
    if let Some(missing) = all.iter().filter(plain).find(known) {
        advice.push(format!(
            "remove the old sandbox: CRI still has {} of them and calls DEL then",
            all.iter().filter(known).count(),
        ));
        advice.push(commented(
            remove_sandbox(view.model, missing.case.id),
            "only if its pod is gone",
        ));
    }
    let left: Vec<&Missing<'_>> = all.iter().filter(|each| !known(each)).copied().collect();
    let is_repaired = left.iter().any(|each| match each.stays {
        Stays::Reserved { holder, .. } => is_host_locals(view.model, holder),
        _ => false,
    });
    if is_repaired {
        advice.extend(repair());
    }
    let other = left.iter().find_map(|each| match each.stays {
        Stays::Reserved { kind, .. } => kind.filter(|kind| *kind != StoreKind::HostLocal),
        _ => None,
    });
    if let Some(kind) = other {
        advice.push(format!(
            "have {0} free the IPs: restart its agent on the node, or use its own tool; do not \
             edit {0}'s store",
            kind.as_str()
        ));
    }
    if all
        .iter()
        .all(|each| !matches!(each.stays, Stays::Reserved { .. }))
    {
        advice.push(String::from(
            "see in the IPAM's records whether the IP is still reserved for this sandbox; if not, \
             nothing to do",
        ));
    }
    if all.iter().any(|each| each.successor.is_some()) {
        advice.push(String::from(
            "drain a node before you rename, change or remove its network: DEL runs with the \
             configuration of now",
        ));
    }
    let mut others = all.iter().filter(|each| each.successor.is_none());
    if let Some(first) = others.find(plain) {
        advice.push(String::from(
            "find out why DEL did not run: the runtime was killed, the node went down, or the pod \
             was force-deleted while a task of it hung",
        ));
        advice.push(commented(
            logged_of(first.case.id),
            "what was logged of the sandbox",
        ));
    }
    advice
}
