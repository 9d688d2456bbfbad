//! Heads of responses whose first part is late. They are sent after [`HEAD_DELAY`], so that a client learns the status.
//!
//! One timer a loop serves all its requests, and looks at each head once: a response that comes at once costs a place in
//! a queue, or nothing if it comes in the first step of its coroutine.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::link::native_future::running_loop;

/// Time that a head waits for the first part of its body. Until then an app that raises gets a 500.
const HEAD_DELAY: Duration = Duration::from_millis(10);

/// A request, and what sends its head unless it has gone with the first part by then.
pub struct LateHead {
    pub request: Py<PyAny>,
    pub send: fn(&Bound<'_, PyAny>) -> PyResult<()>,
}

/// Requests that have started a response on a loop, the oldest first. While there are any, a timer of the loop runs.
struct LateHeads {
    event_loop: Py<PyAny>,
    waiting: VecDeque<(Instant, LateHead)>,
}

thread_local! {
    /// Not dropped at the thread's end, which is without Python: see [`crate::dispatcher::Bridge`]. Of a loop that has
    /// ended, or is nested in another, the heads wait for their first part.
    static LATE: RefCell<ManuallyDrop<Option<LateHeads>>> = const { RefCell::new(ManuallyDrop::new(None)) };
}

enum Next {
    Due(LateHead),
    In(Duration),
    Nothing,
}

/// Sends this head after [`HEAD_DELAY`]. Does nothing where no loop runs.
pub fn send_late(py: Python<'_>, head: LateHead) -> PyResult<()> {
    let Ok(event_loop) = running_loop(py) else { return Ok(()) };
    if push(&event_loop, (Instant::now(), head)) { call_later(&event_loop, HEAD_DELAY) } else { Ok(()) }
}

/// Returns whether the loop needs a timer.
fn push(event_loop: &Bound<'_, PyAny>, entry: (Instant, LateHead)) -> bool {
    let (is_first, replaced) = LATE.with_borrow_mut(|late| {
        if let Some(late) = late.as_mut().filter(|late| late.event_loop.is(event_loop)) {
            late.waiting.push_back(entry);
            return (late.waiting.len() == 1, None);
        }
        let fresh = LateHeads { event_loop: event_loop.clone().unbind(), waiting: VecDeque::from([entry]) };
        (true, late.replace(fresh))
    });
    // It may be the last to know its loop.
    drop(replaced);
    is_first
}

fn next_of(event_loop: &Bound<'_, PyAny>) -> Next {
    LATE.with_borrow_mut(|late| {
        let Some(late) = late.as_mut().filter(|late| late.event_loop.is(event_loop)) else { return Next::Nothing };
        match late.waiting.front().map(|(since, _)| HEAD_DELAY.saturating_sub(since.elapsed())) {
            None => Next::Nothing,
            Some(Duration::ZERO) => late.waiting.pop_front().map_or(Next::Nothing, |(_, head)| Next::Due(head)),
            Some(delay) => Next::In(delay),
        }
    })
}

/// Called by the timer of a loop.
#[pyclass(frozen, module = "clutch._core")]
struct SendLateHeads;

#[pymethods]
impl SendLateHeads {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let event_loop = running_loop(py)?;
        loop {
            match next_of(&event_loop) {
                Next::Due(head) => (head.send)(head.request.bind(py))?,
                Next::In(delay) => return call_later(&event_loop, delay),
                Next::Nothing => return Ok(()),
            }
        }
    }
}

fn call_later(event_loop: &Bound<'_, PyAny>, delay: Duration) -> PyResult<()> {
    let py = event_loop.py();
    let timer = (delay.as_secs_f64(), Py::new(py, SendLateHeads)?);
    event_loop.call_method1(pyo3::intern!(py, "call_later"), timer).map(|_| ())
}
