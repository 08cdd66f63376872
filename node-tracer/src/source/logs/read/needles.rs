//! Which lines matter: those in which one of some words stands. All that is in
//! the buffer is searched at once, not line by line.

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

use super::lines::{Lines, Place};

/// Letters of all words for which a table of all states is small.
const MOST_LETTERS: usize = 4 << 10;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Needles {
    /// None: every line matters.
    words: Option<AhoCorasick>,
    /// The next word begins here, as far as it was searched.
    next: Option<u64>,
    /// There is none before here, but for that.
    clear: u64,
}

impl Needles {
    /// Words of any number; with none, every line matters.
    pub(super) fn new(words: &[&str]) -> Self {
        // The fastest of its kinds for some hundred words, of which the table
        // is a megabyte at most; of very many it would not be.
        let letters: usize = words.iter().map(|word| word.len()).sum();
        let kind = (letters <= MOST_LETTERS).then_some(AhoCorasickKind::DFA);
        let mut builder = AhoCorasick::builder();
        builder.match_kind(MatchKind::LeftmostFirst).kind(kind);
        #[cfg(not(fuzzing))]
        let built = builder.build(words);
        #[cfg(fuzzing)]
        let built = fuzz::once(words, || builder.build(words));
        Self {
            // It cannot fail but for words of gigabytes.
            words: built.ok().filter(|_| !words.is_empty()),
            next: None,
            clear: 0,
        }
    }

    /// Whether one stands in a text.
    pub(super) fn is_in(&self, text: &[u8]) -> bool {
        let words = self.words.as_ref();
        words.is_none_or(|words| words.is_match(text))
    }

    /// Whether one stands in a line that is in the buffer. Places are asked
    /// for in their order.
    pub(super) fn hit(&mut self, lines: &Lines, place: &Place) -> bool {
        let Some(words) = &self.words else {
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
        let mut needles = Needles::new(&["CNI_", "DEL"]);
        let mut at = 0;
        let mut hits = Vec::new();
        for line in text.split(|byte| *byte == b'\n') {
            let place = at..at + line.len() as u64;
            hits.push(needles.hit(&lines, &place));
            assert_eq!(hits.last(), Some(&needles.is_in(line)));
            at = place.end + 1;
        }
        assert_eq!(hits, [true, false, true, false, false, true]);
        assert!(Needles::new(&[]).hit(&lines, &(0..1)));
    }
}

#[cfg(fuzzing)]
mod fuzz {
    use std::{cell::RefCell, collections::HashMap};

    use aho_corasick::{AhoCorasick, BuildError};

    thread_local! {
        static BUILT: RefCell<HashMap<String, AhoCorasick>> = RefCell::default();
    }

    /// Tables are built once: it takes longer than to read what a fuzzer writes.
    pub(super) fn once(
        words: &[&str],
        build: impl FnOnce() -> Result<AhoCorasick, BuildError>,
    ) -> Result<AhoCorasick, BuildError> {
        BUILT.with_borrow_mut(|built| {
            let key = words.join("\n");
            if let Some(known) = built.get(&key) {
                return Ok(known.clone());
            }
            let new = build()?;
            built.insert(key, new.clone());
            Ok(new)
        })
    }
}
