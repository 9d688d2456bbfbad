//! A request of a WSGI app: its `environ`, `start_response`, and what becomes of the iterable that it returns.
//!
//! A response that is all there goes as one frame. Any other iterable becomes a generator, which the profile sends as it
//! sends any stream: each part when the client has room for it.

use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use clutch_fronts::app::response::{Head, Response};
use clutch_fronts::codec::http::{BODY_WINDOW, RequestHead, credit_of};
use clutch_wire::sync::Mutex;
use clutch_wire::{Codec, Failure, Payload};
use pyo3::exceptions::{PyConnectionError, PyOSError, PyStopIteration, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use super::environ::environ;
use crate::handlers::connection::Descriptor;
use crate::handlers::http::{App, AppRequest, Input, failed, misuse, misused, name_and_value, part_of};
use crate::handlers::routes;
use crate::link::WorkerLink;
use crate::link::call_frame::CallFrame;

struct ResponseState {
    response: Response,
    /// The head that the app has given so far, which it may still replace.
    head: Option<Head>,
    /// A whole response, to go with the end of the work.
    whole: Option<Payload>,
    /// Until its end.
    environ: Option<Py<PyDict>>,
    input: Input,
    /// True once the warning about too long a body was printed.
    is_too_long: bool,
}

/// The `start_response` of one request.
#[pyclass(frozen, module = "clutch._core")]
pub struct StartResponse {
    link: Py<WorkerLink>,
    id: u64,
    app: Arc<App>,
    state: Mutex<ResponseState>,
    /// The socket in its environ, if it asks for another protocol: `handlers/app_socket.py`.
    socket: OnceLock<Py<PyAny>>,
}

impl AppRequest for StartResponse {
    fn of<'py>(
        link: &Bound<'py, WorkerLink>,
        app: &Arc<App>,
        frame: &mut CallFrame,
        payload: &Payload,
    ) -> PyResult<(Bound<'py, StartResponse>, Bound<'py, PyTuple>)> {
        let (py, id, has_input) = (link.py(), frame.id, frame.has_input());
        let (head, body) = RequestHead::read(payload.body()).map_err(|error| misuse(error.to_string()))?;
        link.get().streams.open_exchange(id, BODY_WINDOW);
        let state = ResponseState {
            response: Response::new(head.line.method == "HEAD"),
            head: None,
            whole: None,
            environ: None,
            input: Input::new(has_input),
            is_too_long: false,
        };
        let (link, socket) = (link.clone().unbind(), OnceLock::new());
        let request = StartResponse { link, id, app: app.clone(), state: Mutex::new(state), socket };
        let request = Bound::new(py, request)?;
        let environ = environ(app.template.bind(py), &head.line, head.headers.iter())?;
        request.get().state.lock().environ = Some(environ.clone().unbind());
        let input = match has_input {
            true => python(py)?.open_input.bind(py).call1((&request,))?,
            false => python(py)?.bytes_io.bind(py).call1((PyBytes::new(py, body),))?,
        };
        environ.set_item(intern!(py, "wsgi.input"), input)?;
        if frame.has_descriptor() {
            put_socket(&environ, &request, frame.descriptor.take())?;
        }
        let arguments = PyTuple::new(py, [environ.as_any(), request.as_any()])?;
        Ok((request, arguments))
    }

    /// Takes what the app returned: None when it was all there, else a generator of what is still to be sent.
    fn take<'py>(&self, made: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = made.py();
        // Exactly these: what is made of them may have a `close` or an order of its own.
        let whole = match made.cast_exact::<PyList>() {
            Ok(parts) => joined(parts.iter()),
            Err(_) => made.cast_exact::<PyTuple>().ok().and_then(|parts| joined(parts.iter())),
        };
        let has_head = self.state.lock().head.is_some();
        match whole {
            Some(bytes) if has_head => {
                self.end_with(py, &bytes)?;
                Ok(py.None().into_bound(py))
            }
            // Such an app may return anything.
            _ if made.is_none() && self.has_taken_socket(py) => Ok(made),
            _ => python(py)?.parts.bind(py).call1((made,)),
        }
    }

    /// An empty part sends nothing, not even the head: middleware yields some to gain time (PEP 3333).
    fn send(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let bytes = part_given(value)?;
        if bytes.as_bytes().is_empty() {
            return self.keep_credit(value.py());
        }
        self.send_part(bytes)
    }

    fn end(&self, py: Python<'_>, raised: Option<&PyErr>) -> Result<Payload, Failure> {
        let has_taken_socket = self.has_taken_socket(py);
        let raised = raised.filter(|error| !(has_taken_socket && ends_socket(py, error)));
        if let Some(error) = raised {
            self.app.log_error(py, error);
        }
        let is_gone = self.link.get().streams.with(self.id, |stream| stream.is_left()).unwrap_or(true);
        let mut state = self.state.lock();
        if let Some(whole) = state.whole.take() {
            return Ok(whole);
        }
        if is_gone || (has_taken_socket && raised.is_none()) {
            return Ok(Payload::empty());
        }
        let has_head = state.head.is_some() || state.response.is_started();
        drop(state);
        let message = match raised {
            Some(error) => error.to_string(),
            None if !has_head => {
                let message = "the app returned without calling start_response";
                self.app.log(py, PyString::new(py, message).as_any());
                message.to_owned()
            }
            None => match self.end_with(py, &[]) {
                Ok(()) => return Ok(self.state.lock().whole.take().unwrap_or_else(Payload::empty)),
                Err(error) => {
                    self.app.log_error(py, &error);
                    error.to_string()
                }
            },
        };
        Err(failed(py, raised, message))
    }

    fn close(&self, py: Python<'_>) {
        self.link.get().streams.close(py, self.id);
        // It may hold what holds this.
        let environ = self.state.lock().environ.take();
        drop(environ);
        if let Some(socket) = self.socket.get()
            && let Err(error) = python(py).and_then(|python| python.close_socket.call1(py, (socket,)))
        {
            error.write_unraisable(py, None);
        }
    }
}

