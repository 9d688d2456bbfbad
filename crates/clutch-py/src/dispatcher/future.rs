//! The answer of one piece of work as Python holds it: decoded in the thread that asks, told to event loops in batches.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use clutch_pool::link::items::{self, ITEMS};
use clutch_pool::pool::{Answer, Part, Pool};
use clutch_pool::work::{Outcome, Refusal, WorkId};
use clutch_wire::Failure;
use clutch_wire::forked::{Moment, PerProcess};
use clutch_wire::frame::WireError;
use clutch_wire::sync::{Condvar, Mutex, MutexGuard};
use clutch_wire::sys;
use clutch_wire::{Codec, Payload};
use pyo3::exceptions::{PyRuntimeError, PyStopIteration, PyTimeoutError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::codec;
use crate::dispatcher::bridge::Bridge;
use crate::dispatcher::finalizing::wait_when_finalizing;
use crate::dispatcher::timeout::{LOOK_FOR_SIGNALS, until, wait_in_slices};
use crate::errors::{self, failure_error, forked_error, no_end, told, unreadable};

/// Chunks taken from a stream before its producer is given credit for as many.
const CREDIT_STEP: u32 = 8;

/// Interval at which a thread checks for a value that another thread decodes.
const LOOK_FOR_VALUE: Duration = Duration::from_micros(50);

/// The error for user code that asks for a result while its own thread is decoding it.
const READ_HERE: &str = "this thread is decoding this result right now: code that runs meanwhile (a signal's handler, a \
                         __setstate__) cannot have it; let it set a flag, and ask for the result after that";

enum Decoded {
    Value(Py<PyAny>),
    Error(Py<PyAny>),
}

struct Held {
    pool: Arc<Pool>,
    answer: Arc<Answer>,
    decoded: Mutex<Option<Decoded>>,
    /// The thread that is decoding it; 0: none.
    decoder: AtomicU64,
}

/// Base of `clutch.Future`.
#[pyclass(frozen, subclass, weakref, module = "clutch._core")]
pub struct Completion {
    held: OnceLock<Held>,
}

impl Completion {
    /// Gives a new future its answer.
    pub fn hold(&self, pool: Arc<Pool>, answer: Arc<Answer>) {
        let _ = self.held.set(Held { pool, answer, decoded: Mutex::new(None), decoder: AtomicU64::new(0) });
    }

    fn held(&self) -> PyResult<&Held> {
        wait_when_finalizing();
        self.held.get().ok_or_else(|| PyRuntimeError::new_err("a clutch.Future is made by a pool only"))
    }
}

/// Waits for the end and decodes the answer.
fn end_of(py: Python<'_>, held: &Held, timeout: Option<f64>) -> PyResult<()> {
    until(timeout)?;
    if !held.answer.is_done() {
        wait(py, &held.pool, timeout, |slice| held.answer.wait_done(slice))?;
    }
    decoded(py, held)
}

fn decoded(py: Python<'_>, held: &Held) -> PyResult<()> {
    loop {
        if held.decoded.lock().is_some() {
            return Ok(());
        }
        // The first to come takes the bytes; whoever comes meanwhile waits for the value.
        let Some(outcome) = held.answer.try_take_outcome() else {
            if held.pool.is_forked() {
                return Err(forked_error(py));
            }
            if held.decoder.load(Ordering::Relaxed) == sys::thread_ident() {
                return Err(PyRuntimeError::new_err(READ_HERE));
            }
            py.detach(|| std::thread::sleep(LOOK_FOR_VALUE));
            py.check_signals()?;
            continue;
        };
        held.decoder.store(sys::thread_ident(), Ordering::Relaxed);
        let read = told(py, &outcome, |payload| match payload.form {
            ITEMS => batch(py, payload),
            _ => codec::decode(py, payload),
        });
        let value = match read {
            Ok(Ok(value)) => Decoded::Value(value.unbind()),
            Ok(Err(error)) => Decoded::Error(error.into_value(py).into_any()),
            Err(broken_off) => {
                held.answer.put_back(outcome);
                held.decoder.store(0, Ordering::Relaxed);
                return Err(broken_off);
            }
        };
        *held.decoded.lock() = Some(value);
        held.decoder.store(0, Ordering::Relaxed);
    }
}

/// `(values, [(index, exception)], run time in ns)` of a mapped batch.
fn batch<'py>(py: Python<'py>, payload: &Payload) -> PyResult<Bound<'py, PyAny>> {
    let wrong = |error: WireError| PyValueError::new_err(error.to_string());
    let (values, failures) = (PyList::empty(py), PyList::empty(py));
    let (run_ns, items) = items::read(payload);
    for (at, item) in items.enumerate() {
        let item = item.map_err(wrong)?;
        if !item.failed {
            match codec::decode_parts(py, item.codec, item.bytes, item.leases) {
                Ok(value) => values.append(value)?,
                Err(error) => {
                    values.append(py.None())?;
                    failures.append((at, unreadable(py, error)?.into_value(py)))?;
                }
            }
            continue;
        }
        let body = item.leases.first().map_or(item.bytes.to_vec(), |lease| lease.bytes().to_vec());
        values.append(py.None())?;
        failures.append((at, failure_error(py, &Failure::decode(&body).map_err(wrong)?)?.into_value(py)))?;
    }
    Ok((values, failures, run_ns).into_pyobject(py)?.into_any())
}

