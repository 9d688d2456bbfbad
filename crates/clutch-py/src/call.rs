//! One call in a worker: its arguments, the user's code, and what becomes of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clutch_pool::link::board::word;
use clutch_wire::frame::flag;
use clutch_wire::sync::Mutex;
use clutch_wire::{Codec, Failure, Payload};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

use crate::codec;
use crate::context::in_copy;
use crate::errors::clutch_error;
use crate::serve::Served;
use crate::types::{is_async_generator, is_coroutine, is_generator};
use crate::worker::{CallFrame, Claim, Stream, WorkerLink};

mod batch;
mod outcome;
mod prepare;
mod starting;

use self::batch::{Timed, put_item, run_batch};
pub use self::outcome::{CallFailed, Carried};
use self::outcome::{Trouble, describe, encode, end_of_request, outcome_of, raise};
use self::prepare::{Prepared, prepare};
pub use self::starting::{Waiting, start_requests};

/// The number of "the function comes with the arguments".
pub const BY_VALUE: u32 = 0;

/// One call that Python code finishes: a coroutine, a stream, a tool with conditions; and every call of an event loop.
#[pyclass(frozen, module = "clutch._core")]
pub struct Call {
    link: Py<WorkerLink>,
    /// Until it is read.
    frame: Mutex<Option<CallFrame>>,
    id: u64,
    function: u32,
    claim: Claim,
    word: u32,
    codec: Codec,
    started: Mutex<Instant>,
    ended: AtomicBool,
    /// Read from the frame on first use.
    prepared: Mutex<Option<Prepared>>,
    /// Of a batch whose items Python code runs.
    timed: Mutex<(u32, Timed)>,
}

/// Runs a call in a slot's own thread, from its claim to its end.
pub fn run(link: &Bound<'_, WorkerLink>, slot: &Bound<'_, PyAny>, mut frame: CallFrame) -> PyResult<()> {
    let this = link.get();
    let py = link.py();
    let claim = Claim::of(&frame);
    if !this.begin(py, &claim) {
        return Ok(());
    }
    let started = Instant::now();
    let (id, codec) = (frame.id, frame.codec);
    let entry = match this.entry(py, frame.function, || this.enter(py, frame.word)) {
        Ok(entry) => entry,
        Err(error) => {
            this.slots.leave(py);
            let end = Err(describe(py, this, Trouble::Raised(error)));
            return this.put_end(id, started, end).map_err(PyErr::from);
        }
    };
    if entry.as_ref().is_some_and(|entry| !entry.simple) {
        // It may have to wait for its turn, and is not interrupted there: it looks whether it is still wanted.
        this.slots.leave(py);
        let call = Call::new(link.clone().unbind(), frame);
        return in_python(slot, "special", call, |call| (call,));
    }
    if !this.slots.enter(&this.board, frame.word) {
        this.slots.leave(py);
        let end = Err(describe(py, this, Trouble::Raised(interrupted(py))));
        return this.put_end(id, started, end).map_err(PyErr::from);
    }
    let prepared = prepare(link, entry.as_deref(), &mut frame);
    let made = match prepared {
        Ok(prepared) if codec == Codec::Batch => run_batch(py, this, Some(slot), &prepared, claim),
        Ok(prepared) => match invoke(py, this, &prepared) {
            Ok(made) if needs_finish(&made) => {
                this.slots.leave(py);
                let call = Call::begun(link.clone().unbind(), frame, started, prepared);
                return in_python(slot, "finish", call, |call| (call, made));
            }
            made if prepared.request.is_some() => {
                this.slots.leave(py);
                let end = end_of_request(py, &prepared, made.err());
                this.close_stream(py, id);
                return this.put_end(id, started, end).map_err(PyErr::from);
            }
            Ok(made) => encode(py, this, codec, prepared.tool.as_ref(), &made, false),
            Err(trouble) => Err(trouble),
        },
        Err(trouble) => Err(trouble),
    };
    this.slots.leave(py);
    let end = made.map_err(|trouble| describe(py, this, trouble));
    this.put_end(id, started, end).map_err(PyErr::from)
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
    call.get().link.get().slots.leave(py);
    match escaped {
        Err(error) if !call.get().ended.load(Ordering::Relaxed) => call.get().end_with(py, Err(Trouble::Raised(error))),
        _ => Ok(()),
    }
}

