//! `bench footprint`: what the tracer takes of a node with many pods: how long
//! it starts, its memory, its time on a CPU; while nothing happens, and while a
//! thousand things happen in a second. And how that grows with the pods.
//!
//! Its time on a CPU is that of its process; what its programs take in the
//! kernel is in others' time: see [`hooks`](super::hooks) and
//! [`sched`](super::sched).

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use node_tracer_tests::crowd::{self, Crowd};
use node_tracer_tests::stage::Need;
use node_tracer_tests::tracer::{Tracer, is_event, netns_of};
use node_tracer_tests::wait;
use serde_json::Value;

use super::budget::{Budget, Verdict};
use super::load;
use super::peers::Peer;
use super::process::{forget_peak, memory, share_of_core};
use super::sample::Sample;
use super::watcher::Watcher;
use super::{Setting, say};

/// All that it needs, but for the peers.
pub(super) const NEEDS: &[Need] = crowd::NEEDS;

/// Seconds to attach and read what is there.
const START: f64 = 1.0;
/// MB (10^6 bytes) resident, at most.
const MEMORY: f64 = 20.0;
/// Percent of one core at rest.
const CPU: f64 = 0.3;

/// Namespaces and tasks of the node that has the budgets.
const NODE: (u32, u32) = (250, 2_000);
/// Namespaces of the others.
const GROWTH: [u32; 4] = [10, 100, 1_000, 5_000];
/// After its start, and after a load.
const CALM: Duration = Duration::from_secs(3);
/// For all namespaces to be found.
const LIMIT: Duration = Duration::from_secs(60);

/// Of the events that are to come, so many must.
const ENOUGH: f64 = 0.9;

const PEERS: [Peer; 3] = [Peer::Sleeps, Peer::OffCpu, Peer::Execs];

/// Options of `bench footprint`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How often each thing is measured [default: 5, quick 2]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    times: Option<u32>,
    /// For how many seconds at once [default: 10, quick 2]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
}

/// Of a process, while something goes on.
struct Use {
    /// Percent of one core.
    cpu: Sample,
    /// Largest resident memory, MB.
    memory: f64,
}

/// One program on the node with the budgets.
struct Row {
    who: &'static str,
    /// Seconds from its start until it is attached, and has taken stock.
    start: Sample,
    rest: Use,
    busy: Use,
}

/// The tracer on a node of this size.
struct Size {
    netns: u32,
    start: Sample,
    rest: Use,
}

fn megabytes(kib: u64) -> f64 {
    kib as f64 * 1024.0 / 1e6
}

/// A tracer that runs on this node, and how many seconds it took until all of
/// its namespaces were told.
fn start(crowd: &Crowd, tracer: &Path) -> anyhow::Result<(Tracer, f64)> {
    let mut command = crowd.command(tracer)?;
    command
        .args([
            "trace", "-o", "json", "--cri", "none", "--pods", "none", "--root",
        ])
        .arg(crowd.root());
    let missing: RefCell<BTreeSet<u64>> = RefCell::new(crowd.inodes()?.into_iter().collect());
    let begin = Instant::now();
    let mut tracer = Tracer::start(&mut command, |_| ())?;
    let (at, _) = tracer.wait_with_time("all namespaces", LIMIT, |record| {
        if is_event(record, "netns-found") {
            let inode = netns_of(record).unwrap_or(0);
            missing.borrow_mut().remove(&inode);
        }
        missing.borrow().is_empty()
    })?;
    Ok((tracer, at.duration_since(begin).as_secs_f64()))
}

/// So many starts; the last one goes on.
fn starts(crowd: &Crowd, setting: &Setting, times: u32) -> anyhow::Result<(Tracer, Sample)> {
    let mut seconds = Vec::new();
    loop {
        let (tracer, took) = start(crowd, &setting.tracer)?;
        seconds.push(took);
        if seconds.len() == times as usize {
            return Ok((tracer, Sample::of(seconds)?));
        }
        let ended = tracer.stop()?;
        anyhow::ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    }
}

