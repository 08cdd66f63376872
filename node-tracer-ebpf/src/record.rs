//! Records as they lie in the ring buffers and iterator outputs.
//!
//! Every record in a ring buffer starts with a [`Header`]. Numbers are in the
//! machine's byte order; times are `CLOCK_MONOTONIC` nanoseconds unless a field
//! says otherwise; strings end at the first NUL or at the field's end.

/// Kinds of records in [`map::EVENTS`](crate::map::EVENTS) and
/// [`map::WALK`](crate::map::WALK).
pub mod kind {
    /// [`NetnsRecord`](super::NetnsRecord): a network namespace was made.
    pub const NETNS_CREATED: u32 = 1;
    /// [`NetnsRecord`](super::NetnsRecord): its last reference is gone.
    pub const NETNS_DYING: u32 = 2;
    /// [`NetnsRecord`](super::NetnsRecord): its inode number is free again.
    pub const NETNS_DESTROYED: u32 = 3;
    /// [`CleanupRecord`](super::TaskRecord): `cleanup_net` was queued.
    pub const CLEANUP_QUEUED: u32 = 4;
    /// [`CleanupRecord`](super::TaskRecord): `cleanup_net` starts.
    pub const CLEANUP_STARTED: u32 = 5;
    /// [`CleanupRecord`](super::TaskRecord): `cleanup_net` has returned.
    pub const CLEANUP_ENDED: u32 = 6;
    /// [`AddressRecord`](super::AddressRecord): an address was added.
    pub const ADDRESS_ADDED: u32 = 7;
    /// [`AddressRecord`](super::AddressRecord): an address was removed.
    pub const ADDRESS_REMOVED: u32 = 8;
    /// [`TaskRecord`](super::TaskRecord): some IPv4 address changed somewhere;
    /// the hook cannot tell which.
    pub const ADDRESSES_CHANGED: u32 = 9;
    /// [`UnblockedRecord`](super::UnblockedRecord): a long stall has ended.
    pub const TASK_UNBLOCKED: u32 = 10;
    /// [`CniExecRecord`](super::CniExecRecord): a CNI plugin starts.
    pub const CNI_EXEC: u32 = 11;
    /// [`CniExitRecord`](super::CniExitRecord): a CNI plugin has ended.
    pub const CNI_EXIT: u32 = 12;
    /// [`NetnsRecord`](super::NetnsRecord) of the walk: a namespace that is
    /// on the kernel's list.
    pub const WALK_NETNS: u32 = 13;
    /// [`WalkAddress`](super::WalkAddress) of the walk, of the namespace last
    /// named.
    pub const WALK_ADDRESS: u32 = 14;
    /// [`TaskRecord`](super::TaskRecord): a device was made or changed, as the
    /// loopback device of every new namespace is.
    pub const DEVICE_CHANGED: u32 = 15;
    /// [`CniExitRecord`](super::CniExitRecord): what lies in the pipes of a
    /// plugin that runs.
    pub const CNI_PEEK: u32 = 16;
    /// [`VictimRecord`](super::VictimRecord): a task was chosen to be killed, as
    /// memory is short. Of some kernels only its `tid` is set.
    pub const OOM_VICTIM: u32 = 17;
    /// [`WalkDevice`](super::WalkDevice) of the walk, of the namespace last
    /// named.
    pub const WALK_DEVICE: u32 = 18;
}

/// What could be read of a plugin's pipe.
pub mod pipe {
    /// It was not looked at: the plugin may not be the host's own, or where
    /// the kernel's pages lie is not known.
    pub const NOT_READ: u32 = 0;
    /// All that was written to it.
    pub const WHOLE: u32 = 1;
    /// Its beginning; there is more.
    pub const CUT: u32 = 2;
    /// Nothing was written to it.
    pub const EMPTY: u32 = 3;
    /// The descriptor is closed, or no pipe.
    pub const NO_PIPE: u32 = 4;
    /// Its beginning was written over.
    pub const OVERWRITTEN: u32 = 5;
    /// Its pages could not be read.
    pub const UNREADABLE: u32 = 6;
}

