//! Lists, watches, and tells; lists again when something has failed.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    ops::Bound::{Excluded, Unbounded},
    sync::Arc,
    time::Duration,
};

use kube_core::params::WatchParams;
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};

use super::{
    Ahead, Timing, WatchUpdate,
    budget::{Budget, worth},
    change::Change,
    retry::{Retry, random},
};
use crate::{
    client::{Client, Lines},
    credentials::Credentials,
    error::{KubeError, Problem},
    failed,
    list::{Age, Listed, list_within, selector},
    listing,
};
use event::{Pod, fault};
use node::pods::weight;

/// How often is looked whether what was told is taken.
const LOOK: Duration = Duration::from_millis(20);

/// How long who asks for a proof takes to hear of one. Who has heard of it and still
/// lacks one asks again.
const HEARING: Duration = Duration::from_secs(2);

/// Nobody listens any more.
pub(super) struct Unheard;

enum SessionEnd {
    Unheard,
    Failed(KubeError),
}

impl From<Unheard> for SessionEnd {
    fn from(Unheard: Unheard) -> Self {
        Self::Unheard
    }
}

impl From<KubeError> for SessionEnd {
    fn from(error: KubeError) -> Self {
        Self::Failed(error)
    }
}

pub(super) struct Follower {
    credentials: Credentials,
    node: String,
    timing: Timing,
    out: Ahead,
    retry: Retry,
    /// Asks for a list as of now.
    prove: Arc<Notify>,
    /// It was asked for, and is not there yet.
    proof_wanted: bool,
    /// When there was one.
    proven_at: Option<Instant>,
    /// Lists in a row that the server did not have as new as they were to be.
    too_old: u32,
    /// As of now; `None` before the first list.
    listed: Option<Listed>,
    /// When that was told, whole.
    listed_at: Instant,
    /// Pods that have changed since they were told: each as it was told, if it
    /// was. What is not here is as it was told.
    untold: BTreeMap<String, Option<Pod>>,
    /// The UID of the one that was told last; then it is the next one's turn.
    last: String,
    /// When the next of them are to be told.
    due: Option<Instant>,
    told_at: Instant,
    budget: Budget,
    /// Some that came and went were not told.
    lost: bool,
    /// When things began to fail, and what was told of it.
    failing: Option<(Instant, Option<String>)>,
}

impl Follower {
    /// Tells into the channel.
    pub(super) fn new(
        credentials: Credentials,
        node: &str,
        timing: Timing,
        out: Ahead,
        prove: Arc<Notify>,
    ) -> Self {
        let now = Instant::now();
        Self {
            node: credentials.node(node),
            credentials,
            timing,
            out,
            retry: Retry::new(timing.retry),
            prove,
            proof_wanted: false,
            proven_at: None,
            too_old: 0,
            listed: None,
            listed_at: now,
            untold: BTreeMap::new(),
            last: String::new(),
            due: None,
            told_at: now,
            budget: Budget::new(now),
            lost: false,
            failing: None,
        }
    }

    /// Until nobody listens any more.
    pub(super) async fn run(mut self) -> Unheard {
        loop {
            let error = match self.session().await {
                Ok(never) => match never {},
                Err(SessionEnd::Unheard) => return Unheard,
                Err(SessionEnd::Failed(error)) => error,
            };
            if let Err(unheard) = self.pause(&error).await {
                return unheard;
            }
        }
    }

    /// Leaves the server alone, and tells that it has failed if that lasts.
    async fn pause(&mut self, error: &KubeError) -> Result<(), Unheard> {
        self.tell_changes()?;
        self.tell_failure(error)?;
        // The server is there, and each node loses its place by itself.
        if error.is_expired() {
            self.retry.reset();
        }
        let pause = self.retry.pause().max(error.retry_after());
        let mut until = Instant::now() + pause;
        let told = Instant::now() + pause.min(self.timing.grace);
        let needed = self.timing.needed.mul_f64(random());
        let prove = Arc::clone(&self.prove);
        tokio::select! {
            () = sleep_until(told) => {}
            () = prove.notified() => until = self.hurried(until, needed, error),
        }
        sleep_until(told.min(until)).await;
        self.tell_failure(error)?;
        tokio::select! {
            () = sleep_until(until) => return Ok(()),
            () = prove.notified() => until = self.hurried(until, needed, error),
        }
        sleep_until(until).await;
        Ok(())
    }

    /// When who needs a proof asks again: earlier, unless the server wants to be left
    /// alone.
    fn hurried(&mut self, until: Instant, pause: Duration, error: &KubeError) -> Instant {
        self.proof_wanted = true;
        let pause = pause.max(error.retry_after());
        until.min(Instant::now() + pause)
    }

