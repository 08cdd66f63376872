//! Whatever the tool reads from others, read as whatever it may be: targets for
//! libFuzzer, chosen by `NODE_TRACER_FUZZ`. Built by `cargo xtask fuzz` alone
//! (`--cfg fuzzing`); a target that panics or hangs is a finding.
//!
//! A target lives beside what it tries, and asserts what must be so of all
//! input: [`secret`] and [`heard`] have what several of them assert.

pub(crate) mod heard;
pub(crate) mod secret;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

use crate::{
    repair, replay, report,
    source::{self, logs},
};
use engine::{law, orders};

/// One thing that is read.
struct Target {
    /// Its name.
    name: &'static str,
    /// Reads it.
    run: fn(&[u8]),
}

const TARGETS: [Target; 23] = [
    target("kernel-records", kernel_records),
    target("cni-payload", source::live::fuzz),
    target("cni-config", source::cni::fuzz_config),
    target("cni-cache", source::cni::fuzz_cache),
    target("host-local", source::hostlocal::fuzz),
    target("terway", source::ipam::fuzz_terway),
    target("ipam-documents", source::ipam::fuzz_documents),
    target("btf", btf),
    target("pods", source::pods::fuzz),
    target("kube", source::kube::fuzz),
    target("cri", source::cri::fuzz),
    target("netlink", source::netlink::fuzz),
    target("proc", proc),
    target("redact", source::redact::fuzz),
    target("log-lines", logs::read::fuzz),
    target("log-meaning", logs::fuzz::fuzz_meaning),
    target("kubectl", logs::fuzz::fuzz_kubectl),
    target("logs", replay::fuzz_logs),
    target("recording", replay::fuzz),
    target("report", report::fuzz),
    target("repair", repair),
    target("engine", orders::check),
    target("law", law::check),
];

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}

fn kernel_records(data: &[u8]) {
    let _ = source::ebpf::records::Record::decode(data);
    source::ebpf::inventory::fuzz(data);
}

fn btf(data: &[u8]) {
    if let Ok(btf) = source::ebpf::btf::Btf::parse(data) {
        btf.offset_of("task_struct", "se.exec_start");
        btf.size_of("net");
        btf.has_func("copy_net_ns");
        btf.func_params("copy_net_ns");
        btf.tracepoint_params("sched_switch");
    }
}

fn proc(data: &[u8]) {
    source::procfs::fuzz(data);
    source::cgroup::fuzz(&String::from_utf8_lossy(data));
    let _ = source::ebpf::symbols::scan(data, |symbol| {
        assert!(!symbol.name.is_empty());
    });
}

fn repair(data: &[u8]) {
    repair::backup::fuzz(data);
    repair::load::fuzz(data);
}

/// The target that was asked for.
fn chosen() -> fn(&[u8]) {
    static CHOSEN: OnceLock<fn(&[u8])> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let name = std::env::var("NODE_TRACER_FUZZ").unwrap_or_default();
        let target = TARGETS.iter().find(|target| target.name == name);
        let names = TARGETS.map(|target| target.name).join(" ");
        target
            .unwrap_or_else(|| panic!("NODE_TRACER_FUZZ is one of: {names}"))
            .run
    })
}

fuzz_target!(|data: &[u8]| chosen()(data));
