//! What the rules over the history of CNI calls have in common.

use crate::{
    detect::{
        View,
        facts::{common::label, ghosts},
        short_id,
    },
    model::{
        Model,
        calls::{CallResult, Failing, PodCalls},
    },
};
use std::{ffi::OsStr, net::IpAddr, time::Duration};

use event::{CniError, PodRef, ReservationHolder, StoreKind, clock::Timestamp, wording};

/// What was called for, and was not called for in so long, is over: the kubelet
/// waits five minutes at most before it tries again.
pub(in crate::detect) const SILENCE: Duration = Duration::from_secs(600);
/// How much of a plugin's words is claimed; the record has them whole.
const SAID: usize = 400;

const TITLED: usize = 60;

/// How a call ended that failed, in words.
pub(in crate::detect) fn failure(end: &CallResult) -> String {
    failure_in(end, SAID)
}

/// The same in fewer words.
pub(in crate::detect) fn short_failure(end: &CallResult) -> String {
    failure_in(end, TITLED)
}

fn failure_in(end: &CallResult, length: usize) -> String {
    match (end.signal, &end.error, end.exit_code) {
        (Some(signal), _, _) => format!(
            "was ended by {} after {:.1} s",
            wording::signal::name(signal),
            end.duration_ms / 1_000.0
        ),
        (None, Some(error), _) => format!("failed: {}", said_in(error, length)),
        (None, None, Some(code)) => {
            format!("failed with exit status {code}; its message is unknown")
        }
        (None, None, None) => String::from("failed; exit status unknown"),
    }
}

/// A plugin's error in one line: `no such device (code 999)`.
pub(in crate::detect) fn said(error: &CniError) -> String {
    said_in(error, SAID)
}

fn said_in(error: &CniError, length: usize) -> String {
    let details = error.details.as_deref().unwrap_or_default();
    let text = match (error.msg.trim(), details.trim()) {
        ("", "") => String::from("no message"),
        (msg, "") => msg.to_owned(),
        ("", details) => details.to_owned(),
        (msg, details) => format!("{msg}: {details}"),
    };
    let text = clipped(&text, length);
    match error.code {
        Some(code) => format!("{text} (code {code})"),
        None => text,
    }
}

/// In one line, and no longer than that.
pub(in crate::detect) fn clipped(text: &str, length: usize) -> String {
    let mut words = String::new();
    for word in text.split_whitespace() {
        if !words.is_empty() {
            words.push(' ');
        }
        words.push_str(word);
        if let Some((end, _)) = words.char_indices().nth(length) {
            words.truncate(end);
            words.push_str(" …");
            break;
        }
    }
    words
}

/// About how long it takes from one try to the next, in words that do not
/// change with every try.
pub(in crate::detect) fn pace(first: Timestamp, last: Timestamp, times: u64) -> Option<String> {
    const PACES: [(u64, &str); 9] = [
        (1, "second"),
        (2, "2 s"),
        (5, "5 s"),
        (10, "10 s"),
        (20, "20 s"),
        (30, "30 s"),
        (60, "minute"),
        (120, "2 min"),
        (300, "5 min"),
    ];
    let mean = last.since(first).as_secs_f64() / times.checked_sub(1)?.max(1) as f64;
    let distance = |seconds: u64| (mean.max(0.5) / seconds as f64).ln().abs();
    let nearest = PACES
        .iter()
        .min_by(|(a, _), (b, _)| distance(*a).total_cmp(&distance(*b)));
    nearest.map(|(_, words)| format!("about every {words}"))
}

/// Since when a pod is known to be gone: it disappeared from the list, or is not on a list that is later than `existed`.
pub(in crate::detect) fn pod_gone(
    view: &View<'_>,
    pod: &PodRef,
    existed: Timestamp,
) -> Option<Timestamp> {
    let uid = pod.uid.as_deref()?;
    let pods = &view.model.pods;
    if pods.listed_pod(uid).is_some() {
        return None;
    }
    if let Some(at) = pods.departed_at(uid) {
        return Some(at);
    }
    // A static pod runs whether or not the API has its mirror.
    let list = pods.list().filter(|_| uid.contains('-'))?;
    let covers = view.list_covers(pod.namespace.as_deref());
    if list.proves <= existed {
        view.lacks_proof.set(true);
        return None;
    }
    covers.then_some(list.at)
}

