//! A request of a WSGI app on a connection that this worker holds: its `start_response`, and what becomes of the iterable.

use std::sync::Arc;

use clutch_fronts::app::response::Head;
use clutch_fronts::codec::http::RequestLine;
use clutch_fronts::held::ledger::Adoption;
use clutch_fronts::held::message::ToldEnd;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use super::environ::{put_connection, put_request};
use super::start_response::{HeadGiven, joined, part_given, python, raised_of, tell_cut, twice};
use crate::context::in_copy;
use crate::gil_lock::GilLock;
use crate::handlers::held::{Client, Content, HeldResponse, Outgoing, Then, Wanted};
use crate::handlers::http::{App, misuse, misused};
use crate::handlers::routes;

struct HeldState {
    response: HeldResponse,
    /// The head that the app has given so far, which it may still replace, and its route.
    head: Option<(Head, Option<String>)>,
    environ: Option<Py<PyDict>>,
    /// True once the warning about too long a body was printed.
    is_too_long: bool,
    is_over: bool,
}

/// The `start_response` of one request.
#[pyclass(frozen, module = "clutch._core")]
pub struct HeldStartResponse {
    client: Arc<dyn Client>,
    app: Arc<App>,
    is_head: bool,
    state: GilLock<HeldState>,
}

/// A request, beside its headers.
pub struct Asked<'a, 'py> {
    /// As [`template`] makes it.
    pub template: &'a Bound<'py, PyDict>,
    pub line: &'a RequestLine<'a>,
    pub body: &'a [u8],
    pub wanted: Wanted,
}

/// The part that the environs of one connection share.
pub fn template(py: Python<'_>, app: &App, line: &RequestLine<'_>) -> PyResult<Py<PyDict>> {
    let template = app.template.bind(py).copy()?;
    put_connection(&template, line)?;
    // Room for what each request has of its own.
    for name in ["REQUEST_METHOD", "PATH_INFO", "QUERY_STRING", "RAW_URI", "wsgi.input"] {
        template.set_item(PyString::intern(py, name), py.None())?;
    }
    Ok(template.unbind())
}

/// Answers a request, in this thread. Names of headers are in lower case. Calls `code_ended()` behind the app's code.
pub fn answer<'a>(
    app: &Arc<App>,
    client: Arc<dyn Client>,
    asked: &Asked<'_, '_>,
    headers: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    code_ended: impl FnOnce(),
) -> PyResult<()> {
    let (py, environ, wanted) = (asked.template.py(), asked.template.copy()?, asked.wanted);
    put_request(&environ, asked.line, headers)?;
    let input = python(py)?.bytes_io.bind(py).call1((PyBytes::new(py, asked.body),))?;
    environ.set_item(intern!(py, "wsgi.input"), input)?;
    let state = HeldState {
        response: HeldResponse::new(wanted),
        head: None,
        environ: Some(environ.clone().unbind()),
        is_too_long: false,
        is_over: false,
    };
    let (app, is_head) = (app.clone(), wanted.is_head);
    let start = Bound::new(py, HeldStartResponse { client, app, is_head, state: GilLock::new(state) })?;
    let made = in_copy(py, || {
        let made = start.get().app.run.bind(py).call1((environ, &start))?;
        start.get().take(made)
    });
    code_ended();
    let ended = start.get().end(py, made.err().as_ref());
    // It may hold what holds this.
    let environ = start.get().state.lock(py).environ.take();
    drop(environ);
    ended
}

impl HeldStartResponse {
    /// Sends what the app returned.
    fn take(&self, made: Bound<'_, PyAny>) -> PyResult<()> {
        let py = made.py();
        // Exactly these: what is made of them may have a `close` or an order of its own.
        let whole = match made.cast_exact::<PyList>() {
            Ok(parts) => joined(parts.iter()),
            Err(_) => made.cast_exact::<PyTuple>().ok().and_then(|parts| joined(parts.iter())),
        };
        let has_head = self.state.lock(py).head.is_some();
        if let Some(bytes) = whole.filter(|_| has_head) {
            return self.put(py, Content::Slice(&bytes), false);
        }
        for part in python(py)?.parts.bind(py).call1((made,))?.try_iter()? {
            let part = part?;
            let bytes = part_given(&part)?;
            // An empty part sends nothing, not even the head: middleware yields some to gain time (PEP 3333).
            if !bytes.as_bytes().is_empty() {
                self.put(py, Content::Bytes(bytes), true)?;
            }
            if self.is_wanted_no_more(py) {
                break;
            }
        }
        Ok(())
    }

    /// Whether the app is to give no further part: its client has gone, or its response has no end of its own and the worker
    /// is to end.
    fn is_wanted_no_more(&self, py: Python<'_>) -> bool {
        self.client.is_gone() || (self.client.is_leaving() && self.state.lock(py).response.then(true) == Then::Whenever)
    }

