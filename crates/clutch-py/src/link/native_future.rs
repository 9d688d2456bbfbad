//! Future that a coroutine of the app waits on: to its task a future, by asyncio's protocol
//! (`_asyncio_future_blocking`). Unlike asyncio's own it can end without a turn of the loop: a message from the link
//! lets the coroutine go on at once.

use clutch_wire::sync::Mutex;
use pyo3::exceptions::asyncio::{CancelledError, InvalidStateError};
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError, PySystemExit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::context;

/// Wait of one coroutine on one event loop.
#[pyclass(frozen, module = "clutch._core")]
pub struct NativeFuture {
    event_loop: Py<PyAny>,
    state: Mutex<FutureState>,
}

struct FutureState {
    is_blocking: bool,
    phase: Phase,
    callbacks: Vec<Callback>,
}

enum Phase {
    Waiting,
    Ended,
    Cancelled { message: Py<PyAny> },
}

/// Callback that runs when the wait is over: `call(future)` in a context.
struct Callback {
    call: Py<PyAny>,
    context: Option<Py<PyAny>>,
}

impl NativeFuture {
    pub fn new(event_loop: Py<PyAny>) -> NativeFuture {
        let state = FutureState { is_blocking: true, phase: Phase::Waiting, callbacks: Vec::new() };
        NativeFuture { event_loop, state: Mutex::new(state) }
    }

    pub fn is_over(&self) -> bool {
        !matches!(self.state.lock().phase, Phase::Waiting)
    }

    /// Whether its coroutine belongs to this loop.
    pub fn is_of(&self, event_loop: &Bound<'_, PyAny>) -> bool {
        self.event_loop.as_ptr() == event_loop.as_ptr()
    }

    /// Ends the wait; the caller must wake the waiter.
    fn end(&self) -> Vec<Callback> {
        let mut state = self.state.lock();
        match state.phase {
            Phase::Waiting => {
                state.phase = Phase::Ended;
                std::mem::take(&mut state.callbacks)
            }
            _ => Vec::new(),
        }
    }

    /// Ends the wait here and now: its coroutine goes on before this returns. Only in the thread of its loop, and not in any
    /// task.
    pub fn end_now(slf: &Bound<'_, NativeFuture>) {
        let py = slf.py();
        for Callback { call, context } in slf.get().end() {
            let gone_on = match context {
                Some(context) => context::within(context.into_bound(py), || call.call1(py, (slf,))),
                None => call.call1(py, (slf,)),
            };
            report(py, gone_on.map(|_| ()));
        }
    }

    /// Ends the wait from any thread, in a turn of its loop.
    pub fn end_soon(slf: &Bound<'_, NativeFuture>) {
        let told = NativeFuture::call_each(slf, intern!(slf.py(), "call_soon_threadsafe"), slf.get().end());
        match told {
            // A loop that has ended has nobody left to wake.
            Err(error) if error.is_instance_of::<PyRuntimeError>(slf.py()) => {}
            told => report(slf.py(), told),
        }
    }

    fn call_each(
        slf: &Bound<'_, NativeFuture>,
        how: &Bound<'_, pyo3::types::PyString>,
        callbacks: Vec<Callback>,
    ) -> PyResult<()> {
        let py = slf.py();
        let event_loop = slf.get().event_loop.bind(py);
        callbacks.into_iter().try_for_each(|Callback { call, context }| {
            let keywords = PyDict::new(py);
            keywords.set_item(intern!(py, "context"), context)?;
            event_loop.call_method(how, (call, slf), Some(&keywords)).map(|_| ())
        })
    }
}

pub fn running_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static GET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let get =
        GET.get_or_try_init(py, || Ok::<_, PyErr>(py.import("asyncio")?.getattr("get_running_loop")?.unbind()))?;
    get.bind(py).call0()
}

/// Reports an exception of a callback as unraisable, except those that end a loop: they end the task that raised them,
/// and nothing else.
fn report(py: Python<'_>, told: PyResult<()>) {
    match told {
        Err(error) if error.is_instance_of::<PySystemExit>(py) || error.is_instance_of::<PyKeyboardInterrupt>(py) => {}
        Err(error) => error.write_unraisable(py, None),
        Ok(()) => {}
    }
}

#[pymethods]
impl NativeFuture {
    #[getter(_asyncio_future_blocking)]
    fn is_blocking(&self) -> bool {
        self.state.lock().is_blocking
    }

    #[setter(_asyncio_future_blocking)]
    fn set_blocking(&self, is_blocking: bool) {
        self.state.lock().is_blocking = is_blocking;
    }

    fn get_loop(&self, py: Python<'_>) -> Py<PyAny> {
        self.event_loop.clone_ref(py)
    }

    #[pyo3(signature = (call, *, context = None))]
    fn add_done_callback(slf: &Bound<'_, Self>, call: Py<PyAny>, context: Option<Py<PyAny>>) -> PyResult<()> {
        let callback = Callback { call, context };
        let mut state = slf.get().state.lock();
        if matches!(state.phase, Phase::Waiting) {
            state.callbacks.push(callback);
            return Ok(());
        }
        drop(state);
        NativeFuture::call_each(slf, intern!(slf.py(), "call_soon"), vec![callback])
    }

    /// Returns their number.
    fn remove_done_callback(&self, call: &Bound<'_, PyAny>) -> PyResult<usize> {
        let callbacks = std::mem::take(&mut self.state.lock().callbacks);
        let (mut kept, count) = (Vec::new(), callbacks.len());
        for callback in callbacks {
            if !callback.call.bind(call.py()).eq(call)? {
                kept.push(callback);
            }
        }
        let removed = count - kept.len();
        self.state.lock().callbacks.append(&mut kept);
        Ok(removed)
    }

    /// In the thread of its loop. False: it was over.
    #[pyo3(signature = (msg = None))]
    fn cancel(slf: &Bound<'_, Self>, msg: Option<Py<PyAny>>) -> PyResult<bool> {
        let py = slf.py();
        let mut state = slf.get().state.lock();
        if !matches!(state.phase, Phase::Waiting) {
            return Ok(false);
        }
        state.phase = Phase::Cancelled { message: msg.unwrap_or_else(|| py.None()) };
        let callbacks = std::mem::take(&mut state.callbacks);
        drop(state);
        NativeFuture::call_each(slf, intern!(py, "call_soon"), callbacks)?;
        Ok(true)
    }

    fn cancelled(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Cancelled { .. })
    }

    fn done(&self) -> bool {
        self.is_over()
    }

    fn result(&self, py: Python<'_>) -> PyResult<()> {
        match &self.state.lock().phase {
            Phase::Ended => Ok(()),
            Phase::Waiting => Err(InvalidStateError::new_err("it is still being waited for")),
            Phase::Cancelled { message } if message.is_none(py) => Err(CancelledError::new_err(())),
            Phase::Cancelled { message } => Err(CancelledError::new_err((message.clone_ref(py),))),
        }
    }

    fn exception(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.result(py).map(|()| None)
    }
}
