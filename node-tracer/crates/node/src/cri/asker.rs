//! Asks the runtime while there may be none yet, another one later, or the
//! same one at another path.
//!
//! A node can have the sockets of two runtimes, and only one of them has the
//! kubelet's sandboxes. The list of the other one, taken for the node's, would
//! say of each of them that it is gone. So:
//!
//! - If the configuration names a socket that is there, no other is asked.
//! - The runtime that answered last stays the node's when it fails: it is being
//!   started again, or hangs, and its error is the answer. Another one takes
//!   its place only once its socket has been gone for [`MOVED_AFTER`], and never
//!   while the configuration names it.
//! - One that answered in place of another, which the configuration puts first
//!   and which was not there or silent then, is left for that one at once.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use super::{CriError, Endpoint, Listing, SandboxesById, endpoint::Sockets, list_changes};
use crate::procfs::Procfs;

/// How long a socket must be gone before the runtime counts as moved. One that
/// is started again takes its socket away, and is back at the same path.
const MOVED_AFTER: Duration = Duration::from_secs(30);

/// Where the runtime is.
#[derive(Clone, Debug)]
pub enum Place {
    /// There, and nowhere else.
    Given(Endpoint),
    /// Wherever one answers; what was found already, if anything was. That is
    /// for the first question; later ones search anew.
    Search(Vec<Endpoint>),
}

impl Place {
    /// Where is asked first, if it is known.
    pub fn first(&self) -> Option<&Endpoint> {
        match self {
            Self::Given(endpoint) => Some(endpoint),
            Self::Search(found) => found.first(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Asker {
    place: Place,
    /// The one that answered last.
    current: Option<Endpoint>,
    /// The configuration puts none before it, as far as is known.
    settled: bool,
    /// Since when its socket is gone.
    gone: Option<Instant>,
    moved_after: Duration,
    root: PathBuf,
    procfs: Procfs,
    timeout: Duration,
}

impl Asker {
    pub(super) fn new(place: Place, root: PathBuf, procfs: Procfs, timeout: Duration) -> Self {
        Self {
            place,
            current: None,
            settled: false,
            gone: None,
            moved_after: MOVED_AFTER,
            root,
            procfs,
            timeout,
        }
    }

    /// The same, with another time until a runtime counts as moved.
    #[cfg(test)]
    pub(super) fn moved_after(self, moved_after: Duration) -> Self {
        Self {
            moved_after,
            ..self
        }
    }

    /// One question: to the runtime that answered last, or else to all that
    /// are found; the first that answers is the runtime from then on. When
    /// another one takes its place, the module's documentation says. Each may
    /// take the time-out.
    ///
    /// # Errors
    /// None answers; why not is of the one that answered last, or else of the
    /// first.
    pub(super) fn ask(&mut self, known: SandboxesById) -> Result<Listing, CriError> {
        let given = match &mut self.place {
            Place::Given(endpoint) => {
                let endpoint = endpoint.clone();
                return self.one(&endpoint, known);
            }
            Place::Search(found) => std::mem::take(found),
        };
        if let Some(current) = self.current.clone() {
            return self.again(&current, known);
        }
        let candidates = match given.is_empty() {
            true => self.search().map(Sockets::candidates),
            false => Some(given),
        };
        self.first_of(candidates.unwrap_or_default())
    }

    /// The process that listens where the runtime is, whether it answers or not.
    pub(super) fn listener(&self) -> Option<u32> {
        let endpoint = self.current.as_ref().or_else(|| self.place.first())?;
        super::listener(endpoint, &self.root, &self.procfs, self.timeout)
    }

    /// Asks the one that answered last, or what is to take its place.
    fn again(&mut self, current: &Endpoint, known: SandboxesById) -> Result<Listing, CriError> {
        if let Some(listing) = self.preferred(current) {
            return Ok(listing);
        }
        match self.one(current, known) {
            Ok(listing) => {
                self.gone = None;
                Ok(listing)
            }
            Err(why) => match self.successors(current) {
                Some(others) => self.first_of(others).map_err(|_| why),
                None => Err(why),
            },
        }
    }

    /// Asks these one after the other; the first that answers is the runtime.
    fn first_of(&mut self, candidates: Vec<Endpoint>) -> Result<Listing, CriError> {
        let mut error = None;
        for endpoint in candidates {
            match self.one(&endpoint, SandboxesById::new()) {
                Ok(listing) => {
                    self.current = Some(endpoint);
                    // What was found before need not be what is there now.
                    self.settled = false;
                    self.gone = None;
                    return Ok(listing);
                }
                Err(why) => drop(error.get_or_insert(why)),
            }
        }
        Err(error.unwrap_or(CriError::NoSocket))
    }

    /// The list of one that the configuration puts before the current one, if
    /// such a one answers.
    fn preferred(&mut self, current: &Endpoint) -> Option<Listing> {
        if self.settled {
            return None;
        }
        let Some(sockets) = self.search() else {
            // Each search that hangs leaves a thread behind: not one for each
            // question while there are answers.
            self.settled = true;
            return None;
        };
        self.settled = sockets.puts_first(current);
        self.first_of(sockets.before(current)).ok()
    }

    /// Those that may take the place of the current one, which has failed; none
    /// may unless its socket has been gone for long enough.
    fn successors(&mut self, current: &Endpoint) -> Option<Vec<Endpoint>> {
        // What cannot be searched for is not gone.
        let sockets = self.search()?;
        self.settled = sockets.puts_first(current);
        if sockets.may_have(current) {
            self.gone = None;
            return None;
        }
        let since = *self.gone.get_or_insert_with(Instant::now);
        (since.elapsed() >= self.moved_after).then_some(sockets.found)
    }

    fn one(&self, endpoint: &Endpoint, known: SandboxesById) -> Result<Listing, CriError> {
        list_changes(endpoint, &self.root, &self.procfs, self.timeout, known)
    }

    /// `None` if a file system does not answer, which hides what is on it for
    /// this time, or if the root cannot be opened.
    fn search(&self) -> Option<Sockets> {
        let root = self.root.clone();
        let find = move || Sockets::find(&root);
        let found = self.procfs.bounded_reads().read(self.timeout, find);
        found.ok()?.ok()
    }
}
