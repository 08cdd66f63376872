//! Kernels in which no function can be hooked, only tracepoints.

use super::*;

/// Like the development machine: no kprobes, fentry refused.
pub(super) fn tracepoints_only(facts: &mut Facts) {
    facts.kprobes = Some(false);
    facts.fentry = Some(false);
}

#[test]
fn without_function_hooks_tracepoints_and_the_walk_tell_the_same() {
    let plan = without(tracepoints_only);
    let all = [NetnsCreated, NetnsDying, NetnsDestroyed, Address];
    assert_eq!(degraded(&plan), all.map(|signal| (signal, TpBtf)));
    assert_eq!(
        programs(&plan, NetnsCreated),
        [
            "notified",
            "netns_settled_exec",
            "netns_settled_exit",
            "netns_last_exit",
            "netns_created_newtask",
            "task_rows",
            "net_walk",
        ]
    );
    let cleanup = [
        "cleanup_queued",
        "cleanup_started",
        "cleanup_ended",
        "task_rows",
        "net_walk",
    ];
    assert_eq!(programs(&plan, NetnsDying), cleanup);
    assert_eq!(programs(&plan, NetnsDestroyed), cleanup);
    assert_eq!(
        programs(&plan, Address),
        ["notified", "task_rows", "net_walk"]
    );
    assert_eq!(
        reason(&plan, NetnsDying, Kprobe),
        Some(&Obstacle::NoKprobes)
    );
}

#[test]
fn a_program_that_several_signals_need_is_attached_once() {
    let all = without(tracepoints_only).attachments();
    for program in ["notified", "cleanup_started", "task_rows", "net_walk"] {
        let times = all.iter().filter(|attach| attach.program == program);
        assert_eq!(times.count(), 1, "{program}");
    }
}

#[test]
fn without_ipv6_lists_the_walk_goes_on_with_ipv4() {
    let plan = without(|facts| {
        tracepoints_only(facts);
        facts.layout.dev_ip6_ptr = ABSENT;
    });
    let full = without(tracepoints_only);
    assert_eq!(mechanisms(&plan), mechanisms(&full));
    assert!(plan.choice(Inventory).unknown.contains(&"IPv6 addresses"));
    assert!(plan.choice(Address).unknown.contains(&"IPv6 addresses"));
}

#[test]
fn without_the_address_of_cleanup_net_only_teardown_is_compared() {
    let plan = without(|facts| {
        tracepoints_only(facts);
        facts.cleanup_net = None;
    });
    assert_eq!(plan.mechanism(NetnsDying), Comparison);
    assert_eq!(plan.mechanism(NetnsDestroyed), Comparison);
    assert_eq!(plan.mechanism(NetnsCreated), TpBtf);
    assert_eq!(plan.mechanism(Address), TpBtf);
    assert_eq!(plan.mechanism(Inventory), Iterator);
    assert_eq!(
        reason(&plan, NetnsDying, TpBtf),
        Some(&Obstacle::AddressHidden("cleanup_net"))
    );
    assert!(!plan.choice(NetnsDying).unknown.is_empty());
}

#[test]
fn without_a_walk_teardown_and_addresses_are_compared() {
    for take in [
        (|facts: &mut Facts| facts.bpf_loop = Some(false)) as fn(&mut Facts),
        |facts| facts.bpf_loop = None,
        |facts| facts.iterators = Some(false),
        |facts| facts.layout.net_cookie = ABSENT,
        |facts| facts.layout.net_list = ABSENT,
        |facts| facts.layout.dev_net = ABSENT,
    ] {
        let plan = without(|facts| {
            tracepoints_only(facts);
            take(facts);
        });
        assert_eq!(plan.mechanism(NetnsDying), Comparison);
        assert_eq!(plan.mechanism(NetnsDestroyed), Comparison);
        assert_eq!(plan.mechanism(Address), Comparison);
        assert_eq!(plan.mechanism(NetnsCreated), TpBtf);
        assert!(programs(&plan, NetnsCreated).contains(&"notified"));
        let unknown = &plan.choice(NetnsCreated).unknown;
        assert!(unknown[0].ends_with("only by comparison"), "{unknown:?}");
        assert_eq!(plan.mechanism(TaskBlocked), TpBtf);
        assert_eq!(plan.mechanism(CniCall), TpBtf);
        let walks = plan.attachments();
        assert!(walks.iter().all(|attach| attach.program != "net_walk"));
    }
}

#[test]
fn the_walk_takes_no_more_than_it_reads() {
    let plan = without(|facts| {
        tracepoints_only(facts);
        facts.layout.task_state = ABSENT;
        facts.layout.net_refs = ABSENT;
    });
    assert_eq!(plan.mechanism(NetnsDestroyed), TpBtf);
    assert_eq!(plan.mechanism(Address), TpBtf);
    // Where it starts, the tasks tell, whatever else they do not.
    assert!(programs(&plan, Address).contains(&"task_rows"));
    // Without a count a dying namespace is seen once it is off the list.
    assert_eq!(plan.mechanism(NetnsDying), TpBtf);
    let dying = |plan: &Plan| plan.choice(NetnsDying).unknown.len();
    assert_eq!(dying(&plan), dying(&without(tracepoints_only)) + 1);
}

