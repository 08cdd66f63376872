//! One thing that keeps a pod from starting, whoever tells of it.

use crate::{
    detect::facts::calls::failure,
    model::{
        Model,
        calls::{CallResult, Failing, PodCalls},
        starts::{Failed, gist},
    },
};
use diagnosis::{Cause, phrase::SearchText};
use event::{OomKill, clock::Timestamp, wording::subjects::task_label};

pub(super) struct FailureReport<'a> {
    pub(super) cause: Cause,
    pub(super) text: String,
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
            reporter: "kernel",
            first: at,
            last: at,
            times: 1,
            mended: false,
            sums_up: false,
        }
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

/// The kubelet's summary of what each volume's own message says.
fn sums_up(message: &str) -> bool {
    SearchText::new(message).has_one(&[
        "unmounted volumes",
        "unattached volumes",
        "unattached/unmounted volumes",
    ])
}