/// Waits in slices, so that signals are seen. In a copy of the pool's process nothing comes any more.
fn wait(py: Python<'_>, pool: &Pool, timeout: Option<f64>, ready: impl Fn(Duration) -> bool + Sync) -> PyResult<()> {
    let deadline = until(timeout)?;
    loop {
        if pool.is_forked() {
            return Err(forked_error(py));
        }
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let slice = left.map_or(LOOK_FOR_SIGNALS, |left| left.min(LOOK_FOR_SIGNALS));
        if py.detach(|| ready(slice)) {
            return Ok(());
        }
        if left.is_some_and(|left| left.is_zero()) {
            return Err(PyTimeoutError::new_err(()));
        }
        py.check_signals()?;
    }
}

#[pymethods]
impl Completion {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyAny>, _kwargs: Option<&Bound<'_, PyAny>>) -> Completion {
        Completion { held: OnceLock::new() }
    }

    /// An error that was raised refers to the frames that it went through, and one of those often holds the future.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Whoever holds the lock is using it, so that it is no garbage.
        let Some(decoded) = self.held.get().and_then(|held| held.decoded.try_lock()) else { return Ok(()) };
        match &*decoded {
            Some(Decoded::Value(kept) | Decoded::Error(kept)) => visit.call(kept),
            None => Ok(()),
        }
    }

    fn __clear__(&self, py: Python<'_>) {
        let Some(held) = self.held.get() else { return };
        let kept = held.decoded.try_lock().and_then(|mut decoded| decoded.replace(Decoded::Value(py.None())));
        drop(kept);
    }

    /// Whether it has ended.
    fn done(&self) -> PyResult<bool> {
        Ok(self.held()?.answer.is_done())
    }

    fn cancelled(&self) -> PyResult<bool> {
        Ok(self.held()?.answer.is_cancelled())
    }

    /// Whether user code is running it.
    fn running(&self) -> PyResult<bool> {
        let held = self.held()?;
        Ok(!held.answer.is_done() && held.pool.has_begun(held.answer.id()))
    }

    /// Cancels it: waiting work never starts, running work is stopped. False: it has already ended.
    fn cancel(&self, py: Python<'_>) -> PyResult<bool> {
        let held = self.held()?;
        Ok(py.detach(|| held.answer.is_cancelled() || held.pool.cancel(held.answer.id())))
    }

    /// Returns the value, or raises the exception of the work. Waits at most `timeout` seconds.
    #[pyo3(signature = (timeout = None))]
    fn result(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let held = self.held()?;
        end_of(py, held, timeout)?;
        match &*held.decoded.lock() {
            Some(Decoded::Error(error)) => Err(PyErr::from_value(error.bind(py).clone())),
            Some(Decoded::Value(value)) => Ok(value.clone_ref(py)),
            None => Err(PyRuntimeError::new_err("no value")),
        }
    }

    /// Returns the exception of the work, or None. Waits at most `timeout` seconds.
    #[pyo3(signature = (timeout = None))]
    fn exception(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Py<PyAny>>> {
        let held = self.held()?;
        end_of(py, held, timeout)?;
        match &*held.decoded.lock() {
            Some(Decoded::Error(error)) if held.answer.is_cancelled() => Err(PyErr::from_value(error.bind(py).clone())),
            Some(Decoded::Error(error)) => Ok(Some(error.clone_ref(py))),
            _ => Ok(None),
        }
    }

    /// The number of the work in its pool.
    #[getter]
    fn work_id(&self) -> PyResult<WorkId> {
        Ok(self.held()?.answer.id())
    }

    /// Waits until a full pool has accepted it.
    fn _wait_admitted(&self, py: Python<'_>) -> PyResult<()> {
        let held = self.held()?;
        wait(py, &held.pool, None, |slice| held.answer.wait_admitted(slice))
    }

    /// Has `waiter.set_result(None)` called on the bridge's event loop when the end is there.
    fn _subscribe(&self, bridge: &Bound<'_, Bridge>, waiter: Py<PyAny>) -> PyResult<()> {
        let held = self.held()?;
        if held.pool.is_forked() {
            return Err(forked_error(bridge.py()));
        }
        held.answer.on_end(bridge.get().waker_of(waiter));
        Ok(())
    }

    /// Has `self._settle()` called on the completion thread when the end is there; at once in a copy of the pool's process,
    /// where none comes any more.
    fn _watch(slf: &Bound<'_, Self>) -> PyResult<()> {
        if slf.get().held()?.pool.is_forked() {
            return slf.call_method0("_settle").map(drop);
        }
        let completer = completer()?;
        let future = slf.clone().into_any().unbind();
        slf.get().held()?.answer.on_end(Box::new(move || completer.push(future)));
        Ok(())
    }
}

