//! One connection that this worker holds: requests are read from it and started, one after the other.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use clutch_fronts::app::below;
use clutch_fronts::app::plain::{self, Plain, Read};
use clutch_fronts::held::ledger::{Adoption, NO_WORD, Turn};
use clutch_fronts::held::message::{ToFront, Told};
use clutch_wire::forked::Tracked;
use clutch_wire::sync::Mutex;
use clutch_wire::sys::{self, Interests};
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use rustix::net::RecvFlags;
use smallvec::SmallVec;

use super::adopted::{self, Settled, settle};
use super::front::{Front, Passed, RECORDS_WAIT, REST_WAIT};
use super::shared::{Member, Shared};
use crate::handlers::asgi::held::{Given, HeldRequest};
use crate::handlers::asgi::scope::{self, Own};
use crate::handlers::held::{Client, Content, Ended, StillRuns, Then, Wanted, status_of};
use crate::handlers::names;
use crate::handlers::outcome::outcome_of;
use crate::handlers::output::{Output, READ_BYTES};

/// Bytes of further requests that are read while one is answered; then no more are, until it is.
const AHEAD_BYTES_MAX: usize = 64 << 10;

enum Phase {
    /// Either side may claim it.
    Resting,
    /// A request is on its way, or may be.
    Reading,
    Answering(Py<HeldRequest>),
    /// The last response is over, and not all of it is sent.
    Writing,
    Closed,
}

struct State {
    /// None: it is closed, or the front's, or its client has left.
    socket: Option<Tracked>,
    /// What the poller tells of it.
    interests: Interests,
    phase: Phase,
    /// Of what comes next, or is answered, or was answered last.
    turn: Turn,
    /// It follows another request, whose response is over.
    follows: bool,
    /// Bytes of it were read in this turn, and are taken in later in it: until then it neither rests nor goes elsewhere.
    is_read: bool,
    /// Read, and not answered.
    input: Vec<u8>,
    /// Requests among that wait until the client has taken more.
    is_full: bool,
    output: Output,
    /// All of that is of responses before the request that is answered.
    is_earlier: bool,
    /// What follows that.
    then: Then,
    /// It is sent when the turn is over.
    is_unsent: bool,
    /// A request of it takes its first step: what comes behind it is looked at afterwards.
    in_step: bool,
    /// The requests in what was taken in are being started.
    in_hand: bool,
    method: Method,
    /// Of the request that is answered, where somebody wants to know.
    request_head: Vec<u8>,
}

type Method = [u8; 8];

impl State {
    /// Method and head of the request whose response is over.
    fn told_of(&mut self) -> (Method, Vec<u8>) {
        (self.method, std::mem::take(&mut self.request_head))
    }
}

/// A connection, from its pass to its end or its way back.
pub(super) struct Connection {
    shared: Arc<Shared>,
    place: u32,
    /// Who has connected; none: by a unix socket.
    from: Option<IpAddr>,
    /// The part that the scopes of its requests share.
    template: Py<PyDict>,
    state: Mutex<State>,
    /// Itself, for those that call it later.
    this: Weak<Connection>,
}

/// Called soon: requests wait that were read already.
#[pyclass(frozen, module = "clutch._core")]
struct GoOn(Arc<Connection>);

#[pymethods]
impl GoOn {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        self.0.go_on(py)
    }
}

impl Connection {
    pub(super) fn new(
        shared: Arc<Shared>,
        passed: &Passed<'_>,
        (socket, turn): (OwnedFd, Turn),
        template: Py<PyDict>,
    ) -> Arc<Connection> {
        let state = State {
            socket: Some(Tracked::new(socket)),
            interests: Interests::NONE,
            phase: Phase::Reading,
            turn,
            follows: false,
            is_read: false,
            input: Vec::new(),
            is_full: false,
            output: Output::default(),
            is_earlier: false,
            then: Then::End,
            is_unsent: false,
            in_step: false,
            in_hand: false,
            method: Method::default(),
            request_head: Vec::new(),
        };
        let (place, from, state) = (passed.place, passed.from(), Mutex::new(state));
        Arc::new_cyclic(|this| Connection { shared, place, from, template, state, this: this.clone() })
    }

