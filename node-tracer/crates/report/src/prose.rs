//! Sentences with parts that stand out, and times as people read them.

use std::fmt::Display;

use super::shown::Shown;
use event::clock::Timestamp;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prose {
    /// Its parts, in order.
    pub spans: Vec<Span>,
}

/// A part of a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// How it stands out: a class of the style sheet; empty for plain words.
    pub class: &'static str,
    pub text: Shown,
}

impl Prose {
    pub fn say(self, text: impl Display) -> Self {
        self.with("", text)
    }

    pub fn at(self, text: impl Display) -> Self {
        self.with("time", text)
    }

    /// Adds what something is called.
    pub fn name(self, text: impl Display) -> Self {
        self.with("name", text)
    }

    /// Adds what somebody else has said.
    pub fn quote(self, text: impl Display) -> Self {
        self.with("quote", text)
    }

    pub fn code(self, text: impl Display) -> Self {
        self.with("code", text)
    }

    fn with(mut self, class: &'static str, text: impl Display) -> Self {
        let text = Shown::new(text);
        if !text.is_empty() {
            self.spans.push(Span { class, text });
        }
        self
    }

    /// Without its looks.
    #[cfg(any(test, feature = "testing"))]
    pub fn plain(&self) -> String {
        self.spans
            .iter()
            .map(|span| span.text.to_string())
            .collect()
    }
}

/// How times are told: with the date where that is not clear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calendar {
    today: String,
}

impl Calendar {
    /// For a run from one time to another. If it is of one day, that day is
    /// clear.
    pub fn new(began: Timestamp, ended: Timestamp) -> Self {
        let today = date(began);
        match today == date(ended) {
            true => Self { today },
            false => Self {
                today: String::new(),
            },
        }
    }

    /// From now on the day of a moment is clear: it has just been told.
    pub fn turn_to(&mut self, at: Timestamp) {
        self.today = date(at);
    }

    /// A moment: the time of day, UTC.
    pub fn moment(&self, at: Timestamp) -> String {
        match date(at) {
            day if day == self.today => at.time_of_day(),
            day => format!("{day} {}", at.time_of_day()),
        }
    }
}

/// The date, UTC.
pub fn date(at: Timestamp) -> String {
    let text = at.to_string();
    text.get(..10).unwrap_or(&text).to_owned()
}
