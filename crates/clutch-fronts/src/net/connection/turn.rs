//! Serves one request of a connection, from its head until its client has taken the response, and paces its body.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Buf, Bytes};
use clutch_wire::sync::{Mutex, MutexGuard};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::{Request, Version};

use super::watch::Watch;
use crate::account::figures::End;
use crate::account::{Account, BrokenOff};

/// Maximum number of bytes handed over at a time on one HTTP/2 stream, where many share a connection.
const PIECE_BYTES_MAX: usize = 16 << 10;

/// Shared by whoever answers the request, by the body of the response, and by its pieces on their way.
pub(crate) struct Turn {
    watch: Arc<Watch>,
    key: usize,
    is_http2: bool,
    /// No request comes after it on its connection.
    pub(super) is_last: bool,
    account: Mutex<Account>,
}

impl Turn {
    /// A head has come.
    pub(super) fn begin(watch: &Arc<Watch>, request: &Request<Incoming>) -> Arc<Turn> {
        let is_http2 = request.version() == Version::HTTP_2;
        let mut timeouts = watch.timeouts.lock();
        let key = timeouts.began(is_http2);
        let is_last = timeouts.is_spent(&watch.limits);
        drop(timeouts);
        if is_last {
            watch.spent.notify_one();
        }
        let account = Mutex::new(Account::new(watch.figures.clone(), request.method().clone(), request.uri().clone()));
        Arc::new(Turn { watch: watch.clone(), key, is_http2, is_last: is_last && !is_http2, account })
    }

    pub(crate) fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock()
    }

    /// The connection that it came by.
    pub(crate) fn connection(&self) -> &Arc<Watch> {
        &self.watch
    }

    fn piece(self: &Arc<Turn>, bytes: Bytes) -> Piece {
        if self.is_http2 {
            self.watch.timeouts.lock().gave(self.key, bytes.len(), Instant::now());
        }
        Piece { bytes, turn: self.clone() }
    }

    fn took(&self, bytes: usize) {
        // HTTP/1 shows it by the socket.
        if self.is_http2 {
            self.watch.timeouts.lock().took(self.key, bytes, Instant::now());
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let now = Instant::now();
        self.watch.timeouts.lock().ended(self.key, now);
        self.account().over(now);
    }
}

/// Bytes of a response, until they are written, or given up with their stream.
pub(crate) struct Piece {
    bytes: Bytes,
    turn: Arc<Turn>,
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.turn.took(count);
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            self.turn.took(self.bytes.len());
            self.turn.account().ends_as(End::ClientGone);
        }
    }
}

/// The body of a response.
pub(crate) struct Paced<B> {
    body: B,
    turn: Arc<Turn>,
    /// Remaining bytes of the last part of the body.
    rest: Bytes,
}

impl<B> Paced<B> {
    pub(super) fn new(body: B, turn: Arc<Turn>) -> Paced<B> {
        Paced { body, turn, rest: Bytes::new() }
    }

    fn next_piece(&mut self) -> Piece {
        let most = if self.turn.is_http2 { PIECE_BYTES_MAX } else { usize::MAX };
        let bytes = self.rest.split_to(self.rest.len().min(most));
        self.turn.piece(bytes)
    }
}

impl<B: Body<Data = Bytes, Error = BrokenOff> + Unpin> Body for Paced<B> {
    type Data = Piece;
    type Error = BrokenOff;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, BrokenOff>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            let next = ready!(Pin::new(&mut this.body).poll_frame(context));
            let mut account = this.turn.account();
            match next {
                Some(Ok(frame)) => {
                    // Ours have no trailers.
                    this.rest = frame.into_data().unwrap_or_default();
                    account.sent(this.rest.len());
                    if this.body.is_end_stream() {
                        account.whole();
                    }
                }
                Some(Err(BrokenOff(end))) => {
                    account.ends_as(end);
                    return Poll::Ready(Some(Err(BrokenOff(end))));
                }
                None => {
                    account.whole();
                    return Poll::Ready(None);
                }
            }
        }
        Poll::Ready(Some(Ok(Frame::data(this.next_piece()))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    /// Asked for before the first frame alone.
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