/// An app that cannot have its socket goes on without one, as under a server that gives none.
fn put_socket(
    environ: &Bound<'_, PyDict>,
    request: &Bound<'_, StartResponse>,
    descriptor: Option<OwnedFd>,
) -> PyResult<()> {
    let py = environ.py();
    let descriptor = Bound::new(py, Descriptor::new(descriptor))?;
    match python(py)?.put_socket.call1(py, (environ, request, descriptor)) {
        Ok(socket) => drop(request.get().socket.set(socket)),
        Err(error) => request.get().app.log_error(py, &error),
    }
    Ok(())
}

/// How libraries end what they had to do with a socket: servers are to write nothing more to it.
fn ends_socket(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyStopIteration>(py) || error.is_instance_of::<PyConnectionError>(py)
}

/// Returns what an app gave as a part of its body, if it is one.
pub(super) fn part_given<'a, 'py>(value: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyBytes>> {
    match value.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes),
        Err(_) => {
            let kind = value.get_type();
            Err(PyTypeError::new_err(format!("a WSGI app must give bytes; it gave {}", kind.name()?)))
        }
    }
}

impl StartResponse {
    /// Sends a part, for which one credit was taken, and the head before the first.
    fn send_part(&self, part: &Bound<'_, PyBytes>) -> PyResult<()> {
        let (py, link) = (part.py(), self.link.get());
        let mut state = self.state.lock();
        state.begin()?;
        let (bytes, is_cut) = state.within(part.as_bytes());
        let (payload, is_endless) = part_of(&mut state.response, &link.sender.regions, bytes, true)?;
        drop(state);
        self.tell_cut(py, is_cut);
        if payload.form == Codec::Bytes.into() && payload.bytes_total() == 0 {
            return self.keep_credit(py);
        }
        if is_endless {
            // Where its worker is to end by now, no credit is found for the next part: see `Call::take_credit`.
            link.streams.mark_endless(self.id, None);
        }
        let more = credit_of(payload.bytes_total()) - 1;
        link.streams.with(self.id, |stream| stream.credit = stream.credit.saturating_sub(more));
        link.sender.put_chunk(self.id, &payload)?;
        link.flush(py)
    }

    /// Gives back the credit of a part that is not sent: nobody else would. A producer that never runs out of it learns
    /// here that its client has gone.
    fn keep_credit(&self, py: Python<'_>) -> PyResult<()> {
        let link = self.link.get();
        link.streams.with(self.id, |stream| stream.credit += 1);
        link.reader.read_ready(py)
    }

    fn has_taken_socket(&self, py: Python<'_>) -> bool {
        let is_taken = |socket: &Py<PyAny>| socket.getattr(py, intern!(py, "is_taken")).and_then(|is| is.is_truthy(py));
        self.socket.get().is_some_and(|socket| is_taken(socket).unwrap_or(false))
    }

