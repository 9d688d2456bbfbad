//! A request of an ASGI app, or a WebSocket: its `receive` and `send`.
//!
//! What the app sends goes on the link at once, but for the end of a response: that waits until the step of its coroutine
//! is over, and mostly goes as one frame with the end of the work. An app that sends more than its client
//! takes waits for credit.

use std::sync::Arc;

use clutch_fronts::app::response::{Head, Response};
use clutch_fronts::app::websocket::{Action, WebSocket};
use clutch_fronts::codec::http::{BODY_WINDOW, RequestHead, credit_of, request_flag, response_flag};
use clutch_fronts::codec::websocket::WINDOW;
use clutch_fronts::codec::{CLOSE, HEAD, SOCKET};
use clutch_wire::sync::Mutex;
use clutch_wire::{Failure, Payload};
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

use super::awaiting::{Asked, Awaiting, Receive, Waits, nothing};
use super::late_heads::{self, LateHead};
use super::line::Line;
use super::messages::{dict_of, header_lines, http_request, item};
use super::{scope, websocket};
use crate::codec;
use crate::collector;
use crate::handlers::handler::Eager;
use crate::handlers::http::{App, AppRequest, Input, Requests, failed, misuse, misused, part_of};
use crate::handlers::routes;
use crate::link::WorkerLink;
use crate::link::call_frame::CallFrame;
use crate::link::native_future::{NativeFuture, running_loop};

/// Nothing of Python's is called or made while it is locked.
struct RequestState {
    /// The body, when it came with the head and has not been taken.
    body: Option<Py<PyBytes>>,
    input: Input,
    response: Response,
    /// Until the response begins, with its length as it was made: a framework that tells a route adds to it.
    scope: Option<(Py<PyDict>, usize)>,
    /// The end of a response, or all of it, until its coroutine's first step is over; later the link holds it.
    held: Option<Payload>,
    in_first_step: bool,
    /// A coroutine has waited for something of it, and may do so still.
    has_waited: bool,
}

/// A request in a worker, and its own `send`.
#[pyclass(frozen, module = "clutch._core")]
pub struct Request {
    link: Py<WorkerLink>,
    id: u64,
    app: Arc<App>,
    state: Mutex<RequestState>,
    /// The machine of a WebSocket. Then `state` has only the response that denies it.
    websocket: Option<Mutex<WebSocket>>,
    /// Its socket, where the front lends it.
    line: Option<Arc<Line>>,
}

