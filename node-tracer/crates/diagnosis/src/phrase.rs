//! Phrases in what programs say: found without case, as whole words, and
//! through however many layers of quoting the text has been passed on.
//!
//! A phrase is words with one space between them. ` .. ` in it stands for
//! anything of at most [`GAP`] bytes, and `*` at an end of such a part says
//! that the word may go on there.

use std::sync::OnceLock;

use aho_corasick::AhoCorasick;

use crate::speaker;
use event::wording::cut;

/// How much of a text is looked at. What failed stands at the end of a chain
/// of errors, and chains are long.
const MAX_TEXT: usize = 16 << 10;
/// What ` .. ` stands for at most.
const GAP: usize = 160;

/// A text to look for phrases in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchText {
    text: String,
}

impl SearchText {
    pub fn new(text: &str) -> Self {
        let mut text = unquoted(text);
        text.make_ascii_lowercase();
        Self { text }
    }

    /// The same without what is somebody's own choice and stands in quotes
    /// behind what it names (pods, volumes, images), and without the options of
    /// a command, which say what it was told to do and not what happened.
    pub fn without_names(&self) -> Self {
        let mut text = String::with_capacity(self.text.len());
        let mut named = false;
        let without = speaker::without_command(&self.text);
        for word in without.as_deref().unwrap_or(&self.text).split(' ') {
            let bare = word.trim_matches(['(', '[', ',', ':']);
            let is_name = (named && word.starts_with('"'))
                || (bare.starts_with("--") && bare.contains('='))
                || bare.contains("k8s_")
                || (bare.contains('_') && bare.contains('('))
                || ["pod=\"", "volume=\"", "image=\"", "object=\""]
                    .iter()
                    .any(|begin| bare.starts_with(begin));
            named = [
                "pod",
                "pods",
                "volume",
                "image",
                "container",
                "reference",
                "for",
            ]
            .contains(&bare);
            if !is_name {
                text.push_str(word);
                text.push(' ');
            }
        }
        Self { text }
    }

    /// The same without what a container that runs has printed, and without
    /// the command that one should have started.
    pub(crate) fn of_start(&self) -> Self {
        let text = speaker::of_start(&self.text);
        let text = speaker::without_command(text).unwrap_or_else(|| text.to_owned());
        Self { text }
    }

    /// Whether a phrase is in it.
    pub fn has(&self, phrase: &str) -> bool {
        let mut parts = phrase.split(" .. ");
        let first = parts.next().unwrap_or_default();
        let rest: Vec<&str> = parts.collect();
        let mut from = 0;
        while let Some((_, end)) = find(&self.text, first, from, usize::MAX) {
            if follows(&self.text, &rest, end) {
                return true;
            }
            from = end;
        }
        false
    }

    /// Whether one of these is.
    pub fn has_one(&self, phrases: &[&str]) -> bool {
        phrases.iter().any(|phrase| self.has(phrase))
    }

    /// The text that is looked at.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Many phrases, looked for at once.
#[derive(Debug)]
pub struct Phrases {
    all: &'static [&'static str],
    /// Finds the first words of each.
    first: OnceLock<Option<AhoCorasick>>,
}

impl Phrases {
    pub const fn new(all: &'static [&'static str]) -> Self {
        Self {
            all,
            first: OnceLock::new(),
        }
    }

    /// Whether one of them is in a text.
    pub fn are_in(&self, said: &SearchText) -> bool {
        let words = |phrase: &&'static str| {
            let first = phrase.split(" .. ").next().unwrap_or_default();
            first.trim_matches('*')
        };
        let first = self
            .first
            .get_or_init(|| AhoCorasick::new(self.all.iter().map(words)).ok());
        let Some(first) = first else {
            return said.has_one(self.all);
        };
        let mut found = first.find_overlapping_iter(&said.text);
        found.any(|found| {
            let phrase = self.all.get(found.pattern().as_usize());
            phrase.is_some_and(|phrase| {
                let mut parts = phrase.split(" .. ");
                let part = parts.next().unwrap_or_default();
                let rest: Vec<&str> = parts.collect();
                stands_alone(&said.text, part, found.start(), found.end())
                    && follows(&said.text, &rest, found.end())
            })
        })
    }
}

/// Whether these come one after the other, none far from the one before.
fn follows(text: &str, parts: &[&str], from: usize) -> bool {
    let Some((part, rest)) = parts.split_first() else {
        return true;
    };
    let mut at = from;
    while let Some((begin, end)) = find(text, part, at, from.saturating_add(GAP)) {
        if follows(text, rest, end) {
            return true;
        }
        at = begin + 1;
        while !text.is_char_boundary(at) {
            at += 1;
        }
    }
    false
}

/// Where a part is that begins at `from` or later, and at `until` at the
/// latest: its beginning and its end.
fn find(text: &str, part: &str, from: usize, until: usize) -> Option<(usize, usize)> {
    let word = part.trim_start_matches('*').trim_end_matches('*');
    if word.is_empty() {
        return None;
    }
    let mut at = from;
    // Nothing that begins later is looked for.
    let last = text.floor_char_boundary(until.saturating_add(word.len()));
    loop {
        let begin = at + text.get(at..last)?.find(word)?;
        if begin > until {
            return None;
        }
        let end = begin + word.len();
        if stands_alone(text, part, begin, end) {
            return Some((begin, end));
        }
        at = begin + 1;
        while !text.is_char_boundary(at) {
            at += 1;
        }
    }
}

