//! Which of root's powers the tracer has, which it uses for what, and how it
//! gives up the others.
//!
//! | capability | what takes it | without it |
//! |---|---|---|
//! | `CAP_BPF`, `CAP_PERFMON` | loading the kernel programs (`CAP_SYS_ADMIN` does as well) | every signal is heard by comparison of `/proc`, CNI calls not at all |
//! | `CAP_SYS_RESOURCE` | before Linux 5.11 only: locked memory for maps and programs, where `RLIMIT_MEMLOCK` is below some 16 MB | as without `CAP_BPF` |
//! | `CAP_SYSLOG` | addresses of kernel functions, unless `kernel.perf_event_paranoid` is 1 or less | kprobes and fentry go on, as do stacks (by `/proc`); what `tp_btf` knows by an address is compared or walked: ends of namespaces, new addresses |
//! | `CAP_SYS_PTRACE` | of other users' processes: namespaces, mounts, descriptors, sockets | `scan` finds hardly a namespace; a trace lists no mounts, descriptors and sockets as holders and trusts no CNI call |
//! | `CAP_SYS_ADMIN` | entering network namespaces for rtnetlink; `/proc/PID/stack`; where a page lies | `scan` knows no addresses; no `cni-effect`; no network, result and error of CNI calls |
//! | `CAP_DAC_READ_SEARCH` | descriptors of other users' processes; files that only others may read | such holders; such files |
//! | `CAP_NET_ADMIN` | asking a socket of another process for its namespace | namespaces that only a socket keeps |
//! | `CAP_DAC_OVERRIDE` | not for root: the runtime's socket; a recording in somebody else's folder | `cri`; the recording |
//! | `CAP_DAC_OVERRIDE`, `CAP_FOWNER`, `CAP_CHOWN` | `repair --apply` and `--undo` alone, in one thread that does nothing else: host-local's stores and the backup, where root does not own them | such a store is left as it is |
//!
//! Where the kernel asks for `CAP_BPF` whenever a map is read (before Linux
//! 5.19, with `kernel.unprivileged_bpf_disabled`) and there is no
//! `CAP_SYS_ADMIN`, a trace keeps it.
//!
//! A capability that is missing costs what the table says and nothing else.
//! Without any that shows other processes nothing useful can be said, and the
//! tracer refuses.
//!
//! What a command never needs is given up before it starts a thread: on Linux
//! privileges are each thread's own, and threads have those of who starts
//! them. What only attaching takes is left to one thread, the [`Starter`],
//! which ends when `trace` is attached. What was given up does not come back
//! with a program that is executed (credential plugins), nor by a set-user-ID
//! bit: the bounding, ambient and inheritable sets shrink as well, and
//! `no_new_privs` is set.
//!
//! Threads that parse what the network, a pod or a runtime says have no
//! capability at all from their beginning ([`start_bare`]), and neither have
//! the programs that they execute. What such a thread has to read of other
//! users' files (a kubeconfig, a key) is read for it ([`read_for_bare`]).
//!
//! The process cannot be dumped ([`hide_memory`]): tokens are in its memory.

use std::{
    io,
    sync::{Arc, LazyLock, OnceLock, mpsc},
    thread,
    time::Duration,
};

use rustix::process::DumpableBehavior;
pub use rustix::thread::CapabilitySet;
use rustix::thread::{
    CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use crate::apart;
use event::record::CoverageItem;

/// What only attaching takes.
pub const ATTACH: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::SYSLOG);
/// What looking at the node takes, as long as it goes on.
pub const LOOK: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::NET_ADMIN);
/// What making a file in somebody else's folder takes.
pub const WRITE: CapabilitySet = CapabilitySet::DAC_OVERRIDE;
/// What changing a store of reservations takes, where it is somebody else's;
/// and the way there, where the host's root is that of another process
/// (`/proc/PID/root`).
pub const REPAIR: CapabilitySet = CapabilitySet::DAC_OVERRIDE
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::SYS_PTRACE);
/// What reading a file of somebody else's takes.
pub const READ: CapabilitySet = CapabilitySet::DAC_READ_SEARCH;
/// The same, and the way there where the host's root is that of another
/// process (`/proc/PID/root`).
const READ_HOST: CapabilitySet = READ.union(CapabilitySet::SYS_PTRACE);

