//! What the running kernel offers: one struct of probed facts, each `None`
//! where it is not known, which is not "no".
//!
//! Only [`Facts::probe`] reads files; what follows from the facts is decided
//! in `plan`. No kernel version is read or compared: a member, a function or a
//! tracepoint is there or it is not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use node_tracer_ebpf::layout::{ABSENT, Layout, Settings};

use super::btf::{Btf, BtfError};
use super::symbols;

/// Functions the tracer hooks or knows by address.
const FUNCTIONS: &[&str] = &[
    "copy_net_ns",
    "__put_net",
    "netns_put",
    "cleanup_net",
    "sysctl_net_exit",
    "proc_free_inum",
    "switch_task_namespaces",
    "__inet_insert_ifa",
    "__inet_del_ifa",
    "ipv6_add_addr",
    "ipv6_del_addr",
    "fib_inetaddr_event",
    "inetdev_event",
];

/// Tracepoints the tracer attaches to.
const TRACEPOINTS: &[&str] = &[
    "sched_switch",
    "sched_waking",
    "sched_process_exec",
    "sched_process_exit",
    "task_newtask",
    "sys_exit",
    "workqueue_queue_work",
    "workqueue_execute_start",
    "workqueue_execute_end",
    "notifier_run",
    "mark_victim",
];

/// Functions that stand for the targets of iterator programs.
const ITERATORS: [&str; 2] = ["bpf_iter_task", "bpf_iter_bpf_map"];

/// A kernel has one function of this name for each tracepoint, whether or not
/// its BTF describes it.
const TRACEPOINT_SYMBOL: &str = "__traceiter_";

/// Bits of the task state that mean "not stuck" although `TASK_UNINTERRUPTIBLE`
/// is set: `TASK_NOLOAD` (0x400, an idle kernel thread) and `TASK_FROZEN`
/// (0x8000, in the freezer).
///
/// They are macros, so BTF does not tell them, and they need not be probed:
/// `TASK_FROZEN` came with Linux 6.1, before which the bits ended at
/// `TASK_STATE_MAX`, 0x1000 (5.10) or 0x2000 (until 6.0), so the bit was never
/// set. There frozen tasks are told by where they sleep.
pub const STATE_IGNORE: u32 = 0x400 | 0x8000;

/// A fact that could not be probed, and why.
#[derive(Debug, thiserror::Error)]
pub enum FactError {
    /// A file of the kernel could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        /// The error of `open` or `read`.
        #[source]
        source: io::Error,
    },
    /// The kernel's type information makes no sense to us.
    #[error("cannot understand {}", path.display())]
    Btf {
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: BtfError,
    },
}

/// What the running kernel offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Where struct members lie.
    pub layout: Layout,
    /// Functions in BTF, of those the tracer knows, with their number of
    /// parameters. `None`: no BTF.
    pub functions: Option<BTreeMap<&'static str, usize>>,
    /// Tracepoints in BTF with the number of their arguments. `None`: no BTF.
    pub tracepoints: Option<BTreeMap<&'static str, usize>>,
    /// Functions in the symbol table: what a kprobe can be put on, and what an
    /// fentry program can be linked to. `None`: the table is not readable.
    pub symbols: Option<BTreeSet<&'static str>>,
    /// Tracepoints by the symbol table. `None`: the table is not readable.
    pub raw_tracepoints: Option<BTreeSet<&'static str>>,
    /// `sched_switch` hands over the state of the task that leaves.
    pub switch_has_state: Option<bool>,
    /// The bit of `sched_contributes_to_load` in its word.
    pub contributes_mask: Option<u32>,
    /// A task that waits for a mutex may stay on its run queue, and then has
    /// that bit of an earlier sleep.
    pub proxy_exec: Option<bool>,
    /// The kernel has kprobes.
    pub kprobes: Option<bool>,
    /// The kernel takes fentry and fexit programs.
    pub fentry: Option<bool>,
    /// The kernel has iterators over tasks and over BPF maps.
    pub iterators: Option<bool>,
    /// The helper `bpf_loop` exists.
    pub bpf_loop: Option<bool>,
    /// Address of the function that takes network namespaces down. `None`:
    /// hidden, or not the only function of its name.
    pub cleanup_net: Option<u64>,
    /// Address of the routing table's notifier for IPv4 addresses.
    pub fib_inetaddr_event: Option<u64>,
    /// Address of IPv4's notifier for devices.
    pub inetdev_event: Option<u64>,
    /// The kernel's lockdown mode: `none`, `integrity`, `confidentiality`.
    pub lockdown: Option<String>,
    /// Programs that the kernel was given and did not take, and what it said.
    pub refused: BTreeMap<&'static str, String>,
    /// Why no program at all can be loaded.
    pub no_programs: Option<String>,
    /// The tracer may enter network namespaces.
    pub may_enter: Option<bool>,
    /// The tracer may look at processes with other rights than its own.
    pub may_look: Option<bool>,
}

