//! The thread that writes Events: one request after the other, so many in a
//! time, and none of them kept from the rest by the one before.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::sleep_until;

use super::{
    Counts, Outcome,
    changes::Listener,
    ledger::{GIVE_UP, Key, Ledger, Request, WriteResult},
    object::trial,
};
use crate::{
    WriteError, Writer,
    objects::{
        complaints::{AWAY, Complaints},
        rate::Rate,
    },
};
use event::fault;

/// Requests that are made at once, and how fast there may be more.
const BURST: u32 = 50;
const EACH: Duration = Duration::from_secs(1);

pub(super) struct Worker {
    ledger: Ledger,
    writer: Writer,
    counts: Counts,
    rate: Rate,
    /// The server is left alone until then.
    pause: Option<Instant>,
    /// Failures that were told.
    told: Complaints,
}

impl Worker {
    pub(super) fn new(ledger: Ledger, writer: Writer, counts: Counts) -> Self {
        Self {
            ledger,
            writer,
            counts,
            rate: Rate::new(Instant::now(), BURST, EACH),
            pause: None,
            told: Complaints::new(
                "Kubernetes Events",
                "such failures are counted from now on, and the trace goes on",
            ),
        }
    }

    /// Until nobody tells anything any more.
    /// Returns what was not written.
    pub(super) async fn run(mut self, listener: Listener) -> Ledger {
        self.try_out().await;
        // What was told meanwhile may be about what is due.
        while self.take(&listener) {
            let next = self.ledger.next(Instant::now());
            let due = next.map(|(_, due)| self.not_before(due));
            tokio::select! {
                () = listener.wait() => {}
                () = sleep_until(due.unwrap_or_else(Instant::now).into()), if due.is_some() => {
                    // By now it may be another one's turn.
                    let now = Instant::now();
                    if let Some((key, _)) = self.ledger.next(now) {
                        self.rate.take(now);
                        self.write(&key).await;
                    }
                }
            }
        }
        // What can be written now still is.
        while self.pause.is_none_or(|until| until <= Instant::now())
            && let Some((key, due)) = self.ledger.next(Instant::now())
            && due <= Instant::now()
        {
            self.write(&key).await;
        }
        self.ledger
    }

    /// Who has no rights, or a wrong address, is told now and not at night.
    async fn try_out(&mut self) {
        let node = self.ledger.node().to_owned();
        let Some(object) = trial(&node, sys::clock::now()) else {
            tracing::warn!(
                "Kubernetes Events: {node:?} cannot be the name of a node; give --node-name as \
                 `kubectl get nodes` has it"
            );
            return;
        };
        let tried = self.writer.create(&object.namespace, &object.body, true);
        if let Err(error) = tried.await
            && self.failed(&error) == WriteResult::NotFound
        {
            tracing::warn!(
                "Kubernetes Events: {error}; it takes events.k8s.io/v1, which Kubernetes has since \
                 1.19"
            );
        }
    }

