//! The ladder of each signal, from the best mechanism to the last, and what
//! each rung takes: programs, and the facts they rest on. The ladders of
//! namespaces are in `netns`, the single needs in `needs`.

use super::needs::{
    address, bpf_loop, fentry, fexit, iterators, kprobe, kretprobe, may_enter, members,
    not_refused, raw_tp, tp_btf,
};
use super::{Attach, AttachKind, Mechanism, Obstacle, Signal, netns};
use crate::ebpf::facts::Facts;

/// What a mechanism takes, if the kernel allows it.
pub(super) struct Step {
    pub(super) attach: Vec<Attach>,
    pub(super) unknown: Vec<&'static str>,
}

/// One way to hear a signal.
pub(super) type Rung = (Mechanism, fn(&Facts) -> Result<Step, Obstacle>);

/// The rungs from best to last; the last one always holds.
pub(super) fn of(signal: Signal) -> &'static [Rung] {
    use Mechanism::{Comparison, Fentry, Iterator, Kprobe, RawTracepoint, TpBtf};
    match signal {
        Signal::NetnsCreated => &[
            (Fentry, netns::created_fentry),
            (Kprobe, netns::created_kprobe),
            (TpBtf, netns::created_notifier),
            (TpBtf, netns::created_sys_exit),
            (Comparison, netns::created_comparison),
        ],
        Signal::NetnsDying => &[
            (Fentry, netns::dying_fentry),
            (Kprobe, netns::dying_kprobe),
            (TpBtf, netns::dying_tp_btf),
            (Comparison, netns::dying_comparison),
        ],
        Signal::NetnsDestroyed => &[
            (Fentry, netns::destroyed_fentry),
            (Kprobe, netns::destroyed_kprobe),
            (TpBtf, netns::destroyed_tp_btf),
            (Comparison, netns::destroyed_comparison),
        ],
        Signal::Address => &[
            (Fentry, address_fentry),
            (Kprobe, address_kprobe),
            (TpBtf, address_tp_btf),
            (Iterator, address_iterator),
            (Comparison, address_comparison),
        ],
        Signal::TaskBlocked => &[
            (TpBtf, blocked_tp_btf),
            (RawTracepoint, blocked_raw),
            (Iterator, blocked_iterator),
            (Comparison, blocked_comparison),
        ],
        Signal::CniCall => &[(TpBtf, cni_tp_btf), (Mechanism::None, cni_none)],
        Signal::CniResult => &[(TpBtf, result_tp_btf), (Mechanism::None, result_none)],
        Signal::Inventory => &[
            (Iterator, inventory_iterator),
            (Comparison, inventory_comparison),
        ],
        Signal::OomKill => &[(RawTracepoint, oom_raw), (Mechanism::None, oom_none)],
    }
}

pub(super) const fn attach(program: &'static str, kind: AttachKind) -> Attach {
    Attach { program, kind }
}

