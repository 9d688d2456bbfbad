//! The seam between a piece of work and the user's callable.
//!
//! A handler is found by the kind of its work (kinds.rs), which is on the wire. It knows the link, but neither profiles nor what else the worker
//! does with a call: claims, interrupts and the choice of a thread or a loop are made around it.

use std::sync::Arc;
use std::time::Duration;

use clutch_wire::{Codec, Failure, Payload, WorkKind};
use pyo3::PyTypeCheck;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::connections;
use super::outcome::{Trouble, describe, encode_plain, raise};
use super::types::needs_finish;
use crate::context::in_copy;
use crate::link::WorkerLink;
use crate::link::call_frame::{CallFrame, Claim};

/// Handler of one kind of work: makes it a call of user code, and the result an answer.
pub trait Handler: Send + Sync {
    /// Reads what is to be called out of a frame. `function` is what its number stands for; none: it comes with the arguments.
    fn prepare(
        &self,
        link: &Bound<'_, WorkerLink>,
        function: Option<&Function>,
        frame: &mut CallFrame,
        payload: &Payload,
    ) -> Result<Invocation, Trouble>;

    /// Runs the user's code in this thread. What it gives is a value, or goes on in the profile: a coroutine, a generator.
    /// `slot.wait(coroutine)` runs a coroutine to its end here.
    fn run<'py>(
        &self,
        link: &Bound<'py, WorkerLink>,
        work: &Prepared,
        slot: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyAny>, Trouble> {
        let _ = slot;
        invoke(self, link, work)
    }

    /// The return value of the user's function, for profiles.
    fn take<'py>(&self, work: &Prepared, made: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let _ = work;
        Ok(made)
    }

    /// A value as its caller wants it; `item` says that it is one of a stream. The user's code may run in this, and be
    /// interrupted.
    fn encode(
        &self,
        link: &WorkerLink,
        work: &Prepared,
        value: &Bound<'_, PyAny>,
        item: bool,
    ) -> Result<Payload, Trouble> {
        let _ = (work, item);
        encode_plain(link, value)
    }

    /// Sends one value of a stream, at once. Credit was taken for it.
    fn send(&self, link: &WorkerLink, work: &Prepared, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let payload = self.encode(link, work, value, true).map_err(raise)?;
        let payload = link.sender.check_size(payload).map_err(|failure| raise(Trouble::Failure(failure)))?;
        link.sender.put_chunk(work.claim.id, &payload)?;
        link.flush(value.py())
    }

    /// Ends the work when its code has ended, and closes what `prepare` opened. Nothing interrupts this.
    fn end(&self, py: Python<'_>, work: &Prepared, made: Result<Payload, Trouble>) -> Result<Payload, Failure> {
        let _ = work;
        made.map_err(|trouble| describe(py, trouble))
    }

    /// Work that an event loop may start as soon as it is read; none: it waits for its turn.
    fn eager(&self) -> Option<&dyn Eager> {
        None
    }
}

