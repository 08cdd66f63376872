//! The list of pods while tracing: told when it changes, with the pods that
//! have gone.

use std::{io, time::Duration};

use crate::{
    config::{Config, Pods},
    progress,
};
use engine::model::pods::{deleted, is_same, reference};
use event::{Event, Pod, What, fault};
use kube::{self, Credentials, KubeError, Watch, WatchUpdate};
use node::{
    pods::{Listing, PodsError, PodsReader},
    procfs::{Bounded, NoAnswer},
};

/// How long a trace waits for the API server before it goes on without. It
/// takes what comes later, too.
const FIRST_LIST: Duration = Duration::from_secs(2);

/// How long the start waits for a kubeconfig, on a node that has much to do.
const CREDENTIALS: Duration = Duration::from_secs(10);

/// The credentials for the API server.
///
/// # Errors
/// The files do not answer. Inside: there are none, or they cannot be used.
pub(super) fn find_credentials(
    config: &Config,
) -> Result<Result<Credentials, KubeError>, NoAnswer> {
    let _shown = progress::waiting("the kubeconfig");
    let (root, given) = (config.node.root.clone(), config.kubeconfig.clone());
    let find = move || Credentials::find(&root, given.as_deref());
    Bounded::default().read(CREDENTIALS, find)
}

/// How much of what the server says is taken at once: the rest of the trace goes
/// on, however much it says.
const AT_ONCE: usize = 64;

pub(super) struct PodsSource {
    from: From,
    known: Vec<Pod>,
    /// The last list, without the pods.
    last: Option<Listing>,
    /// Why it fails, if it does.
    failing: Option<String>,
    /// What the server is asked with, if it is.
    credentials: Option<Credentials>,
}

enum From {
    Nowhere,
    File(PodsReader),
    Server(Watch),
}

impl PodsSource {
    /// The source that was asked for; and why there is none, where it is left
    /// to the tracer and it has found nothing.
    ///
    /// # Errors
    /// The credentials that were given cannot be used.
    pub(super) fn find(config: &Config) -> Result<(Self, Option<String>), KubeError> {
        match &config.pods {
            Pods::File(path) => return Ok((Self::of(From::File(PodsReader::new(path))), None)),
            Pods::None => return Ok((Self::of(From::Nowhere), None)),
            Pods::Auto => {}
        }
        let given = config.kubeconfig.as_deref();
        let found = find_credentials(config)
            .unwrap_or_else(|error| {
                Err(KubeError::Read {
                    path: given.unwrap_or(&config.node.root).to_owned(),
                    source: io::Error::other(error),
                })
            })
            .and_then(|credentials| Self::server(credentials, &config.node.name));
        match found {
            Ok(source) => Ok((source, None)),
            Err(error) if given.is_some() => Err(error),
            Err(error) => Ok((Self::of(From::Nowhere), Some(fault::chain(&error)))),
        }
    }

    /// The API server. It is asked from now on.
    fn server(credentials: Credentials, node: &str) -> Result<Self, KubeError> {
        let watch = Watch::start(credentials.clone(), node)?;
        Ok(Self {
            credentials: Some(credentials),
            ..Self::of(From::Server(watch))
        })
    }

    fn of(from: From) -> Self {
        Self {
            from,
            known: Vec::new(),
            last: None,
            failing: None,
            credentials: None,
        }
    }

    /// What to ask the same server with, if there is one.
    pub(super) fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// A pod that is not on the list matters: has the server show that it is not
    /// there. A file says what it says.
    pub(super) fn prove(&self) {
        if let From::Server(watch) = &self.from {
            watch.prove();
        }
    }

    pub(super) fn name(&self) -> Option<String> {
        match &self.from {
            From::Nowhere => None,
            From::File(file) => Some(file.source().to_owned()),
            From::Server(_) => Some(kube::SOURCE.to_owned()),
        }
    }

    /// Why the last list shows of no pod that it is gone.
    pub(super) fn doubt(&self) -> Option<&str> {
        self.last.as_ref()?.doubt.as_deref()
    }

