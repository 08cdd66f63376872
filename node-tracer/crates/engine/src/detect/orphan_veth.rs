//! orphan-veth: the host-side end of a pod's veth pair, with nothing at the other end.
//!
//! The kernel removes both ends of a veth together, so the other end is
//! somewhere: in a namespace that could not be found (its last holder is a
//! socket, or the kernel), or back on the host. As long as the host-side end has a
//! route or is a port of a bridge, traffic for a pod that gets the address
//! later goes there.
//!
//! Only devices that something shows to be a pod's are told of ([`sign`]): a
//! CNI plugin has answered with it, a single address is routed to it, it is a
//! port of the pods' bridge or switch, or its name is one that only a CNI gives.
//! The veths of docker, podman, LXC and systemd-nspawn are not a pod's. Nothing
//! is said of one whose other end may be in a namespace that could not be found
//! or read, or that is being taken down. Ends in a ghost or a pinned namespace
//! are those findings'.
//!
//! Who has `CAP_NET_ADMIN` in the node's user namespace, as a pod can, makes and
//! names devices on the host, by the ID that its own namespace has for the
//! host's. Routes and addresses there are root's. So an orphan is a warning only
//! if something of root's speaks of it: CNI's answer or cache, a route to it, or
//! its bridge, as that has an address. Of very many a few are told each.
//!
//! A namespace whose last reference is gone has no name any more: a look cannot
//! find it while it waits to be taken down, and so its end of the veth pair is
//! nowhere. One look cannot tell that from an orphan. It is a warning only if it
//! does harm in either case (traffic still goes there), nothing is known to be
//! dying, and the runtime, if it was asked, has told of all its sandboxes; else
//! it is worth knowing.

mod sign;

use std::{cmp::Reverse, collections::HashMap, net::IpAddr};

use crate::{
    detect::{
        Command, View, commented, evidence,
        facts::{common::label, veth_pairs},
        few, fitting, heard, inside, is, is_half_heard, joined, netns_of, of_its_pods,
        orphan_veth::sign::{Sign, Signs},
        silence,
    },
    model::netns::{NETNS, NetnsEntry, Wiring},
};
use event::{
    Device,
    finding::{Detail, Evidence, Finding, Rule, Severity, finding_id},
    wording::plural::counted,
};

/// A host-side end that leads nowhere.
#[derive(Debug)]
struct Orphan<'a> {
    entry: &'a NetnsEntry,
    wiring: &'a Wiring,
    device: &'a Device,
    /// The other end, if it is in the same namespace.
    beside: Option<&'a Device>,
    /// What shows that it is a pod's.
    sign: Sign<'a>,
    /// Root has named its bridge.
    on_roots_bridge: bool,
}

/// Orphans that have a finding each; the others are one.
const SINGLY: usize = 16;
/// Those that are named of the others.
const NAMED: usize = 3;

#[derive(Debug, Default)]
pub struct Orphans<'a> {
    found: Vec<Orphan<'a>>,
    /// A veth whose other end is nowhere that was looked at, whatever its name.
    of_unfound: Option<&'a str>,
    /// Those whose other end may be where nobody could look.
    undecided: usize,
    /// Namespaces whose devices are not known.
    unread: usize,
}

impl<'a> Orphans<'a> {
    /// A veth whose other end is nowhere that was looked at.
    pub(super) fn of_unfound(&self) -> Option<&'a str> {
        self.of_unfound
    }

    /// Whether a device leads to no pod.
    pub(super) fn has(&self, entry: &NetnsEntry, device: &Device) -> bool {
        let is_it =
            |it: &Orphan<'_>| it.entry.serial == entry.serial && it.device.index == device.index;
        self.found.iter().any(is_it)
    }
}

/// One finding a device, and one for very many. Those that root has named come
/// first, and of these one of each Kubernetes namespace in turn: the many of one
/// hide no other's.
pub fn detect(view: &View<'_>) -> Vec<Finding> {
    let mut all: Vec<&Orphan<'_>> = view.orphans().found.iter().collect();
    let rank = |orphan: &Orphan<'_>| {
        let is_named = orphan.is_answered() || !orphan.routed().is_empty();
        Reverse((orphan.severity(view), is_named))
    };
    let place = |orphan: &Orphan<'_>| (orphan.entry.id.inode, orphan.device.index);
    all.sort_by_cached_key(|orphan| (rank(orphan), place(orphan)));
    if all.len() > SINGLY {
        let owners = owners(view);
        let mut turns: HashMap<_, usize> = HashMap::new();
        all.sort_by_cached_key(|orphan| {
            let rank = rank(orphan);
            let turn = turns.entry((rank, orphan.owner(&owners))).or_default();
            *turn += 1;
            (rank, *turn, place(orphan))
        });
    }
    let more = all.split_off(all.len().min(SINGLY));
    let singly = all.into_iter().map(|orphan| orphan.finding(view));
    singly.chain(crowd(view, &more)).collect()
}

