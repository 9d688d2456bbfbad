//! One connection of HTTP, whichever front it is of: the same loop, the same limits.
//!
//! The HTTP library keeps the protocol. Around it stand what it leaves to others: how long heads, bodies, writes and
//! idleness may last (`pulse`), the bytes that it reads and writes (`guard`, `framing`), and a turn for each request, which
//! ends when the client has taken its response (`turn`).

mod framing;
mod guard;
mod pulse;
mod turn;

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulConnection;
use tokio::sync::Notify;

pub(super) use self::guard::Guarded;
use self::guard::Metered;
pub(super) use self::pulse::Limits;
use self::pulse::{Pulse, Verdict};
use self::turn::Paced;
pub(super) use self::turn::Turn;
use super::access::{AccessLog, Record, Recorded};
use super::account::{Account, BrokenOff, Fate};
use super::figures::{End, Figures};
use super::listen::{Io, Stay};
use super::peer::Peer;
use super::warnings::Warnings;
use clutch_wire::sync::Mutex;

/// What the HTTP library needs at least for a head.
const BUFFER_BYTES_MIN: usize = 8192;

/// What a header line has beside its name and value: a colon, a space and the line's end.
const LINE_BYTES: usize = 4;

/// Header lines that the HTTP library takes without another allocation, unless it is told otherwise.
const HEADERS_MAX_OF_HYPER: usize = 100;

/// Streams of one HTTP/2 connection that were reset and are not forgotten yet; beyond them the connection ends.
const RESET_STREAMS_MAX: usize = 64;

/// What may wait to be written on one stream of HTTP/2.
const SEND_BUFFER_BYTES: usize = 128 << 10;

/// What a client may send of a body on one stream of HTTP/2 before it is read. The connection has room for as much of each
/// stream: one that waits for its worker takes nothing from the others.
const STREAM_WINDOW_BYTES: u32 = 128 << 10;

/// Which HTTP is spoken on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
    /// As its first bytes say.
    Either,
}

impl Protocol {
    /// Its name where a handshake of TLS chooses it. None: it is none.
    pub(super) fn alpn(self) -> Option<&'static [u8]> {
        match self {
            Protocol::Http1 => Some(b"http/1.1"),
            Protocol::Http2 => Some(b"h2"),
            Protocol::Either => None,
        }
    }
}

/// What the connections of a front have in common.
pub(super) struct Connections {
    pub(super) limits: Limits,
    pub(super) head_bytes_max: usize,
    pub(super) headers_max: usize,
    pub(super) streams_max: u32,
    pub(super) figures: Arc<Figures>,
    pub(super) access_log: Option<Arc<AccessLog>>,
}

impl Connections {
    /// A connection has come; what it sends and takes is measured from now on.
    pub(super) fn open(&self, io: Box<dyn Io>) -> Opened {
        let watch = Watch::new(self.limits, self.figures.clone());
        Opened { io: Box::new(Metered::new(io, watch.clone())), watch }
    }

