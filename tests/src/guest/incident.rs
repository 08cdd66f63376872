//! The whole incident, which reads the same on each kernel and by each
//! mechanism.

use std::time::Duration;

use anyhow::ensure;
use serde_json::Value;

use super::matrix;
use super::report::Host;
use crate::incident::{Incident, READER, Sandbox};
use crate::tracer::{Tracer, is_event, is_finding, names_address, netns_of};

/// On an emulated machine; a comparison takes its time, too.
const SOON: Duration = Duration::from_secs(60);

/// What is said of the ghost and of the address, step by step: (rule, state or
/// phase, beginning of the title), with the names and numbers of this run taken out.
const STORY: [(&str, &str, &str); 8] = [
    ("ghost-sandbox", "suspected", "IP is held by a deleted pod"),
    (
        "blocked-task",
        "open",
        "checkout-api (N) is stuck in state D in request_wait_answer",
    ),
    (
        "ghost-sandbox",
        "armed",
        "IP is held by a deleted pod; free for others",
    ),
    ("duplicate-address", "open", "IP is used by "),
    ("ghost-sandbox", "conflict", "IP is used by a deleted "),
    (
        "blocked-task",
        "resolved",
        "checkout-api (N) is stuck in state D in request_wait_answer",
    ),
    ("duplicate-address", "resolved", "IP is used by a deleted "),
    ("ghost-sandbox", "resolved", ""),
];

/// Stages it with the tracer limited to a mechanism.
pub(super) fn observe(host: &mut Host, mechanism: &str) -> anyhow::Result<()> {
    let mut incident = Incident::new()?;
    let pods = incident.pods_file().display().to_string();
    let mut tracer = matrix::start(mechanism, &["--pods", &pods])?;
    let old = incident.start_old_pod()?;
    incident.force_delete()?;
    stage(host, &mut tracer, &old, "suspected")?;
    incident.garbage_collect()?;
    stage(host, &mut tracer, &old, "armed")?;
    let new = incident.start_new_pod()?;
    ensure!(new.address == old.address, "the stage gives it out again");
    stage(host, &mut tracer, &old, "conflict")?;
    let address = old.address.to_string();
    tracer.wait_for("duplicate-address", SOON, |record| {
        is_finding(record, "duplicate-address") && names_address(record, &address)
    })?;
    incident.release()?;
    stage(host, &mut tracer, &old, "resolved")?;
    tracer.wait_for("the end of duplicate-address", SOON, |record| {
        is_finding(record, "duplicate-address") && record["state"] == "resolved"
    })?;
    let ended = tracer.stop()?;
    incident.clean()?;

    let names = [
        (old.pod.name.as_str(), "OLD"),
        (new.pod.name.as_str(), "NEW"),
        (address.as_str(), "IP"),
    ];
    let findings = ended.records.iter().filter(|record| {
        record["type"] == "finding"
            && (netns_of(record) == Some(old.netns_inode)
                || names_address(record, &address)
                || record["title"]
                    .as_str()
                    .is_some_and(|title| title.contains(READER)))
    });
    let story: Vec<(String, String, String)> = findings
        .map(|finding| {
            let text = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
            (text("rule"), state(finding), plain(&text("title"), &names))
        })
        .collect();
    // As soon as the ghost is told, somebody may give its address back.
    let first = |is: &dyn Fn(&Value) -> bool| ended.records.iter().position(is);
    let told = first(&|record| {
        is_finding(record, "ghost-sandbox") && netns_of(record) == Some(old.netns_inode)
    });
    let asked =
        first(&|record| is_event(record, "reservation") && record["address"] == address.as_str());
    ensure!(
        asked.is_some_and(|asked| told.is_some_and(|told| asked < told)),
        "the ghost is told (record {told:?}) before its reservation is looked at ({asked:?})"
    );
    for wanted in STORY {
        // What is said at first may be known better a moment later, and at
        // the end less is left of it.
        let is = |(rule, state, title): &&(String, String, String)| {
            (rule.as_str(), state.as_str()) == (wanted.0, wanted.1) && title.starts_with(wanted.2)
        };
        ensure!(
            story.iter().any(|observed| is(&observed)),
            "no {wanted:?}: {story:?}"
        );
    }
    Ok(())
}

/// `resolved`, or the phase, or the state.
fn state(finding: &Value) -> String {
    let text = |key: &str| finding[key].as_str().map(str::to_owned);
    let state = text("state").unwrap_or_default();
    match state.as_str() {
        "resolved" => state,
        _ => text("phase").unwrap_or(state),
    }
}

fn stage(host: &mut Host, tracer: &mut Tracer, old: &Sandbox, wanted: &str) -> anyhow::Result<()> {
    host.alive();
    tracer.wait_for(&format!("ghost-sandbox: {wanted}"), SOON, |record| {
        is_finding(record, "ghost-sandbox")
            && netns_of(record) == Some(old.netns_inode)
            && state(record) == wanted
    })?;
    Ok(())
}

/// A title without what differs from run to run: names, and then all numbers.
fn plain(title: &str, names: &[(&str, &str)]) -> String {
    let named = names.iter().fold(title.to_owned(), |text, (name, short)| {
        text.replace(name, short)
    });
    let mut plain = String::new();
    for character in named.chars() {
        match character {
            '0'..='9' if plain.ends_with('N') => {}
            '0'..='9' => plain.push('N'),
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_and_names_are_taken_out_of_a_title() {
        let names = [("checkout-5b7", "OLD"), ("10.0.0.2", "IP")];
        assert_eq!(
            super::plain("IP 10.0.0.2 of shop/checkout-5b7 (4242)", &names),
            "IP IP of shop/OLD (N)"
        );
    }
}
