//! The pool's decisions as a pure machine: events in, actions out; no I/O, no clock, no wait.
//!
//! Owns which work waits, which was sent to whom and which slot is free. Promises: each submission is answered exactly
//! once; of what it was sent a worker never has more begun than it has slots; nothing past its deadline is sent; the queue
//! keeps its bound; no slot stays idle while work waits. `T` is what the driver keeps with each piece of work.

use std::time::{Duration, Instant};

mod ends;
mod fetching;
mod intake;
mod line;
mod load;
mod own_work;
mod quarantine;
pub mod queue;
mod run_times;
mod sending;
mod sent;
mod slots;
mod submissions;

use self::ends::CutAll;
use self::fetching::Fetching;
pub use self::fetching::{FETCHED_AHEAD, FETCHED_AHEAD_ALL_MAX, FETCHED_AHEAD_MAX, Places};
use self::intake::Intake;
use self::line::WaitingLine;
use self::load::Load;
pub use self::load::{AHEAD, AHEAD_MAX, STALLED};
pub use self::load::{Hold, WorkerKey};
pub use self::own_work::Begun;
use self::run_times::RunTimes;
use self::slots::{Slots, Totals};
pub use self::submissions::StopCause;
use self::submissions::{Place, Stopping, Submission, Submissions};
use crate::work::{FetcherKey, FunctionId, Where, WorkId};

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest waiting line; none: no limit.
    pub queue: Option<usize>,
    /// Full: submitters wait for room instead of being refused.
    pub block: bool,
    /// Work that so many workers have died of is not tried again.
    pub deaths_max: u32,
    /// Of workers that have equally much to do the next one gets work, not the first: so all of them are soon used.
    pub takes_turns: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { queue: None, block: false, deaths_max: 3, takes_turns: false }
    }
}

/// A submission, as far as the machine needs to know it.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub function: FunctionId,
    pub priority: i8,
    pub deadline: Option<Instant>,
    /// Waits for room whatever the pool's overflow says.
    pub block: bool,
    /// Number of times that the work may run again when its worker dies: declared idempotent by its submitter.
    pub retry: u32,
    /// Ends only when somebody else ends it: it gets a free slot and is never sent ahead.
    pub endless: bool,
    /// Calls that it counts as, where a worker may get so many: a mapped batch counts as its items.
    pub calls: u64,
    /// Fetched under a permit of this one, which it uses up.
    pub fetcher: Option<FetcherKey>,
}

/// Why a piece of work is answered without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Overloaded,
    Draining,
    Closed,
    Failing,
    Expired(Where),
    Cancelled,
    Lost(WorkerKey),
    /// Lost with its worker, too, but once too often.
    Poisoned {
        worker: WorkerKey,
        deaths: u32,
    },
}

/// Actions for the driver, in this order.
#[derive(Debug)]
pub enum Action<T> {
    /// Put its frame on the worker's link. The body stays with the machine: see [`Machine::body`].
    Send { worker: WorkerKey, id: WorkId },
    /// Try to claim its word back, and report [`Event::Taken`].
    Take { worker: WorkerKey, id: WorkId },
    /// Tell the submitter. `since`: when it was submitted.
    Answer { id: WorkId, verdict: Verdict, body: T, since: Instant },
    /// The work has a place in the queue.
    Admitted { id: WorkId },
    /// Running work is past its deadline.
    Overdue { worker: WorkerKey, id: WorkId },
    /// Work that has begun, and nobody waits for it any more.
    Abandon { worker: WorkerKey, id: WorkId },
    /// Endless work was told that its worker is to end, and has not ended.
    CutOff { worker: WorkerKey, id: WorkId },
    /// The same for what the worker has taken by itself, and this does not know.
    CutRest { worker: WorkerKey },
    /// Work was told to stop, and has not.
    Stuck { worker: WorkerKey, id: WorkId, cause: StopCause },
    /// The worker has had most of the calls it may have: prepare its replacement.
    Worn { worker: WorkerKey },
    /// The worker, told to take no more, has nothing left; `stuck`: but what will not stop.
    Drained { worker: WorkerKey, stuck: bool },
    /// The closed pool has nothing left.
    Empty,
}

