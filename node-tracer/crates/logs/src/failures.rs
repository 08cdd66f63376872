//! What logs tell of pods that do not start: the kubelet's own words of all
//! its ages, those of containerd, CRI-O and dockerd, events that any of them
//! has written down, and lines that somebody has copied.
//!
//! Whether a message is about that at all is [`gate`]'s, whose it is
//! [`whose`]'s; what it means is left to the rule.

pub(super) mod recorded;
pub(super) mod teardown;
mod whose;

pub(super) use self::whose::Whose;

use self::recorded::Recorded;
use super::{
    entry::{Entry, Level},
    meaning::kernel,
};
use diagnosis::{gate, phrase::SearchText};
use event::{Event, PodRef, StartFailure, What, clock::Timestamp, wording::cut};
use node::redact::redact;

/// How much of a message is kept, in bytes.
const MAX_MESSAGE: usize = 8 << 10;
/// Fields that carry the message on, in the order in which they are read.
pub(crate) const CARRIERS: [&str; 9] = [
    "err",
    "error",
    "Error",
    "reason",
    "message",
    "networkReady",
    "detail",
    "output",
    "stderr",
];

/// What a message tells. An entry without a time gives an event of
/// [`Timestamp::EPOCH`].
///
/// `served`: the pod that a network's daemon serves as it says so.
pub fn events(entry: &Entry<'_>, served: Option<&PodRef>) -> Vec<Event> {
    if entry.ident.is_some_and(gate::is_another) {
        return Vec::new();
    }
    if kernel::is_of(entry) && !kernel::lacks_memory(&entry.message) {
        return Vec::new();
    }
    let time = entry.time.unwrap_or(Timestamp::EPOCH);
    let failure = match Recorded::of(entry) {
        Some(recorded) if recorded.is_of_teardown() => return recorded.teardown(time),
        Some(recorded) => recorded.failure(),
        None => said(entry).map(|mut failure| {
            if failure.pod == PodRef::default() && failure.sandbox_id.is_none() {
                failure.pod = served.cloned().unwrap_or_default();
            }
            failure
        }),
    };
    let event = failure.map(|failure| Event {
        time,
        what: What::SandboxFailed { failure },
    });
    event.into_iter().collect()
}

/// Of a message in somebody's own words. What its writer calls information is
/// no failure, unless it is what an ADD was answered with.
fn said(entry: &Entry<'_>) -> Option<StartFailure> {
    let informs = entry.own_level.is_some_and(|level| level <= Level::Info);
    if informs && !gate::answers_with_an_error(&whole(entry)) {
        return None;
    }
    if !gate::may_be_a_problem(&entry.message)
        && !entry
            .fields
            .iter()
            .any(|(_, value)| gate::may_be_a_problem(value))
    {
        return None;
    }
    let text = whole(entry);
    let said = SearchText::new(&text);
    if !informs && gate::of(&said, entry.ident, entry.own_level) != gate::Verdict::Failure {
        return None;
    }
    let mut whose = Whose::of_fields(entry);
    whose.read(&text);
    Some(StartFailure {
        source: source(entry, &said).to_owned(),
        message: kept(&text),
        ..whose.failure()
    })
}

/// The message and what the fields carry on of it.
fn whole(entry: &Entry<'_>) -> String {
    let mut text = entry.message.to_string();
    for name in CARRIERS {
        let Some(value) = entry.field(name) else {
            continue;
        };
        if !value.is_empty() && !text.contains(value) {
            text.push_str(": ");
            text.push_str(value);
        }
    }
    text
}

/// A message as it is kept: without secrets, and not too long.
pub(super) fn kept(text: &str) -> String {
    redact(cut(text, MAX_MESSAGE).trim())
}

/// Who says so: by the envelope, or else by what only one of them says.
fn source(entry: &Entry<'_>, said: &SearchText) -> &'static str {
    if let Some(known) = entry.ident.and_then(gate::writer) {
        return known;
    }
    const WORDS: [(&[&str], &str); 6] = [
        (
            &["runpodsandbox for", "createcontainer within sandbox"],
            "containerd",
        ),
        (&["handler for post"], "dockerd"),
        (&["reserving pod name", "reserving ctr name"], "cri-o"),
        (
            &[
                "createpodsandboxerror",
                "error syncing pod",
                "from runtime service failed",
                "operation for",
                "failed to create sandbox for pod",
                "createpodsandbox for pod",
            ],
            "kubelet",
        ),
        (&["page allocation failure"], "kernel"),
        (
            &["failed to create pod sandbox", "failed create pod sandbox"],
            "events",
        ),
    ];
    let known = WORDS.iter().find(|(words, _)| said.has_one(words));
    known.map_or("log", |(_, source)| source)
}

#[cfg(test)]
mod tests;
