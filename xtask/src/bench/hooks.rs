//! `bench hooks`: what a run of each of the tracer's kernel programs takes,
//! beside an empty program on the same hook, and what others have there.
//!
//! All of them are attached at once, so that each sees the same switches, on
//! the same machine, at the same time; who came first is another in each round.
//! The times are the kernel's own (see [`programs`]), and most of a short
//! program's is the reading of the clock: that of the empty one.

use std::collections::BTreeSet;
use std::process;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use node_tracer_tests::wait;
use serde_json::{Value, json};

use super::budget::{Budget, Verdict};
use super::peers::Peer;
use super::programs::{self, Counting, EMPTY, Empty, Program, Runs};
use super::sample::Sample;
use super::sched::tracer;
use super::watcher::Watcher;
use super::work::{Rounds, Work};
use super::{Setting, say};

/// How much longer than an empty program the tracer's on `sched_switch` may run.
const LIMIT: f64 = 1.25;
/// The one that runs most often.
const SWITCH: &str = "sched_switch";
/// Of fewer runs in a round nothing is said.
const FEW: u64 = 50;
/// After all are attached.
const CALM: Duration = Duration::from_millis(300);

const WORKS: [Work; 3] = [Work::Pipe, Work::Exec, Work::Unshare];
const PEERS: [Peer; 3] = [Peer::Sleeps, Peer::OffCpu, Peer::Execs];

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

#[derive(Clone, Debug)]
struct RoundOfProgram {
    work: Work,
    who: Who,
    program: String,
    hook: String,
    runs: Runs,
    seconds: f64,
    /// Mean of the empty program on the same hook, in the same round.
    empty: Option<f64>,
}

/// One program under one work, of all rounds.
struct Row {
    work: Work,
    who: Who,
    program: String,
    hook: String,
    /// Runs in a second.
    rate: Sample,
    /// Nanoseconds.
    mean: Sample,
    /// The same, as a multiple of the empty program's.
    ratio: Option<Sample>,
}

impl Row {
    fn json(&self) -> Value {
        json!({
            "work": self.work.name(), "who": self.who.name(), "program": self.program,
            "hook": self.hook, "runs_per_s": self.rate.json(), "mean_ns": self.mean.json(),
            "times_empty": self.ratio.as_ref().map(Sample::json),
        })
    }
}

pub(super) fn run(options: &Rounds, setting: &Setting) -> anyhow::Result<Vec<Budget>> {
    let (rounds, length) = options.of(setting, (2, 300), (9, 2_000));
    let peers = Peer::here(&PEERS)?;
    let mut amounts = Vec::new();
    for work in WORKS {
        amounts.push((work, work.amount_for(length)?));
    }
    let _counting = Counting::begin()?;
    let mut hooks = BTreeSet::new();
    let mut seen = Vec::new();
    for round in 0..rounds {
        say(&format!("round {} of {rounds}", round + 1));
        seen.extend(one_round(round, &amounts, &peers, &mut hooks, setting)?);
    }
    let rows = rows(&seen)?;
    println!(
        "\n{:<24} {:<20} {:<24} {:<16} {:>9} {:>22} {:>20}",
        "work", "hook", "whose", "program", "runs/s", "ns a run, half of them", "× empty"
    );
    for row in &rows {
        let ratio = row.ratio.as_ref().map(|ratio| format!("{ratio:.2}"));
        println!(
            "{:<24} {:<20} {:<24} {:<16} {:>9.0} {:>22} {:>20}",
            row.work.name(),
            row.hook,
            row.who.name(),
            row.program,
            row.rate.median(),
            format!("{:.0}", row.mean),
            ratio.unwrap_or_default()
        );
    }
    println!();
    let numbers: Vec<Value> = rows.iter().map(Row::json).collect();
    super::write("hooks", &json!({ "rounds": rounds, "rows": numbers }))?;
    let waking = budget(&rows, "sched_waking", false);
    Ok(vec![budget(&rows, SWITCH, true)?]
        .into_iter()
        // On a kernel where the tracer has nothing there, there is no such row.
        .chain(waking)
        .collect())
}

