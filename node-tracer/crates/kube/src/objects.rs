//! Objects that are written: created, and patched.
//!
//! One request at a time, each with its time. Credentials are read anew after a
//! failure and every few minutes, as tokens and certificates are replaced.

pub(crate) mod complaints;
pub(crate) mod rate;

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use super::{
    client::Client,
    credentials::Credentials,
    error::{KubeError, Problem, words},
    failed,
    watch::retry::Retry,
};

/// The verb of RBAC that makes objects.
const CREATE: &str = "create";
/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long credentials are used.
const FRESH: Duration = Duration::from_secs(5 * 60);
/// How long a server that has failed is left alone: at first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A resource of the API, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Objects {
    /// Group and version, as in a path.
    pub api: &'static str,
    /// The last part of the path.
    pub plural: &'static str,
    /// As RBAC and `kubectl get` name it.
    pub name: &'static str,
    /// What RBAC has to allow on it.
    pub verbs: &'static str,
}

/// What of an object that was written is of use; all else is skipped.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Written {
    series: Option<Series>,
    status: Option<Status>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Series {
    count: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Vec<Condition>,
}

/// What a node's condition says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Written {
    /// How often an Event was seen, if it was more than once.
    pub fn count(&self) -> Option<u32> {
        self.series.as_ref()?.count
    }

    /// A node's condition of this type.
    pub(crate) fn condition(self, kind: &str) -> Option<Condition> {
        let conditions = self.status?.conditions;
        conditions.into_iter().find(|it| it.kind == kind)
    }
}

/// An object was not written, and why.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// 403
    #[error(
        "API server {server} (credentials: {by}): they do not allow to {verb} {}{place} \
         (403 Forbidden); grant {} on {} in a ClusterRole{said}",
        objects.name,
        objects.verbs,
        objects.name
    )]
    Forbidden {
        server: String,
        /// Whose credentials were used.
        by: String,
        /// `create` or `patch`.
        verb: &'static str,
        objects: Box<Objects>,
        /// In which namespace, if it is in one.
        place: Box<str>,
        said: Box<str>,
    },
    /// 404; or 403 for a namespace that is on its way out.
    #[error("API server {server} has no place for it{place}{said}")]
    NotFound {
        server: String,
        place: String,
        said: String,
    },
    /// 409 to a create
    #[error("API server {server} has it already")]
    Exists { server: String },
    /// 400, 413, 422 and the like: trying again does not help.
    #[error("API server {server} does not take it: status {code}{said}")]
    Refused {
        server: String,
        code: u16,
        said: String,
    },
    /// It may be taken another time.
    #[error(transparent)]
    Later(#[from] KubeError),
}

/// Writes objects of one resource. Needs an event loop.
pub struct Writer {
    credentials: Credentials,
    objects: Objects,
    patience: Duration,
    /// With the time from which its credentials are.
    client: Option<(Client, Instant)>,
    retry: Retry,
}

impl Writer {
    /// One that has not asked for anything yet.
    pub fn new(credentials: Credentials, objects: Objects) -> Self {
        Self {
            credentials,
            objects,
            patience: PATIENCE,
            client: None,
            retry: Retry::new(RETRY),
        }
    }

    /// Creates an object, or only has it checked. Returns it as it is then.
    ///
    /// # Errors
    /// It is not there, or not by this call.
    pub async fn create(
        &mut self,
        namespace: &str,
        object: &Value,
        dry_run: bool,
    ) -> Result<Written, WriteError> {
        let ask = async |client: &Client, path: &str| client.create(path, object, dry_run).await;
        self.ask(CREATE, namespace, ask).await
    }

