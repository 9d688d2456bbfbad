//! Responses of requests on connections that this worker holds: what the app sends, as bytes for its client.

use std::time::{Duration, Instant};

use clutch_fronts::app::http1::{First, Framing, put_chunk};
use clutch_fronts::app::response::{Head, Misuse, Part, Response};
use clutch_fronts::held::ledger::Adoption;
use clutch_fronts::held::message::{Told, ToldEnd};
use clutch_wire::sys;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Part of a body as the app has it.
pub enum Content<'a, 'py> {
    Bytes(&'a Bound<'py, PyBytes>),
    /// Of something else that has bytes.
    Slice(&'a [u8]),
}

impl Content<'_, '_> {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Content::Bytes(bytes) => bytes.as_bytes(),
            Content::Slice(bytes) => bytes,
        }
    }
}

/// The status in the first line of a head; none: these bytes are none.
pub fn status_of(bytes: &[u8]) -> Option<u16> {
    std::str::from_utf8(bytes.strip_prefix(b"HTTP/1.1 ")?.get(..3)?).ok()?.parse().ok()
}

/// The body in place of a response that the app owes.
const ERROR_WORDS: &[u8] = b"Internal Server Error\n";

/// What follows a part of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Nothing: it was the last.
    End,
    /// More, in time.
    More,
    /// More, whenever the app has something to say, as in event streams.
    Whenever,
}

