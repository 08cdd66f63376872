//! From what was found to what an operation has done.

use event::{CniCommand, CniEffect, Device, Neighbour, Trace, TraceKind};
use std::{collections::BTreeSet, net::IpAddr};

use super::{
    attachments::{Attachment, Key},
    worker::Found,
};
use node::netlink::Visit;

/// What was found of a namespace.
#[derive(Clone, Copy, Debug)]
enum Observation<'a> {
    Seen(&'a Visit),
    /// The kernel has said so.
    Gone,
    /// It could not be looked at.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Observations<'a> {
    pub(super) found: &'a Found,
    /// The host's namespace, by inode.
    pub(super) host: Option<u32>,
}

impl<'a> Observations<'a> {
    /// That no way leads there any more is no proof that it is gone: a task in
    /// it may not have been found.
    fn of(&self, inode: Option<u32>) -> Observation<'a> {
        match inode.and_then(|inode| self.found.visits.get(&inode)) {
            Some(Some(visit)) => Observation::Seen(visit),
            Some(None) | None => Observation::Unknown,
        }
    }

    fn sandbox(&self, attachment: &Attachment) -> Observation<'a> {
        match attachment.netns {
            Some(netns) => self.of(Some(netns.inode)),
            None if attachment.gone => Observation::Gone,
            None => Observation::Unknown,
        }
    }

    /// What an attachment has. What it is found to have is remembered, as what
    /// it has after an ADD should be gone after the DEL.
    pub(super) fn effect(
        &self,
        attachment: &mut Attachment,
        key: &Key,
        command: &CniCommand,
    ) -> CniEffect {
        let sandbox = self.sandbox(attachment);
        let mut traces = addresses(attachment, sandbox);
        traces.extend(self.veth(attachment, key, sandbox, command));
        traces.extend(self.routes(attachment, command));
        traces.extend(self.reservations(attachment, key));
        CniEffect {
            command: command.clone(),
            container_id: key.container_id.clone(),
            ifname: key.ifname.clone(),
            pod: attachment.pod.clone(),
            netns: match sandbox {
                Observation::Seen(visit) => Some(visit.netns),
                Observation::Gone => None,
                Observation::Unknown => attachment.netns,
            },
            traces,
        }
    }

    /// Whether nothing is left after a DEL, and all was looked at.
    pub(super) fn is_clean(&self, attachment: &Attachment, effect: &CniEffect) -> bool {
        // Addresses go with their namespace, which is waited for anyway.
        let gone = |it: &Trace| match it.there {
            Some(there) => !there,
            None => it.kind == TraceKind::Address,
        };
        let read = |address: &IpAddr| {
            let lookup = self.found.lookups.get(address);
            lookup.is_some_and(|it| it.unread.texts().is_empty())
        };
        matches!(self.of(self.host), Observation::Seen(_))
            && attachment.addresses.iter().all(read)
            && effect.traces.iter().all(gone)
    }

    /// Whether an attachment whose ADD has succeeded lacks nothing. What is
    /// found is remembered.
    pub(super) fn is_sound(&self, attachment: &mut Attachment, effect: &CniEffect) -> bool {
        let Observation::Seen(visit) = self.sandbox(attachment) else {
            return true;
        };
        let now = inventory(visit);
        let lacking = attachment.had.difference(&now).next().is_some();
        attachment.had.extend(now);
        !lacking && is_reachable(visit) && effect.failures().next().is_none()
    }

    /// Whether an attachment's namespace and the host were both seen, so that
    /// what is not told of is not there.
    pub(super) fn saw(&self, attachment: &Attachment) -> bool {
        let all = [self.sandbox(attachment), self.of(self.host)];
        all.iter()
            .all(|sight| matches!(sight, Observation::Seen(_)))
    }

    /// Whether a gateway that is only at the end of the veth pair has no usable
    /// neighbour entry: it may come, or be asked for, just now.
    pub(super) fn lacks_neighbour(&self, attachment: &Attachment) -> bool {
        let Observation::Seen(visit) = self.sandbox(attachment) else {
            return false;
        };
        let gateways = visit.entered_routes();
        let gateways = gateways.filter(|route| route.to.is_none());
        let mut gateways = gateways.filter_map(|route| Some((route.device, route.gateway?)));
        gateways.any(|(device, gateway)| {
            let mut neighbours = visit.neighbours.iter();
            let entry = neighbours.find(|it| it.address == gateway && it.device == device);
            is_link_local(gateway) && entry.is_none_or(is_unanswered)
        })
    }

    fn veth(
        &self,
        attachment: &mut Attachment,
        key: &Key,
        sandbox: Observation<'_>,
        command: &CniCommand,
    ) -> Option<Trace> {
        let host = self.of(self.host);
        let inside = match sandbox {
            Observation::Seen(visit) => Some(visit),
            Observation::Gone | Observation::Unknown => None,
        };
        let mut devices = inside.into_iter().flat_map(|visit| &visit.devices);
        let own = devices.find(|it| it.name == key.ifname);
        if let (Observation::Seen(host), Some(inside), Some(own), CniCommand::Add) =
            (host, inside, own, command)
            && let Some(end) = other_end(own, inside, host)
        {
            attachment.veth = Some(end.name.clone());
            attachment.veth_index = Some(end.index);
        }
        // A plugin that makes none has no other end on the host.
        let is_other = own.is_some_and(|own| !own.is_veth());
        let told = || {
            let told = attachment.told.iter().rev();
            let mut veths = told.filter(|name| match host {
                Observation::Seen(host) => {
                    let there = host.devices.iter().find(|it| it.name == **name);
                    there.is_none_or(Device::is_veth)
                }
                Observation::Gone | Observation::Unknown => true,
            });
            veths.next().filter(|_| !is_other)
        };
        let name = attachment.veth.as_ref().or_else(told)?;
        let index = attachment.veth_index;
        let there = match host {
            Observation::Seen(host) => {
                let devices = host.devices.iter();
                let is_there = devices.clone().any(|it| match index {
                    // Its number stays, whoever renames it, and one of its name that
                    // was made since is another's.
                    Some(own) => it.index == own && it.is_veth(),
                    None => it.name == *name,
                });
                // The plugin may have made it anew.
                let may_be =
                    || *command == CniCommand::Add && devices.clone().any(|it| it.name == *name);
                match !is_there && inside.is_none() && may_be() {
                    true => None,
                    false => certain(is_there, host),
                }
            }
            Observation::Gone | Observation::Unknown => None,
        };
        Some(Trace {
            kind: TraceKind::Veth,
            name: name.clone(),
            there,
        })
    }

    fn routes(&self, attachment: &mut Attachment, command: &CniCommand) -> Vec<Trace> {
        let host = self.of(self.host);
        let has = |address: IpAddr| {
            let whole = if address.is_ipv4() { 32 } else { 128 };
            match host {
                Observation::Seen(host) => {
                    let mut routes = host.entered_routes();
                    let there = routes.any(|route| route.to == Some((address, whole)));
                    certain(there, host)
                }
                Observation::Gone | Observation::Unknown => None,
            }
        };
        if *command == CniCommand::Add {
            let routed = attachment.addresses.iter().copied();
            let routed = routed.filter(|address| has(*address) == Some(true));
            attachment.routed.extend(routed);
        }
        let routed = attachment.routed.iter();
        routed
            .map(|address| Trace {
                kind: TraceKind::Route,
                name: address.to_string(),
                there: has(*address),
            })
            .collect()
    }

    fn reservations(&self, attachment: &mut Attachment, key: &Key) -> Vec<Trace> {
        let mut traces = Vec::new();
        for address in attachment.addresses.clone() {
            let lookup = self.found.lookups.get(&address);
            let holder = lookup.and_then(|lookup| lookup.holder.as_ref());
            let own = holder.filter(|holder| holder.container_id == key.container_id);
            if let Some(own) = own {
                attachment.stored.insert(address, own.path.clone());
            }
            let expected = || {
                let store = lookup?.stores.first().filter(|_| attachment.host_local)?;
                Some(store.join(address.to_string()))
            };
            let known = attachment.stored.get(&address).cloned();
            let Some(path) = known.or_else(expected) else {
                continue;
            };
            let there = match (own, lookup) {
                (Some(_), _) => Some(true),
                // What could not be read may be it.
                (None, Some(lookup)) if lookup.unread.texts().is_empty() => Some(false),
                (None, _) => None,
            };
            traces.push(Trace {
                kind: TraceKind::Reservation,
                name: path.display().to_string(),
                there,
            });
        }
        traces
    }
}

