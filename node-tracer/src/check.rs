//! `node-tracer check`: loads and attaches everything as `trace` would, asks
//! every source once as `scan` would, says what came of it, and leaves again.

use crate::{config::Config, coverage, output, platform, progress, snapshot::NodeReader};
use event::record::{CoverageItem, Record};
use kernel::ebpf::{
    Attached, Probes,
    plan::{Mechanism, Signal},
};
use sys::{
    apart,
    privileges::{self, ATTACH},
};

/// Whether every signal of the kernel can be seen somehow.
pub(crate) fn run(config: &Config) -> anyhow::Result<bool> {
    let look = config.privileges.look();
    privileges::keep(ATTACH | look);
    let mut sinks = output::sinks(config, false)?;
    let proc = std::path::Path::new("/proc");
    let shown = progress::doing("loading the kernel programs");
    let Attached {
        mut probes,
        plan,
        warnings,
    } = Attached::new(proc, &config.wanted())?;
    drop(shown);
    privileges::keep(look);
    apart::begin();
    for warning in warnings {
        tracing::info!("{warning}");
    }
    let mut items = coverage::of_plan(&plan);
    let whole = items.iter().all(|item| item.mechanism.is_some());
    if let (Mechanism::Iterator, Some(probes)) = (plan.mechanism(Signal::Inventory), &mut probes) {
        items.push(try_inventory(probes));
    }
    items.push(config.privileges.coverage(ATTACH | look));
    let looked = NodeReader::new(config)?.look()?;
    items.push(platform::coverage(looked.runtimes()));
    items.extend(looked.items);
    let record = Record::coverage(&config.node.name, sys::clock::now(), &items);
    for sink in &mut sinks {
        output::quietly(sink.write(&record).map(|_| ()))?;
    }
    Ok(whole)
}

/// The iterators, run once for real: what they list.
fn try_inventory(probes: &mut Probes) -> CoverageItem {
    let counted = probes.tasks(None).and_then(|tasks| {
        let kthreadd = tasks.iter().find(|entry| entry.row.task.tid == 2);
        let init_net = kthreadd.map_or(0, |entry| entry.row.net_address);
        let netns = probes.netns(init_net, 1)?.unwrap_or_default();
        Ok((tasks.len(), netns.len()))
    });
    let (mechanism, reason) = match counted {
        Ok((tasks, netns)) => (
            Some(format!(
                "{tasks} tasks in {netns} network namespaces listed"
            )),
            None,
        ),
        Err(error) => (None, Some(event::fault::chain(&error))),
    };
    CoverageItem {
        signal: String::from("stock-taking"),
        mechanism,
        reason,
        unknown: Vec::new(),
    }
}
