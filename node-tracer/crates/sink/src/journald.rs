//! The systemd journal: findings, coverage and summary, each as one entry with
//! fields that `journalctl` can match.
//!
//! Single events do not go there; a busy node has thousands of them, and the
//! journal has other readers. What was lost of them does: as the finding
//! `events-lost`.
//!
//! The entries' encoding and the socket are in [`wire`]; the message IDs, which
//! `node-tracer.catalog` explains, in [`catalog`].

use std::{
    io,
    path::{Path, PathBuf},
};

use super::{Outlet, Shown, Sink, SinkError, json};
use event::wording::escape::Printable;
use event::{
    PodRef,
    finding::{Finding, Holder, Severity, State},
    not_checked,
    record::{Body, CoverageItem, Record, Summary},
    wording::plural as words,
};

mod catalog;
mod wire;

/// Where journald listens, below the host's root.
const SOCKET: &str = "run/systemd/journal/socket";

/// Names another socket: for tests, which have a journald of their own.
const SOCKET_VARIABLE: &str = "NODE_TRACER_JOURNAL_SOCKET";

/// Values that one field may have. journald refuses an entry of more than 1024
/// fields as a whole.
const VALUES: usize = 128;

/// Sends records to journald.
pub struct JournaldSink {
    to: To,
}

/// How records get there.
enum To {
    Socket(wire::Socket),
    Outlet(Outlet),
}

/// Where journald listens on a host whose root is at `root`.
pub fn socket(root: &Path) -> PathBuf {
    match std::env::var_os(SOCKET_VARIABLE) {
        Some(path) if !path.is_empty() => path.into(),
        _ => root.join(SOCKET),
    }
}

impl JournaldSink {
    /// Checks that journald listens at `path`. That it does later on too is not
    /// taken for granted: every record finds its way by the path anew, so a
    /// journald that is started again gets the next one.
    pub fn connect(path: &Path) -> Result<Self, SinkError> {
        let failed = |source| SinkError::Journal {
            path: path.to_owned(),
            source,
        };
        let mut socket = wire::Socket::new(path).map_err(failed)?;
        // journald ignores an empty datagram.
        socket.send(&[]).map_err(failed)?;
        Ok(Self {
            to: To::Socket(socket),
        })
    }

    /// The same with a queue before it, so that a journald that hangs keeps
    /// nobody waiting.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn patient(self) -> io::Result<(Self, Outlet)> {
        let outlet = match self.to {
            To::Outlet(outlet) => outlet,
            To::Socket(mut socket) => {
                socket.be_patient();
                Outlet::start_here("journald", move |entry| match send(&mut socket, entry) {
                    // Its queue is full: it may be stopped, or very busy.
                    Err(SinkError::Journal { source, .. })
                        if source.kind() == io::ErrorKind::WouldBlock =>
                    {
                        Err(SinkError::Slow)
                    }
                    sent => sent,
                })?
            }
        };
        let to = To::Outlet(outlet.clone());
        Ok((Self { to }, outlet))
    }
}

fn send(socket: &mut wire::Socket, entry: &[u8]) -> Result<(), SinkError> {
    socket.send(entry).map_err(|source| SinkError::Journal {
        path: socket.path().to_owned(),
        source,
    })
}

