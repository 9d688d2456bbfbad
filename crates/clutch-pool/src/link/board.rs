//! The board: memory that both ends of a link share.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use clutch_wire::sys::{self, Mapping};

use super::journal::{self, Journal};

/// Board with one word for each frame on the link, which tells who may have it; behind these as many words for the
/// progress of batches, and the worker's journal. Shared by both ends.
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
    /// In place of a number of items: begun, and waits for its turn, as calls of a serial tool do.
    pub const AWAITS_TURN: u32 = u32::MAX;
}

impl Board {
    /// Words on the board of a worker with this many slots: for each slot, running and prefetched work.
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

    /// Returns the journal, where the worker notes what it puts on the link.
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

    /// Returns the number of items begun of the mapped batch with this word.
    pub fn items_begun(&self, index: u32) -> &AtomicU32 {
        assert!((index as usize) < self.len(), "a word outside of its board");
        self.mapping.word(self.len() + index as usize)
    }

    /// Says that work which is no batch waits for its turn in the worker before its code begins, or no longer.
    pub fn await_turn(&self, index: u32, waits: bool) {
        self.items_begun(index).store(if waits { word::AWAITS_TURN } else { 0 }, Ordering::Release);
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
