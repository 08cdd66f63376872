//! Pods that do not start: what was said of their sandboxes and of what they
//! need besides, and tasks that were killed as memory was short.
//!
//! One failure is told by several: the runtime, the kubelet's parts, an event.
//! They say it in the same words at the core ([`fold`]), and are one failure
//! here. Some name the pod, some only its UID or its sandbox: they are brought
//! together as far as that goes.

mod fold;

use std::{
    cell::OnceCell,
    collections::{BTreeMap, HashMap, VecDeque},
    path::PathBuf,
    time::Duration,
};

pub use self::fold::{gist, key};
use diagnosis::Cause;
use event::{FullFilesystem, OomKill, PodRef, StartFailure, clock::Timestamp};

/// Pods at most; the one that was told of longest ago makes room.
pub const MAX_PODS: usize = 1_024;
/// Different failures of one pod; the last takes the latest's place.
const MAX_FAILURES: usize = 32;
/// What the messages of these have together, at most, in bytes.
const MAX_BYTES: usize = 64 << 10;
/// Sandboxes of one pod that are remembered: the latest.
const MAX_SANDBOXES: usize = 8;
/// Who tells of one failure, at most.
const MAX_TELLERS: usize = 8;
/// What one reporter says within this time is of one try.
const ONE_TRY: Duration = Duration::from_secs(1);
/// A line that names nobody is of who was told of in the same words so shortly
/// before: the kubelet waits five minutes at most before it tries again.
const SAME: Duration = Duration::from_secs(600);
/// And one that was told in them so shortly after is who it was of.
const AT_ONCE: Duration = Duration::from_secs(10);
/// Killed tasks at most; the oldest makes room.
const MAX_KILLS: usize = 256;
/// File systems at most.
const MAX_FULL: usize = 16;

#[derive(Debug, Default)]
pub struct Starts {
    pods: BTreeMap<u64, Starting>,
    /// The number of the next one.
    next: u64,
    /// By name, whatever the namespace.
    by_name: HashMap<String, Vec<u64>>,
    by_uid: HashMap<String, u64>,
    by_sandbox: HashMap<String, u64>,
    /// Who was last told of in these words.
    by_words: HashMap<String, u64>,
    kills: VecDeque<(Timestamp, OomKill)>,
    full: BTreeMap<PathBuf, (Timestamp, FullFilesystem)>,
    dropped: u64,
}

/// What was said of one pod, in the order in which it was first said.
#[derive(Clone, Debug)]
pub struct Starting {
    /// What it was known by first: it stays the same.
    pub id: String,
    /// The pod; without a name where none was told.
    pub pod: PodRef,
    pub failures: Vec<Failed>,
    /// Its sandboxes of which something was told, the latest last.
    pub sandboxes: VecDeque<String>,
    /// The highest count of its sandboxes that was told.
    pub attempt: Option<u32>,
    /// When something was last said.
    pub last: Timestamp,
}

/// A failure, and how often.
#[derive(Clone, Debug)]
pub struct Failed {
    /// As it was told in most words.
    pub failure: StartFailure,
    pub first: Timestamp,
    pub last: Timestamp,
    /// Who tells it, the first one first.
    reporters: Vec<Reporter>,
    key: String,
    /// What the rule has made of it: a long text is read once.
    pub judged: OnceCell<Cause>,
}

/// Who tells of a failure.
#[derive(Clone, Debug)]
struct Reporter {
    name: String,
    /// How often it was so, by that.
    times: u64,
    /// When it was last told.
    last: Timestamp,
}

impl Starting {
    /// Whether there is room for one more failure, of a message of so many bytes.
    fn has_room(&self, bytes: usize) -> bool {
        self.failures.len() < MAX_FAILURES && self.bytes() + bytes <= MAX_BYTES
    }

    /// What is held of messages.
    fn bytes(&self) -> usize {
        let failures = self.failures.iter();
        failures.map(|failed| failed.failure.message.len()).sum()
    }

    /// Whether nothing is known of whose it is.
    fn is_nameless(&self) -> bool {
        self.pod == PodRef::default() && self.sandboxes.is_empty()
    }
}

impl Failed {
    /// How often, as far as one reporter knows.
    pub fn times(&self) -> u64 {
        let times = self.reporters.iter().map(|reporter| reporter.times);
        times.max().unwrap_or(1)
    }

    /// Who tells it, the first one first.
    pub fn reporters(&self) -> impl Iterator<Item = &str> {
        self.reporters.iter().map(|reporter| reporter.name.as_str())
    }

