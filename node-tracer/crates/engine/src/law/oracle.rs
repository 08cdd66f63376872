//! Ghosts and duplicates by what a node really is, without any of the engine's
//! reasoning: the definitions of the rules' pages, over the truth.
//!
//! An answer is `None` where the definitions leave it open, or where no source
//! could tell.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{
    sources::has_pause,
    truth::{Attached, Held, Ipam, LOOK, Life, Place, TruePod, TrueSandbox, Truth, meet},
};
use event::finding::Severity;

/// What an ordinary deletion may take, seconds.
const GRACE: i64 = 30;

/// The truth, and what can be known of it.
pub(super) struct Oracle<'a> {
    pub(super) truth: &'a Truth,
    /// When it is asked: so late that every grace is over.
    pub(super) late: i64,
    /// Since when somebody has watched.
    pub(super) from: Option<i64>,
}

/// One that has an address.
struct Holder<'a> {
    inode: u32,
    attached: Attached,
    /// It is a pod's own address, whoever knows that.
    own: bool,
    /// The pod, and whether it is its own address, named as such.
    pod: Option<(&'a TruePod, bool)>,
    /// The kernel has it, and it is no pod's own making.
    there: bool,
    ghost: Option<bool>,
}

impl Oracle<'_> {
    /// Whether a namespace that exists is a ghost, by its inode.
    pub(super) fn ghosts(&self) -> BTreeMap<u32, Option<bool>> {
        let mut ghosts = BTreeMap::new();
        for pod in &self.truth.pods {
            for sandbox in pod.sandboxes.iter().filter(|sandbox| sandbox.lives()) {
                ghosts.insert(sandbox.inode, self.is_ghost(pod, sandbox));
            }
        }
        ghosts
    }

    fn is_ghost(&self, pod: &TruePod, sandbox: &TrueSandbox) -> Option<bool> {
        let late = self.late;
        let gone = match pod.life {
            Life::Running | Life::Static(_) => false,
            Life::Terminating(by) => {
                matches!(sandbox.held, Some(Held::Stuck(_))) && late >= by + GRACE
            }
            Life::Finished(_, since) => late >= since + GRACE,
            // A list that does not have it does not tell its grace either.
            Life::Deleted(gone) if late < gone + pod.grace + 2 * GRACE && pod.grace > GRACE => {
                return None;
            }
            Life::Deleted(_) => late >= LOOK + GRACE,
        };
        let has_address = self.is_its_own(pod, sandbox) || sandbox.second.is_some();
        match gone {
            false => Some(false),
            true if !has_address || self.is_known(pod, sandbox) != Some(true) => None,
            true => Some(true),
        }
    }

    /// Whether anything ties the namespace to its pod; `None` if that may be
    /// something that the pod made for itself.
    fn is_known(&self, pod: &TruePod, sandbox: &TrueSandbox) -> Option<bool> {
        let mut others = pod.sandboxes.iter();
        let is_alone = !others.any(|other| other.lives() && other.inode != sandbox.inode);
        // The API has the newest one's address, if it has, or had, the pod.
        let is_newest = pod.sandboxes.last().map(|last| last.inode) == Some(sandbox.inode);
        let was_listed = self.from.is_some() || pod.is_listed(LOOK);
        let is_only = is_alone && (is_newest || !was_listed);
        match sandbox.has_tasks() {
            _ if self.was_seen(pod, sandbox) || self.is_named(sandbox) => Some(true),
            false => Some(false),
            true => is_only.then_some(true),
        }
    }

    /// Whether somebody saw it while it ran.
    fn was_seen(&self, pod: &TruePod, sandbox: &TrueSandbox) -> bool {
        let all = pod.sandboxes.iter();
        let place = all.take_while(|other| other.inode != sandbox.inode).count();
        let end = pod.end(place);
        self.from
            .is_some_and(|from| end.is_none_or(|end| end > from))
    }

    /// Whether anything that is left has the namespace or its address as the
    /// sandbox's.
    fn is_named(&self, sandbox: &TrueSandbox) -> bool {
        let listed = sandbox.cri.is_some() || sandbox.remains || sandbox.cached;
        let is_kept = matches!(self.truth.ipam, Ipam::Kept(_));
        (sandbox.is_mounted() && listed)
            || (sandbox.cached && sandbox.place != Place::Nowhere)
            || (sandbox.reserved && is_kept && has_pause(sandbox))
    }

    /// Whether the kernel has the pod's own address, and it is known to be that.
    fn is_its_own(&self, pod: &TruePod, sandbox: &TrueSandbox) -> bool {
        match sandbox.place {
            Place::Eth0 | Place::Bridge => true,
            Place::Dummy | Place::Lo => {
                // A list names the address, the runtime's folders do not.
                self.was_seen(pod, sandbox)
                    || sandbox.cached
                    || (sandbox.cri.is_some() && self.is_named(sandbox))
            }
            // What only the sandbox's own network stack has, the kernel does
            // not show.
            Place::Nowhere => false,
        }
    }

    /// How bad it is that an address has more than one holder, by address; of those
    /// that have.
    pub(super) fn duplicates(&self) -> BTreeMap<IpAddr, Option<Severity>> {
        let mut holders: BTreeMap<IpAddr, Vec<Holder<'_>>> = BTreeMap::new();
        for pod in &self.truth.pods {
            for sandbox in pod.sandboxes.iter().filter(|sandbox| sandbox.lives()) {
                let known = self.is_known(pod, sandbox);
                let named = self.was_seen(pod, sandbox) || self.is_named(sandbox);
                let second = sandbox.second.map(|second| (second, false));
                for (attached, own) in std::iter::once((sandbox.primary, true)).chain(second) {
                    let holder = Holder {
                        inode: sandbox.inode,
                        attached,
                        own,
                        pod: known.unwrap_or_default().then_some((pod, own && named)),
                        there: known.is_some() && (!own || self.is_its_own(pod, sandbox)),
                        ghost: self.is_ghost(pod, sandbox),
                    };
                    let address = IpAddr::from(attached.address);
                    holders.entry(address).or_default().push(holder);
                }
            }
        }
        for other in &self.truth.others {
            if let Some(attached) = other.attached {
                let holder = Holder {
                    inode: other.inode,
                    attached,
                    own: false,
                    pod: None,
                    there: true,
                    ghost: Some(false),
                };
                let address = IpAddr::from(attached.address);
                holders.entry(address).or_default().push(holder);
            }
        }
        let mut found = BTreeMap::new();
        for (address, holders) in holders {
            let inodes: BTreeSet<u32> = holders.iter().map(|holder| holder.inode).collect();
            if inodes.len() > 1 {
                found.insert(address, worst(&holders));
            }
        }
        found
    }
}

