//! What sources answered, as events and as coverage: one item each, with what
//! is unknown where one did not answer.

use crate::config::Pods;
use crate::coverage;
use engine::model::{OWNERS, netns::NETNS};
use event::{Event, What, clock::Timestamp, fault, record::CoverageItem};
use node::{
    bundles::{self, BundlesError},
    containers::{ContainersError, Existing},
    cri::{self, CriError},
    pods::Listing,
    procfs::{NoAnswer, Procfs},
};

use super::Snapshot;
use event::wording::plural::counted;

/// Failures of one kind that are named.
const NAMED: usize = 4;

/// What the container runtimes answered.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) events: Vec<Event>,
    pub(super) item: CoverageItem,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            events: Vec::new(),
            item: not_asked("asking failed"),
        }
    }
}

impl Answers {
    /// One list of all runtimes: a node can have two sockets of one, and a
    /// sandbox is looked for in all of them. `found`: the sockets were found,
    /// not named.
    pub(super) fn of(
        asked: Timestamp,
        found: bool,
        answers: impl Iterator<Item = Result<cri::Listing, CriError>>,
    ) -> Self {
        let (mut listings, mut failed, mut partial) = (Vec::new(), Vec::new(), Vec::new());
        let mut spare = Vec::new();
        for answer in answers {
            match answer {
                Ok(listing) => {
                    partial.extend(listing.partial.clone());
                    listings.push(listing);
                }
                // One that speaks no CRI beside one that does is no runtime of
                // Kubernetes: Docker's containerd, for one.
                Err(error @ CriError::TooOld { .. }) if found => {
                    spare.push(fault::chain(&error));
                }
                Err(error) => failed.push(fault::chain(&error)),
            }
        }
        if listings.is_empty() {
            failed.append(&mut spare);
        }
        // The answers may be of any moment since they were asked for.
        let time = asked;
        let mut events = Vec::new();
        if !listings.is_empty() {
            let joined = |parts: Vec<String>| parts.join(", ");
            let what = What::SandboxesListed {
                source: cri::SOURCE.to_owned(),
                endpoint: joined(
                    listings
                        .iter()
                        .map(|each| each.endpoint.to_string())
                        .collect(),
                ),
                runtime: Some(joined(
                    listings
                        .iter()
                        .filter_map(|each| each.runtime.clone())
                        .collect(),
                ))
                .filter(|names| !names.is_empty()),
                partial: (!partial.is_empty()).then(|| partial.join("; ")),
                sandboxes: listings
                    .iter()
                    .flat_map(|each| each.sandboxes.clone())
                    .collect(),
            };
            events.push(Event { time, what });
        }
        if !failed.is_empty() {
            let what = What::SourceFailed {
                source: cri::SOURCE.to_owned(),
                error: failed.join("; "),
            };
            events.push(Event { time, what });
        }
        let mechanism = listings.iter().map(|listing| {
            let runtime = listing.runtime.as_deref().unwrap_or("a runtime");
            let sandboxes = counted(listing.sandboxes.len(), "sandbox");
            format!("{runtime} at {} ({sandboxes})", listing.endpoint)
        });
        let mechanism: Vec<String> = mechanism.collect();
        let mut unknown = partial;
        if !failed.is_empty() {
            unknown.push(String::from(UNKNOWN_SANDBOXES));
        }
        let item = CoverageItem {
            signal: String::from("cri"),
            mechanism: (!mechanism.is_empty()).then(|| mechanism.join(", ")),
            reason: (!failed.is_empty()).then(|| failed.join("; ")),
            unknown,
        };
        Self { events, item }
    }
}

/// What a runtime that is not asked leaves unknown.
const UNKNOWN_SANDBOXES: &str = "sandboxes and containers as the runtime lists them";

/// No runtime was asked.
pub(super) fn not_asked(reason: &str) -> CoverageItem {
    CoverageItem {
        signal: String::from("cri"),
        mechanism: None,
        reason: Some(reason.to_owned()),
        unknown: vec![UNKNOWN_SANDBOXES.to_owned()],
    }
}

