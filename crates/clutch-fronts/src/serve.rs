//! ASGI and WSGI apps over HTTP/1 and HTTP/2: each request becomes work of the pool that runs the app.
//!
//! The listener is the dispatcher's, so that a worker may die, leave or come and no connection notices. Heads are parsed
//! here, bodies pass through in pieces as the app asks for them, and so do messages.
//! docs/serve/ is for its users.

mod body;
mod clocks;
mod held;
mod links;
mod occupied;
mod proxy;
mod request;
mod response;
mod streams;
mod trouble;
mod tunnel;
mod unanswered;
mod underscores;
mod validation;
mod websocket;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use clutch_host::{Address, Context, Front, Reread, Start, Warnings};
use clutch_pool::pool::{Batch, Channels, Exchange, LinkReader, Part, Pool, Terms};
use clutch_pool::work::{FunctionId, Work, WorkKind};
use clutch_wire::descriptor::Descriptor;
use clutch_wire::sync::Mutex;
use clutch_wire::{Codec, Payload};
use hyper::body::{Body as _, Incoming};
use hyper::header::HeaderName;
use hyper::http::request::Parts;
use hyper::upgrade::OnUpgrade;
use hyper::{HeaderMap, Request, Response, StatusCode, Version, header};
use tokio::sync::{Notify, oneshot};

use self::body::{AppBody, Silence};
use self::clocks::Clocks;
use self::occupied::Occupant;
use self::request::{BodyLimits, Origin, Rules};
use self::streams::OpenStream;
use self::tunnel::{AppSocket, First, Tunnel};
use self::unanswered::Unanswered;
use self::underscores::{Taken, Underscores};
use self::validation::Refused;
use self::websocket::{Handshake, Lending, Session};
use crate::account::Fate;
use crate::account::access::Record;
use crate::account::conversation::Conversation;
use crate::account::figures::{Figures, Open};
use crate::account::told::Records;
use crate::account::trace::trace_of;
use crate::app::forwarded::{Forwarded, Trust};
use crate::body::request::discard;
use crate::codec::HEAD;
use crate::codec::http::request_flag;
use crate::config::{ByApp, Dispatch, ServeConfig, Timeout};
use crate::held::holders::{HeldFigures, Holders};
use crate::net::accept::{Accepting, Service, Shortage};
use crate::net::connection::{Connections, Opened, SharedSocket, Turn};
use crate::net::listen::Access;
use crate::net::peer::Peer;
use crate::net::preamble::{self, Arrival};
use crate::net::protocol::Protocol;
use crate::net::stream::{ConnectionPermit, Io, Stream};
use crate::net::thread::FrontThread;
use crate::net::tls::Tls;

/// Limit until a response of a WSGI app begins, unless there is another: gunicorn's, which such apps are used to.
const TIMEOUT_OF_WSGI: Duration = Duration::from_secs(30);

/// By ALPN.
const SPEAKS: &[Protocol] = &[Protocol::Http2, Protocol::Http1];

impl Start for ServeConfig {
    fn connections_max(&mut self) -> Option<&mut usize> {
        Some(&mut self.connection.connections_max)
    }

    fn start(self: Box<Self>, context: &Context) -> clutch_host::Result<Arc<dyn Front>> {
        let runtime = context.runtime()?;
        let _entered = runtime.enter();
        let pool = context.pool(&self.pool)?;
        let threads = (0..self.threads.max(1)).map(FrontThread::start).collect::<io::Result<Vec<_>>>()?;
        threads.iter().for_each(|thread| context.stalls.watch(thread.handle()));
        let (binds, access) = (self.bind.clone(), Access::Mode(self.unix_mode));
        let mut accepting = Accepting::new(self.connection.connections_max);
        let app = Arc::new(App::new(pool.clone(), *self, context)?);
        let channels = app.hold_connections(&threads[0], context);
        for bind in &binds {
            for listeners in threads[0].bind(&context.place(), bind, access, &threads[1..])? {
                for (thread, listener) in threads.iter().zip(listeners) {
                    let _entered = thread.enter();
                    accepting.add(listener, app.clone());
                }
            }
        }
        app.read_links(&threads[0]);
        let (unanswered, warnings) = (Arc::downgrade(&app.unanswered), app.warnings.clone());
        threads[0].handle().spawn(unanswered::watch(app.name().to_owned(), unanswered, pool.clone(), warnings));
        let (threads, channels) = (Mutex::new(threads), Mutex::new(channels));
        Ok(Arc::new(ServeFront { context: context.clone(), accepting, app, pool, threads, channels }))
    }
}

