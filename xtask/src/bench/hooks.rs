//! `bench hooks`: what a run of the tracer's program on `sched_switch`, the one
//! that runs most often, takes beside an empty program, and what others have
//! there.
//!
//! All of them are attached at once, so that each sees the same switches, on
//! the same machine, at the same time; who came first is another in each round.
//! The times are the kernel's own (see [`programs`]), and most of a short
//! program's is the reading of the clock: that of the empty one.

use std::process;
use std::time::Duration;

use anyhow::Context as _;
use node_tracer_tests::wait;

use super::budget::{Budget, Verdict};
use super::peers::Peer;
use super::programs::{self, Counting, EMPTY, Empty, Program};
use super::sample::Sample;
use super::sched::tracer;
use super::work::{Rounds, Work};
use super::{Setting, say};

/// How much longer than an empty program the tracer's may run.
const LIMIT: f64 = 1.25;
const HOOK: &str = "sched_switch";
const WORK: Work = Work::Pipe;
/// After all are attached.
const CALM: Duration = Duration::from_millis(300);

const PEERS: [Peer; 2] = [Peer::Sleeps, Peer::OffCpu];

/// Whose program it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Tracer,
    Empty,
    Peer(Peer),
}

impl Who {
    fn name(self) -> &'static str {
        match self {
            Self::Tracer => "node-tracer",
            Self::Empty => "empty program",
            Self::Peer(peer) => peer.name(),
        }
    }
}

/// Nanoseconds of a run of each, in one round.
type Means = Vec<(Who, f64)>;

pub(super) fn run(options: &Rounds, setting: &Setting) -> anyhow::Result<Vec<Budget>> {
    let (rounds, length) = options.of(setting, (2, 300), (9, 2_000));
    let peers = Peer::here(&PEERS)?;
    let amount = WORK.amount_for(length)?;
    let _counting = Counting::begin()?;
    let mut means = Vec::new();
    for round in 0..rounds {
        say(&format!("round {} of {rounds}", round + 1));
        means.push(one_round(round, amount, &peers, setting)?);
    }
    Ok(vec![budget(&means)?])
}

/// Attaches all, and does the work once.
fn one_round(round: u32, amount: u64, peers: &[Peer], setting: &Setting) -> anyhow::Result<Means> {
    let (mut watchers, tracer_is_first) = (Vec::new(), round.is_multiple_of(2));
    if tracer_is_first {
        watchers.push((Who::Tracer, tracer(setting)?));
    }
    let _empty = Empty::attach(HOOK)?;
    for peer in peers {
        watchers.push((Who::Peer(*peer), peer.start()?));
    }
    if !tracer_is_first {
        watchers.push((Who::Tracer, tracer(setting)?));
    }
    let now = || -> anyhow::Result<Vec<(Who, Program)>> {
        let own = programs::of(process::id())?;
        let own = own.into_iter().filter(|program| program.name == EMPTY);
        let mut all: Vec<(Who, Program)> = own.map(|program| (Who::Empty, program)).collect();
        for (who, watcher) in &watchers {
            let theirs = programs::of(watcher.pid())?;
            all.extend(theirs.into_iter().map(|program| (*who, program)));
        }
        all.retain(|(_, program)| program.hook() == HOOK);
        Ok(all)
    };
    wait::pause(CALM)?;
    let before = now()?;
    WORK.run(amount)?;
    let after = now()?;
    for (_, watcher) in watchers {
        watcher.stop()?;
    }
    Ok(between(&before, &after))
}

fn between(before: &[(Who, Program)], after: &[(Who, Program)]) -> Means {
    let mean = |(who, now): &(Who, Program)| {
        let (_, then) = before.iter().find(|(_, then)| then.id == now.id)?;
        Some((*who, now.runs.since(then.runs).mean()?))
    };
    after.iter().filter_map(mean).collect()
}

fn budget(rounds: &[Means]) -> anyhow::Result<Budget> {
    let of = |wanted: Who, means: &Means| {
        let mean = means.iter().find(|(who, _)| *who == wanted);
        mean.map(|(_, mean)| *mean)
    };
    let all = |who: Who| Sample::of(rounds.iter().filter_map(|means| of(who, means)).collect());
    let tracer = all(Who::Tracer).with_context(|| format!("the tracer's program on {HOOK}"))?;
    let ratios = rounds
        .iter()
        .filter_map(|means| Some(of(Who::Tracer, means)? / of(Who::Empty, means)?));
    let ratio = Sample::of(ratios.collect()).context("the empty program")?;
    let peers = [Who::Empty].into_iter().chain(PEERS.map(Who::Peer));
    // One that is not here has none.
    let peers: Vec<(Who, Sample)> = peers
        .filter_map(|who| Some((who, all(who).ok()?)))
        .collect();
    let script = peers
        .iter()
        .find(|(who, _)| *who == Who::Peer(Peer::Sleeps));
    let above = script.is_some_and(|(_, script)| tracer.is_above(script));
    Ok(Budget {
        what: format!("run time on {HOOK} under {}", WORK.name()),
        limit: format!("≤ {LIMIT} × empty, not above bpftrace"),
        measured: format!("{ratio:.2} × empty, {tracer:.0} ns"),
        peers: peers
            .iter()
            .map(|(who, mean)| format!("{} {mean:.0} ns", who.name()))
            .collect(),
        verdict: Verdict::of(ratio.median() <= LIMIT && !above),
    })
}

#[cfg(test)]
mod tests {
    use super::super::programs::Runs;
    use super::*;

    fn program(id: u32, time: u64, count: u64) -> Program {
        Program {
            id,
            name: String::new(),
            tracepoint: Some(String::from(HOOK)),
            runs: Runs { time, count },
        }
    }

    #[test]
    fn a_program_is_compared_with_the_empty_one_of_its_round() {
        let look = |ours: (u64, u64), empty: (u64, u64)| {
            vec![
                (Who::Tracer, program(1, ours.0, ours.1)),
                (Who::Empty, program(2, empty.0, empty.1)),
            ]
        };
        let before = look((1_000_000, 5), (7, 1));
        let after = look((1_000_000 + 90_000, 1_005), (7 + 60_000, 1_001));
        let means = between(&before, &after);
        assert_eq!(means, [(Who::Tracer, 90.0), (Who::Empty, 60.0)]);
        let budget = budget(&[means]).unwrap();
        assert_eq!(budget.verdict, Verdict::Missed);
        assert!(budget.measured.starts_with("1.50 "), "{}", budget.measured);
    }

    #[test]
    fn a_program_that_did_not_run_has_no_mean() {
        let look = || vec![(Who::Tracer, program(1, 0, 7))];
        assert!(between(&look(), &look()).is_empty());
        assert!(budget(&[Vec::new()]).is_err());
    }
}