    /// `most`: what its message may have.
    fn again(&mut self, failure: &StartFailure, time: Timestamp, most: usize) {
        self.first = self.first.min(failure.first.unwrap_or(time));
        self.last = self.last.max(time);
        let is_it = |reporter: &&mut Reporter| reporter.name == failure.source;
        let room = self.reporters.len() < MAX_TELLERS;
        match self.reporters.iter_mut().find(is_it) {
            Some(reporter) => {
                // The kubelet's parts each tell of the same try.
                let again = distance(reporter.last, time) >= ONE_TRY;
                reporter.times = match failure.count {
                    // It is a count from the beginning on.
                    Some(count) => count.max(reporter.times),
                    None => reporter.times.saturating_add(u64::from(again)),
                };
                reporter.last = reporter.last.max(time);
            }
            None if room => self.reporters.push(Reporter {
                name: failure.source.clone(),
                times: failure.count.unwrap_or(1),
                last: time,
            }),
            None => {}
        }
        // The longest form says most: events are cut off.
        let length = failure.message.len();
        let longer = length > self.failure.message.len() && length <= most;
        let reason = failure.reason.as_ref();
        let reason = reason.or(self.failure.reason.as_ref()).cloned();
        if longer || reason != self.failure.reason {
            self.judged.take();
        }
        if longer {
            self.failure = failure.clone();
        }
        self.failure.reason = reason;
        self.failure.mended &= failure.mended;
    }
}

impl Starts {
    /// Pods of which a failure was told, in the order in which it was.
    pub fn pods(&self) -> impl Iterator<Item = &Starting> {
        self.pods.values()
    }

    /// Tasks that were killed, oldest first.
    pub fn kills(&self) -> impl Iterator<Item = &(Timestamp, OomKill)> {
        self.kills.iter()
    }

    /// File systems that were full when a pod failed to start, each as it was
    /// last looked at.
    pub fn full(&self) -> impl Iterator<Item = &(Timestamp, FullFilesystem)> {
        self.full.values()
    }

    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    pub(super) fn failed(&mut self, failure: &StartFailure, time: Timestamp) -> bool {
        let words = key(&failure.message);
        let number = match self.find(failure, &words, time) {
            Some(number) => number,
            None => self.insert(failure, &words, time),
        };
        self.absorb(number, &words, time);
        self.index(number, failure, &words);
        let Some(pod) = self.pods.get_mut(&number) else {
            return false;
        };
        pod.last = pod.last.max(time);
        pod.attempt = pod.attempt.max(failure.attempt);
        let left = MAX_BYTES.saturating_sub(pod.bytes());
        if let Some(known) = pod.failures.iter_mut().find(|known| known.key == words) {
            let most = left + known.failure.message.len();
            known.again(failure, time, most);
            return true;
        }
        while !pod.has_room(failure.message.len())
            && let Some(old) = pod.failures.pop()
        {
            if self.by_words.get(&old.key) == Some(&number) {
                self.by_words.remove(&old.key);
            }
        }
        let mut failed = Failed {
            failure: failure.clone(),
            first: failure.first.unwrap_or(time).min(time),
            last: time,
            reporters: Vec::new(),
            key: words,
            judged: OnceCell::new(),
        };
        failed.again(failure, time, failure.message.len());
        pod.failures.push(failed);
        true
    }

    /// A pod's sandbox was made: what kept it from that is over.
    pub(super) fn made(&mut self, pod: &PodRef, time: Timestamp) -> bool {
        let by_uid = pod.uid.as_ref().and_then(|uid| self.by_uid.get(uid));
        let by_name = pod.name.as_ref().and_then(|name| self.by_name.get(name));
        let mut numbers: Vec<u64> = by_uid
            .into_iter()
            .chain(by_name.into_iter().flatten())
            .copied()
            .collect();
        numbers.dedup();
        let mut changed = false;
        for number in numbers {
            let Some(known) = self.pods.get_mut(&number) else {
                continue;
            };
            let is_it = agree(&known.pod.namespace, &pod.namespace)
                && agree(&known.pod.uid, &pod.uid)
                && agree(&known.pod.name, &pod.name);
            if !is_it {
                continue;
            }
            let before = known.failures.len();
            known.failures.retain(|failed| {
                let cause = *failed.judged.get_or_init(|| Cause::of(&failed.failure));
                failed.last > time || !cause.ends_with_sandbox()
            });
            changed |= known.failures.len() < before;
            if known.failures.is_empty() {
                self.remove(number);
            }
        }
        changed
    }

    pub(super) fn killed(&mut self, kill: &OomKill, time: Timestamp) -> bool {
        if self.kills.len() >= MAX_KILLS {
            self.kills.pop_front();
        }
        self.kills.push_back((time, kill.clone()));
        true
    }

    pub(super) fn filled(&mut self, full: &FullFilesystem, time: Timestamp) -> bool {
        let known = self.full.contains_key(&full.path);
        if known || self.full.len() < MAX_FULL {
            self.full.insert(full.path.clone(), (time, full.clone()));
        }
        !known
    }

