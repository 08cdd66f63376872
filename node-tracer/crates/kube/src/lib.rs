//! The pods of this node from the API server: a list, and in a trace a watch
//! that goes on from it.
//!
//! Asked for are lists of pods with `spec.nodeName`, and watches of the same. A
//! look lists them as of now; a trace begins with what the server has in its
//! cache, and asks for more only if a verdict needs it ([`Watch::prove`]).
//! Nothing is written but what a trace is told to write ([`Writer`]). A server that does not answer, or not this, leads
//! to an error that says what to do; the pods are then unknown, never gone.
//!
//! Everything runs on a thread of its own, so that neither a name server nor a
//! credential plugin can hold up who asks. That thread has no capability
//! ([`start_bare`]).

#![forbid(unsafe_code)]

mod by_address;
mod client;
pub mod condition;
mod credentials;
mod error;
pub mod events;
mod files;
mod kubeconfig;
mod list;
mod objects;
mod plugin;
mod resources;
#[cfg(any(test, feature = "testing"))]
pub mod server;
#[cfg(test)]
mod tests;
mod tls;
pub mod traffic;
mod watch;

#[cfg(feature = "testing")]
mod fuzz;
#[cfg(feature = "testing")]
pub use fuzz::fuzz;

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    time::{Duration, Instant},
};

pub use self::{
    by_address::{AT_ONCE, ByAddress, find_by_address},
    credentials::Credentials,
    error::KubeError,
    objects::{Objects, WriteError, Writer, Written},
    resources::{
        ListedPage, Resource, ResourceError, get_resources_blocking, list_resource_blocking,
    },
    watch::{Watch, WatchUpdate, retry::random},
};
use self::{
    client::Client,
    error::Problem,
    list::{Age, Listed, list_within},
};
use event::clock::Timestamp;
use node::pods::Listing;
use sys::privileges::start_bare;

/// Largest page of a list: 500 pods take 2 to 8 MB.
const MAX_PAGE: usize = 16 << 20;
/// What is kept of a node's pods, bytes: more than 10,000 of them, where a node
/// has a few hundred at most.
const MAX_KEPT: usize = 8 << 20;

/// The name of this source in records.
pub const SOURCE: &str = "API server";

/// The pods of a node, within a time: from reading the credentials to the last
/// page. `node` is the name as configured; see [`Credentials::node`].
///
/// # Errors
/// There is no list; why, and what to do.
pub fn list_blocking(
    credentials: &Credentials,
    node: &str,
    timeout: Duration,
) -> Result<Listing, KubeError> {
    let started = Instant::now();
    let (send, receive) = mpsc::sync_channel(1);
    let asked = credentials.clone();
    let node = credentials.node(node);
    let ask = move || {
        let _ = send.send(on_this_thread(async {
            let client = Client::new(&asked)?;
            let left = timeout.saturating_sub(started.elapsed());
            let listed = list_within(&client, &node, Age::Now, left).await;
            listed.map_err(|problem| failed(&asked, problem, timeout))
        }));
    };
    start_bare("pods", ask).map_err(KubeError::Start)?;
    match receive.recv_timeout(timeout + Duration::from_millis(20)) {
        Ok(Ok(Ok(listed))) => Ok(listing(&listed)),
        Ok(Ok(Err(error)) | Err(error)) => Err(error),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Err(failed(
            credentials,
            Problem::TimedOut { after: timeout },
            timeout,
        )),
    }
}

fn listing(listed: &Listed) -> Listing {
    // A node that has had a pod since is one.
    let doubt = listed.doubt.clone().filter(|_| listed.pods.is_empty());
    Listing {
        source: SOURCE.to_owned(),
        at: listed.at,
        // A cache may be of any age.
        made_after: (!listed.is_of_now).then_some(Timestamp::EPOCH),
        whole: doubt.is_none(),
        doubt,
        pods: listed.pods.all().cloned().collect(),
    }
}

/// A problem as who asked is told it.
fn failed(credentials: &Credentials, problem: Problem, timeout: Duration) -> KubeError {
    let problem = match problem {
        // Whatever was left when the request was made.
        Problem::TimedOut { .. } => Problem::TimedOut { after: timeout },
        other => other,
    };
    KubeError::Server {
        server: credentials.server().to_owned(),
        by: credentials.place(),
        problem,
    }
}

/// Runs a future to its end, or until it is abandoned with its thread.
pub fn on_this_thread<T>(future: impl Future<Output = T>) -> Result<T, KubeError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(KubeError::Start)?;
    let result = runtime.block_on(future);
    // A name server may keep a thread of it for long.
    runtime.shutdown_background();
    Ok(result)
}
