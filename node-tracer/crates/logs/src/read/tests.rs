use std::{io::Read, time::SystemTime};

use super::*;
use crate::entry::Level;
use event::clock::Timestamp;

mod damage;
mod dates;
mod folding;
mod forms;
mod journal;
mod pieces;

/// An entry that outlives its reader.
#[derive(Clone, Debug, PartialEq)]
struct ReadEntry {
    time: Option<String>,
    host: Option<String>,
    ident: Option<String>,
    pid: Option<u32>,
    level: Option<Level>,
    message: String,
    fields: Vec<(String, String)>,
    line: u64,
}

impl From<Entry<'_>> for ReadEntry {
    fn from(entry: Entry<'_>) -> Self {
        let text = |text: Option<&str>| text.map(str::to_owned);
        let fields = entry.fields.into_iter();
        Self {
            time: entry.time.map(|time| time.to_string()),
            host: text(entry.host),
            ident: text(entry.ident),
            pid: entry.pid,
            level: entry.level,
            message: entry.message.into_owned(),
            fields: fields
                .map(|(key, value)| (key.into_owned(), value.into_owned()))
                .collect(),
            line: entry.line,
        }
    }
}

impl ReadEntry {
    fn field(&self, name: &str) -> &str {
        let found = self.fields.iter().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value.as_str())
    }
}

/// Hands out so many bytes at a time.
struct Slowly(io::Cursor<Vec<u8>>, usize);

impl Read for Slowly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(self.1);
        self.0.read(buffer.get_mut(..length).unwrap_or_default())
    }
}

/// When all logs of these tests were last written.
fn modified() -> SystemTime {
    let time = humantime::parse_rfc3339("2023-12-01T00:00:00Z");
    time.unwrap()
}

fn reader(text: &[u8], needles: &[&str], options: LogOptions) -> LogReader {
    let raw = Slowly(io::Cursor::new(text.to_vec()), usize::MAX);
    let input = Input::new(String::from("a log"), Some(modified()), Box::new(raw)).unwrap();
    LogReader::new(input, Words::new(needles), options)
}

fn rest(reader: &mut LogReader) -> Vec<ReadEntry> {
    let mut all = Vec::new();
    while let Some(entry) = reader.next().unwrap() {
        all.push(ReadEntry::from(entry));
    }
    all
}

fn all(text: &str) -> Vec<ReadEntry> {
    rest(&mut reader(text.as_bytes(), &[], LogOptions::default()))
}

fn one(text: &str) -> ReadEntry {
    let mut all = all(text);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

#[test]
fn only_what_matters_is_given_out_and_everything_is_counted() {
    let text = "Nov  5 10:11:12 n kubelet[1]: nothing\n\
                Nov  5 10:11:13 n kubelet[1]: CNI_COMMAND=DEL\n\
                text of somebody\n\
                Nov  5 10:11:14 n kubelet[1]: nothing again\n";
    let mut reader = reader(text.as_bytes(), &["CNI_COMMAND"], LogOptions::default());
    let told: Vec<(u64, String)> = rest(&mut reader)
        .into_iter()
        .map(|told| (told.line, told.message))
        .collect();
    let want = [(2, "CNI_COMMAND=DEL"), (3, "text of somebody")];
    assert_eq!(told, want.map(|(line, text)| (line, text.to_owned())));
    let [seen] = reader.formats().try_into().unwrap();
    assert_eq!((seen.form, seen.records), (Form::Short, 3));
    let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
    assert_eq!(time(seen.first).unwrap(), "2023-11-05T10:11:12.000000Z");
    assert_eq!(time(seen.last).unwrap(), "2023-11-05T10:11:14.000000Z");
    assert_eq!(reader.bytes(), text.len() as u64);
    assert_eq!(reader.name(), "a log");
}

#[test]
fn what_is_read_in_small_pieces_is_the_same() {
    let text = "\u{feff}Nov  5 10:11:12 n kubelet[1]: one CNI_COMMAND\r\n\
                Nov  5 10:11:13 n kubelet[1]: time=\"2023-11-05T10:11:13+01:00\" level=info msg=\"two\n\
                \tlines CNI_COMMAND\"\n\nno record\n";
    let whole = all(text);
    assert_eq!(whole.len(), 3, "{whole:#?}");
    for step in [1, 2, 3, 7, 64] {
        let raw = Slowly(io::Cursor::new(text.into()), step);
        let input = Input::new(String::from("a log"), Some(modified()), Box::new(raw)).unwrap();
        let mut reader = LogReader::new(input, Words::new(&[]), LogOptions::default());
        assert_eq!(rest(&mut reader), whole, "{step}");
    }
}

/// What is quadratic takes minutes with these, and what is linear no time.
#[test]
fn a_line_of_any_pattern_is_read_in_time_that_grows_with_its_length() {
    const HEADS: [&str; 4] = [
        "E1105 10:11:12.000001 811 x.go:7] \"failed\" ",
        "time=\"2023-11-05T10:11:12Z\" level=error msg=\"failed\" ",
        "ERRO[2023-11-05T10:11:12Z] failed ",
        "2023-11-05 10:11:12.000 [ERROR][12] cni-plugin/k8s.go 313: failed ",
    ];
    const PATTERNS: [(&str, &str, &str); 11] = [
        ("", "a=\"", ""),
        ("", "a=\"a", " x"),
        ("a={\"", "\\\"", "x"),
        ("a=", "b (\"", ""),
        ("a=\"", "\"b", ""),
        ("", "a ", "x=1"),
        ("", "a=b ", ""),
        ("", "a= ", ""),
        ("a={", "{\"", " x=1"),
        ("a=[\"", "\\\\\"", ""),
        ("a=\"b", "\"", "c"),
    ];
    let step = (lines::LONGEST - 256) / 2;
    for (head, (first, again, last)) in HEADS
        .into_iter()
        .flat_map(|head| PATTERNS.map(|pattern| (head, pattern)))
    {
        let pattern = again.repeat(step / again.len());
        let blanks = " ".repeat(step);
        for text in [
            format!("{head}{first}{pattern}{pattern}{last}"),
            format!("{head}{first}{pattern}{blanks}\u{a0}"),
        ] {
            let begun = std::time::Instant::now();
            assert_eq!(all(&text).len(), 1);
            let took = begun.elapsed();
            assert!(
                took.as_secs() < 3,
                "{took:?}: {head}{first}{again}...{last}"
            );
        }
    }
}
