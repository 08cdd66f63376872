//! CNI plugins: started, ended, and what they were given and answered.
//!
//! A plugin can be gone before anybody reads its /proc entry, and the CNI
//! variables lie anywhere in its environment. So each program's environment is
//! gone through as it is executed, string by string, and what starts with
//! `CNI_` is kept; a program without `CNI_COMMAND` is no plugin.
//!
//! Everybody can execute a program with such variables, as often as they like.
//! What cannot be a runtime's has a ring, a table and a budget of its own: it
//! displaces nothing that counts, and what is beyond the budget is counted for
//! each owner. Whom to trust the tracer decides, with what only it can see.

use core::{ffi::c_void, hint::black_box, ptr::read_volatile};

use aya_ebpf::{
    helpers::{bpf_loop, generated},
    macros::{btf_tracepoint, map},
    maps::{HashMap, LruHashMap, PerCpuArray, RingBuf},
    programs::BtfTracePointContext,
};
use aya_log_ebpf::warn;
use node_tracer_ebpf::record::{
    CALLS_A_SECOND, CNI_EXEC_FIXED, Calls, CniExecRecord, CniExitRecord, ENV_LEN, MAX_CALLERS,
    Owner, PATH_LEN, PIPE_LEN, Task, VAR_LEN, kind, lost, owner, pipe,
};

use super::{pipe::take, task::IterTask};
use crate::kernel::{
    EVENTS, add, count_lost, describe_task, header, is_home, load, load_text, offset, owner_of,
    setting,
};

/// Plugins that run: process ID to the time of their start.
#[map]
static CNI_RUNNING: HashMap<u32, u64> = HashMap::with_max_entries(4096, 0);

/// The same for untrusted callers, such as a container's program with CNI
/// variables. LRU, and apart, so that they crowd out each other only.
#[map]
static CNI_STRANGERS: LruHashMap<u32, u64> = LruHashMap::with_max_entries(1024, 0);

/// Records of untrusted callers. The tracer looks when it is awake anyway.
#[map]
static STRANGERS: RingBuf = RingBuf::with_byte_size(1 << 18, 0);
const BPF_RB_NO_WAKEUP: u64 = 1;

/// What untrusted callers did beyond their budget. Once it is full, those that
/// are not in it share the entry of [`owner::OTHERS`], which the tracer makes.
#[map]
static CALLERS: HashMap<Owner, Calls> = HashMap::with_max_entries(MAX_CALLERS, 0);
const BPF_NOEXIST: u64 = 1;
const SECOND: u64 = 1_000_000_000;

/// The record being put together, and as much room again: for one variable
/// beyond its end, and for a mask in place of a bound (see `executed`).
#[repr(C)]
struct Scratch {
    record: CniExecRecord,
    spill: [u8; ENV_LEN],
}

#[map]
static SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(1, 0);

/// Strings that are followed with `bpf_loop`, and without.
const MAX_STRINGS: u32 = 16384;
const MAX_STRINGS_BOUNDED: u32 = 256;
/// Bytes of a stranger's variables that are handed over.
const STRANGERS_ENV: u32 = 1024;
/// The end of a stranger's environment, in bytes: without a `CNI_` variable in
/// that, the rest is not gone through. Who calls a plugin as runtimes do puts
/// them behind all others; and a pod can have thousands, for each program that
/// it executes.
const STRANGERS_TAIL: u64 = 512;

const STOP: i64 = 1;
const GO_ON: i64 = 0;

/// Where the search stands.
#[repr(C)]
struct Search {
    /// The next string's address.
    cursor: u64,
    /// What was skipped begins here; 0: nothing was.
    skipped: u64,
    end: u64,
    /// Bytes kept so far.
    kept: u32,
    /// 1: the cursor stands inside a string.
    inside: u32,
    /// 1: `CNI_COMMAND` was seen.
    is_plugin: u32,
    /// 1: something was cut or left out.
    truncated: u32,
    /// 1: the environment could not be read.
    unreadable: u32,
    pad: u32,
}

impl Search {
    /// To the beginning of what was skipped.
    #[inline(always)]
    fn go_back(&mut self) {
        self.cursor = self.skipped;
        self.skipped = 0;
        self.inside = 0;
    }
}

