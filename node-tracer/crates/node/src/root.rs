//! Files below the host's root, of which no link leads out.
//!
//! The files belong to others: nothing but regular files is opened, at most
//! the asked-for size is read, and a folder is listed up to a limit. Links
//! within a path are followed as the host would, the last part of a path is
//! never one. A caller that must not wait for a hanging file system runs these
//! in a thread that it can leave behind.

use std::{
    ffi::OsString,
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStringExt as _,
    },
    path::{Component, Path, PathBuf},
};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, statat,
};

use event::clock::Timestamp;

pub use self::unread::{Unread, UnreadList};

pub mod namespace;
mod unread;

/// The host's root cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the host's root {}; --root must be the folder where the host's / is mounted", path.display())]
pub struct RootError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// The folder that is the host's root.
#[derive(Debug)]
pub struct Root(OwnedFd);

/// A folder of the host.
#[derive(Debug)]
pub struct Folder(OwnedFd);

/// What is at a path.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    Missing,
    Folder,
    /// A regular file, and all of its content.
    File(Content),
}

/// A regular file, as it was read.
#[derive(Debug, PartialEq, Eq)]
pub struct Content {
    pub bytes: Vec<u8>,
    /// When it was last written.
    pub modified: Timestamp,
}

/// What is in a folder.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Listing {
    pub entries: Vec<Entry>,
    /// There are more than were asked for.
    pub cut: bool,
}

/// A name in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// As it is; need not be UTF-8.
    pub name: OsString,
    /// What it names: a link is a link. [`FileType::Unknown`] if the file
    /// system does not say.
    pub kind: FileType,
}

impl Entry {
    /// One that is known by name only.
    pub fn named(name: &str) -> Self {
        Self {
            name: OsString::from(name),
            kind: FileType::Unknown,
        }
    }

    /// The name, if it is UTF-8.
    pub fn text(&self) -> Option<&str> {
        self.name.to_str()
    }
}

/// How often a path is resolved again before the kernel's answer is taken.
const TRIES: usize = 64;

/// `openat2`, again where something was renamed or mounted meanwhile, anywhere on
/// the node: the kernel then cannot tell whether a `..` has left the root, and
/// says `EAGAIN`, which nothing is wrong with (openat2(2)).
///
/// # Errors
/// The path cannot be opened, or the node does not hold still.
pub fn open_resolved(
    root: &OwnedFd,
    path: &Path,
    flags: OFlags,
    how: ResolveFlags,
) -> rustix::io::Result<OwnedFd> {
    for _ in 1..TRIES {
        match openat2(root, path, flags, Mode::empty(), how) {
            Err(rustix::io::Errno::AGAIN) => {}
            other => return other,
        }
    }
    openat2(root, path, flags, Mode::empty(), how)
}

