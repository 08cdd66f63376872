//! CNI calls, put together from what several lines, and several writers, say
//! of each.
//!
//! A call begins with the first line that is about it and ends with one that
//! says how it ended. A plugin, the runtime that called it and the kubelet
//! that asked for it all tell of the same end: the first of them counts, and
//! what the others say within [`SAME`] is the same call. Where no line says
//! how a call ended, that is not known; it ends with the last line about it.

mod line_context;
mod made;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::IpAddr,
    time::Duration,
};

pub(super) use self::line_context::LineContext;
use event::{CniError, CniResult, Event, PodRef, What, clock::Timestamp, wording::cut};
use node::redact::redact;

/// Calls that have begun and not ended, at most; of more, the oldest ends.
const MAX_OPEN: usize = 512;
/// Ends that are remembered.
const MAX_ENDED: usize = 1_024;
/// What different writers say of the same call comes within this time.
const SAME: Duration = Duration::from_secs(5);
/// A call of which nothing was said for so long has ended.
const IDLE: Duration = Duration::from_secs(120);
/// A second line that begins a call is of the same call until then: a plugin
/// and its IPAM each have one.
const BEGINNING: Duration = Duration::from_secs(30);
/// How much of an error is kept, in characters.
const MAX_ERROR: usize = 1_024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verb {
    /// `ADD`
    Add,
    /// `DEL`
    Del,
}

/// Who tells how a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reporter {
    /// The plugin, or who called it as it ended.
    Plugin = 1,
    Runtime = 2,
    /// The kubelet, as the runtime answers it.
    Kubelet = 4,
    /// The kubelet, in words about a pod: only if nobody else has told.
    Repeated = 8,
}

/// What one line says of a call.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    /// `CNI_CONTAINERID`
    pub(super) container_id: String,
    /// The pod, as far as it is named.
    pub(super) pod: PodRef,
    /// `CNI_IFNAME`, if it is told.
    pub(super) ifname: Option<String>,
    /// `CNI_NETNS`, if it is told.
    pub(super) netns_path: Option<String>,
    /// The plugin, if it is told.
    pub(super) plugin: Option<String>,
    /// Its process, if it is told.
    pub(super) pid: Option<u32>,
    /// Who called it, as it is told.
    pub(super) caller: Option<String>,
}

/// What stands for a sandbox that nobody names: it is the pod's.
pub(crate) fn unnamed(pod: &PodRef) -> String {
    format!("of {}", pod.label())
}

/// Names a call: what is called, and for which sandbox.
pub(super) type Key = (Verb, String);

/// A call that has begun.
#[derive(Clone, Debug)]
struct Open {
    started: Timestamp,
    /// The last line about it.
    last: Timestamp,
    /// Lines that begin a call: see [`BEGINNING`].
    beginnings: u32,
    about: About,
    ipam: Ipam,
    /// Addresses that it gave.
    ips: Vec<IpAddr>,
}

/// The IPAM that a plugin calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ipam {
    Unseen,
    Runs(Timestamp),
    Ended,
}

/// Calls of one node.
#[derive(Debug, Default)]
pub(super) struct Calls {
    open: BTreeMap<Key, Open>,
    /// How the last calls ended: when, and who has told.
    ended: BTreeMap<Key, (Timestamp, u32)>,
    order: VecDeque<Key>,
    failed: BTreeSet<Key>,
    /// The call that the last line was about.
    current: Option<Key>,
    /// What is known of sandboxes and pods.
    pub(super) known: LineContext,
    out: Vec<Event>,
}

impl Verb {
    /// `CNI_COMMAND`
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
        }
    }

    /// From `CNI_COMMAND`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "ADD" => Some(Self::Add),
            "DEL" => Some(Self::Del),
            _ => None,
        }
    }
}

