//! Phrases that readers stumbled over stay out of what people read: documents,
//! output, help, comments.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use crate::cargo;

/// Such a phrase, and what is clear instead.
const REPLACED: [(&str, &str); 30] = [
    ("given it, too", "now has the same IP"),
    ("and for nobody else, until", "reserved until CNI DEL runs"),
    ("takes it back", "frees it even if in use"),
    ("no list that was seen", "already gone at the first look"),
    ("no pod list tells", "no API access"),
    ("is not on the pod list", "not in the API"),
    ("was listed and is not", "disappeared from the API"),
    ("libcni still has", "CNI DEL not completed"),
    ("sandbox as ready", "CRI: sandbox Ready"),
    ("have the runtime finish", "remove the old sandbox"),
    ("they take signals", "kill them; signals work"),
    ("before the tracer looked", "present at first look"),
    ("keeps netns", "holds netns N open"),
    ("in uninterruptible sleep, keeps", "holds netns N open"),
    ("fail the I/O", "all users get I/O errors"),
    ("may print anything", "both must print nothing"),
    ("minds the container", "checks the container ID"),
    ("set up anew", "recreate the pod"),
    ("nobody knows how", "exit status unknown"),
    ("its host end", "host-side veth"),
    ("host's end", "host-side veth"),
    ("in what could be read", "no holder found; incomplete"),
    ("as far as could be seen", "no problem found; incomplete"),
    ("nothing that can be looked up", "not recognised"),
    ("take stock", "read what is there"),
    ("taking stock", "reading the node"),
    ("the job could not be done", "error"),
    ("let go before the walk", "very short-lived namespaces"),
    ("lacks most of the pods", "wrong cluster or namespace?"),
    ("for a person", "manual steps"),
];

/// Names of files that say nothing to who opens that one file.
const VAGUE: [&str; 24] = [
    "telling", "told", "doubts", "claims", "look", "looks", "hand", "hands", "known", "note",
    "past", "lists", "words", "story", "teller", "tie", "stand", "standing", "giver", "fate",
    "heir", "rival", "cable", "stranger",
];

/// Each file of the repository that has one of [`REPLACED`], or is named as one of
/// [`VAGUE`], a line each.
pub(crate) fn problems() -> anyhow::Result<Vec<String>> {
    let mut problems = Vec::new();
    for path in cargo::own_files(cargo::root())? {
        let is_read = path.extension().is_some_and(|kind| {
            ["md", "rs", "catalog", "service", "yaml"]
                .iter()
                .any(|it| kind == *it)
        });
        let is_code = path
            .extension()
            .is_some_and(|kind| kind == "rs" || kind == "html");
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        if is_code && stem.is_some_and(|stem| VAGUE.contains(&stem)) {
            problems.push(format!("{}: name it after what is in it", path.display()));
        }
        if !is_read || path == Path::new(file!()) {
            continue;
        }
        let text = fs::read_to_string(cargo::root().join(&path));
        let text = text.with_context(|| path.display().to_string())?;
        let name = path.display();
        problems.extend(found(&text).map(|problem| format!("{name}: {problem}")));
    }
    Ok(problems)
}

/// The phrases of a text, wherever a line of it breaks.
fn found(text: &str) -> impl Iterator<Item = String> {
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || c == '\\')
        .filter(|word| !matches!(*word, "" | "//" | "///" | "//!"))
        .collect();
    let text = words.join(" ").to_lowercase();
    let found = REPLACED
        .iter()
        .filter(move |(phrase, _)| text.contains(phrase));
    found.map(|(phrase, clear)| format!("`{phrase}`; clearer: `{clear}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phrase_is_found_across_lines_of_text_comments_and_strings() {
        for text in [
            "It is Set up\n  anew.",
            "/// It is set\n/// up anew",
            "\"is set \\\n up anew\"",
        ] {
            let found: Vec<String> = found(text).collect();
            assert_eq!(found, ["`set up anew`; clearer: `recreate the pod`"]);
        }
        assert_eq!(found("The pod is recreated.").count(), 0);
    }
}
