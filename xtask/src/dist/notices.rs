//! The licences of the libraries that are in the binary: most ask for their
//! text to go with it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::dependencies::{self, Crate};

/// What the files with licences are called, in capital letters.
const NAMES: [&str; 6] = [
    "LICENSE",
    "LICENCE",
    "COPYING",
    "NOTICE",
    "COPYRIGHT",
    "UNLICENSE",
];

const HEAD: &str = "each under the
licence that is named. Besides, Rust's standard library (MIT OR Apache-2.0,
https://www.rust-lang.org) and the C library musl (MIT, https://musl.libc.org,
copyright 2005-2020 Rich Felker and others).
";

/// All of it for a program that is made of these parts, one text once.
pub(super) fn text(program: &str, parts: &[dependencies::Part]) -> anyhow::Result<String> {
    let crates = dependencies::of(parts)?;
    let others = crates.values().filter(|one| one.sha256.is_some());
    let mut out = format!("The following libraries are part of the program {program}, {HEAD}");
    let mut texts: BTreeMap<String, Vec<&Crate>> = BTreeMap::new();
    out.push('\n');
    for one in others {
        writeln!(out, "  {} {}: {}", one.name, one.version, one.licence)?;
        for text in licences(&one.folder)? {
            texts.entry(text).or_default().push(one);
        }
    }
    // In the order of the first crate that has it.
    let mut texts: Vec<(&String, &Vec<&Crate>)> = texts.iter().collect();
    texts.sort_by_key(|(text, of)| (of[0].id(), text.as_str()));
    for (text, of) in texts {
        writeln!(out, "\n{}", "-".repeat(78))?;
        let names: Vec<String> = of
            .iter()
            .map(|one| format!("{} {}", one.name, one.version))
            .collect();
        writeln!(out, "{}\n\n{text}", names.join(", "))?;
    }
    Ok(out)
}

/// The texts in a crate's folder, without what differs by chance: ends of
/// lines, and space around.
fn licences(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut texts = Vec::new();
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_uppercase();
        if !path.is_file() || !NAMES.iter().any(|start| name.starts_with(start)) {
            continue;
        }
        let text = fs::read(&path).with_context(|| path.display().to_string())?;
        let text = String::from_utf8_lossy(&text).replace("\r\n", "\n");
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        texts.push(lines.join("\n").trim_matches('\n').to_owned());
    }
    texts.sort();
    texts.dedup();
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Arch;

    #[test]
    fn each_library_is_named_and_each_text_is_there_once() {
        let text = text("node-tracer", &dependencies::tracer(Arch::HOST)).unwrap();
        assert!(text.contains("\n  aya 0.14.0: MIT OR Apache-2.0\n"));
        assert!(!text.contains("\n  xtask "), "a tool");
        let grant = "Permission is hereby granted, free of charge";
        assert!(text.matches(grant).count() > 1);
        let parts: Vec<&str> = text.split(&"-".repeat(78)).skip(1).collect();
        let mut bodies: Vec<&str> = parts
            .iter()
            .filter_map(|part| Some(part.trim_start().split_once("\n\n")?.1))
            .collect();
        let all = bodies.len();
        bodies.sort_unstable();
        bodies.dedup();
        assert_eq!(bodies.len(), all);
    }
}