/// What all of these processes use, over so many times so long.
fn uses(pids: &[u32], times: u32, length: Duration) -> anyhow::Result<Vec<Use>> {
    for pid in pids {
        forget_peak(*pid)?;
    }
    let mut shares = vec![Vec::new(); pids.len()];
    for _ in 0..times {
        let (all, ()) = shares_of(pids, length)?;
        for (shares, share) in shares.iter_mut().zip(all) {
            shares.push(share);
        }
    }
    let of = |(pid, shares): (&u32, Vec<f64>)| {
        Ok(Use {
            cpu: Sample::of(shares)?,
            memory: megabytes(memory(*pid, "VmHWM")?),
        })
    };
    pids.iter().zip(shares).map(of).collect()
}

/// Percent of one core, of each at the same time.
fn shares_of(pids: &[u32], length: Duration) -> anyhow::Result<(Vec<f64>, ())> {
    match pids.split_first() {
        None => Ok((Vec::new(), wait::pause(length)?)),
        Some((first, others)) => {
            let (share, (mut all, ())) = share_of_core(*first, || shares_of(others, length))?;
            all.insert(0, share);
            Ok((all, ()))
        }
    }
}

pub(super) fn run(options: &Options, setting: &Setting) -> anyhow::Result<Vec<Budget>> {
    let times = setting.number(options.times, 2, 5);
    let length = Duration::from_secs(setting.number(options.seconds, 2, 10));
    let (netns, tasks) = match setting.quick {
        true => (NODE.0 / 5, NODE.1 / 5),
        false => NODE,
    };
    let (rows, rate) = node(setting, netns, tasks, times, length)?;
    let growth = match setting.quick {
        true => &GROWTH[..2],
        false => &GROWTH[..],
    };
    let (mut sizes, mut too_large) = (Vec::new(), None);
    for &netns in growth {
        match size(setting, netns, times, length) {
            Ok(size) => sizes.push(size),
            Err(error) if wait::interrupted() => return Err(error),
            // How many fit is a matter of this machine.
            Err(error) => {
                say(&format!("{netns} namespaces: {error:#}"));
                too_large = Some((netns, format!("{error:#}")));
                break;
            }
        }
    }
    let mut budgets = budgets(&rows, netns, rate)?;
    budgets.extend(sizes.iter().map(grown));
    budgets.extend(
        too_large.map(|(netns, why)| Budget::not_measured(&format!("{netns} namespaces"), &why)),
    );
    Ok(budgets)
}

/// The node with the budgets: all at rest, then all while things happen; and how
/// many of them the tracer told in a second.
fn node(
    setting: &Setting,
    netns: u32,
    tasks: u32,
    times: u32,
    length: Duration,
) -> anyhow::Result<(Vec<Row>, f64)> {
    let crowd = Crowd::build(netns, tasks)?;
    say(&format!("{netns} pods with {tasks} tasks"));
    let (tracer, started) = starts(&crowd, setting, times)?;
    let mut whos = vec![("node-tracer", started)];
    let mut watchers = Vec::new();
    for peer in Peer::here(&PEERS)? {
        let watcher = peer.start()?;
        whos.push((peer.name(), Sample::of(vec![watcher.took().as_secs_f64()])?));
        watchers.push(watcher);
    }
    let pids: Vec<u32> = std::iter::once(tracer.pid())
        .chain(watchers.iter().map(Watcher::pid))
        .collect();
    wait::pause(CALM)?;
    say("at rest");
    let rest = uses(&pids, times, length)?;
    say(&format!("{} events a second", load::EVENTS));
    let (busy, rate) = load::during(|| {
        wait::pause(CALM)?;
        let of_event = |record: &Value| record["type"] == "event";
        let (before, begin) = (tracer.count(of_event), Instant::now());
        let busy = uses(&pids, times, length)?;
        let events = tracer.count(of_event) - before;
        Ok((busy, events as f64 / begin.elapsed().as_secs_f64()))
    })?;
    for watcher in watchers {
        watcher.stop()?;
    }
    let ended = tracer.stop()?;
    anyhow::ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    let rows = whos.into_iter().zip(rest.into_iter().zip(busy));
    let row = |((who, start), (rest, busy))| Row {
        who,
        start,
        rest,
        busy,
    };
    Ok((rows.map(row).collect(), rate))
}

/// The tracer at rest on a node with so many pods.
fn size(setting: &Setting, netns: u32, times: u32, length: Duration) -> anyhow::Result<Size> {
    let crowd = Crowd::build(netns, netns)?;
    say(&format!("{netns} namespaces"));
    let (tracer, start) = starts(&crowd, setting, times)?;
    wait::pause(CALM)?;
    let mut rest = uses(&[tracer.pid()], times, length)?;
    tracer.stop()?;
    Ok(Size {
        netns,
        start,
        rest: rest.pop().context("nothing was measured")?,
    })
}