impl Calls {
    /// What has come of the lines so far.
    pub(super) fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.out)
    }

    /// Something that is told besides calls.
    pub(super) fn tell(&mut self, time: Timestamp, what: What) {
        self.out.push(Event { time, what });
    }

    /// The call that the last line was about, if it still runs.
    pub(super) fn current(&self) -> Option<Key> {
        let key = self.current.clone()?;
        self.open.contains_key(&key).then_some(key)
    }

    /// The call of a pod that runs, the latest to begin.
    pub(super) fn of_pod(&self, pod: &PodRef) -> Option<Key> {
        let its = |open: &Open| {
            let own = &open.about.pod;
            own.name == pod.name && own.namespace == pod.namespace
        };
        let all = self.open.iter().filter(|(_, open)| its(open));
        let latest = all.max_by_key(|(_, open)| open.last);
        latest.map(|(key, _)| key.clone())
    }

    /// The latest call of a kind that runs.
    pub(super) fn latest(&self, verb: Verb) -> Option<Key> {
        let current = self.current().filter(|(own, _)| *own == verb);
        current.or_else(|| {
            let all = self.open.iter().filter(|((own, _), _)| *own == verb);
            let latest = all.max_by_key(|(_, open)| open.last);
            latest.map(|(key, _)| key.clone())
        })
    }

    /// What is said of a call whose sandbox was told before.
    pub(super) fn container(&self, key: &Key) -> About {
        About {
            container_id: key.1.clone(),
            ..About::default()
        }
    }

    /// A line that plugins begin with: once the plugin itself, and once the
    /// IPAM that it calls.
    pub(super) fn begins(&mut self, time: Timestamp, verb: Verb, about: About) -> Key {
        let key = (verb, about.container_id.clone());
        let again = self.open.get(&key).is_some_and(|open| {
            open.beginnings >= 2 || time.since(open.last) > BEGINNING || open.last > time
        });
        if again {
            self.close(&key);
        }
        let key = self.about(time, verb, about);
        if let Some(open) = self.open.get_mut(&key) {
            open.beginnings += 1;
        }
        key
    }

    /// A line about a call: it runs, and may have begun before.
    pub(super) fn about(&mut self, time: Timestamp, verb: Verb, about: About) -> Key {
        let key = (verb, about.container_id.clone());
        self.expire(time);
        self.known.note(&about, verb);
        match self.open.get_mut(&key) {
            Some(open) => {
                open.last = open.last.max(time);
                open.about.fill(&about);
            }
            None => {
                let mut about = about;
                self.known.complete(&mut about);
                let open = Open {
                    started: time,
                    last: time,
                    beginnings: 0,
                    about,
                    ipam: Ipam::Unseen,
                    ips: Vec::new(),
                };
                let call = open.call(verb);
                self.tell(time, What::CniStarted { call });
                self.open.insert(key.clone(), open);
            }
        }
        self.current = Some(key.clone());
        key
    }

    /// A line about a call that runs.
    pub(super) fn goes_on(&mut self, time: Timestamp, key: &Key) {
        if let Some(open) = self.open.get_mut(key) {
            open.last = open.last.max(time);
            self.current = Some(key.clone());
        }
    }

    /// Its IPAM has been called.
    pub(super) fn ipam_begins(&mut self, time: Timestamp, key: &Key) {
        self.goes_on(time, key);
        let ended = self.open.get(key).map(|open| open.ipam) == Some(Ipam::Ended);
        if ended && let Some((about, verb)) = self.again(key) {
            // What began was not this call's own, but that of the next try.
            self.about(time, verb, about);
        }
        let Some(open) = self.open.get_mut(key) else {
            return;
        };
        if open.ipam == Ipam::Unseen {
            open.ipam = Ipam::Runs(time);
            let call = open.ipam_call(key.0);
            self.tell(time, What::CniStarted { call });
        }
    }

    /// Closes a call that is tried again; what the next one is about.
    fn again(&mut self, key: &Key) -> Option<(About, Verb)> {
        let about = self.open.get(key)?.about.clone();
        self.close(key);
        Some((about, key.0))
    }

    /// Its IPAM has answered.
    pub(super) fn ipam_ends(&mut self, time: Timestamp, key: &Key, ips: Vec<IpAddr>) {
        self.goes_on(time, key);
        if self.open.get(key).map(|open| open.ipam) == Some(Ipam::Unseen) {
            self.ipam_begins(time, key);
        }
        let Some(open) = self.open.get_mut(key) else {
            return;
        };
        let Ipam::Runs(started) = open.ipam else {
            return;
        };
        open.ipam = Ipam::Ended;
        if open.ips.is_empty() {
            open.ips.clone_from(&ips);
        }
        let call = open.ipam_call(key.0);
        let end = made::SaidResult::Ok(ips);
        self.tell(time, made::ended(call, started, time, end));
    }

    /// It gave these addresses.
    pub(super) fn gives(&mut self, time: Timestamp, key: &Key, ips: Vec<IpAddr>) {
        self.goes_on(time, key);
        if let Some(open) = self.open.get_mut(key) {
            open.ips = ips;
        }
    }

    /// The addresses that it gave so far.
    pub(super) fn ips(&self, key: &Key) -> Vec<IpAddr> {
        let open = self.open.get(key);
        open.map(|open| open.ips.clone()).unwrap_or_default()
    }

    /// What is known of a call that runs.
    pub(super) fn what(&self, key: &Key) -> Option<&About> {
        self.open.get(key).map(|open| &open.about)
    }

    /// It has succeeded. One of which nothing was told before has run since
    /// `since`.
    pub(super) fn succeeds(
        &mut self,
        time: Timestamp,
        verb: Verb,
        about: About,
        reporter: Reporter,
        since: Option<Timestamp>,
    ) {
        let key = (verb, about.container_id.clone());
        if !self.open.contains_key(&key) && self.is_told(&key, time, reporter) {
            return;
        }
        self.begun(time, verb, about, since);
        self.end(&key, time, reporter, made::Outcome::Succeeded);
    }

    pub(super) fn fails(
        &mut self,
        time: Timestamp,
        verb: Verb,
        about: About,
        reporter: Reporter,
        said: &str,
    ) {
        let key = (verb, about.container_id.clone());
        if !self.open.contains_key(&key) && self.is_told(&key, time, reporter) {
            self.known.note(&about, verb);
            return;
        }
        self.begun(time, verb, about, None);
        let said = redact(said.trim());
        let said = cut(&said, MAX_ERROR).to_owned();
        self.end(&key, time, reporter, made::Outcome::Failed(said));
    }

    /// Opens a call of which nothing was told before.
    fn begun(&mut self, time: Timestamp, verb: Verb, about: About, since: Option<Timestamp>) {
        let started = since.filter(|since| *since <= time).unwrap_or(time);
        let key = (verb, about.container_id.clone());
        let started = match self.open.contains_key(&key) {
            true => time,
            false => started,
        };
        self.about(started, verb, about);
    }

    /// The sandbox is gone, or was stopped: a DEL that had failed has succeeded
    /// since, although no line says so.
    pub(super) fn is_over(&mut self, time: Timestamp, about: About) {
        let key = (Verb::Del, about.container_id.clone());
        if self.failed.contains(&key) {
            self.begun(time, Verb::Del, about, None);
            self.end(&key, time, Reporter::Runtime, made::Outcome::Succeeded);
        }
    }

    /// Whether somebody else has told of this very call.
    pub(super) fn is_told(&mut self, key: &Key, time: Timestamp, reporter: Reporter) -> bool {
        let Some((at, reporters)) = self.ended.get_mut(key) else {
            return false;
        };
        let bit = reporter as u32;
        let apart = time.since(*at).max(at.since(time));
        let same = apart <= SAME && *reporters & bit == 0;
        if same {
            *reporters |= bit;
        }
        // It repeats what others have told; what nobody else tells is a try of
        // its own.
        let by_others = *reporters & !bit != 0;
        same || (reporter == Reporter::Repeated && (by_others || apart <= SAME))
    }

    /// Ends all of which nothing was said for [`IDLE`], and the oldest if they
    /// are too many.
    fn expire(&mut self, now: Timestamp) {
        let idle = |open: &Open| now.since(open.last) > IDLE;
        let many = self.open.len() >= MAX_OPEN;
        if !many && self.open.len() < 16 && !self.open.values().any(idle) {
            return;
        }
        let all = self.open.iter();
        let mut over: Vec<Key> = all
            .filter(|(_, open)| idle(open))
            .map(|(key, _)| key.clone())
            .collect();
        if many && over.is_empty() {
            let oldest = self.open.iter().min_by_key(|(_, open)| open.last);
            over.extend(oldest.map(|(key, _)| key.clone()));
        }
        for key in over {
            self.close(&key);
        }
    }

    /// Ends a call of which no line says how it ended.
    fn close(&mut self, key: &Key) {
        if let Some(last) = self.open.get(key).map(|open| open.last) {
            self.end(key, last, Reporter::Plugin, made::Outcome::Unknown);
        }
    }

    pub(super) fn close_all(&mut self) {
        let all: Vec<Key> = self.open.keys().cloned().collect();
        for key in all {
            self.close(&key);
        }
    }

    fn end(&mut self, key: &Key, time: Timestamp, reporter: Reporter, outcome: made::Outcome) {
        let Some(open) = self.open.remove(key) else {
            return;
        };
        let time = time.max(open.started);
        if let Ipam::Runs(started) = open.ipam {
            let call = open.ipam_call(key.0);
            let end = made::SaidResult::Unknown;
            self.tell(time, made::ended(call, started, time, end));
        }
        let told = outcome != made::Outcome::Unknown;
        match outcome {
            made::Outcome::Failed(_) => self.failed.insert(key.clone()),
            made::Outcome::Succeeded => self.failed.remove(key),
            made::Outcome::Unknown => false,
        };
        let end = match outcome {
            made::Outcome::Succeeded => made::SaidResult::Ok(open.ips.clone()),
            made::Outcome::Failed(said) => made::SaidResult::Failed(said),
            made::Outcome::Unknown => made::SaidResult::Unknown,
        };
        let call = open.call(key.0);
        self.tell(time, made::ended(call, open.started, time, end));
        if told {
            self.remember(key.clone(), time, reporter);
        }
    }

    fn remember(&mut self, key: Key, time: Timestamp, reporter: Reporter) {
        let new = self.ended.insert(key.clone(), (time, reporter as u32));
        if new.is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > MAX_ENDED
            && let Some(oldest) = self.order.pop_front()
        {
            self.ended.remove(&oldest);
            self.failed.remove(&oldest);
        }
    }
}
