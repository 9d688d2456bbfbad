//! A connection of HTTP, whichever front it is of: the same loop, the same limits.
//!
//! The HTTP library keeps the protocol. Around it stand what it leaves to others: how long heads, bodies, writes and
//! idleness may last (`timeouts`), the bytes that it reads and writes (`monitored_io`, `framing`), and a turn for each request, which
//! ends when the client has taken its response (`turn`).

mod closed;
mod framing;
mod monitored_io;
mod timeouts;
mod turn;
mod watch;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clutch_host::Warnings;
use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;

use self::closed::Ended;
pub(crate) use self::closed::{Closed, Unheard};
pub(crate) use self::framing::RawTarget;
pub(crate) use self::monitored_io::Guarded;
use self::monitored_io::Metered;
pub(crate) use self::timeouts::Limits;
use self::turn::Paced;
pub(crate) use self::turn::Turn;
pub(crate) use self::watch::SharedSocket;
use self::watch::Watch;
use crate::account::access::{AccessLog, Record, Recorded};
use crate::account::classes::Times;
use crate::account::figures::{End, Figures};
use crate::account::{BrokenOff, Fate};
use crate::config::ConnectionConfig;
use crate::net::accept::{REFUSED_PATIENCE, Shortage};
use crate::net::peer::Peer;
use crate::net::protocol::Protocol;
use crate::net::stream::{ConnectionPermit, Io};

/// Smallest buffer that the HTTP library takes for a head.
const BUFFER_BYTES_MIN: usize = 8192;

/// Bytes of a header line beside its name and value: a colon, a space and the line's end.
const LINE_BYTES: usize = 4;

/// Maximum header lines of a request, unless the front has an option for it.
pub(crate) const HEADERS_MAX: usize = 100;

/// Header lines that the HTTP library takes without another allocation, unless it is told otherwise.
const HEADERS_MAX_OF_HYPER: usize = 100;

/// Streams of one HTTP/2 connection that were reset and are not forgotten yet; beyond them the connection ends.
const RESET_STREAMS_MAX: usize = 64;

/// Bytes that may wait to be written on one stream of HTTP/2.
const SEND_BUFFER_BYTES: usize = 128 << 10;

/// Bytes that a client may send of a body on one stream of HTTP/2 before it is read. The connection has room for as much of each
/// stream: one that waits for its worker takes nothing from the others.
const STREAM_WINDOW_BYTES: u32 = 128 << 10;

/// Settings that the connections of a front share.
pub(crate) struct Connections {
    pub(crate) limits: Limits,
    pub(crate) head_bytes_max: usize,
    pub(crate) headers_max: usize,
    pub(crate) streams_max: u32,
    pub(crate) figures: Arc<Figures>,
    pub(crate) access_log: Option<Arc<AccessLog>>,
}

impl Connections {
    /// Makes those of a front without limits of its own. Fails when the access log cannot be opened.
    pub(crate) fn new(config: &ConnectionConfig, figures: Arc<Figures>) -> io::Result<Connections> {
        Ok(Connections {
            limits: Limits {
                head: Duration::from_millis(config.head_timeout_ms),
                write: Duration::from_millis(config.write_timeout_ms),
                idle: Duration::from_millis(config.keep_alive_ms),
                requests_max: None,
            },
            head_bytes_max: config.head_bytes_max,
            headers_max: HEADERS_MAX,
            streams_max: 0,
            access_log: AccessLog::open(config, &figures)?,
            figures,
        })
    }

    /// A connection has come; what it sends and takes is measured from now on. One whose requests are to be refused has
    /// little time.
    pub(crate) fn open(&self, io: Box<dyn Io>, permit: &ConnectionPermit) -> Opened {
        let limits = match permit.shortage() {
            None => self.limits,
            Some(_) => {
                Limits { head: REFUSED_PATIENCE, write: REFUSED_PATIENCE, idle: REFUSED_PATIENCE, requests_max: None }
            }
        };
        let watch = Watch::new(limits, self.figures.clone());
        Opened { io: Box::new(Metered::new(io, watch.clone())), watch }
    }

