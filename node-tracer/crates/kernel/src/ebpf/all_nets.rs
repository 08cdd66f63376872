//! Every network namespace that there is, for who does not trace: the kernel's own
//! list, which nothing hides a namespace from, whatever keeps it alive.

use std::{collections::BTreeSet, net::IpAddr, path::Path, time::Duration};

use super::{
    attached::{Attached, Wanted},
    inventory::Item,
    plan::Mechanism,
    probes::{LoadError, ProbeError, Probes},
};
use event::Netns;
use node_tracer_ebpf::record::WalkAddress;

/// Items of one namespace that are read.
const MAX_ITEMS: u32 = 4_096;

/// Why the list cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum AllNetsError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("this kernel, or a lack of CAP_BPF and CAP_PERFMON, allows no iterators: {0}")]
    NoIterators(String),
    #[error(transparent)]
    Probe(#[from] ProbeError),
    #[error("kthreadd is not seen: this is not the host's PID namespace")]
    PidNamespace,
    #[error("the list did not hold still")]
    Unsteady,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedNetns {
    pub netns: Netns,
    /// But for those of its loopback device.
    pub addresses: BTreeSet<IpAddr>,
    /// It has more than were read.
    pub cut: bool,
}

/// The program that walks the list; nothing of it is attached to anything.
pub struct AllNets {
    probes: Probes,
    init_net: u64,
}

impl AllNets {
    /// Loads it.
    ///
    /// # Errors
    /// See [`AllNetsError`].
    pub fn load(proc: &Path) -> Result<Self, AllNetsError> {
        let wanted = Wanted {
            stall_threshold: Duration::from_secs(1),
            limit: Some(Mechanism::Iterator),
            may_enter: true,
            may_look: true,
        };
        let Attached {
            probes,
            plan,
            warnings,
        } = Attached::new(proc, &wanted)?;
        let planned = plan.attachments();
        let walks = |name| planned.iter().any(|attach| attach.program == name);
        let Some(mut probes) = probes.filter(|_| walks("net_walk") && walks("task_rows")) else {
            return Err(AllNetsError::NoIterators(warnings.join("; ")));
        };
        let tasks = probes.tasks(None)?;
        let kthreadd = tasks
            .iter()
            .map(|entry| entry.row)
            .find(|row| row.task.tid == 2 && row.task.comm.starts_with(b"kthreadd\0"));
        let init_net = kthreadd.ok_or(AllNetsError::PidNamespace)?.net_address;
        Ok(Self { probes, init_net })
    }

    /// All of them, those included that are being taken down.
    ///
    /// # Errors
    /// See [`AllNetsError`].
    pub fn read(&mut self) -> Result<Vec<ListedNetns>, AllNetsError> {
        let entries = self.probes.netns(self.init_net, MAX_ITEMS)?;
        let entries = entries.ok_or(AllNetsError::Unsteady)?;
        let listed = entries.into_iter().map(|entry| ListedNetns {
            netns: Netns {
                inode: entry.net.inum,
                cookie: (entry.net.cookie != 0).then_some(entry.net.cookie),
            },
            cut: entry.items.len() >= MAX_ITEMS as usize,
            addresses: entry.items.iter().filter_map(address).collect(),
        });
        Ok(listed.collect())
    }
}

fn address(item: &Item) -> Option<IpAddr> {
    let Item::Address(WalkAddress {
        address, family, ..
    }) = item
    else {
        return None;
    };
    match family {
        4 => Some(IpAddr::from([
            address[0], address[1], address[2], address[3],
        ])),
        6 => Some(IpAddr::from(*address)),
        _ => None,
    }
}
