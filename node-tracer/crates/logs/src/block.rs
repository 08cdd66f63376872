//! Messages without any envelope that somebody has wrapped: typed from a
//! screen, quoted in a mail, broken at words by an editor.
//!
//! A line goes on with the one before it if no message begins like that: with
//! a small letter, in a bracket, deeper than the first line; or if the one
//! before it cannot be the end of a sentence.

use super::entry::Entry;
use event::{Event, clock::Timestamp};

/// How long one message is at most, in bytes.
const LONGEST: usize = 8 << 10;
/// Lines at most of one message.
const MOST: usize = 24;

/// A message that may go on in the next line, with what its lines tell, each
/// for itself.
#[derive(Debug, Default)]
pub struct Block {
    /// All of it, in one line.
    pub text: String,
    pub time: Option<Timestamp>,
    /// What its lines tell of pods that do not start.
    pub told: Vec<Event>,
    /// Lines tell of calls, too.
    pub calls: bool,
    lines: usize,
    /// The number of its last line.
    last: u64,
    /// Spaces in front of its first line.
    margin: usize,
}

impl Block {
    /// Takes a line in, with what it tells; the message before it, if that has
    /// ended.
    pub fn line(&mut self, entry: &Entry<'_>, told: Vec<Event>, calls: bool) -> Option<Self> {
        let line = entry.message.trim_end();
        let text = line.trim_start();
        let margin = line.len() - text.len();
        let next = self.lines > 0 && self.lines < MOST && entry.line == self.last + 1;
        let room = self.text.len() + text.len() < LONGEST;
        let before = match next && room && self.goes_on(text, margin) {
            true => {
                self.text.push(' ');
                None
            }
            false => {
                let before = self.end();
                self.margin = margin;
                self.time = entry.time;
                before
            }
        };
        self.text.push_str(text);
        self.told.extend(told);
        self.calls |= calls;
        self.lines += 1;
        self.last = entry.line;
        before
    }

    /// The message that was before something else.
    pub fn end(&mut self) -> Option<Self> {
        let whole = std::mem::take(self);
        (whole.lines > 0).then_some(whole)
    }

    /// Whether it has several lines.
    pub fn is_wrapped(&self) -> bool {
        self.lines > 1
    }

    fn goes_on(&self, text: &str, margin: usize) -> bool {
        let first = text.chars().next().unwrap_or_default();
        let small = first.is_lowercase() || first.is_ascii_digit();
        let inner = "\"'`([{</%:,;.=&\u{ff1a}\u{ff0c}".contains(first);
        margin > self.margin || small || inner || self.is_open()
    }

    /// Whether what was said so far is no end of a sentence.
    fn is_open(&self) -> bool {
        const OPEN: [&str; 22] = [
            "a", "an", "and", "at", "by", "code", "desc", "error", "failed", "for", "from", "in",
            "is", "not", "of", "on", "or", "the", "to", "unable", "while", "with",
        ];
        let text = self.text.trim_end();
        let word = text.rsplit(' ').next().unwrap_or_default();
        let ends = text.ends_with([',', ':', '=', '(', '[', '{', '\u{ff1a}', '\u{ff0c}']);
        let opens =
            |open: char, close: char| text.matches(open).count() > text.matches(close).count();
        ends || OPEN.contains(&word.to_ascii_lowercase().as_str())
            || opens('[', ']')
            || opens('{', '}')
            || text.matches('"').count() % 2 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(text: &str) -> Vec<String> {
        let mut block = Block::default();
        let mut told = Vec::new();
        for (line, number) in text.lines().zip(1..).filter(|(line, _)| !line.is_empty()) {
            let entry = Entry {
                time: None,
                host: None,
                ident: None,
                pid: None,
                level: None,
                own_level: None,
                message: line.into(),
                fields: Vec::new(),
                line: number,
            };
            told.extend(block.line(&entry, Vec::new(), false));
        }
        told.extend(block.end());
        told.into_iter().map(|block| block.text).collect()
    }

    #[test]
    fn a_message_that_is_wrapped_at_words_is_one() {
        let wrapped = "Failed to create pod sandbox: rpc error: code\n  = Unknown desc = failed \
                       to\nAllocate an address: No\n  addresses";
        assert_eq!(
            joined(wrapped),
            [wrapped.replace("\n  ", " ").replace('\n', " ")]
        );
    }

    #[test]
    fn messages_that_begin_one_below_the_other_stay_apart() {
        let apart = "Failed to set up the pod.\nPulling image x\n\nlower after a gap";
        assert_eq!(joined(apart).len(), 3);
        let lines = "x\n".repeat(3 * MOST);
        assert_eq!(joined(&lines).len(), 3, "each is of bounded length");
    }
}
