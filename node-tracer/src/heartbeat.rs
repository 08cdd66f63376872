//! A sign of life for who can only start a program: kubelet's exec probes.
//!
//! The event loop of `trace --heartbeat FILE` writes the time into the file,
//! again and again; `check --heartbeat FILE` fails where the last one is too
//! old. Nobody reaches that from outside, unlike a port. The time is the
//! kernel's monotonic one, so that setting the clock ends nothing. The file
//! belongs into memory (an `emptyDir` of medium `Memory`): the loop waits for it.

use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::fs::{CWD, Mode, OFlags, openat};

use sys::clock::monotonic_now;

/// How often it is written.
const PAUSE: Duration = Duration::from_secs(10);
/// How old the last one may be: a node on which nothing moves for a while is no
/// reason to end what looks at it.
const MOST: Duration = Duration::from_secs(60);
/// Digits of a number of 64 bits.
const DIGITS: usize = 20;

/// There is no sign of life, or none can be given.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HeartbeatError {
    #[error("--heartbeat {}: cannot use that file", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// It is something else.
    #[error("--heartbeat {}: that is not what a trace writes", path.display())]
    Other { path: PathBuf },
    #[error(
        "the trace that writes {} has given no sign of life for {} s",
        path.display(),
        age.as_secs()
    )]
    Silent { path: PathBuf, age: Duration },
}

/// Gives signs of life, if that is asked for.
#[derive(Debug)]
pub(crate) struct Heartbeat(Option<(File, Instant)>);

impl Heartbeat {
    /// The first is given with the first [`step`](Self::step).
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn new(path: Option<&Path>) -> Result<Self, HeartbeatError> {
        let Some(path) = path else {
            return Ok(Self(None));
        };
        let file = open(path, OFlags::WRONLY | OFlags::CREATE)?;
        // One of an earlier run says nothing.
        let emptied = file.set_len(0);
        emptied.map_err(|source| HeartbeatError::File {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self(Some((file, Instant::now()))))
    }

    /// How long none is due.
    pub(crate) fn pause(&self) -> Duration {
        self.0.as_ref().map_or(Duration::MAX, |(_, next)| {
            next.saturating_duration_since(Instant::now())
        })
    }

    /// Gives one if it is due.
    pub(crate) fn step(&mut self) {
        if let Some((file, next)) = &mut self.0
            && *next <= Instant::now()
        {
            *next = Instant::now() + PAUSE;
            let text = format!("{:0DIGITS$}\n", monotonic_now());
            if let Err(error) = file.write_all_at(text.as_bytes(), 0) {
                tracing::warn!("no sign of life can be given: {error}");
            }
        }
    }
}

/// Whether the trace that writes this file is alive.
///
/// # Errors
/// It has given no sign of life for too long, or ever.
pub(crate) fn check(path: &Path) -> Result<(), HeartbeatError> {
    let mut text = String::new();
    let read = open(path, OFlags::RDONLY)?
        .take(DIGITS as u64 + 1)
        .read_to_string(&mut text);
    read.map_err(|source| HeartbeatError::File {
        path: path.to_owned(),
        source,
    })?;
    let Ok(at) = text.trim_end().parse::<u64>() else {
        let path = path.to_owned();
        return Err(HeartbeatError::Other { path });
    };
    let age = Duration::from_nanos(monotonic_now().saturating_sub(at));
    if age > MOST {
        let path = path.to_owned();
        return Err(HeartbeatError::Silent { path, age });
    }
    Ok(())
}

/// A regular file, by no link; waits for nobody.
fn open(path: &Path, flags: OFlags) -> Result<File, HeartbeatError> {
    let failed = |source| HeartbeatError::File {
        path: path.to_owned(),
        source,
    };
    let safe = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(CWD, path, flags | safe, Mode::RUSR | Mode::WUSR);
    let file = File::from(file.map_err(|error| failed(error.into()))?);
    match file.metadata().map_err(failed)?.is_file() {
        true => Ok(file),
        false => Err(HeartbeatError::Other {
            path: path.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_alive_from_its_first_sign_until_it_has_given_none_for_too_long() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("alive");
        assert!(check(&path).is_err(), "none has begun");
        let mut heart = Heartbeat::new(Some(&path)).unwrap();
        assert!(check(&path).is_err(), "it does not watch yet");
        heart.step();
        check(&path).unwrap();
        let late = monotonic_now() - MOST.as_nanos() as u64 - 1;
        std::fs::write(&path, format!("{late:0DIGITS$}\n")).unwrap();
        assert!(matches!(check(&path), Err(HeartbeatError::Silent { .. })));
        assert!(heart.pause() > Duration::ZERO);
        drop(Heartbeat::new(Some(&path)).unwrap());
        assert!(check(&path).is_err(), "that of an earlier run");
    }

    #[test]
    fn a_link_and_what_is_no_file_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        std::fs::write(&target, "x").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(Heartbeat::new(Some(&link)).is_err());
        assert_eq!(std::fs::read(&target).unwrap(), b"x");
        assert!(check(folder.path()).is_err());
        assert!(Heartbeat::new(None).unwrap().pause() == Duration::MAX);
    }
}
