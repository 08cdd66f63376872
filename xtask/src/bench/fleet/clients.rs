//! The process with the clients of all nodes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::Range;
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use node_tracer_tests::wait;
use serde_json::Value;

use super::cluster::Cluster;

/// For tracers to start again.
const SOON: Duration = Duration::from_secs(60);

/// What it has said last.
#[derive(Clone, Debug, Default)]
struct Said {
    bytes: u64,
    /// How often each node has begun to follow its pods.
    followed: Vec<u64>,
}

/// It, while it runs. Killed on drop.
#[derive(Debug)]
pub(super) struct Clients {
    child: Child,
    told: Mutex<ChildStdin>,
    said: Arc<Mutex<Said>>,
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Clients {
    pub(super) fn start(cluster: &Cluster, program: &Path) -> anyhow::Result<Self> {
        let mut command = cluster.command(program)?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let told = child.stdin.take().context("no pipe")?;
        let lines = BufReader::new(child.stdout.take().context("no pipe")?).lines();
        let said = Arc::<Mutex<Said>>::default();
        let this = Self {
            child,
            told: Mutex::new(told),
            said: Arc::clone(&said),
        };
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let value: Value = serde_json::from_str(&line).unwrap_or_default();
                let followed = value["followed"].as_array().into_iter().flatten();
                *lock(&said) = Said {
                    bytes: value["bytes"].as_u64().unwrap_or(0),
                    followed: followed.filter_map(Value::as_u64).collect(),
                };
            }
        });
        Ok(this)
    }

    fn tell(&self, line: &str) -> anyhow::Result<()> {
        writeln!(lock(&self.told), "{line}").context("tell the clients")
    }

    /// The first so many nodes have a tracer from now on.
    pub(super) fn run(&self, nodes: usize) -> anyhow::Result<()> {
        self.tell(&format!("run {nodes}"))
    }

    /// Ends the tracers of some nodes and starts them again, all at once. Back when
    /// they follow their pods.
    pub(super) fn renew(&self, from: usize, to: usize) -> anyhow::Result<()> {
        let before = self.followed();
        self.tell(&format!("renew {from} {to}"))?;
        self.until_followed(&before, from..to, SOON)
    }

    /// How often each node has begun to follow its pods.
    pub(super) fn followed(&self) -> Vec<u64> {
        lock(&self.said).followed.clone()
    }

    /// Waits until all of these nodes have begun to follow their pods again.
    pub(super) fn until_followed(
        &self,
        before: &[u64],
        nodes: Range<usize>,
        limit: Duration,
    ) -> anyhow::Result<()> {
        wait::until("nodes to follow their pods", limit, || {
            let now = self.followed();
            let has = |number: usize| now.get(number) > before.get(number).or(Some(&0));
            Ok(nodes.clone().all(has).then_some(()))
        })
    }

    /// Bytes that they were answered; 0 if they do not count them.
    pub(super) fn bytes(&self) -> u64 {
        lock(&self.said).bytes
    }

    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        self.child.kill().context("end the clients")
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
