//! The pod sandboxes and containers of the node as its container runtime has
//! them: CRI v1, over gRPC on the runtime's unix socket.
//!
//! A runtime that hangs is the ordinary case here, not the exception: whatever
//! the other end does, [`list`] is back within its time-out. It runs in a
//! thread of its own that can be left behind, with a deadline inside that is
//! a little shorter, so that what has been told by then is not lost.
//!
//! The socket's path is the host's and is resolved below the host's root. Who
//! opens it may look at the node; who reads the answers has no capability. Of
//! the runtime's answers nothing is kept but what [`RuntimeSandbox`] has.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    time::Duration,
};

use self::client::Socket;
use crate::{
    procfs::{NoAnswer, Owner, Procfs},
    root::{Root, RootError},
};
use event::{Netns, RuntimeSandbox};
use sys::privileges::start_bare;

pub use self::{
    asker::Place,
    endpoint::{Endpoint, endpoints},
    watcher::Watcher,
};

mod api;
mod asker;
mod client;
mod endpoint;
#[cfg(test)]
mod fake;
mod fetch;
mod info;
/// Answers of a runtime.
#[cfg(feature = "testing")]
pub fn fuzz(data: &[u8]) {
    info::fuzz(data);
    fetch::fuzz(data);
}

#[cfg(test)]
mod tests;
mod watcher;

/// The name of this source in events.
pub const SOURCE: &str = "cri";

/// Of a time-out, what is left for reading `/proc` and for handing over.
const RESERVE: u32 = 10;

/// Why the runtime gave no list. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum CriError {
    /// The host's root cannot be opened.
    #[error(transparent)]
    Root(#[from] RootError),
    /// There is none, as far as can be seen.
    #[error("no socket of a container runtime was found; if there is one, name it with --cri")]
    NoSocket,
    #[error(
        "cannot connect to {endpoint}; is the container runtime running, and is this its socket?"
    )]
    Connect {
        endpoint: Endpoint,
        #[source]
        source: io::Error,
    },
    /// It takes the connection or the call, and is silent.
    #[error(
        "{endpoint} does not answer {call} within {} ms; the container runtime hangs",
        after.as_millis()
    )]
    TimedOut {
        endpoint: Endpoint,
        call: &'static str,
        /// How long was waited.
        after: Duration,
    },
    /// gRPC, but not this service.
    #[error(
        "{endpoint} does not offer CRI v1 ({message}); the runtime is too old (containerd: before 1.6), or its CRI is switched off"
    )]
    TooOld { endpoint: Endpoint, message: String },
    /// The runtime says no.
    #[error("{endpoint} answers {call} with {code}: {message}")]
    Refused {
        endpoint: Endpoint,
        call: &'static str,
        code: String,
        message: String,
    },
    /// What comes is not gRPC, or it breaks off.
    #[error(
        "{endpoint} does not speak gRPC, or breaks off ({reason}); is it a container runtime's socket?"
    )]
    Protocol { endpoint: Endpoint, reason: String },
    /// The thread that asks could not be started, or was left behind.
    #[error("{endpoint} was not asked")]
    NotAsked {
        endpoint: Endpoint,
        #[source]
        source: NoAnswer,
    },
}

/// What a runtime has.
#[derive(Clone, Debug, PartialEq)]
pub struct Listing {
    pub endpoint: Endpoint,
    /// The process that listens there (`SO_PEERCRED`), if the kernel tells.
    pub listener: Option<u32>,
    /// Its name and version, where it tells them.
    pub runtime: Option<String>,
    /// Its sandboxes, by ID, each with its containers.
    pub sandboxes: Vec<RuntimeSandbox>,
    /// What is missing, and why.
    pub partial: Option<String>,
    /// There are more sandboxes than are listed.
    cut: bool,
    /// Sandboxes whose process, namespace and addresses were not told.
    undescribed: BTreeSet<String>,
    /// The containers were told.
    with_containers: bool,
}

/// Sandboxes that were described before, by ID: a runtime is not asked again
/// about those that have not changed.
type SandboxesById = BTreeMap<String, RuntimeSandbox>;

/// The process that listens on a runtime's socket, as the kernel tells who
/// connects; nothing is asked of it. Takes at most `timeout`.
pub fn listener(
    endpoint: &Endpoint,
    root: &Path,
    procfs: &Procfs,
    timeout: Duration,
) -> Option<u32> {
    let (endpoint, root) = (endpoint.clone(), root.to_owned());
    let look = move || -> Option<u32> {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_io().build().ok()?;
        let _inside = runtime.enter();
        client::listener(&endpoint, &Root::open(&root).ok()?)
    };
    procfs.bounded_reads().read(timeout, look).ok()?
}

