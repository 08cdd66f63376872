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
    Event, Expected, Root, What, Wish,
};
use event::fault;
use kube::Credentials;

/// While nothing on this node changes, and while something is wrong here.
pub(super) const PAUSE: Duration = Duration::from_secs(300);
const URGENT_PAUSE: Duration = Duration::from_secs(30);
/// The longest, however much is answered.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
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
            let (changes, size) = self.round(&own);
            if !changes.is_empty() && sender.send(Event::all_of(time, changes)).is_err() {
                return;
            }
            if !wait(&wish.hurried, pause_after(size, &own), size <= CHEAP) {
                return;
            }
        }
    }

    /// Asks once. Returns what has changed, and how much was answered.
    pub(super) fn round(&mut self, own: &Own) -> (Vec<What>, usize) {
        let named = self.expected.kinds().clone();
        let (mut changes, mut all) = (Vec::new(), 0);
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
                    all += size;
                    Some(answer)
                }
            };
            changes.extend(self.last.changes_of(kind, answer.as_slice()));
        }
        (changes, all)
    }

    fn ask(&self, kind: super::StoreKind, known: PriorKnowledge<'_>) -> (StoreReading, usize) {
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

/// The more the server had to answer with, the longer it is left alone; each node
/// for another while.
fn pause_after(size: usize, own: &Own) -> Duration {
    let times = u32::try_from(size / CHEAP).unwrap_or(u32::MAX).max(1);
    let pause = match own.urgent.is_empty() {
        true => PAUSE,
        false => URGENT_PAUSE,
    };
    let pause = pause.saturating_mul(times).min(LONGEST_PAUSE);
    pause.mul_f64(0.75 + 0.5 * kube::random())
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

    use super::*;

    #[test]
    fn large_answers_are_asked_for_less_often() {
        let pauses = |size: usize, urgent: &[IpAddr]| {
            let urgent = urgent.iter().copied().collect();
            let living = BTreeSet::new();
            let own = Own { urgent, living };
            let all = (0..100).map(|_| pause_after(size, &own).as_secs_f64());
            let all: Vec<f64> = all.collect();
            let mean = all.iter().sum::<f64>() / 100.0;
            assert!(
                all.windows(2).any(|pair| pair[0] != pair[1]),
                "not all at once"
            );
            all.iter()
                .all(|it| (it / mean - 1.0).abs() < 0.4)
                .then_some(mean)
        };
        let is = |mean: Option<f64>, pause: Duration| {
            (mean.unwrap() / pause.as_secs_f64() - 1.0).abs() < 0.2
        };
        assert!(is(pauses(CHEAP, &[]), PAUSE));
        let urgent = [IpAddr::from([10, 0, 0, 5])];
        assert!(is(pauses(0, &urgent), URGENT_PAUSE));
        assert!(is(pauses(4 * CHEAP, &urgent), 4 * URGENT_PAUSE));
        assert!(is(pauses(usize::MAX, &[]), LONGEST_PAUSE));
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
