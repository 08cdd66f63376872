//! A pod that gets no network, in words.

use crate::detect::{
    View,
    add_failed::{Failed, MANY},
    evidence,
    facts::{
        calls::{failure, pace, short_failure},
        reservations::Verdict,
    },
    fitting, netns_of,
};
use diagnosis::Cause;
use event::{
    CniError,
    finding::{Detail, Evidence, Finding, Rule, Severity, finding_id},
    wording::{plural::counted, subjects::short_id},
};

impl Failed<'_> {
    pub(super) fn finding(&self, view: &View<'_>) -> Finding {
        let failing = self.failing;
        let netns = self.attachment.filter(|each| each.netns_gone.is_none());
        let netns = netns.and_then(|each| view.model.netns.get(each.netns?));
        Finding {
            rule: Rule::AddFailed,
            severity: self.severity(),
            id: finding_id(&view.settings.boot_id, Rule::AddFailed, &self.calls.id()),
            since: failing.since,
            title: self.title(view),
            pod: Some(self.pod.clone()),
            sandbox_id: Some(failing.last_id.clone()),
            netns: netns.filter(|entry| !entry.host).map(netns_of),
            addresses: self
                .other_owners
                .iter()
                .map(|other_owner| other_owner.address)
                .collect(),
            holders: self
                .other_owners
                .iter()
                .flat_map(|other_owner| other_owner.holders(view))
                .collect(),
            evidence: self.evidence(view),
            unknown: self.unknown(view),
            advice: self.advice(view),
            detail: Detail {
                cause: Some(self.cause.as_str().to_owned()),
                attempts: Some(failing.times),
                error: failing.end.error.clone(),
                ..Detail::default()
            },
        }
    }

    fn title(&self, view: &View<'_>) -> String {
        let why = self.why(view);
        let named = format!("{} gets no network: {why}", self.pod.label());
        fitting(named, || format!("a pod gets no network: {why}"))
    }

    pub(super) fn severity(&self) -> Severity {
        match self.failing.times {
            times if times >= MANY && !self.is_starting() => Severity::Critical,
            _ => Severity::Warning,
        }
    }

    /// Whether what is missing may only be late: after a reboot, a network's
    /// daemon needs some minutes.
    fn is_starting(&self) -> bool {
        let failing = self.failing;
        self.cause.may_be_late(failing.end.at.since(failing.since))
    }

    /// The cause in one clause.
    fn why(&self, view: &View<'_>) -> String {
        let plugin = &self.failing.plugin;
        match self.cause {
            Cause::AddressInUse => match self.other_owners.first() {
                Some(other_owner) => format!("{} {}", other_owner.address, other_owner.words(view)),
                None => format!("the IP that {plugin} picked is in use"),
            },
            Cause::RangeExhausted => {
                let error = self.failing.end.error.as_ref();
                match error.and_then(span) {
                    Some(span) => format!("no IP is left in {span}"),
                    None => String::from("no IP is left"),
                }
            }
            _ if self.failing.end.error.is_none() => {
                format!("{plugin} {}", short_failure(&self.failing.end))
            }
            cause => match (self.remedy, cause) {
                (Some(remedy), _) => remedy.clause.to_owned(),
                (None, Cause::CniPluginError | Cause::Unknown) => {
                    format!("{plugin} {}", short_failure(&self.failing.end))
                }
                (None, cause) => cause.clause().to_owned(),
            },
        }
    }

    fn evidence(&self, view: &View<'_>) -> Vec<Evidence> {
        let failing = self.failing;
        let source = match failing.end.log {
            true => "log",
            false => "cni",
        };
        let (ifname, plugin) = (self.ifname, &failing.plugin);
        let mut claims = vec![evidence(
            format!(
                "CNI ADD of {ifname} of sandbox {} failed, and no ADD of the pod succeeded since",
                short_id(&failing.first_id)
            ),
            source,
            failing.since,
        )];
        let pace = match failing.times {
            0 | 1 => None,
            times => pace(failing.since, failing.end.at, times),
        };
        let pace = pace.map(|pace| format!(", called {pace},"));
        let pace = pace.unwrap_or_default();
        let claim = format!("{plugin}{pace} {}", failure(&failing.end));
        claims.push(evidence(claim, source, failing.end.at));
        let plugins = self.attachment.into_iter().flat_map(|each| &each.plugins);
        let (children, chain): (Vec<_>, Vec<_>) = plugins.partition(|plugin| plugin.delegated);
        let caller = match chain.as_slice() {
            [only] => only.plugin.as_str(),
            _ => "a plugin of the chain",
        };
        for child in children {
            let Some(end) = child.add.as_ref().and_then(|add| add.end.as_ref()) else {
                continue;
            };
            let given = end.result.iter().flat_map(|result| &result.ips);
            let given: Vec<String> = given.map(ToString::to_string).collect();
            let how = match end.is_ok() {
                true if given.is_empty() => String::from("succeeded"),
                true => format!("gave {}", given.join(", ")),
                false => failure(end),
            };
            let claim = format!("{}, which {caller} called, {how}", child.plugin);
            claims.push(evidence(claim, source, end.at));
        }
        for other_owner in &self.other_owners {
            claims.extend(other_owner.evidence(view));
        }
        if self.cause == Cause::RangeExhausted {
            claims.extend(leaked(view));
        }
        claims
    }

    fn unknown(&self, view: &View<'_>) -> Vec<String> {
        let mut unknown = Vec::new();
        let end = &self.failing.end;
        if end.error.is_none() && end.signal.is_none() {
            unknown.push(format!(
                "the message of {}: it could not be read",
                self.failing.plugin
            ));
        }
        if end.signal.is_some() {
            unknown.push(String::from(
                "who sent the signal: the runtime when a call takes too long, or the kernel when memory \
                 is",
            ));
        }
        if self.cause == Cause::AddressInUse && self.other_owners.is_empty() {
            unknown.push(String::from(
                "which address: neither the message nor an IPAM's answer names it",
            ));
        }
        for other_owner in &self.other_owners {
            let address = other_owner.address;
            if other_owner.entries.is_empty() {
                unknown.push(format!(
                    "what has {address}: no netns known on this node; it can be on another node",
                ));
            }
            if !other_owner.asked {
                unknown.push(format!(
                    "who has reserved {address}: no store of reservations answered"
                ));
            }
        }
        if self.cause == Cause::RangeExhausted && leaked(view).is_none() {
            unknown.push(String::from(
                "how many of the range's IPs are leaked: the runtime's list is needed",
            ));
        }
        unknown
    }
}

