//! One gRPC connection to a runtime, on a unix socket below the host's root.
//!
//! No channel that would reconnect, retry or balance: what fails is to be
//! known, and at once.

use std::{
    future::Future,
    io,
    os::fd::AsRawFd as _,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use hyper::{Request, Response, Uri, body::Incoming, client::conn::http2, http::uri::PathAndQuery};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use rustix::{
    fs::{FileType, fstat},
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with},
};
use tokio::{
    net::UnixStream,
    time::{Instant, sleep, timeout_at},
};
use tonic::{Code, Status, body::Body, client::Grpc};
use tonic_prost::ProstCodec;

use super::{CriError, Endpoint, api::Method};
use crate::root::Root;
use event::fault;

/// Largest answer that is taken: what containerd sends at most, and the kubelet
/// takes. gRPC's usual 4 MiB are too little for the lists of a large node.
const MAX_ANSWER: usize = 16 << 20;

/// What may be on its way unacknowledged.
const WINDOW: u32 = 4 << 20;

/// How soon a socket that has no room for another connection is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// Longest message of a server that is repeated.
const MAX_MESSAGE: usize = 512;

/// A connection. Clones share it and can call at the same time.
#[derive(Clone)]
pub(super) struct Client {
    endpoint: Arc<Endpoint>,
    grpc: Grpc<Connection>,
    /// The process that listens, as the kernel says; none where that has no
    /// number here, or where the node's first process listens for it.
    pub(super) listener: Option<u32>,
    /// When every call's patience ends.
    deadline: Instant,
    started: Instant,
}

/// How a call failed.
pub(super) enum CallError {
    /// What was asked for is not there.
    NotFound,
    Other(CriError),
}

/// A connection on which nothing was said yet. It is made by who may open the
/// socket, and used by who may do nothing else.
#[derive(Debug)]
pub(super) struct Socket {
    stream: std::os::unix::net::UnixStream,
    /// When every call's patience ends.
    deadline: Instant,
    started: Instant,
    patience: Duration,
}

impl Socket {
    /// Connects; all that is called later must be answered within `patience`
    /// from now.
    pub(super) async fn connect(
        endpoint: &Endpoint,
        root: &Root,
        patience: Duration,
    ) -> Result<Self, CriError> {
        let started = Instant::now();
        let deadline = started + patience;
        let failed = |source| CriError::Connect {
            endpoint: endpoint.clone(),
            source,
        };
        let stream = timeout_at(deadline, open(endpoint, root)).await;
        let stream = stream.map_err(|_| silent(endpoint, patience))?;
        let stream = stream.and_then(UnixStream::into_std).map_err(failed)?;
        Ok(Self {
            stream,
            deadline,
            started,
            patience,
        })
    }
}

fn silent(endpoint: &Endpoint, patience: Duration) -> CriError {
    CriError::TimedOut {
        endpoint: endpoint.clone(),
        call: "a connection",
        after: patience,
    }
}

impl Client {
    pub(super) async fn start(endpoint: &Endpoint, socket: Socket) -> Result<Self, CriError> {
        let Socket {
            stream,
            deadline,
            started,
            patience,
        } = socket;
        let stream = UnixStream::from_std(stream).map_err(|source| CriError::Connect {
            endpoint: endpoint.clone(),
            source,
        })?;
        let listener = listener_of(&stream);
        let handshake = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .handshake(TokioIo::new(stream));
        let handshake = timeout_at(deadline, handshake).await;
        let (sender, connection) = match handshake.map_err(|_| silent(endpoint, patience))? {
            Ok(parts) => parts,
            Err(error) => {
                return Err(CriError::Protocol {
                    endpoint: endpoint.clone(),
                    reason: fault::chain(&error),
                });
            }
        };
        // It ends with the runtime that it is in; its error shows in the calls.
        tokio::spawn(connection);
        let origin = Uri::from_static("http://localhost");
        let grpc = Grpc::with_origin(Connection(sender), origin);
        Ok(Self {
            endpoint: Arc::new(endpoint.clone()),
            listener,
            grpc: grpc.max_decoding_message_size(MAX_ANSWER),
            deadline,
            started,
        })
    }

    /// Calls a method of the runtime service; waits at most `patience`, and
    /// never past the connection's deadline.
    pub(super) async fn call<Q, A>(
        &mut self,
        method: Method,
        question: Q,
        patience: Duration,
    ) -> Result<A, CallError>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let deadline = self.deadline.min(Instant::now() + patience);
        let mut question = tonic::Request::new(question);
        // Lets the runtime give up as well.
        question.set_timeout(deadline.saturating_duration_since(Instant::now()));
        let answer = async {
            self.grpc.ready().await.map_err(broken)?;
            let path = PathAndQuery::from_static(method.path);
            let codec = ProstCodec::<Q, A>::default();
            self.grpc.unary(question, path, codec).await
        };
        match timeout_at(deadline, answer).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) if status.code() == Code::NotFound => Err(CallError::NotFound),
            Ok(Err(status)) => Err(CallError::Other(self.failure(method.name, status))),
            Err(_) => Err(CallError::Other(CriError::TimedOut {
                endpoint: (*self.endpoint).clone(),
                call: method.name,
                after: self.started.elapsed(),
            })),
        }
    }

    /// What a status means.
    fn failure(&self, call: &'static str, status: Status) -> CriError {
        let endpoint = (*self.endpoint).clone();
        // The server's own have no source.
        if let Some(source) = std::error::Error::source(&status) {
            return CriError::Protocol {
                endpoint,
                reason: fault::chain(source),
            };
        }
        let message = status.message().chars().take(MAX_MESSAGE).collect();
        match status.code() {
            Code::Unimplemented => CriError::TooOld { endpoint, message },
            Code::DeadlineExceeded => CriError::TimedOut {
                endpoint,
                call,
                after: self.started.elapsed(),
            },
            code => CriError::Refused {
                endpoint,
                call,
                code: format!("{code:?}"),
                message,
            },
        }
    }
}

/// Connects to the socket that the path names below the root, by way of a
/// descriptor: neither can a link lead elsewhere, nor can the path be too long.
async fn open(endpoint: &Endpoint, root: &Root) -> io::Result<UnixStream> {
    let file = root.handle(endpoint.path())?;
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::Socket {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no socket",
        ));
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    loop {
        match UnixStream::connect(&path).await {
            // Nobody has accepted the earlier ones yet; the caller's deadline
            // ends this.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(TRY_AGAIN).await,
            result => return result,
        }
    }
}

/// The process that listens on an endpoint's socket, as the kernel says; nothing
/// is asked of it. Within a tokio runtime.
pub(super) fn listener(endpoint: &Endpoint, root: &Root) -> Option<u32> {
    let file = root.handle(endpoint.path()).ok()?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    let address = SocketAddrUnix::new(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    // One with no room for another connection tells with its sandboxes.
    connect(&socket, &address).ok()?;
    listener_of(&UnixStream::from_std(socket.into()).ok()?)
}

/// Whom a connection leads to (`SO_PEERCRED`). A process of another PID
/// namespace has no number here, and where the first process listens it does so
/// for others.
fn listener_of(stream: &UnixStream) -> Option<u32> {
    let pid = stream.peer_cred().ok()?.pid()?;
    u32::try_from(pid).ok().filter(|pid| *pid > 1)
}

fn broken(error: hyper::Error) -> Status {
    Status::from_error(error.into())
}

/// hyper's connection in the form that tonic calls.
#[derive(Clone)]
struct Connection(http2::SendRequest<Body>);

impl tower_service::Service<Request<Body>> for Connection {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}