impl Sink for JournaldSink {
    fn write(&mut self, record: &Record<'_>) -> Result<Shown, SinkError> {
        let Some(entry) = entry(record)? else {
            return Ok(Shown::No);
        };
        let entry = entry.encoded();
        match &mut self.to {
            To::Socket(socket) => send(socket, &entry)?,
            To::Outlet(outlet) => outlet.put(&entry)?,
        }
        Ok(Shown::Yes)
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

/// A record as a journal entry; `None` if it does not go there.
fn entry(record: &Record<'_>) -> Result<Option<wire::Entry>, SinkError> {
    let mut entry = wire::Entry::default();
    entry.push("SYSLOG_IDENTIFIER", "node-tracer");
    match record.body {
        Body::Event(_)
        | Body::Explanation(_)
        | Body::Eni(_)
        | Body::Plan { .. }
        | Body::Repair(_)
        | Body::RepairSummary(_) => return Ok(None),
        Body::Finding { finding, state } => push_finding(&mut entry, record, finding, state),
        Body::Coverage(items) => {
            push_plain(&mut entry, catalog::COVERAGE, &coverage_message(items))
        }
        Body::Summary(summary) => {
            push_plain(&mut entry, catalog::SUMMARY, &summary_message(summary))
        }
    }
    // Valid UTF-8 throughout: it comes from serde_json.
    entry.push(
        "NODE_TRACER_JSON",
        &String::from_utf8_lossy(&json::line(record)?),
    );
    Ok(Some(entry))
}

fn push_plain(entry: &mut wire::Entry, message_id: &str, message: &str) {
    entry.push("PRIORITY", "6");
    entry.push("MESSAGE", message);
    entry.push("MESSAGE_ID", message_id);
}

fn push_finding(entry: &mut wire::Entry, record: &Record<'_>, finding: &Finding, state: State) {
    let Finding {
        rule,
        severity,
        id,
        title,
        pod,
        sandbox_id,
        netns,
        addresses,
        holders,
        ..
    } = finding;
    entry.push("PRIORITY", priority(*severity, state));
    entry.push("MESSAGE", &finding_message(record, title, finding, state));
    entry.push("MESSAGE_ID", rule.spec().message_id);
    entry.push("NODE_TRACER_RULE", rule.as_str());
    entry.push("NODE_TRACER_SEVERITY", severity.as_str());
    entry.push("NODE_TRACER_STATE", state.as_str());
    entry.push("NODE_TRACER_FINDING_ID", id);
    let incident = finding.detail.incident.as_deref();
    entry.push("NODE_TRACER_INCIDENT", incident.unwrap_or_default());
    entry.push_each("NODE_TRACER_IP", addresses);
    if let Some(netns) = netns {
        entry.push("NODE_TRACER_NETNS", &netns.id.inode.to_string());
    }
    if let Some(PodRef {
        namespace,
        name,
        uid,
    }) = pod
    {
        if let (Some(namespace), Some(name)) = (namespace, name) {
            entry.push("NODE_TRACER_POD", &format!("{namespace}/{name}"));
        }
        entry.push("NODE_TRACER_POD_UID", uid.as_deref().unwrap_or_default());
    }
    entry.push(
        "NODE_TRACER_SANDBOX_ID",
        sandbox_id.as_deref().unwrap_or_default(),
    );
    entry.push_each(
        "NODE_TRACER_CONTAINER_ID",
        holders.iter().filter_map(container_id),
    );
    entry.push_each("NODE_TRACER_PID", holders.iter().filter_map(pid));
}

fn container_id(holder: &Holder) -> Option<&str> {
    match holder {
        Holder::Task { container_id, .. } => container_id.as_deref(),
        Holder::Mount { .. } | Holder::Fd { .. } | Holder::Socket { .. } => None,
    }
}

fn pid(holder: &Holder) -> Option<u32> {
    match holder {
        Holder::Task { pid, .. } | Holder::Fd { pid, .. } | Holder::Socket { pid, .. } => {
            Some(*pid)
        }
        Holder::Mount { .. } => None,
    }
}

/// syslog(3) priorities: critical, warning, informational; what is over is a
/// notice.
fn priority(severity: Severity, state: State) -> &'static str {
    match (state, severity) {
        (State::Resolved, _) => "5",
        (_, Severity::Critical) => "2",
        (_, Severity::Warning) => "4",
        (_, Severity::Info) => "6",
    }
}

fn finding_message(record: &Record<'_>, title: &str, finding: &Finding, state: State) -> String {
    let title = Printable(title);
    match state {
        State::Open => title.to_string(),
        State::Updated => format!("updated: {title}"),
        State::Resolved => {
            let seconds = record.time.since(finding.since).as_secs();
            format!("resolved after {seconds} s: {title}")
        }
    }
}

fn coverage_message(items: &[CoverageItem]) -> String {
    let blind: Vec<_> = items
        .iter()
        .filter(|item| item.mechanism.is_none())
        .map(|item| &*item.signal)
        .collect();
    match blind.is_empty() {
        true => format!("started; sees all {} signals", items.len()),
        false => {
            let seen = items.len() - blind.len();
            let blind = blind.join(", ");
            format!(
                "started; sees {seen} of {} signals, not: {}",
                items.len(),
                Printable(blind)
            )
        }
    }
}

fn summary_message(summary: &Summary) -> String {
    let (mut open, mut resolved) = (0_u64, 0_u64);
    for count in summary.rules.values() {
        open = open.saturating_add(count.open);
        resolved = resolved.saturating_add(count.resolved);
    }
    let lost = words::total(summary.events_lost.values());
    let not_checked = not_checked::lines(&summary.not_checked).into_iter();
    let not_checked: Vec<String> = not_checked.map(|line| format!("; {line}")).collect();
    format!(
        "ended; findings open: {open}, resolved: {resolved}; events seen: {}, lost: {lost}{}",
        summary.events_seen,
        Printable(not_checked.concat())
    )
}

#[cfg(test)]
pub(super) mod tests;
