//! Tables in the README: put there by the command that made them.

use std::fs;

use anyhow::Context as _;

use crate::cargo;

const END: &str = "<!-- end -->\n";

/// The line above what `cargo xtask COMMAND --readme` has made.
fn begin(command: &str) -> String {
    format!("<!-- made by cargo xtask {command} --readme -->\n")
}

/// Puts Markdown in the place of what was there of this command.
pub(crate) fn write(command: &str, text: &str) -> anyhow::Result<()> {
    let path = cargo::root().join("README.md");
    let readme = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let begin = begin(command);
    let changed = replaced(&readme, &begin, text)
        .with_context(|| format!("{}: no line {}", path.display(), begin.trim()))?;
    fs::write(&path, changed).with_context(|| path.display().to_string())
}

fn replaced(readme: &str, begin: &str, text: &str) -> Option<String> {
    let (before, rest) = readme.split_once(begin)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{begin}\n{}\n\n{END}{after}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let (one, other) = (begin("one"), begin("other"));
        let readme = format!("a\n{other}kept\n{END}{one}old\n{END}b\n");
        let once = replaced(&readme, &one, "new\n").unwrap();
        assert_eq!(once, format!("a\n{other}kept\n{END}{one}\nnew\n\n{END}b\n"));
        assert_eq!(replaced(&once, &one, "new").unwrap(), once);
        assert_eq!(replaced("without marks", &one, "new"), None);
    }
}
