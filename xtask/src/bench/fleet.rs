//! `bench fleet`: what the tracers of a whole cluster cost its API server.
//!
//! The server and etcd are real, with the objects of so many nodes: [`PODS`] pods and
//! a Calico block each. Their tracers are the clients of this source, all in one
//! process (`node-tracer/crates/ipam/examples/fleet.rs`). Requests are counted by the
//! server's audit log, bytes by the clients where they count them.
//!
//! What 5,000 nodes cost is what a straight line or a parabola through the measured
//! sizes and through nothing says, whichever is more.

mod clients;
mod cluster;
mod span;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use node_tracer_tests::kube;
use node_tracer_tests::stage::Need;
use node_tracer_tests::wait;
use serde_json::Value;

use self::clients::Clients;
use self::cluster::Cluster;
use self::span::Span;
use super::budget::{Budget, Verdict};
use super::{Setting, kept, say};
use crate::cargo;

pub(super) const NEEDS: &[Need] = kube::NEEDS;

/// Pods of a node.
const PODS: usize = 30;
/// The cluster that all is about.
const CLUSTER: f64 = 5_000.0;
/// Limits there: requests and bytes in a second.
const STEADY: (f64, f64) = (100.0, 5e6);
const RECOVERY: f64 = 500.0;
/// How long a control plane takes to restart its server.
const OUTAGE: Duration = Duration::from_secs(10);
/// Until all nodes follow their pods.
const LIMIT: Duration = Duration::from_secs(600);
/// What follows from what was done is over by then.
const CALM: Duration = Duration::from_secs(20);
/// Pods that controllers make in a second (`--kube-api-qps` of
/// kube-controller-manager).
const PACE: usize = 20;
/// One of so many nodes is drained.
const PARTS: usize = 10;

/// Options of `bench fleet`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How many nodes, one size after the other [default: 100,300,1000, quick 10,20]
    #[arg(long, value_delimiter = ',', value_name = "N,...")]
    nodes: Vec<usize>,
    /// For how many seconds nothing is to happen [default: 600, quick 20]
    #[arg(long)]
    seconds: Option<u64>,
    /// Measure this program instead of the clients of this source
    #[arg(long, value_name = "FILE")]
    clients: Option<PathBuf>,
    /// Figures that an earlier run has kept (target/bench/fleet.json), to be told
    /// beside those of this one
    #[arg(long, value_name = "FILE")]
    beside: Option<PathBuf>,
}

/// What was measured of one size.
#[derive(Clone, Debug)]
struct Size {
    nodes: usize,
    steady: Span,
    rolling: Span,
    outage: Span,
    drain: Span,
    /// From when the server was ready to when all followed their pods again.
    recovery: Duration,
    /// Pods that were deleted, and made elsewhere.
    moved: usize,
}

pub(super) fn run(options: &Options, setting: &Setting) -> anyhow::Result<Vec<Budget>> {
    let sizes = match (options.nodes.as_slice(), setting.quick) {
        ([], true) => vec![10, 20],
        ([], false) => vec![100, 300, 1_000],
        (asked, _) => asked.to_vec(),
    };
    let calm = Duration::from_secs(setting.number(options.seconds, 20, 600));
    let arguments = [
        "--profile",
        "guest",
        "--package",
        "node-tracer-ipam",
        "--example",
        "fleet",
    ];
    let program = match &options.clients {
        Some(program) => std::path::absolute(program)?,
        None => cargo::build(&arguments, "fleet")?,
    };
    let beside = options.beside.as_deref().map(read).transpose()?;
    let mut cluster = Cluster::start()?;
    let mut measured = Vec::new();
    for nodes in sizes {
        say(&format!("{nodes} nodes: their objects"));
        cluster.grow(nodes)?;
        measured.push(measure(&mut cluster, &program, nodes, calm)?);
        // What is known is not lost with what comes.
        keep(&budgets(&measured, beside.as_ref()))?;
    }
    Ok(budgets(&measured, beside.as_ref()))
}

/// Figures by what they are of.
type Kept = serde_json::Map<String, Value>;

fn read(file: &Path) -> anyhow::Result<Kept> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    serde_json::from_str(&text).with_context(|| file.display().to_string())
}

fn keep(budgets: &[Budget]) -> anyhow::Result<()> {
    let file = kept("fleet.json");
    let figures = budgets.iter();
    let figures: Kept = figures
        .map(|budget| (budget.what.clone(), budget.measured.clone().into()))
        .collect();
    fs::create_dir_all(file.parent().context("no folder")?)?;
    fs::write(&file, Value::from(figures).to_string()).with_context(|| file.display().to_string())
}