#[test]
fn without_notifier_run_addresses_come_from_the_walk() {
    let plan = without(|facts| {
        tracepoints_only(facts);
        facts.tracepoints.drop("notifier_run");
        facts.raw_tracepoints.drop("notifier_run");
    });
    assert_eq!(plan.mechanism(Address), Iterator);
    assert_eq!(programs(&plan, Address), ["task_rows", "net_walk"]);
    assert_eq!(plan.mechanism(NetnsDying), TpBtf);
}

#[test]
fn system_calls_are_slowed_only_where_the_notifiers_do_not_tell() {
    assert!(
        !programs(&without(tracepoints_only), NetnsCreated).contains(&"netns_created_sys_exit")
    );
    for (take, obstacle) in [
        (
            (|facts: &mut Facts| facts.tracepoints.drop("notifier_run")) as fn(&mut Facts),
            Obstacle::NoTracepoint("notifier_run"),
        ),
        (
            |facts| facts.inetdev_event = None,
            Obstacle::AddressHidden("inetdev_event"),
        ),
        (
            |facts| facts.tracepoints.drop("sched_process_exec"),
            Obstacle::NoTracepoint("sched_process_exec"),
        ),
        (
            |facts| facts.layout.task_pid = ABSENT,
            Obstacle::NoMember("task_pid"),
        ),
    ] {
        let plan = without(|facts| {
            tracepoints_only(facts);
            take(facts);
        });
        // The mechanism is the same, the way is not, and why is said.
        assert_eq!(plan.mechanism(NetnsCreated), TpBtf);
        assert_eq!(reason(&plan, NetnsCreated, TpBtf), Some(&obstacle));
        assert_eq!(
            programs(&plan, NetnsCreated),
            ["netns_created_sys_exit", "netns_created_newtask"]
        );
        let unknown = &plan.choice(NetnsCreated).unknown;
        assert!(unknown[0].contains("every system call"), "{unknown:?}");
        assert!(unknown[1].contains("32-bit"), "{unknown:?}");
    }
}

#[test]
fn each_signal_needs_only_its_own_notifier() {
    let plan = without(|facts| {
        tracepoints_only(facts);
        facts.fib_inetaddr_event = None;
    });
    assert_eq!(plan.mechanism(Address), Iterator);
    assert!(programs(&plan, NetnsCreated).contains(&"notified"));
    let plan = without(|facts| {
        tracepoints_only(facts);
        facts.inetdev_event = None;
    });
    assert_eq!(programs(&plan, Address)[0], "notified");
    assert!(!programs(&plan, NetnsCreated).contains(&"notified"));
}

#[test]
fn each_missing_tracepoint_moves_what_needs_it() {
    for (tracepoint, expected) in [
        ("sys_exit", vec![]),
        ("notifier_run", vec![(Address, Iterator)]),
        ("task_newtask", vec![(NetnsCreated, Comparison)]),
        (
            "workqueue_execute_start",
            vec![(NetnsDying, Comparison), (NetnsDestroyed, Comparison)],
        ),
        (
            "workqueue_execute_end",
            vec![(NetnsDying, Comparison), (NetnsDestroyed, Comparison)],
        ),
        ("sched_switch", vec![(TaskBlocked, Iterator)]),
        ("sched_waking", vec![]),
        ("sched_process_exec", NO_CALLS.to_vec()),
        ("sched_process_exit", NO_CALLS.to_vec()),
        ("mark_victim", vec![(OomKill, Mechanism::None)]),
    ] {
        let full = without(tracepoints_only);
        let plan = without(|facts| {
            tracepoints_only(facts);
            facts.tracepoints.drop(tracepoint);
            facts.raw_tracepoints.drop(tracepoint);
        });
        let moved: Vec<_> = Signal::ALL
            .into_iter()
            .filter(|&signal| plan.mechanism(signal) != full.mechanism(signal))
            .map(|signal| (signal, plan.mechanism(signal)))
            .collect();
        assert_eq!(moved, expected, "{tracepoint}");
    }
}

#[test]
fn a_tracepoint_without_types_is_used_raw() {
    let plan = without(|facts| facts.tracepoints.drop("sched_switch"));
    assert_eq!(degraded(&plan), [(TaskBlocked, RawTracepoint)]);
    assert_eq!(
        programs(&plan, TaskBlocked),
        ["task_switch_raw", "task_waking_raw"]
    );
}

#[test]
fn without_the_schedulers_bit_wake_ups_are_hooked() {
    let plan = without(|facts| facts.layout.task_contributes = ABSENT);
    assert_eq!(degraded(&plan), [(TaskBlocked, RawTracepoint)]);
    let plan = without(|facts| {
        facts.layout.task_contributes = ABSENT;
        facts.tracepoints.drop("sched_waking");
        facts.raw_tracepoints.drop("sched_waking");
    });
    assert_eq!(degraded(&plan), [(TaskBlocked, Iterator)]);
}

#[test]
fn where_blocked_tasks_stay_on_run_queues_wake_ups_are_hooked() {
    let plan = without(|facts| facts.proxy_exec = Some(true));
    assert_eq!(degraded(&plan), [(TaskBlocked, RawTracepoint)]);
    assert_eq!(
        reason(&plan, TaskBlocked, TpBtf),
        Some(&Obstacle::ProxyExec)
    );
    let unknown = without(|facts| facts.proxy_exec = None);
    assert_eq!(degraded(&unknown), []);
}

#[test]
fn the_end_of_a_teardown_is_always_raw() {
    let plan = without(tracepoints_only);
    let ended = attach("cleanup_ended", AttachKind::RawTp("workqueue_execute_end"));
    assert!(plan.attachments().contains(&ended));
}
