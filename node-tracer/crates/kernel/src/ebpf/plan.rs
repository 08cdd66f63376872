//! From what the kernel offers to what is attached: for each signal the best
//! mechanism this kernel allows, why not a better one, and what therefore
//! stays unknown.
//!
//! One pure function. Loading and attaching is done elsewhere; when a program
//! that is planned is refused after all, the caller takes the fact away and
//! plans again.

pub use event::signal::Signal;
use std::fmt;

use super::facts::Facts;
use ladder::Step;

mod ladder;
mod needs;
mod netns;
#[cfg(test)]
mod tests;

/// How a signal is heard; a greater one tells more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mechanism {
    None,
    /// By comparing what `/proc` and netlink show with what they showed before.
    Comparison,
    /// By asking the kernel to walk its own tables.
    Iterator,
    /// Raw tracepoints, without types.
    RawTracepoint,
    /// Raw tracepoints with BTF types.
    TpBtf,
    /// Probes on functions, through breakpoints.
    Kprobe,
    /// Programs linked to the start or end of functions.
    Fentry,
}

impl Mechanism {
    /// The name in records, in `check` and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Comparison => "comparison",
            Self::Iterator => "iterator",
            Self::RawTracepoint => "raw_tp",
            Self::TpBtf => "tp_btf",
            Self::Kprobe => "kprobe",
            Self::Fentry => "fentry",
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for Mechanism {
    type Err = UnknownMechanism;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        [
            Self::None,
            Self::Comparison,
            Self::Iterator,
            Self::RawTracepoint,
            Self::TpBtf,
            Self::Kprobe,
            Self::Fentry,
        ]
        .into_iter()
        .find(|mechanism| mechanism.as_str() == name)
        .ok_or_else(|| UnknownMechanism(name.to_owned()))
    }
}

/// A name that is no [`Mechanism`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown mechanism {0:?}: fentry, kprobe, tp_btf, raw_tp, iterator, comparison or none")]
pub struct UnknownMechanism(String);

/// A program and what it is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attach {
    /// The program's name in the object.
    pub program: &'static str,
    /// Its type and target.
    pub kind: AttachKind,
}

