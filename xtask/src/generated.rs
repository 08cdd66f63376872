//! Tables in the documents: put there by the command that made them.

use std::fs;

use anyhow::Context as _;

use crate::cargo;

const END: &str = "<!-- end -->\n";

/// The line above what `cargo xtask COMMAND --doc` has made.
fn begin(command: &str) -> String {
    format!("<!-- made by cargo xtask {command} --doc -->\n")
}

/// Puts Markdown into a document (its name in `node-tracer/doc`), in the place
/// of what this command has put there before.
pub(crate) fn write(document: &str, command: &str, text: &str) -> anyhow::Result<()> {
    let path = cargo::root().join("node-tracer/doc").join(document);
    let before = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let begin = begin(command);
    let changed = replaced(&before, &begin, text)
        .with_context(|| format!("{}: no line {}", path.display(), begin.trim()))?;
    fs::write(&path, changed).with_context(|| path.display().to_string())
}

/// Rows as a Markdown table; the first row is the header. Cells are not padded:
/// one long cell would make every row as long.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let cells: Vec<String> = row
            .iter()
            .map(|cell| cell.replace('|', "\\|").replace('\n', " "))
            .collect();
        text += &format!("| {} |\n", cells.join(" | "));
        if index == 0 {
            text += &format!("|{}\n", "---|".repeat(row.len()));
        }
    }
    text
}

fn replaced(document: &str, begin: &str, text: &str) -> Option<String> {
    let (before, rest) = document.split_once(begin)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{begin}\n{}\n\n{END}{after}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let (one, other) = (begin("one"), begin("other"));
        let document = format!("a\n{other}kept\n{END}{one}old\n{END}b\n");
        let once = replaced(&document, &one, "new\n").unwrap();
        assert_eq!(once, format!("a\n{other}kept\n{END}{one}\nnew\n\n{END}b\n"));
        assert_eq!(replaced(&once, &one, "new").unwrap(), once);
        assert_eq!(replaced("without marks", &one, "new"), None);
    }

    #[test]
    fn a_cell_breaks_no_table() {
        let rows = [vec!["a", "b"], vec!["x|y", "1\n2"]];
        let rows = rows.map(|row| row.into_iter().map(String::from).collect());
        assert_eq!(table(&rows), "| a | b |\n|---|---|\n| x\\|y | 1 2 |\n");
    }
}