    /// Takes in what was told. Returns whether more can follow.
    fn take(&mut self, listener: &Listener) -> bool {
        let taken = listener.take();
        let mut left_out = taken.left_out;
        for told in &taken.changes {
            for _ in 0..self.ledger.take(told, Instant::now()) {
                self.counts.add(Outcome::Dropped);
                left_out = true;
            }
        }
        if left_out {
            self.told
                .tell(DROPPED, "there are more than there is room for");
        }
        !taken.closed
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
                let now = sys::clock::now().to_string();
                let series = json!({ "series": { "count": count, "lastObservedTime": now } });
                let patched = self.writer.patch(&object.namespace, &object.name, &series);
                patched.await
            }
        };
        let answer = match &written {
            Ok(object) => WriteResult::Done(object.count().unwrap_or(1)),
            Err(error) => self.failed(error),
        };
        if written.is_ok() {
            self.pause = None;
            self.told.works();
        }
        if let (Request::Create(_), Err(error @ WriteError::NotFound { .. })) = (&request, &written)
        {
            self.tell_error("namespace", error);
        }
        self.answered(key, answer, Instant::now());
    }

    fn answered(&mut self, key: &Key, answer: WriteResult, now: Instant) {
        let Some(outcome) = self.ledger.answered(key, answer, now) else {
            return;
        };
        self.counts.add(outcome);
        if outcome == Outcome::Expired {
            let minutes = GIVE_UP.as_secs() / 60;
            let (namespace, name) = key;
            let what = format!("{name} in namespace {namespace} was not taken in {minutes} min");
            self.told.tell(EXPIRED, &what);
        }
    }

    /// What a failure means for what was to be written; told, if it is new.
    fn failed(&mut self, error: &WriteError) -> WriteResult {
        match error {
            WriteError::Exists { .. } => WriteResult::Exists,
            WriteError::NotFound { .. } => WriteResult::NotFound,
            WriteError::Forbidden { .. } => {
                self.tell_error("forbidden", error);
                WriteResult::Never(Outcome::Forbidden)
            }
            WriteError::Refused { .. } => {
                self.tell_error("refused", error);
                WriteResult::Never(Outcome::Refused)
            }
            WriteError::Later(_) => {
                self.pause = Some(Instant::now() + self.writer.pause());
                self.tell_error(AWAY, error);
                WriteResult::Later
            }
        }
    }

    fn tell_error(&mut self, kind: &'static str, error: &WriteError) {
        self.told.tell(kind, &fault::chain(error));
    }
}

/// There was no room.
const DROPPED: &str = "dropped";
/// It was tried for too long.
const EXPIRED: &str = "expired";

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};

    use super::*;
    use crate::{
        KubeError,
        events::{EVENTS, changes, object::EventChange, tests::ghost},
        server::{Reply, Server},
    };
    use event::finding::State;

    /// What a worker says of itself, line by line.
    fn said(work: impl FnOnce(&mut Worker)) -> Vec<String> {
        let server = Server::new(|_, _| Reply::Hang);
        let writer = Writer::new(server.credentials(), EVENTS);
        let mut worker = Worker::new(Ledger::new("node-1"), writer, Counts::new());
        let (read, write) = std::io::pipe().unwrap();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(std::sync::Mutex::new(write))
            .finish();
        tracing::subscriber::with_default(subscriber, || work(&mut worker));
        let lines = BufReader::new(read).lines();
        lines.map(Result::unwrap).collect()
    }

    fn later() -> WriteError {
        KubeError::Start(std::io::ErrorKind::TimedOut.into()).into()
    }

    #[test]
    fn what_was_not_taken_for_long_is_told_once() {
        let said = said(|worker| {
            let start = Instant::now();
            let told = EventChange::of(sys::clock::now(), &ghost(), State::Open);
            worker.ledger.take(&told, start);
            for now in [start, start + GIVE_UP] {
                while let Some((key, due)) = worker.ledger.next(now)
                    && due <= now
                {
                    worker.answered(&key, WriteResult::Later, now);
                }
            }
            assert_eq!(worker.counts.of(Outcome::Expired), 2);
        });
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("was not taken in 10 min"), "{said:?}");
    }

    #[test]
    fn what_there_is_no_room_for_is_told_once() {
        let said = said(|worker| {
            let (told, listener) = changes::pair();
            for round in 0..3 {
                for number in 0..2 * changes::MOST {
                    let mut finding = ghost();
                    finding.id = format!("{number:016x}");
                    told.tell(EventChange::of(sys::clock::now(), &finding, State::Open));
                }
                assert!(worker.take(&listener), "{round}");
            }
        });
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("than there is room for"), "{said:?}");
    }

    #[test]
    fn after_the_server_was_away_each_failure_is_news() {
        let said = said(|worker| {
            for _ in 0..2 {
                for _ in 0..3 {
                    worker.failed(&later());
                    worker.told.tell(EXPIRED, "late");
                }
                worker.told.works();
                worker.told.works();
            }
        });
        let of = |words: &str| said.iter().filter(|line| line.contains(words)).count();
        assert_eq!((of("late;"), of("answers again")), (2, 2), "{said:?}");
        assert_eq!(said.len(), 6, "{said:?}");
    }
}