    /// Itself, as those hold it that call it later.
    fn this(&self) -> PyResult<Arc<Connection>> {
        self.this.upgrade().ok_or_else(|| PyRuntimeError::new_err("a connection that nobody holds"))
    }

    /// Begins with what its client has sent already.
    pub(super) fn begin(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<()> {
        let is_watched = self.watch(&mut self.state.lock(), Interests::READS);
        match is_watched {
            Ok(()) => self.take_in(py, bytes),
            Err(_) => self.hand_back(py, bytes),
        }
    }

    fn watch(&self, state: &mut State, interests: Interests) -> io::Result<()> {
        let Some(socket) = &state.socket else { return Ok(()) };
        self.shared.poller.change(socket.as_fd(), u64::from(self.place), state.interests, interests)?;
        state.interests = interests;
        Ok(())
    }

    /// The same for less than before, or for a socket that is watched.
    fn rewatch(&self, state: &mut State, change: impl Fn(&mut Interests)) {
        let mut interests = state.interests;
        change(&mut interests);
        // It fails where there is no memory: the client is found to be slow then.
        let _ = self.watch(state, interests);
    }

    // ---- reading

    /// Goes on with what was read already.
    fn go_on(&self, py: Python<'_>) -> PyResult<()> {
        let input = {
            let mut state = self.state.lock();
            if !matches!(state.phase, Phase::Reading) || state.in_step {
                return Ok(());
            }
            (state.is_full, state.in_hand) = (false, true);
            self.rewatch(&mut state, |interests| interests.reads = true);
            std::mem::take(&mut state.input)
        };
        self.start_all(py, &input)
    }

    /// Starts the requests in these bytes, as long as each is answered at once. They are in hand.
    fn start_all(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<()> {
        let started = self.start_each(py, bytes);
        self.state.lock().in_hand = false;
        started
    }

    fn start_each(&self, py: Python<'_>, mut bytes: &[u8]) -> PyResult<()> {
        let Some(front) = self.shared.front() else { return Ok(()) };
        while !bytes.is_empty() {
            let is_full = !self.has_room();
            if is_full {
                self.keep(&mut self.state.lock(), bytes);
                return Ok(());
            }
            match plain::read(bytes, front.limits) {
                Read::Request(plain, length) => {
                    if !self.shared.has_room(py) || (self.shared.is_leaving() && !self.is_last()) {
                        return self.hand_back_behind(py, bytes);
                    }
                    let head = &bytes[..length - plain.body.len()];
                    bytes = &bytes[length..];
                    if !self.start(py, front, &plain, head)? {
                        let mut state = self.state.lock();
                        if !bytes.is_empty() {
                            // What has come in the meantime comes behind it.
                            let behind = std::mem::replace(&mut state.input, bytes.to_vec());
                            state.input.extend(behind);
                        }
                        let goes_on = matches!(state.phase, Phase::Reading) && !state.input.is_empty();
                        drop(state);
                        return if goes_on { self.go_on_soon(py) } else { Ok(()) };
                    }
                }
                Read::More | Read::MoreBody => {
                    self.state.lock().input = bytes.to_vec();
                    return self.shared.look_for_rest(py);
                }
                Read::Other => return self.hand_back_behind(py, bytes),
            }
        }
        self.rest(py)
    }

    /// These requests wait until the client has taken more. Of one that sends on all the same no more is read until then.
    fn keep(&self, state: &mut State, requests: &[u8]) {
        (state.input, state.is_full) = (requests.to_vec(), true);
        if state.input.len() >= AHEAD_BYTES_MAX {
            self.rewatch(state, |interests| interests.reads = false);
        }
    }

    fn go_on_soon(&self, py: Python<'_>) -> PyResult<()> {
        let go_on = Py::new(py, GoOn(self.this()?))?;
        self.shared.event_loop.bind(py).call_method1(intern!(py, "call_soon"), (go_on,)).map(drop)
    }

    /// Starts a request. Returns whether its response is over, and the next one may be read.
    fn start(&self, py: Python<'_>, front: &Front, plain: &Plain<'_>, head: &[u8]) -> PyResult<bool> {
        let (shared, whole_head) = (&self.shared, head);
        let head = if front.wants_heads { head } else { &[] };
        let forwarded = front.forwarded(plain, self.from).unwrap_or_default();
        let own = Own {
            method: plain.method,
            version: 11,
            is_secure: forwarded.is_secure.unwrap_or(false),
            path: below(plain.path, &front.root_path),
            query: plain.query,
            headers: headers(py, plain)?,
        };
        let scope = scope::http(self.template.bind(py), &own)?;
        if let Some(client) = forwarded.client {
            scope::put_client(&scope, client)?;
        }
        let given = Given {
            client: self.this()?,
            app: shared.app.clone(),
            head: whole_head,
            body: PyBytes::new(py, plain.body),
            wanted: Wanted { is_head: plain.method == "HEAD", is_last: plain.is_last, keeps_head: !head.is_empty() },
        };
        let (request, arguments) = HeldRequest::of(scope, given)?;
        {
            let mut state = self.state.lock();
            if std::mem::take(&mut state.follows) {
                state.is_earlier = !state.output.is_empty();
                front.ledger.follows(state.turn, !state.is_earlier);
            }
            front.ledger.note(state.turn, NO_WORD, whole_head);
            state.phase = Phase::Answering(request.clone().unbind());
            state.in_step = true;
            let count = plain.method.len().min(state.method.len());
            state.method = Method::default();
            state.method[..count].copy_from_slice(&plain.method.as_bytes()[..count]);
            if !head.is_empty() {
                state.request_head = head.to_vec();
            }
        }
        shared.stepping.store(self.place + 1, Ordering::Relaxed);
        let stepped = shared.first_step(py, arguments);
        shared.stepping.store(0, Ordering::Relaxed);
        shared.worker.get().link.get().leave_copy(py, stepped.as_ref().err())?;
        match stepped {
            Ok(Some(task)) => {
                HeldRequest::leave_first_step(&request)?;
                shared.wait_for.call1(py, (&request, task))?;
            }
            Ok(None) => request.get().end(py, None)?,
            Err(error) => request.get().end(py, Some(&error))?,
        }
        let mut state = self.state.lock();
        state.in_step = false;
        Ok(matches!(state.phase, Phase::Reading) && state.input.is_empty())
    }

    // ---- the end of a request, and of the connection

    /// Nothing is on its way, once all is sent: either side may claim the connection.
    fn rest(&self, py: Python<'_>) -> PyResult<()> {
        let Some(front) = self.shared.front() else { return Ok(()) };
        {
            let mut state = self.state.lock();
            if !matches!(state.phase, Phase::Reading) || !state.output.is_empty() || state.is_read {
                return Ok(());
            }
            state.phase = Phase::Resting;
            front.ledger.rest(state.turn);
        }
        if self.shared.is_leaving() { self.hand_back_if_idle(py) } else { Ok(()) }
    }

    /// Hands it back once the responses before these bytes are sent.
    fn hand_back_behind(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<()> {
        {
            let mut state = self.state.lock();
            if !state.output.is_empty() || state.is_read {
                self.keep(&mut state, bytes);
                return Ok(());
            }
        }
        self.hand_back(py, bytes)
    }

    /// The front goes on, with bytes that were read.
    fn hand_back(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<()> {
        self.close();
        self.shared.say(py, &ToFront::Back { place: self.place, bytes })?;
        self.shared.forget(py, self.place)
    }

    /// Ends the connection for its client, which may be sending: the front reads on for a while.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        {
            let state = self.state.lock();
            // It is ended, or the front's.
            if matches!(state.phase, Phase::Closed) {
                return Ok(());
            }
            state.socket.iter().for_each(|socket| sys::end_writing(socket.as_fd()));
        }
        self.close();
        self.shared.say(py, &ToFront::Gone { place: self.place })?;
        self.shared.forget(py, self.place)
    }

    /// Closes this side's copy.
    fn close(&self) {
        let closed = {
            let mut state = self.state.lock();
            self.rewatch(&mut state, |interests| *interests = Interests::NONE);
            state.output.clear();
            (state.socket.take(), std::mem::replace(&mut state.phase, Phase::Closed))
        };
        drop(closed);
    }

    fn client_gone(&self, py: Python<'_>) -> PyResult<()> {
        let (request, rest) = {
            let mut state = self.state.lock();
            match &state.phase {
                Phase::Answering(request) => (Some(request.clone_ref(py)), Vec::new()),
                Phase::Reading if state.output.is_empty() => (None, std::mem::take(&mut state.input)),
                _ => (None, Vec::new()),
            }
        };
        if let Some(request) = request {
            if request.get().client_gone(py) {
                self.client_left();
                return Ok(());
            }
            return self.end(py);
        }
        // A part of a request: the front tells of it.
        if rest.is_empty() { self.end(py) } else { self.hand_back(py, &rest) }
    }

    /// The client has left, and the app's code goes on: the place is kept until that has ended, so that it is limited as any
    /// other request's.
    fn client_left(&self) {
        let socket = {
            let mut state = self.state.lock();
            self.rewatch(&mut state, |interests| *interests = Interests::NONE);
            state.output.clear();
            self.caught_up(&mut state);
            self.nobody_takes(&state, state.then);
            state.socket.take()
        };
        socket.iter().for_each(|socket| sys::hang_up(socket.as_fd()));
    }

    /// What the app sends goes nowhere.
    fn nobody_takes(&self, state: &State, then: Then) {
        self.shared.front().iter().for_each(|front| front.ledger.pauses(state.turn, then == Then::More));
    }

    fn turn(&self) -> Turn {
        self.state.lock().turn
    }

    /// The response is over.
    fn settle(&self, state: &mut State) -> Settled {
        let Some(front) = self.shared.front() else { return Settled { turn: None, adoption: None } };
        let settled = settle(&front.ledger, state.turn);
        if let Some(next) = settled.turn {
            (state.turn, state.follows, state.is_earlier) = (next, true, false);
        }
        settled
    }

    /// `of`: method and head of the request.
    fn tell(&self, py: Python<'_>, of: (Method, Vec<u8>), ended: &Ended, adopted: bool) -> PyResult<()> {
        let (method, request_head) = of;
        let length = method.iter().position(|byte| *byte == 0).unwrap_or(method.len());
        let method = std::str::from_utf8(&method[..length]).unwrap_or_default();
        let record = Told { place: self.place, adopted, method, request_head: &request_head, ..ended.told() };
        self.shared.channel.record(record);
        self.shared.records_wait(py, RECORDS_WAIT)
    }

    // ---- writing

    /// Whether what waits for the client may be sent; false: the front has taken the connection. What is of earlier requests
    /// nobody else can have sent, and it begins no response.
    fn may_send(&self, state: &State) -> bool {
        let answers = || self.shared.front().is_some_and(|front| front.ledger.answers(state.turn));
        state.output.is_empty() || state.is_earlier || answers()
    }

    /// Where nothing is left of earlier requests, the front may answer the one that runs.
    fn caught_up(&self, state: &mut State) {
        if state.is_earlier && state.output.is_empty() {
            state.is_earlier = false;
            self.shared.front().iter().for_each(|front| front.ledger.caught_up(state.turn));
        }
    }

    /// Where all is sent, either side may claim the connection: the loop may be busy with another one for long.
    fn rest_early(&self, state: &mut State) {
        let is_taken_in = !state.is_read && !state.in_hand && !state.is_full && state.input.is_empty();
        if let Some(front) = self.shared.front()
            && matches!(state.phase, Phase::Reading)
            && is_taken_in
            && state.output.is_empty()
        {
            state.phase = Phase::Resting;
            front.ledger.rest(state.turn);
        }
    }

    fn all_is_sent(&self, py: Python<'_>) -> PyResult<()> {
        let (ends, goes_on, rests) = {
            let state = self.state.lock();
            if matches!(state.phase, Phase::Resting) {
                drop(state);
                // It was sent early.
                return if self.shared.is_leaving() { self.hand_back_if_idle(py) } else { Ok(()) };
            }
            let is_reading = matches!(state.phase, Phase::Reading) && !state.in_step;
            (matches!(state.phase, Phase::Writing), is_reading && state.is_full, is_reading && state.input.is_empty())
        };
        match (ends, goes_on, rests) {
            (true, ..) => self.end(py),
            (_, true, _) => self.go_on(py),
            (_, _, true) => self.rest(py),
            _ => Ok(()),
        }
    }
}

impl Shared {
    /// Takes the first step of the app's coroutine. None: it has ended.
    fn first_step<'py>(
        &self,
        py: Python<'py>,
        arguments: Bound<'py, pyo3::types::PyTuple>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let starter = self.starter.get();
        let unstarted = starter.making(py, || starter.make(self.app.run.bind(py).call1(arguments)?))??;
        let task = starter.step(py, unstarted)?;
        match task.call_method0(intern!(py, "done"))?.is_truthy()? {
            true => outcome_of(&task).map(|()| None),
            false => starter.keep(&task).map(|()| Some(task)),
        }
    }
}

impl Member for Connection {
    fn read(&self, py: Python<'_>, arena: &mut Vec<u8>, is_ended: bool) -> PyResult<bool> {
        let read = {
            let mut state = self.state.lock();
            if state.interests.writes {
                drop(state);
                self.flush(py)?;
                state = self.state.lock();
            }
            if !state.interests.reads {
                return Ok(false);
            }
            if matches!(state.phase, Phase::Resting) {
                // The front has it again: the word of that follows.
                let Some(turn) = self.shared.front().and_then(|front| front.ledger.begin(self.place)) else {
                    self.rewatch(&mut state, |interests| *interests = Interests::NONE);
                    return Ok(false);
                };
                (state.phase, state.turn, state.follows) = (Phase::Reading, turn, false);
            }
            let Some(socket) = &state.socket else { return Ok(false) };
            arena.reserve(READ_BYTES);
            let read = rustix::net::recv(socket.as_fd(), rustix::buffer::spare_capacity(arena), RecvFlags::DONTWAIT);
            // Told once, it is to be read to its end.
            if is_ended || arena.len() == arena.capacity() {
                let _ = self.shared.poller.tell_again(socket.as_fd(), u64::from(self.place), state.interests);
            }
            // Under the lock: what is sent early may rest from then on.
            state.is_read = true;
            read
        };
        match read.map_err(io::Error::from) {
            Ok((1.., _)) => Ok(true),
            // It may have been claimed for nothing.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(true),
            read => {
                let mut state = self.state.lock();
                state.is_read = false;
                if read.is_ok() && matches!(state.phase, Phase::Reading | Phase::Writing) && !state.output.is_empty() {
                    // It says nothing more, and may take what is over.
                    state.phase = Phase::Writing;
                    state.input.clear();
                    self.rewatch(&mut state, |interests| interests.reads = false);
                    return Ok(false);
                }
                drop(state);
                self.client_gone(py).map(|()| false)
            }
        }
    }

