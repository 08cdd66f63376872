//! One connection's worth of requests, with answers of bounded size.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use bytes::{Buf as _, Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::{
    Request, Response, Uri,
    body::Incoming,
    header::{AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT},
};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube_core::params::{GetParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{
    MAX_PAGE,
    credentials::Credentials,
    error::{KubeError, Problem},
    kubeconfig::Loaded,
    tls, traffic,
};
use sys::privileges::read_for_bare;

/// Longest answer that is one object, and line of a watch: etcd takes objects of
/// 1.5 MiB, of which each byte can be an escape of six (`\u003c`) in JSON.
const MAX_OBJECT: usize = 12 << 20;
/// Longest answer that is no success and is read.
const MAX_FAILURE: usize = 64 << 10;

/// As the server's audit log and metrics have it.
const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("node-tracer/", env!("CARGO_PKG_VERSION")));

const PODS: &str = "/api/v1/pods";
const NODES: &str = "/api/v1/nodes";

/// A connection that is idle is looked after, so that one whose other end has
/// gone away breaks.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_RETRIES: u32 = 3;

/// A request, unless something in it cannot stand in a path.
type Made = Result<Request<Vec<u8>>, kube_core::request::Error>;

pub(super) struct Client {
    http: legacy::Client<tls::Connector, Full<Bytes>>,
    url: String,
    authorization: Option<HeaderValue>,
}

impl Client {
    /// Reads the credentials; may run their plugin and wait for it. Needs an
    /// event loop. The calling thread needs no capability.
    pub(super) fn new(credentials: &Credentials) -> Result<Self, KubeError> {
        let files = credentials.clone();
        let loaded = read_for_bare(move || files.load()).map_err(KubeError::Start)??;
        Self::of(loaded).map_err(|problem| KubeError::Server {
            server: credentials.server().to_owned(),
            by: credentials.place(),
            problem,
        })
    }

    fn of(mut loaded: Loaded) -> Result<Self, Problem> {
        let mut identity = std::mem::take(&mut loaded.identity);
        if let Some(plugin) = &loaded.plugin {
            identity = plugin.run()?;
        }
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        // A request is small and waits for nothing: not for another 40 ms.
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.set_keepalive_interval(Some(KEEPALIVE / KEEPALIVE_RETRIES));
        tcp.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
        let connector = tls::connector(&loaded, &identity, tcp)?;
        let authorization = identity.authorization.map(|value| {
            let mut value = HeaderValue::try_from(value).map_err(|_| Problem::BadSecret)?;
            value.set_sensitive(true);
            Ok(value)
        });
        Ok(Self {
            http: legacy::Client::builder(TokioExecutor::new()).build(connector),
            url: loaded.url,
            authorization: authorization.transpose()?,
        })
    }

    /// One page of pods.
    pub(super) async fn pods(&self, params: &ListParams) -> Result<Bytes, Problem> {
        self.list(PODS, params, MAX_PAGE).await
    }

    /// One page of another resource, of at most `limit` bytes.
    pub(super) async fn list(
        &self,
        path: &str,
        params: &ListParams,
        limit: usize,
    ) -> Result<Bytes, Problem> {
        let request = kube_core::Request::new(path).list(params);
        self.ask(request, "list", limit).await
    }

    /// One object of a collection, of at most `limit` bytes.
    pub(super) async fn object(
        &self,
        path: &str,
        name: &str,
        limit: usize,
    ) -> Result<Bytes, Problem> {
        let request = kube_core::Request::new(path).get(name, &GetParams::default());
        self.ask(request, "get", limit).await
    }

