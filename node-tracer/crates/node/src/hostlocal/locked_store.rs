//! The one place that changes a store: takes host-local's own lock, reads a
//! reservation to the last byte, takes it away or puts it back.
//!
//! Everything goes by a descriptor of the folder, which is opened without
//! following a single link. host-local (plugins/ipam/host-local/backend/disk)
//! holds an exclusive flock(2) of the store's file `lock` whenever it makes or
//! removes a reservation: as long as it is held here, no CNI ADD and no CNI DEL
//! changes the store.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    fs::{
        AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, StatxAttributes, StatxFlags,
        Timespec, Timestamps, fchown, flock, fstat, fsync, futimens, linkat, openat, statat, statx,
        unlinkat,
    },
    io::Errno,
    process::{Gid, Uid},
};

use super::store::MAX_FILE;
use crate::root::{Folder, Root};
use event::clock::Timestamp;

/// Pause between attempts to take the lock.
const PAUSE: Duration = Duration::from_millis(2);

/// What host-local locks.
const LOCK: &str = "lock";

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// A plugin has held it all the time.
    #[error(
        "{} was locked for {} s: a CNI plugin hangs while it holds the lock (see /proc/locks)",
        path.display(),
        waited.as_secs()
    )]
    Held {
        path: PathBuf,
        /// How long was waited.
        waited: Duration,
    },
    /// It cannot be opened or locked.
    #[error("cannot lock {}", path.display())]
    Failed {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A reservation's file, to the last byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exact {
    pub device: u64,
    /// See `device`.
    pub inode: u64,
    /// When its content was last written.
    pub modified: Timestamp,
    /// When anything about it was last changed (`st_ctime`); cannot be set.
    pub changed: Timestamp,
    /// Names that it has.
    pub links: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// chattr +i or +a: it cannot be removed.
    pub fixed: bool,
    pub content: Vec<u8>,
}

/// A store, by its folder.
#[derive(Debug)]
pub struct LockedStore {
    folder: Folder,
    path: PathBuf,
}

/// host-local's lock, held until this is dropped.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "closing it is what unlocks")] OwnedFd);

impl LockedStore {
    /// Opens a store; `None` if there is none.
    ///
    /// # Errors
    /// A part of the path is a link, or it cannot be opened.
    pub fn open(root: &Root, path: &Path) -> io::Result<Option<Self>> {
        let folder = root.strict_folder(path)?;
        Ok(folder.map(|folder| Self {
            folder,
            path: path.to_owned(),
        }))
    }

    /// Device and inode of the folder.
    ///
    /// # Errors
    /// The system does not say.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        self.folder.identity()
    }

    /// Takes the lock as host-local does, and waits for it so long at most.
    ///
    /// # Errors
    /// See [`LockError`].
    pub fn lock(&self, patience: Duration) -> Result<Lock, LockError> {
        let failed = |source: io::Error| LockError::Failed {
            path: self.path.join(LOCK),
            source,
        };
        let begin = Instant::now();
        loop {
            // host-local makes it, too, if it is not there.
            let flags = OFlags::CREATE
                | OFlags::RDONLY
                | OFlags::NOFOLLOW
                | OFlags::NONBLOCK
                | OFlags::CLOEXEC;
            let file = openat(&self.folder, LOCK, flags, Mode::RUSR | Mode::WUSR);
            let file = file.map_err(|error| failed(error.into()))?;
            loop {
                match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) => break,
                    Err(Errno::WOULDBLOCK | Errno::INTR) if begin.elapsed() < patience => {
                        std::thread::sleep(PAUSE);
                    }
                    Err(Errno::WOULDBLOCK | Errno::INTR) => {
                        return Err(LockError::Held {
                            path: self.path.join(LOCK),
                            waited: patience,
                        });
                    }
                    Err(error) => return Err(failed(error.into())),
                }
            }
            // Had somebody put another file there meanwhile, the next plugin
            // would lock that one.
            let held = fstat(&file).map_err(|error| failed(error.into()))?;
            match statat(&self.folder, LOCK, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(named) if (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino) => {
                    return Ok(Lock(file));
                }
                Ok(_) | Err(Errno::NOENT) if begin.elapsed() < patience => {}
                Ok(_) => return Err(failed(io::Error::other("it is replaced all the time"))),
                Err(error) => return Err(failed(error.into())),
            }
        }
    }

    /// Reads an entry; `None` if there is none.
    ///
    /// # Errors
    /// It is no regular file, is larger than a reservation can be, or cannot be
    /// read.
    pub fn read(&self, name: &str) -> io::Result<Option<Exact>> {
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let kind = match statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let other = || io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file");
        if kind != FileType::RegularFile {
            return Err(other());
        }
        let file = match openat(&self.folder, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let stat = file.metadata()?;
        if !stat.is_file() {
            return Err(other());
        }
        let mut content = Vec::new();
        (&file)
            .take(MAX_FILE as u64 + 1)
            .read_to_end(&mut content)?;
        if content.len() > MAX_FILE {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(Some(Exact {
            device: stat.dev(),
            inode: stat.ino(),
            modified: Timestamp::from_parts(stat.mtime(), stat.mtime_nsec()),
            changed: Timestamp::from_parts(stat.ctime(), stat.ctime_nsec()),
            links: stat.nlink(),
            mode: stat.mode() & 0o7777,
            uid: stat.uid(),
            gid: stat.gid(),
            fixed: is_fixed(&file),
            content,
        }))
    }

    /// Removes an entry. The lock must be held.
    ///
    /// # Errors
    /// The system does not do it.
    pub fn remove(&self, _lock: &Lock, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.folder, name, AtFlags::empty())?)
    }

    /// Makes an entry that must not be there, whole or not at all. The lock
    /// must be held.
    ///
    /// # Errors
    /// It is there (`AlreadyExists`), or the system does not do it.
    pub fn put(&self, _lock: &Lock, name: &str, what: &Exact) -> io::Result<()> {
        let mode = Mode::from_bits_truncate(what.mode);
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        // Without a name until all is in it: half a reservation is one that
        // nobody can give back.
        match openat(&self.folder, ".", flags, mode) {
            Ok(file) => {
                let file = self.fill(file, what)?;
                let link = format!("/proc/self/fd/{}", file.as_raw_fd());
                let follow = AtFlags::SYMLINK_FOLLOW;
                linkat(CWD, link.as_str(), &self.folder, name, follow)?;
            }
            // File systems without nameless files. host-local gives no address
            // out by such a name, and whoever makes a store's files holds the lock.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {
                let other = format!(".{name}.node-tracer");
                let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::NOFOLLOW;
                let file = openat(&self.folder, other.as_str(), flags | OFlags::CLOEXEC, mode)?;
                let linked = self.fill(file, what).and_then(|_| {
                    let (from, to) = (&self.folder, &self.folder);
                    Ok(linkat(from, other.as_str(), to, name, AtFlags::empty())?)
                });
                unlinkat(&self.folder, other.as_str(), AtFlags::empty())?;
                linked?;
            }
            Err(error) => return Err(error.into()),
        }
        self.sync()
    }

    /// Writes all of a reservation but its name.
    fn fill(&self, file: OwnedFd, what: &Exact) -> io::Result<File> {
        let mut file = File::from(file);
        file.write_all(&what.content)?;
        let now = fstat(&file)?;
        if (now.st_uid, now.st_gid) != (what.uid, what.gid) {
            let (uid, gid) = (Uid::from_raw(what.uid), Gid::from_raw(what.gid));
            fchown(&file, Some(uid), Some(gid))?;
        }
        rustix::fs::fchmod(&file, Mode::from_bits_truncate(what.mode))?;
        let (seconds, nanos) = what.modified.parts();
        let time = Timespec {
            tv_sec: seconds,
            tv_nsec: nanos,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        futimens(&file, &times)?;
        fsync(&file)?;
        Ok(file)
    }

    /// Has what was done outlast a crash.
    ///
    /// # Errors
    /// The system does not do it.
    pub fn sync(&self) -> io::Result<()> {
        Ok(fsync(self.folder.as_fd())?)
    }
}

