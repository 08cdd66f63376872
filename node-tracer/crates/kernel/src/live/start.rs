//! The start: what is there already is told as found, before any record is
//! taken.

use std::collections::HashMap;

use node_tracer_ebpf::record::{self, TaskRow, owner};

use super::{
    Config, Due, Live, MILLISECOND, SECOND,
    budget::Apart,
    cni::{CniTable, Host},
    crowds::Crowds,
    holders::Holders,
    inventory::{InventoryError, Iterators, Polled, Unread},
    nets::{self, NetTable, Trust},
    reading::Readings,
    repeats::Repeats,
    tasks::Owners,
    user_nets::UserNets,
};
use crate::ebpf::{
    Attached,
    inventory::TaskEntry,
    plan::{Mechanism, Signal},
    symbols::Symbols,
};
use event::{Event, UserNs, What};
use node::procfs::{FuseServers, Procfs};
use sys::clock::{KernelClock, monotonic_now as now};

/// Why the source cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is nothing to wait for records with.
    #[error("cannot make a pipe")]
    Pipe(#[source] std::io::Error),
    /// The first look failed.
    #[error("the kernel's tasks and namespaces cannot be listed")]
    Inventory(#[source] InventoryError),
    /// Namespaces come and go faster than they can be listed.
    #[error("the kernel's list of network namespaces does not hold still; try again")]
    Restless,
    /// Tasks are seen from inside a PID namespace.
    #[error(
        "the host's tasks cannot be seen: node-tracer must run in the host's PID namespace \
         (hostPID: true, or --pid=host)"
    )]
    PidNamespace,
}

/// How often the first listing is tried.
const STOCK_ATTEMPTS: usize = 5;

/// Address of the initial network namespace: kthreadd's. `None` if that is not seen.
pub(super) fn init_net(all: &[TaskEntry]) -> Option<u64> {
    let mut rows = all.iter().map(|entry| entry.row);
    let kthreadd = rows.find(|row| row.task.tid == 2)?;
    let is_it = kthreadd.task.comm.starts_with(b"kthreadd\0");
    is_it.then_some(kthreadd.net_address)
}

impl Live {
    /// Takes stock, the programs being attached: what happens from then on is
    /// told as records. Returns what was found as events.
    pub fn start(
        config: Config,
        procfs: Procfs,
        attached: Attached,
        symbols: Option<Symbols>,
    ) -> Result<(Self, Vec<Event>), StartError> {
        let Attached { probes, plan, .. } = attached;
        let clock = KernelClock::now();
        let planned: Vec<&str> = plan
            .attachments()
            .iter()
            .map(|attach| attach.program)
            .collect();
        let iterators = Iterators {
            tasks: planned.contains(&"task_rows"),
            nets: planned.contains(&"net_walk"),
        };
        let hooked = |signal| {
            matches!(
                plan.mechanism(signal),
                Mechanism::Fentry | Mechanism::Kprobe
            )
        };
        let trust = Trust {
            creations: !hooked(Signal::NetnsCreated),
            ends: !hooked(Signal::NetnsDestroyed),
            runs: planned.contains(&"cleanup_ended"),
            list: iterators.nets,
        };
        let told = [
            Signal::NetnsCreated,
            Signal::NetnsDying,
            Signal::NetnsDestroyed,
            Signal::Address,
        ];
        let asked = told
            .iter()
            .all(|signal| plan.mechanism(*signal) > Mechanism::Iterator);
        let polled = !planned
            .iter()
            .any(|program| program.starts_with("task_switch"));
        let mut live = Self {
            nets: NetTable::new(trust),
            user_nets: UserNets::new(),
            cni: CniTable::new(Host::default()),
            listener: None,
            callers: Apart::new(Repeats::new),
            kills: Apart::new(Repeats::new),
            crowds: Apart::new(Crowds::new),
            unfollowed: HashMap::new(),
            fuse: FuseServers::default(),
            owners: Owners::new(procfs.clone()),
            holders: Holders::new(),
            symbols,
            silence: std::io::pipe().map_err(StartError::Pipe)?,
            dropped: HashMap::new(),
            made: Vec::new(),
            due: Due::new(iterators),
            host_users: procfs.host_users(),
            init_net: 0,
            polled: polled.then(Polled::default),
            told: HashMap::new(),
            undated: HashMap::new(),
            not_stuck: HashMap::new(),
            woken: HashMap::new(),
            asked,
            iterators,
            tasks_whole: false,
            unread: Unread::default(),
            readings: Readings::default(),
            procfs,
            config,
            clock,
            probes,
            plan,
        };
        let mut all = live.list_tasks(false).map_err(StartError::Inventory)?;
        live.init_net = init_net(&all).ok_or(StartError::PidNamespace)?;
        let host;
        (live.nets.host.first, host) = self::host(&live.procfs, &all);
        live.cni = CniTable::new(host);
        if let Some(probes) = &mut live.probes {
            probes.is_home(host.mnt_ns);
        }
        // When these were listed, the kernel's programs did not know yet where
        // the host is at home.
        for entry in &mut all {
            let TaskRow { task, owner, .. } = &mut entry.row;
            if owner.kind == owner::CONTAINER && owner.id == host.mnt_ns {
                (owner.kind, owner.id) = (owner::USER, task.euid);
            }
        }
        let mut out = Vec::new();
        live.take_stock(&all, &mut out)?;
        Ok((live, out))
    }

