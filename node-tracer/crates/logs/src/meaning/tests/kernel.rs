//! What the kernel logs.

use super::*;

#[test]
fn what_starts_a_container_and_has_no_memory_is_told_unless_a_kill_is() {
    const INVOKED: &str = "runc:[2:INIT] invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0";
    let mut log = Log::default();
    log.say(1, "kernel", INVOKED);
    assert_eq!(log.kinds(), ["sandbox-failed"]);
    let mut log = Log::default();
    log.say(1, "kernel", INVOKED);
    let kill = "Memory cgroup out of memory: Killed process 7 (runc:[2:INIT]) total-vm:1kB";
    log.say(2, "kernel", kill);
    assert_eq!(log.kinds(), ["oom-killed"]);
    let mut log = Log::default();
    log.say(
        1,
        "kernel",
        "java invoked oom-killer: gfp_mask=0xcc0, order=0",
    );
    assert_eq!(log.kinds(), Vec::<String>::new());
}

#[test]
fn a_hung_task_has_the_stack_that_follows_it() {
    let mut log = Log::default();
    log.say(
        1_000,
        "kernel",
        "INFO: task tar:extract:77 blocked for more than 120 seconds.",
    );
    log.say(
        1_000,
        "kernel",
        "task:tar:extract  state:D stack:0 pid:77 flags:0x4",
    );
    log.say(1_000, "kernel", "Call Trace:");
    for frame in [
        " __schedule+0x2e3/0x740",
        " schedule+0x42/0xb0",
        " ? rwsem_wake+0x1/0x2",
        " request_wait_answer+0x138/0x210 [fuse]",
        " [<ffffffff8109c579>] fuse_simple_request+0x1/0x2",
    ] {
        log.say(1_000, "kernel", frame);
    }
    // An hour later, an unrelated oops.
    log.say(4_600, "kernel", "RIP: 0010:foo+0x1/0x2");
    // A kernel that says the same number each time.
    log.say(
        4_700,
        "kernel",
        "INFO: task tar:extract:77 blocked for more than 120 seconds.",
    );
    log.say(
        4_820,
        "kernel",
        "INFO: task tar:extract:77 blocked for more than 120 seconds.",
    );
    log.kinds();
    let told = log.events.iter().map(|event| match &event.what {
        What::TaskBlocked {
            task, since, stack, ..
        } => {
            assert_eq!((task.pid, task.comm.as_str()), (77, "tar:extract"));
            (*since, stack.join(" "))
        }
        other => panic!("{other:?}"),
    });
    let stack = "request_wait_answer+0x138 fuse_simple_request+0x1";
    let told: Vec<_> = told.collect();
    let expected = [(s(880), stack), (s(4_580), ""), (s(4_580), "")];
    let expected = expected.map(|(since, stack)| (since, stack.to_owned()));
    assert_eq!(told, expected);
}

#[test]
fn a_kill_is_told_once_with_whose_limit_it_was() {
    let cgroup = format!("/kubepods/burstable/pod{UID}/{OLD}");
    let mut log = Log::default();
    let whole = format!(
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,\
         oom_memcg=/kubepods/burstable/pod{UID},task_memcg={cgroup},task=a,b,pid=7,uid=0"
    );
    log.say(1, "kernel", &whole);
    let killed = "Memory cgroup out of memory: Killed process 7 (a,b) total-vm:1kB, anon-rss:1kB";
    log.say(1, "kernel", killed);
    // Before 4.19.
    log.say(
        100,
        "kernel",
        &format!("Task in {cgroup} killed as a result of limit of /kubepods"),
    );
    log.say(
        100,
        "kernel",
        "Memory cgroup out of memory: Kill process 8 (java) score 9 or sacrifice",
    );
    log.say(
        100,
        "kernel",
        "Killed process 8 (java) total-vm:1kB, anon-rss:1kB",
    );
    log.say(
        200,
        "kernel",
        "Out of memory: Killed process 9 (java (x)) total-vm:1kB",
    );
    let kills = log.events.iter().map(|event| match &event.what {
        What::OomKilled { kill } => (
            kill.task.pid,
            kill.task.comm.clone(),
            kill.task.container_id.is_some(),
            kill.memcg.is_some(),
            kill.limited,
        ),
        other => panic!("{other:?}"),
    });
    let kills: Vec<_> = kills.collect();
    let kill = |pid, comm: &str, own, limit, limited| (pid, comm.to_owned(), own, limit, limited);
    let expected = [
        kill(7, "a,b", true, true, Some(true)),
        kill(8, "java", true, true, Some(true)),
        kill(9, "java (x)", false, false, Some(false)),
    ];
    assert_eq!(kills, expected);
}

#[test]
fn a_device_that_waits_is_told_with_its_references() {
    let mut log = Log::default();
    let said = "unregister_netdevice: waiting for lo to become free. Usage count = -1";
    log.say(1, "kernel", said);
    let [event] = log.events.as_slice() else {
        panic!("{:?}", log.events);
    };
    let expected = What::DeviceWaiting {
        device: String::from("lo"),
        references: Some(-1),
    };
    assert_eq!(event.what, expected);
}

#[test]
fn a_list_of_blocked_tasks_is_read_in_each_form() {
    let newer = "task:kworker/u4:6    state:D stack:0     pid:293   tgid:293   ppid:2";
    let older = [
        "kworker/u4:6    D    0   293      2 0x00000000",
        "kworker/u4:6    D ffff88013fc13240     0   293      2 0x00000000",
    ];
    for task in [newer, older[0], older[1]] {
        let mut log = Log::default();
        for line in [
            "sysrq: Show Blocked State",
            "  task                        PC stack   pid father",
            task,
            "Workqueue: netns cleanup_net",
            "Call Trace:",
            " schedule+0x42/0xb0",
            " rtnl_lock+0x15/0x20",
            "bash            S    0   300      2 0x00000000",
        ] {
            log.say(1_000, "kernel", line);
        }
        log.kinds();
        let told: Vec<_> = log
            .events
            .iter()
            .map(|event| match &event.what {
                What::TaskBlocked {
                    task, since, stack, ..
                } => (task.comm.as_str(), task.pid, *since, stack.join(" ")),
                other => panic!("{other:?}"),
            })
            .collect();
        let stack = String::from("rtnl_lock+0x15 cleanup_net");
        assert_eq!(told, [("kworker/u4:6", 293, s(1_000), stack)], "{task}");
    }
    // Behind the words that end the first line's message, too.
    let mut log = Log::default();
    for line in [
        "\"echo 0 > /proc/sys/kernel/hung_task_timeout_secs\" disables this message.",
        older[1],
        "Call Trace:",
        "[<ffffffff814465ba>] ? copy_net_ns+0x9a/0x160",
    ] {
        log.say(1_000, "kernel", line);
    }
    assert_eq!(log.kinds(), ["task-blocked"]);
    // The same columns elsewhere are no task.
    let mut log = Log::default();
    log.say(
        1_000,
        "kernel",
        "kworker/u4:6    D    0   293      2 0x00000000",
    );
    assert!(log.kinds().is_empty());
}
