//! Lists, watches, and tells; lists again when something has failed.

use std::{collections::BTreeSet, convert::Infallible, sync::mpsc::SyncSender};

use kube::core::params::WatchParams;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{
    Timing, Told,
    change::Change,
    retry::{Retry, random},
};
use crate::{
    client::{Client, Lines},
    credentials::Credentials,
    error::{KubeError, Problem},
    failed,
    list::{Listed, list_within, selector},
    listing,
};
use event::fault;

/// Nobody listens any more.
pub(super) struct Unheard;

/// Why a session ended.
enum End {
    Unheard,
    Failed(KubeError),
}

impl From<Unheard> for End {
    fn from(Unheard: Unheard) -> Self {
        Self::Unheard
    }
}

impl From<KubeError> for End {
    fn from(error: KubeError) -> Self {
        Self::Failed(error)
    }
}

/// See the module's documentation.
pub(super) struct Follower {
    credentials: Credentials,
    node: String,
    timing: Timing,
    out: SyncSender<Told>,
    retry: Retry,
    /// As of now; `None` before the first list.
    listed: Option<Listed>,
    /// UIDs on the list that was told last.
    told: BTreeSet<String>,
    /// When the list, which has changed, is to be told.
    due: Option<Instant>,
    told_at: Instant,
    /// When things began to fail, and what was told of it.
    failing: Option<(Instant, Option<String>)>,
}

impl Follower {
    /// Tells into the channel.
    pub(super) fn new(
        credentials: Credentials,
        node: &str,
        timing: Timing,
        out: SyncSender<Told>,
    ) -> Self {
        Self {
            node: credentials.node(node),
            credentials,
            timing,
            out,
            retry: Retry::new(timing.retry),
            listed: None,
            told: BTreeSet::new(),
            due: None,
            told_at: Instant::now(),
            failing: None,
        }
    }

    /// Until nobody listens any more.
    pub(super) async fn run(mut self) -> Unheard {
        loop {
            let error = match self.session().await {
                Ok(never) => match never {},
                Err(End::Unheard) => return Unheard,
                Err(End::Failed(error)) => error,
            };
            let told = self.tell_changes().and_then(|()| self.tell_failure(&error));
            if let Err(unheard) = told {
                return unheard;
            }
            sleep(self.retry.pause()).await;
        }
    }

    /// From a list until something fails.
    async fn session(&mut self) -> Result<Infallible, End> {
        let client = Client::new(&self.credentials)?;
        let listed = list_within(&client, &self.node, self.timing.answer).await;
        self.listed = Some(self.or_failed(listed)?);
        self.tell_list()?;
        let mut client = Some(client);
        loop {
            // Tokens and certificates are replaced in the meantime.
            let client = match client.take() {
                Some(client) => client,
                None => Client::new(&self.credentials)?,
            };
            self.watch(&client).await?;
        }
    }

    /// Until the server ends the watch in order.
    async fn watch(&mut self, client: &Client) -> Result<(), End> {
        let began = Instant::now();
        let lines = self.open(client).await;
        let mut lines = self.or_failed(lines)?;
        self.failing = None;
        self.tell(Told::Following)?;
        let silence = self.timing.watch + self.timing.overdue;
        loop {
            let due = self.due;
            let line = tokio::select! {
                line = timeout(silence, lines.next()) => line,
                () = sleep_until(due.unwrap_or(began)), if due.is_some() => {
                    self.tell_changes()?;
                    continue;
                }
            };
            let line = line.unwrap_or(Err(Problem::TimedOut { after: silence }));
            let Some(line) = self.or_failed(line)? else {
                self.tell_changes()?;
                if began.elapsed() < self.timing.begun {
                    return self.or_failed(Err(Problem::EndsAtOnce));
                }
                self.retry.reset();
                return Ok(());
            };
            self.retry.reset();
            let taken = self.take(&line)?;
            self.or_failed(taken)?;
        }
    }

    async fn open(&self, client: &Client) -> Result<Lines, Problem> {
        let most = self.timing.watch.as_secs() as u32;
        // Not all nodes at the same moment.
        let length = most - (f64::from(most) * 0.1 * random()) as u32;
        let params = WatchParams::default()
            .fields(&selector(&self.node)?)
            .timeout(length);
        let version = self
            .listed
            .as_ref()
            .map_or("", |listed| listed.version.as_str());
        let after = self.timing.answer;
        let opened = timeout(after, client.watch(&params, version)).await;
        opened.unwrap_or(Err(Problem::TimedOut { after }))
    }

    /// Takes an event. What is wrong with it is the inner result.
    fn take(&mut self, line: &[u8]) -> Result<Result<(), Problem>, Unheard> {
        let Some(change) = Change::parse(line) else {
            return Ok(Err(Problem::Garbage {
                what: "watch of pods",
            }));
        };
        let (version, change) = match change {
            Ok(change) => change,
            Err(problem) => return Ok(Err(problem)),
        };
        let Some(listed) = &mut self.listed else {
            return Ok(Ok(()));
        };
        if !version.is_empty() {
            listed.version = version;
        }
        match change {
            Change::None => {}
            Change::Put(uid, pod) => {
                listed.pods.insert(uid, pod);
                self.changed();
            }
            Change::Delete(uid, pod) => {
                if !self.told.contains(&uid) {
                    // It came and went before anything was told of it.
                    listed.pods.insert(uid.clone(), pod.clone());
                    self.tell_list()?;
                }
                if let Some(listed) = &mut self.listed {
                    listed.pods.remove(&uid);
                }
                // A static pod's mirror is made anew when that changes.
                if pod.uids.len() == 1 {
                    let at = sys::clock::now();
                    self.tell(Told::Deleted {
                        pod: Box::new(pod),
                        at,
                    })?;
                }
                self.changed();
            }
        }
        Ok(Ok(()))
    }

    /// The list is to be told: now, or a pause after the last time.
    fn changed(&mut self) {
        let soonest = (self.told_at + self.timing.pause).max(Instant::now());
        self.due = self.due.or(Some(soonest));
    }

    fn tell_changes(&mut self) -> Result<(), Unheard> {
        if self.due.is_some() {
            self.tell_list()
        } else {
            Ok(())
        }
    }

    fn tell_list(&mut self) -> Result<(), Unheard> {
        self.due = None;
        let Some(listed) = &self.listed else {
            return Ok(());
        };
        self.told = listed.pods.keys().cloned().collect();
        self.told_at = Instant::now();
        self.tell(Told::Listed(listing(listed)))
    }

    fn tell_failure(&mut self, error: &KubeError) -> Result<(), Unheard> {
        let (since, told) = self.failing.take().unwrap_or((Instant::now(), None));
        let text = fault::chain(error);
        let known = told.as_ref() == Some(&text);
        let at_once = self.listed.is_none();
        if known || !(at_once || since.elapsed() >= self.timing.grace) {
            self.failing = Some((since, told));
            return Ok(());
        }
        self.failing = Some((since, Some(text.clone())));
        self.tell(Told::Failed(text))
    }

    fn tell(&self, told: Told) -> Result<(), Unheard> {
        self.out.send(told).map_err(|_| Unheard)
    }

    fn or_failed<T>(&self, result: Result<T, Problem>) -> Result<T, End> {
        let after = self.timing.answer;
        result.map_err(|problem| End::Failed(failed(&self.credentials, problem, after)))
    }
}
