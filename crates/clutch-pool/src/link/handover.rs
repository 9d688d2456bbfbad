//! Decides which thread writes: of all that have left something to be written, exactly one, and never none.
//!
//! One word, changed by read-modify-writes alone: whoever finds a writer at work leaves it a mark, and the writer finds
//! the mark when it wants to leave. tests/handover_model.rs tries all orders of that, those of weak memory too.

use crate::atomic::{AtomicU32, Ordering};

/// Nobody writes.
const FREE: u32 = 0;
/// Somebody writes.
const WRITING: u32 = 1;
/// Somebody writes, and more has come meanwhile.
const MORE: u32 = 2;

#[derive(Debug)]
pub struct Handover {
    state: AtomicU32,
}

impl Default for Handover {
    fn default() -> Handover {
        Handover { state: AtomicU32::new(FREE) }
    }
}

impl Handover {
    /// To be asked by whoever has left something. True: the caller writes, and has to leave. False: the one who does will
    /// look once more.
    pub fn enter(&self) -> bool {
        loop {
            let entered = self.state.compare_exchange(FREE, WRITING, Ordering::AcqRel, Ordering::Acquire);
            if entered.is_ok() {
                return true;
            }
            // With MORE in place of WRITING nothing has to be said again, but this thread's writes have to be seen.
            let marked = self.state.compare_exchange(WRITING, MORE, Ordering::AcqRel, Ordering::Acquire);
            if marked.is_ok() || self.state.compare_exchange(MORE, MORE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return false;
            }
        }
    }

    /// The writer has written all that it saw. False: more has come, it goes on.
    pub fn leave(&self) -> bool {
        if self.state.compare_exchange(WRITING, FREE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return true;
        }
        // Only the writer takes the mark away.
        self.state.swap(WRITING, Ordering::AcqRel);
        false
    }

    /// The writer leaves with things unwritten: somebody will be told to come back for them.
    pub fn give_up(&self) {
        self.state.swap(FREE, Ordering::AcqRel);
    }
}
