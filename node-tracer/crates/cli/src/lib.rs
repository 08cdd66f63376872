//! The command line as it is typed. What it means is in `config`.
//!
//! It needs nothing else of the tracer: `cargo xtask dist` makes the man pages and
//! the completions of it.

#![forbid(unsafe_code)]

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

use self::values::{duration, metrics_address, offset, size};

mod values;

/// Columns of help, at most.
const COLUMNS: usize = 100;
const WHERE: &str = "Where to look";
const HOW: &str = "Output";
const TERMINAL: &str = "Terminal";

/// Finds Kubernetes pod sandboxes whose network namespace outlives the pod and
/// still holds its IP.
#[derive(Debug, Parser)]
#[command(
    name = "node-tracer",
    version,
    max_term_width = COLUMNS,
    after_help = "Exit codes: 0 nothing of severity warning or above, 1 something, 2 error, 3 nothing \
                  found, but ghost-sandbox or duplicate-address could not be evaluated (NOT CHECKED; \
                  logs alone never have what these need: for them it is 0).\n`trace` ends with 0 when \
                  it is stopped.\n\n\
                  Begin with `node-tracer check`; `node-tracer COMMAND --help` has examples."
)]
pub struct Cli {
    /// How much is said, and how it looks.
    #[command(flatten)]
    pub manner: Manner,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch with eBPF; print events and findings until stopped
    #[command(after_help = "Examples:\n  \
        node-tracer trace\n  \
        node-tracer trace --quiet                 # findings, without single events\n  \
        node-tracer trace --pods pods.json        # kubectl get pods -A -o json\n  \
        node-tracer trace -o journald --record /var/tmp/run.jsonl\n  \
        node-tracer trace -o json --metrics 9464 --kube-events=critical\n  \
        node-tracer trace -o json | jq 'select(.type == \"finding\")'")]
    Trace(Trace),
    /// One look at the node, which needs no eBPF: everything that is wrong now
    #[command(after_help = "Examples:\n  \
        node-tracer scan\n  \
        node-tracer scan --duration 30s           # leave ordinary deletions out\n  \
        node-tracer scan --pods pods.json --cri none\n  \
        node-tracer scan -q || echo something is wrong\n  \
        node-tracer scan -o json | jq 'select(.type == \"finding\")'")]
    Scan(Scan),
    /// Everything known about one address, pod, sandbox, container, network
    /// namespace or process
    #[command(after_help = "Examples:\n  \
        node-tracer explain 10.0.3.7\n  \
        node-tracer explain shop/checkout-5b7d9c-x8k2p\n  \
        node-tracer explain d6fe7d73              # a sandbox's or container's ID\n  \
        node-tracer explain 4026532246            # a network namespace\n  \
        node-tracer explain /run/netns/cni-1      # the same by its path\n  \
        node-tracer explain veth1a2b3c4d          # an interface; or a MAC address\n  \
        node-tracer explain 0000:00:06.0          # an ENI by its PCI address\n  \
        node-tracer explain 26310                 # a process\n  \
        node-tracer explain -v 10.0.3.7           # all of it: stacks, mounts, IDs")]
    Explain(Explain),
    /// Each physical network device, ipvlan or macvlan parent and virtual function:
    /// MAC, network namespace, addresses, rules, tables, pods, and what is wrong
    #[command(after_help = "Examples:\n  \
        node-tracer eni\n  \
        node-tracer eni -v                        # with each rule and pod\n  \
        node-tracer eni -o json | jq '.interfaces[] | select(.problems != [])'\n  \
        node-tracer explain 0000:00:06.0          # one of them; or its MAC address")]
    Eni(Eni),
    /// What a rule means, how it decides, what to do; without one, all rules
    #[command(after_help = "Examples:\n  \
        node-tracer explain-rule\n  \
        node-tracer explain-rule ghost-sandbox")]
    ExplainRule(ExplainRule),
    /// Recorded runs again, or logs that nobody traced, through the same engine
    #[command(after_help = "Examples:\n  \
        node-tracer replay run.jsonl\n  \
        node-tracer replay kubelet.log containerd.log kern.log.gz\n  \
        journalctl -u kubelet -u containerd -k -o json | node-tracer replay -\n  \
        node-tracer replay --utc-offset +08:00 --year 2017 messages-20171213\n  \
        node-tracer replay -o json run.jsonl | jq 'select(.type == \"finding\")'\n  \
        ssh worker-3 cat /var/tmp/run.jsonl | node-tracer replay -")]
    Replay(Replay),
    /// Recorded runs as one page, to hand on: the story, a timeline, the
    /// evidence, and what was not seen
    #[command(after_help = "Examples:\n  \
        node-tracer report run.jsonl -o report.html\n  \
        node-tracer report n1.jsonl n2.jsonl -o report.html      # two nodes, one timeline\n  \
        ssh worker-3 cat run.jsonl | node-tracer report - -o report.html")]
    Report(Report),
    /// What this node lets the tool see, by which mechanism, and what is
    /// therefore unknown
    #[command(after_help = "Examples:\n  \
        node-tracer check\n  \
        node-tracer check --root /host            # in a container\n  \
        node-tracer check -o json | jq '.signals[] | select(.mechanism == null)'")]
    Check(Check),
    /// Give leaked reservations of host-local back: print a plan, which changes
    /// nothing; then carry exactly that out; and undo it
    #[command(after_help = "Examples:\n  \
        node-tracer repair                        # a plan; changes nothing\n  \
        node-tracer repair --plan plan.json       # the same, and keep the plan\n  \
        node-tracer repair --apply plan.json      # carry it out, with a backup\n  \
        node-tracer repair --undo /var/lib/node-tracer/backup/20261122T031510.123456Z\n\n\
        Exit codes: 0 nothing to do, or all done; 1 something to do, or some was left alone as it had \
        changed; 2 error.")]
    Repair(Repair),
    /// What completes this command line in a shell
    #[command(after_help = "Examples:\n  \
        node-tracer completions bash > /usr/share/bash-completion/completions/node-tracer\n  \
        node-tracer completions zsh > /usr/share/zsh/vendor-completions/_node-tracer\n  \
        source <(node-tracer completions bash)    # in this shell alone")]
    Completions(Completions),
    /// The man page of a command; without one, of all of them
    #[command(after_help = "Examples:\n  \
        node-tracer man | man -l -\n  \
        node-tracer man scan | man -l -")]
    Man(ManPage),
}