/// The worst of all pairs; nothing where none conflicts.
fn worst(holders: &[Holder<'_>]) -> Option<Severity> {
    let mut worst = Some(Severity::Info);
    for (place, one) in holders.iter().enumerate() {
        for other in &holders[place + 1..] {
            let own = |holder: &Holder<'_>| matches!(holder.pod, Some((_, true)));
            let conflict = match own(one) && own(other) {
                true => Some(true),
                false => meet(one.attached.link, other.attached.link),
            };
            // What would meet in the pod network may not be known to be in it.
            let conflict = conflict.filter(|conflict| *conflict || !(one.own && other.own));
            let conflict = conflict.filter(|_| one.there && other.there);
            let is_bad = |holder: &Holder<'_>| holder.ghost == Some(true);
            let pair = match conflict {
                Some(false) => Some(Severity::Info),
                Some(true) if one.pod.is_some() && other.pod.is_some() => Some(Severity::Critical),
                Some(true) if is_bad(one) || is_bad(other) => Some(Severity::Critical),
                Some(true) if one.ghost.is_none() || other.ghost.is_none() => None,
                Some(true) => Some(Severity::Warning),
                None => None,
            };
            worst = match (worst, pair) {
                (Some(worst), Some(pair)) => Some(worst.max(pair)),
                _ => None,
            };
        }
    }
    worst
}
