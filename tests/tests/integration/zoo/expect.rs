//! What an expert expects of a verdict, and what came.

use node_tracer_tests::paste::{commands, options};
use serde_json::Value;

#[derive(Clone, Debug)]
pub(super) enum Expect {
    /// Nothing of severity warning or above.
    Quiet,
    Finds(Finds),
    /// This rule may find something, too.
    May(&'static str),
    /// This rule says nothing at all.
    Silent(&'static str),
    /// One of these words stands under `unknown` somewhere.
    Unknown(&'static [&'static str]),
    /// The explanation of this says all of these words.
    Explains(&'static str, &'static [&'static str]),
    /// No line of advice has all of these words.
    NeverAdvises(&'static [&'static str]),
}

impl Expect {
    /// What of it still holds when less is known.
    pub(super) fn with_less(&self) -> Option<Self> {
        match self {
            Self::Finds(finds) => Some(Self::May(finds.rule)),
            Self::Unknown(_) | Self::Explains(..) => None,
            other => Some(other.clone()),
        }
    }
}

/// A finding that must be there.
#[derive(Clone, Debug)]
pub(super) struct Finds {
    rule: &'static str,
    severity: Option<&'static str>,
    fields: Vec<(&'static str, &'static str)>,
    absent: Vec<&'static str>,
    about: Vec<&'static str>,
    times: Option<usize>,
    since: Option<String>,
    at: Option<&'static str>,
    resolved: bool,
}

/// A finding of this rule, of severity warning or above.
pub(super) fn finds(rule: &'static str) -> Finds {
    Finds {
        rule,
        severity: None,
        fields: Vec::new(),
        absent: Vec::new(),
        about: Vec::new(),
        times: None,
        since: None,
        at: None,
        resolved: false,
    }
}

impl Finds {
    pub(super) fn critical(mut self) -> Self {
        self.severity = Some("critical");
        self
    }

    pub(super) fn any(mut self) -> Self {
        self.severity = Some("");
        self
    }

    pub(super) fn warning(mut self) -> Self {
        self.severity = Some("warning");
        self
    }

    pub(super) fn info(mut self) -> Self {
        self.severity = Some("info");
        self
    }

    pub(super) fn with(mut self, field: &'static str, value: &'static str) -> Self {
        self.fields.push((field, value));
        self
    }

    pub(super) fn without(mut self, field: &'static str) -> Self {
        self.absent.push(field);
        self
    }

    /// The record says this, wherever.
    pub(super) fn about(mut self, text: &'static str) -> Self {
        self.about.push(text);
        self
    }

    /// There are so many of them.
    pub(super) fn times(mut self, times: usize) -> Self {
        self.times = Some(times);
        self
    }

    /// It is so for at least so many seconds by the time of the last look.
    pub(super) fn since_ago(mut self, seconds: u64) -> Self {
        self.since = Some(super::recording::ago(seconds));
        self
    }

    /// It is so since then.
    pub(super) fn at(mut self, start: &'static str) -> Self {
        self.at = Some(start);
        self
    }

    /// It is over at the end.
    pub(super) fn resolved(mut self) -> Self {
        self.resolved = true;
        self
    }

    /// Severity warning or above.
    pub(super) fn is_bad(&self) -> bool {
        self.severity != Some("info")
    }

    fn fits(&self, finding: &Value) -> bool {
        let severity = match self.severity {
            Some("") => true,
            Some(severity) => finding["severity"] == severity,
            None => is_bad(finding),
        };
        let field = |&(field, value): &(&str, &str)| finding[field] == value;
        let text = finding.to_string();
        let pod = finding["pod"]["name"].as_str().unwrap_or_default();
        let namespace = finding["pod"]["namespace"].as_str().unwrap_or_default();
        let named = format!("{namespace}/{pod}");
        let since = finding["since"].as_str().unwrap_or_default();
        let early = self.since.as_deref().is_none_or(|latest| since <= latest);
        finding["rule"] == self.rule
            && severity
            && early
            && self.at.is_none_or(|start| since.starts_with(start))
            && self.fields.iter().all(field)
            && self.absent.iter().all(|field| finding[field].is_null())
            && self
                .about
                .iter()
                .all(|part| text.contains(part) || named.contains(part))
    }

    fn describe(&self) -> String {
        let mut text = format!("{} {}", self.severity.unwrap_or("warning+"), self.rule);
        for (field, value) in &self.fields {
            text.push_str(&format!(" {field}={value}"));
        }
        for field in &self.absent {
            text.push_str(&format!(" no {field}"));
        }
        for part in &self.about {
            text.push_str(&format!(" \"{part}\""));
        }
        if let Some(since) = &self.since {
            text.push_str(&format!(" since {since} or before"));
        }
        if let Some(at) = self.at {
            text.push_str(&format!(" since {at}"));
        }
        if self.resolved {
            text.push_str(" resolved");
        }
        if let Some(times) = self.times {
            text.push_str(&format!(" x{times}"));
        }
        text
    }
}

fn is_bad(finding: &Value) -> bool {
    matches!(finding["severity"].as_str(), Some("warning" | "critical"))
}

/// Findings as they were when they were worst: a stream of records tells one
/// as often as it changes.
fn findings(records: &[Value]) -> Vec<&Value> {
    let is = |record: &&Value| record["type"] == "finding" && record["state"] != "resolved";
    records.iter().filter(is).collect()
}

fn texts<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a str> {
    let all = value[key].as_array().into_iter().flatten();
    all.filter_map(Value::as_str)
}

/// All that is said to be unknown.
fn unknown(records: &[Value]) -> Vec<String> {
    let mut all = Vec::new();
    for record in records {
        let signals = record["signals"].as_array().into_iter().flatten();
        for part in std::iter::once(record).chain(signals) {
            all.extend(texts(part, "unknown").map(str::to_lowercase));
        }
    }
    all
}

/// What is expected, in a few words.
pub(super) fn describe(expect: &[Expect]) -> String {
    let parts: Vec<String> = expect
        .iter()
        .map(|each| match each {
            Expect::Quiet => String::from("quiet"),
            Expect::Finds(finds) => finds.describe(),
            Expect::May(rule) => format!("({rule})"),
            Expect::Silent(rule) => format!("no {rule}"),
            Expect::Unknown(words) => format!("unknown: {}", words.join("|")),
            Expect::Explains(subject, words) => format!("explain {subject}: {}", words.join(" ")),
            Expect::NeverAdvises(words) => format!("never \"{}\"", words.join(" ")),
        })
        .collect();
    parts.join(", ")
}

/// What came, in a few words.
pub(super) fn summarize(records: &[Value]) -> String {
    let mut said: Vec<String> = Vec::new();
    for finding in findings(records) {
        let text = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
        let detail = ["phase", "effect", "cause"].map(text).join("");
        let slash = if detail.is_empty() { "" } else { "/" };
        let line = format!("{} {}{slash}{detail}", text("severity"), text("rule"));
        if !said.contains(&line) {
            said.push(line);
        }
    }
    if said.is_empty() {
        String::from("nothing")
    } else {
        said.join(", ")
    }
}

/// What of it is not as expected; one line each.
pub(super) fn failures(expect: &[Expect], records: &[Value]) -> Vec<String> {
    let found = findings(records);
    let mut failures = Vec::new();
    let mut allowed: Vec<&str> = Vec::new();
    for each in expect {
        match each {
            Expect::Quiet => {}
            Expect::May(rule) => allowed.push(rule),
            Expect::Finds(finds) => {
                allowed.push(finds.rule);
                let mut ids: Vec<&str> = found
                    .iter()
                    .filter(|finding| finds.fits(finding))
                    .filter_map(|finding| finding["id"].as_str())
                    .collect();
                ids.sort_unstable();
                ids.dedup();
                let enough = finds
                    .times
                    .map_or(!ids.is_empty(), |times| ids.len() == times);
                let over = |id: &&str| {
                    let last = records.iter().rfind(|record| record["id"] == **id);
                    last.is_some_and(|record| record["state"] == "resolved")
                };
                let enough = enough && (!finds.resolved || ids.iter().all(over));
                if !enough {
                    failures.push(format!("{} of: {}", ids.len(), finds.describe()));
                }
            }
            Expect::Silent(rule) => {
                if let Some(finding) = found.iter().find(|finding| finding["rule"] == *rule) {
                    failures.push(format!("said: {}: {}", rule, finding["title"]));
                }
            }
            Expect::Unknown(words) => {
                let all = unknown(records);
                let named =
                    |text: &String| words.iter().any(|word| text.contains(&word.to_lowercase()));
                if !all.iter().any(named) {
                    failures.push(format!("not under unknown: {}", words.join(" | ")));
                }
            }
            Expect::Explains(subject, words) => {
                let about = |record: &&Value| {
                    record["type"] == "explanation"
                        && record["subject"].to_string().contains(subject)
                };
                let text = records.iter().find(about).map(Value::to_string);
                // A recording explains nothing.
                let missing =
                    |word: &&&str| text.as_ref().is_some_and(|text| !text.contains(**word));
                let missing: Vec<_> = words.iter().filter(missing).collect();
                if !missing.is_empty() {
                    failures.push(format!("explain {subject} does not say {missing:?}"));
                }
            }
            Expect::NeverAdvises(words) => {
                for finding in &found {
                    for line in texts(finding, "advice") {
                        if words.iter().all(|word| line.contains(word)) {
                            failures.push(format!("{} advises: {line}", finding["rule"]));
                        }
                    }
                }
            }
        }
    }
    for line in found.iter().flat_map(|finding| commands(finding)) {
        failures.extend(options::fault(line));
    }
    let refused = |record: &&Value| record["pasted"]["done"] == false;
    for pasted in records.iter().filter(refused) {
        failures.push(format!("pasted in vain: {pasted}"));
    }
    for finding in found {
        let rule = finding["rule"].as_str().unwrap_or_default();
        if is_bad(finding) && !allowed.contains(&rule) {
            failures.push(format!(
                "false alarm: {} {rule}: {}",
                finding["severity"].as_str().unwrap_or_default(),
                finding["title"].as_str().unwrap_or_default()
            ));
        }
    }
    failures.dedup();
    failures
}
