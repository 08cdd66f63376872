//! What is not known of a ghost, and therefore not claimed.

use super::{
    address_state::{AddressState, Case},
    finding::GhostReport,
    ipam::{self, Allocator, Ipam, Outlook},
};
use crate::{
    detect::{answering, joined, silence, unknown_holder},
    model::{allocation::Allocation, pods::PodPresence, runtime::CRI},
};
use event::{
    StoreKind,
    wording::subjects::{pod_word, short_id},
};

impl GhostReport<'_, '_> {
    pub(super) fn unknown(&self) -> Vec<String> {
        let mut unknown = Vec::new();
        let entry = self.ghost.entry;
        for case in &self.cases {
            let address = &case.address;
            doubt_giver(&mut unknown, case);
            match &case.fate {
                AddressState::Untold if case.allocator.is_none() => unknown.push(format!(
                    "which IPAM has {address}, and when it frees the IP: no store of reservations \
                     could be read"
                )),
                AddressState::Untold => unknown.push(format!(
                    "whether {address} is still reserved: the store of its IPAM could not be read"
                )),
                AddressState::NotYet => {
                    unknown.push(format!(
                        "whether {address} is still reserved: not answered yet"
                    ));
                }
                AddressState::Free(known, _) | AddressState::Reserved(known) => {
                    self.doubt_store(&mut unknown, case, known);
                }
                AddressState::TakenBy(..) => {}
            }
        }
        unknown.extend(self.taker_unknown());
        if matches!(entry.sandbox.presence, PodPresence::Unlisted(_)) {
            let pod = pod_word(&self.pod);
            unknown.push(format!(
                "when {pod} was deleted: already gone at the first look"
            ));
        }
        if let Some(failure) = self.view.model.pods_failure() {
            unknown.push(format!("the pods in the API now: {}", failure.error));
        }
        if let Some(failure) = self.view.model.failure(CRI) {
            unknown.push(format!("what CRI knows: {}", failure.error));
        }
        if entry.held_at.is_none() {
            unknown.push(String::from("what else holds the netns open"));
        } else if entry.is_held_by_nothing_found() && self.ghost.stuck.is_empty() {
            unknown.push(unknown_holder("the netns open"));
        } else if entry.task_count > entry.tasks.len() {
            unknown.push(format!(
                "the names of {} more tasks in the netns",
                entry.task_count - entry.tasks.len()
            ));
        }
        unknown
    }

    fn doubt_store(&self, unknown: &mut Vec<String>, case: &Case<'_>, known: &Allocation) {
        let address = case.address;
        let is_reserved = matches!(case.fate, AddressState::Reserved(_));
        if known.silent.is_some() {
            unknown.push(format!(
                "whether {address} is still reserved: no store answers"
            ));
        }
        let Some(answer) = &known.answer else {
            return;
        };
        if matches!(case.fate, AddressState::Free(..)) && !answer.is_news {
            unknown.push(format!(
                "since when {address} is free: it was so at the first look"
            ));
        }
        if !known.was_reserved {
            unknown.push(format!(
                "whether {} is the pod network's store: it never had {address}",
                joined(answer.stores.iter().map(|path| path.display())),
            ));
        }
        let sandbox = &self.ghost.entry.sandbox;
        let holder = answer.holder.as_ref();
        let Some(holder) = holder.filter(|holder| !sandbox.has_container(&holder.container_id))
        else {
            return;
        };
        let id = short_id(&holder.container_id);
        if sandbox.id.is_none() {
            unknown.push(format!(
                "whether {id:?}, which {address} is reserved for, is this sandbox",
            ));
        } else if is_reserved && ipam::pod_of(self.view.model, holder).is_none() {
            let why = match answering(self.view.model) {
                Some(_) => String::from("CRI has none of this ID"),
                None => silence(self.view.model),
            };
            unknown.push(format!(
                "whose sandbox {id:?} is, which {address} is reserved for: if another pod's, the IP \
                 is in use twice; {why}"
            ));
        }
    }
}

/// When it will be given back.
fn doubt_giver(unknown: &mut Vec<String>, case: &Case<'_>) {
    if matches!(
        case.fate,
        AddressState::TakenBy(..) | AddressState::Free(..)
    ) {
        return;
    }
    let address = case.address;
    match (&case.allocator, case.outlook) {
        (
            Some(Allocator {
                ipam: Ipam::Other(name),
                ..
            }),
            _,
        ) => unknown.push(format!(
            "when {name:?} gives {address} to another pod: {}",
            case.allocator
                .as_ref()
                .and_then(|allocator| allocator.ipam.ways())
                .unwrap_or("how it does that is unknown here; as a rule CNI DEL frees an IP")
        )),
        (
            Some(Allocator {
                ipam: Ipam::Store(StoreKind::HostLocal),
                ..
            }),
            Outlook::Unknown,
        ) => unknown.push(format!(
            "when antrea-agent restarts: it then frees {address} even if in use"
        )),
        (
            Some(Allocator {
                ipam: Ipam::Store(StoreKind::Whereabouts),
                ..
            }),
            Outlook::Conflict { .. },
        ) => unknown.push(format!(
            "when Whereabouts' reconciler runs, if its control loop missed the deletion: by \
             default once a day, by which {address} is due"
        )),
        (None, _) if matches!(case.fate, AddressState::Reserved(_)) => unknown.push(format!(
            "which IPAM has {address}, and when it frees the IP"
        )),
        _ => {}
    }
}
