//! A WebSocket whose socket the front has lent to this worker while it is open: messages cross no process between the client
//! and the app.
//!
//! The front grants the handshake and closes the conversation. What a client sends beside messages, pings and pongs, and
//! whatever goes wrong, sends the socket back to it, with what is unread and unsent.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use clutch_fronts::app::frames::{self, Frames, Read};
use clutch_fronts::codec::SOCKET;
use clutch_fronts::codec::http::credit_of;
use clutch_fronts::codec::websocket::{self, Back, CUT_SHORT, WHOLE_AGAIN, WINDOW};
use clutch_wire::forked::Tracked;
use clutch_wire::sync::Mutex;
use clutch_wire::sys::{self, Interests};
use clutch_wire::{Form, Payload};
use pyo3::prelude::*;
use rustix::net::RecvFlags;

use super::lines::{Lent, Lines};
use crate::codec;
use crate::handlers::held::Content;
use crate::handlers::output::{JOINED_BYTES_MAX, Output, READ_BYTES};
use crate::link::WorkerLink;
use crate::link::native_future::NativeFuture;

/// What the front allows the client.
struct Terms {
    write: Duration,
    /// Interval between pings, and maximum time to answer one.
    ping: Option<(Duration, Duration)>,
    pinged: Instant,
    /// Since when an answer is waited for.
    asked: Option<Instant>,
}

impl Terms {
    fn of(lent: &websocket::Lent) -> Terms {
        let [write, interval, timeout] =
            [lent.write_ms, lent.ping_interval_ms, lent.ping_timeout_ms].map(Duration::from_millis);
        let (ping, now) = ((interval > Duration::ZERO).then_some((interval, timeout)), Instant::now());
        Terms { write, ping, pinged: now, asked: None }
    }

    /// Whether a ping is due. The answer of a client that is not read does not come, but a peer that is gone shows when it is
    /// written to.
    fn pings(&mut self, now: Instant, is_read: bool) -> bool {
        let Some((interval, _)) = self.ping else { return false };
        let is_due = now.saturating_duration_since(self.pinged) >= interval;
        let pings = is_due && (self.asked.is_none() || !is_read);
        if pings {
            (self.pinged, self.asked) = (now, is_read.then_some(now));
        }
        pings
    }

    /// A ping has had no answer in its time.
    fn is_silent(&self, now: Instant) -> bool {
        let over = |(asked, (_, patience))| now.saturating_duration_since(asked) >= patience;
        self.asked.zip(self.ping).is_some_and(over)
    }

    /// How often to look.
    fn look(&self) -> Duration {
        let (interval, patience) = self.ping.unwrap_or((self.write, self.write));
        (self.write.min(interval).min(patience) / 4).clamp(Duration::from_millis(20), Duration::from_secs(1))
    }
}

struct State {
    /// None: the front has it again.
    socket: Option<Tracked>,
    /// The front waits for its way back.
    is_promised: bool,
    /// None: the word to use it has not come.
    terms: Option<Terms>,
    interests: Interests,
    frames: Frames,
    /// Of a frame that is not whole.
    input: Vec<u8>,
    output: Output,
    is_unsent: bool,
    /// The front was told that a part of a frame may be sent, behind which only its rest can come.
    is_cut_short: bool,
    /// Bytes of the messages that the app has sent here.
    sent: u64,
    /// Credit of messages that the app has not taken.
    ahead: u32,
}

/// See the file's head.
pub struct Line {
    link: Py<WorkerLink>,
    /// Of the work that is the conversation.
    id: u64,
    token: u32,
    lines: Arc<Lines>,
    state: Mutex<State>,
    /// Itself, for those that call it later.
    this: Weak<Line>,
}