#[inline(always)]
fn look_at_string(search: &mut Search) -> i64 {
    if search.cursor >= search.end {
        return STOP;
    }
    let Some(scratch) = SCRATCH.get_ptr_mut(0) else {
        return STOP;
    };
    let kept = black_box(search.kept as usize & (2 * ENV_LEN - 1));
    if kept > ENV_LEN - 16 {
        search.truncated = 1;
        return STOP;
    }
    // SAFETY: at most ENV_LEN - 16 + VAR_LEN bytes in, which `spill` allows;
    // the helper checks the user's address.
    let (at, length) = unsafe {
        let at = (&raw mut (*scratch).record.env).cast::<u8>().add(kept);
        let length = generated::bpf_probe_read_user_str(
            at.cast(),
            VAR_LEN as u32,
            search.cursor as *const c_void,
        );
        (at, length)
    };
    if length <= 0 {
        search.unreadable = 1;
        return STOP;
    }
    let cut = length >= VAR_LEN as i64;
    let starts = search.inside == 0;
    // A string that fills the buffer goes on behind it, or ends just there:
    // the rest, if only its NUL, is read as the inside of a string.
    search.inside = u32::from(cut);
    search.cursor += length as u64 - u64::from(cut);
    // SAFETY: four and eleven bytes at `at` are within the scratch.
    if starts && unsafe { at.cast::<[u8; 4]>().read_unaligned() } == *b"CNI_" {
        if search.skipped != 0 {
            search.go_back();
            return GO_ON;
        }
        if kept + length as usize > ENV_LEN {
            search.truncated = 1;
            return STOP;
        }
        // SAFETY: as above.
        if unsafe { at.cast::<[u8; 12]>().read_unaligned() } == *b"CNI_COMMAND=" {
            search.is_plugin = 1;
        }
        search.truncated |= u32::from(cut);
        search.kept = black_box((search.kept + length as u32) & (2 * ENV_LEN as u32 - 1));
    }
    GO_ON
}

extern "C" fn look_at_string_step(_index: u64, ctx: *mut c_void) -> i64 {
    // SAFETY: bpf_loop hands over the Search that it was given.
    look_at_string(unsafe { &mut *ctx.cast::<Search>() })
}

