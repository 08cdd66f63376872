//! Why the API server's pods are not known. Each in one line that says what to
//! do, and none with a token or a certificate in it.

use std::{error::Error, io, path::PathBuf, time::Duration};

use super::files::Doubt;
use node::pods::document::name;

#[derive(Debug, thiserror::Error)]
pub enum KubeError {
    /// Nothing to ask the API server with.
    #[error(
        "no credentials for the API server ({}); give --kubeconfig FILE, or a list with --pods FILE",
        looked.join("; ")
    )]
    NoCredentials {
        /// The places that were looked at, and what was wrong with each.
        looked: Vec<String>,
    },
    /// A file of the credentials cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A kubeconfig cannot be used.
    #[error("{from} {flaw}")]
    Unusable {
        from: String,
        /// What is wrong with it.
        flaw: Flaw,
    },
    /// The API server did not give the pods.
    #[error("API server {server} (credentials: {by}): {problem}")]
    Server {
        server: String,
        /// Whose credentials were used.
        by: String,
        problem: Problem,
    },
    /// There is no thread to ask on.
    #[error("cannot start asking the API server")]
    Start(#[source] io::Error),
}

/// What is wrong with a kubeconfig.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// Another file. What the parser says is left out: it quotes the content.
    #[error("is no kubeconfig{}", at.map_or_else(String::new, |(line, column)| format!(" (line {line}, column {column})")))]
    NotKubeconfig { at: Option<(u64, u64)> },
    /// No context is in use.
    #[error("has no current-context; set one with: kubectl config use-context")]
    NoContext,
    /// A name leads nowhere.
    #[error("has no {kind} {name:?}, which its current-context names")]
    Dangling {
        /// `context` or `cluster`.
        kind: &'static str,
        /// Its name, fit for a message.
        name: String,
    },
    /// The address of the API server is none.
    #[error("has no valid server for its cluster")]
    NoServer,
    /// Another program makes the credentials.
    #[error(
        "has its credentials from another program ({0}), which node-tracer runs only for a \
         kubeconfig that is the user's own (--kubeconfig, KUBECONFIG, ~/.kube/config)"
    )]
    Plugin(String),
    /// It was found, and others could have written it: they decide which server is
    /// believed.
    #[error(
        "is not used, as {doubt}; if you trust it, give --kubeconfig {}; \
         or let root own it and its folders, and nobody else write them", path.display()
    )]
    Untrusted {
        /// What is wrong with the file.
        doubt: Doubt,
        path: PathBuf,
    },
    /// As `Plugin`, by a way that Kubernetes has left.
    #[error("has its credentials from the auth-provider {0}, which node-tracer cannot use")]
    Provider(String),
    /// The way to the API server is not direct.
    #[error("has a proxy-url, which node-tracer cannot use")]
    Proxy,
    /// It asks as somebody else.
    #[error("asks as another user (`as`), which node-tracer cannot")]
    Impersonation,
    /// A certificate, key or token is not one.
    #[error("has a certificate, key or token that is none")]
    BadSecret,
}

/// What went wrong with the API server.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// 401
    #[error(
        "it does not accept these credentials (401 Unauthorized); they have expired or are of another cluster"
    )]
    Unauthorized,
    /// 403
    #[error(
        "they do not allow to {verb} pods (403 Forbidden); grant list and watch on pods in a ClusterRole{}",
        said(message)
    )]
    Forbidden {
        /// `list` or `watch`.
        verb: &'static str,
        message: String,
    },
    /// 410
    #[error(
        "the list expires before it is read (410 Gone); the server is overloaded or its etcd compacts too often"
    )]
    Expired,
    #[error("it answers with status {code}{}", said(message))]
    Status {
        code: u16,
        message: String,
        /// How long it wants to be left alone (`Retry-After`).
        retry_after: Duration,
    },
    /// There is no connection.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// There is a connection, but no trust.
    #[error("no TLS connection: {cause}{hint}")]
    Tls {
        /// The TLS library's words.
        cause: String,
        /// What that usually means.
        hint: &'static str,
    },
    /// No answer in time.
    #[error("no answer within {} s", after.as_secs_f32())]
    TimedOut {
        /// How long was waited.
        after: Duration,
    },
    /// The connection broke in the middle of an answer.
    #[error("the connection broke: {0}")]
    Cut(String),
    /// A watch that was to go on: the server stops, or is stopped.
    #[error("it ends the watch before its time")]
    EndsEarly,
    #[error("it answers with something that is no {what}; is it an API server of Kubernetes?")]
    Garbage { what: &'static str },
    /// More than is read.
    #[error(
        "it answers with more than the pods of a node are (more than {} MiB at once, or pods that \
         take more than {} MiB)",
        super::MAX_PAGE >> 20,
        super::MAX_KEPT >> 20
    )]
    TooLarge,
    /// There are no pods since there is no such node.
    #[error("it knows no node {0}; give --node-name as `kubectl get nodes` has it")]
    NoNode(String),
    /// The name cannot be a node's.
    #[error("{0:?} cannot be the name of a node; give --node-name as `kubectl get nodes` has it")]
    NodeName(String),
    /// The program that makes credentials.
    #[error("the credential plugin fails: {0}; run it by hand to see why")]
    Plugin(String),
    /// The credentials, as the TLS or HTTP library takes them.
    #[error("the certificate, key or token cannot be used")]
    BadSecret,
}

