use std::cell::Cell;

use super::*;

fn pairs(text: &str) -> (Vec<(String, String)>, &str) {
    let mut fields = Vec::new();
    let rest = take(text, &mut fields);
    let fields = fields.into_iter();
    let fields = fields.map(|(key, value)| (key.into_owned(), value.into_owned()));
    (fields.collect(), rest)
}

fn want(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| (String::from(*key), String::from(*value)))
        .collect()
}

#[test]
fn values_with_spaces_end_where_the_next_pair_begins() {
    let text =
        "a=1 b={1 0 x=2 map[] <nil>} c= d=two words e=T(node=n, name=eth0) f=\"q \\\"r\\\"\"";
    let expected = [
        ("a", "1"),
        ("b", "{1 0 x=2 map[] <nil>}"),
        ("c", ""),
        ("d", "two words"),
        ("e", "T(node=n, name=eth0)"),
        ("f", "q \"r\""),
    ];
    assert_eq!(pairs(text), (want(&expected), ""));
}

#[test]
fn brackets_that_do_not_close_are_letters() {
    let text = "a={1 {2 b=3 c={x y} d=(";
    let expected = [("a", "{1 {2"), ("b", "3"), ("c", "{x y}"), ("d", "(")];
    assert_eq!(pairs(text), (want(&expected), ""));
}

#[test]
fn quotes_that_nobody_has_escaped_end_no_value() {
    let text = "msg=\"stop of \"5f3c\" failed\" error=\"none of \"5f3c\": gone\" x=\"1\"";
    let expected = [
        ("msg", "stop of \"5f3c\" failed"),
        ("error", "none of \"5f3c\": gone"),
        ("x", "1"),
    ];
    assert_eq!(pairs(text), (want(&expected), ""));
}

#[test]
fn what_is_no_pair_is_left() {
    assert_eq!(pairs("a=1 \"b\" c"), (want(&[("a", "1 \"b\" c")]), ""));
    assert_eq!(pairs("a=\"1\" and more"), (want(&[("a", "1")]), "and more"));
    assert_eq!(pairs("no pairs"), (Vec::new(), "no pairs"));
    assert_eq!(pairs("=x"), (Vec::new(), "=x"));
}

#[test]
fn quotes_inside_of_structs_are_passed_over() {
    let text = "a=T{Name:\"x } y=1\", B:\"\"} b=2";
    assert_eq!(
        pairs(text),
        (
            want(&[("a", "T{Name:\"x } y=1\", B:\"\"}"), ("b", "2")]),
            ""
        )
    );
}

thread_local! {
    /// Quotes that were asked whether they end a value.
    pub(super) static LOOKED_AT: Cell<usize> = const { Cell::new(0) };
}

#[test]
fn each_quote_is_looked_at_once_however_many_values_have_no_end() {
    for (pattern, last) in [("a=\"a", " x"), ("a=\"", ""), ("a=\"b\"c ", "x")] {
        let text = pattern.repeat(1_000) + last;
        let quotes = text.matches('"').count();
        LOOKED_AT.set(0);
        pairs(&text);
        assert!(LOOKED_AT.get() <= quotes, "{pattern}: {}", LOOKED_AT.get());
    }
}

#[test]
fn hostile_lines_take_no_longer_than_others() {
    let begin = std::time::Instant::now();
    pairs(&"a={ ".repeat(64 << 10));
    pairs(&"a=\" ".repeat(64 << 10));
    pairs(&"a=x\"".repeat(64 << 10));
    assert!(
        begin.elapsed() < std::time::Duration::from_secs(2),
        "{:?}",
        begin.elapsed()
    );
}

#[test]
fn an_escaped_quote_opens_nothing() {
    let text = "a={b \\\" x=1} c=2";
    assert_eq!(
        pairs(text),
        (want(&[("a", "{b \\\" x=1}"), ("c", "2")]), "")
    );
}