impl Line {
    /// The front lends this socket to work that may use it. None: nobody waits for such sockets here.
    pub fn lend(link: &Bound<'_, WorkerLink>, id: u64, socket: OwnedFd) -> Option<Arc<Line>> {
        let (lines, token) = Lines::of_worker()?;
        let state = State {
            socket: Some(Tracked::new(socket)),
            is_promised: false,
            terms: None,
            interests: Interests::NONE,
            frames: Frames::new(0),
            input: Vec::new(),
            output: Output::default(),
            is_unsent: false,
            is_cut_short: false,
            sent: 0,
            ahead: 0,
        };
        let (link, state) = (link.clone().unbind(), Mutex::new(state));
        Some(Arc::new_cyclic(|this| Line { link, id, token, lines, state, this: this.clone() }))
    }

    /// The app has accepted, and the front is told that this worker waits for the socket.
    pub fn promise(&self) {
        self.state.lock().is_promised = true;
    }

    /// The front has done with it.
    pub fn begin(&self, py: Python<'_>, payload: &Payload) -> PyResult<()> {
        let Some((lent, read)) = websocket::Lent::read(payload.body()) else { return Ok(()) };
        let (look, is_watched) = {
            let mut state = self.state.lock();
            if state.socket.is_none() {
                return Ok(());
            }
            state.frames = Frames::new(usize::try_from(lent.message_bytes_max).unwrap_or(usize::MAX));
            self.this.upgrade().into_iter().for_each(|this| self.lines.keep(self.token, this));
            self.watch(&mut state, Interests::READS);
            (state.terms.insert(Terms::of(&lent)).look(), state.interests.reads)
        };
        self.lines.look_each(py, look)?;
        self.take_in(py, &mut read.to_vec(), false)?;
        // Without memory to watch it the front goes on.
        if is_watched { self.flush(py) } else { self.give_back(py, false) }
    }

    fn watch(&self, state: &mut State, interests: Interests) {
        let Some(socket) = state.socket.as_ref().filter(|_| !self.is_in_copy()) else { return };
        if self.lines.poller.change(socket.as_fd(), u64::from(self.token), state.interests, interests).is_ok() {
            state.interests = interests;
        }
    }

    /// In a copy of the worker the socket is nobody's.
    fn is_in_copy(&self) -> bool {
        self.link.get().is_in_copy()
    }

    /// Tells the front, under the lock: what is said of the socket comes in order.
    fn note(&self, payload: &Payload) -> PyResult<()> {
        Ok(self.link.get().sender.put_chunk(self.id, payload)?)
    }

    /// It is read as long as the app takes what comes, and the client what is for it: of a client that sends pings, that is
    /// answers.
    fn rewatch(&self, state: &mut State, writes: bool) {
        if state.terms.is_some() {
            let reads = state.ahead < WINDOW && state.output.has_room();
            self.watch(state, Interests { reads, writes });
        }
    }

    // ---- from the client

    /// Takes in what was read. `at_once`: who waits for it goes on before this returns.
    fn take_in(&self, py: Python<'_>, bytes: &mut [u8], at_once: bool) -> PyResult<()> {
        let mut messages = Vec::new();
        let (is_judged, answers) = {
            let mut state = self.state.lock();
            if state.socket.is_none() {
                return Ok(());
            }
            let mut input = std::mem::take(&mut state.input);
            let is_begun = !input.is_empty();
            if is_begun {
                input.extend_from_slice(bytes);
            }
            let come = if is_begun { &mut input[..] } else { &mut *bytes };
            let (mut at, mut answers, mut is_judged) = (0, false, false);
            loop {
                let (read, count) = state.frames.read(&mut come[at..]);
                match read {
                    Read::Message(form, bytes) => messages.push(Payload::new(form, bytes.to_vec())),
                    Read::Joined(form, bytes) => messages.push(Payload::new(form, bytes)),
                    Read::Ping(payload) => {
                        state.output.put(frames::pong(payload), Content::Slice(&[]));
                        answers = true;
                    }
                    Read::Nothing => {}
                    Read::More => break,
                    Read::Other => {
                        is_judged = true;
                        break;
                    }
                }
                at += count;
            }
            match is_begun {
                true => drop(input.drain(..at)),
                false => input.extend_from_slice(&bytes[at..]),
            }
            if input.is_empty() {
                // One large message is no reason to keep so much.
                input = Vec::new();
            }
            state.input = input;
            state.ahead += messages.iter().map(|message| credit_of(message.bytes_total())).sum::<u32>();
            let writes = state.interests.writes;
            self.rewatch(&mut state, writes);
            (is_judged, answers)
        };
        if answers {
            self.send_later(py)?;
        }
        if !messages.is_empty() {
            let streams = &self.link.get().streams;
            let waits = streams.event(py, self.id, |stream| stream.input.extend(messages));
            let go_on = if at_once { NativeFuture::end_now } else { NativeFuture::end_soon };
            waits.iter().for_each(|wait| go_on(wait.bind(py)));
        }
        if is_judged { self.give_back(py, false) } else { Ok(()) }
    }

