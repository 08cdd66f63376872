//! `bench sched`: what the tracer, and what one would run instead, slow down.
//!
//! How long the same work takes changes from minute to minute on a machine, by
//! more than what is looked for. So what is compared is neighbours: each run
//! beside a watcher stands between two with nothing, and is divided by their
//! mean; the median of these ratios is what counts. One of the "watchers" is
//! nobody at all: what that slows down is what cannot be told from nothing.

use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use node_tracer_tests::wait;

use super::budget::{Budget, Verdict};
use super::peers::Peer;
use super::sample::Sample;
use super::watcher::Watcher;
use super::work::{Rounds, Work};
use super::{Setting, say};

/// What the tracer may slow down, percent.
const LIMIT: f64 = 2.0;
/// After a watcher has come or gone, and namespaces are let go.
const CALM: Duration = Duration::from_millis(300);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Nobody,
    Tracer,
    Peer(Peer),
}

impl Who {
    fn name(self) -> &'static str {
        match self {
            Self::Nobody => "nothing, again",
            Self::Tracer => "node-tracer trace -o json",
            Self::Peer(peer) => peer.name(),
        }
    }

    fn start(self, setting: &Setting) -> anyhow::Result<Option<Watcher>> {
        match self {
            Self::Nobody => Ok(None),
            Self::Tracer => tracer(setting).map(Some),
            Self::Peer(peer) => peer.start().map(Some),
        }
    }
}

/// The tracer as it runs beside work: everything attached, nobody asked but the
/// kernel.
pub(super) fn tracer(setting: &Setting) -> anyhow::Result<Watcher> {
    let mut command = Command::new(&setting.tracer);
    command.args(["trace", "-o", "json", "--cri", "none", "--pods", "none"]);
    Watcher::start("node-tracer", &mut command, true)
}

/// Each work, who looks on, and whether there is a limit.
const ALL: [(Work, &[Peer], bool); 5] = [
    (Work::Pipe, &[Peer::Sleeps, Peer::OffCpu], true),
    (Work::PipeOnOneCpu, &[Peer::Sleeps, Peer::OffCpu], false),
    (Work::Messaging, &[Peer::Sleeps, Peer::OffCpu], false),
    (
        Work::Unshare,
        &[Peer::Sleeps, Peer::OffCpu, Peer::Execs],
        true,
    ),
    (
        Work::Exec,
        &[Peer::Sleeps, Peer::OffCpu, Peer::Execs, Peer::ExecSnoop],
        false,
    ),
];

/// One work beside one watcher.
struct Row {
    who: Who,
    /// Percent that it takes longer than with nothing, round by round.
    slowdown: Sample,
}

pub(super) fn run(options: &Rounds, setting: &Setting) -> anyhow::Result<Vec<Budget>> {
    let (rounds, length) = options.of(setting, (1, 100), (7, 500));
    let mut wanted: Vec<Peer> = Vec::new();
    for peer in ALL.iter().flat_map(|(_, peers, _)| *peers) {
        if !wanted.contains(peer) {
            wanted.push(*peer);
        }
    }
    let here = Peer::here(&wanted)?;
    let mut budgets = Vec::new();
    for (work, peers, limited) in ALL {
        let amount = work.amount_for(length)?;
        say(&format!("{}, {amount} of it", work.name()));
        let peers = peers.iter().filter(|peer| here.contains(peer));
        let all: Vec<Who> = [Who::Nobody, Who::Tracer]
            .into_iter()
            .chain(peers.map(|peer| Who::Peer(*peer)))
            .collect();
        let rows = beside(work, amount, &all, rounds, setting)?;
        budgets.push(budget(work, &rows, limited)?);
    }
    Ok(budgets)
}

/// The same work beside all of them, in turn: nothing, the first, nothing, the
/// second, nothing, ...; who is first is another in each round.
fn beside(
    work: Work,
    amount: u64,
    all: &[Who],
    rounds: u32,
    setting: &Setting,
) -> anyhow::Result<Vec<Row>> {
    let once = || {
        wait::pause(CALM)?;
        work.run(amount)
    };
    let mut slowdowns = vec![Vec::new(); all.len()];
    for round in 0..rounds as usize {
        let mut before = once()?;
        for turn in 0..all.len() {
            let index = (round + turn) % all.len();
            let who = all[index];
            let watcher = who.start(setting)?;
            let with = once()?;
            if let Some(watcher) = watcher {
                watcher.stop()?;
            }
            let after = once()?;
            slowdowns[index].push(slower(before, with, after));
            before = after;
        }
    }
    let rows = all.iter().zip(slowdowns).map(|(who, slowdowns)| {
        Ok(Row {
            who: *who,
            slowdown: Sample::of(slowdowns)?,
        })
    });
    rows.collect()
}

/// Percent.
fn slower(before: f64, with: f64, after: f64) -> f64 {
    (with / f64::midpoint(before, after) - 1.0) * 100.0
}

/// What becomes of one work in the last table.
fn budget(work: Work, rows: &[Row], limited: bool) -> anyhow::Result<Budget> {
    let tracer = rows.iter().find(|row| row.who == Who::Tracer);
    let tracer = tracer.context("the tracer was not measured")?;
    let median = tracer.slowdown.median();
    // The others tell of something else.
    let similar = |row: &&Row| matches!(row.who, Who::Peer(Peer::Sleeps | Peer::OffCpu));
    let mut others_alike = rows.iter().filter(similar);
    let above = others_alike.any(|row| tracer.slowdown.is_above(&row.slowdown));
    let others = rows.iter().filter(|row| row.who != Who::Tracer);
    Ok(Budget {
        what: format!("slowdown of {}", work.name()),
        limit: match limited {
            true => format!("≤ {LIMIT} %, not above bpftrace (sleeps), offcputime"),
            false => String::new(),
        },
        measured: format!("{:.1} %, ± {:.1}", tracer.slowdown, tracer.slowdown.error()),
        peers: others
            .map(|row| format!("{} {:.1} %", row.who.name(), row.slowdown))
            .collect(),
        verdict: match limited {
            true => Verdict::of(median <= LIMIT && !above),
            false => Verdict::NoLimit,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_gets_slower_all_the_time_is_not_the_watchers_fault() {
        assert!(slower(1.0, 1.1, 1.2).abs() < 1e-9);
        assert!((slower(1.0, 1.02, 1.0) - 2.0).abs() < 1e-9);
    }
}
