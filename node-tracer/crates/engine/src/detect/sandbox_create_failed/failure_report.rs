//! One thing that keeps a pod from starting, whoever tells of it.

use crate::{
    detect::facts::calls::failure,
    model::{
        Model,
        calls::{CallResult, Failing, PodCalls},
        starts::{Failed, gist, key},
    },
};
use std::collections::HashSet;

use diagnosis::{Cause, phrase::SearchText};
use event::{OomKill, clock::Timestamp, wording::subjects::task_label};

pub(super) struct FailureReport<'a> {
    pub(super) cause: Cause,
    pub(super) text: String,
    /// Of a call that was seen, what a runtime tells of it.
    passed_on: Option<String>,
    /// Who said so first.
    pub(super) reporter: &'a str,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    pub(super) times: u64,
    /// The pod got over it.
    pub(super) mended: bool,
    /// It only sums up what others say in full.
    sums_up: bool,
}

impl<'a> FailureReport<'a> {
    /// By a log, or by an event.
    pub(super) fn said(failed: &'a Failed) -> Self {
        let failure = &failed.failure;
        let cause = *failed.judged.get_or_init(|| Cause::of(failure));
        Self {
            cause,
            text: gist(&failure.message),
            passed_on: None,
            reporter: failed.reporters().next().unwrap_or("log"),
            first: failed.first,
            last: failed.last,
            times: failed.times(),
            mended: failure.mended,
            sums_up: cause == Cause::VolumeMount && sums_up(&failure.message),
        }
    }

    /// By its own CNI calls.
    pub(super) fn called(model: &Model, pod: &PodCalls, failing: &Failing) -> Self {
        let attachments = pod
            .made
            .iter()
            .filter(|made| made.container_id == failing.last_id);
        let attachments = attachments.flat_map(|made| model.calls.of_container(&made.container_id));
        let children = attachments.flat_map(|each| &each.plugins);
        let children = children.filter(|plugin| plugin.delegated);
        let children = children.filter_map(|plugin| plugin.add.as_ref()?.failure());
        let children = children.map(CallResult::plugin_failure);
        Self {
            cause: Cause::of_call(failing.end.plugin_failure(), children),
            text: format!("CNI ADD in {} {}", failing.plugin, failure(&failing.end)),
            passed_on: failing.end.error.as_ref().map(|error| {
                let plugin = &failing.plugin;
                let details = error.details.as_deref().map(|text| format!("; {text}"));
                let details = details.unwrap_or_default();
                format!(
                    "plugin type=\"{plugin}\" failed (add): {}{details}",
                    error.msg
                )
            }),
            reporter: "cni",
            first: failing.since,
            last: failing.end.at,
            times: failing.times,
            mended: false,
            sums_up: false,
        }
    }

    pub(super) fn killed(at: Timestamp, kill: &OomKill) -> Self {
        let of_limit = kill.limited.unwrap_or(kill.memcg.is_some());
        let whose = match (&kill.memcg, of_limit) {
            (Some(memcg), _) => format!("the limit of {memcg} was reached"),
            (None, true) => String::from("its cgroup's limit was reached"),
            (None, false) => String::from("memory was short"),
        };
        let text = format!("the kernel killed {}, as {whose}", task_label(&kill.task));
        Self {
            // Of a node without memory anything is killed, but a pause process
            // last of all: its score is the lowest.
            cause: match kill.limited {
                Some(false) => Cause::NodeMemory,
                _ => Cause::SandboxOom,
            },
            text,
            passed_on: None,
            reporter: "kernel",
            first: at,
            last: at,
            times: 1,
            mended: false,
            sums_up: false,
        }
    }

    /// What failed and how, without names and numbers: the same for each pod
    /// that it keeps from starting, whoever tells it.
    pub(super) fn words(&self, names: &HashSet<&str>) -> String {
        let text = self.passed_on.as_ref().unwrap_or(&self.text);
        key(&match plugin(text) {
            Some((plugin, said)) => format!("{plugin}: {}", without(said, names)),
            None => without(text, names),
        })
    }

    /// How much it decides.
    pub(super) fn weight(&self) -> u8 {
        match (self.cause, self.sums_up) {
            (Cause::Unknown, _) => 0,
            (_, true) => 1,
            (_, false) => 2,
        }
    }
}

/// `plugin type="bridge" name="pods" failed (add): no such device`: the plugin and
/// what it said.
fn plugin(text: &str) -> Option<(&str, &str)> {
    let (_, rest) = text.split_once("plugin type=\"")?;
    let (plugin, rest) = rest.split_once('"')?;
    let (_, said) = rest.split_once("failed (add): ")?;
    Some((plugin, said))
}

/// A text without these words.
fn without(text: &str, names: &HashSet<&str>) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let mut rest = String::with_capacity(text.len());
    for piece in text.split_inclusive(|c| !is_part(c)) {
        let word = piece.trim_end_matches(|c| !is_part(c));
        match names.contains(word) {
            true => rest.extend(["#", piece.strip_prefix(word).unwrap_or_default()]),
            false => rest.push_str(piece),
        }
    }
    rest
}

/// The kubelet's summary of what each volume's own message says.
fn sums_up(message: &str) -> bool {
    SearchText::new(message).has_one(&[
        "unmounted volumes",
        "unattached volumes",
        "unattached/unmounted volumes",
    ])
}
