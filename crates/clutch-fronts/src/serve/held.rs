//! The life of a connection under `dispatch = "connection"`: it waits here, a worker has it, or it is served here to its end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_host::Warnings;
use clutch_pool::config::{Disconnect, PoolConfig};
use clutch_pool::work::{FunctionId, Outcome, Refusal, WorkId};
use clutch_wire::sys;
use hyper::StatusCode;
use tokio_util::either::Either;

use super::occupied::Occupant;
use super::{App, request, response};
use crate::account::Fate;
use crate::account::figures::End;
use crate::account::told::EndedHere;
use crate::app::plain::Limits;
use crate::config::{HeaderMap, ServeConfig};
use crate::held::holder::{Passed, Passing};
use crate::held::holders::Holders;
use crate::held::ledger::BEGINNING_BYTES;
use crate::held::life::{Life, Next};
use crate::held::message::{FIRST_BYTES_MAX, Settings};
use crate::held::news::{Asked, Lost, News, Returned, Unanswered, Verdict};
use crate::held::terms::Terms;
use crate::net::accept::turn_away;
use crate::net::connection::Unheard;
use crate::net::peer::Peer;
use crate::net::stream::{Begun, ConnectionPermit, Socket, Stream, linger, socket_of, unwatched, watched};

/// Options of a front that workers cannot keep by themselves: its requests are dispatched one by one.
pub(super) fn reasons_against(config: &ServeConfig, pool: &PoolConfig) -> Vec<&'static str> {
    let reasons = [
        (config.connection.tls.is_some(), "tls"),
        (config.proxy_protocol, "proxy_protocol"),
        (config.connection_requests_max.is_some(), "connection_requests_max"),
        (config.disconnect != Disconnect::Tell, "disconnect"),
        (config.header_map != HeaderMap::Drop, "header_map"),
        (pool.development, "--reload"),
        // The pool does not see how busy its workers are with what they take by themselves.
        (pool.workers_min < pool.shape.workers, "a range of workers"),
    ];
    reasons.into_iter().filter_map(|(holds, option)| holds.then_some(option)).collect()
}

/// What workers have to know of a front.
pub(super) fn settings(config: &ServeConfig) -> Settings {
    let body_bytes_max = config.body_bytes_max.unwrap_or(u64::MAX);
    Settings {
        head_bytes_max: config.connection.head_bytes_max,
        headers_max: config.headers_max,
        body_bytes_max: usize::try_from(body_bytes_max).unwrap_or(usize::MAX),
        root_path: config.root_path.clone(),
        write_timeout_ms: config.connection.write_timeout_ms,
        wants_heads: config.connection.access_log.is_some(),
        forwarded_allow: config.forwarded_allow.clone(),
        words: Vec::new(),
    }
}

/// Serves a connection to its end, by workers as far as they take it.
pub(super) async fn serve(app: Arc<App>, holders: Arc<Holders>, stream: Stream, permit: ConnectionPermit) {
    let Stream { io, client, server, .. } = stream;
    let socket = match socket_of(io) {
        Ok(socket) => socket,
        Err(io) => return app.serve_here(Stream { io, ..stream }, permit, None).await,
    };
    let peer = app.peer(client, server);
    // A copy of it hears that it is to leave when this one has, too.
    let (connection, unasked) = (Connection { app: &app, holders: &holders, peer }, permit.clone());
    let Some((socket, life)) = connection.run(socket, permit).await else { return };
    let (bytes, since) = life.into_bytes();
    let io = Box::new(Begun::new(bytes, socket));
    app.serve_here(Stream { io, ..stream }, unasked, since).await;
}

/// Status of a response that its worker does not tell of.
enum Status {
    /// The worker has begun with it.
    Begun(u16),
    /// The front answers in its place.
    Ours(StatusCode),
}

/// A connection of a front.
struct Connection<'a> {
    app: &'a App,
    holders: &'a Holders,
    peer: Arc<Peer>,
}

