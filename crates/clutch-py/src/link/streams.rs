//! Streams of a worker's link, in either direction: their credit, their input, and their waiters.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clutch_wire::forked::Moment;
use clutch_wire::frame::STREAM_WINDOW;
use clutch_wire::sync::{Condvar, Mutex};
use clutch_wire::{Codec, Form, Payload};
use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use super::native_future::NativeFuture;

/// Interval at which the producer of a stream that waits for credit checks whether somebody reads.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// By the ids of their calls. The dispatcher counts them, so nobody can choose them to collide.
type Table = FxHashMap<u64, Stream>;

/// Called when endless work is to end, before those who wait are woken.
pub type OnEnding = Arc<dyn Fn(Python<'_>) -> PyResult<()> + Send + Sync>;

/// Called with a payload that is no input.
pub type OnAside = Arc<dyn Fn(Python<'_>, &Payload) -> PyResult<()> + Send + Sync>;

/// Stream in either direction.
#[derive(Default)]
pub struct Stream {
    pub credit: u32,
    pub cancelled: bool,
    pub input: VecDeque<Payload>,
    /// The sender has gone.
    pub gone: bool,
    /// The stream is one half of an exchange with a client. If the client has gone, nobody takes what is sent. (Of a
    /// call, `gone` is the end of its input, and its reader may be there still.)
    is_exchange: bool,
    /// Cost that was sent beyond the credit: taken off the next credit.
    debt: u32,
    /// The first pieces of a value whose last have not come yet.
    partial: Option<Payload>,
    /// The stream is endless.
    endless: bool,
    /// The stream is endless, and its worker is to end.
    ending: bool,
    on_ending: Option<OnEnding>,
    listener: Option<Py<PyAny>>,
    /// Whom a payload of this form is for, which is no input.
    aside: Option<(Form, OnAside)>,
    /// Waits of coroutines, which end when something has come.
    waiters: Vec<Py<NativeFuture>>,
    /// Last chunk, which waits for the end of its work to go with it.
    held: Option<Payload>,
}

impl Stream {
    /// Takes credit. The last chunk may be larger than the rest of the credit.
    pub fn spend(&mut self, cost: u32) {
        let paid = cost.min(self.credit);
        self.credit -= paid;
        self.debt += cost - paid;
    }

    pub fn credited(&mut self, count: u32) {
        let paid = count.min(self.debt);
        self.debt -= paid;
        self.credit += count - paid;
    }

    /// Returns whether the client of a request has gone, or somebody stopped the request. Nobody takes what is sent.
    pub fn is_left(&self) -> bool {
        self.gone || self.cancelled
    }

    /// Returns whether the stream is left, or will be soon: there is nothing more to receive.
    pub fn is_over(&self) -> bool {
        self.is_left() || self.ending
    }

    /// The reader has gone.
    pub fn is_unwanted(&self) -> bool {
        if self.is_exchange { self.is_over() } else { self.cancelled }
    }

    /// Notes that the worker is to end. Returns the callback to call, and the waits that end.
    fn end(&mut self) -> (Option<OnEnding>, Vec<Py<NativeFuture>>) {
        self.ending = true;
        (self.on_ending.clone(), std::mem::take(&mut self.waiters))
    }

    /// Input has arrived; `more`: it is a piece of a value. Returns whether the last is no input: see [`Streams::take_aside`].
    pub fn take(&mut self, piece: Payload, more: bool) -> bool {
        self.gone |= piece.form.is_farewell();
        let whole = match self.partial.take() {
            Some(mut partial) => {
                partial.inline.extend_from_slice(piece.body());
                partial
            }
            None => piece,
        };
        match whole.form.codec {
            Codec::Empty => {}
            _ if more => self.partial = Some(whole),
            _ => {
                let is_aside = self.aside.as_ref().is_some_and(|(form, _)| *form == whole.form);
                self.input.push_back(whole);
                return is_aside;
            }
        }
        false
    }
}

/// The streams of a worker's link.
pub struct Streams {
    table: Mutex<Table>,
    changed: Condvar,
    /// Endless streams were told to end.
    ending: AtomicBool,
    /// As [`super::sender::Sender`] knows it: what a copy of the worker has of a stream is nobody's.
    made: Moment,
}

impl Streams {
    pub fn new() -> Streams {
        Streams {
            table: Mutex::default(),
            changed: Condvar::new(),
            ending: AtomicBool::new(false),
            made: Moment::now(),
        }
    }

    /// In a copy of the worker there is none: nobody takes anything, and nothing comes.
    pub fn with<R>(&self, id: u64, look: impl FnOnce(&mut Stream) -> R) -> Option<R> {
        if self.made.is_in_copy() {
            return None;
        }
        self.table.lock().get_mut(&id).map(look)
    }

    // ---- its beginning and its end

    /// Opens the input of a call.
    pub fn expect_input(&self, id: u64) {
        self.table.lock().entry(id).or_default();
    }

    /// Opens a stream for the producer of a call. An exchange has its credit already.
    pub fn open(&self, id: u64) {
        if self.made.is_in_copy() {
            return;
        }
        let mut table = self.table.lock();
        let stream = table.entry(id).or_default();
        if !stream.is_exchange {
            stream.credit += STREAM_WINDOW;
        }
    }

    /// Opens an exchange with a client, with its first credit.
    pub fn open_exchange(&self, id: u64, window: u32) {
        let mut table = self.table.lock();
        let stream = table.entry(id).or_default();
        (stream.is_exchange, stream.credit) = (true, window);
    }

    /// Wakes all waiters of the stream, which then find its end.
    pub fn close(&self, py: Python<'_>, id: u64) {
        if self.made.is_in_copy() {
            return;
        }
        let closed = self.table.lock().remove(&id);
        // Without the lock: this calls Python, and lets go of what the stream held.
        if let Some(stream) = closed {
            end_waits(py, &stream.waiters);
        }
    }

    /// The link has ended.
    pub fn cancel_all(&self) {
        self.table.lock().values_mut().for_each(|stream| stream.cancelled = true);
    }

    // ---- what has no end of its own

    /// Notes that the stream is endless. Returns whether it is to end now; if not, `on_ending` is called then.
    pub fn mark_endless(&self, id: u64, on_ending: Option<OnEnding>) -> bool {
        let ending = self.with(id, |stream| {
            stream.endless = true;
            stream.on_ending = on_ending;
            stream.ending = self.ending.load(Ordering::SeqCst);
            stream.ending
        });
        ending.unwrap_or(false)
    }

    /// Tells those that have no end of their own that this worker is to end, and those that turn out to be such later.
    pub fn end_endless(&self, py: Python<'_>) -> PyResult<()> {
        self.ending.store(true, Ordering::SeqCst);
        let told: Vec<_> = {
            let mut table = self.table.lock();
            table.values_mut().filter(|stream| stream.endless).map(Stream::end).collect()
        };
        self.changed.notify_all();
        told.iter().try_for_each(|(on_ending, waiters)| {
            on_ending.as_ref().map_or(Ok(()), |on_ending| on_ending(py))?;
            end_waits(py, waiters);
            Ok(())
        })
    }

    // ---- what is no input

    /// Calls `on_aside(payload)` for the first payload of this form that comes.
    pub fn take_aside(&self, id: u64, form: Form, on_aside: OnAside) {
        self.with(id, |stream| stream.aside = Some((form, on_aside)));
    }

    /// Such a payload has come last.
    pub fn tell_aside(&self, py: Python<'_>, id: u64) {
        let come = self.with(id, |stream| Some((stream.aside.take()?.1, stream.input.pop_back()?)));
        if let Some((on_aside, payload)) = come.flatten()
            && let Err(error) = on_aside(py, &payload)
        {
            error.write_unraisable(py, None);
        }
    }

    // ---- its last chunk

    /// This last chunk is written with a flush, unless the end of its work takes it along before.
    pub fn hold(&self, id: u64, last: Payload) {
        self.with(id, |stream| stream.held = Some(last));
    }

    /// The last chunk that [`Streams::hold`] was given, if nobody took it before.
    pub fn take_held(&self, id: u64) -> Option<Payload> {
        self.with(id, |stream| stream.held.take()).flatten()
    }

    // ---- waiting

    /// Calls `listener()` whenever something has come for it; none: no more. Returns the one before.
    pub fn listen(&self, id: u64, listener: Option<Py<PyAny>>) -> Option<Py<PyAny>> {
        self.with(id, |stream| std::mem::replace(&mut stream.listener, listener)).flatten()
    }

    /// Ends this wait when something comes for the stream. Of a stream that has ended, nothing does.
    pub fn add_waiter(&self, id: u64, waiter: Py<NativeFuture>) {
        let given_up = self.with(id, |stream| {
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
        let waiters = self.with(id, |stream| std::mem::take(&mut stream.waiters));
        end_waits(py, &waiters.unwrap_or_default());
    }

    /// Waits a moment for something to happen to streams, unless it is `there`. Not with the GIL.
    pub fn wait_changed(&self, id: u64, there: impl Fn(&Stream) -> bool) {
        let table = self.table.lock();
        if !table.get(&id).is_none_or(there) {
            self.changed.wait_for(table, LOOK_AGAIN);
        }
    }

    /// Tells a stream something; the listener of its producer is called without any lock held. Gives the waits that end.
    pub fn event(&self, py: Python<'_>, id: u64, event: impl FnOnce(&mut Stream)) -> Vec<Py<NativeFuture>> {
        let told = self.with(id, |stream| {
            event(stream);
            let listener = stream.listener.as_ref().map(|listener| listener.clone_ref(py));
            (listener, std::mem::take(&mut stream.waiters))
        });
        self.changed.notify_all();
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
pub fn end_waits(py: Python<'_>, waiters: &[Py<NativeFuture>]) {
    waiters.iter().for_each(|waiter| NativeFuture::end_soon(waiter.bind(py)));
}
