//! Recordings, read: line by line, nothing of it kept, and whatever is in them
//! told apart from whatever should be. A recording may come from another
//! machine: it is data and is trusted with nothing.

use std::{
    borrow::Cow,
    io::{self, BufRead},
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{Header, KIND, Marker, long_texts::LongTexts};
use event::{Event, Pod, What, clock::Timestamp, record::SCHEMA};

/// The longest first line.
const MAX_HEADER: usize = 64 << 10;
/// The longest other line. Lists are the longest: twice as many pods as the
/// model takes.
const MAX_LINE: usize = 24 << 20;
/// Below this a line needs no look at what reading it would take.
const SMALL: usize = 64 << 10;
/// What reading a line may take.
const MAX_COST: usize = 160 << 20;
/// What a value takes at most while the line is read: one that is empty takes
/// two bytes there, and in memory a place in a list that has grown by halves,
/// several times, as serde reads an event's kind after its fields.
const VALUE: usize = 200;
/// The same in a list of pods, which is read straight into place.
const POD_VALUE: usize = 100;
/// What is kept of the buffer after a long line.
const BUFFER: usize = 1 << 20;

/// A recording cannot be read. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The disk, the pipe.
    #[error("cannot read the recording {name} after line {line}")]
    Read {
        name: String,
        /// The last line that was read.
        line: u64,
        #[source]
        source: io::Error,
    },
    /// Something else, or nothing.
    #[error(
        "{name} is no recording: {found}. What can be replayed now is what `node-tracer trace \
         --record FILE` and `node-tracer scan --record FILE` have written, from its first line on, \
         and logs of the kubelet, container runtimes, CNI plugins and the kernel"
    )]
    Foreign {
        name: String,
        /// What it is instead.
        found: &'static str,
    },
    #[error(
        "{name} is a recording in the form {schema:?}, and this version reads {SCHEMA}: replay it \
         with the node-tracer that has written it{}",
        version.as_ref().map(|version| format!(" ({version:?})")).unwrap_or_default()
    )]
    Schema {
        name: String,
        /// What it says of itself.
        schema: String,
        /// The version that it names.
        version: Option<String>,
    },
    /// Its first line lacks something.
    #[error("{name}: its first line does not say what was recorded")]
    Header {
        name: String,
        #[source]
        source: serde_json::Error,
    },
}

#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and nearly all are events"
)]
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Line {
    Event(Event),
    /// What is no event.
    Marker(Marker),
    /// Something that only a newer version knows: its name.
    Unknown(String),
    /// A line that is whole and cannot be understood.
    Damaged {
        /// Its number, from 1.
        line: u64,
        why: String,
    },
    /// The last line, which was never written to its end.
    Torn,
}

/// A recording being read.
#[derive(Debug)]
pub(crate) struct Recording<R> {
    name: String,
    header: Header,
    lines: Lines<R>,
    texts: LongTexts,
}

impl<R: BufRead> Recording<R> {
    /// Reads the first line.
    pub(crate) fn new(name: String, input: R) -> Result<Self, ReadError> {
        let mut lines = Lines::new(input);
        let header = match lines.first() {
            Err(source) => {
                let line = 0;
                return Err(ReadError::Read { name, line, source });
            }
            Ok(LineEnd::Nothing) => {
                let found = "it is empty";
                return Err(ReadError::Foreign { name, found });
            }
            Ok(LineEnd::Newline | LineEnd::File) => header(&name, &lines.buffer)?,
            Ok(LineEnd::TooLong) => {
                let found = "its first line is too long";
                return Err(ReadError::Foreign { name, found });
            }
        };
        Ok(Self {
            name,
            header,
            lines,
            texts: LongTexts::default(),
        })
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// Its name, for people.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// How many texts were too long and were cut, since the last time.
    pub(crate) fn take_cut(&mut self) -> u64 {
        self.texts.take_cut()
    }

    /// The next line; `None` after the last.
    pub(crate) fn next(&mut self) -> Result<Option<Line>, ReadError> {
        loop {
            let end = self
                .lines
                .next(MAX_LINE)
                .map_err(|source| ReadError::Read {
                    name: self.name.clone(),
                    line: self.lines.number,
                    source,
                })?;
            self.texts.cut_in(&mut self.lines.buffer);
            let text = self.lines.buffer.trim_ascii();
            return Ok(Some(match end {
                LineEnd::Nothing => return Ok(None),
                LineEnd::Newline if text.is_empty() => continue,
                LineEnd::TooLong => self.damaged(format!("it is longer than {MAX_LINE} bytes")),
                LineEnd::Newline => parse(text).unwrap_or_else(|why| self.damaged(why)),
                LineEnd::File => parse(text).unwrap_or(Line::Torn),
            }));
        }
    }

    fn damaged(&self, why: String) -> Line {
        let line = self.lines.number;
        Line::Damaged { line, why }
    }
}

/// The first line, or what the file is instead.
fn header(name: &str, line: &[u8]) -> Result<Header, ReadError> {
    let foreign = |found| {
        Err(ReadError::Foreign {
            name: name.to_owned(),
            found,
        })
    };
    let value: Value = match serde_json::from_slice(line) {
        Ok(value) => value,
        Err(_) if std::str::from_utf8(line).is_err() => return foreign("it holds no text"),
        Err(_) => return foreign("its first line is no JSON"),
    };
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    match (text("type").as_deref(), text("schema")) {
        (Some(KIND), Some(schema)) if schema == SCHEMA => {}
        (Some(KIND), Some(schema)) => {
            return Err(ReadError::Schema {
                name: name.to_owned(),
                schema,
                version: text("version"),
            });
        }
        _ if value.get("event").is_some() => return foreign("its first line is missing"),
        _ => return foreign("its first line is JSON of something else"),
    }
    Header::deserialize(value).map_err(|source| ReadError::Header {
        name: name.to_owned(),
        source,
    })
}

/// What kind of line it is.
#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(borrow)]
    event: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "type")]
    note: Option<Cow<'a, str>>,
}

