//! `node-tracer eni`: one look at the node, one table of its network devices.

use crate::{config::Config, outcome::Outcome, output, scan::Scan, snapshot::NodeReader};
use event::record::Record;

/// Looks, and tells. The outcome is what is wrong with the devices.
///
/// # Errors
/// The node cannot be looked at.
pub(crate) fn run(config: &Config) -> anyhow::Result<Outcome> {
    let mut sinks = output::sinks(config, true)?;
    let mut looker = NodeReader::new(config)?;
    let mut scan = Scan::new(config, &looker, None)?;
    scan.look(&mut looker)?;
    let engine = scan.looks.engine();
    let now = sys::clock::now();
    let enis = engine::eni::enis(engine, now);
    let record = Record::eni(&config.node.name, now, &enis);
    for sink in &mut sinks {
        output::quietly(sink.write(&record).map(drop))?;
        output::quietly(sink.flush())?;
    }
    let problems = enis.interfaces.iter().flat_map(|it| &it.problems);
    let worst = problems.map(|problem| problem.severity).max();
    Ok(Outcome::of(worst, &[]))
}
