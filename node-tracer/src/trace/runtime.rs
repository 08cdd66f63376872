//! The container runtime while tracing: asked again and again beside the event
//! loop.

use std::time::Duration;

use crate::{
    config::{Config, Cri},
    event::Event,
    record::CoverageItem,
    report,
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
    watcher: Option<(Endpoint, Watcher)>,
    /// Why none is asked.
    missing: Option<String>,
}

impl Runtime {
    /// Begins to ask.
    pub(super) fn new(config: &Config, procfs: &Procfs) -> Self {
        let root = &config.node.root;
        let (endpoint, missing) = match &config.cri {
            Cri::None => (None, Some(String::from("--cri none"))),
            // Of several, the first: each is asked for all it has.
            Cri::Auto => (
                cri::endpoints(root).into_iter().next(),
                Some(String::from("no socket of a container runtime was found")),
            ),
            Cri::Endpoint(text) => match Endpoint::parse(text) {
                Ok(endpoint) => (Some(endpoint), None),
                Err(error) => (None, Some(report::chain(&error))),
            },
        };
        let Some(endpoint) = endpoint else {
            return Self {
                watcher: None,
                missing,
            };
        };
        let started = Watcher::start(
            endpoint.clone(),
            root.clone(),
            procfs.clone(),
            PAUSE,
            PATIENCE,
        );
        match started {
            Ok(watcher) => Self {
                watcher: Some((endpoint, watcher)),
                missing: None,
            },
            Err(error) => Self {
                watcher: None,
                missing: Some(format!("no thread to ask: {error}")),
            },
        }
    }

    /// What of it is seen.
    pub(super) fn coverage(&self) -> CoverageItem {
        let asked = self.watcher.as_ref().map(|(endpoint, _)| endpoint);
        let unknown = match asked {
            None => vec![String::from("sandboxes and containers as the runtime lists them")],
            Some(_) => Vec::new(),
        };
        CoverageItem {
            signal: String::from("cri"),
            mechanism: asked.map(|endpoint| format!("{endpoint}, every {} s", PAUSE.as_secs())),
            reason: self.missing.clone(),
            unknown,
        }
    }

    /// Takes what has been answered; never waits.
    pub(super) fn poll(&mut self, out: &mut Vec<Event>) {
        if let Some((_, watcher)) = &mut self.watcher {
            watcher.poll(out);
        }
    }
}
