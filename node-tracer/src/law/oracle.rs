//! Ghosts and duplicates by what a node really is, without any of the engine's
//! reasoning: the definitions of the rules' pages, over the truth.
//!
//! An answer is `None` where the definitions leave it open, or where no source
//! could tell.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::truth::{Attached, Held, LOOK, Life, Place, TruePod, TrueSandbox, Truth, meet};
use crate::finding::Severity;

/// What an ordinary deletion may take, seconds.
const GRACE: i64 = 30;

/// One that has an address.
struct Holder<'a> {
    inode: u32,
    attached: Attached,
    /// The pod, and whether it is its own address.
    pod: Option<(&'a TruePod, bool)>,
    /// The kernel has it.
    there: bool,
    ghost: Option<bool>,
}

/// Whether a namespace that exists is a ghost, by its inode, so late that every
/// grace is over.
pub(super) fn ghosts(truth: &Truth, late: i64) -> BTreeMap<u32, Option<bool>> {
    let mut ghosts = BTreeMap::new();
    for pod in &truth.pods {
        for sandbox in pod.sandboxes.iter().filter(|sandbox| sandbox.lives()) {
            ghosts.insert(sandbox.inode, is_ghost(pod, sandbox, late));
        }
    }
    ghosts
}

fn is_ghost(pod: &TruePod, sandbox: &TrueSandbox, late: i64) -> Option<bool> {
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
    let has_address = sandbox.place != Place::Nowhere || sandbox.second.is_some();
    match gone {
        false => Some(false),
        // What only the sandbox's own network stack has, no source shows.
        true if !has_address || !is_known(sandbox) => None,
        true => Some(true),
    }
}

/// Whether anything ties the namespace to its pod.
fn is_known(sandbox: &TrueSandbox) -> bool {
    let listed = sandbox.cri.is_some() || sandbox.remains || sandbox.cached;
    sandbox.has_tasks()
        || (sandbox.is_mounted() && listed)
        || (sandbox.cached && sandbox.place != Place::Nowhere)
}

/// How bad it is that an address has more than one holder, by address; of those
/// that have.
pub(super) fn duplicates(truth: &Truth, late: i64) -> BTreeMap<IpAddr, Option<Severity>> {
    let mut holders: BTreeMap<IpAddr, Vec<Holder<'_>>> = BTreeMap::new();
    for pod in &truth.pods {
        for sandbox in pod.sandboxes.iter().filter(|sandbox| sandbox.lives()) {
            let second = sandbox.second.map(|second| (second, false));
            for (attached, own) in std::iter::once((sandbox.primary, true)).chain(second) {
                let holder = Holder {
                    inode: sandbox.inode,
                    attached,
                    pod: is_known(sandbox).then_some((pod, own)),
                    there: !own || sandbox.place != Place::Nowhere,
                    ghost: is_ghost(pod, sandbox, late),
                };
                let address = IpAddr::from(attached.address);
                holders.entry(address).or_default().push(holder);
            }
        }
    }
    for stranger in &truth.strangers {
        if let Some(attached) = stranger.attached {
            let holder = Holder {
                inode: stranger.inode,
                attached,
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
            let conflict = conflict.filter(|_| one.there && other.there);
            let is_bad = |holder: &Holder<'_>| holder.ghost == Some(true);
            let pair = match conflict {
                Some(false) => Some(Severity::Info),
                Some(true) if one.pod.is_some() && other.pod.is_some() => Some(Severity::Critical),
                Some(true) if is_bad(one) || is_bad(other) => Some(Severity::Critical),
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