/// A running front that serves one app over HTTP.
struct ServeFront {
    context: Context,
    accepting: Accepting,
    app: Arc<App>,
    pool: Arc<Pool>,
    /// Until the stop, which waits for their end.
    threads: Mutex<Vec<FrontThread>>,
    channels: Mutex<Option<Channels>>,
}

impl Front for ServeFront {
    fn addresses(&self) -> &[Address] {
        self.accepting.addresses()
    }

    fn stop(&self, grace: Duration) {
        self.accepting.stop(grace);
        LinkReader::of(&self.pool).give_back();
        drop(self.channels.lock().take());
        drop(std::mem::take(&mut *self.threads.lock()));
    }

    fn reopen_logs(&self) {
        self.app.connections.access_log.iter().for_each(|log| log.reopen());
    }

    fn reload(&self, pools: &[String]) -> Vec<Reread> {
        let is_asked = pools.contains(&self.pool.config.name);
        let tls = self.app.tls.as_ref().filter(|_| is_asked).map(Tls::reload);
        self.context.reread([("tls", tls)])
    }
}

/// Hands the requests of clients to an app.
struct App {
    pool: Arc<Pool>,
    batch: Arc<Batch>,
    function: FunctionId,
    config: ServeConfig,
    is_wsgi: OnceLock<bool>,
    unanswered: Arc<Unanswered>,
    body_limits: BodyLimits,
    connections: Connections,
    tls: Option<Tls>,
    trust: Arc<Trust>,
    clocks: Clocks,
    underscores: Underscores,
    has_told_of_underscores: AtomicBool,
    has_told_of_dispatch: AtomicBool,
    warnings: Arc<Warnings>,
    /// Told when frames wait to be written.
    flush: Arc<Notify>,
    /// Workers that hold connections; none: the requests are dispatched one by one.
    holders: OnceLock<Arc<Holders>>,
}

impl App {
    /// Fails when the access log cannot be opened.
    fn new(pool: Arc<Pool>, config: ServeConfig, context: &Context) -> io::Result<App> {
        // The app has no name of its own: it is all that its pool runs.
        let function = pool.function(Codec::Name, b"", "request");
        let body_limits = BodyLimits {
            bytes_max: config.body_bytes_max,
            silence: Duration::from_millis(config.connection.body_timeout_ms),
        };
        let mut connections = Connections::new(&config.connection, Figures::telling(context))?;
        connections.limits.requests_max = config.connection_requests_max;
        connections.headers_max = config.headers_max;
        connections.streams_max = config.streams_max;
        let tls = config.connection.tls.as_ref().map(|files| Tls::load(&context.name, files, SPEAKS)).transpose()?;
        let trust = Arc::new(Trust::new(&config.forwarded_allow, config.proxy_protocol));
        let underscores = Underscores::new(config.header_map, &config.forwarder_headers);
        let flush = Arc::default();
        let batch = Batch::new(&pool);
        let warnings = context.warnings.clone();
        Ok(App {
            pool,
            batch,
            function,
            config,
            is_wsgi: OnceLock::new(),
            unanswered: Arc::default(),
            body_limits,
            connections,
            tls,
            trust,
            clocks: Clocks::default(),
            underscores,
            has_told_of_underscores: AtomicBool::new(false),
            has_told_of_dispatch: AtomicBool::new(false),
            warnings,
            flush,
            holders: OnceLock::new(),
        })
    }

