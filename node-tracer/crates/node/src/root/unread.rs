//! What of the host's files could not be read or understood: told, so that it
//! does not pass for "there is nothing".

use std::{
    io,
    path::{Path, PathBuf},
};

use event::fault;

/// Texts that are kept of one source.
const MAX_UNREAD: usize = 256;

/// Why a file or folder of the host gives no answer. Its content is never
/// quoted: it can hold tokens.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// It is there and cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which, on the host.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// It holds something else than it should.
    #[error("{} {what}", path.display())]
    Content {
        /// Which, on the host.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

impl Unread {
    /// For a file that cannot be read.
    pub fn read(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        Self::Read { path, source }
    }

    /// For a file of which `what` is true.
    pub fn content(path: &Path, what: impl Into<String>) -> Self {
        let (path, what) = (path.to_owned(), what.into());
        Self::Content { path, what }
    }
}

/// What one source could not read: the first of them, and how many more.
#[derive(Debug, Default)]
pub struct UnreadList {
    first: Vec<Unread>,
    more: usize,
}

impl UnreadList {
    pub fn push(&mut self, unread: Unread) {
        if self.first.len() < MAX_UNREAD {
            self.first.push(unread);
        } else {
            self.more += 1;
        }
    }

    pub fn texts(&self) -> Vec<String> {
        let mut texts: Vec<String> = self.first.iter().map(|each| fault::chain(each)).collect();
        if self.more > 0 {
            texts.push(format!("{} more could not be read", self.more));
        }
        texts
    }
}
