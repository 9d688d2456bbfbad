//! A connection that slots take turns at, from its pass to its end or its way back.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use clutch_fronts::app::below;
use clutch_fronts::app::plain::{self, Plain, Read};
use clutch_fronts::codec::http::{Place, RequestLine, request_flag};
use clutch_fronts::held::ledger::{NO_WORD, Turn};
use clutch_fronts::held::message::{ToFront, Told, ToldEnd};
use clutch_wire::forked::Tracked;
use clutch_wire::sync::{Mutex, MutexGuard};
use clutch_wire::sys::{self, Interests};
use pyo3::prelude::*;
use rustix::net::RecvFlags;

use super::state::{Blocking, Held, Next, Seat, State};
use crate::handlers::held::{Ended, Wanted};
use crate::handlers::output::READ_BYTES;
use crate::handlers::wsgi;
use crate::held::adopted::{Settled, settle};
use crate::held::front::{Front, Passed};
use crate::link::beside::Ready;
use crate::link::sender::ThreadCpu;

impl Held {
    pub(super) fn new(holder: Arc<Blocking>, passed: &Passed<'_>, socket: OwnedFd) -> Arc<Held> {
        let named = |place: Place<'_>| (place.address.to_owned(), place.port);
        let state = State {
            socket: Some(Arc::new(Tracked::new(socket))),
            input: passed.bytes.to_vec(),
            is_ready: !passed.bytes.is_empty(),
            ..State::default()
        };
        Arc::new_cyclic(|this| Held {
            holder,
            place: passed.place,
            from: passed.from(),
            client: named(passed.client),
            server: named(passed.server),
            template: OnceLock::new(),
            state: Mutex::new(state),
            this: this.clone(),
        })
    }

    fn socket(&self) -> Option<Arc<Tracked>> {
        self.state.lock().socket.clone()
    }

    fn stop_watching(&self, state: &mut State) {
        if std::mem::take(&mut state.is_watched)
            && let Some(socket) = &state.socket
        {
            self.holder.poller.remove(socket.as_fd());
        }
    }

    /// Waits for what comes next.
    pub(super) fn watch(&self, state: &mut State) {
        if state.is_watched {
            return;
        }
        if let Some(socket) = &state.socket {
            // One that cannot be watched the front takes back when it finds it forgotten.
            let (poller, place) = (&self.holder.poller, u64::from(self.place));
            state.is_watched = poller.change(socket.as_fd(), place, Interests::NONE, Interests::READS).is_ok();
        }
    }

    /// Claims it to read a request; false: the front has it, or it has ended. Its place may be that of another then.
    fn claim(&self, state: &mut State) -> bool {
        if state.turn.is_some() || state.socket.is_none() {
            return state.socket.is_some();
        }
        state.turn = self.holder.front.get().and_then(|front| front.ledger.begin(self.place));
        state.follows = false;
        state.turn.is_some()
    }

    pub(super) fn turn(&self) -> Option<Turn> {
        self.state.lock().turn
    }

    /// The front has it again.
    pub(super) fn taken(&self) {
        let turn = {
            let mut state = self.state.lock();
            state.is_taken = true;
            state.turn
        };
        let adoption = turn.zip(self.holder.front.get()).and_then(|(turn, front)| front.ledger.adoption_of(turn));
        if adoption.is_some() {
            self.state.lock().adoption = adoption;
        }
        self.close();
    }

    /// The response is over.
    pub(super) fn settle(&self, state: &mut State) -> Settled {
        let Some((turn, front)) = state.turn.zip(self.holder.front.get()) else {
            return Settled { turn: None, adoption: None };
        };
        let settled = settle(&front.ledger, turn);
        match settled.turn {
            Some(_) => (state.turn, state.follows, state.is_earlier) = (settled.turn, true, false),
            None => state.is_taken = true,
        }
        Settled { adoption: settled.adoption.or(state.adoption.take()), ..settled }
    }

