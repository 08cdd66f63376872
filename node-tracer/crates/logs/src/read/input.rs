//! Where a log comes from: a file or a pipe, packed or not.
//!
//! What it is, its first bytes say, not its name.

use std::{
    fmt,
    fs::File,
    io::{self, BufReader, Read},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::SystemTime,
};

use flate2::bufread::MultiGzDecoder;

use super::{
    LogError,
    zstd::{self, Frames, TooLarge},
};

/// How much is looked at: all signatures are in the first 512 bytes; the rest
/// is for whoever wants to know what kind of text it is.
const BEGINNING: usize = 4 << 10;
/// What is read from the disk at a time.
const BUFFER: usize = 256 << 10;

/// No line is longer. What has no end of a line (/dev/zero, a packed file of
/// nothing) would be read on for ever.
const LONGEST: u64 = 1 << 30;

/// Bytes that were read, as they are in the files; clones count the same.
#[derive(Clone, Debug, Default)]
pub struct BytesRead(Arc<AtomicU64>);

impl BytesRead {
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn count<R>(&self, inner: R) -> Counted<R> {
        Counted {
            inner,
            read: self.clone(),
        }
    }
}

struct Counted<R> {
    inner: R,
    read: BytesRead,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.read.0.fetch_add(read as u64, Relaxed);
        Ok(read)
    }
}

/// No line ends any more.
#[derive(Debug, thiserror::Error)]
#[error(
    "no line ends within {} GiB (if these are zeros before a log: `tr -d '\\0' <FILE | node-tracer \
     replay -`)",
    LONGEST >> 30
)]
struct Endless;

/// Whether what is read has no end.
pub(super) fn is_endless(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|why| why.is::<Endless>())
}

/// Ends with an error where a line is too long.
struct Ending<R> {
    inner: R,
    most: u64,
    /// Bytes since the last end of a line.
    since: u64,
}

impl<R: Read> Ending<R> {
    fn new(inner: R, most: u64) -> Self {
        Self {
            inner,
            most,
            since: 0,
        }
    }
}

impl<R: Read> Read for Ending<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.since > self.most {
            return Err(io::Error::other(Endless));
        }
        let read = self.inner.read(buffer)?;
        let new = buffer.get(..read).unwrap_or_default();
        self.since = match memchr::memrchr(b'\n', new) {
            Some(newline) => (read - newline - 1) as u64,
            None => self.since + read as u64,
        };
        Ok(read)
    }
}

pub struct Input {
    name: String,
    modified: SystemTime,
    beginning: Vec<u8>,
    given: usize,
    rest: Box<dyn Read>,
    /// What went wrong while the beginning was read: it comes after it.
    failed: Option<io::Error>,
    packed: Option<&'static str>,
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input")
            .field("name", &self.name)
            .field("packed", &self.packed)
            .finish_non_exhaustive()
    }
}

impl Input {
    /// Opens a file, or standard input for `-`. What is read of it is counted.
    pub fn open(path: &Path, read: &BytesRead) -> Result<Self, LogError> {
        if path == Path::new("-") {
            // Redirected from a file, its time is known.
            let modified = rustix::fs::fstat(io::stdin()).ok().and_then(|stat| {
                let file = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
                let since = u64::try_from(stat.st_mtime).ok().filter(|_| file)?;
                Some(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(since))
            });
            let name = String::from("standard input");
            return Self::new(name, modified, Box::new(read.count(io::stdin())));
        }
        let name = path.display().to_string();
        let file = match File::open(path) {
            Ok(file) => file,
            Err(source) => return Err(LogError::Open { name, source }),
        };
        let metadata = file.metadata().ok();
        if metadata.as_ref().is_some_and(std::fs::Metadata::is_dir) {
            return Err(LogError::foreign(
                &name,
                "a directory",
                "name the log files in it",
            ));
        }
        let regular = metadata.filter(std::fs::Metadata::is_file);
        let modified = regular.and_then(|file| file.modified().ok());
        Self::new(name, modified, Box::new(read.count(file)))
    }