    /// Changes an object by a merge patch. Returns it as it is then.
    ///
    /// # Errors
    /// It is not changed.
    pub async fn patch(
        &mut self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Written, WriteError> {
        let ask = async |client: &Client, path: &str| client.patch(path, name, patch).await;
        self.ask("patch", namespace, ask).await
    }

    /// Changes an object's status by a strategic merge patch, or only has that
    /// checked. The object is in no namespace.
    ///
    /// # Errors
    /// It is not changed.
    pub async fn patch_status(
        &mut self,
        name: &str,
        patch: &Value,
        dry_run: bool,
    ) -> Result<Written, WriteError> {
        let ask = async |client: &Client, path: &str| {
            client.patch_status(path, name, patch, dry_run).await
        };
        self.ask("patch", "", ask).await
    }

    /// How long to leave the server alone that could not do it now: longer each
    /// time, until it does something again.
    pub fn pause(&mut self) -> Duration {
        self.retry.pause()
    }

    fn path(&self, namespace: &str) -> String {
        let Objects { api, plural, .. } = self.objects;
        match namespace {
            "" => format!("{api}/{plural}"),
            _ => format!("{api}/namespaces/{namespace}/{plural}"),
        }
    }

    fn client(&mut self) -> Result<&Client, KubeError> {
        let fresh = |(_, since): &(Client, Instant)| since.elapsed() < FRESH;
        let client = match self.client.take().filter(fresh) {
            Some(client) => client,
            None => (Client::new(&self.credentials)?, Instant::now()),
        };
        Ok(&self.client.insert(client).0)
    }

    /// Has a client ask, in its time, at the path for a namespace, or for none.
    async fn ask(
        &mut self,
        verb: &'static str,
        namespace: &str,
        ask: impl AsyncFnOnce(&Client, &str) -> Result<Bytes, Problem>,
    ) -> Result<Written, WriteError> {
        let path = self.path(namespace);
        let after = self.patience;
        let answer = tokio::time::timeout(after, ask(self.client()?, &path)).await;
        let answer = answer.unwrap_or(Err(Problem::TimedOut { after }));
        let object = answer.and_then(|body| {
            serde_json::from_slice(&body).map_err(|_| Problem::Garbage { what: "object" })
        });
        let result = object.map_err(|problem| self.refused(verb, namespace, problem));
        match &result {
            Err(WriteError::Later(_)) => self.client = None,
            // It works, whatever it says to this.
            _ => self.retry.reset(),
        }
        result
    }

    fn refused(&self, verb: &'static str, namespace: &str, problem: Problem) -> WriteError {
        let server = self.credentials.server().to_owned();
        let place = match namespace {
            "" => String::new(),
            _ => format!(" in namespace {}", words(namespace)),
        };
        let said = |message: &str| match message {
            "" => String::new(),
            message => format!("; it says: {message}"),
        };
        match problem {
            // In a namespace that is on its way out nothing new can be made.
            Problem::Forbidden { message, .. } if message.contains("being terminated") => {
                WriteError::NotFound {
                    server,
                    place,
                    said: said(&message),
                }
            }
            Problem::Forbidden { message, .. } => WriteError::Forbidden {
                server,
                by: self.credentials.place(),
                verb,
                objects: Box::new(self.objects),
                place: place.into(),
                said: said(&message).into(),
            },
            Problem::Status {
                code: 404, message, ..
            } => WriteError::NotFound {
                server,
                place,
                said: said(&message),
            },
            // To a patch it says that others write at the same time.
            Problem::Status { code: 409, .. } if verb == CREATE => WriteError::Exists { server },
            Problem::Status {
                code: code @ (400 | 405 | 413 | 415 | 422),
                message,
                ..
            } => WriteError::Refused {
                server,
                code,
                said: said(&message),
            },
            other => failed(&self.credentials, other, self.patience).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        on_this_thread,
        server::{Reply, Server, status},
    };

    #[test]
    fn a_conflict_is_an_object_that_is_there_or_one_that_others_write() {
        let server = Server::new(|_, _| Reply::Json(409, status(409, "conflict")));
        let mut writer = Writer::new(server.credentials(), crate::events::EVENTS);
        let (created, patched) = on_this_thread(async {
            let created = writer.create("shop", &json!({}), false).await;
            (created, writer.patch("shop", "one", &json!({})).await)
        })
        .unwrap();
        assert!(matches!(created, Err(WriteError::Exists { .. })));
        let later = patched.unwrap_err();
        assert!(matches!(later, WriteError::Later(_)), "{later}");
        assert!(later.to_string().contains("409"), "{later}");
    }
}
