use std::collections::{BTreeMap, BTreeSet};

use node_tracer_ebpf::layout::{ABSENT, Layout};

use super::ladder::attach;
use super::*;

mod denied;
mod programs;
mod tracepoints;

/// The plan of a capable kernel from which something is taken away.
fn without(take: impl FnOnce(&mut Facts)) -> Plan {
    let mut facts = Facts::capable();
    take(&mut facts);
    Plan::from_facts(&facts, None)
}

fn capable() -> Plan {
    without(|_| {})
}

/// Takes a key out of a fact that is a known set.
trait Drop {
    fn drop(&mut self, name: &str);
}

impl Drop for Option<BTreeMap<&'static str, usize>> {
    fn drop(&mut self, name: &str) {
        assert!(self.as_mut().unwrap().remove(name).is_some(), "{name}");
    }
}

impl Drop for Option<BTreeSet<&'static str>> {
    fn drop(&mut self, name: &str) {
        assert!(self.as_mut().unwrap().remove(name), "{name}");
    }
}

/// The mechanisms in the order of [`Signal::ALL`].
fn mechanisms(plan: &Plan) -> [Mechanism; 9] {
    Signal::ALL.map(|signal| plan.mechanism(signal))
}

/// Signals whose mechanism differs from the capable kernel's.
fn degraded(plan: &Plan) -> Vec<(Signal, Mechanism)> {
    let best = capable();
    Signal::ALL
        .into_iter()
        .filter(|&signal| plan.mechanism(signal) != best.mechanism(signal))
        .map(|signal| (signal, plan.mechanism(signal)))
        .collect()
}

fn programs(plan: &Plan, signal: Signal) -> Vec<&'static str> {
    let attach = &plan.choice(signal).attach;
    attach.iter().map(|attach| attach.program).collect()
}

fn reason(plan: &Plan, signal: Signal, mechanism: Mechanism) -> Option<&Obstacle> {
    let refused = plan.choice(signal).refused.iter();
    refused
        .filter(|refused| refused.mechanism == mechanism)
        .map(|refused| &refused.reason)
        .next()
}

use Mechanism::{Comparison, Fentry, Iterator, Kprobe, RawTracepoint, TpBtf};
use Signal::{
    Address, CniCall, CniResult, Inventory, NetnsCreated, NetnsDestroyed, NetnsDying, OomKill,
    TaskBlocked,
};

#[test]
fn a_capable_kernel_gets_the_best_of_each_ladder_and_knows_everything() {
    let plan = capable();
    assert_eq!(
        mechanisms(&plan),
        [
            Fentry,
            Fentry,
            Fentry,
            Fentry,
            TpBtf,
            TpBtf,
            TpBtf,
            Iterator,
            RawTracepoint
        ]
    );
    for choice in &plan.choices {
        assert_eq!(choice.refused, [], "{}", choice.signal);
        assert_eq!(choice.unknown, [""; 0], "{}", choice.signal);
    }
}

#[test]
fn a_choice_is_found_under_its_signal() {
    let plan = capable();
    for signal in Signal::ALL {
        assert_eq!(plan.choice(signal).signal, signal);
    }
}

#[test]
fn without_fentry_functions_are_reached_by_kprobes() {
    let plan = without(|facts| facts.fentry = Some(false));
    let all = [NetnsCreated, NetnsDying, NetnsDestroyed, Address];
    assert_eq!(degraded(&plan), all.map(|signal| (signal, Kprobe)));
    assert_eq!(reason(&plan, NetnsDying, Fentry), Some(&Obstacle::NoFentry));
    // The entry probe keeps the flags for the return probe.
    assert_eq!(
        plan.choice(NetnsCreated).attach,
        [
            attach("netns_create_kprobe", AttachKind::Kprobe("copy_net_ns")),
            attach(
                "netns_created_kretprobe",
                AttachKind::Kretprobe("copy_net_ns")
            ),
        ]
    );
}

#[test]
fn an_insertion_takes_both_ends_of_its_function() {
    let plan = without(|facts| facts.fentry = Some(false));
    assert_eq!(
        programs(&plan, Address),
        [
            "inet_insert_kprobe",
            "inet_insert_kretprobe",
            "inet_del_kprobe",
            "inet6_add_kretprobe",
            "inet6_del_kprobe",
        ]
    );
}

