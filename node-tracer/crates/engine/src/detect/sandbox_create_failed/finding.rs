//! A pod that does not start, in words.

use crate::detect::{
    View, commented, evidence,
    facts::{
        calls::{clipped, pace},
        command::is_plain,
    },
    fitting, kubectl_words, logged_of,
    sandbox_create_failed::{FailureReport, Leader, MANY, Stuck},
};
use diagnosis::Cause;
use event::{
    FullFilesystem,
    finding::{Detail, Evidence, Finding, Rule, Severity, finding_id},
    wording::plural::counted,
};

/// How much of a message is claimed.
const SAID: usize = 600;
/// How much of one whose cause is not known.
const SAID_WHOLE: usize = 2_000;
const TITLED: usize = 120;
const CLAIMS: usize = 8;

impl Stuck<'_> {
    pub(super) fn finding(&self, view: &View<'_>, leader: Option<&Leader>) -> Finding {
        let cause = self.cause();
        let times = self.times();
        let follows_another = leader.filter(|leader| leader.id != self.id);
        Finding {
            rule: Rule::SandboxCreateFailed,
            severity: match (self.is_mended(), times >= MANY) {
                (true, false) => Severity::Info,
                (false, true) if !self.is_starting() => Severity::Critical,
                _ => Severity::Warning,
            },
            id: self.finding_id(view, &self.id),
            since: self.since(),
            title: self.title(),
            pod: (self.pod != Default::default()).then(|| self.pod.clone()),
            sandbox_id: self.sandbox_id.clone(),
            netns: None,
            addresses: Vec::new(),
            holders: Vec::new(),
            evidence: self.evidence(view, leader),
            unknown: self.unknown(),
            advice: match follows_another {
                Some(leader) => vec![format!(
                    "the same as for {}: see finding {}",
                    leader.label,
                    self.finding_id(view, &leader.id)
                )],
                None => self.advice(),
            },
            detail: Detail {
                cause: Some(cause.as_str().to_owned()),
                earlier_cause: self.earlier().map(|cause| cause.as_str().to_owned()),
                attempts: Some(times),
                ..Detail::default()
            },
        }
    }

    fn title(&self) -> String {
        let starts = match self.is_mended() {
            true => "did not start at first",
            false => "does not start",
        };
        let why = self.why();
        let named = format!("{} {starts}: {why}", self.label());
        fitting(named, || format!("a pod {starts}: {why}"))
    }

    /// Whether the pod has started since.
    fn is_mended(&self) -> bool {
        !self.told.is_empty() && self.told.iter().all(|told| told.mended)
    }

    /// Whether what is missing may only be late.
    fn is_starting(&self) -> bool {
        self.decisive()
            .is_some_and(|told| told.cause.may_be_late(told.last.since(told.first)))
    }

    fn finding_id(&self, view: &View<'_>, id: &str) -> String {
        finding_id(&view.settings.boot_id, Rule::SandboxCreateFailed, id)
    }

    fn why(&self) -> String {
        let Some(told) = self.decisive() else {
            return Cause::Unknown.clause().to_owned();
        };
        match (told.cause, self.earlier()) {
            (Cause::Unknown, _) => format!("unknown cause; {}", clipped(&told.text, TITLED)),
            (cause, Some(earlier)) => {
                format!("{}; first: {}", cause.clause(), earlier.clause())
            }
            (cause, None) => match cause.remedy(&told.text) {
                Some(remedy) => remedy.clause.to_owned(),
                None => cause.clause().to_owned(),
            },
        }
    }

    /// Causes in the order in which they came, each with what said so last.
    fn evidence(&self, view: &View<'_>, leader: Option<&Leader>) -> Vec<Evidence> {
        let mut claims = Vec::new();
        for told in self.last_of_each().into_iter().take(CLAIMS) {
            let length = match told.cause {
                Cause::Unknown => SAID_WHOLE,
                _ => SAID,
            };
            let pace = match told.times {
                0 | 1 => None,
                times => pace(told.first, told.last, times),
            };
            let pace = pace.map(|pace| format!(", {pace}")).unwrap_or_default();
            let text = clipped(&told.text, length);
            let claim = format!("{}{pace}: {text}", told.cause.as_str());
            claims.push(evidence(claim, told.reporter, told.last));
        }
        for (at, full) in view.model.starts.full() {
            if *at >= self.since() {
                claims.push(evidence(words_of(full), "kernel", *at));
            }
        }
        if let Some(leader) = leader.filter(|leader| leader.id == self.id) {
            let more = match leader.more {
                0 => String::new(),
                more => format!(" and {} more", counted(more.next_multiple_of(10), "pod")),
            };
            let more = more.replacen("and ", "and up to ", 1);
            let claim = format!(
                "the node causes it: the same keeps {}{more} from starting",
                leader.others.join(", ")
            );
            claims.push(evidence(claim, "node-tracer", self.since()));
        }
        claims
    }

    /// Of messages with one cause the one that says most of it, or else the
    /// last; of those without any, each.
    fn last_of_each(&self) -> Vec<&FailureReport<'_>> {
        let mut all: Vec<&FailureReport<'_>> = Vec::new();
        for told in &self.told {
            let known = all
                .iter_mut()
                .find(|known| known.cause == told.cause && told.cause != Cause::Unknown);
            match known {
                Some(known) if told.weight() >= known.weight() => *known = told,
                Some(_) => {}
                None => all.push(told),
            }
        }
        // What is not known says little where something is.
        if self.cause() != Cause::Unknown {
            all.retain(|told| told.cause != Cause::Unknown);
        }
        all
    }

    fn unknown(&self) -> Vec<String> {
        let mut unknown = Vec::new();
        if self.cause() == Cause::Unknown {
            unknown.push(String::from("why: the message is not recognised"));
        }
        if self.cause().follows() && self.earlier().is_none() {
            unknown.push(String::from(
                "what went wrong first: as a rule this follows from an earlier failure, which was \
                 not seen",
            ));
        }
        if self.pod.name.is_none() && self.pod.uid.is_none() {
            unknown.push(String::from("which pod: the message does not name it"));
        }
        unknown
    }

    fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        if self.is_mended() {
            advice.push(String::from(
                "nothing to do unless it comes again: the pod has started since",
            ));
        }
        if self.has_calls {
            advice.push(String::from(
                "see the add-failed finding of the same pod: it has the plugin's message and what to \
                 do",
            ));
        } else {
            let cause = self.cause();
            let remedy = self.decisive().and_then(|told| cause.remedy(&told.text));
            let own = remedy.map_or(cause.advice(), |remedy| remedy.advice);
            // What came first is mended first.
            let first = self.earlier().map_or(&[][..], Cause::advice);
            advice.extend(first.iter().chain(own).map(ToString::to_string));
        }
        if let Some(words) = kubectl_words(&self.pod) {
            advice.push(commented(
                format!("kubectl describe pod {words}"),
                "its Events",
            ));
        }
        if let Some(id) = self.sandbox_id.as_deref().filter(|id| is_plain(id)) {
            advice.push(commented(logged_of(id), "the log of the last try"));
        }
        advice
    }
}

/// What of a file system is used up.
fn words_of(full: &FullFilesystem) -> String {
    let FullFilesystem {
        path,
        bytes,
        bytes_free,
        inodes,
        inodes_free,
    } = full;
    const MIB: u64 = 1 << 20;
    let path = path.display();
    match *inodes > 0 && *inodes_free == 0 {
        true => format!("the file system of {path} has none of its {inodes} inodes free"),
        false => format!(
            "the file system of {path} has {} MiB of its {} MiB free",
            bytes_free / MIB,
            bytes / MIB
        ),
    }
}
