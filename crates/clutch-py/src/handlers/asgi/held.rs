//! A request of an ASGI app on a connection that this worker holds: what the app sends goes to its client at once.

use std::sync::Arc;

use clutch_fronts::app::response::Head;
use clutch_fronts::held::ledger::{Adoption, BEGINNING_BYTES};
use clutch_fronts::held::message::ToldEnd;
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

use super::awaiting::{Asked, Awaiting, Receive, Waits, nothing};
use super::late_heads::{self, LateHead};
use super::messages::{dict_of, header_lines, http_request, item};
use crate::collector;
use crate::gil_lock::GilLock;
use crate::handlers::held::{Client, Content, Ended, HeldResponse, Outgoing, StillRuns, Wanted};
use crate::handlers::http::{App, misuse, misused};
use crate::handlers::outcome::outcome_of;
use crate::handlers::routes;
use crate::link::native_future::{NativeFuture, running_loop};
use crate::link::streams::end_waits;

/// Nothing of Python's is called or made while it is locked.
struct HeldState {
    /// The body, until it is taken.
    body: Option<Py<PyBytes>>,
    response: HeldResponse,
    /// Until the response begins, with its length as it was made: a framework that tells a route adds to it.
    scope: Option<(Py<PyDict>, usize)>,
    in_first_step: bool,
    is_gone: bool,
    /// Its client has left before the response was over: told when the app's code has ended.
    left: Option<Ended>,
    /// The response has no end of its own, and the worker is to end.
    is_ending: bool,
    behind: Behind,
    waits: Vec<Py<NativeFuture>>,
}

/// What is known of the app's code that goes on although the response is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    /// There was none when it was looked for.
    Unseen,
    Seen,
    /// The pool is to know it.
    Told,
    /// It was told to stop, and the pool does not know it.
    CutOff,
    /// It has ended.
    Ended,
}

impl HeldState {
    /// The response is over, and the connection somebody else's: the request is the app's alone.
    fn is_over(&self) -> bool {
        (self.response.machine().is_whole() || self.is_gone) && self.left.is_none()
    }

    /// The app is told that its client has gone, which it has, or is to believe.
    fn has_ended(&self) -> bool {
        self.response.machine().is_whole() || self.is_gone || self.is_ending
    }
}

/// A request on a connection that is held, and its own `send`.
#[pyclass(frozen, module = "clutch._core")]
pub struct HeldRequest {
    client: Arc<dyn Client>,
    app: Arc<App>,
    is_head: bool,
    /// Its first bytes, filled up with zeros.
    beginning: [u8; BEGINNING_BYTES],
    state: GilLock<HeldState>,
}

/// What makes a request, beside its scope.
pub struct Given<'py> {
    pub client: Arc<dyn Client>,
    pub app: Arc<App>,
    pub head: &'py [u8],
    pub body: Bound<'py, PyBytes>,
    pub wanted: Wanted,
}