    /// As in `[fronts.NAME]`.
    fn name(&self) -> &str {
        &self.connections.figures.front
    }

    /// Until a response begins.
    fn timeout(&self) -> Option<Duration> {
        match self.config.timeout_ms {
            Timeout::After(limit) => limit.map(Duration::from_millis),
            Timeout::ByApp(ByApp::Auto) => self.is_wsgi().unwrap_or(false).then_some(TIMEOUT_OF_WSGI),
        }
    }

    /// None: no worker has told the app's interface yet.
    fn is_wsgi(&self) -> Option<bool> {
        match self.is_wsgi.get() {
            Some(known) => Some(*known),
            None => {
                let is_wsgi = self.pool.status().image.get("interface")?.as_str()? == "wsgi";
                Some(*self.is_wsgi.get_or_init(|| is_wsgi))
            }
        }
    }

    fn silence(&self) -> Option<Silence> {
        let most = self.config.silence_ms.map(Duration::from_millis)?;
        Some(Silence { most, front: self.name().to_owned(), warnings: self.warnings.clone() })
    }

    /// Reads what comes before HTTP on a connection, and decides which HTTP it speaks.
    async fn arrive(&self, arrival: &mut Arrival, mut io: Box<dyn Io>) -> io::Result<(Box<dyn Io>, Protocol)> {
        if self.config.proxy_protocol {
            let parties = proxy::read(&mut io).await.inspect_err(|error| {
                self.warnings.tell("PROXY", || {
                    format!("fronts.{}.proxy_protocol: a connection was closed: {error}", self.name())
                });
            })?;
            if let Some((client, server)) = parties {
                (arrival.client, arrival.server) = (Some(client), Some(server));
            }
        }
        preamble::by_tls(self.tls.as_ref(), io, Protocol::Either).await
    }

    fn peer(&self, client: Option<SocketAddr>, server: Option<SocketAddr>) -> Arc<Peer> {
        Arc::new(Peer::new(client, server, self.tls.is_some()))
    }

    /// Has the workers' answers read in the thread that needs them.
    fn read_links(&self, thread: &FrontThread) {
        let (handle, reader) = (thread.handle().clone(), LinkReader::of(&self.pool));
        let by_thread = reader.clone();
        reader.take_over(Box::new(move |link| drop(handle.spawn(links::read(by_thread.clone(), link)))));
        thread.handle().spawn(links::flush(self.batch.clone(), self.flush.clone()));
    }

    /// Has workers hold connections, where the options allow it. `thread` reads what they say.
    fn hold_connections(self: &Arc<Self>, thread: &FrontThread, context: &Context) -> Option<Channels> {
        let against = held::reasons_against(&self.config, &self.pool.config);
        match self.config.dispatch {
            Dispatch::Connection if against.is_empty() => {}
            // What threads of one worker cost each other is told of requests that are dispatched.
            Dispatch::Auto if against.is_empty() && self.pool.config.shape.threads <= 1 => {}
            Dispatch::Auto | Dispatch::Request => return None,
            Dispatch::Connection => {
                self.tell_of_dispatch(&against);
                return None;
            }
        }
        let (figures, access_log) = (self.connections.figures.clone(), self.connections.access_log.clone());
        let trust = self.trust.clone();
        let forwarded = Box::new(move |record: &mut Record, peer: &Peer, headers: &HeaderMap| {
            let forwarded = trust.read(peer.from, lines(headers), SystemTime::now);
            record.forwarded(forwarded.client, forwarded.is_secure, forwarded.waited);
        });
        let (records, terms) = (Records { figures, access_log, forwarded }, Arc::downgrade(self));
        let holders = Holders::new(&self.pool, held::settings(&self.config), thread.handle().clone(), records, terms);
        let held = HeldFigures { front: context.name.clone(), holders: Arc::downgrade(&holders) };
        context.plane.keep(Arc::new(held));
        let channels = self.pool.open_channels(holders.clone());
        // This is the only one that sets it.
        let _ = self.holders.set(holders);
        Some(channels)
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        peer: &Arc<Peer>,
        turn: &Arc<Turn>,
        permit: &ConnectionPermit,
    ) -> Response<AppBody> {
        let (mut head, body) = request.into_parts();
        let forwarded = self.trust.read(peer.from, lines(&head.headers), SystemTime::now);
        self.connections.keep_record(turn, peer, &head, |record| {
            record.forwarded(forwarded.client, forwarded.is_secure, forwarded.waited);
        });
        let response = match self.admit(&head, &body, &forwarded) {
            Ok(()) => self.ask(&mut head, body, Origin { peer, forwarded }, permit, turn).await,
            Err(refused) => {
                self.warnings.tell(refused.reason(), || refused.words(self.name(), &head));
                drop_unread(&head, body);
                refused.response()
            }
        };
        if let Some(Fate { reason, warning: Some(words), .. }) = response.extensions().get() {
            self.warnings.tell(reason, || words.clone());
        }
        response
    }

