//! What nodes see now, as one page. Each tracer's pod takes one look and hands its
//! recording on; the page is made here, by `node-tracer report`.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write as _};
use std::path::{Path, PathBuf, absolute};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use event::wording::escape::Printable;
use serde_json::Value;

use crate::question::Tracers;
use crate::tracers::Tracer;

/// Of `node-tracer scan`.
const QUESTION: &[&str] = &["scan", "--record", "-"];
/// One node's recording; more of it is not read.
const MAX_RECORDING: u64 = 32 << 20;
/// Its first line and its last one take less.
const MAX_LINE: u64 = 64 << 10;
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
    let folder = tempfile::tempdir().context("make a folder for the recordings")?;
    let Kept { names, unknown } = keep(folder.path(), tracers, &nodes)?;
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
fn keep(folder: &Path, tracers: &Tracers<'_>, nodes: &[String]) -> anyhow::Result<Kept> {
    let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    let name = |node: &str| format!("{}.jsonl", node.chars().filter(plain).collect::<String>());
    let ask = |node: &str, tracer: &Tracer| {
        let path = folder.join(name(node));
        record(&path, |take| tracers.ask_one(tracer, QUESTION, take))
            .unwrap_or_else(|error| Err(format!("keep its recording: {error}")))
    };
    let mut kept = Kept::default();
    for (node, answered) in tracers.each(&tracers.speakers()?, nodes, ask)? {
        match answered {
            Ok(()) => kept.names.push(name(&node)),
            Err(why) => kept.unknown.push((node, why)),
        }
    }
    Ok(kept)
}

/// Writes what a node hands on into a file, as it comes; or says why that is no
/// whole recording.
fn record(
    path: &Path,
    ask: impl FnOnce(&mut dyn FnMut(&[u8]) -> bool) -> Result<String, String>,
) -> io::Result<Result<(), String>> {
    let mut file = File::options()
        .create_new(true)
        .read(true)
        .write(true)
        .open(path)?;
    let (mut length, mut written) = (0, Ok(()));
    let asked = ask(&mut |piece| {
        length += piece.len() as u64;
        if length <= MAX_RECORDING && written.is_ok() {
            written = file.write_all(piece);
        }
        length <= MAX_RECORDING && written.is_ok()
    });
    written?;
    Ok(match asked {
        Ok(why) => is_whole(&mut file)?.then_some(()).ok_or(why),
        Err(why) => Err(why),
    })
}

/// Whether it is a recording to its end.
fn is_whole(file: &mut (impl Read + Seek)) -> io::Result<bool> {
    let kind = |line: &[u8]| {
        let record = serde_json::from_slice::<Value>(line).ok();
        record.and_then(|record| Some(record["type"].as_str()?.to_owned()))
    };
    let mut ends = Vec::new();
    file.rewind()?;
    file.take(MAX_LINE).read_to_end(&mut ends)?;
    let first = kind(ends.split(|byte| *byte == b'\n').next().unwrap_or_default());
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_LINE)))?;
    ends.clear();
    file.take(MAX_LINE).read_to_end(&mut ends)?;
    let last = kind(
        ends.trim_ascii_end()
            .rsplit(|byte| *byte == b'\n')
            .next()
            .unwrap_or_default(),
    );
    Ok(first.as_deref() == Some("recording") && last.as_deref() == Some("ended"))
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

    /// What is kept of a node that prints this.
    fn recorded(text: &str) -> Result<(), String> {
        let folder = tempfile::tempdir().unwrap();
        let ask =
            |take: &mut dyn FnMut(&[u8]) -> bool| match text.as_bytes().chunks(1 << 16).all(take) {
                true => Ok("it broke off".to_owned()),
                false => Err("it says more than is kept".to_owned()),
            };
        record(&folder.path().join("n1.jsonl"), ask).unwrap()
    }

    #[test]
    fn only_whole_recordings_are_kept() {
        let whole = |middle: &str| format!("{HEADER}\n{middle}{END}\n");
        assert_eq!(recorded(&whole("")), Ok(()));
        assert_eq!(recorded(&whole(&"{}\n".repeat(100_000))), Ok(()));
        for text in [&format!("{HEADER}\n{{\"time\""), "", END] {
            assert_eq!(recorded(text), Err("it broke off".into()));
        }
        let large = recorded(&whole(&"{}\n".repeat(12 << 20)));
        assert_eq!(large, Err("it says more than is kept".into()));
    }
}