#[test]
fn not_knowing_is_not_taken_for_yes_and_is_said() {
    let plan = without(|facts| facts.fentry = None);
    assert_eq!(plan.mechanism(NetnsCreated), Kprobe);
    assert_eq!(
        reason(&plan, NetnsCreated, Fentry),
        Some(&Obstacle::FentryUnknown)
    );
    let plan = without(|facts| (facts.fentry, facts.kprobes) = (None, None));
    assert_eq!(
        reason(&plan, NetnsCreated, Kprobe),
        Some(&Obstacle::KprobesUnknown)
    );
}

#[test]
fn without_kprobes_alone_nothing_changes() {
    assert_eq!(degraded(&without(|facts| facts.kprobes = Some(false))), []);
}

#[test]
fn each_missing_function_moves_its_own_signal_only() {
    for (function, signal, down) in [
        ("copy_net_ns", NetnsCreated, TpBtf),
        ("__put_net", NetnsDying, TpBtf),
        ("netns_put", NetnsDying, TpBtf),
        ("sysctl_net_exit", NetnsDestroyed, TpBtf),
        ("__inet_insert_ifa", Address, TpBtf),
        ("__inet_del_ifa", Address, TpBtf),
    ] {
        let plan = without(|facts| {
            facts.functions.drop(function);
            facts.symbols.drop(function);
        });
        assert_eq!(degraded(&plan), [(signal, down)], "{function}");
        assert_eq!(
            reason(&plan, signal, Fentry),
            Some(&Obstacle::NoFunction(function))
        );
        // In BTF alone: a kprobe still can.
        let plan = without(|facts| facts.functions.drop(function));
        assert_eq!(degraded(&plan), [(signal, Kprobe)], "{function}");
        // In the symbol table alone: nothing to link to either.
        let plan = without(|facts| facts.symbols.drop(function));
        assert_eq!(degraded(&plan), [(signal, TpBtf)], "{function}");
    }
}

#[test]
fn without_the_symbol_table_fentry_still_stands() {
    let plan = without(|facts| {
        facts.symbols = None;
        facts.raw_tracepoints = None;
        facts.cleanup_net = None;
        facts.fib_inetaddr_event = None;
        facts.inetdev_event = None;
    });
    assert_eq!(degraded(&plan), []);
}

#[test]
fn a_returned_value_is_not_read_behind_a_changed_signature() {
    let plan = without(|facts| {
        facts.functions.as_mut().unwrap().insert("copy_net_ns", 4);
    });
    assert_eq!(degraded(&plan), [(NetnsCreated, Kprobe)]);
    assert_eq!(
        reason(&plan, NetnsCreated, Fentry).unwrap().to_string(),
        "copy_net_ns has 4 parameters instead of 3"
    );
}

#[test]
fn without_ipv6_hooks_ipv4_stays_exact() {
    for take in [
        (|facts: &mut Facts| facts.functions.drop("ipv6_add_addr")) as fn(&mut Facts),
        |facts| facts.layout.ifa6_idev = ABSENT,
    ] {
        let plan = without(take);
        assert_eq!(degraded(&plan), []);
        assert_eq!(
            programs(&plan, Address),
            ["inet_insert_fexit", "inet_del_fentry"]
        );
        assert!(plan.choice(Address).unknown[0].contains("IPv6"));
    }
}

#[test]
fn without_bpf_loop_a_bounded_program_reads_the_environment() {
    let plan = without(|facts| facts.bpf_loop = Some(false));
    assert_eq!(degraded(&plan), []);
    assert_eq!(programs(&plan, CniCall), ["cni_exec_bounded", "cni_exit"]);
    assert!(plan.choice(CniCall).unknown[0].contains("first 8 KiB"));
    // Tasks are still taken stock of by the kernel.
    assert_eq!(programs(&plan, Inventory), ["task_rows"]);
    assert!(plan.choice(Inventory).unknown[0].contains("only a socket holds"));
}