    /// Answers a request on a connection for which there is no place.
    fn refuse(
        &self,
        request: Request<Incoming>,
        peer: &Arc<Peer>,
        turn: &Arc<Turn>,
        shortage: Shortage,
    ) -> Response<AppBody> {
        let (head, body) = request.into_parts();
        self.connections.keep_record(turn, peer, &head, |_| ());
        self.warnings.tell(shortage.reason(), || shortage.words(self.name()));
        drop_unread(&head, body);
        response::refused(response::later(StatusCode::SERVICE_UNAVAILABLE), shortage.reason())
    }

    fn put_head(&self, payload: &mut Vec<u8>, head: &Parts, origin: &Origin<'_>, flags: u8) {
        let rules = Rules { root_path: &self.config.root_path, underscores: &self.underscores };
        let Some(name) = request::put_head(payload, head, origin, flags, &rules) else { return };
        if !self.has_told_of_underscores.swap(true, Ordering::Relaxed) {
            self.warnings.note(format!(
                "fronts.{}: the header {name} does not reach the app, as others with an underscore: one could pose as \
                 another. To have it from trusted proxies: --forwarder-headers {}; from anybody: --header-map dangerous \
                 (told once)",
                self.name(),
                name.as_str().to_ascii_uppercase(),
            ));
        }
    }