impl HeldRequest {
    /// The request, and what the app is called with.
    pub fn of<'py>(
        scope: Bound<'py, PyDict>,
        given: Given<'py>,
    ) -> PyResult<(Bound<'py, HeldRequest>, Bound<'py, PyTuple>)> {
        let py = scope.py();
        let Given { client, app, head, body, wanted } = given;
        let mut beginning = [0; BEGINNING_BYTES];
        let count = head.len().min(BEGINNING_BYTES);
        beginning[..count].copy_from_slice(&head[..count]);
        let state = HeldState {
            body: Some(body.unbind()),
            response: HeldResponse::new(wanted),
            scope: Some((scope.clone().unbind(), scope.len())),
            in_first_step: true,
            is_gone: false,
            left: None,
            is_ending: false,
            behind: Behind::Unseen,
            waits: Vec::new(),
        };
        let (is_head, state) = (wanted.is_head, GilLock::new(state));
        let request = Bound::new(py, HeldRequest { client, app, is_head, beginning, state })?;
        let receive = Bound::new(py, Receive(Asked::of(&request)))?;
        let arguments = PyTuple::new(py, [scope.as_any(), receive.as_any(), request.as_any()])?;
        Ok((request, arguments))
    }

    /// The coroutine waits for something: a head that waits for its body goes without it after a while.
    pub fn leave_first_step(slf: &Bound<'_, Self>) -> PyResult<()> {
        let has_head = {
            let mut state = slf.get().state.lock(slf.py());
            state.in_first_step = false;
            state.response.machine().has_head()
        };
        if has_head { Self::send_head_late(slf) } else { Ok(()) }
    }

    /// The client has gone. Returns whether the response was not over: its client is told of that when the app's code has
    /// ended, and the pool may come to know the request until then.
    pub fn client_gone(&self, py: Python<'_>) -> bool {
        let (waits, goes_on) = {
            let mut state = self.state.lock(py);
            let goes_on = !std::mem::replace(&mut state.is_gone, true);
            if goes_on {
                state.left = Some(state.response.ended(ToldEnd::ClientGone));
            }
            (std::mem::take(&mut state.waits), goes_on)
        };
        end_waits(py, &waits);
        goes_on
    }

    /// The front has taken the connection, and answers in the app's place.
    pub fn taken(&self, py: Python<'_>, adoption: Option<Adoption>) {
        self.adopted_as(py, adoption);
        self.client_gone(py);
        self.state.lock(py).left = None;
    }

    /// By what the pool knows it from the end of its response on.
    pub fn adopted_as(&self, py: Python<'_>, adoption: Option<Adoption>) {
        self.state.lock(py).response.adopted_as(adoption);
    }

    fn adoption(&self, py: Python<'_>) -> Option<Adoption> {
        let (known, is_over) = {
            let state = self.state.lock(py);
            (state.response.adoption(), state.is_over())
        };
        known.or_else(|| if is_over { None } else { self.client.adoption() })
    }

    /// Its method and its path, as much as is known of that.
    fn shown(&self) -> String {
        let mut words = self.beginning.splitn(3, |byte| matches!(byte, b' ' | b'?' | 0)).map(String::from_utf8_lossy);
        format!("{} {}", words.next().unwrap_or_default(), words.next().unwrap_or_default())
    }

    /// Nobody waits for it any more: whoever did was told why.
    fn is_stopped(&self, py: Python<'_>) -> bool {
        self.state.lock(py).behind == Behind::CutOff
            || self.adoption(py).is_some_and(|adoption| self.client.is_abandoned(adoption))
    }

    /// The app's code has ended, or has raised.
    pub fn end(&self, py: Python<'_>, raised: Option<&PyErr>) -> PyResult<()> {
        collector::follow(py);
        let ended = self.end_response(py, raised).and_then(|()| self.end_left(py));
        let adopted = {
            let mut state = self.state.lock(py);
            state.behind = Behind::Ended;
            state.response.end_of_adopted()
        };
        adopted.map_or(Ok(()), |adopted| self.client.end_adopted(py, adopted)).and(ended)
    }

    fn end_response(&self, py: Python<'_>, raised: Option<&PyErr>) -> PyResult<()> {
        let (is_gone, is_whole, is_started, has_head) = {
            let state = self.state.lock(py);
            let response = state.response.machine();
            (state.is_gone, response.is_whole(), response.is_started(), response.has_head())
        };
        if raised.is_none() && self.ends_by_us(py) {
            return self.put_body(py, Content::Slice(b""), false).map(drop);
        }
        if let Some(error) = raised {
            if !self.is_stopped(py) {
                self.app.log_error(py, error);
            }
        } else if !is_whole && !is_gone {
            let what = if is_started { "before its response was whole" } else { "without a response" };
            self.app.log(py, PyString::new(py, &format!("the app returned {what}")).as_any());
        }
        if is_whole || is_gone {
            return Ok(());
        }
        if is_started && !has_head {
            let ended = {
                let mut state = self.state.lock(py);
                state.is_gone = true;
                state.response.ended(ToldEnd::BrokenOff)
            };
            let adoption = self.client.break_off(py, &ended)?;
            self.adopted_as(py, adoption);
            return Ok(());
        }
        self.send_error(py)
    }

    /// Told that the worker is to end, an event stream has said all: its client gets the end of the response, and comes again.
    fn ends_by_us(&self, py: Python<'_>) -> bool {
        let state = self.state.lock(py);
        let response = state.response.machine();
        state.is_ending && !state.is_gone && response.is_started() && !response.is_whole()
    }

    /// A request whose client has left is over with its code.
    fn end_left(&self, py: Python<'_>) -> PyResult<()> {
        let left = self.state.lock(py).left.take();
        if let Some(ended) = left {
            let adoption = self.client.over(py, true, &ended)?;
            self.adopted_as(py, adoption);
        }
        Ok(())
    }

    /// Sends 500 in the place of the app's response.
    fn send_error(&self, py: Python<'_>) -> PyResult<()> {
        let words = self.state.lock(py).response.start_error().map_err(misused)?;
        self.put_body(py, Content::Slice(words), false).map(drop)
    }

    // ---- sending

    fn start(slf: &Bound<'_, Self>, message: &Bound<'_, PyDict>) -> PyResult<()> {
        let (py, this) = (message.py(), slf.get());
        let status: u16 = item(message, intern!(py, "status"))?.extract()?;
        let headers = header_lines(message)?;
        let headers = headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let head = Head::for_client(status, b"", headers, !this.is_head).map_err(misused)?;
        let scope = this.state.lock(py).scope.take();
        let grown = scope.filter(|(scope, length)| scope.bind(py).len() != *length);
        let route = grown.and_then(|(scope, _)| routes::of_scope(scope.bind(py)));
        let (is_event_stream, in_first_step) = {
            let mut state = this.state.lock(py);
            state.response.start(head, route).map_err(misused)?;
            (state.response.machine().is_event_stream(), state.in_first_step)
        };
        // The first event may be far, and until the head comes a client does not know that it is connected.
        if is_event_stream {
            if this.client.is_ending() {
                this.end_endless(py);
            }
            return this.put_body(py, Content::Slice(b""), true).map(drop);
        }
        if in_first_step { Ok(()) } else { Self::send_head_late(slf) }
    }

    fn send_head_late(slf: &Bound<'_, Self>) -> PyResult<()> {
        let send = |request: &Bound<'_, PyAny>| Self::send_head(request.cast::<HeldRequest>()?);
        late_heads::send_late(slf.py(), LateHead { request: slf.clone().into_any().unbind(), send })
    }

    /// Sends the head now, unless it has gone.
    fn send_head(slf: &Bound<'_, Self>) -> PyResult<()> {
        let has_head = {
            let state = slf.get().state.lock(slf.py());
            state.response.machine().has_head() && !state.is_gone
        };
        if has_head { slf.get().put_body(slf.py(), Content::Slice(b""), true).map(drop) } else { Ok(()) }
    }

    fn body(&self, message: &Bound<'_, PyDict>) -> PyResult<bool> {
        let py = message.py();
        let body = message.get_item(intern!(py, "body"))?;
        let more = message.get_item(intern!(py, "more_body"))?.is_some_and(|more| more.is_truthy().unwrap_or(true));
        match body {
            Some(body) => match body.cast::<PyBytes>() {
                Ok(bytes) => self.put_body(py, Content::Bytes(bytes), more),
                Err(_) => crate::buffer::bytes_of(&body, |bytes| self.put_body(py, Content::Slice(bytes), more))?,
            },
            None => self.put_body(py, Content::Slice(b""), more),
        }
    }

    /// Returns whether the app may send more at once.
    fn put_body(&self, py: Python<'_>, content: Content<'_, '_>, more: bool) -> PyResult<bool> {
        let is_last = self.client.is_last();
        let (outgoing, then) = {
            let mut state = self.state.lock(py);
            let outgoing = state.response.part(content.bytes(), more, is_last);
            (outgoing, state.response.then(more))
        };
        let Outgoing { bytes, has_content, closes, is_all } = outgoing.map_err(misused)?;
        let content = if has_content { content } else { Content::Slice(b"") };
        if !bytes.is_empty() || !content.bytes().is_empty() {
            self.client.send(py, bytes, content, then)?;
        }
        if more && !is_all {
            return Ok(self.client.has_room());
        }
        let (ended, waits) = {
            let mut state = self.state.lock(py);
            if state.is_gone {
                return Ok(true);
            }
            // Of a response without a body nobody takes more: the app is told so.
            state.is_gone = is_all;
            (state.response.ended(ToldEnd::Whole), std::mem::take(&mut state.waits))
        };
        // There is nothing more to receive.
        end_waits(py, &waits);
        let adoption = self.client.over(py, closes, &ended)?;
        self.adopted_as(py, adoption);
        Ok(true)
    }
}