/// (task, old_pid, bprm), in the task that has just become the program.
#[inline(always)]
fn executed(ctx: &BtfTracePointContext, go_through: impl FnOnce(&mut Search)) {
    let task: u64 = ctx.arg(0);
    let mm: u64 = load(task, offset!(task_mm));
    let Some(scratch) = SCRATCH.get_ptr_mut(0) else {
        return;
    };
    // Zero, but neither the compiler nor the verifier knows: the verifier then
    // takes the first round for any round and need not tell apart the flags'
    // values in the later ones.
    // SAFETY: the map's own value.
    let zero = unsafe { read_volatile(&raw const (*scratch).record.header.pad) };
    let standing = standing(task);
    let (start, end): (u64, u64) = (
        load(mm, offset!(mm_env_start)),
        load(mm, offset!(mm_env_end)),
    );
    let skips = standing == STRANGER && end.wrapping_sub(start) > STRANGERS_TAIL;
    let mut search = Search {
        cursor: if skips { end - STRANGERS_TAIL } else { start },
        skipped: if skips { start } else { 0 },
        end,
        kept: zero,
        inside: u32::from(skips),
        is_plugin: zero,
        truncated: zero,
        unreadable: zero,
        pad: 0,
    };
    go_through(&mut search);
    if search.is_plugin == 0 {
        // A broken end: it may have been a plugin, and that is said, unless it
        // is a container's, which anyone can make.
        if standing != HOSTS {
            return;
        }
        if search.unreadable != 0 {
            count_lost(lost::ENV_UNREADABLE);
        } else if search.truncated != 0 {
            count_lost(lost::ENV_TRUNCATED);
        }
        return;
    }
    // SAFETY: this CPU's own scratch; exec's tracepoint is not preempted.
    let record = unsafe { &mut (*scratch).record };
    record.header = header(kind::CNI_EXEC);
    record.task = describe_task(task);
    record.parent = describe_task(load(task, offset!(task_real_parent)));
    record.path = [0; PATH_LEN];
    load_text(load(ctx.arg(2), offset!(bprm_filename)), &mut record.path);
    record.owner = owner_of(task, record.task.mnt_inum);
    let tgid = record.task.tgid;
    let time = record.header.time;
    if standing == HOSTS {
        if CNI_RUNNING.insert(tgid, time, 0).is_err() {
            count_lost(lost::CNI_FULL);
            warn!(
                ctx,
                "no room to follow CNI plugin {}: its end will not be seen", tgid
            );
        }
    } else if !may_be_told(record.owner, &record.task, time) {
        return;
    } else if standing == STRANGER {
        // Enough to say who it is; no more of the buffer for a stranger.
        search.kept = search.kept.min(STRANGERS_ENV);
    }
    // The verifier loses a comparison's bound when the compiler works on a copy
    // of the number; a mask stays with it.
    let kept = black_box(search.kept & (2 * ENV_LEN as u32 - 1));
    record.env_len = kept;
    record.truncated = search.truncated | search.unreadable;
    let owner = record.owner;
    let length = CNI_EXEC_FIXED + kept as usize;
    // SAFETY: within the scratch, by the mask.
    let bytes = unsafe { core::slice::from_raw_parts(scratch.cast::<u8>(), length) };
    if standing == HOSTS {
        if EVENTS.output::<[u8]>(bytes, 0).is_err() {
            count_lost(lost::EVENTS_FULL);
        }
    } else if STRANGERS.output::<[u8]>(bytes, BPF_RB_NO_WAKEUP).is_ok() {
        let _ = CNI_STRANGERS.insert(tgid, time, 0);
    } else if let Some(calls) = calls_of(owner) {
        // SAFETY: as in `may_be_told`; the record is as it was filled in above.
        unsafe { withhold(calls, &(*scratch).record.task, time) };
    }
}

/// It cannot be a runtime's plugin: it is nobody's that the host's root has
/// started.
const STRANGER: u32 = 0;
/// It may be the plugin of a runtime in a container, of which nothing is known
/// yet.
const UNKNOWN: u32 = 1;
/// It runs where the host or a known runtime does. The tracer asks more before
/// it trusts.
const HOSTS: u32 = 2;

/// How far a task may be what it says.
#[inline(always)]
fn standing(task: u64) -> u32 {
    let nsproxy: u64 = load(task, offset!(task_nsproxy));
    let pid_ns: u64 = load(nsproxy, offset!(nsproxy_pid_ns));
    // Of each executed program this is asked: the commonest first.
    if load::<u32>(pid_ns, offset!(pid_ns_inum)) != setting!(host_pid_ns) {
        return STRANGER;
    }
    let cred: u64 = load(task, offset!(task_real_cred));
    let user_ns: u64 = load(cred, offset!(cred_user_ns));
    // Of a set-user-ID program the effective user is no merit of the caller.
    if load::<u32>(cred, offset!(cred_euid)) | load::<u32>(cred, offset!(cred_uid)) != 0
        || load::<u32>(user_ns, offset!(user_ns_level)) != 0
    {
        return STRANGER;
    }
    let mnt_ns: u64 = load(nsproxy, offset!(nsproxy_mnt_ns));
    match is_home(load(mnt_ns, offset!(mnt_ns_inum))) {
        true => HOSTS,
        false => UNKNOWN,
    }
}

#[inline(always)]
fn calls_of(who: Owner) -> Option<*mut Calls> {
    CALLERS.get_ptr_mut(who).or_else(|| {
        CALLERS.get_ptr_mut(Owner {
            kind: owner::OTHERS,
            id: 0,
        })
    })
}

/// Whether an untrusted call is within its owner's budget. If not, it is
/// counted.
#[inline(always)]
fn may_be_told(who: Owner, task: &Task, time: u64) -> bool {
    if CALLERS.get_ptr(who).is_none() {
        // Without room, it is one of the others.
        let _ = CALLERS.insert(who, Calls::NONE, BPF_NOEXIST);
    }
    let Some(calls) = calls_of(who) else {
        return false;
    };
    // SAFETY: the map's own value. Two CPUs at the same time can cost each
    // other a step of the window, and none of the counts.
    unsafe {
        if time.wrapping_sub((*calls).window) >= SECOND {
            (*calls).window = time;
            (*calls).told = 0;
        }
        if (*calls).told < CALLS_A_SECOND {
            (*calls).told += 1;
            return true;
        }
        withhold(calls, task, time);
    }
    false
}

