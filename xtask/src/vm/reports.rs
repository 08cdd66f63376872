//! What the guests report: shown as it comes, kept in the cache, and read again
//! for the document.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::kernel::{self, Kernel};
use super::suite::Suite;
use super::table::Table;

/// What one suite on one kernel reports: the kernel first, then a report a line.
#[derive(Debug)]
pub(crate) struct Reports(File);

fn path(cache: &Path, kernel: &str, suite: Suite, whole: bool) -> PathBuf {
    let name = suite.name();
    let part = if whole { "" } else { "-part" };
    cache.join(kernel).join(format!("{name}{part}.jsonl"))
}

impl Reports {
    /// In the place of what was reported last time. `whole`: all of the suite
    /// is run; what a part reports is for reading only.
    pub(crate) fn create(
        cache: &Path,
        kernel: &Kernel,
        suite: Suite,
        whole: bool,
    ) -> anyhow::Result<Self> {
        let path = path(cache, kernel.name, suite, whole);
        let mut file = File::create(&path).with_context(|| path.display().to_string())?;
        let guest = json!({ "kind": "guest", "release": kernel.release });
        writeln!(file, "{guest}").with_context(|| path.display().to_string())?;
        Ok(Self(file))
    }

    /// One more. What matters is on the terminal, too, so it may fail.
    pub(crate) fn keep(&mut self, report: &Value) {
        let _ = writeln!(self.0, "{report}");
    }
}

/// What the last whole run of each suite on each kernel said: the tables, and
/// what is to be said below them.
pub(crate) fn all(cache: &Path) -> (Table, Vec<String>) {
    let mut table = Table::default();
    let mut remarks = Vec::new();
    for wanted in kernel::ALL {
        let mut label = None;
        for suite in Suite::ALL {
            let kept = fs::read_to_string(path(cache, wanted.name, suite, true));
            for line in kept.unwrap_or_default().lines() {
                let Ok(report) = serde_json::from_str::<Value>(line) else {
                    continue;
                };
                if report["kind"] == "guest" {
                    let release = report["release"].as_str().unwrap_or(wanted.name);
                    if label.as_deref() != Some(release) {
                        table.kernel(release);
                        label = Some(release.to_owned());
                    }
                    continue;
                }
                table.take(&report);
                let release = label.as_deref().unwrap_or(wanted.name);
                remarks.extend(remark(release, &report).filter(|new| !remarks.contains(new)));
            }
        }
    }
    (table, remarks)
}

/// What a report is as a line on the terminal.
pub(crate) fn line(report: &Value) -> Option<String> {
    let text = |key: &str| report[key].as_str().unwrap_or_default();
    match text("kind") {
        "cell" => Some(format!(
            "{:8} {:16} {:10} {:6.1} s  {}",
            text("verdict"),
            text("signal"),
            text("mechanism"),
            report["seconds"].as_f64().unwrap_or_default(),
            text("detail").replace('\n', "\n         "),
        )),
        "case" => Some(format!(
            "{:8} {:10} {:6.1} s  {}  {}",
            text("verdict"),
            text("suite"),
            report["seconds"].as_f64().unwrap_or_default(),
            text("case"),
            text("detail").replace('\n', "\n         "),
        )),
        "text" => Some(format!("         {}", text("text"))),
        _ => None,
    }
}

/// Failures and refusals are said again at the end.
pub(crate) fn remark(release: &str, report: &Value) -> Option<String> {
    let text = |key: &str| report[key].as_str().unwrap_or_default();
    let what = match text("kind") {
        "cell" => format!("{} {}", text("signal"), text("mechanism")),
        "case" => format!("{} {}", text("suite"), text("case")),
        _ => return None,
    };
    let (verdict, detail) = (text("verdict"), text("detail"));
    let worth = matches!(verdict, "FAILED" | "refused" | "skipped");
    worth.then(|| format!("{release} {what} {verdict}: {detail}"))
}
