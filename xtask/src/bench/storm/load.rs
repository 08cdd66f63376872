//! What a node does that a tracer looks at, as fast as can be or at a pace.
//!
//! Each of these goes on until it is told to stop, and returns how much it did.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use node_tracer_tests::calls::Calls;
use node_tracer_tests::netns::Netns;
use node_tracer_tests::stage::{self, Need};
use node_tracer_tests::wait;

/// All that they need, and tasks that get stuck.
pub(in super::super) const NEEDS: &[Need] = &[
    Need::Root,
    stage::IP,
    Need::Program("unshare", "util-linux"),
    Need::StaticBusybox,
    Need::Loop,
];

/// Told to stop, or not yet.
#[derive(Debug, Default)]
pub(in super::super) struct Stop(AtomicBool);

impl Stop {
    /// Tells all who ask.
    pub(in super::super) fn now(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was told.
    pub(in super::super) fn is_told(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// For those who ask by themselves.
    pub(in super::super) fn flag(&self) -> &AtomicBool {
        &self.0
    }

    /// Sleeps so long, or until it is told.
    pub(in super::super) fn pause(&self, duration: Duration) -> anyhow::Result<()> {
        const STEP: Duration = Duration::from_millis(200);
        let mut left = duration;
        while !left.is_zero() && !self.is_told() {
            let step = left.min(STEP);
            wait::pause(step)?;
            left -= step;
        }
        Ok(())
    }
}

/// What a load did, when its thread has ended. One that fails, or panics, ends
/// the others, too.
pub(in super::super) fn end<T>(
    thread: ScopedJoinHandle<'_, anyhow::Result<T>>,
    stop: &Stop,
) -> anyhow::Result<T> {
    let done = thread
        .join()
        .unwrap_or_else(|_| Err(anyhow::anyhow!("a load's thread panicked")));
    if done.is_err() {
        stop.now();
    }
    done
}

/// Killed when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Namespaces that are made and let go, one each `pace`.
pub(in super::super) fn namespaces(pace: Duration, stop: &Stop) -> anyhow::Result<usize> {
    let mut count = 0;
    while !stop.is_told() {
        let mut command = Command::new("unshare");
        let made = command.args(["-n", "true"]).stdin(Stdio::null()).status()?;
        anyhow::ensure!(made.success(), "unshare: {made}");
        count += 1;
        stop.pause(pace)?;
    }
    Ok(count)
}

/// Programs with a plugin's variables, two each `pace`.
pub(in super::super) fn calls(pace: Duration, stop: &Stop) -> anyhow::Result<usize> {
    let calls = Calls::create()?;
    if pace.is_zero() {
        return calls.make_until(stop.flag());
    }
    let mut count = 0;
    while !stop.is_told() {
        calls.make(2)?;
        count += 2;
        stop.pause(pace)?;
    }
    Ok(count)
}

/// Addresses that are added and removed, `batch` each `pace`.
pub(in super::super) fn addresses(
    netns: &Netns,
    folder: &Path,
    batch: usize,
    pace: Duration,
    stop: &Stop,
) -> anyhow::Result<usize> {
    let line = |n: usize| {
        let address = format!("198.18.{}.{}/32 dev eth0", 200 + n / 250 % 8, 1 + n % 250);
        format!("addr add {address}\naddr del {address}\n")
    };
    let path = folder.join("batch");
    fs::write(&path, (0..batch).map(line).collect::<String>())?;
    let mut count = 0;
    while !stop.is_told() {
        let mut command = netns.command("ip");
        let mut child = Running(command.arg("-batch").arg(&path).spawn().context("ip")?);
        let status = loop {
            match child.0.try_wait()? {
                Some(status) => break status,
                // What was begun is not counted.
                None if stop.is_told() => return Ok(count),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        anyhow::ensure!(status.success(), "ip -batch: {status}");
        count += batch;
        stop.pause(pace)?;
    }
    Ok(count)
}

/// A namespace with a device for [`addresses`].
pub(in super::super) fn place() -> anyhow::Result<Netns> {
    let netns = Netns::create()?;
    netns.ip("link add eth0 type veth peer name eth1")?;
    netns.ip("link set eth0 up")?;
    Ok(netns)
}
