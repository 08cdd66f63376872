//! Small files that credentials are made of: of this process's own root, or of
//! the host's.

use std::{
    fs,
    io::{self, Read as _},
    os::fd::OwnedFd,
    path::Path,
};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat};

use crate::source::root::open_resolved;

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
    /// The host's files.
    pub(super) fn host(root: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self::Host(openat(CWD, root, flags, Mode::empty())?))
    }

    /// A regular file, whole. Links are followed: kubelet's certificate is one
    /// to the newest.
    pub(super) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
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
        if !file.metadata()?.is_file() {
            let what = "it is no regular file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let mut content = Vec::new();
        file.take(MAX_SIZE + 1).read_to_end(&mut content)?;
        if content.len() as u64 > MAX_SIZE {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(content)
    }
}
