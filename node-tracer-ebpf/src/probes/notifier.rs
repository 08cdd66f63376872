//! The kernel's notifier chains: what they give away where functions cannot be
//! hooked. The tracepoint names the callback and nothing else; it runs in the
//! task that makes the change.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use node_tracer_ebpf::record::{TaskRecord, kind};

use super::{budget::tells_change_by, netns::device_changed};
use crate::kernel::{current, describe_task, emit, header, setting};

#[btf_tracepoint(function = "notifier_run")]
fn notified(ctx: BtfTracePointContext) -> i32 {
    let callback: u64 = ctx.arg(0);
    if callback == setting!(inetdev_event) {
        device_changed();
    } else if callback == setting!(fib_inetaddr_event) && tells_change_by(current()) {
        emit(&TaskRecord {
            header: header(kind::ADDRESSES_CHANGED),
            task: describe_task(current()),
        });
    }
    0
}