impl Facts {
    pub const UNKNOWN: Self = Self {
        layout: Layout::UNKNOWN,
        functions: None,
        tracepoints: None,
        symbols: None,
        raw_tracepoints: None,
        switch_has_state: None,
        contributes_mask: None,
        proxy_exec: None,
        kprobes: None,
        fentry: None,
        iterators: None,
        bpf_loop: None,
        cleanup_net: None,
        fib_inetaddr_event: None,
        inetdev_event: None,
        lockdown: None,
        refused: BTreeMap::new(),
        no_programs: None,
        may_enter: None,
        may_look: None,
    };

    /// Asks the kernel, given where its `/proc` and `/sys` are. What only the
    /// loading of a program can tell, the caller has tried: whether an fentry
    /// program loads and whether `bpf_loop` exists.
    ///
    /// Never fails as a whole; the errors say which facts are missing.
    pub fn probe(
        proc: &Path,
        sys: &Path,
        fentry: Option<bool>,
        bpf_loop: Option<bool>,
    ) -> (Self, Vec<FactError>) {
        let mut facts = Self {
            kprobes: kprobe_pmu(sys),
            fentry,
            bpf_loop,
            refused: BTreeMap::new(),
            lockdown: fs::read_to_string(sys.join("kernel/security/lockdown"))
                .ok()
                .and_then(|modes| lockdown(&modes)),
            ..Self::UNKNOWN
        };
        let mut errors = Vec::new();

        let path = sys.join("kernel/btf/vmlinux");
        match fs::read(&path) {
            Ok(bytes) => match Btf::parse(&bytes) {
                Ok(btf) => facts.learn_types(&btf),
                Err(source) => errors.push(FactError::Btf { path, source }),
            },
            Err(source) => errors.push(FactError::Read { path, source }),
        }

        let path = proc.join("kallsyms");
        let learned = fs::File::open(&path).and_then(|file| facts.learn_symbols(file));
        if let Err(source) = learned {
            errors.push(FactError::Read { path, source });
        }
        (facts, errors)
    }

    fn learn_types(&mut self, btf: &Btf<'_>) {
        self.layout = layout(btf);
        self.functions = Some(
            FUNCTIONS
                .iter()
                .filter_map(|&name| Some((name, btf.func_params(name)?)))
                .collect(),
        );
        let tracepoints: BTreeMap<_, _> = TRACEPOINTS
            .iter()
            .filter_map(|&name| Some((name, btf.tracepoint_params(name)?)))
            .collect();
        self.switch_has_state = tracepoints
            .get("sched_switch")
            .map(|&arguments| arguments >= 4);
        self.contributes_mask = contributes(btf).map(|(_, mask)| mask);
        self.proxy_exec = Some(proxy_exec(btf));
        self.tracepoints = Some(tracepoints);
        self.iterators = Some(ITERATORS.iter().all(|target| btf.has_func(target)));
    }