/// Ends futures that Python code waits for with callbacks or `concurrent.futures.wait`, on a thread of its own, which has
/// done all before the interpreter ends.
#[derive(Default)]
struct Completer {
    state: Mutex<Completing>,
    changed: Condvar,
}

#[derive(Default)]
struct Completing {
    ended: Vec<Py<PyAny>>,
    busy: bool,
    /// Set at the end of the program: no more callbacks are accepted.
    over: bool,
}

impl Completer {
    fn push(&self, future: Py<PyAny>) {
        let mut state = self.state.lock();
        if state.over {
            // Left as it is, see [`crate::dispatcher::bridge`]: the process ends.
            return std::mem::forget(future);
        }
        state.ended.push(future);
        self.changed.notify_all();
    }

    /// Attached for good: CPython takes a lock to make a thread's state and to end it, and up to 3.11.7 the child of a fork
    /// that comes then waits for it without end (python/cpython#112275).
    fn run(&self) {
        sys::block_signals();
        errors::is_never_broken_off();
        wait_when_finalizing();
        let _ = Python::try_attach(|py| {
            while let Some(batch) = py.detach(|| self.next()) {
                for future in batch {
                    if let Err(error) = future.call_method0(py, "_settle") {
                        error.write_unraisable(py, Some(future.bind(py)));
                    }
                }
            }
        });
    }

    /// None at the end of the program.
    fn next(&self) -> Option<Vec<Py<PyAny>>> {
        let mut state = self.state.lock();
        state.busy = false;
        self.changed.notify_all();
        state = self.changed.wait(state, |state| !state.ended.is_empty() || state.over);
        state.busy = !state.ended.is_empty();
        state.busy.then(|| std::mem::take(&mut state.ended))
    }

    /// Waits until all callbacks have run; then no more are taken. None: not in time.
    fn finish(&self, deadline: Instant) -> Option<()> {
        let all_ended = |state: &Completing| !state.busy && state.ended.is_empty();
        let (mut state, in_time) = self.changed.wait_until(self.state.lock(), deadline, all_ended);
        if !in_time {
            return None;
        }
        state.over = true;
        self.changed.notify_all();
        Some(())
    }
}

static COMPLETER: PerProcess<Completer> = PerProcess::new();

