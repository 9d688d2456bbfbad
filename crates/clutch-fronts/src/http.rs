//! Calls over HTTP: `POST /pools/{pool}/tools/{tool}` with a JSON object of arguments. (What there is to call is told by
//! discovery.rs; the page to try it is in page.rs.)
//!
//! Parses what the head says, hands the body to the pool as it came (the worker validates it), and answers with the
//! result, the lines of a stream, or a problem document. A client that goes away gives its call up. docs/http.md is the
//! page for callers.

mod call_headers;
mod catalog;
mod discovery;
mod framing;
mod lines;
mod openapi;
mod page;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_host::{Address, Context, Front, Reread, Start, Warnings};
use clutch_pool::pool::state::queue::PRIORITY_MAX;
use clutch_pool::pool::{Exchange, Part, Pool, Terms};
use clutch_pool::work::{Outcome, Work, WorkKind};
use clutch_wire::frame::INLINE_BYTES_MAX;
use clutch_wire::{Codec, Payload};
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, EXPECT, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response};

use crate::account::Fate;
use crate::account::access::REQUEST_ID;
use crate::account::figures::{End, Figures};
use crate::account::trace::trace_of;
use crate::body::problem::Problem;
use crate::body::request::{collect, discard};
use crate::body::{Body, with_type};
use crate::config::HttpConfig;
use crate::http::call_headers::Told;
use crate::http::catalog::{Catalog, Entry, View};
use crate::http::discovery::Discovery;
use crate::http::framing::Framing;
use crate::http::lines::{CallContext, Lines};
use crate::names::decode;
use crate::net::accept::{Accepting, Service, Shortage};
use crate::net::access_control::{AccessControl, Guard};
use crate::net::connection::{Connections, Opened, Turn};
use crate::net::cors::Cors;
use crate::net::listen::{Access, Listener, bind_all, refuse_unguarded};
use crate::net::peer::Peer;
use crate::net::preamble::{self, Arrival};
use crate::net::protocol::Protocol;
use crate::net::stream::{ConnectionPermit, Stream};
use crate::net::tls::Tls;
use crate::net::tokens::Tokens;

/// Longest duration that `Clutch-Timeout` may ask for.
const TIMEOUT_MAX: Duration = Duration::from_secs(366 * 86_400);

const RESULT_START: &[u8] = b"{\"result\":";

/// By ALPN.
const SPEAKS: &[Protocol] = &[Protocol::Http1];

impl Start for HttpConfig {
    fn connections_max(&mut self) -> Option<&mut usize> {
        Some(&mut self.connection.connections_max)
    }

    fn start(self: Box<Self>, context: &Context) -> clutch_host::Result<Arc<dyn Front>> {
        let runtime = context.runtime()?;
        let _entered = runtime.enter();
        let place = context.place();
        let listeners = bind_all(&place, &self.bind, Access::Owner)?;
        let may_be_open =
            self.token.is_some() || self.token_file.is_some() || self.connection.tls.is_some() || self.insecure;
        for (bind, listener) in self.bind.iter().zip(&listeners) {
            refuse_unguarded(&place, bind, listener.address(), may_be_open)?;
        }
        let services = CallService::of_all(&self, &listeners, context)?;
        let first =
            services.first().cloned().ok_or_else(|| io::Error::other(format!("{place}.bind names no address")))?;
        let mut accepting = Accepting::new(self.connection.connections_max);
        listeners.into_iter().zip(services).for_each(|(listener, service)| accepting.add(listener, service));
        Ok(Arc::new(HttpFront { context: context.clone(), accepting, first }))
    }
}

/// A running front for calls over HTTP.
struct HttpFront {
    context: Context,
    accepting: Accepting,
    /// At the first of its addresses.
    first: Arc<CallService>,
}

impl Front for HttpFront {
    fn addresses(&self) -> &[Address] {
        self.accepting.addresses()
    }

    fn stop(&self, grace: Duration) {
        self.accepting.stop(grace);
    }

    fn reopen_logs(&self) {
        self.first.connections.access_log.iter().for_each(|log| log.reopen());
    }

    fn reload(&self, _pools: &[String]) -> Vec<Reread> {
        let tls = self.first.tls.as_ref().map(|tls| tls.reload());
        let tokens = self.first.access_control.tokens().and_then(|tokens| tokens.reload());
        self.context.reread([("tls", tls), ("token_file", tokens)])
    }

    fn token(&self) -> Option<String> {
        self.first.access_control.tokens()?.first()
    }
}

/// Serves calls at one of the front's addresses.
struct CallService {
    catalog: Arc<Catalog>,
    discovery: Arc<Discovery>,
    access_control: AccessControl,
    connections: Arc<Connections>,
    tls: Option<Arc<Tls>>,
    warnings: Arc<Warnings>,
    passed_on: Arc<[HeaderName]>,
    body_bytes_max: u64,
    body_time: Duration,
}

