//! What differs between kernels: byte offsets of struct members and the few
//! constants that the programs compare with.
//!
//! Rust eBPF has no CO-RE, so the tracer reads these from the running kernel's
//! BTF and writes them into the programs' read-only data before they are
//! loaded. The verifier then sees constants.

/// Marks a member that this kernel does not have.
pub const ABSENT: u32 = u32::MAX;

/// Inode number of the initial user namespace (`PROC_USER_INIT_INO`), always.
pub const INITIAL_USER_NS: u32 = 0xEFFF_FFFD;

macro_rules! layout {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Byte offsets, and two sizes; [`ABSENT`] where the kernel has no such
        /// member.
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Layout {
            $($(#[$doc])* pub $name: u32,)*
        }

        impl Layout {
            /// A layout in which nothing is known.
            pub const UNKNOWN: Self = Self { $($name: ABSENT,)* };
        }
    };
}

layout! {
    /// `task_struct.__state` (5.14+) or `task_struct.state`; the low 32 bits.
    task_state,
    /// `task_struct.flags`
    task_flags,
    /// `task_struct.pid`: the thread ID.
    task_pid,
    /// `task_struct.tgid`: the process ID.
    task_tgid,
    /// `task_struct.comm`
    task_comm,
    /// `task_struct.nsproxy`
    task_nsproxy,
    /// `task_struct.mm`
    task_mm,
    /// `task_struct.exit_code`
    task_exit_code,
    /// `task_struct.real_parent`
    task_real_parent,
    /// `task_struct.start_boottime`, ns since boot.
    task_start_boottime,
    /// The word of `task_struct.sched_contributes_to_load`: see
    /// [`Settings::contributes_mask`].
    task_contributes,
    /// `task_struct.se.exec_start`: when it last ran, by the scheduler's clock.
    task_exec_start,
    /// `task_struct.thread_info.cpu` (5.16+) or `task_struct.cpu`
    task_cpu,
    /// `task_struct.signal`
    task_signal,
    /// `task_struct.real_cred`
    task_real_cred,
    /// `task_struct.thread_pid`
    task_thread_pid,
    /// `pid.level`: 0 if only the initial PID namespace knows it.
    pid_level,
    /// `pid.numbers[1].ns`: the outermost PID namespace but the initial one.
    pid_outermost_ns,
    /// `signal_struct.live`: threads that have not exited.
    signal_live,
    /// `signal_struct.group_exit_code`
    signal_group_exit_code,
    /// `cred.uid`
    cred_uid,
    /// `cred.euid`
    cred_euid,
    /// `cred.user_ns`
    cred_user_ns,
    /// `cred.cap_effective`, 64 bits.
    cred_cap_effective,
    /// `user_namespace.level`: 0 is the initial one.
    user_ns_level,
    /// `user_namespace.ns.inum`
    user_ns_inum,
    /// `user_namespace.parent`
    user_ns_parent,
    /// `user_namespace.owner`: who made it.
    user_ns_owner,
    /// `nsproxy.count`: tasks that share it
    nsproxy_count,
    /// `nsproxy.net_ns`
    nsproxy_net_ns,
    /// `nsproxy.mnt_ns`
    nsproxy_mnt_ns,
    /// `nsproxy.pid_ns_for_children`
    nsproxy_pid_ns,
    /// `mnt_namespace.ns.inum`
    mnt_ns_inum,
    /// `pid_namespace.ns.inum`
    pid_ns_inum,
    /// `net.ns.inum`
    net_inum,
    /// The reference count whose end is the namespace's end: `net.count`
    /// (5.10), `net.ns.count` (6.1) or `net.ns.__ns_ref` (6.18).
    net_refs,
    /// `net.user_ns`
    net_user_ns,
    /// `net.net_cookie`
    net_cookie,
    /// `net.list`
    net_list,
    /// `net.dev_base_head`
    net_dev_base_head,
    /// `net.ns`: what `netns_put` is called with.
    net_ns_common,
    /// `net_device.dev_list`
    dev_list,
    /// `net_device.nd_net`
    dev_net,
    /// `net_device.name`
    dev_name,
    /// `net_device.ifindex`
    dev_ifindex,
    /// `net_device.flags`
    dev_flags,
    /// `net_device.rtnl_link_ops`
    dev_link_ops,
    /// `net_device.ip_ptr`
    dev_ip_ptr,
    /// `net_device.ip6_ptr`
    dev_ip6_ptr,
    /// `rtnl_link_ops.kind`
    link_ops_kind,
    /// `in_device.dev`
    in_dev_dev,
    /// `in_device.ifa_list`
    in_dev_ifa_list,
    /// `in_ifaddr.ifa_next`
    ifa_next,
    /// `in_ifaddr.ifa_dev`
    ifa_dev,
    /// `in_ifaddr.ifa_local`
    ifa_local,
    /// `in_ifaddr.ifa_prefixlen`
    ifa_prefixlen,
    /// `inet6_dev.dev`
    in6_dev_dev,
    /// `inet6_dev.addr_list`
    in6_dev_addr_list,
    /// `inet6_ifaddr.if_list`
    ifa6_list,
    /// `inet6_ifaddr.idev`
    ifa6_idev,
    /// `inet6_ifaddr.addr`
    ifa6_addr,
    /// `inet6_ifaddr.prefix_len`
    ifa6_prefix_len,
    /// `inet6_ifaddr.flags`
    ifa6_flags,
    /// `mm_struct.env_start`
    mm_env_start,
    /// `mm_struct.env_end`
    mm_env_end,
    /// `linux_binprm.filename`
    bprm_filename,
    /// `task_struct.files`
    task_files,
    /// `files_struct.fdt`
    files_fdt,
    /// `fdtable.max_fds`
    fdt_max_fds,
    /// `fdtable.fd`
    fdt_fd,
    /// `file.f_inode`
    file_inode,
    /// `inode.i_mode`
    inode_mode,
    /// `inode.i_pipe`
    inode_pipe,
    /// `pipe_inode_info.head`: buffers that were ever filled.
    pipe_head,
    /// `pipe_inode_info.tail`: those of them that were emptied.
    pipe_tail,
    /// `pipe_inode_info.ring_size`
    pipe_ring_size,
    /// `pipe_inode_info.bufs`
    pipe_bufs,
    /// `pipe_inode_info.tmp_page`: emptied pages that are kept for reuse, one
    /// (until 6.14) or two; `prealloc.pages` (7.3+), eight.
    pipe_kept,
    /// The member behind it.
    pipe_kept_end,
    /// `pipe_inode_info.prealloc.count` (7.3+): how many of the places are in use.
    pipe_kept_count,
    /// `pipe_buffer.page`
    pipe_buffer_page,
    /// `pipe_buffer.offset`
    pipe_buffer_offset,
    /// `pipe_buffer.len`
    pipe_buffer_len,
    /// `sizeof(struct pipe_buffer)`
    pipe_buffer_size,
    /// `sizeof(struct page)`
    page_size,
    /// `work_struct.func`
    work_func,
    /// `pt_regs.orig_ax`, or the architecture's place for the call number.
    regs_syscall,
    /// The first argument of a system call in `pt_regs`.
    regs_arg0,
}

/// Constants of the running kernel and of this run. One value, so that the
/// programs have one global.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Address of `cleanup_net`, 0 if unknown.
    pub cleanup_net: u64,
    /// Address of `fib_inetaddr_event`, 0 if unknown: called on each change of
    /// an IPv4 address.
    pub fib_inetaddr_event: u64,
    /// Address of `inetdev_event`, 0 if unknown: called on each change of a
    /// device, so also when the loopback device of a new namespace is made.
    pub inetdev_event: u64,
    /// Stalls shorter than this are not reported, ns.
    pub stall_threshold_ns: u64,
    /// 1 if `sched_switch` hands over `prev_state` (5.18+).
    pub switch_has_state: u32,
    /// Bits of the task state that mean "not stuck": `TASK_NOLOAD`,
    /// `TASK_FROZEN`.
    pub state_ignore: u32,
    /// Number of the `unshare` system call.
    pub sys_unshare: u32,
    /// Inode number of the tracer's PID namespace, which must be the host's: a
    /// program outside it is no CNI plugin that anybody believes.
    pub host_pid_ns: u32,
    /// The bit of `task_struct.sched_contributes_to_load` in its word, which
    /// the scheduler sets if the task's last sleep was in state D; 0 if the
    /// kernel has no such bit.
    pub contributes_mask: u32,
    /// Inode number of the user namespace of the node's first process.
    pub host_user_ns: u32,
    /// Inode number of the network namespace of the node's first process.
    pub host_netns: u32,
    /// A random number, so that nobody can choose to share a crowd
    /// ([`Blocked::crowd`](crate::record::Blocked)) with somebody else.
    pub crowd_seed: u32,
}

const _: () = assert!(size_of::<Settings>() == 64);