/// Whose a container is, in words: `the deleted pod shop/a (netns 4026532200)`.
pub(in crate::detect) fn owner(view: &View<'_>, id: &str) -> String {
    let model = view.model;
    let inside = model.netns.live().find(|e| e.sandbox.has_container(id));
    if let Some(entry) = inside {
        let gone = match ghosts::gone(view, entry) {
            Some(_) => ", of a deleted pod",
            None => "",
        };
        return format!("{}{gone}", label(model, entry));
    }
    let of = pod_of_container(model, id).map(|pod| format!(" of {}", pod.label()));
    let of = of.unwrap_or_default();
    match model.runtime.shows(id) {
        Some(_) => format!("sandbox {}{of}", short_id(id)),
        None => format!("sandbox {}{of} (nothing of it was found)", short_id(id)),
    }
}

/// Whose store a reservation is in, if that can be told.
pub(in crate::detect) fn store_kind(
    model: &Model,
    holder: &ReservationHolder,
) -> Option<StoreKind> {
    let mut stores = model.cni.stores().map(|listed| &listed.store);
    let listed = stores.find(|store| holder.path.starts_with(&store.path));
    // host-local has a file for each address, named like it.
    let is_address = |name: &OsStr| name.to_string_lossy().parse::<IpAddr>().is_ok();
    let host_local = holder.path.file_name().is_some_and(is_address);
    let kind = listed.map(|store| store.kind);
    kind.or(host_local.then_some(StoreKind::HostLocal))
}

/// Whether a reservation is host-local's, which `node-tracer repair` gives back.
pub(in crate::detect) fn is_host_locals(model: &Model, holder: &ReservationHolder) -> bool {
    store_kind(model, holder) == Some(StoreKind::HostLocal)
}

/// The pod of a container, as runtimes, calls and libcni's cache know it.
fn pod_of_container(model: &Model, id: &str) -> Option<PodRef> {
    let listed = model.runtime.of_container(id);
    let listed = listed.map(|(_, sandbox)| sandbox.pod.clone());
    let mut called = model.calls.of_container(id);
    let mut cached = model.cni.of_container(id);
    listed
        .or_else(|| called.find_map(|each| each.pod.clone()))
        .or_else(|| cached.find_map(|each| each.pod.clone()))
}

/// The interface whose ADD failed last, if it still fails.
pub(in crate::detect) fn failing<'a>(
    view: &View<'_>,
    pod: &'a PodCalls,
) -> Option<(&'a str, &'a Failing)> {
    let all = pod.failing.iter();
    let open = all.filter(|(_, failing)| !view.passed(failing.end.at.plus(SILENCE)));
    let (ifname, failing) = open.max_by_key(|(_, failing)| failing.end.at)?;
    match pod_gone(view, &pod.pod, failing.end.at) {
        Some(_) => None,
        None => Some((ifname, failing)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_in_one_line_that_ends() {
        let error = |msg: &str, details: &str, code| CniError {
            code,
            msg: msg.to_owned(),
            details: Some(details.to_owned()),
        };
        assert_eq!(said(&error("no", "way", Some(7))), "no: way (code 7)");
        assert_eq!(said(&error("", "way", None)), "way");
        assert_eq!(said(&error(" ", "", Some(999))), "no message (code 999)");
        let long = said(&error(&"ä".repeat(9_000), "", None));
        assert_eq!(long.chars().count(), SAID + 2);
        assert_eq!(said(&error("a\n\tb", "", None)), "a b");
    }

    #[test]
    fn a_pace_stays_what_it_is_for_a_while() {
        use event::testing::s;
        let of = |last, times| pace(s(0), s(last), times).unwrap();
        assert_eq!(of(22, 3), "about every 10 s");
        assert_eq!(of(110, 11), "about every 10 s");
        assert_eq!(of(0, 3), "about every second");
        assert_eq!(of(3_600, 2), "about every 5 min");
        assert!(pace(s(0), s(0), 0).is_none());
    }
}
