//! What stands in front of a record that no log has put there: the quotes of a
//! thread, line numbers, prompts, tags and colours, and the names of who has
//! passed it on.
//!
//! ```text
//! > 12: kubelet[811]: E1105 10:11:12.000001 ...
//! 10.0.0.3: user: warning: [2023-11-05T10:11:12.000Z]: ...
//! [pod/aws-node-x/aws-node] {"level":"error",...}
//! ```
//!
//! It is passed over only if a record begins behind it and no sentence is in
//! it: a message that quotes a record is no head.

use super::begin;

/// The longest of all that stands in front of a record.
const LONGEST: usize = 240;
/// Parts of it at most.
const MOST: usize = 10;
const LONGEST_PART: usize = 120;
/// Names without anything that says what they are.
const NAMES: u32 = 2;

/// How many bytes stand in front of a record that begins in a line; 0 if none
/// does.
pub(super) fn length(line: &[u8]) -> usize {
    let mut at = 0;
    let mut names = 0;
    for _ in 0..MOST {
        at += blanks(from(line, at));
        if at > 0 && begin::begins(from(line, at)).is_some() {
            return at;
        }
        let Some((length, is_name)) = part(from(line, at)) else {
            return 0;
        };
        names += u32::from(is_name);
        at += length;
        if names > NAMES || at > LONGEST {
            return 0;
        }
        if begin::begins(from(line, at)).is_some() {
            return at;
        }
    }
    0
}

/// What a page or a thread has put before a line that may be of any kind:
/// quotes, tags, colours, backquotes.
pub(super) fn dress(line: &[u8]) -> usize {
    let mut at = 0;
    while at < LONGEST {
        let rest = from(line, at);
        let next = match rest.first() {
            Some(b'<') => tag(rest),
            Some(0x1b) => colour(rest),
            Some(b'`') => Some(1),
            Some(b'>') => Some(1 + usize::from(rest.get(1) == Some(&b' '))),
            _ => None,
        };
        match next {
            Some(length) => at += length,
            None => break,
        }
    }
    at
}

fn from(line: &[u8], at: usize) -> &[u8] {
    line.get(at..).unwrap_or_default()
}

fn blanks(text: &[u8]) -> usize {
    text.iter()
        .take_while(|byte| matches!(byte, b' ' | b'\t'))
        .count()
}

/// The length of the part that begins here, and whether it is a bare name.
fn part(text: &[u8]) -> Option<(usize, bool)> {
    let sure = |length: usize| Some((length, false));
    match *text.first()? {
        0x1b => colour(text).and_then(sure),
        b'<' => tag(text).and_then(sure),
        b'`' | b'*' | b'|' | b'>' | b'$' | b'#' => sure(1),
        b'-' | b'+' if text.get(1) == Some(&b' ') => sure(1),
        // A bullet.
        0xe2 if text.starts_with("\u{2022}".as_bytes()) => sure(3),
        b'[' => {
            let end = text.iter().take(LONGEST_PART).position(|b| *b == b']')?;
            sure(end + 1 + usize::from(text.get(end + 1) == Some(&b':')))
        }
        _ => word(text),
    }
}

/// A word that says whom or where, and nothing else.
fn word(text: &[u8]) -> Option<(usize, bool)> {
    let plain = |byte: &&u8| byte.is_ascii_alphanumeric() || b"._/@~+-[]()=".contains(byte);
    let length = text.iter().take(LONGEST_PART).take_while(plain).count();
    let word = text.get(..length).filter(|word| !word.is_empty())?;
    let next = text.get(length);
    let digits = word.iter().all(u8::is_ascii_digit);
    // `kubelet[811]:`, `10.0.0.3:`, `grep`'s `kubelet.log:12:`
    if next == Some(&b':') {
        return Some((length + 1, false));
    }
    // `root@node-7:~#` comes in two parts.
    if matches!(next, Some(b'#' | b'$' | b'%')) {
        return Some((length + 1, false));
    }
    if digits && length < 8 {
        let dot = word.len() < text.len() && matches!(next, Some(b'\t' | b' '));
        return dot.then_some((length, false));
    }
    // `12.`, `12)`
    let numbered = matches!(word, [first, .., b'.' | b')'] if first.is_ascii_digit());
    if numbered {
        return Some((length, false));
    }
    if LEVELS.iter().any(|level| word.eq_ignore_ascii_case(level)) {
        return Some((length, false));
    }
    // A pod, a host: words of a sentence have neither hyphen nor digit.
    let is_name = matches!(next, Some(b' ' | b'\t'))
        && word
            .iter()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-./".contains(b))
        && word.iter().any(|b| b.is_ascii_digit() || *b == b'-');
    is_name.then_some((length, true))
}

const LEVELS: [&[u8]; 9] = [
    b"debug",
    b"info",
    b"notice",
    b"warn",
    b"warning",
    b"error",
    b"fatal",
    b"trace",
    b"critical",
];

/// `<pre>`, `<code class="x">`, `</span>`.
fn tag(text: &[u8]) -> Option<usize> {
    let name = text.strip_prefix(b"<")?;
    let name = name.strip_prefix(b"/").unwrap_or(name);
    if !name.first()?.is_ascii_lowercase() {
        return None;
    }
    let end = text.iter().take(LONGEST_PART).position(|b| *b == b'>')?;
    Some(end + 1)
}

/// `ESC [ 3 1 m`
pub(super) fn colour(text: &[u8]) -> Option<usize> {
    let inner = text.strip_prefix(b"\x1b[")?;
    let parameters = inner
        .iter()
        .take(16)
        .take_while(|b| b.is_ascii_digit() || b";?".contains(b));
    let length = parameters.count();
    inner
        .get(length)?
        .is_ascii_alphabetic()
        .then_some(length + 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_have_put_before_a_record_is_passed_over() {
        const RECORD: &str = "E1105 10:11:12.345678     811 x.go:7] hello";
        for head in [
            "> ",
            ">> > ",
            "| ",
            "12: ",
            "12. ",
            "  12\t",
            "kubelet[811]: ",
            "10.0.0.3: ",
            "10.0.0.3: user: warning: ",
            "kubelet.log:77:",
            "/var/log/syslog:",
            "[pod/aws-node-x/aws-node] ",
            "web-0 app-1 ",
            "node-7 | ",
            "root@node-7:~# ",
            "[root@node-7 ~]# ",
            "<pre><code class=\"x\">",
            "`",
            "- ",
            "\u{2022} ",
            "\x1b[31m",
            "DEBUG [node: a b] ",
        ] {
            let line = format!("{head}{RECORD}");
            assert_eq!(length(line.as_bytes()), head.len(), "{head:?}");
        }
    }

    #[test]
    fn a_message_that_quotes_a_record_is_no_head() {
        for line in [
            "container create failed: time=\"2021-06-07T12:54:29Z\" level=error msg=\"x\"",
            "it said E1105 10:11:12.345678     811 x.go:7] hello",
            "Failed to start: exit status 1: {\"level\":\"error\"}",
            "kubelet[811]: hello",
            "",
            "> > >",
            "[",
        ] {
            assert_eq!(length(line.as_bytes()), 0, "{line}");
        }
    }
}
