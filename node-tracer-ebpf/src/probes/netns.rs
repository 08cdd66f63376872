//! Network namespaces: made, last reference gone, destroyed.
//!
//! Three rungs for each signal. Where functions can be hooked (fentry, kprobe)
//! each program says exactly which namespace it is about. Where they cannot
//! (`tp_btf`), nothing names a namespace:
//!
//! * Creation is announced by its loopback device (`notifier.rs`). The task is
//!   written down with the namespace it is still in; once it is found in
//!   another (its next device, exec or exit) that is the new one. A task that
//!   makes a namespace, mounts it and goes back leaves it to the walk. Kernels
//!   that let other tasks in between (7.2) pass over a program that runs
//!   already, so what ends alone in a namespace names it once more. All this
//!   costs other tasks nothing; watching `unshare` return would cost every
//!   system call on the node, and is done only where there is no notifier
//!   tracepoint.
//! * The end is announced by the work item `cleanup_net`; the tracer then
//!   compares the kernel's own list (`walk.rs`).

use core::ffi::c_void;

use aya_ebpf::{
    helpers::bpf_get_current_pid_tgid,
    macros::{btf_tracepoint, fentry, fexit, kprobe, kretprobe, map, raw_tracepoint},
    maps::LruHashMap,
    programs::{
        BtfTracePointContext, FEntryContext, FExitContext, ProbeContext, RawTracePointContext,
        RetProbeContext,
    },
};
use node_tracer_ebpf::{
    layout::ABSENT,
    record::{NetnsRecord, TaskRecord, kind},
};

use super::budget::{tells_change_by, tells_namespace};
use crate::kernel::{
    CLONE_NEWNET, current, describe_net, describe_task, direct, emit, header, is_kernel_thread,
    load, net_of_task, offset, setting,
};

/// The argument of a function that a kretprobe will want, by thread. A return
/// that is missed leaves its entry behind, so the oldest make room.
#[map]
pub(crate) static ARGUMENTS: LruHashMap<u64, u64> = LruHashMap::with_max_entries(8192, 0);

#[inline(always)]
fn report(kind: u32, net: u64) {
    let net = describe_net(net);
    if tells_namespace(&net) {
        emit(&NetnsRecord {
            header: header(kind),
            net,
            task: describe_task(current()),
        });
    }
}

/// `struct net *` of a kernel function's result, unless it is an error.
#[inline(always)]
fn ok_pointer(value: u64) -> Option<u64> {
    const MAX_ERRNO: u64 = 4095;
    (value != 0 && value < u64::MAX - MAX_ERRNO).then_some(value)
}

#[inline(always)]
fn reference_dropped(ns_common: u64) {
    // `netns_put` serves files and mounts and has the final put inlined, so
    // `__put_net` is not called: the last reference shows as a count of one.
    // References to the initial namespace are not counted since 6.19 (it is
    // always one), and whoever looks at /proc/self/ns/net drops one.
    let net = ns_common - u64::from(offset!(net_ns_common));
    if load::<u32>(net, offset!(net_refs)) == 1
        && load::<u32>(net, offset!(net_inum)) != setting!(host_netns)
    {
        report(kind::NETNS_DYING, net);
    }
}

// --- fentry, fexit

#[fexit(function = "copy_net_ns")]
fn netns_created_fexit(ctx: FExitContext) -> i32 {
    // Also called without CLONE_NEWNET, and then hands back the old one.
    if ctx.arg::<u64>(0) & CLONE_NEWNET != 0 {
        // The return slot lies behind the three arguments; bpf_get_func_ret
        // would need 5.17.
        if let Some(net) = ok_pointer(ctx.arg(3)) {
            report(kind::NETNS_CREATED, net);
        }
    }
    0
}

#[fentry(function = "__put_net")]
fn netns_put_fentry(ctx: FEntryContext) -> i32 {
    report(kind::NETNS_DYING, ctx.arg(0));
    0
}

#[fentry(function = "netns_put")]
fn nsfs_put_fentry(ctx: FEntryContext) -> i32 {
    reference_dropped(ctx.arg(0));
    0
}

#[fentry(function = "sysctl_net_exit")]
fn netns_destroyed_fentry(ctx: FEntryContext) -> i32 {
    report(kind::NETNS_DESTROYED, ctx.arg(0));
    0
}

// --- kprobe, kretprobe

#[kprobe]
fn netns_create_kprobe(ctx: ProbeContext) -> u32 {
    if ctx.arg::<u64>(0).unwrap_or(0) & CLONE_NEWNET != 0 {
        let _ = ARGUMENTS.insert(bpf_get_current_pid_tgid(), 1, 0);
    } else {
        // What a missed return has left is of another call.
        let _ = ARGUMENTS.remove(bpf_get_current_pid_tgid());
    }
    0
}

#[kretprobe]
fn netns_created_kretprobe(ctx: RetProbeContext) -> u32 {
    if ARGUMENTS.remove(bpf_get_current_pid_tgid()).is_ok()
        && let Some(net) = ok_pointer(ctx.ret())
    {
        report(kind::NETNS_CREATED, net);
    }
    0
}

#[kprobe]
fn netns_put_kprobe(ctx: ProbeContext) -> u32 {
    report(kind::NETNS_DYING, ctx.arg(0).unwrap_or(0));
    0
}

