//! Accounts for one request: for the figures of its front, and for a log with a line for each request.

pub(crate) mod access;
pub(crate) mod classes;
pub(crate) mod conversation;
pub(crate) mod figures;
pub(crate) mod routes;
pub(crate) mod told;
pub(crate) mod trace;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_pool::pool::QueueTime;
use hyper::body::Body;
use hyper::{HeaderMap, Method, Response, Uri};

use self::classes::Times;
use self::conversation::{Conversation, PastRequest};
use self::figures::{End, Figures};

/// Fate of a request that the app did not answer itself: how it ended, and why. It travels in the response's
/// extensions.
#[derive(Clone, Debug)]
pub(crate) struct Fate {
    pub(crate) end: End,
    /// A word for the figures; there are few of them.
    pub(crate) reason: &'static str,
    /// Warning for the log, written at a limited rate; none if the worker's own output has told it.
    pub(crate) warning: Option<String>,
}

/// The response ends here, and not as its app meant it: the connection (or the HTTP/2 stream) is broken off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BrokenOff(pub(crate) End);

impl fmt::Display for BrokenOff {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the app did not finish its response")
    }
}

impl std::error::Error for BrokenOff {}

/// Keeps something about one request, as a line of a log.
pub(crate) trait Note: Send {
    /// The request is from whoever has the token of this name.
    fn is_by(&mut self, name: &str);

    fn head_came(&mut self, status: u16, headers: &HeaderMap);

    /// The WebSocket that the request began was closed with this code.
    fn closed(&mut self, code: u16);

    /// `queued`: in the pool's line; none: no worker got it. `cpu`: of its code, where that is known.
    fn ended(self: Box<Self>, end: End, bytes: u64, queued: Option<Duration>, cpu: Option<Duration>);
}

/// Characters of a path that are shown where somebody looks what runs.
pub(crate) const PATH_SHOWN_MAX: usize = 200;

/// Account of one request, as far as it has come.
pub(crate) struct Account {
    figures: Arc<Figures>,
    method: Method,
    target: Uri,
    /// Number of the route by which the app's framework found what answers.
    route: Option<usize>,
    begun: Instant,
    status: Option<u16>,
    /// Bytes of the response body that were handed over.
    bytes: u64,
    end: End,
    /// End of the request when nothing comes between.
    planned: End,
    note: Option<Box<dyn Note>>,
    queued: Option<QueueTime>,
    /// Gets the note when the request has ended with a 101.
    conversation: Option<Arc<Conversation>>,
}

impl Account {
    pub(crate) fn new(figures: Arc<Figures>, method: Method, target: Uri) -> Account {
        Account {
            figures,
            method,
            target,
            route: None,
            begun: Instant::now(),
            status: None,
            bytes: 0,
            end: End::ClientGone,
            planned: End::Whole,
            note: None,
            queued: None,
            conversation: None,
        }
    }

    /// Has a note kept about it.
    pub(crate) fn keep(&mut self, note: Box<dyn Note>) {
        self.note = Some(note);
    }

    /// Notes whose token the request brought.
    pub(crate) fn is_by(&mut self, name: &str) {
        self.note.iter_mut().for_each(|note| note.is_by(name));
    }

    /// Notes by which route the app's framework found what answers.
    pub(crate) fn is_by_route(&mut self, route: &[u8]) {
        self.route = Some(self.figures.routes.lock().number_of(route));
    }

    /// Notes that the request was handed to a pool.
    pub(crate) fn queued(&mut self, queued: QueueTime) {
        if self.note.is_some() {
            self.queued = Some(queued);
        }
    }

    /// Begins a conversation, which gets the note of the request. None: no note is kept.
    pub(crate) fn converses(&mut self) -> Option<Arc<Conversation>> {
        self.note.as_ref()?;
        Some(self.conversation.insert(Conversation::new(self.figures.clone())).clone())
    }

    /// The head of the response is there.
    pub(crate) fn answered<B: Body>(&mut self, response: &Response<B>, fate: Option<Fate>) {
        let status = response.status().as_u16();
        if fate.as_ref().is_some_and(|fate| fate.end == End::ClientGone) {
            // It hears nothing of this.
            self.planned = End::ClientGone;
            return;
        }
        self.status = Some(status);
        if let Some(note) = &mut self.note {
            note.head_came(status, response.headers());
        }
        if let Some(fate) = fate {
            self.planned = fate.end;
            self.figures.told(fate.reason);
        }
        // The library asks for no body of theirs.
        if self.method == Method::HEAD || matches!(status, 101 | 204 | 304) || response.body().is_end_stream() {
            self.end = self.planned;
        }
    }

    /// The body tells of a failure: its end is not that of a whole response, though all of it is handed over.
    pub(crate) fn plan(&mut self, end: End, reason: &'static str) {
        self.planned = end;
        self.figures.told(reason);
    }

    pub(crate) fn sent(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// All of the body was handed over.
    pub(crate) fn whole(&mut self) {
        self.end = self.planned;
    }

    pub(crate) fn ends_as(&mut self, end: End) {
        self.end = end;
    }

    /// Nobody has anything to do with it any more.
    pub(crate) fn over(&mut self, now: Instant) {
        self.end = self.figures.seen_as(self.end);
        let after = now.duration_since(self.begun);
        let times = Times::of(after);
        if self.end == End::Stopped {
            self.figures.tell_cut(after, || format!("{} {:.PATH_SHOWN_MAX$}", self.method, self.target.path()));
        }
        self.figures.ended(self.status, self.end, &times);
        if let Some(route) = self.route {
            self.figures.routes.lock().ended(route, &self.method, self.status, &times);
        }
        let begun = self.conversation.take().filter(|_| self.end == End::Whole && self.status == Some(101));
        if let Some(note) = self.note.take() {
            let past = PastRequest { note, queued: self.queued.take() };
            match begun {
                Some(conversation) => conversation.takes(past),
                None => past.ended(self.end, self.bytes),
            }
        }
    }
}