impl Connection<'_> {
    /// Returns what is left to be served here; none: it has ended.
    async fn run(&self, mut socket: Socket, mut permit: ConnectionPermit) -> Option<(Socket, Life)> {
        let settings = self.holders.settings();
        let limits = Limits::within(settings.head_bytes_max, settings.headers_max, settings.body_bytes_max);
        let mut life = Life::new(limits, Instant::now());
        let mut next = Next::Wait;
        loop {
            next = match next {
                Next::Wait => self.wait(&socket, &mut life, &mut permit).await,
                Next::Serve => return Some((socket, life)),
                Next::Pass => {
                    let passed = match self.pass(unwatched(socket).ok()?, &life) {
                        Ok(passed) => passed,
                        Err(socket) => return Some((self.watched(socket).ok()?, life)),
                    };
                    let (news, back) = self.returned(passed, &mut life, &mut permit).await?;
                    let is_head = self.tell_of(&news, life.bytes());
                    let next = life.returned(news, Instant::now());
                    if matches!(next, Next::Close | Next::Cut) {
                        // The worker may not have closed its copy yet.
                        sys::hang_up(back.as_fd());
                        return None;
                    }
                    socket = self.watched(back).ok()?;
                    if let Next::Tell(status) = next {
                        turn_away(socket, &response::last_words(status, is_head)).await;
                        return None;
                    }
                    next
                }
                Next::Linger => {
                    tokio::select! {
                        () = linger(socket) => {}
                        () = permit.leave_insisted() => {}
                    }
                    return None;
                }
                Next::Close | Next::Cut | Next::Tell(_) => return None,
            };
        }
    }

    fn watched(&self, socket: OwnedFd) -> io::Result<Socket> {
        watched(socket, self.peer.from.is_some())
    }

    /// Waits for bytes of the client, for as long as it may take.
    async fn wait(&self, socket: &Socket, life: &mut Life, permit: &mut ConnectionPermit) -> Next {
        let limits = &self.app.connections.limits;
        let deadline = life.deadline(limits.idle, limits.head);
        loop {
            tokio::select! {
                biased;
                ready = readable(socket) => {
                    // Not kept while it waits: there may be many.
                    let mut bytes = [0; FIRST_BYTES_MAX];
                    match ready.and_then(|()| try_read(socket, &mut bytes[..life.room()])) {
                        Ok(count @ 1..) => return life.came(&bytes[..count], Instant::now()),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        _ => return self.left(life),
                    }
                }
                () = permit.leave_asked() => return life.leave(),
                () = until(deadline) => return match life.late() {
                    Next::Close => self.left(life),
                    next => next,
                },
            }
        }
    }

    /// The client has gone, or has had its time.
    fn left(&self, life: &Life) -> Next {
        let unheard = life.head_since().map(|since| Unheard { since, status: None, end: End::ClientGone });
        self.app.connections.tell(&self.peer, unheard);
        Next::Close
    }

    fn pass(&self, socket: OwnedFd, life: &Life) -> Result<Passed, OwnedFd> {
        // Before its interface is known no worker is ready.
        if self.app.is_wsgi().is_none() {
            return Err(socket);
        }
        let bytes = life.bytes();
        let passed = self.holders.pass(socket, &Passing { peer: &self.peer, bytes })?;
        self.app.connections.figures.received(bytes.len());
        Ok(passed)
    }

    /// Waits until it comes back from its worker; when it is to leave, it is taken as soon as nothing runs on it.
    async fn returned(&self, passed: Passed, life: &mut Life, permit: &mut ConnectionPermit) -> Option<Returned> {
        let mut held = HeldConnection { passed, connection: self, life };
        tokio::select! {
            biased;
            returned = held.passed.returned() => return returned,
            () = permit.leave_asked() => held.life.leave_later(),
        }
        match held.passed.take() {
            Some(taken) => Some(taken),
            None => held.passed.returned().await,
        }
    }

    /// A figure, a line and perhaps a warning for a request that ended without its worker. `passed`: what came with its
    /// connection. Returns whether the request was HEAD, and so has no body in its response.
    fn tell_of(&self, news: &News, passed: &[u8]) -> bool {
        let of = |asked: &Asked| asked.with(passed);
        let (asked, status, end, after) = match news {
            News::Lost(Lost { is_answering, status, after, asked, cut }) => {
                let status = match is_answering {
                    true => status.map(Status::Begun),
                    false => Some(Status::Ours(StatusCode::BAD_GATEWAY)),
                };
                if cut.is_none() {
                    self.app.connections.figures.told("worker-lost");
                }
                (asked.as_ref().map(of).unwrap_or_default(), status, cut.unwrap_or(End::WorkerLost), *after)
            }
            News::Unanswered(unanswered) => {
                let Unanswered { asked, after, verdict: Verdict { status, fate } } = &**unanswered;
                fate.iter().for_each(|fate| self.app.tell_of(fate));
                (of(asked), Some(Status::Ours(*status)), fate.as_ref().map_or(End::Whole, |fate| fate.end), *after)
            }
            _ => return false,
        };
        let is_head = asked.starts_with(b"HEAD ");
        self.tell_end(&asked, status, end, after);
        is_head
    }

    fn tell_end(&self, asked: &[u8], status: Option<Status>, end: End, after: Duration) {
        let is_head = asked.starts_with(b"HEAD ");
        let (status, bytes) = match status {
            None => (None, 0),
            Some(Status::Begun(status)) => (Some(status), 0),
            Some(Status::Ours(status)) if is_head => (Some(status.as_u16()), 0),
            Some(Status::Ours(status)) => (Some(status.as_u16()), response::body_of(status).len() as u64),
        };
        let ended = EndedHere { status, end, after, bytes };
        self.holders.records().ended_here(asked, &self.peer, &ended);
    }
}

