//! WebSockets: the handshake, which is the app's to grant, and the conversation after it.
//!
//! One task moves the messages of one connection both ways: from the app as the client takes them, from the client as the
//! app takes them. What is ready together is written together. The library keeps the protocol; it reads and writes only
//! what is there.

mod lending;

use std::future::{Future, poll_fn};
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use clutch_pool::pool::{Exchange, Part};
use clutch_pool::work::{Outcome, Refusal};
use clutch_wire::{Codec, Failure, Form};
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS,
    SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::request::Parts;
use hyper::upgrade::OnUpgrade;
use hyper::{HeaderMap, Method, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::upgrade::downcast;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Sleep;
use tungstenite::error::ProtocolError;
use tungstenite::handshake::derive_accept_key;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, Role, WebSocketConfig, WebSocketContext};
use tungstenite::{Error, Message, Utf8Bytes};

pub(super) use self::lending::Lending;
use super::body::{AppBody, bytes_of};
use super::response;
use crate::account::conversation::ConversationEnd;
use crate::account::figures::End;
use crate::codec::http::credit_of;
use crate::codec::websocket::{self, GIVE_BACK, code};
use crate::codec::{CLOSE, TEXT};
use crate::net::connection::Guarded;
use crate::net::stream::{ConnectionPermit, Io};

/// The only version there is.
const VERSION: &str = "13";

/// Bytes read from a connection at a time; each connection has a buffer of this size.
const READ_BYTES: usize = 4 << 10;

/// Bytes gathered before they are written, when more is ready.
const WRITE_BYTES: usize = 64 << 10;

/// Maximum time that a client has to answer the close frame.
const CLOSING_MAX: Duration = Duration::from_secs(5);

// ---- the handshake

/// A client's wish.
#[derive(Debug)]
pub(super) struct Handshake {
    /// Value of Sec-WebSocket-Accept, which proves to the client that its request was understood.
    accept: HeaderValue,
}

impl Handshake {
    /// The wish in a request's head; none: it is a plain request. An answer where the wish makes no sense.
    pub(super) fn of(head: &Parts) -> Result<Option<Handshake>, Box<Response<AppBody>>> {
        let wants = head.method == Method::GET
            && head.version == Version::HTTP_11
            && names(&head.headers, &CONNECTION, "upgrade")
            && names(&head.headers, &UPGRADE, "websocket");
        if !wants {
            return Ok(None);
        }
        if head.headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != VERSION) {
            return Err(Box::new(other_version()));
        }
        let mut keys = head.headers.get_all(SEC_WEBSOCKET_KEY).iter();
        let key = keys.next().filter(|key| is_key(key.as_bytes()) && keys.next().is_none());
        let accept = key.and_then(|key| HeaderValue::try_from(derive_accept_key(key.as_bytes())).ok());
        let wrong = || Box::new(response::plain(StatusCode::BAD_REQUEST));
        accept.map(|accept| Some(Handshake { accept })).ok_or_else(wrong)
    }

    /// The answer that opens the conversation. What is the protocol's own in it is not the app's to say.
    pub(super) fn granted(self, mut answer: Response<AppBody>) -> Response<AppBody> {
        let headers = answer.headers_mut();
        for name in [CONTENT_LENGTH, TRANSFER_ENCODING, SEC_WEBSOCKET_EXTENSIONS] {
            headers.remove(name);
        }
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_ACCEPT, self.accept);
        answer
    }
}

/// Whether a header's list has this word in it.
pub(super) fn names(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|given| given.trim().eq_ignore_ascii_case(word))
}

/// 16 bytes in base64.
fn is_key(key: &[u8]) -> bool {
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    key.len() == 24 && key.ends_with(b"==") && key[..22].iter().all(is_digit)
}

fn other_version() -> Response<AppBody> {
    let mut answer = response::plain(StatusCode::UPGRADE_REQUIRED);
    answer.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION));
    answer
}

// ---- the conversation

/// End of a conversation.
#[derive(Debug)]
enum SessionEnd {
    /// The client is told, and the app knows already. `end`: as the access log has it.
    Tell { code: u16, reason: String, end: End },
    /// The client has said so, and the app is told.
    Told { code: u16, reason: String },
    /// The client broke the protocol: both are told.
    Broken(u16),
    /// The connection is lost.
    Lost,
}

/// The bytes of a connection.
struct SessionIo {
    io: Box<dyn Io>,
    /// What a worker has not sent goes before all else.
    unsent: Bytes,
    /// The client has taken something since this was looked at, or said something.
    went: bool,
    came: bool,
}

