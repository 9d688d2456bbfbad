//! Outbox: messages that wait to be written to a socket. Writing is combining: whoever finds the socket free writes all
//! that is pending, the others only leave their frames.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use clutch_wire::frame::{self, HEAD_BYTES, Kind};
use clutch_wire::region::Region;
use clutch_wire::sync::{Condvar, Mutex};
use clutch_wire::sys;

use super::handover::Handover;
use super::journal::{Journal, Position};

/// Longest message on a socket; a frame may span several.
pub const MESSAGE_BYTES_MAX: usize = 32 << 10;

/// Result of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// All is written, or another thread is writing it.
    All,
    /// The socket is full; try again when it is writable.
    Blocked,
    /// The kernel is short of memory, or of descriptors on their way; try again some time later.
    Short,
}

/// Descriptors that travel with a frame.
#[derive(Debug)]
pub enum Attached {
    Given(Vec<OwnedFd>),
    /// That of a region, which others may need, too.
    Lent(Arc<Region>),
}

impl Attached {
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Attached::Given(descriptors) => descriptors.iter().map(AsFd::as_fd).collect(),
            Attached::Lent(region) => region.descriptor().into_iter().collect(),
        }
    }
}

/// Bytes in order, with descriptors that travel at given offsets.
#[derive(Debug, Default)]
pub struct Pending {
    pub bytes: Vec<u8>,
    attached: VecDeque<(usize, Attached)>,
}

impl Pending {
    /// Lets the next frame carry these descriptors.
    pub fn attach(&mut self, descriptors: Attached) {
        self.attached.push_back((self.bytes.len(), descriptors));
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES_MAX);
        self.attached.clear();
    }
}

/// Interval at which a thread that waits for another's write checks whether it has to write itself.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Room that a buffer keeps when it is empty.
const KEPT_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Default)]
struct Writing {
    taken: Pending,
    done: usize,
    /// The other end was told that the next message carries descriptors.
    told: bool,
}

/// Frames that wait to be written.
#[derive(Debug, Default)]
pub struct Outbox {
    pending: Mutex<Pending>,
    /// Whether there may be something in `pending`: saves its lock where there is nothing.
    waiting: AtomicBool,
    handover: Handover,
    /// Locked by the one that the handover lets in: nobody ever waits for it.
    writing: Mutex<Writing>,
    /// Number of bytes that were put, changed under the lock of `pending`, and how many of them were sent.
    put: AtomicU32,
    sent: AtomicU32,
    journal: Option<Journal>,
    /// The last bytes that were put are not in the journal: nothing more goes there until all is sent. Changed under
    /// the lock of `pending`.
    has_gap: AtomicBool,
    /// Number of threads that wait for something to be sent, while another thread writes.
    waiters: AtomicU32,
    turn: Mutex<()>,
    written: Condvar,
}

impl Outbox {
    /// Makes an outbox whose frames are found in the journal when this process has died.
    pub fn with_journal(journal: Journal) -> Outbox {
        Outbox { journal: Some(journal), ..Outbox::default() }
    }

    /// Adds frames; a later [`Outbox::flush`] writes them.
    pub fn push<R>(&self, add: impl FnOnce(&mut Pending) -> R) -> R {
        self.push_noting(add).0
    }

    /// The same; and, where they are not found in the journal as they are, up to where all has to be sent before other code
    /// runs in this process: [`Outbox::wait_sent`].
    pub fn push_noting<R>(&self, add: impl FnOnce(&mut Pending) -> R) -> (R, Option<Position>) {
        let mut pending = self.pending.lock();
        let (bytes, attached) = (pending.bytes.len(), pending.attached.len());
        let result = add(&mut pending);
        let exposed = self.record(&pending.bytes[bytes..], pending.attached.len() > attached);
        self.waiting.store(true, Ordering::Release);
        (result, exposed)
    }