pub(super) fn step(attach: Vec<Attach>, unknown: &[&'static str]) -> Result<Step, Obstacle> {
    Ok(Step {
        attach,
        unknown: unknown.to_vec(),
    })
}

/// The program on the kernel's notifier chains. It knows by their addresses
/// the two callbacks that matter; who asks for it names the one it needs.
pub(super) fn notified(
    facts: &Facts,
    callback: &'static str,
    at: Option<u64>,
) -> Result<Attach, Obstacle> {
    let run = tp_btf(facts, "notifier_run")?;
    address(facts, callback, at)?;
    Ok(attach("notified", run))
}

const TASK_ROWS: Attach = attach("task_rows", AttachKind::Iter("task"));
const NET_WALK: Attach = attach("net_walk", AttachKind::Iter("bpf_map"));

/// The walk of the kernel's list of namespaces with their devices and
/// addresses. It starts at the initial namespace, which is the one that the
/// kernel's threads are in: so the tasks are asked first.
pub(super) fn walk(facts: &Facts) -> Result<[Attach; 2], Obstacle> {
    iterators(facts)?;
    bpf_loop(facts)?;
    members!(facts, task_pid, task_nsproxy, nsproxy_net_ns)?;
    members!(
        facts,
        net_list,
        net_inum,
        net_cookie,
        net_dev_base_head,
        dev_list,
        dev_flags,
        dev_ip_ptr,
        in_dev_ifa_list,
        ifa_next,
        ifa_local,
        ifa_prefixlen,
    )?;
    device_members(facts)?;
    not_refused(facts, TASK_ROWS.program)?;
    not_refused(facts, NET_WALK.program)?;
    Ok([TASK_ROWS, NET_WALK])
}

/// Adds what is unknown where the walk does not understand this kernel's IPv6.
fn without_inet6(facts: &Facts, mut step: Step) -> Step {
    let members = members!(
        facts,
        dev_ip6_ptr,
        in6_dev_addr_list,
        ifa6_list,
        ifa6_addr,
        ifa6_prefix_len,
    );
    if members.is_err() {
        step.unknown.push("IPv6 addresses");
    } else if members!(facts, ifa6_flags).is_err() {
        step.unknown.push("IPv6 addresses that another host has");
    }
    step
}

// An address was added or removed.

const INET6_LATE: &str = "IPv6 address changes until the next look";

/// What every record of an address says of the device.
fn device_members(facts: &Facts) -> Result<(), Obstacle> {
    members!(
        facts,
        dev_net,
        dev_name,
        dev_ifindex,
        dev_link_ops,
        link_ops_kind,
        net_inum,
    )
}

fn inet_members(facts: &Facts) -> Result<(), Obstacle> {
    members!(facts, ifa_local, ifa_prefixlen, ifa_dev, in_dev_dev)?;
    device_members(facts)
}

fn inet6_members(facts: &Facts) -> Result<(), Obstacle> {
    members!(facts, ifa6_addr, ifa6_prefix_len, ifa6_idev, in6_dev_dev,)
}

/// IPv4 decides the mechanism. IPv6 may be a module or left out, and then
/// comes with the walk or the comparison.
fn with_inet6(inet: Vec<Attach>, inet6: Result<Vec<Attach>, Obstacle>) -> Result<Step, Obstacle> {
    match inet6 {
        Ok(inet6) => step([inet, inet6].concat(), &[]),
        Err(_) => step(inet, &[INET6_LATE]),
    }
}

fn address_fentry(facts: &Facts) -> Result<Step, Obstacle> {
    let insert = fexit(facts, "__inet_insert_ifa", 4)?;
    let del = fentry(facts, "__inet_del_ifa")?;
    inet_members(facts)?;
    let inet6 = || {
        inet6_members(facts)?;
        Ok(vec![
            attach("inet6_add_fexit", fexit(facts, "ipv6_add_addr", 4)?),
            attach("inet6_del_fentry", fentry(facts, "ipv6_del_addr")?),
        ])
    };
    with_inet6(
        vec![
            attach("inet_insert_fexit", insert),
            attach("inet_del_fentry", del),
        ],
        inet6(),
    )
}

fn address_kprobe(facts: &Facts) -> Result<Step, Obstacle> {
    // The address is an argument, whether it was added is the result.
    let insert = kprobe(facts, "__inet_insert_ifa")?;
    let inserted = kretprobe(facts, "__inet_insert_ifa")?;
    let del = kprobe(facts, "__inet_del_ifa")?;
    inet_members(facts)?;
    let inet6 = || {
        inet6_members(facts)?;
        Ok(vec![
            attach("inet6_add_kretprobe", kretprobe(facts, "ipv6_add_addr")?),
            attach("inet6_del_kprobe", kprobe(facts, "ipv6_del_addr")?),
        ])
    };
    with_inet6(
        vec![
            attach("inet_insert_kprobe", insert),
            attach("inet_insert_kretprobe", inserted),
            attach("inet_del_kprobe", del),
        ],
        inet6(),
    )
}

fn address_tp_btf(facts: &Facts) -> Result<Step, Obstacle> {
    let notified = notified(facts, "fib_inetaddr_event", facts.fib_inetaddr_event)?;
    let [tasks, walk] = walk(facts)?;
    let step = step(
        vec![notified, tasks, walk],
        &[
            "very short-lived addresses",
            "IPv6 address changes until the next walk (after a CNI call, or one to ten seconds)",
        ],
    )?;
    Ok(without_inet6(facts, step))
}

fn address_iterator(facts: &Facts) -> Result<Step, Obstacle> {
    let step = step(
        walk(facts)?.to_vec(),
        &[
            "address changes until the next walk (after a CNI call, or a second)",
            "addresses that come and go between two walks",
        ],
    )?;
    Ok(without_inet6(facts, step))
}

fn address_comparison(facts: &Facts) -> Result<Step, Obstacle> {
    may_enter(facts)?;
    step(
        Vec::new(),
        &[
            "address changes until the next comparison, which follows a CNI call",
            "addresses that come and go between two comparisons",
            "addresses of namespaces that no task, mount or fd leads to",
        ],
    )
}

// A task entered or left uninterruptible sleep.

fn blocked_members(facts: &Facts) -> Result<(), Obstacle> {
    members!(
        facts,
        task_state,
        task_flags,
        task_pid,
        task_tgid,
        task_comm,
        task_start_boottime,
        task_nsproxy,
        nsproxy_net_ns,
        net_inum,
    )
}

fn blocked_tp_btf(facts: &Facts) -> Result<Step, Obstacle> {
    let switch = tp_btf(facts, "sched_switch")?;
    blocked_members(facts)?;
    members!(facts, task_contributes)?;
    // The scheduler does not set the bit of who stays on the run queue.
    if facts.proxy_exec == Some(true) {
        return Err(Obstacle::ProxyExec);
    }
    step(vec![attach("task_switch", switch)], &[])
}

fn blocked_raw(facts: &Facts) -> Result<Step, Obstacle> {
    let switch = raw_tp(facts, "sched_switch")?;
    // Here the task still has its old state, which the wake-up replaces.
    let waking = raw_tp(facts, "sched_waking")?;
    blocked_members(facts)?;
    step(
        vec![
            attach("task_switch_raw", switch),
            attach("task_waking_raw", waking),
        ],
        &[],
    )
}

/// The iterator over tasks.
fn task_rows(facts: &Facts) -> Result<Attach, Obstacle> {
    iterators(facts)?;
    blocked_members(facts)?;
    Ok(TASK_ROWS)
}

fn blocked_iterator(facts: &Facts) -> Result<Step, Obstacle> {
    step(
        vec![task_rows(facts)?],
        &[
            "when a stall began, more exactly than the last look at all tasks",
            "stalls between two looks",
        ],
    )
}

fn blocked_comparison(_: &Facts) -> Result<Step, Obstacle> {
    step(
        Vec::new(),
        &[
            "when a stall began, more exactly than the last look at /proc",
            "stalls between two looks",
        ],
    )
}

// A CNI plugin started or ended.

fn cni_tp_btf(facts: &Facts) -> Result<Step, Obstacle> {
    let exec = tp_btf(facts, "sched_process_exec")?;
    let exit = tp_btf(facts, "sched_process_exit")?;
    members!(
        facts,
        bprm_filename,
        task_mm,
        mm_env_start,
        mm_env_end,
        task_pid,
        task_tgid,
        task_real_parent,
        task_exit_code,
    )?;
    let mut unknown = Vec::new();
    let program = if facts.bpf_loop == Some(true) {
        "cni_exec"
    } else {
        unknown.push("CNI variables that lie behind the first 8 KiB of an environment");
        "cni_exec_bounded"
    };
    if members!(facts, task_signal, signal_live).is_err() {
        unknown.push("the end of a plugin with several threads, until the first has ended");
    }
    // A call whose origin cannot be told is not trusted.
    let origin = members!(
        facts,
        task_real_cred,
        cred_euid,
        cred_user_ns,
        user_ns_level,
        nsproxy_pid_ns,
        pid_ns_inum,
        nsproxy_mnt_ns,
        mnt_ns_inum,
    );
    if origin.is_err() {
        unknown.push("whether a CNI call comes from the host: none is trusted");
    } else if facts.may_look == Some(false) {
        unknown.push(
            "whether a CNI call comes from a runtime of the host, whose processes are shown with \
             CAP_SYS_PTRACE: none is trusted",
        );
    }
    step(
        vec![attach(program, exec), attach("cni_exit", exit)],
        &unknown,
    )
}

fn cni_none(_: &Facts) -> Result<Step, Obstacle> {
    step(
        Vec::new(),
        &["CNI calls, other than by the runtime's cache and by logs"],
    )
}

// What a CNI plugin was given and answered.

/// Read out of the plugin's pipes as it ends, and while it runs. The first
/// program finds out how the kernel's pages can be read at all.
fn result_tp_btf(facts: &Facts) -> Result<Step, Obstacle> {
    // Without the start there is no end.
    let mut attachments = cni_tp_btf(facts)?.attach;
    iterators(facts)?;
    members!(
        facts,
        task_files,
        files_fdt,
        fdt_max_fds,
        fdt_fd,
        file_inode,
        inode_mode,
        inode_pipe,
        pipe_head,
        pipe_tail,
        pipe_ring_size,
        pipe_bufs,
        pipe_kept,
        pipe_kept_end,
        pipe_buffer_page,
        pipe_buffer_offset,
        pipe_buffer_len,
        pipe_buffer_size,
        page_size,
    )?;
    let programs = ["page_probe", "cni_peek"];
    attachments.extend(programs.map(|program| attach(program, AttachKind::Iter("task"))));
    step(attachments, &[])
}

fn result_none(_: &Facts) -> Result<Step, Obstacle> {
    step(
        Vec::new(),
        &["network, result and error message of CNI calls; their exit status is known"],
    )
}

// What is there at the start.

fn inventory_iterator(facts: &Facts) -> Result<Step, Obstacle> {
    let tasks = task_rows(facts)?;
    match walk(facts) {
        Ok(walk) => {
            let step = step(walk.to_vec(), &[])?;
            Ok(without_inet6(facts, step))
        }
        Err(_) => step(vec![tasks], &[UNREACHED]),
    }
}

fn inventory_comparison(facts: &Facts) -> Result<Step, Obstacle> {
    let mut step = step(
        Vec::new(),
        &[UNREACHED, "tasks whose /proc entry does not answer"],
    )?;
    if may_enter(facts).is_err() {
        step.unknown.push("addresses");
    }
    Ok(step)
}

const UNREACHED: &str =
    "namespaces that only a socket holds or that are being taken down, and their addresses";

// A task was killed, as memory is short.

/// The raw tracepoint: it takes no types, and unlike the classic one no
/// tracefs. What kernels hand out there has changed; the program tells.
fn oom_raw(facts: &Facts) -> Result<Step, Obstacle> {
    let victim = raw_tp(facts, "mark_victim")?;
    members!(facts, task_pid, task_tgid)?;
    step(vec![attach("oom_victim", victim)], &[])
}

fn oom_none(_: &Facts) -> Result<Step, Obstacle> {
    step(
        Vec::new(),
        &["tasks that are killed as memory is short, other than by the kernel's log"],
    )
}