#[derive(Debug)]
pub enum Event {
    Taken {
        worker: WorkerKey,
        id: WorkId,
        taken: bool,
    },
    /// Everything that has not begun.
    CancelWaiting,
    /// Nobody waits for it any more, wherever it is.
    Abandon {
        id: WorkId,
    },
    WorkerReady {
        worker: WorkerKey,
        slots: usize,
        words: usize,
        calls_max: Option<u64>,
    },
    /// The worker gets nothing for this reason; unless it is [`Hold::Starved`], it gives back what has not begun.
    Hold {
        worker: WorkerKey,
        why: Hold,
    },
    /// This reason is over: it gets work again when no other is left.
    Release {
        worker: WorkerKey,
        why: Hold,
    },
    /// Gets nothing any more.
    WorkerDraining {
        worker: WorkerKey,
    },
    /// Endless work there goes on until then.
    EndEndless {
        worker: WorkerKey,
        by: Instant,
    },
    /// `begun`: what had started in it. `ended`: by Clutch itself, not by its work.
    WorkerGone {
        worker: WorkerKey,
        begun: Vec<WorkId>,
        ended: bool,
    },
    /// The worker has ended calls that it had taken by itself.
    Served {
        worker: WorkerKey,
        calls: u64,
        /// In all of them together.
        run: Duration,
    },
    /// No submissions for the time being.
    Quiet {
        quiet: bool,
    },
    /// No more submissions.
    Close,
    /// No worker can start: what waits is answered.
    Failing,
    Recovered,
}

/// Totals of what workers have answered so far.
#[derive(Debug, Default)]
struct Finished {
    count: u64,
    run_ns: u64,
    /// Time that the work had waited before it was sent; of a batch, each of its items.
    queued: Duration,
    /// Work that was cancelled, or whose deadline passed, before it was sent.
    gave_up: u64,
}

impl Finished {
    fn note(&mut self, run_ns: u64, queued: Duration) {
        self.count += 1;
        self.run_ns = self.run_ns.saturating_add(run_ns);
        self.queued = self.queued.saturating_add(queued);
    }

    /// Counts calls that have not waited.
    fn note_served(&mut self, calls: u64, run: Duration) {
        let run_ns = u64::try_from(run.as_nanos()).unwrap_or(u64::MAX);
        self.count = self.count.saturating_add(calls);
        self.run_ns = self.run_ns.saturating_add(run_ns);
    }
}

/// The pure machine. See the file's head.
#[derive(Debug)]
pub struct Machine<T> {
    limits: Limits,
    submissions: Submissions<T>,
    line: WaitingLine,
    slots: Slots,
    run_times: RunTimes,
    finished: Finished,
    fetching: Fetching,
    intake: Intake,
    /// A debugger is open: the time of nothing is measured.
    untimed: bool,
    /// When a worker was last replaced because its work was past its deadline again and again.
    replaced_at: Option<Instant>,
    cut: CutAll,
}

/// Counts for stats and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub queued: usize,
    /// Submissions that wait for room in the queue.
    pub blocked: usize,
    pub sent: usize,
    pub workers: usize,
    pub slots: usize,
}

/// The pool's load, by which the number of workers is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// In the queue, or for room in it. Of what fetchers have not fetched yet the number is not known: as many more as there
    /// are slots.
    pub waiting: usize,
    /// When the oldest of them was submitted, or since when fetchers could have fetched more.
    pub waits_since: Option<Instant>,
    /// Slots that run something; and the fewest that did since the last [`Machine::begin_window`].
    pub busy: usize,
    pub busy_least: usize,
    /// Work that workers have answered so far, and how long that ran.
    pub finished: u64,
    pub run_ns: u64,
}

impl<T> Machine<T> {
    pub fn new(limits: Limits) -> Machine<T> {
        Machine {
            limits,
            submissions: Submissions::default(),
            line: WaitingLine::new(limits.queue),
            slots: Slots::new(limits.takes_turns),
            run_times: RunTimes::default(),
            finished: Finished::default(),
            fetching: Fetching::default(),
            intake: Intake::default(),
            untimed: false,
            replaced_at: None,
            cut: CutAll::default(),
        }
    }

