//! From what a client sent to what a worker gets.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clutch_pool::pool::Input;
use clutch_wire::frame::INLINE_BYTES_MAX;
use clutch_wire::{Codec, Payload};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Frame, Incoming};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Version, header};
use tokio::sync::oneshot;

use super::underscores::{Taken, Underscores};
use super::validation::Refused;
use crate::account::PATH_SHOWN_MAX;
use crate::app::below;
use crate::app::forwarded::Forwarded;
use crate::body::request::{discard, read_on};
use crate::codec::LAST;
use crate::codec::http::{self, INPUT_WINDOW, Place, RequestHead, RequestLine, request_flag};
use crate::net::connection::RawTarget;
use crate::net::peer::Peer;

/// Less of a body than this is joined with what has come behind it: each piece costs the worker a turn.
const CRUMB_BYTES: usize = 4 << 10;

/// Minimum number of bytes that a client has to send within the timeout for silence, while its app waits for the body;
/// less if that is all. Without a minimum, a byte now and then would hold a slot for as long as one likes.
const CAME_BYTES_MIN: usize = 1024;

/// `GET /path`.
pub(super) fn describe(payload: &Payload) -> Option<String> {
    let (head, _) = RequestHead::read(payload.body()).ok()?;
    let path: String = String::from_utf8_lossy(head.line.path).chars().take(PATH_SHOWN_MAX).collect();
    let is_websocket = head.line.flags & request_flag::WEBSOCKET != 0;
    Some(format!("{} {path}", if is_websocket { "WebSocket" } else { head.line.method }))
}

/// The same of the first bytes of a request, as far as they say it.
pub(super) fn describe_beginning(bytes: &[u8], root_path: &str) -> String {
    let mut words = bytes.splitn(2, |byte| *byte == b' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let end = target.iter().position(|byte| matches!(byte, b' ' | b'?'));
    let path = below(&target[..end.unwrap_or(target.len())], root_path);
    let (method, path) = (String::from_utf8_lossy(method), String::from_utf8_lossy(path));
    format!("{method} {path}{}", if end.is_some() { "" } else { "…" })
}

/// The same of a head, for the log.
pub(super) fn shown(head: &Parts) -> String {
    let path: String = String::from_utf8_lossy(target_of(head).0).chars().take(PATH_SHOWN_MAX).collect();
    format!("{} {}", head.method, path.escape_default())
}

fn place(named: &(String, u16)) -> Place<'_> {
    Place { address: &named.0, port: named.1 }
}

/// Origin of a request.
pub(super) struct Origin<'a> {
    pub(super) peer: &'a Peer,
    pub(super) forwarded: Forwarded,
}

/// What of a head is told to the app, and how.
pub(super) struct Rules<'a> {
    /// What a proxy has put before the app's own paths, whether or not it has taken it away again.
    pub(super) root_path: &'a str,
    pub(super) underscores: &'a Underscores,
}

/// `flags` are those of `request_flag` that the head itself does not tell.
/// Returns the name of a header that was left out.
pub(super) fn put_head<'a>(
    out: &mut Vec<u8>,
    head: &'a Parts,
    origin: &Origin<'_>,
    flags: u8,
    rules: &Rules<'_>,
) -> Option<&'a HeaderName> {
    let mut dropped = None;
    let Origin { peer, forwarded } = origin;
    let version = match head.version {
        Version::HTTP_10 => 10,
        Version::HTTP_2 => 20,
        _ => 11,
    };
    let (path, query) = target_of(head);
    let forwarded_client = forwarded.client.map(|client| client.to_string());
    let line = RequestLine {
        version,
        flags: if forwarded.is_secure.unwrap_or(peer.is_secure) { flags | request_flag::SECURE } else { flags },
        method: head.method.as_str(),
        path: below(path, rules.root_path),
        query,
        client: forwarded_client.as_deref().map_or_else(|| place(&peer.client), |address| Place { address, port: 0 }),
        server: place(&peer.server),
    };
    let mut headers = http::put_request(out, line);
    if let Some(authority) = head.uri.authority().filter(|_| !head.headers.contains_key(header::HOST)) {
        headers.put(b"host", authority.as_str().as_bytes());
    }
    let cookies = if version == 20 { joined_cookies(&head.headers) } else { None };
    if let Some(cookies) = &cookies {
        headers.put(b"cookie", cookies);
    }
    for (name, value) in &head.headers {
        if cookies.is_some() && name == header::COOKIE {
            continue;
        }
        if rules.underscores.takes(name.as_str(), forwarded.is_trusted) != Taken::Yes {
            dropped = Some(name);
            continue;
        }
        headers.put(name.as_str().as_bytes(), value.as_bytes());
    }
    dropped
}

