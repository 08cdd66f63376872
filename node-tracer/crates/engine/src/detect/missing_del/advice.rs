//! What to do about attachments that nobody has taken back, in order.

use crate::detect::{
    View,
    facts::{calls::give_back, command::is_plain, stays::Stays},
    heard, logged_of,
    missing_del::Missing,
    remove_sandbox,
};
use event::{StoreKind, wording::subjects::short_id};

/// Commands that are given one by one.
const TOLD: usize = 3;

/// In order.
pub(super) fn of(view: &View<'_>, all: &[&Missing<'_>]) -> Vec<String> {
    if all.iter().all(|each| each.left_over) {
        return vec![String::from(
            "nothing has to be done: no configured network gives these addresses out; the \
             leaked-reservation finding on the store says what can go",
        )];
    }
    let mut advice = Vec::new();
    let plain = |missing: &&&Missing<'_>| is_plain(missing.case.id);
    let first = all.iter().find(plain);
    let listed = heard(view.model);
    let known = |missing: &&&Missing<'_>| {
        listed.is_some_and(|list| list.of_container(missing.case.id).is_some())
    };
    if let Some(first) = first {
        advice.push(format!(
            "find out why DEL was not called: the runtime was killed or restarted, the node went \
             down, or the pod was force-deleted while a task of it was stuck; {}",
            logged_of(first.case.id)
        ));
    }
    if let Some(missing) = all.iter().filter(plain).find(known) {
        advice.push(format!(
            "the runtime still has {} of them: it calls DEL itself if it is asked to finish: {}",
            all.iter().filter(known).count(),
            remove_sandbox(missing.case.id),
        ));
    }
    let left: Vec<&Missing<'_>> = all.iter().filter(|each| !known(each)).copied().collect();
    let held = left.iter().filter_map(|each| match each.stays {
        Stays::Reserved { holder, .. } => give_back(view.model, holder),
        _ => None,
    });
    let mut commands = held.peekable();
    if commands.peek().is_some() {
        if let Some(id) = first.map(|missing| short_id(missing.case.id)) {
            advice.push(format!(
                "look once more before each reservation is given back: neither crictl pods --id \
                 {id} nor grep -rl {id} /proc/[0-9]*/cgroup may print anything"
            ));
        }
        advice.push(String::from(
            "then move its file away, under host-local's own lock and only if it still says the \
             same:",
        ));
        advice.extend(commands.take(TOLD));
        if left.len() > TOLD {
            advice.push(String::from(
                "and so on with the others: -o json has them under reservations",
            ));
        }
    }
    let other = left.iter().find_map(|each| match each.stays {
        Stays::Reserved { kind, .. } => kind.filter(|kind| *kind != StoreKind::HostLocal),
        _ => None,
    });
    if let Some(kind) = other {
        advice.push(format!(
            "have {0} give the addresses back by its own means (restart its agent on the node, or \
             its own tool); do not edit {0}'s store",
            kind.as_str()
        ));
    }
    if all
        .iter()
        .all(|each| !matches!(each.stays, Stays::Reserved { .. }))
    {
        advice.push(String::from(
            "see in the IPAM's own records whether it still has the address for this sandbox; if \
             not, nothing has to be done",
        ));
    }
    advice
}