impl CallService {
    /// Makes one for each address. Fails when the access log, or another of its files, cannot be opened.
    fn of_all(config: &HttpConfig, listeners: &[Listener], context: &Context) -> io::Result<Vec<Arc<CallService>>> {
        let (name, warnings) = (&context.name, &context.warnings);
        let connections = Arc::new(Connections::new(&config.connection, Figures::telling(context))?);
        let tls = config.connection.tls.as_ref().map(|files| Tls::load(name, files, SPEAKS)).transpose()?.map(Arc::new);
        let catalog = Arc::new(Catalog::new(&context.pools, config.pools.as_deref()));
        let pools = Some(catalog.names().map(str::to_owned).collect());
        let tokens = Tokens::new(name, config.token.as_deref(), config.token_file.as_deref(), pools, warnings)?;
        // The configuration has checked the names.
        let passed_on: Arc<[_]> = config.pass_headers.iter().filter_map(|name| name.parse().ok()).collect();
        let option = format!("{}.cors_origins", context.place());
        let cors = Some(Arc::new(Cors::new(&option, &config.cors_origins, &passed_on)));
        let guard = Guard { tokens, has_tls: tls.is_some(), sessions: None, cors };
        let discovery = Arc::new(Discovery::new(&config.pass_headers));
        let services = config.bind.iter().zip(listeners).map(|(bind, listener)| {
            Arc::new(CallService {
                catalog: catalog.clone(),
                discovery: discovery.clone(),
                access_control: AccessControl::new(bind, listener.address(), guard.clone()),
                connections: connections.clone(),
                tls: tls.clone(),
                warnings: warnings.clone(),
                passed_on: passed_on.clone(),
                body_bytes_max: config.body_bytes_max,
                body_time: Duration::from_millis(config.connection.body_timeout_ms),
            })
        });
        Ok(services.collect())
    }

    /// `shortage`: why it is to be refused.
    async fn answer(
        &self,
        request: Request<Incoming>,
        peer: &Arc<Peer>,
        turn: &Arc<Turn>,
        shortage: Option<Shortage>,
    ) -> Response<Body> {
        let (mut head, mut body) = request.into_parts();
        let is_admitted = self.connections.admits(&head.headers);
        let id = call_headers::settle_id(&mut head.headers);
        self.connections.keep_record(turn, peer, &head, |_| ());
        let answered = match shortage {
            Some(shortage) => {
                self.warnings.tell(shortage.reason(), || shortage.words(&self.connections.figures.front));
                Err(Problem::no_place(shortage))
            }
            None if is_admitted => self.call(&head, &mut body, turn).await,
            None => Err(Problem::head_too_large(self.connections.head_bytes_max, self.connections.headers_max)),
        };
        let mut response = match answered {
            Ok(response) => response,
            Err(problem) => {
                if !body.is_end_stream() && !head.headers.contains_key(EXPECT) {
                    discard(&mut body).await;
                }
                problem.response()
            }
        };
        if let Some(shortage) = shortage {
            let fate = Fate { end: End::Refused, reason: shortage.reason(), warning: None };
            response.extensions_mut().insert(fate);
        }
        response.headers_mut().insert(REQUEST_ID, id);
        self.access_control.mark(&head, response.headers_mut());
        response
    }

    async fn call(&self, head: &Parts, body: &mut Incoming, turn: &Arc<Turn>) -> Result<Response<Body>, Box<Problem>> {
        if let Some(granted) = self.access_control.preflight(head)? {
            return Ok(granted);
        }
        if let Some(part) = page::part_of(head) {
            self.access_control.check_origin(head)?;
            return part.response(head);
        }
        let holder = self.access_control.check(head)?;
        holder.name.iter().for_each(|name| turn.account().is_by(name));
        let view = View { catalog: &self.catalog, holder: &holder };
        if let Some(response) = self.discovery.response(head, view, self.access_control.tokens().is_some()) {
            return response;
        }
        let (entry, tool) = target(head, view)?;
        if head.method != Method::POST {
            return Err(Problem::method_not_allowed("POST"));
        }
        check_media_type(&head.headers)?;
        let options = CallOptions::of(&head.headers, &entry.pool)?;
        let function = entry.function(&tool)?;
        let body = self.read(body, &entry.pool).await?;
        let told = Told { caller: holder.name.as_deref(), passed_on: &self.passed_on };
        let payload = payload(&head.headers, &told, &body, &entry.pool)?;
        let trace = trace_of(&head.headers, &entry.pool);
        let mut exchange = Exchange::submit(&entry.batch, Terms::default(), |reply| Work {
            deadline: options.deadline,
            priority: options.priority,
            trace,
            ..Work::new(WorkKind::CALL, function, payload, reply)
        });
        entry.batch.flush();
        turn.account().queued(exchange.queue_time());
        let first = exchange.part().await;
        let id = head.headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).unwrap_or_default();
        let context = || CallContext {
            turn: turn.clone(),
            warnings: self.warnings.clone(),
            what: format!("{}.{tool} (request {id})", entry.pool.config.name),
            local: self.access_control.is_local(),
            framing: Framing::asked(&head.headers),
        };
        respond(first, exchange, context)
    }

    async fn read(&self, body: &mut Incoming, pool: &Pool) -> Result<Vec<u8>, Box<Problem>> {
        let bytes_max = self.body_bytes_max.min(pool.config.payload_bytes_max);
        match tokio::time::timeout(self.body_time, collect(body, bytes_max)).await {
            Ok(collected) => collected,
            Err(_) => Err(Problem::body_too_slow(self.body_time.as_secs_f64())),
        }
    }
}