/// Calls the user's code.
fn invoke<'py>(py: Python<'py>, link: &WorkerLink, prepared: &Prepared) -> Result<Bound<'py, PyAny>, Trouble> {
    let arguments = prepared.arguments.bind(py);
    let function = prepared.function.bind(py);
    let made = in_copy(py, || {
        if let Some(headers) = &prepared.headers {
            show_headers(py, headers)?;
        }
        match (&prepared.keywords, &prepared.request) {
            (Some(keywords), _) => function.call(arguments, Some(keywords.bind(py))),
            (None, Some(request)) => request.take(function.call1(arguments)?),
            (None, None) => function.call1(arguments),
        }
    });
    if !made.as_ref().is_ok_and(needs_finish) {
        link.leave_copy(py, made.as_ref().err())?;
    }
    made.map_err(|error| {
        // Raised by the call itself, before any line of the function ran: the arguments do not fit.
        let misfit = prepared.by_name && error.is_instance_of::<PyTypeError>(py) && error.traceback(py).is_none();
        match misfit {
            true => {
                Trouble::Failure(Failure::BadArguments { message: error.value(py).to_string(), detail: String::new() })
            }
            false => Trouble::Raised(error),
        }
    })
}

/// Puts the headers that came with a call where `clutch.call_headers()` finds them, in the context that is entered.
fn show_headers(py: Python<'_>, headers: &Py<PyDict>) -> PyResult<()> {
    static VARIABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let variable = VARIABLE.import(py, "clutch._call_headers", "HEADERS")?;
    variable.call_method1("set", (headers,)).map(drop)
}

fn interrupted(py: Python<'_>) -> PyErr {
    clutch_error(py, "Interrupted", "", &[])
}

fn needs_finish(made: &Bound<'_, PyAny>) -> bool {
    is_coroutine(made) || is_generator(made) || is_async_generator(made)
}

// ---- for Python

impl Call {
    pub fn new(link: Py<WorkerLink>, frame: CallFrame) -> Call {
        Call {
            link,
            id: frame.id,
            function: frame.function,
            claim: Claim::of(&frame),
            word: frame.word,
            codec: frame.codec,
            frame: Mutex::new(Some(frame)),
            started: Mutex::new(Instant::now()),
            ended: AtomicBool::new(false),
            prepared: Mutex::default(),
            timed: Mutex::default(),
        }
    }

    fn begun(link: Py<WorkerLink>, frame: CallFrame, started: Instant, prepared: Prepared) -> Call {
        let call = Call::new(link, frame);
        *call.started.lock() = started;
        *call.prepared.lock() = Some(prepared);
        call
    }

    /// Calls `with` with what the frame says, reading it on first use.
    fn with_prepared<R>(
        &self,
        py: Python<'_>,
        with: impl FnOnce(&Prepared) -> Result<R, Trouble>,
    ) -> Result<R, Trouble> {
        // Taken out of their locks: reading runs the user's code.
        let kept = self.prepared.lock().take();
        let prepared = match kept {
            Some(prepared) => prepared,
            None => {
                let frame = self.frame.lock().take();
                let mut frame = frame.ok_or_else(|| PyRuntimeError::new_err("this call is being read"))?;
                let link = self.link.bind(py);
                let entry = link.get().entry(py, self.function, || Ok(()))?;
                prepare(link, entry.as_deref(), &mut frame)?
            }
        };
        let result = with(&prepared);
        *self.prepared.lock() = Some(prepared);
        result
    }

    fn end_with(&self, py: Python<'_>, end: Result<Payload, Trouble>) -> PyResult<()> {
        let link = self.link.get();
        if link.is_in_copy() {
            return link.leave_copy(py, end.err().map(raise).as_ref());
        }
        link.slots.leave(py);
        if self.ended.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let end = match self.prepared.lock().as_ref().filter(|prepared| prepared.request.is_some()) {
            Some(prepared) => end_of_request(py, prepared, end.err()),
            None => end.map_err(|trouble| describe(py, link, trouble)),
        };
        link.close_stream(py, self.id);
        let started = *self.started.lock();
        link.put_end(self.id, started, end).map_err(PyErr::from)
    }

    /// Nothing more is to be sent. Of a call, `gone` is the end of its input, and its reader may be there still.
    fn is_over(&self, stream: &Stream) -> bool {
        if self.codec == Codec::Http { stream.is_over() } else { stream.cancelled }
    }

