//! stale-path: a policy rule, a route or a neighbour of the node is left over of a
//! pod that is gone, and sends what is for another pod, or of it, the wrong way.
//!
//! Most of what a node has in its tables is there on purpose and is explained by
//! nothing that can be read here. So an entry counts only if its owner is known and
//! gone, and if it does harm:
//!
//! | entry | whose it is | harm |
//! |---|---|---|
//! | rule for X | an earlier pod's: a later rule of the same selector names another table, and the pod has one such rule | without it, packets of the pod that has X take another way |
//! | rule for X | libcni's cache has it for a sandbox that is gone; or its veth is gone | the next pod that gets X goes by its table |
//! | route to X | a ghost's veth, or one that leads to no pod; or an ipvlan device's that pods share, as libcni's cache has X for a sandbox that is gone | without it, packets for the pod that has X, here or on another node, take another way |
//! | permanent neighbour X | libcni's cache has it, with its MAC, for a sandbox that is gone | the next pod that gets X is not reached |
//! | neighbour X | of another device: its MAC is none of the pod that has X | frames for that pod go to nobody, or to whom the bridge sends them |
//!
//! Whether the way is another one the kernel's own rules decide ([`paths`]).
//!
//! A scan looks twice. A trace reads the tables again after each change, and tells
//! of an entry once it has stood for a while and no CNI call for its address runs:
//! an ADD or DEL makes and removes its entries one by one. What a pod's devices are
//! was read when it was made; before a neighbour is told of, they are read again.

mod entry;
mod owners;

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap, HashSet},
    net::IpAddr,
    time::Duration,
};

use self::{entry::Remover, owners::Owners};
use crate::{
    detect::{
        Command, View, commented, evidence,
        facts::{
            common::label,
            ghosts, own,
            paths::{self, Entry, NodeTables, Packet, Tables},
            veth_pairs::cni_of_name,
        },
        fitting, heard, is_routable, netns_of, pod_of, unfound, unread,
    },
    model::{Model, calls::AttachmentCalls, netns::NetnsEntry, pods::PodPresence},
};
use event::{
    Attachment, Device, Netns, Pod,
    clock::Timestamp,
    finding::{Detail, EntryKind, Evidence, Finding, Rule, Severity, StaleEntry, finding_id},
    forwarding::{
        DatedNeighbour, FORWARDING, Forwarding, PolicyRule, RouteKind, RuleAction, TableRoute,
        single,
    },
    wording::subjects::short_id,
};

/// Findings at a time.
const MAX_FOUND: usize = 64;

/// How long an entry has to stand in a trace: CNI and the kernel need a moment.
const STANDS: Duration = Duration::from_secs(3);
/// A neighbour that the kernel asks again by itself.
const MENDED: Duration = Duration::from_secs(15);
/// The tables are judged again after that time at the earliest while a trace goes
/// on: there can be very many entries, and events.
pub const PAUSE: Duration = Duration::from_secs(1);
/// With fewer entries they are judged at every event.
const MANY: usize = 512;

/// Priorities at which a CNI enters one rule for each address and selector: AWS VPC
/// CNI (512, 1536), Terway (512, 2048) and Cilium (20, 110, 111). Others enter several
/// on purpose, as OVN-Kubernetes does for a pod behind two EgressServices (5000).
const ONE_EACH: [u32; 6] = [20, 110, 111, 512, 1_536, 2_048];

/// Stands for what is outside the cluster: nothing has a route to it alone
/// (RFC 5737, RFC 3849).
const OUTSIDE: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(std::net::Ipv6Addr::new(
        0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1,
    )),
];

