//! `node-tracer repair`: gives leaked reservations of host-local back, the
//! careful kind.
//!
//! A garbage collector that frees a live pod's address is worse than the leak:
//! two pods would have it. So there are two steps, with a person in between.
//!
//! 1. [`make`] a [`plan`](event::repair::plan): two looks at the node ([`observe`]), a grace apart, have to agree
//!    on every reservation that is to be released ([`judge`]). Nothing is changed.
//! 2. [`apply`] it: exactly that, within its time to live, on the same boot of
//!    the same node, under host-local's own lock, after everything was asked
//!    once more and with a [`backup`], from which [`undo`] puts back.
//!
//! | what could go wrong | what keeps it from it |
//! |---|---|
//! | host-local gives an address to a container that no list has yet | the reservation must be older than the grace, at both looks and at last, by times that cannot be set (`st_ctime`) |
//! | a slow CNI ADD: reserved long ago, and still not listed | the plugin's process has the container's ID in its environment; libcni's cache must not be younger than the grace |
//! | the address is released and given out again between plan and apply | content, inode and times are compared to the last byte, under the lock |
//! | the same container ID gets the same address again | the file is another one, or was written again |
//! | the runtime was restarted and lists nothing for a moment | nothing is released if CRI knows none of the containers that have a cgroup, a shim or a folder |
//! | several runtimes | all sockets that are found must answer in whole |
//! | the container is another engine's (nerdctl, podman) | its address is in a namespace, its ID in a cgroup of any name, or its ID is not of a runtime's form |
//! | a ghost: no runtime knows it, and its namespace has the address | every namespace is asked for its addresses; if one cannot be, nothing is released |
//! | one of a container's two addresses looks leaked | another one in use keeps it |
//! | the tool is killed in the middle | what is removed was noted on disk before |
//!
//! Stores of other IPAM plugins are never touched: for those, and for all that
//! holds an address for good (ghosts, mounts, stalls), the plan has the
//! manual steps ([`advice`]).

pub(crate) mod advice;
pub(crate) mod apply;
pub(crate) mod backup;
pub(crate) mod judge;
pub(crate) mod load;
pub(crate) mod make;
pub(crate) mod observe;
mod release;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod undo;

use std::{fs::OpenOptions, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::Path};

use anyhow::Context as _;

use self::observe::Observer;
use crate::{
    config::{Config, Making, Repair},
    output,
};
use event::record::Record;
use event::repair::outcome::{Outcome, Totals};
use event::repair::plan::{Plan, Reason, Withheld};
use sink::{Sink, json};
use sys::{
    apart,
    privileges::{self, Starter},
};

/// All was done, or there is nothing to do.
const DONE: u8 = 0;
/// There is something to do, or some was left alone as it had changed.
const SOME: u8 = 1;
/// It could not be done.
const FAILED: u8 = 2;

/// Does what was asked for. Returns the exit code.
///
/// # Errors
/// It cannot be done.
pub(crate) fn run(config: &Config, repair: &Repair) -> anyhow::Result<u8> {
    // Only this thread may write to stores; all others look.
    let writer = match repair {
        Repair::Plan(_) => None,
        Repair::Apply(_) | Repair::Undo(_) => Some(Starter::start(privileges::REPAIR)?),
    };
    let mut observer = match repair {
        Repair::Plan(_) | Repair::Apply(_) => Some(Observer::new()),
        Repair::Undo(_) => None,
    };
    let write = match repair {
        Repair::Plan(Making { file: Some(_), .. }) => privileges::WRITE,
        _ => privileges::CapabilitySet::empty(),
    };
    privileges::keep(config.privileges.look() | write);
    apart::begin();
    let mut sinks = output::sinks(config, false)?;
    match (repair, writer, observer.as_mut()) {
        (Repair::Plan(making), _, Some(observer)) => plan_for(config, observer, making, &mut sinks),
        (Repair::Apply(applying), Some(writer), Some(observer)) => {
            let mut tell = |outcome: &Outcome| say(config, &mut sinks, outcome);
            let totals = apply::run(config, observer, applying, &writer, &mut tell)?;
            conclude(config, &mut sinks, &totals)
        }
        (Repair::Undo(undoing), Some(writer), _) => {
            let mut tell = |outcome: &Outcome| say(config, &mut sinks, outcome);
            let totals = undo::run(config, undoing, &writer, &mut tell)?;
            conclude(config, &mut sinks, &totals)
        }
        (_, None, _) | (_, _, None) => {
            anyhow::bail!("there is no thread to write with, or to look with")
        }
    }
}

type Sinks = [Box<dyn Sink>];

fn say(config: &Config, sinks: &mut Sinks, outcome: &Outcome) -> anyhow::Result<()> {
    let record = Record::repair(&config.node.name, sys::clock::now(), outcome);
    tell(sinks, &record)
}

fn tell(sinks: &mut Sinks, record: &Record<'_>) -> anyhow::Result<()> {
    for sink in sinks {
        output::quietly(sink.write(record).map(drop))?;
    }
    Ok(())
}

fn conclude(config: &Config, sinks: &mut Sinks, totals: &Totals) -> anyhow::Result<u8> {
    let record = Record::repair_summary(&config.node.name, sys::clock::now(), totals);
    tell(sinks, &record)?;
    for sink in sinks {
        output::quietly(sink.flush())?;
    }
    Ok(match totals {
        Totals { failed: 1.., .. } => FAILED,
        Totals { kept: 1.., .. } => SOME,
        _ => DONE,
    })
}

/// Makes a plan, and writes it where it was asked for.
fn plan_for(
    config: &Config,
    observer: &mut Observer,
    making: &Making,
    sinks: &mut Sinks,
) -> anyhow::Result<u8> {
    // Whoever waits a minute is not to be told then that it was for nothing.
    if let Some(path) = &making.file
        && path.symlink_metadata().is_ok()
    {
        anyhow::bail!("--plan {}: there is such a file already", path.display());
    }
    let plan = make::plan(config, observer, making)?;
    let refused = is_withheld_for_all(&plan);
    let file = making.file.as_deref().filter(|_| !refused);
    let record = Record::plan(&config.node.name, plan.observed[1], &plan, file);
    if let Some(path) = file {
        let mut line = json::line(&record)?;
        line.push(b'\n');
        write(path, &line).with_context(|| format!("cannot write the plan {}", path.display()))?;
    }
    tell(sinks, &record)?;
    for sink in sinks {
        output::quietly(sink.flush())?;
    }
    if refused {
        anyhow::bail!("no release can be planned: {}", plan.refused.join("; "));
    }
    Ok(match plan.asks_for_something() {
        true => SOME,
        false => DONE,
    })
}

/// Something looks leaked, and nothing could be planned.
fn is_withheld_for_all(plan: &Plan) -> bool {
    let waits = |each: &Withheld| each.reason == Reason::Unknown;
    !plan.refused.is_empty() && plan.withheld.iter().any(waits)
}

fn write(path: &Path, line: &[u8]) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    // It says which addresses are to be had.
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(line)?;
    file.sync_all()
}
