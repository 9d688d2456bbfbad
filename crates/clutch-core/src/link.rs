//! The connection to one worker or zygote: what was read of its socket of messages, what its other end knows of our
//! regions, and the board. What waits to be written is in outbox.rs.
//!
//! Both ends use it. Reading belongs to one thread at a time, which holds the [`Inbox`]. The socket is a SEQPACKET one:
//! on a stream socket each message that is taken in wakes the thread at the other end that waits to read, for nothing
//! (measured: 1.3 µs more for a call, 9.0 against 7.6). Frames do not care where messages end.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use crate::sync::Mutex;
use thiserror::Error;

use crate::journal::{self, Journal, Position};
use crate::outbox::MESSAGE_BYTES_MAX;
pub use crate::outbox::{Attached, Flushed, Outbox, Pending};
use crate::region::{Lease, Region, RegionPool, RegionTable};
use crate::sys::{self, Mapping};
use crate::wire::{self, Frame, HEAD_BYTES, Head, INLINE_BYTES_MAX, Kind, RegionRef, WireError};
use crate::work::Payload;

/// Room that the read buffer grows by: more than one message always fits.
const READ_BYTES: usize = 2 * MESSAGE_BYTES_MAX;

/// What one read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    Bytes,
    Nothing,
    End,
}

/// What was read and not yet taken as frames.
#[derive(Debug, Default)]
pub struct Inbox {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Of each message that carried some, as many as arrived: the kernel drops those that this process may not have.
    descriptors: VecDeque<Vec<OwnedFd>>,
    /// The next message carries descriptors. Others are received without room for any, which costs less.
    carrying: bool,
    /// Where in the link's byte stream the next bytes are.
    position: Position,
    /// Regions whose descriptors did not arrive; the other end is to be told.
    unreceived: Vec<u32>,
    pub regions: Arc<Mutex<RegionTable>>,
}

impl Inbox {
    /// Reads once. With `wait` it blocks until there is something.
    pub fn fill(&mut self, socket: BorrowedFd<'_>, wait: bool) -> io::Result<Filled> {
        self.make_room();
        let mut descriptors = Vec::new();
        let received = match self.carrying {
            true => sys::receive_with_descriptors(socket, &mut self.buffer[self.end..], &mut descriptors, wait),
            false => sys::receive(socket, &mut self.buffer[self.end..], wait),
        };
        match received {
            Ok(0) => Ok(Filled::End),
            Ok(count) => {
                if self.carrying {
                    self.descriptors.push_back(descriptors);
                }
                self.carrying = self.start == self.end && is_notice(&self.buffer[self.end..self.end + count]);
                self.advance(if self.carrying { 0 } else { count });
                Ok(Filled::Bytes)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Filled::Nothing),
            // The other end died with messages unread; what it had written itself comes next.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => self.fill(socket, wait),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(Filled::End),
            Err(error) => Err(error),
        }
    }

    /// Goes on in the journal where the socket of a dead worker has ended; whether there was something.
    pub fn fill_from(&mut self, journal: &Journal) -> bool {
        let Some(rest) = journal.since(self.position) else { return false };
        self.buffer.truncate(self.end);
        self.buffer.extend_from_slice(&rest);
        self.advance(rest.len());
        !rest.is_empty()
    }

    fn advance(&mut self, count: usize) {
        self.end += count;
        self.position = self.position.wrapping_add(count as Position);
    }

    /// Regions whose descriptors did not arrive since this was asked last.
    pub fn take_unreceived(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.unreceived)
    }

    fn make_room(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.buffer.len() - self.end < MESSAGE_BYTES_MAX {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            let wanted = self.wanted().max(self.end + READ_BYTES);
            if self.buffer.len() < wanted {
                self.buffer.resize(wanted, 0);
            }
        }
    }

    /// Length of the frame that is being received, as far as its head is known.
    fn wanted(&self) -> usize {
        match self.buffer.get(self.start..self.start + 4) {
            Some(head) if self.end - self.start >= 4 => {
                let body = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
                HEAD_BYTES + body.min(wire::FRAME_BYTES_MAX)
            }
            _ => 0,
        }
    }

    /// The next whole frame. Region announcements are taken note of and not returned.
    pub fn next_frame(&mut self) -> Result<Option<Received<'_>>, WireError> {
        loop {
            let at = self.start;
            let Some(end) = wire::frame_bytes(&self.buffer[at..self.end])?.map(|len| at + len) else { return Ok(None) };
            if end > self.end {
                return Ok(None);
            }
            self.start = end;
            if self.buffer[at + 4] == Kind::Descriptor as u8 {
                self.take_region(at, end)?;
                continue;
            }
            let Some((frame, _)) = Frame::parse(&self.buffer[at..end])? else { return Ok(None) };
            let carries = frame.descriptors() > 0;
            let descriptors = if carries { self.descriptors.pop_front().unwrap_or_default() } else { Vec::new() };
            return Ok(Some(Received { frame, bytes: &self.buffer[at..end], regions: &self.regions, descriptors }));
        }
    }

    /// All that comes next and is nothing but small results of this batch, one frame after the other: how many, and their
    /// bytes as they came.
    pub fn next_items(&mut self, batch: u64) -> (u32, &[u8]) {
        let (at, mut count) = (self.start, 0);
        while let Some(len) = wire::item_bytes(&self.buffer[self.start..self.end], batch) {
            self.start += len;
            count += 1;
        }
        (count, &self.buffer[at..self.start])
    }

    /// Takes note of a region that is announced, or is no more.
    fn take_region(&mut self, at: usize, end: usize) -> Result<(), WireError> {
        let Some((frame, _)) = Frame::parse(&self.buffer[at..end])? else { return Ok(()) };
        let descriptor = if frame.descriptors() > 0 { self.descriptors.pop_front() } else { None };
        let (id, descriptor) = (frame.head.id as u32, descriptor.into_iter().flatten().next());
        if !self.regions.lock().announce(id, frame.size(), descriptor)? {
            self.unreceived.push(id);
        }
        Ok(())
    }
}

