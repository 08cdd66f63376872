//! The same from logs: only calls are known, and what plugins say of the
//! pod's endpoint. What a log does not contain is not absent, so nothing is
//! told of a newer sandbox but what some line says.
//!
//! | the pod's endpoint | effect |
//! |---|---|
//! | was deleted while the DEL ran, or just after, and not written again | harmful |
//! | was deleted long before that DEL began | unknown |
//! | was left by the DEL, as the plugin says | harmless |
//! | no line says | unknown |

use std::time::Duration;

use crate::{
    detect::{
        View, evidence, fitting, joined,
        stale_del::{Effect, HARMLESS, UNDECIDED, finding::advice},
    },
    model::{
        calls::{AttachmentCalls, Call, PluginCalls},
        endpoints::Entry,
    },
};
use event::order::Order as _;
use event::{
    PodRef,
    clock::Timestamp,
    finding::{Detail, Evidence, Finding, Rule, Severity, finding_id},
    wording::subjects::{pod_word, short_id},
};

/// What is deleted so long after the last line about a DEL is its work.
const AFTER: Duration = Duration::from_secs(10);
const LOG: &str = "log";

/// A DEL of an old sandbox, and a newer sandbox of the same name.
struct Logged<'v, 'a> {
    view: &'v View<'a>,
    pod: PodRef,
    old: &'a AttachmentCalls,
    newer: &'a AttachmentCalls,
    /// When the newer one's ADD began.
    added: Timestamp,
    /// The DELs that came after that, by plugin.
    dels: Vec<(&'a PluginCalls, &'a Call)>,
    endpoint: EndpointState<'a>,
}