impl App {
    /// A figure and a warning for a request that its app did not answer.
    fn tell_of(&self, fate: &Fate) {
        self.connections.figures.told(fate.reason);
        if let Some(words) = &fate.warning {
            self.warnings.tell(fate.reason, || words.clone());
        }
    }
}

impl Terms for App {
    fn function(&self) -> FunctionId {
        self.function
    }

    fn is_wsgi(&self) -> Option<bool> {
        self.is_wsgi()
    }

    fn timeout(&self) -> Option<Duration> {
        self.timeout()
    }

    fn silence(&self) -> Option<Duration> {
        self.config.silence_ms.map(Duration::from_millis)
    }

    fn describe(&self, beginning: &[u8; BEGINNING_BYTES]) -> String {
        request::describe_beginning(beginning, &self.config.root_path)
    }

    fn wait(&self, id: WorkId, since: Instant) -> Box<dyn Send> {
        Box::new(self.unanswered.wait(id, since))
    }

    fn endless(&self) -> Box<dyn Send> {
        Box::new(self.occupy(Occupant::EventStream))
    }

    fn warnings(&self) -> Arc<Warnings> {
        self.warnings.clone()
    }

    fn verdict(&self, outcome: Option<&Outcome>) -> Verdict {
        response::verdict(outcome, self.name())
    }

    fn cut_off(&self, outcome: &Outcome) -> End {
        let Outcome::Refused(Refusal::Expired(expired)) = outcome else { return End::BrokenOff };
        if let Some(silence) = App::silence(self) {
            silence.tell(expired);
        }
        End::Timeout
    }
}

/// A connection that a worker holds: dropped, it is cut off, as when the grace of a stop is over.
struct HeldConnection<'a> {
    passed: Passed,
    connection: &'a Connection<'a>,
    life: &'a mut Life,
}

impl Drop for HeldConnection<'_> {
    fn drop(&mut self) {
        if let Some(Lost { status, after, asked: Some(asked), .. }) = self.passed.cut() {
            let asked = asked.with(self.life.bytes());
            self.connection.tell_end(&asked, status.map(Status::Begun), End::Stopped, after);
            let app = self.connection.app;
            let what = || request::describe_beginning(&asked, &app.config.root_path);
            app.connections.figures.tell_cut(after, what);
        }
    }
}

async fn readable(socket: &Socket) -> io::Result<()> {
    match socket {
        Either::Left(tcp) => tcp.readable().await,
        Either::Right(unix) => unix.readable().await,
    }
}

fn try_read(socket: &Socket, bytes: &mut [u8]) -> io::Result<usize> {
    match socket {
        Either::Left(tcp) => tcp.try_read(bytes),
        Either::Right(unix) => unix.try_read(bytes),
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
