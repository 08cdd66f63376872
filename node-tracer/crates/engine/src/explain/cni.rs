//! What CNI says: reservations, the stores that they are in, and calls.

use crate::{
    detect::{
        View,
        facts::{
            common::label,
            ghosts,
            reservations::{Judge, Proof, Verdict},
        },
    },
    model::{Model, attachment::ListedStore, calls::AttachmentCalls},
};
use event::{
    Attachment, CniCommand, Reservation, ReservationHolder,
    explanation::{CallPart, CallResult, ReservationPart, StorePart},
    order::Order as _,
    wording::subjects::short_id,
};
use std::net::IpAddr;

use super::{index::Index, related::Related};

/// Reservations of a subject's addresses and for its containers.
pub(super) fn reservations(
    view: &View<'_>,
    index: &Index<'_>,
    related: &Related<'_>,
) -> Vec<ReservationPart> {
    let model = view.model;
    let judge = view.judge();
    let listed = related.reservations.values();
    let mut parts: Vec<_> = listed
        .map(|(listed, reservation)| {
            let store = &listed.store.path;
            let network = model.cni.network_of(store);
            let used = in_use(view, judge, listed, reservation);
            ReservationPart {
                store: Some(store.clone()),
                network: network.map(|network| network.name.clone()),
                modified: Some(reservation.modified),
                ..part(view, index, reservation.address, &reservation.holder, used)
            }
        })
        .collect();
    // Asked of the stores one by one, where none was listed whole.
    for address in &related.addresses {
        let known = model.allocations.get(*address);
        let holder = known.and_then(|known| known.answer.as_ref()?.holder.as_ref());
        if let Some(holder) = holder.filter(|holder| parts.iter().all(|p| p.path != holder.path)) {
            let shown_by = shown_by(index, &holder.container_id);
            let used = (shown_by.is_some().then_some(true), shown_by);
            parts.push(part(view, index, *address, holder, used));
        }
    }
    parts.order_by(|a, b| (a.address, &a.path).cmp(&(b.address, &b.path)));
    parts
}

/// Whether a reservation is in use, and who shows that.
type InUse = (Option<bool>, Option<String>);

/// The same verdict as that of leaked-reservation. Without the runtime's word,
/// that a container was not found does not show that it does not exist.
fn in_use(
    view: &View<'_>,
    judge: Option<&Judge<'_>>,
    listed: &ListedStore,
    reservation: &Reservation,
) -> InUse {
    let Some(judge) = judge else {
        return (None, None);
    };
    match judge.of(view, reservation) {
        Verdict::Live(Proof::Source(source)) => (Some(true), Some(source.to_owned())),
        Verdict::Live(Proof::Netns | Proof::Attachment | Proof::Address) => {
            (Some(true), Some(String::from("kernel")))
        }
        Verdict::Leaked if judge.is_certain() && judge.can_judge(listed) => (Some(false), None),
        Verdict::Leaked | Verdict::Young | Verdict::Untold(_) => (None, None),
    }
}

fn part(
    view: &View<'_>,
    index: &Index<'_>,
    address: IpAddr,
    holder: &ReservationHolder,
    (live, shown_by): InUse,
) -> ReservationPart {
    let id = &holder.container_id;
    ReservationPart {
        store: None,
        network: None,
        path: holder.path.clone(),
        address,
        container_id: id.clone(),
        ifname: holder.ifname.clone(),
        modified: None,
        whose: whose(view, index, holder, live == Some(false)),
        live,
        shown_by,
    }
}

/// The source that shows that a container exists.
fn shown_by(index: &Index<'_>, id: &str) -> Option<String> {
    let shown = index.model.runtime.shows(id).map(str::to_owned);
    shown.or_else(|| {
        let mut inside = index.of_container(id).iter();
        let inside = inside.any(|entry| entry.dying.is_none());
        inside.then(|| String::from("kernel"))
    })
}

/// Whose a reservation is, in phrases; `leaked` if its container is known to be
/// gone.
fn whose(view: &View<'_>, index: &Index<'_>, holder: &ReservationHolder, leaked: bool) -> String {
    let id = holder.container_id.as_str();
    if id.is_empty() {
        let name = holder.path.file_name().unwrap_or_default();
        let is_file = name.to_string_lossy().parse::<IpAddr>().is_ok();
        return match &holder.pod {
            Some(pod) => format!("{}; no container is named", pod.label()),
            None if is_file => String::from("nobody: the file is empty"),
            // Calico keeps that of a machine that is stopped.
            None => String::from("nobody who is named"),
        };
    }
    let model = view.model;
    if let Some(entry) = index.of_container(id).first() {
        let gone = match ghosts::gone(view, entry) {
            Some(_) => ", whose pod is deleted",
            None => "",
        };
        return format!("{}{gone}", label(model, entry));
    }
    if let Some((list, sandbox)) = model.runtime.of_container(id) {
        let ready = match sandbox.ready {
            Some(false) => ", not ready",
            _ => "",
        };
        let pod = sandbox.pod.label();
        return format!("a sandbox of {pod}{ready}, as {} lists it", list.source);
    }
    let mut cached = model.cni.of_container(id);
    let pod = cached.find_map(|each| each.pod.as_ref());
    let pod = pod.map(|pod| format!(" of {}", pod.label()));
    let pod = pod.unwrap_or_default();
    match model.runtime.shows(id) {
        Some(source) => format!("a container{pod} which {source} still shows"),
        None if leaked => format!("a container{pod} of which nothing is left"),
        None => format!("a container{pod} of which nothing was found"),
    }
}

