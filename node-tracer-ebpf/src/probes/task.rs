//! Tasks in uninterruptible sleep.
//!
//! A task that goes to sleep in state D is written down with the time; one
//! that runs again is struck out. The tracer looks at the table when the oldest
//! entry may have passed the threshold, and takes stacks then (`task_rows`):
//! nothing is sent, and no stack is taken, for the short sleeps of ordinary
//! disk I/O.
//!
//! The table has room for the kernel's threads and the host's own programs
//! whatever others do: each other user and each container is one of a crowd
//! that may have so many entries and no more, and so are all users together and
//! all containers. That one of them was left out is counted, and has the tracer
//! look at all tasks.

use core::{ffi::c_void, hint::black_box};

use aya_ebpf::{
    bindings::{seq_file, task_struct},
    helpers::{bpf_get_task_stack, bpf_seq_write},
    macros::{btf_tracepoint, map, raw_tracepoint},
    maps::{Array, HashMap, PerCpuArray},
    programs::{BtfTracePointContext, RawTracePointContext},
};
use node_tracer_ebpf::{
    layout::ABSENT,
    record::{
        Blocked, CROWDS as MAX_CROWDS, MAX_BLOCKED, MAX_OF_CROWD, MAX_OF_CROWDS, Owner,
        STACK_FRAMES, TaskRow, UnblockedRecord, WalkRequest, all_crowds, kind, lost,
    },
};

use crate::kernel::{
    TASK_UNINTERRUPTIBLE, add, count_lost, describe_task, direct, emit, header, is_kernel_thread,
    load, net_of_task, now, offset, owner_of_task, setting,
};

/// By thread ID. On a full table the stall is counted as lost.
#[map]
static BLOCKED: HashMap<u32, Blocked> = HashMap::with_max_entries(MAX_BLOCKED, 0);

/// How many entries [`BLOCKED`] has. While there are none, which is nearly all
/// the time, no switch need look at the task that is about to run.
#[map]
static ASLEEP: Array<i64> = Array::with_max_entries(1, BPF_F_MMAPABLE);
const BPF_F_MMAPABLE: u32 = 1 << 10;

/// Entries of each crowd; at the beginning of each half those of all its crowds.
#[map]
static CROWDS: Array<i64> = Array::with_max_entries(MAX_CROWDS, BPF_F_MMAPABLE);

#[map]
pub(crate) static WALK_REQUEST: Array<WalkRequest> = Array::with_max_entries(1, 0);

/// A power of two that holds all of a stack's frames: see [`task_rows`].
const STACK_ROOM: usize = STACK_FRAMES.next_power_of_two();

#[map]
static STACK: PerCpuArray<[u64; STACK_ROOM]> = PerCpuArray::with_max_entries(1, 0);

#[inline(always)]
fn is_blocked(state: u32) -> bool {
    // A test of the bit, not equality: vfork and freezable sleeps add others.
    state & TASK_UNINTERRUPTIBLE != 0 && state & setting!(state_ignore) == 0
}

/// Not inlined, like [`sleeps_no_more`]: what nearly every switch does is short
/// and needs no stack, so the kernel gives it none of its own.
#[inline(never)]
fn goes_to_sleep(tid: u32, task: u64) {
    let owner = who_sleeps(task);
    let mut entry = Blocked {
        since: now(),
        reported: 0,
        crowd: owner.crowd(setting!(crowd_seed)),
        owner,
    };
    let room = has_room(entry.crowd);
    if room && begins(tid, &entry) {
        return;
    }
    // The entry is there, of a sleep whose end was not seen; it stays where it
    // is counted.
    if let Some(old) = BLOCKED.get_ptr(tid) {
        let own = entry.crowd;
        // SAFETY: the map's own value.
        entry.crowd = unsafe { (*old).crowd };
        if BLOCKED.insert(tid, entry, BPF_EXIST).is_ok() {
            return;
        }
        // The tracer has struck it out just now.
        entry.crowd = own;
        if room && begins(tid, &entry) {
            return;
        }
    }
    count_lost(match room {
        true => lost::BLOCKED_FULL,
        false => lost::CROWD_FULL,
    });
}

