//! Requests in a worker: what an ASGI or WSGI app is called with, and what it answers.

mod asgi;
mod awaiting;
mod first_step;
mod scope;
mod websocket;
mod wsgi;

use std::io;
use std::sync::Arc;

use clutch_fronts::app::response::{self, Misuse, Part, Response};
use clutch_fronts::codec::http::INPUT_WINDOW;
use clutch_pool::link::is_large;
use clutch_wire::region::RegionPool;
use clutch_wire::{Codec, Failure, Payload};
use pyo3::PyTypeCheck;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

pub use self::asgi::Request;
pub use self::first_step::{Starter, Unstarted};
pub use self::scope::share_state;
pub use self::wsgi::StartResponse;
use crate::worker::WorkerLink;

/// The app that a worker serves, as `handlers/app.py` describes it.
pub struct App {
    pub kind: Kind,
    /// Called for each request: `run(scope, receive, send)`.
    pub run: Py<PyAny>,
    /// What all scopes (or environs) have in common.
    pub template: Py<PyDict>,
    /// Told of what the app raised: `log(exception)`.
    pub log: Py<PyAny>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Asgi,
    Wsgi,
}

impl App {
    /// Reads `tool.app`: None, or `(kind, run, template, log)`.
    pub fn of(tool: &Bound<'_, PyAny>) -> PyResult<Option<App>> {
        let Some(app) = tool.getattr_opt("app")?.filter(|app| !app.is_none()) else { return Ok(None) };
        let (kind, run, template, log): (String, Py<PyAny>, Py<PyDict>, Py<PyAny>) = app.extract()?;
        let kind = if kind == "wsgi" { Kind::Wsgi } else { Kind::Asgi };
        Ok(Some(App { kind, run, template, log }))
    }
}

impl App {
    /// Tells the user what the app raised, and where: until Python 3.12 an error and its traceback are two things.
    fn log_error(&self, py: Python<'_>, error: &PyErr) {
        self.log(py, error.clone_ref(py).into_value(py).bind(py));
    }

    /// Tells the user what the app did wrong: an exception, or a text.
    fn log(&self, py: Python<'_>, what: &Bound<'_, PyAny>) {
        if let Err(error) = self.log.call1(py, (what,)) {
            error.write_unraisable(py, None);
        }
    }
}

/// A request in a worker.
pub enum Served {
    Asgi(Py<Request>),
    Wsgi(Py<StartResponse>),
}

impl Served {
    /// The request of a frame, and the arguments that its app is called with.
    pub fn of<'py>(
        link: &Bound<'py, WorkerLink>,
        app: &Arc<App>,
        id: u64,
        payload: &Payload,
        has_input: bool,
    ) -> PyResult<(Served, Bound<'py, PyTuple>)> {
        match app.kind {
            Kind::Asgi => {
                let (request, arguments) = Request::of(link, app, id, payload, has_input)?;
                Ok((Served::Asgi(request.unbind()), arguments.into_pyobject(link.py())?))
            }
            Kind::Wsgi => {
                let (request, arguments) = StartResponse::of(link, app, id, payload, has_input)?;
                Ok((Served::Wsgi(request), arguments))
            }
        }
    }

    pub fn clone_ref(&self, py: Python<'_>) -> Served {
        match self {
            Served::Asgi(request) => Served::Asgi(request.clone_ref(py)),
            Served::Wsgi(request) => Served::Wsgi(request.clone_ref(py)),
        }
    }

    /// What the app's call made, as the profiles take it: a coroutine, a generator, or nothing.
    pub fn take<'py>(&self, made: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Served::Asgi(_) => Ok(made),
            Served::Wsgi(request) => request.get().take(made.py(), made),
        }
    }

    /// A part of a WSGI app's body.
    pub fn send(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        match self {
            Served::Asgi(_) => Err(awaiting::misuse("an ASGI app sends its body itself")),
            Served::Wsgi(request) => request.get().send(value),
        }
    }

    /// What its work ends with, when the app has returned or raised.
    pub fn end(&self, py: Python<'_>, raised: Option<&PyErr>) -> Result<Payload, Failure> {
        match self {
            Served::Asgi(request) => request.get().end(py, raised),
            Served::Wsgi(request) => request.get().end(py, raised),
        }
    }

    pub fn asgi(&self) -> Option<&Request> {
        match self {
            Served::Asgi(request) => Some(request.get()),
            Served::Wsgi(_) => None,
        }
    }
}