fn addresses(attachment: &Attachment, sandbox: Observation<'_>) -> Vec<Trace> {
    let own = attachment.addresses.iter().filter(|it| !it.is_loopback());
    let trace = |address: &IpAddr| Trace {
        kind: TraceKind::Address,
        name: address.to_string(),
        there: match sandbox {
            Observation::Seen(visit) => {
                let there = visit
                    .addresses
                    .iter()
                    .any(|it| it.address.address == *address);
                certain(there, visit)
            }
            Observation::Gone => Some(false),
            Observation::Unknown => None,
        },
    };
    own.map(trace).collect()
}

/// What is not on a list that was cut may be there.
fn certain(there: bool, visit: &Visit) -> Option<bool> {
    let cut = visit.cut || visit.addresses_cut;
    (there || !cut).then_some(there)
}

/// The other end of a veth pair, on the host. A pod can make a device that has the
/// numbers of another pod's, but not one that leads to the host without being
/// that: the kernel says where it leads.
fn other_end<'a>(own: &Device, inside: &Visit, host: &'a Visit) -> Option<&'a Device> {
    let hosts_id = inside.host_nsid(|home| home == host.netns.inode);
    let leads_there = hosts_id.is_none_or(|id| own.link_nsid == Some(id));
    let peer = own.link.filter(|_| own.is_veth() && leads_there)?;
    let mut devices = host.devices.iter();
    devices.find(|it| it.index == peer && it.is_veth() && it.link == Some(own.index))
}

/// What a sandbox should keep: devices, routes, permanent neighbours.
fn inventory(visit: &Visit) -> BTreeSet<String> {
    let devices = visit.devices.iter().map(|it| format!("device {}", it.name));
    let routes = visit.entered_routes();
    let routes = routes.map(|it| format!("route {it:?}"));
    let permanent = visit.neighbours.iter();
    let permanent = permanent.filter(|it| it.state == "permanent");
    let permanent = permanent.map(|it| format!("neighbour {}", it.address));
    devices.chain(routes).chain(permanent).collect()
}

/// Whether nobody has failed to answer for the gateway.
fn is_reachable(visit: &Visit) -> bool {
    let mut neighbours = visit.neighbours.iter();
    !neighbours.any(is_unanswered)
}

fn is_unanswered(neighbour: &Neighbour) -> bool {
    matches!(neighbour.state.as_str(), "incomplete" | "failed")
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}
