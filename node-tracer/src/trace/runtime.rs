//! The container runtime while tracing: asked again and again beside the event
//! loop.

use std::time::Duration;

use crate::config::{Config, Cri};
use event::{Event, fault, record::CoverageItem};
use node::{
    cri::{self, Endpoint, Place, Watcher},
    procfs::Procfs,
};

const PAUSE: Duration = Duration::from_secs(10);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct Runtime {
    watcher: Option<Watcher>,
    /// Where it is asked first.
    first: Option<Endpoint>,
    /// Why there is none to be asked.
    missing: Option<String>,
}

impl Runtime {
    /// Begins to ask. A runtime that is not there yet is looked for again and
    /// again.
    pub(super) fn new(config: &Config, procfs: &Procfs) -> Self {
        let root = &config.node.root;
        let (place, mut missing) = match &config.cri {
            Cri::None => (None, Some(String::from("--cri none"))),
            Cri::Auto => {
                let inner = root.clone();
                let find = move || cri::endpoints(&inner);
                match procfs.bounded_reads().read(PATIENCE, find) {
                    Ok(found) if found.is_empty() => {
                        let why = "no socket of a container runtime was found yet";
                        (Some(Place::Search(found)), Some(String::from(why)))
                    }
                    Ok(found) => (Some(Place::Search(found)), None),
                    Err(error) => (Some(Place::Search(Vec::new())), Some(fault::chain(&error))),
                }
            }
            Cri::Endpoint(text) => match Endpoint::parse(text) {
                Ok(endpoint) => (Some(Place::Given(endpoint)), None),
                Err(error) => (None, Some(fault::chain(&error))),
            },
        };
        let first = place.as_ref().and_then(|place| place.first().cloned());
        let watcher = place.and_then(|place| {
            let started = Watcher::start(place, root.clone(), procfs.clone(), PAUSE, PATIENCE);
            match started {
                Ok(watcher) => Some(watcher),
                Err(error) => {
                    missing = Some(format!("no thread to ask: {error}"));
                    None
                }
            }
        });
        Self {
            first: first.filter(|_| watcher.is_some()),
            watcher,
            missing,
        }
    }

    /// What of it is seen.
    pub(super) fn coverage(&self) -> CoverageItem {
        let asked = self.first.as_ref();
        let unknown = match asked {
            None => vec![String::from(
                "sandboxes and containers as the runtime lists them",
            )],
            Some(_) => Vec::new(),
        };
        CoverageItem {
            signal: String::from("cri"),
            mechanism: asked.map(|endpoint| format!("{endpoint}, every {} s", PAUSE.as_secs())),
            reason: self.missing.clone(),
            unknown,
        }
    }

    /// The process that listens on the runtime's socket, once it was asked and
    /// the kernel tells.
    pub(super) fn listener(&self) -> Option<u32> {
        self.watcher.as_ref().and_then(Watcher::listener)
    }

    /// Takes what has been answered; never waits.
    pub(super) fn poll(&mut self, out: &mut Vec<Event>) {
        if let Some(watcher) = &mut self.watcher {
            watcher.poll(out);
        }
    }
}