/// The Kubernetes namespace of each container ID that CNI was given.
fn owners<'a>(view: &View<'a>) -> HashMap<&'a str, &'a str> {
    let cached = view.model.cni.attachments();
    let cached = cached.map(|it| (it.container_id.as_str(), it.pod.as_ref()));
    let calls = view.model.calls.attachments();
    let calls = calls.map(|it| (it.container_id.as_str(), it.pod.as_ref()));
    let all = cached.chain(calls);
    all.filter_map(|(id, pod)| Some((id, pod?.namespace.as_deref()?)))
        .collect()
}

/// The finding of all those that have none.
fn crowd(view: &View<'_>, more: &[&Orphan<'_>]) -> Option<Finding> {
    let first = more.first()?;
    let names = more.iter().take(NAMED);
    let names: Vec<&str> = names.map(|orphan| orphan.device.name.as_str()).collect();
    let count = counted(more.len(), "more veth");
    let since = more.iter().map(|orphan| orphan.wiring.at).min();
    let claim =
        format!("the peer of {count} is in no netns that was found, or beside it on the host");
    let subject = "crowd";
    Some(Finding {
        rule: Rule::OrphanVeth,
        severity: first.severity(view),
        id: finding_id(&view.settings.boot_id, Rule::OrphanVeth, subject),
        since: since.unwrap_or(first.wiring.at),
        title: fitting(
            format!(
                "{count} {} to no pod, as {}",
                lead(more.len()),
                joined(&names)
            ),
            || format!("{count} {} to no pod", lead(more.len())),
        ),
        pod: None,
        sandbox_id: None,
        netns: Some(netns_of(first.entry)),
        addresses: Vec::new(),
        holders: Vec::new(),
        evidence: vec![evidence(claim, "kernel", first.wiring.at)],
        unknown: vec![String::from(
            "which pods they were of, if any: a pod with NET_ADMIN can make devices on the node",
        )],
        advice: vec![String::from(
            "find out who made them, and end that, before you remove any; begin with those that \
             have a finding each",
        )],
        detail: Detail {
            first_seen: true,
            ..Detail::default()
        },
    })
}

/// `leads` or `lead`, as so many do.
fn lead(number: usize) -> &'static str {
    match number {
        1 => "leads",
        _ => "lead",
    }
}

/// Why some could not be judged.
pub fn gap(view: &View<'_>) -> Option<String> {
    let Orphans {
        undecided, unread, ..
    } = view.orphans();
    if *undecided == 0 {
        return None;
    }
    let veth_pairs = counted(*undecided, "veth");
    Some(match view.model.failure(NETNS) {
        Some(failure) => format!(
            "orphan-veth: whether a pod is at the other end of {veth_pairs}: {}",
            failure.error
        ),
        None => format!(
            "orphan-veth: the devices of {} could not be read; the peer of {veth_pairs} may be there",
            counted(*unread, "network namespace"),
        ),
    })
}

