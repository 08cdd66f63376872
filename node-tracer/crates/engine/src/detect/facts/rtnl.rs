//! Who may hold RTNL, the kernel's lock over all devices and addresses.
//!
//! Taking a namespace down needs it, and making one, and every question about
//! devices. Who has it is not written down anywhere; but code that takes it is
//! known, and a task that sleeps deeper in that code than where the lock is
//! taken has it, or had it a moment before.

use event::order::Order as _;
use std::iter;

use crate::model::{Model, task::Blocked};

/// Functions that hold RTNL while they call others (net/core/rtnetlink.c,
/// dev_ioctl.c; net/ethtool; net/ipv4/devinet.c; drivers/net/tun.c; 5.10 to 7.2).
const UNDER_RTNL: [&str; 15] = [
    // The lock of a dump is RTNL, too (af_netlink.c: cb_mutex; until 6.x).
    "netlink_dump",
    "__netlink_dump_start",
    "rtnetlink_rcv_msg",
    "rtnl_dumpit",
    "rtnl_newlink",
    "rtnl_dellink",
    "dev_ioctl",
    "dev_ethtool",
    "ethnl_default_doit",
    "ethnl_default_set_doit",
    "devinet_ioctl",
    "default_device_exit_batch",
    "register_netdev",
    "unregister_netdev",
    "__tun_chr_ioctl",
];
/// Functions that wait for a lock where the stack shows them at all: the
/// kernel leaves most of them out.
const LOCKS: [&str; 4] = ["mutex_lock", "rtnl_lock", "rwsem_down", "down_"];

/// `dev_ioctl+0x5c` is `dev_ioctl`; `x.isra.0+0x1` is `x`.
fn name(frame: &str) -> &str {
    frame.split(['+', '.']).next().unwrap_or(frame)
}

fn takes(frame: &str) -> bool {
    UNDER_RTNL.contains(&name(frame))
}

/// Whether a task with this stack, the innermost function first, sleeps with
/// RTNL taken. One whose innermost function takes the lock waits for it.
fn sleeps_with_it(stack: &[String]) -> bool {
    let is_lock = |frame: &&String| LOCKS.iter().any(|lock| name(frame).contains(lock));
    let mut frames = stack.iter().skip_while(is_lock);
    frames.next().is_some_and(|innermost| !takes(innermost)) && frames.any(|frame| takes(frame))
}

/// Whether a task with this stack takes part in what namespaces and their
/// devices wait for: it has or wants the lock, or makes or ends a namespace.
pub(in crate::detect) fn concerns_namespaces(stack: &[String]) -> bool {
    const OTHERS: [&str; 3] = ["cleanup_net", "copy_net_ns", "setup_net"];
    stack.iter().any(|frame| {
        let name = name(frame);
        takes(frame)
            || OTHERS.contains(&name)
            || ["rtnl", "netdev"].iter().any(|part| name.contains(part))
    })
}

/// Stuck tasks that may hold it, with the function that takes it; the longest
/// stuck first.
pub(in crate::detect) fn holders(model: &Model) -> Vec<(&Blocked, &str)> {
    let mut holders: Vec<(&Blocked, &str)> = model
        .blocked
        .iter()
        .filter(|blocked| sleeps_with_it(&blocked.stack))
        .flat_map(|blocked| {
            let under = blocked.stack.iter().find(|frame| takes(frame));
            iter::once(blocked).zip(under.map(|frame| name(frame)))
        })
        .collect();
    holders.order_by_key(|(blocked, _)| blocked.since);
    holders
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeps(stack: &[&str]) -> bool {
        sleeps_with_it(&stack.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn who_sleeps_below_the_lock_has_it() {
        assert!(sleeps(&[
            "handle_userfault+0x1",
            "_copy_to_user+0x2",
            "dev_ethtool+0x3",
            "dev_ioctl+0x4"
        ]));
        assert!(sleeps(&[
            "msleep+0x1",
            "veth_open.isra.0+0x2",
            "rtnetlink_rcv_msg+0x3"
        ]));
    }

    #[test]
    fn who_waits_for_it_has_not() {
        for stack in [
            &["rtnetlink_rcv_msg+0x3", "netlink_rcv_skb+0x1"][..],
            &[
                "__mutex_lock.constprop.0+0x1",
                "dev_ioctl+0x4",
                "sock_ioctl",
            ],
            &["rtnl_lock+0x1", "dev_ethtool+0x4", "dev_ioctl+0x2"],
            &["dev_ethtool+0x4", "dev_ioctl+0x2"],
            &["__netlink_dump_start+0x1", "rtnetlink_rcv_msg+0x3"],
            &["cleanup_net+0x208", "process_one_work+0x1b6"],
            &["request_wait_answer", "fuse_simple_request"],
            &[],
        ] {
            assert!(!sleeps(stack), "{stack:?}");
        }
    }
}
