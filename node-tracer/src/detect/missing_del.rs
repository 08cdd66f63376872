//! missing-del: a sandbox is gone, and nobody has called CNI DEL for it: what
//! ADD has reserved for it stays reserved.
//!
//! All of these must be so:
//!
//! 1. there was an ADD: it was seen, or libcni remembers it (its cache keeps an
//!    ADD until a DEL has succeeded);
//! 2. the sandbox is gone: its namespace is, or its pod is and the namespace,
//!    if it still lives, has no address left. (One that has is
//!    [`ghost_sandbox`]'s: its DEL could not come, and giving its address back
//!    would do harm);
//! 3. since that ADD no DEL was seen, neither begun nor ended, for [`GRACE`]:
//!    some runtimes call it after the namespace has gone, and after a restart
//!    the kubelet takes its time. If it comes late, the finding is over;
//! 4. no store that knows says that the address has been given back.
//!
//! Without a store that says that it is reserved it is `info`, and so it is
//! while the runtime lists the sandbox: it calls DEL when it removes it.

mod advice;
mod reservation;
mod telling;

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet, HashSet},
    net::IpAddr,
    time::Duration,
};

pub(super) use self::reservation::{Stays, stays};
use super::{View, calls::pod_gone, ghost_sandbox, heard, is_routable, named, unread};
use crate::{
    clock::Timestamp,
    event::{Attachment, PodRef},
    finding::{Finding, Severity},
    model::{calls::AttachmentCalls, netns::NetnsEntry, runtime::CRI},
};

/// What an ordinary removal, and a restart of the runtime, may take.
const GRACE: Duration = Duration::from_secs(60);
/// A runtime that lists a sandbox for so long after its end will not call DEL.
const HOPE: Duration = Duration::from_secs(600);
/// More attachments of one network that only libcni's cache knows are told
/// together.
const MANY: usize = 4;

/// An attachment that nobody has taken back.
#[derive(Debug)]
struct Case<'a> {
    /// `CNI_CONTAINERID`
    id: &'a str,
    /// `CNI_IFNAME`
    ifname: &'a str,
    pod: PodRef,
    /// What ADD gave it.
    ips: Vec<IpAddr>,
    /// The network, if its name is known.
    network: Option<&'a str>,
    gone: Gone<'a>,
    /// When the ADD ended, or was last seen.
    added: Timestamp,
    /// It was seen.
    called: Option<&'a AttachmentCalls>,
    /// libcni remembers it.
    cached: Option<&'a Attachment>,
}

/// Why its sandbox is gone.
#[derive(Clone, Copy, Debug)]
enum Gone<'a> {
    /// Its namespace was seen to go.
    Netns(Timestamp),
    /// Its namespace was not there when libcni's cache was read.
    Found(Timestamp),
    /// Its pod is gone; the namespace, if it is known to live, has no address.
    Pod(Timestamp, Option<&'a NetnsEntry>),
}

/// A case with what has become of its reservation.
#[derive(Debug)]
struct Missing<'a> {
    case: Case<'a>,
    stays: Stays<'a>,
    severity: Severity,
}

/// One finding an attachment; those of one network that only libcni knows are
/// one if they are many.
pub(crate) fn detect(view: &View<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut old: BTreeMap<&str, Vec<Missing<'_>>> = BTreeMap::new();
    for case in cases(view) {
        let Some(missing) = judged(view, case) else {
            continue;
        };
        match missing.case.cached {
            Some(cached) if missing.case.called.is_none() => {
                old.entry(&cached.network).or_default().push(missing);
            }
            _ => findings.push(missing.finding(view)),
        }
    }
    for (network, all) in old {
        match all.len() > MANY {
            true => findings.extend(telling::many(view, network, &all)),
            false => findings.extend(all.iter().map(|missing| missing.finding(view))),
        }
    }
    findings
}

/// Addresses whose reservations have to be asked for.
pub(crate) fn addresses(view: &View<'_>) -> BTreeSet<IpAddr> {
    cases(view).into_iter().flat_map(|case| case.ips).collect()
}

