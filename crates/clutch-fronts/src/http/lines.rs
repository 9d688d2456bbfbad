//! The values of a stream as lines of JSON, or as server-sent events, as they are produced.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use clutch_host::Warnings;
use clutch_pool::pool::{Exchange, Part};
use clutch_pool::work::{Outcome, Refusal};
use clutch_wire::frame::STREAM_WINDOW;
use clutch_wire::{Codec, Failure, Payload};

use crate::body::Body;
use crate::body::problem::Problem;
use crate::http::framing::Framing;
use crate::net::connection::Turn;

/// Lines that are ready are sent together, up to about so many bytes.
const TOGETHER_BYTES: usize = 16 << 10;

/// The producer is given new credit when so many of its chunks have been taken.
const CREDIT_STEP: u32 = STREAM_WINDOW / 2;

/// A stream on its way. Its client reads at its own pace: the producer has credit for a window of chunks only, and gets
/// more as they are taken from here. Dropped before the end, it closes the producer.
pub(crate) struct Lines {
    exchange: Exchange,
    /// Parts that came before the stream was known to be one.
    first: Option<Part>,
    /// Chunks taken since the last credit.
    taken: u32,
    ended: bool,
    framing: Framing,
    context: CallContext,
}

/// Context of a call that its answer does not have.
pub(crate) struct CallContext {
    pub(crate) turn: Arc<Turn>,
    pub(crate) warnings: Arc<Warnings>,
    /// As `api.total (request 4f2a)`.
    pub(crate) what: String,
    /// Set if the client is told what only users of this machine may know.
    pub(crate) local: bool,
    /// As the client wants a stream.
    pub(crate) framing: Framing,
}

impl CallContext {
    /// The problem that a call ended with; none: it has a result. Whoever runs the server reads of it in the log, where the
    /// client may not be told everything.
    pub(crate) fn problem(&self, outcome: &Outcome) -> Option<Box<Problem>> {
        let (what, warnings) = (&self.what, &self.warnings);
        match outcome {
            Outcome::Value(_) => None,
            Outcome::Failure(failure) => {
                let problem = Problem::of_failure(failure, self.local);
                match &**failure {
                    Failure::Raised { traceback, .. } if !problem.is_of_caller() => {
                        warnings.tell("raised", || format!("{what} raised\n{traceback}"));
                    }
                    Failure::Encode { traceback, .. } => {
                        warnings.tell("encode", || format!("{what}: its result cannot be encoded\n{traceback}"));
                    }
                    _ => {}
                }
                Some(problem)
            }
            Outcome::Refused(refusal) => {
                if let Refusal::Expired(expired) = refusal
                    && !expired.stacks.is_empty()
                {
                    warnings.tell("deadline", || format!("{what}: {expired}\n{}", expired.stacks));
                }
                Some(Problem::of_refusal(refusal, self.local))
            }
        }
    }
}

impl Lines {
    pub(crate) fn new(first: Part, exchange: Exchange, context: CallContext) -> Lines {
        Lines { exchange, first: Some(first), taken: 0, ended: false, framing: context.framing, context }
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
                match self.context.problem(&outcome) {
                    Some(problem) => self.write_error(&problem, lines),
                    None => self.framing.write_end(lines),
                }
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
        if payload.form.codec == Codec::Json {
            self.framing.write_value(payload.body(), lines);
        } else {
            self.ended = true;
            self.write_error(&Problem::not_json(), lines);
        }
    }

    /// The last that is said of a stream that failed.
    fn write_error(&self, problem: &Problem, lines: &mut Vec<u8>) {
        let (end, reason) = problem.end_of_stream();
        self.context.turn.account().plan(end, reason);
        self.framing.write_error(&problem.document(), lines);
    }
}
