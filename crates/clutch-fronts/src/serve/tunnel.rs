//! Sockets for WSGI apps that speak a protocol of their own after an upgrade, such as WebSockets by Flask-SocketIO or
//! flask-sock.
//!
//! One end of a socketpair goes to the worker along with the request; what the app writes on it in place of a response
//! comes here, and goes to the client. So TLS, limits and figures stay those of the front, and the connection outlives no
//! worker unnoticed. An app that does not use its socket answers as to any request.

use std::io;
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use clutch_pool::pool::{Exchange, Part};
use clutch_pool::work::Outcome;
use clutch_wire::descriptor::Descriptor;
use clutch_wire::sys;
use hyper::ext::ReasonPhrase;
use hyper::header::{CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use hyper::http::request::Parts;
use hyper::upgrade::OnUpgrade;
use hyper::{Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::upgrade::downcast;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use super::body::AppBody;
use super::response;
use super::websocket::names;
use crate::account::BrokenOff;
use crate::account::conversation::ConversationEnd;
use crate::account::figures::End;
use crate::codec::http::credit_of;
use crate::net::connection::Guarded;
use crate::net::stream::ConnectionPermit;

/// Bytes that are on their way in one direction, beside what sockets hold.
const PIECE_BYTES: usize = 8 << 10;

/// Largest head that an app may write.
const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 100;

/// Characters of a head that is none, as they are shown.
const SHOWN_MAX: usize = 80;

/// Maximum time that a client has to close its side, once the app has closed.
const CLOSING_MAX: Duration = Duration::from_secs(5);

/// Whether a client asks for another protocol, in a way that an app could grant. HTTP/2 is the front's to speak.
pub(super) fn is_asked_for(head: &Parts) -> bool {
    head.version == Version::HTTP_11
        && names(&head.headers, &CONNECTION, "upgrade")
        && head.headers.contains_key(UPGRADE)
        && !names(&head.headers, &UPGRADE, "h2c")
        && head.extensions.get::<OnUpgrade>().is_some()
}

/// Our end of a socket that an app has, or will have.
pub(super) struct AppSocket(UnixStream);

/// The first that an app says.
pub(super) enum First {
    /// It answers as to any request.
    Part(Part, Exchange),
    /// It has written the head of a response on its socket.
    Head(Response<AppBody>, Tunnel),
    /// It has written something else there. The words say what, and why it is none.
    Wrong(String),
}

impl AppSocket {
    /// Makes a pair. The other end is for a worker.
    pub(super) fn pair() -> io::Result<(AppSocket, Arc<Descriptor>)> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        Ok((AppSocket(UnixStream::from_std(ours)?), Arc::new(Descriptor::new(theirs.into()))))
    }

    pub(super) async fn first(self, mut exchange: Exchange) -> First {
        let mut bytes = Vec::new();
        // The end of the work.
        let mut end = None;
        loop {
            tokio::select! {
                biased;
                count = self.read_some(&mut bytes), if end.is_none() || self.has_more() => match Head::read(&bytes) {
                    Ok(Some(head)) => {
                        let rest = Bytes::copy_from_slice(&bytes[head.bytes..]);
                        let (read, write) = self.0.into_split();
                        let from_app = FromApp { socket: read, exchange, is_over: end.is_some() };
                        return First::Head(head.response, Tunnel { from_app, to_app: write, rest });
                    }
                    Err(why) => return First::Wrong(wrong(&bytes, why)),
                    Ok(None) if count == 0 && bytes.is_empty() => return First::Part(exchange.part().await, exchange),
                    Ok(None) if count == 0 => break,
                    Ok(None) => {}
                },
                part = exchange.part(), if end.is_none() => {
                    if bytes.is_empty() && !self.has_more() {
                        return First::Part(part, exchange);
                    }
                    end = is_end(&exchange, &part).then_some(part);
                }
                else => break,
            }
        }
        // A worker that is lost closes its sockets before its loss is known here.
        let end = match end {
            Some(end) => end,
            None => exchange.part().await,
        };
        match end {
            Part::End(Outcome::Value(_)) | Part::Chunk(_) => {
                First::Wrong(wrong(&bytes, "it ends before its head does"))
            }
            cut => First::Part(cut, exchange),
        }
    }

    /// Reads what there is; 0: no more comes.
    async fn read_some(&self, bytes: &mut Vec<u8>) -> usize {
        loop {
            // It is at its end.
            let Ok(()) = self.0.readable().await else { return 0 };
            match self.0.try_read_buf(bytes) {
                Ok(count) => return count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return 0,
            }
        }
    }

    /// Whether there is something to read, asked of the kernel: the runtime may not have heard of it yet.
    fn has_more(&self) -> bool {
        sys::has_bytes(self.0.as_fd())
    }
}

/// Takes what an app says by its link after it has taken its socket. Returns whether that is the end of the work.
fn is_end(exchange: &Exchange, part: &Part) -> bool {
    match part {
        Part::Chunk(payload) => {
            exchange.give_credit_now(credit_of(payload.bytes_total()));
            false
        }
        Part::End(_) => true,
    }
}

fn wrong(bytes: &[u8], why: &str) -> String {
    let start: String = String::from_utf8_lossy(bytes).chars().take(SHOWN_MAX).collect();
    format!(
        "the app has written on the socket of its environ what is no response of HTTP/1.1: {why}: {}",
        start.escape_default()
    )
}

/// A response's head as an app has written it, and its length.
struct Head {
    response: Response<AppBody>,
    bytes: usize,
}

impl Head {
    /// None: it is not whole yet.
    fn read(bytes: &[u8]) -> Result<Option<Head>, &'static str> {
        let mut lines = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut parsed = httparse::Response::new(&mut lines);
        let count = match parsed.parse(bytes) {
            Ok(httparse::Status::Complete(count)) => count,
            Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Ok(None),
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                return Err("its head is too large");
            }
            Err(_) => return Err("its head is malformed"),
        };
        Head::of(&parsed).map(|response| Some(Head { response, bytes: count })).ok_or("its head is not understood")
    }

    /// None: there is a status or a header in it that nobody could send, a length that is none or is given twice, or a body
    /// whose end only its parts tell.
    fn of(parsed: &httparse::Response<'_, '_>) -> Option<Response<AppBody>> {
        let mut response = Response::new(AppBody::from(Bytes::new()));
        *response.status_mut() = StatusCode::from_u16(parsed.code?).ok()?;
        let is_switch = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if response.status().is_informational() && !is_switch {
            return None;
        }
        if let Some(reason) = parsed.reason.filter(|reason| Some(*reason) != response.status().canonical_reason()) {
            response.extensions_mut().insert(ReasonPhrase::try_from(reason.as_bytes()).ok()?);
        }
        for line in parsed.headers.iter() {
            let (name, value) = (HeaderName::try_from(line.name).ok()?, HeaderValue::from_bytes(line.value).ok()?);
            match name {
                TRANSFER_ENCODING => return None,
                // The HTTP library would drop the connection without a word.
                CONTENT_LENGTH if response.headers().contains_key(CONTENT_LENGTH) || length(&value).is_none() => {
                    return None;
                }
                CONNECTION | UPGRADE if !is_switch => {}
                name => drop(response.headers_mut().append(name, value)),
            }
        }
        Some(response)
    }
}