/// The search for network namespaces has not gone through all that can lead to
/// one: the rules are to know that there may be more.
pub(super) fn not_all_netns(missed: &[String]) -> Event {
    let mut error = String::from("not all that can lead to a network namespace could be looked at");
    if !missed.is_empty() {
        error += &format!(": {}", missed.join("; "));
    }
    let source = NETNS.to_owned();
    Event {
        time: sys::clock::now(),
        what: What::SourceFailed { source, error },
    }
}

/// Whether a process's cgroup tells whose it is.
pub(super) fn owners(procfs: &Procfs, looked: &mut Snapshot) {
    let why = procfs.place_unknown();
    let mechanism = || match procfs.place().own() {
        Some(own) => format!("/proc/PID/cgroup, seen from {own}"),
        None => String::from("/proc/PID/cgroup"),
    };
    looked.items.push(CoverageItem {
        signal: OWNERS.to_owned(),
        mechanism: why.is_none().then(mechanism),
        reason: why.clone(),
        unknown: match why {
            Some(_) => vec![String::from(
                "of which pod processes are, and so the ghosts that nothing but processes shows",
            )],
            None => Vec::new(),
        },
    });
    if let Some(error) = why {
        let source = OWNERS.to_owned();
        let what = What::SourceFailed { source, error };
        let time = sys::clock::now();
        looked.events.push(Event { time, what });
    }
}

/// The folders that runtimes have left.
pub(super) fn bundles(answer: Result<Vec<bundles::Listing>, BundlesError>, looked: &mut Snapshot) {
    let time = sys::clock::now();
    let lists = match answer {
        Ok(lists) => lists,
        Err(error) => {
            let error = fault::chain(&error);
            looked.items.push(CoverageItem {
                signal: String::from("bundles"),
                mechanism: None,
                reason: Some(error.clone()),
                unknown: vec![String::from("sandboxes by the runtime's folders")],
            });
            let source = bundles::SOURCE.to_owned();
            let what = What::SourceFailed { source, error };
            looked.events.push(Event { time, what });
            return;
        }
    };
    let count: usize = lists.iter().map(|list| list.sandboxes.len()).sum();
    let unread = some(lists.iter().flat_map(|list| list.unread.iter().cloned()));
    let folders: Vec<String> = lists
        .iter()
        .map(|list| list.folder.display().to_string())
        .collect();
    looked.items.push(CoverageItem {
        signal: String::from("bundles"),
        mechanism: (!folders.is_empty())
            .then(|| format!("{} ({})", folders.join(", "), counted(count, "sandbox"))),
        reason: folders
            .is_empty()
            .then(|| String::from("no container runtime has a folder below /run")),
        unknown: unread.clone(),
    });
    if !lists.is_empty() {
        let what = What::SandboxesListed {
            source: bundles::SOURCE.to_owned(),
            endpoint: folders.join(", "),
            runtime: None,
            partial: (!unread.is_empty()).then(|| unread.join("; ")),
            sandboxes: lists.into_iter().flat_map(|list| list.sandboxes).collect(),
        };
        looked.events.push(Event { time, what });
    }
}

/// Containers that have a cgroup, or a shim.
pub(super) fn containers(
    source: &str,
    answer: Result<Existing, ContainersError>,
    looked: &mut Snapshot,
) {
    let time = sys::clock::now();
    let (mechanism, reason, unknown) = match &answer {
        Ok(existing) => (
            Some(counted(existing.ids.len(), "container")),
            None,
            existing.partial.iter().cloned().collect(),
        ),
        Err(error) => (
            None,
            Some(fault::chain(error)),
            vec![format!("which containers exist by {source}")],
        ),
    };
    looked.items.push(CoverageItem {
        signal: source.to_owned(),
        mechanism,
        reason,
        unknown,
    });
    let what = match answer {
        Ok(existing) => What::ContainersListed {
            source: source.to_owned(),
            partial: existing.partial,
            ids: existing.ids,
        },
        Err(error) => What::SourceFailed {
            source: source.to_owned(),
            error: fault::chain(&error),
        },
    };
    looked.events.push(Event { time, what });
}

