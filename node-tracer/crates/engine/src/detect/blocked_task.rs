//! blocked-task: a task in uninterruptible sleep for longer than the threshold.
//!
//! The source tells of it only then, and the model leaves out who is not stuck,
//! so this rule judges only how much it matters: it says what the task waits
//! for, what it keeps, and whether SIGKILL would end it.
//!
//! Of one owner only the first few have a finding each; the others are one
//! ([`crowd`]).

use crate::{
    detect::{
        View, evidence,
        facts::{
            ghosts, rtnl,
            sigkill::{Sigkill, sigkill},
            stack_hint,
        },
        fitting, is_routable, named, netns_of, release_advice, sleeps_in, stuck_holder, task_label,
    },
    model::{pods::PodPresence, task::Blocked},
};
mod crowd;

use event::{
    PodRef,
    finding::{Detail, Finding, Rule, Severity, finding_id},
    sleep,
};

/// One finding a task, and one for many of one owner.
pub fn detect(view: &View<'_>) -> Vec<Finding> {
    let (singly, crowds) = crowd::divide(view);
    let singly = singly.into_iter().map(|blocked| finding(view, blocked));
    let crowds = crowds.iter().filter_map(|crowd| crowd.finding(view));
    singly.chain(crowds).collect()
}

/// The finding of one task.
pub(crate) fn finding(view: &View<'_>, blocked: &Blocked) -> Finding {
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
        .flat_map(|entry| entry.addresses.iter())
        .map(|held| held.address.address)
        .filter(|address| is_routable(*address))
        .take(crate::detect::facts::own::MAX_LISTED)
        .collect();

    let stuck = format!("is stuck in state D{}", sleeps_in(blocked));
    let named = pod
        .as_ref()
        .map(|pod| format!("{} of {} {stuck}", task_label(task), pod.label()));
    let bare = || format!("{} {stuck}", task_label(task));
    let title = named.map_or_else(bare, |named| fitting(named, bare));
    let mut claims = vec![evidence(
        format!("task {} is in state D{}", task.tid, sleeps_in(blocked)),
        "kernel",
        *since,
    )];
    if let Some(hint) = stack_hint::hint(&blocked.stack, blocked.wchan.as_deref()) {
        claims.push(evidence(
            format!("its stack says that it {}", hint.waits),
            "kernel",
            *since,
        ));
    }
    if let Some(uid) = &task.pod_uid {
        claims.push(evidence(
            format!("its cgroup is that of pod {uid}"),
            "kernel",
            *since,
        ));
    }
    let mut advice = Vec::new();
    if let Some(entry) = entry {
        claims.push(evidence(
            format!("it holds netns {} open", entry.id.inode),
            "kernel",
            *since,
        ));
        // What is gone cannot be deleted any more.
        let its = task.pod_uid.is_none() || task.pod_uid.as_deref() == entry.sandbox.uid();
        if !(its && ghosts::gone(view, entry).is_some()) {
            advice.push(String::from(
                "do not force-delete its pod: another pod can get the IP while this task still \
                 holds it",
            ));
        }
    }
    let mut unknown = Vec::new();
    match sigkill(blocked) {
        Sigkill::Ends(claim) | Sigkill::Not(claim) => {
            claims.push(evidence(claim, "kernel", blocked.seen));
        }
        Sigkill::Unknown(what) => unknown.push(what),
    }
    advice.extend(release_advice(blocked));
    if *found {
        unknown.push(String::from(
            "since when it is in state D: it was at the first look",
        ));
    }
    if blocked.stack.is_empty() {
        unknown.push(String::from("its kernel stack: it could not be read"));
    }
    if sleep::function(&blocked.stack, blocked.wchan.as_deref()).is_none() {
        unknown.push(String::from(
            "whether it waits for its vfork child, or is frozen: its stack could not be read",
        ));
    }
    let presence = entry.map(|entry| entry.sandbox.presence);
    if pod.is_some() && presence == Some(PodPresence::Unknown) {
        let why = view.model.pods.silence();
        unknown.push(format!("whether its pod still exists: {why}"));
    }
    let start = task.start_ticks.unwrap_or_default();
    Finding {
        rule: Rule::BlockedTask,
        severity: severity(blocked, pod.is_some() || entry.is_some()),
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
        detail: Detail {
            first_seen: *found,
            uid: task.uid,
            ..Detail::default()
        },
    }
}

