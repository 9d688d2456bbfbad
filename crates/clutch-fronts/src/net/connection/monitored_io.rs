//! The bytes of a connection as they pass: framing is looked after, and how well the client takes what is for it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::framing::Framing;
use super::watch::Watch;
use crate::net::protocol::Protocol;
use crate::net::stream::{Io, LINGER_MAX};

/// A connection's socket, under TLS where that is spoken: what the client takes shows here alone.
pub(crate) struct Metered {
    io: Box<dyn Io>,
    watch: Arc<Watch>,
    /// The socket was full at the last write, and the layer above has not written everything since.
    is_blocked: bool,
}

impl Metered {
    pub(crate) fn new(io: Box<dyn Io>, watch: Arc<Watch>) -> Metered {
        Metered { io, watch, is_blocked: false }
    }

    fn written(&mut self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &polled {
            Poll::Pending => {
                self.is_blocked = true;
                self.watch.timeouts.lock().blocked(Instant::now());
            }
            Poll::Ready(Ok(bytes)) => {
                self.watch.figures.sent(*bytes);
                if self.is_blocked {
                    self.watch.timeouts.lock().wrote(*bytes, Instant::now());
                }
            }
            Poll::Ready(Err(_)) => {}
        }
        polled
    }
}

impl AsyncRead for Metered {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.io).poll_read(context, buffer);
        this.watch.figures.received(buffer.filled().len() - before);
        polled
    }
}

impl AsyncWrite for Metered {
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

    /// Whatever lies above flushes when it has written all that it had.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.io).poll_flush(context);
        if polled.is_ready() && std::mem::take(&mut this.is_blocked) {
            this.watch.timeouts.lock().flushed();
        }
        polled
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(context)
    }
}

/// A connection right under the HTTP library.
pub(crate) struct Guarded {
    io: Box<dyn Io>,
    watch: Arc<Watch>,
    framing: Framing,
    /// Until when a connection that has been shut down is read.
    lingers: Option<Pin<Box<Sleep>>>,
}

impl Guarded {
    pub(super) fn new(io: Box<dyn Io>, protocol: Protocol, watch: Arc<Watch>) -> Guarded {
        Guarded { io, watch, framing: Framing::new(protocol), lingers: None }
    }

    /// The connection without it, for what is no HTTP and has limits of its own.
    pub(crate) fn unguarded(self) -> Box<dyn Io> {
        self.io
    }

    /// Takes what still comes, and throws it away. Ready when the client has closed, too, or its time is over.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let until = self.lingers.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER_MAX)));
        let mut bytes = [0; 8192];
        while until.as_mut().poll(context).is_pending() {
            let mut buffer = ReadBuf::new(&mut bytes);
            let read = ready!(Pin::new(&mut self.io).poll_read(context, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(())
    }
}

impl AsyncRead for Guarded {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.io).poll_read(context, buffer);
        let came = &mut buffer.filled_mut()[before..];
        if came.is_empty() {
            return polled;
        }
        let passed = this.framing.pass(came);
        this.watch.came_with(this.framing.take_targets());
        let mut timeouts = this.watch.timeouts.lock();
        if this.framing.is_http2() {
            timeouts.speaks_http2();
        } else if timeouts.awaits_head() {
            timeouts.bytes_came(Instant::now());
        }
        drop(timeouts);
        match passed {
            Ok(()) => polled,
            Err(violated) => Poll::Ready(Err(violated)),
        }
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(context)
    }

    /// Shuts down the write side, and lingers while more of a request is on its way. A socket closed at once would be
    /// reset, and the client may lose the answer that it has not read (RFC 9112, 9.6).
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.watch.ends_after(this.framing.first_line());
        if this.lingers.is_none() {
            ready!(Pin::new(&mut this.io).poll_shutdown(context))?;
        }
        if this.framing.is_in_body() {
            ready!(this.poll_linger(context));
        }
        Poll::Ready(Ok(()))
    }
}
