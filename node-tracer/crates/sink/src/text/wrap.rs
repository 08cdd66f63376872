//! Long lines in several, with a hanging indent.
//!
//! Lines are broken at spaces only: an escaped sequence has none, and a long
//! path stays whole. Commands stay whole, too, as far as they fit: half of one,
//! pasted into a shell, is another command.

use std::borrow::Cow;

use super::style::{Painter, Style};
use event::wording::advice;

/// Columns that text has, however far it is indented.
const LEAST: usize = 28;
const COMMANDS: [&str; 10] = [
    "crictl",
    "dmesg",
    "echo",
    "grep",
    "ip",
    "journalctl",
    "kubectl",
    "node-tracer",
    "nsenter",
    "umount",
];

/// The lines of `text`, which must be escaped and without colours, in so many
/// columns. The first begins at column `first`, the others at column `rest`.
pub(super) fn lines(text: &str, width: usize, first: usize, rest: usize) -> Vec<String> {
    let room = |column: usize| width.saturating_sub(column).max(LEAST);
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut length = 0;
    for (gap, unit) in units(text, room(rest)) {
        let width = unit.chars().count();
        let now = if lines.is_empty() { first } else { rest };
        if length > 0 && length + gap + width > room(now) {
            lines.push(std::mem::take(&mut line));
            length = 0;
        } else {
            line.extend(std::iter::repeat_n(' ', gap));
            length += gap;
        }
        line += unit;
        length += width;
    }
    lines.push(line);
    lines
}

/// The same, joined: the text of one value whose first line is begun.
pub(super) fn hanging(text: &str, width: usize, first: usize, rest: usize) -> String {
    lines(text, width, first, rest).join(&format!("\n{:rest$}", ""))
}

/// Fields two spaces apart, in as many lines as they need; those after the first
/// begin at column `rest`.
pub(super) fn fields(fields: &[(String, Style)], paint: Painter, rest: usize) -> String {
    let mut text = String::new();
    let mut length = 0;
    for (field, style) in fields {
        let width = field.chars().count();
        if length > 0 && length + 2 + width > paint.width {
            text += &format!("\n{:rest$}", "");
            length = rest;
        } else if length > 0 {
            text += "  ";
            length += 2;
        }
        text += &paint.paint(*style, field);
        length += width;
    }
    text + "\n"
}

/// What ends a line that goes on.
const MORE: &str = "...";

/// The beginning of a line whose fields are two spaces apart: whole fields, or
/// whole words of the first one that is too long for all of it.
pub(super) fn cut(line: &str, width: usize) -> Cow<'_, str> {
    if line.chars().count() <= width {
        return Cow::Borrowed(line);
    }
    let room = width.saturating_sub(2 + MORE.len());
    let limit = line
        .char_indices()
        .nth(room)
        .map_or(line.len(), |(at, _)| at);
    // A gap that begins at the limit ends the field before it.
    let head = line.get(..=limit).unwrap_or(line);
    let field = line.get(..limit + 2).unwrap_or(head).rfind("  ");
    let word = head.rfind(' ');
    // A line of little but a name and a time says too little.
    let end = match field.filter(|end| *end >= width / 2) {
        Some(end) => Some(end),
        None => word.filter(|end| *end >= width / 4),
    };
    let kept = line.get(..end.unwrap_or(limit)).unwrap_or(line);
    Cow::Owned(format!("{}  {MORE}", kept.trim_end()))
}

/// The first line of a text that begins at column `first`; if there is more,
/// `more` says so.
pub(super) fn first_line(text: &str, width: usize, first: usize, more: &str) -> String {
    if first + text.chars().count() <= width {
        return text.to_owned();
    }
    let width = width.saturating_sub(more.len());
    let first = lines(text, width, first, first).into_iter().next();
    first.unwrap_or_default() + more
}

/// A step in one line that begins at column `first`: a command whole, with as
/// much of its comment as fits; of a sentence the beginning.
pub(super) fn step(text: &str, width: usize, first: usize) -> String {
    let Some(command) = advice::command(text) else {
        return first_line(text, width, first, " …");
    };
    let Some(comment) = command.comment else {
        return text.to_owned();
    };
    let room = width.saturating_sub(first + command.command.chars().count());
    if advice::commented("", comment).chars().count() <= room {
        return text.to_owned();
    }
    let mut kept = String::new();
    for word in comment.split(' ') {
        let more = format!("{kept} {word}");
        if advice::commented("", more.trim_start()).chars().count() + 2 > room {
            break;
        }
        kept = more;
    }
    match kept.trim_start().trim_end_matches(',') {
        "" => command.command.to_owned(),
        kept => advice::commented(command.command, &format!("{kept} …")),
    }
}