fn budgets(rows: &[Row], netns: u32, rate: f64) -> anyhow::Result<Vec<Budget>> {
    let (tracer, peers) = rows.split_first().context("nothing was measured")?;
    let beside = |figure: &dyn Fn(&Row) -> String| -> Vec<String> {
        let peers = peers.iter();
        peers
            .map(|row| format!("{} {}", row.who, figure(row)))
            .collect()
    };
    Ok(vec![
        Budget {
            what: format!("attach and first look, {netns} pods"),
            limit: format!("≤ {START} s"),
            measured: format!("{} s", tracer.start),
            peers: beside(&|row| format!("{:.2} s", row.start.median())),
            verdict: Verdict::of(tracer.start.median() <= START),
        },
        Budget {
            what: format!("resident memory at {rate:.0} events/s, {netns} pods"),
            limit: format!("≤ {MEMORY} MB"),
            measured: format!(
                "{:.1} MB at most, at rest {:.1}",
                tracer.busy.memory, tracer.rest.memory
            ),
            peers: beside(&|row| format!("{:.0} MB", row.busy.memory)),
            verdict: match rate >= f64::from(load::EVENTS) * ENOUGH {
                true => Verdict::of(tracer.busy.memory <= MEMORY),
                // This machine had no time for more.
                false => Verdict::NotMeasured,
            },
        },
        Budget {
            what: format!("CPU at rest, {netns} pods"),
            limit: format!("≤ {CPU} % of a core"),
            measured: format!("{} %", tracer.rest.cpu),
            peers: beside(&|row| format!("{:.2} %", row.rest.cpu.median())),
            verdict: Verdict::of(tracer.rest.cpu.median() <= CPU),
        },
        Budget {
            what: format!("CPU at {rate:.0} events/s, {netns} pods"),
            limit: String::new(),
            measured: format!("{:.1} % of a core", tracer.busy.cpu),
            peers: beside(&|row| format!("{:.1} %", row.busy.cpu.median())),
            verdict: Verdict::NoLimit,
        },
    ])
}

/// A node of another size in the last table.
fn grown(size: &Size) -> Budget {
    Budget {
        what: format!("start, memory and CPU at rest, {} namespaces", size.netns),
        limit: String::new(),
        measured: format!(
            "{} s, {:.1} MB, {} %",
            size.start, size.rest.memory, size.rest.cpu
        ),
        peers: Vec::new(),
        verdict: Verdict::NoLimit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(who: &'static str, memory: f64, cpu: f64) -> Row {
        let cpu = || Sample::of(vec![cpu]).unwrap();
        Row {
            who,
            start: Sample::of(vec![0.5]).unwrap(),
            rest: Use { cpu: cpu(), memory },
            busy: Use { cpu: cpu(), memory },
        }
    }

    #[test]
    fn budgets_are_the_tracers_and_not_its_neighbours() {
        let rows = [row("node-tracer", 19.0, 0.1), row("other", 300.0, 50.0)];
        let verdicts_at = |rows: &[Row], rate: f64| -> Vec<Verdict> {
            let budgets = budgets(rows, 250, rate).unwrap();
            budgets.iter().map(|budget| budget.verdict).collect()
        };
        let verdicts = |rows: &[Row]| verdicts_at(rows, 999.6);
        assert_eq!(verdicts_at(&rows, 500.0)[1], Verdict::NotMeasured);
        assert_eq!(
            verdicts(&rows),
            [Verdict::Met, Verdict::Met, Verdict::Met, Verdict::NoLimit]
        );
        let rows = [row("node-tracer", 20.1, 0.31)];
        assert_eq!(verdicts(&rows)[1..3], [Verdict::Missed, Verdict::Missed]);
        assert!((megabytes(19_531) - 20.0).abs() < 0.001);
    }

    #[test]
    fn both_of_two_processes_are_looked_at_together() {
        let begin = Instant::now();
        let own = std::process::id();
        let length = Duration::from_millis(200);
        let uses = uses(&[own, own], 2, length).unwrap();
        assert_eq!(uses.len(), 2);
        assert!(uses.iter().all(|one| one.memory > 0.1));
        assert!(begin.elapsed() >= 2 * length);
    }
}
