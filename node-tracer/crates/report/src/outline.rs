//! A page taken apart, for those who must know what is on it.

/// A page's tags and texts, one a line, without the style sheet. Panics where
/// it is not well-formed: tags close in their order, attributes are quoted, and
/// there are no signs of HTML in texts.
pub fn outline(page: &str) -> Vec<String> {
    let mut open: Vec<String> = Vec::new();
    let mut lines = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").unwrap();
    while let Some(at) = rest.find('<') {
        let text = rest[..at].split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            !text.contains('>') || open.last().is_some_and(|tag| tag == "style"),
            "{text}"
        );
        if !text.is_empty() && open.last().is_none_or(|tag| tag != "style") {
            lines.push(text);
        }
        let end = at + tag_end(&rest[at..]);
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop().as_deref(), Some(name), "before {rest:.80}"),
            None if tag.ends_with('/') => {}
            None => open.push(tag.split_whitespace().next().unwrap().to_owned()),
        }
        lines.push(format!("<{tag}>"));
    }
    assert_eq!((open.as_slice(), rest.trim()), ([].as_slice(), ""));
    lines
}

/// Where the tag ends that a text begins with.
fn tag_end(text: &str) -> usize {
    let mut quoted = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '<' if at > 0 => panic!("< in {text:.80}"),
            '>' if !quoted => return at,
            _ => {}
        }
    }
    panic!("a tag without an end: {text:.80}")
}
