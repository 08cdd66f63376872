//! del-retry: CNI DEL of the same attachment fails again and again.
//!
//! One failure is ordinary, and so are two: a runtime calls DEL when it stops a
//! sandbox and once more when it removes it, and what the first one complains
//! of can be over by then. The third in a row means that somebody tries again
//! and again, and that nothing has changed.
//!
//! A log is an excerpt, as a rule, and begins late: there, one failure after
//! which DEL was called again is one of many, and is told whatever came of
//! that call. One that no success follows until the log ends is told then: who
//! called it goes on trying.
//!
//! DEL goes through a chain of plugins backwards and stops at the first that
//! fails: what the plugins before it have reserved is not given back.

use std::net::IpAddr;

use crate::{
    detect::{
        View, commented, crictl, evidence,
        facts::{
            calls::{SILENCE, failure, pace, said, short_failure},
            command::is_plain,
            stays::{Named, Stays, given, stays, uses_host_local},
        },
        fitting, joined, logged_of, named, netns_of, pod_word, short_id,
    },
    model::calls::{AttachmentCalls, Call, CallResult, PluginCalls},
};
use diagnosis::Cause;
use event::{
    PodRef,
    clock::Timestamp,
    finding::{Detail, Evidence, Finding, Rule, Severity, finding_id},
};

/// Failures in a row.
const MANY: u64 = 3;

/// A DEL that is tried again and again.
struct Retried<'a> {
    calls: &'a AttachmentCalls,
    /// The plugin that fails.
    plugin: &'a PluginCalls,
    /// How it failed last.
    end: &'a CallResult,
    /// When it failed first.
    since: Timestamp,
    pod: Option<PodRef>,
    /// The sandbox, or its ID alone, in words.
    whose: String,
    ips: Vec<IpAddr>,
}

/// One finding an attachment.
pub fn detect(view: &View<'_>) -> Vec<Finding> {
    let all = view.model.calls.with_failed_dels();
    let retried = all.filter_map(|calls| Retried::of(view, calls));
    retried.map(|retried| retried.finding(view)).collect()
}

/// Addresses whose reservations have to be asked for, each with when that came
/// to matter.
pub fn addresses(view: &View<'_>) -> Vec<(Timestamp, IpAddr)> {
    let all = view.model.calls.with_failed_dels();
    let retried = all.filter_map(|calls| Retried::of(view, calls));
    let addresses = retried.flat_map(|retried| {
        let since = retried.since;
        retried.ips.into_iter().map(move |ip| (since, ip))
    });
    addresses.collect()
}

impl<'a> Retried<'a> {
    fn of(view: &View<'a>, calls: &'a AttachmentCalls) -> Option<Self> {
        let many = calls.del_failure();
        let many = many.filter(|(plugin, _)| plugin.failed_dels >= MANY);
        let retried = || {
            let (plugin, first) = calls.retried()?;
            Some((plugin, plugin.failed_del.as_deref().unwrap_or(first)))
        };
        // The last that a log has of it: whoever called it tries until it
        // succeeds. What could not be set up is taken down as well, and that is
        // part of the failure to set it up.
        let left = || {
            let (plugin, end) = calls.del_failure()?;
            let is_left = end.log && !view.more_may_come() && calls.add_failure().is_none();
            is_left.then_some((plugin, end))
        };
        let (plugin, end) = many.or_else(retried).or_else(left)?;
        if view.passed(calls.last.plus(SILENCE)) {
            return None;
        }
        let pod = calls.pod.as_ref().map(|pod| named(view.model, pod));
        let id = short_id(&calls.container_id);
        let whose = match &pod {
            // Older kubelets do not name it.
            Some(pod) if !is_plain(&calls.container_id) => {
                format!("the sandbox of {}", pod_word(pod))
            }
            Some(pod) => format!("sandbox {id} of {}", pod_word(pod)),
            None => format!("container {id}"),
        };
        Some(Self {
            calls,
            plugin,
            end,
            since: plugin.failing_since.unwrap_or(end.at),
            pod,
            whose,
            ips: given(view, calls),
        })
    }