fn completer() -> io::Result<&'static Completer> {
    COMPLETER.served("clutch-complete", || Ok(Completer::default()), Completer::run)
}

/// At the program's end, when no pool has work any more: waits for the callbacks of futures. Later ones are not called.
#[pyfunction]
pub fn finish_callbacks(py: Python<'_>) -> PyResult<()> {
    match COMPLETER.made() {
        Some(completer) => wait_in_slices(py, None, |at| completer.finish(at), || Ok(())).map(drop),
        None => Ok(()),
    }
}

/// The program ends as after a KeyboardInterrupt that nobody catches: by SIGINT, when it has done all else.
#[pyfunction]
pub fn interrupt_at_exit() {
    sys::interrupt_at_exit();
}

/// Base of `clutch.Stream`: the values of a generator that runs in a worker.
#[pyclass(frozen, subclass, weakref, module = "clutch._core")]
pub struct StreamCore {
    held: OnceLock<(Arc<Pool>, Arc<Answer>)>,
    taken: Mutex<u32>,
    /// Whether the end was raised: as with any generator, an error is raised once.
    ended: AtomicBool,
    /// By who reads it.
    closed: AtomicBool,
}

impl StreamCore {
    pub fn hold(&self, pool: Arc<Pool>, answer: Arc<Answer>) {
        let _ = self.held.set((pool, answer));
    }

    fn held(&self) -> PyResult<&(Arc<Pool>, Arc<Answer>)> {
        wait_when_finalizing();
        self.held.get().ok_or_else(|| PyRuntimeError::new_err("a clutch.Stream is made by a pool only"))
    }

    /// The source of further values.
    fn held_here(&self, py: Python<'_>) -> PyResult<&(Arc<Pool>, Arc<Answer>)> {
        let held = self.held()?;
        if held.0.is_forked() { Err(forked_error(py)) } else { Ok(held) }
    }

    fn give_credit(&self, pool: &Pool, id: WorkId) {
        let mut taken = self.taken.lock();
        *taken += 1;
        if *taken == CREDIT_STEP {
            *taken = 0;
            drop(taken);
            pool.credit(id, CREDIT_STEP);
        }
    }

    fn part<'py>(&self, py: Python<'py>, part: Part) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (pool, answer) = self.held()?;
        match part {
            Part::Chunk(payload) => {
                py.detach(|| self.give_credit(pool, answer.id()));
                match codec::decode(py, &payload) {
                    Ok(value) => Ok(Some(value)),
                    Err(error) => Err(unreadable(py, error)?),
                }
            }
            Part::End(_) if self.ended.swap(true, Ordering::AcqRel) => Ok(None),
            // The end of the values, as of a closed generator. Cancelled by anybody else it is an error.
            Part::End(Outcome::Refused(Refusal::Cancelled)) if self.closed.load(Ordering::Acquire) => Ok(None),
            Part::End(Outcome::Value(payload)) if payload.form.codec != Codec::Empty => {
                Err(crate::errors::clutch_error(
                    py,
                    "BadArguments",
                    "stream() needs a tool that is a generator; this one returned one value: use call()",
                    &[],
                ))
            }
            Part::End(outcome) => {
                told(py, &outcome, |_| Ok(py.None().into_bound(py)))?.map_err(|error| no_end(py, error))?;
                Ok(None)
            }
        }
    }
}

