//! What the connections of one event loop share: the app, the channel to their front, and the turns of the loop.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clutch_fronts::held::ledger::Adoption;
use clutch_fronts::held::message::{GoesOn, ToFront};
use clutch_wire::sync::Mutex;
use clutch_wire::sys::Poller;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PySet;
use rustc_hash::FxHashMap;

use super::channel::Channel;
use super::front::{Front, LOOK, REST_WAIT};
use super::pace::Pace;
use crate::handlers::early::Unsent;
use crate::handlers::held::StillRuns;
use crate::handlers::http::App;
use crate::serving::EagerStarter;
use crate::worker::Worker;

/// A connection, to those that it shares the loop with.
pub(super) trait Member: Send + Sync {
    /// Reads what has come into `arena`; whether there is something to take in.
    /// `is_ended`: its client sends nothing more.
    fn read(&self, py: Python<'_>, arena: &mut Vec<u8>, is_ended: bool) -> PyResult<bool>;

    /// Takes in what was read.
    fn take_in(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<()>;

    /// Sends what there is room for.
    fn flush(&self, py: Python<'_>) -> PyResult<()>;

    /// Sends without Python what can be sent so.
    fn send_early(&self);

    /// Hands itself back unless a request is answered, or the front has taken it.
    fn hand_back_if_idle(&self, py: Python<'_>) -> PyResult<()>;

    /// The front has taken it: its copy lives on.
    fn let_go(&self, py: Python<'_>);

    /// Whether nobody waits any more for the request that is answered.
    fn is_to_stop(&self) -> bool;

    /// Looks whether the client is too slow to take what is sent. Returns whether it is to be looked at again.
    fn look(&self, py: Python<'_>) -> PyResult<bool>;

    /// The same for one that is slow to send the rest of a request.
    fn look_for_rest(&self, py: Python<'_>) -> PyResult<bool>;

    /// Tells a response that has no end of its own that the worker is to end.
    fn end_endless(&self, py: Python<'_>);
}

/// What the connections of one event loop share.
pub(super) struct Shared {
    pub(super) worker: Py<Worker>,
    pub(super) starter: Py<EagerStarter>,
    pub(super) event_loop: Py<PyAny>,
    pub(super) app: Arc<App>,
    /// `wait_for(request, task)`: for a task that has not ended.
    pub(super) wait_for: Py<PyAny>,
    /// Tasks that have not ended, and most of them.
    pub(super) running: Py<PySet>,
    pub(super) tasks: usize,
    pub(super) channel: Channel,
    /// Of all connections, by their places, and the channel. The event loop waits for it.
    pub(super) poller: Poller,
    /// Connections with something to send when this turn of the loop is over.
    pub(super) unsent: Arc<Unsent<Arc<dyn Member>>>,
    /// That will be done: now, or soon.
    pub(super) will_send: AtomicBool,
    pub(super) pace: Pace,
    /// Room for what clients send, kept from one turn to the next.
    pub(super) arena: Mutex<Vec<u8>>,
    /// Set by the first message.
    pub(super) front: OnceLock<Front>,
    pub(super) connections: Mutex<FxHashMap<u32, Arc<dyn Member>>>,
    /// What goes on behind responses, by the numbers by which the front was told, until it says by what the pool knows it.
    pub(super) behind: Mutex<FxHashMap<u32, Box<dyn StillRuns>>>,
    pub(super) behind_told: AtomicU32,
    pub(super) is_leaving: AtomicBool,
    /// Responses without an end of their own were told that the worker is to end.
    pub(super) is_ending: AtomicBool,
    /// Called when the last connection has left.
    pub(super) on_left: Mutex<Option<Py<PyAny>>>,
    /// Place of the connection whose request takes its first step in the main thread, and one; 0: none does.
    pub(super) stepping: AtomicU32,
    pub(super) has_timer: AtomicBool,
    pub(super) has_rest_timer: AtomicBool,
    pub(super) has_records_timer: AtomicBool,
}

impl Shared {
    pub(super) fn front(&self) -> Option<&Front> {
        self.front.get()
    }

    pub(super) fn has_room(&self, py: Python<'_>) -> bool {
        self.running.bind(py).len() < self.tasks
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed) || self.front().is_some_and(|front| front.ledger.is_wanted_back())
    }

    pub(super) fn is_in_copy(&self) -> bool {
        self.worker.get().link.get().is_in_copy()
    }

    // ---- the event loop

    pub(super) fn call_later(&self, py: Python<'_>, delay: Duration, callback: impl Into<Py<PyAny>>) -> PyResult<()> {
        let callback = callback.into();
        self.event_loop.bind(py).call_method1(intern!(py, "call_later"), (delay.as_secs_f64(), callback)).map(drop)
    }

    /// Sends what connections have to say.
    pub(super) fn send_all(&self, py: Python<'_>) -> PyResult<()> {
        self.will_send.store(false, Ordering::Relaxed);
        let sent = self.send_unsent(py);
        self.channel.flush_when_due();
        sent
    }

    pub(super) fn send_unsent(&self, py: Python<'_>) -> PyResult<()> {
        self.unsent.take().into_iter().map(|connection| connection.flush(py)).fold(Ok(()), PyResult::and)
    }

    /// A connection has something to send: when the turn is over, or that of the loop.
    pub(super) fn send_later(self: &Arc<Self>, py: Python<'_>, connection: Arc<dyn Member>) -> PyResult<()> {
        self.unsent.push(connection);
        if self.will_send.load(Ordering::Relaxed) || self.will_send.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let send = Py::new(py, SendAll(self.clone()))?;
        self.event_loop.bind(py).call_method1(intern!(py, "call_soon"), (send,)).map(drop)
    }

    /// Says something at once, behind all that was said before.
    pub(super) fn say(self: &Arc<Self>, py: Python<'_>, message: &ToFront<'_>) -> PyResult<()> {
        if self.is_in_copy() {
            return Ok(());
        }
        self.channel.say(message);
        if self.channel.is_blocked() { self.look_later(py) } else { Ok(()) }
    }

    /// Has the front tell the pool of what goes on behind a response.
    pub(super) fn goes_on(
        self: &Arc<Self>,
        py: Python<'_>,
        code: Box<dyn StillRuns>,
        beginning: &[u8],
        age: Duration,
    ) -> PyResult<()> {
        if self.is_in_copy() || self.channel.is_closed() {
            return Ok(());
        }
        let number = self.behind_told.fetch_add(1, Ordering::Relaxed);
        self.behind.lock().insert(number, code);
        let age_us = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
        self.say(py, &ToFront::GoesOn(GoesOn { number, age_us, beginning }))
    }

    /// The pool knows it now; none: it has not taken it.
    pub(super) fn is_known(&self, py: Python<'_>, number: u32, adoption: Option<Adoption>) -> PyResult<()> {
        let code = self.behind.lock().remove(&number);
        let known = code.map_or(Ok(()), |code| code.known_as(py, adoption));
        known.and(self.look_whether_left(py))
    }

    pub(super) fn all(&self) -> Vec<Arc<dyn Member>> {
        self.connections.lock().values().cloned().collect()
    }

    pub(super) fn forget(&self, py: Python<'_>, place: u32) -> PyResult<()> {
        let forgotten = self.connections.lock().remove(&place);
        drop(forgotten);
        self.look_whether_left(py)
    }

    pub(super) fn look_whether_left(&self, py: Python<'_>) -> PyResult<()> {
        let holds_some = !self.connections.lock().is_empty() || !self.behind.lock().is_empty();
        if !self.is_leaving.load(Ordering::Relaxed) || holds_some {
            return Ok(());
        }
        let on_left = self.on_left.lock().take();
        on_left.map_or(Ok(()), |on_left| {
            self.channel.flush();
            on_left.call0(py).map(drop)
        })
    }

    // ---- timers

    /// Records wait to be sent with others, so long.
    pub(super) fn records_wait(self: &Arc<Self>, py: Python<'_>, left: Duration) -> PyResult<()> {
        if self.has_records_timer.load(Ordering::Relaxed) || self.has_records_timer.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.call_later(py, left, Py::new(py, SendRecords(self.clone()))?)
    }

    /// Looks at slow clients after a while.
    pub(super) fn look_later(self: &Arc<Self>, py: Python<'_>) -> PyResult<()> {
        match self.has_timer.swap(true, Ordering::Relaxed) {
            true => Ok(()),
            false => self.call_later(py, LOOK, Py::new(py, LookAtSlow(self.clone()))?),
        }
    }

    /// Looks soon whether the rest of a request has come.
    pub(super) fn look_for_rest(self: &Arc<Self>, py: Python<'_>) -> PyResult<()> {
        match self.has_rest_timer.swap(true, Ordering::Relaxed) {
            true => Ok(()),
            false => self.call_later(py, REST_WAIT, Py::new(py, LookForRest(self.clone()))?),
        }
    }
}

/// Called when a turn of the loop is over in which the app has said something.
#[pyclass(frozen, module = "clutch._core")]
struct SendAll(Arc<Shared>);

#[pymethods]
impl SendAll {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        self.0.send_all(py)
    }
}

/// Called by the timer of records.
#[pyclass(frozen, module = "clutch._core")]
struct SendRecords(Arc<Shared>);

#[pymethods]
impl SendRecords {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        self.0.has_records_timer.store(false, Ordering::Relaxed);
        match self.0.channel.flush_when_due() {
            Some(left) => self.0.records_wait(py, left),
            None => Ok(()),
        }
    }
}

/// Called by the timer of requests that are not whole.
#[pyclass(frozen, module = "clutch._core")]
struct LookForRest(Arc<Shared>);

#[pymethods]
impl LookForRest {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let shared = &self.0;
        shared.has_rest_timer.store(false, Ordering::Relaxed);
        let mut some_wait = false;
        for connection in shared.all() {
            some_wait |= connection.look_for_rest(py)?;
        }
        if some_wait { shared.look_for_rest(py) } else { Ok(()) }
    }
}

/// Called by the timer of slow clients.
#[pyclass(frozen, module = "clutch._core")]
struct LookAtSlow(Arc<Shared>);

#[pymethods]
impl LookAtSlow {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let shared = &self.0;
        shared.has_timer.store(false, Ordering::Relaxed);
        shared.channel.flush();
        let mut are_slow = shared.channel.is_blocked();
        for connection in shared.all() {
            are_slow |= connection.look(py)?;
        }
        if are_slow { shared.look_later(py) } else { Ok(()) }
    }
}
