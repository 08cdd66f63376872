//! What the command line means: checked, with defaults filled in from the
//! node.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    str::FromStr as _,
    time::Duration,
};

use crate::recording::STDOUT;
use event::finding::Severity;
use kernel::ebpf::{Wanted, plan::Mechanism};
use sys::privileges::Privileges;

/// Why the job cannot be done as asked. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// Not root, and not the capabilities either.
    #[error(
        "node-tracer reads other processes' state and network namespaces (trace loads eBPF programs, \
         too), which needs root, or the capabilities that the README lists: run it with sudo (in a pod: \
         securityContext.privileged)"
    )]
    NotRoot,
    /// The root folder is none.
    #[error("--root {}: no process file system in it; give the host's root directory", .0.display())]
    Root(PathBuf),
    /// Credentials that nobody is to use.
    #[error(
        "--kubeconfig goes with --pods auto (or with --kube-events, --node-condition); leave one of the two out"
    )]
    Kubeconfig,
    /// Its recording has no end.
    #[error("trace --record - : a trace goes on; name a file, or use scan --record -")]
    RecordTrace,
    /// An explanation is no journal entry.
    #[error("explain writes text or json, not to journald")]
    ExplainJournald,
    /// Neither is a repair.
    #[error("repair writes text or json, not to journald")]
    RepairJournald,
    /// A grace in which nothing is certain.
    #[error(
        "--grace {}: at least {}, as the deletions of the kubelet and of the runtime take up to 30 s",
        humantime::format_duration(*.0),
        humantime::format_duration(LEAST_GRACE)
    )]
    Grace(Duration),
    /// There is one standard input.
    #[error("- is given twice")]
    Stdin,
    /// Two outputs that mix on standard output are fine, twice the same is not.
    #[error("-o {0} is given twice")]
    Twice(&'static str),
    #[error("the host's name cannot be read; give --node-name")]
    NodeName(#[source] std::io::Error),
    /// The boot ID is what findings are named by.
    #[error("the boot ID cannot be read from /proc/sys/kernel/random/boot_id")]
    BootId(#[source] std::io::Error),
    #[error("--limit: {0}")]
    Limit(String),
}

/// Where pods are known from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pods {
    /// From wherever they can be had.
    Auto,
    None,
    /// A file, or standard input for `-`.
    File(PathBuf),
}

/// Where sandboxes are known from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cri {
    /// From the runtime's socket, wherever that is.
    Auto,
    /// No socket is asked.
    None,
    Endpoint(String),
}

/// What every command needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) root: PathBuf,
    pub(crate) name: String,
    /// `--node-name` says so; otherwise it is the host's name.
    pub(crate) is_named: bool,
    pub(crate) boot_id: String,
}

/// What a command is to do.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) node: Node,
    /// What the tracer was started with.
    pub(crate) privileges: Privileges,
    /// Outputs, each once; never empty.
    pub(crate) outputs: Vec<cli::Output>,
    pub(crate) pods: Pods,
    /// Credentials for the API server, if they were given.
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) cri: Cri,
    /// From when on a stall is reported.
    pub(crate) stall_threshold: Duration,
    pub(crate) duration: Option<Duration>,
    pub(crate) record: Option<PathBuf>,
    /// How many bytes that may take.
    pub(crate) record_limit: u64,
    /// Where metrics are served.
    pub(crate) metrics: Option<SocketAddr>,
    /// Each open finding is a metric, too.
    pub(crate) metrics_findings: bool,
    /// Where signs of life are given.
    pub(crate) heartbeat: Option<PathBuf>,
    /// What is mounted below the root is to be read-only here.
    pub(crate) seal_root: bool,
    /// From which severity on findings become Events of Kubernetes.
    pub(crate) kube_events: Option<Severity>,
    /// Open conflicts become a condition of the node.
    pub(crate) node_condition: bool,
    /// No better mechanism than this.
    pub(crate) limit: Option<Mechanism>,
}