/// Whose a stale entry was.
#[derive(Clone, Copy, Debug)]
enum Owner<'a> {
    /// A pod that had the address before: this rule was entered later.
    Earlier(&'a PolicyRule),
    /// An attachment in libcni's cache, of a sandbox that is gone.
    LeftOver(&'a Attachment),
    /// An attachment whose ADD was seen, of a sandbox that is gone.
    Called(&'a AttachmentCalls),
    /// Its device, named as this CNI names a pod's, is gone.
    Device(&'static str),
    /// A pod that is gone, whose namespace still is there.
    Ghost(&'a NetnsEntry),
    /// A veth that leads to no pod.
    Orphan,
    /// Whoever has, or had, this MAC address, and whom the bridge sends its frames to.
    OtherMac(Option<&'a NetnsEntry>),
}

/// Whom it harms.
#[derive(Clone, Copy, Debug)]
enum Victim<'a> {
    /// A living pod of this node.
    Here(&'a NetnsEntry),
    /// A pod of another node.
    There(&'a Pod),
    /// The next pod that is given the address.
    Next,
}

/// An entry of the node's tables.
#[derive(Clone, Copy, Debug)]
enum Found<'a> {
    Rule(&'a PolicyRule),
    Route(&'a TableRoute),
    Neighbour(&'a DatedNeighbour),
}

struct Stale<'a> {
    entry: Found<'a>,
    address: IpAddr,
    owner: Owner<'a>,
    victim: Victim<'a>,
    /// Where packets go, and where they would go without it.
    ways: Option<(String, String)>,
}

/// What the node's tables show.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    findings: Vec<Finding>,
    /// Namespaces that are to be looked at before anything is told of them.
    pub unlooked: BTreeSet<Netns>,
}

/// One finding an entry.
pub fn detect(view: &View<'_>) -> Vec<Finding> {
    view.paths().findings.clone()
}

/// Why more may be stale than is told.
pub fn gap(view: &View<'_>) -> Option<String> {
    let node = view.model.netns.node()?;
    if let Some(failure) = view.model.failure(FORWARDING) {
        return Some(format!(
            "stale-path: the node's rules, routes and neighbours: {}",
            failure.error
        ));
    }
    let cut = node.forwarding.as_ref()?.forwarding.cut;
    cut.then(|| {
        String::from(
            "stale-path: the node has more rules, routes, neighbours or devices than are kept",
        )
    })
}

/// Whether the node has so many entries that they are not judged at every event.
pub fn has_many(model: &Model) -> bool {
    let node = model.netns.node().and_then(|it| it.forwarding.as_ref());
    node.filter(|it| it.followed).is_some_and(|known| {
        let Forwarding {
            rules,
            routes,
            neighbours,
            ..
        } = &known.forwarding;
        rules.len() + routes.len() + neighbours.len() > MANY
    })
}

/// Judges every entry.
pub fn judge(view: &View<'_>) -> Judged {
    let Some(node) = NodeTables::of(view) else {
        return Judged::default();
    };
    // What one look has shown is out of date with the next event.
    if !view.settings.surveyed && !node.known.followed {
        return Judged::default();
    }
    let search = Search::new(view, node);
    let rules = search.tables.rules().flat_map(|rule| search.rule(rule));
    let routes = node.forwarding.routes.iter();
    let routes = routes.filter_map(|route| search.route(route));
    let neighbours = node.forwarding.neighbours.iter();
    let neighbours = neighbours.filter_map(|dated| search.neighbour(dated));
    let all = rules.chain(routes).chain(neighbours);
    let all = all
        .filter(|stale| search.has_settled(stale))
        .take(MAX_FOUND);
    let findings = all.map(|stale| search.finding(&stale)).collect();
    Judged {
        findings,
        unlooked: search.unlooked.into_inner(),
    }
}

/// What packets a rule selects.
type Selector<'a> = (
    u32,
    bool,
    (Option<(IpAddr, u8)>, Option<(IpAddr, u8)>),
    (Option<&'a str>, Option<&'a str>),
    (Option<(u32, u32)>, Option<u32>),
);

fn selector(rule: &PolicyRule) -> Selector<'_> {
    (
        rule.priority,
        rule.ipv6,
        (rule.from, rule.to),
        (rule.iif.as_deref(), rule.oif.as_deref()),
        (rule.mark, rule.suppress),
    )
}

/// Whether a rule only asks a table, for packets that it selects by what is known.
fn is_plain(rule: &PolicyRule) -> bool {
    rule.action == RuleAction::Lookup && !rule.not && !rule.narrower
}

/// What entries are held to.
struct Search<'v, 'a> {
    view: &'v View<'a>,
    node: NodeTables<'a>,
    tables: Tables<'a>,
    /// The rule of each selector that was entered last.
    last: HashMap<Selector<'a>, &'a PolicyRule>,
    owners: Owners<'a>,
    /// What is to be looked at first.
    unlooked: RefCell<BTreeSet<Netns>>,
    /// Pods of other nodes that run, by address.
    elsewhere: HashMap<IpAddr, &'a Pod>,
    /// Addresses that the runtime's sandboxes have.
    listed: HashSet<IpAddr>,
    /// Every namespace that there is was read: who is not found has nothing.
    is_whole: bool,
}

impl<'v, 'a> Search<'v, 'a> {
    fn new(view: &'v View<'a>, node: NodeTables<'a>) -> Self {
        let model = view.model;
        let tables = Tables::new(node.forwarding);
        // Rules come in their order: of those that are alike the last one stays.
        let plain = tables.rules().filter(|rule| is_plain(rule));
        let last = plain.map(|rule| (selector(rule), rule)).collect();
        let list = model.pods.list().filter(|_| model.pods_failure().is_none());
        let own = view.settings.node.as_str();
        let is_elsewhere = |pod: &&Pod| {
            let node = pod.node.as_deref();
            node.is_some_and(|node| node != own)
                && view.list_covers(Some(&pod.namespace))
                && pod.phase.as_deref() == Some("Running")
                && pod.deletion.is_none()
                && !pod.host_network
        };
        let pods = list.map(|list| list.pods()).unwrap_or_default();
        let pods = pods.iter().filter(is_elsewhere);
        let elsewhere = pods.flat_map(|pod| pod.ips.iter().map(move |ip| (*ip, pod)));
        let lists = model.runtime.lists();
        let listed = lists.flat_map(|list| list.sandboxes());
        let listed = listed.filter(|sandbox| !sandbox.host_network);
        Self {
            view,
            node,
            tables,
            last,
            owners: Owners::new(view, node.known),
            unlooked: RefCell::default(),
            elsewhere: elsewhere.collect(),
            listed: listed
                .flat_map(|sandbox| sandbox.ips.iter().copied())
                .collect(),
            is_whole: unfound(model).is_none() && unread(view) == 0,
        }
    }

    /// The one living pod of this node that has an address, if it is one, and if
    /// it was given that: a pod can give itself any.
    fn holder(&self, address: IpAddr) -> Option<&'a NetnsEntry> {
        let rightful = paths::rightful(self.view, address);
        let [only] = rightful[..] else { return None };
        self.is_given(only, address).then_some(only)
    }

    /// Whether a pod has been given an address, and something shows that it lives and
    /// is to stay.
    fn is_given(&self, entry: &NetnsEntry, address: IpAddr) -> bool {
        let model = self.view.model;
        let is_ready = || {
            let id = entry.sandbox.id.as_deref()?;
            heard(model)?.of_container(id)?.ready
        };
        let lives = || match entry.sandbox.presence {
            PodPresence::Listed => true,
            PodPresence::Unknown => is_ready() == Some(true),
            _ => false,
        };
        let named = || own::is_named(model, entry, address);
        !entry.host && entry.sandbox.pod.is_some() && lives() && named()
    }

    /// Whether nobody is known to have an address, and nobody can be hidden.
    fn is_nobodys(&self, address: IpAddr) -> bool {
        let mut with = self.view.model.netns.with_address(address);
        self.is_whole && with.next().is_none() && !self.listed.contains(&address)
    }

    fn name(&self, index: u32) -> String {
        match self.node.wiring.device(index) {
            Some(device) => device.name.clone(),
            None => format!("if{index}"),
        }
    }

    fn rule(&self, rule: &'a PolicyRule) -> Option<Stale<'a>> {
        let address = rule.single_from().or(rule.single_to())?;
        if !is_plain(rule) || !is_routable(address) {
            return None;
        }
        let stale = |owner, victim, ways| Stale {
            entry: Found::Rule(rule),
            address,
            owner,
            victim,
            ways,
        };
        let later = self.successor(rule);
        if let Some(holder) = self.holder(address) {
            let later = later.filter(|_| self.is_earlier(rule, holder, address))?;
            let ways = self.ways_of(rule, holder, address)?;
            return Some(stale(
                Owner::Earlier(later),
                Victim::Here(holder),
                Some(ways),
            ));
        }
        if !self.is_nobodys(address) {
            return None;
        }
        let device = || {
            let name = rule.iif.as_deref().filter(|_| rule.detached)?;
            cni_of_name(name).map(Owner::Device)
        };
        let owner = self.owner_of(rule, address).or_else(device)?;
        match self.elsewhere.get(&address) {
            None => Some(stale(owner, Victim::Next, None)),
            Some(pod) => {
                let packet = Packet {
                    from: None,
                    to: address,
                    iif: None,
                };
                let ways = self.ways(packet, Entry::Rule(rule))?;
                Some(stale(owner, Victim::There(pod), Some(ways)))
            }
        }
    }

    /// The attachment that is gone and that a rule is left over of.
    fn owner_of(&self, rule: &PolicyRule, address: IpAddr) -> Option<Owner<'a>> {
        self.owners.of(address, self.node.known.rule_since(rule))
    }

    /// Whether a rule that is older than one of the same selector is not the pod's own.
    fn is_earlier(&self, rule: &PolicyRule, holder: &NetnsEntry, address: IpAddr) -> bool {
        let before = || holder.created && self.node.known.rule_since(rule) < holder.seen;
        let is_by_kind = ONE_EACH.contains(&rule.priority) || before();
        (is_by_kind || self.owner_of(rule, address).is_some()) && self.is_latest(holder, address)
    }

    /// Whether a holder got the address after all others that are known: the later of
    /// two rules is its own.
    fn is_latest(&self, holder: &NetnsEntry, address: IpAddr) -> bool {
        let model = self.view.model;
        let got = |entry| {
            let held = model.netns.held_at(entry, address);
            let times = held.map(|it| it.made.or((!it.found).then_some(it.since)));
            times.max().flatten()
        };
        // Who had it at the first look got it at any time, or with its ADD.
        let add = || {
            let its = model.cni.of_container(holder.sandbox.id.as_deref()?);
            let its = its.filter(|it| it.ips.contains(&address));
            its.map(|it| it.written).max()
        };
        let own = got(holder).or_else(add);
        let is_later = |other| own.is_none() || got(other).is_none_or(|it| Some(it) >= own);
        let others = model.netns.with_address(address);
        let mut others = others.filter(|other| other.serial != holder.serial);
        !others.any(is_later) && !owners::is_given_later(self.view, address, holder, own)
    }

    /// The rule of the same priority and selector that was entered after this one.
    fn successor(&self, rule: &PolicyRule) -> Option<&'a PolicyRule> {
        let last = self.last.get(&selector(rule)).copied();
        let last = last.filter(|it| !std::ptr::eq(*it, rule));
        last.filter(|it| it.table != rule.table)
    }

    /// Whether it stays as it is seen. A scan has a second look for that.
    fn has_settled(&self, stale: &Stale<'_>) -> bool {
        let known = self.node.known;
        if !known.followed {
            return true;
        }
        let (entered, stands) = match stale.entry {
            Found::Rule(rule) => (known.rule_since(rule), STANDS),
            Found::Route(route) => (known.route_since(route), STANDS),
            Found::Neighbour(dated) if lasts(dated) => (known.neighbour_since(dated), STANDS),
            Found::Neighbour(dated) => (known.neighbour_since(dated), MENDED),
        };
        let owner = match stale.owner {
            Owner::Ghost(entry) => ghosts::gone(self.view, entry),
            Owner::Called(calls) => calls.netns_gone,
            _ => None,
        };
        let (busy, victim) = match stale.victim {
            Victim::Here(holder) => {
                let held = self.view.model.netns.held_at(holder, stale.address);
                let since = held.map(|held| held.since).max();
                (self.owners.is_busy_in(holder), since)
            }
            Victim::There(_) | Victim::Next => (false, None),
        };
        let since = Some(entered).max(owner).max(victim).unwrap_or(entered);
        let settled = since.plus(stands);
        // Of what has changed since nobody can tell whether it is still there.
        let was_seen = known.outdated.is_none_or(|outdated| outdated >= settled);
        !busy && was_seen && !self.owners.is_busy(stale.address) && self.view.passed(settled)
    }

    /// Where packets of a pod, or for it, go with a rule and without.
    fn ways_of(
        &self,
        rule: &PolicyRule,
        holder: &'a NetnsEntry,
        address: IpAddr,
    ) -> Option<(String, String)> {
        let plugs = paths::plugs(self.view, self.node, holder, address);
        let iif = plugs.first().map(|device| device.name.as_str());
        let outside = OUTSIDE[usize::from(address.is_ipv6())];
        let packet = match rule.single_from() {
            Some(from) => Packet {
                from: Some(from),
                to: rule.to.map_or(outside, |(to, _)| to),
                iif: rule.iif.as_deref().filter(|_| !rule.detached).or(iif),
            },
            None => Packet {
                from: None,
                to: address,
                iif: None,
            },
        };
        self.ways(packet, Entry::Rule(rule))
    }

    /// Where a packet goes with an entry and without, if these differ.
    fn ways(&self, packet: Packet<'_>, entry: Entry<'_>) -> Option<(String, String)> {
        // What is not known could lead there as well.
        if self.node.forwarding.cut {
            return None;
        }
        let with = self.tables.decide(packet, None)?;
        let without = self.tables.decide(packet, Some(entry));
        if without.and_then(|it| it.way()) == with.way() {
            return None;
        }
        let text = |decision: paths::Decision<'_>| match decision.route {
            Some(route) => format!(
                "{} (table {})",
                route.text(|index| self.name(index)),
                event::forwarding::table_name(route.table)
            ),
            None => decision.rule.action.as_str().to_owned(),
        };
        let without = without.map_or_else(|| String::from("no route"), text);
        Some((text(with), without))
    }

    fn route(&self, route: &'a TableRoute) -> Option<Stale<'a>> {
        let address = single(route.to).filter(|address| is_routable(*address))?;
        if route.kind != RouteKind::Unicast || route.gateway.is_some() {
            return None;
        }
        let device = self.node.wiring.device(route.device?)?;
        let owner = if device.is_veth() {
            let end = self.view.veth_pairs().other_end(self.node.entry, device);
            match end {
                Some(end) if paths::is_over(self.view, end.entry) => Owner::Ghost(end.entry),
                None if self.view.orphans().has(self.node.entry, device) => Owner::Orphan,
                Some(_) | None => return None,
            }
        } else {
            // The node's own slave of an ENI, which all pods of it share (Terway).
            let is_shared = device.kind.as_deref() == Some("ipvlan");
            if !is_shared || !self.is_nobodys(address) {
                return None;
            }
            let since = self.node.known.route_since(route);
            self.owners.of(address, since)?
        };
        // Whichever of several has the address: no living pod is behind the device.
        let mut holders = paths::rightful(self.view, address).into_iter();
        let victim = match holders.find(|it| self.is_given(it, address)) {
            Some(holder) => Victim::Here(holder),
            None => Victim::There(self.elsewhere.get(&address)?),
        };
        let packet = Packet {
            from: None,
            to: address,
            iif: None,
        };
        let ways = self.ways(packet, Entry::Route(route))?;
        Some(Stale {
            entry: Found::Route(route),
            address,
            owner,
            victim,
            ways: Some(ways),
        })
    }

    fn neighbour(&self, dated: &'a DatedNeighbour) -> Option<Stale<'a>> {
        let neighbour = &dated.neighbour;
        let address = Some(neighbour.address).filter(|address| is_routable(*address))?;
        let mac = neighbour.mac.as_deref()?;
        if matches!(neighbour.state.as_str(), "failed" | "incomplete" | "none") {
            return None;
        }
        let since = self.node.known.neighbour_since(dated);
        let Some(holder) = self.holder(address) else {
            // What is permanent stands there when the next pod gets the address.
            let is_elsewhere = self.elsewhere.contains_key(&address);
            let waits = lasts(dated) && !is_elsewhere && self.is_nobodys(address);
            let owner = waits.then(|| self.owners.of_mac(address, mac, since));
            return owner.flatten().map(|owner| Stale {
                entry: Found::Neighbour(dated),
                address,
                owner,
                victim: Victim::Next,
                ways: None,
            });
        };
        let is_old = |at: Timestamp| self.node.known.followed && at <= since;
        let Some(wiring) = &holder.wiring else {
            self.unlooked.borrow_mut().insert(holder.id);
            return None;
        };
        let devices = &wiring.devices;
        // A pod may answer with any device that it has.
        if devices.iter().any(|it| it.mac.as_deref() == Some(mac)) {
            return None;
        }
        let held = self.view.model.netns.held_at(holder, address);
        let on: Vec<&str> = held.map(|held| held.address.ifname.as_str()).collect();
        let mut its = devices.iter().filter(|it| on.contains(&it.name.as_str()));
        // Only a veth pair's other end certainly has the MAC that it says.
        if !its.all(|device| device.is_pair_end() && device.mac.is_some()) {
            return None;
        }
        let leads_there = |plug: &&Device| {
            plug.index == neighbour.device || plug.master == Some(neighbour.device)
        };
        let plugs = paths::plugs(self.view, self.node, holder, address);
        plugs.iter().find(|plug| leads_there(plug))?;
        // The pod can have given its device another address meanwhile.
        if is_old(wiring.at) {
            self.unlooked.borrow_mut().insert(holder.id);
            return None;
        }
        Some(Stale {
            entry: Found::Neighbour(dated),
            address,
            owner: Owner::OtherMac(self.led_to(holder, neighbour.device, mac)),
            victim: Victim::Here(holder),
            ways: None,
        })
    }

    /// The other pod that a bridge sends frames for the MAC to. Whose device has that
    /// MAC shows nothing: any pod can answer with the MAC of another.
    fn led_to(&self, holder: &NetnsEntry, bridge: u32, mac: &str) -> Option<&'a NetnsEntry> {
        let end = self.node.behind_port(self.view, bridge, mac);
        end.filter(|end| end.id != holder.id && !end.host)
    }

    fn finding(&self, stale: &Stale<'a>) -> Finding {
        let view = self.view;
        let detail = self.detail(stale);
        let kind = stale.entry.noun();
        let address = stale.address;
        let (title, short) = match stale.victim {
            Victim::Here(holder) => {
                let pod = pod_of(view.model, holder).map(|pod| pod.label());
                let pod = pod.unwrap_or_else(|| String::from("a pod"));
                match stale.owner {
                    Owner::OtherMac(Some(other)) => {
                        let other = whose(view.model, other);
                        (
                            format!("the neighbour {address} of {pod} leads to {other}"),
                            format!("the neighbour {address} leads to {other}"),
                        )
                    }
                    _ => (
                        format!("a stale {kind} leads {address} of {pod} astray"),
                        format!("a stale {kind} leads {address} astray"),
                    ),
                }
            }
            Victim::There(pod) => {
                let node = pod.node.as_deref().unwrap_or_default();
                (
                    format!("a stale {kind} keeps {address} of {node} from this node"),
                    format!("a stale {kind} leads {address} astray"),
                )
            }
            Victim::Next => {
                let short = format!("a stale {kind} for {address} waits for the next pod");
                (short.clone(), short)
            }
        };
        let pod = match stale.victim {
            Victim::Here(holder) => pod_of(view.model, holder),
            Victim::There(_) | Victim::Next => None,
        };
        let id = format!(
            "{kind} {} {}",
            detail.entry,
            detail.device.as_deref().unwrap_or_default()
        );
        Finding {
            rule: Rule::StalePath,
            severity: self.severity(stale),
            id: finding_id(&view.settings.boot_id, Rule::StalePath, &id),
            since: self.since(stale),
            title: fitting(title, || short),
            pod,
            sandbox_id: match stale.owner {
                Owner::LeftOver(attachment) => Some(attachment.container_id.clone()),
                Owner::Called(calls) => Some(calls.container_id.clone()),
                _ => None,
            },
            netns: match stale.owner {
                Owner::Ghost(entry) => Some(netns_of(entry)),
                _ => None,
            },
            addresses: vec![address],
            holders: Vec::new(),
            evidence: self.evidence(stale, &detail),
            unknown: self.unknown(stale),
            advice: self.advice(stale, &detail),
            detail: Detail {
                first_seen: true,
                path: Some(detail),
                ..Detail::default()
            },
        }
    }

    /// When it was first seen.
    fn since(&self, stale: &Stale<'_>) -> Timestamp {
        let known = self.node.known;
        match stale.entry {
            _ if !known.followed => known.at,
            Found::Rule(rule) => known.rule_since(rule),
            Found::Route(route) => known.route_since(route),
            Found::Neighbour(dated) => known.neighbour_since(dated),
        }
    }

    fn severity(&self, stale: &Stale<'_>) -> Severity {
        let lasts = match stale.entry {
            Found::Neighbour(dated) => lasts(dated),
            Found::Rule(_) | Found::Route(_) => true,
        };
        match stale.victim {
            Victim::Here(_) | Victim::There(_) if lasts => Severity::Critical,
            Victim::Here(_) | Victim::There(_) | Victim::Next => Severity::Warning,
        }
    }

    fn detail(&self, stale: &Stale<'_>) -> StaleEntry {
        let address = stale.address;
        match stale.entry {
            Found::Rule(rule) => StaleEntry {
                kind: EntryKind::Rule,
                entry: rule.text(),
                address,
                priority: Some(rule.priority),
                table: Some(rule.table),
                device: rule.iif.clone(),
                mac: None,
            },
            Found::Route(route) => StaleEntry {
                kind: EntryKind::Route,
                entry: route.text(|index| self.name(index)),
                address,
                priority: None,
                table: Some(route.table),
                device: route.device.map(|index| self.name(index)),
                mac: None,
            },
            Found::Neighbour(DatedNeighbour { neighbour, .. }) => {
                let device = self.name(neighbour.device);
                let mac = neighbour.mac.as_deref().unwrap_or_default();
                StaleEntry {
                    kind: EntryKind::Neighbour,
                    entry: format!("{address} dev {device} lladdr {mac} {}", neighbour.state),
                    address,
                    priority: None,
                    table: None,
                    device: Some(device),
                    mac: neighbour.mac.clone(),
                }
            }
        }
    }

    fn evidence(&self, stale: &Stale<'_>, detail: &StaleEntry) -> Vec<Evidence> {
        let (model, at) = (self.view.model, self.node.at);
        let kind = stale.entry.noun();
        let address = stale.address;
        let mut claims = vec![evidence(
            format!("the node has the {kind} \"{}\"", detail.entry),
            "kernel",
            at,
        )];
        let claim = match stale.owner {
            Owner::Earlier(later) => (
                format!(
                    "\"{}\" was entered after it for the same packets; of rules of one priority the \
                     kernel takes the older",
                    later.text()
                ),
                "kernel",
            ),
            Owner::LeftOver(attachment) => {
                let id = short_id(&attachment.container_id);
                (
                    format!(
                        "libcni gave {address} to sandbox {id}; its netns is gone, and CRI does not \
                         have it"
                    ),
                    "libcni",
                )
            }
            Owner::Called(calls) => {
                let id = short_id(&calls.container_id);
                let since = match calls.deleted() {
                    Some(_) => "; its netns is gone, and CNI DEL has ended",
                    None => "; its netns is gone, and CRI does not have it",
                };
                (
                    format!("CNI ADD gave {address} to sandbox {id}{since}"),
                    "cni",
                )
            }
            Owner::Device(cni) => (
                format!("the device that it names is gone; {cni} names a pod's host end so"),
                "kernel",
            ),
            Owner::Ghost(entry) => (
                format!(
                    "the device leads to {}, whose pod is gone",
                    label(model, entry)
                ),
                "kernel",
            ),
            Owner::Orphan => (
                String::from("the device is a veth that leads to no pod"),
                "kernel",
            ),
            Owner::OtherMac(other) => {
                let mac = detail.mac.as_deref().unwrap_or_default();
                let other = other.map(|entry| {
                    format!("; the bridge sends its frames to {}", label(model, entry))
                });
                let other = other.unwrap_or_default();
                (
                    format!("no device of the pod has the MAC {mac}{other}"),
                    "kernel",
                )
            }
        };
        claims.push(evidence(claim.0, claim.1, at));
        match stale.victim {
            Victim::Here(holder) => {
                let claim = format!("{} has {address}", label(model, holder));
                claims.push(evidence(claim, "kernel", at));
            }
            Victim::There(pod) => {
                let node = pod.node.as_deref().unwrap_or_default();
                let claim = format!("{}/{} on {node} has {address}", pod.namespace, pod.name);
                let list = model.pods.list();
                let source = list.map_or("pods", |list| list.source.as_str());
                claims.push(evidence(claim, source, at));
            }
            Victim::Next => {
                let claim = format!("no netns of this node and no sandbox of CRI has {address}");
                claims.push(evidence(claim, "kernel", at));
            }
        }
        if let Some((with, without)) = &stale.ways {
            let claim = format!("packets go by {with}; without it by {without}");
            claims.push(evidence(claim, "kernel", at));
        }
        claims
    }

    fn unknown(&self, stale: &Stale<'_>) -> Vec<String> {
        let mut unknown = Vec::new();
        match stale.entry {
            Found::Rule(_) | Found::Route(_) => unknown.push(String::from(
                "whether a program (netfilter, eBPF) sends the packets another way",
            )),
            Found::Neighbour(dated) if !lasts(dated) => unknown.push(format!(
                "who has answered for {}: a pod can answer with the MAC of another",
                stale.address
            )),
            Found::Neighbour(_) => {}
        }
        if let Some(failure) = self.view.model.failure(FORWARDING) {
            unknown.push(format!("whether the node still has it: {}", failure.error));
        }
        if matches!(stale.owner, Owner::LeftOver(_)) && heard(self.view.model).is_none() {
            unknown.push(String::from(
                "whether the runtime removes the sandbox just now",
            ));
        }
        if let Victim::Here(holder) = stale.victim
            && holder.sandbox.presence != PodPresence::Listed
        {
            unknown.push(format!(
                "whether {} is still in the API",
                label(self.view.model, holder)
            ));
        }
        let is_here = matches!(stale.victim, Victim::Here(_));
        if is_here && !self.is_whole {
            unknown.push(format!(
                "whether a netns that was not found or read has {}, too",
                stale.address
            ));
        }
        let model = self.view.model;
        let is_cache_read =
            model.cni.attachments_at().is_some() && model.failure("libcni").is_none();
        if matches!(stale.owner, Owner::Earlier(_)) && !is_cache_read {
            unknown.push(String::from(
                "whether a pod that is gone got the address later: libcni's cache was not read",
            ));
        }
        if matches!(stale.victim, Victim::Next) {
            unknown.push(String::from("when the IPAM gives the address out"));
        }
        unknown
    }

    fn advice(&self, stale: &Stale<'_>, detail: &StaleEntry) -> Vec<String> {
        let address = stale.address.to_string();
        let check = Command::new("node-tracer explain").word(&address);
        let mut advice = vec![commented(
            check,
            &format!(
                "must still show this {} and the same pods",
                stale.entry.noun()
            ),
        )];
        let remover = Remover {
            forwarding: self.node.forwarding,
        };
        let remove = match stale.entry {
            Found::Rule(rule) => remover.rule(rule),
            Found::Route(route) => {
                let device = detail.device.as_deref().unwrap_or_default();
                remover.route(route, device)
            }
            Found::Neighbour(dated) => {
                let device = detail.device.as_deref().unwrap_or_default();
                remover.neighbour(&dated.neighbour, device)
            }
        };
        match remove {
            Some(remove) => advice.push(commented(remove, "removes exactly this entry")),
            None => advice.push(format!(
                "remove the {} by hand: ip(8) cannot name it without meaning another one",
                stale.entry.noun()
            )),
        }
        if self.node.entry.node && self.view.model.netns.live().filter(|it| it.host).count() > 1 {
            advice.insert(
                0,
                format!(
                    "run these in the network namespace of the container runtime ({})",
                    self.node.entry.id.inode
                ),
            );
        }
        advice
    }
}

impl Found<'_> {
    fn noun(&self) -> &'static str {
        match self {
            Self::Rule(_) => "rule",
            Self::Route(_) => "route",
            Self::Neighbour(_) => "neighbour",
        }
    }
}

/// The pod of a namespace, or what else is known of it.
fn whose(model: &Model, entry: &NetnsEntry) -> String {
    pod_of(model, entry).map_or_else(|| label(model, entry), |pod| pod.label())
}

/// Whether the kernel keeps a neighbour as it is: others it asks again after some
/// seconds of traffic.
fn lasts(dated: &DatedNeighbour) -> bool {
    matches!(dated.neighbour.state.as_str(), "permanent" | "noarp")
}

#[cfg(test)]
mod tests;
