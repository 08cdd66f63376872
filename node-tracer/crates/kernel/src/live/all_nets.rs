//! Every network namespace that there is, for who does not trace: the kernel's own
//! list, which nothing hides a namespace from, whatever keeps it alive.

use std::{collections::BTreeSet, fmt, path::Path, time::Duration};

use super::reading;
use crate::ebpf::{LoadError, ProbeError, Probes, Wanted, plan::Mechanism};
use event::{Address, Netns, UserNs};

/// Items of one namespace that are read.
const MAX_ITEMS: u32 = 4_096;

/// Why the list cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum AllNetsError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("this kernel takes no iterators (Linux 5.8 has them)")]
    NoIterators,
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
    /// Address of its `struct net`.
    pub at: u64,
    /// The last reference is gone, and it is about to be taken down.
    pub ends: bool,
    /// The user namespace that it belongs to, the host's included, where known.
    pub user_ns: Option<UserNs>,
    /// But for those of its loopback device.
    pub addresses: BTreeSet<Address>,
    /// It has more than were read.
    pub cut: bool,
}

impl ListedNetns {
    /// Whether both are one namespace, at two times.
    pub fn is(&self, other: &Self) -> bool {
        (self.netns, self.at) == (other.netns, other.at)
    }
}

/// The program that walks the list; nothing of it is attached to anything.
pub struct AllNets {
    probes: Probes,
    init_net: u64,
}

impl fmt::Debug for AllNets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllNets").finish_non_exhaustive()
    }
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
        let (mut probes, plan, _) = Probes::load(proc, &wanted)?;
        let planned = plan.attachments();
        let walks = |name| planned.iter().any(|attach| attach.program == name);
        if !walks("net_walk") || !walks("task_rows") {
            return Err(AllNetsError::NoIterators);
        }
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
        let listed = entries.iter().map(|entry| {
            let user = entry.net.user;
            let seen = reading::seen(entry, MAX_ITEMS);
            ListedNetns {
                netns: Netns {
                    inode: entry.net.inum,
                    cookie: (entry.net.cookie != 0).then_some(entry.net.cookie),
                },
                at: entry.net.address,
                ends: entry.net.refs == 0,
                user_ns: (user.inum != 0).then_some(UserNs {
                    inode: user.inum,
                    uid: user.owner,
                }),
                addresses: seen.addresses.unwrap_or_default(),
                cut: seen.cut,
            }
        });
        Ok(listed.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "needs root"]
    fn the_host_is_on_the_list() {
        let mut all = AllNets::load(Path::new("/proc")).unwrap();
        let listed = all.read().unwrap();
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let is_own =
            |each: &ListedNetns| own.to_string_lossy() == format!("net:[{}]", each.netns.inode);
        assert!(listed.iter().any(is_own));
    }
}