/// A connection, for one turn of its task: what is not there is not waited for.
struct NonBlockingIo<'a, 'b> {
    line: &'a mut SessionIo,
    context: &'a mut Context<'b>,
}

fn now<T>(poll: Poll<io::Result<T>>) -> io::Result<T> {
    match poll {
        Poll::Ready(done) => done,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl Read for NonBlockingIo<'_, '_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(bytes);
        now(Pin::new(&mut self.line.io).poll_read(self.context, &mut buffer))?;
        self.line.came |= !buffer.filled().is_empty();
        Ok(buffer.filled().len())
    }
}

impl NonBlockingIo<'_, '_> {
    fn write_unsent(&mut self) -> io::Result<()> {
        while !self.line.unsent.is_empty() {
            let count = now(Pin::new(&mut self.line.io).poll_write(self.context, &self.line.unsent))?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.line.unsent.advance(count);
            self.line.went = true;
        }
        Ok(())
    }
}

impl Write for NonBlockingIo<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_unsent()?;
        let count = now(Pin::new(&mut self.line.io).poll_write(self.context, bytes))?;
        self.line.went = true;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_unsent()?;
        now(Pin::new(&mut self.line.io).poll_flush(self.context))
    }
}

fn is_blocked(error: &Error) -> bool {
    matches!(error, Error::Io(error) if error.kind() == io::ErrorKind::WouldBlock)
}

/// An accepted WebSocket.
pub(super) struct Session {
    line: SessionIo,
    protocol: WebSocketContext,
    exchange: Exchange,
    /// Told when frames wait to be written to workers.
    flush: Arc<Notify>,
    /// Credit for messages that the connection has taken, not given back yet.
    owed: u32,
    /// The connection took no more; what is left goes first.
    is_full: bool,
    /// Something waits to be written to the client.
    is_dirty: bool,
    /// Bytes of the app's messages that the connection, or a worker that had it, has taken.
    sent: u64,
    limits: SessionLimits,
    /// Rings when the client has taken nothing for too long.
    stalled: Option<Pin<Box<Sleep>>>,
    heartbeat: Option<Heartbeat>,
}

/// Asks now and then whether the client is still there: a proxy between us closes what is silent for long, and a client
/// that has vanished says nothing.
struct Heartbeat {
    interval: Duration,
    /// Maximum time to wait for an answer.
    patience: Duration,
    /// Rings when a ping is due, or an answer overdue.
    alarm: Pin<Box<Sleep>>,
    is_asked: bool,
}

impl Heartbeat {
    fn new(interval: Duration, patience: Duration) -> Heartbeat {
        Heartbeat { interval, patience, alarm: Box::pin(tokio::time::sleep(interval)), is_asked: false }
    }

    /// Something was heard of the client.
    fn heard(&mut self) {
        if std::mem::take(&mut self.is_asked) {
            self.ring_after(self.interval);
        }
    }

    /// A ping is on its way.
    fn asked(&mut self) {
        self.is_asked = true;
        self.ring_after(self.patience);
    }

    fn ring_after(&mut self, time: Duration) {
        self.alarm.as_mut().reset(tokio::time::Instant::now() + time);
    }
}

/// Limits of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionLimits {
    pub(super) message_bytes_max: usize,
    /// Maximum time that the client may take nothing of what is for it.
    pub(super) write: Duration,
    /// Interval between pings, and maximum time to answer one. None: no pings.
    pub(super) ping: Option<(Duration, Duration)>,
}

impl Session {
    /// From the connection that HTTP has let go of. None: it was lost on the way.
    pub(super) async fn open(
        upgrade: OnUpgrade,
        exchange: Exchange,
        limits: SessionLimits,
        flush: Arc<Notify>,
    ) -> Option<Session> {
        let parts = downcast::<TokioIo<Guarded>>(upgrade.await.ok()?).ok()?;
        let protocol = protocol_from(parts.read_buf.to_vec(), &limits);
        Some(Session::new(parts.io.into_inner().unguarded(), protocol, exchange, limits, flush))
    }

    fn new(
        io: Box<dyn Io>,
        protocol: WebSocketContext,
        exchange: Exchange,
        limits: SessionLimits,
        flush: Arc<Notify>,
    ) -> Session {
        let line = SessionIo { io, unsent: Bytes::new(), went: false, came: false };
        let (is_full, is_dirty, stalled) = (false, false, None);
        let heartbeat = limits.ping.map(|(interval, patience)| Heartbeat::new(interval, patience));
        Session { line, protocol, exchange, flush, owed: 0, is_full, is_dirty, sent: 0, limits, stalled, heartbeat }
    }