/// The one kind of event that can be as long as a cluster is large, to be read
/// as it comes.
#[derive(Deserialize)]
struct Pods {
    time: Timestamp,
    source: String,
    at: Timestamp,
    #[serde(default)]
    made_after: Option<Timestamp>,
    #[serde(default)]
    whole: bool,
    #[serde(default)]
    doubt: Option<String>,
    pods: Vec<Pod>,
}

impl From<Pods> for Event {
    fn from(listed: Pods) -> Self {
        Self {
            time: listed.time,
            what: What::PodsListed {
                source: listed.source,
                at: listed.at,
                made_after: listed.made_after,
                whole: listed.whole,
                doubt: listed.doubt,
                pods: listed.pods,
            },
        }
    }
}

/// What a line says, or why that cannot be understood.
fn parse(line: &[u8]) -> Result<Line, String> {
    let event = || serde_json::from_slice::<Event>(line);
    if line.len() <= SMALL
        && let Ok(event) = event()
    {
        return Ok(Line::Event(event));
    }
    let kind: Kind<'_> = serde_json::from_slice(line).map_err(|why| reason(&why))?;
    let is_list = kind.event.as_deref() == Some("pods-listed");
    let each = if is_list { POD_VALUE } else { VALUE };
    if costs(line, each) > MAX_COST {
        return Err(String::from("it holds more than can be read at once"));
    }
    let read = match (kind.event.as_deref(), kind.note.as_deref()) {
        (Some(kind), _)
            if is_unknown::<Event>(&json!({ "time": Timestamp::EPOCH, "event": kind })) =>
        {
            Ok(Line::Unknown(kind.to_owned()))
        }
        (None, Some(kind)) if is_unknown::<Marker>(&json!({ "type": kind })) => {
            Ok(Line::Unknown(kind.to_owned()))
        }
        (Some(_), _) if is_list => {
            serde_json::from_slice::<Pods>(line).map(|listed| Line::Event(listed.into()))
        }
        (Some(_), _) => event().map(Line::Event),
        (None, Some(_)) => serde_json::from_slice(line).map(Line::Marker),
        (None, None) => {
            return Err(String::from(
                "it is neither an event nor anything else known",
            ));
        }
    };
    read.map_err(|why| reason(&why))
}

/// Whether more memory than there may be is needed to read a line.
pub(crate) fn takes_too_much(line: &[u8]) -> bool {
    line.len() > SMALL && costs(line, VALUE) > MAX_COST
}

/// What reading a line takes where each value takes so much.
fn costs(line: &[u8], each: usize) -> usize {
    values(line).saturating_mul(each) + 2 * line.len()
}

/// How many values a line has, at most.
pub(crate) fn values(line: &[u8]) -> usize {
    let (mut values, mut quoted, mut escaped) = (1, false, false);
    for byte in line {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            b',' | b'[' | b'{' if !quoted => values += 1,
            _ => {}
        }
    }
    values
}

/// Why, without the line: to JSON's reader each is the first.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line 1 column ") {
        Some((why, column)) => format!("{why} (column {column})"),
        None => text,
    }
}

/// Whether a line with nothing but its kind is of none that is known here, but
/// maybe to another version. It is read as the whole line is: what reads events
/// is large, and is compiled for each reader anew.
fn is_unknown<T: DeserializeOwned>(line: &Value) -> bool {
    let read = serde_json::from_slice::<T>(line.to_string().as_bytes());
    read.is_err_and(|why| why.to_string().starts_with("unknown variant"))
}

/// Lines of bounded length.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    input: R,
    /// The line, without its end.
    pub(crate) buffer: Vec<u8>,
    /// Which it is, from 1.
    pub(crate) number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineEnd {
    Newline,
    File,
    /// It was longer than allowed; what is in the buffer is its beginning.
    TooLong,
    Nothing,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(input: R) -> Self {
        Self {
            input,
            buffer: Vec::new(),
            number: 0,
        }
    }

    /// The first line: what is too long for it is not read on.
    fn first(&mut self) -> io::Result<LineEnd> {
        self.bounded(MAX_HEADER, false)
    }

    /// The next line. Of one that is too long, the rest is skipped.
    pub(crate) fn next(&mut self, max: usize) -> io::Result<LineEnd> {
        self.bounded(max, true)
    }

    fn bounded(&mut self, max: usize, skip: bool) -> io::Result<LineEnd> {
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER);
        let mut too_long = false;
        loop {
            let available = match self.input.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if available.is_empty() {
                let any = too_long || !self.buffer.is_empty();
                self.number += u64::from(any);
                return Ok(match any {
                    true if too_long => LineEnd::TooLong,
                    true => LineEnd::File,
                    false => LineEnd::Nothing,
                });
            }
            let newline = available.iter().position(|byte| *byte == b'\n');
            let part = available.get(..newline.unwrap_or(available.len()));
            let part = part.unwrap_or_default();
            if self.buffer.len() + part.len() > max {
                too_long = true;
                if !skip {
                    return Ok(LineEnd::TooLong);
                }
            } else if !too_long {
                self.buffer.extend_from_slice(part);
            }
            let used = part.len() + usize::from(newline.is_some());
            self.input.consume(used);
            if newline.is_some() {
                self.number += 1;
                return Ok(if too_long {
                    LineEnd::TooLong
                } else {
                    LineEnd::Newline
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