/// Path and query as they came.
fn target_of(head: &Parts) -> (&[u8], &[u8]) {
    match (head.extensions.get::<RawTarget>(), head.uri.path_and_query()) {
        (Some(raw), Some(target)) => raw.path_and_query(target.as_str().len()),
        _ => (head.uri.path().as_bytes(), head.uri.query().unwrap_or_default().as_bytes()),
    }
}

/// Clients of HTTP/2 split their cookies; apps are to get one header (RFC 9113, 8.2.3). None: there is one at most.
fn joined_cookies(headers: &HeaderMap) -> Option<Vec<u8>> {
    let crumbs: Vec<&[u8]> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    (crumbs.len() > 1).then(|| crumbs.join(&b"; "[..]))
}

/// The body that is there already, put behind the head when it is all of it; else the rest, which has to be fed.
pub(super) async fn take_ready(head: &Parts, mut body: Incoming, out: &mut Vec<u8>) -> Option<Rest> {
    if body.is_end_stream() {
        return None;
    }
    let small = body.size_hint().upper().is_some_and(|most| most <= INLINE_BYTES_MAX as u64);
    // A client that asked whether it should send is told so when its app reads.
    if !small || head.headers.contains_key(header::EXPECT) {
        let waits_to_be_asked = head.headers.contains_key(header::EXPECT);
        return Some(Rest { waits_to_be_asked, ..Rest::of(None, body) });
    }
    match now(next_data(&mut body)).await.flatten() {
        Some(Ok(data)) if body.is_end_stream() => {
            out.extend_from_slice(&data);
            None
        }
        first => Some(Rest::of(first, body)),
    }
}

/// Rest of a body, which comes later.
pub(super) struct Rest {
    /// Since the last time that enough had come: so many bytes have, and for so long the app has waited for them.
    came: usize,
    waited: Duration,
    first: Option<Result<Bytes, hyper::Error>>,
    body: Incoming,
    /// Its client sends it when it is told to, which reading does.
    waits_to_be_asked: bool,
}

/// Limits of a request body.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyLimits {
    pub(super) bytes_max: Option<u64>,
    /// Maximum time that a client may be silent, or nearly so, while the app waits.
    pub(super) silence: Duration,
}

/// Brings the body to the worker, as it asks for it. A client that sends too much, or nothing, is told so where no response
/// has begun; the app learns that the client is gone.
pub(super) async fn feed(input: Input, mut rest: Rest, limits: BodyLimits, fault: oneshot::Sender<Refused>) {
    match feed_all(&input, &mut rest, limits).await {
        // Who was to be asked for the body, and never was, does not send it.
        Ok(()) if rest.waits_to_be_asked => {}
        Ok(()) => read_on(&mut rest.body, limits.silence).await,
        Err(refused) => {
            if fault.send(refused).is_err() {
                input.feed(Codec::Empty, &[]);
            }
            discard(&mut rest.body).await;
        }
    }
}

async fn feed_all(input: &Input, rest: &mut Rest, limits: BodyLimits) -> Result<(), Refused> {
    let mut bytes = 0;
    while input.wanted().await {
        let Some(data) = rest.next(input, limits.silence).await? else {
            input.feed(LAST, &[]);
            return Ok(());
        };
        bytes += data.len() as u64;
        if limits.bytes_max.is_some_and(|most| bytes > most) {
            return Err(Refused::body_too_large());
        }
        let is_last = rest.body.is_end_stream();
        if !put_pieces(input, &data, is_last).await || is_last {
            return Ok(());
        }
    }
    Ok(())
}