    /// Whether there is such a node; `None` if that must not be asked.
    pub(super) async fn has_node(&self, name: &str) -> Result<Option<bool>, Problem> {
        let request = kube_core::Request::new(NODES).get_metadata(name, &GetParams::default());
        match self.send(request, "get").await {
            Ok(_) => Ok(Some(true)),
            Err(Problem::Status { code: 404, .. }) => Ok(Some(false)),
            Err(Problem::Forbidden { .. }) => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    /// Creates an object in a collection, or only has it checked. Returns it as
    /// it is then.
    pub(super) async fn create(
        &self,
        path: &str,
        object: &Value,
        dry_run: bool,
    ) -> Result<Bytes, Problem> {
        let params = PostParams {
            dry_run,
            ..PostParams::default()
        };
        let body = object.to_string().into_bytes();
        let request = kube_core::Request::new(path).create(&params, body);
        self.ask(request, "create", MAX_OBJECT).await
    }

    /// Changes an object of a collection by a merge patch (RFC 7396). Returns
    /// it as it is then.
    pub(super) async fn patch(
        &self,
        path: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Bytes, Problem> {
        let patch = Patch::Merge(patch);
        let request = kube_core::Request::new(path);
        let request = request.patch(name, &PatchParams::default(), &patch);
        self.ask(request, "patch", MAX_OBJECT).await
    }

    /// Changes an object's status by a strategic merge patch, or only has that
    /// checked. Returns the object as it is then.
    pub(super) async fn patch_status(
        &self,
        path: &str,
        name: &str,
        patch: &Value,
        dry_run: bool,
    ) -> Result<Bytes, Problem> {
        let params = PatchParams {
            dry_run,
            ..PatchParams::apply("node-tracer")
        };
        let request = kube_core::Request::new(path);
        let request = request.patch_subresource("status", name, &params, &Patch::Strategic(patch));
        self.ask(request, "patch", MAX_OBJECT).await
    }

    /// Opens a watch of pods.
    pub(super) async fn watch(
        &self,
        params: &WatchParams,
        version: &str,
    ) -> Result<Lines, Problem> {
        let request = kube_core::Request::new(PODS).watch(params, version);
        let response = self.send(request, "watch").await?;
        Ok(Lines {
            pace: Pace::new(),
            body: response.into_body(),
            buffer: BytesMut::new(),
            searched: 0,
            secret: self.secret().map(str::to_owned),
        })
    }

    /// The whole answer to a request, of at most `limit` bytes.
    async fn ask(&self, request: Made, verb: &'static str, limit: usize) -> Result<Bytes, Problem> {
        let response = self.send(request, verb).await?;
        whole(response.into_body(), limit).await
    }

    async fn send(&self, request: Made, verb: &'static str) -> Result<Response<Incoming>, Problem> {
        // Nothing but a name that has a slash makes no request.
        let request = request.map_err(|error| Problem::NodeName(error.to_string()))?;
        let mut request = request.map(Full::from);
        let uri = format!("{}{}", self.url, request.uri());
        *request.uri_mut() =
            Uri::try_from(uri).map_err(|error| Problem::NodeName(error.to_string()))?;
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, AGENT);
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        traffic::asked();
        let response = self.http.request(request).await;
        let response = response.map_err(|error| Problem::transport(&error))?;
        let code = response.status().as_u16();
        if response.status().is_success() {
            return Ok(response);
        }
        let retry_after = retry_after(response.headers());
        let body = whole(response.into_body(), MAX_FAILURE)
            .await
            .unwrap_or_default();
        let message = match serde_json::from_slice::<Status>(&body) {
            Ok(status) => status.message,
            // A proxy's page.
            Err(_) => String::from_utf8_lossy(&body).into_owned(),
        };
        Err(Problem::status(
            code,
            &without(self.secret(), message),
            verb,
            retry_after,
        ))
    }

    /// What the server knows the client by, without its scheme. A server that
    /// refuses it may quote it, whatever form it has.
    fn secret(&self) -> Option<&str> {
        let value = self.authorization.as_ref()?.to_str().ok()?;
        let secret = value.split_once(' ').map_or(value, |(_, secret)| secret);
        Some(secret.trim()).filter(|secret| !secret.is_empty())
    }
}

/// How long the server wants to be left alone (RFC 9110, 10.2.3; Kubernetes gives
/// seconds), and no longer than makes sense.
fn retry_after(headers: &HeaderMap) -> Duration {
    const MOST: u64 = 600;
    let value = headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok());
    let seconds = value.and_then(|value| value.trim().parse().ok());
    Duration::from_secs(seconds.unwrap_or(0).min(MOST))
}

/// What the server says, without a secret of the client's.
fn without(secret: Option<&str>, text: String) -> String {
    secret
        .and_then(|secret| redacted(secret, &text))
        .unwrap_or(text)
}

const REDACTED: &str = "[redacted]";

/// A text without a secret, however a server may quote it; `None` if it is not
/// in it.
fn redacted(secret: &str, text: &str) -> Option<String> {
    // As in a URL, where any character may be written by its number.
    if text.contains('%') && !text.contains(secret) && contains(&percent_decoded(text), secret) {
        return Some(String::from(REDACTED));
    }
    let quotes: Vec<String> = in_base64(secret)
        .into_iter()
        .chain([secret.to_owned()])
        .filter(|quote| text.contains(quote.as_str()))
        .collect();
    let redacted = quotes.iter().fold(text.to_owned(), |text, quote| {
        text.replace(quote.as_str(), REDACTED)
    });
    (!quotes.is_empty()).then_some(redacted)
}

/// A secret as it stands in base64 of something that it is a part of: what does
/// not depend on its neighbours, at each of the three places where it can begin,
/// in both alphabets.
fn in_base64(secret: &str) -> Vec<String> {
    /// What is shorter may be there by chance.
    const SHORTEST: usize = 6;
    let places = (0..3).map(|before| {
        let bytes = [&[0; 2][..before], secret.as_bytes()].concat();
        let encoded = STANDARD_NO_PAD.encode(&bytes);
        let own = (before * 8).div_ceil(6)..bytes.len() * 8 / 6;
        encoded.get(own).unwrap_or_default().to_owned()
    });
    let long = places.filter(|place| place.len() >= SHORTEST);
    long.flat_map(|place| [place.replace('+', "-").replace('/', "_"), place])
        .collect()
}

fn contains(bytes: &[u8], secret: &str) -> bool {
    let mut windows = bytes.windows(secret.len());
    windows.any(|window| window == secret.as_bytes())
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).filter(|_| *byte == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let number = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push(number.unwrap_or(*byte));
        at += if number.is_some() { 3 } else { 1 };
    }
    decoded
}