impl StillRuns for Py<HeldRequest> {
    /// Where the pool has not taken it, it is asked again.
    fn known_as(&self, py: Python<'_>, adoption: Option<Adoption>) -> PyResult<()> {
        let this = self.get();
        let ended = {
            let mut state = this.state.lock(py);
            state.response.adopted_as(adoption);
            match state.behind {
                Behind::Ended => state.response.end_of_adopted(),
                Behind::Told if adoption.is_none() => {
                    state.behind = Behind::Unseen;
                    None
                }
                _ => None,
            }
        };
        ended.map_or(Ok(()), |ended| this.client.end_adopted(py, ended))
    }
}

impl Waits for HeldRequest {
    fn next_message(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let (body, is_over) = {
            let mut state = self.state.lock(py);
            (state.body.take(), state.has_ended())
        };
        if let Some(body) = body {
            return http_request(py, body.bind(py), false).map(Some);
        }
        if !is_over {
            return Ok(None);
        }
        let message = PyDict::new(py);
        message.set_item(intern!(py, "type"), intern!(py, "http.disconnect"))?;
        Ok(Some(message.into_any().unbind()))
    }

    fn has_message(&self, py: Python<'_>) -> bool {
        let state = self.state.lock(py);
        state.body.is_some() || state.has_ended()
    }

    fn has_room(&self, py: Python<'_>) -> bool {
        self.state.lock(py).is_gone || self.client.has_room()
    }

