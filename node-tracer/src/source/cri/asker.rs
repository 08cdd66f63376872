//! Asks the runtime while there may be none yet, another one later, or the
//! same one at another path.

use std::{path::PathBuf, time::Duration};

use super::{CriError, Endpoint, Known, Listing, endpoints, list_changes};
use crate::source::procfs::Procfs;

/// Where the runtime is.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// There, and nowhere else.
    Given(Endpoint),
    /// Wherever one answers; what was found already, if anything was.
    Search(Vec<Endpoint>),
}

impl Place {
    /// Where is asked first, if it is known.
    pub(crate) fn first(&self) -> Option<&Endpoint> {
        match self {
            Self::Given(endpoint) => Some(endpoint),
            Self::Search(found) => found.first(),
        }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Asker {
    place: Place,
    /// The one that answered last.
    current: Option<Endpoint>,
    root: PathBuf,
    procfs: Procfs,
    timeout: Duration,
}

impl Asker {
    pub(super) fn new(place: Place, root: PathBuf, procfs: Procfs, timeout: Duration) -> Self {
        Self {
            place,
            current: None,
            root,
            procfs,
            timeout,
        }
    }

    /// One question: to the runtime that answered last, and if that fails, to
    /// all that are found now; the first that answers is the runtime from then
    /// on. Each may take the time-out.
    ///
    /// # Errors
    /// None answers; why not is of the one that answered last, or else of the
    /// first.
    pub(super) fn ask(&mut self, known: Known) -> Result<Listing, CriError> {
        let given = match &mut self.place {
            Place::Given(endpoint) => {
                let endpoint = endpoint.clone();
                return self.one(&endpoint, known);
            }
            Place::Search(found) => std::mem::take(found),
        };
        let mut error = None;
        if let Some(current) = self.current.clone() {
            match self.one(&current, known) {
                Ok(listing) => return Ok(listing),
                Err(why) => error = Some(why),
            }
        }
        let found = match given.is_empty() {
            true => self.search(),
            false => given,
        };
        for endpoint in found {
            if self.current.as_ref() == Some(&endpoint) {
                continue;
            }
            match self.one(&endpoint, Known::new()) {
                Ok(listing) => {
                    self.current = Some(endpoint);
                    return Ok(listing);
                }
                Err(why) => drop(error.get_or_insert(why)),
            }
        }
        Err(error.unwrap_or(CriError::NoSocket))
    }

    fn one(&self, endpoint: &Endpoint, known: Known) -> Result<Listing, CriError> {
        list_changes(endpoint, &self.root, &self.procfs, self.timeout, known)
    }

    /// A file system that does not answer hides what is on it for this time.
    fn search(&self) -> Vec<Endpoint> {
        let root = self.root.clone();
        let find = move || endpoints(&root);
        let found = self.procfs.bounded_reads().read(self.timeout, find);
        found.unwrap_or_default()
    }
}