/// How much is said, and how it looks.
#[derive(Debug, Args)]
pub struct Manner {
    /// Say only what was found, and errors
    ///
    /// On standard error there are errors alone: no progress, no notes and no
    /// warnings. Text on standard output is findings, or the answer that was
    /// asked for: no single events, no list of what is seen and what is not, no
    /// summary; where nothing is found there is nothing, or one line if a rule
    /// could not be evaluated. JSON and the journal have all of it as ever.
    #[arg(short, long, global = true, help_heading = TERMINAL)]
    pub quiet: bool,
    /// Say more: evidence, stacks, mounts and IDs of every finding, what was seen and
    /// what was not, and the run in numbers; twice: all that is known
    #[arg(
        short,
        long,
        global = true,
        action = ArgAction::Count,
        conflicts_with = "quiet",
        help_heading = TERMINAL
    )]
    pub verbose: u8,
    /// When text is coloured
    ///
    /// auto: on a terminal that is not dumb, unless NO_COLOR is set or CLICOLOR
    /// is 0; anywhere if CLICOLOR_FORCE is set. NO_COLOR counts more.
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value = "auto",
        help_heading = TERMINAL
    )]
    pub color: Color,
}

/// When text is coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Options of `trace`.
#[derive(Debug, Args)]
pub struct Trace {
    /// What every command takes.
    #[command(flatten)]
    pub common: Common,
    /// What counts as stuck.
    #[command(flatten)]
    pub stall: Stall,
    /// Stop after this time
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub duration: Option<Duration>,
    /// What is kept.
    #[command(flatten)]
    pub recording: Recording,
    /// Serve metrics for Prometheus at http://ADDR/metrics
    ///
    /// A port alone is this machine's own (127.0.0.1); for others give
    /// 0.0.0.0:PORT.
    #[arg(long, value_name = "ADDR", value_parser = metrics_address, help_heading = HOW)]
    pub metrics: Option<SocketAddr>,
    /// Also show each open finding as a metric, with its pod and its IP
    ///
    /// node_tracer_open_finding_info has the worst 32; how many are left out is
    /// node_tracer_open_findings_left_out.
    #[arg(long, requires = "metrics", help_heading = HOW)]
    pub metrics_findings: bool,
    /// Give a sign of life in this file, for check --heartbeat
    ///
    /// The loop that reads the kernel's records writes it every 10 s. It belongs
    /// on a file system in memory.
    #[arg(long, value_name = "FILE", help_heading = HOW)]
    pub heartbeat: Option<PathBuf>,
    /// In a container: make all that is mounted below --root read-only there
    ///
    /// A readOnly volume leaves what is mounted below it as writable as it is on
    /// the node. What the node mounts later is not covered. Takes Linux 5.12.
    #[arg(long, help_heading = WHERE)]
    pub seal_root: bool,
    /// Also write findings as Kubernetes Events, on their pod and on the node
    ///
    /// `kubectl describe` shows them there. Without a value these are warnings
    /// and what is critical, with --kube-events=critical the latter alone. The
    /// credentials are those that pods are listed with; they must allow create
    /// and patch on events.events.k8s.io. What the API server does not take is
    /// told once and counted; the trace never waits for it.
    #[arg(
        long,
        value_enum,
        value_name = "SEVERITY",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "warning",
        help_heading = HOW
    )]
    pub kube_events: Option<Floor>,
    /// Also keep the node's condition PodAddressConflict
    ///
    /// It is True while a pod's IP is in use twice, or in use and free for the next
    /// pod. It is written only when it changes, and removed at the end. The
    /// credentials are those that pods are listed with; they must allow patch on
    /// nodes/status. The trace never waits for it.
    #[arg(long, help_heading = HOW)]
    pub node_condition: bool,
    /// Where mechanisms end.
    #[command(flatten)]
    pub limit: Limit,
}

