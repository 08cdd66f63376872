//! `bench size`: the static binary that is copied onto nodes, beside what else
//! would have to be installed there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use node_tracer_tests::stage::in_path;

use super::budget::{Budget, Verdict};
use super::{Setting, say};
use crate::dist;

const WHAT: &str = "binary";

/// The one that was named, or else the one to be released; quickly: only if it
/// is there.
pub(super) fn run(setting: &Setting) -> anyhow::Result<Vec<Budget>> {
    let binary = match setting.given {
        true => Some(setting.tracer.clone()),
        false => dist::static_binary(!setting.quick)?,
    };
    let Some(binary) = binary else {
        let why = "none is built: cargo xtask dist";
        return Ok(vec![Budget::not_measured(WHAT, why)]);
    };
    say(&format!("{}", binary.display()));
    let size = bytes(&binary)?;
    let bpftrace = in_path("bpftrace").map(|path| with_libraries(&path));
    let bpftrace = bpftrace.transpose()?;
    let megabytes = |size: u64| size as f64 / 1e6;
    Ok(vec![Budget {
        what: WHAT.to_owned(),
        limit: format!("≤ {} MB", megabytes(dist::BUDGET as u64)),
        measured: format!("{:.2} MB", megabytes(size)),
        peers: bpftrace
            .map(|size| format!("bpftrace and its libraries {:.0} MB", megabytes(size)))
            .into_iter()
            .collect(),
        verdict: Verdict::of(size <= dist::BUDGET as u64),
    }])
}

fn bytes(path: &Path) -> anyhow::Result<u64> {
    let metadata = fs::metadata(path).with_context(|| path.display().to_string())?;
    Ok(metadata.len())
}

/// A program and all that the dynamic linker loads for it.
fn with_libraries(program: &Path) -> anyhow::Result<u64> {
    let output = Command::new("ldd").arg(program).output();
    let output = output.context("start ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut files: BTreeSet<PathBuf> = libraries(&text).collect();
    files.insert(program.to_owned());
    files.iter().map(|file| bytes(file)).sum()
}

/// `name => /path (address)`, or `/path (address)`.
fn libraries(ldd: &str) -> impl Iterator<Item = PathBuf> {
    let word = |line: &str| {
        let path = line.split_whitespace().find(|word| word.starts_with('/'))?;
        Some(PathBuf::from(path))
    };
    ldd.lines().filter_map(word).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_as_large_as_all_that_it_loads() {
        let ldd = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/libc.so.6 (0x2)\n\t\
            /lib64/ld-linux-x86-64.so.2 (0x3)\n";
        let all: Vec<PathBuf> = libraries(ldd).collect();
        assert_eq!(
            all,
            [
                PathBuf::from("/lib/libc.so.6"),
                PathBuf::from("/lib64/ld-linux-x86-64.so.2")
            ]
        );
        let own = std::env::current_exe().unwrap();
        assert!(with_libraries(&own).unwrap() > bytes(&own).unwrap());
    }
}
