//! stale-del: CNI DEL of an old sandbox while a newer one of the same pod name
//! lives.
//!
//! Kubelet tries a DEL again until it succeeds, and sends one more when it
//! removes what is left of a sandbox, with no network namespace. If the pod has
//! a name that comes again (a StatefulSet's), a newer sandbox of that name can
//! be there by then. A plugin that finds what to delete by the pod's name takes
//! it from the newer sandbox; one that compares the container ID does not. Most
//! do today, so such a DEL by itself is ordinary: it is told as harmful only
//! when the newer sandbox has lost something that this DEL can have taken
//! ([`reach`]), and as harmless once looks at it have shown that it has all it
//! had.
//!
//! | the newer sandbox | effect | severity | until |
//! |---|---|---|---|
//! | has lost what the DEL can have taken, while it ran or shortly after | harmful | critical | it has it again, or is gone |
//! | has lost something then that the DEL may have taken or not | unknown | info | [`UNDECIDED`] after the loss |
//! | is looked at for [`WATCH`] | unknown | info | that is done |
//! | had everything after that time that the DEL can take | harmless | info | [`HARMLESS`] after the DEL |
//! | has lost nothing to it, and the DEL is the runtime's second one | | no finding | |
//! | had everything its ADD gave it after that time, as was looked at | harmless | info | [`HARMLESS`] after the DEL |
//! | was not looked at, or not before the DEL, or the DEL has no end | unknown | info | [`UNDECIDED`] after the DEL |

mod finding;
mod logged;
mod newer;
mod reach;

use std::{
    collections::{BTreeSet, HashSet},
    time::Duration,
};

use self::{newer::Newer, reach::Reach};
use super::View;
use crate::model::{
    Model,
    calls::{AttachmentCalls, Call, PluginCalls},
    lost::{Del, Item, Kind, LONGEST, Loss},
    netns::NetnsEntry,
};
use event::{
    PodRef,
    clock::Timestamp,
    finding::{Effect, Finding},
};

/// How long after a DEL the newer sandbox is watched: agents of a CNI (Calico's
/// Felix) act some seconds after the plugin.
const WATCH: Duration = Duration::from_secs(10);
/// When the last look must have come.
const LATEST: Duration = Duration::from_secs(13);
/// What a DEL that was told late, or an ordinary removal of the newer sandbox,
/// may take to be known.
const GRACE: Duration = Duration::from_millis(300);
/// How long a DEL that did no harm is worth knowing.
const HARMLESS: Duration = Duration::from_secs(5 * 60);
/// How long one is of which it is not known.
const UNDECIDED: Duration = Duration::from_secs(15 * 60);

/// A DEL of an old sandbox, and a newer sandbox of the same name.
struct Stale<'v, 'a> {
    view: &'v View<'a>,
    /// The container ID that the DEL was for.
    old: &'a str,
    calls: Vec<&'a AttachmentCalls>,
    newer: &'v Newer<'a>,
    /// The DELs that came after the newer sandbox's ADD, by plugin.
    dels: Vec<(&'a PluginCalls, &'a Call)>,
    /// What the newer sandbox has lost while a DEL ran, or shortly after.
    losses: Vec<Missed<'a>>,
}

/// Something that the newer sandbox has lost.
#[derive(Clone, Copy, Debug)]
struct Missed<'a> {
    kind: Kind,
    name: &'a str,
    item: &'a Item,
    loss: &'a Loss,
    /// The DEL that it came with.
    del: &'a Del,
    /// Whether that DEL can have taken it.
    reach: Reach,
}

/// What is known of what it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Harmful,
    Harmless,
    /// The newer sandbox is being watched.
    Pending,
    /// Why it is not known.
    Unknown(Why),
}

/// Why it is not known what a DEL did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The sandbox was not looked at before the DEL.
    NotBefore,
    /// It was not looked at long enough after it.
    NotAfter,
    /// No end of it was seen, and it cannot run any more.
    NoEnd,
    /// Something is lost that the DEL may have taken, or somebody else.
    Cause,
}

/// One finding an old sandbox and a newer one.
pub fn detect(view: &View<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for newer in concerned(view.model).filter_map(|entry| Newer::of(view, entry)) {
        for old in newer.others(view.model) {
            let stale = Stale::new(view, old, &newer);
            if let Some((stale, verdict)) =
                stale.and_then(|stale| stale.verdict().map(|verdict| (stale, verdict)))
            {
                findings.push(stale.finding(verdict));
            }
        }
    }
    findings.extend(logged::detect(view));
    findings
}