impl AppRequest for Request {
    fn of<'py>(
        link: &Bound<'py, WorkerLink>,
        app: &Arc<App>,
        frame: &mut CallFrame,
        payload: &Payload,
    ) -> PyResult<(Bound<'py, Request>, Bound<'py, PyTuple>)> {
        let (py, id, has_input) = (link.py(), frame.id, frame.has_input());
        let (head, body) = RequestHead::read(payload.body()).map_err(|error| misuse(error.to_string()))?;
        let scope = scope::asgi(py, &app.template, &head)?;
        let websocket = (head.line.flags & request_flag::WEBSOCKET != 0).then(Mutex::default);
        let lent = frame.descriptor.take().filter(|_| head.line.flags & request_flag::LENDS != 0);
        let line = lent.and_then(|socket| Line::lend(link, id, socket));
        let has_body = !has_input && websocket.is_none();
        let state = RequestState {
            body: has_body.then(|| PyBytes::new(py, body).unbind()),
            input: Input::new(has_input),
            response: Response::new(head.line.method == "HEAD"),
            scope: Some((scope.clone().unbind(), scope.len())),
            held: None,
            in_first_step: false,
            has_waited: false,
        };
        link.get().streams.open_exchange(id, if websocket.is_some() { WINDOW } else { BODY_WINDOW });
        let request =
            Request { link: link.clone().unbind(), id, app: app.clone(), state: Mutex::new(state), websocket, line };
        let request = Bound::new(py, request)?;
        let receive = Bound::new(py, Receive(Asked::of(&request)))?;
        let arguments = PyTuple::new(py, [scope.as_any(), receive.as_any(), request.as_any()])?;
        Ok((request, arguments))
    }

    fn send(&self, _value: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(misuse("an ASGI app sends its body itself"))
    }

    fn end(&self, py: Python<'_>, raised: Option<&PyErr>) -> Result<Payload, Failure> {
        collector::follow(py);
        // Of an app that was stopped, its caller has been told why.
        if let Some(error) = raised.filter(|_| !self.is_stopped()) {
            self.app.log_error(py, error);
        }
        let mut state = self.state.lock();
        if let Some(held) = state.held.take() {
            return Ok(held);
        }
        if state.response.is_whole() {
            return Ok(self.link.get().streams.take_held(self.id).unwrap_or_else(Payload::empty));
        }
        if raised.is_none() && self.ends_by_us(&state.response) {
            // Told that the worker is to end, it has said all: its client gets the end of the response, and comes again.
            let last = part_of(&mut state.response, &self.link.get().sender.regions, &[], false);
            return Ok(last.map_or_else(|_| Payload::empty(), |(payload, _)| payload));
        }
        if self.is_gone() {
            return Ok(Payload::empty());
        }
        let websocket = self.websocket.as_ref().map(Mutex::lock);
        let is_over = websocket.as_ref().is_some_and(|websocket| websocket.is_over());
        let is_open = websocket.is_some_and(|websocket| websocket.is_open());
        if is_over || (is_open && raised.is_none()) {
            // Whoever returns has said all: the conversation ends in order.
            return Ok(Payload::empty());
        }
        let is_started = state.response.is_started();
        drop(state);
        let message = match (raised, is_started) {
            (Some(error), _) => error.to_string(),
            (None, true) => "the app returned before its response was whole".to_owned(),
            (None, false) => "the app returned without a response".to_owned(),
        };
        if raised.is_none() && !self.is_stopped() {
            self.app.log(py, PyString::new(py, &message).as_any());
        }
        Err(failed(py, raised, message))
    }

    fn close(&self, py: Python<'_>) {
        self.give_back(py);
        self.link.get().streams.close(py, self.id);
        // It may hold what holds this.
        let scope = self.state.lock().scope.take();
        drop(scope);
    }

    fn eager(handler: &Requests<Request>) -> Option<&dyn Eager> {
        Some(handler)
    }
}

impl Request {
    pub fn enter_first_step(&self) {
        self.state.lock().in_first_step = true;
    }

    /// The coroutine waits for something, and the response may be whole already: its client does not wait, too.
    pub fn leave_first_step(slf: &Bound<'_, Self>) -> PyResult<()> {
        let this = slf.get();
        let mut state = this.state.lock();
        state.in_first_step = false;
        let (held, has_head) = (state.held.take(), state.response.has_head());
        drop(state);
        if has_head {
            return Self::send_head_late(slf);
        }
        let link = this.link.get();
        // After the end of the work nobody takes it any more.
        let held = held.filter(|_| link.streams.with(this.id, |_| ()).is_some());
        held.map_or(Ok(()), |payload| Ok(link.sender.put_chunk(this.id, &payload)?))
    }

    // ---- receiving

    /// An event stream that was told of the end of its worker, and whose client is there.
    fn ends_by_us(&self, response: &Response) -> bool {
        let is_told = self.link.get().streams.with(self.id, |stream| stream.is_over() && !stream.is_left());
        response.is_event_stream() && response.is_started() && is_told.unwrap_or(false)
    }

    fn is_stopped(&self) -> bool {
        self.link.get().streams.with(self.id, |stream| stream.cancelled).unwrap_or(false)
    }

    fn is_gone(&self) -> bool {
        self.link.get().streams.with(self.id, |stream| stream.is_over()).unwrap_or(true)
    }

