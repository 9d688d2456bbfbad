//! What a slot sends: responses that wait for others, and those that a client does not take at once.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clutch_fronts::held::ledger::Adoption;
use clutch_fronts::held::message::ToldEnd;
use clutch_wire::forked::Tracked;
use clutch_wire::sys;
use pyo3::prelude::*;

use super::slow::{Left, Rest, SLOT_PATIENCE};
use super::state::{Held, Next, State};
use crate::handlers::held::{Client, Content, Ended, StillRuns, Then, status_of};
use crate::handlers::output::JOINED_BYTES_MAX;
use crate::held::adopted::{self, Settled};

impl Held {
    /// Sends a whole response, or its end. What a slow client leaves is sent beside the slots.
    pub(super) fn send_last(&self, socket: &Arc<Tracked>, parts: [&[u8]; 2], patience: Duration) -> io::Result<()> {
        let ([first, second], mut deadline) = (parts, None);
        let mut sent = send_until(socket, first, &mut deadline)?;
        if sent == first.len() {
            sent += send_until(socket, second, &mut deadline)?;
        }
        if sent == first.len() + second.len() {
            return Ok(());
        }
        let mut bytes = first[sent.min(first.len())..].to_vec();
        bytes.extend_from_slice(&second[sent.saturating_sub(first.len())..]);
        let (Some(of), Some(slow)) = (self.this.upgrade(), self.holder.slow()) else {
            return send_all(socket, &bytes, patience);
        };
        self.state.lock().is_slow = true;
        slow.leave(Rest { socket: socket.clone(), bytes, patience, of });
        Ok(())
    }

    /// Sends what there is room for, and does what comes then: the slot may be busy with another connection for long.
    pub(super) fn send_early(&self) {
        let Some(front) = self.holder.front.get() else { return };
        let mut state = self.state.lock();
        let State { output, socket, turn, is_earlier, .. } = &mut *state;
        let (Some(socket), Some(turn)) = (socket, turn) else { return };
        // What is of earlier requests begins no response.
        if output.is_empty() || !(*is_earlier || front.ledger.answers(*turn)) {
            return;
        }
        // What is wrong with the socket is found then.
        let count = sys::send(socket.as_fd(), output, &[], false).unwrap_or_default();
        output.drain(..count);
        if output.is_empty() && std::mem::take(is_earlier) {
            front.ledger.caught_up(*turn);
        }
        self.go_on_when_sent(front, state);
    }

    /// Sends what waits, and does what comes then.
    pub(super) fn send_output(&self) {
        let Some(front) = self.holder.front.get() else { return };
        let mut state = self.state.lock();
        let output = std::mem::take(&mut state.output);
        let may_send = !output.is_empty() && state.turn.is_some_and(|turn| front.ledger.answers(turn));
        let Some(socket) = state.socket.as_ref().filter(|_| may_send) else {
            return self.go_on_when_sent(front, state);
        };
        // What is wrong with the socket is found below.
        let sent = sys::send(socket.as_fd(), &output, &[], false).unwrap_or_default();
        if sent < output.len() {
            let socket = socket.clone();
            drop(state);
            if self.send_last(&socket, [&output[sent..], &[]], front.write_timeout).is_err() {
                // Nobody takes what follows.
                return self.end();
            }
            state = self.state.lock();
        }
        self.go_on_when_sent(front, state);
    }
}

impl Left for Held {
    fn sent(&self, is_whole: bool) {
        let Some(front) = self.holder.front.get() else { return };
        let is_answering = {
            let mut state = self.state.lock();
            state.is_slow = false;
            if state.is_partial {
                // It is not, where some of the rest came meanwhile.
                self.watch(&mut state);
            }
            state.next == Next::GoOn && !state.is_partial
        };
        match (is_whole, is_answering) {
            (true, _) => self.go_on_when_sent(front, self.state.lock()),
            // The app's code goes on: whoever runs it finds no client.
            (false, true) => self.close(),
            (false, false) => self.end(),
        }
    }
}

