//! Every network namespace that there is, for who does not trace: the kernel's own
//! list, which nothing hides a namespace from, whatever keeps it alive.

use std::{collections::BTreeSet, fmt, path::Path, time::Duration};

use super::{nets, reading, start};
use crate::ebpf::{LoadError, ProbeError, Probes, Wanted, inventory::NetEntry, plan::Mechanism};
use event::{Address, Netns, UserNs};

/// Devices and addresses of each namespace that are read with the list: anybody can
/// make many.
const AT_FIRST: u32 = 16;
/// The same of one that matters, at once, and of all that matter.
const PIECE: u32 = 512;
const MAX_ITEMS: usize = 32_768;

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
        let init_net = start::init_net(&probes.tasks(None)?);
        let init_net = init_net.ok_or(AllNetsError::PidNamespace)?;
        Ok(Self { probes, init_net })
    }

    /// Those that are not among these, by their inodes. What is being taken down is
    /// one, too.
    ///
    /// # Errors
    /// See [`AllNetsError`].
    pub fn others(&mut self, than: &BTreeSet<u32>) -> Result<Vec<ListedNetns>, AllNetsError> {
        let entries = self.probes.netns(self.init_net, AT_FIRST)?;
        let entries = entries.ok_or(AllNetsError::Unsteady)?.into_iter();
        let mut room = MAX_ITEMS;
        entries
            .filter(|entry| !than.contains(&entry.net.inum))
            .map(|entry| self.whole(&entry, &mut room))
            .collect()
    }

    /// One with all its addresses, as far as there is room.
    fn whole(&mut self, entry: &NetEntry, room: &mut usize) -> Result<ListedNetns, AllNetsError> {
        let (net, mut device) = (entry.net, None);
        let mut addresses = reading::addresses(&entry.items, &mut device);
        let mut read = entry.items.len();
        let mut last = entry.items.last().copied();
        let mut cut = read >= AT_FIRST as usize;
        while cut && *room > 0 {
            // The last one again: if another is in its place, some may have been missed.
            let skip = u32::try_from(read.saturating_sub(1)).unwrap_or(u32::MAX);
            let more = self.probes.items(self.init_net, net, skip, PIECE)?;
            // `None` if it has just gone.
            let Some((items, is_all)) = more else { break };
            let Some((first, new)) = items.split_first().filter(|(it, _)| Some(**it) == last)
            else {
                break;
            };
            last = new.last().or(Some(first)).copied();
            read += new.len();
            *room = room.saturating_sub(items.len());
            addresses.extend(reading::addresses(new, &mut device));
            cut = !is_all;
            if new.is_empty() {
                break;
            }
        }
        Ok(ListedNetns {
            netns: nets::identity(net),
            at: net.address,
            ends: net.refs == 0,
            user_ns: (net.user.inum != 0).then_some(UserNs {
                inode: net.user.inum,
                uid: net.user.owner,
            }),
            addresses,
            cut,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "needs root"]
    fn the_host_is_on_the_list() {
        let mut all = AllNets::load(Path::new("/proc")).unwrap();
        let listed = all.others(&BTreeSet::new()).unwrap();
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let is_own =
            |each: &ListedNetns| own.to_string_lossy() == format!("net:[{}]", each.netns.inode);
        assert!(listed.iter().any(is_own));
    }
}
