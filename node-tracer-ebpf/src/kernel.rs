//! What every probe needs: the globals, reads of kernel memory, and the way
//! out to the tracer. Nothing here knows a topic.

use core::{arch::asm, ffi::c_void, ptr::read_volatile};

use aya_ebpf::{
    helpers::{bpf_get_current_task, bpf_ktime_get_ns, generated},
    macros::map,
    maps::{HashMap, PerCpuArray, RingBuf},
};
use node_tracer_ebpf::{
    layout::{ABSENT, Layout, Settings},
    record::{COMM_LEN, Header, Mounts, Net, NetUser, Owner, Task, lost},
};

/// Written by the tracer before the programs are loaded.
#[unsafe(no_mangle)]
static LAYOUT: Layout = Layout::UNKNOWN;

/// Written by the tracer before the programs are loaded.
#[unsafe(no_mangle)]
static SETTINGS: Settings = Settings {
    cleanup_net: 0,
    fib_inetaddr_event: 0,
    inetdev_event: 0,
    stall_threshold_ns: 0,
    switch_has_state: 0,
    state_ignore: 0,
    sys_unshare: 0,
    host_pid_ns: 0,
    contributes_mask: 0,
    host_user_ns: 0,
    host_netns: 0,
    crowd_seed: 0,
};

/// What happens. The tracer may set another size when it loads the programs.
#[map]
pub(crate) static EVENTS: RingBuf = RingBuf::with_byte_size(1 << 20, 0);

/// Mount namespaces of the host and of runtimes in containers. Only root makes
/// any, so who is in none of these is in a container, or has left the host's
/// with privileges of a user namespace.
#[map]
static HOMES: HashMap<u32, u32> = HashMap::with_max_entries(64, 0);

#[map]
static LOST: PerCpuArray<u64> = PerCpuArray::with_max_entries(lost::CAUSES, 0);

/// `TASK_UNINTERRUPTIBLE`
pub(crate) const TASK_UNINTERRUPTIBLE: u32 = 2;
/// `CLONE_NEWNET`
pub(crate) const CLONE_NEWNET: u64 = 0x4000_0000;

/// Offset of a member of [`Layout`], as the verifier sees it: a constant.
macro_rules! offset {
    ($member:ident) => {
        $crate::kernel::layout(core::mem::offset_of!(
            node_tracer_ebpf::layout::Layout,
            $member
        ))
    };
}
pub(crate) use offset;

/// One member of [`Settings`].
macro_rules! setting {
    ($member:ident) => {
        $crate::kernel::settings(
            core::mem::offset_of!(node_tracer_ebpf::layout::Settings, $member),
            |settings| &raw const settings.$member,
        )
    };
}
pub(crate) use setting;

#[inline(always)]
pub(crate) fn layout(member: usize) -> u32 {
    // SAFETY: a member of a static, by offset_of; volatile because the tracer
    // writes it into the object after compilation.
    unsafe { read_volatile((&raw const LAYOUT).cast::<u8>().add(member).cast()) }
}

/// `select` only tells the member's type.
#[inline(always)]
pub(crate) fn settings<T>(member: usize, _select: impl FnOnce(&Settings) -> *const T) -> T {
    // SAFETY: as above.
    unsafe { read_volatile((&raw const SETTINGS).cast::<u8>().add(member).cast()) }
}

/// Reads a `T` at `base + offset`; zero where the kernel has no such member
/// or the address cannot be read.
#[inline(always)]
pub(crate) fn load<T: Copy + Default>(base: u64, offset: u32) -> T {
    let mut value = T::default();
    load_into(&mut value, base, offset);
    value
}

