//! `GET /metrics` over HTTP/1.1, for a scraper.
//!
//! Anybody who reaches the node can connect. So a thread that has no capability
//! serves, beside the event loop of `trace`, and no connection keeps a scraper
//! out: whoever connects is taken in, and at the limits ([`Places`]) the oldest
//! connection makes room, one whose request has not come before any other. It is
//! one of the address that has the most, so a flood of one address, however fast,
//! keeps nobody else waiting. Only where each address has a single connection
//! what is younger than [`YOUNG`] stays, and the next one waits: a request
//! follows its connection at once.

use std::{
    convert::Infallible,
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

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
use tokio::{
    task::AbortHandle,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::Shelf;
use event::fault;
use sys::privileges::start_bare;

/// The format's media type (OpenMetrics 1.0).
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Connections at a time; more wait in the kernel's queue.
const CONNECTIONS: usize = 64;
/// And of one address.
const OF_PEER: usize = 16;
/// From connection to the end of the request's head.
const HEAD: Duration = Duration::from_secs(2);
/// From connection to the end of the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// A connection that is younger makes no room for others.
const YOUNG: Duration = Duration::from_millis(20);
/// After a connection could not be accepted (no descriptors left).
const PAUSE: Duration = Duration::from_secs(1);
/// How often a port that is taken is tried again.
const TAKEN_PAUSE: Duration = Duration::from_secs(3);

/// Metrics cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The address is not this machine's.
    #[error("--metrics {address}: cannot listen there; give another address or port")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    /// There is no thread to be had.
    #[error("--metrics: cannot start the thread that serves")]
    Start(#[source] io::Error),
}

/// Listens, and answers until the process ends. Returns the address, with the
/// port that was given if 0 was asked for; `None` if the port is taken. Any user
/// can be the first there: that is told, and the port is tried again.
///
/// # Errors
/// See [`MetricsError`].
pub fn serve(address: SocketAddr, shelf: Shelf) -> Result<Option<SocketAddr>, MetricsError> {
    let failed = |source| MetricsError::Listen { address, source };
    let listener = match TcpListener::bind(address) {
        Ok(listener) => Some(listener),
        Err(error) if is_taken(&error) => {
            tracing::warn!(
                "--metrics {address}: the port is taken; metrics are served once it is free. Who \
                 listens there: ss -ltnp 'sport = :{}'",
                address.port()
            );
            None
        }
        Err(source) => return Err(failed(source)),
    };
    let bound = listener.as_ref().map(TcpListener::local_addr).transpose();
    let bound = bound.map_err(failed)?;
    let answer = move || {
        let served = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .and_then(|runtime| {
                runtime.block_on(async {
                    let listener = match listener {
                        Some(listener) => listener,
                        None => once_free(address).await?,
                    };
                    accept(listener, shelf).await
                })
            });
        if let Err(error) = served {
            tracing::warn!("metrics are not served: {}", fault::chain(&error));
        }
    };
    start_bare("metrics", answer).map_err(MetricsError::Start)?;
    Ok(bound)
}

fn is_taken(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

async fn once_free(address: SocketAddr) -> io::Result<TcpListener> {
    loop {
        sleep(TAKEN_PAUSE).await;
        match TcpListener::bind(address) {
            Err(error) if is_taken(&error) => {}
            bound => {
                if bound.is_ok() {
                    tracing::warn!("metrics are at http://{address}/metrics now");
                }
                return bound;
            }
        }
    }
}

async fn accept(listener: TcpListener, shelf: Shelf) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = Places::default();
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!("a connection for metrics could not be accepted: {error}");
                sleep(PAUSE).await;
                continue;
            }
        };
        let peer = peer_of(peer.ip());
        while let Room::At(moment) = places.make_room(peer, Instant::now()) {
            // It may end by itself before.
            sleep_until(moment).await;
        }
        let asked = Arc::new(AtomicBool::new(false));
        let leave = places.leaving();
        let (shelf, has_asked) = (shelf.clone(), Arc::clone(&asked));
        let served = tokio::spawn(async move {
            let _leave = leave;
            let service = service_fn(|request| {
                has_asked.store(true, Relaxed);
                let answer = answer(&request, &shelf);
                async { Ok::<_, Infallible>(answer) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service);
            // A scraper that went away is nobody's problem.
            let _ = timeout(PATIENCE, connection).await;
        });
        places.enter(peer, asked, served.abort_handle());
        // A request that has come with its connection is answered before the
        // next connection is taken in.
        tokio::task::yield_now().await;
    }
}

/// Who counts as one: of IPv6 the network, whose addresses are one host's.
fn peer_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from(network))
        }
        address => address,
    }
}

/// The connections that are served, the oldest first.
#[derive(Clone, Debug, Default)]
struct Places(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    taken: Vec<Place>,
}

