//! Stores that are in the API: asked for from time to time, of the kinds that
//! the CNI configuration names. Thousands of nodes ask the same server: soon after
//! something has changed here, rarely while nothing does, and none of them at the
//! same moment as another.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender},
    },
    time::{Duration, Instant},
};

use super::{
    super::{IN_API, Own, StoreReading, ask_again, calico::PriorKnowledge, changes::Last, places},
    Event, Expected, Root, StoreKind, What, Wish,
};
use event::fault;
use kube::Credentials;

/// While nothing on this node changes, and while something is wrong here.
pub(super) const PAUSE: Duration = Duration::from_secs(300);
const URGENT_PAUSE: Duration = Duration::from_secs(30);
/// The longest, however much is answered.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// What all nodes together are to be answered with of a store that they share, bytes
/// a second; and the longest pause for that.
const SHARED_RATE: f64 = 2e6;
const LONGEST_SHARED_PAUSE: Duration = Duration::from_secs(6 * 3_600);
/// An answer of this many bytes is cheap.
const CHEAP: usize = 1 << 20;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long after it was wished the server is asked: what has led to the wish
/// is to lead to more.
const SOON: Duration = Duration::from_secs(1);
/// And not more often than this.
const AT_MOST: Duration = Duration::from_secs(15);
/// How often is found out which of its resources Calico uses.
const PLACE_PAUSE: Duration = Duration::from_secs(3_600);

/// Whether and how the API server is asked.
#[derive(Clone, Debug)]
pub struct Api {
    pub refused: Option<String>,
    /// The kubeconfig that was given.
    pub kubeconfig: Option<PathBuf>,
    pub node: String,
}

impl Api {
    pub(super) fn refused(&self) -> Option<String> {
        self.refused.clone()
    }
}

/// What was answered last.
#[derive(Debug)]
pub(super) struct ApiLook {
    expected: Expected,
    folder: PathBuf,
    api: Api,
    last: Last,
    /// When it was last found out where the stores are.
    placed: Option<Instant>,
}

impl ApiLook {
    /// Nothing was asked yet.
    pub(super) fn new(root: Arc<Root>, folder: &Path, api: Api) -> Self {
        Self {
            expected: Expected::new(root),
            folder: folder.to_owned(),
            api,
            last: Last::default(),
            placed: None,
        }
    }

    /// Asks until nobody listens any more.
    pub(super) fn watch(mut self, sender: &SyncSender<Vec<Event>>, wish: &Wish) {
        wish.await_first();
        loop {
            let own = wish.own();
            // What is answered may be of any moment since.
            let time = sys::clock::now();
            let (changes, cost) = self.round(&own);
            if !changes.is_empty() && sender.send(Event::all_of(time, changes)).is_err() {
                return;
            }
            if !wait(&wish.hurried, cost.pause(&own), cost.is_cheap()) {
                return;
            }
        }
    }

    /// Asks once. Returns what has changed, and what that has cost.
    pub(super) fn round(&mut self, own: &Own) -> (Vec<What>, Cost) {
        let named = self.expected.kinds().clone();
        let (mut changes, mut cost) = (Vec::new(), Cost::default());
        let place = self.placed.is_some_and(|at| at.elapsed() < PLACE_PAUSE);
        if !place {
            self.placed = Some(Instant::now());
        }
        for kind in IN_API {
            let answer = match named.contains_key(&kind) {
                false => None,
                true => {
                    let before = places(kind).find_map(|path| self.last.store(path));
                    let own = Some(own);
                    let known = PriorKnowledge { before, own, place };
                    let (mut answer, size) = self.ask(kind, known);
                    if let (Err(_), Some(before)) = (&answer.store, before) {
                        // It fails where it was.
                        answer.path.clone_from(&before.path);
                    }
                    cost.size += size;
                    if kind == StoreKind::Whereabouts {
                        cost.shared += shared_pause(&answer, size);
                    }
                    Some(answer)
                }
            };
            changes.extend(self.last.changes_of(kind, answer.as_slice()));
        }
        (changes, cost)
    }

    fn ask(&self, kind: StoreKind, known: PriorKnowledge<'_>) -> (StoreReading, usize) {
        if let Some(why) = &self.api.refused {
            return (StoreReading::failed(kind, why.clone()), 0);
        }
        let (folder, given) = (self.folder.clone(), self.api.kubeconfig.clone());
        let find = move |_: &Root| Credentials::find(&folder, given.as_deref());
        let credentials = match self.expected.bounded(find) {
            Ok(Ok(credentials)) => credentials,
            Ok(Err(error)) => return (StoreReading::failed(kind, fault::chain(&error)), 0),
            Err(error) => {
                let why = format!("the credentials: {}", fault::chain(&error));
                return (StoreReading::failed(kind, why), 0);
            }
        };
        let root = &self.expected.root;
        ask_again(kind, &credentials, root, &self.api.node, PATIENCE, known)
    }
}