#[test]
fn a_missing_member_moves_every_signal_that_reads_it_and_no_other() {
    let plan = without(|facts| facts.layout.task_state = ABSENT);
    assert_eq!(
        degraded(&plan),
        [(TaskBlocked, Comparison), (Inventory, Comparison)]
    );
    assert_eq!(
        reason(&plan, TaskBlocked, TpBtf),
        Some(&Obstacle::NoMember("task_state"))
    );
    let plan = without(|facts| facts.layout.mm_env_start = ABSENT);
    assert_eq!(degraded(&plan), NO_CALLS);
    let plan = without(|facts| facts.layout.regs_syscall = ABSENT);
    assert_eq!(degraded(&plan), []);
}

/// Without the start of a plugin nothing of it is known.
const NO_CALLS: [(Signal, Mechanism); 2] =
    [(CniCall, Mechanism::None), (CniResult, Mechanism::None)];

#[test]
fn without_a_look_into_pipes_calls_are_still_seen() {
    for take in [
        (|facts: &mut Facts| facts.layout.pipe_kept = ABSENT) as fn(&mut Facts),
        |facts| {
            facts
                .refused
                .insert("page_probe", String::from("no frame numbers"));
        },
    ] {
        let plan = without(take);
        assert_eq!(degraded(&plan), [(CniResult, Mechanism::None)]);
        assert_eq!(programs(&plan, CniCall), ["cni_exec", "cni_exit"]);
        assert!(plan.choice(CniResult).unknown[0].contains("exit status is known"));
    }
}

#[test]
fn a_call_whose_origin_cannot_be_told_is_seen_but_not_trusted() {
    let plan = without(|facts| facts.layout.user_ns_level = ABSENT);
    assert_eq!(degraded(&plan), []);
    assert!(plan.choice(CniCall).unknown[0].contains("trusted"));
}

#[test]
fn without_btf_nothing_is_attached() {
    let plan = without(|facts| {
        facts.layout = Layout::UNKNOWN;
        facts.functions = None;
        facts.tracepoints = None;
        facts.switch_has_state = None;
        facts.iterators = None;
    });
    assert_eq!(plan.attachments(), []);
    assert_eq!(reason(&plan, NetnsCreated, Fentry), Some(&Obstacle::NoBtf));
}

#[test]
fn where_nothing_is_known_nothing_is_attached_and_everything_said() {
    let plan = Plan::from_facts(&Facts::UNKNOWN, None);
    assert_eq!(plan.attachments(), []);
    for choice in &plan.choices {
        assert!(!choice.refused.is_empty(), "{}", choice.signal);
        assert!(!choice.unknown.is_empty(), "{}", choice.signal);
    }
}

#[test]
fn confidentiality_lockdown_leaves_proc_and_netlink() {
    let plan = without(|facts| facts.lockdown = Some("confidentiality".to_owned()));
    assert_eq!(plan.attachments(), []);
    assert_eq!(plan.mechanism(TaskBlocked), Comparison);
    let plan = without(|facts| facts.lockdown = Some("integrity".to_owned()));
    assert_eq!(degraded(&plan), []);
    let plan = without(|facts| facts.lockdown = None);
    assert_eq!(degraded(&plan), []);
}

#[test]
fn a_limit_takes_nothing_better_and_lowers_nothing_else() {
    let facts = Facts::capable();
    for limit in [
        Mechanism::None,
        Comparison,
        Iterator,
        RawTracepoint,
        TpBtf,
        Kprobe,
        Fentry,
    ] {
        let plan = Plan::from_facts(&facts, Some(limit));
        for (signal, best) in Signal::ALL.into_iter().zip(mechanisms(&capable())) {
            assert!(plan.mechanism(signal) <= limit);
            if best <= limit {
                assert_eq!(plan.choice(signal), capable().choice(signal));
            } else {
                assert_eq!(reason(&plan, signal, best), Some(&Obstacle::Limited(limit)));
            }
        }
        assert_eq!(limit.as_str().parse(), Ok(limit));
    }
}

#[test]
fn two_ways_refused_for_one_reason_are_said_once() {
    let plan = Plan::from_facts(&Facts::capable(), Some(Comparison));
    let refused = plan.choice(NetnsCreated).refused.iter();
    let mechanisms: Vec<_> = refused.map(|refused| refused.mechanism).collect();
    assert_eq!(mechanisms, [Fentry, Kprobe, TpBtf]);
}

#[test]
fn a_name_that_is_no_mechanism_is_refused() {
    assert!("fexit".parse::<Mechanism>().is_err());
}
