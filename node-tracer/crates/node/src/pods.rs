//! The pods that the API server knows, from what `kubectl get pods -A -o json`
//! prints: a file that is read again whenever it changes, or standard input.
//!
//! Accepted are a `List` or `PodList`, a single `Pod`, `Pod`s one after the
//! other, and a watch stream of them, with or without `ADDED`, `MODIFIED`,
//! `DELETED` around each. Everything that is not needed is skipped while it is
//! read, so that memory goes with the number of pods and not with the size of
//! their specifications.
//!
//! Whether a list is of all namespaces cannot be seen in it. That it has only
//! a part of the pods because it was asked for in pages can, and is an error:
//! a pod that is missing from a list counts as deleted.
//!
//! Nor can be seen when it was made. That was before the file was written, and
//! not before the newest time on it that Kubernetes wrote; what began in between,
//! it may not have.

use std::{
    fs::{self, File},
    io::{self, BufReader, Read},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use event::{Pod, clock::Timestamp};

pub mod document;
pub mod object;
mod parse;
mod reader;

pub use reader::PodsReader;

use reader::{Counted, Progress};

/// Largest list that is read. A pod takes 5 to 15 kB.
pub const MAX_SIZE: u64 = 512 << 20;

/// Bytes of pods that are kept: of some 200,000. Kubernetes allows 150,000 in a
/// cluster.
pub const MAX_KEPT: usize = 96 << 20;

/// Name of standard input in messages.
const STDIN: &str = "standard input";

/// Why there is no list of pods. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum PodsError {
    /// The file cannot be read.
    #[error("cannot read the list of pods {from}")]
    Read {
        /// The file, or standard input.
        from: String,
        #[source]
        source: io::Error,
    },
    /// Nothing comes of it.
    #[error(
        "the list of pods {from} does not answer (nothing for {} s): its disk or file server hangs; \
         it is read when it answers", after.as_secs_f32()
    )]
    Hangs {
        /// The file, or standard input.
        from: String,
        /// How long was waited.
        after: Duration,
    },
    /// There is nothing in it.
    #[error(
        "{from} is empty, expected what `kubectl get pods -A -o json` prints; it may be being written"
    )]
    Empty {
        /// The file, or standard input.
        from: String,
    },
    /// It is not JSON, or something in it is not what it is in a pod.
    #[error("{from} is no list of pods: {what}; make it with: kubectl get pods -A -o json")]
    Json {
        /// The file, or standard input.
        from: String,
        /// What, with line and column, and without a text of the file: it may be
        /// anything that was given by mistake.
        what: String,
    },
    /// It is JSON of another kind.
    #[error("{from} is no list of pods but {what}; make it with: kubectl get pods -A -o json")]
    NotPods {
        /// The file, or standard input.
        from: String,
        what: String,
    },
    /// It is one page of a list.
    #[error(
        "{from} has only a part of the pods (metadata.continue is set); make it with: kubectl get pods -A -o json"
    )]
    Partial {
        /// The file, or standard input.
        from: String,
    },
    /// It is too large to be a list of pods.
    #[error(
        "{from} is larger than {} MiB, or its pods take more than {} MiB; list only this node's: kubectl get pods -A -o json --field-selector spec.nodeName=NODE",
        MAX_SIZE >> 20, MAX_KEPT >> 20
    )]
    TooLarge {
        /// The file, or standard input.
        from: String,
    },
}

/// The pods at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Listing {
    /// Where it is from: the path, `standard input`, or the API server.
    pub source: String,
    /// The time for which it is true: when the file was written, or a moment
    /// before the server was asked.
    pub at: Timestamp,
    /// The newest time on a list in a file: it was made then or later, and the
    /// file may be a copy that is much younger.
    pub made_after: Option<Timestamp>,
    /// Every pod of this node is on it, as far as the server goes. A file may
    /// be of one namespace, or of another cluster.
    pub whole: bool,
    /// Why it shows of no pod that it is gone, and how to mend that.
    pub doubt: Option<String>,
    /// The pods, each once.
    pub pods: Vec<Pod>,
}

/// Bytes of a pod, about: in memory, and in an event.
pub fn weight(pod: &Pod) -> usize {
    let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let texts = pod.namespace.len() + pod.name.len() + optional(&pod.node) + optional(&pod.phase);
    let uids: usize = pod.uids.iter().map(String::len).sum();
    size_of::<Pod>() + texts + 2 * uids + size_of_val(pod.ips.as_slice())
}

/// A list of pods in a file, or on standard input.
#[derive(Debug)]
struct PodsFile {
    input: Input,
    progress: Arc<Progress>,
    /// What was there the last time.
    seen: Option<FileVersion>,
}