    pub(super) async fn run(mut self, permit: &mut ConnectionPermit) -> ConversationEnd {
        let end = poll_fn(|context| self.poll(context)).await;
        self.end(end, permit).await
    }

    /// Tells both sides of the end, as far as they do not know.
    async fn end(mut self, end: SessionEnd, permit: &mut ConnectionPermit) -> ConversationEnd {
        let ended = end.for_the_log(self.sent);
        let told = match &end {
            SessionEnd::Tell { .. } => None,
            SessionEnd::Told { code, reason } => Some((*code, reason.as_str())),
            SessionEnd::Broken(code) => Some((*code, "")),
            SessionEnd::Lost => Some((code::LOST, "")),
        };
        if let Some((code, reason)) = told {
            self.exchange.feed(CLOSE, &websocket::close(code, reason), 0);
            self.flush.notify_one();
        }
        if !matches!(end, SessionEnd::Lost) {
            // Whoever closed it has had its say: nobody is cancelled for that.
            self.exchange.answered();
            // A client that does not hear it in time is cut off.
            let _ = tokio::time::timeout(CLOSING_MAX, self.close(end, permit)).await;
        }
        ended
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<SessionEnd> {
        loop {
            if let Some(end) = self.send(context) {
                return Poll::Ready(end);
            }
            let was_full = self.is_full;
            if let Err(end) = self.write_out(context) {
                return Poll::Ready(end);
            }
            if let Some(end) = self.receive(context).or_else(|| self.beat(context)) {
                return Poll::Ready(end);
            }
            if !was_full || self.is_full {
                return self.poll_stalled(context);
            }
        }
    }

    /// Until the client has taken nothing for too long.
    fn poll_stalled(&mut self, context: &mut Context<'_>) -> Poll<SessionEnd> {
        let went = std::mem::take(&mut self.line.went);
        if went || !self.is_dirty {
            self.stalled = None;
        }
        if !self.is_dirty {
            return Poll::Pending;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.limits.write)));
        stalled.as_mut().poll(context).map(|()| SessionEnd::Lost)
    }

    /// Messages of the app to the client, as long as it takes them.
    fn send(&mut self, context: &mut Context<'_>) -> Option<SessionEnd> {
        while !self.is_full {
            let Poll::Ready(part) = self.exchange.poll_part(context) else { break };
            let payload = match part {
                Part::Chunk(payload) => payload,
                Part::End(outcome) => return Some(end_of(&outcome)),
            };
            let bytes = payload.bytes_total();
            let cost = credit_of(bytes);
            let message = match payload.form {
                CLOSE => {
                    let (code, reason) = websocket::read_close(payload.body());
                    return Some(closed_by_app(code, reason));
                }
                TEXT => match Utf8Bytes::try_from(bytes_of(payload)) {
                    Ok(text) => Message::Text(text),
                    Err(_) => {
                        let (code, end) = (code::FAILED, End::BrokenOff);
                        return Some(SessionEnd::Tell { code, reason: String::new(), end });
                    }
                },
                _ => Message::Binary(bytes_of(payload)),
            };
            if let Err(end) = self.put(context, message) {
                return Some(end);
            }
            (self.owed, self.sent) = (self.owed + cost, self.sent + bytes);
        }
        self.give_back();
        None
    }

    /// Gives back credit for what the connection has taken, but not for what it still holds.
    fn give_back(&mut self) {
        if self.owed >= GIVE_BACK && !self.is_full {
            self.exchange.give_credit(std::mem::take(&mut self.owed));
            self.flush.notify_one();
        }
    }

    fn put(&mut self, context: &mut Context<'_>, message: Message) -> Result<(), SessionEnd> {
        self.is_dirty = true;
        match self.protocol.write(&mut NonBlockingIo { line: &mut self.line, context }, message) {
            Ok(()) => Ok(()),
            Err(error) if is_blocked(&error) => {
                self.is_full = true;
                Ok(())
            }
            Err(error) => Err(end_of_error(&error)),
        }
    }

    fn write_out(&mut self, context: &mut Context<'_>) -> Result<(), SessionEnd> {
        if !self.is_dirty {
            return Ok(());
        }
        match self.protocol.flush(&mut NonBlockingIo { line: &mut self.line, context }) {
            Ok(()) => {
                (self.is_dirty, self.is_full) = (false, false);
                Ok(())
            }
            Err(error) if is_blocked(&error) => Ok(()),
            Err(error) => Err(end_of_error(&error)),
        }
    }

    /// Messages of the client to the app, as long as it takes them. A client that takes no answers to its pings is not read
    /// either: they would wait here for as long as it likes.
    fn receive(&mut self, context: &mut Context<'_>) -> Option<SessionEnd> {
        while !self.is_dirty && self.exchange.poll_wanted(context).is_ready() {
            let message = match self.protocol.read(&mut NonBlockingIo { line: &mut self.line, context }) {
                Ok(message) => message,
                Err(error) if is_blocked(&error) => return None,
                Err(error) => return Some(end_of_error(&error)),
            };
            match message {
                Message::Text(text) => self.feed(TEXT, text.as_bytes()),
                Message::Binary(bytes) => self.feed(Codec::Bytes.into(), &bytes),
                Message::Close(frame) => return Some(told_by(frame)),
                // The answer goes first.
                Message::Ping(_) => {
                    self.is_dirty = true;
                    if let Err(end) = self.write_out(context) {
                        return Some(end);
                    }
                }
                Message::Pong(_) | Message::Frame(_) => {}
            }
        }
        None
    }

    /// Asks whether the client is there. Its silence counts where it is listened to.
    fn beat(&mut self, context: &mut Context<'_>) -> Option<SessionEnd> {
        let came = std::mem::take(&mut self.line.came);
        loop {
            let heartbeat = self.heartbeat.as_mut()?;
            if came {
                heartbeat.heard();
            }
            if heartbeat.alarm.as_mut().poll(context).is_pending() {
                return None;
            }
            let is_read = !self.is_dirty && self.exchange.poll_wanted(context).is_ready();
            if heartbeat.is_asked && is_read {
                return Some(SessionEnd::Lost);
            }
            if is_read {
                heartbeat.asked();
            } else {
                // The answer is not read, but a peer that is gone shows when it is written to.
                heartbeat.is_asked = false;
                heartbeat.ring_after(heartbeat.interval);
            }
            if self.is_dirty {
                continue;
            }
            let pinged = self.put(context, Message::Ping(Bytes::new())).and_then(|()| self.write_out(context));
            if let Err(end) = pinged {
                return Some(end);
            }
        }
    }

    fn feed(&mut self, form: Form, bytes: &[u8]) {
        self.exchange.feed(form, bytes, credit_of(bytes.len() as u64));
        self.flush.notify_one();
    }

    /// Tells the client, waits until it has heard, though not for long when the front stops, and lets the connection go.
    async fn close(&mut self, end: SessionEnd, permit: &mut ConnectionPermit) {
        let is_broken = matches!(end, SessionEnd::Broken(_));
        match end {
            SessionEnd::Tell { code, reason, .. } => self.say_close(code, reason).await,
            SessionEnd::Broken(code) => self.say_close(code, String::new()).await,
            SessionEnd::Told { .. } => self.answer_close().await,
            SessionEnd::Lost => {}
        }
        let heard = async {
            match is_broken {
                true => self.linger().await,
                false => poll_fn(|context| self.poll_heard(context)).await,
            }
        };
        tokio::select! {
            () = heard => {}
            () = permit.leave_insisted() => {}
        }
        // It is closed either way.
        let _ = self.line.io.shutdown().await;
    }

    /// The client's close frame is answered before its end is read, which may be there.
    async fn answer_close(&mut self) {
        poll_fn(|context| match self.protocol.flush(&mut NonBlockingIo { line: &mut self.line, context }) {
            Err(error) if is_blocked(&error) => Poll::Pending,
            _ => Poll::Ready(()),
        })
        .await;
    }

    async fn say_close(&mut self, code: u16, reason: String) {
        let frame = CloseFrame { code: CloseCode::from(code), reason: Utf8Bytes::from(reason) };
        let mut message = Some(Message::Close(Some(frame)));
        poll_fn(|context| {
            let put = message.take().map_or(Ok(()), |message| self.put(context, message));
            // A client that cannot be told knows that the connection is lost.
            match put.and_then(|()| self.write_out(context)) {
                Ok(()) if self.is_dirty => Poll::Pending,
                _ => Poll::Ready(()),
            }
        })
        .await;
    }

    /// Until the client has closed its side too: what it says meanwhile is for nobody.
    fn poll_heard(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            match self.protocol.read(&mut NonBlockingIo { line: &mut self.line, context }) {
                Ok(_) => {}
                Err(error) if is_blocked(&error) => return Poll::Pending,
                Err(_) => return Poll::Ready(()),
            }
        }
    }

    /// Reads on for a while: closing on unread bytes would take the last words away from the client.
    async fn linger(&mut self) {
        let _ = self.line.io.shutdown().await;
        let mut bytes = [0; 4096];
        while matches!(self.line.io.read(&mut bytes).await, Ok(count) if count > 0) {}
    }
}

