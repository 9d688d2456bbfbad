//! The work that a pool has, from its submission to its answer, and the instants at which something is to happen to it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::{Index, IndexMut};
use std::time::{Duration, Instant};

use slab::Slab;

use super::{Request, WorkerKey};
use crate::work::WorkId;

/// Instants beyond twice as many as there is work, which may be outdated, before they are swept.
const OUTDATED_MIN: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Waits for room in the queue.
    Blocked,
    Queued,
    /// Waits to run alone.
    Suspect,
    /// On its worker's link; `begun`: known to have started, as the attempt to take it back failed.
    Sent {
        worker: WorkerKey,
        begun: bool,
    },
    /// Answered already (deadline, caller gone); its slot is busy until the worker says so.
    Abandoned {
        worker: WorkerKey,
        stopping: Stopping,
    },
}

impl Place {
    /// Not on any link.
    pub(super) fn waits(self) -> bool {
        self.worker().is_none()
    }

    /// Known to have; more may have.
    pub(super) fn has_begun(self) -> bool {
        matches!(self, Place::Sent { begun: true, .. } | Place::Abandoned { .. })
    }

    /// The worker whose link the work is on.
    pub(super) fn worker(self) -> Option<WorkerKey> {
        match self {
            Place::Sent { worker, .. } | Place::Abandoned { worker, .. } => Some(worker),
            Place::Blocked | Place::Queued | Place::Suspect => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Submission<T> {
    id: WorkId,
    pub(super) request: Request,
    pub(super) place: Place,
    /// When it was submitted.
    pub(super) since: Instant,
    /// From then until it was sent to the worker that it was sent to last.
    pub(super) queued: Duration,
    /// Endless, in a worker that is to end: it goes on until then.
    pub(super) cut_at: Option<Instant>,
    /// By its own code, when what runs now has had its time: gone with the worker that runs it.
    pub(super) limit_at: Option<Instant>,
    /// A debugger has been open while it was here: its time is not measured any more.
    pub(super) untimed: bool,
    /// Its worker had begun it by itself, and it was known here only when it had run for long.
    pub(super) adopted: bool,
    /// Workers that died of it, or may have.
    pub(super) deaths: u32,
    /// The item of a batch that `deaths` and the retries left are about.
    pub(super) tried_item: u32,
    /// Runs alone in its worker.
    pub(super) alone: bool,
    pub(super) load_ns: u64,
    /// The number of this work among what was sent to its worker.
    pub(super) sent_as: u64,
    pub(super) body: Option<T>,
}

impl<T> Submission<T> {
    pub(super) fn id(&self) -> WorkId {
        self.id
    }

    /// By when it should have stopped, where it was told to.
    pub(super) fn stopping(&self) -> Option<Stopping> {
        match self.place {
            Place::Abandoned { stopping, .. } => Some(stopping),
            _ => None,
        }
    }

    /// The instant that a tick is wanted at.
    fn due(&self) -> Option<Instant> {
        match self.stopping() {
            Some(stopping) => stopping.awaited(),
            None => self.request.deadline.into_iter().chain(self.limit_at).chain(self.cut_at).min(),
        }
    }

    /// Returns whether something is to happen to the work then, now or when something else has.
    fn may_be_due_at(&self, at: Instant) -> bool {
        let known = [self.request.deadline, self.limit_at, self.cut_at, self.stopping().map(|stopping| stopping.by)];
        known.contains(&Some(at))
    }

    pub(super) fn is_cut(&self) -> bool {
        self.cut_at.is_some() && self.cut_at == self.due()
    }
}

/// Why running work was told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCause {
    Deadline,
    Cancelled,
    /// The worker is to end.
    Drained,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stopping {
    pub(super) by: Instant,
    pub(super) cause: StopCause,
    /// The work has not stopped in time.
    pub(super) stuck: bool,
}

impl Stopping {
    /// The instant that a tick is wanted at.
    fn awaited(self) -> Option<Instant> {
        Some(self.by).filter(|_| !self.stuck)
    }
}

/// See the file's head. Work is found by its id: a slot of the slab, and a number that no other work in it had.
#[derive(Debug)]
pub(super) struct Submissions<T> {
    slab: Slab<Submission<T>>,
    serial: u32,
    /// Some are outdated: the work is gone, or due at another instant.
    instants: BinaryHeap<Reverse<(Instant, WorkId)>>,
}

impl<T> Default for Submissions<T> {
    fn default() -> Submissions<T> {
        Submissions { slab: Slab::new(), serial: 0, instants: BinaryHeap::new() }
    }
}

impl<T> Submissions<T> {
    pub(super) fn insert(&mut self, request: Request, body: T, since: Instant, untimed: bool) -> WorkId {
        self.serial = self.serial.wrapping_add(1);
        let entry = self.slab.vacant_entry();
        let id = (u64::from(self.serial) << 32) | entry.key() as u64;
        entry.insert(Submission {
            id,
            request,
            place: Place::Queued,
            since,
            queued: Duration::ZERO,
            cut_at: None,
            limit_at: None,
            untimed,
            adopted: false,
            deaths: 0,
            tried_item: 0,
            alone: false,
            load_ns: 0,
            sent_as: 0,
            body: Some(body),
        });
        id
    }

    pub(super) fn get(&self, id: WorkId) -> Option<&Submission<T>> {
        self.slab.get(index(id)).filter(|work| work.id == id)
    }

    pub(super) fn get_mut(&mut self, id: WorkId) -> Option<&mut Submission<T>> {
        self.slab.get_mut(index(id)).filter(|work| work.id == id)
    }

    pub(super) fn remove(&mut self, id: WorkId) -> Submission<T> {
        let work = self.slab.remove(index(id));
        self.sweep();
        work
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Submission<T>> {
        self.slab.iter().map(|(_, work)| work)
    }

    pub(super) fn is_at(&self, id: WorkId, place: Place) -> bool {
        self.get(id).is_some_and(|work| work.place == place)
    }

    // ---- time

    /// Something is to happen to this work then.
    pub(super) fn await_instant(&mut self, at: Instant, id: WorkId) {
        self.instants.push(Reverse((at, id)));
        self.sweep();
    }

    /// Something else may be next for this work, since one of its instants has moved.
    pub(super) fn await_due(&mut self, id: WorkId) {
        if let Some(at) = self.get(id).and_then(Submission::due) {
            self.await_instant(at, id);
        }
    }

    /// The earliest instant at which something is to happen.
    pub(super) fn next_due(&mut self) -> Option<Instant> {
        while let Some(Reverse((at, id))) = self.instants.peek().copied() {
            if self.get(id).is_some_and(|work| work.due() == Some(at)) {
                return Some(at);
            }
            self.instants.pop();
        }
        None
    }

    /// Work that is due now, once for each instant.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<WorkId> {
        self.next_due().filter(|at| *at <= now)?;
        self.instants.pop().map(|Reverse((_, id))| id)
    }

    /// Lifts the deadlines of all that is here now, for good.
    pub(super) fn untime(&mut self) {
        self.slab.iter_mut().for_each(|(_, work)| {
            (work.untimed, work.request.deadline, work.limit_at) = (true, None, None);
        });
        self.sweep();
    }

    fn sweep(&mut self) {
        if self.instants.len() > 2 * self.slab.len() + OUTDATED_MIN {
            let slab = &self.slab;
            self.instants.retain(|Reverse((at, id))| {
                slab.get(index(*id)).is_some_and(|work| work.id == *id && work.may_be_due_at(*at))
            });
        }
    }
}

impl<T> Index<WorkId> for Submissions<T> {
    type Output = Submission<T>;

    fn index(&self, id: WorkId) -> &Submission<T> {
        &self.slab[index(id)]
    }
}

impl<T> IndexMut<WorkId> for Submissions<T> {
    fn index_mut(&mut self, id: WorkId) -> &mut Submission<T> {
        &mut self.slab[index(id)]
    }
}

fn index(id: WorkId) -> usize {
    (id & u64::from(u32::MAX)) as usize
}