    /// Serves one connection to its end. Each request is answered by `answer`.
    pub(super) async fn serve<A, R, B>(&self, opened: Opened, protocol: Protocol, stay: Stay, answer: A) -> Closed
    where
        A: Fn(Request<Incoming>, Arc<Turn>) -> R,
        R: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes, Error = BrokenOff> + Send + Unpin + 'static,
    {
        let Opened { io, watch } = opened;
        let io = TokioIo::new(Guarded::new(io, protocol, watch.clone()));
        let service = service_fn(|request: Request<Incoming>| {
            let turn = watch.turn(&request);
            let may_have_frames = has_frames_behind(&request);
            let answered = answer(request, turn.clone());
            async move {
                let mut response = answered.await;
                let is_spent = turn.is_last || may_have_frames;
                if is_spent && response.status() != StatusCode::SWITCHING_PROTOCOLS {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                let fate = response.extensions_mut().remove::<Fate>();
                turn.account().answered(&response, fate);
                Ok::<_, Infallible>(response.map(|body| Paced::new(body, turn)))
            }
        });
        let builder = self.builder();
        let ended = match watch.drive(pin!(builder.serve_connection_with_upgrades(io, service)), stay).await {
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
    pub(super) fn keep_record(&self, turn: &Turn, peer: &Arc<Peer>, head: &Parts, add: impl FnOnce(&mut Record)) {
        if let Some(log) = &self.access_log {
            let mut record = Record::of(peer, head, log);
            add(&mut record);
            turn.account().keep(Box::new(Recorded { record, log: log.clone() }));
        }
    }

    /// A connection has ended: what it sent that became no request is told.
    pub(super) fn ended(&self, peer: &Arc<Peer>, closed: &Closed) {
        let unheard = closed.unheard();
        if let Some(Unheard { status, end: End::Refused, .. }) = unheard {
            let is_too_large = matches!(status, Some(414 | 431));
            self.figures.told(if is_too_large { "head-too-large" } else { "malformed" });
        }
        self.tell(peer, unheard);
    }

    /// A figure and a line for what became no request.
    pub(super) fn tell(&self, peer: &Arc<Peer>, unheard: Option<Unheard>) {
        let Some(Unheard { since, status, end }) = unheard else { return };
        self.figures.ended(status, end, since.elapsed());
        if let Some(log) = &self.access_log {
            log.write(Record::of_nothing(peer, since, status, end));
        }
    }

    /// There was no place for one. `status`: what it was told.
    pub(super) fn turned_away(&self, peer: &Arc<Peer>, status: Option<u16>, warnings: &Warnings) {
        self.figures.told("connections");
        self.tell(peer, Some(Unheard { since: Instant::now(), status, end: End::Refused }));
        warnings.tell("connections", || {
            format!("fronts.{}.connections_max: a connection was refused with 503", self.figures.front)
        });
    }

    /// Whether a head is within the limits: the library has others beside, or none.
    pub(super) fn admits(&self, headers: &HeaderMap) -> bool {
        let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + LINE_BYTES).sum();
        headers.len() <= self.headers_max && bytes <= self.head_bytes_max
    }
}

/// A connection that is measured. What comes before HTTP is read from `io`, and whatever is put there is served.
pub(super) struct Opened {
    pub(super) io: Box<dyn Io>,
    pub(super) watch: Arc<Watch>,
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

/// What the tasks of one connection share.
pub(super) struct Watch {
    limits: Limits,
    came: Instant,
    pulse: Mutex<Pulse>,
    figures: Arc<Figures>,
    /// Told when the last request of the connection has come.
    spent: Notify,
    /// Work of its requests that has not ended, whether or not somebody waits for it.
    pub(super) at_work: Arc<AtomicU32>,
}

impl Watch {
    fn new(limits: Limits, figures: Arc<Figures>) -> Arc<Watch> {
        let came = Instant::now();
        let pulse = Mutex::new(Pulse::new(came));
        Arc::new(Watch { limits, came, pulse, figures, spent: Notify::new(), at_work: Arc::default() })
    }

    /// A head has come.
    fn turn(self: &Arc<Watch>, request: &Request<Incoming>) -> Arc<Turn> {
        let is_http2 = request.version() == Version::HTTP_2;
        let mut pulse = self.pulse.lock();
        let key = pulse.began(is_http2);
        let is_last = pulse.is_spent(&self.limits);
        drop(pulse);
        if is_last {
            self.spent.notify_one();
        }
        let account = Account::new(self.figures.clone(), request.method() == Method::HEAD);
        Turn::new(self.clone(), key, is_http2, is_last && !is_http2, account)
    }

    fn closed(&self, ended: Ended) -> Closed {
        let pulse = self.pulse.lock();
        Closed { ended, came: self.came, head_since: pulse.head_since(), is_first: pulse.is_first() }
    }

    /// Drives a connection to its end, in the limits of its client. None: it was cut off.
    async fn drive<C: GracefulConnection>(
        &self,
        mut connection: Pin<&mut C>,
        mut stay: Stay,
    ) -> Option<Result<(), C::Error>> {
        let mut leaves = false;
        loop {
            let verdict = tokio::select! {
                biased;
                // Whatever ends a connection early is the client's doing, and it is told by hyper where HTTP has a word.
                ended = connection.as_mut() => return Some(ended),
                () = stay.leave_asked(), if !leaves => Verdict::Leave,
                () = self.spent.notified(), if !leaves => Verdict::Leave,
                verdict = self.next_verdict() => verdict,
            };
            if verdict == Verdict::Cut {
                return None;
            }
            leaves = true;
            self.pulse.lock().leave(Instant::now());
            connection.as_mut().graceful_shutdown();
        }
    }

    /// Waits for the limit that is reached. Looks now and then: nothing is told when a limit changes.
    async fn next_verdict(&self) -> Verdict {
        loop {
            let next = self.pulse.lock().next_limit(&self.limits);
            let now = Instant::now();
            match next {
                Some((at, verdict)) if at <= now => return verdict,
                _ => {}
            }
            let look = now + self.limits.shortest();
            tokio::time::sleep_until(next.map_or(look, |(at, _)| at.min(look)).into()).await;
        }
    }
}

/// How a connection was when it ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closed {
    pub(super) ended: Ended,
    pub(super) came: Instant,
    /// Since when bytes came that were no request, where none ran.
    pub(super) head_since: Option<Instant>,
    /// No request had come.
    pub(super) is_first: bool,
}

impl Closed {
    /// What is told of it, beside its requests.
    fn unheard(&self) -> Option<Unheard> {
        let Closed { ended, came, head_since, is_first } = *self;
        // Bytes that came while no request ran need not be those of a head: what is left of the body of the request before,
        // which nobody wanted, looks the same; so it counts that no request had come, or that hyper knows better.
        let gone = |is_head: bool| {
            let since = head_since.filter(|_| is_head || is_first)?;
            Some(Unheard { since, status: None, end: End::ClientGone })
        };
        let refused = |status| Some(Unheard { since: head_since.unwrap_or(came), status, end: End::Refused });
        match ended {
            Ended::Malformed(status) => refused(Some(status)),
            Ended::Violated => refused(None),
            Ended::Cut => gone(true),
            Ended::Lost { in_message } => gone(in_message),
            Ended::Itself => gone(false),
        }
    }
}

/// Something was sent that never became a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unheard {
    pub(super) since: Instant,
    /// None: the client was told nothing.
    pub(super) status: Option<u16>,
    pub(super) end: End,
}

/// What ended a connection of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The client closed it, or either side had said that it would end.
    Itself,
    /// A limit of its client was reached.
    Cut,
    /// What came was no HTTP, and the client was told so.
    Malformed(u16),
    /// What came was no HTTP/2: the client was told by GOAWAY.
    Violated,
    /// The connection was lost; `in_message`: in the middle of one.
    Lost { in_message: bool },
}

