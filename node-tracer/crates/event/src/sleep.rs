//! Where in the kernel a task sleeps, and what that alone says: whether state D
//! means that it is stuck, and whether SIGKILL ends the sleep.
//!
//! Each name below is a function of the kernel's source whose way of sleeping
//! is always the same. A function that sleeps now this way, now that way
//! (`folio_wait_bit_common`) is not listed: it says nothing.

use crate::NotStuck;

/// Functions of the scheduler: who sleeps is in one of them whatever it waits
/// for. The kernel's own stacks leave them out, those taken by eBPF do not.
const SCHEDULER: &[&str] = &[
    "__schedule",
    "schedule",
    "preempt_schedule",
    "schedule_timeout",
    "schedule_timeout_interruptible",
    "schedule_timeout_uninterruptible",
    "schedule_timeout_killable",
    "schedule_preempt_disabled",
    "schedule_hrtimeout",
    "schedule_hrtimeout_range",
    "schedule_hrtimeout_range_clock",
    "io_schedule",
    "io_schedule_timeout",
    "__switch_to",
    "do_wait_for_common",
    "__wait_for_common",
    "wait_for_common",
    "wait_for_completion",
    "wait_for_completion_state",
    "wait_for_completion_killable",
];

/// A vfork(2) parent sleeps in the first of these, or where the compiler has
/// put that function: in the one that calls it, by its name of the time. None
/// of the others sleeps for anything else by itself.
const VFORK: &[&str] = &["wait_for_vfork_done", "kernel_clone", "_do_fork", "do_fork"];

/// Who is frozen waits in the first of these. From Linux 6.1 on the freezer
/// also takes a task where it sleeps (`TASK_FREEZABLE`) or is stopped, and
/// /proc shows the state D for it; the others here sleep interruptibly and so
/// are in state D only if they are frozen. None takes a mutex itself: who waits
/// for one is shown in the function that takes it, as the kernel leaves its
/// locks out of stacks (`unix_stream_read_generic`, which reads from sockets).
const FROZEN: &[&str] = &[
    "__refrigerator",
    "do_nanosleep",
    "hrtimer_nanosleep",
    "alarmtimer_do_nsleep",
    "futex_wait_queue",
    "futex_do_wait",
    "futex_wait_multiple",
    "unix_stream_data_wait",
    "do_sigtimedwait",
    "do_signal_stop",
    "do_freezer_trap",
    "ptrace_stop",
    "get_signal",
];

/// Functions that sleep killably though their names do not say so: the wait for
/// a vfork child, and for a memory cgroup whose OOM killer is turned off.
const KILLABLE: &[&str] = &["wait_for_vfork_done", "mem_cgroup_oom_synchronize"];

/// Functions of a wait for the daemon of a FUSE file system: names, or their
/// beginnings if they end in `_`.
pub const FUSE: &[&str] = &["request_wait_answer", "fuse_"];

/// Whether one of these functions is on a stack. A name that ends in `_` stands
/// for all that begin with it.
pub fn has_any(functions: &[&str], stack: &[String]) -> bool {
    stack.iter().map(|frame| name(frame)).any(|frame| {
        functions.iter().any(|function| {
            frame == *function || (function.ends_with('_') && frame.starts_with(function))
        })
    })
}

/// Whether a thread of the kernel of this name and stack writes to a FUSE file
/// system. Users mount these, and their daemon decides how long it waits.
pub fn is_fuse_worker(comm: &str, stack: &[String]) -> bool {
    comm.starts_with("kworker/") && has_any(FUSE, stack)
}

/// Why a task that sleeps there in state D is not stuck, if so.
pub fn not_stuck(stack: &[String], wchan: Option<&str>) -> Option<NotStuck> {
    let function = function(stack, wchan)?;
    if VFORK.contains(&function) {
        Some(NotStuck::Vfork)
    } else if FROZEN.contains(&function) {
        Some(NotStuck::Frozen)
    } else {
        None
    }
}

/// Whether the function that a task sleeps in is one that a fatal signal always
/// wakes it from (`TASK_KILLABLE`). If not, nothing is known.
pub fn is_killable(stack: &[String], wchan: Option<&str>) -> bool {
    let own = function(stack, wchan);
    let scheduler = stack.iter().map(|frame| name(frame));
    let mut waits = scheduler.take_while(|frame| SCHEDULER.contains(frame));
    own.is_some_and(|own| own.ends_with("_killable") || KILLABLE.contains(&own))
        || waits.any(|frame| frame.ends_with("_killable"))
}

