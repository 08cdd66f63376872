//! What a recording lacks, in words.

use std::collections::BTreeMap;

use event::wording::{escape::Printable, plural::after};

/// Damaged lines that are named one by one.
const NAMED: u64 = 5;
/// Kinds that are counted by name.
const KINDS: usize = 16;
/// The longest name among them.
const MAX_KIND: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// Lines that cannot be understood.
    damaged: u64,
    /// The first of them.
    named: Vec<String>,
    /// What only newer versions know, by kind.
    unknown: BTreeMap<String, u64>,
    /// The same of kinds beyond those.
    others: u64,
    end: Option<String>,
    /// What is before its beginning.
    begin: Option<String>,
    /// Changes of findings that were not told.
    untold: u64,
    /// Moments at which findings were not judged.
    passed_over: u64,
    /// Texts that were too long.
    texts_cut: u64,
}

impl Gaps {
    /// A line that cannot be understood. It is told at once, up to a number.
    pub(super) fn damaged(&mut self, name: &str, line: u64, why: &str) {
        self.damaged += 1;
        if self.damaged <= NAMED {
            let place = format!("{name}:{line}: {why}");
            tracing::warn!("{}; the line is left out", Printable(&place));
            self.named.push(place);
        } else if self.damaged == NAMED + 1 {
            tracing::warn!("{}: more such lines; they are counted", Printable(name));
        }
    }

    /// Something that only a newer version knows.
    pub(super) fn unknown(&mut self, kind: &str) {
        let room = self.unknown.len() < KINDS && kind.len() <= MAX_KIND;
        if let Some(count) = self.unknown.get_mut(kind) {
            *count += 1;
        } else if room {
            self.unknown.insert(kind.to_owned(), 1);
        } else {
            self.others += 1;
        }
    }

    /// What is there is only a later part of it.
    pub(super) fn begins(&mut self, name: &str, part: u64) {
        let how = format!(
            "it is part {} of a recording that has reached its size limit; the part before it is \
             FILE.1, to be given first",
            part + 1
        );
        tracing::warn!("{}: {how}", Printable(name));
        self.begin = Some(format!(
            "what happened before the recording's beginning: {how}"
        ));
    }

    /// There are more changes of findings than are told.
    pub(super) fn too_many(&mut self) {
        self.untold += 1;
    }

    /// There is more to judge than anybody waits for.
    pub(super) fn passed_over(&mut self) {
        self.passed_over += 1;
    }

    /// Texts were too long, and were cut.
    pub(super) fn texts_cut(&mut self, number: u64) {
        self.texts_cut += number;
    }

    /// It ends where it should not. The first reason is the one.
    pub(super) fn ends(&mut self, name: &str, how: &str) {
        if self.end.is_none() {
            tracing::warn!("{}: {how}", Printable(name));
            self.end = Some(format!("what happened after the recording's end: {how}"));
        }
    }

    /// All of it, for the summary.
    pub(super) fn texts(&self) -> Vec<String> {
        let mut texts = Vec::new();
        texts.extend(self.begin.clone());
        if self.untold > 0 {
            texts.push(format!("{} more changes of findings", self.untold));
        }
        if self.passed_over > 0 {
            texts.push(format!(
                "findings at {} moments: there are too many to be judged each time",
                self.passed_over
            ));
        }
        if self.texts_cut > 0 {
            texts.push(format!(
                "how {} {} of the recording went on: too long, and cut",
                self.texts_cut,
                after(self.texts_cut, "text")
            ));
        }
        if self.damaged > 0 {
            let lines = match self.damaged {
                1 => String::from("a damaged line"),
                number => format!("{number} damaged lines"),
            };
            let more = match self.damaged > NAMED {
                true => "; ...",
                false => "",
            };
            let named = self.named.join("; ");
            texts.push(format!("what {lines} of the recording said: {named}{more}"));
        }
        let count: u64 = self.unknown.values().sum::<u64>() + self.others;
        if count > 0 {
            let kinds = self.unknown.iter();
            let mut kinds: Vec<String> = kinds
                .map(|(kind, count)| format!("{kind}: {count}"))
                .collect();
            if self.others > 0 {
                kinds.push(format!("others: {}", self.others));
            }
            texts.push(format!(
                "what {count} of the recording's lines say, of kinds that this version does not \
                 know ({})",
                kinds.join(", ")
            ));
        }
        texts.extend(self.end.clone());
        texts
    }
}
