//! `GET /metrics` over HTTP/1.1, for a scraper: on the event loop of `trace`,
//! with few connections and little patience, so that no scraper can hold the
//! tracer up.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{ALLOW, CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, sync::Semaphore};

use super::Shelf;

/// The format's media type (OpenMetrics 1.0).
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Connections at a time; more wait in the kernel's queue.
const CONNECTIONS: usize = 8;
/// From connection to the end of the request's head, and for all of it.
const PATIENCE: Duration = Duration::from_secs(10);
/// After a connection could not be accepted (no descriptors left).
const PAUSE: Duration = Duration::from_secs(1);

/// Metrics cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("--metrics {address}: cannot listen there; give another address or port")]
pub(crate) struct MetricsError {
    address: SocketAddr,
    #[source]
    source: io::Error,
}

/// Listens, and answers until the event loop ends. Returns the address, with
/// the port that was given if 0 was asked for.
///
/// # Errors
/// The address is not this machine's, or the port is taken.
pub(crate) async fn serve(address: SocketAddr, shelf: Shelf) -> Result<SocketAddr, MetricsError> {
    let failed = |source| MetricsError { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    tokio::spawn(accept(listener, shelf));
    Ok(bound)
}

async fn accept(listener: TcpListener, shelf: Shelf) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!("a connection for metrics could not be accepted: {error}");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let shelf = shelf.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let answer = answer(&request, &shelf);
                async { Ok::<_, Infallible>(answer) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service);
            // A scraper that went away is nobody's problem.
            let _ = tokio::time::timeout(PATIENCE, connection).await;
            drop(permit);
        });
    }
}

fn answer(request: &Request<Incoming>, shelf: &Shelf) -> Response<Full<Bytes>> {
    let text = |status, text: &'static str| {
        let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
        *response.status_mut() = status;
        response
    };
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    match request.uri().path() {
        "/metrics" if is_read => {
            let mut response = Response::new(Full::new(Bytes::from(shelf.text())));
            let kind = HeaderValue::from_static(OPEN_METRICS);
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        "/metrics" => {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "GET it\n");
            let allowed = HeaderValue::from_static("GET, HEAD");
            response.headers_mut().insert(ALLOW, allowed);
            response
        }
        _ => text(StatusCode::NOT_FOUND, "metrics are at /metrics\n"),
    }
}
