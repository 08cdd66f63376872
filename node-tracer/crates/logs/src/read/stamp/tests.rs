use super::*;

fn instant(found: Option<(Stamp, &str)>) -> Option<(i64, u8, &str)> {
    match found {
        Some((Stamp::Instant(nanos, digits), rest)) => Some((nanos, digits, rest)),
        _ => None,
    }
}

#[test]
fn zones_are_taken_off() {
    let second = 1_699_179_072 * SECOND;
    for (text, nanos, digits, rest) in [
        ("2023-11-05T10:11:12Z x", second, 0, " x"),
        ("2023-11-05T18:11:12.5+08:00", second + SECOND / 2, 1, ""),
        (
            "2023-11-05T04:41:12,123456789-0530 x",
            second + 123_456_789,
            9,
            " x",
        ),
        ("2023-11-05 18:11:12 +0800 CST x", second, 0, " x"),
        ("2023-11-05 18:11:12.000 +0800 x", second, 3, " x"),
        ("2023-11-05T18:11:12+08 x", second, 0, " x"),
        // Longer fractions than there are nanoseconds.
        (
            "2023-11-05T10:11:12.1234567891Z",
            second + 123_456_789,
            9,
            "",
        ),
        // A leap second.
        ("2016-12-31T23:59:60Z", 1_483_228_799 * SECOND, 0, ""),
    ] {
        assert_eq!(instant(iso(text)), Some((nanos, digits, rest)), "{text}");
    }
}

#[test]
fn what_is_no_time_is_none() {
    for text in [
        "",
        "2023-13-05T10:11:12Z",
        "2023-11-31T10:11:12Z",
        "2023-11-05T24:11:12Z",
        "2023-11-05T10:61:12Z",
        "2023-11-05",
        "2023-11-05x10:11:12",
        "ü023-11-05T10:11:12Z",
    ] {
        assert_eq!(iso(text), None, "{text}");
    }
    for text in [
        "Feb 30 10:11:12",
        "Foo 12 10:11:12",
        "Nov  5 1:11:12",
        "Nov  5",
        "ééé 5",
    ] {
        assert_eq!(short(text), None, "{text}");
    }
    for text in [
        "[1] a",
        "[ x.1]",
        "[99999999999999999999.5]",
        "[1.5",
        "[1.5][X 1] a",
    ] {
        assert_eq!(uptime(text), None, "{text}");
    }
    assert_eq!(unix("12.5 a"), None);
    assert_eq!(epoch(f64::NAN), None);
    assert_eq!(epoch(-1.0), None);
    assert_eq!(epoch(f64::INFINITY), None);
}

#[test]
fn numbers_are_times_of_these_decades() {
    let at = |number| match epoch(number) {
        Some(Stamp::Instant(nanos, _)) => nanos / SECOND,
        _ => 0,
    };
    for number in [
        1_699_179_072.5,
        1_699_179_072_500.0,
        1.699_179_072_5e15,
        1.699_179_072_5e18,
    ] {
        assert_eq!(at(number), 1_699_179_072, "{number}");
    }
}

#[test]
fn zones_by_name_that_mean_several_are_not_guessed() {
    let wall = |found: Option<(Stamp, &str)>| matches!(found, Some((Stamp::Wall(_), " n")));
    assert!(wall(full("Sun 2023-11-05 10:11:12 CST n")));
    assert!(instant(full("Sun 2023-11-05 10:11:12 UTC n")).is_some());
    assert!(instant(full("Sun 2023-11-05 10:11:12 +08 n")).is_some());
}

#[test]
fn a_thread_may_stand_beside_an_uptime() {
    let want = Some((Stamp::Uptime(12 * SECOND + 345_678_000), " a"));
    assert_eq!(uptime("[   12.345678] a"), want);
    assert_eq!(uptime("[   12.345678][  T123] a"), want);
}