/// Asks the runtime for its sandboxes and containers. Takes at most `timeout`,
/// whatever the other end does, and blocks the thread for as long.
///
/// # Errors
/// See [`CriError`]. Once the sandboxes themselves are listed, whatever else
/// fails is told in [`Listing::partial`].
pub fn list(
    endpoint: &Endpoint,
    root: &Path,
    procfs: &Procfs,
    timeout: Duration,
) -> Result<Listing, CriError> {
    list_changes(endpoint, root, procfs, timeout, SandboxesById::new())
}

/// As [`list`], with what is known already.
fn list_changes(
    endpoint: &Endpoint,
    root: &Path,
    procfs: &Procfs,
    timeout: Duration,
    known: SandboxesById,
) -> Result<Listing, CriError> {
    let ask = {
        let (endpoint, root, procfs) = (endpoint.clone(), root.to_owned(), procfs.clone());
        let patience = timeout.saturating_sub(timeout / RESERVE);
        move || -> Result<Listing, CriError> {
            let root = Root::open(&root)?;
            let connect = Socket::connect(&endpoint, &root, patience);
            let socket = event_loop(&endpoint)?.block_on(connect)?;
            let mut listing = listed(endpoint, socket, patience, known)?;
            locate(&mut listing.sandboxes, &root, &procfs);
            Ok(listing)
        }
    };
    match procfs.bounded_reads().read(timeout, ask) {
        Ok(result) => result,
        Err(NoAnswer::TimedOut { after }) => Err(CriError::TimedOut {
            endpoint: endpoint.clone(),
            call: "in whole",
            after,
        }),
        Err(source) => Err(CriError::NotAsked {
            endpoint: endpoint.clone(),
            source,
        }),
    }
}

/// What the runtime says, taken in by a thread that has no capability.
fn listed(
    endpoint: Endpoint,
    socket: Socket,
    patience: Duration,
    known: SandboxesById,
) -> Result<Listing, CriError> {
    let asked = endpoint.clone();
    let no_thread = |source| CriError::NotAsked {
        endpoint: asked.clone(),
        source,
    };
    let talk = move || {
        let talk = fetch::fetch(&endpoint, socket, patience, &known);
        event_loop(&endpoint)?.block_on(talk)
    };
    let thread = start_bare("cri-answers", talk);
    let thread = thread.map_err(|source| no_thread(NoAnswer::Thread { source }))?;
    thread.join().map_err(|_| no_thread(NoAnswer::Panicked))?
}

fn event_loop(endpoint: &Endpoint) -> Result<tokio::runtime::Runtime, CriError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|source| CriError::NotAsked {
            endpoint: endpoint.clone(),
            source: NoAnswer::Thread { source },
        })
}

/// Finds the namespaces of sandboxes, and drops the process IDs that are not
/// theirs any more.
fn locate(sandboxes: &mut [RuntimeSandbox], root: &Root, procfs: &Procfs) {
    let pids: Vec<u32> = sandboxes.iter().filter_map(|each| each.pid).collect();
    let mut owners = procfs.task_owners(pids).into_iter();
    for sandbox in sandboxes {
        if sandbox.pid.is_some() {
            let owner = owners.next();
            // The number of a process that has ended can be another's by now,
            // and a runtime that hangs does not notice.
            let keep = match owner {
                Some(Owner::Pod(owner)) => owner.container_id.as_ref() == Some(&sandbox.id),
                Some(Owner::NoPod | Owner::Unknown) | None => sandbox.ready == Some(true),
            };
            if !keep {
                sandbox.pid = None;
            }
        }
        sandbox.netns = netns(sandbox, root, procfs).map(|inode| Netns {
            inode,
            cookie: None,
        });
    }
}

/// The inode of a sandbox's own network namespace, if it can be found.
pub(super) fn netns(sandbox: &RuntimeSandbox, root: &Root, procfs: &Procfs) -> Option<u32> {
    if sandbox.host_network {
        return None;
    }
    let at_path = sandbox.netns_path.as_deref().and_then(|path| {
        // The second way is for a root that the mounts do not reach.
        let mounted = || root.nsfs_inode(Path::new(path));
        let is_proc = path.starts_with("/proc/");
        (if is_proc { None } else { mounted() }).or_else(|| procfs.netns_at(1, path))
    });
    at_path.or_else(|| procfs.netns_of(sandbox.pid?))
}