    /// From a list until something fails.
    async fn session(&mut self) -> Result<Infallible, SessionEnd> {
        let mut client = Client::new(&self.credentials)?;
        loop {
            sleep_until(self.anew()).await;
            while !self.out.is_read() {
                sleep(LOOK).await;
            }
            let listed = self.list(&client).await;
            self.listed = Some(self.or_failed(listed)?);
            self.lost = false;
            self.tell_list()?;
            while !self.lost && !self.proof_is_due() {
                self.watch(&client).await?;
                // Tokens and certificates are replaced in the meantime.
                client = Client::new(&self.credentials)?;
            }
        }
    }

    /// Out of the cache, unless a proof is wanted, or the server cannot have what is
    /// known already: its data may have been restored from a backup.
    async fn list(&mut self, client: &Client) -> Result<Listed, Problem> {
        const MOST_TOO_OLD: u32 = 2;
        let known = self.listed.as_ref().map(|listed| listed.version.clone());
        let known = known.filter(|version| !version.is_empty());
        let age = match self.proof_wanted || self.too_old >= MOST_TOO_OLD {
            true => Age::Now,
            false => Age::NotOlder(known.as_deref().unwrap_or("0")),
        };
        let listed = list_within(client, &self.node, age, self.timing.answer).await;
        match &listed {
            Ok(listed) => {
                self.too_old = 0;
                if listed.is_of_now {
                    self.proof_wanted = false;
                    self.proven_at = Some(Instant::now());
                }
            }
            Err(Problem::Expired | Problem::Status { code: 504, .. }) => self.too_old += 1,
            Err(_) => {}
        }
        listed
    }

    fn proof_due(&self) -> Instant {
        let now = Instant::now();
        self.proven_at.map_or(now, |at| at + self.timing.anew)
    }

    fn proof_is_due(&self) -> bool {
        self.proof_wanted && self.proof_due() <= Instant::now()
    }

    /// When the pods may be listed anew: later where there are very many.
    fn anew(&self) -> Instant {
        let least = match self.lost {
            true => self.timing.anew,
            false => Duration::ZERO,
        };
        let listed = self.listed.as_ref();
        let worth = listed.map_or(Duration::ZERO, |listed| worth(listed.pods.weight()));
        self.listed_at + worth.max(least)
    }

    /// Until the server ends the watch in order, or a list is to show more.
    async fn watch(&mut self, client: &Client) -> Result<(), SessionEnd> {
        let began = Instant::now();
        let seconds = self.seconds();
        let lines = self.open(client, seconds).await;
        let mut lines = self.or_failed(lines)?;
        self.failing = None;
        self.retry.spread(self.timing.together);
        self.tell(WatchUpdate::Following)?;
        let silence = self.timing.watch + self.timing.overdue;
        // The server was asked to end it before.
        let end = began + silence;
        let mut heard = false;
        loop {
            let due = self.due;
            let (anew, proof) = (self.anew(), self.proof_due());
            let prove = Arc::clone(&self.prove);
            let line = tokio::select! {
                line = timeout_at(end, lines.next()) => line,
                () = sleep_until(due.unwrap_or(began)), if due.is_some() => {
                    self.tell_changes()?;
                    continue;
                }
                () = sleep_until(anew), if self.lost => {
                    self.tell_changes()?;
                    return Ok(());
                }
                () = prove.notified(), if !self.proof_wanted => {
                    let is_heard = |at: Instant| at.elapsed() >= HEARING;
                    self.proof_wanted = self.proven_at.is_none_or(is_heard);
                    continue;
                }
                () = sleep_until(proof), if self.proof_wanted => {
                    self.tell_changes()?;
                    return Ok(());
                }
            };
            if line.is_err() && heard {
                self.tell_changes()?;
                return Ok(());
            }
            heard |= line.is_ok();
            // A server that fails soon, each time, is asked ever less often.
            if began.elapsed() >= self.retry.next() {
                self.retry.reset();
                self.retry.spread(self.timing.together);
            }
            let line = line.unwrap_or(Err(Problem::TimedOut { after: silence }));
            let Some(line) = self.or_failed(line)? else {
                self.tell_changes()?;
                let length = Duration::from_secs(u64::from(seconds));
                if began.elapsed() + self.timing.early < length {
                    return self.or_failed(Err(Problem::EndsEarly));
                }
                return Ok(());
            };
            let taken = self.take(&line)?;
            if taken == Err(Problem::TooLarge) {
                self.listed = None;
                self.untold = BTreeMap::new();
            }
            self.or_failed(taken)?;
        }
    }

    /// How long the next watch is to last: not for all nodes as long.
    fn seconds(&self) -> u32 {
        let most = self.timing.watch.as_secs() as u32;
        most - (f64::from(most) * 0.1 * random()) as u32
    }

