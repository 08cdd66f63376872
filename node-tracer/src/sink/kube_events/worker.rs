//! The thread that writes Events: one request after the other, so many in a
//! time, and none of them kept from the rest by the one before.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::{sync::mpsc::Receiver, time::sleep_until};

use super::{
    Counts, Outcome,
    ledger::{Answer, Key, Ledger, Request},
    object::{Told, trial},
};
use crate::{
    clock::Timestamp,
    fault,
    source::kube::{WriteError, Writer},
};

/// Requests that are made at once, and how fast there may be more.
const BURST: u32 = 50;
const EACH: Duration = Duration::from_secs(1);

/// See the module's documentation.
pub(super) struct Worker {
    ledger: Ledger,
    writer: Writer,
    counts: Counts,
    rate: Rate,
    /// The server is left alone until then.
    pause: Option<Instant>,
    /// Kinds of failures that were told.
    told: BTreeSet<&'static str>,
}

impl Worker {
    pub(super) fn new(ledger: Ledger, writer: Writer, counts: Counts) -> Self {
        Self {
            ledger,
            writer,
            counts,
            rate: Rate::new(Instant::now()),
            pause: None,
            told: BTreeSet::new(),
        }
    }

    /// Until nobody tells anything any more.
    pub(super) async fn run(mut self, mut listen: Receiver<Told>) {
        self.try_out().await;
        loop {
            // What was told meanwhile may be about what is due.
            while let Ok(told) = listen.try_recv() {
                self.take(&told);
            }
            let next = self.ledger.next();
            let due = next.as_ref().map(|(_, due)| self.not_before(*due));
            tokio::select! {
                told = listen.recv() => match told {
                    Some(told) => self.take(&told),
                    None => break,
                },
                () = sleep_until(due.unwrap_or_else(Instant::now).into()), if due.is_some() => {
                    if let Some((key, _)) = next {
                        self.rate.take(Instant::now());
                        self.write(&key).await;
                    }
                }
            }
        }
        // What can be written now still is.
        while self.pause.is_none_or(|until| until <= Instant::now())
            && let Some((key, due)) = self.ledger.next()
            && due <= Instant::now()
        {
            self.write(&key).await;
        }
    }

    /// Who has no rights, or a wrong address, is told now and not at night.
    async fn try_out(&mut self) {
        let node = self.ledger.node().to_owned();
        let Some(object) = trial(&node, Timestamp::now()) else {
            tracing::warn!(
                "Kubernetes Events: {node:?} cannot be the name of a node; give --node-name as \
                 `kubectl get nodes` has it"
            );
            return;
        };
        let tried = self.writer.create(&object.namespace, &object.body, true);
        if let Err(error) = tried.await
            && self.failed(&error) == Answer::NotFound
        {
            tracing::warn!(
                "Kubernetes Events: {error}; it takes events.k8s.io/v1, which Kubernetes has since \
                 1.19"
            );
        }
    }

    fn take(&mut self, told: &Told) {
        for _ in 0..self.ledger.take(told, Instant::now()) {
            self.counts.add(Outcome::Dropped);
        }
    }

    fn not_before(&self, due: Instant) -> Instant {
        let paused = self.pause.unwrap_or(due);
        due.max(paused).max(self.rate.next())
    }

    async fn write(&mut self, key: &Key) {
        let Some(request) = self.ledger.request(key) else {
            return;
        };
        let written = match &request {
            Request::Create(object) => {
                let created = self.writer.create(&object.namespace, &object.body, false);
                created.await
            }
            Request::Learn(object) => {
                // A patch of nothing: reading would be one more right to have.
                let nothing = json!({});
                let read = self.writer.patch(&object.namespace, &object.name, &nothing);
                read.await
            }
            Request::Count(object, count) => {
                let now = Timestamp::now().to_string();
                let series = json!({ "series": { "count": count, "lastObservedTime": now } });
                let patched = self.writer.patch(&object.namespace, &object.name, &series);
                patched.await
            }
        };
        let answer = match &written {
            Ok(object) => Answer::Done(count_of(object)),
            Err(error) => self.failed(error),
        };
        if written.is_ok() {
            self.pause = None;
            if self.told.remove(LATER) {
                tracing::warn!("Kubernetes Events: the API server takes them again");
            }
        }
        if let (Request::Create(_), Err(error @ WriteError::NotFound { .. })) = (&request, &written)
        {
            self.tell_error("namespace", error);
        }
        if let Some(outcome) = self.ledger.answered(key, answer, Instant::now()) {
            self.counts.add(outcome);
        }
    }

    /// What a failure means for what was to be written; told, if it is new.
    fn failed(&mut self, error: &WriteError) -> Answer {
        match error {
            WriteError::Exists { .. } => Answer::Exists,
            WriteError::NotFound { .. } => Answer::NotFound,
            WriteError::Forbidden { .. } => {
                self.tell_error("forbidden", error);
                Answer::Never(Outcome::Forbidden)
            }
            WriteError::Refused { .. } => {
                self.tell_error("refused", error);
                Answer::Never(Outcome::Refused)
            }
            WriteError::Later(_) => {
                self.pause = Some(Instant::now() + self.writer.pause());
                self.tell_error(LATER, error);
                Answer::Later
            }
        }
    }

    /// One line for each kind of failure.
    fn tell_error(&mut self, kind: &'static str, error: &WriteError) {
        if self.told.insert(kind) {
            let text = fault::chain(error);
            tracing::warn!(
                "Kubernetes Events: {text}; such failures are counted from now on, and the trace \
                 goes on"
            );
        }
    }
}

/// The kind of failures that can be over.
const LATER: &str = "later";

/// How often an Event was seen.
fn count_of(object: &Value) -> u32 {
    let count = object["series"]["count"].as_u64().unwrap_or(1);
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// So many at once, and then one each so often.
struct Rate {
    /// The moment at which the burst is whole again.
    whole: Instant,
}

impl Rate {
    fn new(now: Instant) -> Self {
        Self { whole: now }
    }

    /// When there may be another one.
    fn next(&self) -> Instant {
        self.whole
            .checked_sub(EACH * (BURST - 1))
            .unwrap_or(self.whole)
    }

    fn take(&mut self, now: Instant) {
        self.whole = self.whole.max(now) + EACH;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_let_through_and_then_one_a_second() {
        let start = Instant::now() + Duration::from_secs(3_600);
        let mut rate = Rate::new(start);
        for _ in 0..BURST {
            assert!(rate.next() <= start);
            rate.take(start);
        }
        assert_eq!(rate.next(), start + EACH);
        rate.take(start + EACH);
        assert_eq!(rate.next(), start + 2 * EACH);
        // After a rest there is a burst again.
        let rested = start + EACH * (BURST + 10);
        assert!(rate.next() + EACH * (BURST - 1) <= rested);
    }
}