/// Options of `scan`.
#[derive(Debug, Args)]
pub struct Scan {
    /// What every command takes.
    #[command(flatten)]
    pub common: Common,
    /// What counts as stuck.
    #[command(flatten)]
    pub stall: Stall,
    /// Look again and again for this time
    ///
    /// That tells leftovers from deletions that are still under way, which take
    /// up to 30 s.
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub duration: Option<Duration>,
    /// What is kept.
    #[command(flatten)]
    pub recording: Recording,
}

/// Options of `explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// An IP address, a pod (namespace/name, or its name alone) or its UID, a
    /// sandbox's or container's ID (or its beginning), an interface, a MAC or PCI address,
    /// a reservation's path, a network namespace's inode or path, or a process ID
    #[arg(value_name = "X")]
    pub subject: String,
    /// What every command takes.
    #[command(flatten)]
    pub common: Common,
    /// What counts as stuck.
    #[command(flatten)]
    pub stall: Stall,
}

/// Options of `eni`.
#[derive(Debug, Args)]
pub struct Eni {
    /// What every command takes.
    #[command(flatten)]
    pub common: Common,
    /// What counts as stuck.
    #[command(flatten)]
    pub stall: Stall,
}

/// Options of `explain-rule`.
#[derive(Debug, Args)]
pub struct ExplainRule {
    /// A rule's name, as findings have it
    #[arg(value_name = "RULE")]
    pub rule: Option<String>,
}

/// Options of `completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: Shell,
}

/// Shells that complete the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// GNU Bash
    Bash,
    /// Z shell
    Zsh,
    /// Fish
    Fish,
}

/// Options of `man`.
#[derive(Debug, Args)]
pub struct ManPage {
    /// The command that the page is of
    #[arg(value_name = "COMMAND")]
    pub command: Option<String>,
}