/// Threads of the kernel that belong to a driver can be in state D for as long
/// as the machine runs. One counts if it is a pod's matter: by its namespace, or
/// as namespaces wait for it. Without its stack that is not known.
fn severity(blocked: &Blocked, is_pods: bool) -> Severity {
    let Blocked { task, stack, .. } = blocked;
    let apart = !stack.is_empty() && !rtnl::concerns_namespaces(stack);
    match task.kernel_thread && !is_pods && apart {
        true => Severity::Info,
        false => Severity::Warning,
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use event::{
        Task, What,
        finding::{Holder, Rule, Severity, State},
        testing::*,
    };

    #[test]
    fn a_pod_that_is_gone_need_not_be_kept_from_deletion() {
        let warned = |story: &[event::Event]| {
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
        assert!(!open.detail.first_seen, "it was seen to go to sleep");
        assert_eq!(open.netns.unwrap().id, ns(100));
        assert_eq!(open.pod.unwrap().uid.as_deref(), Some(OLD));
        assert!(open.title.contains("request_wait_answer"), "{}", open.title);
        assert!(
            open.advice
                .iter()
                .any(|step| step.starts_with("grep ' fuse' /proc/9/mountinfo")),
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

    /// The one finding on a stuck task that was changed so.
    fn told(change: impl FnOnce(&mut What)) -> event::finding::Finding {
        let mut event = stuck(3, 9, 1);
        change(&mut event.what);
        let mut node = Node::of(&[host(0), event]);
        node.only(10, Rule::BlockedTask, State::Open).0
    }

    #[test]
    fn what_sigkill_does_is_said_as_far_as_it_is_known() {
        let said = |pending: Option<bool>, kills: Option<bool>, function: &str| {
            let finding = told(|what| {
                if let What::TaskBlocked {
                    stack,
                    wchan,
                    killable,
                    sigkill_pending,
                    ..
                } = what
                {
                    *stack = vec![format!("{function}+0x1")];
                    *wchan = None;
                    (*killable, *sigkill_pending) = (kills, pending);
                }
            });
            let has = |text: &String| text.contains("SIGKILL");
            let claims: Vec<_> = finding.evidence.into_iter().map(|it| it.claim).collect();
            (claims.iter().any(has), finding.unknown.iter().any(has))
        };
        let (known, unknown) = ((true, false), (false, true));
        assert_eq!(said(Some(true), None, "folio_wait_bit_common"), known);
        assert_eq!(said(None, Some(false), "percpu_rwsem_wait"), known);
        assert_eq!(said(Some(false), None, "rpc_wait_bit_killable"), known);
        assert_eq!(said(None, None, "rpc_wait_bit_killable"), unknown);
        assert_eq!(said(Some(false), None, "folio_wait_bit_common"), unknown);
        assert_eq!(
            said(Some(false), Some(true), "folio_wait_bit_common"),
            known
        );
        let fuse = said(Some(false), Some(true), "request_wait_answer");
        assert_eq!(fuse, unknown, "it waits on if the daemon has the request");
    }

    #[test]
    fn a_drivers_thread_is_no_trouble_of_pods_unless_namespaces_wait_for_it() {
        let severity = |frames: &[&str]| {
            told(|what| {
                if let What::TaskBlocked { task, stack, .. } = what {
                    (task.kernel_thread, task.pod_uid) = (true, None);
                    *stack = frames.iter().map(|frame| format!("{frame}+0x1")).collect();
                }
            })
            .severity
        };
        assert_eq!(
            severity(&["msleep", "some_driver", "kthread"]),
            Severity::Info
        );
        let teardown = ["msleep", "netdev_run_todo", "cleanup_net", "kthread"];
        assert_eq!(severity(&teardown), Severity::Warning);
        let lock = ["mutex_lock", "linkwatch_event", "rtnl_lock", "kthread"];
        assert_eq!(severity(&lock), Severity::Warning);
        assert_eq!(
            severity(&[]),
            Severity::Warning,
            "where it is, is not known"
        );
        let process = told(|what| {
            if let What::TaskBlocked { task, .. } = what {
                task.pod_uid = None;
            }
        });
        assert_eq!(process.severity, Severity::Warning);
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
