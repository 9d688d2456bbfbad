//! A WebSocket whose socket a worker reads and writes while the conversation is open.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use clutch_pool::pool::{Exchange, Part};
use clutch_pool::work::Outcome;
use clutch_wire::Failure;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::upgrade::downcast;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::Notify;

use super::{READ_BYTES, Session, SessionEnd, SessionLimits, bytes_of, end_of, protocol_from};
use crate::account::conversation::ConversationEnd;
use crate::codec::SOCKET;
use crate::codec::websocket::{Back, CUT_SHORT, Lent, WHOLE_AGAIN};
use crate::held::message::FIRST_BYTES_MAX;
use crate::net::connection::{Guarded, SharedSocket};
use crate::net::stream::{ConnectionPermit, Io, watched};

/// An accepted WebSocket while its worker reads and writes the socket.
pub(in crate::serve) struct Lending<'a> {
    /// No runtime watches this copy, which would be woken by all that comes.
    socket: &'a SharedSocket,
    is_tcp: bool,
    /// Bytes of the client that were read already.
    read: Vec<u8>,
    exchange: Exchange,
    limits: SessionLimits,
    flush: Arc<Notify>,
}

impl<'a> Lending<'a> {
    /// As [`Session::open`]; with the connection's socket, and whether it is of TCP.
    pub(in crate::serve) async fn open(
        upgrade: OnUpgrade,
        exchange: Exchange,
        limits: SessionLimits,
        flush: Arc<Notify>,
        (socket, is_tcp): (&'a SharedSocket, bool),
    ) -> Option<Lending<'a>> {
        let parts = downcast::<TokioIo<Guarded>>(upgrade.await.ok()?).ok()?;
        let mut io = parts.io.into_inner().unguarded();
        let read = read_ahead(&mut io, parts.read_buf.to_vec()).await;
        Some(Lending { socket, is_tcp, read, exchange, limits, flush })
    }

    /// Leaves the socket to the worker until that has done with it, and goes on as a session.
    pub(in crate::serve) async fn run(mut self, permit: &mut ConnectionPermit) -> ConversationEnd {
        self.exchange.feed(SOCKET, &self.limits.lent().put(&self.read), 0);
        self.flush.notify_one();
        let mut is_cut_short = false;
        let (back, end) = loop {
            match self.exchange.part().await {
                Part::Chunk(payload) if payload.form == SOCKET => {
                    let payload = bytes_of(payload);
                    match &payload[..] {
                        CUT_SHORT => is_cut_short = true,
                        WHOLE_AGAIN => is_cut_short = false,
                        _ => break (Some(payload), None),
                    }
                }
                // A worker that lives says where it stopped before it ends, and may be writing until then.
                Part::End(outcome) if !is_cut_short && is_death(&outcome) => break (None, Some(end_of(&outcome))),
                _ => break (None, Some(SessionEnd::Lost)),
            }
        };
        let Lending { socket, is_tcp, mut read, exchange, limits, flush } = self;
        let sent = back.as_ref().and_then(|payload| Some(Back::read(payload)?.sent)).unwrap_or_default();
        // Without a descriptor for it the connection ends here.
        let Ok(socket) = socket.copy().and_then(|copy| watched(copy, is_tcp)) else {
            return SessionEnd::Lost.for_the_log(sent);
        };
        let (mut unsent, mut end) = (Bytes::new(), end);
        if let Some(payload) = back {
            match Back::read(&payload).filter(|back| !back.is_lost) {
                Some(back) => {
                    if !back.is_unused {
                        read.clear();
                    }
                    read.extend_from_slice(back.unread);
                    unsent = payload.slice_ref(back.unsent);
                }
                None => end = Some(SessionEnd::Lost),
            }
        }
        let protocol = protocol_from(read, &limits);
        let mut session = Session::new(Box::new(socket), protocol, exchange, limits, flush);
        (session.is_dirty, session.sent, session.line.unsent) = (!unsent.is_empty(), sent, unsent);
        match end {
            Some(end) => session.end(end, permit).await,
            None => session.run(permit).await,
        }
    }
}

/// The worker writes nothing any more.
fn is_death(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failure(failure) if matches!(**failure, Failure::WorkerLost { .. }))
}

/// Adds what was read of the socket ahead of HTTP, and perhaps more.
async fn read_ahead(io: &mut Box<dyn Io>, mut read: Vec<u8>) -> Vec<u8> {
    let most = read.len() + FIRST_BYTES_MAX;
    poll_fn(|context| {
        let mut bytes = [0; READ_BYTES];
        while read.len() < most {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *io).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => read.extend_from_slice(buffer.filled()),
                _ => break,
            }
        }
        Poll::Ready(())
    })
    .await;
    read
}

impl SessionLimits {
    fn lent(&self) -> Lent {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let (interval, timeout) = self.ping.unwrap_or_default();
        Lent {
            message_bytes_max: self.message_bytes_max as u64,
            write_ms: ms(self.write),
            ping_interval_ms: ms(interval),
            ping_timeout_ms: ms(timeout),
        }
    }
}