    /// Everything the symbol table tells.
    fn learn_symbols(&mut self, table: impl Read) -> io::Result<()> {
        let mut functions = BTreeSet::new();
        let mut tracepoints = BTreeSet::new();
        let mut cleanup_net = Address::default();
        let mut fib_inetaddr_event = Address::default();
        let mut inetdev_event = Address::default();
        symbols::scan(table, |symbol| {
            if symbol.module.is_some() {
                return;
            }
            match symbol.name {
                "cleanup_net" => cleanup_net.see(symbol.address),
                "fib_inetaddr_event" => fib_inetaddr_event.see(symbol.address),
                "inetdev_event" => inetdev_event.see(symbol.address),
                _ => {}
            }
            if let Some(tracepoint) = symbol.name.strip_prefix(TRACEPOINT_SYMBOL) {
                tracepoints.extend(TRACEPOINTS.iter().filter(|&&name| name == tracepoint));
            } else {
                functions.extend(FUNCTIONS.iter().filter(|&&name| name == symbol.name));
            }
        })?;
        self.symbols = Some(functions);
        self.raw_tracepoints = Some(tracepoints);
        self.cleanup_net = cleanup_net.only();
        self.fib_inetaddr_event = fib_inetaddr_event.only();
        self.inetdev_event = inetdev_event.only();
        Ok(())
    }

    /// The constants of the programs. An address that is not known is 0, which
    /// no function has.
    pub fn settings(&self, stall_threshold: Duration, host: Host) -> Settings {
        Settings {
            cleanup_net: self.cleanup_net.unwrap_or(0),
            fib_inetaddr_event: self.fib_inetaddr_event.unwrap_or(0),
            inetdev_event: self.inetdev_event.unwrap_or(0),
            stall_threshold_ns: u64::try_from(stall_threshold.as_nanos()).unwrap_or(u64::MAX),
            switch_has_state: u32::from(self.switch_has_state == Some(true)),
            state_ignore: STATE_IGNORE,
            sys_unshare: libc::SYS_unshare as u32,
            host_pid_ns: host.pid_ns,
            contributes_mask: self.contributes_mask.unwrap_or(0),
            host_user_ns: host.user_ns,
            host_netns: host.netns,
            // std's maps are seeded by the system's random numbers.
            crowd_seed: RandomState::new().hash_one(0) as u32,
        }
    }
}

/// Inode numbers of namespaces; 0 if not known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host {
    /// The tracer's PID namespace.
    pub pid_ns: u32,
    /// The user namespace of the node's first process.
    pub user_ns: u32,
    pub netns: u32,
}

impl Host {
    /// Of the node whose processes are at `proc`.
    pub fn read(proc: &Path) -> Self {
        let inode = |path: &Path| {
            let inode = fs::metadata(path).map(|link| link.ino());
            inode.ok().and_then(|inode| u32::try_from(inode).ok())
        };
        let of = |path: &Path| inode(path).unwrap_or(0);
        Self {
            pid_ns: of(Path::new("/proc/self/ns/pid")),
            user_ns: of(&proc.join("1/ns/user")),
            netns: of(&proc.join("1/ns/net")),
        }
    }
}

/// The address of a function that must be the only one of its name.
#[derive(Clone, Copy, Default)]
enum Address {
    #[default]
    Unseen,
    One(u64),
    Several,
}

impl Address {
    fn see(&mut self, address: u64) {
        *self = match *self {
            Self::Unseen => Self::One(address),
            Self::One(other) if other == address => *self,
            _ => Self::Several,
        };
    }

    fn only(self) -> Option<u64> {
        match self {
            Self::One(address) => Some(address).filter(|&address| address != 0),
            _ => None,
        }
    }
}

/// Whether the kernel has kprobes; not known where `/sys` shows no event
/// sources at all.
fn kprobe_pmu(sys: &Path) -> Option<bool> {
    let sources = sys.join("bus/event_source/devices");
    if !sources.try_exists().ok()? {
        return None;
    }
    sources.join("kprobe/type").try_exists().ok()
}

/// The mode in brackets of `none [integrity] confidentiality`.
fn lockdown(modes: &str) -> Option<String> {
    let (_, rest) = modes.split_once('[')?;
    let (mode, _) = rest.split_once(']')?;
    Some(mode.to_owned())
}