/// The body of a request, where it comes by the link.
struct Input {
    asked: bool,
    /// Of pieces that the app has taken: given when it asks for another. So all of the window is out while it waits, and
    /// then alone.
    owed: u32,
    ended: bool,
}

impl Input {
    fn new(comes: bool) -> Input {
        Input { asked: false, owed: 0, ended: !comes }
    }

    /// The app waits for more. True: there is something to flush.
    fn ask(&mut self, link: &WorkerLink, id: u64) -> bool {
        if !self.ended && !std::mem::replace(&mut self.asked, true) {
            self.owed = INPUT_WINDOW;
        }
        self.give_back(link, id)
    }

    fn give_back(&mut self, link: &WorkerLink, id: u64) -> bool {
        let owed = std::mem::take(&mut self.owed);
        if owed > 0 {
            link.put_credit(id, owed);
        }
        owed > 0
    }

    /// The next piece, if it has come; the sender may send one for those before it, which is to be flushed.
    fn take(&mut self, link: &WorkerLink, id: u64) -> Option<Payload> {
        let piece = link.with_stream(id, |stream| stream.input.pop_front()).flatten()?;
        self.give_back(link, id);
        self.ended = piece.codec == Codec::Last;
        self.owed = u32::from(!self.ended);
        Some(piece)
    }
}

/// The next part of a response's body, for the link; and whether it begins one that has no end of its own.
fn part_of(response: &mut Response, regions: &Arc<RegionPool>, bytes: &[u8], more: bool) -> PyResult<(Payload, bool)> {
    let part = response.body(bytes.len() as u64, more).map_err(misused)?;
    let is_endless = matches!(part, Part::Head { is_whole: false, .. }) && response.is_event_stream();
    let bytes = if response.has_body() { bytes } else { &[] };
    Ok((payload(regions, part, bytes)?, is_endless))
}

/// A part of a response for the link, large bodies through shared memory.
fn payload(regions: &Arc<RegionPool>, part: Part, bytes: &[u8]) -> io::Result<Payload> {
    let (codec, mut inline) = match part {
        Part::Head { head, .. } => (Codec::Http, head),
        Part::Body { is_last: true } => (Codec::Last, Vec::new()),
        Part::Body { is_last: false } => (Codec::Bytes, Vec::new()),
    };
    let mut leases = Vec::new();
    if is_large(bytes.len()) {
        leases.push(Arc::new(regions.store(bytes)?));
    } else {
        inline.extend_from_slice(bytes);
    }
    Ok(Payload { codec, inline, leases })
}

/// The name and the value of a header line: a tuple, or anything else of two items.
fn name_and_value<'py, T: PyTypeCheck>(line: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, T>, Bound<'py, T>)> {
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
        return Err(is_none(awaiting::misuse("")));
    }
    let item = |at| items.get_item(at)?.cast_into::<T>().map_err(PyErr::from);
    Ok((item(0).map_err(is_none)?, item(1).map_err(is_none)?))
}

/// Raised in the app.
fn misused(wrong: Misuse) -> PyErr {
    awaiting::misuse(wrong.as_str())
}

/// An app that did not answer.
fn failed(py: Python<'_>, raised: Option<&PyErr>, message: String) -> Failure {
    let type_name = raised.and_then(|error| error.get_type(py).name().ok().map(|name| name.to_string()));
    Failure::Raised {
        type_name: type_name.unwrap_or_else(|| "RuntimeError".to_owned()),
        message,
        traceback: String::new(),
        pickled: Vec::new(),
    }
}