/// Whether the file system refuses to let go of a file; not known is no.
fn is_fixed(file: &File) -> bool {
    let found = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
    let fixed = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
    found.is_ok_and(|found| found.stx_attributes.intersects(fixed))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn store() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("var/store")).unwrap();
        let root = Root::open(folder.path()).unwrap();
        (folder, root)
    }

    const SOON: Duration = Duration::from_millis(50);

    #[test]
    fn what_was_taken_away_is_put_back_to_the_last_byte() {
        let (folder, root) = store();
        let file = folder.path().join("var/store/10.0.0.5");
        fs::write(&file, "abc\r\neth0").unwrap();
        let store = LockedStore::open(&root, Path::new("/var/store"))
            .unwrap()
            .unwrap();
        let before = store.read("10.0.0.5").unwrap().unwrap();
        assert_eq!(
            (before.content.as_slice(), before.links),
            (&b"abc\r\neth0"[..], 1)
        );
        let lock = store.lock(SOON).unwrap();
        store.remove(&lock, "10.0.0.5").unwrap();
        assert_eq!(store.read("10.0.0.5").unwrap(), None);
        store.put(&lock, "10.0.0.5", &before).unwrap();
        let after = store.read("10.0.0.5").unwrap().unwrap();
        assert_eq!(after.content, before.content);
        assert_eq!(
            (after.modified, after.mode, after.links),
            (before.modified, before.mode, 1)
        );
        let error = store.put(&lock, "10.0.0.5", &before).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        let names: Vec<_> = fs::read_dir(folder.path().join("var/store"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names.len(), 2, "{names:?}");
    }

    #[test]
    fn the_lock_is_host_locals_and_excludes() {
        let (_folder, root) = store();
        let store = LockedStore::open(&root, Path::new("/var/store"))
            .unwrap()
            .unwrap();
        let held = store.lock(SOON).unwrap();
        let refused = store.lock(SOON).unwrap_err();
        assert!(matches!(refused, LockError::Held { .. }), "{refused}");
        drop(held);
        store.lock(SOON).unwrap();
    }

    #[test]
    fn no_link_is_followed_and_nothing_but_files_is_read() {
        let (folder, root) = store();
        let inside = |name: &str| folder.path().join("var/store").join(name);
        fs::write(inside("real"), "x").unwrap();
        symlink("real", inside("10.0.0.1")).unwrap();
        fs::create_dir(inside("10.0.0.2")).unwrap();
        fs::write(inside("10.0.0.3"), vec![b'x'; MAX_FILE + 1]).unwrap();
        symlink("store", folder.path().join("var/other")).unwrap();
        let store = LockedStore::open(&root, Path::new("/var/store"))
            .unwrap()
            .unwrap();
        for name in ["10.0.0.1", "10.0.0.2", "10.0.0.3"] {
            store.read(name).unwrap_err();
        }
        assert!(LockedStore::open(&root, Path::new("/var/other")).is_err());
        assert!(
            LockedStore::open(&root, Path::new("/var/none"))
                .unwrap()
                .is_none()
        );
    }
}