    // ---- what the driver asks

    pub fn body(&self, id: WorkId) -> Option<&T> {
        self.submissions.get(id).and_then(|work| work.body.as_ref())
    }

    pub fn body_mut(&mut self, id: WorkId) -> Option<&mut T> {
        self.submissions.get_mut(id).and_then(|work| work.body.as_mut())
    }

    /// Part of its answer is out: to run it again would tell that part twice.
    pub fn told_part(&mut self, id: WorkId) {
        if let Some(work) = self.submissions.get_mut(id) {
            work.request.retry = 0;
        }
    }

    /// The body of what is being sent, and how long it has waited.
    pub fn sending(&mut self, id: WorkId) -> Option<(&mut T, Duration)> {
        self.submissions.get_mut(id).and_then(|work| work.body.as_mut().map(|body| (body, work.queued)))
    }

    /// Returns the total time that answered work had waited before it was sent to workers.
    pub fn queued_total(&self) -> Duration {
        self.finished.queued
    }

    /// Returns how much work was cancelled, or past its deadline, while it waited.
    pub fn gave_up(&self) -> u64 {
        self.finished.gave_up
    }

    pub fn request(&self, id: WorkId) -> Option<Request> {
        self.submissions.get(id).map(|work| work.request)
    }

    pub fn counts(&self) -> Counts {
        let (Totals { sent, slots, .. }, workers) = (self.slots.totals(), self.slots.len());
        Counts { queued: self.line.len(), blocked: self.line.blocked(), sent, workers, slots }
    }

    pub fn has_waiting(&self) -> bool {
        !self.line.is_empty()
    }

    /// When the oldest that waits was submitted, or since when fetchers could have fetched more.
    pub fn waits_since(&mut self) -> Option<Instant> {
        self.line.since(&self.submissions).into_iter().chain(self.fetching.backlog_since()).min()
    }

    // ---- for who fetches work

    pub fn open_fetcher(&mut self) -> FetcherKey {
        self.fetching.open()
    }

    /// The permits that it has are given back.
    pub fn close_fetcher(&mut self, fetcher: FetcherKey) {
        self.fetching.close(fetcher);
    }

    pub fn places(&self, fetcher: FetcherKey) -> Places {
        self.fetching.places(fetcher, self.slots.totals().slots)
    }

    /// Permits to fetch at most so many: as many as could begin now, or wait ahead if they are short.
    pub fn permit(&mut self, fetcher: FetcherKey, most: usize) -> usize {
        let Totals { free, ahead, .. } = self.slots.totals();
        let places = self.places(fetcher);
        let waiting = ahead + self.line.len() + self.line.blocked();
        self.fetching.take(fetcher, most, (free + places.slots * places.ahead).saturating_sub(waiting))
    }

    pub fn give_way(&mut self, fetcher: FetcherKey) {
        self.fetching.give_way(fetcher);
    }

    pub fn give_back_permits(&mut self, fetcher: FetcherKey, permits: usize) {
        self.fetching.give_back(fetcher, permits);
    }

    /// Says since when there is more to be fetched than can begin; none: there is not.
    pub fn set_backlog(&mut self, fetcher: FetcherKey, since: Option<Instant>) {
        self.fetching.set_backlog(fetcher, since);
    }

    /// Whether fetchers that were short of permits are to be told that there is room.
    pub fn tells_room(&mut self) -> bool {
        let waiting = self.line.len() + self.line.blocked();
        self.fetching.tells_room(self.slots.totals().free.saturating_sub(waiting))
    }

    pub fn demand(&mut self) -> Demand {
        let unfetched = self.fetching.backlog_since().map_or(0, |_| self.slots.totals().slots.max(1));
        Demand {
            waiting: self.line.queued() + self.line.blocked() + unfetched,
            waits_since: self.waits_since(),
            busy: self.slots.totals().busy,
            busy_least: self.slots.busy_least(),
            finished: self.finished.count,
            run_ns: self.finished.run_ns,
        }
    }