#[pymethods]
impl StreamCore {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyAny>, _kwargs: Option<&Bound<'_, PyAny>>) -> StreamCore {
        let (ended, closed) = (AtomicBool::new(false), AtomicBool::new(false));
        StreamCore { held: OnceLock::new(), taken: Mutex::new(0), ended, closed }
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Waits for the next value.
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.ended.load(Ordering::Acquire) {
            return Ok(None);
        }
        loop {
            let (pool, answer) = self.held_here(py)?;
            if let Some(part) = answer.take_part() {
                return self.part(py, part);
            }
            wait(py, pool, None, |slice| answer.wait_part(slice))?;
        }
    }

    /// `(True, value)` or, when nothing is there yet, `(False, None)`; raises StopIteration at the end.
    fn _poll<'py>(&self, py: Python<'py>) -> PyResult<(bool, Option<Bound<'py, PyAny>>)> {
        let (_, answer) = self.held_here(py)?;
        match answer.take_part() {
            None => Ok((false, None)),
            Some(part) => match self.part(py, part)? {
                Some(value) => Ok((true, Some(value))),
                None => Err(PyStopIteration::new_err(())),
            },
        }
    }

    /// Has `waiter.set_result(None)` called on the bridge's event loop when a value or the end is there.
    fn _subscribe(&self, bridge: &Bound<'_, Bridge>, waiter: Py<PyAny>) -> PyResult<()> {
        let (_, answer) = self.held_here(bridge.py())?;
        answer.on_part(bridge.get().waker_of(waiter));
        Ok(())
    }

    /// Closes the stream, and with it the generator in the worker.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let (pool, answer) = self.held()?;
        self.closed.store(true, Ordering::Release);
        py.detach(|| pool.cancel(answer.id()));
        Ok(())
    }
}

impl Drop for StreamCore {
    fn drop(&mut self) {
        if let Some((pool, answer)) = self.held.get()
            && !answer.is_done()
        {
            pool.cancel(answer.id());
        }
    }
}

/// Items of a map, in order. `advance()` gives the next batch as `(values, [(index, exception)])`, or None at the end;
/// `give_up()` says that nobody reads on.
#[pyclass(frozen, weakref, module = "clutch._core")]
pub struct MapItems {
    advance: Py<PyAny>,
    give_up: Py<PyAny>,
    /// Locked by the thread that is at work on it, also while it waits for the next batch: it has the map for itself, as it
    /// would a generator.
    current: Mutex<Current>,
    made: Moment,
}

impl MapItems {
    /// In a copy of the process the thread that holds it is not there, nor will the item come that it waits for.
    fn turn(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Current>> {
        let busy = || PyValueError::new_err("map already executing: another thread waits for its next item");
        let why = || if self.made.is_in_copy() { forked_error(py) } else { busy() };
        self.current.try_lock().ok_or_else(why)
    }
}

#[derive(Default)]
struct Current {
    values: Option<Py<PyList>>,
    at: usize,
    /// Failures of the items from `at` on, in their order.
    failures: VecDeque<(usize, Py<PyAny>)>,
}

impl Current {
    /// The next item of the batch at hand.
    fn take<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(values) = self.values.as_ref().map(|values| values.bind(py)) else { return Ok(None) };
        let at = self.at;
        if at == values.len() {
            return Ok(None);
        }
        self.at += 1;
        if self.failures.front().is_some_and(|(index, _)| *index == at)
            && let Some((_, error)) = self.failures.pop_front()
        {
            return Err(no_end(py, PyErr::from_value(error.into_bound(py))));
        }
        let value = values.get_item(at)?;
        // A value is the caller's alone once it is given out.
        values.set_item(at, py.None())?;
        Ok(Some(value))
    }
}

#[pymethods]
impl MapItems {
    #[new]
    fn new(advance: Py<PyAny>, give_up: Py<PyAny>) -> MapItems {
        MapItems { advance, give_up, current: Mutex::default(), made: Moment::now() }
    }

    /// As of a generator: there are no more items. Raises ValueError while another thread waits for one.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        wait_when_finalizing();
        let mut current = self.turn(py)?;
        *current = Current::default();
        self.give_up.call0(py).map(drop)
    }

    /// As for a [`Completion`]: the error of an item that was raised may lead back to here.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.advance)?;
        let Some(current) = self.current.try_lock() else { return Ok(()) };
        visit.call(&current.values)?;
        current.failures.iter().try_for_each(|(_, error)| visit.call(error))
    }

    fn __clear__(&self) {
        let kept = self.current.try_lock().map(|mut current| std::mem::take(&mut *current));
        drop(kept);
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut current = self.turn(py)?;
        loop {
            if let Some(value) = current.take(py)? {
                return Ok(Some(value));
            }
            wait_when_finalizing();
            let next = self.advance.bind(py).call0()?;
            if next.is_none() {
                return Ok(None);
            }
            let (values, failures): (_, Vec<_>) = next.extract()?;
            *current = Current { values: Some(values), at: 0, failures: failures.into() };
        }
    }
}