#[derive(Debug)]
enum Input {
    File(PathBuf),
    Stdin,
}

/// What a file is known by: a change of any of it makes it worth reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileVersion {
    File {
        dev: u64,
        inode: u64,
        size: u64,
        mtime: (i64, i64),
    },
    Unreadable(io::ErrorKind),
    /// A stream, which can be read only once.
    Stream,
}

impl FileVersion {
    fn of(metadata: &fs::Metadata) -> Self {
        if !metadata.is_file() && !metadata.is_dir() {
            return Self::Stream;
        }
        Self::File {
            dev: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

impl PodsFile {
    /// A list in a file; `-` is standard input.
    fn new(path: &Path) -> Self {
        let input = match path.to_str() {
            Some("-") => Input::Stdin,
            _ => Input::File(path.to_owned()),
        };
        let progress = Arc::new(Progress::default());
        let is_stdin = matches!(input, Input::Stdin);
        progress.is_stream.store(is_stdin, Relaxed);
        Self {
            input,
            progress,
            seen: None,
        }
    }

    /// Where the list is from.
    fn source(&self) -> String {
        match &self.input {
            Input::File(path) => path.display().to_string(),
            Input::Stdin => STDIN.to_owned(),
        }
    }

    /// The list, if it is new or has changed since the last call; also an
    /// error is told only once. Standard input and pipes are read once, to
    /// their end. After an error the earlier list is the best there is.
    ///
    /// Blocks as long as the file system does.
    fn poll(&mut self) -> Option<Result<Listing, PodsError>> {
        if self.seen == Some(FileVersion::Stream) {
            return None;
        }
        let Input::File(path) = &self.input else {
            self.seen = Some(FileVersion::Stream);
            return Some(self.read(&mut io::stdin().lock(), None));
        };
        let opened = fs::metadata(path).and_then(|metadata| {
            let seen = FileVersion::of(&metadata);
            let is_stream = seen == FileVersion::Stream;
            self.progress.is_stream.store(is_stream, Relaxed);
            if self.seen == Some(seen) {
                return Ok(None);
            }
            // Of the file that is open: the path may lead to a newer one now.
            let file = File::open(path)?;
            let metadata = file.metadata()?;
            Ok(Some((file, metadata)))
        });
        match opened {
            Ok(None) => None,
            Ok(Some((mut file, metadata))) => {
                // Taken before the content: a write in between is seen next time.
                self.seen = Some(FileVersion::of(&metadata));
                if metadata.is_file() && metadata.size() > MAX_SIZE {
                    return Some(Err(PodsError::TooLarge {
                        from: self.source(),
                    }));
                }
                let written = metadata.modified().ok().filter(|_| metadata.is_file());
                Some(self.read(&mut file, written.map(Timestamp::from)))
            }
            Err(source) => {
                let seen = FileVersion::Unreadable(source.kind());
                let known = self.seen == Some(seen);
                self.seen = Some(seen);
                let from = self.source();
                (!known).then_some(Err(PodsError::Read { from, source }))
            }
        }
    }

    /// The same, although it may not have changed.
    fn poll_again(&mut self, again: bool) -> Option<Result<Listing, PodsError>> {
        if again && self.seen != Some(FileVersion::Stream) {
            self.seen = None;
        }
        self.poll()
    }

    /// What was not written at some time comes while it is read.
    fn read(&self, input: &mut dyn Read, written: Option<Timestamp>) -> Result<Listing, PodsError> {
        let at = written.unwrap_or_else(sys::clock::now);
        let source = self.source();
        let input = Counted(input, &self.progress);
        let parsed = parse::pods(BufReader::with_capacity(64 << 10, input), &source)?;
        // By a clock that is ahead, how far nobody knows, the list is of any age.
        let end = written.unwrap_or_else(sys::clock::now);
        let is_to_come = parsed.newest.is_some_and(|newest| newest > end);
        let made_after = match parsed.has_list && !is_to_come {
            true => parsed.newest,
            false => Some(Timestamp::EPOCH),
        };
        Ok(Listing {
            source,
            at,
            made_after: made_after.map(|made_after| made_after.min(at)),
            whole: false,
            doubt: parsed.pods.is_empty().then(|| {
                String::from(
                    "the list has no pod at all; it may be of another cluster; make it with: \
                     kubectl get pods -A -o json",
                )
            }),
            pods: parsed.pods,
        })
    }
}

/// A document of kubectl.
#[cfg(feature = "testing")]
pub fn fuzz(data: &[u8]) {
    let _ = parse::pods(data, "pods.json");
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn list(name: &str) -> String {
        format!(
            r#"{{"kind":"List","items":[{{"metadata":{{"name":"{name}","namespace":"a","uid":"u"}}}}]}}"#
        )
    }

    fn name(poll: Option<Result<Listing, PodsError>>) -> String {
        poll.unwrap().unwrap().pods[0].name.clone()
    }

    #[test]
    fn a_file_is_read_again_only_after_a_change_and_a_bad_one_is_said_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pods.json");
        let mut file = PodsFile::new(&path);
        assert!(matches!(file.poll(), Some(Err(PodsError::Read { .. }))));
        assert!(file.poll().is_none());

        fs::write(&path, list("one")).unwrap();
        let time = std::time::UNIX_EPOCH + Duration::new(1_763_704_512, 5);
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(time)
            .unwrap();
        let listing = file.poll().unwrap().unwrap();
        assert_eq!((listing.at, listing.pods.len()), (time.into(), 1));
        assert_eq!(listing.source, path.display().to_string());
        assert!(file.poll().is_none());

        // Replaced in one step, as a careful writer does.
        let next = folder.path().join("next");
        fs::write(&next, list("two")).unwrap();
        fs::rename(&next, &path).unwrap();
        assert_eq!(name(file.poll()), "two");

        fs::write(&path, "{ \"items\": [").unwrap();
        assert!(matches!(file.poll(), Some(Err(PodsError::Json { .. }))));
        assert!(file.poll().is_none());

        fs::remove_file(&path).unwrap();
        assert!(matches!(file.poll(), Some(Err(PodsError::Read { .. }))));
        fs::write(&path, list("three")).unwrap();
        assert_eq!(name(file.poll()), "three");
    }

    #[test]
    fn a_list_was_made_after_the_newest_time_on_it_and_before_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pods.json");
        let read = |created: &str| {
            let pod =
                format!(r#"{{"metadata":{{"name":"a","uid":"u","creationTimestamp":{created}}}}}"#);
            fs::write(&path, format!(r#"{{"kind":"List","items":[{pod}]}}"#)).unwrap();
            PodsFile::new(&path).poll().unwrap().unwrap()
        };
        let time = "2025-11-21T03:00:00Z";
        let listing = read(&format!("{time:?}"));
        assert_eq!(listing.made_after, Timestamp::parse(time));
        assert!(listing.at > listing.made_after.unwrap());
        assert_eq!(read("null").made_after, None);
        let ahead = read(r#""2199-01-01T00:00:00Z""#);
        assert_eq!(
            ahead.made_after,
            Some(Timestamp::EPOCH),
            "it may be of any age"
        );
    }

    #[test]
    fn a_list_that_comes_while_it_is_read_may_have_what_has_happened_since() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        make_pipe(&path);
        let to = path.clone();
        let writer = std::thread::spawn(move || {
            let mut pipe = File::options().write(true).open(to).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            let created = sys::clock::now();
            let pod = format!(r#"{{"metadata":{{"uid":"u","creationTimestamp":"{created}"}}}}"#);
            write!(pipe, r#"{{"kind":"List","items":[{pod}]}}"#).unwrap();
            created
        });
        let listing = PodsFile::new(&path).poll().unwrap().unwrap();
        assert!(writer.join().unwrap() > listing.at);
        assert_eq!(listing.made_after, Some(listing.at));
    }

    fn make_pipe(path: &Path) {
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
    }

    #[test]
    fn a_pipe_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        make_pipe(&path);
        let to = path.clone();
        let writer = std::thread::spawn(move || fs::write(to, list("one")));
        let mut file = PodsFile::new(&path);
        assert_eq!(name(file.poll()), "one");
        writer.join().unwrap().unwrap();
        assert!(file.poll().is_none());
    }

    #[test]
    fn a_file_that_is_too_large_is_refused_without_being_read_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("huge.json");
        // Sparse: nothing but zero bytes, which are no JSON either; the size
        // is what must be said.
        File::create(&path).unwrap().set_len(MAX_SIZE + 1).unwrap();
        assert!(matches!(
            PodsFile::new(&path).poll(),
            Some(Err(PodsError::TooLarge { .. }))
        ));
    }

    #[test]
    fn the_messages_say_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let error = PodsFile::new(folder.path()).poll().unwrap().unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot read the list of pods "),
            "{error}"
        );
        let path = folder.path().join("nodes.json");
        fs::write(&path, r#"{"kind":"NodeList","items":[]}"#).unwrap();
        let error = PodsFile::new(&path)
            .poll()
            .unwrap()
            .unwrap_err()
            .to_string();
        let expected = format!(
            "{} is no list of pods but a NodeList; make it with: kubectl get pods -A -o json",
            path.display()
        );
        assert_eq!(error, expected);
    }
}
