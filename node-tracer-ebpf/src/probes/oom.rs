//! Tasks that the kernel has chosen to be killed, as memory is short.
//!
//! The tracepoint hands out the victim's process ID, and in newer kernels and
//! some of the older the task itself. No address is as small as an ID, and no
//! ID as large as an address: which of the two it is shows in the value.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};
use node_tracer_ebpf::record::{COMM_LEN, Owner, Task, VictimRecord, kind};

use super::budget::tells_victim_of;
use crate::kernel::{current, describe_task, emit, header, owner_of_task};

/// `PID_MAX_LIMIT`
const MAX_PID: u64 = 1 << 22;

#[raw_tracepoint(tracepoint = "mark_victim")]
fn oom_victim(ctx: RawTracePointContext) -> i32 {
    let victim: u64 = ctx.arg(0);
    // The ID is an int: of the register only its half counts.
    let id = victim & 0xffff_ffff;
    let is_id = victim >> 32 == 0 && id <= MAX_PID;
    let owner = owner_of_task(if is_id { current() } else { victim });
    if owner != Owner::HOST && !tells_victim_of(owner) {
        return 0;
    }
    let task = if is_id {
        Task {
            tid: id as u32,
            tgid: 0,
            ppid: 0,
            euid: 0,
            comm: [0; COMM_LEN],
            start_boottime: 0,
            net_inum: 0,
            mnt_inum: 0,
            pid_inum: 0,
            user_level: 0,
        }
    } else {
        describe_task(victim)
    };
    emit(&VictimRecord {
        header: header(kind::OOM_VICTIM),
        task,
        owner,
    });
    0
}
