//! A node on which a steady number of things happen in a second.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{ScopedJoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use node_tracer_tests::calls::Calls;
use node_tracer_tests::helper::Killed;
use node_tracer_tests::netns::Netns;

/// Events that this makes in a second: an address added and one removed
/// ([`PAIRS`]), a namespace made, let go and destroyed ([`NAMESPACES`]), a plugin
/// begun and ended ([`CALLS`]).
pub(super) const EVENTS: u32 = PAIRS * 2 + NAMESPACES * 3 + CALLS * 2;

const PAIRS: u32 = 400;
const NAMESPACES: u32 = 20;
const CALLS: u32 = 70;

/// How often addresses change.
const TICK: Duration = Duration::from_millis(20);
/// Ticks for which each address stays.
const STAYS: usize = 10;

/// Does it so often in a second until it is told to stop. What could not be
/// done in time is not made up for.
fn paced(
    rate: u32,
    stop: &AtomicBool,
    mut act: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let step = Duration::from_secs(1) / rate;
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        act()?;
        next = (next + step).max(Instant::now() - step);
        sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// A namespace with a device for addresses.
pub(super) fn place() -> anyhow::Result<Netns> {
    let netns = Netns::create()?;
    netns.ip("link add eth0 type veth peer name eth1")?;
    netns.ip("link set eth0 up")?;
    Ok(netns)
}

/// Makes a namespace and lets it go.
pub(super) fn namespace() -> anyhow::Result<()> {
    let mut command = Command::new("unshare");
    let status = command.args(["-n", "true"]).stdin(Stdio::null()).status()?;
    anyhow::ensure!(status.success(), "unshare: {status}");
    Ok(())
}

/// What a load's thread did. One that fails, or panics, ends the others, too.
pub(super) fn end<T>(
    thread: ScopedJoinHandle<'_, anyhow::Result<T>>,
    stop: &AtomicBool,
) -> anyhow::Result<T> {
    let end = thread.join();
    let end = end.unwrap_or_else(|_| Err(anyhow::anyhow!("a load's thread panicked")));
    stop.fetch_or(end.is_err(), Ordering::Relaxed);
    end
}

fn addresses(netns: &Netns, stop: &AtomicBool) -> anyhow::Result<()> {
    let mut command = netns.command("ip");
    command.args(["-batch", "-"]).stdin(Stdio::piped());
    let mut batch = Killed(command.spawn().context("start ip")?);
    let mut input = batch.0.stdin.take().context("no pipe")?;
    let ticks = (1.0 / TICK.as_secs_f64()) as usize;
    let each = PAIRS as usize / ticks;
    let line = |verb: &str, tick: usize, index: usize| {
        // All that are there at once are different ones.
        let number = tick % (STAYS * 2) * each + index;
        let (third, fourth) = (number / 250, 1 + number % 250);
        format!("addr {verb} 198.18.{}.{fourth}/32 dev eth0\n", 210 + third)
    };
    let mut tick = 0;
    paced(ticks as u32, stop, || {
        let mut text = String::new();
        for index in 0..each {
            text += &line("add", tick, index);
            if let Some(then) = tick.checked_sub(STAYS) {
                text += &line("del", then, index);
            }
        }
        tick += 1;
        input.write_all(text.as_bytes()).context("ip has ended")
    })
}

/// Makes all of it happen while this is done.
pub(super) fn during<T>(act: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let (calls, netns) = (Calls::create()?, place()?);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let all = [
            scope.spawn(|| addresses(&netns, &stop)),
            scope.spawn(|| paced(CALLS, &stop, || calls.make(1))),
            scope.spawn(|| paced(NAMESPACES, &stop, namespace)),
        ];
        let done = act();
        stop.store(true, Ordering::Relaxed);
        // What went wrong in one of them is why there was less.
        for thread in all {
            end(thread, &stop)?;
        }
        done
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_is_not_made_up_for() {
        let stop = AtomicBool::new(false);
        let (mut times, begin) = (0, Instant::now());
        paced(100, &stop, || {
            times += 1;
            if times == 1 {
                sleep(Duration::from_millis(500));
            }
            stop.store(times == 11, Ordering::Relaxed);
            Ok(())
        })
        .unwrap();
        // Ten more, one of them at once.
        assert!(
            begin.elapsed() >= Duration::from_millis(580),
            "{:?}",
            begin.elapsed()
        );
        assert_eq!(EVENTS, 1_000);
    }
}