/// What the server had to answer with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    /// Bytes.
    size: usize,
    /// Between questions, for what all nodes have in common.
    shared: Duration,
}

impl Cost {
    /// The more it was, the longer the server is left alone; each node for another
    /// while.
    fn pause(self, own: &Own) -> Duration {
        let times = u32::try_from(self.size / CHEAP).unwrap_or(u32::MAX).max(1);
        let (pause, shared) = match own.urgent.is_empty() {
            true => (PAUSE, self.shared),
            // Hardly ever of many nodes at once.
            false => (URGENT_PAUSE, self.shared.min(PAUSE)),
        };
        let pause = pause.saturating_mul(times).min(LONGEST_PAUSE);
        pause.max(shared).mul_f64(0.75 + 0.5 * kube::random())
    }

    /// It may be asked for again soon.
    fn is_cheap(self) -> bool {
        self.size <= CHEAP && self.shared <= PAUSE
    }
}

/// How long each node leaves a store alone that all have in common. There are no more
/// nodes than reservations.
fn shared_pause(answer: &StoreReading, size: usize) -> Duration {
    let reservations = answer.store.as_ref().map_or(0, |it| it.reservations.len());
    let seconds = reservations as f64 * size as f64 / SHARED_RATE;
    Duration::from_secs_f64(seconds).min(LONGEST_SHARED_PAUSE)
}

/// Waits until the next question. Returns whether there is to be one.
fn wait(hurried: &Receiver<()>, pause: Duration, cheap: bool) -> bool {
    let asked = Instant::now();
    loop {
        let left = pause.saturating_sub(asked.elapsed());
        match hurried.recv_timeout(left) {
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) => return false,
            Ok(()) if cheap => break,
            Ok(()) => {}
        }
    }
    let until = (asked + AT_MOST).max(Instant::now() + SOON);
    loop {
        match hurried.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) => return false,
            Ok(()) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, net::IpAddr, sync::mpsc};

    use event::{Reservation, ReservationHolder, Store, clock::Timestamp};

    use super::*;

    /// Means of many pauses; none if they are all alike.
    fn mean_pause(cost: Cost, urgent: bool) -> Duration {
        let urgent = urgent.then(|| IpAddr::from([10, 0, 0, 5]));
        let own = Own {
            urgent: urgent.into_iter().collect(),
            living: BTreeSet::new(),
        };
        let all: Vec<Duration> = (0..100).map(|_| cost.pause(&own)).collect();
        let differ = all.windows(2).any(|pair| pair[0] != pair[1]);
        assert!(differ, "not all nodes at once");
        all.iter().sum::<Duration>() / 100
    }

    fn is_near(pause: Duration, other: Duration) -> bool {
        (pause.div_duration_f64(other) - 1.0).abs() < 0.2
    }

    #[test]
    fn large_answers_are_asked_for_less_often() {
        let of = |size| Cost {
            size,
            ..Cost::default()
        };
        assert!(is_near(mean_pause(of(CHEAP), false), PAUSE));
        assert!(is_near(mean_pause(of(0), true), URGENT_PAUSE));
        assert!(is_near(mean_pause(of(4 * CHEAP), true), 4 * URGENT_PAUSE));
        assert!(is_near(mean_pause(of(usize::MAX), false), LONGEST_PAUSE));
    }

    #[test]
    fn all_nodes_of_a_cluster_together_are_not_answered_with_more_than_a_rate() {
        let pool = |reservations: usize| {
            let one = Reservation {
                address: IpAddr::from([10, 0, 0, 1]),
                holder: ReservationHolder {
                    path: PathBuf::new(),
                    container_id: String::from("a"),
                    ifname: None,
                    pod: None,
                },
                modified: Timestamp::EPOCH,
            };
            let store = Store {
                reservations: vec![one; reservations],
                ..Store::default()
            };
            let size = 270 * reservations;
            let answer = StoreReading::new(StoreKind::Whereabouts, Path::new("/"), Ok(store));
            let shared = shared_pause(&answer, size);
            Cost { size, shared }
        };
        for reservations in [10, 1_000, 4_000, 100_000] {
            let cost = pool(reservations);
            // As many nodes, each with one pod.
            let pause = mean_pause(cost, false).as_secs_f64();
            let rate = (reservations * cost.size) as f64 / pause;
            assert!(rate < 1.3 * SHARED_RATE || pause > 20_000.0, "{rate}");
            assert_eq!(cost.is_cheap(), reservations <= 1_000);
        }
        assert!(mean_pause(pool(4_000), true) < 2 * PAUSE);
    }

    #[test]
    fn it_ends_with_who_listens() {
        let (soon, hurried) = mpsc::sync_channel(1);
        soon.send(()).unwrap();
        drop(soon);
        let started = Instant::now();
        assert!(!wait(&hurried, PAUSE, true));
        assert!(!wait(&hurried, PAUSE, false));
        assert!(started.elapsed() < SOON);
    }
}
