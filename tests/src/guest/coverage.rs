//! What the tracer says of itself: its coverage record.

use std::collections::BTreeMap;

use serde_json::Value;

use super::matrix::MECHANISMS;

/// What the kernel is asked for, each named by `check`.
pub(super) const SIGNALS: [&str; 9] = [
    "netns-created",
    "netns-dying",
    "netns-destroyed",
    "address",
    "task-blocked",
    "cni-call",
    "cni-result",
    "inventory",
    "oom-kill",
];

/// What the tracer says of itself: (mechanism, why none better, what is
/// unknown) by signal.
pub(super) struct Coverage(BTreeMap<String, (String, String, String)>);

impl Coverage {
    pub(super) fn of(record: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let signals = record["signals"].as_array().into_iter().flatten();
        Self(
            signals
                .map(|item| {
                    let unknown = item["unknown"].to_string();
                    let how = (text(&item["mechanism"]), text(&item["reason"]), unknown);
                    (text(&item["signal"]), how)
                })
                .collect(),
        )
    }

    pub(super) fn mechanism(&self, signal: &str) -> &str {
        self.0.get(signal).map_or("", |(mechanism, ..)| mechanism)
    }

    /// Whether namespaces that only a socket holds are found at the start.
    pub(super) fn finds_hidden(&self) -> bool {
        let inventory = self.0.get("inventory");
        inventory.is_some_and(|(.., unknown)| !unknown.contains("only a socket holds"))
    }

    /// Which mechanisms are not used and why, where that is the kernel's doing.
    pub(super) fn refusals(&self) -> Vec<(&str, &'static str, &str)> {
        let mut refusals = Vec::new();
        for (signal, (used, reasons, _)) in &self.0 {
            for mechanism in MECHANISMS.into_iter().filter(|one| one != used) {
                let begin = format!("no {mechanism}: ");
                let Some(at) = reasons.find(&begin) else {
                    continue;
                };
                let rest = &reasons[at + begin.len()..];
                let reason = rest.split("; no ").next().unwrap_or(rest);
                if !reason.starts_with("limited to") {
                    refusals.push((signal.as_str(), mechanism, reason));
                }
            }
        }
        refusals
    }
}