/// Whether a message is the word that the next one carries descriptors. (Only between frames: inside one, bytes are
/// anything.)
fn is_notice(message: &[u8]) -> bool {
    message.len() == HEAD_BYTES && message[..4] == [0; 4] && message[4] == Kind::Carrying as u8
}

/// A frame with what came beside it.
#[derive(Debug)]
pub struct Received<'a> {
    pub frame: Frame<'a>,
    /// All of the frame, as it came.
    pub bytes: &'a [u8],
    regions: &'a Mutex<RegionTable>,
    pub descriptors: Vec<OwnedFd>,
}

impl Received<'_> {
    /// Takes hold of the payload's regions. Of a call only after its word was claimed: a call that the dispatcher took
    /// back has its regions lent to another worker by now.
    pub fn leases(&self) -> Result<Vec<Arc<Lease>>, WireError> {
        RegionTable::leases(self.regions, self.frame.regions())
    }

    pub fn payload(&self) -> Result<Payload, WireError> {
        Ok(Payload { codec: self.frame.head.codec, inline: self.frame.payload.to_vec(), leases: self.leases()? })
    }
}

/// What an end of a link remembers of the regions it has announced to the other end.
#[derive(Debug)]
pub struct Announced {
    known: HashMap<u32, Weak<Region>>,
    /// Of the pool that the regions are from; and how many it had dropped when it was last looked which of them are dead.
    dropped: Arc<AtomicU32>,
    seen: u32,
    /// The other end is the only reader of these regions: it gets the descriptor itself.
    only_reader: bool,
}

/// Why a frame cannot be put on a link; the link itself is unharmed.
#[derive(Debug, Error)]
pub enum PutError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("no shared memory for a large value: {0}; raise the limit of descriptors (ulimit -n), or of memory")]
    Memory(#[from] io::Error),
}

impl PutError {
    /// Whether there may be room some time later.
    pub fn is_shortage(&self) -> bool {
        matches!(self, PutError::Memory(error) if sys::is_shortage(error))
    }
}

impl Announced {
    /// To one of several readers of our regions.
    pub fn to_one_of_many(regions: &RegionPool) -> Announced {
        Announced { known: HashMap::new(), dropped: regions.dropped(), seen: 0, only_reader: false }
    }

    /// To the only reader: when it has a region's descriptor, nobody needs it any more.
    pub fn to_only_reader(regions: &RegionPool) -> Announced {
        Announced { only_reader: true, ..Announced::to_one_of_many(regions) }
    }

    /// Appends a frame with its payload; announces regions that the other end has not seen. On an error nothing of it is
    /// appended.
    pub fn put(
        &mut self,
        out: &mut Pending,
        mut head: Head,
        fixed: &[u8],
        payload: &Payload,
        reader: u64,
    ) -> Result<(), PutError> {
        head.codec = payload.codec;
        self.forget_dead(out);
        if payload.leases.is_empty() {
            return Ok(wire::put(&mut out.bytes, head, &[], fixed, &payload.inline)?);
        }
        self.announce_all(out, payload)?;
        head.regions = payload.leases.len() as u8;
        let references: Vec<RegionRef> = payload.leases.iter().filter_map(|lease| lease.reference()).collect();
        wire::put(&mut out.bytes, head, &references, fixed, &payload.inline)?;
        payload.leases.iter().for_each(|lease| lease.lend(reader));
        Ok(())
    }

    /// Announces the regions of a payload. Before what else travels beside its frame: that comes last.
    pub fn announce_all(&mut self, out: &mut Pending, payload: &Payload) -> Result<(), PutError> {
        payload.leases.iter().try_for_each(|lease| self.announce(out, lease))
    }