/// What a record could not be handed over for; index into
/// [`map::LOST`](crate::map::LOST).
pub mod lost {
    /// The ring buffer of events was full.
    pub const EVENTS_FULL: u32 = 0;
    /// The table of blocked tasks was full.
    pub const BLOCKED_FULL: u32 = 1;
    /// The table of running CNI plugins was full.
    pub const CNI_FULL: u32 = 2;
    /// A CNI plugin's environment could not be read.
    pub const ENV_UNREADABLE: u32 = 3;
    /// A CNI plugin's environment was longer than the programs follow.
    pub const ENV_TRUNCATED: u32 = 4;
    /// A task that went to sleep in state D has no entry, as its crowd has as
    /// many as it may. The tracer looks for it by other means.
    pub const CROWD_FULL: u32 = 5;
    /// A change of a namespace was not told, as its owner has had as many
    /// records as it may. The tracer looks for it by other means.
    pub const WITHHELD: u32 = 6;
    /// A task that was chosen to be killed was not told, as its owner has had
    /// as many records as it may. The tracer tells how many.
    pub const VICTIM_WITHHELD: u32 = 7;
    /// How many causes there are.
    pub const CAUSES: u32 = 8;
    /// Those that the tracer makes up for.
    pub const MADE_UP_FOR: [u32; 3] = [CROWD_FULL, WITHHELD, VICTIM_WITHHELD];
    /// The causes' names in reports, by index.
    pub const NAMES: [&str; CAUSES as usize] = [
        "ring-buffer-full",
        "blocked-table-full",
        "cni-table-full",
        "cni-environment-unreadable",
        "cni-environment-truncated",
        "blocked-crowd-full",
        "changes-withheld",
        "oom-kills-withheld",
    ];
}

/// Length of `task_struct.comm`.
pub const COMM_LEN: usize = 16;
/// `IFNAMSIZ`
pub const IFNAME_LEN: usize = 16;
/// Frames of a kernel stack that are kept.
pub const STACK_FRAMES: usize = 48;
/// Bytes kept of a program's path.
pub const PATH_LEN: usize = 256;
/// Bytes kept of a CNI plugin's `CNI_*` variables, NUL-separated.
pub const ENV_LEN: usize = 8192;
/// Longest single variable that is kept whole.
pub const VAR_LEN: usize = 4096;
/// A plugin's configuration and its output are kept up to one byte less than
/// this, each.
pub const PIPE_LEN: usize = 4096;

/// First part of every ring buffer record.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// One of [`kind`].
    pub kind: u32,
    pub pad: u32,
    /// When it happened, `CLOCK_MONOTONIC` ns.
    pub time: u64,
}

/// Who answers for what a task does: what it cannot make more of by itself.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// One of [`owner`].
    pub kind: u32,
    /// A user's number, or the inode number of a mount or PID namespace.
    pub id: u32,
}

/// Kinds of [`Owner`].
pub mod owner {
    /// Many that there is no more room to tell apart.
    pub const OTHERS: u32 = 0;
    /// A user of the host; also of user namespaces that this user has made.
    pub const USER: u32 = 1;
    /// A container: a mount namespace that only root can make.
    pub const CONTAINER: u32 = 2;
    /// What is in user namespaces that root has made, in a container or for
    /// one, and what of a container has left its mounts as it exits: the
    /// outermost PID namespace of a container, which nothing in it changes; 0
    /// for all that have none.
    pub const PROCESSES: u32 = 3;
}

/// The mount namespace that a task is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mounts {
    /// The host's, or that of a runtime in a container.
    Home,
    /// Another, by its inode number.
    Other(u32),
    /// None any more: the task exits. It may hang in what it does after that,
    /// such as the release of a file.
    Left,
}

impl Owner {
    /// The kernel's threads, and root outside of all containers.
    pub const HOST: Self = Self {
        kind: owner::USER,
        id: 0,
    };

