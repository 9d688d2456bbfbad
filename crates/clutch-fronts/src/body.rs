//! What a front sends back: one document, or the lines of a stream as they are produced.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use clutch_pool::pool::Part;
use clutch_pool::work::Outcome;
use clutch_wire::frame::STREAM_WINDOW;
use clutch_wire::{Codec, Payload};
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderValue};

use super::account::BrokenOff;
use super::exchange::Exchange;
use super::problem::Problem;

/// Lines that are ready are sent together, up to about so many bytes.
const TOGETHER_BYTES: usize = 16 << 10;

/// The producer is given new credit when so many of its chunks have been taken.
const CREDIT_STEP: u32 = STREAM_WINDOW / 2;

/// Of a request that is refused by its head: so much of the body is read and dropped, so that the client, which may
/// still be writing, gets to read the refusal.
const DISCARD_BYTES_MAX: usize = 4 << 20;
const DISCARD_TIME: Duration = Duration::from_secs(1);

/// The body of a response.
pub(super) enum Body {
    Document(Option<Bytes>),
    Lines(Box<Lines>),
}

impl From<Vec<u8>> for Body {
    fn from(document: Vec<u8>) -> Body {
        Body::Document(Some(Bytes::from(document)))
    }
}

/// A response of 200 with its media type.
pub(super) fn with_type(media_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        match self.get_mut() {
            Body::Document(document) => Poll::Ready(document.take().map(|bytes| Ok(Frame::data(bytes)))),
            Body::Lines(lines) => lines.poll(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Document(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Document(document) => SizeHint::with_exact(document.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Body::Lines(_) => SizeHint::default(),
        }
    }
}

/// A stream as NDJSON. Its client reads at its own pace: the producer has credit for a window of chunks only, and gets
/// more as they are taken from here. Dropped before the end, it closes the producer.
pub(super) struct Lines {
    exchange: Exchange,
    /// What came before the stream was known to be one.
    first: Option<Part>,
    /// Chunks taken since the last credit.
    taken: u32,
    ended: bool,
    /// Whether the client is told what only this machine's users may know.
    local: bool,
}

impl Lines {
    pub(super) fn new(first: Part, exchange: Exchange, local: bool) -> Lines {
        Lines { exchange, first: Some(first), taken: 0, ended: false, local }
    }

    /// All lines that are ready; none after the last.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut lines = Vec::new();
        while !self.ended && lines.len() < TOGETHER_BYTES {
            match self.next_part(context) {
                Poll::Ready(part) => self.write(part, &mut lines),
                Poll::Pending => break,
            }
        }
        match lines.is_empty() {
            false => Poll::Ready(Some(Bytes::from(lines))),
            true if self.ended => Poll::Ready(None),
            true => Poll::Pending,
        }
    }

    fn next_part(&mut self, context: &mut Context<'_>) -> Poll<Part> {
        match self.first.take() {
            Some(part) => Poll::Ready(part),
            None => self.exchange.poll_part(context),
        }
    }

    fn write(&mut self, part: Part, lines: &mut Vec<u8>) {
        match part {
            Part::Chunk(payload) => {
                self.count();
                self.write_value(&payload, lines);
            }
            Part::End(outcome) => {
                self.ended = true;
                self.write_end(&outcome, lines);
            }
        }
    }

    fn count(&mut self) {
        self.taken += 1;
        if self.taken == CREDIT_STEP {
            self.taken = 0;
            self.exchange.give_credit(CREDIT_STEP);
        }
    }

    fn write_value(&mut self, payload: &Payload, lines: &mut Vec<u8>) {
        if payload.codec == Codec::Json {
            lines.extend_from_slice(payload.body());
            lines.push(b'\n');
        } else {
            self.ended = true;
            write_error(&Problem::not_json(), lines);
        }
    }

    fn write_end(&self, outcome: &Outcome, lines: &mut Vec<u8>) {
        match outcome {
            Outcome::Value(_) => {}
            Outcome::Failure(failure) => write_error(&Problem::of_failure(failure, self.local), lines),
            Outcome::Refused(refusal) => write_error(&Problem::of_refusal(refusal, self.local), lines),
        }
    }
}

/// The last line of a stream that failed.
fn write_error(problem: &Problem, lines: &mut Vec<u8>) {
    lines.extend_from_slice(b"{\"error\":");
    lines.extend_from_slice(&problem.document());
    lines.extend_from_slice(b"}\n");
}

/// Reads what a client may still be sending, for a while, so that it gets to read why it was refused.
pub(super) async fn discard(body: &mut Incoming) {
    let read = async {
        let mut left = DISCARD_BYTES_MAX;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, |data| data.len()));
            if left == 0 {
                return;
            }
        }
    };
    // A client that goes on sending beyond this has its connection closed.
    let _ = tokio::time::timeout(DISCARD_TIME, read).await;
}
