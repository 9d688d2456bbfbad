//! Completions on their way into one event loop: one wake-up for a batch.
//!
//! Who brings answers runs without Python, and has none of its objects: PyO3 keeps what is dropped by such a thread behind a
//! lock of the whole process, which every thread takes that comes to Python from then on. A fork may find that lock taken, and
//! its child waits for it without end.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use clutch_pool::pool::Waker;
use clutch_wire::forked::Tracked;
use clutch_wire::sync::Mutex;
use clutch_wire::sys;
use pyo3::prelude::*;
use slab::Slab;

use crate::dispatcher::finalizing::wait_when_finalizing;

/// Passes completions to one event loop.
#[pyclass(frozen, weakref, module = "clutch._core")]
pub struct Bridge {
    waiters: Mutex<Slab<Py<PyAny>>>,
    ended: Arc<Ended>,
}

/// The part of the bridge that answers reach.
struct Ended {
    event: Tracked,
    /// Waiters whose answer has arrived.
    numbers: Mutex<Vec<usize>>,
}

/// Wakes one waiter when its answer arrives.
struct Waiter {
    number: usize,
    ended: Arc<Ended>,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut numbers = self.ended.numbers.lock();
        let first = numbers.is_empty();
        numbers.push(self.number);
        drop(numbers);
        if first {
            sys::signal_event(self.ended.event.as_fd());
        }
    }
}

impl Bridge {
    /// Has `waiter.set_result(None)` called on the event loop, also when the waker is dropped instead.
    pub fn waker_of(&self, waiter: Py<PyAny>) -> Waker {
        let awaited = Waiter { number: self.waiters.lock().insert(waiter), ended: self.ended.clone() };
        Box::new(move || drop(awaited))
    }

    fn take_ended(&self) -> Vec<Py<PyAny>> {
        let numbers = std::mem::take(&mut *self.ended.numbers.lock());
        let mut waiters = self.waiters.lock();
        numbers.into_iter().filter_map(|number| waiters.try_remove(number)).collect()
    }
}

#[pymethods]
impl Bridge {
    #[new]
    fn new() -> PyResult<Bridge> {
        let ended = Ended { event: Tracked::new(sys::event_fd()?), numbers: Mutex::default() };
        Ok(Bridge { waiters: Mutex::default(), ended: Arc::new(ended) })
    }

    /// For `loop.add_reader`.
    fn fileno(&self) -> i32 {
        self.ended.event.as_raw_fd()
    }

    /// Wakes every waiter whose answer has come.
    fn drain(&self, py: Python<'_>) {
        wait_when_finalizing();
        sys::clear_event(self.ended.event.as_fd());
        for waiter in self.take_ended() {
            // One that cannot be woken keeps nobody else waiting.
            if let Err(error) = wake(waiter.bind(py)) {
                error.write_unraisable(py, Some(waiter.bind(py)));
            }
        }
    }
}

fn wake(waiter: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = waiter.py();
    if waiter.call_method0(pyo3::intern!(py, "done"))?.is_truthy()? {
        return Ok(());
    }
    waiter.call_method1(pyo3::intern!(py, "set_result"), (py.None(),)).map(drop)
}
