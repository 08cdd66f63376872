//! Where the node sends what it has for a subject's addresses.

use std::net::IpAddr;

use super::related::Related;
use crate::detect::{
    View,
    facts::{
        common::label,
        paths::{self, NodeTables, Path, Tables},
    },
    is_routable, pod_of,
};
use crate::model::netns::NetnsEntry;
use event::{
    Device,
    explanation::{PathEnd, PathPart},
    forwarding::{PolicyRule, RouteKind, table_name},
};

/// Addresses whose way is told.
const ADDRESSES: usize = 8;

/// One for each address.
pub(super) fn parts(view: &View<'_>, related: &Related<'_>) -> Vec<PathPart> {
    let Some(node) = NodeTables::of(view) else {
        return Vec::new();
    };
    let tables = Tables::new(node.forwarding);
    let its = related.addresses.iter().copied();
    let its = its.filter(|address| is_routable(*address));
    its.take(ADDRESSES)
        .filter_map(|address| {
            Some(part(
                view,
                &tables,
                &paths::to(view, &tables, address)?,
                address,
            ))
        })
        .collect()
}

fn part<'a>(view: &View<'a>, tables: &Tables<'a>, path: &Path<'a>, to: IpAddr) -> PathPart {
    let rule = path.decision.map(|decision| decision.rule);
    let route = path.decision.and_then(|decision| decision.route);
    let name = |index: u32| match path.tables.wiring.device(index) {
        Some(device) => device.name.clone(),
        None => format!("if{index}"),
    };
    let (is_right, verdict) = verdict(view, path, to);
    let naming = tables.rules().filter(|rule| rule.is_of(to));
    PathPart {
        to,
        netns: path.tables.entry.id,
        at: path.tables.at,
        rule: rule.map(PolicyRule::text),
        table: route.map(|route| table_name(route.table)),
        route: route.map(|route| route.text(name)),
        kind: match (rule, route) {
            (_, Some(route)) => route.kind.as_str().to_owned(),
            (Some(rule), None) => rule.action.as_str().to_owned(),
            (None, None) => String::from("none"),
        },
        device: route.and_then(|route| route.device).map(name),
        gateway: route.and_then(|route| route.gateway),
        neighbour: path.neighbour.map(|dated| dated.neighbour.clone()),
        confirmed: path.neighbour.and_then(|dated| dated.confirmed),
        port: match (path.port, path.frame.and_then(|frame| frame.remote)) {
            (Some(port), _) => Some(port.name.clone()),
            (None, Some(remote)) => Some(remote.to_string()),
            (None, None) => None,
        },
        comes_to: path.end.map(|end| PathEnd {
            netns: end.entry.id,
            device: end.device.name.clone(),
            pod: pod_of(view.model, end.entry),
        }),
        is_right,
        verdict,
        rules: naming.map(PolicyRule::text).collect(),
    }
}

/// Whether a packet comes to who should have it, and why.
fn verdict<'a>(view: &View<'a>, path: &Path<'a>, to: IpAddr) -> (Option<bool>, String) {
    let node = path.tables;
    let rightful = paths::rightful(view, to);
    let is_rightful = |serial| rightful.iter().any(|entry| entry.serial == serial);
    let kind = path.decision.and_then(|decision| decision.route);
    let kind = kind.map(|route| route.kind);
    let holder = rightful
        .iter()
        .find(|entry| entry.serial != node.entry.serial);
    let holder_text = holder.map(|entry| label(view.model, entry));
    match (kind, path.end) {
        (Some(RouteKind::Local), _) => match (is_rightful(node.entry.serial), holder_text) {
            (_, Some(holder)) => (
                Some(false),
                format!("it stays on the node, but {holder} has the address"),
            ),
            (true, None) => (Some(true), String::from("it is the node's own")),
            (false, None) => (None, String::from("it stays on the node")),
        },
        (Some(RouteKind::Unicast), Some(end)) => {
            let end_text = label(view.model, end.entry);
            if is_rightful(end.entry.serial) {
                return (
                    Some(true),
                    format!("it comes to {end_text}, which has the address"),
                );
            }
            let why = match paths::is_over(view, end.entry) {
                true => "whose pod is gone",
                false => "which does not have the address",
            };
            match holder_text {
                Some(holder) => (
                    Some(false),
                    format!("it comes to {end_text}, {why}; {holder} has the address"),
                ),
                None if view.model.netns.has(end.entry, to) => {
                    (Some(false), format!("it comes to {end_text}, {why}"))
                }
                // A pod may forward it.
                None => (None, format!("it comes to {end_text}, {why}")),
            }
        }
        (Some(RouteKind::Unicast), None) => leaves(view, path, to, holder.copied()),
        (Some(kind), _) => dropped(kind.as_str(), holder_text),
        (None, _) => match path.decision {
            Some(decision) => dropped(decision.rule.action.as_str(), holder_text),
            None => dropped("no route", holder_text),
        },
    }
}

fn dropped(why: &str, holder: Option<String>) -> (Option<bool>, String) {
    match holder {
        Some(holder) => (
            Some(false),
            format!("the node does not send it ({why}), but {holder} has the address"),
        ),
        None => (None, format!("the node does not send it ({why})")),
    }
}

/// It leaves by a device that is not known to be anybody's.
fn leaves<'a>(
    view: &View<'a>,
    path: &Path<'a>,
    to: IpAddr,
    holder: Option<&'a NetnsEntry>,
) -> (Option<bool>, String) {
    let device = path
        .device
        .map_or("a device", |device| device.name.as_str());
    let Some(holder) = holder else {
        return (
            None,
            format!("it leaves by {device}; nobody on this node has the address"),
        );
    };
    let text = label(view.model, holder);
    let plugs = paths::plugs(view, path.tables, holder, to);
    let is_its = |plug: &&Device| {
        path.device
            .is_some_and(|device| device.index == plug.index || plug.master == Some(device.index))
    };
    if plugs.iter().any(is_its) {
        let known = path.frame.is_some() || path.neighbour.is_some();
        let over = format!("it leaves by {device}, to which {text} is plugged");
        return match path.port {
            Some(port) => (
                Some(false),
                format!("{over}, but at {}, which is not its port", port.name),
            ),
            None if known => (Some(true), over),
            None => (Some(true), format!("{over}; no neighbour entry yet")),
        };
    }
    match plugs.first() {
        Some(plug) => (
            Some(false),
            format!(
                "it leaves by {device}; {text} has the address behind {}",
                plug.name
            ),
        ),
        None => (
            None,
            format!("it leaves by {device}; {text} has the address"),
        ),
    }
}