/// A line of a watch, without a secret of the client's.
fn line_without(secret: Option<&str>, line: Bytes) -> Bytes {
    let text = std::str::from_utf8(&line).ok();
    let redacted = secret
        .zip(text)
        .and_then(|(secret, text)| redacted(secret, text));
    redacted.map_or(line, Bytes::from)
}

/// What a failure is answered with, as far as it is of use.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    /// As the HTTP status.
    pub(super) code: u16,
    pub(super) message: String,
}

async fn whole(body: Incoming, limit: usize) -> Result<Bytes, Problem> {
    match Limited::new(body, limit).collect().await {
        Ok(body) => {
            let bytes = body.to_bytes();
            traffic::answered(bytes.len());
            Ok(bytes)
        }
        Err(error) if error.is::<LengthLimitError>() => Err(Problem::TooLarge),
        Err(error) => Err(Problem::cut(error.as_ref())),
    }
}

/// The lines of a watch as they come.
pub(super) struct Lines {
    body: Incoming,
    pace: Pace,
    buffer: BytesMut,
    /// So far there is no end of line in the buffer.
    searched: usize,
    /// What is in no line that is given out.
    secret: Option<String>,
}

impl Lines {
    /// The next line; `None` at the end of the stream. Nothing is lost if it
    /// is not waited for to the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
            if let Some(length) = unsearched.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.searched + length).freeze();
                self.buffer.advance(1);
                self.searched = 0;
                self.pace.spend(Pace::LINE);
                if line.is_empty() {
                    continue;
                }
                return Ok(Some(line_without(self.secret.as_deref(), line)));
            }
            self.searched = self.buffer.len();
            if self.searched > MAX_OBJECT {
                return Err(Problem::TooLarge);
            }
            if let Some(pause) = self.pace.pause(Instant::now()) {
                sleep(pause).await;
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    self.pace.spend(Pace::FRAME);
                    if let Some(data) = frame.data_ref() {
                        self.pace.spend(data.len());
                        traffic::answered(data.len());
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => return Err(Problem::cut(&error)),
                // Half a line is no event.
                None => return Ok(None),
            }
        }
    }
}

/// How fast a stream is read at most: whoever sends without end is kept waiting,
/// so that reading takes little of a processor. All pods of a node at once are
/// read without a pause.
#[derive(Debug)]
struct Pace {
    /// Bytes that may be read now; below zero it is waited for.
    left: i64,
    filled: Option<Instant>,
}

impl Pace {
    /// More than the largest pod once a second. What that takes of a processor was
    /// not measured.
    const A_SECOND: i64 = 16 << 20;
    const BURST: i64 = 64 << 20;
    /// What a frame and a line take besides their bytes, in bytes.
    const FRAME: usize = 8 << 10;
    const LINE: usize = 1 << 10;

    fn new() -> Self {
        Self {
            left: Self::BURST,
            filled: None,
        }
    }

    fn spend(&mut self, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.left = self.left.saturating_sub(bytes);
    }

    /// How long to wait before more is read.
    fn pause(&mut self, now: Instant) -> Option<Duration> {
        let since = self
            .filled
            .map_or(Duration::ZERO, |last| now.duration_since(last));
        let millis = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        let more = millis.saturating_mul(Self::A_SECOND) / 1_000;
        if self.filled.is_none() || more > 0 {
            self.filled = Some(now);
            self.left = self.left.saturating_add(more).min(Self::BURST);
        }
        let owed = u64::try_from(-self.left).ok().filter(|owed| *owed > 0)?;
        Some(Duration::from_millis(
            owed * 1_000 / Self::A_SECOND.unsigned_abs() + 1,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_without_end_is_read_at_a_pace_and_a_list_at_once() {
        let start = Instant::now();
        let mut pace = Pace::new();
        assert_eq!(pace.pause(start), None);
        pace.spend(10 << 20);
        assert_eq!(pace.pause(start), None);
        let mut now = start;
        let mut read = 0;
        while now < start + Duration::from_secs(60) {
            now += pace.pause(now).unwrap_or_default();
            pace.spend(Pace::FRAME + 1_000);
            read += 1_000;
        }
        assert!((60 << 20..160 << 20).contains(&read), "{read}");
    }

    #[test]
    fn a_line_of_a_watch_does_not_have_the_clients_secret() {
        let url = "https://a/?t=s%33cr3t";
        for (line, told) in [
            // `s3cr3t`, `Bearer s3cr3t`, `a s3cr3t`.
            ("bad czNjcjN0!", "bad [redacted]!"),
            ("bad QmVhcmVyIHMzY3IzdA==", "bad QmVhcmVyIH[redacted]A=="),
            ("bad YSBzM2NyM3Q", "bad YSB[redacted]Q"),
            (url, "[redacted]"),
            ("a 100 % good one", "a 100 % good one"),
            ("bad s3cr3t, s3cr3t", "bad [redacted], [redacted]"),
            ("good", "good"),
        ] {
            assert_eq!(line_without(Some("s3cr3t"), Bytes::from(line)), told);
        }
    }
}