/// Namespaces of pods of whose name a DEL was seen, and those that have lost
/// something to one: a node has many others.
fn concerned(model: &Model) -> impl Iterator<Item = &NetnsEntry> {
    let deleted = model.calls.with_del().filter_map(|it| it.pod.as_ref());
    let names: HashSet<_> = deleted.filter_map(PodRef::full_name).collect();
    model.netns.live().filter(move |entry| {
        let name = entry.sandbox.pod.as_ref().and_then(PodRef::full_name);
        name.is_some_and(|name| names.contains(&name)) || model.lost.is_blamed(entry.id)
    })
}

impl<'v, 'a> Stale<'v, 'a> {
    /// `None` if the sandbox is not older, or no DEL of it came too late.
    fn new(view: &'v View<'a>, old: &'a str, newer: &'v Newer<'a>) -> Option<Self> {
        let model = view.model;
        // containerd has its loopback device made by a plugin, too.
        let calls = model.calls.of_container(old);
        let calls: Vec<&AttachmentCalls> = calls.filter(|calls| calls.ifname != "lo").collect();
        let chain = || calls.iter().flat_map(|calls| calls.chain());
        let seen = chain().filter_map(|plugin| Some(plugin.add.as_ref()?.started));
        let cached = model.cni.of_container(old).map(|cached| cached.written);
        let added = seen.chain(cached).min();
        if added.is_some_and(|added| added >= newer.added) {
            return None;
        }
        let after = |call: &&Call| call.started >= newer.added;
        let dels: Vec<_> = chain()
            .filter_map(|plugin| Some((plugin, plugin.del.as_ref().filter(after)?)))
            .collect();
        let losses = model.lost.of(newer.entry.id);
        let losses = losses.filter_map(|(kind, name, item)| {
            let loss = item.loss.as_ref()?;
            let del = loss.del.as_ref()?;
            Some((kind, name, item, loss, del))
        });
        let losses = losses.filter(|(.., loss, del)| {
            let its = del.container_id == old && del.started >= newer.added;
            its && view.passed(loss.at.plus(GRACE))
        });
        let losses = losses.collect::<Vec<_>>();
        let judge = reach::Judge::new(view, newer, old);
        let reached = losses.iter().map(|(kind, name, item, loss, del)| Missed {
            kind: *kind,
            name,
            item,
            loss,
            del,
            reach: judge.of(*kind, name, item, loss, del),
        });
        let losses: Vec<_> = reached.collect();
        let any = !dels.is_empty() || !losses.is_empty();
        any.then_some(Self {
            view,
            old,
            calls,
            newer,
            dels,
            losses,
        })
    }

    /// `None` if it is not, or no longer, worth telling.
    fn verdict(&self) -> Option<Verdict> {
        if self.taken(Reach::Can).next().is_some() {
            return Some(Verdict::Harmful);
        }
        let doubted = self.taken(Reach::Perhaps).map(|missed| missed.loss.at);
        if let Some(last) = doubted.max()
            && !self.view.passed(last.plus(UNDECIDED))
        {
            return Some(Verdict::Unknown(Why::Cause));
        }
        let started = self.started()?;
        if self.is_ordinary() || self.is_repaired(started) {
            return None;
        }
        let Some(end) = self.ended() else {
            let longest = self.last_started()?.plus(LONGEST);
            if !self.view.passed(longest) {
                return Some(Verdict::Pending);
            }
            let fresh = !self.view.passed(longest.plus(UNDECIDED));
            return fresh.then_some(Verdict::Unknown(Why::NoEnd));
        };
        let watched = end.plus(WATCH);
        if !self.view.passed(watched) {
            return Some(Verdict::Pending);
        }
        let looked = self.looked().is_some_and(|at| at >= watched);
        let before = self.known_since().is_some_and(|since| since <= end);
        let (verdict, until) = match (looked, before) {
            (true, true) => (Verdict::Harmless, HARMLESS),
            _ if self.has_all(watched) => (Verdict::Harmless, HARMLESS),
            (true, false) => (Verdict::Unknown(Why::NotBefore), UNDECIDED),
            (false, _) if !self.view.passed(end.plus(LATEST)) => return Some(Verdict::Pending),
            (false, _) => (Verdict::Unknown(Why::NotAfter), UNDECIDED),
        };
        (!self.view.passed(end.plus(until))).then_some(verdict)
    }