    /// The app has taken messages of this cost. Returns what of it the front has to give back credit for.
    pub fn took(&self, cost: u32) -> u32 {
        let mut state = self.state.lock();
        let own = cost.min(state.ahead);
        state.ahead -= own;
        if !state.interests.reads {
            let writes = state.interests.writes;
            self.rewatch(&mut state, writes);
        }
        cost - own
    }

    // ---- to the client

    /// Returns whether the app may send more at once; none: the front has the socket, and is to be told.
    pub fn send(&self, py: Python<'_>, form: Form, content: &[u8]) -> PyResult<Option<bool>> {
        let (has_room, is_much) = {
            let mut state = self.state.lock();
            if state.socket.is_none() {
                return Ok(None);
            }
            let is_joined = content.len() <= JOINED_BYTES_MAX;
            let mut head = Vec::with_capacity(16 + if is_joined { content.len() } else { 0 });
            frames::put_head(&mut head, form, content.len());
            state.output.put(head, Content::Slice(content));
            state.sent += content.len() as u64;
            (state.output.has_room(), state.output.is_much())
        };
        if is_much || !self.lines.is_on_loop(py) {
            self.flush(py)?
        } else {
            self.send_later(py)?
        }
        Ok(Some(has_room || self.has_room()))
    }

    fn send_later(&self, py: Python<'_>) -> PyResult<()> {
        let was_unsent = std::mem::replace(&mut self.state.lock().is_unsent, true);
        let this = self.this.upgrade().filter(|_| !was_unsent);
        this.map_or(Ok(()), |this| self.lines.send_later(py, this))
    }

    pub fn has_room(&self) -> bool {
        let state = self.state.lock();
        state.socket.is_none() || state.output.has_room()
    }

    pub fn is_lent(&self) -> bool {
        self.state.lock().socket.is_some()
    }

    // ---- the end

    /// Gives the socket back, once. `is_lost`: its client is gone, or as good as gone.
    pub fn give_back(&self, py: Python<'_>, is_lost: bool) -> PyResult<()> {
        let link = self.link.get();
        let told = {
            let mut state = self.state.lock();
            if state.socket.is_none() {
                return Ok(());
            }
            self.watch(&mut state, Interests::NONE);
            let begun = std::mem::replace(&mut state.frames, Frames::new(0)).into_begun();
            let unread = [begun, std::mem::take(&mut state.input)].concat();
            let unsent = state.output.unsent(py);
            let is_unused = state.terms.take().is_none();
            state.output.clear();
            let (socket, is_awaited) = (state.socket.take(), state.is_promised && !self.is_in_copy());
            let back = Back { is_lost, is_unused, sent: state.sent, unsent: &unsent, unread: &unread }.put();
            let tell = || self.note(&codec::raw(&link.sender.regions, SOCKET, &back)?);
            let told = is_awaited.then(tell);
            if let (Some(Err(_)), Some(socket)) = (&told, &socket) {
                // The front waits for it until the work ends; the client need not.
                sys::hang_up(socket.as_fd());
            }
            told
        };
        self.lines.forget(self.token);
        let Some(told) = told else { return Ok(()) };
        link.flush(py)?;
        link.streams.wake(py, self.id);
        told
    }
}