/// Whether what was found of a part is whole words, as far as it says so.
fn stands_alone(text: &str, part: &str, begin: usize, end: usize) -> bool {
    let bytes = text.as_bytes();
    let is_part = |at: Option<usize>| {
        let byte = at.and_then(|at| bytes.get(at));
        byte.is_some_and(u8::is_ascii_alphanumeric)
    };
    let begins = !(is_part(begin.checked_sub(1)) && is_part(Some(begin)));
    let ends = !(is_part(end.checked_sub(1)) && is_part(Some(end)));
    end > begin && (part.starts_with('*') || begins) && (part.ends_with('*') || ends)
}

/// A text with its quotes as they were before it was passed on, in one line,
/// with one space between words.
pub fn unquoted(text: &str) -> String {
    let text = cut(text, MAX_TEXT);
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut space = true;
    while let Some(c) = chars.next() {
        let c = match c {
            '\\' => {
                while chars.peek() == Some(&'\\') {
                    chars.next();
                }
                match chars.peek() {
                    Some('n' | 't' | 'r') => {
                        chars.next();
                        ' '
                    }
                    Some('"' | '\'') => continue,
                    _ => '\\',
                }
            }
            '\u{201c}' | '\u{201d}' => '"',
            '\u{2018}' | '\u{2019}' => '\'',
            // Nothing of these is to be seen.
            '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' => continue,
            '\u{3001}' => ',',
            '\u{3002}' => '.',
            '\u{3010}' => '[',
            '\u{3011}' => ']',
            // The full-width forms of ASCII.
            '\u{ff01}'..='\u{ff5e}' => narrow(c),
            c if c.is_whitespace() || c.is_control() => ' ',
            c => c,
        };
        if c != ' ' || !space {
            out.push(c);
        }
        space = c == ' ';
    }
    out.truncate(out.trim_end().len());
    out
}

/// The ASCII of which this is the full-width form.
fn narrow(c: char) -> char {
    let ascii = u32::from(c).checked_sub(0xfee0);
    ascii.and_then(char::from_u32).unwrap_or(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_width_punctuation_and_any_white_space_are_the_plain_ones() {
        let said =
            SearchText::new("mkdir\u{ff1a}\u{3000}cannot\u{a0}allocate\n\tmem\u{200b}ory\u{ff09}");
        assert_eq!(said.as_str(), "mkdir: cannot allocate memory)");
    }

    #[test]
    fn whole_words_are_found_whatever_the_case() {
        let said = SearchText::new("Failed to set up the PicNIC: aws-CNI said: No free  IPs");
        for phrase in [
            "cni",
            "failed to set up",
            "no free ips",
            "aws-cni said:",
            "free ip*",
        ] {
            assert!(said.has(phrase), "{phrase}");
        }
        for phrase in ["fail", "free ip", "icnic", "", "*", "nothing"] {
            assert!(!said.has(phrase), "{phrase}");
        }
    }

    #[test]
    fn many_are_found_as_each_is() {
        static ALL: Phrases = Phrases::new(&["cni", "cnidarian", "no .. ip*", "*plug*"]);
        for text in [
            "the cni",
            "a cnidarian",
            "no free ips",
            "unplugged",
            "picnic",
            "no",
            "",
        ] {
            let said = SearchText::new(text);
            assert_eq!(ALL.are_in(&said), said.has_one(ALL.all), "{text}");
        }
    }

    #[test]
    fn a_gap_is_bridged_and_no_more() {
        let said = SearchText::new("configmap \"a\" not found; found not");
        assert!(said.has("configmap* .. not found"));
        assert!(said.has("configmap .. not .. not"));
        assert!(!said.has("not found .. configmap"));
        let far = format!("configmap {} not found", "x ".repeat(GAP));
        assert!(!SearchText::new(&far).has("configmap .. not found"));
        let again = SearchText::new(&format!("{far} configmap \u{e4} not found"));
        assert!(again.has("configmap .. not found"));
    }

    #[test]
    fn layers_of_quotes_are_taken_off() {
        let said = r#"caused \\\"process_linux.go:424: container init\n\tcaused \\\\\\\"signal: killed\\\\\\\"\\\""#;
        assert_eq!(
            unquoted(said),
            "caused \"process_linux.go:424: container init caused \"signal: killed\"\""
        );
        assert_eq!(unquoted("\u{201c}a\u{201d}  b\n"), "\"a\" b");
        assert_eq!(unquoted(r"C:\dir \"), r"C:\dir \");
    }

    #[test]
    fn names_that_anybody_can_choose_can_be_left_out() {
        let said = SearchText::new(
            "for pod \"calico-node-1\" (k8s_POD_cni_x_0) \"cni_default(1-2)\" image \"cni:1\": cni",
        );
        let bare = said.without_names();
        assert!(said.has("calico-node-1"));
        assert!(!bare.has("calico-node-1"));
        assert_eq!(bare.as_str().matches("cni").count(), 1);
    }

    #[test]
    fn any_text_can_be_looked_at() {
        for text in [
            "",
            "\\",
            "\\\\",
            "\u{201c}",
            "ä\\\"ö",
            &"\\n".repeat(20_000),
        ] {
            let said = SearchText::new(text);
            assert!(!said.without_names().has("x .. ö*"));
        }
        assert!(SearchText::new(&"ä ".repeat(40_000)).as_str().len() <= MAX_TEXT);
    }

    /// What is quadratic takes minutes with this.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "what it takes is the claim")]
    fn what_follows_is_looked_for_no_further_than_the_gap() {
        let said = SearchText::new(&"failed to ".repeat(MAX_TEXT / 10));
        let begun = std::time::Instant::now();
        for _ in 0..200 {
            assert!(!said.has("failed .. to .. address"));
        }
        assert!(begun.elapsed().as_secs() < 10);
    }
}