/// What `replay` is to do. It needs nothing of the node that it runs on.
#[derive(Clone, Debug)]
pub(crate) struct Replay {
    /// Recordings and logs, `-` for standard input.
    pub(crate) files: Vec<PathBuf>,
    /// Outputs, each once; never empty.
    pub(crate) outputs: Vec<cli::Output>,
    /// The host's root, where journald's socket is.
    pub(crate) root: PathBuf,
    /// The year of a log's first line, if it is known otherwise.
    pub(crate) year: Option<i16>,
    /// Seconds east of UTC of a log's times, if that is known otherwise.
    pub(crate) utc_offset: Option<i32>,
    /// The node, where a log does not name it.
    pub(crate) node_name: Option<String>,
}

/// The shortest grace with which a repair is planned, or carried out.
pub(crate) const LEAST_GRACE: Duration = Duration::from_secs(30);

/// What `repair` is to do.
#[derive(Clone, Debug)]
pub(crate) enum Repair {
    Plan(Making),
    Apply(Applying),
    Undo(Undoing),
}

/// How a plan is to be made.
#[derive(Clone, Debug)]
pub(crate) struct Making {
    /// How far the looks are apart, and how old a reservation must be.
    pub(crate) grace: Duration,
    /// How long the plan may be carried out.
    pub(crate) valid_for: Duration,
    /// Where to write it, besides standard output.
    pub(crate) file: Option<PathBuf>,
}

/// How a plan is to be carried out.
#[derive(Clone, Debug)]
pub(crate) struct Applying {
    pub(crate) plan: PathBuf,
    /// Where copies go; a new folder on the host by default.
    pub(crate) backup: Option<PathBuf>,
    /// A grace that is too short is taken, too.
    pub(crate) hurried: bool,
}

/// What is to be taken back.
#[derive(Clone, Debug)]
pub(crate) struct Undoing {
    pub(crate) backup: PathBuf,
}

impl Replay {
    /// What was asked for.
    pub(crate) fn new(cli: &cli::Replay) -> Result<Self, ConfigError> {
        let cli::Replay {
            files,
            output,
            root,
            year,
            utc_offset,
            node_name,
        } = cli;
        let is_stdin = |path: &&PathBuf| path.as_path() == Path::new("-");
        if files.iter().filter(is_stdin).count() > 1 {
            return Err(ConfigError::Stdin);
        }
        Ok(Self {
            files: files.clone(),
            outputs: outputs(&output.forms)?,
            root: root.clone(),
            year: *year,
            utc_offset: *utc_offset,
            node_name: node_name.clone(),
        })
    }
}

/// What `report` is to do. It needs nothing of the node that it runs on.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// Recordings, `-` for standard input.
    pub(crate) recordings: Vec<PathBuf>,
    /// The page, `-` for standard output.
    pub(crate) output: PathBuf,
    /// Whether a page that is there is replaced.
    pub(crate) force: bool,
}

impl Report {
    /// What was asked for.
    pub(crate) fn new(cli: &cli::Report) -> Result<Self, ConfigError> {
        let cli::Report {
            recordings,
            output,
            force,
        } = cli;
        let stdin = recordings.iter().filter(|it| *it == Path::new("-"));
        if stdin.count() > 1 {
            return Err(ConfigError::Stdin);
        }
        Ok(Self {
            recordings: recordings.clone(),
            output: output.clone(),
            force: *force,
        })
    }
}

/// The threshold that `check` loads the programs with.
const DEFAULT_THRESHOLD: Duration = Duration::from_secs(5);

