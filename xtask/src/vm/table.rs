//! What the guests reported, as tables: kernel, signal, mechanism, verdict; and
//! case by kernel, of the suites that are lists of cases.

use std::collections::BTreeMap;

use serde_json::Value;

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
    /// In Markdown, to be pasted.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.kernels.iter().any(|(_, rows)| !rows.names.is_empty()) {
            self.signals(f)?;
        }
        if !self.cases.is_empty() {
            writeln!(f)?;
            self.cases(f)?;
        }
        Ok(())
    }
}

impl Table {
    fn signals(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let width = self.kernels.iter().map(|(label, _)| label.len()).max();
        let width = width.unwrap_or(0).max(6);
        write!(f, "| {:width$} | {:15} |", "kernel", "signal")?;
        for mechanism in MECHANISMS {
            write!(f, " {mechanism:10} |")?;
        }
        writeln!(f)?;
        write!(f, "|{}|{}|", "-".repeat(width + 2), "-".repeat(17))?;
        for _ in MECHANISMS {
            write!(f, "{}|", "-".repeat(12))?;
        }
        writeln!(f)?;
        for (label, rows) in &self.kernels {
            for signal in &rows.names {
                write!(f, "| {label:width$} | {signal:15} |")?;
                for mechanism in MECHANISMS {
                    let key = (signal.clone(), mechanism.to_owned());
                    let verdict = rows.cells.get(&key).map_or("", String::as_str);
                    write!(f, " {verdict:10} |")?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }

    fn cases(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let width = |text: &str| text.chars().count();
        let suites = self.cases.iter().map(|((suite, _), _)| width(suite));
        let suites = suites.max().unwrap_or(0).max(5);
        let names = self.cases.iter().map(|((_, case), _)| width(case));
        let names = names.max().unwrap_or(0);
        write!(f, "| {:suites$} | {:names$} |", "suite", "case")?;
        for (label, _) in &self.kernels {
            write!(f, " {label:8} |")?;
        }
        writeln!(f)?;
        write!(f, "|{}|{}|", "-".repeat(suites + 2), "-".repeat(names + 2))?;
        for (label, _) in &self.kernels {
            write!(f, "{}|", "-".repeat(label.len().max(8) + 2))?;
        }
        writeln!(f)?;
        for ((suite, case), verdicts) in &self.cases {
            write!(f, "| {suite:suites$} | {case:names$} |")?;
            for (label, _) in &self.kernels {
                let verdict = verdicts.get(label).map_or("", String::as_str);
                let width = label.len().max(8);
                write!(f, " {verdict:width$} |")?;
            }
            writeln!(f)?;
        }
        Ok(())
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
            text.contains("| 6.1.0-1 | address         |            | FAILED     |"),
            "{text}"
        );
    }

    #[test]
    fn a_case_has_a_column_for_each_kernel() {
        let mut table = Table::default();
        for (kernel, verdict) in [("6.1.0-1", "ok"), ("6.12", "FAILED")] {
            table.kernel(kernel);
            table.take(
                &json!({"kind": "case", "suite": "node", "case": "ghost", "verdict": verdict}),
            );
        }
        assert_eq!(table.failures(), 1);
        let text = table.to_string();
        assert!(
            text.contains("| node  | ghost | ok       | FAILED   |"),
            "{text}"
        );
    }
}
