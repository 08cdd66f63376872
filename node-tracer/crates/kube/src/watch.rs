//! The pods of a node as they change: a list, and a watch that goes on from it.
//!
//! The list is from the server's cache, and not older than what was heard before.
//! It does not show that a pod is not there: [`Watch::prove`] asks for one that
//! does, which costs the server more.
//!
//! A watch that ends when it was to end is taken up there at once. After anything
//! else (a broken stream, 410, silence, a server that stops) the pods are listed
//! anew, later each time: all nodes of a cluster lose the server together, and are
//! not to come back together. Only a node that needs the pods for a verdict is in a
//! hurry.
//!
//! What is told takes little, whatever the server or who changes pods does. A
//! change of what is not kept is none. A pod that changes is told by itself, not
//! with all others, and no more of them in a time than [`budget`] has room for:
//! those that wait are told as they are then. That a pod is gone that was told
//! is told at once. Pods that came and went and for which there was no room are
//! not told; the pods are listed anew then, as only a later list shows that they
//! are not there. No list is asked for before what was told is taken.

mod budget;
mod change;
mod follower;
pub(super) mod retry;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc::{self, Receiver, RecvTimeoutError, SendError, SyncSender, TryRecvError},
    },
    time::Duration,
};

use tokio::sync::{Notify, oneshot};

use self::follower::{Follower, Unheard};
use super::{credentials::Credentials, error::KubeError, on_this_thread};
use event::{Pod, clock::Timestamp};
use node::pods::Listing;
use sys::privileges::start_bare;

/// What is told ahead of who reads it; of lists, one.
const AHEAD: usize = 256;

/// News of a node's pods.
#[derive(Debug, PartialEq)]
pub enum WatchUpdate {
    /// The pods as they are now. [`Listing::at`] is when the server was asked.
    Listed(Listing),
    /// This one is new, or has changed. What was listed stays as true as it was:
    /// an event says what has happened, not that nothing else has.
    Changed(Box<Pod>),
    Deleted {
        /// As it was told.
        pod: Box<Pod>,
        /// When that was heard.
        at: Timestamp,
    },
    /// The pods are not known any more, and why. WatchUpdate again for another reason.
    Failed(String),
    /// They are followed. WatchUpdate for every watch.
    Following,
}

/// A watch of a node's pods; it ends when this is dropped.
#[derive(Debug)]
pub struct Watch {
    told: Receiver<WatchUpdate>,
    unread: Arc<AtomicUsize>,
    ended: bool,
    prove: Arc<Notify>,
    stop: Option<oneshot::Sender<()>>,
}

impl Watch {
    /// Starts to follow the pods of a node. `node` is the name as configured;
    /// see [`Credentials::node`].
    ///
    /// # Errors
    /// There is no thread to do so.
    pub fn start(credentials: Credentials, node: &str) -> Result<Self, KubeError> {
        Self::with(credentials, node, Timing::default())
    }

    pub(super) fn with(
        credentials: Credentials,
        node: &str,
        timing: Timing,
    ) -> Result<Self, KubeError> {
        let (send, told) = mpsc::sync_channel(AHEAD);
        let unread = Arc::<AtomicUsize>::default();
        let send = Ahead {
            send,
            unread: Arc::clone(&unread),
        };
        let (stop, mut stopped) = oneshot::channel();
        let prove = Arc::<Notify>::default();
        let follower = Follower::new(credentials, node, timing, send, Arc::clone(&prove));
        let follow = move || {
            // Without an event loop it ends here, which is told as such.
            let _ = on_this_thread(async {
                tokio::select! {
                    _ = &mut stopped => {}
                    Unheard = follower.run() => {}
                }
            });
        };
        start_bare("pods", follow).map_err(KubeError::Start)?;
        Ok(Self {
            told,
            unread,
            ended: false,
            prove,
            stop: Some(stop),
        })
    }

    /// Has the pods listed as of now, which shows that a pod is not there: soon,
    /// but not again and again.
    pub fn prove(&self) {
        self.prove.notify_one();
    }

    /// The next news, if there is some.
    pub fn poll(&mut self) -> Option<WatchUpdate> {
        match self.told.try_recv() {
            Ok(told) => Some(self.read(told)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => self.end(),
        }
    }

    /// The next news, waited for.
    pub fn wait(&mut self, most: Duration) -> Option<WatchUpdate> {
        match self.told.recv_timeout(most) {
            Ok(told) => Some(self.read(told)),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => self.end(),
        }
    }

    fn read(&self, told: WatchUpdate) -> WatchUpdate {
        self.unread.fetch_sub(1, SeqCst);
        told
    }

    fn end(&mut self) -> Option<WatchUpdate> {
        let first = !std::mem::replace(&mut self.ended, true);
        first.then(|| {
            WatchUpdate::Failed(String::from("the thread that follows the pods has ended"))
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // It may have ended by itself.
            let _ = stop.send(());
        }
    }
}

/// The end that tells.
#[derive(Debug)]
struct Ahead {
    send: SyncSender<WatchUpdate>,
    unread: Arc<AtomicUsize>,
}

impl Ahead {
    fn tell(&self, told: WatchUpdate) -> Result<(), SendError<WatchUpdate>> {
        self.unread.fetch_add(1, SeqCst);
        self.send.send(told)
    }

    fn is_read(&self) -> bool {
        self.unread.load(SeqCst) == 0
    }
}

/// How long things take and are waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// For a list, and for a watch to begin.
    pub(super) answer: Duration,
    /// The server ends a watch after this, less up to a tenth.
    pub(super) watch: Duration,
    /// A watch that is silent for this much longer is dead.
    pub(super) overdue: Duration,
    /// A watch that ends this much earlier than it was to end was not ended for
    /// its time.
    pub(super) early: Duration,
    /// Between attempts: at first, and at most.
    pub(super) retry: (Duration, Duration),
    /// Over how long come back those that have followed, and lose the server
    /// together.
    pub(super) together: Duration,
    /// The same of those that need the pods for a verdict.
    pub(super) needed: Duration,
    /// Changes are told no more often than this.
    pub(super) pause: Duration,
    /// The pods are listed anew, or as of now, no sooner than this, if nothing has
    /// failed.
    pub(super) anew: Duration,
    /// Then a list is told whole for whoever has not read the one before.
    pub(super) whole: Duration,
    /// A failure that is over by then is not told.
    pub(super) grace: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            answer: Duration::from_secs(15),
            watch: Duration::from_secs(290),
            overdue: Duration::from_secs(10),
            early: Duration::from_secs(5),
            retry: (Duration::from_secs(1), Duration::from_secs(120)),
            // 5,000 nodes ask no more than a few hundred times in the first second of
            // a server that starts, and has let them wait for some.
            together: Duration::from_secs(120),
            needed: Duration::from_secs(20),
            pause: Duration::from_millis(500),
            anew: Duration::from_secs(30),
            whole: Duration::from_secs(120),
            grace: Duration::from_secs(10),
        }
    }
}

#[cfg(feature = "testing")]
pub(super) fn fuzz(line: &[u8]) {
    change::fuzz(line);
}

#[cfg(test)]
mod tests;