impl Config {
    /// What `trace` was asked for.
    pub(crate) fn trace(cli: &cli::Trace) -> Result<Self, ConfigError> {
        let cli::Trace {
            common,
            stall,
            duration,
            recording,
            metrics,
            metrics_findings,
            heartbeat,
            seal_root,
            kube_events,
            node_condition,
            limit,
        } = cli;
        Ok(Self {
            stall_threshold: stall.threshold,
            duration: *duration,
            record: match recording.file.as_deref() {
                Some(path) if path == Path::new(STDOUT) => return Err(ConfigError::RecordTrace),
                path => path.map(Path::to_owned),
            },
            record_limit: recording.limit,
            metrics: *metrics,
            metrics_findings: *metrics_findings,
            heartbeat: heartbeat.clone(),
            seal_root: *seal_root,
            kube_events: kube_events.map(|floor| match floor {
                cli::Floor::Warning => Severity::Warning,
                cli::Floor::Critical => Severity::Critical,
            }),
            node_condition: *node_condition,
            limit: limit_from(limit)?,
            ..Self::common(common, kube_events.is_some() || *node_condition)?
        })
    }

    /// What `scan` was asked for.
    pub(crate) fn scan(cli: &cli::Scan) -> Result<Self, ConfigError> {
        let cli::Scan {
            common,
            stall,
            duration,
            recording,
        } = cli;
        let mut config = Self {
            stall_threshold: stall.threshold,
            duration: *duration,
            record: recording.file.clone(),
            record_limit: recording.limit,
            ..Self::common(common, false)?
        };
        // The recording is all that standard output has.
        if config.record.as_deref() == Some(Path::new(STDOUT)) {
            let is_aside = |output: &cli::Output| *output == cli::Output::Journald;
            config.outputs.retain(is_aside);
        }
        Ok(config)
    }

    /// What `explain` was asked for.
    pub(crate) fn explain(cli: &cli::Explain) -> Result<Self, ConfigError> {
        let cli::Explain {
            subject: _,
            common,
            stall,
        } = cli;
        Self::answer(common, stall)
    }

    /// What a look was asked for that prints one answer.
    pub(crate) fn answer(common: &cli::Common, stall: &cli::Stall) -> Result<Self, ConfigError> {
        let config = Self {
            stall_threshold: stall.threshold,
            ..Self::common(common, false)?
        };
        match config.outputs.contains(&cli::Output::Journald) {
            true => Err(ConfigError::ExplainJournald),
            false => Ok(config),
        }
    }

    /// What `repair` was asked for.
    pub(crate) fn repair(cli: &cli::Repair) -> Result<(Self, Repair), ConfigError> {
        let cli::Repair {
            common,
            stall,
            grace,
            valid_for,
            plan,
            apply,
            backup,
            undo,
            hurried,
        } = cli;
        let config = Self {
            stall_threshold: stall.threshold,
            ..Self::common(common, false)?
        };
        if config.outputs.contains(&cli::Output::Journald) {
            return Err(ConfigError::RepairJournald);
        }
        let repair = match (apply, undo) {
            (Some(plan), _) => Repair::Apply(Applying {
                plan: plan.clone(),
                backup: backup.clone(),
                hurried: *hurried,
            }),
            (None, Some(backup)) => Repair::Undo(Undoing {
                backup: backup.clone(),
            }),
            (None, None) if *grace < LEAST_GRACE && !hurried => {
                return Err(ConfigError::Grace(*grace));
            }
            (None, None) => Repair::Plan(Making {
                grace: *grace,
                valid_for: *valid_for,
                file: plan.clone(),
            }),
        };
        Ok((config, repair))
    }

    /// What `check` was asked for.
    pub(crate) fn check(cli: &cli::Check) -> Result<Self, ConfigError> {
        let cli::Check {
            common,
            limit,
            heartbeat: _,
        } = cli;
        Ok(Self {
            limit: limit_from(limit)?,
            ..Self::common(common, false)?
        })
    }

    /// How the kernel programs are to be loaded.
    pub(crate) fn wanted(&self) -> Wanted {
        Wanted {
            stall_threshold: self.stall_threshold,
            limit: self.limit,
            may_enter: self.privileges.may_enter(),
            may_look: self.privileges.may_look(),
        }
    }