/// Stores that were read.
pub(super) fn stores(model: &Model, related: &Related<'_>) -> Vec<StorePart> {
    let stores = model.cni.stores();
    stores
        .map(|listed| {
            let path = &listed.store.path;
            let network = model.cni.network_of(path);
            StorePart {
                path: path.clone(),
                network: network.map(|network| network.name.clone()),
                reservations: listed.store.reservations.len(),
                blocked: listed
                    .store
                    .blocked
                    .iter()
                    .filter(|address| related.addresses.contains(address))
                    .copied()
                    .collect(),
                at: listed.at,
                partial: !listed.store.unread.is_empty(),
            }
        })
        .collect()
}

/// Calls for a subject's sandboxes, in order.
pub(super) fn calls(view: &View<'_>, related: &Related<'_>) -> Vec<CallPart> {
    let mut calls: Vec<CallPart> = related
        .attachments
        .values()
        .map(|each| cached(each))
        .collect();
    let seen = related.containers.iter();
    let seen = seen.flat_map(|id| view.model.calls.of_container(id));
    calls.extend(seen.flat_map(called));
    for entry in related.own().filter(|entry| !entry.host) {
        let sandbox = &entry.sandbox;
        let id = sandbox.id.as_deref().unwrap_or_default();
        // Each of its calls is told above.
        if view.model.calls.of_container(id).next().is_some() {
            continue;
        }
        let seen = |command: &str| CallPart {
            command: command.into(),
            container_id: sandbox.id.clone().unwrap_or_default(),
            netns: Some(entry.id),
            pod: crate::detect::pod_of(view.model, entry),
            source: String::from("cni"),
            ..CallPart::default()
        };
        if let Some(started) = sandbox.add {
            calls.push(CallPart {
                started: Some(started),
                ..seen("ADD")
            });
        }
        if let Some((_, started)) = sandbox.deleting {
            calls.push(CallPart {
                started: Some(started),
                ..seen("DEL")
            });
        }
        if let Some(end) = sandbox.del {
            calls.push(CallPart {
                ended: Some(end.at),
                exit_code: end.exit_code,
                ..seen("DEL")
            });
        }
    }
    calls.order_by_key(|call| call.started.or(call.ended));
    calls
}

/// What the runtime itself has called for an attachment: each plugin's last
/// ADD and last DEL.
fn called(attachment: &AttachmentCalls) -> Vec<CallPart> {
    let mut parts = Vec::new();
    for plugin in attachment.chain() {
        let last = [("ADD", &plugin.add), ("DEL", &plugin.del)];
        for (command, call) in last {
            let Some(call) = call else { continue };
            let end = call.end.as_ref();
            let result = end.and_then(|end| end.result.as_ref());
            parts.push(CallPart {
                command: command.into(),
                container_id: attachment.container_id.clone(),
                ifname: Some(attachment.ifname.clone()),
                network: plugin.network.clone(),
                netns: attachment.netns.filter(|_| call.with_netns),
                pod: attachment.pod.clone(),
                result: result.map(|result| CallResult {
                    ips: result.ips.clone(),
                }),
                started: Some(call.started),
                ended: end.map(|end| end.at),
                exit_code: end.and_then(|end| end.exit_code),
                source: String::from("cni"),
                ..CallPart::default()
            });
        }
    }
    parts
}

fn cached(attachment: &Attachment) -> CallPart {
    let Attachment {
        path,
        network,
        container_id,
        ifname,
        netns_path,
        netns,
        mac: _,
        host_devices: _,
        pod,
        ips,
        written,
    } = attachment;
    CallPart {
        command: CniCommand::Add,
        container_id: container_id.clone(),
        ifname: Some(ifname.clone()),
        network: Some(network.clone()),
        netns_path: Some(netns_path.clone()).filter(|path| !path.is_empty()),
        netns: *netns,
        pod: pod.clone(),
        result: Some(CallResult { ips: ips.clone() }),
        started: None,
        ended: Some(*written),
        exit_code: None,
        source: String::from("libcni cache"),
        path: Some(path.clone()),
    }
}

/// `sandbox d6fe7d733426b of shop/checkout-1`, as far as it is known.
pub(super) fn call_of(call: &CallPart) -> String {
    let id = short_id(&call.container_id);
    match &call.pod {
        Some(pod) => format!("sandbox {id} of {}", pod.label()),
        None => format!("sandbox {id}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use event::{
        CniCall,
        testing::{NEW, answered, call, calls, failed, ip},
    };

    #[test]
    fn calls_that_were_seen_are_told_by_plugin_without_what_they_delegate() {
        let mut model = Model::default();
        let add = call("ADD", "sandbox", 100, NEW, "a");
        let ipam = CniCall {
            plugin: String::from("host-local"),
            delegated: true,
            ..add.clone()
        };
        let del = call("DEL", "sandbox", 100, NEW, "a");
        for event in [
            calls(1, add.clone()),
            answered(1, ipam, 5),
            answered(2, add, 5),
            failed(3, del, "no"),
        ] {
            model.apply(&event);
        }
        let parts = called(model.calls.of_container("sandbox").next().unwrap());
        let told: Vec<_> = parts
            .iter()
            .map(|part| (part.command.as_str(), part.exit_code, part.result.clone()))
            .collect();
        let ips = vec![ip(5)];
        let wanted = [
            ("ADD", Some(0), Some(CallResult { ips })),
            ("DEL", Some(1), None),
        ];
        assert_eq!(told, wanted);
    }
}
