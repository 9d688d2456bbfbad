//! A connection and its pulse: bytes are noticed as they pass, and a client that is too slow is shown out.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::sync::Mutex;
use hyper::Method;
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use super::access::{AccessLog, End, Record};
use super::arrive::{Ended, Unheard};
use super::exchange::{Exchange, Inbound};
use super::pulse::{Limits, Pulse, Verdict};
use crate::front::listen::{Io, Stay};

/// What the tasks of one connection share.
pub(super) struct Watch {
    pub(super) limits: Limits,
    pulse: Mutex<Pulse>,
    /// Told when the last request of the connection has come.
    spent: Notify,
}

impl Watch {
    pub(super) fn new(limits: Limits) -> Arc<Watch> {
        Arc::new(Watch { limits, pulse: Mutex::new(Pulse::new(Instant::now())), spent: Notify::new() })
    }

    /// A head has come.
    pub(super) fn request(self: &Arc<Watch>, is_http2: bool) -> Turn {
        let mut pulse = self.pulse.lock();
        let key = pulse.began(is_http2);
        let is_last = pulse.is_spent(&self.limits);
        drop(pulse);
        if is_last {
            self.spent.notify_one();
        }
        Turn {
            watch: self.clone(),
            key,
            is_http2,
            is_last,
            holds: false,
            planned: End::Whole,
            record: None,
            inbound: None,
        }
    }

    /// What is told of a connection that has ended, beside its requests.
    pub(super) fn unheard(&self, ended: Ended, came: Instant) -> Option<Unheard> {
        let pulse = self.pulse.lock();
        ended.unheard(came, pulse.head_since(), pulse.is_first())
    }

    /// Drives a connection to its end, in the limits of its client. None: it was cut off.
    pub(super) async fn drive<C: GracefulConnection>(
        &self,
        mut connection: Pin<&mut C>,
        mut stay: Stay,
    ) -> Option<Result<(), C::Error>> {
        let mut leaves = false;
        loop {
            let verdict = tokio::select! {
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

/// One request of a connection, from its head to the end of its response.
pub(super) struct Turn {
    watch: Arc<Watch>,
    key: usize,
    is_http2: bool,
    pub(super) is_last: bool,
    holds: bool,
    planned: End,
    /// Where there is an access log.
    record: Option<(Box<Record>, Arc<AccessLog>)>,
    /// Of a request that was handed to the pool, for that log.
    inbound: Option<Arc<Inbound>>,
}

impl Turn {
    /// The client was given data, or has room for more. HTTP/1 shows it by the socket.
    pub(super) fn holds(&mut self, holds: bool) {
        if self.is_http2 && self.holds != holds {
            self.holds = holds;
            self.watch.pulse.lock().stream_holds(self.key, Some(Instant::now()).filter(|_| holds));
        }
    }
}

impl Turn {
    pub(super) fn record(&mut self, record: Box<Record>, log: Arc<AccessLog>) {
        self.record = Some((record, log));
    }

    /// It is in the pool's line.
    pub(super) fn queued(&mut self, exchange: &Exchange) {
        self.inbound = self.record.is_some().then(|| exchange.inbound().clone());
    }

    /// The head of the response is there, and how the response will end if nothing comes between.
    pub(super) fn answered(&mut self, status: u16, end: Option<End>) {
        let Some((record, _)) = &mut self.record else { return };
        record.head_came(status);
        self.planned = end.unwrap_or(End::Whole);
        // hyper asks for no body of theirs.
        if record.has_method(&Method::HEAD) || status == 204 || status == 304 {
            record.end = self.planned;
        }
    }

    pub(super) fn sent(&mut self, bytes: usize) {
        if let Some((record, _)) = &mut self.record {
            record.bytes += bytes as u64;
        }
    }

    pub(super) fn whole(&mut self) {
        self.end_as(self.planned);
    }

    pub(super) fn end_as(&mut self, end: End) {
        if let Some((record, _)) = &mut self.record {
            record.end = end;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some((mut record, log)) = self.record.take() {
            record.queued = self.inbound.take().and_then(|inbound| inbound.queued());
            log.write(record);
        }
        self.watch.pulse.lock().ended(self.key, Instant::now());
    }
}

/// The bytes of a connection.
pub(super) struct Guarded {
    io: Box<dyn Io>,
    watch: Arc<Watch>,
}

impl Guarded {
    pub(super) fn new(io: Box<dyn Io>, watch: Arc<Watch>) -> Guarded {
        Guarded { io, watch }
    }

    /// The bare connection, for what has limits of its own.
    pub(super) fn unguarded(self) -> Box<dyn Io> {
        self.io
    }

    fn written<T>(&self, polled: Poll<T>) -> Poll<T> {
        let mut pulse = self.watch.pulse.lock();
        match polled {
            Poll::Pending => pulse.blocked(Instant::now()),
            Poll::Ready(_) => pulse.bytes_went(),
        }
        polled
    }
}

impl AsyncRead for Guarded {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.io).poll_read(context, buffer);
        if buffer.filled().len() > before {
            let mut pulse = this.watch.pulse.lock();
            if pulse.awaits_head() {
                pulse.bytes_came(Instant::now());
            }
        }
        polled
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.io).poll_write(context, bytes);
        this.written(polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.io).poll_write_vectored(context, slices);
        this.written(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(context)
    }
}
