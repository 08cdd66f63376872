//! What nodes see now, as one page. Each tracer's pod takes one look and hands its
//! recording on; the page is made here, by `node-tracer report`.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf, absolute};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use event::wording::escape::Printable;
use serde_json::Value;

use crate::question::{Answers, Tracers};

/// Of `node-tracer scan`.
const QUESTION: &[&str] = &["scan", "--record", "-"];
/// Of `node-tracer report`: nothing found, something found, not all was seen.
const TOLD: [u8; 3] = [0, 1, 3];

/// Writes the page of these nodes. Returns the exit code.
pub(crate) fn write(
    tracers: &Tracers<'_>,
    nodes: &[String],
    out: Option<&Path>,
    force: bool,
) -> anyhow::Result<u8> {
    if let Some(out) = out.filter(|out| !force && fs::symlink_metadata(out).is_ok()) {
        let out = out.display();
        bail!("{out} is there already: give another name with --out, or --force to replace it");
    }
    let mut nodes = nodes.to_vec();
    nodes.sort_unstable();
    nodes.dedup();
    let answers = tracers.each(&nodes, QUESTION)?;
    let folder = tempfile::tempdir().context("make a folder for the recordings")?;
    let Kept { names, unknown } = keep(folder.path(), &answers)?;
    for (node, why) in &unknown {
        let line = format!("unknown  {node}: {why}");
        let _ = writeln!(io::stderr(), "{}", Printable(&line));
    }
    if names.is_empty() {
        return Ok(3);
    }
    let code = make(folder.path(), &names, out, force)?;
    Ok(match code {
        0 if !unknown.is_empty() => 3,
        code => code,
    })
}

/// What nodes have handed on.
#[derive(Debug, Default)]
struct Kept {
    /// Names of files.
    names: Vec<String>,
    /// Nodes of which there is none, and why.
    unknown: Vec<(String, String)>,
}

/// Puts whole recordings into files named after their nodes.
fn keep(folder: &Path, answers: &Answers) -> anyhow::Result<Kept> {
    let Kept {
        mut names,
        mut unknown,
    } = Kept::default();
    for (node, answered) in answers {
        let (text, why) = match answered {
            Ok(printed) => printed,
            Err(why) => {
                unknown.push((node.clone(), why.clone()));
                continue;
            }
        };
        if !is_whole(text) {
            unknown.push((node.clone(), why.clone()));
            continue;
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        let name: String = node.chars().filter(|c| plain(*c)).collect();
        let name = format!("{name}.jsonl");
        fs::write(folder.join(&name), text).context("keep a recording")?;
        names.push(name);
    }
    Ok(Kept { names, unknown })
}

/// Whether it is a recording to its end.
fn is_whole(text: &str) -> bool {
    let kind = |line: Option<&str>| {
        let record = line.and_then(|line| serde_json::from_str::<Value>(line).ok());
        record.and_then(|record| Some(record["type"].as_str()?.to_owned()))
    };
    let mut lines = text.lines();
    let (first, last) = (kind(lines.next()), kind(lines.next_back()));
    first.as_deref() == Some("recording") && last.as_deref() == Some("ended")
}

/// Has the page made.
fn make(folder: &Path, names: &[String], out: Option<&Path>, force: bool) -> anyhow::Result<u8> {
    let program = program();
    let out = out.map(absolute).transpose().context("--out")?;
    let out = out.unwrap_or_else(|| PathBuf::from("-"));
    let mut command = Command::new(&program);
    command.arg("report").arg("--output").arg(out);
    if force {
        command.arg("--force");
    }
    // The page names recordings as they are named here.
    command.arg("--").args(names).current_dir(folder);
    let status = command.stdin(Stdio::null()).status();
    let status = status.with_context(|| {
        format!(
            "start {}: it must be beside this plugin or in PATH",
            program.display()
        )
    })?;
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(code) if TOLD.contains(&code) => Ok(code),
        _ => bail!("node-tracer report: {status}"),
    }
}

/// The one beside the plugin, or else the one in PATH.
fn program() -> PathBuf {
    let beside = std::env::current_exe().ok();
    let beside = beside.map(|it| it.with_file_name("node-tracer"));
    let beside = beside.filter(|it| it.is_file());
    beside.unwrap_or_else(|| PathBuf::from("node-tracer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"type":"recording","schema":"node-tracer/1"}"#;
    const END: &str = r#"{"type":"ended"}"#;

    #[test]
    fn only_whole_recordings_are_kept_and_the_other_nodes_are_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let printed = |text: &str| Ok((text.to_owned(), String::from("it broke off")));
        let answers = vec![
            ("n1".into(), printed(&format!("{HEADER}\n{END}\n"))),
            ("n2".into(), printed(&format!("{HEADER}\n{{\"time\""))),
            ("n3".into(), Err("no tracer runs there".into())),
            ("n4".into(), printed("")),
        ];
        let Kept { names, unknown } = keep(folder.path(), &answers).unwrap();
        assert_eq!(names, ["n1.jsonl"]);
        let unknown: Vec<_> = unknown.iter().map(|(node, _)| node.as_str()).collect();
        assert_eq!(unknown, ["n2", "n3", "n4"]);
    }
}