/// The pool and the tool that a path names.
fn target<'a>(head: &Parts, view: View<'a>) -> Result<(&'a Entry, String), Box<Problem>> {
    let path = head.uri.path();
    let names = path.strip_prefix("/pools/").and_then(|rest| rest.split_once("/tools/"));
    let decoded = names.and_then(|(pool, tool)| Some((decode(pool)?, decode(tool)?)));
    match decoded {
        Some((pool, tool)) => Ok((view.pool(&pool)?, tool)),
        None => Err(Problem::no_such_path(
            "calls are POST /pools/{pool}/tools/{tool}; GET / in a browser is a page to try them; \
             GET /openapi.json describes them",
        )),
    }
}

fn respond(
    first: Part,
    exchange: Exchange,
    context: impl FnOnce() -> CallContext,
) -> Result<Response<Body>, Box<Problem>> {
    match first {
        Part::End(Outcome::Value(payload)) if payload.form.codec == Codec::Json => Ok(result(&payload)),
        Part::End(Outcome::Value(payload)) if payload.form.codec != Codec::Empty => Err(Problem::not_json()),
        Part::End(ref outcome @ (Outcome::Failure(_) | Outcome::Refused(_))) => {
            Err(context().problem(outcome).unwrap_or_else(Problem::not_json))
        }
        part => {
            let context = context();
            let framing = context.framing;
            let mut response = with_type(framing.media_type(), Lines::new(part, exchange, context).into_body());
            framing.mark(response.headers_mut());
            Ok(response)
        }
    }
}

impl Service for CallService {
    async fn serve(self: Arc<Self>, stream: Stream, mut permit: ConnectionPermit) {
        let Stream { io, client, server, .. } = stream;
        let peer = Arc::new(Peer::new(client, server, self.tls.is_some()));
        let Opened { io, watch } = self.connections.open(io, &permit);
        let (arrival, io) = Arrival::of(io, client, server, self.tls.is_some());
        let handshake = preamble::by_tls(self.tls.as_deref(), io, Protocol::Http1);
        let (io, protocol) = match preamble::in_time(&self.connections, &mut permit, handshake).await {
            Ok(arrived) => arrived,
            Err(error) => return arrival.end(error.as_ref(), &peer, &self.connections, &self.warnings),
        };
        let (front, client, shortage) = (self.clone(), peer.clone(), permit.shortage());
        let answer = move |request, turn| {
            let (front, peer) = (front.clone(), client.clone());
            async move { front.answer(request, &peer, &turn, shortage).await }
        };
        let closed = self.connections.serve(Opened { io, watch }, protocol, permit, answer).await;
        self.connections.ended(&peer, &closed, &self.warnings);
    }

    /// HTTP is spoken from the first byte on.
    fn is_plain(&self) -> bool {
        self.tls.is_none()
    }

    fn refusal(&self, shortage: Shortage) -> Vec<u8> {
        Problem::no_place(shortage).last_words()
    }

    /// The client was told to come later.
    fn turned_away(&self, client: Option<SocketAddr>, shortage: Shortage) {
        let peer = Arc::new(Peer::new(client, None, self.tls.is_some()));
        self.connections.turned_away(&peer, Some(503).filter(|_| self.is_plain()), shortage, &self.warnings);
    }

    fn figures(&self) -> &Arc<Figures> {
        &self.connections.figures
    }

    fn warnings(&self) -> &Warnings {
        &self.warnings
    }
}

/// Options of a call that its head asks for.
#[derive(Debug)]
struct CallOptions {
    deadline: Option<Instant>,
    priority: i8,
}

impl CallOptions {
    fn of(headers: &HeaderMap, pool: &Pool) -> Result<CallOptions, Box<Problem>> {
        let wished = headers.get("clutch-timeout").map(timeout).transpose()?;
        let deadline = wished.or(pool.config.deadline()).and_then(|time| Instant::now().checked_add(time));
        let priority = headers.get("clutch-priority").map_or(Ok(0), priority)?;
        Ok(CallOptions { deadline, priority })
    }
}

