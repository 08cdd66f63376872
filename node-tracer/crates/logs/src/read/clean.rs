//! Text as its writer wrote it: without a terminal's colours, and without what
//! a web page makes of quotes and brackets.

use super::heads::colour;

/// What a page writes instead.
const ENTITIES: [(&str, &str); 9] = [
    ("&quot;", "\""),
    ("&#34;", "\""),
    ("&#39;", "'"),
    ("&#x27;", "'"),
    ("&apos;", "'"),
    ("&lt;", "<"),
    ("&gt;", ">"),
    ("&nbsp;", " "),
    ("&amp;", "&"),
];

/// Tags that end with a line.
const TAGS: [&str; 9] = [
    "</code>", "</pre>", "</p>", "</div>", "</span>", "</li>", "</td>", "<br>", "<br/>",
];

/// The text without them; `None` if there are none.
pub(super) fn cleaned(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let found = || memchr::memchr2_iter(0x1b, b'&', bytes).any(|at| replaced(text, at).is_some());
    let ends = bytes.last() == Some(&b'>');
    let tagged = || ends && TAGS.iter().any(|tag| text.ends_with(tag));
    if !(found() || tagged()) {
        return None;
    }
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for at in memchr::memchr2_iter(0x1b, b'&', bytes) {
        if let Some((length, instead)) = replaced(text, at).filter(|_| at >= from) {
            out.push_str(text.get(from..at).unwrap_or_default());
            out.push_str(instead);
            from = at + length;
        }
    }
    out.push_str(text.get(from..).unwrap_or_default());
    while let Some(less) = TAGS.iter().find_map(|tag| out.trim_end().strip_suffix(tag)) {
        out.truncate(less.len());
    }
    Some(out)
}

/// What stands at a place and is to be something else: its length, and what.
fn replaced(text: &str, at: usize) -> Option<(usize, &'static str)> {
    let rest = text.get(at..)?;
    if let Some(length) = colour(rest.as_bytes()) {
        return Some((length, ""));
    }
    let found = ENTITIES.iter().find(|(entity, _)| rest.starts_with(entity));
    found.map(|(entity, instead)| (entity.len(), *instead))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_and_entities_go_and_nothing_else_does() {
        for (text, expected) in [
            ("\x1b[31mERRO\x1b[0m x", Some("ERRO x")),
            ("err=&quot;a &amp;lt; b&quot;", Some("err=\"a &lt; b\"")),
            ("x</code></pre>", Some("x")),
            ("for &PodSandboxMetadata{Name:a,}", None),
            ("a & b <nil>", None),
            ("\x1b", None),
        ] {
            assert_eq!(cleaned(text).as_deref(), expected, "{text:?}");
        }
    }
}