    fn admit(&self, head: &Parts, body: &Incoming, forwarded: &Forwarded) -> Result<(), Refused> {
        if !self.connections.admits(&head.headers) {
            return Err(Refused::with(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
        }
        let is_refused =
            |name: &HeaderName| self.underscores.takes(name.as_str(), forwarded.is_trusted) == Taken::Refused;
        if head.headers.keys().any(is_refused) {
            return Err(Refused::with(StatusCode::BAD_REQUEST));
        }
        validation::check(head, body, self.config.body_bytes_max)
    }

    async fn ask(
        &self,
        head: &mut Parts,
        body: Incoming,
        origin: Origin<'_>,
        permit: &ConnectionPermit,
        turn: &Arc<Turn>,
    ) -> Response<AppBody> {
        match Handshake::of(head) {
            Ok(None) if !body.is_end_stream() || self.is_wsgi() == Some(false) || !tunnel::is_asked_for(head) => {
                self.ask_for_response(head, body, origin, turn).await
            }
            // What follows would be taken for its body by one server and for frames by another.
            Ok(Some(_)) if !body.is_end_stream() => Refused::with(StatusCode::BAD_REQUEST).response(),
            Ok(handshake) => self.ask_for_upgrade(handshake, head, origin, permit, turn).await,
            Err(answer) => response::refused(*answer, "malformed"),
        }
    }

    async fn ask_for_response(
        &self,
        head: &Parts,
        body: Incoming,
        origin: Origin<'_>,
        turn: &Arc<Turn>,
    ) -> Response<AppBody> {
        let Some(at_work) = self.begin_work(head.version, turn) else { return response::too_many_streams(self.name()) };
        let mut payload = Vec::with_capacity(512);
        self.put_head(&mut payload, head, &origin, 0);
        let body = request::take_ready(head, body, &mut payload).await;
        let waited = origin.forwarded.waited;
        let asked = Asked { payload, has_input: body.is_some(), waited, at_work, descriptor: None };
        let mut exchange = self.submit(head, asked);
        turn.account().queued(exchange.queue_time());
        let waits = self.timeout().is_none().then(|| self.unanswered.wait(exchange.id(), Instant::now()));
        let first = match body {
            None => exchange.part().await,
            Some(rest) => {
                let (tell, fault) = oneshot::channel();
                tokio::spawn(request::feed(exchange.input(), rest, self.body_limits, tell));
                tokio::select! {
                    biased;
                    Ok(refused) = fault => return refused.response(),
                    first = exchange.part() => first,
                }
            }
        };
        drop(waits);
        response::route_of(&first).into_iter().for_each(|route| turn.account().is_by_route(route));
        let shown = self.pool.config.development.then(|| trouble::page(&first, &head.headers)).flatten();
        shown.unwrap_or_else(|| self.response_of(first, exchange))
    }

    /// Another protocol, when the app grants it: a WebSocket that is spoken here, or whatever a WSGI app speaks on a socket
    /// of its own. Else its answer is as to any request.
    async fn ask_for_upgrade(
        &self,
        handshake: Option<Handshake>,
        head: &mut Parts,
        origin: Origin<'_>,
        permit: &ConnectionPermit,
        turn: &Arc<Turn>,
    ) -> Response<AppBody> {
        let pair = (self.is_wsgi() != Some(false)).then(AppSocket::pair).transpose();
        let Ok(pair) = pair else { return response::no_descriptor(self.name()) };
        let (socket, descriptor) = pair.unzip();
        let bare = handshake.iter().filter(|_| socket.is_none()).find_map(|_| turn.connection().share());
        let mut flags = if handshake.is_some() { request_flag::WEBSOCKET } else { 0 };
        let lends = bare.is_some();
        flags |= if lends { request_flag::LENDS } else { 0 };
        let mut payload = Vec::with_capacity(512);
        self.put_head(&mut payload, head, &origin, flags);
        let descriptor = descriptor.or_else(|| bare.map(|copy| Arc::new(Descriptor::borrowed(copy))));
        let waited = origin.forwarded.waited;
        let asked = Asked { payload, has_input: false, waited, at_work: None, descriptor };
        let mut exchange = self.submit(head, asked);
        turn.account().queued(exchange.queue_time());
        let waits = self.timeout().is_none().then(|| self.unanswered.wait(exchange.id(), Instant::now()));
        let first = match socket {
            None => First::Part(exchange.part().await, exchange),
            Some(socket) => socket.first(exchange).await,
        };
        drop(waits);
        let upgrade = head.extensions.remove::<OnUpgrade>();
        let (first, exchange) = match first {
            First::Part(first, exchange) => (first, exchange),
            First::Head(answer, tunnel) => {
                return tunnel::answer(answer, tunnel, upgrade, |upgrade, tunnel| {
                    self.open_tunnel(upgrade, tunnel, permit.clone(), turn.account().converses());
                });
            }
            First::Wrong(why) => return response::wrong_words(self.name(), &why),
        };
        match (response::accepted(&first), upgrade, handshake) {
            (Some(answer), Some(upgrade), Some(handshake)) => {
                exchange.head_came();
                exchange.mark_endless();
                let is_lent = lends && response::is_spoken_by_worker(&first);
                let line = (turn.connection().take_shared(), is_lent.then(|| origin.peer.from.is_some()));
                let accepted = (exchange, turn.account().converses());
                self.open_websocket(upgrade, accepted, permit.clone(), line);
                handshake.granted(answer)
            }
            _ => self.response_of(first, exchange),
        }
    }

    fn response_of(&self, first: Part, exchange: Exchange) -> Response<AppBody> {
        let occupy = || self.occupy(Occupant::EventStream);
        response::of(first, exchange, self.silence(), self.name(), occupy)
    }

    /// As a WebSocket's.
    fn open_tunnel(
        &self,
        upgrade: OnUpgrade,
        tunnel: Tunnel,
        mut permit: ConnectionPermit,
        conversation: Option<Arc<Conversation>>,
    ) {
        let (patience, open) = (self.connections.limits.write, self.occupy(Occupant::WebSocket));
        tokio::spawn(async move {
            let ended = tunnel.run(upgrade, patience, &mut permit).await;
            conversation.into_iter().for_each(|conversation| conversation.ends_as(ended));
            drop(open);
        });
    }

    fn occupy(&self, occupant: Occupant) -> Open {
        occupied::occupy(occupant, &self.connections.figures, &self.pool, &self.warnings)
    }

    /// Keeps the place of its connection, which HTTP knows nothing of any more.
    /// `shared`: its socket, if the worker has a copy of that. `lent`: it is used there, and whether it is of TCP.
    fn open_websocket(
        &self,
        upgrade: OnUpgrade,
        (exchange, conversation): (Exchange, Option<Arc<Conversation>>),
        mut permit: ConnectionPermit,
        (shared, lent): (Option<SharedSocket>, Option<bool>),
    ) {
        let time = Duration::from_millis;
        let limits = websocket::SessionLimits {
            message_bytes_max: self.config.message_bytes_max,
            write: self.connections.limits.write,
            ping: self.config.ping_interval_ms.map(|interval| (time(interval), time(self.config.ping_timeout_ms))),
        };
        let (flush, open) = (self.flush.clone(), self.occupy(Occupant::WebSocket));
        tokio::spawn(async move {
            let ended = if let (Some(socket), Some(is_tcp)) = (&shared, lent) {
                match Lending::open(upgrade, exchange, limits, flush, (socket, is_tcp)).await {
                    Some(lending) => lending.run(&mut permit).await,
                    None => websocket::lost_at_once(),
                }
            } else {
                match Session::open(upgrade, exchange, limits, flush).await {
                    Some(session) => session.run(&mut permit).await,
                    None => websocket::lost_at_once(),
                }
            };
            conversation.into_iter().for_each(|conversation| conversation.ends_as(ended));
            drop(open);
        });
    }

    /// Counts a request as work of its HTTP/2 connection, which has at most as much at work as it may have streams. A
    /// stream that is reset ends, and the work that it began may go on. Returns None if the connection has reached that
    /// limit.
    fn begin_work(&self, version: Version, turn: &Turn) -> Option<Option<OpenStream>> {
        match version {
            Version::HTTP_2 => OpenStream::begin(&turn.connection().at_work, self.config.streams_max).map(Some),
            _ => Some(None),
        }
    }

    fn submit(&self, head: &Parts, asked: Asked) -> Exchange {
        let Asked { payload, has_input, waited, at_work, descriptor } = asked;
        let trace = trace_of(&head.headers, &self.pool);
        let left = self.timeout().map(|timeout| self.clocks.left(self.name(), timeout, waited, &self.warnings));
        let deadline = left.and_then(|left| Instant::now().checked_add(left));
        let held = at_work.map(|stream| Box::new(stream) as Box<dyn Send>);
        let terms = Terms { disconnect: self.config.disconnect, describe: request::describe, held, ..Terms::default() };
        let exchange = Exchange::submit(&self.batch, terms, |reply| Work {
            deadline,
            has_input,
            descriptor,
            trace,
            ..Work::new(WorkKind::REQUEST, self.function, Payload::new(HEAD, payload), reply)
        });
        self.flush.notify_one();
        exchange
    }
}

/// Names and values.
fn lines(headers: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
}

/// Reads what the client of a refused request is still sending.
fn drop_unread(head: &Parts, mut body: Incoming) {
    if !body.is_end_stream() && !head.headers.contains_key(header::EXPECT) {
        tokio::spawn(async move { discard(&mut body).await });
    }
}

/// A request for the app, beside its head.
struct Asked {
    payload: Vec<u8>,
    has_input: bool,
    /// Time that it has waited before it came to us; it has that much less.
    waited: Duration,
    at_work: Option<OpenStream>,
    /// The app's end of a socket.
    descriptor: Option<Arc<Descriptor>>,
}

impl App {
    /// Tells once that options keep workers from holding connections.
    fn tell_of_dispatch(&self, against: &[&str]) {
        if self.has_told_of_dispatch.swap(true, Ordering::Relaxed) {
            return;
        }
        self.warnings.note(format!(
            "fronts.{}.dispatch: connection has no effect with {}: each request is dispatched by itself; leave that out, \
             or set dispatch = \"request\" (told once)",
            self.name(),
            against.join(", ")
        ));
    }

    /// Serves a connection to its end, request by request. `head_since`: when the first bytes of its first head came.
    async fn serve_here(self: Arc<Self>, stream: Stream, mut permit: ConnectionPermit, head_since: Option<Instant>) {
        let Stream { io, client, server, descriptor, .. } = stream;
        let opened = self.connections.open(io, &permit);
        if self.tls.is_none() {
            opened.watch.is_on(descriptor);
        }
        head_since.into_iter().for_each(|since| opened.head_since(since));
        let Opened { io, watch } = opened;
        let (mut arrival, io) = Arrival::of(io, client, server, self.tls.is_some() || self.config.proxy_protocol);
        let arrived = preamble::in_time(&self.connections, &mut permit, self.arrive(&mut arrival, io)).await;
        let peer = self.peer(arrival.client, arrival.server);
        let (io, protocol) = match arrived {
            Ok(arrived) => arrived,
            Err(error) => return arrival.end(error.as_ref(), &peer, &self.connections, &self.warnings),
        };
        let (front, client, place) = (self.clone(), peer.clone(), permit.clone());
        let answer = move |request, turn| {
            let (front, peer, permit) = (front.clone(), client.clone(), place.clone());
            async move {
                match permit.shortage() {
                    None => front.answer(request, &peer, &turn, &permit).await,
                    Some(shortage) => front.refuse(request, &peer, &turn, shortage),
                }
            }
        };
        let closed = self.connections.serve(Opened { io, watch }, protocol, permit, answer).await;
        self.connections.ended(&peer, &closed, &self.warnings);
    }
}

impl Service for App {
    async fn serve(self: Arc<Self>, stream: Stream, permit: ConnectionPermit) {
        match self.holders.get().filter(|_| permit.shortage().is_none()).cloned() {
            Some(holders) => held::serve(self, holders, stream, permit).await,
            None => self.serve_here(stream, permit, None).await,
        }
    }

    fn figures(&self) -> &Arc<Figures> {
        &self.connections.figures
    }

    fn warnings(&self) -> &Warnings {
        &self.warnings
    }

    /// HTTP is spoken from the first byte on.
    fn is_plain(&self) -> bool {
        self.tls.is_none()
    }

    fn refusal(&self, _: Shortage) -> Vec<u8> {
        response::last_words(StatusCode::SERVICE_UNAVAILABLE, false)
    }

    /// The client was told to come later.
    fn turned_away(&self, client: Option<SocketAddr>, shortage: Shortage) {
        let status = Some(503).filter(|_| self.is_plain());
        self.connections.turned_away(&self.peer(client, None), status, shortage, &self.warnings);
    }

    fn stopping(&self) {
        self.holders.get().into_iter().for_each(|holders| holders.stop());
        self.pool.end_endless();
    }
}
