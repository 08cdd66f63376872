//! A runtime for tests: HTTP/2 and gRPC on a unix socket, with the answers
//! that the test gives, or none.

use std::{
    convert::Infallible, future::Future, io::Write as _, os::unix::net::UnixListener, path::Path,
    sync::Arc, thread, time::Duration,
};

use http_body_util::{BodyExt as _, Full};
use hyper::{
    HeaderMap, Request, Response,
    body::{Bytes, Incoming},
    header::HeaderValue,
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;

/// What a method answers.
pub(super) enum Reply {
    Message(Vec<u8>),
    /// A gRPC status that is not OK.
    Status(u32, &'static str),
    /// Nothing, ever.
    Nothing,
}

impl Reply {
    pub(super) fn message(message: &impl Message) -> Self {
        Self::Message(message.encode_to_vec())
    }
}

/// Serves gRPC at a path until the test ends; `answer` gets the method's name
/// and the request.
pub(super) fn serve(path: &Path, answer: impl Fn(&str, &[u8]) -> Reply + Send + Sync + 'static) {
    // At its path only once it listens: between bind(2) and listen(2) it refuses.
    let bound = path.with_extension("bound");
    let listener = UnixListener::bind(&bound).unwrap();
    std::fs::rename(bound, path).unwrap();
    listener.set_nonblocking(true).unwrap();
    let answer = Arc::new(answer);
    thread::spawn(move || {
        run(async move {
            let listener = tokio::net::UnixListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let answer = Arc::clone(&answer);
                let service = service_fn(move |request| respond(request, Arc::clone(&answer)));
                let server = http2::Builder::new(TokioExecutor::new());
                tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
            }
        });
    });
}

async fn respond(
    request: Request<Incoming>,
    answer: Arc<impl Fn(&str, &[u8]) -> Reply>,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    let path = request.uri().path().to_owned();
    let method = path.strip_prefix("/runtime.v1.RuntimeService/").unwrap();
    assert_eq!(request.headers()["content-type"], "application/grpc");
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let (message, status, text) = match answer(method, &body[5..]) {
        Reply::Message(message) => (Some(message), 0, ""),
        Reply::Status(status, text) => (None, status, text),
        Reply::Nothing => std::future::pending().await,
    };
    let mut frame = Vec::new();
    if let Some(message) = message {
        frame.push(0);
        frame.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        frame.extend(message);
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(status));
    trailers.insert("grpc-message", HeaderValue::from_static(text));
    let body = Full::new(Bytes::from(frame)).with_trailers(async move { Some(Ok(trailers)) });
    let response = Response::builder().header("content-type", "application/grpc");
    Ok(response.body(body).unwrap())
}

fn run(future: impl Future) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(future);
}

/// Accepts, and sends these bytes one by one, with a pause before each, again
/// and again; with none, it only accepts.
pub(super) fn serve_bytes(path: &Path, bytes: &'static [u8], pause: Duration) {
    let listener = UnixListener::bind(path).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                for byte in bytes.iter().cycle() {
                    thread::sleep(pause);
                    if stream.write_all(&[*byte]).is_err() {
                        return;
                    }
                }
                // Held open.
                thread::sleep(Duration::from_secs(60));
            });
        }
    });
}
