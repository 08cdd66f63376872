//! What speaks against a program on this kernel: one function for each kind of
//! need, which returns what to attach to or the obstacle. Which program needs
//! what is in `ladder` and `netns`.

use node_tracer_ebpf::layout::ABSENT;

use super::{AttachKind, Obstacle};
use crate::ebpf::facts::Facts;

pub(super) fn may_read(facts: &Facts) -> Result<(), Obstacle> {
    if let Some(reason) = &facts.no_programs {
        return Err(Obstacle::NoPrograms(reason.clone()));
    }
    match facts.lockdown.as_deref() {
        Some(mode @ "confidentiality") => Err(Obstacle::Lockdown(mode.to_owned())),
        _ => Ok(()),
    }
}

/// Addresses are asked for from inside.
pub(super) fn may_enter(facts: &Facts) -> Result<(), Obstacle> {
    match facts.may_enter {
        Some(false) => Err(Obstacle::MayNotEnter),
        Some(true) | None => Ok(()),
    }
}

pub(super) fn not_refused(facts: &Facts, program: &'static str) -> Result<(), Obstacle> {
    match facts.refused.get(program) {
        Some(reason) => Err(Obstacle::Refused {
            program,
            reason: reason.clone(),
        }),
        None => Ok(()),
    }
}

/// Members that a program cannot do without.
macro_rules! members {
    ($facts:expr, $($member:ident),+ $(,)?) => {
        $crate::ebpf::plan::needs::known(
            &[$((stringify!($member), $facts.layout.$member)),+],
        )
    };
}
pub(super) use members;

pub(super) fn known(members: &[(&'static str, u32)]) -> Result<(), Obstacle> {
    match members.iter().find(|&&(_, offset)| offset == ABSENT) {
        Some(&(name, _)) => Err(Obstacle::NoMember(name)),
        None => Ok(()),
    }
}

pub(super) fn fentry(facts: &Facts, function: &'static str) -> Result<AttachKind, Obstacle> {
    linkable(facts, function)?;
    Ok(AttachKind::Fentry(function))
}

/// An fexit program finds the returned value behind the parameters.
pub(super) fn fexit(
    facts: &Facts,
    function: &'static str,
    expected: usize,
) -> Result<AttachKind, Obstacle> {
    let found = linkable(facts, function)?;
    if found != expected {
        return Err(Obstacle::Signature {
            function,
            found,
            expected,
        });
    }
    Ok(AttachKind::Fexit(function))
}

/// The number of parameters of a function that fentry programs can be linked
/// to: it must be in BTF and, where that can be read, in the symbol table.
fn linkable(facts: &Facts, function: &'static str) -> Result<usize, Obstacle> {
    match facts.fentry {
        Some(true) => {}
        Some(false) => return Err(Obstacle::NoFentry),
        None => return Err(Obstacle::FentryUnknown),
    }
    let functions = facts.functions.as_ref().ok_or(Obstacle::NoBtf)?;
    let params = functions.get(function);
    let params = params.ok_or(Obstacle::NoFunction(function))?;
    match &facts.symbols {
        Some(symbols) if !symbols.contains(function) => Err(Obstacle::NoFunction(function)),
        _ => Ok(*params),
    }
}

pub(super) fn kprobe(facts: &Facts, function: &'static str) -> Result<AttachKind, Obstacle> {
    match facts.kprobes {
        Some(true) => {}
        Some(false) => return Err(Obstacle::NoKprobes),
        None => return Err(Obstacle::KprobesUnknown),
    }
    let symbols = facts.symbols.as_ref().ok_or(Obstacle::NoSymbols)?;
    if !symbols.contains(function) {
        return Err(Obstacle::NoFunction(function));
    }
    Ok(AttachKind::Kprobe(function))
}

pub(super) fn kretprobe(facts: &Facts, function: &'static str) -> Result<AttachKind, Obstacle> {
    kprobe(facts, function)?;
    Ok(AttachKind::Kretprobe(function))
}

pub(super) fn tp_btf(facts: &Facts, tracepoint: &'static str) -> Result<AttachKind, Obstacle> {
    let tracepoints = facts.tracepoints.as_ref().ok_or(Obstacle::NoBtf)?;
    if !tracepoints.contains_key(tracepoint) {
        return Err(Obstacle::NoTracepoint(tracepoint));
    }
    Ok(AttachKind::TpBtf(tracepoint))
}

/// Either source may know of a tracepoint; neither has to be readable.
pub(super) fn raw_tp(facts: &Facts, tracepoint: &'static str) -> Result<AttachKind, Obstacle> {
    let types = facts.tracepoints.as_ref();
    let symbols = facts.raw_tracepoints.as_ref();
    let there = types.is_some_and(|known| known.contains_key(tracepoint))
        || symbols.is_some_and(|known| known.contains(tracepoint));
    if !there {
        return Err(match symbols {
            Some(_) => Obstacle::NoTracepoint(tracepoint),
            None => Obstacle::NoSymbols,
        });
    }
    Ok(AttachKind::RawTp(tracepoint))
}

/// The address of a function that a program compares with.
pub(super) fn address(
    facts: &Facts,
    function: &'static str,
    address: Option<u64>,
) -> Result<(), Obstacle> {
    if address.is_some() {
        return Ok(());
    }
    let symbols = facts.symbols.as_ref().ok_or(Obstacle::NoSymbols)?;
    Err(if symbols.contains(function) {
        Obstacle::AddressHidden(function)
    } else {
        Obstacle::NoFunction(function)
    })
}

pub(super) fn iterators(facts: &Facts) -> Result<(), Obstacle> {
    match facts.iterators {
        Some(true) => Ok(()),
        Some(false) => Err(Obstacle::NoIterators),
        None => Err(Obstacle::NoBtf),
    }
}

/// A walk of unknown length.
pub(super) fn bpf_loop(facts: &Facts) -> Result<(), Obstacle> {
    match facts.bpf_loop {
        Some(true) => Ok(()),
        Some(false) => Err(Obstacle::NoLoop),
        None => Err(Obstacle::LoopUnknown),
    }
}
