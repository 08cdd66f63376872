//! What goes wrong around a tracer that runs: readers that stop, disks that
//! are full, runtimes and servers that come and go, signals at a bad moment.

mod api;
mod clock;
mod journal;
mod machine;
mod output;
mod piped;
mod runtime;
mod signals;
mod stalls;
mod stopped;

use anyhow::{Context as _, ensure};
use node_tracer_tests::stage::{IP, Need};
use serde_json::Value;

const NEEDS: &[Need] = &[Need::Root, Need::Tracer];
const FROZEN: &[Need] = &[Need::Root, Need::StaticBusybox, Need::Loop, Need::Tracer];
const JOURNALD: &[Need] = &[Need::Root, Need::Tracer, IP, Need::Journald];

/// The records of a text that holds whole lines only.
pub(crate) fn whole_lines(text: &str) -> anyhow::Result<Vec<Value>> {
    ensure!(
        text.is_empty() || text.ends_with('\n'),
        "the last line is torn: {:?}",
        text.lines().last()
    );
    let parse = |line: &str| serde_json::from_str(line).with_context(|| format!("torn: {line}"));
    text.lines().map(parse).collect()
}

/// The events of a recording that are printed, too.
pub(crate) fn recorded(lines: &[Value]) -> impl Iterator<Item = &Value> {
    // A node's whole tables are no record either.
    const INTERNAL: [&str; 2] = ["tick", "netns-forwarding"];
    let printed = |line: &&Value| {
        line["event"]
            .as_str()
            .is_some_and(|it| !INTERNAL.contains(&it))
    };
    lines.iter().filter(printed)
}