/// Options of `replay`.
#[derive(Debug, Args)]
pub struct Replay {
    /// What --record has written, or logs, packed or not; - for standard input
    ///
    /// Logs of the kubelet, a container runtime, CNI plugins or the kernel, as
    /// files or as journalctl prints them, gzip and zstd too. Several recordings
    /// are replayed one after the other; all logs are one story, merged by time.
    /// What node-tracer itself has told, by -o json or in the journal (journalctl
    /// -t node-tracer -o json --all), is told again.
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Where and how to write.
    #[command(flatten)]
    pub output: Outputs,
    /// The host's root directory, when run in a container (for -o journald)
    #[arg(
        long,
        value_name = "DIR",
        env = "NODE_TRACER_ROOT",
        hide_env_values = true,
        default_value = "/",
        help_heading = WHERE
    )]
    pub root: PathBuf,
    /// The year of the first line of logs whose times have none
    ///
    /// By default the year in which the file was last written.
    #[arg(long, value_name = "YEAR", value_parser = clap::value_parser!(i16).range(1970..=9999))]
    pub year: Option<i16>,
    /// The time zone of logs whose times have none, as +08:00, -0330 or Z
    /// [default: UTC]
    #[arg(long, value_name = "OFFSET", value_parser = offset, allow_hyphen_values = true)]
    pub utc_offset: Option<i32>,
    /// The node's name in records, for logs that name no host
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
}

/// Options of `report`.
#[derive(Debug, Args)]
pub struct Report {
    /// What trace --record or scan --record has written, what the journal has of
    /// node-tracer (journalctl -t node-tracer -o json --all), or a log; - for
    /// standard input
    ///
    /// Of several nodes too: each recording is evaluated by itself, and the page has
    /// one timeline, the addresses that several nodes have, and how far the nodes'
    /// clocks are apart, as far as the recordings tell.
    #[arg(value_name = "RECORDING", required = true)]
    pub recordings: Vec<PathBuf>,
    /// The page, one HTML file that needs nothing else; - for standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Replace the file if it is there
    #[arg(long)]
    pub force: bool,
}

/// Options of `check`.
#[derive(Debug, Args)]
pub struct Check {
    /// Only say whether the trace that has this --heartbeat is alive
    ///
    /// Fails if it has given no sign of life for a minute: for an exec probe of
    /// Kubernetes.
    #[arg(long, value_name = "FILE", help_heading = HOW)]
    pub heartbeat: Option<PathBuf>,
    /// What every command takes.
    #[command(flatten)]
    pub common: Common,
    /// Where mechanisms end.
    #[command(flatten)]
    pub limit: Limit,
}

/// Options of `repair`.
#[derive(Debug, Args)]
pub struct Repair {
    /// What every command takes.
    #[command(flatten)]
    pub common: Common,
    /// What counts as stuck.
    #[command(flatten)]
    pub stall: Stall,
    /// How far the two looks are apart that have to agree
    ///
    /// So old a reservation must be, too: the runtime's own deletions take up to
    /// 30 s.
    #[arg(long, value_name = "DUR", default_value = "60s", value_parser = duration,
          conflicts_with_all = ["apply", "undo"])]
    pub grace: Duration,
    /// How long the plan may be carried out
    #[arg(long, value_name = "DUR", default_value = "10m", value_parser = duration,
          conflicts_with_all = ["apply", "undo"])]
    pub valid_for: Duration,
    /// Write the plan to a file, for --apply; it must not exist
    #[arg(long, value_name = "FILE", conflicts_with_all = ["apply", "undo"])]
    pub plan: Option<PathBuf>,
    /// Carry out a plan
    ///
    /// Exactly what is in it, and of that what is still as it was.
    #[arg(long, value_name = "PLAN", conflicts_with = "undo")]
    pub apply: Option<PathBuf>,
    /// Where to keep a copy of what is released; it must not exist
    ///
    /// By default /var/lib/node-tracer/backup/TIME on the host.
    #[arg(long, value_name = "DIR", requires = "apply")]
    pub backup: Option<PathBuf>,
    /// Put back what a repair has released, as far as it is still free
    #[arg(long, value_name = "BACKUP")]
    pub undo: Option<PathBuf>,
    /// Take a grace that is too short for a real node (for tests)
    #[arg(long, hide = true)]
    pub hurried: bool,
}

