//! The container runtime while tracing: asked again and again beside the event
//! loop.

use std::{collections::VecDeque, path::PathBuf, time::Duration};

use crate::{
    config::{Config, Cri},
    event::{Event, What},
    fault,
    record::CoverageItem,
    source::{
        cri::{self, Endpoint, Watcher},
        procfs::Procfs,
    },
};

/// Pause between questions.
const PAUSE: Duration = Duration::from_secs(10);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// See the module's documentation.
pub(super) struct Runtime {
    ask: Ask,
    watcher: Option<(Endpoint, Watcher)>,
    /// Sockets to try if this one turns out to be none of a runtime.
    others: VecDeque<Endpoint>,
    /// One of them has answered.
    answered: bool,
    /// Why none is asked.
    missing: Option<String>,
}

/// What asking takes.
struct Ask {
    root: PathBuf,
    procfs: Procfs,
}

impl Runtime {
    /// Begins to ask.
    pub(super) fn new(config: &Config, procfs: &Procfs) -> Self {
        let root = &config.node.root;
        let mut this = Self {
            ask: Ask {
                root: root.clone(),
                procfs: procfs.clone(),
            },
            watcher: None,
            others: VecDeque::new(),
            answered: false,
            missing: None,
        };
        match &config.cri {
            Cri::None => this.missing = Some(String::from("--cri none")),
            Cri::Auto => {
                let inner = root.clone();
                let find = move || cri::endpoints(&inner);
                match procfs.bounded_reads().run(PATIENCE, find) {
                    Ok(found) => this.others.extend(found),
                    Err(error) => this.missing = Some(fault::chain(&error)),
                }
            }
            Cri::Endpoint(text) => match Endpoint::parse(text) {
                Ok(endpoint) => this.others.push_back(endpoint),
                Err(error) => this.missing = Some(fault::chain(&error)),
            },
        }
        this.next();
        if this.watcher.is_none() && this.missing.is_none() {
            this.missing = Some(String::from("no socket of a container runtime was found"));
        }
        this
    }

    /// Asks the next socket from now on. Returns whether there is one.
    fn next(&mut self) -> bool {
        let Some(endpoint) = self.others.pop_front() else {
            return false;
        };
        let (root, procfs) = (self.ask.root.clone(), self.ask.procfs.clone());
        match Watcher::start(endpoint.clone(), root, procfs, PAUSE, PATIENCE) {
            Ok(watcher) => self.watcher = Some((endpoint, watcher)),
            Err(error) => self.missing = Some(format!("no thread to ask: {error}")),
        }
        true
    }

    /// What of it is seen.
    pub(super) fn coverage(&self) -> CoverageItem {
        let asked = self.watcher.as_ref().map(|(endpoint, _)| endpoint);
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

    /// Takes what has been answered; never waits. Of several sockets that were
    /// found, the first that answers is the runtime's.
    pub(super) fn poll(&mut self, out: &mut Vec<Event>) {
        let Some((_, watcher)) = &mut self.watcher else {
            return;
        };
        let from = out.len();
        watcher.poll(out);
        let told = &out[from..];
        let failed = |event: &Event| matches!(event.what, What::SourceFailed { .. });
        self.answered |= told.iter().any(|event| !failed(event));
        if !self.answered && told.iter().any(failed) && self.next() {
            out.truncate(from);
        }
    }
}