/// Reservations that are of nobody, if they can be told.
fn leaked(view: &View<'_>) -> Option<Evidence> {
    let judge = view.judge()?;
    let stores = view.model.cni.stores();
    let leaks = stores
        .filter(|listed| judge.can_judge(listed))
        .map(|listed| {
            let all = listed.store.reservations.iter();
            let leaked = all.filter(|each| judge.of(view, each) == Verdict::Leaked);
            (leaked.count(), listed)
        });
    let (number, listed) = leaks.max_by_key(|(number, _)| *number)?;
    let path = listed.store.path.display();
    let claim = match number {
        0 => format!("no reservation in {path} is leaked"),
        _ => format!(
            "{} in {path}: of no container that was found, see leaked-reservation",
            counted(number, "reservation")
        ),
    };
    Some(evidence(claim, "host-local", listed.at))
}

/// `10.244.7.1-10.244.7.254` of a message that names the range.
fn span(error: &CniError) -> Option<&str> {
    const BEFORE: &str = "range set: ";
    let at = error.msg.find(BEFORE)?;
    let rest = error.msg.get(at + BEFORE.len()..)?;
    let is_part = |c: char| c.is_ascii_hexdigit() || "-.:,/".contains(c);
    let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
    let span = rest.get(..end)?.trim_end_matches(['.', ',']);
    (!span.is_empty() && span.len() <= 200).then_some(span)
}
