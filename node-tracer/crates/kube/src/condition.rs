//! The node's condition `PodAddressConflict`, for `kubectl describe node` and
//! for what keeps pods off a node: True while a pod's address is in use twice, or
//! can be given out a second time.
//!
//! It follows the open findings of [`CONFLICTS`]. What is there is read once, at
//! the start: a tracer that was killed leaves its condition, and this one goes on
//! with it. From then on something is written only when status, reason or
//! message change; there is no heartbeat. At the end the condition is removed:
//! where nobody looks, nothing is said.
//!
//! The patch is a strategic merge, in which conditions are told apart by their
//! type: those of kubelet and of others stay as they are. A trace never waits
//! for it.

use std::{
    collections::BTreeSet,
    io,
    sync::mpsc::{self, Receiver},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::{sync::watch, time::sleep_until};

use crate::{
    Credentials, Objects, WriteError, Writer,
    events::{is_name, reason},
    objects::{
        Condition,
        complaints::{AWAY, Complaints},
        rate::Rate,
    },
    on_this_thread,
};
use event::{
    fault,
    finding::{Finding, Phase, Rule, Severity},
    wording::plural::counted,
};
use sys::{clock, privileges::start_bare};

/// The condition's type.
pub const TYPE: &str = "PodAddressConflict";

/// Nodes, of which the status is written.
pub const NODES: Objects = Objects {
    api: "/api/v1",
    plural: "nodes",
    name: "nodes/status",
    verbs: "patch",
};

/// What is a conflict, worst first, and what it says of the address. Only what
/// is critical counts: of the others no pod's address is in use twice, or that is
/// not known.
const CONFLICTS: [(Rule, Option<Phase>, &str); 4] = [
    (Rule::GhostSandbox, Some(Phase::Conflict), TWICE),
    (Rule::DuplicateAddress, None, TWICE),
    (Rule::GhostSandbox, Some(Phase::Armed), FREE),
    (Rule::UnreservedAddress, None, FREE),
];
const TWICE: &str = "is in use twice";
const FREE: &str = "is still in use, but free for the next pod";

const TRUE: &str = "True";

/// What belongs together is found at one time.
const SETTLE: Duration = Duration::from_secs(1);
/// What changes the words alone may change back: a tracer that comes back finds
/// the same conflict step by step.
const WORDS: Duration = Duration::from_secs(15);
/// Nothing found means little before rules have had their time: a ghost shows
/// after half a minute.
const HOLD: Duration = Duration::from_secs(60);
/// Writes that are made at once, and how often there may be one from then on.
const BURST: u32 = 6;
const EACH: Duration = Duration::from_secs(60);
/// What is not allowed may be later.
const AGAIN: Duration = Duration::from_secs(10 * 60);
/// How long the end waits for the condition to be removed.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The trace's end of it.
pub struct NodeCondition {
    wanted: watch::Sender<Wanted>,
    /// Says that all is done.
    done: Receiver<()>,
}

/// One that is being removed.
pub struct Stopping {
    done: Receiver<()>,
    until: Instant,
}

/// What the condition is to say, and from when on.
#[derive(Clone, Debug)]
struct Wanted {
    said: Option<Condition>,
    not_before: Instant,
}

impl NodeCondition {
    /// Starts the thread that writes; `node` is the name as configured, see
    /// [`Credentials::node`]. It first asks whether it may.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn start(credentials: Credentials, node: &str) -> io::Result<Self> {
        let node = credentials.node(node);
        let worker = Worker::new(Writer::new(credentials, NODES), node);
        let (wanted, listener) = watch::channel(Wanted::new());
        let (finished, done) = mpsc::sync_channel(1);
        let work = move || {
            // Without an event loop nothing is written, and no one waits.
            if let Err(error) = on_this_thread(worker.run(listener)) {
                tracing::warn!("Node condition: {error}");
            }
            let _ = finished.send(());
        };
        start_bare("node-condition", work)?;
        Ok(Self { wanted, done })
    }

    /// Follows the findings that are open; never waits. `is_checked`: no source
    /// is missing that these rules need.
    pub fn follow(&self, open: &[&Finding], is_checked: bool) {
        let said = condition(open, is_checked);
        let turn = |wanted: &mut Wanted| wanted.turn(said, Instant::now());
        self.wanted.send_if_modified(turn);
    }

    /// Has the condition removed, and does not wait for that yet.
    pub fn stop(self) -> Stopping {
        Stopping {
            done: self.done,
            until: Instant::now() + LAST_WORDS,
        }
    }
}