    /// Who answers for a task. `maker` is who made the outermost user namespace
    /// that it is in, if that is not the initial one; `pid_ns` the outermost PID
    /// namespace but the initial one, 0 if it is in none. Both, and the user, a
    /// task has for as long as it is there. So they decide where it has left its
    /// mounts; of root in a container with the host's PID namespace nothing tells
    /// then that it is not the host's.
    #[inline(always)]
    pub fn of(
        maker: Option<u32>,
        mounts: Mounts,
        uid: impl FnOnce() -> u32,
        pid_ns: impl FnOnce() -> u32,
    ) -> Self {
        let (kind, id) = match (maker, mounts) {
            (Some(0), _) => (owner::PROCESSES, pid_ns()),
            (Some(maker), _) => (owner::USER, maker),
            (None, Mounts::Home) => (owner::USER, uid()),
            (None, Mounts::Other(inode)) => (owner::CONTAINER, inode),
            (None, Mounts::Left) => match pid_ns() {
                0 => (owner::USER, uid()),
                inode => (owner::PROCESSES, inode),
            },
        };
        Self { kind, id }
    }

    /// The index in [`map::CROWDS`](crate::map::CROWDS) at which its blocked
    /// tasks are counted, 0 if they are not: any number that is another's with
    /// another owner most of the time, and that nobody can tell beforehand.
    /// Users have the first half, so that they share none with a container.
    #[inline(always)]
    pub const fn crowd(self, seed: u32) -> u32 {
        let Self { kind, id } = self;
        if kind == owner::USER && id == 0 {
            return 0;
        }
        let mut mixed = id ^ kind << 30 ^ seed;
        mixed = (mixed ^ mixed >> 16).wrapping_mul(0x85eb_ca6b);
        mixed = (mixed ^ mixed >> 16).wrapping_mul(0xc2b2_ae35);
        let half = if kind == owner::USER { 0 } else { CROWDS / 2 };
        half + 1 + (mixed ^ mixed >> 16) % (CROWDS / 2 - 1)
    }
}

/// The index in [`map::CROWDS`](crate::map::CROWDS) at which all crowds of a
/// crowd's half are counted.
#[inline(always)]
pub const fn all_crowds(crowd: u32) -> u32 {
    crowd & (CROWDS / 2)
}

/// Value of [`map::CALLERS`](crate::map::CALLERS). Counts only rise.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Calls that were not handed over one by one.
    pub withheld: u64,
    /// When the first of those that were withheld was.
    pub first: u64,
    pub last: u64,
    /// When the present second of the budget began.
    pub window: u64,
    /// Calls handed over in it.
    pub told: u32,
    pub pad: u32,
    /// Who made the last.
    pub task: Task,
}

impl Calls {
    /// Of one who has called nothing yet.
    pub const NONE: Self = Self {
        withheld: 0,
        first: 0,
        last: 0,
        window: 0,
        told: 0,
        pad: 0,
        task: Task {
            tid: 0,
            tgid: 0,
            ppid: 0,
            euid: 0,
            comm: [0; COMM_LEN],
            start_boottime: 0,
            net_inum: 0,
            mnt_inum: 0,
            pid_inum: 0,
            user_level: 0,
        },
    };
}

/// Untrusted calls of one owner that are handed over, a second.
pub const CALLS_A_SECOND: u32 = 16;
/// Records of the changes of one network namespace that are handed over, a
/// second.
pub const CHANGES_A_SECOND: u32 = 256;
/// Tasks of one owner that were chosen to be killed and are handed over, a
/// second.
pub const VICTIMS_A_SECOND: u32 = 256;
/// Owners whose calls are counted apart.
pub const MAX_CALLERS: u32 = 256;

/// A network namespace as the kernel knows it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Net {
    /// Address of its `struct net`; reused after its end.
    pub address: u64,
    /// `net.net_cookie`, never reused; 0 if not yet given.
    pub cookie: u64,
    /// Inode number; reused after its end.
    pub inum: u32,
    /// Reference count; 0 once the last reference is gone; -1 if not read.
    pub refs: i32,
    pub user: NetUser,
}

/// The user namespace that a network namespace belongs to, for good.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetUser {
    /// Its inode number; 0 if not read.
    pub inum: u32,
    /// Who made it: a user ID in the initial user namespace.
    pub owner: u32,
}

