//! Text on the page. What is foreign gets there in one way only: as [`Shown`].

use std::fmt::{self, Display};

use event::wording::escape::Printable;

/// The longest text, characters.
const MAX: usize = 4_000;

/// Text with all that is not visible written out, of bounded length. The
/// template puts it in with `<`, `>`, `&` and quotes escaped.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shown(String);

impl Shown {
    /// Makes text fit to be shown.
    pub fn new(text: impl Display) -> Self {
        let mut text = Printable(text).to_string();
        if let Some((end, _)) = text.char_indices().nth(MAX) {
            let more = text[end..].chars().count();
            text.truncate(end);
            text.push_str(&format!("… ({more} more characters)"));
        }
        Self(text)
    }

    /// Whether there is nothing to show.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_written_out_and_what_is_too_long_is_cut() {
        assert_eq!(Shown::new("a\u{202e}b\n").to_string(), r"a\u{202e}b\n");
        let long = Shown::new("x".repeat(MAX + 7)).to_string();
        assert!(long.ends_with("x… (7 more characters)"), "{long}");
        assert!(!Shown::new("x".repeat(MAX)).to_string().contains('…'));
    }
}
