//! What containerd says of sandboxes and of the CNI calls for them.

use crate::entry::Entry;
use event::{PodRef, RuntimeSandbox, What, clock::Timestamp};

use super::{
    calls::{About, Calls, Reporter, Verb},
    failure,
    tokens::{after, field, id, ips, metadata},
};

/// Words of which one is in each of its lines that count.
pub(super) const NEEDLES: &[&str] = &[
    "RunPodSandbox",
    "RunPodsandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "TearDown network for sandbox",
    "to destroy network for sandbox",
    "cni result",
];

/// Who lists the sandboxes.
const SOURCE: &str = "containerd";

/// Takes a message in.
pub(super) fn entry(time: Timestamp, entry: &Entry<'_>, calls: &mut Calls) {
    let text = &*entry.message;
    let said = || text.trim_end_matches(['.', ' ']);
    if text.starts_with("RunPodSandbox for ") || text.starts_with("RunPodsandbox for ") {
        run(time, entry, calls);
    } else if let Some(rest) = text.strip_prefix("StopPodSandbox for ") {
        let Some(sandbox) = id(rest) else {
            return;
        };
        if said().ends_with("failed") {
            failed(time, entry, None, calls);
        } else if said().ends_with("returns successfully") {
            calls.is_over(time, about(entry, sandbox));
            let stopped = sandbox_of(sandbox, calls, Some(false));
            added(time, stopped, calls);
        } else {
            calls.known.note_asked(sandbox, time);
        }
    } else if let Some(rest) = text.strip_prefix("RemovePodSandbox ") {
        let Some(sandbox) = id(rest.trim_start_matches("for ")) else {
            return;
        };
        if said().ends_with("returns successfully") {
            calls.is_over(time, about(entry, sandbox));
            let what = What::SandboxRemoved {
                source: SOURCE.to_owned(),
                id: sandbox.to_owned(),
            };
            calls.tell(time, what);
        } else if said().ends_with("failed") {
            failed(time, entry, None, calls);
        } else {
            calls.known.note_asked(sandbox, time);
        }
    } else if let Some(rest) = after(text, "TearDown network for sandbox ") {
        if let Some(sandbox) = id(rest).filter(|_| said().ends_with("successfully")) {
            let since = calls.known.asked(sandbox);
            let about = about(entry, sandbox);
            calls.succeeds(time, Verb::Del, about, Reporter::Runtime, since);
        }
    } else if text.starts_with("Failed to destroy network for sandbox ") {
        failed(time, entry, None, calls);
    } else if text.starts_with("cni result") {
        result(time, entry, calls);
    }
}

/// `RunPodSandbox for METADATA`, with nothing, `returns sandbox id "ID"` or
/// `failed, error` behind it.
fn run(time: Timestamp, entry: &Entry<'_>, calls: &mut Calls) {
    let text = &*entry.message;
    let Some((pod, attempt)) = metadata(text) else {
        return;
    };
    calls.known.note_pod(&pod);
    let name = pod.label();
    if let Some(rest) = after(text, "returns sandbox id ") {
        let Some(sandbox) = id(rest) else {
            return;
        };
        calls.known.note_sandbox(sandbox, &pod);
        let key = (Verb::Add, sandbox.to_owned());
        if calls.what(&key).is_some() {
            let about = about(entry, sandbox);
            calls.succeeds(time, Verb::Add, about, Reporter::Runtime, None);
        }
        let made = RuntimeSandbox {
            attempt,
            created: calls.known.asked(&name),
            ..sandbox_of(sandbox, calls, Some(true))
        };
        added(time, made, calls);
    } else if text.contains("failed, error") || text.trim_end().ends_with("failed") {
        failed(time, entry, Some(pod), calls);
    } else {
        calls.known.note_asked(&name, time);
    }
}

/// A call that failed, by the error beside the message.
fn failed(time: Timestamp, entry: &Entry<'_>, pod: Option<PodRef>, calls: &mut Calls) {
    let said = field(entry, "error").unwrap_or(&entry.message);
    let whole = || failure::read(&format!("{}: {said}", entry.message), None);
    let Some(failure) = failure::read(said, None).or_else(whole) else {
        return;
    };
    let Some(sandbox) = &failure.container_id else {
        return;
    };
    let about = About {
        pod: pod.unwrap_or(failure.pod),
        plugin: failure.plugin,
        ..about(entry, sandbox)
    };
    let verb = failure.verb;
    calls.fails(time, verb, about, Reporter::Runtime, &failure.message);
}

/// What the plugins have answered to an ADD; told by newer versions, on
/// request.
fn result(time: Timestamp, entry: &Entry<'_>, calls: &mut Calls) {
    let sandbox = ["podsandboxid", "podSandboxID", "id"];
    let mut sandbox = sandbox.iter().filter_map(|key| entry.field(key));
    let (Some(sandbox), Some(answer)) = (sandbox.find_map(id), entry.field("result")) else {
        return;
    };
    let given = answer.split("\"IP\":\"").skip(1);
    let given: Vec<&str> = given.filter_map(|rest| rest.split('"').next()).collect();
    let key = calls.about(time, Verb::Add, about(entry, sandbox));
    calls.gives(time, &key, ips(&given.join(" ")));
    let about = about(entry, sandbox);
    calls.succeeds(time, Verb::Add, about, Reporter::Plugin, None);
}

fn about(entry: &Entry<'_>, sandbox: &str) -> About {
    About {
        container_id: sandbox.to_owned(),
        caller: Some(String::from(entry.ident.unwrap_or(SOURCE))),
        ..About::default()
    }
}

/// A sandbox as far as it is known.
fn sandbox_of(sandbox: &str, calls: &Calls, ready: Option<bool>) -> RuntimeSandbox {
    RuntimeSandbox {
        id: sandbox.to_owned(),
        pod: calls.known.pod_of(sandbox).cloned().unwrap_or_default(),
        ready,
        ..RuntimeSandbox::default()
    }
}

fn added(time: Timestamp, sandbox: RuntimeSandbox, calls: &mut Calls) {
    let source = SOURCE.to_owned();
    calls.tell(time, What::SandboxAdded { source, sandbox });
}
