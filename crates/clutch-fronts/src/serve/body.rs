//! The body of a response: whole, or as its app produces it. A slow client slows the app.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use clutch_host::Warnings;
use clutch_pool::pool::{Exchange, Part};
use clutch_pool::work::{Expired, Outcome, Refusal};
use clutch_wire::region::Lease;
use clutch_wire::{Failure, Payload};
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::tunnel::WrittenBody;
use crate::account::BrokenOff;
use crate::account::figures::{End, Open};
use crate::codec::LAST;
use crate::codec::http::credit_of;

/// The body of a response.
pub(super) enum AppBody {
    Whole(Option<Bytes>),
    Produced(Box<Produced>),
    /// As a WSGI app writes it on a socket of its own.
    Written(Box<WrittenBody>),
}

impl From<Bytes> for AppBody {
    fn from(bytes: Bytes) -> AppBody {
        AppBody::Whole(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }
}

impl hyper::body::Body for AppBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        match self.get_mut() {
            AppBody::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            AppBody::Produced(produced) => produced.poll(context).map(|part| part.map(|bytes| bytes.map(Frame::data))),
            AppBody::Written(written) => written.poll(context).map(|part| part.map(|bytes| bytes.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            AppBody::Whole(bytes) => bytes.is_none(),
            AppBody::Produced(produced) => produced.ended,
            AppBody::Written(written) => written.is_whole(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            AppBody::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            AppBody::Produced(_) | AppBody::Written(_) => SizeHint::default(),
        }
    }
}

/// Limit of the pauses between the parts of a response.
pub(super) struct Silence {
    pub(super) most: Duration,
    pub(super) front: String,
    pub(super) warnings: Arc<Warnings>,
}

impl Silence {
    pub(super) fn tell(&self, expired: &Expired) {
        self.warnings.tell("silence", || {
            let (front, most, stacks) = (&self.front, self.most.as_secs_f64(), expired.stacks.trim_end());
            format!(
                "fronts.{front}: a response was cut off after a pause of {most} s between its parts (--timeout, \
                 fronts.{front}.silence)\n{stacks}"
            )
        });
    }
}

/// What is known of the pauses between the parts of a response.
pub(super) enum Pauses {
    Finite,
    Limited(Silence),
    /// Parts come when there are some: it has no end of its own, and is counted as long as it is open.
    Endless(Open),
}

/// A body whose parts come one by one.
pub(super) struct Produced {
    exchange: Exchange,
    /// Part that came with the head.
    first: Option<Bytes>,
    /// Bytes that are left of the Content-Length.
    left: Option<u64>,
    /// Credit for the part that was taken last; it is given back when the client has room for the next.
    owed: u32,
    silence: Option<(Silence, Pin<Box<Sleep>>)>,
    /// Of an event stream: it is counted as long.
    _open: Option<Open>,
    /// The client is ready for more, and that time is measured.
    waits: bool,
    /// Its time is over: it ends as soon as its worker has told where it is.
    expires: bool,
    ended: bool,
    broken: Option<BrokenOff>,
}

impl Produced {
    /// `length`: as the head tells it. `owed`: of the part that came with it.
    pub(super) fn new(exchange: Exchange, first: Bytes, length: Option<u64>, owed: u32, pauses: Pauses) -> Produced {
        let (silence, open) = match pauses {
            Pauses::Finite => (None, None),
            Pauses::Limited(silence) => {
                let sleep = Box::pin(tokio::time::sleep(silence.most));
                (Some((silence, sleep)), None)
            }
            Pauses::Endless(open) => (None, Some(open)),
        };
        let first = Some(first).filter(|first| !first.is_empty());
        Produced {
            exchange,
            first,
            left: length,
            owed,
            silence,
            _open: open,
            waits: false,
            expires: false,
            ended: false,
            broken: None,
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenOff>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(self.counted(first))));
        }
        if let Some(broken) = self.broken {
            return Poll::Ready(Some(Err(broken)));
        }
        if self.ended {
            return Poll::Ready(None);
        }
        if self.owed > 0 {
            self.exchange.give_credit_now(std::mem::take(&mut self.owed));
        }
        loop {
            match self.exchange.poll_part(context) {
                Poll::Ready(part) => {
                    self.waits = false;
                    match self.take(part) {
                        Some(Ok(bytes)) if bytes.is_empty() && !self.ended => continue,
                        Some(Ok(bytes)) if bytes.is_empty() => return Poll::Ready(None),
                        Some(Err(BrokenOff(end))) => return self.break_off(end, context),
                        Some(Ok(bytes)) => return Poll::Ready(Some(Ok(self.counted(bytes)))),
                        None => return Poll::Ready(None),
                    }
                }
                Poll::Pending => return self.poll_silence(context),
            }
        }
    }

    /// With the last byte of the length that its head tells, a response is whole, whatever its app does then.
    fn counted(&mut self, bytes: Bytes) -> Bytes {
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(bytes.len() as u64);
            if *left == 0 && !self.ended {
                self.ended = true;
                // Nobody asks for more, and its app waits for that before it goes on to its end.
                self.exchange.give_credit_now(std::mem::take(&mut self.owed));
                self.exchange.answered();
            }
        }
        bytes
    }

    /// hyper writes what it has before it asks again, and nothing once it has heard of the break.
    fn break_off(&mut self, end: End, context: &Context<'_>) -> Poll<Option<Result<Bytes, BrokenOff>>> {
        self.broken = Some(BrokenOff(end));
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// The client is ready, and the app says nothing.
    fn poll_silence(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenOff>>> {
        let Some((Silence { most, .. }, sleep)) = &mut self.silence else { return Poll::Pending };
        if self.expires {
            return Poll::Pending;
        }
        if !std::mem::replace(&mut self.waits, true) {
            sleep.as_mut().reset(Instant::now() + *most);
        }
        while sleep.as_mut().poll(context).is_ready() {
            if !self.exchange.waits_for_client() && !self.exchange.is_untimed() {
                self.expires = true;
                self.exchange.expire();
                return Poll::Pending;
            }
            // It is the client who is silent, and that has a limit of its own; or somebody who debugs.
            sleep.as_mut().reset(Instant::now() + *most);
        }
        Poll::Pending
    }

    fn take(&mut self, part: Part) -> Option<Result<Bytes, BrokenOff>> {
        match part {
            Part::Chunk(payload) => {
                self.ended = payload.form == LAST;
                if self.ended {
                    self.exchange.answered();
                } else {
                    self.owed = credit_of(payload.bytes_total());
                }
                Some(Ok(bytes_of(payload)))
            }
            Part::End(Outcome::Value(payload)) if payload.form == LAST => {
                self.ended = true;
                Some(Ok(bytes_of(payload)))
            }
            Part::End(Outcome::Refused(Refusal::Expired(expired))) => {
                if let Some((silence, _)) = &self.silence {
                    silence.tell(&expired);
                }
                Some(Err(BrokenOff(End::Timeout)))
            }
            // It says itself when a body is whole: an end without that word is none.
            Part::End(Outcome::Failure(failure)) if matches!(*failure, Failure::WorkerLost { .. }) => {
                Some(Err(BrokenOff(End::WorkerLost)))
            }
            Part::End(_) => Some(Err(BrokenOff(End::BrokenOff))),
        }
    }
}

struct Shared(Arc<Lease>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// A payload's bytes without a copy.
pub(super) fn bytes_of(payload: Payload) -> Bytes {
    match payload.leases.into_iter().next() {
        Some(lease) => Bytes::from_owner(Shared(lease)),
        None => Bytes::from(payload.inline),
    }
}