    /// Nothing that is not sent yet is overwritten: what has no room is not recorded, nor what comes behind it.
    fn record(&self, bytes: &[u8], attached: bool) -> Option<Position> {
        let journal = self.journal.as_ref()?;
        let (position, sent) = (self.put.load(Ordering::Relaxed), self.sent.load(Ordering::Acquire));
        let end = position.wrapping_add(bytes.len() as Position);
        self.put.store(end, Ordering::Relaxed);
        let has_gap = self.has_gap.load(Ordering::Relaxed) && sent != position;
        let recorded = !has_gap && Journal::holds(sent, end);
        self.has_gap.store(!recorded, Ordering::Relaxed);
        if recorded {
            journal.record(position, bytes);
        }
        (attached || !recorded).then_some(end)
    }

    /// Writes, or waits for the one who does, until all is sent up to there.
    pub fn wait_sent(&self, end: Position, mut flush: impl FnMut() -> io::Result<()>) -> io::Result<()> {
        let is_sent = || end.wrapping_sub(self.sent.load(Ordering::Acquire)) as i32 <= 0;
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let mut flushed = flush();
        while flushed.is_ok() && !is_sent() {
            let turn = self.turn.lock();
            if !is_sent() {
                self.written.wait_for(turn, LOOK_AGAIN);
            }
            flushed = flush();
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        flushed
    }

    fn note_sent(&self, count: usize) {
        self.sent.fetch_add(count as Position, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            drop(self.turn.lock());
            self.written.notify_all();
        }
    }

    /// Writes what is pending, unless another thread is at it. With `wait` a full socket blocks.
    pub fn flush(&self, socket: BorrowedFd<'_>, wait: bool) -> io::Result<Flushed> {
        if !self.handover.enter() {
            return Ok(Flushed::All);
        }
        loop {
            let written = self.write(socket, wait);
            if !matches!(written, Ok(Flushed::All)) {
                self.handover.give_up();
                return written;
            }
            if self.handover.leave() {
                return written;
            }
        }
    }

    /// As the one that writes.
    fn write(&self, socket: BorrowedFd<'_>, wait: bool) -> io::Result<Flushed> {
        let mut writing = self.writing.lock();
        loop {
            if writing.is_done() {
                if !self.waiting.swap(false, Ordering::Acquire) {
                    return Ok(Flushed::All);
                }
                writing.refill(&self.pending);
            }
            while !writing.is_done() {
                match writing.step(socket, wait) {
                    Ok(sent) => self.note_sent(sent),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Flushed::Blocked),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if sys::is_shortage(&error) => return Ok(Flushed::Short),
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

impl Writing {
    fn is_done(&self) -> bool {
        self.done == self.taken.bytes.len()
    }

    fn refill(&mut self, pending: &Mutex<Pending>) {
        self.taken.clear();
        self.done = 0;
        std::mem::swap(&mut self.taken, &mut *pending.lock());
    }

    /// Sends one message: the frames up to the next descriptors, the word that descriptors come, or the frames with
    /// them. Returns how many bytes of frames it had: the word is not part of any.
    fn step(&mut self, socket: BorrowedFd<'_>, wait: bool) -> io::Result<usize> {
        let next = self.taken.attached.front().map(|(at, _)| *at);
        let carries = next == Some(self.done);
        if carries && !self.told {
            let mut notice = Vec::with_capacity(HEAD_BYTES);
            frame::put_head(&mut notice, Kind::Carrying, 0, 0);
            sys::send(socket, &notice, &[], wait)?;
            self.told = true;
            return Ok(0);
        }
        let end = if carries { self.taken.attached.get(1).map(|(at, _)| *at) } else { next };
        let end = end.unwrap_or(self.taken.bytes.len()).min(self.done + MESSAGE_BYTES_MAX);
        let bytes = &self.taken.bytes[self.done..end];
        let descriptors = match self.taken.attached.front() {
            Some((_, attached)) if carries => attached.descriptors(),
            _ => Vec::new(),
        };
        let sent = sys::send(socket, bytes, &descriptors, wait)?;
        if carries && sent > 0 {
            self.taken.attached.pop_front();
            self.told = false;
        }
        self.done += sent;
        Ok(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::journal::{JOURNAL_BYTES, SIZE};
    use clutch_wire::sys::Mapping;
    use proptest::prelude::*;

    /// Step of the outbox's owner.
    #[derive(Clone, Debug)]
    enum Step {
        Push(usize),
        /// Writes what there is room for.
        Flush,
        /// The other end reads so many messages.
        Read(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let small = (1usize..2_000).prop_map(Step::Push);
        let large = (1usize..JOURNAL_BYTES + 5_000).prop_map(Step::Push);
        let step = prop_oneof![4 => small, 2 => large, 2 => Just(Step::Flush), 3 => (1usize..20).prop_map(Step::Read)];
        prop::collection::vec(step, 1..60)
    }

    fn read(socket: BorrowedFd<'_>, messages: usize, stream: &mut Vec<u8>) {
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        for _ in 0..messages {
            let Ok(count) = sys::receive(socket, &mut buffer, false) else { return };
            stream.extend_from_slice(&buffer[..count]);
        }
    }

    proptest! {
        /// Wherever a worker dies: what its reader has, and then the journal, are the bytes that it put, in order, and all
        /// of those that it did not have to wait for.
        #[test]
        fn failure_71_the_socket_and_then_the_journal_hold_what_was_put(steps in steps()) {
            let (ours, theirs) = sys::socket_pair().expect("a socketpair");
            let memory = sys::shared_memory("test", SIZE).expect("shared memory");
            let journal = Journal::at_end_of(Arc::new(Mapping::new(memory.as_fd(), SIZE).expect("a mapping")));
            let outbox = Outbox::with_journal(journal.clone());
            let (mut put, mut heard, mut kept) = (Vec::new(), Vec::new(), 0);
            for (nr, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Push(len) => {
                        let bytes: Vec<u8> = (0..len).map(|at| (at * 31 + nr) as u8).collect();
                        let ((), exposed) = outbox.push_noting(|out| out.bytes.extend_from_slice(&bytes));
                        put.extend(bytes);
                        if exposed.is_none() {
                            kept = put.len();
                        }
                    }
                    Step::Flush => drop(outbox.flush(ours.as_fd(), false).expect("a link")),
                    Step::Read(messages) => read(theirs.as_fd(), messages, &mut heard),
                }
                let mut all = heard.clone();
                let sent = outbox.sent.load(Ordering::Relaxed) as usize;
                // What is in the socket is read before the journal is looked at.
                let from = sent as Position;
                all.extend_from_slice(&put[heard.len()..sent]);
                all.extend(journal.since(from).unwrap_or_default());
                prop_assert!(put.starts_with(&all), "bytes that were never put, or in another order");
                prop_assert!(all.len() >= kept, "{} of {kept} that were to be kept", all.len());
            }
        }
    }

    #[test]
    fn who_waits_for_another_threads_write_goes_on_when_its_own_bytes_are_sent() {
        let (ours, theirs) = sys::socket_pair().expect("a socketpair");
        let memory = sys::shared_memory("test", SIZE).expect("shared memory");
        let journal = Journal::at_end_of(Arc::new(Mapping::new(memory.as_fd(), SIZE).expect("a mapping")));
        let outbox = Outbox::with_journal(journal);
        let over = AtomicU32::new(0);
        let write = || {
            for _ in 0..50 {
                let ((), exposed) = outbox.push_noting(|out| out.bytes.resize(out.bytes.len() + 50_000, 7));
                let Some(end) = exposed else { continue };
                outbox.wait_sent(end, || outbox.flush(ours.as_fd(), true).map(drop)).expect("a link");
                assert!(end.wrapping_sub(outbox.sent.load(Ordering::SeqCst)) as i32 <= 0);
            }
            over.fetch_add(1, Ordering::SeqCst);
        };
        std::thread::scope(|scope| {
            (0..3).for_each(|_| drop(scope.spawn(write)));
            let mut heard = Vec::new();
            while over.load(Ordering::SeqCst) < 3 {
                read(theirs.as_fd(), 64, &mut heard);
                std::thread::yield_now();
            }
        });
    }
}
