//! What is to become of a ghost's addresses: how far it has come by each, and
//! when each may be given out.

use std::{net::IpAddr, time::Duration};

use crate::{
    detect::{
        View, answering,
        facts::ghosts::{Ghost, other_owners},
        ghost_sandbox::{
            elsewhere::Taker,
            ipam::{self, Allocator, Outlook, Start, pod_of},
            is_elsewhere,
        },
    },
    model::{allocation::Allocation, netns::NetnsEntry},
};
use event::{PodRef, clock::Timestamp, finding::Phase};

/// What the stores of reservations may take to answer.
const ANSWER: Duration = Duration::from_secs(2);

/// One of a ghost's addresses.
#[derive(Debug)]
pub(super) struct Case<'a> {
    pub(super) address: IpAddr,
    /// What has become of it so far.
    pub(super) fate: AddressState<'a>,
    /// The pod of another node that has it.
    pub(super) taker: Option<Taker<'a>>,
    /// What gave it out.
    pub(super) allocator: Option<Allocator>,
    /// What will become of it.
    pub(super) outlook: Outlook,
    /// How far the ghost has come by it.
    pub(super) phase: Phase,
    /// When it may be given out, at the latest.
    pub(super) due: Option<Timestamp>,
}

/// What has become of an address.
#[derive(Debug)]
pub(super) enum AddressState<'a> {
    /// Another namespace has it, too.
    TakenBy(&'a NetnsEntry, Timestamp),
    /// Nobody, or somebody else, has reserved it.
    Free(&'a Allocation, Timestamp),
    /// It is still reserved for the ghost, for another sandbox of its pod, or for
    /// nobody known.
    Reserved(&'a Allocation),
    /// No store says anything, although there was time.
    Untold,
    /// The stores have not answered yet.
    NotYet,
}

impl<'a> Case<'a> {
    /// Of an address. `gone` is whether the API server has forgotten the pod.
    pub(super) fn new(
        view: &View<'a>,
        ghost: &Ghost<'a>,
        address: IpAddr,
        pod: &PodRef,
        gone: bool,
    ) -> Self {
        let allocator = ipam::allocator(view, ghost.entry, address);
        let fate = fate(view, ghost, address, allocator.as_ref());
        let outlook = ipam::outlook(view, ghost, address, allocator.as_ref(), pod, gone);
        let taker = Taker::of(view, ghost.entry, address);
        Self {
            phase: match taker {
                Some(_) => Phase::Conflict,
                None => phase(&fate, outlook),
            },
            due: due(&fate, outlook).or(taker.map(|taker| taker.at)),
            taker,
            address,
            fate,
            allocator,
            outlook,
        }
    }
}

fn fate<'a>(
    view: &View<'a>,
    ghost: &Ghost<'a>,
    address: IpAddr,
    allocator: Option<&Allocator>,
) -> AddressState<'a> {
    let other_owners = other_owners(view, ghost.entry, address);
    if let Some((other, since)) = other_owners.into_iter().max_by_key(|(_, since)| *since) {
        return AddressState::TakenBy(other, since);
    }
    let Some(known) = view.model.allocations.get(address) else {
        let answered = view.passed(ghost.since.plus(ANSWER));
        return if answered {
            AddressState::Untold
        } else {
            AddressState::NotYet
        };
    };
    let Some(answer) = &known.answer else {
        return AddressState::Untold;
    };
    let sandbox = &ghost.entry.sandbox;
    match &answer.holder {
        None if allocator
            .is_some_and(|allocator| !ipam::is_answered_by(view, &allocator.ipam, answer)) =>
        {
            AddressState::Untold
        }
        None if !ipam::can_give(view, answer, address) && !known.was_reserved => {
            AddressState::Untold
        }
        None => AddressState::Free(known, answer.since),
        // A file that names nobody can be given back by nobody either.
        Some(holder) if holder.container_id.is_empty() => AddressState::Reserved(known),
        Some(holder) if sandbox.has_container(&holder.container_id) => {
            AddressState::Reserved(known)
        }
        // The infra container is gone, and CNI ADD was before the tracer: the
        // reservation may be this sandbox's, unless it is another's.
        Some(holder) if sandbox.id.is_none() && !is_elsewhere(view.model, &holder.container_id) => {
            AddressState::Reserved(known)
        }
        Some(holder) => {
            let is_anothers = match pod_of(view.model, holder) {
                // One of another sandbox of the same pod, which is gone, is for
                // nobody.
                Some(uid) => sandbox.uid() != Some(uid),
                // So is that of a sandbox that is long forgotten, of whichever pod;
                // what is reserved after the pod's end is another's.
                None => {
                    let is_new = answer.is_news && answer.since >= ghost.since;
                    is_new && answering(view.model).is_some()
                }
            };
            match is_anothers {
                true => AddressState::Free(known, answer.since),
                false => AddressState::Reserved(known),
            }
        }
    }
}

/// How far a ghost has come by an address. What no store tells is not known to
/// be free, however long ago it was due.
fn phase(fate: &AddressState<'_>, outlook: Outlook) -> Phase {
    match (fate, outlook) {
        (AddressState::TakenBy(..), _) => Phase::Conflict,
        (AddressState::Free(..), _) => Phase::Armed,
        // The one who has a claim on it is given it, reserved or not.
        (
            _,
            Outlook::Conflict {
                from: Start::Claimed,
                ..
            },
        ) => Phase::Armed,
        (AddressState::Reserved(_) | AddressState::NotYet | AddressState::Untold, _) => {
            Phase::Suspected
        }
    }
}

fn due(fate: &AddressState<'_>, outlook: Outlook) -> Option<Timestamp> {
    match (fate, outlook) {
        (AddressState::TakenBy(_, since) | AddressState::Free(_, since), _) => Some(*since),
        (_, Outlook::Conflict { due, .. }) => due,
        _ => None,
    }
}