fn measure(
    cluster: &mut Cluster,
    program: &Path,
    nodes: usize,
    calm: Duration,
) -> anyhow::Result<Size> {
    say(&format!("{nodes} nodes: without tracers"));
    // The server still works on what was made.
    wait::pause(3 * CALM)?;
    let (idle, ()) = cluster.during(None, |_| wait::pause(CALM))?;
    let clients = Clients::start(cluster, program)?;
    let began = clients.followed();
    clients.run(nodes)?;
    clients.until_followed(&began, 0..nodes, LIMIT)?;
    wait::pause(CALM)?;
    say(&format!(
        "{nodes} nodes: {} s in which nothing happens",
        calm.as_secs()
    ));
    let (steady, ()) = cluster.during(Some(&clients), |_| wait::pause(calm))?;
    say(&format!("{nodes} nodes: a rolling update"));
    let (rolling, ()) = cluster.during(Some(&clients), |_| {
        for from in (0..nodes).step_by(PACE) {
            let second = Instant::now() + Duration::from_secs(1);
            clients.renew(from, nodes.min(from + PACE))?;
            wait::pause(second.saturating_duration_since(Instant::now()))?;
        }
        wait::pause(CALM)
    })?;
    say(&format!("{nodes} nodes: a restart of the API server"));
    let (outage, recovery) = cluster.during(Some(&clients), |cluster| {
        let before = clients.followed();
        cluster.restart_server(OUTAGE)?;
        let ready = Instant::now();
        clients.until_followed(&before, 0..nodes, LIMIT)?;
        let took = ready.elapsed();
        wait::pause(CALM)?;
        Ok(took)
    })?;
    let leaving = nodes / PARTS;
    say(&format!("{nodes} nodes: a drain of {leaving}"));
    let (drain, moved) = cluster.during(Some(&clients), |cluster| {
        let moved = cluster.drain(leaving)?;
        wait::pause(2 * CALM)?;
        Ok(moved)
    })?;
    clients.stop()?;
    cluster.undo_drain(leaving)?;
    Ok(Size {
        nodes,
        steady: steady.without(&idle),
        rolling: rolling.without(&idle),
        outage,
        drain,
        recovery,
        moved,
    })
}

/// What so many nodes have of what these have: the parabola through nothing and the
/// points, by least squares; the straight line if that says more.
fn at(nodes: f64, points: &[(f64, f64)]) -> f64 {
    let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|&(x, y)| of(x, y)).sum::<f64>();
    let (x2, x3, x4) = (
        sum(&|x, _| x.powi(2)),
        sum(&|x, _| x.powi(3)),
        sum(&|x, _| x.powi(4)),
    );
    let (xy, x2y) = (sum(&|x, y| x * y), sum(&|x, y| x * x * y));
    let line = xy / x2 * nodes;
    let determinant = x2 * x4 - x3 * x3;
    if points.len() < 3 || determinant <= 0.0 {
        return line;
    }
    let slope = (xy * x4 - x2y * x3) / determinant;
    let bend = (x2y * x2 - xy * x3) / determinant;
    line.max(slope * nodes + bend * nodes * nodes)
}

/// One figure of all sizes.
struct Row<'a> {
    what: &'a str,
    of: &'a dyn Fn(&Size) -> f64,
    show: &'a dyn Fn(f64) -> String,
    /// At most, of [`CLUSTER`] nodes.
    limit: Option<f64>,
    /// It grows with the nodes.
    grows: bool,
}

impl Row<'_> {
    fn words(&self, sizes: &[Size]) -> (f64, String) {
        let points: Vec<(f64, f64)> = sizes
            .iter()
            .map(|size| (size.nodes as f64, (self.of)(size)))
            .collect();
        let last = points.last().map_or(0.0, |(_, y)| *y);
        let most = if self.grows {
            at(CLUSTER, &points)
        } else {
            last
        };
        let each: Vec<String> = points
            .iter()
            .map(|(nodes, y)| format!("{nodes:.0}: {}", (self.show)(*y)))
            .collect();
        let each = each.join(", ");
        match self.grows {
            true => (most, format!("**{}** ({each})", (self.show)(most))),
            false => (most, each),
        }
    }

    fn budget(&self, sizes: &[Size], beside: Option<&Kept>) -> Budget {
        let (most, measured) = self.words(sizes);
        Budget {
            what: self.what.to_owned(),
            limit: self
                .limit
                .map(|limit| format!("≤ {}", (self.show)(limit)))
                .unwrap_or_default(),
            measured,
            peers: beside
                .and_then(|kept| kept.get(self.what)?.as_str())
                .map(str::to_owned)
                .into_iter()
                .collect(),
            verdict: match self.limit {
                None => Verdict::NoLimit,
                Some(limit) => Verdict::of(most <= limit),
            },
        }
    }
}

