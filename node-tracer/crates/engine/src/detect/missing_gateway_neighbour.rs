//! missing-gateway-neighbour: a pod cannot reach its gateway's link address, so
//! nothing that it sends leaves it.
//!
//! CNIs that route give every pod the same made-up gateway (169.254.1.1,
//! `fe80::...`) at the other end of its veth. AWS's and Terway's write a
//! permanent neighbour entry for it; without that nobody answers. Calico's
//! host end answers for it (proxy ARP): then the entry comes and goes with the
//! pod's traffic, and that it is absent means nothing, but that it failed does.
//! So:
//!
//! | entry | the CNI writes a permanent one | else |
//! |---|---|---|
//! | absent | warning | nothing |
//! | incomplete | critical | warning: it may just have been asked for |
//! | failed | critical | critical |
//!
//! That a CNI writes one is known by its name, or, where the name says nothing,
//! by most of the other pods on the node, which have theirs ([`habit`]). Only the gateway that
//! the CNI gave the pod counts, on the interface that it gave it: Multus' other
//! interfaces, and default routes that a pod has made itself, are not its.
//! CNIs with a real gateway (bridge, ptp, macvlan) write none. Pods that are
//! gone, or going, are left out.
//!
//! As an ADD ends, the entry may not be written yet, or the gateway just have
//! been asked for: a look within [`SETTLED`] of it proves nothing.

use crate::{
    detect::{
        View,
        facts::{
            ghosts,
            unused::{known_since, sandbox_of},
        },
        heard,
        missing_gateway_neighbour::habit::Habit,
    },
    model::{
        Model,
        netns::{NetnsEntry, Serial, Wiring},
        pods::PodPresence,
    },
};
mod finding;
mod habit;

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    time::Duration,
};

use event::{
    Device, Neighbour,
    clock::Timestamp,
    finding::{Finding, Severity},
};

/// How long after its ADD a sandbox's look counts.
const SETTLED: Duration = Duration::from_secs(5);
/// When later looks come, after that: one that finds the same tells nothing
/// new, and makes nobody ask.
const LOOKS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(8)];

/// A pod's gateway without a usable neighbour entry.
struct Missing<'a> {
    entry: &'a NetnsEntry,
    wiring: &'a Wiring,
    device: &'a Device,
    gateway: IpAddr,
    /// The entry, if there is one.
    neighbour: Option<&'a Neighbour>,
    sign: Option<Sign<'a>>,
    severity: Severity,
}

/// Why there should be a permanent entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign<'a> {
    /// The CNI of this name writes one.
    Plugin(&'a str),
    /// So many other pods on the node have one, and fewer have none.
    Others(usize),
}

/// One finding a gateway of a pod.
pub fn detect(view: &View<'_>) -> Vec<Finding> {
    let signs = Signs::new(view.model);
    let mut findings = Vec::new();
    for entry in view.model.netns.live() {
        let Some(wiring) = entry.wiring.as_ref().filter(|_| !entry.host) else {
            continue;
        };
        let missing = gateways(wiring).filter_map(|(device, gateway)| {
            Missing::of(view.model, &signs, entry, wiring, device, gateway)
        });
        // On a node with Calico most pods have no entry, and nothing is
        // missing: whether a pod lives is the longer question.
        let mut missing = missing.peekable();
        if missing.peek().is_some() && lives(view, entry) && is_settled(view, entry, wiring.at) {
            findings.extend(missing.map(|missing| missing.finding(view)));
        }
    }
    findings
}

impl<'a> Missing<'a> {
    fn of(
        model: &'a Model,
        signs: &Signs,
        entry: &'a NetnsEntry,
        wiring: &'a Wiring,
        device: &'a Device,
        gateway: IpAddr,
    ) -> Option<Self> {
        let neighbour = neighbour(wiring, device, gateway);
        if is_usable(neighbour) {
            return None;
        }
        let habit = Habit::of(model, entry, device, gateway)?;
        let sign = signs.of(habit, entry, gateway);
        let state = neighbour.map(|neighbour| neighbour.state.as_str());
        let severity = match (state, sign.is_some()) {
            (None, false) => return None,
            (None, true) | (Some("incomplete"), false) => Severity::Warning,
            (Some(_), _) => Severity::Critical,
        };
        Some(Self {
            entry,
            wiring,
            device,
            gateway,
            neighbour,
            sign,
            severity,
        })
    }
}

