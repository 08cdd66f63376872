//! What is told of a sandbox: its events in order, the same failures of one
//! pod put together.

use std::{collections::BTreeMap, net::IpAddr};

use super::super::{
    incident::Incident,
    lanes::{Held, Lane, Mark, MarkKind, Serial, Stall},
    sheet::Sheet,
};
use event::clock::Timestamp;
use event::order::Order as _;

/// As many sandboxes are told one by one, whatever they did.
const FEW: usize = 4;

/// One thing to tell.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Item<'a> {
    pub at: Timestamp,
    pub serial: Serial,
    pub what: Passage<'a>,
}

/// What there is to tell.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Passage<'a> {
    /// It had addresses before anybody looked.
    Had(Vec<IpAddr>),
    Mark(&'a Mark),
    /// Failures of one pod: the first, how many more, and when the last was.
    Failures(&'a Mark, usize, Timestamp),
    /// A task went to sleep.
    Slept(&'a Stall),
    Woke(&'a Stall),
    /// It lost an address that another one has, which both had since then.
    LeftAlone(&'a Held, Serial, Timestamp),
    /// Its namespace came to an end.
    Ended,
    /// So many more sandboxes of its pod followed, until then.
    More(usize, Timestamp),
}

impl Passage<'_> {
    /// Of one moment, what is told first.
    fn rank(&self) -> u8 {
        match self {
            Self::Had(_) => 0,
            Self::Mark(_) | Self::Failures(..) | Self::Woke(_) => 1,
            Self::Slept(_) => 2,
            Self::LeftAlone(..) => 3,
            Self::Ended => 4,
            Self::More(..) => 5,
        }
    }

    /// Whether a new paragraph begins with it.
    pub(super) fn is_turn(&self) -> bool {
        match self {
            Self::Mark(mark) => {
                matches!(
                    mark.kind,
                    MarkKind::PodDeleted | MarkKind::NotListed | MarkKind::GivenAgain
                )
            }
            Self::Woke(_) => true,
            _ => false,
        }
    }
}

/// Everything there is to tell of an incident, in order.
pub(super) fn items<'a>(sheet: &'a Sheet, incident: &Incident<'_>) -> Vec<Item<'a>> {
    let lanes = &sheet.lanes;
    let mut items = Vec::new();
    let mut failures: BTreeMap<(String, MarkKind), usize> = BTreeMap::new();
    // Sandboxes of each pod: whose is told first, how many more, until when.
    let mut of_pods: BTreeMap<String, (Serial, usize, Option<Timestamp>)> = BTreeMap::new();
    let many = incident.lanes.len() > FEW;
    for serial in &incident.lanes {
        let Some(lane) = lanes.get(*serial) else {
            continue;
        };
        let begin = items.len();
        of_lane(
            *serial,
            lane,
            sheet.began_of(lane),
            &mut failures,
            &mut items,
        );
        let Some(pod) = &lane.pod else { continue };
        let known = of_pods.entry(pod.label()).or_insert((*serial, 0, None));
        if many && known.0 != *serial && is_ordinary(&items[begin..]) {
            items.truncate(begin);
            known.1 += 1;
            known.2 = known.2.max(lane.moments().max());
        }
    }
    for (serial, more, last) in of_pods.into_values() {
        let its = items.iter().filter(|item| item.serial == serial);
        if let (Some(at), Some(last)) = (its.map(|item| item.at).max(), last) {
            let what = Passage::More(more, last);
            items.push(Item { at, serial, what });
        }
    }
    for conflict in incident.conflicts(sheet) {
        let Some(to) = conflict.to else { continue };
        let [one, other] = conflict.lanes;
        for (serial, rest) in [(one, other), (other, one)] {
            let lane = lanes.get(serial).into_iter();
            let mut held = lane.flat_map(|lane| &lane.held);
            let lost = held.find(|it| it.address == conflict.address && it.until == Some(to));
            if let Some(held) = lost {
                items.push(Item {
                    at: to,
                    serial,
                    what: Passage::LeftAlone(held, rest, conflict.from),
                });
                break;
            }
        }
    }
    items.order_by_key(|item| (item.at, item.what.rank(), item.serial));
    items
}

/// Whether a sandbox only came and went. What failed is told with the first.
fn is_ordinary(items: &[Item<'_>]) -> bool {
    let went = items.iter().any(|item| match &item.what {
        Passage::Ended => true,
        Passage::Mark(mark) => mark.kind == MarkKind::Del,
        _ => false,
    });
    went && items.iter().all(|item| match &item.what {
        Passage::Ended => true,
        Passage::Mark(mark) => matches!(
            mark.kind,
            MarkKind::Add | MarkKind::Del | MarkKind::Made | MarkKind::Removed
        ),
        _ => false,
    })
}

fn of_lane<'a>(
    serial: Serial,
    lane: &'a Lane,
    began: Timestamp,
    failures: &mut BTreeMap<(String, MarkKind), usize>,
    items: &mut Vec<Item<'a>>,
) {
    let mut tell = |at, what| items.push(Item { at, serial, what });
    let before = lane.held.iter().filter(|held| held.since.is_none());
    let before: Vec<IpAddr> = before.map(|held| held.address).collect();
    if !before.is_empty() {
        tell(began, Passage::Had(before));
    }
    for stall in &lane.stalls {
        tell(stall.since, Passage::Slept(stall));
        if let Some(until) = stall.until {
            tell(until, Passage::Woke(stall));
        }
    }
    if let Some(at) = lane.dying.or(lane.gone) {
        tell(at, Passage::Ended);
    }
    let whose = lane.pod.as_ref().map(|pod| pod.label());
    let whose = whose
        .or_else(|| lane.sandbox_id.clone())
        .unwrap_or_default();
    for mark in &lane.marks {
        let kind = mark.kind;
        let fails = matches!(
            kind,
            MarkKind::AddFailed | MarkKind::DelFailed | MarkKind::StartFailed
        );
        if !fails {
            items.push(Item {
                at: mark.at,
                serial,
                what: Passage::Mark(mark),
            });
            continue;
        }
        let place = failures.entry((whose.clone(), kind)).or_insert(items.len());
        match items.get_mut(*place) {
            Some(Item {
                what: Passage::Failures(_, more, last),
                ..
            }) => {
                *more += 1;
                *last = mark.at.max(*last);
            }
            _ => items.push(Item {
                at: mark.at,
                serial,
                what: Passage::Failures(mark, 0, mark.at),
            }),
        }
    }
}