fn budgets(sizes: &[Size], beside: Option<&Kept>) -> Vec<Budget> {
    let per_second = |value: f64| format!("{value:.1}/s");
    let bytes = |value: f64| format!("{:.2} MB/s", value / 1e6);
    let percent = |value: f64| format!("{value:.2} %");
    let megabytes = |value: f64| format!("{:.0} MB", value / 1e6);
    let number = |value: f64| format!("{value:.2}");
    let seconds = |value: f64| format!("{value:.0} s");
    let whole = |value: f64| format!("{value:.0}");
    let row = |what, of, show, limit, grows| Row {
        what,
        of,
        show,
        limit,
        grows,
    };
    let rate: &dyn Fn(&Size) -> f64 = &|size| size.steady.rate();
    let rows = [
        row(
            "nothing happens: requests",
            rate,
            &per_second,
            Some(STEADY.0),
            true,
        ),
        row(
            "nothing happens: bytes",
            &|size| size.steady.byte_rate(),
            &bytes,
            Some(STEADY.1),
            true,
        ),
        row(
            "nothing happens: requests of a node in a minute",
            &|size| size.steady.rate() * 60.0 / size.nodes as f64,
            &number,
            Some(1.0),
            false,
        ),
        row(
            "nothing happens: most requests in one second",
            &|size| size.steady.counts.peak,
            &per_second,
            None,
            true,
        ),
        row(
            "nothing happens: the server's CPU, of one core",
            &|size| size.steady.cpu() * 100.0,
            &percent,
            None,
            true,
        ),
        row(
            "memory of the server, and of etcd, after it",
            &|size| size.steady.memory,
            &megabytes,
            None,
            false,
        ),
        row(
            "lists of all pods or all blocks",
            &|size| {
                [&size.steady, &size.rolling, &size.outage, &size.drain]
                    .iter()
                    .map(|span| span.counts.of_all as f64)
                    .sum()
            },
            &whole,
            Some(0.0),
            false,
        ),
        row(
            "rolling update: requests of a node",
            &|size| size.rolling.counts.requests as f64 / size.nodes as f64,
            &number,
            None,
            false,
        ),
        row(
            "rolling update: most requests in one second",
            &|size| size.rolling.counts.peak,
            &per_second,
            None,
            false,
        ),
        row(
            "rolling update: bytes of a node, kB",
            &|size| size.rolling.bytes / 1e3 / size.nodes as f64,
            &whole,
            None,
            false,
        ),
        row(
            "restart of the API server: most requests in one second",
            &|size| size.outage.counts.peak,
            &per_second,
            Some(RECOVERY),
            true,
        ),
        row(
            "restart of the API server: requests of a node",
            &|size| size.outage.counts.requests as f64 / size.nodes as f64,
            &number,
            None,
            false,
        ),
        row(
            "restart of the API server: until all nodes follow their pods",
            &|size| size.recovery.as_secs_f64(),
            &seconds,
            None,
            false,
        ),
        row(
            "drain of a tenth of the nodes: requests for each pod that moves",
            &|size| size.drain.counts.requests as f64 / size.moved as f64,
            &number,
            None,
            false,
        ),
        row(
            "drain of a tenth of the nodes: most requests in one second",
            &|size| size.drain.counts.peak,
            &per_second,
            None,
            false,
        ),
    ];
    rows.iter().map(|row| row.budget(sizes, beside)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_with_the_square_of_the_nodes_is_not_told_as_if_it_grew_with_them() {
        let of = |f: &dyn Fn(f64) -> f64| -> Vec<(f64, f64)> {
            [100.0, 300.0, 1_000.0].map(|x| (x, f(x))).to_vec()
        };
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-6;
        assert!(near(at(5_000.0, &of(&|x| 0.01 * x)), 50.0));
        assert!(near(
            at(5_000.0, &of(&|x| 0.01 * x + 2e-4 * x * x)),
            5_050.0
        ));
        // What grows ever less is not told as less than a line.
        assert!(at(5_000.0, &of(&|x| x.sqrt())) > 5_000.0_f64.sqrt());
    }
}
