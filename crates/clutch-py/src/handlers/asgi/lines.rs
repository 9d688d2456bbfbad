//! The WebSockets of one event loop whose sockets this worker has.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clutch_wire::sync::Mutex;
use clutch_wire::sys::{ENDED, Poller, TOKENS_MAX};
use pyo3::intern;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use crate::handlers::early::Unsent;
use crate::link::WorkerLink;
use crate::link::native_future::running_loop;
use crate::way;

/// Those of this worker.
static OF_WORKER: OnceLock<Arc<Lines>> = OnceLock::new();

/// A WebSocket, to those that it shares the loop with.
pub(super) trait Lent: Send + Sync {
    /// Something has come, or there is room. `is_ended`: its client sends nothing more.
    fn turn(&self, py: Python<'_>, arena: &mut Vec<u8>, is_ended: bool) -> PyResult<()>;

    /// Sends what there is room for.
    fn flush(&self, py: Python<'_>) -> PyResult<()>;

    /// Sends without Python what can be sent so.
    fn send_early(&self);

    /// Looks whether the client is there, and takes what is for it.
    fn look(&self, py: Python<'_>, arena: &mut Vec<u8>) -> PyResult<()>;
}

/// See the file's head.
pub(super) struct Lines {
    link: Py<WorkerLink>,
    event_loop: Py<PyAny>,
    pub(super) poller: Poller,
    lines: Mutex<FxHashMap<u32, Arc<dyn Lent>>>,
    next: AtomicU32,
    /// Those with something to send when this turn of the loop is over. Made for the first.
    unsent: OnceLock<Arc<Unsent<Arc<dyn Lent>>>>,
    /// That will be done: now, or soon.
    will_send: AtomicBool,
    /// Room for what clients send, kept from one turn to the next.
    arena: Mutex<Vec<u8>>,
    has_timer: AtomicBool,
    /// Interval at which clients are looked at that may be gone, in microseconds.
    look_us: AtomicU64,
}

impl Lines {
    /// Those of this worker, and the next token. None: it takes no sockets.
    pub(super) fn of_worker() -> Option<(Arc<Lines>, u32)> {
        let lines = OF_WORKER.get()?.clone();
        let token = lines.next.fetch_add(1, Ordering::Relaxed);
        Some((lines, token))
    }

    pub(super) fn keep(&self, token: u32, line: Arc<dyn Lent>) {
        self.lines.lock().insert(token, line);
    }

    pub(super) fn forget(&self, token: u32) {
        let forgotten = self.lines.lock().remove(&token);
        drop(forgotten);
    }

    fn turn(self: &Arc<Self>, py: Python<'_>) -> PyResult<()> {
        if self.link.get().is_in_copy() {
            return Ok(());
        }
        let mut tokens = Vec::new();
        self.poller.wait_for(&mut tokens, Some(Duration::ZERO), TOKENS_MAX)?;
        let come: Vec<(Arc<dyn Lent>, bool)> = {
            let lines = self.lines.lock();
            let of = |token: &u64| Some((lines.get(&(*token as u32))?.clone(), *token & ENDED != 0));
            tokens.iter().filter_map(of).collect()
        };
        let sends = !self.will_send.swap(true, Ordering::Relaxed);
        let taken =
            self.with_arena(|arena| come.iter().try_for_each(|(line, is_ended)| line.turn(py, arena, *is_ended)));
        if sends { self.send_all(py).and(taken) } else { taken }
    }

    fn with_arena<R>(&self, work: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let mut arena = std::mem::take(&mut *self.arena.lock());
        let done = work(&mut arena);
        arena.clear();
        *self.arena.lock() = arena;
        done
    }

    fn send_all(&self, py: Python<'_>) -> PyResult<()> {
        self.will_send.store(false, Ordering::Relaxed);
        let unsent = self.unsent.get().map(|unsent| unsent.take()).unwrap_or_default();
        unsent.into_iter().map(|line| line.flush(py)).fold(Ok(()), PyResult::and)
    }

    /// A line has something to send: when the turn is over, or that of the loop.
    pub(super) fn send_later(self: &Arc<Self>, py: Python<'_>, line: Arc<dyn Lent>) -> PyResult<()> {
        self.unsent.get_or_init(|| Unsent::watched(|line: &Arc<dyn Lent>| line.send_early())).push(line);
        if self.will_send.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let send = Py::new(py, SendAll(self.clone()))?;
        self.event_loop.bind(py).call_method1(intern!(py, "call_soon"), (send,)).map(drop)
    }

    /// Whether the loop that runs in this thread is the one of these.
    pub(super) fn is_on_loop(&self, py: Python<'_>) -> bool {
        running_loop(py).is_ok_and(|running| running.as_ptr() == self.event_loop.as_ptr())
    }

    /// Looks from now on as often as this, or more often, whether clients are gone.
    pub(super) fn look_each(self: &Arc<Self>, py: Python<'_>, interval: Duration) -> PyResult<()> {
        self.look_us.fetch_min(u64::try_from(interval.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.look_later(py)
    }

    /// Looks after a while, as long as there are some.
    fn look_later(self: &Arc<Self>, py: Python<'_>) -> PyResult<()> {
        if self.has_timer.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let look = Py::new(py, LookAtAll(self.clone()))?;
        let interval = Duration::from_micros(self.look_us.load(Ordering::Relaxed));
        self.event_loop.bind(py).call_method1(intern!(py, "call_later"), (interval.as_secs_f64(), look)).map(drop)
    }
}

/// The same, for the event loop.
#[pyclass(frozen, name = "Lines", module = "clutch._core")]
pub struct PyLines(Arc<Lines>);

#[pymethods]
impl PyLines {
    /// From now on this worker takes the sockets of WebSockets.
    #[new]
    fn new(link: &Bound<'_, WorkerLink>, event_loop: Py<PyAny>) -> PyResult<PyLines> {
        let lines = Arc::new(Lines {
            link: link.clone().unbind(),
            event_loop,
            poller: Poller::new()?,
            lines: Mutex::default(),
            next: AtomicU32::new(0),
            unsent: OnceLock::new(),
            will_send: AtomicBool::new(false),
            arena: Mutex::default(),
            has_timer: AtomicBool::new(false),
            look_us: AtomicU64::new(u64::MAX),
        });
        let _ = OF_WORKER.set(lines.clone());
        Ok(PyLines(lines))
    }

    /// Descriptor for the event loop to wait on.
    fn fileno(&self) -> i32 {
        self.0.poller.as_raw_fd()
    }

    /// Something has come, or there is room for more.
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        way::turn(py, || self.0.turn(py), || Ok(()))
    }
}

/// Called when a turn of the loop is over in which apps have sent something.
#[pyclass(frozen, module = "clutch._core")]
struct SendAll(Arc<Lines>);

#[pymethods]
impl SendAll {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        self.0.send_all(py)
    }
}

/// Called by the timer of silent and slow clients.
#[pyclass(frozen, module = "clutch._core")]
struct LookAtAll(Arc<Lines>);

#[pymethods]
impl LookAtAll {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let lines = &self.0;
        lines.has_timer.store(false, Ordering::Relaxed);
        let all: Vec<Arc<dyn Lent>> = lines.lines.lock().values().cloned().collect();
        let looked = lines.with_arena(|arena| all.iter().try_for_each(|line| line.look(py, arena)));
        if all.is_empty() { looked } else { looked.and(lines.look_later(py)) }
    }
}