/// Work whose function makes a coroutine without running any code of the user's, which takes its first step at once.
pub trait Eager {
    fn enter_first_step(&self, py: Python<'_>, work: &Prepared) -> PyResult<()>;

    /// Called when the coroutine waits.
    fn leave_first_step(&self, py: Python<'_>, work: &Prepared) -> PyResult<()>;
}

/// The function that runs for a number.
pub struct Function {
    /// `handlers/call.py:Tool`
    pub tool: Py<PyAny>,
    pub function: Py<PyAny>,
    /// Neither serial nor bound to the main thread.
    pub simple: bool,
    /// Maximum time of each attempt of its jobs.
    pub attempt_ms: Option<u64>,
    /// Called by the name of a tool: arguments that do not fit are `BadArguments`.
    pub by_name: bool,
    /// The handler of its requests, if it is an app.
    pub app: Option<Box<dyn Handler>>,
}

/// A function with its arguments.
pub struct Invocation {
    pub function: Py<PyAny>,
    pub arguments: Py<PyTuple>,
    pub keywords: Option<Py<PyDict>>,
    /// As [`Function::by_name`].
    pub by_name: bool,
    /// A value that its code finds in its context.
    pub shown: Option<Shown>,
    /// True if each item of a mapped batch is a tuple of arguments.
    pub spread: bool,
    /// State of the handler for this work.
    pub state: Option<Py<PyAny>>,
}

impl Invocation {
    pub fn of(function: Py<PyAny>, arguments: Py<PyTuple>) -> Invocation {
        Invocation { function, arguments, keywords: None, by_name: false, shown: None, spread: false, state: None }
    }
}

/// A value of a `ContextVar`: the headers of a call, the job that runs.
pub struct Shown {
    pub variable: Py<PyAny>,
    pub value: Py<PyAny>,
}

impl Shown {
    /// Sets it in the context that is entered.
    fn set(&self, py: Python<'_>) -> PyResult<()> {
        self.variable.call_method1(py, pyo3::intern!(py, "set"), (&self.value,)).map(drop)
    }
}

/// A function that was read out of the payload of its call.
pub struct ByValue {
    pub function: Arc<Function>,
    /// Number of its map; 0: it is for one call.
    pub number: u64,
    /// As it was read: how often classes had changed by then.
    pub changes: u64,
    /// Time that reading it took, which no item has cost.
    pub loading: Duration,
}

/// A piece of work whose frame was read.
pub struct Prepared {
    pub claim: Claim,
    pub codec: Codec,
    pub function: Option<Arc<Function>>,
    /// The function, where it has come with the work.
    pub by_value: Option<ByValue>,
    pub invocation: Invocation,
}

impl Prepared {
    /// Time that reading its function took.
    pub fn loading(&self) -> Duration {
        self.by_value.as_ref().map_or(Duration::ZERO, |by_value| by_value.loading)
    }

    /// State of its handler.
    pub fn state<'a, 'py, T: PyTypeCheck>(&'a self, py: Python<'py>) -> PyResult<&'a Bound<'py, T>> {
        let state = self.invocation.state.as_ref();
        let state = state.ok_or_else(|| PyRuntimeError::new_err("its handler keeps nothing of this work"))?;
        Ok(state.bind(py).cast::<T>()?)
    }
}

/// Calls the user's function in a context of its own.
pub fn invoke<'py, H: Handler + ?Sized>(
    handler: &H,
    link: &Bound<'py, WorkerLink>,
    work: &Prepared,
) -> Result<Bound<'py, PyAny>, Trouble> {
    let (py, Invocation { keywords, shown, by_name, .. }) = (link.py(), &work.invocation);
    let function = work.invocation.function.bind(py);
    let arguments = work.invocation.arguments.bind(py);
    let made = in_copy(py, || {
        if let Some(shown) = shown {
            shown.set(py)?;
        }
        let call = || match keywords {
            Some(keywords) => function.call(arguments, Some(keywords.bind(py))),
            None => function.call1(arguments),
        };
        // Django does it itself for requests.
        let is_request = ![WorkKind::CALL, WorkKind::JOB].iter().any(|kind| kind.number() == work.claim.kind());
        handler.take(work, if is_request { call() } else { connections::around(py, call) }?)
    });
    if !made.as_ref().is_ok_and(needs_finish) {
        link.get().leave_copy(py, made.as_ref().err())?;
    }
    made.map_err(|error| {
        // Raised by the call itself, before any line of the function ran: the arguments do not fit.
        let misfit = *by_name && error.is_instance_of::<PyTypeError>(py) && error.traceback(py).is_none();
        match misfit {
            true => {
                Trouble::Failure(Failure::BadArguments { message: error.value(py).to_string(), detail: String::new() })
            }
            false => Trouble::Raised(error),
        }
    })
}