#[derive(Debug)]
struct Place {
    number: u64,
    peer: IpAddr,
    since: Instant,
    /// Its request has come.
    asked: Arc<AtomicBool>,
    served: AbortHandle,
}

/// Whether there is room for another connection.
#[derive(Debug, PartialEq, Eq)]
enum Room {
    Now,
    /// Not before this moment.
    At(Instant),
}

/// A connection leaves its place when this is dropped, however it ends.
struct Leaving {
    places: Places,
    number: u64,
}

impl Places {
    /// Ends a connection if there is no room for another one of this peer: of
    /// the peer's own at its limit, and else of the peer that has the most.
    fn make_room(&self, peer: IpAddr, now: Instant) -> Room {
        let mut state = self.lock();
        let of = |peer: IpAddr| state.taken.iter().filter(move |place| place.peer == peer);
        let greedy = if of(peer).count() >= OF_PEER {
            peer
        } else if state.taken.len() >= CONNECTIONS {
            // Of several, the one that was there first.
            let most = state
                .taken
                .iter()
                .rev()
                .max_by_key(|place| of(place.peer).count());
            most.map_or(peer, |place| place.peer)
        } else {
            return Room::Now;
        };
        let is_flood = of(greedy).count() > 1;
        let oldest = of(greedy).min_by_key(|place| (place.asked.load(Relaxed), place.number));
        let Some(Place {
            number,
            since,
            served,
            ..
        }) = oldest
        else {
            return Room::Now;
        };
        if !is_flood && now < *since + YOUNG {
            return Room::At(*since + YOUNG);
        }
        served.abort();
        let number = *number;
        state.taken.retain(|place| place.number != number);
        Room::Now
    }

    /// For the connection that enters next.
    fn leaving(&self) -> Leaving {
        Leaving {
            places: self.clone(),
            number: self.lock().next,
        }
    }

    fn enter(&self, peer: IpAddr, asked: Arc<AtomicBool>, served: AbortHandle) {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.taken.push(Place {
            number,
            peer,
            since: Instant::now(),
            asked,
            served,
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let mut state = self.places.lock();
        state.taken.retain(|place| place.number != self.number);
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

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn other(number: usize) -> IpAddr {
        IpAddr::from([10, 0, 0, number as u8])
    }

    /// Connections of these peers, all of them old; whether each has asked.
    fn taken(all: impl IntoIterator<Item = (IpAddr, bool)>) -> (Places, Instant) {
        let places = Places::default();
        for (peer, asked) in all {
            let task = tokio::spawn(std::future::pending::<()>());
            places.enter(peer, Arc::new(AtomicBool::new(asked)), task.abort_handle());
        }
        (places, Instant::now() + YOUNG)
    }

    fn numbers(places: &Places) -> Vec<u64> {
        let state = places.lock();
        state.taken.iter().map(|place| place.number).collect()
    }

    #[tokio::test]
    async fn the_oldest_of_a_peer_that_has_not_asked_makes_room_for_its_next() {
        let (places, later) = taken((0..OF_PEER).map(|number| (HERE, number == 0)));
        assert_eq!(places.make_room(other(1), later), Room::Now);
        assert_eq!(numbers(&places).len(), OF_PEER, "another peer has its own");
        assert_eq!(places.make_room(HERE, later), Room::Now);
        assert_eq!(numbers(&places)[..2], [0, 2]);
    }

    #[tokio::test]
    async fn where_all_is_taken_the_peer_that_has_the_most_makes_room() {
        let single = (1..=CONNECTIONS - 2).map(|number| (other(number), false));
        let (places, later) = taken(single.chain([(HERE, true), (HERE, true)]));
        assert_eq!(places.make_room(other(200), later), Room::Now);
        let left = numbers(&places);
        assert_eq!(left.len(), CONNECTIONS - 1);
        assert!(!left.contains(&(CONNECTIONS as u64 - 2)), "{left:?}");
    }

    #[tokio::test]
    async fn one_that_has_only_just_come_is_left_the_time_to_ask() {
        let (places, later) = taken((0..CONNECTIONS).map(|number| (other(number), false)));
        let now = later - 2 * YOUNG;
        assert!(matches!(places.make_room(HERE, now), Room::At(moment) if moment > now));
        assert_eq!(numbers(&places).len(), CONNECTIONS);
    }

    #[tokio::test]
    async fn a_flood_of_one_peer_keeps_nobody_waiting() {
        let (places, later) = taken((0..OF_PEER).map(|_| (HERE, false)));
        let now = later - 2 * YOUNG;
        assert_eq!(places.make_room(HERE, now), Room::Now);
        assert_eq!(places.make_room(other(1), now), Room::Now);
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_are_one_peer() {
        let of = |text: &str| peer_of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:127.0.0.1"), HERE);
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
