//! Small files that credentials are made of: of this process's own root, or of
//! the host's.

use std::{
    fs::{self, Metadata},
    io::{self, Read as _},
    os::{fd::OwnedFd, unix::fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat};

use node::root::open_resolved;

/// Larger than any kubeconfig, bundle of certificates, or token.
const MAX_SIZE: u64 = 4 << 20;

/// Where paths are looked up.
#[derive(Debug)]
pub(super) enum Files {
    /// As this process sees them.
    Own,
    /// Below the host's root, which no link leads out of.
    Host(OwnedFd),
}

impl Files {
    pub(super) fn host(root: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self::Host(openat(CWD, root, flags, Mode::empty())?))
    }

    /// A regular file, whole. Links are followed: kubelet's certificate is one
    /// to the newest.
    pub(super) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let (content, _) = self.open(path)?;
        Ok(content)
    }

    /// The same, and why others could have written it, if they could.
    pub(super) fn read_judged(&self, path: &Path) -> io::Result<(Vec<u8>, Option<Doubt>)> {
        let (content, metadata) = self.open(path)?;
        let doubt = Doubt::of_file(&metadata).or_else(|| match self {
            Self::Own => Doubt::of_folders(path),
            // The host's folders are the host's.
            Self::Host(_) => None,
        });
        Ok((content, doubt))
    }

    fn open(&self, path: &Path) -> io::Result<(Vec<u8>, Metadata)> {
        // Waits for nobody, should it be no file.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = match self {
            Self::Own => openat(CWD, path, flags, Mode::empty())?,
            Self::Host(root) => {
                let path = path.strip_prefix("/").unwrap_or(path);
                let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
                open_resolved(root, path, flags, how)?
            }
        };
        let file = fs::File::from(fd);
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            let what = "it is no regular file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let mut content = Vec::new();
        file.take(MAX_SIZE + 1).read_to_end(&mut content)?;
        if content.len() as u64 > MAX_SIZE {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok((content, metadata))
    }
}

/// Why others than root and the user could have written a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    /// It is another user's.
    #[error("it belongs to user {0}")]
    Owner(u32),
    #[error("others than its owner can write it")]
    Mode,
    /// A folder that it is in, or that a link to it is in.
    #[error("others can change the folder {}", .0.display())]
    Folder(PathBuf),
}

/// Others than the owner may write.
const WRITABLE: u32 = 0o022;
/// They may not replace what is not theirs.
const STICKY: u32 = 0o1000;

impl Doubt {
    fn of_file(metadata: &Metadata) -> Option<Self> {
        if !is_own(metadata) {
            return Some(Self::Owner(metadata.uid()));
        }
        (metadata.mode() & WRITABLE != 0).then_some(Self::Mode)
    }

    /// Of the folders on the way to a file, as it is named and as it is: what
    /// the file names by relative paths is in the former. What cannot be looked
    /// at is not trusted.
    fn of_folders(path: &Path) -> Option<Self> {
        let named = path.parent().unwrap_or(Path::new(""));
        let named = match named.as_os_str().is_empty() {
            true => Path::new("."),
            false => named,
        };
        let real = [path.canonicalize(), named.canonicalize()];
        let [Ok(file), Ok(folder)] = real else {
            return Some(Self::Folder(named.to_owned()));
        };
        let strange = |place: &&Path| {
            !fs::symlink_metadata(place).is_ok_and(|found| {
                let mode = found.mode();
                // In the nearest, others must not even add something.
                let kept = mode & STICKY != 0 && *place != folder;
                is_own(&found) && (mode & WRITABLE == 0 || kept)
            })
        };
        let mut folders = folder.ancestors().chain(file.ancestors().skip(1));
        let bad = folders.find(strange);
        bad.map(|folder| Self::Folder(folder.to_owned()))
    }
}

/// Root's, or of who runs this.
fn is_own(metadata: &Metadata) -> bool {
    let owner = metadata.uid();
    owner == 0 || owner == rustix::process::geteuid().as_raw()
}
