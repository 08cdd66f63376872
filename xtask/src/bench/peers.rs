//! What an engineer would run instead, and how.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use node_tracer_tests::stage::Need;
use node_tracer_tests::wait;

use super::say;
use super::watcher::Watcher;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A bpftrace script: how long tasks sleep in state D.
    Sleeps,
    /// libbpf-tools' offcputime, of tasks in state D.
    OffCpu,
    /// A bpftrace script: programs that are executed.
    Execs,
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

/// Where all of them look for tracepoints.
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

    pub(crate) fn start(self) -> anyhow::Result<Watcher> {
        // bpftrace says how many probes it attaches; the others wait for the end.
        let speaks = !matches!(self, Self::OffCpu | Self::ExecSnoop);
        Watcher::start(self.name(), &mut self.command(), speaks)
    }

    /// How it is started.
    pub(crate) fn command(self) -> Command {
        let (program, args): (&str, &[&str]) = match self {
            Self::OffCpu => ("offcputime", &["--state", "2"]),
            Self::ExecSnoop => ("execsnoop", &[]),
            Self::Sleeps => ("bpftrace", &["-B", "line", "-e", SLEEPS]),
            Self::Execs => ("bpftrace", &["-B", "line", "-e", EXECS]),
            Self::Namespaces => ("bpftrace", &["-B", "line", "-e", NAMESPACES]),
        };
        let mut command;
        if Path::new(TRACEFS).is_dir() {
            command = Command::new(program);
        } else {
            // In a mount namespace of its own: the machine's stay as they are.
            let mount = "mount -t debugfs debugfs /sys/kernel/debug && exec \"$@\"";
            command = Command::new("unshare");
            command.args(["-m", "sh", "-c", mount, "sh", program]);
        }
        command.args(args);
        command
    }

    /// Those of them that work here: they are started once. Of the others it is
    /// said why they do not, and how they are brought.
    pub(crate) fn here(all: &[Self]) -> anyhow::Result<Vec<Self>> {
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
            say(&format!(
                "not measured: {} (Debian: apt-get install {})",
                names.join(", "),
                packages.into_iter().collect::<Vec<_>>().join(" ")
            ));
        }
        let mut work = Vec::new();
        for peer in here {
            match peer.start().and_then(Watcher::stop) {
                Ok(()) => work.push(peer),
                Err(error) if wait::interrupted() => return Err(error),
                Err(error) => say(&format!("not measured: {error:#}")),
            }
        }
        Ok(work)
    }
}
