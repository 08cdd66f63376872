//! One event as a row of a table.
//!
//! Columns are told apart by what stands in them, not by where: copies have
//! lost their spaces. [`Form`] says what only a header can.
//!
//! ```text
//! describe        TYPE REASON AGE FROM MESSAGE
//!   until 1.6     FIRST LAST COUNT FROM [SUBOBJECT] TYPE REASON MESSAGE
//! get events      [NAMESPACE] LAST TYPE REASON OBJECT MESSAGE
//!   -o wide       [NAMESPACE] LAST TYPE REASON OBJECT [SUBOBJECT] SOURCE MESSAGE FIRST COUNT NAME
//!   until 1.13    [NAMESPACE] LAST FIRST COUNT NAME KIND [SUBOBJECT] TYPE REASON SOURCE MESSAGE
//! ```

use std::time::Duration;

use super::age;
use event::{PodRef, clock::Timestamp};

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    pub(super) normal: bool,
    pub(super) reason: String,
    pub(super) message: String,
    /// Its object, if the row names it.
    pub(super) pod: PodRef,
    /// How long ago it last was.
    pub(super) last: Option<Duration>,
    /// How long ago it first was.
    pub(super) first: Option<Duration>,
    /// When it last was, where that is a time.
    pub(super) at: Option<Timestamp>,
    /// When it first was, where that is a time.
    pub(super) began: Option<Timestamp>,
    pub(super) count: Option<u64>,
}

/// What the table's header says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Form {
    /// `-o wide`: there are columns after the message.
    wide: bool,
}

impl Form {
    /// Whether a line is a table's header.
    pub(super) fn is_header(text: &str) -> bool {
        let upper = text.to_ascii_uppercase();
        let has = |word| upper.split_whitespace().any(|other| other == word);
        has("TYPE") && has("REASON") && has("MESSAGE")
    }

    /// Takes a header in, if it is one.
    pub(super) fn learn(&mut self, text: &str) {
        if Self::is_header(text) {
            let has = |word| text.split_whitespace().any(|other| other == word);
            self.wide = has("OBJECT") && has("SOURCE") && has("NAME");
        }
    }
}

/// Words of a line, from the left.
struct Words<'t> {
    rest: &'t str,
}

impl<'t> Words<'t> {
    fn peek(&self) -> &'t str {
        let rest = self.rest.trim_start();
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        rest.get(..end).unwrap_or_default()
    }

    fn next(&mut self) -> &'t str {
        let word = self.peek();
        let rest = self.rest.trim_start();
        self.rest = rest.get(word.len()..).unwrap_or_default();
        word
    }

    fn next_if(&mut self, is: impl Fn(&str) -> bool) -> Option<&'t str> {
        let word = self.peek();
        (!word.is_empty() && is(word)).then(|| self.next())
    }
}

impl Row {
    /// Reads a row; `None` if the line is none.
    pub(super) fn read(text: &str, form: Form) -> Option<Self> {
        let mut words = Words { rest: text };
        let mut row = Self::default();
        if !is_type(words.peek()) {
            row.before_type(&mut words)?;
        }
        row.normal = words.next_if(is_type)? == "Normal";
        row.reason = words.next_if(is_reason)?.to_owned();
        match row.last.is_some() || row.count.is_some() || row.pod != PodRef::default() {
            false => row.described(&mut words)?,
            true => row.listed(&mut words, form),
        }
        words.rest.trim().clone_into(&mut row.message);
        if form.wide {
            row.behind();
        }
        let combined = row.message.strip_prefix("(combined from similar events): ");
        if let Some(message) = combined {
            row.message = message.to_owned();
        }
        Some(row)
    }

    /// What stands before the type in the forms that have it further right.
    fn before_type(&mut self, words: &mut Words<'_>) -> Option<()> {
        if !age::is_age(words.peek()) {
            let namespace = words.next_if(is_name)?;
            self.pod.namespace = Some(namespace.to_owned());
        }
        let one = words.next_if(age::is_age)?;
        let Some(other) = words.next_if(age::is_age) else {
            self.last = age::read(one);
            // It stands there, whatever it says.
            self.count = self.count.or(self.last.is_none().then_some(1));
            return Some(());
        };
        let count = words.next().parse().ok()?;
        self.count = Some(count);
        let mut passed = 0;
        let mut kind = None;
        let mut name = None;
        while !is_type(words.peek()) {
            let word = words.next();
            passed += 1;
            if word.is_empty() || passed > 8 {
                return None;
            }
            if passed == 1 {
                name = word.rsplit_once('.').map(|(name, _)| name);
            }
            if passed == 2 {
                kind = Some(word);
            }
        }
        // `get events` has the last time first, `describe` the first.
        match (kind, name) {
            (Some("Pod"), Some(name)) if is_name(name) => {
                self.pod.name = Some(name.to_owned());
                self.last = age::read(one);
                self.first = age::read(other);
            }
            (Some(kind), Some(_)) if kind.starts_with(char::is_uppercase) => return None,
            _ => {
                self.first = age::read(one);
                self.last = age::read(other);
            }
        }
        Some(())
    }

