//! Whatever the tool reads from others, read as whatever it may be: targets for
//! libFuzzer, chosen by `NODE_TRACER_FUZZ`, built by `cargo xtask fuzz`; a target that panics or hangs is a finding.
//!
//! A target lives beside what it tries, and asserts what must be so of all
//! input.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

use engine::{law, orders};
use node_tracer::testing;

/// One thing that is read.
struct Target {
    name: &'static str,
    run: fn(&[u8]),
}

const TARGETS: [Target; 23] = [
    target("kernel-records", kernel_records),
    target("cni-payload", kernel::live::fuzz),
    target("cni-config", node::cni::fuzz_config),
    target("cni-cache", node::cni::fuzz_cache),
    target("host-local", node::hostlocal::fuzz),
    target("terway", ipam::fuzz_terway),
    target("ipam-documents", ipam::fuzz_documents),
    target("btf", btf),
    target("pods", node::pods::fuzz),
    target("kube", kube::fuzz),
    target("cri", node::cri::fuzz),
    target("netlink", node::netlink::fuzz),
    target("proc", proc),
    target("redact", node::redact::fuzz),
    target("log-lines", logs::read::fuzz),
    target("log-meaning", logs::fuzz::fuzz_meaning),
    target("kubectl", logs::fuzz::fuzz_kubectl),
    target("logs", testing::logs),
    target("recording", testing::recording),
    target("report", testing::report),
    target("repair", repair),
    target("engine", orders::check),
    target("law", law::check),
];

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}

fn kernel_records(data: &[u8]) {
    let _ = kernel::ebpf::records::Record::decode(data);
    kernel::ebpf::inventory::fuzz(data);
}

fn btf(data: &[u8]) {
    if let Ok(btf) = kernel::ebpf::btf::Btf::parse(data) {
        btf.offset_of("task_struct", "se.exec_start");
        btf.size_of("net");
        btf.has_func("copy_net_ns");
        btf.func_params("copy_net_ns");
        btf.tracepoint_params("sched_switch");
    }
}

fn proc(data: &[u8]) {
    node::procfs::fuzz(data);
    node::cgroup::fuzz(&String::from_utf8_lossy(data));
    let _ = kernel::ebpf::symbols::scan(data, |symbol| {
        assert!(!symbol.name.is_empty());
    });
}

fn repair(data: &[u8]) {
    testing::backup(data);
    testing::plan(data);
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
