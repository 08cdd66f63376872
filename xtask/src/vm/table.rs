//! What the guests reported, as tables with a column for each kernel: by which
//! mechanisms a signal was seen, and how many cases of each suite passed. What
//! did not pass is named.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::generated;

/// Mechanisms, the best first.
const MECHANISMS: [&str; 6] = [
    "fentry",
    "kprobe",
    "tp_btf",
    "raw_tp",
    "iterator",
    "comparison",
];

/// All cells of one kernel.
#[derive(Debug, Default)]
struct Rows {
    /// In the order in which they came.
    names: Vec<String>,
    cells: BTreeMap<(String, String), String>,
}

/// The table as it fills.
#[derive(Debug, Default)]
pub(crate) struct Table {
    kernels: Vec<(String, Rows)>,
    /// (suite, case) in the order in which they came, with the verdict by kernel.
    cases: Vec<((String, String), BTreeMap<String, String>)>,
    failed: usize,
}

impl Table {
    pub(crate) fn kernel(&mut self, label: &str) {
        self.kernels.push((label.to_owned(), Rows::default()));
    }

    /// Takes in one report, if it is about a cell.
    pub(crate) fn take(&mut self, report: &Value) {
        let text = |key: &str| report[key].as_str().unwrap_or_default().to_owned();
        let verdict = text("verdict");
        if verdict == "FAILED" {
            self.failed += 1;
        }
        let Some((label, rows)) = self.kernels.last_mut() else {
            return;
        };
        if report["kind"] == "case" {
            let key = (text("suite"), text("case"));
            let label = label.clone();
            let at = self.cases.iter().position(|(other, _)| *other == key);
            let at = at.unwrap_or_else(|| {
                self.cases.push((key, BTreeMap::new()));
                self.cases.len() - 1
            });
            let cell = self.cases[at].1.entry(label).or_default();
            if cell != "FAILED" {
                *cell = verdict;
            }
            return;
        }
        if report["kind"] != "cell" {
            return;
        }
        let (signal, mechanism) = (text("signal"), text("mechanism"));
        if !rows.names.contains(&signal) {
            rows.names.push(signal.clone());
        }
        // A failure is not made good by what comes after it.
        let cell = rows.cells.entry((signal, mechanism)).or_default();
        if cell != "FAILED" {
            *cell = verdict;
        }
    }

    /// Something that was to run and did not.
    pub(crate) fn fail(&mut self) {
        self.failed += 1;
    }

    pub(crate) fn failures(&self) -> usize {
        self.failed
    }
}

impl std::fmt::Display for Table {
    /// In Markdown, as the document has it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (signals, suites) = (self.signals(), self.suites());
        if signals.len() > 1 {
            write!(f, "{}", generated::table(&signals))?;
        }
        if suites.len() > 1 {
            write!(f, "\n{}", generated::table(&suites))?;
        }
        Ok(())
    }
}

/// What passed in words that the caller chooses, and what did not by its verdict.
fn cell<'a>(
    verdicts: impl Iterator<Item = (&'a str, &'a str)>,
    passed: impl Fn(&[&str]) -> String,
) -> String {
    let mut by_verdict: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, verdict) in verdicts {
        by_verdict.entry(verdict).or_default().push(name);
    }
    let ok = by_verdict.remove("ok").map(|names| passed(&names));
    let others = by_verdict
        .iter()
        .map(|(verdict, names)| format!("{verdict}: {}", names.join(", ")));
    ok.into_iter().chain(others).collect::<Vec<_>>().join("; ")
}

/// The values, each once, in the order in which they come.
fn distinct<'a>(values: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all = Vec::new();
    for value in values {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}

impl Table {
    fn header(&self, first: &str) -> Vec<String> {
        let labels = self.kernels.iter().map(|(label, _)| label.clone());
        std::iter::once(first.to_owned()).chain(labels).collect()
    }

    fn signals(&self) -> Vec<Vec<String>> {
        let names = self.kernels.iter().flat_map(|(_, rows)| &rows.names);
        let mut table = vec![self.header("signal")];
        for signal in distinct(names.map(String::as_str)) {
            let cells = self.kernels.iter().map(|(_, rows)| {
                let verdicts = MECHANISMS.iter().filter_map(|mechanism| {
                    let key = (signal.to_owned(), (*mechanism).to_owned());
                    Some((*mechanism, rows.cells.get(&key)?.as_str()))
                });
                cell(verdicts, |names| names.join(", "))
            });
            table.push(std::iter::once(signal.to_owned()).chain(cells).collect());
        }
        table
    }

    fn suites(&self) -> Vec<Vec<String>> {
        let names = self.cases.iter().map(|((suite, _), _)| suite.as_str());
        let mut table = vec![self.header("suite")];
        for suite in distinct(names) {
            let cells = self.kernels.iter().map(|(label, _)| {
                let cases = self.cases.iter().filter(|((of, _), _)| of == suite);
                let verdicts = cases.filter_map(|((_, case), verdicts)| {
                    Some((case.as_str(), verdicts.get(label)?.as_str()))
                });
                cell(verdicts, |names| format!("{} ok", names.len()))
            });
            table.push(std::iter::once(suite.to_owned()).chain(cells).collect());
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_failure_stays_one() {
        let mut table = Table::default();
        table.kernel("6.1.0-1");
        for verdict in ["ok", "FAILED", "ok"] {
            table.take(&json!({"kind": "cell", "signal": "address", "mechanism": "kprobe", "verdict": verdict}));
        }
        table.take(&json!({"kind": "note", "text": "x"}));
        assert_eq!(table.failures(), 1);
        let text = table.to_string();
        assert!(
            text.contains("| signal | 6.1.0-1 |") && text.contains("| address | FAILED: kprobe |"),
            "{text}"
        );
    }

    #[test]
    fn what_passed_is_counted_and_what_did_not_is_named() {
        let mut table = Table::default();
        for (kernel, verdict) in [("6.1.0-1", "ok"), ("6.12", "FAILED")] {
            table.kernel(kernel);
            for (case, verdict) in [("boot", "ok"), ("ghost", verdict)] {
                table.take(
                    &json!({"kind": "case", "suite": "node", "case": case, "verdict": verdict}),
                );
            }
        }
        assert_eq!(table.failures(), 1);
        let text = table.to_string();
        assert!(
            text.contains("| node | 2 ok | 1 ok; FAILED: ghost |"),
            "{text}"
        );
    }
}