    fn wait(&self, py: Python<'_>, is_there: &dyn Fn() -> bool) -> PyResult<Py<PyAny>> {
        let future = Bound::new(py, NativeFuture::new(running_loop(py)?.unbind()))?;
        self.state.lock(py).waits.push(future.clone().unbind());
        // It may have come meanwhile.
        if is_there() {
            NativeFuture::end_soon(&future);
        }
        Ok(future.into_any().unbind())
    }
}

impl HeldRequest {
    /// The worker is to end: a response that has no end of its own does.
    pub fn end_endless(&self, py: Python<'_>) {
        let is_endless = {
            let mut state = self.state.lock(py);
            let is_endless = state.response.machine().is_event_stream() && !state.response.machine().is_whole();
            state.is_ending |= is_endless;
            is_endless
        };
        if is_endless {
            self.wake(py);
        }
    }

    /// Those that wait for room, or for a message, look again.
    pub fn wake(&self, py: Python<'_>) {
        let waits = std::mem::take(&mut self.state.lock(py).waits);
        end_waits(py, &waits);
    }
}

/// A request that the pool knows.
#[pyclass(frozen, module = "clutch._core")]
pub struct AdoptedRequest {
    request: Py<HeldRequest>,
    adoption: Adoption,
}

#[pymethods]
impl AdoptedRequest {
    #[getter]
    fn id(&self) -> u64 {
        self.adoption.id
    }

    #[getter]
    fn is_abandoned(&self) -> bool {
        self.request.get().client.is_abandoned(self.adoption)
    }

    fn end_task(&self, task: &Bound<'_, PyAny>) -> PyResult<()> {
        self.request.get().end_task(task)
    }
}

#[pymethods]
impl HeldRequest {
    /// As the pool knows it; None: it does not.
    #[getter]
    fn adopted(slf: &Bound<'_, Self>) -> Option<AdoptedRequest> {
        let adoption = slf.get().adoption(slf.py())?;
        Some(AdoptedRequest { request: slf.clone().unbind(), adoption })
    }

    /// Looks whether the app's code goes on although the response is over: what is seen twice the pool is to know, or `now`.
    fn look_behind(slf: &Bound<'_, Self>, now: bool) -> PyResult<()> {
        let (this, py) = (slf.get(), slf.py());
        let age = {
            let mut state = this.state.lock(py);
            if !state.is_over() || state.response.adoption().is_some() {
                return Ok(());
            }
            match state.behind {
                Behind::Unseen if !now => {
                    state.behind = Behind::Seen;
                    return Ok(());
                }
                Behind::Unseen | Behind::Seen => state.behind = Behind::Told,
                Behind::Told | Behind::CutOff | Behind::Ended => return Ok(()),
            }
            state.response.age()
        };
        this.client.goes_on(py, Box::new(slf.clone().unbind()), &this.beginning, age)
    }

    /// The worker is to end now. Returns what the app's code is, which is to be told so where the pool does not know it and
    /// will not tell; empty: its response is not over. None: the pool knows it.
    fn cut_off(&self, py: Python<'_>) -> Option<String> {
        if self.adoption(py).is_some() {
            return None;
        }
        let is_over = {
            let mut state = self.state.lock(py);
            state.behind = Behind::CutOff;
            state.is_over()
        };
        Some(if is_over { format!("{} (behind its response)", self.shown()) } else { String::new() })
    }

    /// Says something where the app's errors are said.
    fn log(&self, words: &Bound<'_, PyString>) {
        self.app.log(words.py(), words.as_any());
    }

    /// The app's task has ended.
    fn end_task(&self, task: &Bound<'_, PyAny>) -> PyResult<()> {
        self.end(task.py(), outcome_of(task).err().as_ref())
    }

    /// `send`.
    fn __call__(slf: &Bound<'_, Self>, message: &Bound<'_, PyAny>) -> PyResult<Py<Awaiting>> {
        let (py, this) = (slf.py(), slf.get());
        let message = &dict_of(message)?;
        let kind = item(message, intern!(py, "type"))?;
        let sent = match kind.cast::<PyString>()?.to_str()? {
            "http.response.start" => Self::start(slf, message).map(|()| true),
            "http.response.body" => this.body(message),
            other => Err(misuse(format!(
                "{other} is not allowed for this request; allowed: http.response.start, http.response.body"
            ))),
        };
        let has_room = match sent {
            // Nobody takes it.
            Err(wrong) if wrong.is_instance_of::<PyRuntimeError>(py) && this.state.lock(py).is_gone => true,
            sent => sent?,
        };
        if has_room {
            return nothing(py);
        }
        Py::new(py, Awaiting::room_of(Asked::of(slf)))
    }
}
