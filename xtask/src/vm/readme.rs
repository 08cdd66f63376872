//! The tables in the README: put there by the command that makes them.

use std::fs;

use anyhow::Context as _;

use crate::cargo;

const BEGIN: &str = "<!-- made by cargo xtask vm --all --readme -->\n";
const END: &str = "<!-- end -->\n";

/// Puts `text` in the place of what was there.
pub(crate) fn write(text: &str) -> anyhow::Result<()> {
    let path = cargo::root().join("README.md");
    let readme = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let changed = replaced(&readme, text)
        .with_context(|| format!("{}: no line {}", path.display(), BEGIN.trim()))?;
    fs::write(&path, changed).with_context(|| path.display().to_string())
}

fn replaced(readme: &str, text: &str) -> Option<String> {
    let (before, rest) = readme.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{}\n\n{END}{after}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let readme = format!("a\n{BEGIN}old\n{END}b\n");
        let once = replaced(&readme, "new\n").unwrap();
        assert_eq!(once, format!("a\n{BEGIN}\nnew\n\n{END}b\n"));
        assert_eq!(replaced(&once, "new").unwrap(), once);
        assert_eq!(replaced("without marks", "new"), None);
    }
}
