//! The documents: what must be so of them, for `lint`, and which there are, for
//! `dist`.
//!
//! Links lead to files and headings that exist, and the README stays two
//! screens long and has a row for each rule.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::cargo;

/// Below the repository's root.
pub(crate) const FOLDER: &str = "node-tracer/doc";
const RULES: &str = "node-tracer/rules";
const README: &str = "README.md";
const README_LIMIT: usize = 9_216;

/// A Markdown file, by its path below the repository's root.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// The README, what is in `node-tracer/doc`, and the rules' pages.
pub(crate) fn all() -> anyhow::Result<Vec<Document>> {
    let root = cargo::root();
    let mut paths = vec![PathBuf::from(README)];
    for folder in [FOLDER, RULES] {
        let entries = fs::read_dir(root.join(folder)).context(folder)?;
        for entry in entries {
            let path = Path::new(folder).join(entry.context(folder)?.file_name());
            if path.extension().is_some_and(|kind| kind == "md") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(root.join(&path));
        let text = text.with_context(|| path.display().to_string())?;
        Ok(Document { path, text })
    };
    paths.into_iter().map(read).collect()
}

/// What is wrong with the documents, a line each.
pub(crate) fn problems() -> anyhow::Result<Vec<String>> {
    let documents = all()?;
    let mut problems = Vec::new();
    for document in &documents {
        let name = document.path.display();
        problems.extend(links(document).map(|problem| format!("{name}: {problem}")));
        if document.path == Path::new(README) && document.text.len() > README_LIMIT {
            let length = document.text.len();
            problems.push(format!("{name}: {length} bytes, not {README_LIMIT}"));
        }
    }
    for (document, row) in [
        (PathBuf::from(README), "| `RULE` |"),
        (Path::new(FOLDER).join("findings.md"), "| [RULE]("),
    ] {
        let name = document.display();
        let text = documents.iter().find(|other| other.path == document);
        let text = &text.with_context(|| format!("no {name}"))?.text;
        for page in documents
            .iter()
            .filter(|other| other.path.starts_with(RULES))
        {
            let rule = page.path.file_stem().unwrap_or_default().to_string_lossy();
            if !text.contains(&row.replace("RULE", &rule)) {
                problems.push(format!("{name}: no row for the rule {rule}"));
            }
        }
    }
    Ok(problems)
}

/// Links to what does not exist.
fn links(document: &Document) -> impl Iterator<Item = String> {
    let folder = document.path.parent().unwrap_or(Path::new(""));
    let targets: Vec<&str> = prose(&document.text)
        .flat_map(|line| line.split("](").skip(1))
        .filter_map(|rest| Some(rest.split_once(')')?.0))
        .filter(|target| !target.contains("://"))
        .collect();
    targets.into_iter().filter_map(move |target| {
        let (path, anchor) = match target.split_once('#') {
            Some((path, anchor)) => (path, Some(anchor)),
            None => (target, None),
        };
        let text = match path {
            "" => Some(document.text.clone()),
            _ => {
                let path = cargo::root().join(folder).join(path);
                if !path.exists() {
                    return Some(format!("no file {target}"));
                }
                fs::read_to_string(path).ok()
            }
        };
        let anchor = anchor?;
        let found = text.is_some_and(|text| anchors(&text).iter().any(|other| other == anchor));
        (!found).then(|| format!("no heading {target}"))
    })
}

/// The lines outside of blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The headings' anchors, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for line in prose(text).filter(|line| line.starts_with('#')) {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading
            .chars()
            .filter(|kept| kept.is_alphanumeric() || " -_".contains(*kept));
        let anchor: String = kept
            .map(|kept| if kept == ' ' { '-' } else { kept })
            .collect();
        let same = all.iter().filter(|other| **other == anchor).count();
        all.push(match same {
            0 => anchor,
            _ => format!("{anchor}-{same}"),
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn document(text: &str) -> Document {
        Document {
            path: Path::new(FOLDER).join("findings.md"),
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_link_leads_to_a_file_and_a_heading_that_exist() {
        let text = "# A heading: `x` & y\n[1](glossary.md) [2](#a-heading-x--y) [3](https://x/#y)\n\
                    ```\n[4](in-code.md)\n```\n[5](none.md) [6](#none) [7](glossary.md#none)\n";
        let found: Vec<String> = links(&document(text)).collect();
        assert_eq!(
            found,
            [
                "no file none.md",
                "no heading #none",
                "no heading glossary.md#none"
            ]
        );
    }

    /// The calls of the tracer in blocks of code, without comments and pipes.
    fn calls(text: &str) -> Vec<Vec<String>> {
        let quoted: Vec<&str> = prose(text).collect();
        let code = text.lines().filter(|line| !quoted.contains(line));
        code.filter_map(|line| {
            let starts = ["node-tracer ", "./node-tracer "].map(|start| line.strip_prefix(start));
            let within = ["| node-tracer ", " -- node-tracer "]
                .map(|middle| Some(line.split_once(middle)?.1));
            let call = starts.into_iter().chain(within).flatten().next()?;
            let call = call.split(['#', '|']).next()?;
            Some(call.split_whitespace().map(str::to_owned).collect())
        })
        .collect()
    }

    #[test]
    fn each_call_of_the_tracer_is_one_that_it_takes() {
        let mut count = 0;
        for document in all().unwrap() {
            for call in calls(&document.text) {
                let line = std::iter::once("node-tracer").chain(call.iter().map(String::as_str));
                if let Err(error) = cli::Cli::try_parse_from(line) {
                    panic!("{}: {call:?}: {error}", document.path.display());
                }
                count += 1;
            }
        }
        assert!(count > 20, "{count}");
    }

    #[test]
    fn the_tests_that_security_names_exist() {
        let document = all().unwrap().into_iter();
        let mut security = document.filter(|one| one.path.ends_with("security.md"));
        let text = security.next().unwrap().text;
        let tests: Vec<&str> = text
            .split('`')
            .filter(|word| word.contains('_') && !word.contains(' '))
            .filter(|word| {
                word.chars()
                    .all(|letter| letter.is_lowercase() || "_*".contains(letter))
            })
            .map(|word| word.trim_end_matches('*'))
            .collect();
        let mut sources = Vec::new();
        for folder in ["node-tracer", "tests", "xtask"] {
            read_sources(&cargo::root().join(folder), &mut sources);
        }
        assert!(tests.len() > 20, "{tests:?}");
        for test in tests {
            assert!(sources.iter().any(|source| source.contains(test)), "{test}");
        }
    }

    fn read_sources(folder: &Path, into: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                read_sources(&path, into);
            } else if path.extension().is_some_and(|kind| kind == "rs") {
                into.push(fs::read_to_string(&path).unwrap());
            }
        }
    }

    #[test]
    fn the_documents_are_in_order() {
        assert_eq!(problems().unwrap(), Vec::<String>::new());
    }
}