    /// Something has come: whether that is new. It is read when its turn comes: what waits here for long, the front gives to
    /// another worker.
    pub(super) fn gets_ready(&self, is_ended: bool) -> bool {
        let mut state = self.state.lock();
        state.has_more |= is_ended;
        let is_slow = state.is_slow;
        if self.holder.is_shared || is_slow {
            self.stop_watching(&mut state);
        }
        // Of a client that takes nothing no more is taken either.
        !is_slow && !std::mem::replace(&mut state.is_ready, true)
    }

    /// Reads into `room`, which is empty, what has come of one that is claimed.
    fn read(&self, state: &mut State, room: &mut Vec<u8>) {
        let State { socket, is_over, has_more, .. } = state;
        let Some(socket) = socket else { return };
        room.reserve_exact(READ_BYTES);
        let read = rustix::net::recv(socket.as_fd(), rustix::buffer::spare_capacity(room), RecvFlags::DONTWAIT);
        match read.map_err(io::Error::from) {
            Ok((1.., _)) => {
                // Told once, it is to be read to its end.
                if std::mem::take(has_more) || room.len() == room.capacity() {
                    self.tell_again(socket);
                }
            }
            // It may have been claimed for nothing.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            _ => *is_over = true,
        }
    }

    /// Where it is watched. Else it is told when it is watched again.
    fn tell_again(&self, socket: &Tracked) {
        let _ = self.holder.poller.tell_again(socket.as_fd(), u64::from(self.place), Interests::READS);
    }

    fn take_turn(self: &Arc<Self>, py: Python<'_>) -> PyResult<()> {
        let Seat { mut word, mut room } = self.holder.seats.lock().pop().unwrap_or_default();
        let answered = self.take_turn_in(py, &mut word, &mut room);
        room.clear();
        self.holder.seats.lock().push(Seat { word, room });
        answered
    }

    fn take_turn_in(self: &Arc<Self>, py: Python<'_>, word: &mut Option<u32>, room: &mut Vec<u8>) -> PyResult<()> {
        let (mut before, is_slow) = {
            let mut state = self.state.lock();
            (state.is_ready, state.is_partial) = (false, false);
            if !self.claim(&mut state) {
                self.stop_watching(&mut state);
                return Ok(());
            }
            // Whoever sends what waits leaves it claimed.
            state.next = Next::GoOn;
            match std::mem::take(&mut state.is_kept) {
                // Of a client that sends on and takes little, no more is read than that.
                true => state.socket.iter().for_each(|socket| self.tell_again(socket)),
                false => self.read(&mut state, room),
            }
            (std::mem::take(&mut state.input), state.is_slow)
        };
        if before.is_empty() {
            return self.answer_all(py, word, room, is_slow);
        }
        before.extend_from_slice(room);
        self.answer_all(py, word, &before, is_slow)
    }