/// What the scheduler remembers of a task's last sleep: where it was in state
/// D, and neither `TASK_NOLOAD` nor `TASK_FROZEN` (`kernel/sched/core.c`).
fn contributes(btf: &Btf<'_>) -> Option<(u32, u32)> {
    btf.bit_of("task_struct", "sched_contributes_to_load")
}

/// With proxy execution (`CONFIG_SCHED_PROXY_EXEC`) a run queue has the task
/// whose time is used besides the one that runs; without, they are one member
/// with two names, or there is no donor. A boot parameter can still turn it off.
fn proxy_exec(btf: &Btf<'_>) -> bool {
    let [donor, curr] = ["donor", "curr"].map(|name| btf.offset_of("rq", name));
    donor.is_some() && donor != curr
}

/// A task has a number in each PID namespace that knows it, from the initial one
/// on.
fn second_number_ns(btf: &Btf<'_>) -> Option<u32> {
    let numbers = btf.offset_of("pid", "numbers")?;
    Some(numbers + btf.size_of("upid")? + btf.offset_of("upid", "ns")?)
}

/// Where the system call's number and first argument are in `pt_regs`.
const REGS: (&str, &str) = if cfg!(target_arch = "aarch64") {
    ("syscallno", "orig_x0")
} else {
    ("orig_ax", "di")
};

