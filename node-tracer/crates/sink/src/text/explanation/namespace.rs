//! A network namespace: whose it is, its addresses, and what keeps it.

use super::{LISTED, Page};
use crate::text::style::{Style, count, pod, short_id, task};
use event::{
    Dad, PodRef,
    explanation::{DevicePart, Explanation, GatewayPart, Kind, NetnsPart, NetnsState, PodState},
    finding::Holder,
    mount::is_same,
    wording::{duration::length, escape::Printable, stack, subjects::pod_word},
};

/// Holders that are listed; the JSON record has all.
const HOLDERS: usize = 8;

impl Page {
    /// The task that was asked about, and every namespace.
    pub(super) fn namespaces(&mut self, all: &Explanation) {
        // The task that was asked about is first, stuck or not.
        let stuck = |holder: &Holder| matches!(holder, Holder::Task { since: Some(_), .. });
        let label = match all.subject.kind {
            Kind::Pid => "task",
            _ if all.tasks.iter().all(stuck) => "stuck",
            _ => "task",
        };
        self.each(label, &all.tasks, |page, label, holder| {
            page.holder(label, 0, holder, &[]);
        });
        let label = match all.subject.kind {
            Kind::Address => "held by",
            _ => "netns",
        };
        self.each(label, &all.netns, Self::namespace);
    }

    fn namespace(&mut self, label: &str, part: &NetnsPart) {
        let mut text = format!("netns {}", part.id.inode);
        if part.host {
            text += "  the host's own";
        }
        if part.state == NetnsState::Dying {
            text += "  DYING";
        }
        if let Some(since) = part.dying_since {
            text += &format!(" since {}", self.time(since));
        }
        if let Some(of) = part.pod.as_ref().filter(|of| **of != PodRef::default()) {
            let state = match part.pod_state {
                Some(PodState::Gone) => "deleted ",
                Some(PodState::Terminating) => "terminating ",
                Some(PodState::Finished) => "finished ",
                Some(PodState::Listed | PodState::Exempt) | None => "",
            };
            let name = match of.name {
                Some(_) => pod(of),
                None => Printable(pod_word(of)).to_string(),
            };
            text += &format!("  {state}pod {name}");
        }
        self.line(label, 0, &text);
        let mut text = String::new();
        if let Some(id) = &part.sandbox_id {
            text += &format!("sandbox {}", short_id(id));
        }
        if let Some(known) = &part.known_by {
            let source = Printable(&known.source);
            let gap = if text.is_empty() { "" } else { "  " };
            text += &format!("{gap}its pod is known by {source}, {}", self.time(known.at));
        }
        if !text.is_empty() {
            self.line("", 2, &text);
        }
        for path in part.paths.iter().filter(|path| !is_mounted(part, path)) {
            self.line("", 2, &format!("once at {}", Printable(path.display())));
        }
        let own = part.addresses.iter().filter(|each| !is_local(each.address));
        for each in own.take(LISTED) {
            let device = part
                .devices
                .iter()
                .find(|device| device.name == each.ifname);
            let mut text = format!(
                "{}/{} on {}",
                each.address,
                each.prefix,
                Printable(&each.ifname)
            );
            let kind = each.kind.as_deref();
            let wiring = device.map(wiring).unwrap_or_default();
            let words: Vec<String> = kind
                .map(|kind| Printable(kind).to_string())
                .into_iter()
                .chain(wiring)
                .collect();
            if !words.is_empty() {
                text += &format!(" ({})", words.join(", "));
            }
            if let Some(since) = each.since {
                text += &format!(" since {}", self.time(since));
            }
            match each.dad {
                Some(Dad::Tentative) => text += ", tentative: not used yet (DAD)",
                Some(Dad::Failed) => text += ", not used: another host on the link has it (DAD)",
                None => {}
            }
            self.line("", 2, &text);
        }
        for gateway in &part.gateways {
            self.gateway(gateway);
        }
        for rule in part.rules.iter().take(LISTED) {
            self.line("", 2, &Printable(rule).to_string());
        }
        self.more(part.rules.len().saturating_sub(LISTED));
        let mut last: &[String] = &[];
        for holder in part.holders.iter().take(HOLDERS) {
            last = self.holder("", 2, holder, last);
        }
        let tasks = part.holders.iter();
        let tasks = tasks.filter(|holder| matches!(holder, Holder::Task { .. }));
        let more = part.task_count.saturating_sub(tasks.count());
        let more = more + part.holders.len().saturating_sub(HOLDERS);
        if more > 0 {
            self.line(
                "",
                2,
                &format!("… and {} more", count(more as u64, "holder")),
            );
        }
    }

