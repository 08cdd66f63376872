//! netns-teardown-stall: the kernel does not finish taking a namespace down.
//!
//! One kernel worker takes namespaces down, batch after batch. A queue that
//! moves is no stall; one that does not holds up all later teardowns, and with
//! them everybody who creates a namespace. Nothing holds the namespace any
//! more, so the advice is the opposite of a ghost's.

mod waiting;

use std::time::Duration;

use crate::{
    detect::{
        View, commented, cordon, evidence, facts::rtnl, netns_of, pod_of, release_advice,
        sleeps_in, stuck_holder, task_label, uncordon,
    },
    model::task::Blocked,
};
use event::finding::{Detail, Finding, Rule, Severity, finding_id};

/// A teardown takes that long at least before it counts as stalled.
const SLOW: Duration = Duration::from_secs(5);
/// A stall that long does not end by itself.
const HOPELESS: Duration = Duration::from_secs(60);

/// One finding: the namespace at the head of the queue.
pub fn detect(view: &View<'_>) -> Vec<Finding> {
    let first = view
        .model
        .netns
        .all_dying()
        .min_by_key(|(entry, since)| (*since, entry.serial));
    let Some((entry, dying)) = first else {
        // Without namespaces to look at, the kernel's own log may tell.
        return waiting::detect(view);
    };
    // Whatever was finished last, the queue has not moved since.
    let still = view
        .model
        .netns
        .last_destroyed()
        .map_or(dying, |last| last.max(dying));
    if !view.passed(still.plus(view.settings.stall_threshold.max(SLOW))) {
        return Vec::new();
    }
    let severity = if view.passed(still.plus(HOPELESS)) {
        Severity::Critical
    } else {
        Severity::Warning
    };
    let inode = entry.id.inode;
    let behind = view.model.netns.all_dying().count() - 1;

    let (workers, creators) = waiting(view);
    let waits = match behind {
        0 => String::new(),
        1 => String::from("; 1 more waits behind it"),
        n => format!("; {n} more wait behind it"),
    };
    let mut claims = vec![evidence(
        format!("the last reference to netns {inode} is gone"),
        "kernel",
        dying,
    )];
    claims.push(evidence("no netns was taken down since", "kernel", still));
    for blocked in &workers {
        let claim = format!(
            "{} takes netns down and is stuck{}",
            task_label(&blocked.task),
            sleeps_in(blocked)
        );
        claims.push(evidence(claim, "kernel", blocked.since));
    }
    if let Some(first) = creators.iter().min_by_key(|blocked| blocked.since) {
        let claim = format!(
            "{} and others wait to create a netns{}",
            task_label(&first.task),
            sleeps_in(first),
        );
        claims.push(evidence(claim, "kernel", first.since));
    }
    let suspects = rtnl::holders(view.model);
    for (blocked, function) in &suspects {
        let claim = format!(
            "{} sleeps{} inside {function}, which as a rule holds RTNL, the lock that the \
             teardown waits for",
            task_label(&blocked.task),
            sleeps_in(blocked),
        );
        claims.push(evidence(claim, "kernel", blocked.since));
    }
    let mut unknown = Vec::new();
    if workers.is_empty() {
        unknown.push(String::from(
            "where the kernel's worker hangs: it was not seen stuck",
        ));
    }
    if view.model.losses.last.is_some_and(|last| last >= dying) {
        unknown.push(String::from("whether its end was among the lost events"));
    }
    let subject = format!("{inode}");
    vec![Finding {
        rule: Rule::NetnsTeardownStall,
        severity,
        id: finding_id(&view.settings.boot_id, Rule::NetnsTeardownStall, &subject),
        since: still,
        title: format!("the kernel hangs in the teardown of netns {inode}{waits}"),
        pod: pod_of(view.model, entry),
        sandbox_id: entry.sandbox.id.clone(),
        netns: Some(netns_of(entry)),
        addresses: Vec::new(),
        holders: workers.into_iter().map(stuck_holder).collect(),
        evidence: claims,
        unknown,
        advice: advice(view, &suspects),
        detail: Detail::default(),
    }]
}

/// What to do, in order.
fn advice(view: &View<'_>, suspects: &[(&Blocked, &str)]) -> Vec<String> {
    let mut steps = vec![String::from(
        "killing pods does not help: nothing holds the netns open, the kernel itself hangs",
    )];
    steps.insert(0, cordon(view));
    match suspects.first() {
        Some((blocked, _)) => steps.extend(release_advice(blocked)),
        None => steps.push(commented(
            "dmesg -T | grep unregister_netdevice",
            "a device that something still refers to",
        )),
    }
    steps.push(commented(
        "echo w > /proc/sysrq-trigger",
        "writes the stacks of all stuck tasks to dmesg, for the kernel team",
    ));
    steps.push(String::from(
        "if the teardown does not go on, only a reboot clears it, which ends all pods of the node",
    ));
    steps.push(uncordon(view, "new sandboxes start again"));
    steps
}