fn judged<'a>(view: &View<'a>, case: Case<'a>) -> Option<Missing<'a>> {
    let since = match case.gone {
        Gone::Netns(at) | Gone::Pod(at, _) => at,
        Gone::Found(_) => case.added,
    };
    if !view.passed(since.plus(GRACE)) {
        return None;
    }
    let asked = match case.gone {
        Gone::Found(at) => at,
        _ => since,
    };
    let networks = Named {
        network: case.network,
        host_local: case.called.is_some_and(uses_host_local),
    };
    let stays = stays(view, case.id, &case.ips, networks, asked);
    let failed = case.called.is_some_and(|calls| calls.added().is_none());
    let severity = match stays {
        Stays::NotYet | Stays::Free => return None,
        // What has failed need not have reserved anything.
        Stays::Unknown if failed => return None,
        Stays::Unknown => Severity::Info,
        Stays::Reserved { .. } if unread(view.model) > 0 && case.called.is_none() => Severity::Info,
        Stays::Reserved { .. } => {
            let listed = heard(view.model).and_then(|list| list.of_container(case.id));
            match listed {
                Some(_) if !view.passed(asked.plus(HOPE)) => Severity::Info,
                _ => Severity::Warning,
            }
        }
    };
    Some(Missing {
        case,
        stays,
        severity,
    })
}

/// What is known of an attachment's IPAM.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Named<'a> {
    /// The network's name.
    pub(super) network: Option<&'a str>,
    /// host-local was called for it.
    pub(super) host_local: bool,
}

/// Whether an attachment's addresses are host-local's.
pub(super) fn uses_host_local(calls: &AttachmentCalls) -> bool {
    const HOST_LOCAL: &str = "host-local";
    let mut plugins = calls.plugins.iter();
    plugins.any(|each| each.plugin == HOST_LOCAL || each.ipam.as_deref() == Some(HOST_LOCAL))
}

/// The addresses that an attachment was given, as far as anything tells.
pub(super) fn given(view: &View<'_>, calls: &AttachmentCalls) -> Vec<IpAddr> {
    let delegated = calls.plugins.iter().filter(|plugin| plugin.delegated);
    let delegated = delegated
        .filter_map(|plugin| plugin.add.as_ref()?.success()?.result.as_ref())
        .flat_map(|result| result.ips.iter().copied());
    let cached = view.model.cni.of_container(&calls.container_id);
    let cached = cached
        .filter(|each| each.ifname == calls.ifname)
        .flat_map(|each| each.ips.iter().copied());
    // A namespace has the addresses of all its interfaces.
    let told: BTreeSet<IpAddr> = calls
        .ips()
        .into_iter()
        .chain(delegated)
        .chain(cached)
        .collect();
    let held = calls.held.iter().copied().filter(|_| told.is_empty());
    let all: BTreeSet<IpAddr> = told.iter().copied().chain(held).collect();
    all.into_iter()
        .filter(|address| is_routable(*address))
        .collect()
}

/// All that may become findings as time goes on.
fn cases<'a>(view: &View<'a>) -> Vec<Case<'a>> {
    let model = view.model;
    let mut cases = Vec::new();
    let called = model.calls.forsaken().filter(|calls| !calls.is_adding());
    cases.extend(called.filter_map(|calls| Case::called(view, calls)));
    let living = Living::new(view);
    let cached = model.cni.attachments();
    cases.extend(cached.filter_map(|attachment| Case::cached(view, attachment, &living)));
    for entry in model.netns.live().filter(|entry| !entry.host) {
        cases.extend(Case::empty(view, entry));
    }
    // What still has its address is a ghost, or another's.
    let held = |case: &Case<'_>| case.ips.iter().any(|address| living.has_address(*address));
    cases.retain(|case| !held(case));
    cases
}

impl<'a> Case<'a> {
    /// One whose ADD was seen.
    fn called(view: &View<'a>, calls: &'a AttachmentCalls) -> Option<Self> {
        let pod = named(
            view.model,
            of_kubernetes(calls.pod.as_ref(), &calls.ifname)?,
        );
        let gone = match calls.netns_gone {
            Some(at) => Gone::Netns(at),
            // Where it is was never known.
            None => {
                let mut live = view.model.netns.live();
                if live.any(|entry| entry.sandbox.has_container(&calls.container_id)) {
                    return None;
                }
                Gone::Pod(pod_gone(view, &pod, calls.last)?, None)
            }
        };
        Some(Self::of_calls(view, calls, pod, gone))
    }

    fn of_calls(view: &View<'a>, calls: &'a AttachmentCalls, pod: PodRef, gone: Gone<'a>) -> Self {
        let mut cached = view.model.cni.of_container(&calls.container_id);
        let mut networks = calls.chain().filter_map(|plugin| plugin.network.as_deref());
        Self {
            id: &calls.container_id,
            ifname: &calls.ifname,
            pod,
            ips: given(view, calls),
            network: networks.next(),
            gone,
            added: calls.added().unwrap_or(calls.last),
            called: Some(calls),
            cached: cached.find(|each| each.ifname == calls.ifname),
        }
    }

