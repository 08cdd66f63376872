//! A text's characters, however they are written: `"` may also be `\"` in a text
//! that is quoted, and `%22` in a URL.

use std::ops::Range;

/// More backslashes are as many.
const MAX_DEPTH: u8 = 7;

/// How a character is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    /// With so many backslashes.
    Escaped(u8),
    Percent,
}

#[derive(Clone, Copy)]
struct Symbol {
    char: char,
    form: Form,
    at: usize,
}

pub(super) struct Symbols {
    all: Vec<Symbol>,
    bytes: usize,
}

impl Symbols {
    pub(super) fn of(text: &str) -> Self {
        let mut all = Vec::with_capacity(text.len());
        let mut at = 0;
        while let Some(next) = text.get(at..).and_then(|rest| rest.chars().next()) {
            let written = match next {
                '\\' => escaped(text, at),
                '%' => percent(text, at),
                _ => None,
            };
            let plain = (next, Form::Escaped(0), next.len_utf8());
            let (char, form, len) = written.unwrap_or(plain);
            all.push(Symbol { char, form, at });
            at += len;
        }
        let bytes = text.len();
        Self { all, bytes }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Behind the end there are lines' ends.
    pub(super) fn char(&self, at: usize) -> char {
        self.all.get(at).map_or('\n', |it| it.char)
    }

    pub(super) fn form(&self, at: usize) -> Form {
        self.all.get(at).map_or(Form::Escaped(0), |it| it.form)
    }

    /// Where these stand in the text.
    pub(super) fn bytes(&self, range: Range<usize>) -> Range<usize> {
        let byte = |at: usize| self.all.get(at).map_or(self.bytes, |it| it.at);
        byte(range.start)..byte(range.end)
    }

    pub(super) fn text(&self, range: Range<usize>) -> String {
        let all = self.all.get(range).unwrap_or_default();
        all.iter().map(|it| it.char).collect()
    }

    /// The first from there on of which this does not hold.
    pub(super) fn skip(&self, from: usize, is: impl Fn(char) -> bool) -> usize {
        let rest = self.all.get(from..).unwrap_or_default();
        let skipped = rest.iter().position(|it| !is(it.char));
        from + skipped.unwrap_or(rest.len())
    }

    /// Whether this stands right before.
    pub(super) fn ends_with(&self, end: usize, what: &str) -> bool {
        let mut at = end;
        what.chars().rev().all(|c| {
            at = at.wrapping_sub(1);
            at < end && self.char(at) == c
        })
    }

    pub(super) fn before(&self, at: usize) -> Option<char> {
        Some(self.all.get(at.checked_sub(1)?)?.char)
    }
}

/// What backslashes and a letter say, and how long it is.
fn escaped(text: &str, at: usize) -> Option<(char, Form, usize)> {
    let rest = text.get(at..)?;
    let letter = rest.trim_start_matches('\\');
    let slashes = rest.len() - letter.len();
    let form = Form::Escaped(u8::try_from(slashes).unwrap_or(MAX_DEPTH).min(MAX_DEPTH));
    let (char, len) = match letter.chars().next() {
        Some(quote @ ('"' | '\'' | '`')) => (quote, 1),
        Some('n' | 'r') => ('\n', 1),
        Some('t') => ('\t', 1),
        Some('u') => match letter.get(1..5).and_then(ascii) {
            Some(char) => (char, 5),
            None => ('\\', 0),
        },
        _ => ('\\', 0),
    };
    Some((char, form, slashes + len))
}

/// What `%22` says, which may be encoded twice: `%2522`.
fn percent(text: &str, at: usize) -> Option<(char, Form, usize)> {
    let mut digits = text.get(at + 1..)?;
    let whole = digits.len();
    while let Some(more) = digits.strip_prefix("25")
        && more.get(..2).and_then(ascii).is_some()
    {
        digits = more;
    }
    let char = digits.get(..2).and_then(ascii)?;
    Some((char, Form::Percent, whole - digits.len() + 3))
}

fn ascii(digits: &str) -> Option<char> {
    let hex = digits.bytes().all(|c| c.is_ascii_hexdigit());
    let code = u8::from_str_radix(digits, 16).ok().filter(|_| hex)?;
    let char = char::from(code);
    (char == ' ' || char == '\n' || char.is_ascii_graphic()).then_some(char)
}