/// `read`: bytes of the client that were read before.
fn protocol_from(read: Vec<u8>, limits: &SessionLimits) -> WebSocketContext {
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .write_buffer_size(WRITE_BYTES)
        .max_message_size(Some(limits.message_bytes_max))
        .max_frame_size(Some(limits.message_bytes_max));
    WebSocketContext::from_partially_read(read, Role::Server, Some(config))
}

fn told_by(frame: Option<CloseFrame>) -> SessionEnd {
    match frame {
        Some(frame) => SessionEnd::Told { code: frame.code.into(), reason: frame.reason.as_str().to_owned() },
        None => SessionEnd::Told { code: code::NONE, reason: String::new() },
    }
}

fn end_of_error(error: &Error) -> SessionEnd {
    match error {
        Error::Capacity(_) => SessionEnd::Broken(CloseCode::Size.into()),
        Error::Utf8(_) => SessionEnd::Broken(CloseCode::Invalid.into()),
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => SessionEnd::Lost,
        Error::Protocol(_) => SessionEnd::Broken(CloseCode::Protocol.into()),
        _ => SessionEnd::Lost,
    }
}

/// The app has ended, and has not closed it.
fn end_of(outcome: &Outcome) -> SessionEnd {
    let (code, reason, end) = match outcome {
        Outcome::Value(_) => (code::NORMAL, "", End::Whole),
        Outcome::Refused(Refusal::Draining { .. }) => (code::RESTART, "restart", End::Stopped),
        Outcome::Failure(failure) if matches!(**failure, Failure::WorkerLost { .. }) => {
            (code::FAILED, "worker lost", End::WorkerLost)
        }
        Outcome::Failure(_) | Outcome::Refused(_) => (code::FAILED, "", End::BrokenOff),
    };
    SessionEnd::Tell { code, reason: reason.to_owned(), end }
}

