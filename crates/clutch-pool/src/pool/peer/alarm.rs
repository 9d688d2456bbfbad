//! The dispatcher's end of a worker's alarm: a socket to the native thread that listens there whatever Python does.
//!
//! Through it code is stopped and stacks are asked for, also when no Python runs in the worker any more. It is never
//! waited for: a worker that does not answer is dealt with by time.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use clutch_wire::forked::Tracked;
use clutch_wire::frame::{self, Kind};
use clutch_wire::sync::{Condvar, Mutex};
use clutch_wire::sys;

use crate::link::{Filled, Inbox};
use crate::work::WorkId;

/// Answer of a worker: the stacks as text, for this work or this question.
#[derive(Debug)]
pub struct Stacks {
    pub id: u64,
    /// An answer to [`Alarm::ask`], not to do with a piece of work.
    pub asked: bool,
    pub text: String,
}

#[derive(Debug)]
pub struct Alarm {
    socket: Tracked,
    inbox: Mutex<Inbox>,
}

impl Alarm {
    pub fn new(socket: OwnedFd) -> Alarm {
        Alarm { socket: Tracked::new(socket), inbox: Mutex::default() }
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Has this work interrupted; with `stacks` they are sent first.
    pub fn interrupt(&self, id: WorkId, stacks: bool) {
        let mut bytes = Vec::with_capacity(2 * frame::HEAD_BYTES);
        if stacks {
            frame::put_head(&mut bytes, Kind::Stacks, id, 0);
        }
        frame::put_head(&mut bytes, Kind::Cancel, id, 0);
        self.send(&bytes);
    }

    /// Has the worker's endless work told that it is to end.
    pub fn drain(&self) {
        let mut bytes = Vec::with_capacity(frame::HEAD_BYTES);
        frame::put_head(&mut bytes, Kind::Drain, 0, 0);
        self.send(&bytes);
    }

    /// Asks for the stacks, without touching any work.
    pub fn ask(&self, question: u64) {
        let mut bytes = Vec::with_capacity(frame::HEAD_BYTES);
        frame::put_question(&mut bytes, question);
        self.send(&bytes);
    }

    /// A full socket means that the worker is stopped; what it does not hear is followed by TERM and KILL.
    fn send(&self, bytes: &[u8]) {
        let _ = sys::send(self.socket(), bytes, &[], false);
    }

    /// Returns the answers that have come since the last call, and whether the other end is gone.
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
            answers.push(Stacks { id: head.id, asked: head.flags & frame::flag::ASKED != 0, text });
        }
    }
}

/// Time that tasks have to show where they wait, once the threads have.
const TASKS_WAIT: Duration = Duration::from_millis(100);

/// Questions for stacks that somebody waits for.
#[derive(Debug, Default)]
pub(in crate::pool) struct Questions {
    open: Mutex<Open>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct Open {
    last: u64,
    parts: HashMap<u64, Parts>,
}

/// Parts of the stacks that have come: of the threads by the alarm, of tasks or greenlets by the link.
#[derive(Debug)]
pub(in crate::pool) struct Parts {
    tasks: Option<String>,
    threads: Option<String>,
}

impl Parts {
    /// Nothing has come yet. Only tasks and greenlets have stacks that no thread shows.
    pub(in crate::pool) fn awaited(has_tasks: bool) -> Parts {
        Parts { tasks: (!has_tasks).then(String::new), threads: None }
    }

    pub(in crate::pool) fn put(&mut self, text: String, of_threads: bool) {
        *(if of_threads { &mut self.threads } else { &mut self.tasks }) = Some(text);
    }

    pub(in crate::pool) fn is_whole(&self) -> bool {
        self.threads.is_some() && self.tasks.is_some()
    }

    /// Returns the text of the parts that there are, the tasks first.
    pub(in crate::pool) fn text(self) -> String {
        let parts = [self.tasks, self.threads].into_iter().flatten().filter(|text| !text.is_empty());
        parts.collect::<Vec<_>>().join("\n")
    }
}

impl Questions {
    /// The number of a new question, to be asked by the caller.
    pub(in crate::pool) fn open(&self, has_tasks: bool) -> u64 {
        let mut open = self.open.lock();
        open.last += 1;
        let question = open.last;
        open.parts.insert(question, Parts::awaited(has_tasks));
        question
    }

    /// Waits for the answer until the deadline; none: the worker did not answer.
    pub(in crate::pool) fn wait(&self, question: u64, deadline: Instant) -> Option<String> {
        let of = |open: &Open, there: fn(&Parts) -> bool| open.parts.get(&question).is_none_or(there);
        let (open, _) =
            self.answered.wait_until(self.open.lock(), deadline, |open| of(open, |it| it.threads.is_some()));
        let until = deadline.min(Instant::now() + TASKS_WAIT);
        let (mut open, _) = self.answered.wait_until(open, until, |open| of(open, Parts::is_whole));
        open.parts.remove(&question).filter(|parts| parts.threads.is_some()).map(Parts::text)
    }

    pub(in crate::pool) fn answer(&self, question: u64, text: String, of_threads: bool) {
        if let Some(parts) = self.open.lock().parts.get_mut(&question) {
            parts.put(text, of_threads);
        }
        self.answered.notify_all();
    }
}