/// # Safety
/// `calls` must be a value of [`CALLERS`].
#[inline(always)]
unsafe fn withhold(calls: *mut Calls, task: &Task, time: u64) {
    // SAFETY: by this function's own condition.
    unsafe {
        if (*calls).first == 0 {
            (*calls).first = time;
        }
        (*calls).last = time;
        (*calls).task = *task;
        add((&raw mut (*calls).withheld).cast(), 1);
    }
}

#[btf_tracepoint(function = "sched_process_exec")]
fn cni_exec(ctx: BtfTracePointContext) -> i32 {
    executed(&ctx, |search| {
        // SAFETY: the callback is of the form that bpf_loop wants, and
        // `search` outlives the call.
        unsafe {
            bpf_loop(
                MAX_STRINGS,
                look_at_string_step as *mut c_void,
                core::ptr::from_mut(search).cast(),
                0,
            );
        }
        if search.cursor < search.end && search.unreadable == 0 {
            search.truncated = 1;
        }
    });
    0
}

/// For kernels before 5.17, which have no `bpf_loop`: the environment's first
/// [`ENV_LEN`] bytes go to the tracer whole, which drops what is not `CNI_*`.
#[btf_tracepoint(function = "sched_process_exec")]
fn cni_exec_bounded(ctx: BtfTracePointContext) -> i32 {
    executed(&ctx, |search| {
        if search.skipped != 0 {
            search.go_back();
        }
        let Some(scratch) = SCRATCH.get_ptr_mut(0) else {
            return;
        };
        let length = search.end.wrapping_sub(search.cursor);
        search.truncated = u32::from(length > ENV_LEN as u64);
        let length = black_box(length.min(ENV_LEN as u64) as u32);
        // SAFETY: ENV_LEN bytes at most, by the line before; the helper checks
        // the user's address.
        let read = |into: *mut u8| unsafe {
            generated::bpf_probe_read_user(into.cast(), length, search.cursor as *const c_void)
        };
        // SAFETY: a field of the map's own value.
        let env = unsafe { (&raw mut (*scratch).record.env).cast::<u8>() };
        if length > ENV_LEN as u32 || read(env) != 0 {
            search.unreadable = 1;
            return;
        }
        // SAFETY: VAR_LEN bytes at most, into the spill.
        let string = unsafe { (&raw mut (*scratch).spill).cast::<u8>() };
        let end = search.cursor + u64::from(length);
        let mut inside = false;
        // String by string: these kernels' verifiers follow 8,192 branches in
        // a row at most, so not byte by byte.
        for _ in 0..MAX_STRINGS_BOUNDED {
            if search.cursor >= end {
                break;
            }
            // SAFETY: as above; the helper checks the user's address.
            let read = unsafe {
                generated::bpf_probe_read_user_str(
                    string.cast(),
                    VAR_LEN as u32,
                    search.cursor as *const c_void,
                )
            };
            if read <= 0 {
                search.unreadable = 1;
                break;
            }
            // SAFETY: twelve bytes are within the spill.
            if !inside && unsafe { string.cast::<[u8; 12]>().read_unaligned() } == *b"CNI_COMMAND="
            {
                search.is_plugin = 1;
                break;
            }
            // As in `look_at_string`.
            inside = read >= VAR_LEN as i64;
            search.cursor += read as u64 - u64::from(inside);
        }
        if search.is_plugin == 0 && search.cursor < end {
            search.truncated = 1;
        }
        search.kept = length;
    });
    0
}