    /// Serves one connection to its end. Each request is answered by `answer`.
    pub(crate) async fn serve<A, R, B>(
        &self,
        opened: Opened,
        protocol: Protocol,
        permit: ConnectionPermit,
        answer: A,
    ) -> Closed
    where
        A: Fn(Request<Incoming>, Arc<Turn>) -> R,
        R: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes, Error = BrokenOff> + Send + Unpin + 'static,
    {
        let Opened { io, watch } = opened;
        let is_refused = permit.shortage().is_some();
        let io = TokioIo::new(Guarded::new(io, protocol, watch.clone()));
        let service = service_fn(|mut request: Request<Incoming>| {
            let turn = Turn::begin(&watch, &request);
            if request.version() != Version::HTTP_2
                && let Some(target) = watch.next_target()
            {
                request.extensions_mut().insert(target);
            }
            let may_have_frames = has_frames_behind(&request);
            let answered = answer(request, turn.clone());
            async move {
                let mut response = answered.await;
                let is_spent = turn.is_last || may_have_frames || is_refused;
                if is_spent && response.status() != StatusCode::SWITCHING_PROTOCOLS {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                let fate = response.extensions_mut().remove::<Fate>();
                turn.account().answered(&response, fate);
                Ok::<_, Infallible>(response.map(|body| Paced::new(body, turn)))
            }
        });
        let builder = self.builder();
        let ended = match watch.drive(pin!(builder.serve_connection_with_upgrades(io, service)), permit).await {
            Some(result) => Ended::of(result),
            None => Ended::Cut,
        };
        watch.closed(ended)
    }

    fn builder(&self) -> auto::Builder<TokioExecutor> {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        // The time of heads is kept by the guard: for HTTP/2 too, and apart from that of idle connections.
        // Not with `pipeline_flush`: then the last answer is lost where more was sent than is answered.
        builder.http1().timer(TokioTimer::new()).header_read_timeout(None);
        builder.http1().max_buf_size(self.head_bytes_max.max(BUFFER_BYTES_MIN));
        if self.headers_max != HEADERS_MAX_OF_HYPER {
            builder.http1().max_headers(self.headers_max);
        }
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(self.streams_max)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(connection_window(self.streams_max))
            .max_header_list_size(u32::try_from(self.head_bytes_max).unwrap_or(u32::MAX))
            .max_pending_accept_reset_streams(RESET_STREAMS_MAX)
            .max_local_error_reset_streams(RESET_STREAMS_MAX)
            .max_send_buf_size(SEND_BUFFER_BYTES);
        builder
    }

    /// A line for a request, when it has ended. `add`: what else is known of it.
    pub(crate) fn keep_record(&self, turn: &Turn, peer: &Arc<Peer>, head: &Parts, add: impl FnOnce(&mut Record)) {
        if let Some(log) = &self.access_log {
            let mut record = log.record(peer, head);
            add(&mut record);
            turn.account().keep(Box::new(Recorded { record, log: log.clone() }));
        }
    }

    /// A connection has ended: what it sent that became no request is told.
    pub(crate) fn ended(&self, peer: &Arc<Peer>, closed: &Closed, warnings: &Warnings) {
        let unheard = closed.unheard();
        if let Some(Unheard { status, end: End::Refused, .. }) = unheard {
            let is_too_large = matches!(status, Some(414 | 431));
            let reason = if is_too_large { "head-too-large" } else { "malformed" };
            self.figures.told(reason);
            warnings.tell(if is_too_large { reason } else { "no HTTP" }, || {
                let line = closed.line.as_deref().unwrap_or_default();
                let why = match is_too_large {
                    true => "its head is too large",
                    false if has_fragment(line) => "its target has a fragment (#)",
                    false => "it is no HTTP",
                };
                let with =
                    status.map_or_else(|| "and its connection closed".to_owned(), |status| format!("with {status}"));
                format!("fronts.{}: a request was refused {with}: {why}: {}", self.figures.front, line.escape_default())
            });
        }
        self.tell_of(peer, unheard, closed.line.as_deref());
    }

    /// A figure and a line for what became no request.
    pub(crate) fn tell(&self, peer: &Arc<Peer>, unheard: Option<Unheard>) {
        self.tell_of(peer, unheard, None);
    }

    /// `line`: the first one of it.
    fn tell_of(&self, peer: &Arc<Peer>, unheard: Option<Unheard>, line: Option<&str>) {
        let Some(Unheard { since, status, end }) = unheard else { return };
        self.figures.ended(status, end, &Times::of(since.elapsed()));
        if let Some(log) = &self.access_log {
            log.write(Record::of_nothing(peer, since, status, end).with_line(line));
        }
    }

    /// There was no place for one. `status`: what it was told.
    pub(crate) fn turned_away(&self, peer: &Arc<Peer>, status: Option<u16>, shortage: Shortage, warnings: &Warnings) {
        self.figures.told(shortage.reason());
        self.tell(peer, Some(Unheard { since: Instant::now(), status, end: End::Refused }));
        warnings.tell(shortage.reason(), || shortage.words(&self.figures.front));
    }

    /// Returns whether a head is within the limits: the library has others beside, or none.
    pub(crate) fn admits(&self, headers: &HeaderMap) -> bool {
        let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + LINE_BYTES).sum();
        headers.len() <= self.headers_max && bytes <= self.head_bytes_max
    }
}

