//! When what waits on the link is written while an event loop runs: what coroutines send goes with what others do.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_wire::Payload;
use clutch_wire::sync::Mutex;
use pyo3::prelude::*;

use super::native_future::running_loop;
use super::sender::Sender;
use super::streams::Streams;

/// Maximum time that messages of coroutines wait for others, besides the step that runs then. (FastAPI's requests of 40
/// µs each were fastest with 500 to 1000 µs. Without the wait, clients wait for a whole turn, and idle; with less,
/// there are many writes.)
const COMPANY_ON_LOOP: Duration = Duration::from_micros(500);

/// A flush requested from a loop.
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
    /// Flush state of each loop by itself: another loop may stand still, or may have ended before its turn came. The
    /// state is not dropped at the thread's end, which is without Python: see [`crate::dispatcher::Bridge`].
    static FLUSHING: RefCell<ManuallyDrop<Option<Flushing>>> = const { RefCell::new(ManuallyDrop::new(None)) };
}

/// Writes what coroutines have sent. All loops of a worker share it.
pub struct Flusher {
    sender: Arc<Sender>,
    streams: Arc<Streams>,
    /// Streams whose last chunk waits for the next flush.
    holding: Mutex<Vec<u64>>,
}

/// Called by a loop in each of the two turns of a flush.
#[pyclass(frozen, module = "clutch._core")]
struct FlushNow(Arc<Flusher>);

#[pymethods]
impl FlushNow {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        self.0.on_turn(py)
    }
}

impl Flusher {
    pub fn new(sender: Arc<Sender>, streams: Arc<Streams>) -> Flusher {
        Flusher { sender, streams, holding: Mutex::default() }
    }

    /// This last chunk of a stream goes with the next flush of the running loop, unless the end of its work takes it along.
    pub fn hold(self: &Arc<Self>, py: Python<'_>, id: u64, last: Payload) -> PyResult<()> {
        self.streams.hold(id, last);
        self.holding.lock().push(id);
        self.flush_soon(py)
    }

    /// Writes what waits after this turn of the running loop and the next one: by then a coroutine that has sent all has mostly
    /// ended, and one frame says both. At once where no loop runs, and where a turn takes longer than company is worth.
    pub fn flush_soon(self: &Arc<Self>, py: Python<'_>) -> PyResult<()> {
        let Ok(event_loop) = running_loop(py) else { return self.flush_held(py) };
        if let Some(since) = asked_since(&event_loop) {
            let since = self.flush_late(py, since)?;
            FLUSHING.with_borrow_mut(|asked| asked.iter_mut().for_each(|asked| asked.since = since));
            return Ok(());
        }
        self.call_soon(&event_loop)?;
        ask(Some(Flushing::new(event_loop, When::Soon)));
        Ok(())
    }

    /// Writes what waits if it may have done so for longer than company is worth. Since when nothing waits that was there before.
    pub fn flush_late(&self, py: Python<'_>, since: Instant) -> PyResult<Instant> {
        if since.elapsed() <= COMPANY_ON_LOOP {
            return Ok(since);
        }
        self.flush_held(py)?;
        Ok(Instant::now())
    }

    fn on_turn(self: &Arc<Self>, py: Python<'_>) -> PyResult<()> {
        let is_early = FLUSHING.with_borrow_mut(|asked| {
            asked.as_mut().is_some_and(|asked| std::mem::replace(&mut asked.when, When::Next) == When::Soon)
        });
        if is_early {
            return self.call_soon(&running_loop(py)?);
        }
        ask(None);
        self.flush_held(py)
    }

    /// Calls `with`, after which the caller flushes: at the end of this turn of the loop.
    pub fn flushing_here(self: &Arc<Self>, event_loop: &Bound<'_, PyAny>, with: impl FnOnce()) -> PyResult<()> {
        let is_first = asked_since(event_loop).is_none();
        if is_first {
            ask(Some(Flushing::new(event_loop.clone(), When::Here)));
        }
        with();
        if is_first {
            ask(None);
            if !self.holding.lock().is_empty() {
                self.flush_soon(event_loop.py())?;
            }
        }
        Ok(())
    }

    fn call_soon(self: &Arc<Self>, event_loop: &Bound<'_, PyAny>) -> PyResult<()> {
        let flush = Py::new(event_loop.py(), FlushNow(self.clone()))?;
        event_loop.call_method1(pyo3::intern!(event_loop.py(), "call_soon"), (flush,)).map(|_| ())
    }

    fn flush_held(&self, py: Python<'_>) -> PyResult<()> {
        let holding = std::mem::take(&mut *self.holding.lock());
        for id in holding {
            if let Some(last) = self.streams.take_held(id) {
                self.sender.put_chunk(id, &last)?;
            }
        }
        self.sender.flush(py)
    }
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
