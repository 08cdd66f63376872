//! `kubectl node-tracer`: one question to the tracers of all nodes. kubectl
//! carries it, with the caller's own rights: to list pods, nodes and the tracer's
//! DaemonSets, and to `exec` in their pods. Nothing is written anywhere but the page of a
//! report.

mod answer;
mod kubectl;
mod page;
mod question;
mod text;
mod tracers;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use event::wording::escape::Printable;

use crate::kubectl::Kubectl;

/// Where the shipped manifests put the tracer.
const NAMESPACE: &str = "node-tracer";

#[derive(Parser)]
#[command(
    name = "kubectl node-tracer",
    bin_name = "kubectl node-tracer",
    version,
    about = "Asks the tracers of all nodes who has an IP, and which ghosts there are",
    after_help = "Exit codes: 0 nothing found, 1 something found, 2 error, 3 nothing found, but not \
                  all nodes could tell"
)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(Args)]
struct Common {
    /// kubectl's context
    #[arg(long, global = true)]
    context: Option<String>,
    /// kubectl's configuration file
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<String>,
    /// Where the tracer is: pods elsewhere are never asked
    #[arg(short, long, global = true, default_value = NAMESPACE)]
    namespace: String,
    /// Which DaemonSets there are the tracer's, and which pods
    #[arg(
        short = 'l',
        long,
        global = true,
        value_name = "LABELS",
        default_value = "app.kubernetes.io/name=node-tracer"
    )]
    selector: String,
    /// How answers are printed
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// How long one node may take
    #[arg(long, global = true, value_name = "DUR", value_parser = humantime::parse_duration, default_value = "20s")]
    timeout: Duration,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Text,
    Json,
}

#[derive(Subcommand)]
enum Command {
    /// Who has this IP, pod or MAC address: in the API, and on the nodes
    Who {
        /// An IP, a pod (NAMESPACE/NAME or NAME) or a MAC address
        subject: String,
    },
    /// All open incidents of the cluster, worst first
    Ghosts,
    /// What a node knows about something
    Explain {
        /// What `node-tracer explain` takes
        subject: String,
        /// This node
        #[arg(long, value_name = "NODE", required_unless_present = "all_nodes")]
        node: Vec<String>,
        /// Every node that has a tracer, 50 at a time
        #[arg(long, conflicts_with = "node")]
        all_nodes: bool,
    },
    /// What nodes see now, as one page
    ///
    /// Each node takes one look (node-tracer scan), and the page is made here by the
    /// node-tracer beside this plugin, or in PATH. A node that does not answer is
    /// named on standard error.
    Report {
        /// These nodes; of several the page has one timeline
        #[arg(long, value_name = "NODE", required = true)]
        node: Vec<String>,
        /// The page, one HTML file; otherwise it goes to standard output
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Replace the file if it is there
        #[arg(long, requires = "out")]
        force: bool,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let error = format!("error: {error:#}");
            let _ = writeln!(io::stderr(), "{}", Printable(&error));
            ExitCode::from(2)
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<u8> {
    let common = &cli.common;
    let kubectl = Kubectl::new(common.context.as_deref(), common.kubeconfig.as_deref());
    let tracers = question::Tracers {
        kubectl: &kubectl,
        namespace: &common.namespace,
        selector: &common.selector,
        timeout: common.timeout,
    };
    let answer = match &cli.command {
        Command::Who { subject } => tracers.who(subject)?,
        Command::Ghosts => tracers.ghosts()?,
        Command::Explain { subject, node, .. } => {
            let in_words = matches!(common.output, Output::Text);
            tracers.explain(subject, node, in_words)?
        }
        Command::Report { node, out, force } => {
            return page::write(&tracers, node, out.as_deref(), *force);
        }
    };
    let code = answer.exit_code();
    let printed = match common.output {
        Output::Json => text::json(answer),
        Output::Text => text::text(&answer, &common.namespace),
    };
    let mut out = io::stdout().lock();
    out.write_all(printed.as_bytes())?;
    out.flush()?;
    Ok(code)
}