    /// The last part of the body.
    fn end_with(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<()> {
        let mut state = self.state.lock();
        state.begin()?;
        let (bytes, is_cut) = state.within(bytes);
        let (payload, _) = part_of(&mut state.response, &self.link.get().sender.regions, bytes, false)?;
        state.whole = Some(payload);
        drop(state);
        self.tell_cut(py, is_cut);
        Ok(())
    }

    fn tell_cut(&self, py: Python<'_>, is_cut: bool) {
        if is_cut {
            tell_cut(py, &self.app);
        }
    }
}

impl ResponseState {
    /// As much of a part as its Content-Length allows (PEP 3333: no more is transmitted), and whether it is the first that is
    /// cut.
    fn within<'a>(&mut self, bytes: &'a [u8]) -> (&'a [u8], bool) {
        let count = self.response.within(bytes.len() as u64) as usize;
        let is_cut = count < bytes.len();
        (&bytes[..count], is_cut && !std::mem::replace(&mut self.is_too_long, true))
    }

    /// Makes the head final.
    fn begin(&mut self) -> PyResult<()> {
        match self.head.take() {
            Some(head) => self.response.start(head).map_err(misused),
            None if self.response.is_started() => Ok(()),
            None => Err(misuse("the app gave a body before it called start_response")),
        }
    }
}

#[pymethods]
impl StartResponse {
    /// `start_response(status, headers, exc_info=None)`; returns `write`.
    #[pyo3(signature = (status, headers, exc_info = None))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        status: &Bound<'py, PyString>,
        headers: &Bound<'py, PyAny>,
        exc_info: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let has_body = this.state.lock().response.has_body();
        let given = HeadGiven::read(status, headers)?;
        let mut head = Head::new(given.code, given.reason(), given.lines(), has_body).map_err(misused)?;
        let environ = this.state.lock().environ.as_ref().map(|environ| environ.clone_ref(py));
        if let Some(route) = environ.and_then(|environ| routes::of_environ(environ.bind(py))) {
            head = head.with_route(&route);
        }
        let raised = raised_of(exc_info);
        {
            let mut state = this.state.lock();
            twice(state.head.is_some(), state.response.is_started(), raised)?;
            state.head = Some(head);
        }
        slf.getattr(intern!(py, "write"))
    }

    /// The old way to send a part of the body: waits until there is room for it. The first sends the head, even if it is
    /// empty (PEP 3333).
    fn write(&self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let (part, link) = (part_given(data)?, self.link.get());
        link.reader.wait_for(data.py(), self.id, |stream| stream.credit > 0 || stream.is_left())?;
        link.streams.with(self.id, |stream| stream.credit = stream.credit.saturating_sub(1));
        self.send_part(part)
    }

    /// The app has taken the socket of its environ. `on_ending()` is called when the worker is to end.
    fn take_socket(&self, py: Python<'_>, on_ending: Py<PyAny>) -> PyResult<()> {
        let told = on_ending.clone_ref(py);
        let on_ending = Arc::new(move |py: Python<'_>| on_ending.call0(py).map(drop));
        match self.link.get().streams.mark_endless(self.id, Some(on_ending)) {
            true => told.call0(py).map(drop),
            false => Ok(()),
        }
    }

    /// The next piece of the request's body; empty at its end. Waits for it. Raises OSError when the client has gone.
    fn next_piece<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let link = self.link.get();
        let mut state = self.state.lock();
        if state.input.ended {
            return Ok(PyBytes::new(py, &[]));
        }
        let has_asked = state.input.ask(link, self.id);
        drop(state);
        if has_asked {
            link.flush(py)?;
        }
        link.reader.wait_for(py, self.id, |stream| !stream.input.is_empty() || stream.is_left())?;
        let mut state = self.state.lock();
        let piece = state.input.take(link, self.id);
        let has_ended = state.input.ended;
        drop(state);
        let piece = piece.ok_or_else(|| PyOSError::new_err("the client went away before its body was whole"))?;
        if !has_ended {
            link.flush(py)?;
        }
        Ok(PyBytes::new(py, piece.body()))
    }
}

/// What an app raised, in the `exc_info` that it gives: an object of the app's, which runs code.
pub(super) fn raised_of<'py>(exc_info: Option<Bound<'py, PyAny>>) -> Option<PyResult<Bound<'py, PyAny>>> {
    exc_info.map(|exc_info| exc_info.get_item(1))
}

/// Fails where a head was given before, unless the app has `raised` something; raises that where the head has gone.
pub(super) fn twice(has_head: bool, is_started: bool, raised: Option<PyResult<Bound<'_, PyAny>>>) -> PyResult<()> {
    match raised {
        Some(raised) if is_started => Err(PyErr::from_value(raised?)),
        None if has_head || is_started => Err(misuse("start_response was called twice without exc_info")),
        _ => Ok(()),
    }
}