    /// `AGE FROM MESSAGE`, or the message alone.
    fn described(&mut self, words: &mut Words<'_>) -> Option<()> {
        let Some(age) = words.next_if(age::is_age) else {
            // Somebody has left columns out.
            let known = super::of_reason(&self.reason) == super::Verdict::Failure
                || (self.reason == "Failed" && words.peek().ends_with([':', 'd']));
            from(words);
            return known.then_some(());
        };
        self.last = age::read(age);
        let rest = words.rest.trim_start();
        if let Some(times) = rest.strip_prefix("(x")
            && let Some((times, rest)) = times.split_once(')')
            && let Some((count, over)) = times.split_once(" over ")
        {
            self.count = count.parse().ok();
            self.first = age::read(over);
            words.rest = rest;
        } else if words.peek() == "ago" {
            words.next();
        }
        from(words);
        Some(())
    }

    /// `OBJECT MESSAGE` and `SOURCE MESSAGE`.
    fn listed(&mut self, words: &mut Words<'_>, form: Form) {
        let object = words.peek().split_once('/');
        if let Some((kind, name)) = object
            && kind.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'.')
            && is_name(name)
        {
            words.next();
            if kind.eq_ignore_ascii_case("pod") || kind.eq_ignore_ascii_case("pods") {
                self.pod.name = Some(name.to_owned());
            }
        }
        words.next_if(|word| word.starts_with("spec."));
        if form.wide || self.first.is_some() {
            from(words);
        }
    }

    /// `MESSAGE FIRST COUNT NAME`: takes the last three off.
    fn behind(&mut self) {
        let mut words = self.message.rsplitn(4, char::is_whitespace);
        let (Some(_), Some(count), Some(first), Some(message)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return;
        };
        let message = message.trim_end().to_owned();
        // Columns are filled up with spaces.
        let tail: Vec<&str> = self.message.split_whitespace().rev().take(3).collect();
        let (count, first) = match tail.as_slice() {
            [_, tail_count, tail_first] => (*tail_count, *tail_first),
            _ => (count, first),
        };
        if let (Ok(count), true) = (count.parse(), age::is_age(first)) {
            self.count = Some(count);
            self.first = age::read(first);
            let end = self.message.rfind(first).unwrap_or(message.len());
            self.message = self
                .message
                .get(..end)
                .unwrap_or(&message)
                .trim_end()
                .to_owned();
        }
    }
}

/// Passes over who says so: `kubelet`, `kubelet, node-1`, `{kubelet node-1}`.
fn from(words: &mut Words<'_>) {
    if words.peek().starts_with('{') {
        while !words.peek().is_empty() && !words.next().ends_with('}') {}
        return;
    }
    let is_component = |word: &str| {
        let bare = word.trim_end_matches(',');
        is_name(bare)
            && (word.ends_with(',') || COMPONENTS.iter().any(|known| bare.ends_with(known)))
    };
    if let Some(component) = words.next_if(is_component)
        && component.ends_with(',')
    {
        words.next_if(|word| !word.is_empty());
    }
    words.next_if(|word| word.starts_with("spec."));
}

/// Ends of the names of who tells of pods.
const COMPONENTS: [&str; 9] = [
    "kubelet",
    "scheduler",
    "controller",
    "controllermanager",
    "multus",
    "daemon",
    "terway",
    "manager",
    "monitor",
];

fn is_type(word: &str) -> bool {
    matches!(word, "Normal" | "Warning")
}

/// `FailedMount`
fn is_reason(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_uppercase())
        && word.bytes().all(|c| c.is_ascii_alphanumeric())
        && word.len() > 3
}

/// A name of Kubernetes.
fn is_name(word: &str) -> bool {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"-.".contains(&c);
    !word.is_empty() && word.len() <= 253 && word.bytes().all(plain)
}