impl Root {
    /// # Errors
    /// There is no such folder, or it cannot be opened.
    pub fn open(path: &Path) -> Result<Self, RootError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat(CWD, path, flags, Mode::empty()) {
            Ok(fd) => Ok(Self(fd)),
            Err(error) => Err(RootError {
                path: path.to_owned(),
                source: error.into(),
            }),
        }
    }

    /// Opens a path of the host. Links are followed as the host would; the
    /// kernel sees to it that none leaves the root.
    fn open_below(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        self.resolve(path, flags, ResolveFlags::empty())
    }

    fn resolve(&self, path: &Path, flags: OFlags, also: ResolveFlags) -> io::Result<OwnedFd> {
        let path = path.strip_prefix("/").unwrap_or(path);
        // An empty path would be no path at all.
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let flags = flags | OFlags::CLOEXEC;
        let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | also;
        Ok(open_resolved(&self.0, path, flags, how)?)
    }

    /// Reads a regular file of at most `limit` bytes; the path's last part
    /// must not be a link.
    ///
    /// # Errors
    /// It is there and cannot be read, is larger, or is neither a regular file
    /// nor a folder.
    pub fn read(&self, path: &Path, limit: usize) -> io::Result<Found> {
        // Looked at first: opening a device can do things.
        match self.open_below(path, OFlags::PATH | OFlags::NOFOLLOW) {
            Ok(fd) => match FileType::from_raw_mode(fstat(&fd)?.st_mode) {
                FileType::RegularFile => {}
                FileType::Directory => return Ok(Found::Folder),
                other => return Err(not_regular(other)),
            },
            Err(error) => return missing_or(error),
        }
        match self.open_below(path, READ) {
            Ok(fd) => read(fd, limit),
            Err(error) => missing_or(error),
        }
    }

    /// As [`read`](Self::read), and a link is followed, within the root.
    ///
    /// # Errors
    /// As there.
    pub fn read_linked(&self, path: &Path, limit: usize) -> io::Result<Found> {
        match self.open_below(path, OFlags::PATH) {
            Ok(fd) => match FileType::from_raw_mode(fstat(&fd)?.st_mode) {
                FileType::RegularFile => {}
                FileType::Directory => return Ok(Found::Folder),
                other => return Err(not_regular(other)),
            },
            Err(error) => return missing_or(error),
        }
        match self.open_below(path, READ.difference(OFlags::NOFOLLOW)) {
            Ok(fd) => read(fd, limit),
            Err(error) => missing_or(error),
        }
    }

    /// Opens a folder; `None` if there is none.
    ///
    /// # Errors
    /// It is there and cannot be opened, or is no folder.
    pub fn folder(&self, path: &Path) -> io::Result<Option<Folder>> {
        match self.open_below(path, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(fd) => Ok(Some(Folder(fd))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whose a folder is; `None` if there is none, or nobody says.
    pub fn uid(&self, path: &Path) -> Option<u32> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let folder = self.open_below(path, flags).ok()?;
        Some(fstat(&folder).ok()?.st_uid)
    }

    /// Opens a folder whose path has no link in it anywhere: what is changed is
    /// what the path names. `None` if there is none.
    ///
    /// # Errors
    /// A part of the path is a link (`FilesystemLoop`); or it is there and
    /// cannot be opened, or is no folder.
    pub fn strict_folder(&self, path: &Path) -> io::Result<Option<Folder>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        match self.resolve(path, flags, ResolveFlags::NO_SYMLINKS) {
            Ok(fd) => Ok(Some(Folder(fd))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Device and inode: the same root by whatever path.
    ///
    /// # Errors
    /// The system does not say.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        let stat = fstat(&self.0)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// A handle of what is at a path of the host: a socket to connect to, say.
    /// It is not opened.
    ///
    /// # Errors
    /// There is nothing, or the path leads through what cannot be passed.
    pub fn handle(&self, path: &Path) -> io::Result<OwnedFd> {
        self.open_below(path, OFlags::PATH)
    }
}

impl From<RootError> for io::Error {
    fn from(error: RootError) -> Self {
        error.source
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Folder {
    /// Device and inode: the same folder by whatever path.
    ///
    /// # Errors
    /// The system does not say.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        let stat = fstat(&self.0)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// The first `limit` entries that the file system names, sorted.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn list(&self, limit: usize) -> io::Result<Listing> {
        let mut listing = Listing::default();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if listing.entries.len() == limit {
                listing.cut = true;
                break;
            }
            listing.entries.push(Entry {
                name: OsString::from_vec(name.to_owned()),
                kind: entry.file_type(),
            });
        }
        listing.entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(listing)
    }

    /// Reads an entry that is a regular file of at most `limit` bytes.
    ///
    /// # Errors
    /// It is there and cannot be read, is larger, or is neither a regular file
    /// nor a folder.
    pub fn read(&self, entry: &Entry, limit: usize) -> io::Result<Found> {
        match self.kind(entry)? {
            Some(FileType::RegularFile) => {}
            Some(FileType::Directory) => return Ok(Found::Folder),
            Some(other) => return Err(not_regular(other)),
            None => return Ok(Found::Missing),
        }
        match openat(&self.0, entry.name.as_os_str(), READ, Mode::empty()) {
            Ok(fd) => read(fd, limit),
            Err(error) => missing_or(error.into()),
        }
    }

    /// What an entry is, asked for if the listing did not say; `None` if it
    /// has gone.
    ///
    /// # Errors
    /// That cannot be found out.
    pub fn kind(&self, entry: &Entry) -> io::Result<Option<FileType>> {
        if entry.kind != FileType::Unknown {
            return Ok(Some(entry.kind));
        }
        match statat(&self.0, entry.name.as_os_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// A path of a configuration as a plugin takes it: it runs in the root, and
/// `..` is taken away before links are followed.
pub fn absolute(path: &str) -> PathBuf {
    let mut clean = PathBuf::from("/");
    for part in Path::new(path).components() {
        match part {
            Component::Normal(part) => clean.push(part),
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    clean
}

/// How files are opened: should one have become a FIFO or a terminal since it
/// was looked at, nothing waits and nothing is taken over.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

fn read(fd: OwnedFd, limit: usize) -> io::Result<Found> {
    let file = fs::File::from(fd);
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Ok(Found::Folder);
    }
    if !metadata.is_file() {
        return Err(not_regular(FileType::Unknown));
    }
    if metadata.len() > limit as u64 {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize + 1);
    // One more than allowed, to see that it has grown meanwhile.
    io::Read::read_to_end(&mut io::Read::take(file, limit as u64 + 1), &mut bytes)?;
    if bytes.len() > limit {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let modified = metadata.modified()?.into();
    Ok(Found::File(Content { bytes, modified }))
}

fn missing_or(error: io::Error) -> io::Result<Found> {
    match error.kind() {
        io::ErrorKind::NotFound => Ok(Found::Missing),
        _ => Err(error),
    }
}

fn not_regular(kind: FileType) -> io::Error {
    let what = match kind {
        FileType::Symlink => "it is a link",
        FileType::Fifo => "it is a FIFO",
        FileType::Socket => "it is a socket",
        FileType::BlockDevice | FileType::CharacterDevice => "it is a device",
        _ => "it is no regular file",
    };
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

#[cfg(test)]
mod tests;