/// Sends what the client takes until the deadline, which is [`SLOT_PATIENCE`] after it has taken no more at once. Returns how
/// much that was.
fn send_until(socket: &Tracked, bytes: &[u8], deadline: &mut Option<Instant>) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match sys::send(socket.as_fd(), &bytes[sent..], &[], false) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let until = *deadline.get_or_insert_with(|| Instant::now() + SLOT_PATIENCE);
                if !sys::wait_writable_until(socket.as_fd(), until)? {
                    break;
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

/// Sends all of it, waiting as long as the client takes some now and then.
fn send_all(socket: &Tracked, mut bytes: &[u8], patience: Duration) -> io::Result<()> {
    while !bytes.is_empty() {
        match sys::send(socket.as_fd(), bytes, &[], false) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if !sys::wait_writable_until(socket.as_fd(), Instant::now() + patience)? {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Client for Held {
    fn send(&self, py: Python<'_>, mut bytes: Vec<u8>, content: Content<'_, '_>, then: Then) -> PyResult<()> {
        let Some(front) = self.holder.front.get() else { return Ok(()) };
        if self.holder.link.get().is_in_copy() {
            return Ok(());
        }
        let (status, given) = (status_of(&bytes), content.bytes());
        // Only what is short is kept, and only where no other slot could use the time.
        let more = then != Then::End;
        let is_kept = !more && !self.holder.is_shared && given.len() <= JOINED_BYTES_MAX;
        let (socket, turn) = {
            let mut state = self.state.lock();
            if state.socket.is_none() {
                return Ok(());
            }
            if let (Some(status), Some(turn)) = (status, state.turn) {
                front.ledger.has_status(turn, status, then == Then::Whenever);
            }
            state.is_earlier = false;
            if state.output.is_empty() {
                state.output = std::mem::take(&mut bytes);
            } else {
                state.output.append(&mut bytes);
            }
            if is_kept {
                state.output.extend_from_slice(given);
                drop(state);
                self.this.upgrade().into_iter().for_each(|held| self.holder.unsent.push(held));
                return Ok(());
            }
            bytes = std::mem::take(&mut state.output);
            (state.socket.clone(), state.turn)
        };
        let Some(socket) = socket else { return Ok(()) };
        let Some(turn) = turn.filter(|turn| front.ledger.answers(*turn)) else { return Ok(()) };
        front.ledger.pauses(turn, false);
        let patience = front.write_timeout;
        let sent = py.detach(|| match more {
            true => send_all(&socket, &bytes, patience).and_then(|()| send_all(&socket, given, patience)),
            false => self.send_last(&socket, [&bytes, given], patience),
        });
        front.ledger.pauses(turn, then == Then::More);
        if sent.is_err() {
            // Nobody takes what follows.
            self.close();
        }
        Ok(())
    }

    fn has_room(&self) -> bool {
        true
    }

    fn over(&self, _: Python<'_>, closes: bool, ended: &Ended) -> PyResult<Option<Adoption>> {
        if self.holder.link.get().is_in_copy() {
            return Ok(None);
        }
        let mut state = self.state.lock();
        let Settled { turn, adoption } = self.settle(&mut state);
        if turn.is_none() {
            drop(state);
            self.close();
            return Ok(adoption);
        }
        state.closes = closes;
        let end = if state.socket.is_none() { ToldEnd::ClientGone } else { ended.end };
        self.tell(&mut state, ended, end, adoption.is_some());
        drop(state);
        self.holder.pace.note(1, ended.after);
        if !self.holder.unsent.is_empty() {
            let worked = u64::try_from(ended.after.as_nanos()).unwrap_or(u64::MAX);
            self.holder.worked_ns.fetch_add(worked, Ordering::Relaxed);
        }
        Ok(adoption)
    }

    fn break_off(&self, _: Python<'_>, ended: &Ended) -> PyResult<Option<Adoption>> {
        let mut state = self.state.lock();
        let Settled { turn, adoption } = self.settle(&mut state);
        if turn.is_some() {
            self.tell(&mut state, ended, ended.end, adoption.is_some());
            state.socket.iter().for_each(|socket| sys::hang_up(socket.as_fd()));
        }
        drop(state);
        self.close();
        Ok(adoption)
    }

    fn adoption(&self) -> Option<Adoption> {
        self.turn().zip(self.holder.front.get()).and_then(|(turn, front)| front.ledger.adoption_of(turn))
    }

    fn is_abandoned(&self, adoption: Adoption) -> bool {
        self.holder.link.get().is_abandoned(adoption.word)
    }

    fn end_adopted(&self, py: Python<'_>, (adoption, after): (Adoption, Duration)) -> PyResult<()> {
        let mut state = self.state.lock();
        if state.word == Some(adoption.word) {
            state.word = Some(adoption.next_word);
        }
        drop(state);
        adopted::end(py, self.holder.link.get(), adoption, after)
    }

    /// In a slot a request is over with its code.
    fn goes_on(&self, _py: Python<'_>, _code: Box<dyn StillRuns>, _beginning: &[u8], _age: Duration) -> PyResult<()> {
        Ok(())
    }

    fn is_ending(&self) -> bool {
        self.holder.is_leaving.load(Ordering::Relaxed)
    }

    fn is_leaving(&self) -> bool {
        self.holder.is_wanted_back()
    }

    fn is_last(&self) -> bool {
        self.holder.is_last()
    }

    fn is_gone(&self) -> bool {
        let state = self.state.lock();
        state.socket.as_ref().is_none_or(|socket| sys::is_hung_up(socket.as_fd()))
    }
}