/// Warns of a body that is cut.
pub(super) fn tell_cut(py: Python<'_>, app: &App) {
    let text = "warning: the app gave a body that is longer than its Content-Length; the rest is not sent";
    app.log(py, PyString::new(py, text).as_any());
}

/// The head of a response as an app gives it.
pub(super) struct HeadGiven<'py> {
    status: Vec<u8>,
    pub(super) code: u16,
    lines: Vec<(Native<'py>, Native<'py>)>,
}

/// A native string, whose characters stand for bytes.
enum Native<'py> {
    Ascii(Bound<'py, PyString>),
    Other(Vec<u8>),
}

impl<'py> Native<'py> {
    fn of(text: Bound<'py, PyString>) -> PyResult<Native<'py>> {
        if text.to_str()?.is_ascii() { Ok(Native::Ascii(text)) } else { latin1(&text).map(Native::Other) }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Native::Ascii(text) => text.to_str().unwrap_or_default().as_bytes(),
            Native::Other(bytes) => bytes,
        }
    }
}

impl<'py> HeadGiven<'py> {
    pub(super) fn read(status: &Bound<'py, PyString>, headers: &Bound<'py, PyAny>) -> PyResult<HeadGiven<'py>> {
        let line = latin1(status)?;
        let (code, _) = status_of(&line)
            .ok_or_else(|| misuse(format!("a status is a number of three digits and a reason; given: {status}")))?;
        let mut lines = Vec::new();
        for header in headers.try_iter()? {
            let (name, value) = name_and_value::<PyString>(&header?)?;
            lines.push((Native::of(name)?, Native::of(value)?));
        }
        Ok(HeadGiven { status: line, code, lines })
    }

    pub(super) fn reason(&self) -> &[u8] {
        status_of(&self.status).map_or(&[], |(_, reason)| reason)
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        self.lines.iter().map(|(name, value)| (name.bytes(), value.bytes()))
    }
}

/// The code and the reason of a status as `200 OK`.
fn status_of(status: &[u8]) -> Option<(u16, &[u8])> {
    let (code, rest) = status.split_at_checked(3)?;
    let reason = if rest.is_empty() { rest } else { rest.strip_prefix(b" ")? };
    let is_code = code.iter().all(u8::is_ascii_digit);
    let code = code.iter().fold(0, |code, digit| code * 10 + u16::from(digit & 0xf));
    is_code.then_some((code, reason))
}

/// The parts of a list in one; none: they are not all bytes.
pub(super) fn joined<'py>(parts: impl Iterator<Item = Bound<'py, PyAny>>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend_from_slice(part.cast::<PyBytes>().ok()?.as_bytes());
    }
    Some(bytes)
}

/// Native strings of WSGI hold bytes: each character stands for one.
fn latin1(text: &Bound<'_, PyString>) -> PyResult<Vec<u8>> {
    let text = text.to_str()?;
    if text.is_ascii() {
        return Ok(text.as_bytes().to_vec());
    }
    let bytes = text.chars().map(|character| u8::try_from(u32::from(character)).ok());
    bytes
        .collect::<Option<_>>()
        .ok_or_else(|| misuse(format!("a status or a header holds characters outside Latin-1: {text:?}")))
}

/// Functions of `handlers/wsgi.py` and `handlers/app_socket.py` that are called for requests.
pub(super) struct PythonFunctions {
    open_input: Py<PyAny>,
    pub(super) parts: Py<PyAny>,
    pub(super) bytes_io: Py<PyAny>,
    put_socket: Py<PyAny>,
    close_socket: Py<PyAny>,
}

pub(super) fn python(py: Python<'_>) -> PyResult<&'static PythonFunctions> {
    static FUNCTIONS: PyOnceLock<PythonFunctions> = PyOnceLock::new();
    FUNCTIONS.get_or_try_init(py, || {
        let [wsgi, app_socket] =
            ["wsgi", "app_socket"].map(|name| py.import(format!("clutch._worker.handlers.{name}")));
        let (wsgi, app_socket) = (wsgi?, app_socket?);
        let get = |module: &Bound<'_, PyModule>, name: &str| Ok::<_, PyErr>(module.getattr(name)?.unbind());
        Ok(PythonFunctions {
            open_input: get(&wsgi, "open_input")?,
            parts: get(&wsgi, "parts")?,
            bytes_io: get(&wsgi, "BytesIO")?,
            put_socket: get(&app_socket, "put")?,
            close_socket: get(&app_socket, "close")?,
        })
    })
}
