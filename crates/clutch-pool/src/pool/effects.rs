//! What follows from a transaction, and is done when the core's lock is released.

use std::sync::Arc;
use std::time::Instant;

use clutch_wire::Payload;
use smallvec::SmallVec;

use super::notice::Notice;
use super::peer::Link;
use super::state::WorkerKey;
use crate::work::{Outcome, Reply, WorkId};

/// Work on a link, and when it is looked at.
#[derive(Clone, Copy)]
pub(super) struct OnLink {
    pub(super) worker: WorkerKey,
    pub(super) id: WorkId,
    pub(super) now: Instant,
}

/// What is done after the core's lock is released.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) flush: SmallVec<[Arc<Link>; 2]>,
    pub(super) replies: SmallVec<[(Arc<dyn Reply>, Told); 1]>,
    pub(super) notices: Vec<Notice>,
    /// Work that is to be interrupted, and whether the stacks are wanted first.
    pub(super) interrupts: SmallVec<[(Arc<Link>, WorkId, bool); 1]>,
    /// Answers to questions for the stacks of tasks.
    pub(super) stacks: Vec<(u64, String)>,
    /// When the driver has to look again, at the latest.
    pub(super) look_at: Option<Instant>,
}

impl Effects {
    pub(super) fn look_by(&mut self, at: Instant) {
        self.look_at = Some(self.look_at.map_or(at, |before| before.min(at)));
    }
}

pub(super) enum Told {
    Chunk(Payload),
    Credit(u32),
    Finish(Outcome),
    Begun,
    Admitted,
}