/// A task, with the namespaces it is in.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Thread ID in the initial PID namespace.
    pub tid: u32,
    /// Process ID in the initial PID namespace.
    pub tgid: u32,
    /// Process ID of the parent.
    pub ppid: u32,
    /// Effective user ID in the initial user namespace.
    pub euid: u32,
    /// `comm`
    pub comm: [u8; COMM_LEN],
    /// Start, ns since boot (`CLOCK_BOOTTIME`).
    pub start_boottime: u64,
    /// Inode number of its network namespace, 0 if it has none any more.
    pub net_inum: u32,
    /// Inode number of its mount namespace.
    pub mnt_inum: u32,
    /// Inode number of its PID namespace.
    pub pid_inum: u32,
    /// Depth of its user namespace; 0 is the initial one.
    pub user_level: u32,
}

/// See [`kind::NETNS_CREATED`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetnsRecord {
    pub header: Header,
    pub net: Net,
    /// The task it happened in; often an unrelated one at the end.
    pub task: Task,
}

/// A record that only says in which task it happened.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskRecord {
    pub header: Header,
    /// The task it happened in.
    pub task: Task,
}

/// See [`kind::ADDRESS_ADDED`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressRecord {
    pub header: Header,
    /// The namespace of the device.
    pub net: Net,
    /// The address, IPv4 in the first four bytes, network byte order.
    pub address: [u8; 16],
    pub ifname: [u8; IFNAME_LEN],
    /// The device's `rtnl_link_ops.kind`; empty for a device without.
    pub link_kind: [u8; IFNAME_LEN],
    pub ifindex: u32,
    /// 4 or 6.
    pub family: u8,
    pub prefix: u8,
    pub pad: u16,
}

/// See [`kind::WALK_DEVICE`]. Its addresses follow, and name it by its index.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkDevice {
    /// First; without a time.
    pub header: Header,
    pub ifindex: u32,
    pub pad: u32,
    pub ifname: [u8; IFNAME_LEN],
    /// Its `rtnl_link_ops.kind`; empty for a device without.
    pub link_kind: [u8; IFNAME_LEN],
}

/// See [`kind::WALK_ADDRESS`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkAddress {
    /// First; without a time.
    pub header: Header,
    /// The address, IPv4 in the first four bytes, network byte order.
    pub address: [u8; 16],
    /// Index of the device that has it.
    pub ifindex: u32,
    /// 4 or 6.
    pub family: u8,
    pub prefix: u8,
    /// The low half of an IPv6 address's flags, `IFA_F_*`.
    pub flags: u16,
}

/// See [`kind::TASK_UNBLOCKED`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnblockedRecord {
    pub header: Header,
    /// When the stall began.
    pub since: u64,
    /// The task that was stuck.
    pub task: Task,
    /// Who answers for it.
    pub owner: Owner,
}

/// See [`kind::OOM_VICTIM`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VictimRecord {
    pub header: Header,
    pub task: Task,
    /// Who answers for it; of some kernels, who answers for the task that
    /// wanted the memory.
    pub owner: Owner,
}

/// See [`kind::CNI_EXEC`]. The record ends after `env_len` bytes of `env`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CniExecRecord {
    pub header: Header,
    pub task: Task,
    pub parent: Task,
    /// Who answers for it.
    pub owner: Owner,
    /// Path it was started by.
    pub path: [u8; PATH_LEN],
    /// Bytes of `env` that are used.
    pub env_len: u32,
    /// 1 if variables were left out or cut.
    pub truncated: u32,
    /// Its `CNI_*` variables, each `NAME=value` with a NUL at the end.
    pub env: [u8; ENV_LEN],
}

/// Length of a [`CniExecRecord`] before its `env`.
pub const CNI_EXEC_FIXED: usize = size_of::<CniExecRecord>() - ENV_LEN;

/// See [`kind::CNI_EXIT`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CniExitRecord {
    pub header: Header,
    pub started: u64,
    pub tgid: u32,
    /// As `wait(2)` gives it: signal in the low 7 bits, else status << 8.
    pub wait_status: u32,
    /// What could be read of its standard input; one of [`pipe`].
    pub config_state: u32,
    /// The same of its standard output.
    pub output_state: u32,
    /// Bytes of standard input that follow this record.
    pub config_len: u32,
    /// Bytes of standard output that follow those.
    pub output_len: u32,
}

