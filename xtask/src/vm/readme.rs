//! The tables in the README: put there by the command that made them.

use std::fs;

use anyhow::Context as _;

use super::table::Table;
use crate::cargo;

const BEGIN: &str = "<!-- made by cargo xtask vm --readme -->\n";
const END: &str = "<!-- end -->\n";

/// Puts the tables and what is said to them in the place of what was there.
pub(crate) fn write(table: &Table, remarks: &[String]) -> anyhow::Result<()> {
    let mut text = format!("{table}\n");
    for remark in remarks {
        text += &format!("* {remark}\n");
    }
    let path = cargo::root().join("README.md");
    let readme = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let changed = replaced(&readme, &text)
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
