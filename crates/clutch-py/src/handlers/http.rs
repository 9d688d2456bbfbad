//! Shared by ASGI and WSGI: the handler, the app, the request's body, the response.

use std::io;
use std::marker::PhantomData;
use std::sync::Arc;

use clutch_fronts::app::response::{Misuse, Part, Response};
use clutch_fronts::codec::http::INPUT_WINDOW;
use clutch_fronts::codec::{HEAD, LAST};
use clutch_pool::link::is_large;
use clutch_wire::region::RegionPool;
use clutch_wire::{Codec, Failure, Payload};
use pyo3::PyClass;
use pyo3::PyTypeCheck;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::handler::{Eager, Function, Handler, Invocation, Prepared};
use super::outcome::{Trouble, describe};
use crate::link::WorkerLink;
use crate::link::call_frame::CallFrame;

/// A request in a worker, as its app has it.
pub trait AppRequest: PyClass<Frozen = True> + Sync + Sized {
    /// The request of a frame, and what the app is called with.
    fn of<'py>(
        link: &Bound<'py, WorkerLink>,
        app: &Arc<App>,
        frame: &mut CallFrame,
        payload: &Payload,
    ) -> PyResult<(Bound<'py, Self>, Bound<'py, PyTuple>)>;

    /// Makes what the app has returned into what profiles take.
    fn take<'py>(&self, made: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Ok(made)
    }

    /// Sends a part of the body. Credit was taken for one piece; a large part takes more.
    fn send(&self, value: &Bound<'_, PyAny>) -> PyResult<()>;

    /// Returns the end of the work.
    fn end(&self, py: Python<'_>, raised: Option<&PyErr>) -> Result<Payload, Failure>;

    /// Nothing more comes for it, and nobody takes what is sent.
    fn close(&self, py: Python<'_>);

    /// As [`Handler::eager`].
    fn eager(_handler: &Requests<Self>) -> Option<&dyn Eager> {
        None
    }
}

/// The handler of requests for an app.
pub struct Requests<R> {
    app: Arc<App>,
    request: PhantomData<fn() -> R>,
}

impl<R: AppRequest> Requests<R> {
    pub fn new(tool: &Bound<'_, PyAny>) -> PyResult<Requests<R>> {
        Ok(Requests { app: Arc::new(App::of(tool)?), request: PhantomData })
    }
}

impl<R: AppRequest> Handler for Requests<R> {
    fn prepare(
        &self,
        link: &Bound<'_, WorkerLink>,
        _function: Option<&Function>,
        frame: &mut CallFrame,
        payload: &Payload,
    ) -> Result<Invocation, Trouble> {
        let (request, arguments) = R::of(link, &self.app, frame, payload)?;
        let run = self.app.run.clone_ref(link.py());
        Ok(Invocation { state: Some(request.into_any().unbind()), ..Invocation::of(run, arguments.unbind()) })
    }

    fn take<'py>(&self, work: &Prepared, made: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        work.state::<R>(made.py())?.get().take(made)
    }

    /// The request sends the response itself.
    fn encode(&self, _: &WorkerLink, _: &Prepared, _: &Bound<'_, PyAny>, _: bool) -> Result<Payload, Trouble> {
        Ok(Payload::empty())
    }

    fn send(&self, _: &WorkerLink, work: &Prepared, value: &Bound<'_, PyAny>) -> PyResult<()> {
        work.state::<R>(value.py())?.get().send(value)
    }

    fn end(&self, py: Python<'_>, work: &Prepared, made: Result<Payload, Trouble>) -> Result<Payload, Failure> {
        let request = work.state::<R>(py).map_err(|error| describe(py, Trouble::Raised(error)))?.get();
        let end = raised(made).and_then(|raised| request.end(py, raised.as_ref()));
        request.close(py);
        end
    }

    fn eager(&self) -> Option<&dyn Eager> {
        R::eager(self)
    }
}

/// The app that a worker serves, as `handlers/app.py` describes it.
pub struct App {
    /// Called for each request: `run(scope, receive, send)`, `run(environ, start_response)`.
    pub run: Py<PyAny>,
    /// The part that all scopes (or environs) share.
    pub template: Py<PyDict>,
    /// Logs an exception of the app: `log(exception)`.
    log: Py<PyAny>,
}

impl App {
    /// Reads `tool.app`: `(run, template, log)`.
    pub fn of(tool: &Bound<'_, PyAny>) -> PyResult<App> {
        let (run, template, log) = tool.getattr("app")?.extract()?;
        Ok(App { run, template, log })
    }

    /// Tells the user what the app raised, and where: until Python 3.12 an error and its traceback are two things.
    pub fn log_error(&self, py: Python<'_>, error: &PyErr) {
        self.log(py, error.clone_ref(py).into_value(py).bind(py));
    }

    /// Tells the user what the app did wrong: an exception, or a text.
    pub fn log(&self, py: Python<'_>, what: &Bound<'_, PyAny>) {
        if let Err(error) = self.log.call1(py, (what,)) {
            error.write_unraisable(py, None);
        }
    }
}

/// Returns the error of the app; a failure that is none of its own ends the work as it is.
fn raised(made: Result<Payload, Trouble>) -> Result<Option<PyErr>, Failure> {
    match made {
        Ok(_) => Ok(None),
        Err(Trouble::Raised(error)) => Ok(Some(error)),
        Err(Trouble::Failure(failure)) => Err(failure),
    }
}

pub fn method<'py>(py: Python<'py>, method: &str) -> Bound<'py, PyString> {
    match method {
        "GET" => intern!(py, "GET").clone(),
        "POST" => intern!(py, "POST").clone(),
        other => PyString::new(py, other),
    }
}