impl Stopping {
    /// Waits a moment until it is removed.
    pub fn finish(self) {
        let left = self.until.saturating_duration_since(Instant::now());
        if self.done.recv_timeout(left).is_err() {
            tracing::warn!("Node condition: the API server is slow; {TYPE} may stay on the node");
        }
    }
}

fn condition(open: &[&Finding], is_checked: bool) -> Condition {
    let conflicts = open.iter().filter_map(|finding| {
        let is = |(rule, phase, _): &(Rule, Option<Phase>, &str)| {
            (*rule, *phase) == (finding.rule, finding.detail.phase)
        };
        let rank = CONFLICTS.iter().position(is)?;
        (finding.severity == Severity::Critical).then_some((rank, *finding))
    });
    let (rank, worst) = conflicts
        .clone()
        .min_by_key(|(rank, finding)| (*rank, finding.since, &finding.id))
        .unzip();
    let (status, reason, message) = match (worst, is_checked) {
        (Some(worst), _) => {
            let incidents: BTreeSet<&str> = conflicts.map(|(_, it)| it.incident()).collect();
            let (.., words) = CONFLICTS[rank.unwrap_or_default()];
            let message = message(incidents.len(), worst, words);
            (TRUE, reason(worst.rule, false), message)
        }
        (None, true) => (
            "False",
            String::from("NoConflict"),
            String::from("no pod IP was found to be in use twice"),
        ),
        (None, false) => (
            "Unknown",
            String::from("NotChecked"),
            String::from("node-tracer lacks a source; node-tracer check names it"),
        ),
    };
    Condition {
        kind: TYPE.to_owned(),
        status: status.to_owned(),
        reason,
        message,
    }
}

/// One line. Of what others choose there are names as the API allows them.
fn message(incidents: usize, worst: &Finding, words: &str) -> String {
    let mut message = counted(incidents, "incident");
    message += if incidents == 1 {
        ": "
    } else {
        ", the worst: "
    };
    let address = worst.addresses.first();
    message += &address.map_or_else(|| String::from("an IP"), ToString::to_string);
    let pod = worst.pod.as_ref();
    if let Some((namespace, name)) =
        pod.and_then(|pod| pod.namespace.as_ref().zip(pod.name.as_ref()))
        && is_name(namespace, 63)
        && is_name(name, 253)
    {
        message += &format!(" of pod {namespace}/{name}");
    }
    message + " " + words
}

impl Wanted {
    fn new() -> Self {
        Self {
            said: None,
            not_before: Instant::now(),
        }
    }

    /// Takes in what is so now. Returns whether that is news.
    fn turn(&mut self, said: Condition, now: Instant) -> bool {
        if self.said.as_ref() == Some(&said) {
            return false;
        }
        let was_true = self.said.as_ref().map(|said| said.status == TRUE);
        let is_true = said.status == TRUE;
        // What was found and is over is known to be over.
        let is_over = was_true == Some(true) && said.status == "False";
        let due = now + if is_true || is_over { SETTLE } else { HOLD };
        let waits = self.not_before > now && was_true == Some(is_true);
        self.not_before = if waits { self.not_before.min(due) } else { due };
        self.said = Some(said);
        true
    }
}

struct Worker {
    writer: Writer,
    node: String,
    rate: Rate,
    /// The server is left alone until then.
    pause: Instant,
    told: Complaints,
    /// What is on the node, once that was read.
    there: Option<Option<Condition>>,
}

impl Worker {
    fn new(writer: Writer, node: String) -> Self {
        let now = Instant::now();
        Self {
            writer,
            node,
            rate: Rate::new(now, BURST, EACH),
            pause: now,
            told: Complaints::new(
                "Node condition",
                "it is tried again from time to time, and the trace goes on",
            ),
            there: None,
        }
    }

