//! Journal of what a worker has put on its link, in pages that outlive it: finished answers arrive, though the worker
//! died before they were sent.
//!
//! A ring of the last bytes of the link's byte stream, at their positions in it. The worker copies there what it puts into
//! its outbox, and moves the end behind it; nothing waits and no system call is made for it. When the worker is dead, the
//! dispatcher goes on there where the socket's bytes end. Only the worker writes; the dispatcher reads when it is dead.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use clutch_wire::sys::Mapping;

/// Bytes that are kept. What has been put and not sent is never overwritten: see [`Journal::holds`].
pub const JOURNAL_BYTES: usize = 64 << 10;

/// The end, on a page of its own before the ring.
const HEAD_BYTES: usize = 4096;

/// Bytes of shared memory that a journal takes.
pub const SIZE: usize = HEAD_BYTES + JOURNAL_BYTES;

/// A position in the byte stream of a link; it wraps.
pub type Position = u32;

#[derive(Clone, Debug)]
pub struct Journal {
    mapping: Arc<Mapping>,
    offset: usize,
}

impl Journal {
    /// The journal in the last [`SIZE`] bytes of a mapping.
    pub fn at_end_of(mapping: Arc<Mapping>) -> Journal {
        let offset = mapping.len() - SIZE;
        Journal { mapping, offset }
    }

    /// Whether all from `from` to `to` can be had from a journal.
    pub fn holds(from: Position, to: Position) -> bool {
        to.wrapping_sub(from) as usize <= JOURNAL_BYTES
    }

    /// Takes note of bytes that were put at `position`.
    pub fn record(&self, position: Position, bytes: &[u8]) {
        let end = position.wrapping_add(bytes.len() as u32);
        if bytes.len() <= JOURNAL_BYTES {
            let at = position as usize % JOURNAL_BYTES;
            let (first, rest) = bytes.split_at(bytes.len().min(JOURNAL_BYTES - at));
            self.mapping.write(self.ring() + at, first);
            self.mapping.write(self.ring(), rest);
        }
        self.mapping.word(self.offset / 4).store(end, Ordering::Release);
    }

    /// Returns the bytes that were put from `from` on; none if they are not all here.
    pub fn since(&self, from: Position) -> Option<Vec<u8>> {
        let end = self.mapping.word(self.offset / 4).load(Ordering::Acquire);
        if !Journal::holds(from, end) {
            return None;
        }
        let (at, len) = (from as usize % JOURNAL_BYTES, end.wrapping_sub(from) as usize);
        let first = len.min(JOURNAL_BYTES - at);
        let mut bytes = vec![0; len];
        self.mapping.read(self.ring() + at, &mut bytes[..first]);
        self.mapping.read(self.ring(), &mut bytes[first..]);
        Some(bytes)
    }

    fn ring(&self) -> usize {
        self.offset + HEAD_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clutch_wire::sys;
    use proptest::prelude::*;
    use std::os::fd::AsFd;

    fn journal() -> Journal {
        let memory = sys::shared_memory("test", SIZE).expect("shared memory");
        Journal::at_end_of(Arc::new(Mapping::new(memory.as_fd(), SIZE).expect("a mapping")))
    }

    proptest! {
        /// Also where positions wrap: the stream begins anywhere.
        #[test]
        fn what_was_recorded_last_can_be_had(start: u32, lengths in prop::collection::vec(0usize..30_000, 1..20)) {
            let journal = journal();
            let (mut stream, mut position) = (Vec::new(), start);
            for (nr, len) in lengths.into_iter().enumerate() {
                let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + nr) as u8).collect();
                journal.record(position, &bytes);
                position = position.wrapping_add(len as u32);
                stream.extend(bytes);
            }
            for back in [0, 1, 1000, JOURNAL_BYTES, stream.len()] {
                let back = back.min(stream.len());
                let wanted = (back <= JOURNAL_BYTES).then(|| stream[stream.len() - back..].to_vec());
                prop_assert_eq!(journal.since(position.wrapping_sub(back as u32)), wanted);
            }
        }
    }
}
