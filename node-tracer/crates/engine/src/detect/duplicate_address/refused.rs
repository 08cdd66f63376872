//! IPv6 addresses that the kernel has found in use by another host on the link,
//! on whatever node that is: duplicate address detection has failed. One finding
//! a namespace, however many addresses; where the other one is known, too, the
//! kernel's word is evidence of that conflict and no finding of its own.

use super::claim_owner;
use crate::{
    detect::{
        Command, View, evidence,
        facts::{
            common::{label, user_kind},
            conflicts::{self, Owner},
            inner::is_inner,
            own,
        },
        held_since, holders_of, is_dated, netns_of, pod_of,
    },
    model::netns::{HeldAddress, NetnsEntry},
};
use event::order::Order as _;
use event::{
    finding::{Detail, Evidence, Finding, Rule, Severity, finding_id},
    wording::advice::commented,
};

/// What a pod's own device is called.
const DEFAULT: &str = "eth0";

/// A namespace of a user competes with none, and what a pod does in namespaces of
/// its own is its own affair.
pub(super) fn findings(view: &View<'_>) -> Vec<Finding> {
    let live = view.model.netns.live();
    let refused = live.filter(|entry| entry.addresses.refused().next().is_some());
    let refused = refused.filter(|entry| {
        !view.is_bystander(entry) && !is_inner(view, entry) && !conflicts::is_leaving(view, entry)
    });
    refused.filter_map(|entry| finding(view, entry)).collect()
}

/// That the kernel says so of an address, in a finding that knows the other one.
pub(super) fn claim(view: &View<'_>, owner: &Owner<'_>) -> Option<Evidence> {
    let held = owner.held.filter(|held| held.address.is_refused())?;
    Some(kernels_word(view, owner.entry, held))
}

fn kernels_word(view: &View<'_>, entry: &NetnsEntry, held: &HeldAddress) -> Evidence {
    let (address, ifname) = (held.address.address, &held.address.ifname);
    let claim = format!(
        "{} does not use {address}: another host on the link of {ifname} has it (IPv6 DAD failed)",
        label(view.model, entry)
    );
    evidence(claim, "kernel", held_since(view.model, entry, held))
}

fn finding<'a>(view: &View<'a>, entry: &'a NetnsEntry) -> Option<Finding> {
    let model = view.model;
    let is_explained = |held: &&HeldAddress| {
        let other_owners = conflicts::other_owners(view, entry, held.address.address);
        !other_owners.is_empty()
    };
    let mut refused: Vec<(bool, &HeldAddress)> = entry
        .addresses
        .refused()
        .take(own::MAX_LISTED)
        .filter(|held| !is_explained(held))
        .map(|held| (own::is_named(model, entry, held.address.address), held))
        .collect();
    // What the pod is called by first, then what came first.
    refused.order_by_key(|(is_named, held)| (!is_named, held.since, held.address.address));
    let (is_named, first) = *refused.first()?;
    let count = entry.addresses.refused().count();
    let address = first.address.address;
    let owner = Owner::of_held(view, entry, first);
    let mut said = super::FindingParts::default();
    let claims = refused.iter().take(super::MAX_CLAIMED);
    said.claims
        .extend(claims.map(|(_, held)| kernels_word(view, entry, held)));
    claim_owner(view, &owner, &mut said);
    said.unknown.push(format!(
        "which host has {address}: the kernel does not keep it; and whether it still has it"
    ));
    let logged = Command::new("journalctl -k -g").word(format!("duplicate address {address}"));
    let in_api = Command::new("kubectl get pods -A -o wide | grep -wF").word(address.to_string());
    said.advice.extend([
        commented(logged, "the other host's MAC"),
        commented(in_api, "who has it in the API"),
        format!("once the other host has let go of {address}: recreate the pod or add it again"),
    ]);
    let is_pods = entry.sandbox.pod.is_some();
    let user = user_kind(view, entry);
    let title = match count - 1 {
        0 => format!("{address} of {user} is in use on another host of its link"),
        more => format!("{address} and {more} more of {user} are in use on other hosts"),
    };
    Some(Finding {
        rule: Rule::DuplicateAddress,
        severity: match is_named {
            true => Severity::Critical,
            // What a pod gives to devices that it makes itself is its own affair.
            false if is_pods && first.address.ifname != DEFAULT => Severity::Info,
            false => Severity::Warning,
        },
        id: finding_id(
            &view.settings.boot_id,
            Rule::DuplicateAddress,
            &format!("refused {}", entry.id.inode),
        ),
        since: held_since(model, entry, first),
        title,
        pod: pod_of(model, entry),
        sandbox_id: entry.sandbox.id.clone(),
        netns: Some(netns_of(entry)),
        addresses: refused.iter().map(|(_, it)| it.address.address).collect(),
        holders: holders_of(model, entry),
        evidence: said.claims,
        unknown: said.unknown,
        advice: said.advice,
        detail: Detail {
            first_seen: !is_dated(model, entry, first),
            address_count: (count > 1).then_some(count as u64),
            ..Detail::default()
        },
    })
}
