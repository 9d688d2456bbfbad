//! The answer for a caller that waits: a reply that keeps what it was told.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clutch_wire::Payload;
use clutch_wire::sync::{Condvar, Mutex};

use crate::work::{Outcome, Refusal, Reply, WorkId};

/// A chunk or the end of an answer.
#[derive(Clone, Debug)]
pub enum Part {
    Chunk(Payload),
    End(Outcome),
}

/// Called once, by the thread that learned of the answer; it must not block.
pub type Waker = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Inner {
    chunks: VecDeque<Payload>,
    outcome: Option<Outcome>,
    admitted: bool,
    on_end: Vec<Waker>,
    on_part: Vec<Waker>,
}

/// The answer of one piece of work, once it is there.
#[derive(Default)]
pub struct Answer {
    inner: Mutex<Inner>,
    changed: Condvar,
    done: AtomicBool,
    cancelled: AtomicBool,
    waiting: AtomicBool,
    id: AtomicU64,
    what: OnceLock<Box<str>>,
}

impl Answer {
    pub fn set_id(&self, id: WorkId) {
        self.id.store(id, Ordering::Release);
    }

    /// Sets what the work is, where its function has no name of its own.
    pub fn set_what(&self, what: Box<str>) {
        // The first word stands.
        let _ = self.what.set(what);
    }

    pub fn id(&self) -> WorkId {
        self.id.load(Ordering::Acquire)
    }

    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Returns whether the work was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Why it was not taken, when that is known already.
    pub fn refusal(&self) -> Option<Refusal> {
        if !self.is_done() {
            return None;
        }
        match &self.inner.lock().outcome {
            Some(Outcome::Refused(refusal)) => Some(refusal.clone()),
            _ => None,
        }
    }

    /// Waits for the end, at most so long; returns whether it is there.
    pub fn wait_done(&self, at_most: Duration) -> bool {
        self.is_done() || self.wait(at_most, |inner| inner.outcome.is_some())
    }

    /// Waits for a chunk or the end.
    pub fn wait_part(&self, at_most: Duration) -> bool {
        self.wait(at_most, |inner| inner.outcome.is_some() || !inner.chunks.is_empty())
    }

    /// Waits until the work has a place in the queue, or is answered.
    pub fn wait_admitted(&self, at_most: Duration) -> bool {
        self.wait(at_most, |inner| inner.admitted || inner.outcome.is_some())
    }

    fn wait(&self, at_most: Duration, there: impl Fn(&Inner) -> bool) -> bool {
        let deadline = Instant::now() + at_most;
        let inner = self.inner.lock();
        self.waiting.store(true, Ordering::Relaxed);
        self.changed.wait_until(inner, deadline, there).1
    }

    /// The end, when it is there. It stays: it can be read again.
    pub fn outcome(&self) -> Option<Outcome> {
        self.inner.lock().outcome.clone()
    }

    /// The end, taken out.
    pub fn take_outcome(&self) -> Option<Outcome> {
        self.inner.lock().outcome.take()
    }

    /// The same; none, too, while another thread is at it, which a copy of the process may not have.
    pub fn try_take_outcome(&self) -> Option<Outcome> {
        self.inner.try_lock()?.outcome.take()
    }

    /// Puts back what [`Answer::take_outcome`] gave, for one who could not read it to its end.
    pub fn put_back(&self, outcome: Outcome) {
        self.inner.lock().outcome = Some(outcome);
    }

    /// The next part of a stream; the end stays.
    pub fn take_part(&self) -> Option<Part> {
        let mut inner = self.inner.lock();
        match inner.chunks.pop_front() {
            Some(chunk) => Some(Part::Chunk(chunk)),
            None => inner.outcome.clone().map(Part::End),
        }
    }

    /// Calls `waker` when the end is there, at once if it is there already.
    pub fn on_end(&self, waker: Waker) {
        let mut inner = self.inner.lock();
        if !self.is_done() {
            inner.on_end.push(waker);
            return;
        }
        drop(inner);
        waker();
    }

    /// Calls `waker` when a chunk or the end is there, at once if one is.
    pub fn on_part(&self, waker: Waker) {
        let mut inner = self.inner.lock();
        if !self.is_done() && inner.chunks.is_empty() {
            inner.on_part.push(waker);
            return;
        }
        drop(inner);
        waker();
    }
}

impl Reply for Answer {
    fn chunk(&self, payload: Payload) {
        let mut inner = self.inner.lock();
        inner.chunks.push_back(payload);
        let wakers = std::mem::take(&mut inner.on_part);
        self.changed.notify_all();
        drop(inner);
        wakers.into_iter().for_each(|waker| waker());
    }

    fn finish(&self, outcome: Outcome, _queued: Option<Duration>) {
        let mut inner = self.inner.lock();
        self.cancelled.store(matches!(outcome, Outcome::Refused(Refusal::Cancelled)), Ordering::Release);
        inner.outcome = Some(outcome);
        self.done.store(true, Ordering::Release);
        let ends = std::mem::take(&mut inner.on_end);
        let parts = std::mem::take(&mut inner.on_part);
        if self.waiting.load(Ordering::Relaxed) {
            self.changed.notify_all();
        }
        drop(inner);
        ends.into_iter().chain(parts).for_each(|waker| waker());
    }

    fn describe(&self, _payload: &Payload) -> Option<String> {
        self.what.get().map(|what| what.to_string())
    }

    fn admitted(&self) {
        let mut inner = self.inner.lock();
        inner.admitted = true;
        if self.waiting.load(Ordering::Relaxed) {
            self.changed.notify_all();
        }
    }
}
