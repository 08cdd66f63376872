//! Other resources than pods: what pod networks keep in the API, by list or by name.

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use kube_core::params::ListParams;

use super::{Client, Credentials, KubeError, Problem, error::words, failed, on_this_thread};
use sys::privileges::start_bare;

/// Objects on a page; where they are large, ever fewer.
const PAGE: u32 = 200;
const SMALLEST_PAGE: u32 = PAGE / 100;
/// Largest page that is read: an object has at most 3 MiB, most have some KiB.
const MAX_PAGE: usize = 6 << 20;
/// What a page may take while it is read, bytes.
const MAX_PARSED: usize = 64 << 20;
const MAX_LIST: usize = 256 << 20;

/// A resource of the API, as it is listed: of all namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource {
    pub path: &'static str,
    /// As RBAC and `kubectl get` name it.
    pub name: &'static str,
    /// `kind` of the list.
    pub kind: &'static str,
    /// What it means if there is none.
    pub hint: &'static str,
}

/// What a page says besides its objects.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ListedPage {
    /// There is more of the list.
    pub next: Option<String>,
}

/// A resource's objects are not known, and why.
#[derive(Debug, thiserror::Error)]
pub enum ResourceError {
    /// 403
    #[error(
        "API server {server} (credentials: {by}): they do not allow to {verb} {name} (403 Forbidden); \
         grant {verb} on them in a ClusterRole{said}"
    )]
    Forbidden {
        server: String,
        /// Whose credentials were used.
        by: String,
        /// `get` or `list`.
        verb: &'static str,
        name: &'static str,
        said: String,
    },
    /// 404
    #[error("API server {server} has no {name} (404 Not Found): {hint}")]
    Missing {
        server: String,
        name: &'static str,
        /// What that may mean.
        hint: &'static str,
    },
    /// More than is read.
    #[error("API server {server} has more or larger {name} than are read ({} MiB)", MAX_LIST >> 20)]
    TooLarge { server: String, name: &'static str },
    #[error(transparent)]
    Kube(#[from] KubeError),
}

/// Lists all objects within a time, from reading the credentials to the last
/// page: `take` is shown each page and says how it goes on, or that it is none;
/// `begin` makes what it collects in, anew if the list expires meanwhile.
/// Returns that with the size of all pages.
///
/// # Errors
/// There is no list; why, and what to do.
pub fn list_resource_blocking<T: Send + 'static>(
    credentials: &Credentials,
    resource: Resource,
    timeout: Duration,
    begin: impl Fn() -> T + Send + 'static,
    take: fn(&mut T, &[u8]) -> Option<ListedPage>,
) -> Result<(T, usize), ResourceError> {
    on_own_thread(credentials, resource, timeout, async move |client| {
        match pages(client, resource, &begin, take).await {
            // Once, as with pods.
            Err(Problem::Expired) => pages(client, resource, &begin, take).await,
            other => other,
        }
    })
}

/// Gets objects by their names within a time. Returns those that there are, as
/// JSON.
///
/// # Errors
/// They are not known; why, and what to do.
pub fn get_resources_blocking(
    credentials: &Credentials,
    resource: Resource,
    names: Vec<String>,
    timeout: Duration,
) -> Result<Vec<Bytes>, ResourceError> {
    on_own_thread(credentials, resource, timeout, async move |client| {
        let mut objects = Vec::new();
        for name in names {
            match client.object(resource.path, &name, MAX_PAGE).await {
                Err(Problem::Status { code: 404, .. }) => {}
                object => objects.push(object.and_then(readable)?),
            }
        }
        Ok(objects)
    })
}

/// Asks on a thread that has no capability, and waits for the answer so long.
fn on_own_thread<T: Send + 'static>(
    credentials: &Credentials,
    resource: Resource,
    timeout: Duration,
    question: impl AsyncFnOnce(&Client) -> Result<T, Problem> + Send + 'static,
) -> Result<T, ResourceError> {
    let started = Instant::now();
    let (send, receive) = mpsc::sync_channel(1);
    let asked = credentials.clone();
    let ask = move || {
        let _ = send.send(on_this_thread(async {
            let client = Client::new(&asked)?;
            let left = timeout.saturating_sub(started.elapsed());
            let answer = tokio::time::timeout(left, question(&client)).await;
            let answer = answer.unwrap_or(Err(Problem::TimedOut { after: timeout }));
            answer.map_err(|problem| refused(&asked, resource, problem, timeout))
        }));
    };
    start_bare("ipam-api", ask).map_err(KubeError::Start)?;
    match receive.recv_timeout(timeout + Duration::from_millis(20)) {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => Err(error.into()),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            let problem = Problem::TimedOut { after: timeout };
            Err(failed(credentials, problem, timeout).into())
        }
    }
}

async fn pages<T>(
    client: &Client,
    resource: Resource,
    begin: &impl Fn() -> T,
    take: fn(&mut T, &[u8]) -> Option<ListedPage>,
) -> Result<(T, usize), Problem> {
    let mut params = ListParams::default().limit(PAGE);
    let (mut taken, mut size) = (begin(), 0_usize);
    loop {
        let body = client.list(resource.path, &params, MAX_PAGE).await;
        let body = match body.and_then(readable) {
            Err(Problem::TooLarge) if params.limit > Some(SMALLEST_PAGE) => {
                params.limit = params.limit.map(|limit| limit / 10);
                continue;
            }
            body => body?,
        };
        size = size.saturating_add(body.len());
        if size > MAX_LIST {
            return Err(Problem::TooLarge);
        }
        let garbage = Problem::Garbage {
            what: "list of the pod network's resources",
        };
        let Some(page) = take(&mut taken, &body) else {
            return Err(garbage);
        };
        match page.next.filter(|token| !token.is_empty()) {
            None => return Ok((taken, size)),
            next if next == params.continue_token => return Err(garbage),
            next => params.continue_token = next,
        }
    }
}

/// A page that does not take too much once it is read: small objects and lists
/// take a hundred times of their text.
fn readable(body: Bytes) -> Result<Bytes, Problem> {
    const OBJECT: usize = 700;
    const LIST: usize = 200;
    const VALUE: usize = 96;
    let (mut takes, mut in_text, mut escaped) = (body.len(), false, false);
    for byte in &body {
        takes += match byte {
            _ if escaped => 0,
            b'{' if !in_text => OBJECT,
            b'[' if !in_text => LIST,
            b',' if !in_text => VALUE,
            _ => 0,
        };
        in_text ^= *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && in_text && !escaped;
    }
    match takes <= MAX_PARSED {
        true => Ok(body),
        false => Err(Problem::TooLarge),
    }
}

fn refused(
    credentials: &Credentials,
    resource: Resource,
    problem: Problem,
    timeout: Duration,
) -> ResourceError {
    let server = credentials.server().to_owned();
    let Resource { name, hint, .. } = resource;
    match problem {
        Problem::Forbidden { verb, message } => ResourceError::Forbidden {
            server,
            by: credentials.place(),
            verb,
            name,
            said: match message.as_str() {
                "" => String::new(),
                message => format!("; it says: {}", words(message)),
            },
        },
        Problem::Status { code: 404, .. } => ResourceError::Missing { server, name, hint },
        Problem::TooLarge => ResourceError::TooLarge { server, name },
        other => failed(credentials, other, timeout).into(),
    }
}

#[cfg(test)]
mod tests;