/// Pods with a permanent entry, gathered once from the whole node. A single one
/// says nothing of the CNI: whoever may change a pod's network can write one.
struct Signs {
    /// Their namespaces, by gateway.
    permanent: HashMap<IpAddr, HashSet<Serial>>,
    /// The namespaces that have each gateway.
    all: HashMap<IpAddr, HashSet<Serial>>,
}

impl Signs {
    fn new(model: &Model) -> Self {
        let mut permanent: HashMap<_, HashSet<_>> = HashMap::new();
        let mut all: HashMap<_, HashSet<_>> = HashMap::new();
        for entry in model.netns.live().filter(|entry| !entry.host) {
            let Some(wiring) = &entry.wiring else {
                continue;
            };
            for (device, gateway) in gateways(wiring) {
                all.entry(gateway).or_default().insert(entry.serial);
                let neighbour = neighbour(wiring, device, gateway);
                let is_permanent = neighbour.is_some_and(|it| it.state == "permanent");
                if is_permanent && Habit::of(model, entry, device, gateway).is_some() {
                    permanent.entry(gateway).or_default().insert(entry.serial);
                }
            }
        }
        Self { permanent, all }
    }

    fn of<'a>(&self, habit: Habit<'a>, entry: &NetnsEntry, gateway: IpAddr) -> Option<Sign<'a>> {
        if let Habit::Writes(plugin) = habit {
            return Some(Sign::Plugin(plugin));
        }
        let with = self.permanent.get(&gateway)?;
        let others = with.len() - usize::from(with.contains(&entry.serial));
        let all = self.all.get(&gateway).map_or(0, HashSet::len);
        let without = all.saturating_sub(1 + others);
        (others > without).then_some(Sign::Others(others))
    }
}

/// Gateways of default routes that are nowhere but at the end of a veth.
fn gateways(wiring: &Wiring) -> impl Iterator<Item = (&Device, IpAddr)> {
    wiring.entered_routes().filter_map(|route| {
        let gateway = route.gateway.filter(|gateway| is_link_local(*gateway))?;
        let device = wiring.device(route.device).filter(|it| it.is_veth())?;
        (route.to.is_none()).then_some((device, gateway))
    })
}

fn neighbour<'a>(wiring: &'a Wiring, device: &Device, gateway: IpAddr) -> Option<&'a Neighbour> {
    let mut all = wiring.neighbours.iter();
    all.find(|each| each.address == gateway && each.device == device.index)
}

fn is_usable(neighbour: Option<&Neighbour>) -> bool {
    let state = neighbour.map(|neighbour| neighbour.state.as_str());
    !matches!(state, None | Some("incomplete" | "failed"))
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Whether a namespace was looked at long enough after its ADD, if that was
/// seen.
fn is_settled(view: &View<'_>, entry: &NetnsEntry, looked: Timestamp) -> bool {
    let sandbox = &entry.sandbox;
    let id = sandbox.id.as_deref().into_iter();
    let calls = id.flat_map(|id| view.model.calls.of_container(id));
    let ended = calls.filter_map(|calls| calls.added());
    let Some(added) = ended.chain(sandbox.add).max() else {
        return true;
    };
    let settled = added.plus(SETTLED);
    if looked >= settled {
        return true;
    }
    for later in LOOKS {
        // To be asked again then.
        view.passed(settled.plus(later));
    }
    false
}

/// Whether a pod lives in a namespace, is set up and is to stay.
fn lives<'a>(view: &View<'a>, entry: &'a NetnsEntry) -> bool {
    let stays = matches!(
        entry.sandbox.presence,
        PodPresence::Unknown | PodPresence::Listed
    );
    let runs = || {
        let sandbox = heard(view.model).and_then(|list| sandbox_of(view, list, entry));
        let mut tasks = entry.tasks.iter();
        tasks.any(|task| task.container_id.is_some() || task.pod_uid.is_some())
            || sandbox.is_some_and(|sandbox| sandbox.ready == Some(true))
    };
    stays
        && runs()
        && ghosts::verdict(view, entry).is_none()
        // CNI ADD writes the entry last.
        && known_since(view, entry).is_some()
}

#[cfg(test)]
mod tests;