    async fn open(&self, client: &Client, seconds: u32) -> Result<Lines, Problem> {
        let params = WatchParams::default()
            .fields(&selector(&self.node)?)
            .timeout(seconds);
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
            Change::Put(uid, pod) if listed.pods.get(&uid) == Some(&pod) => {}
            Change::Put(uid, pod) => {
                let before = match listed.pods.put(uid.clone(), pod) {
                    Ok(before) => before,
                    Err(problem) => return Ok(Err(problem)),
                };
                self.untold.entry(uid).or_insert(before);
                self.changed();
            }
            Change::Delete(uid, pod) => {
                let known = listed.pods.remove(&uid);
                let told = match self.untold.remove(&uid) {
                    Some(told) => told,
                    None => known,
                };
                self.deleted(uid, pod, told)?;
            }
        }
        Ok(Ok(()))
    }

    /// A pod is gone, and was told like this.
    fn deleted(&mut self, uid: String, pod: Pod, told: Option<Pod>) -> Result<(), Unheard> {
        match told {
            // A static pod's mirror is made anew when that changes.
            Some(told) if pod.uids.len() > 1 => {
                self.untold.insert(uid, Some(told));
                self.changed();
                Ok(())
            }
            Some(told) => self.tell_deleted(told),
            // It came and went before anything was told of it.
            None if self.budget.take(2 * weight(&pod), Instant::now()) => {
                self.tell(WatchUpdate::Changed(Box::new(pod.clone())))?;
                self.tell_deleted(pod)
            }
            None => {
                // Only a list as of now shows that it is not there.
                (self.lost, self.proof_wanted) = (true, true);
                Ok(())
            }
        }
    }

    /// Changes are to be told: now, or a pause after the last time.
    fn changed(&mut self) {
        let soonest = (self.told_at + self.timing.pause).max(Instant::now());
        self.due = self.due.or(Some(soonest));
    }

    /// Tells of pods that have changed, as far as there is room.
    fn tell_changes(&mut self) -> Result<(), Unheard> {
        self.due = None;
        self.told_at = Instant::now();
        let Some(listed) = &self.listed else {
            return Ok(());
        };
        let whole = self.timing.whole.max(2 * worth(listed.pods.weight()));
        let is_old = self.listed_at.elapsed() >= whole;
        if !self.untold.is_empty() && is_old && self.out.is_read() {
            return self.tell_list();
        }
        while let Some(uid) = next(&self.untold, &self.last).cloned() {
            let pod = listed.pods.get(&uid);
            let told = self.untold.get(&uid).and_then(Option::as_ref);
            if let Some(pod) = pod.filter(|pod| told != Some(pod)) {
                if !self.budget.take(weight(pod), self.told_at) {
                    self.changed();
                    return Ok(());
                }
                self.tell(WatchUpdate::Changed(Box::new(pod.clone())))?;
            }
            let gone = self.untold.remove(&uid).flatten();
            // A static pod's mirror that was made anew took the place of the old one.
            let lives = |gone: &Pod| listed.pods.has_next_of(gone);
            if let Some(gone) = gone.filter(|gone| pod.is_none() && !lives(gone)) {
                self.tell_deleted(gone)?;
            }
            self.last = uid;
        }
        Ok(())
    }

    fn tell_list(&mut self) -> Result<(), Unheard> {
        self.due = None;
        self.untold.clear();
        let Some(listed) = &self.listed else {
            return Ok(());
        };
        self.listed_at = Instant::now();
        self.told_at = self.listed_at;
        self.tell(WatchUpdate::Listed(listing(listed)))
    }

    fn tell_deleted(&self, pod: Pod) -> Result<(), Unheard> {
        let at = sys::clock::now();
        let pod = Box::new(pod);
        self.tell(WatchUpdate::Deleted { pod, at })
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
        self.tell(WatchUpdate::Failed(text))
    }

    fn tell(&self, told: WatchUpdate) -> Result<(), Unheard> {
        self.out.tell(told).map_err(|_| Unheard)
    }

    fn or_failed<T>(&self, result: Result<T, Problem>) -> Result<T, SessionEnd> {
        let after = self.timing.answer;
        result.map_err(|problem| SessionEnd::Failed(failed(&self.credentials, problem, after)))
    }
}

/// Whose turn it is after the last one.
fn next<'a>(untold: &'a BTreeMap<String, Option<Pod>>, last: &str) -> Option<&'a String> {
    let mut later = untold.range::<str, _>((Excluded(last), Unbounded));
    let next = later.next().or_else(|| untold.first_key_value());
    next.map(|(uid, _)| uid)
}