/// Stuck tasks that take namespaces down, and those that create some.
fn waiting<'a>(view: &View<'a>) -> (Vec<&'a Blocked>, Vec<&'a Blocked>) {
    let has = |blocked: &Blocked, function: &str| {
        blocked
            .stack
            .iter()
            .any(|frame| frame.split('+').next() == Some(function))
    };
    let model = view.model;
    let workers = model
        .blocked
        .iter()
        .filter(|blocked| has(blocked, "cleanup_net"))
        .collect();
    let creators = model
        .blocked
        .iter()
        .filter(|blocked| has(blocked, "copy_net_ns"))
        .collect();
    (workers, creators)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::testing::Node;
    use event::{
        Event, What,
        finding::{Rule, Severity, State},
        testing::*,
    };

    #[test]
    fn a_teardown_without_progress_is_a_stall_until_it_ends() {
        let mut node = Node::of(&[
            created(1, 100),
            created(1, 101),
            dying(2, 100),
            dying(3, 101),
        ]);
        assert_eq!(node.tick(6), []);
        let (open, _) = node.only(7, Rule::NetnsTeardownStall, State::Open);
        assert_eq!((open.severity, open.since), (Severity::Warning, s(2)));
        assert!(open.title.contains("1 more waits"), "{}", open.title);
        assert!(open.advice[0].starts_with("kubectl cordon "));
        assert!(open.advice[1].contains("killing pods does not help"));
        let (worse, _) = node.only(62, Rule::NetnsTeardownStall, State::Updated);
        assert_eq!(worse.severity, Severity::Critical);
        node.tell(destroyed(63, 100));
        let (resolved, _) = node.only(64, Rule::NetnsTeardownStall, State::Resolved);
        assert_eq!(resolved.id, open.id);
        let (next, _) = node.only(68, Rule::NetnsTeardownStall, State::Open);
        assert_eq!(next.netns.unwrap().id, ns(101));
    }

    #[test]
    fn a_queue_that_moves_is_no_stall() {
        let mut node = Node::default();
        for i in 0..50_i64 {
            node.tell(created(0, 100 + i as u32));
            node.tell(dying(1, 100 + i as u32));
        }
        for i in 0..50_i64 {
            node.tell(destroyed(2 + 4 * i, 100 + i as u32));
            assert_eq!(node.tick(3 + 4 * i), []);
        }
    }

    #[test]
    fn a_teardown_may_take_longer_than_a_tasks_stall() {
        let mut node = Node::with_threshold(Duration::from_secs(1));
        node.tell_all(&[created(1, 100), dying(2, 100)]);
        assert_eq!(node.tick(6), []);
        assert_eq!(node.tick(7).len(), 1);
    }

    #[test]
    fn who_sleeps_with_the_lock_is_named_and_to_be_released_first() {
        let with = |mut event: Event, frames: [&str; 3]| {
            if let What::TaskBlocked { stack, .. } = &mut event.what {
                *stack = frames.map(String::from).into();
            }
            event
        };
        let worker = ["cleanup_net+0x208", "process_one_work+0x1", "kthread+0x2"];
        let holder = ["handle_userfault+0x1", "dev_ethtool+0x2", "dev_ioctl+0x3"];
        let mut node = Node::of(&[
            host(0),
            created(1, 100),
            dying(2, 100),
            with(stuck(3, 8, 1), holder),
            with(stuck(4, 9, 1), worker),
        ]);
        let findings = node.tick(9);
        let stall = findings
            .iter()
            .find(|(f, _)| f.rule == Rule::NetnsTeardownStall)
            .unwrap();
        let claims: Vec<&str> = stall.0.evidence.iter().map(|e| &*e.claim).collect();
        let named =
            |claim: &&&str| claim.contains("(8) sleeps in handle_userfault inside dev_ethtool");
        assert_eq!(claims.iter().filter(named).count(), 1, "{claims:?}");
        assert!(stall.0.advice[2].contains("(8)"), "{:?}", stall.0.advice);
        assert!(
            !stall
                .0
                .advice
                .iter()
                .any(|step| step.contains("unregister_netdevice"))
        );
    }

    #[test]
    fn the_stuck_worker_is_named_where_it_is_known() {
        let mut worker = stuck(4, 9, 1);
        if let What::TaskBlocked { stack, .. } = &mut worker.what {
            *stack = vec!["msleep+0x1".into(), "cleanup_net+0x2".into()];
        }
        let mut node = Node::of(&[host(0), created(1, 100), dying(2, 100), worker]);
        let findings = node.tick(8);
        let stall = findings
            .iter()
            .find(|(f, _)| f.rule == Rule::NetnsTeardownStall)
            .unwrap();
        assert_eq!(stall.0.holders.len(), 1);
        assert!(stall.0.unknown.is_empty());
    }
}