    /// One that only libcni's cache knows.
    fn cached(
        view: &View<'a>,
        attachment: &'a Attachment,
        living: &Living<'_, 'a>,
    ) -> Option<Self> {
        let model = view.model;
        let Attachment {
            container_id: id,
            ifname,
            ..
        } = attachment;
        let pod = of_kubernetes(attachment.pod.as_ref(), ifname)?;
        let at = model.cni.attachments_at()?;
        let went = attachment
            .netns
            .and_then(|netns| model.calls.went(netns.inode));
        let gone = match attachment.netns {
            None if !attachment.netns_path.is_empty() => Gone::Found(at),
            Some(netns) => match went.filter(|went| *went > at) {
                Some(went) => Gone::Netns(went),
                // A process's path leads elsewhere once its number is another's.
                None if model.netns.get(netns).is_some_and(|entry| entry.host) => Gone::Found(at),
                None => return None,
            },
            None => return None,
        };
        if model.calls.get(id, ifname).is_some() || living.has_container(id) {
            return None;
        }
        if matches!(gone, Gone::Found(_)) && is_running(view, id) {
            return None;
        }
        Some(Self {
            id,
            ifname,
            pod: named(model, pod),
            ips: routable(&attachment.ips),
            network: Some(&attachment.network),
            gone,
            added: attachment.written,
            called: None,
            cached: Some(attachment),
        })
    }

    /// One whose namespace lives on without its address, and without its pod.
    fn empty(view: &View<'a>, entry: &'a NetnsEntry) -> Option<Self> {
        let at = ghost_sandbox::gone(view, entry)?;
        let id = entry.sandbox.id.as_deref()?;
        // Nobody has looked for addresses in what has not been visited.
        if entry.wiring.is_none() || !ghost_sandbox::addresses(entry).is_empty() {
            return None;
        }
        let mut all = view.model.calls.of_container(id);
        let calls = all.find(|calls| calls.ifname != "lo" && calls.added().is_some())?;
        let pod = named(view.model, calls.pod.as_ref()?);
        let gone = Gone::Pod(at, Some(entry));
        (!calls.has_del()).then(|| Self::of_calls(view, calls, pod, gone))
    }
}

/// The pod, if it is a pod's own network and not its loopback. Containers of
/// others than Kubernetes (podman, nerdctl) have none.
fn of_kubernetes<'a>(pod: Option<&'a PodRef>, ifname: &str) -> Option<&'a PodRef> {
    let pod = pod.filter(|pod| pod.name.is_some() || pod.uid.is_some());
    pod.filter(|_| ifname != "lo")
}

fn routable(ips: &[IpAddr]) -> Vec<IpAddr> {
    let ips = ips.iter().copied();
    ips.filter(|address| is_routable(*address)).collect()
}

/// Whether something shows that a sandbox runs although its namespace was not
/// found: the path may lead nowhere only for who looks, as in a container into
/// which the host's mounts are not propagated.
fn is_running(view: &View<'_>, id: &str) -> bool {
    let runtime = &view.model.runtime;
    let ready = heard(view.model)
        .and_then(|list| list.of_container(id))
        .is_some_and(|sandbox| sandbox.ready == Some(true));
    let mut sources = runtime.container_sources();
    ready || sources.any(|(source, ids)| source != CRI && ids.contains(id))
}

/// What lives, looked up when the first one asks.
struct Living<'v, 'a> {
    view: &'v View<'a>,
    containers: OnceCell<HashSet<&'a str>>,
}

impl<'v, 'a> Living<'v, 'a> {
    fn new(view: &'v View<'a>) -> Self {
        Self {
            view,
            containers: OnceCell::new(),
        }
    }

    fn has_container(&self, id: &str) -> bool {
        let live = || self.view.model.netns.live();
        let containers = self.containers.get_or_init(|| {
            let own = live().flat_map(|entry| {
                let sandbox = &entry.sandbox;
                let tasks = entry.tasks.iter();
                let tasks = tasks.filter_map(|task| task.container_id.as_deref());
                let known = sandbox.containers.iter().map(String::as_str);
                sandbox.id.as_deref().into_iter().chain(known).chain(tasks)
            });
            own.collect()
        });
        containers.contains(id)
    }

    fn has_address(&self, address: IpAddr) -> bool {
        let mut with = self.view.model.netns.with_address(address);
        with.any(|entry| entry.dying.is_none())
    }
}

#[cfg(test)]
mod tests;