/// One task of the task iterator, followed by `stack_len` bytes of return
/// addresses (`u64` each, innermost first).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskRow {
    pub task: Task,
    /// Address of its `struct net`.
    pub net_address: u64,
    /// `net_cookie` of that.
    pub net_cookie: u64,
    /// When it last ran, ns, by the scheduler's clock (not monotonic time).
    pub exec_start: u64,
    /// `task.__state`
    pub state: u32,
    /// `task.flags` (`PF_*`)
    pub flags: u32,
    /// Bytes of stack that follow.
    pub stack_len: u32,
    /// The CPU that it last ran on, whose clock `exec_start` is by; `u32::MAX`
    /// if not known.
    pub cpu: u32,
    /// Of one that is blocked: who answers for it.
    pub owner: Owner,
}

/// Value of [`map::BLOCKED`](crate::map::BLOCKED), by thread ID.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocked {
    /// When the task went to sleep.
    pub since: u64,
    /// 1 once the tracer has reported it; set by the tracer.
    pub reported: u32,
    /// The index in [`map::CROWDS`](crate::map::CROWDS) at which it is counted
    /// ([`Owner::crowd`]); 0 for the kernel's and the host's own, which have no
    /// budget.
    pub crowd: u32,
    /// Who answers for it.
    pub owner: Owner,
}

/// Crowds that are told apart, those of users in the first half; at the
/// beginning of each half ([`all_crowds`]) all of that together.
pub const CROWDS: u32 = 2048;
/// Entries of [`map::BLOCKED`](crate::map::BLOCKED).
pub const MAX_BLOCKED: u32 = 16_384;
/// Entries that one crowd may have.
pub const MAX_OF_CROWD: i64 = 512;
/// Entries that all crowds of users together may have, and those of containers.
/// The rest is the host's own.
pub const MAX_OF_CROWDS: i64 = 6_144;

/// Value of [`map::WALK_REQUEST`](crate::map::WALK_REQUEST): what the
/// iterators are to look at.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkRequest {
    /// Address of the initial namespace's `struct net`, 0 if not known.
    pub init_net: u64,
    /// Address of the one namespace to report, if it is on the list; 0: all.
    pub only: u64,
    /// Namespaces to pass over before the first is reported.
    pub skip: u32,
    /// Of so many after these, no items are reported.
    pub bare: u32,
    /// Items (devices, and addresses on them) of a namespace to pass over
    /// before the first is reported.
    pub skip_items: u32,
    /// Items of one namespace to report; the rest is passed over. 0, with
    /// `only`: none is reported, all are counted.
    pub limit: u32,
    /// 1: the task iterator leaves out tasks in the initial network
    /// namespace that are not in uninterruptible sleep.
    pub tasks_outside_only: u32,
    /// Set by the walk: namespaces passed.
    pub reported: u32,
    /// Set by the walk: addresses passed of the namespace last reported.
    pub addresses: u32,
    /// Set by the walk: 1 if it came to the end, of the list or of the one
    /// namespace.
    pub complete: u32,
}

/// Value of [`map::PAGES`](crate::map::PAGES): how to get from a `struct page`
/// to what is in the page. Both lie in arrays of the kernel's; where these
/// begin is in no type and often in no symbol, so it is found out with a page
/// of the tracer's own that lies in a pipe.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageProbe {
    /// Places that are still to be tried.
    pub places: u32,
    /// The tracer's descriptor of the pipe.
    pub fd: u32,
    /// Number of the page's frame.
    pub frame: u64,
    pub page_bytes: u64,
    /// The kernel maps its memory at a multiple of this.
    pub step: u64,
    /// What the page begins with.
    pub pattern: [u64; 4],
    /// The place to be tried next; 0 at the beginning.
    pub place: u64,
    /// Found: address of the `struct page` of frame 0.
    pub memmap: u64,
    /// Found: address of frame 0; 0 if not found.
    pub direct: u64,
}

