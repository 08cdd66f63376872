//! Texts of a recording, and of records, are as long as whoever has written it likes, and what is
//! kept of them is bounded by their number: so they are cut, in the line, before
//! it is read.
//!
//! A name is never long. What is longer is a message, or a path: each may have so
//! many bytes, and all together, beyond what a name has, so many more. Where that
//! is used up, a text is no longer than a name. Names have less than messages, as
//! each stands in many places of what is found.

/// What a name has at most: most are shorter than this.
const NAME: usize = 128;
/// What one text may have.
const LONGEST: usize = 8 << 10;
/// What all messages of a recording may have beyond [`NAME`],
const MESSAGES: usize = 32 << 20;
/// and all other texts.
const OTHERS: usize = 4 << 20;
const CALLED: [&[u8]; 8] = [
    b"message", b"msg", b"details", b"error", b"title", b"claim", b"unknown", b"advice",
];

#[derive(Debug)]
pub(crate) struct LongTexts {
    /// What is left of [`MESSAGES`].
    messages: usize,
    /// What is left of [`OTHERS`].
    others: usize,
    /// How many texts were cut.
    cut: u64,
}

impl Default for LongTexts {
    fn default() -> Self {
        Self {
            messages: MESSAGES,
            others: OTHERS,
            cut: 0,
        }
    }
}

impl LongTexts {
    /// How many texts were cut since the last time.
    pub(crate) fn take_cut(&mut self) -> u64 {
        std::mem::take(&mut self.cut)
    }

    /// Cuts the texts, and the names of members, in a line of JSON.
    pub(crate) fn cut_in(&mut self, line: &mut Vec<u8>) {
        let (mut read, mut written) = (0, 0);
        let mut move_to = |line: &mut Vec<u8>, read: &mut usize, end: usize| {
            if written < *read {
                line.copy_within(*read..end, written);
            }
            written += end - *read;
            *read = end;
        };
        let (mut at, mut is_message) = (0, false);
        while let Some(open) = memchr::memchr(b'"', line.get(at..).unwrap_or_default()) {
            let begin = at + open + 1;
            let text = line.get(begin..).unwrap_or_default();
            let length = length(text);
            let rest = text.get(length + 1..).unwrap_or_default();
            let text = text.get(..length).unwrap_or_default();
            let is_name = rest.trim_ascii_start().first() == Some(&b':');
            let kept = self.kept(text, is_message && !is_name);
            if is_name {
                is_message = CALLED.contains(&text);
            }
            if kept < length {
                move_to(line, &mut read, begin + kept);
                read = begin + length;
            }
            // Behind the closing quote.
            at = begin + length + 1;
        }
        let end = line.len();
        move_to(line, &mut read, end);
        line.truncate(written);
    }

    /// How much of a text stays.
    fn kept(&mut self, text: &[u8], is_message: bool) -> usize {
        let Some(beyond) = text.len().checked_sub(NAME) else {
            return text.len();
        };
        let left = match is_message {
            true => &mut self.messages,
            false => &mut self.others,
        };
        let most = beyond.min(LONGEST - NAME).min(*left);
        *left -= most;
        if most == beyond {
            return text.len();
        }
        self.cut += 1;
        boundary(text, NAME + most)
    }
}

/// How long a text is up to its closing quote.
fn length(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(found) = memchr::memchr2(b'"', b'\\', text.get(at..).unwrap_or_default()) {
        at += found;
        if text.get(at) == Some(&b'"') {
            return at;
        }
        at += 2;
    }
    text.len()
}

/// The last place, no later than `most`, that is in the middle of no character
/// and no escape.
fn boundary(text: &[u8], most: usize) -> usize {
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let next = at
            + match (byte, text.get(at + 1)) {
                // The first half of a character has its second one behind it.
                (b'\\', Some(b'u')) if is_first_half(text.get(at + 2..)) => 12,
                (b'\\', Some(b'u')) => 6,
                (b'\\', _) => 2,
                (0xf0.., _) => 4,
                (0xe0.., _) => 3,
                (0xc0.., _) => 2,
                _ => 1,
            };
        if next > most {
            return at;
        }
        at = next;
    }
    text.len()
}

/// Whether these are the digits of a surrogate that another one follows.
fn is_first_half(digits: Option<&[u8]>) -> bool {
    matches!(
        digits,
        Some([b'd' | b'D', b'8' | b'9' | b'a' | b'b' | b'A' | b'B', ..])
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(texts: &mut LongTexts, line: &str) -> String {
        let mut line = line.as_bytes().to_vec();
        texts.cut_in(&mut line);
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn texts_and_names_of_members_are_cut_and_the_rest_stays() {
        let long = "x".repeat(3 * LONGEST);
        let kept = "x".repeat(LONGEST);
        let mut texts = LongTexts::default();
        let line = format!(r#"{{"{long}":["{long}","a\\","\"{kept}",1,""],"b":"{kept}"}} "#);
        let less = "x".repeat(LONGEST - 2);
        let want = format!(r#"{{"{kept}":["{kept}","a\\","\"{less}",1,""],"b":"{kept}"}} "#);
        assert_eq!(cut(&mut texts, &line), want);
        assert_eq!(texts.take_cut(), 3);
        assert_eq!(texts.take_cut(), 0);
    }

    #[test]
    fn what_is_cut_can_be_read_wherever_that_is() {
        for part in [
            "\u{e4}",
            "\u{1f980}",
            r"\n",
            r"\u00e4",
            r"\ud83e\udd80",
            r"\\",
        ] {
            for before in 0..12 {
                let text = format!("{}{}", "x".repeat(before), part.repeat(LONGEST));
                let cut = cut(&mut LongTexts::default(), &format!("[\"{text}\"]"));
                assert!(cut.len() <= LONGEST + 4, "{part}");
                let read: [String; 1] = serde_json::from_str(&cut).unwrap();
                assert!(read[0].len() > LONGEST / 13, "{part}");
            }
        }
    }

    #[test]
    fn what_all_texts_have_beyond_names_is_bounded() {
        let mut texts = LongTexts::default();
        for (name, all) in [("name", OTHERS), ("message", MESSAGES)] {
            let line = |long: usize| format!("{{\"{name}\" : \"{}\"}}", "x".repeat(long));
            let lines = 2 * all / LONGEST;
            let total: usize = (0..lines)
                .map(|_| cut(&mut texts, &line(LONGEST)).len())
                .sum();
            assert!(total > all && total <= all + lines * (NAME + 16), "{total}");
            assert_eq!(cut(&mut texts, &line(LONGEST)), line(NAME));
        }
    }

    #[test]
    fn a_line_that_is_no_json_stays_bounded() {
        for line in ["", "\"", "\"\\", "\"a\\\"", "{\"a\":\"b"] {
            assert_eq!(cut(&mut LongTexts::default(), line), line);
        }
        let line = format!("\"{}", "x".repeat(2 * LONGEST));
        assert_eq!(cut(&mut LongTexts::default(), &line).len(), LONGEST + 1);
    }
}
