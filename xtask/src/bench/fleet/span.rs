//! What was counted while something went on.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::Value;

/// Requests of the tracers in the server's audit log.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) requests: u64,
    /// Most that came within one second.
    pub(super) peak: f64,
    /// Lists of all pods of the cluster, or of all blocks.
    pub(super) of_all: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) length: Duration,
    pub(super) counts: Counts,
    pub(super) bytes: f64,
    /// Time of the server and of etcd on a CPU.
    pub(super) used: Duration,
    /// Resident bytes of both at the end.
    pub(super) memory: f64,
}

impl Span {
    /// Requests in a second.
    pub(super) fn rate(&self) -> f64 {
        self.counts.requests as f64 / self.length.as_secs_f64()
    }

    pub(super) fn byte_rate(&self) -> f64 {
        self.bytes / self.length.as_secs_f64()
    }

    /// CPUs that were in use.
    pub(super) fn cpu(&self) -> f64 {
        self.used.as_secs_f64() / self.length.as_secs_f64()
    }

    /// Without what the server does without tracers.
    pub(super) fn without(mut self, idle: &Self) -> Self {
        let idle = idle.used.mul_f64(self.length.div_duration_f64(idle.length));
        self.used = self.used.saturating_sub(idle);
        self
    }
}

impl Counts {
    /// Of the audit log's lines, those received in this time.
    pub(super) fn of(log: &str, from: Timestamp, to: Timestamp) -> anyhow::Result<Self> {
        let (mut known, mut times, mut of_all) = (BTreeSet::new(), Vec::new(), 0);
        for line in log.lines() {
            let event: Value = serde_json::from_str(line).context("a line of the audit log")?;
            let text = |name: &str| event[name].as_str().unwrap_or_default();
            let time: Timestamp = text("requestReceivedTimestamp").parse()?;
            if !(from..to).contains(&time) || !known.insert(text("auditID").to_owned()) {
                continue;
            }
            times.push(time.as_millisecond());
            let of_one_node = text("requestURI").contains("spec.nodeName");
            of_all += u64::from(text("verb") == "list" && !of_one_node);
        }
        times.sort_unstable();
        let within_a_second = |(index, time): (usize, &i64)| {
            index + 1 - times.partition_point(|other| *other <= time - 1_000)
        };
        let peak = times.iter().enumerate().map(within_a_second).max();
        Ok(Self {
            requests: times.len() as u64,
            peak: peak.unwrap_or(0) as f64,
            of_all,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: u32, at: &str, verb: &str, uri: &str) -> String {
        format!(
            "{{\"auditID\":\"{id}\",\"requestReceivedTimestamp\":\"2026-11-26T10:00:{at}Z\",\
             \"verb\":\"{verb}\",\"requestURI\":\"{uri}\"}}\n"
        )
    }

    #[test]
    fn a_request_counts_once_and_when_it_was_received() {
        let own = "/api/v1/pods?fieldSelector=spec.nodeName%3Da";
        let log = [
            line(1, "00.5", "watch", own),
            line(2, "01.2", "list", own),
            line(3, "02.1", "get", "/b/x"),
            line(2, "02.0", "list", own),
            line(4, "02.9", "list", "/b"),
            line(5, "09.9", "get", "/b/x"),
        ];
        let at = |second: u32| format!("2026-11-26T10:00:0{second}Z").parse().unwrap();
        let counts = Counts::of(&log.concat(), at(1), at(9)).unwrap();
        let expected = Counts {
            requests: 3,
            peak: 2.0,
            of_all: 1,
        };
        assert_eq!(counts, expected);
    }
}