/// Who answers for a task that sleeps.
#[inline(always)]
fn who_sleeps(task: u64) -> Owner {
    if is_kernel_thread(task) {
        return Owner::HOST;
    }
    owner_of_task(task)
}

#[inline(always)]
fn has_room(crowd: u32) -> bool {
    // SAFETY: the map's own values; one aligned load each.
    let entries = |of: u32| {
        CROWDS
            .get_ptr(of)
            // SAFETY: the map's own value.
            .map_or(0, |entries| unsafe { entries.read_volatile() })
    };
    crowd == 0 || entries(crowd) < MAX_OF_CROWD && entries(all_crowds(crowd)) < MAX_OF_CROWDS
}

/// Writes down a task that has no entry.
#[inline(always)]
fn begins(tid: u32, entry: &Blocked) -> bool {
    let inserted = BLOCKED.insert(tid, entry, BPF_NOEXIST).is_ok();
    if inserted {
        // It cannot run elsewhere before this switch is over, so nobody misses
        // the count.
        count(entry.crowd, 1);
    }
    inserted
}

const BPF_NOEXIST: u64 = 1;
const BPF_EXIST: u64 = 2;

/// So many entries more, or fewer.
#[inline(always)]
fn count(crowd: u32, entries: i64) {
    let change = |number: Option<*mut i64>| {
        if let Some(number) = number {
            // SAFETY: the map's own value, which is aligned and changed by
            // atomic operations only.
            unsafe { add(number, entries) };
        }
    };
    change(ASLEEP.get_ptr_mut(0));
    if crowd != 0 {
        change(CROWDS.get_ptr_mut(crowd));
        change(CROWDS.get_ptr_mut(all_crowds(crowd)));
    }
}

#[inline(always)]
fn nobody_sleeps() -> bool {
    // SAFETY: as above; one aligned load.
    ASLEEP
        .get_ptr(0)
        .is_some_and(|asleep| unsafe { asleep.read_volatile() } == 0)
}

#[inline(never)]
fn sleeps_no_more(tid: u32, task: u64) {
    let Some(entry) = BLOCKED.get_ptr(tid) else {
        return;
    };
    // SAFETY: the map's own value.
    let Blocked {
        since,
        reported,
        crowd,
        owner,
    } = unsafe { *entry };
    // Struck out by the tracer, which has told the end then; or busy, and this
    // comes again with the next switch.
    if BLOCKED.remove(tid).is_err() {
        return;
    }
    count(crowd, -1);
    if reported != 0 || now() - since >= setting!(stall_threshold_ns) {
        emit(&UnblockedRecord {
            header: header(kind::TASK_UNBLOCKED),
            since,
            task: describe_task(task),
            owner,
        });
    }
}

/// The hottest of the programs: every switch on every CPU.
///
/// It sees both ends of a sleep, so that nothing need be attached to wake-ups,
/// of which there are as many: of the task that is about to run, the scheduler
/// remembers whether its last sleep was in state D. (It counts these for the
/// load average; the bit stays until the next sleep.) So no table is asked
/// about the many others; and while nobody sleeps, not even the task, whose
/// memory another CPU has changed last.
#[btf_tracepoint(function = "sched_switch")]
fn task_switch(ctx: BtfTracePointContext) -> i32 {
    // (preempt, prev, next, prev_state); the last since 5.18.
    let prev: *const c_void = ctx.arg(1);
    let state = if setting!(switch_has_state) != 0 {
        ctx.arg::<u32>(3)
    } else {
        // SAFETY: the context's own pointer.
        unsafe { direct(prev, offset!(task_state)) }
    };
    // A preempted task stays runnable, whatever state it was about to enter.
    if is_blocked(state) && ctx.arg::<u64>(0) & 0xff == 0 {
        // SAFETY: the context's own pointer.
        goes_to_sleep(unsafe { direct(prev, offset!(task_pid)) }, prev as u64);
    }
    if nobody_sleeps() {
        return 0;
    }
    let next: *const c_void = ctx.arg(2);
    // SAFETY: the context's own pointer.
    let last_sleep = unsafe { direct(next, offset!(task_contributes)) };
    if last_sleep & setting!(contributes_mask) != 0 {
        // SAFETY: as above.
        sleeps_no_more(unsafe { direct(next, offset!(task_pid)) }, next as u64);
    }
    0
}

