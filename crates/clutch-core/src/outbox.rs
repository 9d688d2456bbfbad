//! What waits to be written to a socket of messages. Writing is combining: whoever finds the socket free writes all that is
//! pending, the others only leave their frames.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;

use crate::handover::Handover;
use crate::journal::{Journal, Position};
use crate::region::Region;
use crate::sys;
use crate::wire::{self, HEAD_BYTES, Kind};

/// Longest message on a socket; a frame may span several.
pub const MESSAGE_BYTES_MAX: usize = 32 << 10;

/// What became of a flush.
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
    /// How much was put, changed under the lock of `pending`, and how much of that was sent.
    put: AtomicU32,
    sent: AtomicU32,
    journal: Option<Journal>,
    /// What waits would not all be found in the journal.
    exposed: AtomicBool,
}

impl Outbox {
    /// One whose frames are found in the journal when this process has died.
    pub fn with_journal(journal: Journal) -> Outbox {
        Outbox { journal: Some(journal), ..Outbox::default() }
    }

    /// Adds frames; a later [`Outbox::flush`] writes them.
    pub fn push<R>(&self, add: impl FnOnce(&mut Pending) -> R) -> R {
        let mut pending = self.pending.lock();
        let (bytes, attached) = (pending.bytes.len(), pending.attached.len());
        let result = add(&mut pending);
        self.record(&pending.bytes[bytes..], pending.attached.len() > attached);
        self.waiting.store(true, Ordering::Release);
        result
    }

    fn record(&self, bytes: &[u8], attached: bool) {
        let Some(journal) = &self.journal else { return };
        let position = self.put.load(Ordering::Relaxed);
        journal.record(position, bytes);
        let end = position.wrapping_add(bytes.len() as Position);
        self.put.store(end, Ordering::Relaxed);
        if attached || !Journal::holds(self.sent.load(Ordering::Relaxed), end) {
            self.exposed.store(true, Ordering::Relaxed);
        }
    }

    /// Whether what waits has to be written before the next call begins: the journal cannot hold all of it, or not the
    /// descriptors that go with it. True once.
    pub fn is_exposed(&self) -> bool {
        self.exposed.load(Ordering::Relaxed) && self.exposed.swap(false, Ordering::Relaxed)
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
                    Ok(sent) => _ = self.sent.fetch_add(sent as Position, Ordering::Relaxed),
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

    /// One message: up to the next descriptors; the word that they come; or with them. Returns how many bytes of frames it
    /// had: the word belongs to none.
    fn step(&mut self, socket: BorrowedFd<'_>, wait: bool) -> io::Result<usize> {
        let next = self.taken.attached.front().map(|(at, _)| *at);
        let carries = next == Some(self.done);
        if carries && !self.told {
            let mut notice = Vec::with_capacity(HEAD_BYTES);
            wire::put_head(&mut notice, Kind::Carrying, 0, 0);
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