/// The body of a request that arrives over the link.
pub struct Input {
    asked: bool,
    /// Credit for pieces that the app has taken, given when it asks for another. So the whole window is out while the
    /// app waits, and only then.
    owed: u32,
    pub ended: bool,
}

impl Input {
    pub fn new(comes: bool) -> Input {
        Input { asked: false, owed: 0, ended: !comes }
    }

    /// Called when the app waits for more. True: there is something to flush.
    pub fn ask(&mut self, link: &WorkerLink, id: u64) -> bool {
        if !self.ended && !std::mem::replace(&mut self.asked, true) {
            self.owed = INPUT_WINDOW;
        }
        self.give_back(link, id)
    }

    fn give_back(&mut self, link: &WorkerLink, id: u64) -> bool {
        let owed = std::mem::take(&mut self.owed);
        if owed > 0 {
            link.sender.put_credit(id, owed);
        }
        owed > 0
    }

    /// The next piece, if it has come; the sender may send one for those before it, which is to be flushed.
    pub fn take(&mut self, link: &WorkerLink, id: u64) -> Option<Payload> {
        let piece = link.streams.with(id, |stream| stream.input.pop_front()).flatten()?;
        self.give_back(link, id);
        self.ended = piece.form == LAST;
        self.owed = u32::from(!self.ended);
        Some(piece)
    }
}

/// The next part of a response's body, for the link; and whether it begins one that has no end of its own.
pub fn part_of(
    response: &mut Response,
    regions: &Arc<RegionPool>,
    bytes: &[u8],
    more: bool,
) -> PyResult<(Payload, bool)> {
    let part = response.body(bytes.len() as u64, more).map_err(misused)?;
    let is_endless = matches!(part, Part::Head { is_whole: false, .. }) && response.is_event_stream();
    let bytes = if response.has_body() { bytes } else { &[] };
    Ok((payload(regions, part, bytes)?, is_endless))
}

/// A part of a response for the link, large bodies through shared memory.
fn payload(regions: &Arc<RegionPool>, part: Part, bytes: &[u8]) -> io::Result<Payload> {
    let (form, mut inline) = match part {
        Part::Head { head, .. } => (HEAD, head),
        Part::Body { is_last: true } => (LAST, Vec::new()),
        Part::Body { is_last: false } => (Codec::Bytes.into(), Vec::new()),
    };
    let mut leases = Vec::new();
    if is_large(bytes.len()) {
        leases.push(Arc::new(regions.store(bytes)?));
    } else {
        inline.extend_from_slice(bytes);
    }
    Ok(Payload { form, inline, leases })
}

/// The name and the value of a header line: a tuple, or anything else of two items.
pub fn name_and_value<'py, T: PyTypeCheck>(line: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, T>, Bound<'py, T>)> {
    let is_none = |_: PyErr| {
        let kind = T::classinfo_object(line.py()).getattr("__name__");
        let kind = kind.map_or_else(|_| String::new(), |kind| kind.to_string());
        PyTypeError::new_err(format!("a header is a name and a value, each {kind}; given: {line}"))
    };
    let items = match line.cast::<PyTuple>() {
        Ok(items) => items.clone(),
        Err(_) => PyTuple::new(line.py(), line.try_iter()?.take(3).collect::<PyResult<Vec<_>>>()?)?,
    };
    if items.len() != 2 {
        return Err(is_none(misuse("")));
    }
    let item = |at| items.get_item(at)?.cast_into::<T>().map_err(PyErr::from);
    Ok((item(0).map_err(is_none)?, item(1).map_err(is_none)?))
}

/// Raised in the app.
pub fn misused(wrong: Misuse) -> PyErr {
    misuse(wrong.as_str())
}

/// The error for an app that did not answer.
pub fn failed(py: Python<'_>, raised: Option<&PyErr>, message: String) -> Failure {
    let type_name = raised.and_then(|error| error.get_type(py).name().ok().map(|name| name.to_string()));
    Failure::Raised {
        type_name: type_name.unwrap_or_else(|| "RuntimeError".to_owned()),
        message,
        traceback: String::new(),
        pickled: Vec::new(),
        problem: Vec::new(),
    }
}

/// The error for a message that the protocol does not allow.
pub fn misuse(text: impl Into<String>) -> PyErr {
    PyRuntimeError::new_err(text.into())
}