    fn finding(&self, view: &View<'a>) -> Finding {
        let calls = self.calls;
        let subject = format!("{} {}", calls.container_id, calls.ifname);
        let entry = calls.netns.filter(|_| calls.netns_gone.is_none());
        let entry = entry.and_then(|netns| view.model.netns.get(netns));
        Finding {
            rule: Rule::DelRetry,
            // One failure is ordinary, once it is over.
            severity: match self.succeeded() {
                Some(_) if self.plugin.dels <= 2 => Severity::Info,
                _ => Severity::Warning,
            },
            id: finding_id(&view.settings.boot_id, Rule::DelRetry, &subject),
            since: self.since,
            title: self.title(),
            pod: self.pod.clone(),
            sandbox_id: Some(calls.container_id.clone()).filter(|id| is_plain(id)),
            netns: entry.map(netns_of),
            addresses: self.ips.clone(),
            holders: Vec::new(),
            evidence: self.evidence(view),
            unknown: self.unknown(view),
            advice: self.advice(view),
            detail: Detail {
                attempts: Some(match self.end.log {
                    true => self.plugin.dels,
                    false => self.plugin.failed_dels,
                }),
                error: self.end.error.clone(),
                ..Detail::default()
            },
        }
    }

    fn title(&self) -> String {
        let fails = match self.succeeded() {
            None if self.end.log && self.plugin.failed_dels < MANY => match self.plugin.retried {
                Some(_) => "failed and runs again",
                None => "failed, with no success in the log",
            },
            None => "fails again and again",
            Some(_) => "failed at first, then succeeded",
        };
        let why = format!("{} {}", self.plugin.plugin, short_failure(self.end));
        let named = format!("CNI DEL of {} {fails}: {why}", self.whose);
        fitting(named, || format!("CNI DEL {fails}: {why}"))
    }

    /// When the last try succeeded, in a log.
    fn succeeded(&self) -> Option<Timestamp> {
        let last = self.plugin.del.as_ref().filter(|_| self.end.log);
        last.and_then(Call::success).map(|end| end.at)
    }

    /// When DEL was last called, if that was after the failure.
    fn again(&self) -> Option<Timestamp> {
        let last = self.plugin.del.as_ref().filter(|_| self.end.log);
        last.map(|del| del.started).filter(|at| *at > self.end.at)
    }

