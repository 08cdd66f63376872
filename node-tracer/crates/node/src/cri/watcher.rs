//! The runtime's sandboxes while tracing: asked for again and again in a
//! thread beside the tracer, which is told of what has changed.

use super::fetch::copy_details;
use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender},
    },
    thread,
    time::Duration,
};

use super::{CriError, Endpoint, Listing, Place, SOURCE, SandboxesById, asker::Asker};
use crate::procfs::Procfs;
use event::{Event, RuntimeSandbox, What, fault};

/// Answers whose changes wait to be taken; a tracer that does not take them
/// stops the asking. The channel's room is memory from the start.
const MAX_WAITING: usize = 1;

/// Pause after no answer: a runtime that is started again is back soon.
const RETRY: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Watcher {
    changes: Receiver<Vec<Event>>,
    /// The process that listens on the socket that answered last; 0: none is
    /// known.
    listener: Arc<AtomicU32>,
    /// The thread ends, in its own time, when this does.
    #[expect(dead_code, reason = "held to be dropped")]
    alive: Sender<()>,
}

impl Watcher {
    /// Asks at once, and then `interval` after each answer, or sooner if there
    /// was none; each time for at most `timeout`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        place: Place,
        root: PathBuf,
        procfs: Procfs,
        interval: Duration,
        timeout: Duration,
    ) -> io::Result<Self> {
        let (sender, changes) = mpsc::sync_channel(MAX_WAITING);
        let (alive, ended) = mpsc::channel::<()>();
        let mut asker = Asker::new(place, root, procfs, timeout);
        let listener = Arc::new(AtomicU32::new(0));
        let told = Arc::clone(&listener);
        let ask = move |described| {
            let answer = asker.ask(described);
            let listens = match &answer {
                Ok(listing) => listing.listener,
                Err(_) => asker.listener(),
            };
            told.store(listens.unwrap_or(0), Ordering::Relaxed);
            answer
        };
        thread::Builder::new()
            .name(String::from("cri-watcher"))
            .spawn(move || watch(ask, interval, &sender, &ended))?;
        Ok(Self {
            changes,
            listener,
            alive,
        })
    }

    /// The process that listens on the socket that answered last, if the kernel
    /// tells.
    pub fn listener(&self) -> Option<u32> {
        let pid = self.listener.load(Ordering::Relaxed);
        (pid != 0).then_some(pid)
    }

    /// Takes what has happened since the last call; never waits. The first
    /// event of the sandboxes is the whole list, the others are changes of it;
    /// what is missing in it has changed if it is told whole again.
    pub fn poll(&mut self, out: &mut Vec<Event>) {
        out.extend(self.changes.try_iter().flatten());
    }
}