/// A type that may be copied out of a record's bytes.
///
/// # Safety
/// Any bit pattern is a valid value: `repr(C)`, integers only, no padding.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($name:ident: $size:expr,)*) => {
        $(
            // SAFETY: repr(C), integers and byte arrays only, and the
            // assertion below that there is no padding.
            unsafe impl Plain for $name {}
            const _: () = assert!(size_of::<$name>() == $size);
        )*
    };
}

plain! {
    Header: 16,
    NetUser: 8,
    Net: 32,
    Task: 56,
    NetnsRecord: 16 + 32 + 56,
    TaskRecord: 16 + 56,
    AddressRecord: 16 + 32 + 16 + 16 + 16 + 8,
    UnblockedRecord: 16 + 8 + 56 + 8,
    VictimRecord: 16 + 56 + 8,
    CniExecRecord: 16 + 56 + 56 + 8 + PATH_LEN + 8 + ENV_LEN,
    Owner: 8,
    Calls: 8 + 8 + 8 + 8 + 8 + 56,
    CniExitRecord: 16 + 8 + 8 + 16,
    PageProbe: 8 + 24 + 32 + 8 + 16,
    TaskRow: 56 + 24 + 16 + 8,
    Blocked: 24,
    WalkDevice: 16 + 8 + 16 + 16,
    WalkAddress: 16 + 16 + 8,
    WalkRequest: 8 + 8 + 8 * 4,
}

/// Copies a `T` from the front of `bytes`; `None` if they are too few.
pub fn read<T: Plain>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: the length was checked, and T is Plain.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// The part of `bytes` before the first NUL.
pub fn text(bytes: &[u8]) -> &[u8] {
    match bytes.iter().position(|&b| b == 0) {
        Some(end) => &bytes[..end],
        None => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_is_too_short_is_refused() {
        assert_eq!(read::<Header>(&[0; 15]), None);
        assert_eq!(read::<Header>(&[0; 16]), Some(Header::default()));
    }

    #[test]
    fn fields_lie_where_the_kernel_side_puts_them() {
        assert_eq!(core::mem::offset_of!(NetnsRecord, task), 48);
        assert_eq!(core::mem::offset_of!(AddressRecord, ifindex), 96);
        assert_eq!(core::mem::offset_of!(CniExecRecord, env), CNI_EXEC_FIXED);
        assert_eq!(core::mem::offset_of!(TaskRow, state), 80);
    }

    #[test]
    fn who_has_left_its_mounts_is_told_apart_by_what_it_keeps() {
        let of = |maker, mounts, uid, pid_ns| Owner::of(maker, mounts, || uid, || pid_ns);
        let [user, processes] =
            [owner::USER, owner::PROCESSES].map(|kind| move |id| Owner { kind, id });
        assert_eq!(of(None, Mounts::Left, 0, 0), Owner::HOST);
        assert_eq!(of(None, Mounts::Left, 1_000, 0), user(1_000));
        assert_eq!(of(None, Mounts::Left, 0, 70), processes(70));
        for mounts in [Mounts::Home, Mounts::Other(80), Mounts::Left] {
            assert_eq!(of(Some(1_000), mounts, 0, 70), user(1_000));
            assert_eq!(of(Some(0), mounts, 0, 70), processes(70));
        }
    }

    #[test]
    fn users_share_no_crowd_with_containers_and_the_host_is_in_none() {
        let crowd = |kind, id| Owner { kind, id }.crowd(0x1234_5678);
        for id in 1..100_000 {
            let (user, container) = (crowd(owner::USER, id), crowd(owner::CONTAINER, id));
            assert!(
                (1..CROWDS / 2).contains(&user) && (CROWDS / 2 + 1..CROWDS).contains(&container)
            );
            assert_eq!((all_crowds(user), all_crowds(container)), (0, CROWDS / 2));
        }
        assert_eq!(Owner::HOST.crowd(7), 0);
    }

    #[test]
    fn text_ends_at_the_first_nul() {
        assert_eq!(text(b"eth0\0\0x"), b"eth0");
        assert_eq!(text(b"full"), b"full");
    }
}