    fn next_of_websocket(&self, py: Python<'_>, machine: &Mutex<WebSocket>) -> PyResult<Option<Py<PyAny>>> {
        let link = self.link.get();
        // Denied, it is over as soon as its client has the answer.
        let is_denied = self.state.lock().response.is_whole();
        let (heard, due) = {
            let mut machine = machine.lock();
            let heard = link.streams.with(self.id, |stream| {
                let is_gone = is_denied || stream.is_over();
                machine.receive(|| stream.input.pop_front(), is_gone)
            });
            (heard.unwrap_or_else(|| machine.receive(|| None, true)), machine.due())
        };
        let due = due.map(|credit| self.line.as_ref().map_or(credit, |line| line.took(credit)));
        if let Some(credit) = due.filter(|credit| *credit > 0) {
            link.sender.put_credit(self.id, credit);
            self.link.get().flusher.flush_soon(py)?;
        }
        heard.map(|heard| websocket::message_of(py, heard)).transpose()
    }

    fn next_of_body(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let mut state = self.state.lock();
        if let Some(body) = state.body.take() {
            drop(state);
            return http_request(py, body.bind(py), false).map(Some);
        }
        if !state.input.ended {
            if let Some(piece) = state.input.take(self.link.get(), self.id) {
                let more = !state.input.ended;
                drop(state);
                if more {
                    self.link.get().flusher.flush_soon(py)?;
                }
                return http_request(py, &PyBytes::new(py, piece.body()), more).map(Some);
            }
            if !self.is_gone() && state.input.ask(self.link.get(), self.id) {
                drop(state);
                self.link.get().flusher.flush_soon(py)?;
                return Ok(None);
            }
        }
        let is_whole = state.response.is_whole();
        drop(state);
        if is_whole || self.is_gone() {
            let message = PyDict::new(py);
            message.set_item(intern!(py, "type"), intern!(py, "http.disconnect"))?;
            return Ok(Some(message.into_any().unbind()));
        }
        Ok(None)
    }

    // ---- sending

    fn start(&self, message: &Bound<'_, PyDict>) -> PyResult<()> {
        let py = message.py();
        let status: u16 = item(message, intern!(py, "status"))?.extract()?;
        let headers = header_lines(message)?;
        let headers = headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let has_body = self.state.lock().response.has_body();
        let head = Head::new(status, b"", headers, has_body);
        let (mut head, scope) = (head.map_err(misused)?, self.state.lock().scope.take());
        let grown = scope.filter(|(scope, length)| scope.bind(py).len() != *length);
        if let Some(route) = grown.and_then(|(scope, _)| routes::of_scope(scope.bind(py))) {
            head = head.with_route(&route);
        }
        self.state.lock().response.start(head).map_err(misused)
    }

    fn body(slf: &Bound<'_, Self>, message: &Bound<'_, PyDict>) -> PyResult<bool> {
        let py = message.py();
        let body = message.get_item(intern!(py, "body"))?;
        let more = message.get_item(intern!(py, "more_body"))?.is_some_and(|more| more.is_truthy().unwrap_or(true));
        match body {
            Some(body) => match body.cast::<PyBytes>() {
                Ok(bytes) => Self::put_body(slf, bytes.as_bytes(), more),
                Err(_) => crate::buffer::bytes_of(&body, |bytes| Self::put_body(slf, bytes, more))?,
            },
            None => Self::put_body(slf, &[], more),
        }
    }

    /// Returns whether the app may send more at once.
    fn put_body(slf: &Bound<'_, Self>, bytes: &[u8], more: bool) -> PyResult<bool> {
        let this = slf.get();
        let link = this.link.get();
        let mut state = this.state.lock();
        let (payload, is_endless) = part_of(&mut state.response, &link.sender.regions, bytes, more)?;
        if !more {
            let (has_waited, in_first_step) = (state.has_waited, state.in_first_step);
            if in_first_step {
                state.held = Some(payload);
                drop(state);
            } else {
                drop(state);
                link.flusher.hold(slf.py(), this.id, payload)?;
            }
            if has_waited {
                // There is nothing more to receive.
                link.streams.wake(slf.py(), this.id);
            }
            return Ok(true);
        }
        drop(state);
        if is_endless && link.streams.mark_endless(this.id, None) {
            link.streams.wake(slf.py(), this.id);
        }
        this.put(slf.py(), &payload)
    }

