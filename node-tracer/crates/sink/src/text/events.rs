//! Events as single lines, and which of them are worth one.

use event::{
    Address, CniCall, CniCommand, CniEffect, Dad, Endpoint, Event, FullFilesystem, Netns,
    StartFailure, Task, TraceKind, What,
    wording::{duration::length, escape::Printable, plural as words},
};
use std::{net::IpAddr, time::Duration};

use super::style::{Style, count, event_task, grouped, pod, short_id, task};

/// How much of a message is printed; the record has it whole.
const SAID: usize = 240;

/// An event's line, without its time.
pub(super) struct Line {
    /// The event's name in records.
    pub(super) kind: &'static str,
    pub(super) text: String,
    /// Most events are quiet, so that trouble stands out.
    pub(super) style: Style,
}

/// An event's line; `None` if nobody would want to read it.
pub(super) fn line(event: &Event) -> Option<Line> {
    let quiet = |kind, text| {
        Some(Line {
            kind,
            text,
            style: Style::Quiet,
        })
    };
    let loud = |kind, text, style| Some(Line { kind, text, style });
    match &event.what {
        What::NetnsCreated { netns, task, .. } => quiet("netns-created", by(*netns, task.as_ref())),
        What::NetnsDying { netns, task } => quiet("netns-dying", by(*netns, task.as_ref())),
        What::NetnsDestroyed { netns } => quiet("netns-destroyed", place(*netns)),
        What::AddressAdded {
            netns,
            address,
            found: false,
            made: _,
        } if of_interest(address) => quiet("address-added", device(*netns, address)),
        What::AddressRemoved { netns, address } if of_interest(address) => {
            quiet("address-removed", device(*netns, address))
        }
        What::TaskBlocked {
            task,
            since,
            found,
            netns,
            wchan,
            ..
        } => {
            let slept = length(event.time.since(*since));
            let least = if *found { "at least " } else { "" };
            let mut text = format!("{}  {least}{slept}", event_task(task));
            if let Some(wchan) = wchan {
                text += &format!(" in {}", Printable(wchan));
            }
            text += &owner(task);
            if let Some(netns) = netns {
                text += &format!("  {}", place(*netns));
            }
            loud("task-blocked", text, Style::Warning)
        }
        What::TaskUnblocked {
            task,
            since: _,
            duration_ms,
        } => {
            let slept = length(Duration::from_millis(*duration_ms));
            let text = format!("{}  after {slept}{}", event_task(task), owner(task));
            loud("task-unblocked", text, Style::Plain)
        }
        What::TasksBlocked {
            crowd: _,
            pod_uid,
            uid,
            count: tasks,
            at_least,
            ended,
            since,
            examples,
        } => {
            let least = if *at_least { "at least " } else { "" };
            let mut text = format!("{least}{}", count(*tasks, "more task"));
            if *tasks > 0 {
                let slept = length(event.time.since(*since));
                text += &format!(" for up to {slept}, such as ");
                let named: Vec<String> = examples.iter().map(event_task).collect();
                text += &named.join(", ");
            }
            if *ended > 0 {
                text += &format!("  {} no more", grouped(*ended));
            }
            match (pod_uid, uid) {
                (Some(pod), _) => text += &format!("  pod uid {}", Printable(pod)),
                (None, Some(uid)) => text += &format!("  user {uid}"),
                (None, None) => {}
            }
            loud("tasks-blocked", text, Style::Warning)
        }
        // The line of the plugin that called it says enough.
        What::CniCall {
            call,
            exit_code: Some(0),
            ..
        } if call.delegated && call.trusted => None,
        // Since containerd 2.0 kubelet has the plugins asked every 5 seconds; that all
        // is well is no news.
        What::CniCall {
            call,
            exit_code: Some(0),
            ..
        } if call.command == CniCommand::Status && call.trusted => None,
        What::CniCall {
            call,
            exit_code,
            signal,
            duration_ms,
            result,
            error,
            unread: _,
        } => {
            let took = Duration::try_from_secs_f64(duration_ms / 1000.0).unwrap_or_default();
            let (end, style) = match (exit_code, signal) {
                (Some(0), _) => ("ok".to_owned(), Style::Quiet),
                (Some(code), _) => (format!("exit {code}"), Style::Warning),
                (None, Some(signal)) => (format!("killed by signal {signal}"), Style::Warning),
                (None, None) if error.is_some() => ("failed".to_owned(), Style::Warning),
                (None, None) => ("ended".to_owned(), Style::Quiet),
            };
            let style = if call.trusted { style } else { Style::Quiet };
            let mut text = format!("{}  → {end} {}", cni(call), length(took));
            let ips = result.iter().flat_map(|result| &result.ips);
            for ip in ips {
                text += &format!("  {ip}");
            }
            if let Some(error) = error {
                text += &format!("  {}", Printable(&error.msg));
            }
            loud("cni-call", text, style)
        }
        What::UntrustedCalls {
            uid,
            task,
            count: calls,
            total: _,
            since,
        } => {
            let took = length(event.time.since(*since));
            let text = format!(
                "{} in {took} by {}; not trusted",
                count(*calls, "CNI call"),
                who(*uid, task.as_ref())
            );
            loud("untrusted-calls", text, Style::Plain)
        }
        What::UntrustedNetns { uid, count: nets } => {
            let nets = count(*nets, "network namespace");
            let whose = uid.map_or_else(String::new, |uid| format!(", most of them user {uid}'s"));
            let text = format!("{nets} of users' own are not followed{whose}");
            loud("untrusted-netns", text, Style::Plain)
        }
        // As it should be: nobody would want to read it.
        What::CniEffect { effect } if effect.failures().next().is_none() => None,
        What::CniEffect { effect } => loud("cni-effect", self::effect(effect), Style::Warning),
        What::PodDeleted { pod: gone } => loud("pod-deleted", pod(gone), Style::Plain),
        What::SourceFailed { source, error } => {
            let text = format!("{}  {}", Printable(source), Printable(error));
            loud("source-failed", text, Style::Warning)
        }
        What::SourceRecovered { source } => loud(
            "source-recovered",
            Printable(source).to_string(),
            Style::Plain,
        ),
        What::SandboxAdded { source, sandbox } => {
            let id = short_id(&sandbox.id);
            let pod = sandbox.pod.label();
            let state = match sandbox.ready {
                Some(false) => "  not ready",
                Some(true) | None => "",
            };
            let (pod, source) = (Printable(pod), Printable(source));
            let text = format!("{id}  pod {pod}{state}  by {source}");
            loud("sandbox-added", text, Style::Plain)
        }
        What::SandboxRemoved { source, id } => {
            let text = format!("{}  by {}", short_id(id), Printable(source));
            loud("sandbox-removed", text, Style::Plain)
        }
        What::EventsLost { cause, count } => {
            let text = format!("{}  {}", grouped(*count), Printable(cause));
            loud("events-lost", text, Style::Warning)
        }
        What::ClockStepped { by_ms, suspended } => {
            let by = length(Duration::from_millis(by_ms.unsigned_abs()));
            let way = if *by_ms < 0 { "back" } else { "forward" };
            let why = match suspended {
                true => "the machine was suspended",
                false => "the clock was set",
            };
            let text =
                format!("{why}: {by} {way}; times are the new clock's, durations are as they were");
            loud("clock-stepped", text, Style::Plain)
        }
        What::SandboxFailed { failure } => quiet("sandbox-failed", start_failure(failure)),
        What::EndpointWritten { endpoint } => quiet("endpoint-written", self::endpoint(endpoint)),
        What::EndpointDeleted { endpoint } => quiet("endpoint-deleted", self::endpoint(endpoint)),
        What::EndpointKept { del, endpoint } => {
            let text = format!("{}  by DEL of {}", self::endpoint(endpoint), short_id(del));
            quiet("endpoint-kept", text)
        }
        What::OomKilled { kill } => {
            let whose = match &kill.memcg {
                Some(memcg) => format!("  limit of {}", Printable(memcg)),
                None => String::new(),
            };
            let text = format!("{}{}{whose}", event_task(&kill.task), owner(&kill.task));
            loud("oom-killed", text, Style::Warning)
        }
        What::TasksOomKilled {
            uid,
            task,
            count: tasks,
            total: _,
            since,
        } => {
            let took = length(event.time.since(*since));
            let tasks = count(*tasks, "more task");
            let text = format!("{tasks} in {took} of {}", who(*uid, task.as_ref()));
            loud("tasks-oom-killed", text, Style::Plain)
        }
        What::FilesystemFull { full } => loud("filesystem-full", filled(full), Style::Warning),
        What::DeviceWaiting { device, references } => {
            let mut text = format!("{} is being removed", Printable(device));
            if let Some(references) = references {
                text += &format!(", {references} references are left");
            }
            quiet("device-waiting", text)
        }
        // The state at the start and the engine's own book-keeping.
        What::AddressAdded { .. }
        | What::AddressRemoved { .. }
        | What::NetnsFound { .. }
        | What::NetnsHolders { .. }
        | What::CniStarted { .. }
        | What::Reservation { .. }
        | What::PodsListed { .. }
        | What::PodChanged { .. }
        | What::PodsWithAddress { .. }
        | What::SandboxesListed { .. }
        | What::ContainersListed { .. }
        | What::AttachmentsListed { .. }
        | What::NetworksListed { .. }
        | What::MaxPods { .. }
        | What::StoreListed { .. }
        | What::NetnsDevices { .. }
        | What::NetnsForwarding { .. }
        | What::NetnsForwardingOutdated { .. }
        | What::PciListed { .. }
        | What::PodStarted { .. }
        | What::Tick => None,
    }
}

