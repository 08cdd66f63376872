//! Files below the host's root, of which no link leads out.

use std::{
    fs, io,
    os::{fd::OwnedFd, unix::fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, Dir, Mode, OFlags, ResolveFlags, openat, openat2};

use super::HostLocalError;

/// Entries of a folder that are looked at; a /16 full of reservations fits.
const MAX_ENTRIES: usize = 100_000;

/// The folder that is the host's root.
#[derive(Debug)]
pub(super) struct Root(OwnedFd);

/// What is at a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Missing,
    Folder,
    /// A regular file, and all of its content.
    File(Vec<u8>),
}

impl Root {
    pub(super) fn open(path: &Path) -> Result<Self, HostLocalError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat(CWD, path, flags, Mode::empty()) {
            Ok(fd) => Ok(Self(fd)),
            Err(error) => Err(HostLocalError::Root {
                path: path.to_owned(),
                source: error.into(),
            }),
        }
    }

    /// Opens a path of the host. Links are followed as the host would; the
    /// kernel sees to it that none leaves the root.
    fn open_below(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let path = path.strip_prefix("/").unwrap_or(path);
        let flags = flags | OFlags::CLOEXEC;
        let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        Ok(openat2(&self.0, path, flags, Mode::empty(), how)?)
    }

    /// Reads a regular file of at most `limit` bytes; the path's last part
    /// must not be a link.
    pub(super) fn read(&self, path: &Path, limit: usize) -> io::Result<Found> {
        // Not waiting for the writer of a FIFO.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = match self.open_below(path, flags) {
            Ok(fd) => fs::File::from(fd),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Missing),
            Err(error) => return Err(error),
        };
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Ok(Found::Folder);
        }
        if !metadata.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        if metadata.size() > limit as u64 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut content = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(file, limit as u64), &mut content)?;
        Ok(Found::File(content))
    }

    pub(super) fn is_folder(&self, path: &Path) -> io::Result<bool> {
        match self.open_below(path, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(_) => Ok(true),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// The names in a folder, sorted; those that are no UTF-8 are none of
    /// CNI's.
    pub(super) fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let fd = self.open_below(folder, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::new(fd)?.take(MAX_ENTRIES) {
            let entry = entry?;
            if let Ok(name) = entry.file_name().to_str()
                && !matches!(name, "." | "..")
            {
                names.push(name.to_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}

/// A path of the configuration, made absolute: plugins run in the root.
pub(super) fn absolute(path: &str) -> PathBuf {
    Path::new("/").join(path)
}
