//! A pod whose sandboxes do not last, in words.

use crate::{
    detect::{
        View, commented, evidence,
        facts::{
            calls::{self, failure, pace},
            command::is_plain,
        },
        fitting, heard, logged_of,
        sandbox_churn::Churn,
    },
    model::{calls::AttachmentCalls, runtime::CRI},
};
use event::order::Order as _;
use event::{
    clock::Timestamp,
    finding::{Detail, Evidence, Finding, Rule, Severity, finding_id},
    wording::subjects::short_id,
};

/// How a sandbox ended, as CNI calls show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SandboxEnd {
    Failed,
    /// ADD succeeded, and DEL followed.
    Removed,
    /// ADD succeeded, and the namespace went without a DEL.
    Gone,
}

impl Churn<'_> {
    pub(super) fn finding(&self, view: &View<'_>) -> Finding {
        Finding {
            rule: Rule::SandboxChurn,
            severity: Severity::Warning,
            id: finding_id(&view.settings.boot_id, Rule::SandboxChurn, &self.id),
            since: self.since,
            title: self.title(view),
            pod: Some(self.pod.clone()),
            sandbox_id: self.last_id().map(str::to_owned),
            netns: None,
            addresses: Vec::new(),
            holders: Vec::new(),
            evidence: self.evidence(view),
            unknown: self.unknown(view),
            advice: self.advice(view),
            detail: Detail {
                attempts: Some(self.attempts()),
                ..Detail::default()
            },
        }
    }

    fn title(&self, view: &View<'_>) -> String {
        let why = self.why(view);
        let named = format!(
            "{}: sandboxes are made and killed in a loop{why}",
            self.pod.label()
        );
        fitting(named, || {
            format!("sandboxes of a pod are made and killed in a loop{why}")
        })
    }

    /// What ends the last of them, in a clause.
    fn why(&self, view: &View<'_>) -> &'static str {
        match self.fates(view).last() {
            Some((SandboxEnd::Failed, ..)) => "; CNI ADD fails",
            Some((SandboxEnd::Removed, ..)) => "; CNI ADD works",
            Some((SandboxEnd::Gone, ..)) => "; no CNI DEL",
            None => "",
        }
    }

    fn last_id(&self) -> Option<&str> {
        let made = self.calls.and_then(|calls| calls.made.back());
        let made = made.map(|made| made.container_id.as_str());
        made.or_else(|| self.listed.last().map(|sandbox| sandbox.id.as_str()))
    }

    /// Each way in which the last sandboxes have ended, with the last time and
    /// what there is to say of it; the latest last.
    fn fates(&self, view: &View<'_>) -> Vec<(SandboxEnd, Timestamp, String)> {
        let mut fates: Vec<(SandboxEnd, Timestamp, String)> = Vec::new();
        let made = self.calls.into_iter().flat_map(|calls| &calls.made);
        let attachments = made.flat_map(|made| view.model.calls.of_container(&made.container_id));
        for attachment in attachments.filter(|each| each.ifname != "lo") {
            if let Some(fate) = fate(attachment) {
                fates.retain(|(known, ..)| *known != fate.0);
                fates.push(fate);
            }
        }
        fates.order_by_key(|(_, at, _)| *at);
        fates
    }

    fn evidence(&self, view: &View<'_>) -> Vec<Evidence> {
        let mut claims = Vec::new();
        if let Some(calls) = self.calls {
            let (first, last) = (calls.made.front(), calls.made.back());
            let pace = first.zip(last).and_then(|(first, last)| {
                pace(first.at, last.at, calls.made.len().try_into().ok()?)
            });
            let pace = pace.map(|pace| format!(", a new one {pace}"));
            let claim = format!(
                "CNI ADD runs for one sandbox of the pod after another{}",
                pace.unwrap_or_default()
            );
            claims.push(evidence(claim, "cni", calls.since));
        }
        for (_, at, claim) in self.fates(view) {
            claims.push(evidence(claim, "cni", at));
        }
        let list = heard(view.model);
        if let (Some(attempt), Some(list)) = (self.attempt, list) {
            let claim = format!("CRI: its last sandbox is attempt {attempt}");
            claims.push(evidence(claim, CRI, list.at));
        }
        for sandbox in self.listed.iter().rev().take(2).rev() {
            let Some(created) = sandbox.created else {
                continue;
            };
            let state = match sandbox.ready {
                Some(true) => ", Ready",
                Some(false) => ", NotReady",
                None => "",
            };
            let claim = format!(
                "sandbox {}, attempt {}{state}, was made",
                short_id(&sandbox.id),
                sandbox.attempt,
            );
            claims.push(evidence(claim, CRI, created));
        }
        claims
    }

    fn unknown(&self, view: &View<'_>) -> Vec<String> {
        let mut unknown = Vec::new();
        if self.pod.uid.is_none() {
            unknown.push(String::from(
                "whether it is one pod: the runtime names no UID, and a pod of the same name may \
                 have replaced it",
            ));
        }
        match (self.calls, self.fates(view).as_slice()) {
            (None, _) => unknown.push(String::from(
                "what ended them: only a trace sees their CNI calls",
            )),
            (Some(_), []) => unknown.push(String::from("what ended them")),
            (Some(_), fates) if fates.iter().any(|(fate, ..)| *fate != SandboxEnd::Failed) => {
                unknown.push(String::from(
                    "what ended those whose CNI ADD succeeded: see the runtime's log",
                ));
            }
            _ => {}
        }
        unknown
    }

    fn advice(&self, view: &View<'_>) -> Vec<String> {
        let mut advice = Vec::new();
        let fates = self.fates(view);
        let fails = fates.iter().any(|(fate, ..)| *fate == SandboxEnd::Failed);
        let open = self.calls.and_then(|calls| calls::failing(view, calls));
        if fails || open.is_some() {
            advice.push(String::from(
                "mend what the add-failed finding of the same pod names: the kubelet makes a new \
                 sandbox each time CNI ADD fails",
            ));
        }
        if fates.iter().any(|(fate, ..)| *fate != SandboxEnd::Failed) || fates.is_empty() {
            advice.push(String::from(
                "find out what kills them: a memory limit that is too small for the pause \
                 container, a second runtime or kubelet on the node, a sandbox that CRI lost",
            ));
            let killed = "dmesg -T | grep -i -e oom -e killed";
            advice.push(commented(killed, "what the kernel killed"));
        }
        if let Some(id) = self.last_id().filter(|id| is_plain(id)) {
            advice.push(commented(logged_of(id), "the log of the last sandbox"));
        }
        advice.push(commented("node-tracer scan", "whether they use up the IPs"));
        advice
    }
}

fn fate(attachment: &AttachmentCalls) -> Option<(SandboxEnd, Timestamp, String)> {
    if let Some((plugin, end)) = attachment.add_failure() {
        let claim = format!("CNI ADD in {} {}", plugin.plugin, failure(end));
        return Some((SandboxEnd::Failed, end.at, claim));
    }
    attachment.added()?;
    if let Some(at) = attachment.deleted() {
        let claim = "CNI ADD succeeded, then CNI DEL removed the network";
        return Some((SandboxEnd::Removed, at, claim.to_owned()));
    }
    let at = attachment.netns_gone?;
    let claim = "CNI ADD succeeded, then the netns went without CNI DEL";
    (!attachment.has_del()).then(|| (SandboxEnd::Gone, at, claim.to_owned()))
}