/// Every namespace has these addresses, and no pod is ever reached by them.
fn of_interest(address: &Address) -> bool {
    match address.address {
        IpAddr::V4(ip) => !ip.is_loopback(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    }
}

fn place(netns: Netns) -> String {
    format!("netns {}", netns.inode)
}

fn by(netns: Netns, task: Option<&Task>) -> String {
    match task {
        Some(task) => format!("{} by {}{}", place(netns), event_task(task), owner(task)),
        None => place(netns),
    }
}

fn device(netns: Netns, address: &Address) -> String {
    let kind = match &address.link_kind {
        Some(kind) => format!(" ({})", Printable(kind)),
        None => String::new(),
    };
    let dad = match address.dad {
        Some(Dad::Failed) => "  DAD failed: another host has it",
        Some(Dad::Tentative) | None => "",
    };
    format!(
        "{}  {address} on {}{kind}{dad}",
        place(netns),
        Printable(&address.ifname)
    )
}

/// The pod and container that a task's cgroup names.
fn owner(task: &Task) -> String {
    let mut text = String::new();
    if let Some(uid) = &task.pod_uid {
        text += &format!("  pod uid {}", Printable(uid));
    }
    if let Some(id) = &task.container_id {
        text += &format!("  container {}", short_id(id));
    }
    text
}

fn cni(call: &CniCall) -> String {
    let mut text = format!(
        "{:<4} {}",
        Printable(call.command.as_str()).to_string(),
        Printable(&call.plugin)
    );
    if call.delegated {
        text += &format!(" for {}", Printable(&call.parent_comm));
    }
    if let Some(pod) = &call.pod {
        text += &format!("  pod {}", Printable(pod.label()));
    }
    if !call.container_id.is_empty() {
        text += &format!("  sandbox {}", short_id(&call.container_id));
    }
    text += &match call.netns {
        Some(netns) => format!("  {}", place(netns)),
        None if call.netns_path.is_empty() => String::new(),
        None => format!("  netns {}", Printable(&call.netns_path)),
    };
    if !call.trusted {
        let who = task(&call.parent_comm, call.parent_pid, call.parent_pid);
        let why = call.distrust.as_deref().unwrap_or("reason not recorded");
        text += &format!("  NOT BELIEVED, from {who}: {}", Printable(why));
    }
    text
}

fn start_failure(failure: &StartFailure) -> String {
    let mut text = Printable(&failure.source).to_string();
    let named = failure.pod.name.is_some() || failure.pod.uid.is_some();
    if named {
        text += &format!("  pod {}", Printable(failure.pod.label()));
    }
    if let Some(id) = &failure.sandbox_id {
        text += &format!("  sandbox {}", short_id(id));
    }
    if let Some(reason) = &failure.reason {
        text += &format!("  {}", Printable(reason));
    }
    let message = &failure.message;
    let end = message.char_indices().nth(SAID).map(|(end, _)| end);
    let message = message.get(..end.unwrap_or(message.len()));
    let more = if end.is_some() { " …" } else { "" };
    text + &format!("  {}{more}", Printable(message.unwrap_or_default()))
}

fn filled(full: &FullFilesystem) -> String {
    let FullFilesystem {
        path,
        bytes,
        bytes_free,
        inodes,
        inodes_free,
    } = full;
    format!(
        "{}  {} of {} bytes, {} of {} inodes are free",
        Printable(path.display()),
        grouped(*bytes_free),
        grouped(*bytes),
        grouped(*inodes_free),
        grouped(*inodes),
    )
}

fn endpoint(endpoint: &Endpoint) -> String {
    let pod = endpoint.pod.label();
    let (store, key) = (&endpoint.store, &endpoint.key);
    let mut text = format!("{} {}", Printable(store), Printable(key));
    if endpoint.pod.name.is_some() {
        text += &format!("  pod {}", Printable(pod));
    }
    if let Some(id) = &endpoint.container_id {
        text += &format!("  sandbox {}", short_id(id));
    }
    for ip in &endpoint.ips {
        text += &format!("  {ip}");
    }
    text
}

/// What a call that said it succeeded did not do.
fn effect(effect: &CniEffect) -> String {
    let mut text = format!(
        "{:<4} sandbox {}",
        Printable(effect.command.as_str()).to_string(),
        short_id(&effect.container_id)
    );
    if let Some(pod) = &effect.pod {
        text += &format!("  pod {}", Printable(pod.label()));
    }
    text += match effect.command {
        CniCommand::Add => "  said it succeeded, but is not there:",
        _ => "  said it succeeded, but is still there:",
    };
    for trace in effect.failures() {
        let kind = match trace.kind {
            TraceKind::Address => "address",
            TraceKind::Veth => "veth",
            TraceKind::Route => "route",
            TraceKind::Reservation => "reservation",
        };
        text += &format!("  {kind} {}", Printable(&trace.name));
    }
    text
}

/// What was lost, as one phrase: `37 events (ring-full: 30, map-full: 7)`.
pub(super) fn losses(lost: &std::collections::BTreeMap<String, u64>) -> String {
    let total = words::total(lost.values());
    let causes: Vec<_> = lost
        .iter()
        .map(|(cause, count)| format!("{}: {}", Printable(cause), grouped(*count)))
        .collect();
    format!("{} ({})", count(total, "event"), causes.join(", "))
}

/// Who does what is told as a number, by the last that did it.
fn who(uid: Option<u32>, task: Option<&Task>) -> String {
    match (uid, task) {
        (Some(uid), Some(task)) => format!("user {uid}, {}{}", event_task(task), owner(task)),
        _ => String::from("several users or containers"),
    }
}
