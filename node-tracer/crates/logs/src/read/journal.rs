//! Entries of the journal as journalctl prints them for machines: `-o json`
//! and `-o export`.
//!
//! What journald knows itself of a record's writer begins with an underscore:
//! its user, its unit, how the record came. The identifier is the writer's own
//! word, and any user of the node can write any (`logger -t kernel ...`). Where
//! journald says who wrote a record, only that is believed.

use std::{borrow::Cow, mem};

use super::{
    begin::Form,
    container, header,
    json::{self, Json},
    ready::Ready,
    stamp::{self, Stamp},
};

/// One entry: of its fields those that are of interest.
#[derive(Debug, Default)]
pub(super) struct JournalEntry {
    message: Option<String>,
    host: Option<String>,
    identifier: Option<String>,
    unit: Option<String>,
    command: Option<String>,
    /// `kernel`, `stdout`, `syslog`, ...: how it came.
    transport: Option<String>,
    uid: Option<String>,
    cgroup: Option<String>,
    /// The container whose output it is, as docker names it.
    container: Option<String>,
    pid: Option<u32>,
    priority: Option<u64>,
    /// When it was written, by its writer's clock, us.
    source: Option<u64>,
    /// When journald took it, us.
    received: Option<u64>,
    /// The same as people read it.
    head: Option<Stamp>,
    pub(super) boot: Option<String>,
    /// The rest of its line is the writer's next entry.
    pub(super) cut: bool,
}

/// Whether a record is one of `journalctl -o verbose`: `Mon 2023-11-05 10:11:12
/// UTC [s=...;i=...]`, and a field a line.
pub(super) fn is_verbose(form: Form, text: &[u8]) -> bool {
    let head = text.get(..text.len().min(80)).unwrap_or_default();
    form == Form::Full && memchr::memmem::find(head, b" [s=").is_some()
}

/// Who wrote a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Author {
    /// The kernel, or a daemon of the node that runs as root.
    Node,
    /// A user of the node, or a container.
    Other,
    /// The export says nothing of it.
    Unknown,
}

impl JournalEntry {
    /// Whether a field is of interest.
    pub(super) fn wants(name: &[u8]) -> bool {
        matches!(
            name,
            b"MESSAGE"
                | b"_HOSTNAME"
                | b"SYSLOG_IDENTIFIER"
                | b"_SYSTEMD_UNIT"
                | b"_COMM"
                | b"_TRANSPORT"
                | b"_UID"
                | b"_SYSTEMD_CGROUP"
                | b"CONTAINER_NAME"
                | b"_PID"
                | b"SYSLOG_PID"
                | b"PRIORITY"
                | b"_SOURCE_REALTIME_TIMESTAMP"
                | b"__REALTIME_TIMESTAMP"
                | b"_BOOT_ID"
                | b"_LINE_BREAK"
        )
    }

    /// Takes a field in.
    pub(super) fn field(&mut self, name: &str, value: Cow<'_, str>) {
        let number = || value.parse::<u64>().ok();
        let pid = || value.parse::<u32>().ok();
        match name {
            "MESSAGE" => self.message = Some(value.into_owned()),
            "_HOSTNAME" => self.host = Some(value.into_owned()),
            "SYSLOG_IDENTIFIER" => self.identifier = Some(value.into_owned()),
            "_SYSTEMD_UNIT" => self.unit = Some(value.into_owned()),
            "_COMM" => self.command = Some(value.into_owned()),
            "_TRANSPORT" => self.transport = Some(value.into_owned()),
            "_UID" => self.uid = Some(value.into_owned()),
            "_SYSTEMD_CGROUP" => self.cgroup = Some(value.into_owned()),
            "CONTAINER_NAME" => self.container = Some(value.into_owned()),
            "_PID" => self.pid = pid().or(self.pid),
            "SYSLOG_PID" => self.pid = self.pid.or_else(pid),
            "PRIORITY" => self.priority = number(),
            "_SOURCE_REALTIME_TIMESTAMP" => self.source = number(),
            "__REALTIME_TIMESTAMP" => self.received = number(),
            "_BOOT_ID" => self.boot = Some(value.into_owned()),
            "_LINE_BREAK" => self.cut = value == "line-max",
            _ => {}
        }
    }

