//! Whether files have changed, by what the file system says of them.

use std::{
    io,
    os::fd::OwnedFd,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::fs::fstat;

use super::{aws, cilium, terway};
use event::StoreKind;
use node::root::Root;

/// What was changed so lately may be changed again without its time changing:
/// the file system's clock is coarse.
const FRESH: Duration = Duration::from_millis(100);
/// Files of a folder that are looked at.
const MAX_ENTRIES: usize = 4_096;

/// What the file system says of a kind's files.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Device, inode, size and time of change of each, in nanoseconds.
    files: Vec<(u64, u64, i64, i128)>,
    errors: Vec<io::ErrorKind>,
    /// One of them was changed just now.
    fresh: bool,
}

impl Stamp {
    /// Looks at a kind's files.
    pub(super) fn of(root: &Root, kind: StoreKind) -> Self {
        let mut stamp = Self::default();
        match kind {
            StoreKind::Terway => stamp.add(root, Path::new(terway::FILE)),
            StoreKind::Cilium => stamp.add(root, Path::new(cilium::FOLDER)),
            StoreKind::Aws => stamp.add_folder(root, Path::new(aws::FOLDER)),
            StoreKind::HostLocal | StoreKind::Calico | StoreKind::Whereabouts => {}
        }
        stamp
    }

    /// Whether the files are still as they were.
    pub(super) fn is_same(&self, before: &Self) -> bool {
        !before.fresh && self.files == before.files && self.errors == before.errors
    }

    /// There is no file.
    pub(super) fn is_bare(&self) -> bool {
        self.files.is_empty()
    }

    fn add(&mut self, root: &Root, path: &Path) {
        match root.handle(path) {
            Ok(file) => self.add_file(&file),
            Err(error) => self.errors.push(error.kind()),
        }
    }

    fn add_folder(&mut self, root: &Root, path: &Path) {
        let listing = root.folder(path).and_then(|folder| match folder {
            Some(folder) => folder.list(MAX_ENTRIES),
            None => Err(io::ErrorKind::NotFound.into()),
        });
        match listing {
            Ok(listing) => {
                let cards = listing.entries.iter();
                let cards = cards.filter(|entry| entry.text().is_some_and(aws::is_card));
                cards.for_each(|entry| self.add(root, &path.join(&entry.name)));
            }
            Err(error) => self.errors.push(error.kind()),
        }
    }

    fn add_file(&mut self, file: &OwnedFd) {
        match fstat(file) {
            Ok(stat) => {
                let nanos =
                    i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec);
                let file = (stat.st_dev, stat.st_ino, stat.st_size, nanos);
                self.files.push(file);
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                let now = now.map_or(0, |now| now.as_nanos());
                let apart = nanos.unsigned_abs().abs_diff(now);
                self.fresh |= apart < FRESH.as_nanos();
            }
            Err(error) => self.errors.push(io::Error::from(error).kind()),
        }
    }
}
