//! Addresses that sandboxes of several nodes have: one node's finding says that
//! somebody keeps an address, and another node's recording that it was given to a
//! sandbox there.
//!
//! No verdict comes of that. Two have an address in conflict only if they share a
//! network, which the API's word says that reaches both; otherwise that is said to
//! be unknown. So is what lies outside of a recording, and the order of what nodes
//! tell whose clocks are not compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{
    history::History,
    lanes::{Held, Lane, MarkKind, Serial},
    narrative::Narrator,
    sheet::Sheet,
    shown::Shown,
};
use event::{
    clock::Timestamp,
    finding::{Holder, Rule, Severity, TakenBy},
    order::Order as _,
    wording::{plural::counted, subjects::short_id},
};

/// Addresses of one page.
const MAX_SHARED: usize = 50;
/// Rows of one address.
const MAX_ROWS: usize = 12;

/// An address that sandboxes of several nodes have.
#[derive(Debug)]
pub struct Shared<'a> {
    pub address: IpAddr,
    /// Who keeps it, as findings say: the worst first.
    pub held: Vec<&'a History>,
    /// Who was given it on another node.
    pub given: Vec<Given<'a>>,
}

/// A sandbox of another node that has the address.
#[derive(Debug)]
pub struct Given<'a> {
    pub by: Giver<'a>,
    pub order: Order,
    /// The API that one of the nodes that keep it asks says so: it is one network.
    pub certain: bool,
}

#[derive(Debug)]
pub enum Giver<'a> {
    /// That node's recording has it.
    Lane(Serial, &'a Held),
    /// Only the API says so, as the holder's node has asked it.
    Api(&'a TakenBy),
}

/// Whether two had an address at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    During,
    /// By what is known of the clocks, it may be.
    Perhaps,
    /// As each node told it; the clocks are not compared.
    AsTold,
    Apart,
}

/// All of a page, in the order of the findings, worst first.
pub fn shared(sheet: &Sheet) -> Vec<Shared<'_>> {
    if !sheet.has_nodes() {
        return Vec::new();
    }
    let mut all: Vec<Shared<'_>> = Vec::new();
    let mut places: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for history in sheet.findings.worst_first() {
        for address in kept(history) {
            let place = *places.entry(address).or_insert(all.len());
            if place == all.len() {
                let (held, given) = (Vec::new(), Vec::new());
                all.push(Shared {
                    address,
                    held,
                    given,
                });
            }
            all[place].held.push(history);
        }
    }
    for (serial, lane) in sheet.lanes.all().filter(|(_, lane)| lane.is_sandbox()) {
        for held in &lane.held {
            if let Some(place) = places.get(&held.address) {
                all[*place].give(sheet, serial, lane, held);
            }
        }
    }
    for one in &mut all {
        one.give_by_api(sheet);
        one.given.order_by_key(|given| given.at());
    }
    all.retain(|one| one.nodes(sheet).len() > 1 && !one.given.is_empty());
    all.truncate(MAX_SHARED);
    all
}

/// Addresses that a finding says are kept by who should not have them.
fn kept(history: &History) -> BTreeSet<IpAddr> {
    let finding = &history.worst;
    let keeps = match finding.rule {
        Rule::GhostSandbox | Rule::LeakedReservation => true,
        Rule::DuplicateAddress => finding.severity > Severity::Info,
        _ => false,
    };
    let reserved = finding.detail.reservations.iter().map(|it| it.address);
    let all = finding.addresses.iter().copied().chain(reserved);
    all.filter(|_| keeps).collect()
}

impl<'a> Shared<'a> {
    fn give(&mut self, sheet: &Sheet, serial: Serial, lane: &Lane, held: &'a Held) {
        let node = sheet.node_of(lane.part);
        let others = self.held.iter();
        let others: Vec<_> = others.filter(|it| sheet.node_of(it.part) != node).collect();
        let orders = others
            .iter()
            .map(|it| order(sheet, self.address, it, lane, held));
        let Some(order) = orders.min() else {
            return;
        };
        let is_own = |history: &&&History| {
            let netns = history.worst.netns.as_ref().map(|netns| netns.id);
            sheet.node_of(history.part) == node && netns.is_some() && netns == lane.netns
        };
        if order == Order::Apart || self.held.iter().any(|it| is_own(&it)) {
            return;
        }
        let uid = lane.pod.as_ref().and_then(|pod| pod.uid.as_deref());
        let certain = others.iter().any(|it| {
            let told = uid.is_some_and(|uid| {
                let mut parts = sheet.parts.iter();
                parts.any(|part| {
                    part.node == sheet.node_of(it.part) && part.moments.says(uid, self.address)
                })
            });
            told || it
                .worst
                .detail
                .taken_by
                .as_ref()
                .is_some_and(|by| by.node == node && by.uid.as_deref() == uid && uid.is_some())
        });
        self.given.push(Given {
            by: Giver::Lane(serial, held),
            order,
            certain,
        });
    }