/// What has become of the newer sandbox's endpoint.
#[derive(Clone, Copy, Debug)]
enum EndpointState<'a> {
    Deleted(&'a Entry, Timestamp),
    /// The plugin has left it.
    Kept(&'a Entry, Timestamp),
    Unknown,
}

/// One finding an old sandbox and a newer one.
pub(super) fn detect(view: &View<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for all in view.model.calls.namesakes() {
        let all: Vec<_> = all
            .into_iter()
            .filter(|calls| calls.ifname != "lo")
            .collect();
        for newer in &all {
            let Some(added) = added(newer) else {
                continue;
            };
            let olds = all.iter().filter(|old| {
                let other = old.container_id != newer.container_id;
                other && old.ifname == newer.ifname && started(old).is_none_or(|at| at < added)
            });
            let found = olds.filter_map(|old| Logged::of(view, old, newer, added));
            findings.extend(found.map(|logged| logged.finding()));
        }
    }
    findings
}

/// When the ADD of a sandbox that lives began, as a log tells it.
fn added(calls: &AttachmentCalls) -> Option<Timestamp> {
    let adds = calls.chain().filter_map(|plugin| plugin.add.as_ref());
    let adds: Vec<&Call> = adds.filter(|add| add.log).collect();
    let failed = adds.iter().any(|add| add.failure().is_some());
    let first = adds.iter().map(|add| add.started).min();
    first.filter(|_| !failed && !calls.has_del())
}

/// When the first ADD of a sandbox began, if a line says so.
fn started(calls: &AttachmentCalls) -> Option<Timestamp> {
    let adds = calls.chain().filter_map(|plugin| plugin.add.as_ref());
    adds.map(|add| add.started).min()
}

impl<'v, 'a> Logged<'v, 'a> {
    /// `None` if no DEL came too late, or it is not worth telling any more.
    fn of(
        view: &'v View<'a>,
        old: &'a AttachmentCalls,
        newer: &'a AttachmentCalls,
        added: Timestamp,
    ) -> Option<Self> {
        let late = |call: &&Call| call.log && call.started >= added;
        let dels = old
            .chain()
            .filter_map(|plugin| Some((plugin, plugin.del.as_ref().filter(late)?)));
        let dels: Vec<_> = dels.collect();
        if dels.is_empty() {
            return None;
        }
        let pod = newer.pod.clone().or_else(|| old.pod.clone())?;
        let endpoint = EndpointState::of(view, &pod, old, newer, (added, &dels));
        let logged = Self {
            view,
            pod,
            old,
            newer,
            added,
            dels,
            endpoint,
        };
        let until = match endpoint {
            EndpointState::Deleted(..) => return Some(logged),
            _ if logged.is_ordinary() => return None,
            EndpointState::Kept(..) => HARMLESS,
            EndpointState::Unknown => UNDECIDED,
        };
        (!view.passed(logged.last().plus(until))).then_some(logged)
    }

    /// Whether the old sandbox had been taken back before: runtimes call DEL
    /// once more when they remove what is left of it.
    fn is_ordinary(&self) -> bool {
        let mut dels = self.dels.iter();
        dels.all(|(plugin, _)| plugin.released.is_some_and(|at| at <= self.added))
    }

    /// The last that is known of these DELs.
    fn last(&self) -> Timestamp {
        let ends = self
            .dels
            .iter()
            .map(|(_, del)| del.end.as_ref().map_or(del.started, |end| end.at));
        ends.max().unwrap_or(self.added)
    }

    fn since(&self) -> Timestamp {
        let starts = self.dels.iter().map(|(_, del)| del.started);
        starts.min().unwrap_or(self.added)
    }

    fn effect(&self) -> Effect {
        match self.endpoint {
            EndpointState::Deleted(..) => Effect::Harmful,
            EndpointState::Kept(..) => Effect::Harmless,
            EndpointState::Unknown => Effect::Unknown,
        }
    }

    fn finding(&self) -> Finding {
        let (old, newer) = (&self.old.container_id, &self.newer.container_id);
        let part = |part: &Option<String>| part.clone().unwrap_or_default();
        let label = format!("{}/{}", part(&self.pod.namespace), part(&self.pod.name));
        let subject = format!("{label} {old} {newer}");
        let effect = self.effect();
        let plugins = self.dels.iter().map(|(plugin, _)| *plugin);
        Finding {
            rule: Rule::StaleDel,
            severity: match effect {
                Effect::Harmful => Severity::Critical,
                Effect::Harmless | Effect::Unknown => Severity::Info,
            },
            id: finding_id(&self.view.settings.boot_id, Rule::StaleDel, &subject),
            since: self.since(),
            title: self.title(),
            pod: Some(self.pod.clone()),
            sandbox_id: Some(newer.clone()),
            netns: None,
            addresses: self.newer.ips(),
            holders: Vec::new(),
            evidence: self.evidence(),
            unknown: self.unknown(),
            advice: advice(self.view, effect, &self.pod, plugins, (old, newer)),
            detail: Detail {
                effect: Some(effect),
                old_container_id: Some(old.clone()),
                new_container_id: Some(newer.clone()),
                ..Detail::default()
            },
        }
    }

    fn title(&self) -> String {
        let says = |whose: &str| match self.endpoint {
            EndpointState::Deleted(entry, _) => {
                format!(
                    "{whose} lost its {} endpoint to a stale CNI DEL",
                    store(entry)
                )
            }
            EndpointState::Kept(entry, _) => {
                format!(
                    "stale CNI DEL of {whose} left its {} endpoint",
                    store(entry)
                )
            }
            EndpointState::Unknown => format!("stale CNI DEL of {whose}: harm unknown"),
        };
        fitting(says(&pod_word(&self.pod)), || says("a pod"))
    }

    fn evidence(&self) -> Vec<Evidence> {
        let mut claims = Vec::new();
        if let Some(at) = started(self.old) {
            let claim = format!(
                "CNI ADD of the old sandbox {}",
                short_id(&self.old.container_id)
            );
            claims.push(evidence(claim, LOG, at));
        }
        let gave = match self.newer.ips().as_slice() {
            [] => String::new(),
            ips => format!(", which got {}", joined(ips)),
        };
        let claim = format!(
            "CNI ADD of the newer sandbox {} of the same pod name{gave}",
            short_id(&self.newer.container_id)
        );
        claims.push(evidence(claim, LOG, self.added));
        for (plugin, del) in &self.dels {
            let times = match plugin.dels {
                0 | 1 => String::new(),
                times => format!(" (the last of {times} in the log)"),
            };
            let ended = match &del.end {
                Some(end) if end.is_ok() => String::from("it succeeded"),
                Some(end) if end.is_failed() => {
                    crate::detect::facts::calls::failure(end).replacen("failed", "it failed", 1)
                }
                _ => String::from("exit status unknown"),
            };
            let claim = format!(
                "CNI DEL of the old sandbox by {}{times}; {ended}",
                plugin.plugin
            );
            claims.push(evidence(claim, LOG, del.started));
        }
        match self.endpoint {
            EndpointState::Deleted(entry, at) => {
                if let Some(written) = entry.written.filter(|written| *written <= at) {
                    let claim = format!("the {} endpoint of the pod was written", store(entry));
                    claims.push(evidence(claim, LOG, written));
                }
                let claim = format!(
                    "the endpoint {} was deleted, {} s after the newer sandbox was made, and not \
                     rewritten",
                    entry.endpoint.key,
                    at.since(self.added).as_secs()
                );
                claims.push(evidence(claim, LOG, at));
            }
            EndpointState::Kept(entry, at) => {
                let claim = format!(
                    "the plugin left the endpoint {}, as it is not the old sandbox's",
                    entry.endpoint.key
                );
                claims.push(evidence(claim, LOG, at));
            }
            EndpointState::Unknown => {}
        }
        claims.order_by_key(|claim| claim.at);
        claims
    }

    fn unknown(&self) -> Vec<String> {
        let mut unknown = Vec::new();
        if started(self.old).is_none() {
            unknown.push(String::from(
                "when the old sandbox was made: the log has no line about its CNI ADD",
            ));
        }
        unknown.push(match self.endpoint {
            EndpointState::Deleted(..) => String::from(
                "whether the newer sandbox lost its device or route as well, and has them again: a \
                 scan on the node shows them",
            ),
            EndpointState::Kept(..) => String::from(
                "whether the newer sandbox lost anything else: a log has nothing about devices and \
                 routes",
            ),
            EndpointState::Unknown => String::from(
                "whether it did harm: the log has nothing about the newer sandbox's endpoint, \
                 device or route",
            ),
        });
        unknown
    }
}

impl<'a> EndpointState<'a> {
    /// What lines say of the endpoint since a DEL.
    fn of(
        view: &View<'a>,
        pod: &PodRef,
        old: &'a AttachmentCalls,
        newer: &'a AttachmentCalls,
        (added, dels): (Timestamp, &[(&PluginCalls, &Call)]),
    ) -> Self {
        let its = |entry: &&Entry| {
            let ifname = entry.endpoint.ifname.as_deref();
            ifname.is_none_or(|ifname| ifname == newer.ifname)
        };
        let entries: Vec<&Entry> = view.model.endpoints.of_pod_name(pod).filter(its).collect();
        // It may go by two keys, where one line names the host and one not.
        let written = entries.iter().filter_map(|entry| entry.written).max();
        let ends = old.chain().filter_map(|plugin| plugin.del.as_ref());
        let ends = ends.map(|del| del.end.as_ref().map_or(del.started, |end| end.at));
        // Of several DELs only the last is known: an earlier one can have done it.
        let once = dels.iter().all(|(plugin, _)| plugin.dels <= 1);
        let first = dels.iter().map(|(_, del)| del.started).min();
        // The first line about a call is not always its beginning.
        let is_late = |at: Timestamp| {
            let first = first.filter(|_| once);
            at >= added && first.is_none_or(|first| at.plus(AFTER) >= first)
        };
        let until = ends.max().unwrap_or(added).plus(AFTER);
        let mut found = Self::Unknown;
        for entry in entries {
            if let Some(at) = entry.deleted
                && is_late(at)
                && at <= until
                && written.is_none_or(|written| written <= at)
            {
                return Self::Deleted(entry, at);
            }
            if let Some((at, by)) = &entry.kept
                && *by == old.container_id
                && *at >= added
            {
                found = Self::Kept(entry, *at);
            }
        }
        found
    }
}

/// Whose data it is in, as a name.
fn store(entry: &Entry) -> &str {
    match entry.endpoint.store.as_str() {
        "calico" => "Calico",
        other => other,
    }
}

#[cfg(test)]
mod tests;