/// Reads a Content-Length. None: it is not a number of bytes.
fn length(value: &HeaderValue) -> Option<u64> {
    let digits = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok()
}

/// What an app writes on its socket. It ends with the work, whoever else has a copy of the socket.
struct FromApp {
    socket: OwnedReadHalf,
    exchange: Exchange,
    /// The work has ended.
    is_over: bool,
}

impl AsyncRead for FromApp {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while !this.is_over {
            let Poll::Ready(part) = this.exchange.poll_part(context) else { break };
            this.is_over = is_end(&this.exchange, &part);
        }
        if this.is_over {
            // What was written before can be read still. It fails where the other end is closed.
            let _ = rustix::net::shutdown(this.socket.as_ref(), rustix::net::Shutdown::Read);
        }
        // Closed on what it had not read, it is at its end all the same.
        ready!(Pin::new(&mut this.socket).poll_read(context, buffer)).or(Ok(())).into()
    }
}

impl Drop for FromApp {
    /// The app is told, whoever else has a copy of our end.
    fn drop(&mut self) {
        sys::hang_up(self.socket.as_ref().as_fd());
    }
}

/// The way between an app and its client, from the head that the app has written on.
pub(super) struct Tunnel {
    from_app: FromApp,
    to_app: OwnedWriteHalf,
    /// Bytes that came with the head.
    rest: Bytes,
}

/// The client's connection is lost.
struct Lost;