/// As [`load`], to where the value is wanted; for arrays, which the compiler
/// would otherwise move byte by byte.
///
/// The helper zeroes what it cannot read, so there is no error to branch on:
/// every branch here would double the verifier's work at each of its uses.
#[inline(always)]
pub(crate) fn load_into<T: Copy>(value: &mut T, base: u64, offset: u32) {
    if offset != ABSENT {
        // SAFETY: the helper checks the source itself; the destination is as
        // long as said.
        unsafe {
            generated::bpf_probe_read_kernel(
                core::ptr::from_mut(value).cast(),
                size_of::<T>() as u32,
                base.wrapping_add(u64::from(offset)) as *const c_void,
            );
        }
    }
}

/// Reads through a pointer that the verifier knows by BTF: one instruction,
/// for the paths that every switch and every system call takes.
///
/// # Safety
/// `base` must come unchanged from the context of a `tp_btf` program.
#[inline(always)]
pub(crate) unsafe fn direct(base: *const c_void, offset: u32) -> u32 {
    // SAFETY: the verifier checks the access against the kernel's BTF.
    unsafe { read_volatile(base.cast::<u8>().add(offset as usize).cast::<u32>()) }
}

/// Copies a string at `address` into `into`, which must be zeroed.
#[inline(always)]
pub(crate) fn load_text(address: u64, into: &mut [u8]) {
    // SAFETY: the helper checks the address itself.
    unsafe {
        generated::bpf_probe_read_kernel_str(
            into.as_mut_ptr().cast(),
            into.len() as u32,
            address as *const c_void,
        );
    }
}

#[inline(always)]
pub(crate) fn now() -> u64 {
    // SAFETY: no preconditions.
    unsafe { bpf_ktime_get_ns() }
}

#[inline(always)]
pub(crate) fn current() -> u64 {
    // SAFETY: no preconditions.
    unsafe { bpf_get_current_task() }
}

#[inline(always)]
pub(crate) fn header(kind: u32) -> Header {
    Header {
        kind,
        pad: 0,
        time: now(),
    }
}

/// `PF_KTHREAD`
const KERNEL_THREAD: u32 = 0x0020_0000;

/// Whether it runs in the kernel alone.
#[inline(always)]
pub(crate) fn is_kernel_thread(task: u64) -> bool {
    offset!(task_flags) != ABSENT && load::<u32>(task, offset!(task_flags)) & KERNEL_THREAD != 0
}

/// The `struct net` that `task` is in, 0 if it has left its namespaces.
#[inline(always)]
pub(crate) fn net_of_task(task: u64) -> u64 {
    let nsproxy: u64 = load(task, offset!(task_nsproxy));
    load(nsproxy, offset!(nsproxy_net_ns))
}

#[inline(always)]
pub(crate) fn describe_net(net: u64) -> Net {
    let user_ns: u64 = load(net, offset!(net_user_ns));
    Net {
        address: net,
        cookie: load(net, offset!(net_cookie)),
        inum: load(net, offset!(net_inum)),
        refs: if offset!(net_refs) == ABSENT {
            -1
        } else {
            load(net, offset!(net_refs))
        },
        user: NetUser {
            inum: load(user_ns, offset!(user_ns_inum)),
            owner: load(user_ns, offset!(user_ns_owner)),
        },
    }
}

#[inline(always)]
pub(crate) fn describe_task(task: u64) -> Task {
    let parent: u64 = load(task, offset!(task_real_parent));
    let cred: u64 = load(task, offset!(task_real_cred));
    let user_ns: u64 = load(cred, offset!(cred_user_ns));
    let nsproxy: u64 = load(task, offset!(task_nsproxy));
    let net: u64 = load(nsproxy, offset!(nsproxy_net_ns));
    let mnt: u64 = load(nsproxy, offset!(nsproxy_mnt_ns));
    let pid: u64 = load(nsproxy, offset!(nsproxy_pid_ns));
    let mut comm = [0; COMM_LEN];
    load_into(&mut comm, task, offset!(task_comm));
    Task {
        tid: load(task, offset!(task_pid)),
        tgid: load(task, offset!(task_tgid)),
        ppid: load(parent, offset!(task_tgid)),
        euid: load(cred, offset!(cred_euid)),
        comm,
        start_boottime: load(task, offset!(task_start_boottime)),
        net_inum: load(net, offset!(net_inum)),
        mnt_inum: load(mnt, offset!(mnt_ns_inum)),
        pid_inum: load(pid, offset!(pid_ns_inum)),
        user_level: load(user_ns, offset!(user_ns_level)),
    }
}

