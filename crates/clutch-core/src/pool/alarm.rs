//! The dispatcher's end of a worker's alarm: a socket to the native thread that listens there whatever Python does.
//!
//! Through it code is stopped and stacks are asked for, also when no Python runs in the worker any more. It is never
//! waited for: a worker that does not answer is dealt with by time.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::link::{Filled, Inbox};
use crate::sys;
use crate::wire::{self, Head, Kind};
use crate::work::{Codec, WorkId};

/// What a worker answers: the stacks as text, for this work or this question.
#[derive(Debug)]
pub struct Stacks {
    pub id: u64,
    /// An answer to [`Alarm::ask`], not to do with a piece of work.
    pub asked: bool,
    pub text: String,
}

#[derive(Debug)]
pub struct Alarm {
    socket: OwnedFd,
    inbox: Mutex<Inbox>,
}

impl Alarm {
    pub fn new(socket: OwnedFd) -> Alarm {
        Alarm { socket, inbox: Mutex::default() }
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Has this work interrupted; with `stacks` they are sent first.
    pub fn interrupt(&self, id: WorkId, stacks: bool) {
        let mut bytes = Vec::with_capacity(2 * wire::HEAD_BYTES);
        if stacks {
            wire::put_simple(&mut bytes, Kind::Stacks, id, Codec::Empty, &[]);
        }
        wire::put_simple(&mut bytes, Kind::Cancel, id, Codec::Empty, &[]);
        self.send(&bytes);
    }

    /// Asks for the stacks, without touching any work.
    pub fn ask(&self, question: u64) {
        let mut bytes = Vec::with_capacity(wire::HEAD_BYTES);
        let head = Head { kind: Kind::Stacks, codec: Codec::Empty, regions: 0, flags: wire::flag::ASKED, id: question };
        wire::put(&mut bytes, head, &[], &[], &[]);
        self.send(&bytes);
    }

    /// A full socket means that the worker is stopped; what it does not hear is followed by TERM and KILL.
    fn send(&self, bytes: &[u8]) {
        let _ = sys::send(self.socket(), bytes, &[], false);
    }

    /// What has come since the last time, and whether the other end is gone.
    pub fn answers(&self) -> (Vec<Stacks>, bool) {
        let mut inbox = self.inbox.lock();
        let mut answers = Vec::new();
        loop {
            match inbox.fill(self.socket(), false) {
                Ok(Filled::Bytes) => take_frames(&mut inbox, &mut answers),
                Ok(Filled::Nothing) => return (answers, false),
                Ok(Filled::End) | Err(_) => return (answers, true),
            }
        }
    }
}

fn take_frames(inbox: &mut Inbox, answers: &mut Vec<Stacks>) {
    while let Ok(Some(received)) = inbox.next_frame() {
        let (head, payload) = (received.frame.head, received.frame.payload);
        if head.kind == Kind::Stacks {
            let text = String::from_utf8_lossy(payload).into_owned();
            answers.push(Stacks { id: head.id, asked: head.flags & wire::flag::ASKED != 0, text });
        }
    }
}

/// Questions for stacks that somebody waits for.
#[derive(Debug, Default)]
pub(super) struct Questions {
    open: Mutex<(u64, HashMap<u64, Option<String>>)>,
    answered: Condvar,
}

impl Questions {
    /// Asks, and waits until the deadline; none: no answer came.
    pub(super) fn ask(&self, alarm: &Alarm, deadline: Instant) -> Option<String> {
        let mut open = self.open.lock();
        open.0 += 1;
        let question = open.0;
        open.1.insert(question, None);
        alarm.ask(question);
        while open.1.get(&question).is_some_and(Option::is_none) {
            if self.answered.wait_until(&mut open, deadline).timed_out() {
                break;
            }
        }
        open.1.remove(&question).flatten()
    }

    pub(super) fn answer(&self, question: u64, text: String) {
        if let Some(place) = self.open.lock().1.get_mut(&question) {
            *place = Some(text);
        }
        self.answered.notify_all();
    }
}