    /// Those of whom only the API tells.
    fn give_by_api(&mut self, sheet: &Sheet) {
        for history in &self.held {
            let Some(by) = &history.worst.detail.taken_by else {
                continue;
            };
            let is_known = self.given.iter().any(|given| match &given.by {
                Giver::Lane(serial, _) => sheet.lanes.get(*serial).is_some_and(|lane| {
                    let pod = lane.pod.as_ref();
                    sheet.node_of(lane.part) == by.node
                        && pod.is_some_and(|pod| pod.name.as_ref() == Some(&by.name))
                }),
                Giver::Api(known) => *known == by,
            });
            if !is_known && by.node != sheet.node_of(history.part) {
                self.given.push(Given {
                    by: Giver::Api(by),
                    order: Order::During,
                    certain: true,
                });
            }
        }
    }

    /// The nodes that have to do with it.
    fn nodes(&self, sheet: &'a Sheet) -> BTreeSet<&'a str> {
        let held = self.held.iter().map(|it| sheet.node_of(it.part));
        let given = self.given.iter().filter_map(|given| given.node(sheet));
        held.chain(given).collect()
    }

    pub fn is_certain(&self) -> bool {
        self.given.iter().any(|given| given.certain)
    }

    /// The whole in one sentence.
    pub fn sentence(&self, sheet: &Sheet) -> Option<String> {
        let (held, given) = (self.held.first()?, self.given.first()?);
        let holder = holder(held);
        let node = sheet.node_of(held.part);
        let whose = given.whose(sheet);
        let when = match (given.order, given.at()) {
            (_, None) => String::new(),
            (_, Some(at)) => format!(" at {}", sheet.calendar().moment(at)),
        };
        let network = match self.is_certain() {
            true => "",
            false => " Whether both are in one network is not known.",
        };
        Some(format!(
            "{} is kept on {node} by {holder}, and {whose} got it{when}.{network}",
            self.address
        ))
    }
}

impl<'a> Given<'a> {
    pub fn at(&self) -> Option<Timestamp> {
        match self.by {
            Giver::Lane(_, held) => held.since,
            Giver::Api(_) => None,
        }
    }