/// A step with its mark (`1. `) in lines; the first begins at column `first`, the
/// others of a sentence at `rest`. A command is whole on its line. What of its
/// comment does not fit is a comment on the next lines, too: they may be pasted.
pub(super) fn step_lines(
    mark: &str,
    text: &str,
    width: usize,
    first: usize,
    rest: usize,
) -> Vec<String> {
    let whole = format!("{mark}{text}");
    let hang = |line: String| format!("{:1$}{line}", "", rest - first);
    let Some(it) = advice::command(text) else {
        let mut lines = lines(&whole, width, first, rest).into_iter();
        return lines.next().into_iter().chain(lines.map(hang)).collect();
    };
    if first + whole.chars().count() <= width {
        return vec![whole];
    }
    let comment = lines(it.comment.unwrap_or_default(), width, rest + 2, rest + 2);
    let comment = comment.into_iter().filter(|line| !line.is_empty());
    let comment = comment.map(|line| hang(format!("# {line}")));
    let command = format!("{mark}{}", it.command);
    std::iter::once(command).chain(comment).collect()
}

/// What is not broken, each with the number of spaces before it.
fn units(text: &str, room: usize) -> Vec<(usize, &str)> {
    let mut units = Vec::new();
    let mut rest = text;
    loop {
        let start = rest.len() - rest.trim_start_matches(' ').len();
        let (_, unit) = rest.split_at(start);
        if unit.is_empty() {
            return units;
        }
        let end = command(unit, room).unwrap_or_else(|| word(unit));
        let (unit, after) = unit.split_at(end);
        units.push((start, unit));
        rest = after;
    }
}

/// Length of the first word.
fn word(text: &str) -> usize {
    text.find(' ').unwrap_or(text.len())
}

/// Length of the command at the beginning of `text`, if one is there and is not
/// too long.
fn command(text: &str, room: usize) -> Option<usize> {
    let first = text[..word(text)].trim_start_matches('(');
    if !COMMANDS.contains(&first) {
        return None;
    }
    let mut end = word(text);
    while !text[..end].ends_with([')', ',', ';', ':']) && end < text.len() {
        end += 1 + word(&text[end + 1..]);
    }
    (text[..end].chars().count() <= room).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTH: usize = 110;

    #[test]
    fn what_fits_is_left_alone() {
        for text in ["", "a", "a  b   c", &"x".repeat(WIDTH)] {
            assert_eq!(lines(text, WIDTH, 0, 4), [text]);
        }
    }

    #[test]
    fn lines_are_broken_at_spaces_and_hang() {
        let text = "word ".repeat(40);
        let text = text.trim_end();
        for width in [72, WIDTH, 160] {
            let broken = hanging(text, width, 20, 24);
            assert_eq!(broken.replace(&format!("\n{:24}", ""), " "), text);
            for (number, line) in (0..).zip(broken.lines()) {
                let begun = if number == 0 { 20 } else { 0 };
                assert!(line.chars().count() + begun <= width, "{line}");
            }
        }
    }

    #[test]
    fn a_word_that_is_too_long_is_whole_on_a_line_of_its_own() {
        let long = r"\x1b".repeat(60);
        assert_eq!(
            lines(&format!("a {long} b"), WIDTH, 0, 0),
            ["a", &long, "b"]
        );
    }

    #[test]
    fn an_event_is_cut_at_a_field_and_never_in_a_word() {
        let line = "05:53:15.021  task-blocked      dd[48213]  5.0 s in request_wait_answer  pod \
                    uid 5b0c9f6e-2a44-4f0c-9a41-7b1f8d2f4a10  container 77d0b1c2e3f4a  netns 4026532412";
        assert_eq!(cut(line, 200), line);
        assert_eq!(
            cut(line, 80),
            "05:53:15.021  task-blocked      dd[48213]  5.0 s in request_wait_answer  ..."
        );
        for width in 40..line.len() {
            let cut = cut(line, width);
            assert!(cut.chars().count() <= width, "{width}: {cut}");
            let kept = cut.strip_suffix("  ...").unwrap();
            let rest = line.strip_prefix(kept).unwrap();
            assert!(rest.starts_with(' '), "{width}: {cut}");
            assert!(width < 80 || rest.starts_with("  "), "{width}: {cut}");
        }
        let long = format!("05:53:15.021  cni-call          {}", "word ".repeat(60));
        assert!(cut(&long, 80).ends_with(" word  ..."), "{}", cut(&long, 80));
        assert!(cut(&long, 80).len() > 70);
        assert!(cut(&"x".repeat(90), 80).len() <= 80);
    }

    #[test]
    fn a_command_is_not_broken() {
        let command = "kubectl delete pod -n shop checkout-5b7d9c-q4w7z";
        let text = format!("{}: {command}", "x".repeat(80));
        assert_eq!(lines(&text, WIDTH, 0, 0)[1], command);
        let text = format!("{} (grep ' fuse' /proc/1/mountinfo) and", "x".repeat(100));
        assert_eq!(
            lines(&text, WIDTH, 0, 0)[1],
            "(grep ' fuse' /proc/1/mountinfo) and"
        );
    }

    #[test]
    fn what_only_begins_like_a_command_is_broken_all_the_same() {
        let text = format!("kubectl {}", "x ".repeat(200));
        assert!(
            lines(&text, WIDTH, 0, 0)
                .iter()
                .all(|line| line.len() <= WIDTH)
        );
    }
}
