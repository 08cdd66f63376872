//! What an engineer would run instead, and how.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use node_tracer_tests::stage::Need;

use super::watcher::Watcher;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A bpftrace script: how long tasks sleep in state D.
    Sleeps,
    /// libbpf-tools' offcputime, of tasks in state D.
    OffCpu,
    /// A bpftrace script: programs that are executed.
    Execs,
    /// libbpf-tools' execsnoop.
    ExecSnoop,
    /// A bpftrace script: network namespaces that are made, by unshare.
    Namespaces,
}

/// From the switch away (state D is bit 1) to the waking.
const SLEEPS: &str = "\
tracepoint:sched:sched_switch /args->prev_state & 2/ { @since[args->prev_pid] = nsecs; }
tracepoint:sched:sched_waking /@since[args->pid]/ {
    @blocked_us = hist((nsecs - @since[args->pid]) / 1000);
    delete(@since[args->pid]);
}";

const EXECS: &str = "\
tracepoint:sched:sched_process_exec { printf(\"%llu %d %s %s\\n\", nsecs, pid, comm, str(args->filename)); }";

/// 0x40000000 is CLONE_NEWNET.
const NAMESPACES: &str = "\
tracepoint:syscalls:sys_enter_unshare /args->unshare_flags & 0x40000000/ { @asked[tid] = 1; }
tracepoint:syscalls:sys_exit_unshare /@asked[tid]/ {
    printf(\"%llu %d %s\\n\", nsecs, pid, comm);
    delete(@asked[tid]);
}";

/// Where bpftrace looks for tracepoints.
const TRACEFS: &str = "/sys/kernel/debug/tracing/events";

impl Peer {
    /// As tables call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sleeps => "bpftrace, sleeps in D",
            Self::OffCpu => "offcputime --state 2",
            Self::Execs => "bpftrace, execs",
            Self::ExecSnoop => "execsnoop",
            Self::Namespaces => "bpftrace, unshare",
        }
    }

    fn need(self) -> Need {
        match self {
            Self::Sleeps | Self::Execs | Self::Namespaces => Need::Program("bpftrace", "bpftrace"),
            Self::OffCpu => Need::Program("offcputime", "libbpf-tools"),
            Self::ExecSnoop => Need::Program("execsnoop", "libbpf-tools"),
        }
    }

    /// Starts it.
    pub(crate) fn start(self) -> anyhow::Result<Watcher> {
        // bpftrace says how many probes it attaches; the others wait for the end.
        let speaks = !matches!(self, Self::OffCpu | Self::ExecSnoop);
        Watcher::start(self.name(), &mut self.command(), speaks)
    }

    /// How it is started.
    pub(crate) fn command(self) -> Command {
        let script = match self {
            Self::OffCpu => {
                let mut command = Command::new("offcputime");
                command.args(["--state", "2"]);
                return command;
            }
            Self::ExecSnoop => return Command::new("execsnoop"),
            Self::Sleeps => SLEEPS,
            Self::Execs => EXECS,
            Self::Namespaces => NAMESPACES,
        };
        let mut command;
        if Path::new(TRACEFS).is_dir() {
            command = Command::new("bpftrace");
        } else {
            // In a mount namespace of its own: the machine's stay as they are.
            let mount = "mount -t debugfs debugfs /sys/kernel/debug && exec bpftrace \"$@\"";
            command = Command::new("unshare");
            command.args(["-m", "sh", "-c", mount, "bpftrace"]);
        }
        command.args(["-B", "line", "-e", script]);
        command
    }

    /// Those of them that are here. How the others are brought is said.
    pub(crate) fn here(all: &[Self]) -> Vec<Self> {
        let is_here = |peer: &Self| peer.need().missing().is_none();
        let (here, absent): (Vec<Self>, Vec<Self>) = all.iter().copied().partition(is_here);
        if !absent.is_empty() {
            let names: Vec<&str> = absent.iter().map(|peer| peer.name()).collect();
            let packages: BTreeSet<&str> = absent
                .iter()
                .filter_map(|peer| match peer.need() {
                    Need::Program(_, package) => Some(package),
                    _ => None,
                })
                .collect();
            super::say(&format!(
                "not measured: {} (Debian: apt-get install {})",
                names.join(", "),
                packages.into_iter().collect::<Vec<_>>().join(" ")
            ));
        }
        here
    }
}