    fn take_in(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<()> {
        let mut state = self.state.lock();
        state.is_read = false;
        match state.phase {
            Phase::Reading if state.is_full && !state.in_step => {
                state.input.extend_from_slice(bytes);
                drop(state);
                return self.go_on(py);
            }
            Phase::Reading if state.in_step => state.input.extend_from_slice(bytes),
            Phase::Reading if state.input.is_empty() => {
                state.in_hand = true;
                drop(state);
                return self.start_all(py, bytes);
            }
            Phase::Reading => {
                state.input.extend_from_slice(bytes);
                let input = std::mem::take(&mut state.input);
                state.in_hand = true;
                drop(state);
                return self.start_all(py, &input);
            }
            Phase::Answering(_) | Phase::Writing => state.input.extend_from_slice(bytes),
            Phase::Resting | Phase::Closed => {}
        }
        if state.input.len() >= AHEAD_BYTES_MAX {
            self.rewatch(&mut state, |interests| interests.reads = false);
        }
        Ok(())
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let (is_gone, is_empty, request) = {
            let mut state = self.state.lock();
            state.is_unsent = false;
            if !self.may_send(&state) {
                state.output.clear();
                return Ok(());
            }
            let State { output, socket, phase, turn, then, .. } = &mut *state;
            let Some(socket) = socket else { return Ok(()) };
            let had_room = output.has_room();
            let is_gone = output.go_on(py, socket.as_fd()).is_err();
            let is_empty = output.is_empty();
            if let (Phase::Answering(_), Some(front)) = (&*phase, self.shared.front()) {
                front.ledger.pauses(*turn, is_empty && *then == Then::More);
            }
            let request = match phase {
                Phase::Answering(request) if !had_room && output.has_room() => Some(request.clone_ref(py)),
                _ => None,
            };
            if state.interests.writes == is_empty {
                self.rewatch(&mut state, |interests| interests.writes = !is_empty);
            }
            self.caught_up(&mut state);
            (is_gone, is_empty, request)
        };
        if is_gone {
            return self.client_gone(py);
        }
        if let Some(request) = request {
            request.get().wake(py);
        }
        if is_empty { self.all_is_sent(py) } else { self.shared.look_later(py) }
    }

    fn hand_back_if_idle(&self, py: Python<'_>) -> PyResult<()> {
        let Some(front) = self.shared.front() else { return Ok(()) };
        let input = {
            let mut state = self.state.lock();
            match state.phase {
                Phase::Resting if front.ledger.hand_back(self.place) => Vec::new(),
                Phase::Reading if !state.in_step && !state.is_read && state.output.is_empty() => {
                    std::mem::take(&mut state.input)
                }
                _ => return Ok(()),
            }
        };
        self.hand_back(py, &input)
    }

    fn let_go(&self, py: Python<'_>) {
        let (request, turn) = {
            let state = self.state.lock();
            let request = match &state.phase {
                Phase::Answering(request) => Some(request.clone_ref(py)),
                _ => None,
            };
            (request, state.turn)
        };
        if let (Some(request), Some(front)) = (request, self.shared.front()) {
            request.get().taken(py, front.ledger.adoption_of(turn));
        }
        self.close();
    }

    fn is_to_stop(&self) -> bool {
        self.adoption().is_some_and(|adoption| self.is_abandoned(adoption))
    }

    fn look(&self, py: Python<'_>) -> PyResult<bool> {
        let Some(front) = self.shared.front() else { return Ok(false) };
        let is_late = self.state.lock().output.since().is_some_and(|since| since.elapsed() >= front.write_timeout);
        if is_late {
            self.client_gone(py)?;
        }
        Ok(self.state.lock().output.since().is_some())
    }

    fn look_for_rest(&self, py: Python<'_>) -> PyResult<bool> {
        let Some(front) = self.shared.front() else { return Ok(false) };
        let waits = |state: &State| matches!(state.phase, Phase::Reading) && !state.is_full && !state.input.is_empty();
        if waits(&self.state.lock()) && front.ledger.age(self.place) >= REST_WAIT {
            self.hand_back_if_idle(py)?;
        }
        Ok(waits(&self.state.lock()))
    }

    fn send_early(&self) {
        let mut state = self.state.lock();
        if !state.output.goes_early() || state.socket.is_none() || !self.may_send(&state) {
            return;
        }
        let State { output, socket, .. } = &mut *state;
        socket.iter().for_each(|socket| output.send_early(socket.as_fd()));
        self.caught_up(&mut state);
        self.rest_early(&mut state);
    }

    fn end_endless(&self, py: Python<'_>) {
        let request = match &self.state.lock().phase {
            Phase::Answering(request) => Some(request.clone_ref(py)),
            _ => None,
        };
        request.iter().for_each(|request| request.get().end_endless(py));
    }
}

impl Client for Connection {
    fn send(&self, py: Python<'_>, bytes: Vec<u8>, content: Content<'_, '_>, then: Then) -> PyResult<()> {
        let (is_much, was_unsent) = {
            let mut state = self.state.lock();
            if self.shared.is_in_copy() {
                return Ok(());
            }
            if state.socket.is_none() {
                if matches!(state.phase, Phase::Answering(_)) {
                    self.nobody_takes(&state, then);
                }
                return Ok(());
            }
            // The front answers where it has taken the connection: the word of that follows.
            if !self.shared.front().is_some_and(|front| front.ledger.runs(state.turn)) {
                return Ok(());
            }
            if let (Some(status), Some(front)) = (status_of(&bytes), self.shared.front()) {
                front.ledger.has_status(state.turn, status, then == Then::Whenever);
            }
            state.output.put(bytes, content);
            (state.is_earlier, state.then) = (false, then);
            let is_blocked = state.interests.writes;
            (!is_blocked && state.output.is_much(), std::mem::replace(&mut state.is_unsent, true) || is_blocked)
        };
        match (is_much, was_unsent) {
            (true, _) => self.flush(py),
            (false, true) => Ok(()),
            (false, false) => self.shared.send_later(py, self.this()?),
        }
    }