    fn gateway(&mut self, gateway: &GatewayPart) {
        let state = match (&gateway.neighbour, &gateway.mac) {
            (Some(state), Some(mac)) => format!("{} at {}", Printable(state), Printable(mac)),
            (Some(state), None) => Printable(state).to_string(),
            (None, _) => String::from("no neighbour entry"),
        };
        let ifname = Printable(&gateway.ifname);
        self.line(
            "",
            2,
            &format!("gateway {} on {ifname}: {state}", gateway.address),
        );
    }

    /// One holder; its stack, too, if that is not `last`.
    pub(super) fn holder<'a>(
        &mut self,
        label: &str,
        indent: usize,
        holder: &'a Holder,
        last: &'a [String],
    ) -> &'a [String] {
        let Holder::Task {
            pid,
            tid,
            comm,
            state,
            since,
            wchan,
            stack,
            container_id,
            not_stuck,
            first_seen,
        } = holder
        else {
            self.line(label, indent, &other(holder));
            return last;
        };
        let mut text = task(comm, *pid, *tid);
        match (since, state) {
            (Some(since), _) => {
                let age = length(self.now.since(*since));
                let since = self.time(*since);
                text += &match first_seen {
                    true => format!("  D (uninterruptible) first seen {since} ({age} or more)"),
                    false => format!("  D (uninterruptible) since {since} ({age})"),
                };
            }
            (None, Some(state)) => {
                text += &format!("  {}", Printable(state));
                let why = not_stuck.map(|why| format!(" ({})", why.as_str()));
                text += &why.unwrap_or_default();
            }
            (None, None) => {}
        }
        if let Some(wchan) = wchan {
            text += &format!(" in {}", Printable(wchan));
        }
        if let Some(id) = container_id {
            text += &format!("  container {}", short_id(id));
        }
        self.line(label, indent, &text);
        if stack.is_empty() {
            return last;
        }
        let frames = match stack.as_slice() == last {
            true => String::from("same stack"),
            false => stack::folded(stack),
        };
        let begin = super::LABEL + indent + 2;
        let frames = self.paint.hanging(&frames, begin, begin + 2);
        self.styled("", indent + 2, Style::Quiet, &frames);
        stack
    }
}

fn other(holder: &Holder) -> String {
    let process = |comm: &Option<String>, pid: u32| match comm {
        Some(comm) => task(comm, pid, pid),
        None => format!("process {pid}"),
    };
    match holder {
        Holder::Mount { path } => format!("mount {}", Printable(path.display())),
        Holder::Fd { pid, fd, comm } => format!("descriptor {fd} of {}", process(comm, *pid)),
        Holder::Socket { pid, fd, comm } => format!("socket {fd} of {}", process(comm, *pid)),
        Holder::Task { pid, tid, comm, .. } => task(comm, *pid, *tid),
    }
}

/// Where a device leads to.
fn wiring(device: &DevicePart) -> Vec<String> {
    let mut words = Vec::new();
    if !device.up {
        words.push(String::from("DOWN"));
    }
    if let Some(hardware) = &device.hardware {
        words.push(Printable(hardware).to_string());
    }
    if let Some(peer) = &device.peer {
        let place = match peer.host {
            true => String::from("the host"),
            false => format!("netns {}", peer.netns.inode),
        };
        let port = peer.master.as_ref();
        let port = port.map(|master| format!(" in {}", Printable(master)));
        words.push(format!(
            "its other end is {} on {place}{}",
            Printable(&peer.name),
            port.unwrap_or_default(),
        ));
    }
    words
}

/// The mount is listed among the holders.
fn is_mounted(part: &NetnsPart, path: &std::path::Path) -> bool {
    let mut holders = part.holders.iter();
    holders.any(|holder| matches!(holder, Holder::Mount { path: at } if is_same(at, path)))
}

/// Every namespace has these.
fn is_local(address: std::net::IpAddr) -> bool {
    match address {
        std::net::IpAddr::V4(v4) => v4.is_loopback(),
        std::net::IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local(),
    }
}