fn watch(
    mut ask: impl FnMut(SandboxesById) -> Result<Listing, CriError>,
    interval: Duration,
    sender: &SyncSender<Vec<Event>>,
    ended: &Receiver<()>,
) {
    let mut last = Last::default();
    loop {
        // What is answered may be of any moment since.
        let time = sys::clock::now();
        let answer = ask(last.described());
        let pause = match answer {
            // A node without a runtime is not to be searched all the time.
            Ok(_) | Err(CriError::NoSocket) => interval,
            Err(_) => interval.min(RETRY),
        };
        let changes = Event::all_of(time, last.changes(answer));
        if !changes.is_empty() && sender.send(changes).is_err() {
            return;
        }
        match ended.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// What was told last.
#[derive(Debug, Default)]
struct Last {
    /// `None` before the first list.
    sandboxes: Option<BTreeMap<String, RuntimeSandbox>>,
    endpoint: Option<Endpoint>,
    /// The runtime's name and version.
    runtime: Option<String>,
    partial: Option<String>,
    /// Those of them that were told whole.
    described: SandboxesById,
    /// The error that was told.
    failure: Option<String>,
}

impl Last {
    /// The sandboxes that need not be asked about again unless they change.
    fn described(&self) -> SandboxesById {
        self.described.clone()
    }

    fn changes(&mut self, answer: Result<Listing, CriError>) -> Vec<What> {
        let source = || String::from(SOURCE);
        let listing = match answer {
            Ok(listing) => listing,
            Err(error) => {
                // That nothing is found is no failure of what was never there.
                let silent = matches!(error, CriError::NoSocket) && self.sandboxes.is_none();
                let error = fault::chain(&error);
                // Told again only if it is another one.
                if self.failure.replace(error.clone()).as_ref() == Some(&error) || silent {
                    return Vec::new();
                }
                return vec![What::SourceFailed {
                    source: source(),
                    error,
                }];
            }
        };
        let mut changes = Vec::new();
        let recovered = self.failure.take().is_some();
        // Another runtime's list is another list.
        let same =
            self.endpoint.replace(listing.endpoint.clone()) == Some(listing.endpoint.clone());
        let before = self.sandboxes.take().filter(|_| same);
        let mut now = complete(&listing, before.as_ref());
        // A version that was not told this time is the one that was.
        let known = self.runtime.take().filter(|_| same);
        let runtime = listing.runtime.or_else(|| known.clone());
        // Only a whole list says what is missing, or that nothing is any more.
        // Of one that is cut others may be told each time.
        let anew = (&listing.partial, &runtime) != (&self.partial, &known)
            || (listing.cut && before.as_ref() != Some(&now))
            || before.is_none();
        if anew {
            // It dates all that is on it: not a namespace that was not looked
            // up, whose number can be another's by now.
            for id in &listing.undescribed {
                if let Some(sandbox) = now.get_mut(id) {
                    sandbox.netns = None;
                }
            }
        }
        // What a list that is cut lacks may be there all the same.
        let listed = before.iter().flat_map(|before| before.keys());
        let gone = listed.filter(|id| !listing.cut && !now.contains_key(*id));
        changes.extend(gone.map(|id| What::SandboxRemoved {
            source: source(),
            id: id.clone(),
        }));
        if anew {
            changes.push(What::SandboxesListed {
                source: source(),
                endpoint: listing.endpoint.to_string(),
                runtime: runtime.clone(),
                partial: listing.partial.clone(),
                sandboxes: now.values().cloned().collect(),
            });
        }
        if let Some(before) = before {
            let new = now.values().filter(|new| before.get(&new.id) != Some(new));
            changes.extend(new.map(|sandbox| What::SandboxAdded {
                source: source(),
                sandbox: sandbox.clone(),
            }));
        }
        // Until then what is known is of before.
        if recovered {
            changes.push(What::SourceRecovered { source: source() });
        }
        let whole = |id: &String| !listing.undescribed.contains(id);
        let described = now.iter().filter(|(id, _)| whole(id));
        self.described = described.map(|(id, it)| (id.clone(), it.clone())).collect();
        self.sandboxes = Some(now);
        self.runtime = runtime;
        self.partial = listing.partial;
        changes
    }
}

/// The sandboxes of a list, with what the list lacks taken from the one
/// before: what was not told this time has not changed for that.
fn complete(
    listing: &Listing,
    before: Option<&BTreeMap<String, RuntimeSandbox>>,
) -> BTreeMap<String, RuntimeSandbox> {
    let mut sandboxes = BTreeMap::new();
    for sandbox in &listing.sandboxes {
        let mut sandbox = sandbox.clone();
        if let Some(before) = before.and_then(|before| before.get(&sandbox.id)) {
            if listing.undescribed.contains(&sandbox.id) {
                copy_details(&mut sandbox, before);
                sandbox.netns = before.netns;
            }
            // It has not changed, but for steps of the clock.
            sandbox.created = before.created;
            if !listing.with_containers {
                sandbox.containers.clone_from(&before.containers);
            }
        }
        sandboxes.insert(sandbox.id.clone(), sandbox);
    }
    sandboxes
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, slice};

    use super::*;
    use event::{Netns, PodRef, RuntimeContainer};

    fn sandbox(id: &str, pid: u32) -> RuntimeSandbox {
        RuntimeSandbox {
            id: id.to_owned(),
            pod: PodRef::default(),
            ready: Some(true),
            pid: Some(pid),
            containers: vec![RuntimeContainer {
                id: format!("{id}-box"),
                ..RuntimeContainer::default()
            }],
            ..RuntimeSandbox::default()
        }
    }

    fn listing(sandboxes: &[RuntimeSandbox]) -> Listing {
        Listing {
            endpoint: Endpoint::parse("/run/x.sock").unwrap(),
            listener: None,
            runtime: Some(String::from("containerd 1.7")),
            sandboxes: sandboxes.to_vec(),
            partial: None,
            cut: false,
            undescribed: BTreeSet::new(),
            with_containers: true,
        }
    }

    #[test]
    fn a_step_of_the_clock_adds_no_sandbox() {
        let at = |time: &str| RuntimeSandbox {
            created: event::clock::Timestamp::parse(time),
            ..sandbox("a", 1)
        };
        let mut last = Last::default();
        last.changes(Ok(listing(&[at("2026-11-27T10:00:00Z")])));
        let stepped = listing(&[at("2026-11-27T09:00:00Z")]);
        assert_eq!(last.changes(Ok(stepped)), []);
    }

    /// One that lacks something.
    fn partial(why: &str, sandboxes: &[RuntimeSandbox]) -> Listing {
        Listing {
            partial: Some(why.to_owned()),
            ..listing(sandboxes)
        }
    }

    /// One that lacks some of the sandboxes themselves.
    fn cut(sandboxes: &[RuntimeSandbox]) -> Listing {
        Listing {
            cut: true,
            ..partial("more than 2 sandboxes", sandboxes)
        }
    }

    fn failure(message: &str) -> CriError {
        CriError::TooOld {
            endpoint: Endpoint::parse("/run/x.sock").unwrap(),
            message: message.to_owned(),
        }
    }

    fn words(changes: &[What]) -> Vec<String> {
        let word = |what: &What| match what {
            What::SandboxesListed {
                sandboxes, partial, ..
            } => match partial {
                Some(_) => format!("listed {}, not all", sandboxes.len()),
                None => format!("listed {}", sandboxes.len()),
            },
            What::SandboxAdded { sandbox, .. } => format!("added {}", sandbox.id),
            What::SandboxRemoved { id, .. } => format!("removed {id}"),
            What::SourceFailed { source, .. } => format!("failed {source}"),
            What::SourceRecovered { source } => format!("recovered {source}"),
            other => format!("{other:?}"),
        };
        changes.iter().map(word).collect()
    }

    #[test]
    fn the_first_list_is_told_whole_and_then_only_what_changes() {
        let mut last = Last::default();
        let (a, b) = (sandbox("a", 1), sandbox("b", 2));
        let mut tell = |sandboxes: &[RuntimeSandbox]| words(&last.changes(Ok(listing(sandboxes))));
        assert_eq!(tell(&[a.clone(), b.clone()]), ["listed 2"]);
        assert!(tell(&[a.clone(), b.clone()]).is_empty());
        let stopped = RuntimeSandbox {
            ready: Some(false),
            pid: None,
            ..a
        };
        let c = sandbox("c", 3);
        assert_eq!(
            tell(&[stopped.clone(), c.clone()]),
            ["removed b", "added a", "added c"]
        );
        assert!(tell(&[stopped, c]).is_empty());
    }

    #[test]
    fn a_failure_is_told_once_and_hides_nothing_that_changed_meanwhile() {
        let mut last = Last::default();
        let mut tell = |answer| words(&last.changes(answer));
        assert_eq!(tell(Err(failure("one"))), ["failed cri"]);
        assert!(tell(Err(failure("one"))).is_empty());
        assert_eq!(tell(Err(failure("two"))), ["failed cri"]);
        assert_eq!(
            tell(Ok(listing(&[sandbox("a", 1)]))),
            ["listed 1", "recovered cri"]
        );
        assert_eq!(tell(Err(failure("two"))), ["failed cri"]);
        assert_eq!(
            tell(Ok(listing(&[sandbox("b", 1)]))),
            ["removed a", "added b", "recovered cri"]
        );
    }

    #[test]
    fn no_socket_is_told_by_its_end_alone_and_another_runtime_by_its_whole_list() {
        let mut last = Last::default();
        let mut tell = |answer| words(&last.changes(answer));
        assert!(tell(Err(CriError::NoSocket)).is_empty());
        assert!(tell(Err(CriError::NoSocket)).is_empty());
        let first = listing(&[sandbox("a", 1)]);
        assert_eq!(tell(Ok(first.clone())), ["listed 1", "recovered cri"]);
        let elsewhere = Listing {
            endpoint: Endpoint::parse("/run/y.sock").unwrap(),
            ..first
        };
        assert_eq!(tell(Ok(elsewhere)), ["listed 1"]);
        assert_eq!(tell(Err(CriError::NoSocket)), ["failed cri"]);
    }

    #[test]
    fn what_a_partial_list_lacks_is_as_it_was() {
        let mut last = Last::default();
        last.changes(Ok(listing(&[sandbox("a", 1)])));
        assert!(last.described().contains_key("a"));
        let mut partial = listing(&[RuntimeSandbox {
            pid: None,
            containers: Vec::new(),
            ..sandbox("a", 1)
        }]);
        partial.undescribed.insert(String::from("a"));
        partial.with_containers = false;
        assert!(last.changes(Ok(partial)).is_empty());
        assert!(last.described().is_empty(), "it is asked about again");
    }

    #[test]
    fn what_is_missing_is_told_when_it_changes_and_with_it_all_that_is_there() {
        let mut last = Last::default();
        let mut tell = |answer| words(&last.changes(Ok(answer)));
        let (a, b) = (sandbox("a", 1), sandbox("b", 2));
        let one = [a.clone()];
        assert_eq!(tell(partial("slow", &one)), ["listed 1, not all"]);
        assert!(tell(partial("slow", &one)).is_empty());
        assert_eq!(tell(partial("slower", &one)), ["listed 1, not all"]);
        assert_eq!(tell(listing(&one)), ["listed 1"]);
        assert!(tell(listing(&one)).is_empty());
        // What came and went with it is told by itself, too.
        assert_eq!(
            tell(partial("slow", slice::from_ref(&b))),
            ["removed a", "listed 1, not all", "added b"]
        );
        assert_eq!(tell(partial("slow", &[a, b])), ["added a"]);
    }

    #[test]
    fn nothing_is_removed_by_a_list_that_is_cut() {
        let mut last = Last::default();
        let mut tell = |answer| words(&last.changes(Ok(answer)));
        let (a, b, c) = (sandbox("a", 1), sandbox("b", 2), sandbox("c", 3));
        assert_eq!(tell(listing(&[a.clone(), b.clone()])), ["listed 2"]);
        assert_eq!(
            tell(cut(&[b.clone(), c.clone()])),
            ["listed 2, not all", "added c"]
        );
        assert!(tell(cut(&[b.clone(), c.clone()])).is_empty());
        // There may be no room beside those that were told before.
        assert_eq!(tell(cut(&[a, b.clone()])), ["listed 2, not all", "added a"]);
        assert_eq!(tell(listing(&[b])), ["removed a", "listed 1"]);
    }

    #[test]
    fn a_whole_list_dates_no_namespace_that_was_not_looked_up() {
        let netns = Some(Netns {
            inode: 100,
            cookie: None,
        });
        let a = RuntimeSandbox {
            netns,
            ..sandbox("a", 1)
        };
        let mut last = Last::default();
        last.changes(Ok(listing(slice::from_ref(&a))));
        let mut unsaid = partial(
            "1 of 1 sandboxes are not described",
            &[RuntimeSandbox {
                ready: Some(false),
                pid: None,
                netns: None,
                ..a.clone()
            }],
        );
        unsaid.undescribed.insert(String::from("a"));
        for what in last.changes(Ok(unsaid)) {
            let told = match &what {
                What::SandboxesListed { sandboxes, .. } => &sandboxes[0],
                What::SandboxAdded { sandbox, .. } => sandbox,
                other => panic!("{other:?}"),
            };
            assert_eq!((told.netns, told.pid), (None, Some(1)));
        }
        assert_eq!(
            words(&last.changes(Ok(listing(&[a])))),
            ["listed 1", "added a"]
        );
    }

    #[test]
    fn a_version_that_is_told_late_is_told_and_then_known() {
        let mut last = Last::default();
        let mut tell = |runtime: Option<&str>| {
            let answer = Listing {
                runtime: runtime.map(str::to_owned),
                ..listing(&[sandbox("a", 1)])
            };
            last.changes(Ok(answer))
        };
        assert_eq!(words(&tell(None)), ["listed 1"]);
        assert_eq!(words(&tell(Some("containerd 2.1"))), ["listed 1"]);
        assert!(tell(None).is_empty());
    }

    #[test]
    fn the_thread_ends_with_the_watcher() {
        let (sender, changes) = mpsc::sync_channel(MAX_WAITING);
        let (alive, ended) = mpsc::channel::<()>();
        let ask = |_| Ok(listing(&[sandbox("a", 1)]));
        let thread = thread::spawn(move || watch(ask, Duration::from_secs(600), &sender, &ended));
        let mut watcher = Watcher {
            changes,
            listener: Arc::default(),
            alive,
        };
        let mut out = Vec::new();
        while out.is_empty() {
            watcher.poll(&mut out);
            thread::sleep(Duration::from_millis(1));
        }
        drop(watcher);
        thread.join().unwrap();
    }
}
