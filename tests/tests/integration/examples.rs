//! Examples in the documents are what the tool prints.
//!
//! A line `<!-- node-tracer ARGS -->` above a block of a document says what
//! printed it, in `tests/fixtures/examples`. `UPDATE_GOLDEN=1 cargo xtask test
//! -- examples` prints the blocks and the picture anew: read the difference.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use node_tracer_tests::picture;
use node_tracer_tests::stage::Need;
use node_tracer_tests::test;
use node_tracer_tests::tracer::command;

const BEGIN: &str = "\n<!-- node-tracer ";
const END: &str = " -->\n";
const FENCE: &str = "```\n";

/// Columns of a text that goes to a file.
const COLUMNS: usize = 100;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// What a command prints.
fn printed(args: &[&str]) -> anyhow::Result<String> {
    let folder = repository().join("tests/fixtures/examples");
    let mut line = command(args)?;
    line.current_dir(&folder)
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR_FORCE");
    let output = line.output().context("the tracer")?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(
        !text.is_empty(),
        "{args:?} prints nothing: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(text)
}

/// A document with its examples printed anew, and how many they are.
fn anew(document: &str) -> anyhow::Result<(String, usize)> {
    let mut text = String::new();
    let mut rest = document;
    let mut count = 0;
    while let Some((before, begun)) = rest.split_once(BEGIN) {
        let (args, begun) = begun.split_once(END).context("no end of a mark")?;
        let begun = begun
            .strip_prefix(FENCE)
            .context("no block behind a mark")?;
        let (_, after) = begun.split_once(FENCE).context("no end of a block")?;
        let words: Vec<&str> = args.split(' ').collect();
        let printed = printed(&words)?;
        text += &format!(
            "{before}{BEGIN}{args}{END}{FENCE}{}\n{FENCE}",
            printed.trim()
        );
        rest = after;
        count += 1;
    }
    Ok((text + rest, count))
}

/// Compares a file with what it should be, or makes it so.
fn compare(path: &Path, expected: &str) -> anyhow::Result<()> {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(path, expected)?;
    }
    let actual = fs::read_to_string(path).unwrap_or_default();
    let differs = expected.lines().zip(actual.lines()).find(|(a, b)| a != b);
    ensure!(
        actual == expected,
        "{} is not what is printed: {differs:?}",
        path.display()
    );
    Ok(())
}

test!(
    &[Need::Tracer],
    examples_in_the_documents_are_what_the_tool_prints
);
fn examples_in_the_documents_are_what_the_tool_prints() -> anyhow::Result<()> {
    let mut paths = vec![repository().join("README.md")];
    for entry in fs::read_dir(repository().join("node-tracer/doc"))? {
        let path = entry?.path();
        let is_document = path.extension().is_some_and(|ext| ext == "md");
        paths.extend(is_document.then_some(path));
    }
    let mut with_examples = Vec::new();
    for path in paths {
        let before = fs::read_to_string(&path)?;
        let (after, count) = anew(&before).with_context(|| path.display().to_string())?;
        compare(&path, &after)?;
        if count > 0 {
            with_examples.extend(path.file_stem().map(|name| name.display().to_string()));
        }
    }
    for name in ["README", "findings", "logs"] {
        let has = with_examples.iter().any(|one| one == name);
        ensure!(has, "{name} has no example that is printed");
    }
    Ok(())
}

test!(&[Need::Tracer], examples_picture_is_what_the_tool_prints);
fn examples_picture_is_what_the_tool_prints() -> anyhow::Result<()> {
    let text = printed(&["--color", "always", "replay", "incident.jsonl"])?;
    let title = "node-tracer scan: an IP is used by a deleted and a running pod";
    compare(
        &repository().join("node-tracer/doc/incident.svg"),
        &picture::svg(text.trim_end(), COLUMNS, title),
    )
}