    /// From a stream. `modified`: when its last line was written, if that is
    /// known.
    pub fn new(
        name: String,
        modified: Option<SystemTime>,
        raw: Box<dyn Read>,
    ) -> Result<Self, LogError> {
        let mut raw = raw;
        let (magic, failed) = beginning_of(&mut raw);
        if let (true, Some(source)) = (magic.is_empty(), failed) {
            return Err(LogError::Read { name, source });
        }
        let packed = packing(&magic);
        let whole = io::Cursor::new(magic).chain(raw);
        let whole = BufReader::with_capacity(BUFFER, whole);
        let rest: Box<dyn Read> = match packed {
            None => Box::new(whole),
            Some(GZIP) => Box::new(MultiGzDecoder::new(whole)),
            Some(_) => Box::new(Frames::new(whole)),
        };
        let mut rest: Box<dyn Read> = Box::new(Ending::new(rest, LONGEST));
        let (beginning, failed) = beginning_of(&mut rest);
        if let Some((found, advice)) = foreign(&beginning) {
            return Err(LogError::foreign(&name, found, &advice));
        }
        if packed.is_some() && packing(&beginning).is_some() {
            let advice = "unpack it once, or pipe it in: `zcat FILE | node-tracer replay -`";
            return Err(LogError::foreign(&name, "compressed twice", advice));
        }
        let too_large = |error: &io::Error| error.get_ref().is_some_and(|why| why.is::<TooLarge>());
        if failed.as_ref().is_some_and(too_large) {
            let advice = "unpack it on a machine with enough memory, or pipe it in: `zstd -dc \
                          --long=31 FILE | node-tracer replay -`";
            let found = "compressed with a larger window than is allowed here (32 MiB)";
            return Err(LogError::foreign(&name, found, advice));
        }
        Ok(Self {
            name,
            modified: modified.unwrap_or_else(SystemTime::now),
            beginning,
            given: 0,
            rest,
            failed,
            packed,
        })
    }

    /// The same without what somebody takes out of its text.
    ///
    /// # Errors
    /// Nothing of the rest can be read.
    pub fn through(self, sieve: impl FnOnce(Self) -> Box<dyn Read>) -> Result<Self, LogError> {
        let (name, modified, packed) = (self.name.clone(), self.modified, self.packed);
        let mut rest = sieve(self);
        let (beginning, failed) = beginning_of(&mut rest);
        match failed {
            Some(source) if beginning.is_empty() => Err(LogError::Read { name, source }),
            failed => Ok(Self {
                name,
                modified,
                beginning,
                given: 0,
                rest,
                failed,
                packed,
            }),
        }
    }

    /// Its name, for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its first bytes, unpacked: up to some thousand.
    pub fn beginning(&self) -> &[u8] {
        &self.beginning
    }

    /// When its last line was written at the latest.
    pub fn modified(&self) -> SystemTime {
        self.modified
    }

    /// How it was compressed.
    pub fn packed(&self) -> Option<&'static str> {
        self.packed
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut beginning = self.beginning.get(self.given..).unwrap_or_default();
        if !beginning.is_empty() {
            let read = beginning.read(buffer)?;
            self.given += read;
            return Ok(read);
        }
        match self.failed.take() {
            Some(error) => Err(error),
            None => self.rest.read(buffer),
        }
    }
}

/// As much as can be read of the first bytes, and why there is no more.
fn beginning_of(input: &mut dyn Read) -> (Vec<u8>, Option<io::Error>) {
    let mut bytes = vec![0; BEGINNING];
    let mut filled = 0;
    let failed = loop {
        match input.read(bytes.get_mut(filled..).unwrap_or_default()) {
            Ok(0) => break None,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Some(error),
        }
    };
    bytes.truncate(filled);
    (bytes, failed)
}

const GZIP: &str = "gzip";
const ZSTD: &str = "zstd";

/// What it can be unpacked with here.
fn packing(bytes: &[u8]) -> Option<&'static str> {
    let magic: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
    match magic {
        [0x1f, 0x8b, 8, _] => Some(GZIP),
        zstd::FRAME => Some(ZSTD),
        magic if zstd::is_skippable(magic) => Some(ZSTD),
        _ => None,
    }
}

/// What it is instead of a log, and what to do then.
fn foreign(bytes: &[u8]) -> Option<(&'static str, String)> {
    let piped = |program: &str| format!("pipe it in: `{program} -dc FILE | node-tracer replay -`");
    let text = |advice: &str| advice.to_owned();
    let has = |magic: &[u8]| bytes.starts_with(magic);
    Some(if has(b"\xfd7zXZ\0") {
        ("compressed with xz", piped("xz"))
    } else if has(b"BZh") && bytes.get(4..10) == Some(b"1AY&SY") {
        ("compressed with bzip2", piped("bzip2"))
    } else if has(b"\x04\x22\x4d\x18") || has(b"\x02\x21\x4c\x18") {
        ("compressed with lz4", piped("lz4"))
    } else if has(b"LPKSHHRH") {
        (
            "a journal file of systemd",
            text("have it printed: `journalctl --file FILE -o export | node-tracer replay -`"),
        )
    } else if bytes.get(257..262) == Some(b"ustar")
        || has(b"PK\x03\x04")
        || has(b"7z\xbc\xaf\x27\x1c")
    {
        ("an archive", text("unpack it and name the logs in it"))
    } else if has(b"\xff\xfe") || has(b"\xfe\xff") {
        (
            "text in UTF-16",
            text("convert it: `iconv -f UTF-16 -t UTF-8 FILE | node-tracer replay -`"),
        )
    } else if has(b"\x7fELF") {
        ("a program", text("name a log"))
    } else {
        return None;
    })
}

#[cfg(test)]
mod tests;
