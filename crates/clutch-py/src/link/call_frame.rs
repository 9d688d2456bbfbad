//! A call as it came by the link, and by what it is claimed.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use clutch_wire::Form;
use clutch_wire::frame::{Frame, NO_DEADLINE, RegionRef, flag};
use clutch_wire::sys;

/// Somebody has looked at what runs here, at a prompt: what waited behind that is not late.
static UNTIMED: AtomicBool = AtomicBool::new(false);

/// From now on no work comes too late here.
pub fn ignore_deadlines() {
    UNTIMED.store(true, Ordering::Relaxed);
}

/// A call as it came.
#[derive(Debug)]
pub struct CallFrame {
    pub id: u64,
    pub word: u32,
    pub function: u32,
    /// In nanoseconds of CLOCK_MONOTONIC, or `NO_DEADLINE`.
    pub deadline_ns: u64,
    /// Number of the first items of a mapped batch that were run before.
    pub skip: u32,
    pub flags: u8,
    pub form: Form,
    /// Closed with the frame, when the call is never begun.
    pub descriptor: Option<OwnedFd>,
    pub inline: Vec<u8>,
    pub regions: Vec<RegionRef>,
}

impl CallFrame {
    pub fn of(frame: &Frame<'_>, descriptor: Option<OwnedFd>) -> CallFrame {
        CallFrame {
            id: frame.head.id,
            word: frame.word(),
            function: frame.function(),
            deadline_ns: frame.deadline_ns(),
            skip: frame.skip(),
            flags: frame.head.flags,
            form: frame.head.form,
            descriptor,
            inline: frame.payload.to_vec(),
            regions: frame.regions().collect(),
        }
    }

    /// The number of the work's kind.
    pub fn kind(&self) -> u8 {
        self.flags >> flag::KIND_SHIFT
    }

    /// An inbound stream follows.
    pub fn has_input(&self) -> bool {
        self.flags & flag::HAS_INPUT != 0
    }

    /// A descriptor was sent along, which may have been lost on its way.
    pub fn has_descriptor(&self) -> bool {
        self.flags & flag::HAS_DESCRIPTOR != 0
    }
}

/// A call's frame beside its arguments: by what it is claimed, what kind it is, and which part of it is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    pub id: u64,
    pub word: u32,
    pub flags: u8,
    pub skip: u32,
    deadline_ns: u64,
}

impl Claim {
    pub fn of(frame: &CallFrame) -> Claim {
        let CallFrame { id, word, flags, skip, deadline_ns, .. } = *frame;
        Claim { id, word, flags, skip, deadline_ns }
    }

    /// As [`CallFrame::kind`].
    pub fn kind(&self) -> u8 {
        self.flags >> flag::KIND_SHIFT
    }

    /// Tells whether nobody waits for the answer any more.
    pub fn is_late(&self) -> bool {
        !UNTIMED.load(Ordering::Relaxed) && self.deadline_ns != NO_DEADLINE && sys::monotonic_ns() >= self.deadline_ns
    }
}
