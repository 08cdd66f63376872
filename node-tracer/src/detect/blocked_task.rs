//! blocked-task: a task in uninterruptible sleep for longer than the threshold.
//!
//! The source tells of it only then, so this rule judges nothing: it says what
//! the task waits for and what it keeps.

use super::{
    View, evidence, ghost_sandbox, is_routable, named, netns_of, release_advice, sleeps_in,
    stack_hint, stuck_holder, task_label,
};
use crate::{
    event::PodRef,
    finding::{Detail, Finding, Rule, Severity, finding_id},
    model::{pods::Standing, task::Blocked},
};

/// One finding a task.
pub(crate) fn detect(view: &View<'_>) -> Vec<Finding> {
    view.model
        .blocked
        .iter()
        .map(|blocked| finding(view, blocked))
        .collect()
}

fn finding(view: &View<'_>, blocked: &Blocked) -> Finding {
    let Blocked {
        task,
        since,
        found,
        netns,
        ..
    } = blocked;
    let entry = netns.and_then(|netns| view.model.netns.get(netns));
    // The host's own namespace is nothing that a task could keep.
    let entry = entry.filter(|entry| !entry.host);
    let by_cgroup = task.pod_uid.as_ref().map(|uid| {
        let told = entry.and_then(|entry| entry.sandbox.pod.as_ref());
        let told = told.filter(|pod| pod.uid.as_ref() == Some(uid));
        let bare = || PodRef {
            uid: Some(uid.clone()),
            ..PodRef::default()
        };
        named(view.model, &told.cloned().unwrap_or_else(bare))
    });
    let pod = by_cgroup.or_else(|| super::pod_of(view.model, entry?));
    let addresses: Vec<_> = entry
        .into_iter()
        .flat_map(|entry| &entry.addresses)
        .map(|held| held.address.address)
        .filter(|address| is_routable(*address))
        .collect();

    let of_pod = pod
        .as_ref()
        .map(|pod| format!(" of {}", pod.label()))
        .unwrap_or_default();
    let title = format!(
        "{}{of_pod} is stuck in uninterruptible sleep{}",
        task_label(task),
        sleeps_in(blocked),
    );
    let mut claims = vec![evidence(
        format!(
            "task {} is in uninterruptible sleep{}",
            task.tid,
            sleeps_in(blocked)
        ),
        "kernel",
        *since,
    )];
    if let Some(hint) = stack_hint::hint(&blocked.stack, blocked.wchan.as_deref()) {
        claims.push(evidence(
            format!("by its stack it {}", hint.waits),
            "kernel",
            *since,
        ));
    }
    if let Some(uid) = &task.pod_uid {
        claims.push(evidence(
            format!("its cgroup is of pod {uid}"),
            "kernel",
            *since,
        ));
    }
    let mut advice = release_advice(blocked);
    if let Some(entry) = entry {
        claims.push(evidence(
            format!("it keeps netns {}", entry.id.inode),
            "kernel",
            *since,
        ));
        // What is gone cannot be deleted any more.
        let its = task.pod_uid.is_none() || task.pod_uid.as_deref() == entry.sandbox.uid();
        if !(its && ghost_sandbox::gone(view, entry).is_some()) {
            advice.push(String::from(
                "do not force-delete its pod: the pod's address would be given to another while \
                 this task still keeps it",
            ));
        }
    }
    let mut unknown = vec![format!(
        "whether a SIGKILL is pending (SigPnd in /proc/{}/status)",
        task.tid
    )];
    if *found {
        unknown.push(String::from(
            "since when it sleeps: it did when it was first seen",
        ));
    }
    if blocked.stack.is_empty() {
        unknown.push(String::from("its kernel stack: it could not be read"));
    }
    let standing = entry.map(|entry| entry.sandbox.standing);
    if pod.is_some() && standing == Some(Standing::Unknown) {
        unknown.push(String::from(
            "whether its pod still exists: no pod list tells",
        ));
    }
    let start = task.start_ticks.unwrap_or_default();
    Finding {
        rule: Rule::BlockedTask,
        severity: Severity::Warning,
        id: finding_id(
            &view.settings.boot_id,
            Rule::BlockedTask,
            &format!("{}/{start}", task.tid),
        ),
        since: *since,
        title,
        pod,
        sandbox_id: entry.and_then(|entry| entry.sandbox.id.clone()),
        netns: entry.map(netns_of),
        addresses,
        holders: vec![stuck_holder(blocked)],
        evidence: claims,
        unknown,
        advice,
        detail: Detail::default(),
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        event::{Task, What},
        finding::{Holder, Rule, Severity, State},
        model::story::*,
    };

    #[test]
    fn a_pod_that_is_gone_need_not_be_kept_from_deletion() {
        let warned = |story: &[crate::event::Event]| {
            let (open, _) = Node::of(story).only(70, Rule::BlockedTask, State::Open);
            open.advice
                .iter()
                .any(|advice| advice.contains("force-delete"))
        };
        let story = ghost_story();
        assert!(!warned(&story));
        let listed: Vec<_> = story
            .into_iter()
            .filter(|event| event.time != s(60))
            .collect();
        assert!(warned(&listed));
    }

    #[test]
    fn a_stuck_task_is_told_with_what_it_keeps_until_it_goes_on() {
        let mut node = Node::of(&[created(1, 100), added(2, 100, 5), stuck(3, 9, 100)]);
        let (open, _) = node.only(10, Rule::BlockedTask, State::Open);
        assert_eq!(open.severity, Severity::Warning);
        assert_eq!((open.since, open.addresses), (s(3), vec![ip(5)]));
        assert_eq!(open.netns.unwrap().id, ns(100));
        assert_eq!(open.pod.unwrap().uid.as_deref(), Some(OLD));
        assert!(open.title.contains("request_wait_answer"), "{}", open.title);
        assert!(
            open.advice[0].contains("/proc/9/mountinfo"),
            "{:?}",
            open.advice
        );
        assert!(matches!(
            &open.holders[0],
            Holder::Task {
                pid: 9,
                state: Some('D'),
                ..
            }
        ));
        assert_eq!(node.tick(1_000), [], "time alone changes nothing");
        node.tell(unstuck(1_001, 9));
        let (resolved, _) = node.only(1_002, Rule::BlockedTask, State::Resolved);
        assert_eq!(resolved.id, open.id);
    }

    #[test]
    fn a_kernel_thread_of_the_host_is_told_and_keeps_nothing() {
        let mut event = stuck(3, 9, 1);
        if let What::TaskBlocked { task, .. } = &mut event.what {
            *task = Task {
                pid: 9,
                tid: 9,
                comm: "kworker/u8:1".into(),
                ..Task::default()
            };
        }
        let mut node = Node::of(&[host(0), added(1, 1, 99), event]);
        let (open, _) = node.only(10, Rule::BlockedTask, State::Open);
        assert_eq!((open.netns, open.pod, open.addresses), (None, None, vec![]));
    }
}
