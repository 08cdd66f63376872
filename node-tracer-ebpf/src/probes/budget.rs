//! Who may have how many records of changes to network namespaces, and of tasks
//! that are killed.
//!
//! Every user, and root in every container, can make user namespaces, network
//! namespaces in these, and addresses in those, without end. They make no
//! records: the tracer finds them when it looks at the kernel's list, which it
//! does whenever a CNI plugin is called, too. In a network namespace of the
//! host's own users a pod can be allowed to change addresses: each such
//! namespace has a budget, and the tracer looks for what is beyond. Who may
//! limit the memory of its own tasks can have as many of them killed as it
//! likes; each owner has a budget for these, and what is beyond is a number.

use aya_ebpf::{macros::map, maps::LruHashMap};
use node_tracer_ebpf::{
    layout::{ABSENT, INITIAL_USER_NS},
    record::{CHANGES_A_SECOND, Net, Owner, VICTIMS_A_SECOND, lost},
};

use crate::kernel::{count_lost, describe_net, load, net_of_task, now, offset, setting};

const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;
const SECOND: u64 = 1_000_000_000;

/// What is left of a second's budget.
#[repr(C)]
#[derive(Clone, Copy)]
struct Window {
    since: u64,
    told: u64,
}

/// By the address of a `struct net`, or by [`Owner`].
#[map]
static WINDOWS: LruHashMap<u64, Window> = LruHashMap::with_max_entries(8192, 0);

#[inline(always)]
fn is_hosts(user_ns: u32) -> bool {
    user_ns == INITIAL_USER_NS || user_ns == setting!(host_user_ns)
}

/// Whether a namespace was made in a user namespace that is not the host's.
#[inline(always)]
fn is_users(net: &Net) -> bool {
    net.user.inum != 0 && !is_hosts(net.user.inum)
}

#[inline(always)]
fn has_room(key: u64, most: u32, beyond: u32) -> bool {
    let time = now();
    let Some(window) = WINDOWS.get_ptr_mut(key) else {
        let first = Window {
            since: time,
            told: 1,
        };
        // Without an entry there is no budget: the oldest make room.
        let _ = WINDOWS.insert(key, first, 0);
        return true;
    };
    // SAFETY: the map's own value. Two CPUs at the same time can cost each
    // other a step.
    let window = unsafe { &mut *window };
    if time.wrapping_sub(window.since) >= SECOND {
        window.since = time;
        window.told = 0;
    }
    window.told += 1;
    if window.told > u64::from(most) {
        count_lost(beyond);
        return false;
    }
    true
}

/// Whether one more change of this namespace is told.
#[inline(always)]
fn tells_change_of(net: u64) -> bool {
    has_room(net, CHANGES_A_SECOND, lost::WITHHELD)
}

/// Whether it is told that a task of this owner is killed.
#[inline(always)]
pub(super) fn tells_victim_of(Owner { kind, id }: Owner) -> bool {
    // No kernel address is as small.
    let key = u64::from(kind) << 32 | u64::from(id);
    has_room(key, VICTIMS_A_SECOND, lost::VICTIM_WITHHELD)
}

/// Whether it is told that a namespace was made or has ended.
#[inline(always)]
pub(super) fn tells_namespace(net: &Net) -> bool {
    !is_users(net)
}

/// The namespace, if a change of an address in it is told.
#[inline(always)]
pub(super) fn with_told_address(net: u64) -> Option<Net> {
    let net = describe_net(net);
    let told =
        !is_users(&net) && (net.inum == setting!(host_netns) || tells_change_of(net.address));
    told.then_some(net)
}

/// Whether it is told that a task changes something, where it is not known
/// what: it changes something of its own namespace, or makes one.
#[inline(always)]
pub(super) fn tells_change_by(task: u64) -> bool {
    let cred: u64 = load(task, offset!(task_real_cred));
    let user_ns: u64 = load(cred, offset!(cred_user_ns));
    if offset!(cred_cap_effective) != ABSENT && offset!(user_ns_inum) != ABSENT {
        const MAY: u64 = 1 << CAP_NET_ADMIN | 1 << CAP_SYS_ADMIN;
        let may: u64 = load(cred, offset!(cred_cap_effective));
        if may & MAY == 0 || !is_hosts(load(user_ns, offset!(user_ns_inum))) {
            count_lost(lost::WITHHELD);
            return false;
        }
    }
    let net = net_of_task(task);
    load::<u32>(net, offset!(net_inum)) == setting!(host_netns) || tells_change_of(net)
}