    /// `writes`: credentials are for more than the list of pods.
    fn common(cli: &cli::Common, writes: bool) -> Result<Self, ConfigError> {
        let cli::Common {
            output,
            pods,
            kubeconfig,
            cri,
            node,
        } = cli;
        let pods = pods_from(pods);
        if kubeconfig.is_some() && pods != Pods::Auto && !writes {
            return Err(ConfigError::Kubeconfig);
        }
        Ok(Self {
            outputs: outputs(&output.forms)?,
            pods,
            kubeconfig: kubeconfig.clone(),
            cri: cri_from(cri),
            metrics: None,
            metrics_findings: false,
            heartbeat: None,
            seal_root: false,
            kube_events: None,
            node_condition: false,
            limit: None,
            privileges: privileges()?,
            node: Node::new(node)?,
            stall_threshold: DEFAULT_THRESHOLD,
            duration: None,
            record: None,
            record_limit: 0,
        })
    }
}

impl Node {
    fn new(cli: &cli::Node) -> Result<Self, ConfigError> {
        if !cli.root.join("proc/1").exists() {
            return Err(ConfigError::Root(cli.root.clone()));
        }
        let read = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned());
        let name = match &cli.node_name {
            Some(name) => name.clone(),
            None => read("/proc/sys/kernel/hostname").map_err(ConfigError::NodeName)?,
        };
        let boot_id = read("/proc/sys/kernel/random/boot_id").map_err(ConfigError::BootId)?;
        Ok(Self {
            root: cli.root.clone(),
            is_named: cli.node_name.is_some(),
            name,
            boot_id,
        })
    }

    /// Where a file of the host is.
    pub(crate) fn path(&self, of_host: &str) -> PathBuf {
        self.root.join(
            Path::new(of_host)
                .strip_prefix("/")
                .unwrap_or(Path::new(of_host)),
        )
    }
}

fn outputs(given: &[cli::Output]) -> Result<Vec<cli::Output>, ConfigError> {
    let mut outputs = given.to_vec();
    outputs.sort_unstable();
    if let Some(pair) = outputs.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(ConfigError::Twice(match pair[0] {
            cli::Output::Text => "text",
            cli::Output::Json => "json",
            cli::Output::Journald => "journald",
        }));
    }
    if outputs.is_empty() {
        outputs.push(cli::Output::Text);
    }
    Ok(outputs)
}

fn pods_from(text: &str) -> Pods {
    match text {
        "auto" => Pods::Auto,
        "none" => Pods::None,
        file => Pods::File(PathBuf::from(file)),
    }
}

fn cri_from(text: &str) -> Cri {
    match text {
        "auto" => Cri::Auto,
        "none" => Cri::None,
        endpoint => Cri::Endpoint(endpoint.to_owned()),
    }
}

fn limit_from(cli: &cli::Limit) -> Result<Option<Mechanism>, ConfigError> {
    let parse = |text| Mechanism::from_str(text).map_err(|e| ConfigError::Limit(e.to_string()));
    cli.mechanism.as_deref().map(parse).transpose()
}

/// Those that the tracer has, if they are of any use.
fn privileges() -> Result<Privileges, ConfigError> {
    let own = Privileges::own();
    match own.suffice() {
        true => Ok(own),
        false => Err(ConfigError::NotRoot),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_the_output_unless_another_is_asked_for() {
        assert_eq!(outputs(&[]).unwrap(), [cli::Output::Text]);
        assert_eq!(outputs(&[cli::Output::Json]).unwrap(), [cli::Output::Json]);
        assert!(outputs(&[cli::Output::Json, cli::Output::Json]).is_err());
    }

    #[test]
    fn a_pods_source_is_a_word_or_a_file() {
        assert_eq!(pods_from("auto"), Pods::Auto);
        assert_eq!(pods_from("none"), Pods::None);
        assert_eq!(pods_from("-"), Pods::File(PathBuf::from("-")));
        assert_eq!(pods_from("./auto"), Pods::File(PathBuf::from("./auto")));
    }
}
