//! The table of blocked tasks, and the number of its entries that the kernel's
//! programs count beside it.
//!
//! While that number is zero, no switch looks at the task that is about to
//! run. Were it to drift upwards, every switch would pay for it; downwards, the
//! end of a sleep would be missed. No record tells: so the maps are looked at.

use node_tracer_tests::test;
use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use aya::maps::{Array, HashMap, Map, MapData, MapInfo};
use node_tracer_ebpf::map;
use node_tracer_tests::process;
use node_tracer_tests::stuck::Stuck;
use node_tracer_tests::tracer::Tracer;
use node_tracer_tests::wait;

const TASKS: u32 = 500;
const TURN: Duration = Duration::from_millis(100);
const FLAPPING: Duration = Duration::from_secs(6);
/// For the tracer to know of all that has changed, on a machine that does much
/// else.
const LIMIT: Duration = Duration::from_secs(60);
/// Other tasks of the node go to sleep and on between two looks. A number that
/// has drifted can look right then; so many times in a row it does not.
const AGREE: u32 = 5;

/// Both maps of a running tracer. They are only read.
struct Table {
    /// The value is `record::Blocked`, in words.
    blocked: HashMap<MapData, u32, [u64; 3]>,
    asleep: Array<MapData, i64>,
}

impl Table {
    fn of(tracer: &Tracer) -> anyhow::Result<Self> {
        let ids = process::fd_numbers(tracer.pid(), "map_id:")?;
        let open = |name: &str| -> anyhow::Result<MapData> {
            let named = ids.iter().find(|id| {
                MapInfo::from_id(**id).is_ok_and(|info| info.name_as_str() == Some(name))
            });
            let id = named.with_context(|| format!("the tracer has no map {name}"))?;
            MapData::from_id(*id).with_context(|| format!("map {name}"))
        };
        Ok(Self {
            blocked: HashMap::try_from(Map::HashMap(open(map::BLOCKED)?))?,
            asleep: Array::try_from(Map::Array(open(map::ASLEEP)?))?,
        })
    }

    /// The entries, if their number was the counted one before and after.
    fn agreed(&self) -> anyhow::Result<Result<HashSet<u32>, String>> {
        let before = self.asleep.get(&0, 0)?;
        // One that is struck out meanwhile makes the kernel start anew, and
        // others are then seen twice.
        let entries: HashSet<u32> = self.blocked.keys().filter_map(Result::ok).collect();
        let after = self.asleep.get(&0, 0)?;
        let number = i64::try_from(entries.len())?;
        Ok(match before == number && after == number {
            true => Ok(entries),
            false => Err(format!(
                "{number} entries, counted {before} before and {after} after"
            )),
        })
    }

    /// Waits until the number is that of the entries, and those are as wanted.
    fn settle(&self, wanted: impl Fn(&HashSet<u32>) -> bool) -> anyhow::Result<()> {
        let mut in_a_row = 0;
        let mut last = String::new();
        let settled = wait::until("the number to be that of the entries", LIMIT, || {
            match self.agreed()? {
                Ok(entries) => {
                    last = format!("{} entries, counted rightly", entries.len());
                    in_a_row = if wanted(&entries) { in_a_row + 1 } else { 0 };
                }
                Err(other) => (in_a_row, last) = (0, other),
            }
            Ok((in_a_row == AGREE).then_some(()))
        });
        settled.with_context(|| format!("the last look: {last}"))
    }
}

/// What must hold whatever the programs are attached to.
fn counts(args: &[&str]) -> anyhow::Result<()> {
    let mut tasks = Stuck::start(TASKS)?;
    let cpus = tasks.spread()?;
    let pids = tasks.pids().to_vec();
    let all = |entries: &HashSet<u32>| pids.iter().all(|pid| entries.contains(pid));
    let none = |entries: &HashSet<u32>| !pids.iter().any(|pid| entries.contains(pid));
    // Those that slept before, the tracer writes down itself; and it changes
    // the entries of those that have passed the threshold.
    tasks.freeze_all()?;
    let tracer = Tracer::trace(&[&["--stall-threshold", "1s"], args].concat())?;
    let table = Table::of(&tracer)?;
    table.settle(all).context("they slept before")?;
    tasks.thaw()?;
    // They wait for each other now and then, to write to one file.
    let any = |_: &HashSet<u32>| true;
    table.settle(any).context("all go on")?;
    tasks.flap_for(TURN, FLAPPING)?;
    table.settle(any).context("after the flapping")?;
    tasks.freeze_all()?;
    table.settle(all).context("all sleep")?;
    let slept = tasks.stop()?;
    table.settle(none).context("all have ended")?;

    println!("        {slept} sleeps on {cpus} CPUs");
    ensure!(slept > 4 * u64::from(TASKS), "only {slept} sleeps");
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    Ok(())
}

test!(
    super::FROZEN,
    stall_table_has_as_many_entries_as_are_counted
);
fn stall_table_has_as_many_entries_as_are_counted() -> anyhow::Result<()> {
    counts(&[])
}

test!(
    super::FROZEN,
    stall_table_without_types_has_as_many_entries_as_are_counted
);
/// The end of a sleep is seen by another program then.
fn stall_table_without_types_has_as_many_entries_as_are_counted() -> anyhow::Result<()> {
    counts(&["--limit", "raw_tp"])
}
