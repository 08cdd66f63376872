//! The command line as it is typed. What it means is in
//! [`config`](crate::config).

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Finds pod sandboxes whose network namespace outlives the pod and still
/// holds its IP.
#[derive(Debug, Parser)]
#[command(
    name = "node-tracer",
    version,
    about,
    after_help = "Exit codes: 0 nothing of severity warning or above, 1 something, 2 the job could \
                  not be done.\n`trace` ends with 0 when it is stopped."
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Attach, take stock, then stream events and findings until stopped
    #[command(after_help = "Examples:\n  \
        kubectl get pods -A -o json > pods.json\n  \
        node-tracer trace --pods pods.json\n  \
        node-tracer trace -o journald --pods pods.json --record /var/tmp/run.jsonl\n  \
        node-tracer trace -o json --duration 60s | jq 'select(.type == \"finding\")'")]
    Trace(Trace),
    /// What this node lets the tool see, by which mechanism, and what is
    /// therefore unknown
    Check(Check),
}

/// Options of `trace`.
#[derive(Debug, Args)]
pub(crate) struct Trace {
    /// What `check` takes as well.
    #[command(flatten)]
    pub(crate) common: Common,
    /// Report tasks in uninterruptible sleep for longer than this
    #[arg(long, value_name = "DUR", default_value = "5s", value_parser = duration)]
    pub(crate) stall_threshold: Duration,
    /// Stop after this time
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// Write every event to a file, for replay; it must not exist
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
}

/// Options of `check`.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// What `trace` takes as well.
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Options that say where to look and where to write.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Where and how to write; may be given several times [default: text]
    #[arg(short, long = "output", value_enum, value_name = "FORM")]
    pub(crate) output: Vec<Output>,
    /// Pods that the API server knows: a file as `kubectl get pods -A -o json`
    /// prints it (read again when it changes), - for standard input, auto, none
    #[arg(long, value_name = "auto|none|FILE|-", default_value = "auto")]
    pub(crate) pods: String,
    /// The container runtime's CRI socket
    #[arg(long, value_name = "auto|none|ENDPOINT", default_value = "auto")]
    pub(crate) cri: String,
    /// Where the tool runs.
    #[command(flatten)]
    pub(crate) node: Node,
    /// Use no better mechanism than this (for tests)
    #[arg(long, hide = true, value_name = "MECHANISM")]
    pub(crate) limit: Option<String>,
}

/// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct Node {
    /// The host's root directory, when run in a container
    #[arg(
        long,
        value_name = "DIR",
        env = "NODE_TRACER_ROOT",
        default_value = "/"
    )]
    pub(crate) root: PathBuf,
    /// This node's name in records [default: the host name]
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub(crate) node_name: Option<String>,
}

/// Forms of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Output {
    /// For people, on standard output
    Text,
    /// One JSON object a line, on standard output
    Json,
    /// Findings, to systemd-journald
    Journald,
}

/// `5s`, `500ms`, `2m`; a number without a unit is refused, as it would be
/// read as seconds by one and as milliseconds by the other.
fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(duration) if duration.is_zero() => Err(String::from("it must be longer than zero")),
        Ok(duration) if duration > MAX_DURATION => Err(String::from("at most one year")),
        Ok(duration) => Ok(duration),
        Err(error) => Err(format!("{error}; write it like 5s, 500ms or 2m")),
    }
}

const MAX_DURATION: Duration = Duration::from_secs(366 * 24 * 3600);

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_need_a_unit_and_a_length() {
        assert_eq!(duration("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert!(duration("5").is_err());
        assert!(duration("0s").is_err());
        assert!(duration("2000000years").is_err());
        assert!(duration("-3s").is_err());
    }
}