impl Tunnel {
    /// The client gets another protocol: the time until a response begins is over, and the app ends it when it likes.
    pub(super) fn begin(&self) {
        self.from_app.exchange.head_came();
        self.from_app.exchange.mark_endless();
    }

    /// The body of a response that is no change of protocols, as the app writes it.
    pub(super) fn into_body(self, length: Option<u64>) -> WrittenBody {
        self.from_app.exchange.head_came();
        let Tunnel { from_app, to_app, rest } = self;
        let mut body = WrittenBody { from_app, _to_app: to_app, rest, left: length, is_over: false, is_broken: false };
        if length == Some(0) {
            body.end();
        }
        body
    }

    /// Carries bytes both ways, on the connection that HTTP has let go of, until one side has closed. `patience`: the time
    /// that the client may take nothing of what is for it.
    pub(super) async fn run(
        mut self,
        upgrade: OnUpgrade,
        patience: Duration,
        permit: &mut ConnectionPermit,
    ) -> ConversationEnd {
        let lost = ConversationEnd { end: End::ClientGone, bytes: 0, close_code: None };
        let Some(parts) = upgrade.await.ok().and_then(|upgraded| downcast::<TokioIo<Guarded>>(upgraded).ok()) else {
            return lost;
        };
        let (reads, writes) = tokio::io::split(parts.io.into_inner().unguarded());
        let mut sent = 0;
        let to_client = pass(self.rest, &mut self.from_app, (writes, &mut sent), patience);
        let to_app = listen(parts.read_buf, reads, self.to_app);
        let ended = both(to_client, to_app, permit).await;
        if ended.is_err() {
            return ConversationEnd { bytes: sent, ..lost };
        }
        // Both have had their say: nobody is cancelled for that.
        self.from_app.exchange.answered();
        ConversationEnd { end: End::Whole, bytes: sent, ..lost }
    }
}

/// Until the app has closed, and then for a moment until the client has, a short one when the front stops: closing on what
/// it has sent would take the last words away from it.
async fn both(
    to_client: impl Future<Output = Result<(), Lost>>,
    to_app: impl Future<Output = Result<(), Lost>>,
    permit: &mut ConnectionPermit,
) -> Result<(), Lost> {
    let (mut to_client, mut to_app) = (pin!(to_client), pin!(to_app));
    tokio::select! {
        biased;
        sent = &mut to_client => {
            sent?;
            // It hears no more either way.
            tokio::select! {
                _ = timeout(CLOSING_MAX, to_app) => {}
                () = permit.leave_insisted() => {}
            }
            Ok(())
        }
        heard = &mut to_app => {
            heard?;
            to_client.await
        }
    }
}

/// Passes what the app writes to the client, as it takes it, counts it, and closes behind it.
async fn pass(
    rest: Bytes,
    from: &mut FromApp,
    (mut to, sent): (impl AsyncWrite + Unpin, &mut u64),
    patience: Duration,
) -> Result<(), Lost> {
    put(&rest, &mut to, patience).await?;
    *sent += rest.len() as u64;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        // It never fails.
        let count = from.read(&mut piece).await.unwrap_or(0);
        if count == 0 {
            return timeout(patience, to.shutdown()).await.map_or(Err(Lost), |_| Ok(()));
        }
        put(&piece[..count], &mut to, patience).await?;
        *sent += count as u64;
    }
}

async fn put(mut bytes: &[u8], to: &mut (impl AsyncWrite + Unpin), patience: Duration) -> Result<(), Lost> {
    while !bytes.is_empty() {
        let Ok(Ok(count @ 1..)) = timeout(patience, to.write(bytes)).await else { return Err(Lost) };
        bytes = &bytes[count..];
    }
    let Ok(Ok(())) = timeout(patience, to.flush()).await else { return Err(Lost) };
    Ok(())
}

/// Passes what the client sends to the app, as it takes it, up to its end. What an app that has closed does not take is
/// read all the same.
async fn listen(came: Bytes, mut from: impl AsyncRead + Unpin, mut to: OwnedWriteHalf) -> Result<(), Lost> {
    let mut is_taken = to.write_all(&came).await.is_ok();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let Ok(count) = from.read(&mut piece).await else { return Err(Lost) };
        if count == 0 {
            // The app reads the end of it: `to` is dropped.
            return Ok(());
        }
        is_taken = is_taken && to.write_all(&piece[..count]).await.is_ok();
    }
}