/// The server's words, as the end of a message.
fn said(message: &str) -> String {
    if message.is_empty() {
        return String::new();
    }
    format!("; it says: {message}")
}

/// The server's words, fit for a message.
pub(super) fn words(text: &str) -> String {
    const MOST: usize = 240;
    let line = text.trim().lines().next().unwrap_or_default();
    let printable = line.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut short: String = printable.clone().take(MOST).collect();
    if printable.count() > MOST {
        short.push('…');
    }
    short
}

impl KubeError {
    /// Whether the server has forgotten where the client was.
    pub(super) fn is_expired(&self) -> bool {
        let expired = Problem::Expired;
        matches!(self, Self::Server { problem, .. } if *problem == expired)
    }

    /// How long the server wants to be left alone.
    pub(super) fn retry_after(&self) -> Duration {
        match self {
            Self::Server {
                problem: Problem::Status { retry_after, .. },
                ..
            } => *retry_after,
            _ => Duration::ZERO,
        }
    }
}

impl Problem {
    /// From an answer that is no success.
    pub(super) fn status(
        code: u16,
        message: &str,
        verb: &'static str,
        retry_after: Duration,
    ) -> Self {
        let message = words(message);
        match code {
            401 => Self::Unauthorized,
            403 => Self::Forbidden { verb, message },
            410 => Self::Expired,
            _ => Self::Status {
                code,
                message,
                retry_after,
            },
        }
    }

    /// From an answer that did not end.
    pub(super) fn cut(error: &(dyn Error + 'static)) -> Self {
        match Self::transport(error) {
            Self::Unreachable(cause) => Self::Cut(cause),
            other => other,
        }
    }

    /// From a request that had no answer.
    pub(super) fn transport(error: &(dyn Error + 'static)) -> Self {
        let mut causes = vec![error.to_string()];
        let mut cause = error.source();
        while let Some(error) = cause {
            causes.push(error.to_string());
            cause = error.source();
        }
        let last = causes.last().map(|text| words(text)).unwrap_or_default();
        let tls = |text: &String| text.contains("certificate") || text.contains("fatal alert");
        let not_tls = ["received corrupt message", "tls handshake eof"];
        if causes.iter().any(tls) || not_tls.iter().any(|start| last.starts_with(start)) {
            return Self::tls(last);
        }
        if causes.iter().any(|text| text.contains("(Connect)")) {
            // The last alone would not say that it was the name.
            let dns = causes.iter().any(|text| text.starts_with("dns error"));
            let prefix = if dns {
                "its name cannot be resolved: "
            } else {
                ""
            };
            return Self::Unreachable(format!("{prefix}{last}"));
        }
        Self::Cut(last)
    }

    fn tls(cause: String) -> Self {
        let hint = if cause.contains("UnknownIssuer") {
            "; its certificate is not of the kubeconfig's authority"
        } else if cause.contains("received fatal alert") {
            "; it refuses the client certificate or the connection"
        } else if cause.contains("expired") || cause.contains("Expired") {
            "; its certificate has expired, or the clock is wrong"
        } else if cause.contains("not valid for") || cause.contains("NotValidForName") {
            "; its certificate is for another address"
        } else if cause.starts_with("received corrupt message") || cause.ends_with("eof") {
            "; it does not seem to speak TLS"
        } else {
            ""
        };
        Self::Tls { cause, hint }
    }
}

/// A name out of a kubeconfig, fit for a message.
pub(super) fn quoted(text: &str) -> String {
    name(text)
}