    /// From now on [`Demand::busy_least`] is counted anew.
    pub fn begin_window(&mut self) {
        self.slots.begin_window();
    }

    /// (work on its link, calls so far) of one worker.
    pub fn worker(&self, worker: WorkerKey) -> Option<(usize, u64)> {
        self.slots.get(worker).map(|load| (load.sent.len(), load.calls()))
    }

    /// When work was submitted.
    pub fn since(&self, id: WorkId) -> Option<Instant> {
        self.submissions.get(id).map(|work| work.since)
    }

    /// When work was sent to its worker or, where that runs one at a time, when it could begin.
    pub fn sent_at(&self, id: WorkId, worker: WorkerKey) -> Option<Instant> {
        let (work, load) = (self.submissions.get(id)?, self.slots.get(worker)?);
        let sent = work.since + work.queued;
        Some(if work.adopted { sent } else { load.could_begin(sent) })
    }

    /// Whether a worker has died of it, or may have.
    pub fn was_fatal(&self, id: WorkId) -> bool {
        self.submissions.get(id).is_some_and(|work| work.deaths > 0)
    }

    /// The worker whose link it is on.
    pub fn worker_of(&self, id: WorkId) -> Option<WorkerKey> {
        self.submissions.get(id).and_then(|work| work.place.worker())
    }