    /// Whose failure it is, if that pod is known.
    fn find(&self, failure: &StartFailure, words: &str, time: Timestamp) -> Option<u64> {
        let StartFailure {
            pod, sandbox_id, ..
        } = failure;
        let uid = pod.uid.as_ref();
        if let Some(number) = uid.and_then(|uid| self.by_uid.get(uid)) {
            return Some(*number);
        }
        let name = pod.name.as_ref();
        let named = name.and_then(|name| self.by_name.get(name));
        let fits = |number: &&u64| {
            let known = self.pods.get(*number);
            known.is_some_and(|known| {
                agree(&known.pod.namespace, &pod.namespace) && agree(&known.pod.uid, &pod.uid)
            })
        };
        if let Some(number) = named.and_then(|all| all.iter().rev().find(fits)) {
            return Some(*number);
        }
        let sandbox = sandbox_id.as_ref().and_then(|id| self.by_sandbox.get(id));
        let may_be = |number: &&u64| {
            let known = self.pods.get(*number);
            known.is_some_and(|known| agree(&known.pod.name, &pod.name))
        };
        if let Some(number) = sandbox.filter(may_be) {
            return Some(*number);
        }
        let number = *self.by_words.get(words)?;
        let known = self.pods.get(&number)?;
        let names_nobody = pod.name.is_none() && pod.uid.is_none() && sandbox_id.is_none();
        let within = match (names_nobody, known.is_nameless()) {
            (true, true) => return Some(number),
            (true, false) => SAME,
            (false, true) => AT_ONCE,
            (false, false) => return None,
        };
        (distance(known.last, time) <= within).then_some(number)
    }

    /// What names nobody and was told of this pod, as shows now, is the pod's.
    fn absorb(&mut self, number: u64, words: &str, time: Timestamp) {
        let Some(other) = self.by_words.get(words).copied() else {
            return;
        };
        let is_its = self.pods.get(&other).is_some_and(|known| {
            other != number && known.is_nameless() && distance(known.last, time) <= AT_ONCE
        });
        if is_its {
            self.remove(other);
        }
    }

    fn insert(&mut self, failure: &StartFailure, words: &str, time: Timestamp) -> u64 {
        if self.pods.len() >= MAX_PODS {
            self.dropped += 1;
            let oldest = self.pods.iter().min_by_key(|(_, pod)| pod.last);
            if let Some(oldest) = oldest.map(|(number, _)| *number) {
                self.remove(oldest);
            }
        }
        let number = self.next;
        self.next += 1;
        let id = match &failure.pod {
            PodRef { uid: Some(uid), .. } => uid.clone(),
            PodRef { name: Some(_), .. } => failure.pod.label(),
            _ => failure.sandbox_id.as_deref().unwrap_or(words).to_owned(),
        };
        let pod = Starting {
            id,
            pod: failure.pod.clone(),
            failures: Vec::new(),
            sandboxes: VecDeque::new(),
            attempt: None,
            last: time,
        };
        self.pods.insert(number, pod);
        number
    }

    /// Writes down what a pod is known by.
    fn index(&mut self, number: u64, failure: &StartFailure, words: &str) {
        let Some(known) = self.pods.get_mut(&number) else {
            return;
        };
        let StartFailure {
            pod, sandbox_id, ..
        } = failure;
        let fill = |known: &mut Option<String>, told: &Option<String>| {
            if known.is_none() {
                known.clone_from(told);
            }
        };
        fill(&mut known.pod.namespace, &pod.namespace);
        fill(&mut known.pod.name, &pod.name);
        fill(&mut known.pod.uid, &pod.uid);
        if let Some(name) = &known.pod.name {
            let all = self.by_name.entry(name.clone()).or_default();
            if !all.contains(&number) {
                all.push(number);
            }
        }
        if let Some(uid) = &known.pod.uid {
            self.by_uid.insert(uid.clone(), number);
        }
        self.by_words.insert(words.to_owned(), number);
        let Some(id) = sandbox_id else { return };
        known.sandboxes.retain(|other| other != id);
        known.sandboxes.push_back(id.clone());
        self.by_sandbox.insert(id.clone(), number);
        if known.sandboxes.len() > MAX_SANDBOXES
            && let Some(old) = known.sandboxes.pop_front()
        {
            self.by_sandbox.remove(&old);
        }
    }

    fn remove(&mut self, number: u64) {
        let Some(known) = self.pods.remove(&number) else {
            return;
        };
        if let Some(name) = &known.pod.name
            && let Some(all) = self.by_name.get_mut(name)
        {
            all.retain(|other| *other != number);
            if all.is_empty() {
                self.by_name.remove(name);
            }
        }
        if let Some(uid) = &known.pod.uid {
            self.by_uid.remove(uid);
        }
        for id in &known.sandboxes {
            self.by_sandbox.remove(id);
        }
        for failed in &known.failures {
            if self.by_words.get(&failed.key) == Some(&number) {
                self.by_words.remove(&failed.key);
            }
        }
    }
}

fn distance(one: Timestamp, other: Timestamp) -> Duration {
    one.since(other).max(other.since(one))
}

/// Whether two can be the same: what is not known is no difference.
fn agree(one: &Option<String>, other: &Option<String>) -> bool {
    one.is_none() || other.is_none() || one == other
}

#[cfg(test)]
mod tests;
