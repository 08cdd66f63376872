//! The plan's names against the sources of the kernel programs: a rename on
//! either side fails here and not on a node.

use super::tracepoints::tracepoints_only;
use super::*;

macro_rules! source {
    ($file:literal) => {
        include_str!(concat!(
            "../../../../../../../node-tracer-ebpf/src/probes/",
            $file
        ))
    };
}

const SOURCES: [&str; 8] = [
    source!("address.rs"),
    source!("cni.rs"),
    source!("netns.rs"),
    source!("notifier.rs"),
    source!("oom.rs"),
    source!("pipe.rs"),
    source!("task.rs"),
    source!("walk.rs"),
];

/// Every function with the attribute line above it.
fn written() -> BTreeMap<&'static str, &'static str> {
    let mut functions = BTreeMap::new();
    for source in SOURCES {
        let mut attribute = "";
        for line in source.lines() {
            if line.starts_with("#[") {
                attribute = line;
                continue;
            }
            if let Some((_, rest)) = line.split_once("fn ")
                && let Some((name, _)) = rest.split_once('(')
            {
                functions.insert(name, attribute);
            }
            attribute = "";
        }
    }
    functions
}

/// Every program that is planned on some kernel.
fn planned() -> BTreeMap<&'static str, AttachKind> {
    let kernels: [fn(&mut Facts); 5] = [
        |_| {},
        |facts| facts.fentry = Some(false),
        tracepoints_only,
        |facts| {
            tracepoints_only(facts);
            facts.inetdev_event = None;
            facts.bpf_loop = Some(false);
        },
        |facts| facts.tracepoints.drop("sched_switch"),
    ];
    let all = kernels
        .into_iter()
        .flat_map(|take| without(take).attachments());
    all.map(|Attach { program, kind }| (program, kind))
        .collect()
}

fn attribute(kind: AttachKind) -> String {
    match kind {
        AttachKind::Fentry(function) => format!("#[fentry(function = \"{function}\")]"),
        AttachKind::Fexit(function) => format!("#[fexit(function = \"{function}\")]"),
        AttachKind::Kprobe(_) => "#[kprobe]".to_owned(),
        AttachKind::Kretprobe(_) => "#[kretprobe]".to_owned(),
        AttachKind::TpBtf(name) => format!("#[btf_tracepoint(function = \"{name}\")]"),
        AttachKind::RawTp(name) => format!("#[raw_tracepoint(tracepoint = \"{name}\")]"),
        AttachKind::Iter(target) => format!("#[unsafe(link_section = \"iter/{target}\")]"),
    }
}

#[test]
fn every_planned_program_is_written_for_its_target() {
    let written = written();
    for (program, kind) in planned() {
        let found = written.get(program).copied();
        assert_eq!(found, Some(attribute(kind).as_str()), "{program}");
    }
}

#[test]
fn every_written_program_is_planned_somewhere() {
    let planned = planned();
    for (function, attribute) in written() {
        let is_program = !attribute.is_empty() && !attribute.starts_with("#[inline");
        assert_eq!(is_program, planned.contains_key(function), "{function}");
    }
}