    /// Puts a part of what the app says on the link. Returns whether it may go on at once.
    fn put(&self, py: Python<'_>, payload: &Payload) -> PyResult<bool> {
        let link = self.link.get();
        let cost = credit_of(payload.bytes_total());
        let state = link.streams.with(self.id, |stream| {
            stream.spend(cost);
            (stream.is_left(), stream.credit > 0)
        });
        let (is_gone, has_room) = state.unwrap_or((true, true));
        if is_gone {
            return Ok(true);
        }
        link.sender.put_chunk(self.id, payload)?;
        if !self.state.lock().in_first_step {
            self.link.get().flusher.flush_soon(py)?;
        }
        Ok(has_room)
    }

    /// The head of a response goes with its first part, if that comes soon; that of an event stream at once: the first
    /// event may be far, and until the head comes a client does not know that it is connected.
    fn start_http(slf: &Bound<'_, Self>, message: &Bound<'_, PyDict>) -> PyResult<bool> {
        slf.get().start(message)?;
        let state = slf.get().state.lock();
        let (is_event_stream, in_first_step) = (state.response.is_event_stream(), state.in_first_step);
        drop(state);
        if is_event_stream {
            return Self::put_body(slf, &[], true);
        }
        if !in_first_step {
            Self::send_head_late(slf)?;
        }
        Ok(true)
    }

    fn send_head_late(slf: &Bound<'_, Self>) -> PyResult<()> {
        let send = |request: &Bound<'_, PyAny>| Self::send_head(request.cast::<Request>()?);
        late_heads::send_late(slf.py(), LateHead { request: slf.clone().into_any().unbind(), send })
    }

    /// Sends the head now, unless it has gone.
    fn send_head(slf: &Bound<'_, Self>) -> PyResult<()> {
        let has_head = slf.get().state.lock().response.has_head();
        if has_head { Self::put_body(slf, &[], true).map(|_| ()) } else { Ok(()) }
    }

    fn send_http(slf: &Bound<'_, Request>, kind: &str, message: &Bound<'_, PyDict>) -> PyResult<bool> {
        let sent = match kind {
            "http.response.start" => Request::start_http(slf, message),
            "http.response.body" => Request::body(slf, message),
            other => Err(misuse(format!(
                "{other} is not allowed for this request; allowed: http.response.start, http.response.body"
            ))),
        };
        match sent {
            // Nobody takes it. Endpoints that return another response once their event stream has ended, as those of
            // MCP's SDK, rely on that.
            Err(wrong) if wrong.is_instance_of::<PyRuntimeError>(slf.py()) && slf.get().is_gone() => Ok(true),
            sent => sent,
        }
    }

    // ---- a WebSocket

    fn send_websocket(
        slf: &Bound<'_, Request>,
        machine: &Mutex<WebSocket>,
        kind: &str,
        message: &Bound<'_, PyDict>,
    ) -> PyResult<bool> {
        let (py, this) = (slf.py(), slf.get());
        let link = this.link.get();
        let is_open = machine.lock().is_open();
        let is_lent = this.line.as_ref().is_some_and(|line| line.is_lent());
        let payload = |form, bytes: &[u8]| match is_lent {
            true => Ok(Payload::new(form, bytes.to_vec())),
            false => Ok(codec::raw(&link.sender.regions, form, bytes)?),
        };
        let said = websocket::said_by(kind, message, is_open, payload)?;
        let said = said.ok_or_else(|| misuse(format!("{kind} is not allowed for a WebSocket")))?;
        let is_gone = link.streams.with(this.id, |stream| stream.is_left()).unwrap_or(true);
        let deed = machine.lock().send(said, is_gone);
        match deed.map_err(|wrong| websocket::raised(wrong, kind))? {
            Action::Nothing => Ok(true),
            Action::Open(head) => Request::open(slf, head),
            Action::Send(payload) => this.say(py, &payload),
            Action::Start => this.start(message).map(|()| true),
            Action::Body => Request::body(slf, message),
        }
    }

