//! A call in a worker, of whatever kind: from its claim to its end.
//!
//! The handler decides what is called and what comes of it; here is when it may be interrupted, and who goes on with it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clutch_wire::frame::flag;
use clutch_wire::sync::Mutex;
use clutch_wire::{Failure, Payload, WorkKind};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::handlers::handler::Prepared;
use crate::handlers::kinds::{handler_of, prepare};
use crate::handlers::outcome::{Trouble, describe, outcome_of, raise, trouble_of};
use crate::handlers::types::needs_finish;
use crate::handlers::{Timed, put_item};
use crate::link::WorkerLink;
use crate::link::call_frame::{CallFrame, Claim};
use crate::link::sender::ThreadCpu;
use crate::link::streams::Stream;
use crate::slots::Slots;
use crate::worker::Worker;

/// A call that Python code finishes: a coroutine, a stream, a tool with conditions; and every call of an event loop.
#[pyclass(frozen, module = "clutch._core")]
pub struct Call {
    worker: Py<Worker>,
    /// The frame, until it is read.
    frame: Mutex<Option<CallFrame>>,
    function: u32,
    claim: Claim,
    started: Mutex<Instant>,
    /// Set where its CPU time is told.
    cpu: Option<ThreadCpu>,
    ended: AtomicBool,
    /// Read from the frame on first use.
    prepared: OnceLock<Prepared>,
    /// Set for a batch whose items are run by Python code.
    timed: Mutex<(u32, Timed)>,
}

/// Runs a call in a slot's own thread, from its claim to its end.
pub fn run(worker: &Bound<'_, Worker>, slot: &Bound<'_, PyAny>, mut frame: CallFrame) -> PyResult<()> {
    let (py, this) = (worker.py(), worker.get());
    let (link, slots) = (this.link.bind(py), this.slots.get());
    if !link.get().begin(py, &Claim::of(&frame)) {
        return Ok(());
    }
    let started = Instant::now();
    let cpu = link.get().sender.cpu_now();
    let id = frame.id;
    let fail = |trouble| {
        slots.leave(py);
        let end = Err(describe(py, trouble));
        link.get().sender.put_end(id, started, end).map_err(PyErr::from)
    };
    let function = match this.functions.read(py, link.get(), frame.function, || slots.enter(py, frame.word)) {
        Ok(function) => function,
        Err(error) => return fail(Trouble::Raised(error)),
    };
    if function.as_ref().is_some_and(|function| !function.simple) {
        // It may have to wait for its turn, and is not interrupted there: it looks whether it is still wanted.
        slots.leave(py);
        let call = Call::new(worker.clone().unbind(), frame);
        return in_python(slot, "special", call, |call| (call,));
    }
    if !slots.try_enter(py, frame.word) {
        return fail(Trouble::interrupted(py));
    }
    let prepared = match prepare(link, &this.functions.let_go, function, &mut frame) {
        Ok(prepared) => prepared,
        Err(trouble) => {
            link.get().streams.close(py, id);
            return fail(trouble);
        }
    };
    let started = started + prepared.loading();
    let handler = handler_of(&prepared);
    let encoded = match handler.run(link, &prepared, Some(slot)) {
        Ok(made) if needs_finish(&made) => {
            slots.leave(py);
            let call = Call { cpu, ..Call::begun(worker.clone().unbind(), frame, started, prepared) };
            return in_python(slot, "finish", call, |call| (call, made));
        }
        Ok(made) => handler.encode(link.get(), &prepared, &made, false),
        Err(trouble) => Err(trouble),
    };
    slots.leave(py);
    let end = handler.end(py, &prepared, encoded);
    if end.is_ok() {
        this.functions.let_go.keep(&prepared);
    }
    link.get().sender.put_cpu(id, cpu);
    link.get().sender.put_end(id, started, end).map_err(PyErr::from)
}

/// Lets a method of the slot finish a call. What escapes it ends the call too: an interrupt can come at any line there.
fn in_python<'py, A>(
    slot: &Bound<'py, PyAny>,
    method: &str,
    call: Call,
    arguments: impl FnOnce(Bound<'py, Call>) -> A,
) -> PyResult<()>
where
    A: pyo3::call::PyCallArgs<'py>,
{
    let py = slot.py();
    let call = Bound::new(py, call)?;
    let escaped = slot.call_method1(method, arguments(call.clone()));
    call.get().slots().leave(py);
    match escaped {
        Err(error) if !call.get().ended.load(Ordering::Relaxed) => call.get().end_with(py, Err(Trouble::Raised(error))),
        _ => Ok(()),
    }
}

// ---- for Python

impl Call {
    pub fn new(worker: Py<Worker>, frame: CallFrame) -> Call {
        Call {
            worker,
            function: frame.function,
            claim: Claim::of(&frame),
            frame: Mutex::new(Some(frame)),
            started: Mutex::new(Instant::now()),
            cpu: None,
            ended: AtomicBool::new(false),
            prepared: OnceLock::new(),
            timed: Mutex::default(),
        }
    }