    /// What it has lost, by whether the DEL can have taken it.
    fn taken(&self, reach: Reach) -> impl Iterator<Item = &Missed<'a>> {
        let losses = self.losses.iter();
        losses.filter(move |missed| missed.reach == reach)
    }

    /// Whether the newer sandbox was found to have, then or later, all that its
    /// ADD gave it: that tells of harm even where it was not looked at before,
    /// as its ADD ended only after the DEL.
    fn has_all(&self, then: Timestamp) -> bool {
        let calls = self.view.model.calls.of_container(self.newer.id);
        let mut effects = calls.filter_map(|calls| calls.add_effect.as_deref());
        let looked = self.looked().is_some_and(|at| at >= then);
        let mut any = false;
        let all = effects.all(|(at, effect)| {
            any = true;
            let mut there = effect.traces.iter().map(|it| it.there);
            (looked || *at >= then) && there.all(|there| there == Some(true))
        });
        any && all
    }

    /// Whether it is the DEL with which runtimes remove what is left of a
    /// sandbox: it had been taken back before, and no namespace is named.
    fn is_ordinary(&self) -> bool {
        self.dels.iter().all(|(plugin, del)| {
            let before = plugin.released.is_some_and(|at| at <= self.newer.added);
            before && !del.with_netns
        })
    }

    /// When the first of these DELs started.
    fn started(&self) -> Option<Timestamp> {
        self.dels.iter().map(|(_, del)| del.started).min()
    }

    fn last_started(&self) -> Option<Timestamp> {
        self.dels.iter().map(|(_, del)| del.started).max()
    }

    /// When the last of them ended; `None` while one runs. One that was
    /// followed by another has ended, whether that was seen or not.
    fn ended(&self) -> Option<Timestamp> {
        let last = self.last_started()?;
        let ends = self.dels.iter().map(|(_, del)| match &del.end {
            Some(end) => Some(end.at),
            None => (del.started < last).then_some(last),
        });
        ends.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// Whether what it took is there again.
    fn is_repaired(&self, started: Timestamp) -> bool {
        let mut items = self.view.model.lost.of(self.newer.entry.id);
        items.any(|(_, _, item)| {
            let repaired = item.repaired.as_ref();
            repaired.is_some_and(|(at, del)| {
                let its = del.as_ref().is_some_and(|del| del.container_id == self.old);
                its && *at >= started
            })
        })
    }

    /// When the newer sandbox, and what it has on the host, were last looked
    /// at.
    fn looked(&self) -> Option<Timestamp> {
        let own = self.newer.entry.wiring.as_ref()?.at;
        let on_host = self.view.model.lost.looked(self.newer.entry.id)?;
        Some(own.min(on_host))
    }

    /// Since when it is known what devices and routes the newer sandbox has.
    fn known_since(&self) -> Option<Timestamp> {
        let items = self.view.model.lost.of(self.newer.entry.id);
        let listed = items.filter(|(kind, _, _)| matches!(kind, Kind::Device | Kind::Route));
        listed.map(|(_, _, item)| item.since).min()
    }
}

impl Verdict {
    fn effect(self) -> Effect {
        match self {
            Self::Harmful => Effect::Harmful,
            Self::Harmless => Effect::Harmless,
            Self::Pending | Self::Unknown(_) => Effect::Unknown,
        }
    }
}

impl Newer<'_> {
    /// Other sandboxes of the same pod name that a DEL was seen of.
    fn others<'m>(&self, model: &'m Model) -> BTreeSet<&'m str> {
        let calls = model.calls.of_pod_name(&self.pod);
        let deleted = calls.filter(|calls| calls.has_del());
        let deleted = deleted.map(|calls| calls.container_id.as_str());
        let items = model.lost.of(self.entry.id);
        let blamed = items.filter_map(|(_, _, item)| {
            let del = item.loss.as_ref()?.del.as_ref()?;
            Some(del.container_id.as_str())
        });
        let all = deleted.chain(blamed);
        all.filter(|id| !self.entry.sandbox.has_container(id))
            .collect()
    }
}

#[cfg(test)]
mod tests;