    fn has_room(&self) -> bool {
        self.state.lock().output.has_room()
    }

    fn over(&self, py: Python<'_>, closes: bool, ended: &Ended) -> PyResult<Option<Adoption>> {
        if self.shared.is_in_copy() {
            return Ok(None);
        }
        let mut state = self.state.lock();
        let Settled { turn, adoption } = self.settle(&mut state);
        if turn.is_none() {
            drop(state);
            self.close();
            return Ok(adoption);
        }
        let next = if closes { Phase::Writing } else { Phase::Reading };
        let (of, before) = (state.told_of(), std::mem::replace(&mut state.phase, next));
        let (is_sent, goes_on) = (state.output.is_empty(), !state.in_step && !closes && !state.input.is_empty());
        drop(state);
        drop(before);
        self.tell(py, of, ended, adoption.is_some())?;
        match (goes_on, is_sent) {
            (true, _) => self.go_on_soon(py)?,
            (false, true) => self.all_is_sent(py)?,
            (false, false) => {}
        }
        Ok(adoption)
    }

    fn break_off(&self, py: Python<'_>, ended: &Ended) -> PyResult<Option<Adoption>> {
        let mut state = self.state.lock();
        let (Settled { turn, adoption }, of) = (self.settle(&mut state), state.told_of());
        drop(state);
        if turn.is_none() {
            self.close();
            return Ok(adoption);
        }
        self.tell(py, of, ended, adoption.is_some())?;
        // What the app had sent before goes out.
        self.flush(py)?;
        self.end(py)?;
        Ok(adoption)
    }

