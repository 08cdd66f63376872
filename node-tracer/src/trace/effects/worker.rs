//! The thread that looks.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{
        Arc,
        mpsc::{self, Receiver, SyncSender, TryRecvError},
    },
    thread,
    time::Duration,
};

use event::{clock::Timestamp, fault};
use node::{
    hostlocal::{Lookup, Stores},
    netlink::{self, Target, Visit},
    procfs::Bounded,
};

/// How long rtnetlink may take in one namespace.
const VISIT: Duration = Duration::from_millis(500);
/// How long it may take in all of a batch.
const VISITS: Duration = Duration::from_secs(2);
/// How long the stores of reservations may take, which can be on a disk that
/// hangs.
const STORES: Duration = Duration::from_millis(500);

/// What to look at.
#[derive(Debug, Default)]
pub(super) struct Job {
    pub(super) targets: Vec<Target>,
    /// Whose reservations are to be looked up.
    pub(super) addresses: BTreeSet<IpAddr>,
}

#[derive(Debug)]
pub(super) struct Found {
    /// When the looks had ended.
    pub(super) at: Timestamp,
    /// By inode; nothing where there is no way in, or no answer.
    pub(super) visits: BTreeMap<u32, Option<Visit>>,
    /// By address; those that could not be looked up are missing.
    pub(super) lookups: BTreeMap<IpAddr, Lookup>,
}

#[derive(Debug)]
pub(super) struct Worker {
    jobs: SyncSender<Job>,
    found: Receiver<Found>,
}

impl Worker {
    /// Starts the thread; it ends with this.
    pub(super) fn start(stores: Option<Stores>) -> std::io::Result<Self> {
        let (jobs, to_do) = mpsc::sync_channel::<Job>(1);
        let (sender, found) = mpsc::sync_channel(1);
        let stores = stores.map(Arc::new);
        let work = move || {
            // All visits wait for one lock of the kernel's, and are counted
            // apart from the files.
            let (visits, files) = (Bounded::default(), Bounded::default());
            while let Ok(job) = to_do.recv() {
                if sender
                    .send(look(job, stores.as_ref(), &visits, &files))
                    .is_err()
                {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name(String::from("cni-effects"))
            .spawn(work)?;
        Ok(Self { jobs, found })
    }

    /// Asks for a look; only when the last one was answered.
    ///
    /// # Errors
    /// The thread has ended.
    pub(super) fn ask(&self, job: Job) -> Result<(), String> {
        let failed = |_| String::from("the thread that looks at CNI's effects has ended");
        self.jobs.try_send(job).map_err(failed)
    }

    /// What was found, if it is there; never waits.
    ///
    /// # Errors
    /// The thread has ended.
    pub(super) fn answer(&self) -> Result<Option<Found>, String> {
        match self.found.try_recv() {
            Ok(found) => Ok(Some(found)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(String::from(
                "the thread that looks at CNI's effects has ended",
            )),
        }
    }
}

fn look(job: Job, stores: Option<&Arc<Stores>>, visits: &Bounded, files: &Bounded) -> Found {
    let Job { targets, addresses } = job;
    let inodes: Vec<u32> = targets.iter().map(|target| target.inode).collect();
    let outcomes = netlink::visit_all(targets, visits, VISIT, VISITS);
    let at = sys::clock::now();
    let seen = inodes.into_iter().zip(outcomes).map(|(inode, outcome)| {
        if let Err(error) = &outcome {
            tracing::debug!("netns {inode}: {}", fault::chain(error));
        }
        (inode, outcome.ok().flatten())
    });
    let lookups = stores.map(|stores| {
        let stores = Arc::clone(stores);
        let ask = move || {
            let each = addresses.into_iter();
            each.map(|address| (address, stores.holder(address)))
                .collect()
        };
        files.read(STORES, ask)
    });
    let lookups = match lookups {
        Some(Ok(lookups)) => lookups,
        Some(Err(error)) => {
            tracing::debug!("reservations: {}", fault::chain(&error));
            BTreeMap::new()
        }
        None => BTreeMap::new(),
    };
    Found {
        at,
        visits: seen.collect(),
        lookups,
    }
}