    /// The first list. A file that cannot be read is the user's mistake; a
    /// server that does not answer may do so later, and so may a file that hangs.
    pub(super) fn first(&mut self) -> Result<Vec<Event>, PodsError> {
        let mut events = Vec::new();
        match &mut self.from {
            From::Nowhere => {}
            From::File(file) => match file.wait(FIRST_LIST) {
                None => {}
                Some(Ok(listing)) => self.listed(listing, &mut events),
                Some(Err(error @ PodsError::Hangs { .. })) => {
                    self.failed(fault::chain(&error), &mut events);
                }
                Some(Err(error)) => return Err(error),
            },
            From::Server(watch) => match watch.wait(FIRST_LIST) {
                Some(update) => {
                    self.take_update(update, &mut events);
                }
                None => {
                    let after = FIRST_LIST.as_secs();
                    self.failed(
                        format!("no answer from the API server within {after} s"),
                        &mut events,
                    );
                }
            },
        }
        Ok(events)
    }

    /// Looks again; whether the list has changed.
    pub(super) fn poll(&mut self, out: &mut Vec<Event>) -> bool {
        match &mut self.from {
            From::Nowhere => false,
            From::File(file) => match file.poll() {
                None => false,
                Some(Ok(listing)) => {
                    self.works(out);
                    self.listed(listing, out);
                    true
                }
                Some(Err(error)) => {
                    self.failed(fault::chain(&error), out);
                    false
                }
            },
            From::Server(_) => {
                let mut changed = false;
                for _ in 0..AT_ONCE {
                    let From::Server(watch) = &mut self.from else {
                        break;
                    };
                    let Some(update) = watch.poll() else { break };
                    changed |= self.take_update(update, out);
                }
                changed
            }
        }
    }

    /// Whether the list has changed.
    fn take_update(&mut self, update: WatchUpdate, out: &mut Vec<Event>) -> bool {
        match update {
            // Not yet: what cannot be followed is known for a moment only.
            WatchUpdate::Listed(listing) => {
                self.listed(listing, out);
                true
            }
            WatchUpdate::Changed(pod) => {
                self.known.retain(|known| !is_same(known, &pod));
                self.known.push((*pod).clone());
                out.push(Event {
                    time: sys::clock::now(),
                    what: What::PodChanged { pod },
                });
                true
            }
            WatchUpdate::Deleted { pod, at } => {
                self.known.retain(|known| !is_same(known, &pod));
                out.push(Event {
                    time: at,
                    what: What::PodDeleted {
                        pod: reference(&pod),
                    },
                });
                true
            }
            WatchUpdate::Failed(error) => {
                self.failed(error, out);
                false
            }
            WatchUpdate::Following => {
                self.works(out);
                false
            }
        }
    }

    fn works(&mut self, out: &mut Vec<Event>) {
        if self.failing.take().is_some() {
            let source = String::from("pods");
            out.push(Event {
                time: sys::clock::now(),
                what: What::SourceRecovered { source },
            });
        }
    }

    fn failed(&mut self, error: String, out: &mut Vec<Event>) {
        self.failing = Some(error.clone());
        let source = String::from("pods");
        out.push(Event {
            time: sys::clock::now(),
            what: What::SourceFailed { source, error },
        });
    }

    fn listed(&mut self, listing: Listing, out: &mut Vec<Event>) {
        let time = sys::clock::now();
        for pod in deleted(&self.known, &listing.pods) {
            out.push(Event {
                time,
                what: What::PodDeleted { pod },
            });
        }
        self.known.clone_from(&listing.pods);
        let pods = Vec::new();
        self.last = Some(Listing {
            pods,
            ..listing.clone()
        });
        out.push(pods_listed(listing));
    }

    /// Tells the present list again, as true as it was, with what has changed
    /// since: for who has not heard it.
    pub(super) fn tell_again(&self, out: &mut Vec<Event>) {
        let pods = self.known.clone();
        out.extend(
            self.last
                .clone()
                .map(|last| pods_listed(Listing { pods, ..last })),
        );
        out.extend(self.failing.clone().map(|error| Event {
            time: sys::clock::now(),
            what: What::SourceFailed {
                source: String::from("pods"),
                error,
            },
        }));
    }
}

fn pods_listed(listing: Listing) -> Event {
    let Listing {
        source,
        at,
        made_after,
        whole,
        doubt,
        pods,
    } = listing;
    let what = What::PodsListed {
        source,
        at,
        made_after,
        whole,
        doubt,
        pods,
    };
    Event {
        time: sys::clock::now(),
        what,
    }
}

#[cfg(test)]
mod tests;