impl Ended {
    /// As hyper tells it.
    fn of(result: Result<(), Box<dyn Error + Send + Sync>>) -> Ended {
        let Err(error) = result else { return Ended::Itself };
        let Some(error) = error.downcast_ref::<hyper::Error>() else { return Ended::Lost { in_message: false } };
        if error.is_parse() {
            return Ended::Malformed(status_of(error));
        }
        match error.source().and_then(|source| source.downcast_ref::<h2::Error>()) {
            Some(error) if error.is_go_away() && error.is_library() => Ended::Violated,
            _ => Ended::Lost { in_message: error.is_incomplete_message() },
        }
    }
}

/// What hyper answers by itself.
fn status_of(error: &hyper::Error) -> u16 {
    match error.is_parse_too_large() {
        // It tells the two apart by words alone.
        true if error.to_string() == "URI too long" => 414,
        true => 431,
        false => 400,
    }
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

    #[test]
    fn a_line_is_for_what_was_sent_and_became_no_request() {
        let came = Instant::now();
        let line = |ended: Ended, head_since, is_first| {
            let closed = Closed { ended, came, head_since, is_first };
            closed.unheard().map(|unheard| (unheard.status, unheard.end))
        };
        let (gone, head) = (Some((None, End::ClientGone)), Some(came));
        for is_first in [true, false] {
            assert_eq!(line(Ended::Itself, None, is_first), None, "an idle connection is closed");
            assert_eq!(line(Ended::Cut, None, is_first), None, "it did not read its response: that has its own line");
            assert_eq!(line(Ended::Cut, head, is_first), gone);
            assert_eq!(line(Ended::Lost { in_message: true }, head, is_first), gone);
            assert_eq!(line(Ended::Malformed(400), head, is_first), Some((Some(400), End::Refused)));
            assert_eq!(line(Ended::Violated, None, is_first), Some((None, End::Refused)));
        }
        assert_eq!(line(Ended::Itself, head, true), gone);
        assert_eq!(line(Ended::Itself, head, false), None, "the rest of a body that its app did not read");
        assert_eq!(line(Ended::Lost { in_message: false }, head, false), None);
    }
}