    fn node(&self, sheet: &'a Sheet) -> Option<&'a str> {
        match self.by {
            Giver::Lane(serial, _) => {
                let lane = sheet.lanes.get(serial)?;
                Some(sheet.node_of(lane.part))
            }
            Giver::Api(by) => Some(&by.node),
        }
    }

    fn whose(&self, sheet: &Sheet) -> String {
        match self.by {
            Giver::Lane(serial, _) => {
                let lane = sheet.lanes.get(serial);
                lane.map(|lane| Narrator::new(sheet).whose(lane))
                    .unwrap_or_default()
            }
            Giver::Api(by) => format!("{}/{} on {}", by.namespace, by.name, by.node),
        }
    }
}

/// Who keeps it.
fn holder(history: &History) -> String {
    let finding = &history.worst;
    let pod = finding
        .pod
        .as_ref()
        .filter(|pod| **pod != Default::default());
    match (pod, finding.rule) {
        (Some(pod), Rule::GhostSandbox) => format!("{} (deleted)", pod.label()),
        (Some(pod), _) => pod.label(),
        (None, Rule::LeakedReservation) => {
            let id = finding.detail.reservations.first();
            let id = id.map(|it| short_id(&it.container_id)).unwrap_or_default();
            format!("the reservation of container {id}, which is gone")
        }
        (None, _) => match &finding.sandbox_id {
            Some(id) => format!("sandbox {}", short_id(id)),
            None => String::from("somebody whose pod is not known"),
        },
    }
}

/// From when to when an address was kept: by the kernel, or else by the finding.
/// What has no end may have lasted longer than the recording.
fn kept_for(sheet: &Sheet, address: IpAddr, history: &History) -> (i128, i128) {
    let netns = history.worst.netns.as_ref().map(|netns| netns.id);
    let mut lanes = sheet.lanes.all().map(|(_, lane)| lane);
    let lane = lanes.find(|lane| lane.part == history.part && lane.netns == netns);
    let lane = lane.filter(|_| netns.is_some());
    let held = lane.and_then(|lane| lane.held.iter().find(|it| it.address == address));
    match held {
        Some(held) => (
            held.since.map_or(i128::MIN, nanos),
            held.until.map_or(i128::MAX, nanos),
        ),
        None => (
            nanos(history.worst.since),
            history.resolved.map_or(i128::MAX, nanos),
        ),
    }
}

fn nanos(at: Timestamp) -> i128 {
    let (seconds, nanos) = at.parts();
    i128::from(seconds) * 1_000_000_000 + i128::from(nanos)
}

/// Whether a sandbox of another node had the address at the same time.
fn order(sheet: &Sheet, address: IpAddr, history: &History, lane: &Lane, held: &Held) -> Order {
    let (from, to) = kept_for(sheet, address, history);
    let began = held.since.unwrap_or(sheet.began_of(lane));
    let ended = held.until.map_or(i128::MAX, nanos);
    // What may be added to the other's times so that they still overlap.
    let least = from.saturating_sub(ended);
    let most = to.saturating_sub(nanos(began));
    let slack = |part: usize| {
        let part = sheet.parts.get(part);
        part.map_or((None, None), |part| part.clock.slack())
    };
    let (own, its) = (slack(history.part), slack(lane.part));
    let one_clock = sheet.node_of(history.part) == sheet.node_of(lane.part);
    let inside = |it: i128| least < it && it < most;
    match (own, its) {
        ((Some(own_least), Some(own_most)), (Some(its_least), Some(its_most))) if !one_clock => {
            let first = i128::from(own_least) - i128::from(its_most);
            let last = i128::from(own_most) - i128::from(its_least);
            match (inside(first), inside(last)) {
                (true, true) => Order::During,
                _ if first < most && least < last => Order::Perhaps,
                _ => Order::Apart,
            }
        }
        _ if inside(0) => Order::AsTold,
        _ => Order::Apart,
    }
}

/// What the template is given of one address.
#[derive(Debug)]
pub struct SharedView {
    pub heading: Shown,
    pub rows: Vec<Row>,
    pub known: Vec<Shown>,
    pub unknown: Vec<Shown>,
}

/// Who has it, since when, and what says so.
#[derive(Debug)]
pub struct Row {
    pub node: Shown,
    pub whose: Shown,
    pub since: Shown,
    pub says: Shown,
    pub record: Shown,
}

pub fn view(sheet: &Sheet, one: &Shared<'_>) -> SharedView {
    let mut rows: Vec<Row> = one.held.iter().map(|it| held_row(sheet, it)).collect();
    rows.truncate(MAX_ROWS / 2);
    let room = MAX_ROWS - rows.len();
    rows.extend(one.given.iter().take(room).map(|it| given_row(sheet, it)));
    let mut known = BTreeSet::new();
    let mut unknown = BTreeSet::new();
    for given in &one.given {
        let whose = given.whose(sheet);
        let holder = one.held.first().map(|it| sheet.node_of(it.part));
        let holder = holder.unwrap_or_default();
        match given.certain {
            true => known.insert(format!(
                "the API gives {whose} this address (asked by {holder}): it is one network"
            )),
            false => unknown.insert(format!(
                "whether both are in one network: no recording of {holder} has {whose} in the API \
                 with this address"
            )),
        };
        if let Some(text) = given.doubt(sheet, one) {
            unknown.insert(text);
        }
    }
    for history in &one.held {
        let part = sheet.parts.get(history.part);
        let Some(part) = part.filter(|_| history.resolved.is_none()) else {
            continue;
        };
        let later = |given: &Given<'_>| given.at().is_some_and(|at| at > part.ended);
        if one.given.iter().any(later) {
            unknown.insert(format!(
                "whether {} still had it then: the recording of {} ends before, at {}",
                holder(history),
                part.node,
                sheet.calendar().moment(part.ended)
            ));
        }
    }
    let more = (one.held.len() + one.given.len()).saturating_sub(rows.len());
    if more > 0 {
        unknown.insert(format!("{} are not shown", counted(more, "more holder")));
    }
    SharedView {
        heading: Shown::new(one.address),
        rows,
        known: known.into_iter().take(MAX_ROWS).map(Shown::new).collect(),
        unknown: unknown.into_iter().take(MAX_ROWS).map(Shown::new).collect(),
    }
}

impl Given<'_> {
    /// What is not known of when it came.
    fn doubt(&self, sheet: &Sheet, one: &Shared<'_>) -> Option<String> {
        let whose = self.whose(sheet);
        let serial = match self.by {
            Giver::Lane(serial, _) => serial,
            Giver::Api(by) => {
                let has_record = sheet.parts.iter().any(|part| part.node == by.node);
                return Some(match has_record {
                    true => format!(
                        "since when {whose} has it: the recordings of {} do not have its CNI ADD",
                        by.node
                    ),
                    false => {
                        format!(
                            "since when {whose} has it: no recording of {} was given",
                            by.node
                        )
                    }
                });
            }
        };
        let lane = sheet.lanes.get(serial)?;
        if self.at().is_none() {
            return Some(format!(
                "since when {whose} has it: it had it when the recording of {} began, at {}",
                sheet.node_of(lane.part),
                sheet.calendar().moment(sheet.began_of(lane))
            ));
        }
        let first = one.held.first().map(|it| sheet.node_of(it.part))?;
        match self.order {
            Order::AsTold => Some(format!(
                "which came first to less than the clocks differ: those of {first} and {} are not \
                 compared well enough",
                sheet.node_of(lane.part)
            )),
            Order::Perhaps => Some(format!(
                "whether both had it at the same time: by what is known of the clocks it may be \
                 either way ({whose})"
            )),
            Order::During | Order::Apart => None,
        }
    }
}

fn held_row(sheet: &Sheet, history: &History) -> Row {
    let finding = &history.worst;
    let calendar = sheet.calendar();
    let word = match finding.detail.first_seen {
        true => "first seen",
        false => "since",
    };
    let until = match history.resolved {
        Some(at) => format!(", until {}", calendar.moment(at)),
        None => String::from(", not over at the end"),
    };
    let phase = finding
        .detail
        .phase
        .map(|phase| format!("/{}", phase.as_str()));
    let task = finding.holders.iter().find_map(|holder| match holder {
        Holder::Task { comm, pid, .. } => Some(format!("; held by {comm} ({pid})")),
        _ => None,
    });
    row(
        sheet,
        history.part,
        holder(history),
        format!("{word} {}{until}", calendar.moment(finding.since)),
        format!(
            "{}{} ({}){}",
            finding.rule.as_str(),
            phase.unwrap_or_default(),
            finding.severity.as_str(),
            task.unwrap_or_default()
        ),
    )
}

fn given_row(sheet: &Sheet, given: &Given<'_>) -> Row {
    let calendar = sheet.calendar();
    let (serial, held) = match given.by {
        Giver::Lane(serial, held) => (serial, held),
        Giver::Api(by) => {
            return Row {
                node: Shown::new(&by.node),
                whose: Shown::new(format!("{}/{}", by.namespace, by.name)),
                since: Shown::new("not known"),
                says: Shown::new("the API"),
                record: Shown::default(),
            };
        }
    };
    let Some(lane) = sheet.lanes.get(serial) else {
        return row(sheet, 0, String::new(), String::new(), String::new());
    };
    let has = |kinds: &[MarkKind]| {
        let mut marks = lane.marks.iter();
        marks.find(|mark| kinds.contains(&mark.kind) && mark.addresses.contains(&held.address))
    };
    let add = has(&[MarkKind::Add, MarkKind::GivenAgain]);
    let says = match (add, held.seen) {
        (Some(add), true) => format!("CNI ADD ({}), kernel", add.text),
        (Some(add), false) => format!("CNI ADD ({})", add.text),
        (None, _) => String::from("kernel"),
    };
    let since = match held.since {
        Some(since) => format!("since {}", calendar.moment(since)),
        None => String::from("from before the recording"),
    };
    let until = match held.until {
        Some(at) => format!(", until {}", calendar.moment(at)),
        None => String::from(", had it at the end"),
    };
    let whose = match (&lane.pod, &lane.sandbox_id) {
        (Some(pod), Some(id)) => format!("{}, sandbox {}", pod.label(), short_id(id)),
        (Some(pod), None) => pod.label(),
        (None, Some(id)) => format!("sandbox {}", short_id(id)),
        (None, None) => String::from("a sandbox of an unknown pod"),
    };
    row(sheet, lane.part, whose, format!("{since}{until}"), says)
}

fn row(sheet: &Sheet, part: usize, whose: String, since: String, says: String) -> Row {
    let record = sheet.parts.get(part).map(|part| part.source.as_str());
    Row {
        node: Shown::new(sheet.node_of(part)),
        whose: Shown::new(whose),
        since: Shown::new(since),
        says: Shown::new(says),
        record: Shown::new(record.unwrap_or_default()),
    }
}