    /// Makes a call that was begun, and whose frame was read.
    pub fn begun(worker: Py<Worker>, frame: CallFrame, started: Instant, prepared: Prepared) -> Call {
        let call = Call::new(worker, frame);
        Call { started: Mutex::new(started), prepared: OnceLock::from(prepared), ..call }
    }

    fn link(&self) -> &WorkerLink {
        self.worker.get().link.get()
    }

    fn slots(&self) -> &Slots {
        self.worker.get().slots.get()
    }

    /// Returns the content of the frame, which is read on first use.
    fn prepared(&self, py: Python<'_>) -> Result<&Prepared, Trouble> {
        if let Some(prepared) = self.prepared.get() {
            return Ok(prepared);
        }
        // Without a lock: reading runs the user's code.
        let frame = self.frame.lock().take();
        let mut frame = frame.ok_or_else(|| PyRuntimeError::new_err("this call is being read"))?;
        let worker = self.worker.get();
        let link = worker.link.bind(py);
        let function = worker.functions.read(py, link.get(), self.function, || Ok(()))?;
        let prepared = prepare(link, &worker.functions.let_go, function, &mut frame)?;
        *self.started.lock() += prepared.loading();
        Ok(self.prepared.get_or_init(|| prepared))
    }

    /// Runs the user's code in this thread. `slot`: as of [`Handler::run`](crate::handlers::handler::Handler::run).
    fn run<'py>(&self, py: Python<'py>, slot: Option<&Bound<'py, PyAny>>) -> Result<Bound<'py, PyAny>, Trouble> {
        let prepared = self.prepared(py)?;
        handler_of(prepared).run(self.worker.get().link.bind(py), prepared, slot)
    }

    /// Encodes its value, for the end of the call.
    fn encode(&self, value: &Bound<'_, PyAny>) -> Result<Payload, Trouble> {
        let prepared = self.prepared(value.py())?;
        handler_of(prepared).encode(self.link(), prepared, value, false)
    }

    fn end_with(&self, py: Python<'_>, end: Result<Payload, Trouble>) -> PyResult<()> {
        let link = self.link();
        if link.is_in_copy() {
            return link.leave_copy(py, end.err().map(raise).as_ref());
        }
        self.slots().leave(py);
        if self.ended.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let end = match self.prepared.get() {
            Some(prepared) => {
                let end = handler_of(prepared).end(py, prepared, end);
                if end.is_ok() {
                    self.worker.get().functions.let_go.keep(prepared);
                }
                end
            }
            None => end.map_err(|trouble| describe(py, trouble)),
        };
        link.streams.close(py, self.claim.id);
        let started = *self.started.lock();
        link.sender.put_cpu(self.claim.id, self.cpu);
        link.sender.put_end(self.claim.id, started, end).map_err(PyErr::from)
    }
}

#[pymethods]
impl Call {
    #[getter]
    fn id(&self) -> u64 {
        self.claim.id
    }

    /// `handlers/call.py:Tool`, or None for a function that comes with its arguments, or is not [`Call::is_known`].
    #[getter]
    fn tool(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let function = self.worker.get().functions.known(self.function);
        function.map(|function| function.tool.clone_ref(py))
    }

    /// Tells whether no code of the user's runs before the function itself is found.
    #[getter]
    fn is_known(&self) -> bool {
        self.worker.get().functions.is_known(self.function)
    }

    /// Reads the function's definition, which may run the user's code. Raises where that was interrupted.
    fn find(&self, py: Python<'_>) -> PyResult<()> {
        self.worker.get().functions.read(py, self.link(), self.function, || Ok(())).map(drop)
    }

    /// The function to call. Raises when the frame cannot be read.
    #[getter]
    fn function(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let prepared = self.prepared(py).map_err(raise)?;
        Ok(prepared.invocation.function.clone_ref(py))
    }

    /// A `ContextVar` and its value for the context of the user's code, once the frame was read, or None.
    #[getter]
    fn shown(&self, py: Python<'_>) -> Option<(Py<PyAny>, Py<PyAny>)> {
        let shown = self.prepared.get()?.invocation.shown.as_ref()?;
        Some((shown.variable.clone_ref(py), shown.value.clone_ref(py)))
    }

    #[getter]
    fn is_batch(&self) -> bool {
        self.claim.kind() == WorkKind::BATCH.number()
    }

    /// Claims the call. False: the dispatcher has taken it back, forget it.
    fn begin(&self, py: Python<'_>) -> bool {
        let begun = self.link().begin(py, &self.claim);
        *self.started.lock() = Instant::now();
        begun
    }

    /// Allows interrupts of the call in this thread until its end. Raises Interrupted if it is already to stop.
    fn enter(&self, py: Python<'_>) -> PyResult<()> {
        self.slots().enter(py, self.claim.word)
    }

    /// The key for [`Slots::enter`].
    #[getter]
    fn word(&self) -> u32 {
        self.claim.word
    }

    /// Tells whether it was cancelled, or its caller has gone.
    #[getter]
    fn is_abandoned(&self) -> bool {
        self.link().is_abandoned(self.claim.word)
    }

