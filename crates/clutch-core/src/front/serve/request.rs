//! From what a client sent to what a worker gets.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body as _, Frame, Incoming};
use hyper::http::request::Parts;
use hyper::{Version, header};
use tokio::sync::oneshot;

use super::admit::Refused;
use super::exchange::Feeder;
use super::forwarded::Forwarded;
use crate::front::body::discard;
use crate::wire::INLINE_BYTES_MAX;
use crate::wire::http::{self, Place, RequestLine, request_flag};
use crate::work::Codec;

/// Who is at the two ends of a connection.
#[derive(Debug, Default)]
pub(super) struct Peer {
    client: (String, u16),
    server: (String, u16),
    /// None: it came by a unix socket.
    pub(super) from: Option<IpAddr>,
    /// By TLS.
    is_secure: bool,
}

impl Peer {
    pub(super) fn new(client: Option<SocketAddr>, server: Option<SocketAddr>, is_secure: bool) -> Peer {
        let named = |address: Option<SocketAddr>| {
            address.map(|address| (address.ip().to_string(), address.port())).unwrap_or_default()
        };
        let from = client.map(|client| client.ip());
        Peer { client: named(client), server: named(server), from, is_secure }
    }

    /// Empty: it came by a unix socket.
    pub(super) fn client_address(&self) -> &str {
        &self.client.0
    }
}

fn place(named: &(String, u16)) -> Place<'_> {
    Place { address: &named.0, port: named.1 }
}

/// Where a request comes from.
pub(super) struct Origin<'a> {
    pub(super) peer: &'a Peer,
    pub(super) forwarded: Forwarded,
}

/// `flags` are those of `request_flag` that the head itself does not tell.
pub(super) fn put_head(out: &mut Vec<u8>, head: &Parts, origin: &Origin<'_>, flags: u8) {
    let Origin { peer, forwarded } = origin;
    let version = match head.version {
        Version::HTTP_10 => 10,
        Version::HTTP_2 => 20,
        _ => 11,
    };
    let forwarded_client = forwarded.client.map(|client| client.to_string());
    let line = RequestLine {
        version,
        flags: if forwarded.is_secure.unwrap_or(peer.is_secure) { flags | request_flag::SECURE } else { flags },
        method: head.method.as_str(),
        path: head.uri.path().as_bytes(),
        query: head.uri.query().unwrap_or_default().as_bytes(),
        client: forwarded_client.as_deref().map_or_else(|| place(&peer.client), |address| Place { address, port: 0 }),
        server: place(&peer.server),
    };
    let mut headers = http::put_request(out, line);
    if version == 20 && !head.headers.contains_key(header::HOST) {
        if let Some(authority) = head.uri.authority() {
            headers.put(b"host", authority.as_str().as_bytes());
        }
    }
    for (name, value) in &head.headers {
        // `X_Forwarded_For` becomes what `X-Forwarded-For` becomes, in CGI's names: it could pose as it.
        if name.as_str().contains('_') {
            continue;
        }
        headers.put(name.as_str().as_bytes(), value.as_bytes());
    }
}

/// The body that is there already, put behind the head when it is all of it; else the rest, which has to be fed.
pub(super) async fn take_ready(mut body: Incoming, out: &mut Vec<u8>) -> Option<Rest> {
    if body.is_end_stream() {
        return None;
    }
    let small = body.size_hint().upper().is_some_and(|most| most <= INLINE_BYTES_MAX as u64);
    if !small {
        return Some(Rest { first: None, body });
    }
    let ready = poll_fn(|context| match Pin::new(&mut body).poll_frame(context) {
        Poll::Ready(frame) => Poll::Ready(Some(frame)),
        Poll::Pending => Poll::Ready(None),
    });
    let first = match ready.await {
        Some(Some(frame)) => frame.map(|frame| frame.into_data().ok()).transpose(),
        _ => None,
    };
    match first {
        Some(Ok(data)) if body.is_end_stream() => {
            out.extend_from_slice(&data);
            None
        }
        first => Some(Rest { first, body }),
    }
}

/// What of a body comes later.
pub(super) struct Rest {
    first: Option<Result<bytes::Bytes, hyper::Error>>,
    body: Incoming,
}

/// What of a body is accepted.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyLimits {
    pub(super) bytes_max: Option<u64>,
    /// How long a client may be silent while the app waits.
    pub(super) silence: Duration,
}

/// Brings the body to the worker, as it asks for it. A client that sends too much, or nothing, is told so where no response
/// has begun; the app learns that the client is gone.
pub(super) async fn feed(feeder: Feeder, mut rest: Rest, limits: BodyLimits, fault: oneshot::Sender<Refused>) {
    match feed_all(&feeder, &mut rest, limits).await {
        Ok(()) => {}
        Err(refused) => {
            if fault.send(refused).is_err() {
                feeder.feed(Codec::Empty, &[]);
            }
            discard(&mut rest.body).await;
        }
    }
}

async fn feed_all(feeder: &Feeder, rest: &mut Rest, limits: BodyLimits) -> Result<(), Refused> {
    let mut bytes = 0;
    while feeder.wanted().await {
        let next = match rest.first.take() {
            Some(first) => Some(first),
            None => tokio::time::timeout(limits.silence, next_data(&mut rest.body))
                .await
                .map_err(|_| Refused::body_too_slow())?,
        };
        let Some(data) = next.transpose().map_err(|_| Refused::body_broken())? else {
            feeder.feed(Codec::Last, &[]);
            return Ok(());
        };
        bytes += data.len() as u64;
        if limits.bytes_max.is_some_and(|most| bytes > most) {
            return Err(Refused::body_too_large());
        }
        let is_last = rest.body.is_end_stream();
        if !put_pieces(feeder, &data, is_last).await || is_last {
            return Ok(());
        }
    }
    Ok(())
}

/// One piece was wanted; each further one is waited for, too. False: the worker takes no more.
async fn put_pieces(feeder: &Feeder, data: &[u8], last: bool) -> bool {
    let mut pieces = data.chunks(INLINE_BYTES_MAX).peekable();
    while let Some(piece) = pieces.next() {
        let ends = last && pieces.peek().is_none();
        feeder.feed(if ends { Codec::Last } else { Codec::Bytes }, piece);
        if pieces.peek().is_some() && !feeder.wanted().await {
            return false;
        }
    }
    true
}

async fn next_data(body: &mut Incoming) -> Option<Result<bytes::Bytes, hyper::Error>> {
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