    /// Sends a part, and the head before the first.
    fn put(&self, py: Python<'_>, content: Content<'_, '_>, more: bool) -> PyResult<()> {
        let is_last = self.client.is_last();
        let (outgoing, count, is_cut) = {
            let mut state = self.state.lock(py);
            match state.head.take() {
                Some((head, route)) => state.response.start(head, route).map_err(misused)?,
                None if state.response.machine().is_started() => {}
                None => return Err(misuse("the app gave a body before it called start_response")),
            }
            let bytes = content.bytes();
            // No more is transmitted than the Content-Length allows (PEP 3333).
            let count = state.response.machine().within(bytes.len() as u64) as usize;
            let is_cut = count < bytes.len() && !std::mem::replace(&mut state.is_too_long, true);
            (state.response.part(&bytes[..count], more, is_last).map_err(misused)?, count, is_cut)
        };
        if is_cut {
            tell_cut(py, &self.app);
        }
        let Outgoing { bytes, has_content, closes, .. } = outgoing;
        let content = match content {
            _ if !has_content => Content::Slice(b""),
            whole if count == whole.bytes().len() => whole,
            cut => return self.send(py, bytes, Content::Slice(&cut.bytes()[..count]), closes, more),
        };
        self.send(py, bytes, content, closes, more)
    }

    fn send(&self, py: Python<'_>, bytes: Vec<u8>, content: Content<'_, '_>, closes: bool, more: bool) -> PyResult<()> {
        if !bytes.is_empty() || !content.bytes().is_empty() {
            let then = self.state.lock(py).response.then(more);
            self.client.send(py, bytes, content, then)?;
        }
        if more {
            return Ok(());
        }
        let ended = {
            let mut state = self.state.lock(py);
            state.is_over = true;
            state.response.ended(ToldEnd::Whole)
        };
        let adoption = self.client.over(py, closes, &ended)?;
        self.adopted_as(py, adoption);
        Ok(())
    }

    fn adopted_as(&self, py: Python<'_>, adoption: Option<Adoption>) {
        self.state.lock(py).response.adopted_as(adoption);
    }

    /// The app's code has ended, or has raised.
    fn end(&self, py: Python<'_>, raised: Option<&PyErr>) -> PyResult<()> {
        let ended = self.end_response(py, raised);
        let adopted = self.state.lock(py).response.end_of_adopted();
        adopted.map_or(Ok(()), |adopted| self.client.end_adopted(py, adopted)).and(ended)
    }

    fn end_response(&self, py: Python<'_>, raised: Option<&PyErr>) -> PyResult<()> {
        if let Some(error) = raised {
            self.app.log_error(py, error);
        }
        let (is_over, has_head, is_started) = {
            let state = self.state.lock(py);
            (state.is_over, state.head.is_some(), state.response.machine().is_started())
        };
        if is_over {
            return Ok(());
        }
        if raised.is_none() && (has_head || is_started) {
            match self.put(py, Content::Slice(b""), false) {
                Ok(()) => return Ok(()),
                Err(error) => self.app.log_error(py, &error),
            }
        } else if raised.is_none() {
            self.app.log(py, PyString::new(py, "the app returned without calling start_response").as_any());
        }
        let mut state = self.state.lock(py);
        let response = state.response.machine();
        if response.is_started() && !response.has_head() {
            let ended = state.response.ended(ToldEnd::BrokenOff);
            drop(state);
            let adoption = self.client.break_off(py, &ended)?;
            self.adopted_as(py, adoption);
            return Ok(());
        }
        state.head = None;
        let words = state.response.start_error().map_err(misused)?;
        drop(state);
        self.put(py, Content::Slice(words), false)
    }
}

#[pymethods]
impl HeldStartResponse {
    /// `start_response(status, headers, exc_info=None)`; returns `write`.
    #[pyo3(signature = (status, headers, exc_info = None))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        status: &Bound<'py, PyString>,
        headers: &Bound<'py, PyAny>,
        exc_info: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let given = HeadGiven::read(status, headers)?;
        let head = Head::for_client(given.code, given.reason(), given.lines(), !this.is_head).map_err(misused)?;
        let environ = this.state.lock(py).environ.as_ref().map(|environ| environ.clone_ref(py));
        let route = environ.and_then(|environ| routes::of_environ(environ.bind(py)));
        let raised = raised_of(exc_info);
        {
            let mut state = this.state.lock(py);
            twice(state.head.is_some(), state.response.machine().is_started(), raised)?;
            state.head = Some((head, route));
        }
        slf.getattr(intern!(py, "write"))
    }

    /// The old way to send a part of the body. The first sends the head, even if it is empty (PEP 3333).
    fn write(&self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        self.put(data.py(), Content::Bytes(part_given(data)?), true)
    }
}