/// Attaches all, and does each work once.
fn one_round(
    round: u32,
    amounts: &[(Work, u64)],
    peers: &[Peer],
    hooks: &mut BTreeSet<String>,
    setting: &Setting,
) -> anyhow::Result<Vec<RoundOfProgram>> {
    let attach = |hooks: &BTreeSet<String>| -> anyhow::Result<Vec<Empty>> {
        hooks.iter().map(|hook| Empty::attach(hook)).collect()
    };
    let others = || -> anyhow::Result<Vec<(Who, Watcher)>> {
        let start = |peer: &Peer| -> anyhow::Result<(Who, Watcher)> {
            Ok((Who::Peer(*peer), peer.start()?))
        };
        peers.iter().map(start).collect()
    };

    // In the first round the tracer's hooks are not known before it runs.
    let (mut watchers, empties);
    if round.is_multiple_of(2) {
        let tracer = tracer(setting)?;
        let programs = programs::of(tracer.pid())?;
        hooks.extend(tracepoints(&programs));
        empties = attach(hooks)?;
        watchers = others()?;
        watchers.push((Who::Tracer, tracer));
    } else {
        watchers = others()?;
        empties = attach(hooks)?;
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
        Ok(all)
    };
    let mut seen = Vec::new();
    for (work, amount) in amounts {
        wait::pause(CALM)?;
        let (before, begin) = (now()?, Instant::now());
        work.run(*amount)?;
        let (after, seconds) = (now()?, begin.elapsed().as_secs_f64());
        seen.extend(between(*work, &before, &after, seconds));
    }
    for (_, watcher) in watchers {
        watcher.stop()?;
    }
    drop(empties);
    Ok(seen)
}

/// The tracepoints that these are attached to: a link says which. (Iterators
/// have none.)
fn tracepoints(programs: &[Program]) -> impl Iterator<Item = String> {
    let hooks = programs
        .iter()
        .filter_map(|program| program.tracepoint.clone());
    hooks.collect::<Vec<_>>().into_iter()
}

/// What all did between two looks.
fn between(
    work: Work,
    before: &[(Who, Program)],
    after: &[(Who, Program)],
    seconds: f64,
) -> Vec<RoundOfProgram> {
    let mut seen: Vec<RoundOfProgram> = after
        .iter()
        .filter_map(|(who, now)| {
            let (_, then) = before.iter().find(|(_, then)| then.id == now.id)?;
            Some(RoundOfProgram {
                work,
                who: *who,
                program: now.name.clone(),
                hook: now.hook().to_owned(),
                runs: now.runs.since(then.runs),
                seconds,
                empty: None,
            })
        })
        .filter(|seen| seen.runs.count >= FEW)
        .collect();
    let empties: Vec<(String, Option<f64>)> = seen
        .iter()
        .filter(|seen| seen.who == Who::Empty)
        .map(|seen| (seen.hook.clone(), seen.runs.mean()))
        .collect();
    for seen in &mut seen {
        let same = empties.iter().find(|(hook, _)| *hook == seen.hook);
        seen.empty = same.and_then(|(_, mean)| *mean);
    }
    seen
}