#[kprobe]
fn nsfs_put_kprobe(ctx: ProbeContext) -> u32 {
    reference_dropped(ctx.arg(0).unwrap_or(0));
    0
}

#[kprobe]
fn netns_destroyed_kprobe(ctx: ProbeContext) -> u32 {
    report(kind::NETNS_DESTROYED, ctx.arg(0).unwrap_or(0));
    0
}

// --- tracepoints

/// Tasks that may be making a namespace: thread ID to the `struct net` that
/// they were in. LRU: most entries are of tasks that only changed a device.
#[map]
static MAKING: LruHashMap<u32, u64> = LruHashMap::with_max_entries(4096, 0);

/// Reports the namespace that `task` is in if it was in another before.
/// Returns whether the task was written down.
#[inline(always)]
fn settle(tid: u32, net: u64) -> bool {
    let Some(before) = MAKING.get_ptr_mut(tid) else {
        return false;
    };
    // SAFETY: the map's own value, of this very task.
    unsafe {
        if net != 0 && *before != net {
            *before = net;
            report(kind::NETNS_CREATED, net);
        }
    }
    true
}

/// A device was made or changed, in the task that did it.
#[inline(always)]
pub(super) fn device_changed() {
    let task = current();
    // The kernel's own threads make no namespace; they take the devices of each
    // one that ends away.
    if is_kernel_thread(task) || !tells_change_by(task) {
        return;
    }
    let tid = load(task, offset!(task_pid));
    let net = net_of_task(task);
    if !settle(tid, net) {
        let _ = MAKING.insert(tid, net, 0);
    }
    emit(&TaskRecord {
        header: header(kind::DEVICE_CHANGED),
        task: describe_task(task),
    });
}

#[btf_tracepoint(function = "sched_process_exec")]
fn netns_settled_exec(ctx: BtfTracePointContext) -> i32 {
    let task: u64 = ctx.arg(0);
    settle(load(task, offset!(task_pid)), net_of_task(task));
    0
}

/// The task still has its namespaces here.
#[btf_tracepoint(function = "sched_process_exit")]
fn netns_settled_exit(ctx: BtfTracePointContext) -> i32 {
    let task: u64 = ctx.arg(0);
    let tid = load(task, offset!(task_pid));
    if settle(tid, net_of_task(task)) {
        let _ = MAKING.remove(tid);
    }
    0
}

/// The last of those that share its namespaces. Of one that is known already
/// this says nothing new. A program of its own: where the other is passed
/// over, this one is not.
#[btf_tracepoint(function = "sched_process_exit")]
fn netns_last_exit(ctx: BtfTracePointContext) -> i32 {
    let task: u64 = ctx.arg(0);
    if offset!(nsproxy_count) != ABSENT
        && load::<u32>(load(task, offset!(task_nsproxy)), offset!(nsproxy_count)) == 1
    {
        report(kind::NETNS_CREATED, net_of_task(task));
    }
    0
}

/// Every system call passes here; see above for when.
#[btf_tracepoint(function = "sys_exit")]
fn netns_created_sys_exit(ctx: BtfTracePointContext) -> i32 {
    let regs: *const c_void = ctx.arg(0);
    // SAFETY: the context's own pointer.
    if unsafe { direct(regs, offset!(regs_syscall)) } != setting!(sys_unshare) {
        return 0;
    }
    if ctx.arg::<i64>(1) == 0 && load::<u64>(regs as u64, offset!(regs_arg0)) & CLONE_NEWNET != 0 {
        report(kind::NETNS_CREATED, net_of_task(current()));
    }
    0
}

/// `clone` and `clone3`: the child already has its namespaces here.
#[btf_tracepoint(function = "task_newtask")]
fn netns_created_newtask(ctx: BtfTracePointContext) -> i32 {
    if ctx.arg::<u64>(1) & CLONE_NEWNET != 0 {
        report(kind::NETNS_CREATED, net_of_task(ctx.arg(0)));
    }
    0
}

#[inline(always)]
fn cleanup(kind: u32) {
    emit(&TaskRecord {
        header: header(kind),
        task: describe_task(current()),
    });
}

#[btf_tracepoint(function = "workqueue_queue_work")]
fn cleanup_queued(ctx: BtfTracePointContext) -> i32 {
    if load::<u64>(ctx.arg(2), offset!(work_func)) == setting!(cleanup_net) {
        cleanup(kind::CLEANUP_QUEUED);
    }
    0
}

#[btf_tracepoint(function = "workqueue_execute_start")]
fn cleanup_started(ctx: BtfTracePointContext) -> i32 {
    if load::<u64>(ctx.arg(0), offset!(work_func)) == setting!(cleanup_net) {
        cleanup(kind::CLEANUP_STARTED);
    }
    0
}

/// As a raw tracepoint: the verifier refuses the function argument by BTF.
#[raw_tracepoint(tracepoint = "workqueue_execute_end")]
fn cleanup_ended(ctx: RawTracePointContext) -> i32 {
    if ctx.arg::<u64>(1) == setting!(cleanup_net) {
        cleanup(kind::CLEANUP_ENDED);
    }
    0
}