    /// Until nobody wants anything any more.
    async fn run(mut self, mut listener: watch::Receiver<Wanted>) {
        if !is_name(&self.node, 253) {
            tracing::warn!(
                "Node condition: {:?} cannot be the name of a node; give --node-name as `kubectl \
                 get nodes` has it",
                self.node
            );
            return;
        }
        loop {
            let wanted = listener.borrow_and_update().clone();
            let due = self.due(&wanted);
            tokio::select! {
                changed = listener.changed() => if changed.is_err() {
                    break;
                },
                () = sleep_until(due.unwrap_or_else(Instant::now).into()), if due.is_some() => {
                    self.step(wanted.said).await;
                }
            }
        }
        self.remove().await;
    }

    /// When there is something to do.
    fn due(&self, wanted: &Wanted) -> Option<Instant> {
        let Some(there) = &self.there else {
            return Some(self.pause);
        };
        let is_news = wanted.said.is_some() && *there != wanted.said;
        let status = |said: &Option<Condition>| said.as_ref().map(|said| said.status.clone());
        let is_same = status(there) == status(&wanted.said);
        let due = wanted.not_before + if is_same { WORDS } else { Duration::ZERO };
        let due = due.max(self.pause).max(self.rate.next());
        is_news.then_some(due)
    }

    /// Reads what is there, or writes what is to be.
    async fn step(&mut self, said: Option<Condition>) {
        match &self.there {
            None => {
                // A patch of nothing that is only checked: who has no rights is
                // told now and not at night.
                match self.patch(&json!({}), true).await {
                    Ok(there) => self.there = Some(there),
                    // Some webhooks let nothing be checked: what is there is not
                    // known, and is replaced.
                    Err(WriteError::Refused { .. }) => {
                        self.there = Some(Some(Condition::default()));
                    }
                    Err(error) => self.failed(&error),
                }
            }
            Some(there) => {
                let Some(wanted) = &said else { return };
                let before = there.as_ref().map(|it| &*it.status);
                let patch = patch(wanted, before);
                self.rate.take(Instant::now());
                match self.patch(&patch, false).await {
                    Ok(_) => self.there = Some(said),
                    Err(error) => self.failed(&error),
                }
            }
        }
    }

    async fn patch(
        &mut self,
        patch: &Value,
        dry_run: bool,
    ) -> Result<Option<Condition>, WriteError> {
        let node = self.writer.patch_status(&self.node, patch, dry_run).await?;
        self.told.works();
        Ok(node.condition(TYPE))
    }

    fn failed(&mut self, error: &WriteError) {
        let (kind, pause) = match error {
            WriteError::Later(_) => (AWAY, self.writer.pause()),
            WriteError::Forbidden { .. } => ("forbidden", AGAIN),
            WriteError::NotFound { .. } => ("not found", AGAIN),
            WriteError::Exists { .. } | WriteError::Refused { .. } => ("refused", AGAIN),
        };
        self.pause = Instant::now() + pause;
        self.told.tell(kind, &fault::chain(error));
    }

    /// Leaves nothing.
    async fn remove(mut self) {
        if self.there == Some(None) {
            return;
        }
        let patch = json!({ "status": { "conditions": [{ "type": TYPE, "$patch": "delete" }] } });
        if let Err(error) = self.patch(&patch, false).await
            && self.there.is_some()
        {
            let error = fault::chain(&error);
            tracing::warn!("Node condition: {TYPE} stays on the node: {error}");
        }
    }
}

/// What makes the condition say this. Since when it has its status is kept, if
/// that was the same before.
fn patch(said: &Condition, before: Option<&str>) -> Value {
    let now = clock::now().to_string();
    let mut condition = json!({
        "type": said.kind,
        "status": said.status,
        "reason": said.reason,
        "message": said.message,
        "lastHeartbeatTime": now,
    });
    if before != Some(&*said.status) {
        condition["lastTransitionTime"] = json!(now);
    }
    json!({ "status": { "conditions": [condition] } })
}

#[cfg(test)]
mod tests;