    /// Plugins that come later in DEL, as they came before it in ADD, and that
    /// have not been called since it fails.
    fn waiting(&self) -> impl Iterator<Item = &'a PluginCalls> {
        let before = self.calls.chain();
        let name = &self.plugin.plugin;
        let before = before.take_while(move |each| each.plugin != *name);
        let since = self.since;
        before.filter(move |each| {
            let reached = each.del.as_ref().is_some_and(|del| del.started >= since);
            each.add.is_some() && !reached
        })
    }

    fn stays(&self, view: &View<'a>) -> Stays<'a> {
        let mut networks = self.calls.chain();
        let named = Named {
            network: networks.find_map(|plugin| plugin.network.as_deref()),
            host_local: uses_host_local(self.calls),
            added: self.calls.added(),
        };
        stays(view, &self.calls.container_id, &self.ips, named, self.since)
    }

    /// A newer sandbox of the same pod name.
    fn newer(&self, view: &View<'a>) -> Option<&'a AttachmentCalls> {
        let pod = self.calls.pod.as_ref()?;
        let others = view.model.calls.of_pod_name(pod);
        let own = self.calls;
        let others = others.filter(|other| {
            let live = other.netns_gone.is_none() && !other.has_del();
            other.container_id != own.container_id && live
        });
        let added = others.filter_map(|other| Some((other.added()?, other)));
        let later = added.filter(|(at, _)| *at > own.first);
        later.max_by_key(|(at, _)| *at).map(|(_, other)| other)
    }

    fn evidence(&self, view: &View<'a>) -> Vec<Evidence> {
        let source = match self.end.log {
            true => "log",
            false => "cni",
        };
        let mut claims = Vec::new();
        let Self { calls, plugin, .. } = self;
        let (name, ifname) = (&plugin.plugin, &calls.ifname);
        if let Some(added) = calls.added() {
            let gave = match self.ips.as_slice() {
                [] => String::new(),
                ips => format!(" and gave it {}", joined(ips)),
            };
            let claim = format!("CNI ADD attached {ifname} of {}{gave}", self.whose);
            claims.push(evidence(claim, source, added));
        }
        let since = match self.succeeded() {
            None if self.again().is_none() => ", with no success since",
            _ => "",
        };
        let claim = format!("CNI DEL of {ifname} failed in {name}{since}");
        claims.push(evidence(claim, source, self.since));
        let pace = match plugin.failed_dels {
            0 | 1 => None,
            times => pace(self.since, self.end.at, times),
        };
        let pace = pace.map(|pace| format!(", called {pace},"));
        let pace = pace.unwrap_or_default();
        let claim = format!("{name}{pace} {}", failure(self.end));
        claims.push(evidence(claim, source, self.end.at));
        if let Some(again) = self.again() {
            let how = match self.succeeded() {
                Some(_) => ", and succeeded",
                None => "",
            };
            let claim = format!("{name} ran DEL again{how}");
            claims.push(evidence(claim, source, again));
        }
        for child in calls.plugins.iter().filter(|each| each.delegated) {
            let Some(del) = &child.del else { continue };
            let ended = match &del.end {
                Some(end) if end.is_ok() => String::from("succeeded"),
                Some(end) => failure(end),
                None => continue,
            };
            let claim = format!(
                "{}, which another plugin called for DEL, {ended}",
                child.plugin
            );
            claims.push(evidence(claim, source, del.started));
        }
        let waiting: Vec<&str> = self.waiting().map(|each| each.plugin.as_str()).collect();
        if !waiting.is_empty() {
            let claim = format!(
                "DEL stops at the plugin that fails: {} does not run, and its reservation stays",
                waiting.join(", "),
            );
            claims.push(evidence(claim, source, self.end.at));
        }
        claims.extend(self.stays(view).claim(&calls.container_id));
        if let Some(gone) = calls.netns_gone {
            claims.push(evidence("its netns is gone", "kernel", gone));
        }
        if let Some(newer) = self.newer(view) {
            let claim = format!(
                "a newer sandbox of the same pod name lives: {}; a plugin that goes by pod names \
                 applies each of these DELs to it",
                short_id(&newer.container_id),
            );
            claims.push(evidence(claim, source, newer.first));
        }
        claims
    }

    fn unknown(&self, view: &View<'a>) -> Vec<String> {
        let mut unknown = Vec::new();
        if self.end.log {
            unknown.push(String::from(
                "how often it ran before and after: the log covers a part of the time",
            ));
        } else if self.calls.added().is_none() {
            unknown.push(format!(
                "which plugins of the chain do not run because {} fails: its ADD was before the \
                 first look",
                self.plugin.plugin
            ));
        }
        let stays = self.stays(view);
        if !self.end.log && matches!(stays, Stays::Unknown | Stays::NotYet) {
            unknown.push(String::from(
                "whether its IP is still reserved: no store that was read would know",
            ));
        }
        if self.end.error.is_none() && self.end.signal.is_none() {
            unknown.push(format!(
                "the message of {}: it could not be read",
                self.plugin.plugin
            ));
        }
        unknown
    }

    fn advice(&self, view: &View<'a>) -> Vec<String> {
        let mut advice = Vec::new();
        let failure = self.end.plugin_failure();
        let cause = Cause::of_plugin(failure);
        let advised = cause.advice_on_call(cause.remedy_of_plugin(failure));
        let name = &self.plugin.plugin;
        match &self.end.error {
            _ if !advised.is_empty() => advice.extend(advised.iter().map(ToString::to_string)),
            Some(error) if is_absence(&said(error)) => advice.push(format!(
                "update {name}: it fails because what it removes is already gone, which is a \
                 success by the CNI specification"
            )),
            _ => advice.push(format!(
                "mend what {name} complains of; nothing else ends this"
            )),
        }
        let id = &self.calls.container_id;
        if is_plain(id) {
            advice.push(commented(
                logged_of(id),
                "who runs DEL again, and how often",
            ));
            let listed = crictl(view.model, "pods --id").id(id);
            advice.push(commented(listed, "whether CRI still has the sandbox"));
        }
        if self.newer(view).is_some() {
            advice.push(String::from(
                "see the stale-del finding: it says whether the newer sandbox of the same pod name \
                 was harmed",
            ));
        }
        if let Stays::Reserved { address, .. } = self.stays(view) {
            advice.push(format!(
                "leave the reservation of {address} where it is: DEL frees it when it succeeds"
            ));
        }
        advice
    }
}

/// Whether an error says that something is not there.
fn is_absence(text: &str) -> bool {
    const WORDS: [&str; 4] = ["does not exist", "not found", "no such", "already deleted"];
    let text = text.to_ascii_lowercase();
    WORDS.iter().any(|words| text.contains(words))
}

#[cfg(test)]
mod tests;
