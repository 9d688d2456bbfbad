//! The values of a stream as lines of JSON, as they are produced.

use std::task::{Context, Poll};

use bytes::Bytes;
use clutch_pool::pool::{Exchange, Part};
use clutch_pool::work::Outcome;
use clutch_wire::frame::STREAM_WINDOW;
use clutch_wire::{Codec, Payload};

use crate::body::Body;
use crate::problem::Problem;

/// Lines that are ready are sent together, up to about so many bytes.
const TOGETHER_BYTES: usize = 16 << 10;

/// The producer is given new credit when so many of its chunks have been taken.
const CREDIT_STEP: u32 = STREAM_WINDOW / 2;

/// A stream as NDJSON. Its client reads at its own pace: the producer has credit for a window of chunks only, and gets
/// more as they are taken from here. Dropped before the end, it closes the producer.
pub(crate) struct Lines {
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
    pub(crate) fn new(first: Part, exchange: Exchange, local: bool) -> Lines {
        Lines { exchange, first: Some(first), taken: 0, ended: false, local }
    }

    pub(crate) fn into_body(mut self) -> Body {
        Body::Stream(Box::new(move |context| self.poll(context)))
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
            self.exchange.give_credit_now(CREDIT_STEP);
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