    fn request_of(&self, py: Python<'_>) -> Option<Served> {
        self.prepared.lock().as_ref().and_then(|prepared| Some(prepared.request.as_ref()?.clone_ref(py)))
    }

    fn tool_of(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.prepared.lock().as_ref().and_then(|prepared| prepared.tool.as_ref().map(|tool| tool.clone_ref(py)))
    }
}

#[pymethods]
impl Call {
    #[getter]
    fn id(&self) -> u64 {
        self.id
    }

    /// `handlers/call.py:Tool`, or None for a function that comes with its arguments, or is not [`Call::is_known`].
    #[getter]
    fn tool(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let entry = self.link.get().known(self.function);
        entry.map(|entry| entry.tool.clone_ref(py))
    }

    /// Whether nothing of the user's runs before the function itself is found.
    #[getter]
    fn is_known(&self) -> bool {
        self.link.get().is_known(self.function)
    }

    /// Reads the function's definition, which may run the user's code. Raises where that was interrupted.
    fn find(&self, py: Python<'_>) -> PyResult<()> {
        self.link.get().entry(py, self.function, || Ok(())).map(drop)
    }

    /// The function to call. Raises when the frame cannot be read.
    #[getter]
    fn function(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.with_prepared(py, |prepared| Ok(prepared.function.clone_ref(py))).map_err(raise)
    }

    /// The headers that came with it, once its frame was read; None: it came from Python.
    #[getter]
    fn headers(&self, py: Python<'_>) -> Option<Py<PyDict>> {
        self.prepared.lock().as_ref().and_then(|prepared| Some(prepared.headers.as_ref()?.clone_ref(py)))
    }

    #[getter]
    fn is_batch(&self) -> bool {
        self.codec == Codec::Batch
    }

    /// Claims the call. False: the dispatcher has taken it back, forget it.
    fn begin(&self, py: Python<'_>) -> bool {
        let begun = self.link.get().begin(py, &self.claim);
        *self.started.lock() = Instant::now();
        begun
    }

    /// From here until its end the call may be interrupted in this thread. Raises Interrupted when it is to stop already.
    fn enter(&self, py: Python<'_>) -> PyResult<()> {
        self.link.get().enter(py, self.word)
    }

    /// For [`WorkerLink::enter`].
    #[getter]
    fn word(&self) -> u32 {
        self.word
    }

    /// Whether nobody waits for it any more.
    #[getter]
    fn is_abandoned(&self) -> bool {
        self.link.get().board.get(self.word) == word::ABANDONED
    }

