//! The backup of what is released: copies of the files for people, and a
//! manifest of JSON lines that holds everything that `--undo` needs.
//!
//! Lines are only ever added. Of each reservation, in this order:
//!
//! | line | when it is on disk |
//! |---|---|
//! | `saved` | before host-local's lock is taken |
//! | `releasing` | before host-local's lock is taken: what may be removed |
//! | `released`, or `kept` and why | after the lock is let go of |
//!
//! So whenever the tool is killed, what may have been removed has a `releasing`
//! line, and everything that it had a `saved` line before. A line that was cut
//! off by that is ignored, and that is said.

mod read;

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    net::IpAddr,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags, openat},
    io::Errno,
};
use serde::{Deserialize, Serialize};

#[cfg(test)]
pub(crate) use self::read::Read;
#[cfg(feature = "testing")]
pub use self::read::fuzz;
pub(crate) use self::read::read;
use super::load::others_cannot_write;
use event::repair::plan::{Release, RootFolder, bytes};
use event::{clock::Timestamp, record::SCHEMA};
use node::hostlocal::{file_name, locked_store::Exact};

const MANIFEST: &str = "manifest.jsonl";
/// Folders that a backup may be in.
const MAX_DEPTH: usize = 256;
/// The form of the manifest.
const VERSION: u32 = 1;

/// A backup cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackupError {
    /// The system does not do it.
    #[error("cannot {what} {}", path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The folder is inside of a store.
    #[error(
        "--backup {}: that is inside of the store {}, where host-local would take the copies for \
         reservations; give a folder elsewhere",
        path.display(),
        store.display()
    )]
    InStore { path: PathBuf, store: PathBuf },
    /// Others can change it, or could have.
    #[error(
        "{} {why}: a backup is root's, and is kept where nobody else can write",
        path.display()
    )]
    Untrusted {
        path: PathBuf,
        /// What is wrong with it, or with its manifest.
        why: &'static str,
    },
    #[error("{} is no backup of node-tracer repair: {why}", path.display())]
    NoBackup { path: PathBuf, why: String },
}

/// A line of the manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(crate) enum Line {
    /// The first.
    Backup(Header),
    /// A reservation as it was.
    Saved(Saved),
    /// It may be removed from here on.
    Releasing {
        path: PathBuf,
    },
    Released {
        path: PathBuf,
    },
    /// It was left alone.
    Kept {
        path: PathBuf,
        why: String,
    },
}

/// Whose backup it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// [`SCHEMA`]
    pub(crate) schema: String,
    /// The form of the manifest.
    pub(crate) version: u32,
    /// When it was begun.
    pub(crate) time: Timestamp,
    pub(crate) node: String,
    pub(crate) boot_id: String,
    pub(crate) root: RootFolder,
}

/// A reservation as it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Saved {
    pub(crate) store: PathBuf,
    /// The file in it.
    pub(crate) path: PathBuf,
    pub(crate) address: IpAddr,
    pub(crate) container_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ifname: Option<String>,
    /// All of it, base64.
    #[serde(with = "bytes")]
    pub(crate) content: Vec<u8>,
    /// When it was written.
    pub(crate) modified: Timestamp,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Saved {
    /// What a release takes away.
    pub(crate) fn of(release: &Release, exact: &Exact) -> Self {
        Self {
            store: release.store.clone(),
            path: release.path.clone(),
            address: release.address,
            container_id: release.container_id.clone(),
            ifname: release.ifname.clone(),
            content: exact.content.clone(),
            modified: exact.modified,
            mode: exact.mode,
            uid: exact.uid,
            gid: exact.gid,
        }
    }

    /// The same as a file to be made.
    pub(crate) fn exact(&self) -> Exact {
        Exact {
            device: 0,
            inode: 0,
            modified: self.modified,
            changed: self.modified,
            links: 1,
            mode: self.mode & 0o777,
            uid: self.uid,
            gid: self.gid,
            fixed: false,
            content: self.content.clone(),
        }
    }

    /// Whether it can be what was saved.
    pub(crate) fn is_possible(&self) -> bool {
        event::repair::plan::is_plain(&self.store)
            && self.path == self.store.join(file_name(self.address))
    }
}

/// A backup being written.
#[derive(Debug)]
pub(crate) struct Backup {
    folder: PathBuf,
    manifest: File,
}

