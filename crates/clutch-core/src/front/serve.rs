//! ASGI and WSGI apps over HTTP/1 and HTTP/2: each request becomes work of the pool that runs the app.
//!
//! The listener is the dispatcher's, so that a worker may die, leave or come and no connection notices. Heads are parsed
//! here, bodies pass through in pieces as the app asks for them, and so do messages.
//! docs/serve.md is the page for its users.

mod access;
mod admit;
mod arrive;
mod body;
mod exchange;
mod forwarded;
mod guard;
mod links;
mod proxy;
mod pulse;
mod request;
mod response;
mod websocket;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hyper::body::{Body as _, Incoming};
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode, Version, header};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::sync::{Notify, oneshot};

use self::access::{AccessLog, End, Record};
use self::admit::{Admission, Refused};
use self::arrive::{Arrival, Ended, Unheard};
use self::body::{Answer, Body};
use self::exchange::Exchange;
use self::forwarded::Trust;
use self::guard::{Guarded, Turn, Watch};
use self::pulse::Limits;
use self::request::{BodyLimits, Origin, Peer};
use self::response::Fate;
use self::websocket::{Handshake, Session};
use super::Front;
use super::body::discard;
use super::listen::{BUFFER_BYTES_MIN, Io, Stay, Stream};
use super::thread::FrontThread;
use super::tls::Tls;
use super::warnings::Warnings;
use crate::config::ServeConfig;
use crate::pool::Pool;
use crate::wire::http::request_flag;
use crate::work::{Codec, FunctionId, Payload, Work, WorkKind};

/// Header lines that the HTTP library takes without another allocation, unless it is told otherwise.
const HEADERS_MAX_OF_HYPER: usize = 100;

/// Streams of one HTTP/2 connection that were reset and are not forgotten yet; beyond them the connection ends.
const RESET_STREAMS_MAX: usize = 64;

/// What may wait to be written on one stream of HTTP/2.
const SEND_BUFFER_BYTES: usize = 128 << 10;

/// The front of one app.
pub(super) struct ServeFront {
    pool: Arc<Pool>,
    function: FunctionId,
    config: ServeConfig,
    timeout: Option<Duration>,
    admission: Admission,
    body_limits: BodyLimits,
    client_limits: Limits,
    access_log: Option<Arc<AccessLog>>,
    tls: Option<Tls>,
    trust: Trust,
    warnings: Arc<Warnings>,
    /// Told when frames wait to be written.
    flush: Arc<Notify>,
}

impl ServeFront {
    /// Fails when the access log cannot be opened.
    pub(super) fn new(pool: Arc<Pool>, config: ServeConfig, warnings: Arc<Warnings>) -> io::Result<ServeFront> {
        // The app has no name of its own: it is all that its pool runs.
        let function = pool.function(Codec::Name, b"");
        let timeout = config.timeout_ms.map(Duration::from_millis);
        let admission = Admission {
            head_bytes_max: config.head_bytes_max,
            headers_max: config.headers_max,
            body_bytes_max: config.body_bytes_max,
        };
        let body_limits =
            BodyLimits { bytes_max: config.body_bytes_max, silence: Duration::from_millis(config.body_timeout_ms) };
        let client_limits = Limits {
            head: Duration::from_millis(config.head_timeout_ms),
            write: Duration::from_millis(config.write_timeout_ms),
            idle: Duration::from_millis(config.keep_alive_ms),
            requests_max: config.connection_requests_max,
        };
        let open = |path: &String| AccessLog::open(path, config.access_log_format).map(Arc::new);
        let access_log = config.access_log.as_ref().map(open).transpose()?;
        let tls = config.tls.as_ref().map(Tls::load).transpose()?;
        let trust = Trust::new(&config.forwarded_allow);
        let flush = Arc::default();
        Ok(ServeFront {
            pool,
            function,
            config,
            timeout,
            admission,
            body_limits,
            client_limits,
            access_log,
            tls,
            trust,
            warnings,
            flush,
        })
    }

    /// Its files were moved away: new ones are begun.
    pub(super) fn reopen_logs(&self) {
        self.access_log.iter().for_each(|log| log.reopen());
    }

    /// Certificate and key are read anew: connections that come are shown these.
    pub(super) fn reload_certificate(&self) -> io::Result<()> {
        self.tls.as_ref().map_or(Ok(()), Tls::reload)
    }

    pub(super) fn binds(&self) -> &[String] {
        &self.config.bind
    }