fn rows(seen: &[RoundOfProgram]) -> anyhow::Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    for one in seen {
        let same = |work: Work, who: Who, program: &str, hook: &str| {
            (work, who, program, hook)
                == (one.work, one.who, one.program.as_str(), one.hook.as_str())
        };
        if rows
            .iter()
            .any(|row| same(row.work, row.who, &row.program, &row.hook))
        {
            continue;
        }
        let all: Vec<&RoundOfProgram> = seen
            .iter()
            .filter(|other| same(other.work, other.who, &other.program, &other.hook))
            .collect();
        let ratios: Vec<f64> = all
            .iter()
            .filter_map(|seen| Some(seen.runs.mean()? / seen.empty?))
            .collect();
        rows.push(Row {
            work: one.work,
            who: one.who,
            program: one.program.clone(),
            hook: one.hook.clone(),
            rate: Sample::of(
                all.iter()
                    .map(|seen| seen.runs.count as f64 / seen.seconds)
                    .collect(),
            )?,
            mean: Sample::of(all.iter().filter_map(|seen| seen.runs.mean()).collect())?,
            ratio: Sample::of(ratios).ok(),
        });
    }
    let at = |work: Work| WORKS.iter().position(|other| *other == work);
    rows.sort_by(|a, b| {
        let key = |row: &Row| (at(row.work), row.hook.clone());
        key(a)
            .cmp(&key(b))
            .then(a.mean.median().total_cmp(&b.mean.median()))
    });
    Ok(rows)
}

/// What becomes of one hook in the last table.
fn budget(rows: &[Row], hook: &str, limited: bool) -> anyhow::Result<Budget> {
    let all = || {
        rows.iter()
            .filter(|row| row.work == WORKS[0] && row.hook == hook)
    };
    let tracer = all().find(|row| row.who == Who::Tracer);
    let tracer = tracer.with_context(|| format!("the tracer has no program on {hook}"))?;
    let ratio = tracer.ratio.as_ref();
    let ratio = ratio.with_context(|| format!("there was no empty program on {hook}"))?;
    let script = all().find(|row| row.who == Who::Peer(Peer::Sleeps));
    let above = script.is_some_and(|script| tracer.mean.is_above(&script.mean));
    let others = all().filter(|row| row.who != Who::Tracer);
    Ok(Budget {
        what: format!("run time on {hook} under {}", tracer.work.name()),
        limit: match limited {
            true => format!("≤ {LIMIT} × empty, not above bpftrace"),
            false => String::new(),
        },
        measured: format!("{ratio:.2} × empty, {:.0} ns", tracer.mean),
        peers: others
            .map(|row| format!("{} {:.0} ns", row.who.name(), row.mean))
            .collect(),
        verdict: match limited {
            true => Verdict::of(ratio.median() <= LIMIT && !above),
            false => Verdict::NoLimit,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(id: u32, name: &str, time: u64, count: u64) -> Program {
        Program {
            id,
            name: name.to_owned(),
            tracepoint: Some(String::from(SWITCH)),
            runs: Runs { time, count },
        }
    }

    #[test]
    fn a_program_is_compared_with_the_empty_one_of_its_hook_and_round() {
        let look = |ours: (u64, u64), empty: (u64, u64)| {
            vec![
                (Who::Tracer, program(1, "task_switch", ours.0, ours.1)),
                (Who::Empty, program(2, EMPTY, empty.0, empty.1)),
            ]
        };
        let before = look((1_000_000, 5), (7, 1));
        let after = look((1_000_000 + 90_000, 1_005), (7 + 60_000, 1_001));
        let seen = between(Work::Pipe, &before, &after, 2.0);
        let rows = rows(&seen).unwrap();
        let row = rows.iter().find(|row| row.who == Who::Tracer).unwrap();
        assert_eq!((row.mean.median(), row.rate.median()), (90.0, 500.0));
        assert_eq!(row.ratio.as_ref().unwrap().median(), 1.5);
        assert_eq!(
            budget(&rows, SWITCH, true).unwrap().verdict,
            Verdict::Missed
        );
        assert!(budget(&rows, "sched_waking", false).is_err());
    }

    #[test]
    fn a_program_that_hardly_ran_has_no_mean() {
        let look = |count| vec![(Who::Tracer, program(1, "oom_victim", 0, count))];
        assert!(between(Work::Pipe, &look(0), &look(FEW - 1), 1.0).is_empty());
    }
}