    /// Says something in an open conversation, or its end. Returns whether the app may go on at once.
    fn say(&self, py: Python<'_>, payload: &Payload) -> PyResult<bool> {
        let Some(line) = &self.line else { return self.put(py, payload) };
        if matches!(payload.form, CLOSE | HEAD) {
            self.give_back(py);
            return self.put(py, payload);
        }
        match line.send(py, payload.form, payload.body())? {
            Some(has_room) => Ok(has_room),
            None => self.put(py, &codec::raw(&self.link.get().sender.regions, payload.form, payload.body())?),
        }
    }

    /// The front has the socket again, if it was lent.
    fn give_back(&self, py: Python<'_>) {
        let given = self.line.as_ref().map_or(Ok(()), |line| line.give_back(py, false));
        given.unwrap_or_else(|error| error.write_unraisable(py, None));
    }

    /// The conversation begins: the client may speak.
    fn open(slf: &Bound<'_, Request>, mut head: Payload) -> PyResult<bool> {
        let (py, this) = (slf.py(), slf.get());
        let link = this.link.get();
        if let Some(line) = this.line.clone() {
            line.promise();
            head.inline.first_mut().into_iter().for_each(|flags| *flags |= response_flag::SPEAKS);
            link.streams.take_aside(this.id, SOCKET, Arc::new(move |py, payload| line.begin(py, payload)));
        }
        link.sender.put_credit(this.id, WINDOW);
        let has_room = this.put(py, &head)?;
        let request = slf.clone().unbind();
        if link.streams.mark_endless(this.id, Some(Arc::new(move |py| request.get().restart(py)))) {
            this.restart(py)?;
            link.streams.wake(py, this.id);
        }
        Ok(has_room)
    }

    /// Tells the client that the worker is to end.
    fn restart(&self, py: Python<'_>) -> PyResult<()> {
        let last = self.websocket.as_ref().and_then(|websocket| websocket.lock().restart());
        if let Some(payload) = last {
            self.give_back(py);
            self.link.get().sender.put_chunk(self.id, &payload)?;
            self.link.get().flush(py)?;
        }
        Ok(())
    }
}

impl Waits for Request {
    fn next_message(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match &self.websocket {
            Some(websocket) => self.next_of_websocket(py, websocket),
            None => self.next_of_body(py),
        }
    }

    fn has_message(&self, _: Python<'_>) -> bool {
        if self.websocket.as_ref().is_some_and(|websocket| websocket.lock().has_message()) {
            return true;
        }
        let state = self.state.lock();
        let waits = self.link.get().streams.with(self.id, |stream| !stream.input.is_empty() || stream.is_over());
        state.body.is_some() || state.response.is_whole() || waits.unwrap_or(true)
    }

    fn has_room(&self, _: Python<'_>) -> bool {
        if let Some(line) = self.line.as_ref().filter(|line| line.is_lent()) {
            return line.has_room();
        }
        let room = self.link.get().streams.with(self.id, |stream| stream.credit > 0 || stream.is_left());
        room.unwrap_or(true)
    }

    fn wait(&self, py: Python<'_>, is_there: &dyn Fn() -> bool) -> PyResult<Py<PyAny>> {
        let future = Bound::new(py, NativeFuture::new(running_loop(py)?.unbind()))?;
        self.state.lock().has_waited = true;
        self.link.get().streams.add_waiter(self.id, future.clone().unbind());
        // It may have come meanwhile.
        if is_there() {
            NativeFuture::end_soon(&future);
        }
        Ok(future.into_any().unbind())
    }
}

#[pymethods]
impl Request {
    /// `send`.
    fn __call__(slf: &Bound<'_, Self>, message: &Bound<'_, PyAny>) -> PyResult<Py<Awaiting>> {
        let (py, this) = (slf.py(), slf.get());
        let message = &dict_of(message)?;
        let kind = item(message, intern!(py, "type"))?;
        let kind = kind.cast::<PyString>()?.to_str()?;
        let has_room = match &this.websocket {
            Some(websocket) => Request::send_websocket(slf, websocket, kind, message),
            None => Request::send_http(slf, kind, message),
        }?;
        match has_room {
            true => nothing(py),
            false => Py::new(py, Awaiting::room_of(Asked::of(slf))),
        }
    }
}
