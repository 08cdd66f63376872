//! Lines that a container runtime has cut into pieces: CRI's `P`, docker's 16
//! KiB.

use super::{
    json::{self, Json},
    lines::LONGEST,
    stamp::{self, Stamp},
};

/// docker cuts at this many bytes.
const DOCKER: usize = 16 << 10;

/// Pieces by stream: stdout, stderr.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    streams: [Vec<u8>; 2],
    /// Lines whose rest was left out.
    pub(super) cut: u64,
}

impl Pieces {
    fn add(&mut self, stderr: bool, piece: &[u8]) {
        let [out, err] = &mut self.streams;
        let pieces = if stderr { err } else { out };
        let room = LONGEST.saturating_sub(pieces.len());
        // Counted once a line.
        self.cut += u64::from(room > 0 && piece.len() > room);
        pieces.extend_from_slice(piece.get(..room).unwrap_or(piece));
    }

    /// Whether nothing waits for its rest.
    pub(super) fn is_empty(&self) -> bool {
        self.streams.iter().all(Vec::is_empty)
    }

    /// A piece of a CRI log that goes on.
    pub(super) fn cri_piece(&mut self, record: &[u8]) {
        let Some((stderr, body)) = cri(record) else {
            return;
        };
        let begun = !self.streams[usize::from(stderr)].is_empty();
        let piece = match begun {
            true => record.get(body..).unwrap_or_default(),
            false => record,
        };
        self.add(stderr, piece);
    }

    /// The last piece; the whole line, if there were others.
    pub(super) fn cri_end(&mut self, record: &[u8]) -> Option<Vec<u8>> {
        let (stderr, body) = cri(record)?;
        if self.streams[usize::from(stderr)].is_empty() {
            return None;
        }
        self.add(stderr, record.get(body..).unwrap_or_default());
        Some(std::mem::take(&mut self.streams[usize::from(stderr)]))
    }

    /// A line of docker's, if it is or ends a line in pieces: `None` if it is
    /// whole, an empty text if it goes on, else all of it with its time.
    pub(super) fn docker(&mut self, record: &[u8]) -> Option<(Vec<u8>, Option<Stamp>)> {
        if record.len() < DOCKER && self.is_empty() {
            return None;
        }
        let text = String::from_utf8_lossy(record);
        let (mut log, mut stderr, mut time) = (None, false, None);
        for (key, value) in json::object(&text)? {
            match (&*key, value) {
                ("log", Json::Text(text)) => log = Some(text),
                ("stream", Json::Text(text)) => stderr = text == "stderr",
                ("time", Json::Text(text)) => time = stamp::any(&text),
                _ => {}
            }
        }
        let log = log?;
        let whole = log.ends_with('\n');
        if whole && self.streams[usize::from(stderr)].is_empty() {
            return None;
        }
        self.add(stderr, log.as_bytes());
        Some(match whole {
            true => (std::mem::take(&mut self.streams[usize::from(stderr)]), time),
            false => (Vec::new(), time),
        })
    }

    /// What never got its end.
    pub(super) fn left(&mut self) -> Option<Vec<u8>> {
        let left = self.streams.iter_mut().find(|pieces| !pieces.is_empty());
        left.map(std::mem::take)
    }
}

/// Whether a CRI record is of stderr, and where its text begins.
fn cri(record: &[u8]) -> Option<(bool, usize)> {
    let space = memchr::memchr(b' ', record)?;
    // ` stderr F text`
    let stderr = record.get(space + 1..)?.starts_with(b"stderr");
    let tag = space + 8;
    let after = memchr::memchr(b' ', record.get(tag + 1..)?)?;
    Some((stderr, tag + 1 + after + 1))
}
