//! What the programs are asked for, and what came of loading them: on a kernel
//! or with rights that allow none, a plan that does without.

use std::{fs, iter, path::Path, thread, time::Duration};

use aya::maps::{MapData, MapError};

use super::{
    facts::Facts,
    plan::{Mechanism, Obstacle, Plan},
    probes::{LoadError, Probes},
};
use event::fault;
use sys::privileges::{self, CapabilitySet};

/// How the programs are to be loaded.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// From when on a stall is reported.
    pub stall_threshold: Duration,
    /// Keeps every signal at or below a mechanism; for tests.
    pub limit: Option<Mechanism>,
    /// Whether network namespaces can be entered.
    pub may_enter: bool,
    /// Whether processes with other rights can be looked at.
    pub may_look: bool,
}

/// What came of loading.
pub struct Attached {
    /// The programs; `None` if there can be none here.
    pub probes: Option<Probes>,
    /// What each signal rests on.
    pub plan: Plan,
    /// For who asks for details.
    pub warnings: Vec<String>,
}

impl Attached {
    /// Probes the kernel, loads the object and attaches the programs. Where no
    /// program can be loaded, the plan does without and says why.
    ///
    /// # Errors
    /// The tracer was built without programs.
    pub fn new(proc: &Path, wanted: &Wanted) -> Result<Self, LoadError> {
        match Probes::load(proc, wanted) {
            Ok((probes, plan, warnings)) => Ok(Self {
                probes: Some(probes),
                plan,
                warnings,
            }),
            Err(LoadError::NoObject) => Err(LoadError::NoObject),
            Err(error) => {
                let facts = Facts {
                    no_programs: Some(error.reason()),
                    may_enter: Some(wanted.may_enter),
                    may_look: Some(wanted.may_look),
                    ..Facts::UNKNOWN
                };
                tracing::warn!(
                    "{}: what happens is seen by comparison of /proc alone, later or not at all",
                    fault::chain(&error)
                );
                Ok(Self {
                    probes: None,
                    plan: Plan::from_facts(&facts, wanted.limit),
                    warnings: Vec::new(),
                })
            }
        }
    }
}

impl LoadError {
    /// In a few words, for each signal.
    fn reason(&self) -> String {
        match self {
            Self::NoBtf(_) | Self::Btf(_) => Obstacle::NoBtf.to_string(),
            Self::Object(source) => format!(
                "the kernel refuses eBPF ({})",
                // The last is what the kernel said.
                iter::successors(Some(source as &dyn std::error::Error), |e| e.source())
                    .last()
                    .map(ToString::to_string)
                    .unwrap_or_default()
            ),
            other => fault::chain(other),
        }
    }
}

/// Whether the kernel wants `CAP_BPF` for every use of what was loaded, as it
/// did before Linux 5.19 where `kernel.unprivileged_bpf_disabled` is set.
pub fn use_takes_capability() -> bool {
    let ask = || {
        privileges::keep(CapabilitySet::empty());
        let none = fs::File::open("/dev/null").ok()?;
        match MapData::from_fd(none.into()) {
            Err(MapError::SyscallError(error)) => error.io_error.raw_os_error(),
            _ => None,
        }
    };
    // In a thread that has given up all for it.
    let thread = thread::Builder::new().spawn(ask);
    let answer = thread.ok().and_then(|thread| thread.join().ok());
    answer.flatten() == Some(libc::EPERM)
}
