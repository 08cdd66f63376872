//! Which lines matter: those in which one of some words stands. All that is in
//! the buffer is searched at once, not line by line.

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

use super::lines::{Lines, Place};

/// Letters of all words for which a table of all states is small.
const MOST_LETTERS: usize = 4 << 10;

/// Words that are looked for, compiled; clones share what was.
#[derive(Clone, Debug)]
pub struct Words(Option<AhoCorasick>);

impl Words {
    /// Of any number; with none, every line matters.
    pub fn new(words: &[&str]) -> Self {
        // The fastest of its kinds for some hundred words, of which the table
        // is a megabyte at most; of very many it would not be.
        let letters: usize = words.iter().map(|word| word.len()).sum();
        let kind = (letters <= MOST_LETTERS).then_some(AhoCorasickKind::DFA);
        let mut builder = AhoCorasick::builder();
        builder.match_kind(MatchKind::LeftmostFirst).kind(kind);
        // It cannot fail but for words of gigabytes.
        let built = builder.build(words).ok();
        Self(built.filter(|_| !words.is_empty()))
    }
}

/// Where words stand in the buffer.
#[derive(Debug)]
pub(super) struct Needles {
    words: Words,
    /// The next word begins here, as far as it was searched.
    next: Option<u64>,
    /// There is none before here, but for that.
    clear: u64,
}

impl Needles {
    pub(super) fn new(words: Words) -> Self {
        Self {
            words,
            next: None,
            clear: 0,
        }
    }

    /// Whether one stands in a text.
    pub(super) fn is_in(&self, text: &[u8]) -> bool {
        let words = self.words.0.as_ref();
        words.is_none_or(|words| words.is_match(text))
    }

    /// Whether one stands in a line that is in the buffer. Places are asked
    /// for in their order.
    pub(super) fn hit(&mut self, lines: &Lines, place: &Place) -> bool {
        let Some(words) = &self.words.0 else {
            return true;
        };
        if let Some(next) = self.next
            && next >= place.start
        {
            return next < place.end;
        }
        if place.end <= self.clear {
            return false;
        }
        let start = place.start.max(self.clear);
        let ahead = lines.from(start);
        // The last line may not be whole yet.
        let whole = memchr::memrchr(b'\n', ahead).unwrap_or(0);
        let asked = usize::try_from(place.end - start).unwrap_or(usize::MAX);
        let ahead = ahead.get(..whole.max(asked)).unwrap_or(ahead);
        let found = words.find(ahead);
        self.next = found.map(|found| start + found.start() as u64);
        self.clear = self.next.unwrap_or(start + ahead.len() as u64);
        self.next.is_some_and(|next| next < place.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_told_by_its_own_words() {
        let text = b"one CNI_ADD\ntwo\nthree DEL four DEL\n\nfive\nsix DEL";
        let mut lines = Lines::new(Box::new(text.as_slice()));
        lines.fill().unwrap();
        let mut needles = Needles::new(Words::new(&["CNI_", "DEL"]));
        let mut at = 0;
        let mut hits = Vec::new();
        for line in text.split(|byte| *byte == b'\n') {
            let place = at..at + line.len() as u64;
            hits.push(needles.hit(&lines, &place));
            assert_eq!(hits.last(), Some(&needles.is_in(line)));
            at = place.end + 1;
        }
        assert_eq!(hits, [true, false, true, false, false, true]);
        assert!(Needles::new(Words::new(&[])).hit(&lines, &(0..1)));
    }
}