/// The last thread of a process: `signal.live` is already counted down.
#[btf_tracepoint(function = "sched_process_exit")]
fn cni_exit(ctx: BtfTracePointContext) -> i32 {
    let task: u64 = ctx.arg(0);
    let tgid: u32 = load(task, offset!(task_tgid));
    let (started, hosts) = match (CNI_RUNNING.get_ptr(tgid), CNI_STRANGERS.get_ptr(tgid)) {
        (Some(started), _) => (started, true),
        (None, Some(started)) => (started, false),
        (None, None) => return 0,
    };
    // SAFETY: the map's own value.
    let started = unsafe { *started };
    let signal: u64 = load(task, offset!(task_signal));
    if load::<u32>(signal, offset!(signal_live)) != 0 {
        return 0;
    }
    // Of two last threads one removes it.
    let removed = if hosts {
        CNI_RUNNING.remove(tgid)
    } else {
        CNI_STRANGERS.remove(tgid)
    };
    if removed.is_err() {
        return 0;
    }
    // exit_group leaves the status with the group, a lone exit with the task.
    let group: u32 = load(signal, offset!(signal_group_exit_code));
    let own: u32 = load(task, offset!(task_exit_code));
    let exit = CniExitRecord {
        header: header(kind::CNI_EXIT),
        started,
        tgid,
        wait_status: if group != 0 { group } else { own },
        config_state: pipe::NOT_READ,
        output_state: pipe::NOT_READ,
        config_len: 0,
        output_len: 0,
    };
    if hosts {
        // Its descriptors are closed after this.
        emit_with_pipes(task, exit, AT_END);
    } else {
        // If there is no room, the tracer finds it gone.
        let _ = STRANGERS.output::<CniExitRecord>(&exit, BPF_RB_NO_WAKEUP);
    }
    0
}

/// A record with what lies in a plugin's pipes behind it.
#[repr(C)]
struct Pipes {
    record: CniExitRecord,
    /// Twice the room, and as much again for masks in place of bounds.
    bytes: [u8; 4 * PIPE_LEN],
}

/// One for ends, and one for looks in between, which an end can interrupt.
#[map]
static PIPES: PerCpuArray<Pipes> = PerCpuArray::with_max_entries(2, 0);
const AT_END: u32 = 0;
const BETWEEN: u32 = 1;

#[inline(always)]
fn emit_with_pipes(task: u64, exit: CniExitRecord, place: u32) {
    let Some(scratch) = PIPES.get_ptr_mut(place) else {
        return;
    };
    const MASK: u32 = PIPE_LEN as u32 - 1;
    // SAFETY: this CPU's own scratch. The first may write twice PIPE_LEN from
    // the start, the second from less than one PIPE_LEN on.
    unsafe {
        let bytes = (&raw mut (*scratch).bytes).cast::<u8>();
        let config = take(task, 0, bytes);
        let config_len = black_box(config.len) & MASK;
        let output = take(task, 1, bytes.add(config_len as usize));
        let output_len = black_box(output.len) & MASK;
        (*scratch).record = CniExitRecord {
            config_state: config.state,
            output_state: output.state,
            config_len,
            output_len,
            ..exit
        };
        let length = size_of::<CniExitRecord>() + (config_len + output_len) as usize;
        let record = core::slice::from_raw_parts(scratch.cast::<u8>(), length);
        if EVENTS.output::<[u8]>(record, 0).is_err() {
            count_lost(lost::EVENTS_FULL);
        }
    }
}

/// What lies in the pipes of the plugins that run, for those that do not end.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
extern "C" fn cni_peek(ctx: *mut c_void) -> i32 {
    // SAFETY: the kernel hands a bpf_iter__task to this section's programs.
    let task = unsafe { (*ctx.cast::<IterTask>()).task } as u64;
    if task == 0 {
        return 0;
    }
    let tgid: u32 = load(task, offset!(task_tgid));
    if load::<u32>(task, offset!(task_pid)) != tgid {
        return 0;
    }
    let Some(started) = CNI_RUNNING.get_ptr(tgid) else {
        return 0;
    };
    let peek = CniExitRecord {
        header: header(kind::CNI_PEEK),
        // SAFETY: the map's own value.
        started: unsafe { *started },
        tgid,
        ..CniExitRecord::default()
    };
    emit_with_pipes(task, peek, BETWEEN);
    0
}

const _: () = assert!(VAR_LEN <= ENV_LEN && ENV_LEN.is_power_of_two());