    /// Says that it waits for its turn in the worker, which is no time of its own, or no longer. The items of a batch have
    /// their time one by one.
    fn await_turn(&self, waits: bool) {
        if !self.is_batch() {
            self.link().await_turn(self.claim.word, waits);
        }
    }

    /// Calls the function with its arguments; raises what it raises. What it made that goes on later is not lost by an
    /// interrupt: this thread has left the call then.
    fn invoke<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let made = self.run(py, None).map_err(raise)?;
        if needs_finish(&made) {
            self.slots().leave(py);
        }
        Ok(made)
    }

    /// Items of a batch that are to be run, each as a tuple of arguments.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let invocation = &self.prepared(py).map_err(raise)?.invocation;
        let items = invocation.arguments.bind(py).iter().skip(self.claim.skip as usize);
        match invocation.spread {
            true => Ok(items.collect()),
            false => items.map(|item| Ok(PyTuple::new(py, [item])?.into_any())).collect(),
        }
    }

    /// Runs a batch in this thread, coroutines by the slot, and ends the call.
    fn run_batch(&self, slot: &Bound<'_, PyAny>) -> PyResult<()> {
        let end = self.run(slot.py(), Some(slot)).and_then(|told| self.encode(&told));
        self.end_with(slot.py(), end)
    }

    /// Called before the code of the next item of a batch.
    fn item_begins(&self) {
        self.link().board.begin_item(self.claim.word);
        let (begun, timed) = &mut *self.timed.lock();
        timed.next(Some(self.claim.skip + *begun));
        *begun += 1;
    }

    /// Records the value of the next item of a batch.
    fn item_done(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        put_item(value.py(), self.link(), self.claim.id, Ok(value.clone()))
    }

    /// Records the exception of the next item of a batch.
    fn item_failed(&self, error: &Bound<'_, PyAny>) -> PyResult<()> {
        put_item(error.py(), self.link(), self.claim.id, Err(PyErr::from_value(error.clone())))
    }

    /// Ends a batch whose items all have their results.
    fn end_batch(&self, py: Python<'_>) -> PyResult<()> {
        let told = self.timed.lock().1.end();
        self.end_with(py, Ok(told))
    }

    /// Ends a call whose task is done, with the exception of the task or without.
    fn end_task(&self, task: &Bound<'_, PyAny>) -> PyResult<()> {
        self.end_with(task.py(), outcome_of(task).map(|()| Payload::empty()).map_err(Trouble::Raised))
    }

    /// Ends the call with its value.
    fn reply(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.end_with(value.py(), self.encode(value))
    }

    /// Ends the call with an exception.
    fn fail(&self, error: &Bound<'_, PyAny>) -> PyResult<()> {
        self.end_with(error.py(), Err(trouble_of(error)))
    }

    // ---- streams

    /// The call's answer is a stream. Raises when the submitter takes one value only.
    fn open_stream(&self) -> PyResult<()> {
        if self.claim.flags & flag::ONE_VALUE != 0 {
            let message = "this tool is a generator: use stream()".to_owned();
            return Err(raise(Trouble::Failure(Failure::BadArguments { message, detail: String::new() })));
        }
        self.link().streams.open(self.claim.id);
        Ok(())
    }

    /// Ends a stream.
    fn end_stream(&self, py: Python<'_>) -> PyResult<()> {
        self.end_with(py, Ok(Payload::empty()))
    }

    /// Sends one value of a stream, at once. Credit must have been taken for it.
    fn chunk(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.link().is_in_copy() {
            return Ok(());
        }
        let prepared = self.prepared(value.py()).map_err(raise)?;
        handler_of(prepared).send(self.link(), prepared, value)
    }

    /// True: one chunk may be sent. False: not now. None: the reader has gone.
    fn take_credit(&self) -> Option<bool> {
        let link = self.link();
        if link.is_in_copy() || link.is_abandoned(self.claim.word) {
            return None;
        }
        let taken = link.streams.with(self.claim.id, |stream| {
            if stream.is_unwanted() {
                return None;
            }
            let some = stream.credit > 0;
            stream.credit -= u32::from(some);
            Some(some)
        });
        taken.flatten()
    }

    /// Waits, in this thread, until one chunk may be sent. False: nobody takes any more. Nothing interrupts the wait, nor the
    /// clean-up after it: the producer is closed, not torn apart.
    fn wait_credit(&self, py: Python<'_>) -> PyResult<bool> {
        let link = self.link();
        if link.is_in_copy() {
            return Ok(false);
        }
        self.slots().leave(py);
        loop {
            match self.take_credit() {
                Some(true) => break,
                None => return Ok(false),
                Some(false) => {
                    let there = |stream: &Stream| stream.credit > 0 || stream.is_unwanted();
                    link.reader.wait_streams(py, self.claim.id, there)?;
                }
            }
        }
        Ok(self.slots().try_enter(py, self.claim.word))
    }

    /// Calls `listener()` whenever credit or a cancel has come; None stops it.
    fn on_credit(&self, listener: Option<Py<PyAny>>) {
        self.link().listen_to(self.claim.id, listener);
    }
}
