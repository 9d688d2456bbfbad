//! Effects of a transaction, carried out when the core's lock is released.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_wire::Payload;
use smallvec::SmallVec;

use super::entry::Entry;
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

/// Effects to carry out after the core's lock is released.
#[derive(Default)]
pub(super) struct Effects {
    /// Work that is on its way to its worker, and how long it has waited, for those who note it.
    pub(super) sent: SmallVec<[(Arc<dyn Reply>, Duration); 1]>,
    pub(super) flush: SmallVec<[Arc<Link>; 2]>,
    pub(super) replies: SmallVec<[(Arc<dyn Reply>, Told); 1]>,
    pub(super) notices: Vec<Notice>,
    /// Work that is to be interrupted, and whether the stacks are wanted first.
    pub(super) interrupts: SmallVec<[(Arc<Link>, WorkId, bool); 1]>,
    /// Answers to questions for the stacks of tasks.
    pub(super) stacks: Vec<(u64, String)>,
    /// When the driver has to look again, at the latest.
    pub(super) look_at: Option<Instant>,
    pub(super) lease: Lease,
    /// Tell fetchers of work that there is room.
    pub(super) rooms: Vec<Arc<dyn Fn() + Send + Sync>>,
}

impl Effects {
    /// Answers a piece of work.
    pub(super) fn finish(&mut self, entry: Entry, outcome: Outcome) {
        self.replies.push((entry.work.reply, Told::Finish { outcome, queued: entry.queued }));
    }

    pub(super) fn look_by(&mut self, at: Instant) {
        self.look_at = Some(self.look_at.map_or(at, |before| before.min(at)));
    }
}

/// The right of a blocking caller to read the link of the worker that has its work.
#[derive(Default)]
pub(super) enum Lease {
    #[default]
    Unwanted,
    /// For this work, if it goes to an otherwise idle worker that nobody reads.
    Wanted(WorkId),
    Granted(Arc<Link>),
}

pub(super) enum Told {
    Chunk(Payload),
    Credit(u32),
    /// `queued`: how long it had waited for the worker that it was sent to last.
    Finish {
        outcome: Outcome,
        queued: Option<Duration>,
    },
    Begun,
    Used(Duration),
    Ran(Duration),
    Admitted,
}