#[raw_tracepoint(tracepoint = "sched_switch")]
fn task_switch_raw(ctx: RawTracePointContext) -> i32 {
    let prev: u64 = ctx.arg(1);
    let state = if setting!(switch_has_state) != 0 {
        ctx.arg::<u32>(3)
    } else {
        load(prev, offset!(task_state))
    };
    if is_blocked(state) && ctx.arg::<u64>(0) & 0xff == 0 {
        goes_to_sleep(load(prev, offset!(task_pid)), prev);
    }
    0
}

/// Where the scheduler's bit cannot be read in one instruction, the end of a
/// sleep is seen here: at `sched_waking` the task still has the state that it
/// sleeps in, so that no table need be asked about the many others.
#[raw_tracepoint(tracepoint = "sched_waking")]
fn task_waking_raw(ctx: RawTracePointContext) -> i32 {
    let task: u64 = ctx.arg(0);
    if load::<u32>(task, offset!(task_state)) & TASK_UNINTERRUPTIBLE != 0 {
        sleeps_no_more(load(task, offset!(task_pid)), task);
    }
    0
}

/// `struct bpf_iter_meta`, stable since 5.8.
#[repr(C)]
pub(super) struct IterMeta {
    seq: *mut seq_file,
    session_id: u64,
    pub(super) seq_num: u64,
}

/// `struct bpf_iter__task`
#[repr(C)]
pub(super) struct IterTask {
    meta: *const IterMeta,
    pub(super) task: *mut task_struct,
}

/// Every thread of the node, with the stack of those in state D. A zombie
/// process's living threads are among them; nothing here can block.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
extern "C" fn task_rows(ctx: *mut c_void) -> i32 {
    // SAFETY: the kernel hands a bpf_iter__task to this section's programs.
    let (meta, task) = unsafe {
        let ctx = ctx.cast::<IterTask>();
        ((*ctx).meta, (*ctx).task)
    };
    if task.is_null() {
        return 0;
    }
    let Some(request) = WALK_REQUEST.get(0) else {
        return 0;
    };
    let address = task as u64;
    let state: u32 = load(address, offset!(task_state));
    let blocked = is_blocked(state);
    let net = net_of_task(address);
    if request.tasks_outside_only != 0 && net == request.init_net && !blocked {
        return 0;
    }
    let Some(stack) = STACK.get_ptr_mut(0) else {
        return 0;
    };
    let mut row = TaskRow {
        task: describe_task(address),
        net_address: net,
        net_cookie: load(net, offset!(net_cookie)),
        exec_start: load(address, offset!(task_exec_start)),
        state,
        flags: if offset!(task_flags) == ABSENT {
            0
        } else {
            load(address, offset!(task_flags))
        },
        stack_len: 0,
        cpu: if offset!(task_cpu) == ABSENT {
            u32::MAX
        } else {
            load(address, offset!(task_cpu))
        },
        owner: Owner::HOST,
    };
    if blocked {
        row.owner = who_sleeps(address);
    }
    const STACK_BYTES: u32 = (STACK_FRAMES * 8) as u32;
    if blocked {
        // SAFETY: the buffer is as long as said; the task is held by the
        // iterator.
        let len = unsafe { bpf_get_task_stack(task, stack.cast(), STACK_BYTES, 0) };
        if len > 0 && len <= i64::from(STACK_BYTES) {
            row.stack_len = len as u32;
        }
    }
    // SAFETY: the seq_file of this run; lengths are those of the buffers. A
    // full buffer makes the kernel come back to this task.
    unsafe {
        let seq = (*meta).seq;
        bpf_seq_write(seq, (&raw const row).cast(), size_of::<TaskRow>() as u32);
        // Older verifiers forget the length's range on its way
        // through the row. A mask they understand; the compiler, which
        // remembers, is not to take it away.
        let len = black_box(row.stack_len) & (STACK_ROOM * 8 - 1) as u32;
        if len != 0 {
            bpf_seq_write(seq, stack.cast(), len);
        }
    }
    0
}