/// What counts as stuck.
#[derive(Debug, Args)]
pub struct Stall {
    /// Report tasks in uninterruptible sleep for longer than this
    #[arg(long = "stall-threshold", value_name = "DUR", default_value = "5s", value_parser = duration)]
    pub threshold: Duration,
}

/// What is kept of what happens.
#[derive(Debug, Args)]
pub struct Recording {
    /// Write every event to a file, for replay; it must not exist
    ///
    /// scan --record - writes the recording to standard output, and nothing else.
    /// In a folder, to a new file each time, named after the time. At half of
    /// --record-limit it goes on in a new file, and FILE.1 is the one before:
    /// replay FILE.1 FILE reads both.
    #[arg(long = "record", value_name = "FILE", help_heading = HOW)]
    pub file: Option<PathBuf>,
    /// How much a recording takes at most, FILE.1 too; what is oldest goes
    #[arg(
        long = "record-limit",
        value_name = "SIZE",
        default_value = "1G",
        value_parser = size,
        help_heading = HOW
    )]
    pub limit: u64,
}

/// For tests.
#[derive(Debug, Args)]
pub struct Limit {
    /// Use no better mechanism than this (for tests)
    #[arg(long = "limit", hide = true, value_name = "MECHANISM")]
    pub mechanism: Option<String>,
}

/// Where and how to write.
#[derive(Debug, Args)]
pub struct Outputs {
    /// Where and how to write; may be given several times [default: text]
    #[arg(
        short = 'o',
        long = "output",
        value_enum,
        value_name = "FORM",
        help_heading = HOW
    )]
    pub forms: Vec<Output>,
}

/// Options that say where to look and where to write.
#[derive(Debug, Args)]
pub struct Common {
    /// Where and how to write.
    #[command(flatten)]
    pub output: Outputs,
    /// Where the list of pods comes from: the API server (auto), or a file
    ///
    /// auto: from the API server, with the first credentials that are there: of
    /// --kubeconfig, of the pod that this runs in, of KUBECONFIG, of
    /// ~/.kube/config, of the kubelet. A file is as `kubectl get pods -A -o json`
    /// prints it, and read again when it changes; - is standard input.
    #[arg(
        long,
        value_name = "auto|none|FILE|-",
        default_value = "auto",
        help_heading = WHERE
    )]
    pub pods: String,
    /// Credentials for the API server
    #[arg(long, value_name = "FILE", help_heading = WHERE)]
    pub kubeconfig: Option<PathBuf>,
    /// The container runtime's CRI socket
    #[arg(
        long,
        value_name = "auto|none|ENDPOINT",
        default_value = "auto",
        help_heading = WHERE
    )]
    pub cri: String,
    /// Where the tool runs.
    #[command(flatten)]
    pub node: Node,
}

/// Options of every command.
#[derive(Debug, Args)]
pub struct Node {
    /// The host's root directory, when run in a container
    #[arg(
        long,
        value_name = "DIR",
        env = "NODE_TRACER_ROOT",
        hide_env_values = true,
        default_value = "/",
        help_heading = WHERE
    )]
    pub root: PathBuf,
    /// This node's name in records [default: the host name]
    #[arg(long, value_name = "NAME", env = "NODE_NAME", hide_env_values = true, help_heading = WHERE)]
    pub node_name: Option<String>,
}

/// From which severity on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Floor {
    /// Warnings, and what is critical
    Warning,
    /// What is critical
    Critical,
}

/// Forms of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Output {
    /// For people, on standard output
    Text,
    /// One JSON object a line, on standard output
    Json,
    /// Findings, to systemd-journald
    Journald,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }
}