#[inline(always)]
pub(crate) fn is_home(mnt_inum: u32) -> bool {
    HOMES.get_ptr(mnt_inum).is_some()
}

/// User namespaces in one another; the kernel allows no more.
const USER_LEVELS: u32 = 33;

/// Who answers for what a task does, which it cannot change: neither by a
/// namespace that it makes nor by one of the users that it may become.
#[inline(always)]
pub(crate) fn owner_of(task: u64, mnt_inum: u32) -> Owner {
    let cred: u64 = load(task, offset!(task_real_cred));
    let mounts = match mnt_inum {
        0 => Mounts::Left,
        inode if is_home(inode) => Mounts::Home,
        inode => Mounts::Other(inode),
    };
    Owner::of(
        maker_of(load(cred, offset!(cred_user_ns))),
        mounts,
        || load(cred, offset!(cred_uid)),
        || outermost_pid_ns(task),
    )
}

/// Who made the outermost of these user namespaces, `None` of the initial one.
#[inline(always)]
fn maker_of(user_ns: u64) -> Option<u32> {
    if load::<u32>(user_ns, offset!(user_ns_level)) == 0 {
        return None;
    }
    let mut outermost = user_ns;
    for _ in 1..USER_LEVELS {
        if load::<u32>(outermost, offset!(user_ns_level)) <= 1 {
            break;
        }
        outermost = load(outermost, offset!(user_ns_parent));
    }
    Some(load(outermost, offset!(user_ns_owner)))
}

/// Who answers for a task, by the mount namespace that it is in.
#[inline(always)]
pub(crate) fn owner_of_task(task: u64) -> Owner {
    let nsproxy: u64 = load(task, offset!(task_nsproxy));
    let mnt: u64 = load(nsproxy, offset!(nsproxy_mnt_ns));
    owner_of(task, load(mnt, offset!(mnt_ns_inum)))
}

/// The PID namespace that the host has made for what a task is in, whatever
/// others were made in that since; 0 if there is none.
#[inline(always)]
fn outermost_pid_ns(task: u64) -> u32 {
    let pid: u64 = load(task, offset!(task_thread_pid));
    if load::<u32>(pid, offset!(pid_level)) == 0 {
        return 0;
    }
    let pid_ns: u64 = load(pid, offset!(pid_outermost_ns));
    load(pid_ns, offset!(pid_ns_inum))
}

/// Adds to a number that others change at the same time. The target has no
/// compare-and-swap on all kernels, so core has no atomic additions for it; the
/// instruction itself is as old as eBPF.
///
/// # Safety
/// `number` must be an aligned value of a map that is changed by atomic
/// operations only.
#[inline(always)]
pub(crate) unsafe fn add(number: *mut i64, difference: i64) {
    // SAFETY: by this function's own condition.
    unsafe {
        asm!("lock *(u64 *)({0} + 0) += {1}", in(reg) number, in(reg) difference);
    }
}

/// Hands a record to the tracer, or counts its loss.
#[inline(always)]
pub(crate) fn emit<T: 'static>(record: &T) {
    if EVENTS.output::<T>(record, 0).is_err() {
        count_lost(lost::EVENTS_FULL);
    }
}

#[inline(always)]
pub(crate) fn count_lost(cause: u32) {
    if let Some(count) = LOST.get_ptr_mut(cause) {
        // SAFETY: the map's own value; each CPU has one of its own, and a
        // program that interrupts another on it can cost a count at most.
        unsafe { *count += 1 };
    }
}
