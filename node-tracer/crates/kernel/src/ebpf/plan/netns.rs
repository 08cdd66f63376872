//! The ladders of a network namespace's life: created, last reference gone,
//! destroyed.

use super::ladder::{Step, attach, notified, step, walk};
use super::needs::{address, fentry, fexit, kprobe, kretprobe, members, raw_tp, tp_btf};
use super::{Attach, Obstacle};
use crate::ebpf::facts::Facts;

// A network namespace was created.

pub(super) fn created_fentry(facts: &Facts) -> Result<Step, Obstacle> {
    let copy = fexit(facts, "copy_net_ns", 3)?;
    members!(facts, net_inum)?;
    step(vec![attach("netns_created_fexit", copy)], &[])
}

pub(super) fn created_kprobe(facts: &Facts) -> Result<Step, Obstacle> {
    let entry = kprobe(facts, "copy_net_ns")?;
    let ret = kretprobe(facts, "copy_net_ns")?;
    members!(facts, net_inum)?;
    step(
        vec![
            attach("netns_create_kprobe", entry),
            attach("netns_created_kretprobe", ret),
        ],
        &[],
    )
}

/// A new namespace's loopback device goes through the notifiers; the task that
/// made it is then found in it. All this costs other tasks nothing.
pub(super) fn created_notifier(facts: &Facts) -> Result<Step, Obstacle> {
    let notified = notified(facts, "inetdev_event", facts.inetdev_event)?;
    let exec = tp_btf(facts, "sched_process_exec")?;
    let exit = tp_btf(facts, "sched_process_exit")?;
    let newtask = created_newtask(facts)?;
    members!(facts, task_pid, task_nsproxy, nsproxy_net_ns, net_inum)?;
    let mut programs = vec![
        notified,
        attach("netns_settled_exec", exec),
        attach("netns_settled_exit", exit),
        attach("netns_last_exit", exit),
        newtask,
    ];
    // A task that goes back at once leaves its namespace to the walk.
    match walk(facts) {
        Ok(walk) => {
            programs.extend(walk);
            step(programs, &[LEFT_BEFORE_WALK])
        }
        Err(_) => step(programs, &[LEFT_WITHOUT_WALK]),
    }
}

const LEFT_BEFORE_WALK: &str = "very short-lived namespaces";
const LEFT_WITHOUT_WALK: &str = "a namespace made and left within the same system-call sequence \
     (containerd, CNI libraries) is seen only by comparison";

/// Every system call on the node passes the program, so this is only for
/// kernels that do not show their notifiers.
pub(super) fn created_sys_exit(facts: &Facts) -> Result<Step, Obstacle> {
    let unshare = tp_btf(facts, "sys_exit")?;
    let newtask = created_newtask(facts)?;
    members!(
        facts,
        regs_syscall,
        regs_arg0,
        task_nsproxy,
        nsproxy_net_ns,
        net_inum,
    )?;
    step(
        vec![attach("netns_created_sys_exit", unshare), newtask],
        &[
            "costs every system call about 0.1 us",
            "namespaces made by 32-bit callers of unshare",
        ],
    )
}

/// `clone` makes the namespace in the parent and leaves it to the child.
fn created_newtask(facts: &Facts) -> Result<Attach, Obstacle> {
    let newtask = tp_btf(facts, "task_newtask")?;
    Ok(attach("netns_created_newtask", newtask))
}

pub(super) fn created_comparison(_: &Facts) -> Result<Step, Obstacle> {
    step(
        Vec::new(),
        &[
            "namespaces that begin and end between two comparisons",
            "which task created a namespace",
        ],
    )
}

// The last reference to a namespace is gone.

pub(super) fn dying_fentry(facts: &Facts) -> Result<Step, Obstacle> {
    // The mount and fd paths have the put inlined: both hooks or neither.
    let put = fentry(facts, "__put_net")?;
    let nsfs = fentry(facts, "netns_put")?;
    members!(facts, net_inum, net_ns_common, net_refs)?;
    step(
        vec![
            attach("netns_put_fentry", put),
            attach("nsfs_put_fentry", nsfs),
        ],
        &[],
    )
}

pub(super) fn dying_kprobe(facts: &Facts) -> Result<Step, Obstacle> {
    let put = kprobe(facts, "__put_net")?;
    let nsfs = kprobe(facts, "netns_put")?;
    members!(facts, net_inum, net_ns_common, net_refs)?;
    step(
        vec![
            attach("netns_put_kprobe", put),
            attach("nsfs_put_kprobe", nsfs),
        ],
        &[],
    )
}

/// The work that takes namespaces down is queued, begins and ends; which
/// namespaces it was for, a walk tells.
fn cleanup(facts: &Facts) -> Result<Vec<Attach>, Obstacle> {
    let queued = tp_btf(facts, "workqueue_queue_work")?;
    let started = tp_btf(facts, "workqueue_execute_start")?;
    // The verifier does not take this one's function argument with types.
    let ended = raw_tp(facts, "workqueue_execute_end")?;
    members!(facts, work_func)?;
    address(facts, "cleanup_net", facts.cleanup_net)?;
    let mut programs = vec![
        attach("cleanup_queued", queued),
        attach("cleanup_started", started),
        attach("cleanup_ended", ended),
    ];
    programs.extend(walk(facts)?);
    Ok(programs)
}

pub(super) fn dying_tp_btf(facts: &Facts) -> Result<Step, Obstacle> {
    let mut step = step(cleanup(facts)?, &["which task let go last"])?;
    // Until it is taken off the list, only the count tells a dying one.
    if members!(facts, net_refs).is_err() {
        step.unknown
            .push("a last reference that goes while other namespaces are taken down, until then");
    }
    Ok(step)
}

pub(super) fn dying_comparison(_: &Facts) -> Result<Step, Obstacle> {
    step(
        Vec::new(),
        &[
            "when exactly the last reference went, and by which task",
            "a last reference that goes while the namespace is still being taken down",
        ],
    )
}

// A namespace is destroyed.

pub(super) fn destroyed_fentry(facts: &Facts) -> Result<Step, Obstacle> {
    let exit = fentry(facts, "sysctl_net_exit")?;
    members!(facts, net_inum)?;
    step(vec![attach("netns_destroyed_fentry", exit)], &[])
}

pub(super) fn destroyed_kprobe(facts: &Facts) -> Result<Step, Obstacle> {
    let exit = kprobe(facts, "sysctl_net_exit")?;
    members!(facts, net_inum)?;
    step(vec![attach("netns_destroyed_kprobe", exit)], &[])
}

pub(super) fn destroyed_tp_btf(facts: &Facts) -> Result<Step, Obstacle> {
    step(
        cleanup(facts)?,
        &["when exactly each of several namespaces that end at once was destroyed"],
    )
}

pub(super) fn destroyed_comparison(_: &Facts) -> Result<Step, Obstacle> {
    step(
        Vec::new(),
        &[
            "when exactly a namespace was destroyed",
            "whether a namespace without references is still being taken down",
        ],
    )
}
