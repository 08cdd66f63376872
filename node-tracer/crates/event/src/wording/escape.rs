//! Makes foreign text harmless to look at.
//!
//! Process names, pod names, paths and error messages come from whoever can
//! run a container. Printed as they are they can move the cursor, set the
//! terminal's title, forge lines of a report or turn it around. Everything
//! foreign passes through [`Printable`] on its way into text or a journal
//! message; JSON is made harmless by `json`, with the same idea of what
//! [`is_hidden`].

use std::fmt::{self, Display, Write};

/// Displays a value with all that is not visible written out: `\n`, `\x1b`,
/// `\u{202e}`.
///
/// A backslash stays one: unit and device names hold `\x2d`, and an engineer
/// copies them. What is longer than anybody reads is cut, and said to be. The
/// exact text is in the JSON record.
pub struct Printable<T>(pub T);

/// Bytes of one text that are shown, before they are escaped.
const MOST: usize = 8 << 10;

impl<T: Display> Display for Printable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut escaper = Escaper {
            out: f,
            room: MOST,
            cut: 0,
        };
        write!(escaper, "{}", self.0)?;
        match escaper.cut {
            0 => Ok(()),
            cut => write!(f, "... (cut: {cut} more bytes)"),
        }
    }
}

/// Passes text on, escaped, as far as there is room.
struct Escaper<'a, 'b> {
    out: &'a mut fmt::Formatter<'b>,
    room: usize,
    /// Bytes that there was no room for.
    cut: usize,
}

impl Write for Escaper<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let fits = match self.cut {
            0 => text.floor_char_boundary(self.room),
            _ => 0,
        };
        self.room -= fits;
        self.cut += text.len() - fits;
        let mut rest = &text[..fits];
        while let Some((at, c)) = rest.char_indices().find(|&(_, c)| is_hidden(c)) {
            self.out.write_str(&rest[..at])?;
            match c {
                '\n' => self.out.write_str("\\n")?,
                '\r' => self.out.write_str("\\r")?,
                '\t' => self.out.write_str("\\t")?,
                '\0'..='\u{ff}' => write!(self.out, "\\x{:02x}", u32::from(c))?,
                _ => write!(self.out, "\\u{{{:x}}}", u32::from(c))?,
            }
            rest = &rest[at + c.len_utf8()..];
        }
        self.out.write_str(rest)
    }
}

/// Whether a character acts on a terminal, breaks a line, reorders text or
/// cannot be seen.
pub fn is_hidden(c: char) -> bool {
    matches!(c,
        '\0'..='\x1f' | '\x7f'..='\u{9f}' // control characters: C0, DEL, C1
        | '\u{ad}' | '\u{34f}' | '\u{180e}' | '\u{feff}' // zero width
        | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}'
        | '\u{61c}' | '\u{200e}' | '\u{200f}' // direction marks
        | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}' // overrides, isolates
        | '\u{2028}' | '\u{2029}' // line and paragraph separators
        | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' // blank letters
        | '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}' // variation selectors
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' // annotations, tags
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        Printable(text).to_string()
    }

    #[test]
    fn visible_text_is_left_alone() {
        for text in [
            "",
            "dd",
            "kube-system/core-dns",
            "größe 网络 🦀",
            r"dev-disk\x2duuid",
        ] {
            assert_eq!(shown(text), text);
        }
    }

    #[test]
    fn what_is_longer_than_anybody_reads_is_cut_and_said_to_be() {
        let fits = "x".repeat(MOST);
        assert_eq!(shown(&fits), fits);
        let long = format!("{}\u{202e}{}", "x".repeat(MOST - 1), "y".repeat(24 << 20));
        let text = shown(&long);
        assert!(text.len() < MOST + 100, "{}", text.len());
        let cut = (24 << 20) + 3;
        assert!(text.ends_with(&format!("xx... (cut: {cut} more bytes)")));
        // Of what is put together of parts none slips through.
        let parts = Printable(format_args!("{long} {}", "z")).to_string();
        assert!(!parts.contains("yy") && !parts.contains('z'));
    }

    #[test]
    fn a_terminal_sees_no_command() {
        assert_eq!(shown("\x1b]0;owned\x07"), r"\x1b]0;owned\x07");
        assert_eq!(shown("\x1b[2J\x1b[H"), r"\x1b[2J\x1b[H");
        assert_eq!(shown("\u{9b}31m\u{90}"), r"\x9b31m\x90");
        assert_eq!(shown("a\x08b\x7f\0"), r"a\x08b\x7f\x00");
    }

    #[test]
    fn a_name_cannot_forge_a_line() {
        assert_eq!(shown("x\nFAKE\r\n\ty"), r"x\nFAKE\r\n\ty");
        assert_eq!(
            shown("a\u{2028}b\u{2029}c\u{85}d\x0bd"),
            r"a\u{2028}b\u{2029}c\x85d\x0bd"
        );
    }

    #[test]
    fn a_name_cannot_turn_text_around_or_hide() {
        assert_eq!(shown("pod\u{202e}txt"), r"pod\u{202e}txt");
        for c in ('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}') {
            assert_eq!(shown(&c.to_string()), format!("\\u{{{:x}}}", u32::from(c)));
        }
        assert_eq!(
            shown("we\u{200b}b\u{feff}\u{ad}"),
            r"we\u{200b}b\u{feff}\xad"
        );
        assert_eq!(shown("\u{e0041}"), r"\u{e0041}");
    }

    #[test]
    fn no_output_holds_a_hidden_character() {
        let all: Vec<char> = (0..=0x10_ffff_u32).filter_map(char::from_u32).collect();
        for some in all.chunks(MOST / 4) {
            let some: String = some.iter().collect();
            assert!(!shown(&some).chars().any(is_hidden));
        }
    }

    #[test]
    fn every_control_character_is_hidden() {
        let all = (0..=0x10_ffff_u32).filter_map(char::from_u32);
        assert!(all.filter(|c| c.is_control()).all(is_hidden));
    }
}