/// The worker's side has closed it: for the app, or because the worker is to end.
fn closed_by_app(code: u16, reason: &str) -> SessionEnd {
    let end = if code == code::RESTART { End::Stopped } else { End::Whole };
    SessionEnd::Tell { code, reason: reason.to_owned(), end }
}

impl SessionEnd {
    /// `bytes`: of messages, that the client was sent.
    fn for_the_log(&self, bytes: u64) -> ConversationEnd {
        let (code, end) = match self {
            SessionEnd::Tell { code, end, .. } => (*code, *end),
            SessionEnd::Told { code, .. } => (*code, End::Whole),
            SessionEnd::Broken(code) => (*code, End::ClientGone),
            SessionEnd::Lost => (code::LOST, End::ClientGone),
        };
        ConversationEnd { end, bytes, close_code: Some(code) }
    }
}

/// End of a WebSocket whose client was lost before a message could be sent.
pub(super) fn lost_at_once() -> ConversationEnd {
    SessionEnd::Lost.for_the_log(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(lines: &[(&str, &str)]) -> Parts {
        let mut request = hyper::Request::builder().method("GET").uri("/");
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    const KEY: (&str, &str) = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    const ASKS: [(&str, &str); 2] = [("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")];

    fn status(lines: &[(&str, &str)]) -> Option<u16> {
        let asked = [&ASKS[..], lines].concat();
        Handshake::of(&head(&asked)).err().map(|answer| answer.status().as_u16())
    }

    #[test]
    fn a_wish_is_understood_whatever_its_case_and_its_company() {
        let asked = [&ASKS[..], &[KEY, ("sec-websocket-version", "13")]].concat();
        let handshake = Handshake::of(&head(&asked)).ok().flatten().expect("a wish");
        assert_eq!(handshake.accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn a_request_that_wishes_for_nothing_is_left_alone() {
        for lines in [&ASKS[..1], &ASKS[1..], &[("connection", "upgrade"), ("upgrade", "h2c")]] {
            assert!(matches!(Handshake::of(&head(lines)), Ok(None)), "{lines:?}");
        }
    }

    #[test]
    fn a_wish_that_makes_no_sense_is_answered() {
        let version = ("sec-websocket-version", "13");
        assert_eq!(status(&[KEY, ("sec-websocket-version", "8")]), Some(426));
        assert_eq!(status(&[KEY]), Some(426));
        assert_eq!(status(&[version]), Some(400));
        assert_eq!(status(&[version, ("sec-websocket-key", "short")]), Some(400));
    }
}
