//! The list of pods while tracing: told when it changes, with the pods that
//! have gone.

use crate::{
    clock::Timestamp,
    config::Pods,
    event::{Event, Pod, What},
    model::pods::deleted,
    report,
    source::pods::{PodsError, PodsFile},
};

/// See the module's documentation.
pub(super) struct PodsSource {
    file: Option<PodsFile>,
    known: Vec<Pod>,
    failing: bool,
}

impl PodsSource {
    /// The source that was asked for.
    pub(super) fn new(pods: &Pods) -> Self {
        let file = match pods {
            Pods::File(path) => Some(PodsFile::new(path)),
            Pods::Auto | Pods::None => None,
        };
        Self {
            file,
            known: Vec::new(),
            failing: false,
        }
    }

    /// Its name, if there is one.
    pub(super) fn name(&self) -> Option<String> {
        self.file.as_ref().map(PodsFile::source)
    }

    /// The first list. One that cannot be read is the user's mistake.
    pub(super) fn first(&mut self) -> Result<Vec<Event>, PodsError> {
        let mut events = Vec::new();
        match self.file.as_mut().and_then(PodsFile::poll) {
            Some(Ok(listing)) => self.listed(listing, &mut events),
            Some(Err(error)) => return Err(error),
            None => {}
        }
        Ok(events)
    }

    /// Looks again; whether the list has changed.
    pub(super) fn poll(&mut self, out: &mut Vec<Event>) -> bool {
        let Some(polled) = self.file.as_mut().and_then(PodsFile::poll) else {
            return false;
        };
        let time = Timestamp::now();
        let source = String::from("pods");
        match polled {
            Ok(listing) => {
                if std::mem::take(&mut self.failing) {
                    out.push(Event {
                        time,
                        what: What::SourceRecovered { source },
                    });
                }
                self.listed(listing, out);
                true
            }
            Err(error) => {
                self.failing = true;
                let error = report::chain(&error);
                out.push(Event {
                    time,
                    what: What::SourceFailed { source, error },
                });
                false
            }
        }
    }

    fn listed(&mut self, listing: crate::source::pods::Listing, out: &mut Vec<Event>) {
        let time = Timestamp::now();
        for pod in deleted(&self.known, &listing.pods) {
            out.push(Event {
                time,
                what: What::PodDeleted { pod },
            });
        }
        self.known.clone_from(&listing.pods);
        let what = What::PodsListed {
            source: listing.source,
            at: listing.at,
            whole: false,
            pods: listing.pods,
        };
        out.push(Event { time, what });
    }
}