/// `2.5s`, `250ms`, or plain seconds.
fn timeout(value: &HeaderValue) -> Result<Duration, Box<Problem>> {
    let given = value.to_str().unwrap_or_default().trim();
    let (number, unit_s) = match given.strip_suffix("ms") {
        Some(number) => (number, 0.001),
        None => (given.strip_suffix('s').unwrap_or(given), 1.0),
    };
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let seconds = is_number.then(|| number.parse::<f64>().ok()).flatten().map(|number| number * unit_s);
    match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(time) if !time.is_zero() && time <= TIMEOUT_MAX => Ok(time),
        _ => Err(Problem::bad_request("Clutch-Timeout must be like 2.5s or 250ms: more than zero, a year at most")),
    }
}

fn priority(value: &HeaderValue) -> Result<i8, Box<Problem>> {
    let given = value.to_str().ok().and_then(|text| text.trim().parse::<i8>().ok());
    given
        .filter(|priority| (-PRIORITY_MAX..=PRIORITY_MAX).contains(priority))
        .ok_or_else(|| Problem::bad_request("Clutch-Priority must be a whole number from -9 to 9"))
}

/// JSON in UTF-8 and nothing else: a type that a web page may not send without asking first.
fn check_media_type(headers: &HeaderMap) -> Result<(), Box<Problem>> {
    let given = headers.get(CONTENT_TYPE).map(|value| value.to_str().unwrap_or("?"));
    if !given.is_some_and(is_json) {
        let given = given.unwrap_or("not given");
        return Err(Problem::unsupported_media_type(format!("Content-Type must be application/json; it is {given}")));
    }
    match headers.get(CONTENT_ENCODING) {
        Some(encoding) if !encoding.as_bytes().eq_ignore_ascii_case(b"identity") => {
            Err(Problem::unsupported_media_type("a body with a Content-Encoding is not accepted"))
        }
        _ => Ok(()),
    }
}

fn is_json(media_type: &str) -> bool {
    let mut parts = media_type.split(';').map(str::trim);
    let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("application/json"));
    named && parts.all(is_utf8_or_no_charset)
}

fn is_utf8_or_no_charset(parameter: &str) -> bool {
    match parameter.split_once('=') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
            let value = value.trim().trim_matches('"');
            value.eq_ignore_ascii_case("utf-8") || value.eq_ignore_ascii_case("utf8")
        }
        _ => true,
    }
}

/// Headers and body as the pool takes them: large bodies go through shared memory.
fn payload(headers: &HeaderMap, told: &Told<'_>, body: &[u8], pool: &Pool) -> Result<Payload, Box<Problem>> {
    let is_inline = body.len() <= INLINE_BYTES_MAX;
    let mut payload = Payload::new(Codec::Headed, Vec::with_capacity(256 + if is_inline { body.len() } else { 0 }));
    call_headers::put(headers, told, &mut payload.inline)?;
    if is_inline {
        payload.inline.extend_from_slice(body);
    } else {
        payload.leases.push(Arc::new(pool.regions().store(body).map_err(Problem::no_room)?));
    }
    Ok(payload)
}

fn result(payload: &Payload) -> Response<Body> {
    let value = payload.body();
    let mut document = Vec::with_capacity(RESULT_START.len() + value.len() + 1);
    document.extend_from_slice(RESULT_START);
    document.extend_from_slice(value);
    document.push(b'}');
    with_type("application/json", Body::from(document))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_and_wrong_ones_refused() {
        let read = |text: &'static str| timeout(&HeaderValue::from_static(text)).ok();
        assert_eq!(read("2.5s"), Some(Duration::from_millis(2500)));
        assert_eq!(read("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(read("3"), Some(Duration::from_secs(3)));
        for wrong in ["", "s", "ms", "0", "-1s", "+1s", "1e3", "inf", "nan", "1m", "1 h", "..", "99999999999s", "2.5 s"]
        {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn priorities_run_from_minus_nine_to_nine() {
        let read = |text: &'static str| priority(&HeaderValue::from_static(text)).ok();
        assert_eq!((read("-9"), read("9"), read("0")), (Some(-9), Some(9), Some(0)));
        assert_eq!((read("10"), read("-10"), read("x"), read("1.5")), (None, None, None, None));
    }

    #[test]
    fn only_json_in_utf8_is_json() {
        for right in ["application/json", "Application/JSON; charset=utf-8", "application/json;charset=\"UTF-8\""] {
            assert!(is_json(right), "{right}");
        }
        for wrong in ["text/plain", "application/jsonx", "application/json; charset=latin1", "", "json"] {
            assert!(!is_json(wrong), "{wrong}");
        }
    }
}