    /// Reads one that is printed as JSON; `None` if it is none.
    pub(super) fn from_json(text: &str) -> Option<Self> {
        let mut entry = Self::default();
        for (name, value) in json::object(text)? {
            if Self::wants(name.as_bytes()) {
                let value = match value {
                    Json::Whole(number) => Some(Cow::Owned(number.to_string())),
                    value => value.text(),
                };
                if let Some(value) = value {
                    entry.field(&name, value);
                }
            }
        }
        entry.received.map(|_| entry)
    }

    /// Reads one of `journalctl -o verbose`.
    pub(super) fn from_verbose(text: &str) -> Self {
        let mut entry = Self::default();
        let mut lines = text.lines();
        let stamp = lines.next().and_then(stamp::full);
        entry.head = stamp.map(|(stamp, _)| stamp);
        for line in lines {
            // What a value goes on with is indented further.
            if let Some((name, value)) = line.split_once('=')
                && Self::wants(name.as_bytes())
            {
                entry.field(name, Cow::Borrowed(value));
            }
        }
        entry
    }

    /// Its message; `None` if there is none, as of one that was too long.
    pub(super) fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// Who wrote it, in one word.
    pub(super) fn writer(&self) -> String {
        let ident = self.identifier.as_ref().or(self.unit.as_ref());
        format!("{:?} {ident:?} {:?}", self.host, self.pid)
    }

    /// When it was written.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        let Some(micros) = self.source.or(self.received) else {
            return self.head;
        };
        let nanos = i64::try_from(micros).ok()?.checked_mul(1_000)?;
        Some(Stamp::Instant(nanos, 6))
    }

    /// Who wrote it, by what journald says of that.
    pub(super) fn author(&self) -> Author {
        if self.transport.as_deref() == Some("kernel") {
            return Author::Node;
        }
        let known = [&self.transport, &self.uid, &self.unit, &self.cgroup];
        if known.into_iter().all(Option::is_none) {
            return Author::Unknown;
        }
        // Only the kernel speaks as it.
        let says_kernel = || {
            let name = self.identifier.as_deref().unwrap_or_default();
            ["kernel", "kern"].contains(&name.rsplit('/').next().unwrap_or_default())
        };
        let of_user = self.uid.as_deref().is_some_and(|uid| uid != "0");
        let places = [&self.unit, &self.cgroup];
        let places = || places.iter().filter_map(|place| place.as_deref());
        let of_container = |place: &str| {
            let scope = place.rsplit('/').next().unwrap_or_default();
            let runtimes = ["cri-containerd-", "crio-", "docker-", "libpod-"];
            let begins = runtimes.iter().any(|name| scope.starts_with(name));
            place.contains("kubepods") || (scope.ends_with(".scope") && begins)
        };
        let of_session = self
            .unit
            .as_deref()
            .is_some_and(|unit| unit.starts_with("user@"));
        // Docker writes down what containers print.
        let of_tenant = || {
            let name = self.container.as_deref();
            name.and_then(container::of_docker)
                .is_some_and(|namespace| !container::is_of_the_system(namespace))
        };
        if of_user || of_session || places().any(of_container) || of_tenant() || says_kernel() {
            return Author::Other;
        }
        match self.uid.is_some() || self.unit.is_some() {
            true => Author::Node,
            false => Author::Unknown,
        }
    }

    /// Puts it where it is given out from.
    pub(super) fn into_ready(mut self, ready: &mut Ready) {
        ready.clear();
        ready.vouched = self.author() == Author::Node;
        ready.stamps.extend(self.stamp());
        ready.pid = self.pid;
        ready.level = self.priority.map(header::level_of);
        ready.host = self.host.take();
        let unit = self.unit.take();
        let unit = unit.map(|unit| match unit.strip_suffix(".service") {
            Some(name) => name.to_owned(),
            None => unit,
        });
        let ident = [self.identifier.take(), unit, self.command.take()];
        ready.ident = ident.into_iter().flatten().next();
        ready.envelopes = 1;
        mem::swap(&mut ready.text, self.message.get_or_insert_default());
    }
}
