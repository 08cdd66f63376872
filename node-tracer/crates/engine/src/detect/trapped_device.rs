//! trapped-device: the node's own network device is in a namespace that nobody
//! uses any more: an elastic network interface or an SR-IOV function that was
//! given to a pod, and that neither the next pod nor the node can have.
//!
//! A physical device in a living pod's sandbox is what such CNIs do. It is
//! trapped in a ghost, in a pinned namespace, and in one in which no task is
//! unless somebody has given that a name: a person can have put a device into
//! `ip netns add`'s on purpose, and the kernel forwards without any task.

use crate::{
    detect::{
        Command, View, commented, evidence,
        facts::{functions, ghosts, own, unused},
        fitting, holders_of, netns_of, pod_of, silence, stuck_in, way_in,
    },
    model::netns::{NetnsEntry, Wiring},
};
use event::{
    Device, PciFunction, RuntimeSandbox,
    clock::Timestamp,
    finding::{Detail, Evidence, Finding, Rule, Severity, finding_id},
};

/// Why a namespace is of no use to anybody.
#[derive(Clone, Copy, Debug)]
enum Why {
    /// Its pod is gone: ghost-sandbox tells of it.
    Ghost,
    /// It is kept for nothing, as far as the runtime was asked: pinned-netns tells
    /// of it.
    Pinned { is_certain: bool },
    /// Nothing runs in it.
    Empty,
}

/// One finding a device.
pub fn detect(view: &View<'_>) -> Vec<Finding> {
    let lost = functions::without_device(view);
    let mut findings: Vec<Finding> = lost
        .iter()
        .map(|(at, it)| without_device(view, *at, it))
        .collect();
    for entry in view.model.netns.live().filter(|entry| !entry.host) {
        let Some(wiring) = &entry.wiring else {
            continue;
        };
        let mut devices = wiring
            .devices
            .iter()
            .filter(|it| is_physical(it))
            .peekable();
        if devices.peek().is_none() {
            continue;
        }
        if let Some((why, since)) = why(view, entry) {
            findings.extend(devices.map(|device| finding(view, entry, wiring, device, why, since)));
        }
    }
    findings
}

/// A function whose network device is in no namespace that anything leads to.
fn without_device(view: &View<'_>, at: Timestamp, function: &PciFunction) -> Finding {
    let PciFunction {
        address,
        driver,
        physical,
        ..
    } = function;
    let of = physical
        .as_ref()
        .map(|of| format!(", a virtual function of {of}"));
    let count = view.model.netns.live().count();
    let claims = [
        format!(
            "PCI function {address}{} has the driver {driver}",
            of.unwrap_or_default()
        ),
        format!("none of the {count} netns that were found has its network device"),
    ];
    Finding {
        rule: Rule::TrappedDevice,
        severity: Severity::Warning,
        id: finding_id(&view.settings.boot_id, Rule::TrappedDevice, address),
        since: at,
        title: format!("PCI function {address} has no network device in any netns"),
        pod: None,
        sandbox_id: None,
        netns: None,
        addresses: Vec::new(),
        holders: Vec::new(),
        evidence: claims.map(|claim| evidence(claim, "kernel", at)).into(),
        unknown: vec![
            String::from(
                "whether it is in a netns that the kernel is taking down, or that something holds \
                 which could not be found",
            ),
            String::from("whether its driver makes no network device on purpose"),
        ],
        advice: vec![
            commented(
                Command::new("ls").word(format!("/sys/bus/pci/devices/{address}/net")),
                "names its network device if that is back on the host",
            ),
            String::from(
                "look for a netns-teardown-stall or blocked-task finding: the device comes back when \
                 its netns ends",
            ),
        ],
        detail: Detail {
            first_seen: true,
            ..Detail::default()
        },
    }
}

/// One with hardware behind it, that no program has made.
fn is_physical(device: &Device) -> bool {
    device.hardware.is_some() && device.kind.is_none() && device.name != "lo"
}

fn why<'a>(view: &View<'a>, entry: &'a NetnsEntry) -> Option<(Why, Timestamp)> {
    if let Some(ghost) = ghosts::verdict(view, entry) {
        return Some((Why::Ghost, ghost.since));
    }
    // CNI DEL gives a device back: what may be in the making or on its way out
    // is left alone, also if it holds an address.
    let unused = unused::unused(view, entry)?;
    let since = unused.since?;
    if unused::verdict(view, entry).is_some() {
        let is_certain = unused.runtime.is_some();
        return Some((Why::Pinned { is_certain }, since));
    }
    let runtime = unused.runtime?;
    // A sandbox that is on its way out, of which the runtime does not tell where
    // it is, may be this one.
    let mut sandboxes = runtime.sandboxes();
    let is_nowhere = |each: &RuntimeSandbox| {
        each.ready == Some(false) && each.netns.is_none() && !each.host_network
    };
    let decided = ghosts::gone(view, entry).is_none()
        && (unused::has_settled(view, entry) || !sandboxes.any(is_nowhere));
    let empty = decided && !unused::is_named_by_others(entry);
    empty.then_some((Why::Empty, since))
}