    pub fn sent(&self, worker: WorkerKey) -> impl Iterator<Item = WorkId> + '_ {
        self.slots.get(worker).into_iter().flat_map(|load| load.sent.iter())
    }

    /// Whether a worker that takes work could begin some now.
    pub fn has_free_slot(&self) -> bool {
        self.slots.totals().free > 0
    }

    /// Whether the worker has nothing to do that ends by itself.
    pub fn has_only_endless(&self, worker: WorkerKey) -> bool {
        self.sent(worker).all(|id| self.submissions.get(id).is_some_and(|work| work.request.endless))
    }

    /// Workers that are held because there was no room to send them more.
    pub fn starved(&self) -> Vec<WorkerKey> {
        self.slots.starved().iter().copied().collect()
    }

    pub fn is_starved(&self, worker: WorkerKey) -> bool {
        self.slots.starved().contains(&worker)
    }

    pub fn is_closed(&self) -> bool {
        self.intake.is_closed()
    }

    /// Nothing is left, and of a closed machine: it has said so, after all other actions.
    pub fn is_empty(&self) -> bool {
        self.submissions.is_empty() && !self.intake.is_ending()
    }

    /// The earliest instant at which [`Machine::tick`] has something to do.
    pub fn next_deadline(&mut self) -> Option<Instant> {
        self.submissions.next_due().into_iter().chain(self.cut.next()).min()
    }

    /// For tests: panics where an index of the workers tells something else than a walk over all of them.
    pub fn check_indexes(&self, now: Instant) {
        self.slots.check(now);
    }

    // ---- events

    /// Takes one submission. The answer, if there is one already, is among the actions.
    pub fn submit(&mut self, request: Request, body: T, now: Instant, out: &mut Vec<Action<T>>) -> WorkId {
        let id = self.insert(request, body, now);
        let request = self.submissions[id].request;
        let full = self.slots.totals().free == 0 && self.line.is_full();
        if let Some(verdict) = self.intake.refusal() {
            self.answer(id, verdict, out);
        } else if request.deadline.is_some_and(|deadline| deadline <= now) {
            self.answer(id, Verdict::Expired(Where::Queue), out);
        } else if full && !(self.limits.block || request.block) {
            self.answer(id, Verdict::Overloaded, out);
        } else {
            self.admit(id, full, out);
        }
        id
    }

    fn insert(&mut self, request: Request, body: T, since: Instant) -> WorkId {
        let deadline = request.deadline.filter(|_| !self.untimed);
        request.fetcher.into_iter().for_each(|fetcher| self.fetching.give_back(fetcher, 1));
        self.submissions.insert(Request { deadline, ..request }, body, since, self.untimed)
    }

    fn admit(&mut self, id: WorkId, full: bool, out: &mut Vec<Action<T>>) {
        let work = &mut self.submissions[id];
        let Request { deadline, block, .. } = work.request;
        if full {
            self.line.block(work);
        } else {
            self.line.push(work);
            if self.limits.block || block {
                out.push(Action::Admitted { id });
            }
        }
        if let Some(deadline) = deadline {
            self.submissions.await_instant(deadline, id);
        }
    }

    /// An answer came from the worker. Returns the body, or none when it was answered before (a late reply).
    pub fn finished(&mut self, worker: WorkerKey, id: WorkId, run_ns: u64, now: Instant) -> Option<T> {
        let work = self.submissions.get(id)?;
        if work.place.worker() != Some(worker) {
            return None;
        }
        let Request { function, endless, calls, fetcher, .. } = work.request;
        let queued = work.queued.saturating_mul(u32::try_from(calls).unwrap_or(u32::MAX));
        // How long it went on says nothing of the next one.
        if !(endless || work.adopted) {
            self.run_times.learn(function, run_ns);
        }
        fetcher.into_iter().for_each(|fetcher| self.fetching.learn(fetcher, run_ns));
        self.finished.note(run_ns, queued);
        self.unload(worker, id, Some(now));
        self.submissions.remove(id).body
    }

    /// Everything else that happens.
    pub fn on(&mut self, event: Event, now: Instant, out: &mut Vec<Action<T>>) {
        match event {
            Event::Taken { worker, id, taken } => self.taken(worker, id, taken, out),
            Event::CancelWaiting => self.answer_waiting(Verdict::Cancelled, out),
            Event::Abandon { id } => self.abandon(id, out),
            Event::WorkerReady { worker, slots, words, calls_max } => {
                self.slots.insert(worker, Load::new(slots, words, calls_max, now));
                self.intake.set_failing(false);
            }
            Event::Hold { worker, why } => self.hold(worker, why, out),
            Event::Release { worker, why } => self.release(worker, why),
            Event::WorkerDraining { worker } => self.drain(worker, out),
            Event::EndEndless { worker, by } => self.end_endless(worker, by),
            Event::WorkerGone { worker, begun, ended } => self.gone(worker, &begun, ended, out),
            Event::Served { worker, calls, run } => self.served(worker, calls, run, out),
            Event::Quiet { quiet } => self.intake.set_quiet(quiet),
            Event::Close => self.intake.close(),
            Event::Failing => self.fail(out),
            Event::Recovered => self.intake.set_failing(false),
        }
    }

    /// Deals with deadlines that have passed.
    pub fn tick(&mut self, now: Instant, out: &mut Vec<Action<T>>) {
        while let Some(id) = self.submissions.pop_due(now) {
            self.expire(id, out);
        }
        if self.cut.is_due(now) {
            out.extend(self.slots.workers().map(|worker| Action::CutRest { worker }));
        }
    }

    /// Sends what can be sent, after any number of events. Call it until it adds no action.
    pub fn settle(&mut self, now: Instant, out: &mut Vec<Action<T>>) {
        if !self.has_waiting() && self.slots.totals().ahead == 0 && !self.is_closed() && !self.slots.has_reserved() {
            return;
        }
        self.admit_blocked(out);
        if self.line.first_suspect().is_some() || self.slots.has_reserved() {
            self.send_suspects(now, out);
        }
        while let Some(worker) = self.slots.least_loaded() {
            let Some(id) = self.next_queued(now, out) else { break };
            self.send(worker, id, now, out);
            self.admit_blocked(out);
        }
        if self.line.queued() > 0 {
            self.send_ahead(now, out);
        }
        if self.slots.totals().ahead > 0 {
            self.take_back(now, out);
        }
        if self.submissions.is_empty() && self.intake.end() {
            out.push(Action::Empty);
        }
    }

    fn admit_blocked(&mut self, out: &mut Vec<Action<T>>) {
        while let Some(id) = self.line.let_in(&mut self.submissions) {
            out.push(Action::Admitted { id });
        }
    }

    fn answer(&mut self, id: WorkId, verdict: Verdict, out: &mut Vec<Action<T>>) {
        let Submission { since, body, .. } = self.submissions.remove(id);
        if let Some(body) = body {
            out.push(Action::Answer { id, verdict, body, since });
        }
    }
}