/// Looks at every end of a veth pair that is a pod's as far as anything shows.
pub(super) fn orphans<'a>(view: &View<'a>) -> Orphans<'a> {
    let model = view.model;
    // A trace is told of the host's devices now and then, not of each that goes.
    if !view.settings.surveyed {
        return Orphans::default();
    }
    let dying = model.netns.all_dying().map(|(entry, _)| entry);
    let all = model.netns.live().chain(dying);
    let mut orphans = Orphans {
        unread: all.filter(|entry| entry.wiring.is_none()).count(),
        ..Orphans::default()
    };
    let all_found = model.failure(NETNS).is_none();
    let signs = Signs::new(view);
    for entry in model.netns.live() {
        let Some(wiring) = &entry.wiring else {
            continue;
        };
        for device in &wiring.devices {
            let Some(peer) = device.link.filter(|_| device.is_veth()) else {
                continue;
            };
            let orphan = |beside, sign| Orphan {
                entry,
                wiring,
                device,
                beside,
                sign,
                on_roots_bridge: signs.is_on_roots_bridge(entry, wiring, device),
            };
            if device.link_nsid.is_none() {
                // People make pairs, too: only a name that no other gives tells.
                let its_name = |device: &Device| veth_pairs::cni_of_name(&device.name);
                let Some(by) = its_name(device) else {
                    continue;
                };
                let beside = wiring.device(peer);
                let beside =
                    beside.filter(|other| other.is_veth() && other.link == Some(device.index));
                // Of two ends the first one tells.
                let first = beside
                    .is_some_and(|other| its_name(other).is_none() || device.index < other.index);
                if first {
                    orphans.found.push(orphan(beside, Sign::Name(by)));
                }
            } else if !view.veth_pairs().can_be_elsewhere(entry, device) {
                orphans.of_unfound.get_or_insert(&device.name);
                let sign = signs.of(entry, wiring, device);
                let orphan = sign.map(|sign| orphan(None, sign));
                let Some(orphan) = orphan.filter(|orphan| !orphan.is_somebodys(view)) else {
                    continue;
                };
                if orphans.unread > 0 || !all_found {
                    orphans.undecided += 1;
                } else {
                    orphans.found.push(orphan);
                }
            }
        }
    }
    orphans
}