    /// Answers the requests in these bytes, one after the other. `is_slow`: the client was as it was looked at last; only
    /// what is sent here makes it so.
    fn answer_all(
        self: &Arc<Self>,
        py: Python<'_>,
        word: &mut Option<u32>,
        mut bytes: &[u8],
        mut is_slow: bool,
    ) -> PyResult<()> {
        let Some(front) = self.holder.front.get() else { return Ok(()) };
        loop {
            if bytes.is_empty() {
                let mut state = self.state.lock();
                state.next = Next::Rest;
                self.go_on_when_sent(front, state);
                return Ok(());
            }
            if is_slow && self.waits_for_client(bytes) {
                return Ok(());
            }
            match plain::read(bytes, front.limits) {
                Read::Request(..) if self.holder.is_leaving() && !self.holder.is_last() => {
                    self.hand_back_behind(bytes);
                    return Ok(());
                }
                Read::Request(plain, length) => {
                    let head = &bytes[..length - plain.body.len()];
                    bytes = &bytes[length..];
                    let answered = self.answer(py, front, &plain, (head, *word));
                    let mut state = self.state.lock();
                    // Another, if the pool has taken that of this request.
                    *word = state.word.take().or(*word);
                    answered?;
                    if state.is_taken {
                        return Ok(());
                    }
                    is_slow = state.is_slow;
                    let is_last = state.closes || state.socket.is_none();
                    if is_last || bytes.is_empty() {
                        state.next = if is_last { Next::End } else { Next::Rest };
                        self.go_on_when_sent(front, state);
                        return Ok(());
                    }
                }
                Read::More | Read::MoreBody if self.state.lock().is_over => {
                    self.hand_back_behind(bytes);
                    return Ok(());
                }
                Read::More | Read::MoreBody => {
                    let mut state = self.state.lock();
                    (state.input, state.is_partial) = (bytes.to_vec(), true);
                    self.watch(&mut state);
                    drop(state);
                    self.holder.has_partial.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                Read::Other => {
                    self.hand_back_behind(bytes);
                    return Ok(());
                }
            }
        }
    }

    /// `word`: of the board, for this request.
    fn answer(
        self: &Arc<Self>,
        py: Python<'_>,
        front: &Front,
        plain: &Plain<'_>,
        (head, word): (&[u8], Option<u32>),
    ) -> PyResult<()> {
        let kept = if front.wants_heads { head } else { &[] };
        let forwarded = front.forwarded(plain, self.from);
        let is_secure = forwarded.as_ref().and_then(|forwarded| forwarded.is_secure).unwrap_or(false);
        let told = forwarded.as_ref().and_then(|forwarded| forwarded.client).map(|client| client.to_string());
        let line = RequestLine {
            version: 11,
            flags: if is_secure { request_flag::SECURE } else { 0 },
            method: plain.method,
            path: below(plain.path, &front.root_path),
            query: plain.query,
            client: told.as_deref().map_or_else(|| place_of(&self.client), |address| Place { address, port: 0 }),
            server: place_of(&self.server),
        };
        let wanted = Wanted { is_head: plain.method == "HEAD", is_last: plain.is_last, keeps_head: !kept.is_empty() };
        let mut names = Vec::with_capacity(256);
        for (name, _) in &plain.headers {
            names.extend_from_slice(name);
        }
        names.make_ascii_lowercase();
        let mut at = 0;
        let headers = plain.headers.iter().map(|(name, value)| {
            let lower = &names[at..at + name.len()];
            at += name.len();
            (lower, *value)
        });
        let make = || wsgi::held::template(py, &self.holder.app, &line);
        let template = match self.template.get() {
            // Of another client, or by another scheme.
            _ if forwarded.is_some() => make()?,
            Some(template) => template.clone_ref(py),
            None => {
                let template = make()?;
                self.template.get_or_init(|| template).clone_ref(py)
            }
        };
        let asked = wsgi::held::Asked { template: template.bind(py), line: &line, body: plain.body, wanted };
        let slots = self.holder.slots.get();
        if let Some(word) = self.begin(front, plain.method, (head, kept), word) {
            // It is to stop only once the pool knows it.
            let _ = slots.try_enter(py, word);
        }
        let is_inside = Cell::new(true);
        let leave = || {
            if is_inside.take() {
                slots.leave(py);
            }
        };
        let answered = wsgi::held::answer(&self.holder.app, self.clone(), &asked, headers, leave);
        leave();
        answered?;
        self.holder.link.get().leave_copy(py, None)
    }

    /// The app's code begins. Returns the word of the board by which it is stopped. `kept`: of the request's head.
    fn begin(&self, front: &Front, method: &str, (head, kept): (&[u8], &[u8]), word: Option<u32>) -> Option<u32> {
        let mut state = self.state.lock();
        state.word = word;
        state.method.clear();
        state.method.push_str(method);
        state.request_head = kept.to_vec();
        state.cpu = self.holder.link.get().sender.cpu_now();
        let turn = state.turn?;
        if std::mem::take(&mut state.follows) {
            state.is_earlier = !state.output.is_empty();
            front.ledger.follows(turn, !state.is_earlier);
        }
        front.ledger.note(turn, word.unwrap_or(NO_WORD), head);
        word
    }

    /// Whether requests are not answered before the client has taken the last response. Then they are kept.
    fn waits_for_client(&self, requests: &[u8]) -> bool {
        let mut state = self.state.lock();
        if state.is_slow {
            (state.input, state.is_kept, state.next) = (requests.to_vec(), true, Next::Answer);
        }
        state.is_slow
    }

    /// Does what comes next where all is sent: it may have been sent early. Else whoever sends the rest does.
    pub(super) fn go_on_when_sent(&self, front: &Front, mut state: MutexGuard<'_, State>) {
        if state.is_slow || !state.output.is_empty() {
            return;
        }
        match std::mem::take(&mut state.next) {
            Next::GoOn => {}
            // In line already, it is not to have two turns at a time.
            Next::Answer if std::mem::replace(&mut state.is_ready, true) => {}
            Next::Answer => {
                drop(state);
                self.holder.ready.lock().extend(self.this.upgrade());
                sys::signal_event(self.holder.bell.as_fd());
            }
            Next::Rest => self.rest(front, state),
            Next::End => {
                drop(state);
                self.end();
            }
        }
    }

    /// Nothing is on its way: either side may claim it. What was read meanwhile, a slot answers that comes to it.
    fn rest(&self, front: &Front, mut state: MutexGuard<'_, State>) {
        if !state.input.is_empty() {
            return;
        }
        if state.is_over {
            drop(state);
            return self.end();
        }
        let Some(turn) = state.turn.take() else { return };
        front.ledger.rest(turn);
        if self.holder.is_leaving() {
            drop(state);
            return self.hand_back_if_idle();
        }
        self.watch(&mut state);
    }

    pub(super) fn hand_back_if_idle(&self) {
        let Some(front) = self.holder.front.get() else { return };
        let (input, socket) = {
            let mut state = self.state.lock();
            match state.turn {
                _ if state.is_taken || state.is_slow => return,
                None if front.ledger.hand_back(self.place) => {}
                // Of one that is answered nothing waits.
                Some(_) if !state.input.is_empty() => {}
                _ => return,
            }
            // Under one lock: another slot would read what comes behind the input.
            (std::mem::take(&mut state.input), self.release(&mut state))
        };
        drop(socket);
        self.hand_back(&input);
    }

    /// Hands it back once the responses before these bytes are sent, unless its client has gone meanwhile.
    fn hand_back_behind(&self, bytes: &[u8]) {
        self.send_output();
        // The next turn finds the same bytes.
        if !self.waits_for_client(bytes) && self.socket().is_some() {
            self.hand_back(bytes);
        }
    }

    /// Forgotten first: once the front has heard of it, its place may come back with another connection.
    fn hand_back(&self, bytes: &[u8]) {
        self.close();
        self.holder.forget(self.place);
        self.holder.channel.say(&ToFront::Back { place: self.place, bytes });
    }

    /// Ends the connection for its client, which may be sending: the front reads on for a while.
    pub(super) fn end(&self) {
        // Its place may be that of another.
        if self.state.lock().is_taken {
            return;
        }
        if let Some(socket) = self.socket() {
            sys::end_writing(socket.as_fd());
        }
        self.close();
        self.holder.forget(self.place);
        self.holder.channel.say(&ToFront::Gone { place: self.place });
    }

    pub(super) fn close(&self) {
        let socket = self.release(&mut self.state.lock());
        drop(socket);
    }

    /// Takes its socket away, to be dropped.
    fn release(&self, state: &mut State) -> Option<Arc<Tracked>> {
        // The front's copy would keep it in the poller.
        self.stop_watching(state);
        state.socket.take()
    }

    pub(super) fn tell(&self, state: &mut State, ended: &Ended, end: ToldEnd, adopted: bool) {
        let used = state.cpu.take().and_then(ThreadCpu::used).unwrap_or_default();
        let (place, cpu_us) = (self.place, u64::try_from(used.as_micros()).unwrap_or(u64::MAX));
        let State { method, request_head, .. } = state;
        let record = Told { place, end, adopted, cpu_us, method, request_head, ..ended.told() };
        self.holder.channel.record(record);
        request_head.clear();
    }
}

fn place_of((address, port): &(String, u16)) -> Place<'_> {
    Place { address, port: *port }
}

impl Ready for Held {
    fn run(self: Arc<Self>, py: Python<'_>) -> PyResult<()> {
        self.take_turn(py)
    }
}