    fn announce(&mut self, out: &mut Pending, lease: &Lease) -> Result<(), PutError> {
        let region = lease.region().ok_or_else(|| io::Error::other("memory of this process alone"))?;
        if self.known.contains_key(&region.id) {
            return Ok(());
        }
        let attached = match self.only_reader {
            true => region.take_descriptor().map(|descriptor| Attached::Given(vec![descriptor])),
            false => region.descriptor().map(|_| Attached::Lent(region.clone())),
        };
        out.attach(attached.ok_or_else(|| io::Error::other("a region of the other end"))?);
        wire::put_descriptor(&mut out.bytes, region.id, region.size());
        self.known.insert(region.id, Arc::downgrade(region));
        Ok(())
    }

    /// Has the other end let go of regions that are no more.
    fn forget_dead(&mut self, out: &mut Pending) {
        let dropped = self.dropped.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.seen, dropped) == dropped {
            return;
        }
        self.known.retain(|id, region| {
            let alive = region.strong_count() > 0;
            if !alive {
                wire::put_descriptor(&mut out.bytes, *id, 0);
            }
            alive
        });
    }

    /// The other end could not take the descriptor of this region: it is of no use to anybody.
    pub fn was_unreceived(&mut self, id: u32) {
        if let Some(region) = self.known.remove(&id).and_then(|region| region.upgrade()) {
            region.retire();
        }
    }
}

/// Whether a part of a payload goes into a region.
pub fn is_large(len: usize) -> bool {
    len > INLINE_BYTES_MAX
}

/// One word for each frame that is on the link: who may have it; behind them as many for how far batches have come, and the
/// worker's journal. Shared by both ends.
#[derive(Debug)]
pub struct Board {
    mapping: Arc<Mapping>,
}

/// Values of a word of the board.
pub mod word {
    /// The dispatcher may use the word for another frame.
    pub const FREE: u32 = 0;
    /// On the link; either side may claim it.
    pub const SENT: u32 = 1;
    /// The worker has claimed it: user code starts.
    pub const BEGUN: u32 = 2;
    /// The dispatcher has taken it back: the worker skips the frame and frees the word.
    pub const TAKEN: u32 = 3;
    /// Begun, and nobody waits for the answer any more.
    pub const ABANDONED: u32 = 4;
    /// The worker has found it past its deadline and has not begun it: the dispatcher takes it back, and frees the word.
    pub const LATE: u32 = 5;
}

impl Board {
    /// Words on a board for a worker with so many slots: for each slot what runs and what was sent ahead.
    pub fn words_for(slots: u32) -> usize {
        (slots as usize * 66).clamp(1024, 16 << 10).max(slots as usize * 2)
    }

    pub fn create(words: usize) -> io::Result<(Board, OwnedFd)> {
        let bytes = (words * 8).next_multiple_of(4096) + journal::SIZE;
        let descriptor = sys::shared_memory("clutch-board", bytes)?;
        let mapping = Arc::new(Mapping::new(descriptor.as_fd(), bytes)?);
        Ok((Board { mapping }, descriptor))
    }

    pub fn open(descriptor: OwnedFd) -> io::Result<Board> {
        let bytes = rustix::fs::fstat(&descriptor)?.st_size as usize;
        if bytes <= journal::SIZE {
            return Err(io::Error::other("a board without room"));
        }
        Ok(Board { mapping: Arc::new(Mapping::new(descriptor.as_fd(), bytes)?) })
    }

    /// Where the worker notes what it puts on the link.
    pub fn journal(&self) -> Journal {
        Journal::at_end_of(self.mapping.clone())
    }

    pub fn len(&self) -> usize {
        (self.mapping.len() - journal::SIZE) / 8
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn word(&self, index: u32) -> &AtomicU32 {
        assert!((index as usize) < self.len(), "a word outside of its board");
        self.mapping.word(index as usize)
    }

    /// Of a mapped batch with this word: how many of its items have begun.
    pub fn items_begun(&self, index: u32) -> &AtomicU32 {
        assert!((index as usize) < self.len(), "a word outside of its board");
        self.mapping.word(self.len() + index as usize)
    }

    /// Another item of it begins; said by the one that runs them.
    pub fn begin_item(&self, index: u32) {
        let begun = self.items_begun(index);
        begun.store(begun.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Moves a word from one value to another; false when it had a third.
    pub fn claim(&self, index: u32, from: u32, to: u32) -> bool {
        self.word(index).compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    pub fn set(&self, index: u32, value: u32) {
        self.word(index).store(value, Ordering::Release);
    }

    pub fn get(&self, index: u32) -> u32 {
        self.word(index).load(Ordering::Acquire)
    }
}