    pub(super) fn is_host(&self, net: &record::Net) -> bool {
        net.address == self.init_net || self.nets.host.has(net.inum)
    }

    /// The user namespace that a network namespace belongs to, if that is not
    /// the host's and is known.
    pub(super) fn user_ns(&self, user: record::NetUser) -> Option<UserNs> {
        let user_ns = (user.inum != 0).then_some(UserNs {
            inode: user.inum,
            uid: user.owner,
        });
        self.host_users.other(user_ns?)
    }

    fn take_stock(&mut self, all: &[TaskEntry], out: &mut Vec<Event>) -> Result<(), StartError> {
        let start = now();
        let time = self.time(start);
        let mut seen = None;
        for _ in 0..STOCK_ATTEMPTS {
            seen = self.list_nets(Some(all)).map_err(StartError::Inventory)?;
            if seen.is_some() {
                break;
            }
        }
        let mut seen = seen.ok_or(StartError::Restless)?.nets;
        self.look_at_mounts();
        let users = self.take_users(&mut seen);
        let mut changes = Vec::new();
        let users = self.user_nets.seed(users, start, &mut changes);
        let mut dying = Vec::new();
        for net in seen.iter().map(|seen| &seen.net).chain(&users) {
            let netns = nets::identity(*net);
            let host = self.is_host(net);
            self.nets.host.are_two |= host && net.inum != self.nets.host.first;
            let user_ns = self.user_ns(net.user);
            let what = What::NetnsFound {
                netns,
                host,
                node: false,
                user_ns,
            };
            out.push(Event { time, what });
            if net.refs == 0 {
                let what = What::NetnsDying { netns, task: None };
                dying.push(Event { time, what });
            }
        }
        self.nets.seed(seen, start, &mut changes);
        self.tell(changes, out);
        out.append(&mut dying);
        self.want_readings();
        self.tell_left_out(out);
        self.look_at_holders(all, true, out);
        self.stock_of_stalls(all, start, out);
        self.due.stalls = start + MILLISECOND;
        self.due.second = start + SECOND;
        Ok(())
    }
}

/// The host's namespaces: those of its first process.
fn host(procfs: &Procfs, all: &[TaskEntry]) -> (u32, Host) {
    let row = |pid: u32| {
        all.iter()
            .find(|e| e.row.task.tid == pid)
            .map(|e| e.row.task)
    };
    let first = row(1)
        .or_else(|| row(std::process::id()))
        .unwrap_or_default();
    let host = Host {
        pid_ns: first.pid_inum,
        mnt_ns: first.mnt_inum,
    };
    // With --root the host is what that root's first process is in.
    (procfs.netns_of(1).unwrap_or(first.net_inum), host)
}