impl<'a> Orphan<'a> {
    /// The Kubernetes namespace that it is of, as far as CNI or its place tells.
    fn owner(&self, owners: &HashMap<&'a str, &'a str>) -> Option<&'a str> {
        match self.sign {
            Sign::Answer(id) => owners.get(id).copied(),
            _ => self.entry.sandbox.pod.as_ref()?.namespace.as_deref(),
        }
    }

    /// Addresses that are routed to it alone.
    fn routed(&self) -> Vec<IpAddr> {
        let routes = self.wiring.entered_routes();
        let its = routes.filter(|route| route.device == self.device.index);
        its.filter_map(|route| {
            let (address, length) = route.to?;
            let whole = if address.is_ipv4() { 32 } else { 128 };
            (length == whole).then_some(address)
        })
        .collect()
    }

    fn bridge(&self) -> Option<&'a Device> {
        self.wiring.device(self.device.master?)
    }

    /// Whether a sandbox lives that has the address routed here, in a
    /// namespace that was not found: then it is that one's end.
    fn is_somebodys(&self, view: &View<'_>) -> bool {
        let Some(list) = heard(view.model) else {
            return false;
        };
        let routed = self.routed();
        let mut lost = list.sandboxes().filter(|sandbox| {
            let netns = sandbox.netns.and_then(|netns| view.model.netns.get(netns));
            sandbox.ready == Some(true) && !sandbox.host_network && netns.is_none()
        });
        lost.any(|sandbox| sandbox.ips.iter().any(|ip| routed.contains(ip)))
    }

    /// Whether CNI says that it has made it.
    fn is_answered(&self) -> bool {
        matches!(self.sign, Sign::Answer(_))
    }

    /// Whether something that only root can have made speaks of it. What is in a
    /// pod's own namespace is the pod's.
    fn is_named_by_root(&self) -> bool {
        let sandbox = &self.entry.sandbox;
        let is_pods = self.entry.is_users() || sandbox.pod.is_some() || sandbox.id.is_some();
        (self.entry.host || !is_pods)
            && (self.is_answered() || self.on_roots_bridge || !self.routed().is_empty())
    }

    /// Whether its other end certainly is in no pod.
    fn is_certain(&self, view: &View<'_>) -> bool {
        let nobody_dies = view.model.netns.all_dying().next().is_none();
        let is_pods = self.sign != Sign::PlainName;
        self.beside.is_some() || (is_pods && nobody_dies && !is_half_heard(view.model))
    }

    fn severity(&self, view: &View<'_>) -> Severity {
        let misleads = !self.routed().is_empty() || self.bridge().is_some();
        match misleads && self.is_named_by_root() && self.is_certain(view) {
            true => Severity::Warning,
            false => Severity::Info,
        }
    }

    fn finding(&self, view: &View<'_>) -> Finding {
        let Self {
            entry,
            wiring,
            device,
            ..
        } = self;
        let routed = self.routed();
        let subject = format!("{} {} {}", entry.id.inode, device.index, device.name);
        Finding {
            rule: Rule::OrphanVeth,
            severity: self.severity(view),
            id: finding_id(&view.settings.boot_id, Rule::OrphanVeth, &subject),
            since: wiring.at,
            title: self.title(&routed),
            pod: None,
            sandbox_id: None,
            netns: Some(netns_of(entry)),
            evidence: self.evidence(view, &routed),
            unknown: self.unknown(view),
            advice: self.advice(view),
            addresses: routed,
            holders: Vec::new(),
            detail: Detail {
                first_seen: true,
                ..Detail::default()
            },
        }
    }

    fn title(&self, routed: &[IpAddr]) -> String {
        let name = &self.device.name;
        let still = match (routed, self.bridge()) {
            ([], None) => String::new(),
            ([], Some(bridge)) => format!("; still a port of {}", bridge.name),
            (routed, _) => format!("; {} {} still routed to it", few(routed), is(routed.len())),
        };
        format!("veth {name} leads to no pod{still}")
    }

    fn evidence(&self, view: &View<'_>, routed: &[IpAddr]) -> Vec<Evidence> {
        const KERNEL: &str = "kernel";
        let at = self.wiring.at;
        let name = &self.device.name;
        let place = label(view.model, self.entry);
        let claim = format!("{name} in {place} is a veth and {}", self.sign.words());
        let mut claims = vec![evidence(claim, KERNEL, at)];
        let claim = match self.beside {
            Some(other) => format!(
                "its peer, {} (index {}), is in the same namespace",
                other.name, other.index
            ),
            None => {
                let all = view.model.netns.live().count();
                let index = self.device.link.unwrap_or_default();
                format!(
                    "its peer (index {index}) is in none of the {all} netns, whose devices were all \
                     listed"
                )
            }
        };
        claims.push(evidence(claim, KERNEL, at));
        for address in routed {
            claims.push(evidence(format!("{address} is routed to it"), KERNEL, at));
            let with = view.model.netns.with_address(*address);
            let with = with.filter(|other| !other.is_users());
            for other in with.filter(|other| other.serial != self.entry.serial) {
                let claim = format!(
                    "{} has {address}, but the host routes it to this veth",
                    label(view.model, other)
                );
                claims.push(evidence(claim, KERNEL, at));
            }
        }
        if let Some(bridge) = self.bridge() {
            let claim = format!("it is a port of {}", bridge.name);
            claims.push(evidence(claim, KERNEL, at));
        }
        claims
    }

    fn unknown(&self, view: &View<'_>) -> Vec<String> {
        let mut unknown = vec![String::from(
            "which pod it was of, and since when it leads to none",
        )];
        if self.sign == Sign::PlainName {
            unknown.push(String::from(
                "whether it was a pod's: other programs use such names, and no CNI configuration \
                 could be read",
            ));
        } else if !self.is_named_by_root() {
            unknown.push(String::from(
                "whether it was a pod's: a pod with NET_ADMIN can make such devices, and nothing \
                 that only root can have made names this one",
            ));
        }
        if self.beside.is_none() {
            unknown.push(String::from(
                "whether the kernel still takes its peer's netns down, or a pod was made or removed \
                 during the look: scan again in a minute",
            ));
            if is_half_heard(view.model) {
                unknown.push(format!(
                    "whether its peer is in a sandbox that runs: {}",
                    silence(view.model)
                ));
            }
        }
        unknown
    }

    fn advice(&self, view: &View<'_>) -> Vec<String> {
        let name = &self.device.name;
        let there = |command, comment| {
            let command = inside(self.entry, &Command::new(command).word(name))?;
            Some(commented(command, comment))
        };
        let (Some(show), Some(listen), Some(delete)) = (
            there("ip -d link show dev", "its peer"),
            there("timeout 30 tcpdump -c 1 -ni", "must see no packet"),
            there(
                "ip link del dev",
                "removes it with its route, a pod that uses it loses its network",
            ),
        ) else {
            return vec![String::from(
                "leave it: its netns has no path and no task by which to enter it; see what holds \
                 that open",
            )];
        };
        let pods = self.routed().first().map(|address| {
            of_its_pods(
                view,
                "kubectl get pods -A -o wide",
                |pods| pods.own("| grep -wF").word(address.to_string()),
                "must print no pod",
            )
        });
        let first = String::from("make sure that nothing uses it before you remove it:");
        let advice = [Some(first), Some(show), Some(listen), pods, Some(delete)];
        advice.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests;
