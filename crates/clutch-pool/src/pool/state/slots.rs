//! The slots of all workers: which are free, what is looked for among them, kept in order, and sums. Nothing here costs
//! more for more workers, but for the logarithm.
//!
//! Each worker is changed through [`Slots::change`] only, which puts it where it belongs afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{AddAssign, Bound, SubAssign};
use std::time::Instant;

use super::load::{Alone, Hold, Load, WorkerKey};

/// Sums over workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) free: usize,
    pub(super) ahead: usize,
    pub(super) busy: usize,
    pub(super) sent: usize,
    /// Slots of workers that take work.
    pub(super) slots: usize,
    pub(super) running_alone: usize,
}

impl Totals {
    fn of(load: &Load) -> Totals {
        Totals {
            free: load.free(),
            ahead: load.ahead(),
            busy: load.busy(),
            sent: load.sent.len(),
            slots: load.taking(),
            running_alone: usize::from(matches!(load.alone, Alone::Running(_))),
        }
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Totals) {
        self.free += other.free;
        self.ahead += other.ahead;
        self.busy += other.busy;
        self.sent += other.sent;
        self.slots += other.slots;
        self.running_alone += other.running_alone;
    }
}

impl SubAssign for Totals {
    fn sub_assign(&mut self, other: Totals) {
        self.free -= other.free;
        self.ahead -= other.ahead;
        self.busy -= other.busy;
        self.sent -= other.sent;
        self.slots -= other.slots;
        self.running_alone -= other.running_alone;
    }
}

/// The place of one worker in each order; none: it is not looked for there.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Standing {
    totals: Totals,
    /// Fill level of a worker with a free slot.
    filled: Option<usize>,
    /// For a worker that may get work ahead: its load of each slot; and when it stands still unless it makes progress.
    low: Option<(u64, Instant)>,
    /// For a worker with work ahead: when it stands still unless it makes progress.
    ahead: Option<Instant>,
    reserved: bool,
    starved: bool,
}

impl Standing {
    fn of(load: &Load) -> Standing {
        Standing {
            totals: Totals::of(load),
            filled: (load.free() > 0).then(|| load.filled()),
            low: load.may_be_low().then(|| (load.load_ns_of_slot(), load.stalls_at())),
            ahead: (load.ahead() > 0).then(|| load.stalls_at()),
            reserved: load.alone == Alone::Reserved,
            starved: load.holds.contains(Hold::Starved),
        }
    }
}

/// See the file's head.
#[derive(Debug, Default)]
pub(super) struct Slots {
    loads: BTreeMap<WorkerKey, Load>,
    totals: Totals,
    /// The fewest slots that were busy in this window.
    busy_least: usize,
    free: BTreeSet<(usize, WorkerKey)>,
    /// Without those that were found to stand still, until they change.
    low: BTreeSet<(u64, WorkerKey)>,
    ahead: BTreeSet<(Instant, WorkerKey)>,
    reserved: BTreeSet<WorkerKey>,
    starved: BTreeSet<WorkerKey>,
    /// Who got work last, where those that have equally much to do take turns.
    turn: Option<WorkerKey>,
}

impl Slots {
    pub(super) fn new(takes_turns: bool) -> Slots {
        Slots { turn: takes_turns.then_some(WorkerKey::MAX), ..Slots::default() }
    }