/// Privileges cannot be given up.
#[derive(Debug, thiserror::Error)]
#[error("privileges that are not needed cannot be given up: {call} failed")]
pub struct PrivilegeError {
    call: &'static str,
    #[source]
    source: io::Error,
}

/// The thread that attaches cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum StarterError {
    /// It cannot be started.
    #[error("cannot start the thread that attaches")]
    Spawn(#[source] io::Error),
    #[error("the thread that attaches has ended before its time")]
    Ended,
}

/// What the tracer was started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Privileges {
    held: CapabilitySet,
    root: bool,
}

/// A capability, what does as well, and what is lost without either.
struct Need {
    capability: CapabilitySet,
    name: &'static str,
    or: CapabilitySet,
    lost: &'static str,
}

const NO_PROGRAMS: &str = "everything but by comparison of /proc: no program can be loaded";

/// Of those that every system takes; see the module's documentation.
const NEEDS: [Need; 7] = [
    Need {
        capability: CapabilitySet::BPF,
        name: "CAP_BPF",
        or: CapabilitySet::SYS_ADMIN,
        lost: NO_PROGRAMS,
    },
    Need {
        capability: CapabilitySet::PERFMON,
        name: "CAP_PERFMON",
        or: CapabilitySet::SYS_ADMIN,
        lost: NO_PROGRAMS,
    },
    Need {
        capability: CapabilitySet::SYSLOG,
        name: "CAP_SYSLOG",
        or: CapabilitySet::empty(),
        lost: "addresses of kernel functions, by which tp_btf tells the ends of namespaces and new \
               addresses (unless kernel.perf_event_paranoid is 1 or less)",
    },
    Need {
        capability: CapabilitySet::SYS_PTRACE,
        name: "CAP_SYS_PTRACE",
        or: CapabilitySet::empty(),
        lost: "namespaces, mounts, descriptors and sockets of processes with other rights than the \
               tracer's, by /proc; whether CNI calls come from a runtime: none is trusted",
    },
    Need {
        capability: CapabilitySet::SYS_ADMIN,
        name: "CAP_SYS_ADMIN",
        or: CapabilitySet::empty(),
        lost: "what rtnetlink shows in network namespaces, stacks by /proc, network and result of CNI \
               calls",
    },
    Need {
        capability: CapabilitySet::DAC_READ_SEARCH,
        name: "CAP_DAC_READ_SEARCH",
        or: CapabilitySet::DAC_OVERRIDE,
        lost: "descriptors of other users' processes, and files that only others may read",
    },
    Need {
        capability: CapabilitySet::NET_ADMIN,
        name: "CAP_NET_ADMIN",
        or: CapabilitySet::empty(),
        lost: "network namespaces that only a socket keeps",
    },
];

impl Privileges {
    /// Those of the calling thread.
    pub fn own() -> Self {
        let sets = capabilities(None);
        Self {
            held: sets.map_or(CapabilitySet::empty(), |sets| sets.effective),
            root: rustix::process::geteuid().is_root(),
        }
    }

    /// Whether anything of others can be seen at all.
    pub fn suffice(self) -> bool {
        let programs = CapabilitySet::BPF | CapabilitySet::PERFMON;
        self.held.contains(programs)
            || self
                .held
                .intersects(CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_PTRACE)
    }

    /// What looking takes, for this user.
    pub fn look(self) -> CapabilitySet {
        match self.root {
            true => LOOK,
            // To whom the sockets of others are closed.
            false => LOOK | WRITE,
        }
    }

    /// What tracing takes once all is attached. `asked`: whether the kernel
    /// wants `CAP_BPF` for each use of what was loaded.
    pub fn trace(self, asked: impl FnOnce() -> bool) -> CapabilitySet {
        // Nothing is asked where the answer does not matter.
        let needs = self.held.contains(CapabilitySet::BPF)
            && !self.held.contains(CapabilitySet::SYS_ADMIN)
            && asked();
        match needs {
            true => self.look() | CapabilitySet::BPF,
            false => self.look(),
        }
    }