/// Whether a task waits for the answer of a FUSE daemon.
pub fn is_fuse(stack: &[String], wchan: Option<&str>) -> bool {
    let is_fuse = |name: &str| name == "request_wait_answer" || name.starts_with("fuse_");
    stack.iter().any(|frame| is_fuse(name(frame))) || wchan.map(name).is_some_and(is_fuse)
}

/// The function that a task sleeps in: the innermost one that is not of the
/// scheduler.
pub fn function<'a>(stack: &'a [String], wchan: Option<&'a str>) -> Option<&'a str> {
    let mut frames = stack.iter().map(|frame| name(frame));
    frames
        .find(|function| !SCHEDULER.contains(function))
        .or(wchan.map(name).filter(|wchan| !matches!(*wchan, "" | "0")))
}

/// A frame's function: `do_sigtimedwait` of `do_sigtimedwait.isra.0+0x156`.
pub fn name(frame: &str) -> &str {
    let frame = frame.trim();
    frame.split(['+', ' ', '.']).next().unwrap_or(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frames: &[&str]) -> Vec<String> {
        frames
            .iter()
            .map(|frame| format!("{frame}+0x1f/0x80"))
            .collect()
    }

    #[test]
    fn a_task_sleeps_in_what_called_the_scheduler() {
        let frames = stack(&["__schedule", "schedule", "request_wait_answer"]);
        assert_eq!(function(&frames, Some("0")), Some("request_wait_answer"));
        assert_eq!(function(&[], Some("msleep")), Some("msleep"));
        assert_eq!(function(&[], Some("0")), None);
    }

    #[test]
    fn who_waits_for_a_vfork_child_or_is_frozen_is_not_stuck() {
        let why = |frames: &[&str]| not_stuck(&stack(frames), None);
        let vfork = ["kernel_clone", "__do_sys_vfork", "do_syscall_64"];
        assert_eq!(why(&vfork), Some(NotStuck::Vfork));
        let vfork = [
            "__schedule",
            "schedule",
            "wait_for_completion_state",
            "kernel_clone",
        ];
        assert_eq!(why(&vfork), Some(NotStuck::Vfork));
        let frozen = ["__refrigerator", "get_signal", "exit_to_user_mode_loop"];
        assert_eq!(why(&frozen), Some(NotStuck::Frozen));
        assert_eq!(
            not_stuck(&[], Some("do_sigtimedwait.isra.0")),
            Some(NotStuck::Frozen)
        );
        assert_eq!(not_stuck(&[], Some("_do_fork")), Some(NotStuck::Vfork));
    }

    #[test]
    fn a_worker_in_fuse_is_told_from_the_kernels_other_threads() {
        let fuse = stack(&["request_wait_answer", "fuse_flush_times", "wb_workfn"]);
        assert!(is_fuse_worker("kworker/u8:0+flush-0:42", &fuse));
        assert!(!is_fuse_worker("kswapd0", &fuse), "it works for all");
        let disk = stack(&["io_schedule", "folio_wait_bit", "wb_workfn"]);
        assert!(!is_fuse_worker("kworker/u8:0+flush-8:0", &disk));
    }

    #[test]
    fn what_stands_further_out_does_not_make_it_harmless() {
        let why = |frames: &[&str]| not_stuck(&stack(frames), None);
        assert_eq!(
            why(&["request_wait_answer", "copy_process", "kernel_clone"]),
            None
        );
        assert_eq!(why(&["coredump_wait", "get_signal"]), None);
        // It sleeps for data, which can be frozen, or for the socket's mutex.
        assert_eq!(not_stuck(&[], Some("unix_stream_read_generic")), None);
        assert_eq!(not_stuck(&[], None), None);
    }

    #[test]
    fn only_where_the_kernel_always_sleeps_killably_is_it_said() {
        let killable = |frames: &[&str]| is_killable(&stack(frames), None);
        assert!(killable(&[
            "rpc_wait_bit_killable",
            "__wait_on_bit",
            "nfs_file_read"
        ]));
        assert!(killable(&[
            "__schedule",
            "schedule_timeout_killable",
            "mem_cgroup_handle_over_high"
        ]));
        for other in [
            &["request_wait_answer", "fuse_simple_request"][..],
            &["folio_wait_bit_common", "filemap_read"],
            &["submit_bio_wait", "rpc_wait_bit_killable"],
            &[],
        ] {
            assert!(!killable(other), "{other:?}");
        }
    }
}
