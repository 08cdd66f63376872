//! `key=value key="value"`, as logrus, klog and Go's slog write it, and as
//! Calico did: Go's structs for values, with spaces and without quotes.

use std::borrow::Cow;

use super::{peel::Fields, quote};

/// More fields than this has no line that anybody wrote.
const MOST: usize = 64;
/// The longest name of one.
const LONGEST: usize = 64;

/// Takes all pairs of a text; what is left is what is no pair.
pub(super) fn take<'a>(text: &'a str, fields: &mut Fields<'a>) -> &'a str {
    let mut rest = text;
    let mut balanced = true;
    let mut ends_bare = true;
    while fields.len() < MOST {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let Some(key) = key(rest) else {
            break;
        };
        let value = rest.get(key.len() + 1..).unwrap_or_default();
        let (value, after) = if let Some(quoted) = value.strip_prefix('"') {
            let (once, after) = quote::quoted(quoted);
            let goes_on = |c: char| c.is_ascii_alphanumeric() || c == '/';
            let (once, after) = match after.starts_with(goes_on) {
                // Where no end was found, there is none for what follows either:
                // nobody looks for it again.
                true if ends_bare => {
                    let bare = bare_quotes(quoted);
                    ends_bare = bare.is_some();
                    bare.unwrap_or((once, after))
                }
                _ => (once, after),
            };
            let twice = quote::wholly_quoted(&once).map(Cow::into_owned);
            (twice.map_or(once, Cow::Owned), after)
        } else if let Some(block) = value.strip_prefix("<\n") {
            block_of(block)
        } else {
            let end = end(value, &mut balanced);
            let (value, after) = value.split_at_checked(end).unwrap_or((value, ""));
            (Cow::Borrowed(value.trim_end()), after)
        };
        fields.push((Cow::Borrowed(key), value));
        rest = after;
    }
    rest.trim_start()
}

/// A value in which whoever has passed it on left quotes as they were: its end
/// is where the next pair begins, or the text ends.
fn bare_quotes(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let shown = text.trim_end().len();
    let ends = memchr::memchr_iter(b'"', text.as_bytes());
    let parts = ends.filter_map(|at| Some((text.get(..at)?, text.get(at + 1..)?)));
    let mut parts = parts.filter(|(_, rest)| {
        #[cfg(test)]
        tests::LOOKED_AT.set(tests::LOOKED_AT.get() + 1);
        let next = rest.strip_prefix(' ');
        text.len() - rest.len() >= shown || next.is_some_and(|next| key(next).is_some())
    });
    let (value, rest) = parts.next()?;
    Some((Cow::Borrowed(value), rest))
}

/// klog's form of a value of several lines, from behind its `<`.
fn block_of(text: &str) -> (Cow<'_, str>, &str) {
    let (block, after) = match text.find("\n >") {
        Some(end) => (text.get(..end), text.get(end + 3..)),
        None => (Some(text), None),
    };
    let lines = block.unwrap_or_default().split('\n');
    let lines: Vec<&str> = lines
        .map(|line| line.trim_start_matches(['\t', ' ']))
        .collect();
    (Cow::Owned(lines.join("\n")), after.unwrap_or_default())
}

/// The name of the pair that begins here.
fn key(text: &str) -> Option<&str> {
    let bytes = text.as_bytes();
    let first = bytes.first()?;
    if !first.is_ascii_alphabetic() && !b"_@".contains(first) {
        return None;
    }
    let name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.-/@".contains(byte);
    let length = bytes
        .iter()
        .take(LONGEST + 1)
        .take_while(|b| name(b))
        .count();
    (length <= LONGEST && bytes.get(length) == Some(&b'=')).then(|| text.get(..length))?
}

/// Where an unquoted value ends: before the next pair that is in no brackets.
/// `balanced`: brackets mean something. Once they do not close (structs that
/// were mangled on their way here), they are letters like others.
fn end(text: &str, balanced: &mut bool) -> usize {
    if *balanced {
        if let Some(end) = end_outside(text) {
            return end;
        }
        *balanced = false;
    }
    let mut spaces = memchr::memchr_iter(b' ', text.as_bytes());
    let next = |at: &usize| text.get(at + 1..).is_some_and(|rest| key(rest).is_some());
    spaces.find(next).unwrap_or(text.len())
}

/// The same by brackets; `None` if they do not close.
fn end_outside(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (0_u32, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'{' | b'[' | b'(' => depth += 1,
            b'}' | b']' | b')' => depth = depth.saturating_sub(1),
            // What is escaped opens nothing, here as between quotes. So a quote
            // without an end, which is a letter, is the last one: none is
            // looked for from the same place twice.
            b'\\' => at += 1,
            b'"' => at += quote::length(text.get(at + 1..)?).map_or(0, |length| length + 1),
            b' ' if depth == 0 && key(text.get(at + 1..)?).is_some() => return Some(at),
            _ => {}
        }
        at += 1;
    }
    (depth == 0).then_some(text.len())
}

#[cfg(test)]
mod tests;