impl Backup {
    /// Makes the folder, which must not exist, and begins the manifest.
    ///
    /// # Errors
    /// It is in a store or where others can write, or cannot be made.
    pub(crate) fn create(
        folder: &Path,
        header: Header,
        stores: &[(PathBuf, (u64, u64))],
    ) -> Result<Self, BackupError> {
        let io = |what: &'static str, path: &Path| {
            let path = path.to_owned();
            move |source| BackupError::Io { what, path, source }
        };
        let folder = std::path::absolute(folder).map_err(io("find", folder))?;
        let folder = folder.as_path();
        let parent = folder.parent().unwrap_or(Path::new("/"));
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        builder
            .recursive(true)
            .create(parent)
            .map_err(io("make", parent))?;
        let found = fs::metadata(parent).map_err(io("look at", parent))?;
        // Where nobody takes what is another's away, as in /tmp, it is safe.
        if found.mode() & 0o1000 == 0 || found.uid() != 0 {
            others_cannot_write(&found).map_err(|why| BackupError::Untrusted {
                path: parent.to_owned(),
                why,
            })?;
        }
        outside(folder, parent, stores)?;
        builder
            .recursive(false)
            .create(folder)
            .map_err(io("make the backup", folder))?;
        let path = folder.join(MANIFEST);
        let manifest = OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(io("make", &path))?;
        let mut backup = Self {
            folder: folder.to_owned(),
            manifest,
        };
        backup.write(&[Line::Backup(header)])?;
        sync(parent)?;
        Ok(backup)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Copies reservations; when this returns, they are on disk.
    ///
    /// # Errors
    /// They cannot be written.
    pub(crate) fn save(&mut self, all: Vec<Saved>) -> Result<(), BackupError> {
        let mut folders: BTreeMap<PathBuf, ()> = BTreeMap::new();
        for saved in &all {
            let store = saved.store.strip_prefix("/").unwrap_or(&saved.store);
            let folder = self.folder.join(store);
            if folders.insert(folder.clone(), ()).is_none() {
                let mut builder = DirBuilder::new();
                let made = builder.mode(0o700).recursive(true).create(&folder);
                made.map_err(|source| BackupError::Io {
                    what: "make",
                    path: folder.clone(),
                    source,
                })?;
            }
            copy(&folder.join(file_name(saved.address)), saved)?;
        }
        for folder in folders.into_keys() {
            sync(&folder)?;
        }
        let lines: Vec<Line> = all.into_iter().map(Line::Saved).collect();
        self.write(&lines)?;
        sync(&self.folder)
    }

    /// Adds lines; when this returns, they are on disk.
    ///
    /// # Errors
    /// They cannot be written.
    pub(crate) fn write(&mut self, lines: &[Line]) -> Result<(), BackupError> {
        let failed = |source| BackupError::Io {
            what: "write",
            path: self.folder.join(MANIFEST),
            source,
        };
        let mut text = Vec::new();
        for line in lines {
            let written = serde_json::to_writer(&mut text, line);
            written.map_err(io::Error::other).map_err(failed)?;
            text.push(b'\n');
        }
        self.manifest.write_all(&text).map_err(failed)?;
        self.manifest.sync_data().map_err(failed)
    }
}

/// A copy for people, with the time of the original.
fn copy(path: &Path, saved: &Saved) -> Result<(), BackupError> {
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(&saved.content)?;
        file.set_modified(saved.modified.system_time())?;
        file.sync_all()
    };
    write().map_err(|source| BackupError::Io {
        what: "write the copy",
        path: path.to_owned(),
        source,
    })
}

fn sync(folder: &Path) -> Result<(), BackupError> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|source| BackupError::Io {
        what: "write",
        path: folder.to_owned(),
        source,
    })
}

/// host-local goes through all folders below a store, and takes every file
/// for a reservation.
fn outside(
    folder: &Path,
    parent: &Path,
    stores: &[(PathBuf, (u64, u64))],
) -> Result<(), BackupError> {
    let failed = |source: io::Error| BackupError::Io {
        what: "look at",
        path: folder.to_owned(),
        source,
    };
    // By descriptors, as no path may lead there from here (`/proc/PID/root`).
    let mut above = File::open(parent).map_err(failed)?;
    let mut below = None;
    for _ in 0..MAX_DEPTH {
        let metadata = above.metadata().map_err(failed)?;
        let identity = (metadata.dev(), metadata.ino());
        if below == Some(identity) {
            return Ok(());
        }
        if let Some((store, _)) = stores.iter().find(|(_, its)| *its == identity) {
            return Err(BackupError::InStore {
                path: folder.to_owned(),
                store: store.clone(),
            });
        }
        below = Some(identity);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        above = match openat(&above, "..", flags, Mode::empty()) {
            Ok(next) => File::from(next),
            // Above the root of another process's mounts there is nothing.
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(failed(error.into())),
        };
    }
    Err(failed(io::Error::other("it is too deep")))
}

impl Header {
    /// One that begins now.
    pub(crate) fn new(node: &crate::config::Node, root: RootFolder) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            version: VERSION,
            time: sys::clock::now(),
            node: node.name.clone(),
            boot_id: node.boot_id.clone(),
            root,
        }
    }
}

#[cfg(test)]
mod tests;