/// A connection that is measured. What comes before HTTP is read from `io`, and whatever is put there is served.
pub(crate) struct Opened {
    pub(crate) io: Box<dyn Io>,
    pub(crate) watch: Arc<Watch>,
}

impl Opened {
    /// The first bytes of a head have come before.
    pub(crate) fn head_since(&self, since: Instant) {
        self.watch.timeouts.lock().bytes_came(since);
    }
}

/// Returns whether the target of a head's first line has a fragment.
fn has_fragment(first_line: &str) -> bool {
    first_line.split(' ').nth(1).is_some_and(|target| target.contains('#'))
}

/// As large as HTTP/2 allows, at most.
fn connection_window(streams_max: u32) -> u32 {
    streams_max.saturating_mul(STREAM_WINDOW_BYTES).min((1 << 31) - 1)
}

/// A client may send frames of a WebSocket right behind such a head: they are not looked at, so no request may follow.
fn has_frames_behind(request: &Request<Incoming>) -> bool {
    let mut upgrades = request.headers().get_all(UPGRADE).iter();
    request.version() != Version::HTTP_2 && upgrades.any(|value| framing::names_websocket(value.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hyper::header::HeaderName;

    use super::*;

    #[test]
    fn heads_have_their_limits() {
        let second = Duration::from_secs(1);
        let limits = Limits { head: second, write: second, idle: second, requests_max: None };
        let figures = Figures::new("serve");
        let connections =
            Connections { limits, head_bytes_max: 300, headers_max: 4, streams_max: 1, figures, access_log: None };
        let admits = |headers: &[(&'static str, &str)]| {
            let value = |text: &str| HeaderValue::from_str(text).expect("a value");
            connections
                .admits(&headers.iter().map(|(name, text)| (HeaderName::from_static(name), value(text))).collect())
        };
        let long = "x".repeat(300);
        assert!(admits(&[("host", "a"), ("x", &long[..280])]));
        assert!(!admits(&[("host", "a"), ("x", &long)]));
        assert!(!admits(&[("host", "a"), ("a", ""), ("b", ""), ("c", ""), ("d", "")]));
    }

    #[test]
    fn each_stream_has_its_window_of_the_connection() {
        assert_eq!(connection_window(3), 3 * STREAM_WINDOW_BYTES);
        assert_eq!(connection_window(u32::MAX), (1 << 31) - 1);
    }
}
