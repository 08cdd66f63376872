//! Text in Go's quotes: what `%q` and `strconv.Quote` write.

use std::borrow::Cow;

/// Takes a quoted text, from behind its opening quote: what it says, and what
/// follows the closing one. Of a text that was cut off, all there is.
pub(super) fn quoted(text: &str) -> (Cow<'_, str>, &str) {
    let end = length(text).unwrap_or(text.len());
    let inner = text.get(..end).unwrap_or(text);
    let rest = text.get(end + 1..).unwrap_or_default();
    match inner.contains('\\') {
        true => (Cow::Owned(unescaped(inner)), rest),
        false => (Cow::Borrowed(inner), rest),
    }
}

/// How long a quoted text is, from behind its opening quote to its closing
/// one; `None` if that is missing.
pub(super) fn length(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes.get(at) == Some(&b'"') {
            return Some(at);
        }
        at += 2;
    }
}

/// The same of a text that is nothing but one quoted text.
pub(super) fn wholly_quoted(text: &str) -> Option<Cow<'_, str>> {
    let inner = text.strip_prefix('"')?;
    inner.ends_with('"').then_some(())?;
    let (inner, rest) = quoted(inner);
    rest.is_empty().then_some(inner)
}

/// Without backslashes. Escapes that Go does not write stay as they are.
fn unescaped(text: &str) -> String {
    let mut plain: Vec<u8> = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        plain.extend_from_slice(before.as_bytes());
        let mut character = [0; 4];
        let kind = after.bytes().next().unwrap_or(b'\\');
        let code = |digits: usize, radix| {
            let digits = after.get(1..=digits)?;
            u32::from_str_radix(digits, radix).ok()
        };
        let (written, used): (&[u8], usize) = match kind {
            b'n' => (b"\n", 1),
            b't' => (b"\t", 1),
            b'r' => (b"\r", 1),
            b'"' => (b"\"", 1),
            b'\'' => (b"'", 1),
            b'\\' => (b"\\", 1.min(after.len())),
            b'a' => (b"\x07", 1),
            b'b' => (b"\x08", 1),
            b'f' => (b"\x0c", 1),
            b'v' => (b"\x0b", 1),
            b'x' => match code(2, 16) {
                Some(byte) => {
                    character = [byte as u8, 0, 0, 0];
                    (character.get(..1).unwrap_or_default(), 3)
                }
                None => (b"\\", 0),
            },
            b'u' | b'U' => {
                let digits = if kind == b'u' { 4 } else { 8 };
                match code(digits, 16).and_then(char::from_u32) {
                    Some(code) => (code.encode_utf8(&mut character).as_bytes(), digits + 1),
                    None => (b"\\", 0),
                }
            }
            _ => (b"\\", 0),
        };
        plain.extend_from_slice(written);
        rest = after.get(used..).unwrap_or_default();
    }
    plain.extend_from_slice(rest.as_bytes());
    String::from_utf8(plain)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_escapes_are_taken_off() {
        for (text, plain, rest) in [
            (r#"plain" next"#, "plain", " next"),
            (r#"" x"#, "", " x"),
            (r#"a \"b\" \\ c\n\td" k=v"#, "a \"b\" \\ c\n\td", " k=v"),
            (r#"\xe4\xb8\xad \u4e2d \U0001f600""#, "中 中 😀", ""),
            (r#"\xff" rest"#, "\u{fffd}", " rest"),
            // What Go never writes stays.
            (r#"\q \x4 \u12 \{""#, r"\q \x4 \u12 \{", ""),
            // Cut off.
            ("no end", "no end", ""),
            (r"no end\", r"no end\", ""),
            (r"no end\\", r"no end\", ""),
            (r#"no end\""#, "no end\"", ""),
        ] {
            assert_eq!(quoted(text), (Cow::from(plain), rest), "{text}");
        }
    }

    #[test]
    fn only_what_is_one_quoted_text_is_unquoted_again() {
        assert_eq!(wholly_quoted(r#""a \"b\"""#).as_deref(), Some("a \"b\""));
        assert_eq!(wholly_quoted(r#""a" and "b""#), None);
        assert_eq!(wholly_quoted(r#"plain"#), None);
        assert_eq!(wholly_quoted(r#"""#), None);
    }
}