/// Puts one piece, which was wanted, and waits before each further one. Returns false if the worker takes no more.
async fn put_pieces(input: &Input, data: &[u8], last: bool) -> bool {
    let mut pieces = data.chunks(INLINE_BYTES_MAX).peekable();
    while let Some(piece) = pieces.next() {
        let ends = last && pieces.peek().is_none();
        input.feed(if ends { LAST } else { Codec::Bytes.into() }, piece);
        if pieces.peek().is_some() && !input.wanted().await {
            return false;
        }
    }
    true
}

impl Rest {
    fn of(first: Option<Result<Bytes, hyper::Error>>, body: Incoming) -> Rest {
        Rest { came: 0, waited: Duration::ZERO, first, body, waits_to_be_asked: false }
    }

    /// Returns the bytes that have come, small pieces together. None: the body has ended.
    async fn next(&mut self, input: &Input, silence: Duration) -> Result<Option<Bytes>, Refused> {
        self.waits_to_be_asked = false;
        let first = match self.first.take() {
            Some(first) => Some(Some(first)),
            None => now(next_data(&mut self.body)).await,
        };
        let first = match first {
            Some(first) => first,
            None => self.wait(input, silence).await?,
        };
        let Some(mut data) = first.transpose().map_err(|error| Refused::body_broken(&error))? else { return Ok(None) };
        while data.len() < CRUMB_BYTES {
            match now(next_data(&mut self.body)).await.flatten() {
                Some(Ok(more)) => data = [data, more].concat().into(),
                Some(Err(error)) => {
                    self.first = Some(Err(error));
                    break;
                }
                None => break,
            }
        }
        self.came += data.len();
        if self.came >= CAME_BYTES_MIN {
            (self.came, self.waited) = (0, Duration::ZERO);
        }
        Ok(Some(data))
    }

    /// While the app is at work its client has all the time; once it waits, its clock stands and the client's runs.
    async fn wait(&mut self, input: &Input, silence: Duration) -> Result<Option<Result<Bytes, hyper::Error>>, Refused> {
        tokio::select! {
            biased;
            next = next_data(&mut self.body) => return Ok(next),
            () = input.app_waits(INPUT_WINDOW) => {}
        }
        let _standing = input.stand();
        let since = Instant::now();
        let left = silence.saturating_sub(self.waited);
        let next = tokio::time::timeout(left, next_data(&mut self.body)).await;
        self.waited += since.elapsed();
        next.map_err(|_| Refused::body_too_slow())
    }
}

/// Returns the result of a future that is ready; none if it would have to be waited for.
async fn now<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(ready) => Poll::Ready(Some(ready)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

async fn next_data(body: &mut Incoming) -> Option<Result<Bytes, hyper::Error>> {
    while let Some(frame) = body.frame().await {
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) if data.is_empty() => {}
            Ok(Ok(data)) => return Some(Ok(data)),
            // Trailers: apps have no place for them.
            Ok(Err(_)) => {}
            Err(error) => return Some(Err(error)),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_described_by_what_is_known_of_it() {
        let described = |text: &str| describe_beginning(text.as_bytes(), "/root");
        assert_eq!(described("GET /a/b HTTP/1.1\r\nHost: a\r\n"), "GET /a/b");
        assert_eq!(described("POST /a?b=c HTTP/1.1\r\n"), "POST /a");
        assert_eq!(described("GET /root/a HTTP/1.1\r\n"), "GET /a");
        let long = format!("GET /{}", "x".repeat(59));
        assert_eq!(described(&long), format!("{long}…"));
        assert_eq!(describe_beginning(b"GET /\xff HTTP/1.1\r\n", ""), "GET /\u{fffd}");
        assert_eq!(describe_beginning(b"", ""), " …");
    }
}
