//! Entries of the journal as journalctl prints them for machines: `-o json`
//! and `-o export`.

use std::{borrow::Cow, mem};

use super::{
    header,
    json::{self, Json},
    ready::Ready,
    stamp::Stamp,
};

/// One entry: of its fields those that are of interest.
#[derive(Debug, Default)]
pub(super) struct JournalEntry {
    message: Option<String>,
    host: Option<String>,
    identifier: Option<String>,
    unit: Option<String>,
    command: Option<String>,
    pid: Option<u32>,
    priority: Option<u64>,
    /// When it was written, by its writer's clock, us.
    source: Option<u64>,
    /// When journald took it, us.
    received: Option<u64>,
    pub(super) boot: Option<String>,
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
                | b"_PID"
                | b"SYSLOG_PID"
                | b"PRIORITY"
                | b"_SOURCE_REALTIME_TIMESTAMP"
                | b"__REALTIME_TIMESTAMP"
                | b"_BOOT_ID"
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
            "_PID" => self.pid = pid().or(self.pid),
            "SYSLOG_PID" => self.pid = self.pid.or_else(pid),
            "PRIORITY" => self.priority = number(),
            "_SOURCE_REALTIME_TIMESTAMP" => self.source = number(),
            "__REALTIME_TIMESTAMP" => self.received = number(),
            "_BOOT_ID" => self.boot = Some(value.into_owned()),
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

    /// Its message; `None` if there is none, as of one that was too long.
    pub(super) fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// When it was written.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        let micros = self.source.or(self.received)?;
        let nanos = i64::try_from(micros).ok()?.checked_mul(1_000)?;
        Some(Stamp::Instant(nanos, 6))
    }

    /// Puts it where it is given out from.
    pub(super) fn into_ready(mut self, ready: &mut Ready) {
        ready.clear();
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
