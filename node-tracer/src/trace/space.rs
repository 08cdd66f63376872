//! File systems that pods need, looked at when one of them fails to start.
//!
//! Nothing is looked at while nothing fails. A file system that does not
//! answer costs a moment, and then is not asked again for a while.

use event::{CniCommand, Event, FullFilesystem, What};
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use node::procfs::{Bounded, NoAnswer};

/// Folders that runtimes, plugins and the kubelet write to.
const FOLDERS: [&str; 7] = [
    "/",
    "/run",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/docker",
    "/var/lib/kubelet",
    "/var/lib/cni",
];
/// Between two looks: pods fail many at once.
const PAUSE: Duration = Duration::from_secs(10);
/// How long all of them together may take.
const PATIENCE: Duration = Duration::from_millis(100);
/// What is less than this is nothing to a pod.
const ENOUGH: u64 = 1 << 20;

/// Looks when a pod fails.
pub(super) struct Space {
    root: PathBuf,
    reads: Bounded,
    last: Option<Instant>,
}

impl Space {
    /// Below the host's root.
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            reads: Bounded::default(),
            last: None,
        }
    }

    /// Looks if one of these tells of a pod that does not start; adds what is
    /// full.
    pub(super) fn step(&mut self, events: &mut Vec<Event>) {
        let failed = events.iter().any(|event| is_failure(&event.what));
        let early = self.last.is_some_and(|last| last.elapsed() < PAUSE);
        if !failed || early {
            return;
        }
        self.last = Some(Instant::now());
        let root = self.root.clone();
        let full: Result<Vec<_>, NoAnswer> = self.reads.read(PATIENCE, move || full_ones(&root));
        let time = sys::clock::now();
        let full = full.inspect_err(|error| tracing::debug!("file systems: {error}"));
        events.extend(full.unwrap_or_default().into_iter().map(|full| Event {
            time,
            what: What::FilesystemFull { full },
        }));
    }
}

/// Whether an event tells of a pod that does not start.
fn is_failure(what: &What) -> bool {
    match what {
        What::CniCall {
            call,
            exit_code,
            signal,
            ..
        } => {
            let failed = exit_code.is_some_and(|code| code != 0) || signal.is_some();
            call.trusted && call.command == CniCommand::Add && failed
        }
        What::SandboxFailed { .. } => true,
        _ => false,
    }
}

/// Those that are full, each once.
fn full_ones(root: &Path) -> Vec<FullFilesystem> {
    let mut full: Vec<FullFilesystem> = Vec::new();
    for folder in FOLDERS {
        let path = root.join(folder.trim_start_matches('/'));
        let Ok(stat) = rustix::fs::statvfs(&path) else {
            continue;
        };
        let found = FullFilesystem {
            path: PathBuf::from(folder),
            bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
            bytes_free: stat.f_bavail.saturating_mul(stat.f_frsize),
            inodes: stat.f_files,
            inodes_free: stat.f_favail,
        };
        let is_known = full.iter().any(|known| {
            let of = |one: &FullFilesystem| (one.bytes, one.bytes_free, one.inodes);
            of(known) == of(&found)
        });
        if is_full(&found) && !is_known {
            full.push(found);
        }
    }
    full
}

/// A file system of no size (overlay of nothing, proc) is never full.
fn is_full(of: &FullFilesystem) -> bool {
    let no_bytes = of.bytes > 0 && of.bytes_free < ENOUGH.min(of.bytes / 100);
    let no_inodes = of.inodes > 0 && of.inodes_free == 0;
    no_bytes || no_inodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use event::testing::{NEW, at, call, failed};

    #[test]
    fn only_a_pod_that_fails_makes_it_look_and_not_too_often() {
        let mut space = Space::new(Path::new("/"));
        space.step(&mut vec![at(1, What::Tick)]);
        assert!(space.last.is_none());
        space.step(&mut vec![failed(1, call("ADD", "x", 100, NEW, "a"), "no")]);
        let first = space.last;
        assert!(first.is_some());
        space.step(&mut vec![failed(2, call("ADD", "x", 100, NEW, "a"), "no")]);
        assert_eq!(space.last, first);
    }

    #[test]
    fn what_is_used_up_is_full() {
        let of = |bytes, bytes_free, inodes, inodes_free| FullFilesystem {
            path: PathBuf::from("/run"),
            bytes,
            bytes_free,
            inodes,
            inodes_free,
        };
        assert!(is_full(&of(64 << 20, 0, 100, 50)));
        assert!(is_full(&of(64 << 20, 60 << 20, 100, 0)));
        assert!(is_full(&of(64 << 30, 4096, 0, 0)));
        assert!(!is_full(&of(64 << 30, 2 << 20, 0, 0)));
        assert!(!is_full(&of(0, 0, 0, 0)));
        assert!(!is_full(&of(1 << 20, 1 << 19, 100, 1)));
    }
}
