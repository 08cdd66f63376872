//! The stores while tracing: looked at again and again in threads beside the
//! tracer, which is told of what has changed. Files are read when they have
//! changed; the API server is asked from time to time, and less often the more
//! it has to answer with.

mod api;
mod files;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender},
    },
    thread,
    time::{Duration, Instant},
};

pub use self::api::Api;

use self::{api::ApiLook, files::FileLook};
use super::{IN_API, Own, StoreReading, coverage, expected};
use event::{Event, StoreKind, What, record::CoverageItem};
use node::{
    cni::Configuration,
    procfs::{Bounded, NoAnswer},
    root::Root,
};

/// Pause between looks at files.
const FILES_PAUSE: Duration = Duration::from_millis(250);
/// The same where there are none, as on most nodes.
const NO_FILES_PAUSE: Duration = Duration::from_secs(1);
/// How long files may take to answer.
const FILES_PATIENCE: Duration = Duration::from_millis(1_000);
/// How often the configuration is read: it comes and goes with the pod network.
const CONFIG_PAUSE: Duration = Duration::from_secs(10);
/// How long is waited to be told which addresses matter.
const FIRST_WISH: Duration = Duration::from_secs(5);
/// Looks whose changes wait to be taken; a tracer that does not take them stops
/// the looking. The channel's room is memory from the start.
const MAX_WAITING: usize = 2;

#[derive(Debug)]
pub struct Watcher {
    changes: Receiver<Vec<Event>>,
    /// What was found before anything was waited for.
    first: Vec<Event>,
    answers: Vec<StoreReading>,
    in_api: BTreeMap<StoreKind, String>,
    refused: Option<String>,
    /// Has the API server asked soon. The threads end, in their own time, when
    /// this does.
    soon: SyncSender<()>,
    own: Arc<Mutex<Option<Own>>>,
    #[expect(dead_code, reason = "held to be dropped")]
    alive: Sender<()>,
}

impl Watcher {
    /// Looks at the files, and then again and again.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(root: Root, folder: &Path, api: Api) -> io::Result<Self> {
        let root = Arc::new(root);
        let (sender, later) = mpsc::sync_channel(MAX_WAITING);
        let (alive, ended) = mpsc::channel::<()>();
        // One that waits is enough.
        let (soon, hurried) = mpsc::sync_channel(1);
        let mut files = FileLook::new(Arc::clone(&root));
        let time = sys::clock::now();
        let (answers, changes) = files.round();
        let in_api: BTreeMap<StoreKind, String> = files
            .expected()
            .iter()
            .filter(|(kind, _)| IN_API.contains(kind))
            .map(|(kind, network)| (*kind, network.clone()))
            .collect();
        let refused = api.refused();
        let own = Arc::<Mutex<Option<Own>>>::default();
        let wish = Wish {
            hurried,
            own: Arc::clone(&own),
        };
        let asker = ApiLook::new(root, folder, api);
        let file_sender = sender.clone();
        thread::Builder::new()
            .name(String::from("ipam-files"))
            .spawn(move || watch_files(files, &file_sender, &ended))?;
        thread::Builder::new()
            .name(String::from("ipam-watcher"))
            .spawn(move || asker.watch(&sender, &wish))?;
        Ok(Self {
            changes: later,
            first: Event::all_of(time, changes),
            answers,
            in_api,
            refused,
            soon,
            own,
            alive,
        })
    }

    /// Takes what has happened since the last call; never waits.
    pub fn poll(&mut self, out: &mut Vec<Event>) {
        out.append(&mut self.first);
        out.extend(self.changes.try_iter().flatten());
    }

    /// Has the API server asked soon, if that is cheap: what is allocated may
    /// have changed.
    pub fn soon(&self) {
        // One waits already, or the thread is gone.
        let _ = self.soon.try_send(());
    }

    /// The addresses that matter now. For one that is new the API server is asked
    /// soon.
    pub fn want(&self, urgent: &BTreeSet<IpAddr>, living: &BTreeSet<IpAddr>) {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = &*own
            && (&own.urgent, &own.living) == (urgent, living)
        {
            return;
        }
        let is_known = own
            .as_ref()
            .is_some_and(|own| urgent.is_subset(&own.urgent) && living.is_subset(&own.living));
        *own = Some(Own {
            urgent: urgent.clone(),
            living: living.clone(),
        });
        drop(own);
        if !is_known {
            self.soon();
        }
    }

    /// Kinds in the API that the configuration named at the start: of these, no
    /// answer has come yet.
    pub fn awaited(&self) -> BTreeSet<StoreKind> {
        self.in_api.keys().copied().collect()
    }

    /// What of them is seen.
    pub fn coverage(&self) -> Vec<CoverageItem> {
        let mut items = coverage(&self.answers);
        items.extend(self.in_api.keys().map(|kind| CoverageItem {
            signal: kind.as_str().to_owned(),
            mechanism: self.refused.is_none().then(|| {
                let pause = api::PAUSE.as_secs();
                format!(
                    "{} of the API server, after changes here and every {pause} s",
                    super::place(*kind)
                )
            }),
            reason: self.refused.clone(),
            unknown: match &self.refused {
                Some(_) => vec![format!("which addresses {} has given out", kind.as_str())],
                None => Vec::new(),
            },
        }));
        items
    }
}

fn watch_files(mut look: FileLook, sender: &SyncSender<Vec<Event>>, ended: &Receiver<()>) {
    loop {
        let pause = match look.is_bare() {
            true => NO_FILES_PAUSE,
            false => FILES_PAUSE,
        };
        match ended.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
        // What is found may be of any moment since.
        let time = sys::clock::now();
        let (_, changes) = look.round();
        if !changes.is_empty() && sender.send(Event::all_of(time, changes)).is_err() {
            return;
        }
    }
}

/// What the tracer wants of who asks the API server.
#[derive(Debug)]
struct Wish {
    hurried: Receiver<()>,
    /// `None` before the first one.
    own: Arc<Mutex<Option<Own>>>,
}

impl Wish {
    fn own(&self) -> Own {
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.clone().unwrap_or_default()
    }

    /// Waits for the first wish, without which nothing could be asked for by name.
    fn await_first(&self) {
        let _ = self.hurried.recv_timeout(FIRST_WISH);
    }
}

/// The configuration, read again from time to time.
#[derive(Debug)]
struct Expected {
    root: Arc<Root>,
    reads: Bounded,
    kinds: BTreeMap<StoreKind, String>,
    read: Option<Instant>,
}

impl Expected {
    fn new(root: Arc<Root>) -> Self {
        Self {
            root,
            reads: Bounded::default(),
            kinds: BTreeMap::new(),
            read: None,
        }
    }

    /// Kinds that it names, each with a network that does. What cannot be read
    /// now is as it was.
    fn kinds(&mut self) -> &BTreeMap<StoreKind, String> {
        if self.read.is_none_or(|read| read.elapsed() >= CONFIG_PAUSE) {
            self.read = Some(Instant::now());
            let config = self.bounded(|root| expected(&Configuration::read(root).networks));
            if let Ok(kinds) = config {
                self.kinds = kinds;
            }
        }
        &self.kinds
    }

    /// Runs what reads files, which may be on a disk that hangs.
    fn bounded<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Root) -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        let root = Arc::clone(&self.root);
        self.reads.read(FILES_PATIENCE, move || read(&root))
    }
}

#[cfg(test)]
mod tests;