/// Code of an app that goes on behind its response.
pub trait StillRuns: Send + Sync {
    /// By what the pool knows it now; none: it has not taken it.
    fn known_as(&self, py: Python<'_>, adoption: Option<Adoption>) -> PyResult<()>;
}

/// The client of a request, at the other end of a connection that is held.
pub trait Client: Send + Sync {
    /// Sends bytes, and then content. What it does not take now it gets when it does.
    fn send(&self, py: Python<'_>, bytes: Vec<u8>, content: Content<'_, '_>, then: Then) -> PyResult<()>;

    /// Returns whether the app may send more at once.
    fn has_room(&self) -> bool;

    /// The response is over: the next request may come, unless the connection `closes`. Returns by what the pool knows the
    /// request, which is to be ended with the app's code.
    fn over(&self, py: Python<'_>, closes: bool, ended: &Ended) -> PyResult<Option<Adoption>>;

    /// The response cannot be ended in order: the connection is.
    fn break_off(&self, py: Python<'_>, ended: &Ended) -> PyResult<Option<Adoption>>;

    /// By what the pool knows the request whose response is not over.
    fn adoption(&self) -> Option<Adoption>;

    /// Whether nobody waits any more for what the pool knows.
    fn is_abandoned(&self, adoption: Adoption) -> bool;

    /// The app's code has ended, as [`HeldResponse::end_of_adopted`] has it.
    fn end_adopted(&self, py: Python<'_>, end: (Adoption, Duration)) -> PyResult<()>;

    /// The pool is to know what goes on behind the response, which is over. `beginning`: first bytes of the request.
    fn goes_on(&self, py: Python<'_>, code: Box<dyn StillRuns>, beginning: &[u8], age: Duration) -> PyResult<()>;

    /// Whether the worker is to end: a response that has no end of its own is told so.
    fn is_ending(&self) -> bool;

    /// Whether its worker answers no request that follows this one.
    fn is_leaving(&self) -> bool;

    /// Whether nobody does.
    fn is_last(&self) -> bool;

    /// Whether nobody takes what the app sends from now on, where whoever sends is to know.
    fn is_gone(&self) -> bool {
        false
    }
}

/// How a request has ended.
#[derive(Debug, Default)]
pub struct Ended {
    /// 0: no response was begun.
    pub status: u16,
    pub end: ToldEnd,
    pub after: Duration,
    /// Where somebody wants to know.
    pub head_after: Duration,
    /// Of the body.
    pub bytes: u64,
    pub route: Option<String>,
    /// As it was sent; empty unless somebody wants to know.
    pub head: Vec<u8>,
}

impl Ended {
    /// The record of it, without what its connection knows.
    pub fn told(&self) -> Told<'_> {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Told {
            status: self.status,
            end: self.end,
            after_us: micros(self.after),
            head_after_us: micros(self.head_after),
            bytes: self.bytes,
            route: self.route.as_deref().unwrap_or_default().as_bytes(),
            response_head: &self.head,
            ..Told::default()
        }
    }
}

/// What a request asks for, as far as its response depends on it.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub is_head: bool,
    /// The client wants the connection closed behind the response.
    pub is_last: bool,
    /// Somebody wants to know the head of the response.
    pub keeps_head: bool,
}

/// Bytes for the client.
pub struct Outgoing {
    /// A head, and of a chunked body the part.
    pub bytes: Vec<u8>,
    /// The part follows as it is.
    pub has_content: bool,
    pub closes: bool,
    /// The client has all that it gets, though the app goes on.
    pub is_all: bool,
}

/// A response, as far as it has come.
pub struct HeldResponse {
    machine: Response,
    wanted: Wanted,
    framing: Framing,
    begun: Instant,
    ended: Ended,
    /// It is the words in place of one that the app has not made.
    has_failed: bool,
    /// By what the pool knows the request; until the response is over, its client knows that.
    adoption: Option<Adoption>,
}

impl HeldResponse {
    pub fn new(wanted: Wanted) -> HeldResponse {
        HeldResponse {
            machine: Response::new(wanted.is_head),
            wanted,
            framing: Framing::Length,
            begun: Instant::now(),
            ended: Ended::default(),
            has_failed: false,
            adoption: None,
        }
    }

    pub fn machine(&self) -> &Response {
        &self.machine
    }

    /// What follows a part. `more`: the app has not ended it.
    pub fn then(&self, more: bool) -> Then {
        match more {
            false => Then::End,
            true if self.machine.is_event_stream() => Then::Whenever,
            true => Then::More,
        }
    }

    /// Time since the request began.
    pub fn age(&self) -> Duration {
        self.begun.elapsed()
    }

    /// `route`: by which the app's framework found what answers.
    pub fn start(&mut self, head: Head, route: Option<String>) -> Result<(), Misuse> {
        self.machine.start(head)?;
        self.ended.route = route;
        self.ended.status = self.machine.facts().map_or(0, |facts| facts.status);
        if self.wanted.keeps_head {
            self.ended.head_after = self.begun.elapsed();
        }
        Ok(())
    }

    /// A part of the body, and the head before the first. `is_last`: no request follows on the connection.
    pub fn part(&mut self, content: &[u8], more: bool, is_last: bool) -> Result<Outgoing, Misuse> {
        let length = content.len() as u64;
        let part = self.machine.body(length, more)?;
        let has_body = self.machine.has_body();
        let facts = self.machine.facts();
        let closes = self.wanted.is_last || is_last || facts.is_some_and(|facts| facts.closes);
        let mut bytes = Vec::new();
        if let (Part::Head { head, is_whole }, Some(facts)) = (part, facts) {
            let whole = is_whole.then_some(length);
            let first = First { whole, has_body, is_head: self.wanted.is_head, is_last: closes };
            bytes = head;
            self.framing = facts.finish(&mut bytes, first, sys::coarse_time());
            if self.wanted.keeps_head {
                self.ended.head.clone_from(&bytes);
            }
        }
        if has_body {
            self.ended.bytes += length;
        }
        let is_chunked = has_body && self.framing == Framing::Chunked;
        if is_chunked {
            put_chunk(&mut bytes, content, !more);
        }
        Ok(Outgoing { bytes, has_content: has_body && !is_chunked, closes, is_all: more && !has_body })
    }

    /// Begins anew, with 500 and these few words: the app has sent nothing yet.
    pub fn start_error(&mut self) -> Result<&'static [u8], Misuse> {
        let length = ERROR_WORDS.len().to_string();
        let lines = [(&b"content-type"[..], &b"text/plain; charset=utf-8"[..]), (b"content-length", length.as_bytes())];
        let head = Head::for_client(500, b"", lines.into_iter(), !self.wanted.is_head)?;
        self.machine = Response::new(self.wanted.is_head);
        let route = self.ended.route.take();
        self.start(head, route)?;
        self.has_failed = true;
        Ok(ERROR_WORDS)
    }

    /// By what the pool knows the request; none: it does not, or the response is not over.
    pub fn adoption(&self) -> Option<Adoption> {
        self.adoption
    }

    pub fn adopted_as(&mut self, adoption: Option<Adoption>) {
        self.adoption = adoption.or(self.adoption);
    }

    /// The app's code has ended. Takes by what the pool is told so, and how long after its beginning.
    pub fn end_of_adopted(&mut self) -> Option<(Adoption, Duration)> {
        self.adoption.take().map(|adoption| (adoption, self.age()))
    }

    /// Takes what is told of the request.
    pub fn ended(&mut self, end: ToldEnd) -> Ended {
        let ended = std::mem::take(&mut self.ended);
        let end = if self.has_failed && end == ToldEnd::Whole { ToldEnd::Failed } else { end };
        Ended { end, after: self.age(), ..ended }
    }
}
