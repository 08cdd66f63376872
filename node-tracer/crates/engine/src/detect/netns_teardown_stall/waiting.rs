//! The same from the kernel's log: a device that it cannot remove, as
//! something still refers to it. The namespace that it goes down with is not
//! named, and no other is taken down in the meantime. Or the worker itself,
//! told as a task that hangs.

use std::time::Duration;

use super::{HOPELESS, advice, rtnl, waiting as stuck};
use crate::{
    detect::{View, evidence, sleeps_in, stuck_holder},
    model::waiting::Waiting,
};
use event::{
    finding::{Detail, Finding, Rule, Severity, finding_id},
    wording::subjects::task_label,
};

/// The kernel tells of it once in that time, and for the first time after it.
const EVERY: Duration = Duration::from_secs(10);
/// If it was not told for so long, it is over.
const OVER: Duration = Duration::from_secs(35);

/// One finding a device.
pub(super) fn detect(view: &View<'_>) -> Vec<Finding> {
    let all = view.model.waiting.all();
    let open = all.filter(|(_, waits)| !view.passed(waits.last.plus(OVER)));
    let told: Vec<Finding> = open
        .map(|(device, waits)| finding(view, device, waits))
        .collect();
    match told.is_empty() {
        true => worker(view).into_iter().collect(),
        false => told,
    }
}

/// The worker that takes namespaces down is stuck, and nothing says for what.
fn worker(view: &View<'_>) -> Option<Finding> {
    let (workers, creators) = stuck(view);
    let first = workers.iter().min_by_key(|blocked| blocked.since)?;
    let mut claims = Vec::new();
    for blocked in workers.iter().chain(creators.iter().take(1)) {
        let does = match workers.contains(blocked) {
            true => "takes netns down and is stuck",
            false => "waits to create a netns",
        };
        let claim = format!("{} {does}{}", task_label(&blocked.task), sleeps_in(blocked));
        claims.push(evidence(claim, "kernel", blocked.since));
    }
    let suspects = rtnl::holders(view.model);
    Some(Finding {
        rule: Rule::NetnsTeardownStall,
        severity: match view.passed(first.since.plus(HOPELESS)) {
            true => Severity::Critical,
            false => Severity::Warning,
        },
        id: finding_id(&view.settings.boot_id, Rule::NetnsTeardownStall, "worker"),
        since: first.since,
        title: format!(
            "the kernel takes no network namespace down: {}, which does it for all, is stuck{}",
            task_label(&first.task),
            sleeps_in(first)
        ),
        pod: None,
        sandbox_id: None,
        netns: None,
        addresses: Vec::new(),
        holders: workers.iter().copied().map(stuck_holder).collect(),
        evidence: claims,
        unknown: vec![String::from("which netns wait: the source does not say")],
        advice: advice(view, &suspects),
        detail: Detail::default(),
    })
}

fn finding(view: &View<'_>, device: &str, waits: &Waiting) -> Finding {
    let long = waits.last.since(waits.first);
    let references = match waits.references {
        Some(1) => String::from(", 1 reference left"),
        Some(left) => format!(", {left} references left"),
        None => String::new(),
    };
    let mut claims = vec![evidence(
        format!("the kernel waits for {device} to become free{references}"),
        "kernel",
        waits.first,
    )];
    if waits.times > 1 {
        let claim = "the kernel repeats this about every ten seconds; this was the last time";
        claims.push(evidence(claim, "kernel", waits.last));
    }
    let (workers, _) = stuck(view);
    for blocked in &workers {
        let claim = format!(
            "{} takes netns down and is stuck{}",
            task_label(&blocked.task),
            sleeps_in(blocked)
        );
        claims.push(evidence(claim, "kernel", blocked.since));
    }
    Finding {
        rule: Rule::NetnsTeardownStall,
        severity: match long >= HOPELESS {
            true => Severity::Critical,
            false => Severity::Warning,
        },
        id: finding_id(
            &view.settings.boot_id,
            Rule::NetnsTeardownStall,
            &format!("device {device}"),
        ),
        since: waits.first.minus(EVERY),
        title: format!("the kernel hangs in netns teardown: device {device} is in use{references}"),
        pod: None,
        sandbox_id: None,
        netns: None,
        addresses: Vec::new(),
        holders: workers.into_iter().map(stuck_holder).collect(),
        evidence: claims,
        unknown: vec![
            format!("which netns {device} is in: the kernel's message does not say"),
            String::from("what still refers to it: the kernel's message does not say"),
        ],
        advice: advice(view, &rtnl::holders(view.model)),
        detail: Detail::default(),
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use event::{
        Event, What,
        finding::{Rule, Severity, State},
        testing::*,
    };

    const RULE: Rule = Rule::NetnsTeardownStall;

    fn waits(seconds: i64, references: i64) -> Event {
        let what = What::DeviceWaiting {
            device: String::from("eth0"),
            references: Some(references),
        };
        at(seconds, what)
    }

    #[test]
    fn a_device_that_cannot_be_removed_is_a_stall_while_the_kernel_says_so() {
        let mut node = Node::of(&[waits(100, 1)]);
        let (open, _) = node.only(100, RULE, State::Open);
        assert_eq!((open.severity, open.since), (Severity::Warning, s(90)));
        assert!(open.title.ends_with("1 reference left"), "{}", open.title);
        for seconds in (110..160).step_by(10) {
            node.tell(waits(seconds, 1));
            // The second time is news, the others are not.
            let told = node.of_rule(seconds, RULE);
            assert_eq!(told.len(), usize::from(seconds == 110), "{told:#?}");
        }
        node.tell(waits(160, 1));
        let (worse, _) = node.only(160, RULE, State::Updated);
        assert_eq!(worse.severity, Severity::Critical);
        assert_eq!(node.of_rule(194, RULE), []);
        node.only(195, RULE, State::Resolved);
    }

    #[test]
    fn a_worker_that_hangs_in_the_kernels_log_is_a_stall() {
        let hung = |seconds: i64, function: &str| {
            let mut event = stuck(seconds, 9, 1);
            if let What::TaskBlocked { stack, netns, .. } = &mut event.what {
                *stack = vec![String::from("rtnl_lock+0x1"), format!("{function}+0x2")];
                *netns = None;
            }
            event
        };
        let (open, _) = Node::of(&[hung(100, "cleanup_net")]).only(101, RULE, State::Open);
        assert_eq!((open.severity, open.since), (Severity::Warning, s(100)));
        assert_eq!(open.holders.len(), 1);
        let (worse, _) = Node::of(&[hung(100, "cleanup_net")]).only(160, RULE, State::Open);
        assert_eq!(worse.severity, Severity::Critical);
        assert_eq!(Node::of(&[hung(100, "vfs_read")]).of_rule(101, RULE), []);
    }

    #[test]
    fn a_namespace_that_is_seen_to_die_says_more() {
        let story = [created(1, 100), dying(2, 100), waits(20, 1)];
        let (open, _) = Node::of(&story).only(21, RULE, State::Open);
        assert_eq!(open.netns.unwrap().id, ns(100));
    }
}