    pub(super) fn workers(&self) -> impl Iterator<Item = WorkerKey> + '_ {
        self.loads.keys().copied()
    }

    pub(super) fn get(&self, worker: WorkerKey) -> Option<&Load> {
        self.loads.get(&worker)
    }

    pub(super) fn len(&self) -> usize {
        self.loads.len()
    }

    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    /// The fewest that were busy since the last [`Slots::begin_window`].
    pub(super) fn busy_least(&self) -> usize {
        self.busy_least
    }

    pub(super) fn begin_window(&mut self) {
        self.busy_least = self.totals.busy;
    }

    pub(super) fn insert(&mut self, worker: WorkerKey, load: Load) {
        self.place(worker, Standing::default(), Standing::of(&load));
        self.loads.insert(worker, load);
    }

    pub(super) fn remove(&mut self, worker: WorkerKey) -> Option<Load> {
        let load = self.loads.remove(&worker)?;
        self.place(worker, Standing::of(&load), Standing::default());
        Some(load)
    }

    pub(super) fn change<R>(&mut self, worker: WorkerKey, change: impl FnOnce(&mut Load) -> R) -> Option<R> {
        let load = self.loads.get_mut(&worker)?;
        let before = Standing::of(load);
        let result = change(load);
        let after = Standing::of(load);
        self.place(worker, before, after);
        Some(result)
    }

    fn place(&mut self, worker: WorkerKey, before: Standing, after: Standing) {
        self.totals += after.totals;
        self.totals -= before.totals;
        self.busy_least = self.busy_least.min(self.totals.busy);
        if before.filled != after.filled {
            put(&mut self.free, worker, before.filled, after.filled);
        }
        if before.low != after.low {
            put(&mut self.low, worker, before.low.map(|(ns, _)| ns), after.low.map(|(ns, _)| ns));
        }
        if before.ahead != after.ahead {
            put(&mut self.ahead, worker, before.ahead, after.ahead);
        }
        mark(&mut self.reserved, worker, before.reserved, after.reserved);
        mark(&mut self.starved, worker, before.starved, after.starved);
    }

    // ---- what is looked for

    /// With a free slot, and the least filled: idle ones first.
    pub(super) fn least_loaded(&self) -> Option<WorkerKey> {
        let (filled, first) = *self.free.first()?;
        let Some(last) = self.turn else { return Some(first) };
        let after = (Bound::Excluded((filled, last)), Bound::Included((filled, WorkerKey::MAX)));
        Some(self.free.range(after).next().map_or(first, |(_, next)| *next))
    }

    /// It was given work.
    pub(super) fn had_its_turn(&mut self, worker: WorkerKey) {
        if let Some(last) = &mut self.turn {
            *last = worker;
        }
    }

    /// Finds the worker with the least to do of those that have run low and make progress.
    pub(super) fn lowest(&mut self, now: Instant) -> Option<WorkerKey> {
        while let Some((_, worker)) = self.low.first().copied() {
            if self.loads.get(&worker).is_some_and(|load| load.is_low(now)) {
                return Some(worker);
            }
            self.low.pop_first();
        }
        None
    }

    /// Returns the workers with work ahead, the one that has stood still longest first.
    pub(super) fn with_work_ahead(&self) -> impl Iterator<Item = (WorkerKey, &Load)> {
        self.ahead.iter().filter_map(|(_, worker)| Some((*worker, self.loads.get(worker)?)))
    }

    /// Workers whose links had no room when they were last looked at.
    pub(super) fn starved(&self) -> &BTreeSet<WorkerKey> {
        &self.starved
    }

    // ---- for suspects

    /// Returns whether one more may run: they have half of the workers at most, the odd one included.
    pub(super) fn has_room_for_suspect(&self) -> bool {
        self.totals.running_alone * 2 < self.len().max(2)
    }

    pub(super) fn has_reserved(&self) -> bool {
        !self.reserved.is_empty()
    }

    /// Keeps one worker free of other work, unless there is one.
    pub(super) fn reserve(&mut self) {
        if self.reserved().any(|(_, load)| load.may_run_suspect()) {
            return;
        }
        if let Some(worker) = self.soonest_for_suspect() {
            self.change(worker, |load| load.alone = Alone::Reserved);
        }
    }

    pub(super) fn release_reserved(&mut self) {
        for worker in self.reserved.iter().copied().collect::<Vec<_>>() {
            self.change(worker, |load| load.alone = Alone::No);
        }
    }

    fn reserved(&self) -> impl Iterator<Item = (WorkerKey, &Load)> {
        self.reserved.iter().filter_map(|worker| Some((*worker, self.loads.get(worker)?)))
    }

    /// Finds a worker for a suspect, with nothing on its link.
    pub(super) fn idle_for_suspect(&self) -> Option<WorkerKey> {
        let kept = self.reserved().find(|(_, load)| load.is_idle_for_suspect()).map(|(worker, _)| worker);
        let first = self.free.first().map(|(_, worker)| *worker);
        let free = first.filter(|worker| self.get(*worker).is_some_and(Load::is_idle_for_suspect));
        kept.into_iter().chain(free).min()
    }

    /// Finds a worker for a suspect, with the least to be waited for. A walk: asked when none is reserved.
    fn soonest_for_suspect(&self) -> Option<WorkerKey> {
        let candidates = self.loads.iter().filter(|(_, load)| load.may_run_suspect());
        candidates.min_by_key(|(_, load)| load.sent.len()).map(|(worker, _)| *worker)
    }

    // ---- for tests

    /// Panics where an order tells something else than a walk over all workers.
    pub(super) fn check(&self, now: Instant) {
        let standings = || self.loads.iter().map(|(worker, load)| (*worker, Standing::of(load)));
        let mut totals = Totals::default();
        standings().for_each(|(_, standing)| totals += standing.totals);
        assert_eq!(self.totals, totals, "sums");
        let free: BTreeSet<_> = standings().filter_map(|(worker, at)| Some((at.filled?, worker))).collect();
        assert_eq!(self.free, free, "free slots");
        let ahead: BTreeSet<_> = standings().filter_map(|(worker, at)| Some((at.ahead?, worker))).collect();
        assert_eq!(self.ahead, ahead, "work ahead");
        let reserved: BTreeSet<_> = standings().filter_map(|(worker, at)| at.reserved.then_some(worker)).collect();
        assert_eq!(self.reserved, reserved, "reserved");
        let starved: BTreeSet<_> = standings().filter_map(|(worker, at)| at.starved.then_some(worker)).collect();
        assert_eq!(self.starved, starved, "starved");
        let low: BTreeSet<_> = standings().filter_map(|(worker, at)| Some((at.low?.0, worker))).collect();
        assert!(self.low.is_subset(&low), "low: {:?} of {low:?}", self.low);
        let forgotten = low.difference(&self.low).find(|(_, worker)| self.loads[worker].is_low(now));
        assert_eq!(forgotten, None, "low, and forgotten");
        self.check_choices();
    }

    fn check_choices(&self) {
        let free = || self.loads.iter().filter(|(_, load)| load.free() > 0);
        let idle = free().find(|(_, load)| load.sent.is_empty());
        let least = idle.or_else(|| free().min_by_key(|(_, load)| load.filled()));
        let filled = |worker| self.loads.get(&worker).map(Load::filled);
        assert_eq!(self.least_loaded().and_then(filled), least.map(|(_, load)| load.filled()), "least loaded");
        if self.turn.is_none() {
            assert_eq!(self.least_loaded(), least.map(|(worker, _)| *worker), "the first of them");
        }
        let idle = self.loads.iter().find(|(_, load)| load.may_run_suspect() && load.sent.is_empty());
        assert_eq!(self.idle_for_suspect(), idle.map(|(worker, _)| *worker), "idle for a suspect");
    }
}

fn put<T: Ord>(order: &mut BTreeSet<(T, WorkerKey)>, worker: WorkerKey, before: Option<T>, after: Option<T>) {
    if let Some(before) = before {
        order.remove(&(before, worker));
    }
    if let Some(after) = after {
        order.insert((after, worker));
    }
}

fn mark(marked: &mut BTreeSet<WorkerKey>, worker: WorkerKey, before: bool, after: bool) {
    match (before, after) {
        (false, true) => drop(marked.insert(worker)),
        (true, false) => drop(marked.remove(&worker)),
        _ => {}
    }
}