/// CNI's own files, from the events they gave.
pub(super) fn of_cni(source: &str, events: &[Event]) -> CoverageItem {
    let (mut mechanism, mut unread) = (None, Vec::new());
    let (mut attachments, mut stores, mut reservations) = (0, 0, 0);
    for event in events {
        match &event.what {
            What::NetworksListed {
                networks: listed,
                unread: not,
            } => {
                mechanism = listed.first().map(|network| {
                    let ipam = network.ipam.as_deref().unwrap_or("none");
                    let more = match listed.len() {
                        1 => String::new(),
                        many => format!(" and {} more", many - 1),
                    };
                    format!("{} ({}, IPAM {ipam}){more}", network.name, network.plugin)
                });
                unread.extend(not.iter().cloned());
            }
            What::AttachmentsListed {
                attachments: listed,
                unread: not,
                ..
            } => {
                attachments += listed.len();
                unread.extend(not.iter().cloned());
            }
            What::StoreListed { store } => {
                stores += 1;
                reservations += store.reservations.len();
                unread.extend(store.unread.iter().cloned());
            }
            _ => {}
        }
    }
    let missing = match source {
        "networks" => "there is no CNI configuration",
        "libcni" => "it has no cache",
        _ => "there is no store of reservations",
    };
    match source {
        "libcni" if !events.is_empty() => {
            mechanism = Some(format!(
                "{} in its cache",
                counted(attachments, "attachment")
            ));
        }
        "host-local" if stores > 0 => {
            let reservations = counted(reservations, "reservation");
            mechanism = Some(format!("{reservations} in {}", counted(stores, "store")));
        }
        _ => {}
    }
    CoverageItem {
        signal: source.to_owned(),
        reason: mechanism.is_none().then(|| missing.to_owned()),
        mechanism,
        unknown: some(unread.into_iter()),
    }
}

pub(super) fn files_failed(source: &str, error: &NoAnswer, looked: &mut Snapshot) {
    let what = match source {
        "networks" => "the CNI configuration",
        "libcni" => "the attachments that libcni remembers",
        _ => "the reservations of host-local",
    };
    let error = format!("{what}: {}", fault::chain(error));
    looked.items.push(CoverageItem {
        signal: source.to_owned(),
        mechanism: None,
        reason: Some(error.clone()),
        unknown: vec![what.to_owned()],
    });
    looked.events.push(Event {
        time: sys::clock::now(),
        what: What::SourceFailed {
            source: source.to_owned(),
            error,
        },
    });
}

pub(super) fn of_pods(
    pods: &Pods,
    listing: Option<&Listing>,
    by: Option<String>,
    failure: Option<&str>,
) -> CoverageItem {
    let reason = match (pods, failure) {
        (_, Some(failure)) => Some(failure.to_owned()),
        (Pods::None, None) => Some(String::from("--pods none")),
        (Pods::Auto | Pods::File(_), None) => None,
    };
    let mechanism = listing.map(|listing| {
        let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
        let pods = counted(listing.pods.len(), "pod");
        format!("{}{by} ({pods})", listing.source)
    });
    let unknown = match &mechanism {
        Some(_) => coverage::doubted(listing.and_then(|listing| listing.doubt.as_deref())),
        None => vec![String::from(
            "whether a pod still exists, and so which sandboxes are left over",
        )],
    };
    CoverageItem {
        signal: String::from("pods"),
        mechanism,
        reason,
        unknown,
    }
}

/// The first of many, and how many more there are.
fn some(all: impl Iterator<Item = String>) -> Vec<String> {
    let mut some: Vec<String> = all.collect();
    let more = some.len().saturating_sub(NAMED);
    if more > 0 {
        some.truncate(NAMED);
        some.push(format!("{more} more like these"));
    }
    some
}