    /// Calls the function with its arguments; raises what it raises. What it made that goes on later is not lost by an
    /// interrupt: this thread has left the call then.
    fn invoke<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let prepared = self.with_prepared(py, |prepared| Ok(prepared.copy(py))).map_err(raise)?;
        let made = invoke(py, self.link.get(), &prepared).map_err(raise)?;
        if needs_finish(&made) {
            self.link.get().slots.leave(py);
        }
        Ok(made)
    }

    /// Items of a batch that are to be run, each as a tuple of arguments.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let prepared = self.with_prepared(py, |prepared| Ok(prepared.copy(py))).map_err(raise)?;
        let items = prepared.arguments.bind(py).iter().skip(self.claim.skip as usize);
        match prepared.spread {
            true => Ok(items.collect()),
            false => items.map(|item| Ok(PyTuple::new(py, [item])?.into_any())).collect(),
        }
    }

    /// Runs a batch of a plain function in this thread and ends the call.
    fn run_batch(&self, py: Python<'_>) -> PyResult<()> {
        let end = match self.with_prepared(py, |prepared| Ok(prepared.copy(py))) {
            Ok(prepared) => run_batch(py, self.link.get(), None, &prepared, self.claim),
            Err(trouble) => Err(trouble),
        };
        self.end_with(py, end)
    }

    /// The code of the next item of a batch starts now.
    fn item_begins(&self) {
        self.link.get().board.begin_item(self.word);
        let (begun, timed) = &mut *self.timed.lock();
        timed.next(Some(self.claim.skip + *begun));
        *begun += 1;
    }

    /// The next item of a batch has this value.
    fn item_done(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        put_item(value.py(), self.link.get(), self.id, Ok(value.clone()))
    }

    /// The next item of a batch has raised this.
    fn item_failed(&self, error: &Bound<'_, PyAny>) -> PyResult<()> {
        put_item(error.py(), self.link.get(), self.id, Err(PyErr::from_value(error.clone())))
    }

    /// Ends a batch whose items all have their results.
    fn end_batch(&self, py: Python<'_>) -> PyResult<()> {
        let told = self.timed.lock().1.end();
        self.end_with(py, Ok(told))
    }

    /// Ends a request whose task is done.
    fn end_request(&self, task: &Bound<'_, PyAny>) -> PyResult<()> {
        self.end_with(task.py(), outcome_of(task).map(|()| Payload::empty()).map_err(Trouble::Raised))
    }

    /// Ends the call with its value.
    fn reply(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = value.py();
        let end = encode(py, self.link.get(), self.codec, self.tool_of(py).as_ref(), value, false);
        self.end_with(py, end)
    }

    /// Ends the call with an exception.
    fn fail(&self, error: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = error.py();
        let carried = error
            .getattr("args")
            .and_then(|args| args.get_item(0))
            .and_then(|first| first.cast::<Carried>().map(|carried| (*carried.get().0).clone()).map_err(PyErr::from));
        let trouble = match carried {
            Ok(failure) if error.is_instance_of::<CallFailed>() => Trouble::Failure(failure),
            _ => Trouble::Raised(PyErr::from_value(error.clone())),
        };
        self.end_with(py, Err(trouble))
    }

    // ---- streams

    /// The call's answer is a stream. Raises when the submitter takes one value only.
    fn open_stream(&self) -> PyResult<()> {
        if self.claim.flags & flag::ONE_VALUE != 0 {
            let message = "this tool is a generator: use stream()".to_owned();
            return Err(raise(Trouble::Failure(Failure::BadArguments { message, detail: String::new() })));
        }
        if self.codec != Codec::Http {
            // The body of a response has its credit already.
            self.link.get().open_stream(self.id);
        }
        Ok(())
    }

    /// Ends a stream.
    fn end_stream(&self, py: Python<'_>) -> PyResult<()> {
        self.end_with(py, Ok(Payload::empty()))
    }

    /// Sends one value of a stream, at once. Credit must have been taken for it.
    fn chunk(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, link) = (value.py(), self.link.get());
        if link.is_in_copy() {
            return Ok(());
        }
        if let Some(request) = self.request_of(py) {
            return request.send(value);
        }
        let payload = encode(py, link, self.codec, self.tool_of(py).as_ref(), value, true).map_err(raise)?;
        let payload = link.check_size(payload).map_err(|failure| raise(Trouble::Failure(failure)))?;
        link.put_chunk(self.id, &payload)?;
        link.flush(py)
    }

    /// True: one chunk may be sent. False: none now. None: nobody takes any more.
    fn take_credit(&self) -> Option<bool> {
        let link = self.link.get();
        if link.is_in_copy() || link.board.get(self.word) == word::ABANDONED {
            return None;
        }
        let taken = link.with_stream(self.id, |stream| {
            if self.is_over(stream) {
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
        let link = self.link.get();
        if link.is_in_copy() {
            return Ok(false);
        }
        link.slots.leave(py);
        loop {
            match self.take_credit() {
                Some(true) => break,
                None => return Ok(false),
                Some(false) => {
                    link.wait_streams(py, self.id, |stream| stream.credit > 0 || self.is_over(stream))?;
                }
            }
        }
        let goes_on = link.slots.enter(&link.board, self.word);
        if !goes_on {
            link.slots.leave(py);
        }
        Ok(goes_on)
    }

    /// Calls `listener()` whenever credit or a cancel has come; None stops it.
    fn on_credit(&self, listener: Option<Py<PyAny>>) {
        let before = self.link.get().listen(self.id, listener);
        drop(before);
    }

    /// The next value of the inbound stream; None at its end. Waits in this thread.
    fn read_input<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let link = self.link.get();
        loop {
            match link.with_stream(self.id, |stream| stream.input.pop_front()) {
                None => return Ok(None),
                Some(Some(payload)) if payload.codec == Codec::Empty => return Ok(None),
                Some(Some(payload)) => {
                    link.put_credit(self.id, 1);
                    return codec::decode(py, &payload).map(Some);
                }
                Some(None) => link.wait_streams(py, self.id, |stream| !stream.input.is_empty() || stream.cancelled)?,
            }
        }
    }
}