/// The type of a program with the name of its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachKind {
    /// Start of a function.
    Fentry(&'static str),
    /// End of a function.
    Fexit(&'static str),
    /// Start of a function, by breakpoint.
    Kprobe(&'static str),
    /// Return of a function, by breakpoint.
    Kretprobe(&'static str),
    TpBtf(&'static str),
    RawTp(&'static str),
    /// Iterator over a kind of kernel object.
    Iter(&'static str),
}

/// Why a mechanism is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// The caller wants nothing better than this.
    #[error("limited to {0} on request")]
    Limited(Mechanism),
    /// No program at all can be loaded.
    #[error("{0}")]
    NoPrograms(String),
    /// No `CAP_SYS_ADMIN`.
    #[error("entering network namespaces takes CAP_SYS_ADMIN")]
    MayNotEnter,
    /// Lockdown: no BPF program may read kernel memory.
    #[error("kernel lockdown ({0}) forbids reading kernel memory")]
    Lockdown(String),
    /// `/sys/kernel/btf/vmlinux` is missing or not understood.
    #[error("the kernel's type information (BTF) is not readable")]
    NoBtf,
    /// The symbol table is not readable.
    #[error("the kernel's symbol table (/proc/kallsyms) is not readable")]
    NoSymbols,
    /// Loading an fentry program, or linking it, failed.
    #[error("fentry refused by the kernel")]
    NoFentry,
    /// Loading an fentry program was not tried.
    #[error("not known whether the kernel takes fentry programs")]
    FentryUnknown,
    /// No kprobes in this kernel.
    #[error("no kprobe PMU")]
    NoKprobes,
    /// `/sys` does not tell.
    #[error("not known whether the kernel has kprobes")]
    KprobesUnknown,
    /// Not in this kernel, or inlined.
    #[error("no function {0}")]
    NoFunction(&'static str),
    /// A function whose parameters changed: the program would take another
    /// one for the returned value.
    #[error("{function} has {found} parameters instead of {expected}")]
    Signature {
        function: &'static str,
        found: usize,
        /// What the program is written for.
        expected: usize,
    },
    /// Not in this kernel.
    #[error("no tracepoint {0}")]
    NoTracepoint(&'static str),
    /// A struct member the program reads; the name is the layout's.
    #[error("no offset of {0} in BTF")]
    NoMember(&'static str),
    /// Blocked tasks stay on run queues.
    #[error("a task that waits for a mutex can stay on its run queue (CONFIG_SCHED_PROXY_EXEC)")]
    ProxyExec,
    /// The kernel was given the program and did not take it.
    #[error("the kernel refuses {program}: {reason}")]
    Refused {
        program: &'static str,
        /// What the kernel said.
        reason: String,
    },
    /// The function is there, its address is not.
    #[error("the address of {0} is hidden (kernel.kptr_restrict, or no CAP_SYSLOG) or ambiguous")]
    AddressHidden(&'static str),
    /// No iterators in this kernel.
    #[error("no BPF iterators")]
    NoIterators,
    /// A walk of unknown length is not possible.
    #[error("no bpf_loop helper, so no walk of the kernel's namespaces")]
    NoLoop,
    /// The helper was not asked for.
    #[error("not known whether the kernel has the bpf_loop helper")]
    LoopUnknown,
}

/// A mechanism, or a way of it, that is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub mechanism: Mechanism,
    /// The first thing that speaks against it.
    pub reason: Obstacle,
}

/// What is done for one signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub signal: Signal,
    /// How it is heard.
    pub mechanism: Mechanism,
    /// Programs it takes. Signals share programs: see [`Plan::attachments`].
    pub attach: Vec<Attach>,
    /// Better mechanisms, best first, and why they are not used; the same one,
    /// if it has a better way.
    pub refused: Vec<Refused>,
    /// What stays unknown by this mechanism, and what it costs others where
    /// that can be felt.
    pub unknown: Vec<&'static str>,
}

/// What is done for every signal, in the order of [`Signal::ALL`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// One choice a signal.
    pub choices: Vec<Choice>,
}

impl Plan {
    /// Takes for each signal the best mechanism that the facts allow; with
    /// `limit`, none better than that.
    pub fn from_facts(facts: &Facts, limit: Option<Mechanism>) -> Self {
        let choices = Signal::ALL
            .into_iter()
            .map(|signal| choose(signal, facts, limit))
            .collect();
        Self { choices }
    }

    pub fn choice(&self, signal: Signal) -> &Choice {
        // One a signal, in this order, by construction.
        &self.choices[signal as usize]
    }

    /// How a signal is heard.
    pub fn mechanism(&self, signal: Signal) -> Mechanism {
        self.choice(signal).mechanism
    }

    /// Every program once, in an order in which they can be attached.
    pub fn attachments(&self) -> Vec<Attach> {
        let mut all = Vec::new();
        for attach in self.choices.iter().flat_map(|choice| &choice.attach) {
            if !all.contains(attach) {
                all.push(*attach);
            }
        }
        all
    }
}

/// The first rung of the signal's ladder that the kernel bears.
fn choose(signal: Signal, facts: &Facts, limit: Option<Mechanism>) -> Choice {
    let mut refused = Vec::new();
    for &(mechanism, step) in ladder::of(signal) {
        let step = match limit {
            Some(limit) if mechanism > limit => Err(Obstacle::Limited(limit)),
            _ if mechanism > Mechanism::Comparison => {
                needs::may_read(facts).and_then(|()| step(facts))
            }
            _ => step(facts),
        };
        let step = step.and_then(|step| {
            step.attach
                .iter()
                .try_for_each(|attach| needs::not_refused(facts, attach.program))?;
            Ok(step)
        });
        match step {
            Ok(Step { attach, unknown }) => {
                return Choice {
                    signal,
                    mechanism,
                    attach,
                    refused,
                    unknown,
                };
            }
            Err(reason) => {
                let refusal = Refused { mechanism, reason };
                // Two ways of one mechanism, for the same reason.
                if refused.last() != Some(&refusal) {
                    refused.push(refusal);
                }
            }
        }
    }
    // If the limit lies below the last rung, or that takes rights that are not
    // there.
    Choice {
        signal,
        mechanism: Mechanism::None,
        attach: Vec::new(),
        refused,
        unknown: vec!["everything"],
    }
}