/// The byte offset of every member the programs read. Where kernels name a
/// member differently, the names are tried newest first.
pub fn layout(btf: &Btf<'_>) -> Layout {
    let at = |aggregate: &str, path: &str| btf.offset_of(aggregate, path).unwrap_or(ABSENT);
    let first = |aggregate: &str, paths: &[&str]| {
        let found = paths.iter().find_map(|path| btf.offset_of(aggregate, path));
        found.unwrap_or(ABSENT)
    };
    // No `..UNKNOWN`: a member added to the layout must be looked up here.
    let mut layout = Layout {
        // Renamed in 5.14, when it became an unsigned int.
        task_state: first("task_struct", &["__state", "state"]),
        task_flags: at("task_struct", "flags"),
        task_pid: at("task_struct", "pid"),
        task_tgid: at("task_struct", "tgid"),
        task_comm: at("task_struct", "comm"),
        task_nsproxy: at("task_struct", "nsproxy"),
        task_mm: at("task_struct", "mm"),
        task_exit_code: at("task_struct", "exit_code"),
        task_real_parent: at("task_struct", "real_parent"),
        task_start_boottime: at("task_struct", "start_boottime"),
        task_contributes: contributes(btf).map_or(ABSENT, |(word, _)| word),
        task_exec_start: at("task_struct", "se.exec_start"),
        task_cpu: first("task_struct", &["thread_info.cpu", "cpu"]),
        task_signal: at("task_struct", "signal"),
        task_real_cred: at("task_struct", "real_cred"),
        task_thread_pid: at("task_struct", "thread_pid"),
        pid_level: at("pid", "level"),
        pid_outermost_ns: second_number_ns(btf).unwrap_or(ABSENT),
        signal_live: at("signal_struct", "live"),
        signal_group_exit_code: at("signal_struct", "group_exit_code"),
        cred_uid: at("cred", "uid"),
        cred_euid: at("cred", "euid"),
        cred_user_ns: at("cred", "user_ns"),
        cred_cap_effective: at("cred", "cap_effective"),
        user_ns_level: at("user_namespace", "level"),
        user_ns_inum: at("user_namespace", "ns.inum"),
        user_ns_parent: at("user_namespace", "parent"),
        // A struct around the integer does not move it.
        user_ns_owner: at("user_namespace", "owner"),
        nsproxy_count: at("nsproxy", "count"),
        nsproxy_net_ns: at("nsproxy", "net_ns"),
        nsproxy_mnt_ns: at("nsproxy", "mnt_ns"),
        nsproxy_pid_ns: at("nsproxy", "pid_ns_for_children"),
        mnt_ns_inum: at("mnt_namespace", "ns.inum"),
        pid_ns_inum: at("pid_namespace", "ns.inum"),
        net_inum: at("net", "ns.inum"),
        // The count moved from `net` into `ns_common` in 5.11 and was renamed
        // in 6.18. A struct around the integer does not move it.
        net_refs: first("net", &["ns.__ns_ref", "ns.count", "count"]),
        net_user_ns: at("net", "user_ns"),
        net_cookie: at("net", "net_cookie"),
        net_list: at("net", "list"),
        net_dev_base_head: at("net", "dev_base_head"),
        net_ns_common: at("net", "ns"),
        dev_list: at("net_device", "dev_list"),
        // A struct around one pointer.
        dev_net: at("net_device", "nd_net"),
        dev_name: at("net_device", "name"),
        dev_ifindex: at("net_device", "ifindex"),
        dev_flags: at("net_device", "flags"),
        dev_link_ops: at("net_device", "rtnl_link_ops"),
        dev_ip_ptr: at("net_device", "ip_ptr"),
        dev_ip6_ptr: at("net_device", "ip6_ptr"),
        link_ops_kind: at("rtnl_link_ops", "kind"),
        in_dev_dev: at("in_device", "dev"),
        in_dev_ifa_list: at("in_device", "ifa_list"),
        ifa_next: at("in_ifaddr", "ifa_next"),
        ifa_dev: at("in_ifaddr", "ifa_dev"),
        ifa_local: at("in_ifaddr", "ifa_local"),
        ifa_prefixlen: at("in_ifaddr", "ifa_prefixlen"),
        in6_dev_dev: at("inet6_dev", "dev"),
        in6_dev_addr_list: at("inet6_dev", "addr_list"),
        ifa6_list: at("inet6_ifaddr", "if_list"),
        ifa6_idev: at("inet6_ifaddr", "idev"),
        ifa6_addr: at("inet6_ifaddr", "addr"),
        ifa6_prefix_len: at("inet6_ifaddr", "prefix_len"),
        ifa6_flags: at("inet6_ifaddr", "flags"),
        mm_env_start: at("mm_struct", "env_start"),
        mm_env_end: at("mm_struct", "env_end"),
        bprm_filename: at("linux_binprm", "filename"),
        task_files: at("task_struct", "files"),
        files_fdt: at("files_struct", "fdt"),
        fdt_max_fds: at("fdtable", "max_fds"),
        fdt_fd: at("fdtable", "fd"),
        file_inode: at("file", "f_inode"),
        inode_mode: at("inode", "i_mode"),
        inode_pipe: at("inode", "i_pipe"),
        pipe_head: at("pipe_inode_info", "head"),
        pipe_tail: at("pipe_inode_info", "tail"),
        pipe_ring_size: at("pipe_inode_info", "ring_size"),
        pipe_bufs: at("pipe_inode_info", "bufs"),
        pipe_kept: first("pipe_inode_info", &["prealloc.pages", "tmp_page"]),
        pipe_kept_end: first("pipe_inode_info", &["prealloc.count", "fasync_readers"]),
        pipe_kept_count: at("pipe_inode_info", "prealloc.count"),
        pipe_buffer_page: at("pipe_buffer", "page"),
        pipe_buffer_offset: at("pipe_buffer", "offset"),
        pipe_buffer_len: at("pipe_buffer", "len"),
        pipe_buffer_size: btf.size_of("pipe_buffer").unwrap_or(ABSENT),
        page_size: btf.size_of("page").unwrap_or(ABSENT),
        work_func: at("work_struct", "func"),
        regs_syscall: at("pt_regs", REGS.0),
        regs_arg0: at("pt_regs", REGS.1),
    };
    // The walk follows a device's IPv6 list by both of these. With one of them
    // missing, as may be where IPv6 is a module, it must not start.
    if layout.in6_dev_addr_list == ABSENT || layout.ifa6_list == ABSENT {
        layout.dev_ip6_ptr = ABSENT;
    }
    layout
}

#[cfg(test)]
mod tests;
