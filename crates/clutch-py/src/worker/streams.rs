//! Streams of a worker's link, in either direction: their credit, what has come for them, and who waits for it.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clutch_wire::frame::{self, Head, Kind, STREAM_WINDOW};
use clutch_wire::{Codec, Payload};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use super::native_future::{NativeFuture, running_loop};
use super::{LOOK_AGAIN, WorkerLink};

/// What coroutines send waits for company at most this long, but for the step that runs then. (FastAPI's requests of 40 µs
/// each were fastest with 500 to 1000: without it clients wait for all of a turn, and idle; with less it is many writes.)
const COMPANY_ON_LOOP: Duration = Duration::from_micros(500);

/// By the ids of their calls.
pub(super) type Streams = HashMap<u64, Stream, BuildHasherDefault<IdHasher>>;

/// Ids are counted by the dispatcher: nobody can choose them so that they collide.
#[derive(Default)]
pub(super) struct IdHasher(u64);

/// 2^64 divided by the golden ratio, made odd (Knuth, The Art of Computer Programming 3, 6.4): spreads what is counted
/// over all bits.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.0 ^ u64::from(*byte)));
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = id.wrapping_mul(SPREAD);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Called when endless work is to end, before those who wait are woken.
pub type OnEnding = Arc<dyn Fn(Python<'_>) -> PyResult<()> + Send + Sync>;

/// One stream, in either direction.
#[derive(Default)]
pub struct Stream {
    pub credit: u32,
    pub cancelled: bool,
    pub input: VecDeque<Payload>,
    /// Whoever sends has gone.
    pub gone: bool,
    /// What was sent beyond the credit: it is taken off the next.
    debt: u32,
    /// The first pieces of a value whose last have not come yet.
    partial: Option<Payload>,
    /// It has no end of its own.
    pub(super) endless: bool,
    /// It is endless, and its worker is to end.
    ending: bool,
    on_ending: Option<OnEnding>,
    listener: Option<Py<PyAny>>,
    /// Waits of coroutines, which end when something has come.
    waiters: Vec<Py<NativeFuture>>,
    /// Its last chunk, which waits for the end of its work to go with it.
    held: Option<Payload>,
}

impl Stream {
    /// Takes so much of the credit. The last thing that is sent may be larger than what is left of it.
    pub fn spend(&mut self, cost: u32) {
        let paid = cost.min(self.credit);
        self.credit -= paid;
        self.debt += cost - paid;
    }

    pub(super) fn credited(&mut self, count: u32) {
        let paid = count.min(self.debt);
        self.debt -= paid;
        self.credit += count - paid;
    }

    /// Of a request: its client has gone, or somebody stopped it. Nobody takes what is sent.
    pub fn is_left(&self) -> bool {
        self.gone || self.cancelled
    }

    /// It is left, or to be left soon: there is nothing more to receive.
    pub fn is_over(&self) -> bool {
        self.is_left() || self.ending
    }

    /// Its worker is to end. What is to be called, and whose waits end.
    pub(super) fn end(&mut self) -> (Option<OnEnding>, Vec<Py<NativeFuture>>) {
        self.ending = true;
        (self.on_ending.clone(), std::mem::take(&mut self.waiters))
    }

    /// Something has come; `more`: it is a piece.
    pub(super) fn take(&mut self, piece: Payload, more: bool) {
        self.gone |= matches!(piece.codec, Codec::Empty | Codec::Close);
        let whole = match self.partial.take() {
            Some(mut partial) => {
                partial.inline.extend_from_slice(piece.body());
                partial
            }
            None => piece,
        };
        match whole.codec {
            Codec::Empty => {}
            _ if more => self.partial = Some(whole),
            _ => self.input.push_back(whole),
        }
    }
}

impl WorkerLink {
    /// Opens a stream for the producer of a call.
    pub fn open_stream(&self, id: u64) {
        if self.is_in_copy() {
            return;
        }
        let mut streams = self.streams.lock();
        streams.entry(id).or_default().credit += STREAM_WINDOW;
    }

    /// Whoever still waits for something of it looks again, and finds the end.
    pub fn close_stream(&self, py: Python<'_>, id: u64) {
        if self.is_in_copy() {
            return;
        }
        let closed = self.streams.lock().remove(&id);
        // Without the lock: this calls Python, and lets go of what the stream held.
        if let Some(stream) = closed {
            end_waits(py, &stream.waiters);
        }
    }

    /// Opens a stream for the body of a response, with its first credit.
    pub fn open_body(&self, id: u64, window: u32) {
        self.streams.lock().entry(id).or_default().credit = window;
    }

    /// This last chunk goes with the next flush of the running loop, unless the end of its work takes it along before.
    pub fn hold(slf: &Bound<'_, WorkerLink>, id: u64, last: Payload) -> PyResult<()> {
        let this = slf.get();
        this.with_stream(id, |stream| stream.held = Some(last));
        this.holding.lock().push(id);
        flush_soon(slf)
    }

    /// The last chunk that [`WorkerLink::hold`] was given, if it was not written meanwhile.
    pub fn take_held(&self, id: u64) -> Option<Payload> {
        self.with_stream(id, |stream| stream.held.take()).flatten()
    }

    /// It turns out to have no end of its own. Returns whether it is to end now; if not, `on_ending` is called then.
    pub fn mark_endless(&self, id: u64, on_ending: Option<OnEnding>) -> bool {
        let ending = self.with_stream(id, |stream| {
            stream.endless = true;
            stream.on_ending = on_ending;
            stream.ending = self.ending.load(Ordering::SeqCst);
            stream.ending
        });
        ending.unwrap_or(false)
    }

    /// Ends this wait when something comes for the stream. Of a stream that has ended, nothing does.
    pub fn add_waiter(&self, id: u64, waiter: Py<NativeFuture>) {
        let given_up = self.with_stream(id, |stream| {
            // Those with a time limit, say.
            let given_up: Vec<_> = stream.waiters.extract_if(.., |waiter| waiter.get().is_over()).collect();
            stream.waiters.push(waiter);
            given_up
        });
        // Without the lock: it may be the last to know them.
        drop(given_up);
    }

    /// Something has happened to the stream: who waits looks again, in a turn of its loop.
    pub fn wake(&self, py: Python<'_>, id: u64) {
        let waiters = self.with_stream(id, |stream| std::mem::take(&mut stream.waiters));
        end_waits(py, &waiters.unwrap_or_default());
    }

    pub fn put_chunk(&self, id: u64, payload: &Payload) -> io::Result<()> {
        self.put(Head::of(Kind::Chunk, id), &[], payload).map(drop).map_err(io::Error::other)
    }

    /// Lets the sender of an inbound stream send so many chunks more; written with the next flush.
    pub fn put_credit(&self, id: u64, count: u32) {
        if !self.is_in_copy() {
            self.writer.outbox.push(|out| frame::put_credit(&mut out.bytes, id, count));
        }
    }

    /// In a copy of the worker there is none: nobody takes anything, and nothing comes.
    pub fn with_stream<R>(&self, id: u64, look: impl FnOnce(&mut Stream) -> R) -> Option<R> {
        if self.is_in_copy() {
            return None;
        }
        self.streams.lock().get_mut(&id).map(look)
    }

    pub fn listen(&self, id: u64, listener: Option<Py<PyAny>>) -> Option<Py<PyAny>> {
        self.with_stream(id, |stream| std::mem::replace(&mut stream.listener, listener)).flatten()
    }

    /// Waits until something happens to streams: reads the link when nobody else does.
    pub fn wait_streams(&self, py: Python<'_>, id: u64, there: impl Fn(&Stream) -> bool + Sync) -> PyResult<()> {
        if self.is_in_copy() {
            let message = "this process was forked from a worker's: what comes for the call comes there";
            return Err(PyOSError::new_err(message));
        }
        let reads =
            !self.loop_reads.load(Ordering::Relaxed) && !std::mem::replace(&mut self.queue.lock().reading, true);
        if !reads {
            py.detach(|| {
                // A link that broke is seen by the reader.
                let _ = self.writer.flush();
                let streams = self.streams.lock();
                if !streams.get(&id).is_none_or(&there) {
                    self.credited.wait_for(streams, LOOK_AGAIN);
                }
            });
            return Ok(());
        }
        if self.with_stream(id, |stream| there(stream)).unwrap_or(true) {
            self.let_others_read();
            return Ok(());
        }
        self.read(py, false)?;
        if self.queue.lock().ended {
            self.streams.lock().values_mut().for_each(|stream| stream.cancelled = true);
        }
        Ok(())
    }

    /// Waits until something is there of a stream, in whatever way this thread may wait.
    pub fn wait_for(&self, py: Python<'_>, id: u64, there: impl Fn(&Stream) -> bool + Sync) -> PyResult<()> {
        while !self.with_stream(id, |stream| there(stream)).unwrap_or(true) {
            let waiter = self.waiter.lock().as_ref().map(|waiter| waiter.clone_ref(py));
            match waiter {
                Some(waiter) => drop(waiter.call1(py, (id,))?),
                None => self.wait_streams(py, id, &there)?,
            }
        }
        Ok(())
    }

    /// Tells a stream something; the listener of its producer is called without any lock held. Gives the waits that end.
    pub(super) fn stream_event(
        &self,
        py: Python<'_>,
        id: u64,
        event: impl FnOnce(&mut Stream),
    ) -> Vec<Py<NativeFuture>> {
        let told = self.with_stream(id, |stream| {
            event(stream);
            let listener = stream.listener.as_ref().map(|listener| listener.clone_ref(py));
            (listener, std::mem::take(&mut stream.waiters))
        });
        self.credited.notify_all();
        let (listener, waiters) = told.unwrap_or_default();
        if let Some(listener) = listener
            && let Err(error) = listener.call0(py)
        {
            error.write_unraisable(py, None);
        }
        waiters
    }
}

/// Ends waits, each in a turn of its loop.
pub(super) fn end_waits(py: Python<'_>, waiters: &[Py<NativeFuture>]) {
    waiters.iter().for_each(|waiter| NativeFuture::end_soon(waiter.bind(py)));
}

/// A flush that a loop has been asked for.
struct Flushing {
    event_loop: Py<PyAny>,
    when: When,
    /// Nothing that waits for it was there before.
    since: Instant,
}

impl Flushing {
    fn new(event_loop: Bound<'_, PyAny>, when: When) -> Flushing {
        Flushing { event_loop: event_loop.unbind(), when, since: Instant::now() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// At the end of this turn.
    Here,
    Next,
    /// In the turn after the next one.
    Soon,
}

thread_local! {
    /// Of each loop by itself: another one may stand still, or may have ended before its turn came. What a
    /// thread has at its end, which is without Python, stays as it is: see [`crate::bridge`].
    static FLUSHING: RefCell<ManuallyDrop<Option<Flushing>>> = const { RefCell::new(ManuallyDrop::new(None)) };
}

/// Writes what waits after this turn of the running loop and the next one: by then a coroutine that has sent all has mostly
/// ended, and one frame says both. At once where no loop runs, and where a turn takes longer than company is worth.
pub fn flush_soon(link: &Bound<'_, WorkerLink>) -> PyResult<()> {
    let Ok(event_loop) = running_loop(link.py()) else { return flush_held(link) };
    if let Some(since) = asked_since(&event_loop) {
        let since = flush_late(link, since)?;
        FLUSHING.with_borrow_mut(|asked| asked.iter_mut().for_each(|asked| asked.since = since));
        return Ok(());
    }
    call_flush_now(link, &event_loop)?;
    ask(Some(Flushing::new(event_loop, When::Soon)));
    Ok(())
}

/// Writes what waits if it may have done so for longer than company is worth. Since when nothing waits that was there before.
pub fn flush_late(link: &Bound<'_, WorkerLink>, since: Instant) -> PyResult<Instant> {
    if since.elapsed() <= COMPANY_ON_LOOP {
        return Ok(since);
    }
    flush_held(link)?;
    Ok(Instant::now())
}

/// One of the two turns of a flush has come.
pub(super) fn flush_now(link: &Bound<'_, WorkerLink>) -> PyResult<()> {
    let is_early = FLUSHING.with_borrow_mut(|asked| {
        asked.as_mut().is_some_and(|asked| std::mem::replace(&mut asked.when, When::Next) == When::Soon)
    });
    if is_early {
        return call_flush_now(link, &running_loop(link.py())?);
    }
    ask(None);
    flush_held(link)
}

/// The caller flushes at the end of this turn of the loop; false: that was asked for already.
pub(super) fn flush_here(event_loop: &Bound<'_, PyAny>) -> bool {
    let is_first = asked_since(event_loop).is_none();
    if is_first {
        ask(Some(Flushing::new(event_loop.clone(), When::Here)));
    }
    is_first
}

/// It is about to do so.
pub(super) fn flush_no_more() {
    ask(None);
}

fn asked_since(event_loop: &Bound<'_, PyAny>) -> Option<Instant> {
    FLUSHING
        .with_borrow(|asked| asked.as_ref().filter(|asked| asked.event_loop.is(event_loop)).map(|asked| asked.since))
}

fn ask(flushing: Option<Flushing>) {
    let before = FLUSHING.replace(ManuallyDrop::new(flushing));
    // It may be the last to know its loop.
    drop(ManuallyDrop::into_inner(before));
}

fn call_flush_now(link: &Bound<'_, WorkerLink>, event_loop: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = link.py();
    let flush = link.getattr(pyo3::intern!(py, "_flush_now"))?;
    event_loop.call_method1(pyo3::intern!(py, "call_soon"), (flush,)).map(|_| ())
}

fn flush_held(link: &Bound<'_, WorkerLink>) -> PyResult<()> {
    let this = link.get();
    let holding = std::mem::take(&mut *this.holding.lock());
    for id in holding {
        if let Some(last) = this.take_held(id) {
            this.put_chunk(id, &last)?;
        }
    }
    this.flush(link.py())
}