    /// Whether network namespaces can be entered.
    pub fn may_enter(self) -> bool {
        self.held.contains(CapabilitySet::SYS_ADMIN)
    }

    /// Whether processes with other rights can be looked at.
    pub fn may_look(self) -> bool {
        self.held.contains(CapabilitySet::SYS_PTRACE)
    }

    /// What is there of what such a command needs (`of`), and what is missing.
    pub fn coverage(self, of: CapabilitySet) -> CoverageItem {
        let needs = NEEDS.iter().filter(|need| of.contains(need.capability));
        let (held, missing): (Vec<&Need>, Vec<&Need>) =
            needs.partition(|need| self.held.contains(need.capability));
        let replaced = |need: &&Need| self.held.intersects(need.or);
        let missing: Vec<&Need> = missing.into_iter().filter(|need| !replaced(need)).collect();
        let names = |needs: &[&Need]| -> String {
            let names: Vec<&str> = needs.iter().map(|need| need.name).collect();
            names.join(", ")
        };
        let mut unknown: Vec<String> = missing.iter().map(|need| need.lost.to_owned()).collect();
        unknown.dedup();
        CoverageItem {
            signal: String::from("privileges"),
            mechanism: match (held.is_empty(), missing.is_empty()) {
                (_, true) => Some(String::from("all that are needed")),
                (false, false) => Some(names(&held)),
                (true, false) => None,
            },
            reason: (!missing.is_empty()).then(|| format!("no {}", names(&missing))),
            unknown,
        }
    }

    /// The same, if something is missing.
    pub fn missing(self, of: CapabilitySet) -> Option<CoverageItem> {
        Some(self.coverage(of)).filter(|item| item.reason.is_some())
    }
}

/// Has the calling thread, and those that it starts, keep these privileges and
/// give up all others for good. The tracer works all the same if that fails.
pub fn keep(keep: CapabilitySet) {
    if let Err(error) = try_keep(keep) {
        tracing::warn!("{}", event::fault::chain(&error));
    }
}

fn try_keep(keep: CapabilitySet) -> Result<(), PrivilegeError> {
    fn failed<T>(call: &'static str, result: rustix::io::Result<T>) -> Result<T, PrivilegeError> {
        result.map_err(|error| PrivilegeError {
            call,
            source: error.into(),
        })
    }
    failed("PR_SET_NO_NEW_PRIVS", set_no_new_privs(true))?;
    failed("PR_CAP_AMBIENT_CLEAR_ALL", clear_ambient_capability_set())?;
    let sets = failed("capget", capabilities(None))?;
    // Who may not shrink it has what no_new_privs gives: nothing more than now.
    if sets.effective.contains(CapabilitySet::SETPCAP) {
        for bit in 0..u64::BITS {
            let capability = CapabilitySet::from_bits_retain(1 << bit);
            match capability_is_in_bounding_set(capability) {
                Ok(true) if !keep.contains(capability) => {
                    let removed = remove_capability_from_bounding_set(capability);
                    failed("PR_CAPBSET_DROP", removed)?;
                }
                Ok(_) => {}
                // Behind the last that this kernel knows.
                Err(_) => break,
            }
        }
    }
    let sets = CapabilitySets {
        effective: sets.effective & keep,
        permitted: sets.permitted & keep,
        inheritable: CapabilitySet::empty(),
    };
    failed("capset", set_capabilities(None, sets))
}