impl Lent for Line {
    fn turn(&self, py: Python<'_>, arena: &mut Vec<u8>, is_ended: bool) -> PyResult<()> {
        if self.state.lock().interests.writes {
            self.flush(py)?;
        }
        arena.clear();
        arena.reserve(READ_BYTES);
        let read = {
            let mut state = self.state.lock();
            let Some(socket) = state.socket.as_ref().filter(|_| state.interests.reads) else { return Ok(()) };
            let read = rustix::net::recv(socket.as_fd(), rustix::buffer::spare_capacity(arena), RecvFlags::DONTWAIT);
            // Told once, it is to be read to its end.
            if is_ended || arena.len() == arena.capacity() {
                let _ = self.lines.poller.tell_again(socket.as_fd(), u64::from(self.token), state.interests);
            }
            if read.is_ok()
                && let Some(terms) = &mut state.terms
            {
                terms.asked = None;
            }
            read
        };
        match read {
            Ok((1.., _)) => self.take_in(py, arena, true),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(()),
            // The front finds the same.
            _ => self.give_back(py, false),
        }
    }

    fn send_early(&self) {
        let mut state = self.state.lock();
        let State { socket: Some(socket), output, terms: Some(_), is_cut_short, .. } = &mut *state else { return };
        if !output.goes_early() {
            return;
        }
        output.send_early(socket.as_fd());
        if !output.is_empty() && !std::mem::replace(is_cut_short, true) {
            // It goes with what is written next; whoever flushes has more to say of it.
            let _ = self.note(&Payload::new(SOCKET, CUT_SHORT.to_vec()));
        }
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let (is_gone, had_room, has_room, is_noted) = {
            let mut state = self.state.lock();
            state.is_unsent = false;
            if state.terms.is_none() || self.is_in_copy() {
                return Ok(());
            }
            let had_room = state.output.has_room();
            let State { socket, output, .. } = &mut *state;
            let Some(socket) = socket else { return Ok(()) };
            let is_gone = output.go_on(py, socket.as_fd()).is_err();
            if is_gone {
                // Nobody takes it; what the client has said last may be there.
                output.clear();
            }
            let is_empty = output.is_empty();
            self.rewatch(&mut state, !is_empty);
            let is_noted = !is_gone && std::mem::replace(&mut state.is_cut_short, !is_empty) == is_empty;
            if is_noted {
                let note = if is_empty { WHOLE_AGAIN } else { CUT_SHORT };
                self.note(&Payload::new(SOCKET, note.to_vec()))?;
            }
            (is_gone, had_room, state.output.has_room(), is_noted)
        };
        if is_noted {
            self.link.get().flush(py)?;
        }
        if is_gone {
            return self.give_back(py, false);
        }
        if !had_room && has_room {
            self.link.get().streams.wake(py, self.id);
        }
        Ok(())
    }

    fn look(&self, py: Python<'_>, arena: &mut Vec<u8>) -> PyResult<()> {
        let now = Instant::now();
        let is_silent =
            |state: &State| state.interests.reads && state.terms.as_ref().is_some_and(|terms| terms.is_silent(now));
        let may_be_lost = {
            let state = self.state.lock();
            is_silent(&state) || state.output.since().is_some()
        };
        if may_be_lost {
            // It may have answered, or taken something, while this loop was busy.
            self.flush(py)?;
            self.turn(py, arena, false)?;
        }
        let (is_lost, pings) = {
            let mut state = self.state.lock();
            let (is_lost, since, is_read) = (is_silent(&state), state.output.since(), state.interests.reads);
            let Some(terms) = &mut state.terms else { return Ok(()) };
            let is_stuck = since.is_some_and(|since| now.saturating_duration_since(since) >= terms.write);
            let pings = terms.pings(now, is_read);
            if pings {
                state.output.put(frames::ping(), Content::Slice(&[]));
            }
            (is_lost || is_stuck, pings)
        };
        match (is_lost, pings) {
            (true, _) => self.give_back(py, true),
            (false, true) => self.flush(py),
            (false, false) => Ok(()),
        }
    }
}
