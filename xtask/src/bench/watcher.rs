//! A program that watches the machine while something is measured.

use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use node_tracer_tests::helper::Killed;
use node_tracer_tests::{process, wait};

use super::programs;

/// For it to be attached; bpftrace compiles first.
const START: Duration = Duration::from_secs(60);
/// It is attached when nothing was added for so long.
const SETTLED: Duration = Duration::from_millis(400);
/// For it to end by itself.
const END: Duration = Duration::from_secs(3);
/// Of what it prints, so much is kept for a message.
const KEPT: usize = 4096;

/// A running watcher. What it prints is read, and thrown away, as fast as it
/// comes.
#[derive(Debug)]
pub(crate) struct Watcher {
    name: String,
    child: Killed,
    took: Duration,
    readers: Vec<JoinHandle<Vec<u8>>>,
}

/// Reads to the end; what is kept is the beginning.
fn drain(
    mut from: impl Read + Send + 'static,
    has_spoken: &Arc<AtomicBool>,
) -> JoinHandle<Vec<u8>> {
    let has_spoken = Arc::clone(has_spoken);
    std::thread::spawn(move || {
        let (mut kept, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            has_spoken.store(true, Ordering::Relaxed);
            let room = KEPT.saturating_sub(kept.len()).min(length);
            kept.extend_from_slice(&buffer[..room]);
        }
        kept
    })
}

/// Waits until a process has attached all that it will; when that was. Not before
/// `ready` says so; fails if that does.
pub(crate) fn until_attached(
    name: &str,
    pid: u32,
    mut ready: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<Instant> {
    let (mut seen, mut since) = (0, Instant::now());
    wait::until(&format!("{name} to be attached"), START, || {
        let ready = ready()?;
        let now = programs::attachments(pid)?;
        if now != seen || !ready {
            (seen, since) = (now, Instant::now());
        }
        Ok((seen > 0 && since.elapsed() >= SETTLED).then_some(since))
    })
}

impl Watcher {
    /// Starts it, and waits until its programs are attached. One that `speaks`
    /// says something when they are, or are about to be.
    pub(crate) fn start(name: &str, command: &mut Command, speaks: bool) -> anyhow::Result<Self> {
        let begin = Instant::now();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for us; it is told by us.
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        let stdout = child.stdout.take().context("no pipe")?;
        let stderr = child.stderr.take().context("no pipe")?;
        let has_spoken = Arc::new(AtomicBool::new(!speaks));
        let mut this = Self {
            name: name.to_owned(),
            child: Killed(child),
            took: Duration::ZERO,
            readers: vec![drain(stdout, &has_spoken), drain(stderr, &Arc::default())],
        };
        let pid = this.pid();
        let attached = until_attached(name, pid, || match this.child.0.try_wait()? {
            Some(status) => anyhow::bail!("{name} has ended ({status}): {}", this.words()),
            None => Ok(has_spoken.load(Ordering::Relaxed)),
        })?;
        this.took = attached.duration_since(begin);
        Ok(this)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// From its start until it was attached.
    pub(crate) fn took(&self) -> Duration {
        self.took
    }

    /// What it said, once it has ended.
    fn words(&mut self) -> String {
        let texts = self
            .readers
            .drain(..)
            .filter_map(|reader| reader.join().ok());
        let texts: Vec<u8> = texts.flatten().collect();
        String::from_utf8_lossy(&texts).trim().to_owned()
    }

    /// Ends it as Ctrl-C does. It must have been there until now. What takes
    /// long then (offcputime looks for symbols, for half a minute) is not waited
    /// for: what it had to do is done.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.0.try_wait()? {
            let name = self.name.clone();
            anyhow::bail!("{name} has ended by itself ({status}): {}", self.words());
        }
        process::signal(self.pid(), libc::SIGINT).with_context(|| self.name.clone())?;
        let (child, end) = (&mut self.child.0, Instant::now() + END);
        while child.try_wait()?.is_none() && Instant::now() < end {
            wait::pause(Duration::from_millis(10))?;
        }
        Ok(())
    }
}
