//! A walk of the kernel's list set against the table: what is new on it, what
//! is dying, what is no longer on it, and which addresses have changed.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use node_tracer_ebpf::record::{Net, Task as KernelTask};

use super::{Change, LOST_AFTER, List, ListedNet, MAKING, NetRow, NetTable, identity};
use event::Netns;

impl NetTable {
    /// A walk of the kernel's list.
    ///
    /// All records written before must have been taken in, and so must starts
    /// of `cleanup_net` until the walk's end: what it unlinks is missing from
    /// the list. Other records written since come after, as the list does not
    /// show yet what they tell.
    pub(crate) fn walked(&mut self, list: List, out: &mut Vec<Change>) {
        let time = list.start;
        let listed: HashMap<u64, Net, RandomState> = list
            .nets
            .iter()
            .flat_map(|s| [(s.net.address, s.net), (u64::from(s.net.inum), s.net)])
            .collect();
        // What could not be read can be what leads to it.
        if list.whole {
            self.missing(&listed, time, list.end, out);
        }
        // A namespace is on the list shortly after its loopback device was
        // made. Of several tasks that made devices it can be any.
        self.makers
            .retain(|(made, _)| time.saturating_sub(*made) < MAKING);
        let maker = match self.makers.as_slice() {
            [only] => Some(*only),
            _ => None,
        };
        let mut dying = Vec::new();
        for seen in list.nets {
            self.listed(seen, maker, time, &mut dying, out);
        }
        let queued = self.queued.take();
        for netns in dying {
            out.push(Change::Dying(netns, queued.unwrap_or(time), None));
        }
    }

    fn listed(
        &mut self,
        seen: ListedNet,
        maker: Option<(u64, KernelTask)>,
        time: u64,
        dying: &mut Vec<Netns>,
        out: &mut Vec<Change>,
    ) {
        let ListedNet {
            net,
            addresses,
            cut,
            left_out,
        } = seen;
        if self.entry(net).is_none() {
            self.evict(net, time, out);
            let made = maker.map_or(time, |(made, _)| made);
            if self
                .insert(net, made, maker.map(|(_, task)| task))
                .is_none()
            {
                return;
            }
            self.makers.clear();
        }
        let (grace, host) = (self.grace(), self.host);
        let Some(known) = self.entry(net) else {
            return;
        };
        known.missing_since = None;
        known.listed = time;
        if net.refs > 0 {
            known.dying = false;
        }
        let waited = time.saturating_sub(known.first_seen) >= grace;
        let any = addresses.as_ref().is_some_and(|all| !all.is_empty());
        if net.refs == 0 || any || waited {
            Self::report(known, out);
        }
        // Also where a hook tells: two tasks that let go at once both see
        // another reference, and neither is told as the last.
        if net.refs == 0 && !std::mem::replace(&mut known.dying, true) {
            dying.push(identity(known.net));
        }
        let Some(addresses) = addresses else {
            return;
        };
        if !host.has(net.inum) && !known.budget.has_room(time) {
            let changes = addresses
                .iter()
                .any(|address| !known.addresses.has(address));
            if changes || addresses.len() != known.addresses.len() {
                known.cut = true;
                known.left_out = known.left_out.max(1);
            }
            return;
        }
        known.cut = cut;
        // Also where hooks tell: the kernel has ways to drop an address that
        // lead past every one of them.
        if cut {
            // What is left out of it is counted when all of it is read.
            let refused = known.refused;
            self.read(net, time, &addresses, out);
            if let Some(known) = self.entry(net) {
                known.refused = refused;
            }
            return;
        }
        self.reads(net);
        let mut added = Vec::new();
        self.read(net, time, &addresses, &mut added);
        let gone = self.gone(net, left_out, 0);
        let netns = self.identify(net);
        let gone = gone.into_iter();
        out.extend(gone.map(|address| Change::AddressRemoved(netns, time, address)));
        out.append(&mut added);
    }

    /// Looks for namespaces that are no longer on the list made between `start`
    /// and `time`.
    fn missing(
        &mut self,
        listed: &HashMap<u64, Net, RandomState>,
        start: u64,
        time: u64,
        out: &mut Vec<Change>,
    ) {
        let mut gone = Vec::new();
        for (address, known) in &mut self.known {
            let net = listed.get(address).or_else(|| {
                // A list by numbers has no addresses.
                let net = listed.get(&u64::from(known.net.inum));
                net.filter(|net| net.address == u64::from(net.inum))
            });
            if net.is_some_and(|net| Self::same(known, *net)) {
                continue;
            }
            if known.first_seen >= start {
                continue; // made since
            }
            let Some(since) = known.missing_since else {
                known.missing_since = Some(time);
                // A comparison can overlook one that changes hands meanwhile.
                if self.trust.ends && self.trust.list && !known.dying {
                    Self::report(known, out);
                    known.dying = true;
                    let queued = self.queued.unwrap_or(start);
                    out.push(Change::Dying(identity(known.net), queued, None));
                }
                continue;
            };
            gone.push((*address, since));
        }
        gone.retain(|(address, since)| {
            let known = self.known.get(address);
            known.is_some_and(|known| self.is_done(known, *since, time))
        });
        for (address, since) in gone {
            // The end of the run, if that was seen; else the last thing known.
            let end = if self.cleanup_ended > since {
                self.cleanup_ended
            } else {
                time
            };
            self.end(address, end, out);
        }
    }

    /// Whether what is missing since then has been taken down.
    fn is_done(&self, known: &NetRow, since: u64, time: u64) -> bool {
        let returned = self.cleanup_ended > since;
        if self.trust.ends {
            // The run of cleanup_net that is under way may be about it, unless
            // it was missing before that run began: there is one run at a time.
            let over = match self.cleanup_since {
                Some(run) => since < run,
                None => !self.no_run_heard_of(known),
            };
            return returned || over;
        }
        // Only a look at the worker has told that, after a loss. What a
        // comparison does not list need not have been let go.
        let overdue = time.saturating_sub(since) > LOST_AFTER;
        let lost = overdue && self.lost_since_listed(known);
        returned && (self.trust.list || known.dying || lost)
    }
}
