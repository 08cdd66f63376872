//! What the guests reported, as one table: kernel, signal, mechanism, verdict.

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
    failed: usize,
}

impl Table {
    /// From here on a kernel's.
    pub(crate) fn kernel(&mut self, label: &str) {
        self.kernels.push((label.to_owned(), Rows::default()));
    }

    /// Takes in one report, if it is about a cell.
    pub(crate) fn take(&mut self, report: &Value) {
        let text = |key: &str| report[key].as_str().unwrap_or_default().to_owned();
        if report["kind"] != "cell" {
            return;
        }
        let (signal, mechanism) = (text("signal"), text("mechanism"));
        let verdict = text("verdict");
        if verdict == "FAILED" {
            self.failed += 1;
        }
        let Some((_, rows)) = self.kernels.last_mut() else {
            return;
        };
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

    /// How much failed.
    pub(crate) fn failures(&self) -> usize {
        self.failed
    }
}

impl std::fmt::Display for Table {
    /// In Markdown, to be pasted.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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
}