/// Keeps this process's memory to itself: it is in no core dump, and no process
/// without `CAP_SYS_PTRACE` reads it. Its own files below `/proc` then belong to
/// root; its own threads may read them all the same.
pub fn hide_memory() {
    let hidden = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    if let Err(error) = hidden {
        tracing::warn!("the memory can be dumped: PR_SET_DUMPABLE failed: {error}");
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Reads for threads that have no capability; see [`read_for_bare`].
static READER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
/// Each read has one as long as it lasts.
static READS: LazyLock<Arc<()>> = LazyLock::new(Arc::default);
/// So many may hang; after that none is tried.
const MAX_READS: usize = 16;
/// How long files of credentials may take.
const READ_PATIENCE: Duration = Duration::from_secs(10);
/// Of the thread that starts those; the memory is given page by page.
const READER_STACK: usize = 256 << 10;

/// Starts a thread that has no capability. It is for what others say: answers
/// of the network and of the runtime, and programs that make credentials.
///
/// # Errors
/// There is no thread to be had.
pub fn start_bare<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<thread::JoinHandle<T>> {
    // The reader has what its starter has, and a bare thread has nothing.
    if READER.get().is_none() && !capabilities(None).is_ok_and(|own| own.permitted.is_empty()) {
        let reader = start_reader()?;
        // Another thread can have been first; this one then ends.
        let _ = READER.set(reader);
    }
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        keep(CapabilitySet::empty());
        work()
    })
}

fn start_reader() -> io::Result<mpsc::Sender<Job>> {
    let (jobs, to_do) = mpsc::channel::<Job>();
    let read = move || {
        keep(READ_HOST);
        for job in to_do {
            // A file that hangs keeps nobody else waiting.
            let job = thread::Builder::new()
                .name(String::from("reader"))
                .spawn(job);
            if let Err(error) = job {
                tracing::warn!("no thread to read a file with: {error}");
            }
        }
    };
    apart::spawn("reader", READER_STACK, read)?;
    Ok(jobs)
}

/// Runs what opens files that the calling thread may not open, in a thread that
/// may read every file and nothing else, and waits for it.
///
/// # Errors
/// There is no thread to be had, or it has panicked, or does not answer.
pub fn read_for_bare<T: Send + 'static>(
    read: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    read_within(READ_PATIENCE, read)
}

fn read_within<T: Send + 'static>(
    patience: Duration,
    read: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let Some(reader) = READER.get() else {
        return Ok(read());
    };
    let reading = Arc::clone(&READS);
    if Arc::strong_count(&READS) > 1 + MAX_READS {
        return Err(io::Error::other("earlier reads of credentials still hang"));
    }
    let (answer, answered) = mpsc::sync_channel(1);
    let job = move || {
        let _reading = reading;
        // Nobody is left to be told if the caller is gone.
        let _ = answer.send(read());
    };
    let no_answer = || io::Error::other("no thread to read with");
    reader.send(Box::new(job)).map_err(|_| no_answer())?;
    answered
        .recv_timeout(patience)
        .map_err(|error| match error {
            mpsc::RecvTimeoutError::Disconnected => no_answer(),
            mpsc::RecvTimeoutError::Timeout => io::Error::new(
                io::ErrorKind::TimedOut,
                "the files of the credentials do not answer",
            ),
        })
}

/// The thread that has what only attaching takes. It ends when this is
/// dropped.
#[derive(Debug)]
pub struct Starter {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Starter {
    /// Starts it with the privileges of the caller, of which it keeps these.
    /// The caller then gives up its own.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(of: CapabilitySet) -> Result<Self, StarterError> {
        let (jobs, to_do) = mpsc::channel::<Job>();
        let work = move || {
            keep(of);
            while let Ok(job) = to_do.recv() {
                job();
            }
        };
        let thread = thread::Builder::new()
            .name(String::from("starter"))
            .spawn(work)
            .map_err(StarterError::Spawn)?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Has it do something, and waits for that.
    ///
    /// # Errors
    /// It has panicked.
    pub fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, StarterError> {
        let (answer, answered) = mpsc::channel();
        let job = move || {
            // Nobody is left to be told if the caller is gone.
            let _ = answer.send(job());
        };
        let jobs = self.jobs.as_ref().ok_or(StarterError::Ended)?;
        jobs.send(Box::new(job)).map_err(|_| StarterError::Ended)?;
        answered.recv().map_err(|_| StarterError::Ended)
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