    /// What comes before HTTP on a connection.
    async fn arrive(&self, arrival: &mut Arrival, mut io: Box<dyn Io>) -> io::Result<Box<dyn Io>> {
        if self.config.proxy_protocol {
            let parties = proxy::read(&mut io).await.inspect_err(|error| {
                self.warnings
                    .tell("PROXY", || format!("fronts.serve.proxy_protocol: a connection was closed: {error}"));
            })?;
            if let Some((client, server)) = parties {
                (arrival.client, arrival.server) = (Some(client), Some(server));
            }
        }
        match &self.tls {
            Some(tls) => Ok(Box::new(tls.accept(io).await?)),
            None => Ok(io),
        }
    }

    fn peer(&self, client: Option<SocketAddr>, server: Option<SocketAddr>) -> Arc<Peer> {
        Arc::new(Peer::new(client, server, self.tls.is_some()))
    }

    /// A line for what became no request.
    fn log(&self, peer: &Arc<Peer>, unheard: Option<Unheard>) {
        if let (Some(log), Some(Unheard { since, status, end })) = (&self.access_log, unheard) {
            log.write(Record::of_nothing(peer, since, status, end));
        }
    }

    /// Has the workers' answers read in the thread that needs them.
    pub(super) fn read_links(&self, thread: &FrontThread) {
        let (handle, pool) = (thread.handle().clone(), Arc::downgrade(&self.pool));
        self.pool.read_with(Box::new(move |link| drop(handle.spawn(links::read(pool.clone(), link)))));
        thread.handle().spawn(links::flush(self.pool.clone(), self.flush.clone()));
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        peer: &Arc<Peer>,
        watch: &Arc<Watch>,
        stay: &Stay,
    ) -> Response<Answer> {
        let mut turn = watch.request(request.version() == Version::HTTP_2);
        let (mut head, mut body) = request.into_parts();
        let forwarded = self.trust.read(peer.from, &head.headers, SystemTime::now());
        if let Some(log) = &self.access_log {
            turn.record(Record::of(peer, &head, &forwarded), log.clone());
        }
        let mut response = match self.admission.check(&head, &body) {
            Ok(()) => self.ask(&mut head, body, Origin { peer, forwarded }, stay, &mut turn).await,
            Err(refused) => {
                if !body.is_end_stream() && !head.headers.contains_key(header::EXPECT) {
                    tokio::spawn(async move { discard(&mut body).await });
                }
                refused.response()
            }
        };
        let goes_on = response.status() == StatusCode::SWITCHING_PROTOCOLS || head.version == Version::HTTP_2;
        if turn.is_last && !goes_on {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let fate = response.extensions_mut().remove::<Fate>();
        turn.answered(response.status().as_u16(), fate.as_ref().map(|fate| fate.end));
        if let Some((kind, words)) = fate.and_then(|fate| fate.warning) {
            self.warnings.tell(kind, || words);
        }
        response.map(|body| Answer::new(body, turn))
    }

    async fn ask(
        &self,
        head: &mut Parts,
        body: Incoming,
        origin: Origin<'_>,
        stay: &Stay,
        turn: &mut Turn,
    ) -> Response<Body> {
        match Handshake::of(head) {
            Ok(None) => self.ask_for_response(head, body, origin, turn).await,
            // What follows would be taken for its body by one server and for frames by another.
            Ok(Some(_)) if !body.is_end_stream() => Refused::with(StatusCode::BAD_REQUEST).response(),
            Ok(Some(handshake)) => self.ask_for_websocket(handshake, head, origin, stay, turn).await,
            Err(answer) => response::refused(*answer),
        }
    }

    async fn ask_for_response(
        &self,
        head: &Parts,
        body: Incoming,
        origin: Origin<'_>,
        turn: &mut Turn,
    ) -> Response<Body> {
        let mut payload = Vec::with_capacity(512);
        request::put_head(&mut payload, head, &origin, 0);
        let body = request::take_ready(body, &mut payload).await;
        let mut exchange = self.submit(payload, body.is_some(), origin.forwarded.waited);
        turn.queued(&exchange);
        let first = match body {
            None => exchange.part().await,
            Some(rest) => {
                let (tell, fault) = oneshot::channel();
                tokio::spawn(request::feed(exchange.feeder(), rest, self.body_limits, tell));
                tokio::select! {
                    biased;
                    Ok(refused) = fault => return refused.response(),
                    first = exchange.part() => first,
                }
            }
        };
        response::of(first, exchange, self.timeout)
    }

    /// A WebSocket, when the app accepts it; else its answer is as to any request.
    async fn ask_for_websocket(
        &self,
        handshake: Handshake,
        head: &mut Parts,
        origin: Origin<'_>,
        stay: &Stay,
        turn: &mut Turn,
    ) -> Response<Body> {
        let mut payload = Vec::with_capacity(512);
        request::put_head(&mut payload, head, &origin, request_flag::WEBSOCKET);
        let mut exchange = self.submit(payload, false, origin.forwarded.waited);
        turn.queued(&exchange);
        let first = exchange.part().await;
        match (response::accepted(&first), head.extensions.remove::<OnUpgrade>()) {
            (Some(answer), Some(upgrade)) => {
                exchange.head_came();
                exchange.mark_endless();
                self.open_websocket(upgrade, exchange, stay.clone());
                handshake.granted(answer)
            }
            _ => response::of(first, exchange, self.timeout),
        }
    }

    /// It keeps the place of its connection, which HTTP knows nothing of any more.
    fn open_websocket(&self, upgrade: OnUpgrade, exchange: Exchange, stay: Stay) {
        let limits =
            websocket::Limits { message_bytes_max: self.config.message_bytes_max, write: self.client_limits.write };
        let flush = self.flush.clone();
        tokio::spawn(async move {
            if let Some(session) = Session::open(upgrade, exchange, limits, flush).await {
                session.run().await;
            }
            drop(stay);
        });
    }

    /// `waited`: before it came to us; it has that much less time.
    fn submit(&self, payload: Vec<u8>, has_input: bool, waited: Duration) -> Exchange {
        let left = self.timeout.map(|timeout| timeout.saturating_sub(waited));
        let deadline = left.and_then(|left| Instant::now().checked_add(left));
        let exchange = Exchange::submit(&self.pool, self.config.disconnect, |reply| Work {
            kind: WorkKind::Request,
            function: self.function,
            payload: Payload::new(Codec::Http, payload),
            deadline,
            priority: 0,
            by_value: false,
            retry: 0,
            items: 0,
            has_input,
            descriptor: None,
            one_value: false,
            reply,
        });
        self.flush.notify_one();
        exchange
    }

    fn builder(&self) -> auto::Builder<TokioExecutor> {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        // The time of heads is kept by the guard: for HTTP/2 too, and apart from that of idle connections.
        // Not with `pipeline_flush`: then the last answer is lost where more was sent than is answered.
        builder.http1().timer(TokioTimer::new()).header_read_timeout(None);
        builder.http1().max_buf_size(self.config.head_bytes_max.max(BUFFER_BYTES_MIN));
        if self.config.headers_max != HEADERS_MAX_OF_HYPER {
            builder.http1().max_headers(self.config.headers_max);
        }
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(self.config.streams_max)
            .max_header_list_size(u32::try_from(self.config.head_bytes_max).unwrap_or(u32::MAX))
            .max_pending_accept_reset_streams(RESET_STREAMS_MAX)
            .max_local_error_reset_streams(RESET_STREAMS_MAX)
            .max_send_buf_size(SEND_BUFFER_BYTES);
        builder
    }
}

impl Front for ServeFront {
    async fn serve(self: Arc<Self>, stream: Stream, stay: Stay) {
        let (mut arrival, io) = Arrival::of(stream, self.tls.is_some() || self.config.proxy_protocol);
        let arrived = tokio::time::timeout(self.client_limits.head, self.arrive(&mut arrival, io)).await;
        let peer = self.peer(arrival.client, arrival.server);
        let io = match arrived {
            Ok(Ok(io)) => io,
            failed => return self.log(&peer, arrival.failed(failed.ok().and_then(Result::err).as_ref())),
        };
        let (builder, watch) = (self.builder(), Watch::new(self.client_limits));
        let io = TokioIo::new(Guarded::new(io, watch.clone()));
        let (front, client, of_requests, place) = (self.clone(), peer.clone(), watch.clone(), stay.clone());
        let service = service_fn(move |request| {
            let (front, peer, watch, stay) = (front.clone(), client.clone(), of_requests.clone(), place.clone());
            async move { Ok::<_, Infallible>(front.answer(request, &peer, &watch, &stay).await) }
        });
        let ended = match watch.drive(pin!(builder.serve_connection_with_upgrades(io, service)), stay).await {
            Some(result) => Ended::of(result),
            None => Ended::Cut,
        };
        self.log(&peer, watch.unheard(ended, arrival.at));
    }

    /// It was told to come later.
    fn turned_away(&self, client: Option<SocketAddr>) {
        let unheard = Unheard { since: Instant::now(), status: Some(503), end: End::Refused };
        self.log(&self.peer(client, None), Some(unheard));
        self.warnings
            .tell("connections", || "fronts.serve.connections_max: a connection was refused with 503".to_owned());
    }

    fn stopping(&self) {
        self.pool.end_endless();
    }
}