    fn adoption(&self) -> Option<Adoption> {
        self.shared.front().and_then(|front| front.ledger.adoption_of(self.turn()))
    }

    fn is_abandoned(&self, adoption: Adoption) -> bool {
        self.shared.worker.get().link.get().is_abandoned(adoption.word)
    }

    fn end_adopted(&self, py: Python<'_>, (adoption, after): (Adoption, Duration)) -> PyResult<()> {
        adopted::end(py, self.shared.worker.get().link.get(), adoption, after)
    }

    fn goes_on(&self, py: Python<'_>, code: Box<dyn StillRuns>, beginning: &[u8], age: Duration) -> PyResult<()> {
        self.shared.goes_on(py, code, beginning, age)
    }

    fn is_ending(&self) -> bool {
        self.shared.is_ending.load(Ordering::Relaxed)
    }

    fn is_leaving(&self) -> bool {
        self.shared.is_leaving()
    }

    fn is_last(&self) -> bool {
        self.shared.front().is_some_and(|front| front.ledger.is_last())
    }
}

/// Names in lower case, and values.
fn headers<'py>(py: Python<'py>, plain: &Plain<'_>) -> PyResult<Bound<'py, PyList>> {
    let lines = plain.headers.iter().map(|(name, value)| (names::of_asgi(py, name), PyBytes::new(py, value)));
    PyList::new(py, lines.collect::<SmallVec<[_; 16]>>())
}