fn finding(
    view: &View<'_>,
    entry: &NetnsEntry,
    wiring: &Wiring,
    device: &Device,
    why: Why,
    since: Timestamp,
) -> Finding {
    let hardware = device.hardware.as_deref().unwrap_or_default();
    let name = &device.name;
    let state = match why {
        Why::Ghost => "a ghost netns",
        Why::Pinned { is_certain: true } => "an unused netns",
        Why::Pinned { is_certain: false } => "a netns that is perhaps unused",
        Why::Empty => "an empty netns",
    };
    let held = own::addresses(view, entry);
    let on_it = entry.addresses.iter().map(|held| &held.address);
    let on_it = on_it.filter(|address| address.ifname == *name);
    let addresses = on_it.map(|address| address.address);
    let addresses = addresses.filter(|address| held.contains(address)).collect();
    Finding {
        rule: Rule::TrappedDevice,
        severity: match why {
            Why::Ghost => Severity::Critical,
            Why::Pinned { is_certain: false } => Severity::Info,
            Why::Pinned { is_certain: true } | Why::Empty => Severity::Warning,
        },
        id: finding_id(
            &view.settings.boot_id,
            Rule::TrappedDevice,
            // Of hardware that the kernel does not tell several have one name.
            &format!("{} {hardware} {name}", entry.id.inode),
        ),
        since,
        title: fitting(format!("{name} ({hardware}) is trapped in {state}"), || {
            format!("{name} is trapped in {state}")
        }),
        pod: pod_of(view.model, entry),
        sandbox_id: entry.sandbox.id.clone(),
        netns: Some(netns_of(entry)),
        addresses,
        holders: holders_of(view.model, entry),
        evidence: claims(entry, wiring, device, why, since),
        unknown: unknown(view, why),
        advice: advice(view, entry, name, why),
        detail: Detail::default(),
    }
}

fn unknown(view: &View<'_>, why: Why) -> Vec<String> {
    let mut unknown = Vec::new();
    if matches!(why, Why::Pinned { is_certain: false }) {
        unknown.push(format!(
            "whether CRI has a sandbox of the netns: {}",
            silence(view.model)
        ));
    }
    unknown.push(String::from(
        "whether the CNI's daemon still counts the device as the old pod's",
    ));
    unknown
}

fn claims(
    entry: &NetnsEntry,
    wiring: &Wiring,
    device: &Device,
    why: Why,
    since: Timestamp,
) -> Vec<Evidence> {
    let mac = device.mac.as_deref().map(|mac| format!(", MAC {mac}"));
    let claim = format!(
        "{} in netns {} is a physical device: {}{}",
        device.name,
        entry.id.inode,
        device.hardware.as_deref().unwrap_or_default(),
        mac.unwrap_or_default(),
    );
    let mut claims = vec![evidence(claim, "kernel", wiring.at)];
    let claim = match why {
        Why::Ghost => "the netns is a ghost (see the ghost-sandbox finding)",
        Why::Pinned { .. } => "nothing runs in the netns (see the pinned-netns finding)",
        Why::Empty => "no task is in the netns, and CRI has no sandbox of it",
    };
    let at = match why {
        Why::Ghost => since,
        Why::Pinned { .. } | Why::Empty => entry.held_at.unwrap_or(since),
    };
    claims.push(evidence(claim, "tracer", at));
    claims
}

fn advice(view: &View<'_>, entry: &NetnsEntry, name: &str, why: Why) -> Vec<String> {
    let mut advice = vec![String::from(match why {
        Why::Ghost => {
            "release the netns as its ghost-sandbox finding says; the kernel then moves a physical \
             device back to the host by itself"
        }
        Why::Pinned { .. } => {
            "release the netns as its pinned-netns finding says; the kernel then moves a physical \
             device back to the host by itself"
        }
        Why::Empty => {
            "end what holds the netns open; the kernel then moves a physical device back to the \
             host by itself"
        }
    })];
    if matches!(why, Why::Empty) {
        advice.extend(unused::release(view, entry));
    }
    advice.push(String::from(
        "then restart the pod of the CNI's daemon on this node: the device comes back down and \
         without addresses, and the daemon takes it into its pool",
    ));
    let stuck = stuck_in(view.model, entry);
    let by_task = || {
        let stuck = stuck.first()?;
        Some(format!("--net=/proc/{}/ns/net", stuck.task.tid))
    };
    // A name is the kernel's to check; still it is foreign.
    let mut command = Command::new("ip link set").word(name).own("netns 1");
    let mut hosts = view.model.netns.live().filter(|entry| entry.host);
    let is_taken = |host: &NetnsEntry| {
        let mut devices = host.wiring.iter().flat_map(|wiring| &wiring.devices);
        devices.any(|device| device.name == name)
    };
    if hosts.any(is_taken) {
        // The kernel itself calls it so where its name is taken on the host.
        command = command.own("name dev%d");
    }
    if let Some(way) = by_task().or_else(|| way_in(entry)) {
        advice.push(commented(
            format!("nsenter {way} {command}"),
            "only if that cannot wait, takes the device from the old pod",
        ));
    }
    advice
}

#[cfg(test)]
mod tests;