/// A body that an app writes on its socket.
pub(super) struct WrittenBody {
    from_app: FromApp,
    _to_app: OwnedWriteHalf,
    rest: Bytes,
    /// Bytes that are left of the Content-Length.
    left: Option<u64>,
    is_over: bool,
    /// The app has closed before that.
    is_broken: bool,
}

impl WrittenBody {
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenOff>>> {
        if self.is_over {
            return Poll::Ready(self.is_broken.then_some(Err(BrokenOff(End::BrokenOff))));
        }
        let mut bytes = std::mem::take(&mut self.rest);
        if bytes.is_empty() {
            let mut piece = vec![0; PIECE_BYTES];
            let mut buffer = ReadBuf::new(&mut piece);
            // It never fails.
            let _ = ready!(Pin::new(&mut self.from_app).poll_read(context, &mut buffer));
            let count = buffer.filled().len();
            piece.truncate(count);
            bytes = piece.into();
        }
        if bytes.is_empty() {
            self.end();
            self.is_broken = self.left.is_some();
            // The HTTP library writes what it has before it asks again, and nothing once it has heard of the break.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(left) = &mut self.left {
            bytes.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= bytes.len() as u64;
            if *left == 0 {
                self.end();
            }
        }
        Poll::Ready(Some(Ok(bytes)))
    }

    pub(super) fn is_whole(&self) -> bool {
        self.is_over && !self.is_broken
    }

    /// The app has as long as it likes from here on.
    fn end(&mut self) {
        self.is_over = true;
        self.from_app.exchange.answered();
    }
}

/// The response to a client that asked for another protocol, as its app has written it on its socket. The connection
/// itself goes by `open`, where the app has granted it.
pub(super) fn answer(
    mut response: Response<AppBody>,
    tunnel: Tunnel,
    upgrade: Option<OnUpgrade>,
    open: impl FnOnce(OnUpgrade, Tunnel),
) -> Response<AppBody> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(upgrade) = upgrade else { return response::plain(StatusCode::INTERNAL_SERVER_ERROR) };
        response.headers_mut().remove(CONTENT_LENGTH);
        tunnel.begin();
        open(upgrade, tunnel);
        return response;
    }
    let has_body = !matches!(response.status().as_u16(), 204 | 304);
    let length = response.headers().get(CONTENT_LENGTH).and_then(length);
    *response.body_mut() = AppBody::Written(Box::new(tunnel.into_body(if has_body { length } else { Some(0) })));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: &[u8] =
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\nX: \r\n\r\n\x81";

    #[test]
    fn a_head_is_read_when_it_is_whole_and_not_beyond() {
        for end in 0..SWITCH.len() - 1 {
            assert!(matches!(Head::read(&SWITCH[..end]), Ok(None)), "{end}");
        }
        let head = Head::read(SWITCH).ok().flatten().expect("a head");
        assert_eq!((head.response.status().as_u16(), head.bytes), (101, SWITCH.len() - 1));
        assert_eq!(head.response.headers()[UPGRADE], "WebSocket");
        assert!(head.response.headers().contains_key("x"));
    }

    #[test]
    fn what_only_concerns_the_connection_is_not_passed_on_with_another_status() {
        let bytes = b"HTTP/1.1 403 Not you\r\nConnection: close\r\nUpgrade: x\r\nContent-Length: 2\r\n\r\nno";
        let head = Head::read(bytes).ok().flatten().expect("a head");
        assert_eq!(head.response.headers().len(), 1);
        assert!(head.response.extensions().get::<ReasonPhrase>().is_some());
    }

    #[test]
    fn what_is_no_head_is_told() {
        let endless = [b"HTTP/1.1 200 OK\r\nx: ".as_slice(), &vec![b'a'; HEAD_BYTES_MAX]].concat();
        let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        for bytes in [b"\x81\x02hi".to_vec(), b"HTTP/1.1 100 Continue\r\n\r\n".to_vec(), endless, chunked] {
            assert!(Head::read(&bytes).is_err());
        }
        let with_length = |line: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {line}\r\n\r\nhi");
        assert!(Head::read(with_length("2").as_bytes()).is_ok());
        for line in ["+2", "two", "", "2, 2", "2\r\nContent-Length: 2", "18446744073709551616"] {
            assert!(Head::read(with_length(line).as_bytes()).is_err(), "{line}");
        }
        assert!(wrong(b"\x81\x02hi", "its head is malformed").ends_with("\\u{2}hi"));
    }
}
