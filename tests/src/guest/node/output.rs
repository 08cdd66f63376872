//! What the service tells: as JSON lines in a file, and in the journal.

use std::fs::File;
use std::io::Read as _;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;

use crate::tracer::is_finding;
use crate::{journald, wait};

pub(super) const UNIT: &str = "node-tracer.service";

/// The lines so far.
pub(super) struct WrittenLines {
    path: &'static str,
    file: Option<File>,
    /// The beginning of a line whose end was not there yet.
    rest: Vec<u8>,
    records: Vec<Value>,
}

impl WrittenLines {
    /// Those that are written to a file, which need not be there yet.
    pub(super) fn of(path: &'static str) -> Self {
        Self {
            path,
            file: None,
            rest: Vec::new(),
            records: Vec::new(),
        }
    }

    /// Everything up to now.
    pub(super) fn records(&mut self) -> anyhow::Result<&[Value]> {
        if self.file.is_none() {
            self.file = Some(File::open(self.path).context(self.path)?);
        }
        let file = self.file.as_mut().context(self.path)?;
        file.read_to_end(&mut self.rest).context(self.path)?;
        let end = self.rest.iter().rposition(|byte| *byte == b'\n');
        let Some(end) = end else {
            return Ok(&self.records);
        };
        let rest = self.rest.split_off(end + 1);
        let lines = std::mem::replace(&mut self.rest, rest);
        for line in lines.split(|byte| *byte == b'\n') {
            if line.is_empty() {
                continue;
            }
            let record = serde_json::from_slice(line)
                .with_context(|| format!("no record: {}", String::from_utf8_lossy(line)))?;
            self.records.push(record);
        }
        Ok(&self.records)
    }

    /// Forgets everything up to now.
    pub(super) fn begin_anew(&mut self) -> anyhow::Result<()> {
        self.records()?;
        self.records.clear();
        Ok(())
    }

    /// Waits for a record, among those that came already too.
    pub(super) fn wait_for(
        &mut self,
        what: &str,
        limit: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        let mut seen = 0;
        let found = wait::until(what, limit, || {
            let records = self.records()?;
            let found = records[seen..].iter().find(|record| wanted(record));
            seen = records.len();
            Ok(found.cloned())
        });
        found.map_err(|error| anyhow::anyhow!("{error:#}\n{}", self.last_words()))
    }

    /// Waits until a rule has told this.
    pub(super) fn finding(
        &mut self,
        rule: &str,
        limit: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        self.wait_for(rule, limit, |record| {
            is_finding(record, rule) && wanted(record)
        })
    }

    /// The last things said, for the message of a law that was broken.
    fn last_words(&self) -> String {
        let from = self.records.len().saturating_sub(6);
        let mut words = format!("{} records, the last of them:", self.records.len());
        for record in &self.records[from..] {
            let line: String = record.to_string().chars().take(700).collect();
            words.push_str(&format!("\n    {line}"));
        }
        words
    }
}

/// The service's own entries in the journal that have all of these.
pub(super) fn entries(matches: &[String]) -> anyhow::Result<Vec<Value>> {
    let unit = format!("_SYSTEMD_UNIT={UNIT}");
    let mut all = vec![unit.as_str(), "SYSLOG_IDENTIFIER=node-tracer"];
    all.extend(matches.iter().map(String::as_str));
    journald::read(&[], &all)
}
