//! The workers of a pool: forked, ready, gone. When they leave, and who of them, is in `turns`; of one worker alone, in
//! `worker`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use clutch_wire::sys::{EndSignal, Fate};

use super::ends::why_it_ended;
use super::escalation::{Due, Escalation, GRACE_OVER};
use super::life::{LastWords, ProcessLife};
use super::retirement::Retirement;
use super::worker::{Stage, Standstill, Worker};
use super::zygotes::Zygotes;
use super::{Action, Leave, State, WorkerRecord};
use crate::config::PoolConfig;
use crate::pool::Ticket;
use crate::pool::state::WorkerKey;
use crate::supervisor::recycle::Recycling;

/// Forks that a zygote is told to make and has not made yet. What they need travels in its socket, descriptors with it.
pub const FORKS_MAX: usize = 64;

const STOPPED_TOO_LONG: &str = "it was stopped for longer than stopped_limit";
const OVERTAKEN: &str = "the code has changed";

/// The time, and the images that workers come from.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    pub(super) now: Instant,
    pub(super) zygotes: &'a Zygotes,
}

/// A command to replace some workers, until they are gone.
#[derive(Debug)]
pub(super) struct Recycle {
    pub(super) ticket: Ticket,
    pub(super) workers: BTreeSet<WorkerKey>,
}

/// The image that workers are forked from.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    pub(super) generation: u32,
    pub(super) slots: usize,
}

/// See the file's head.
#[derive(Debug)]
pub struct Fleet {
    pub(super) config: PoolConfig,
    pub(super) workers: BTreeMap<WorkerKey, Worker>,
    /// The last key given.
    last_key: WorkerKey,
    pub(super) recycles: Vec<Recycle>,
    restarts: u64,
    ends: BTreeMap<&'static str, u64>,
    serving_since: Option<Instant>,
}

impl Fleet {
    pub(super) fn new(config: PoolConfig) -> Fleet {
        Fleet {
            config,
            workers: BTreeMap::new(),
            last_key: 0,
            recycles: Vec::new(),
            restarts: 0,
            ends: BTreeMap::new(),
            serving_since: None,
        }
    }

    // ---- what is known of it

    pub fn workers(&self) -> &BTreeMap<WorkerKey, Worker> {
        &self.workers
    }

    pub fn ready(&self) -> usize {
        self.count(|worker| worker.state() == State::Ready)
    }

    pub fn starting(&self) -> usize {
        self.count(|worker| worker.state() == State::Starting)
    }

    /// Private memory of the workers, where it is known.
    pub fn private(&self) -> Vec<u64> {
        self.workers.values().filter_map(|worker| worker.retirement.private()).collect()
    }

    /// Returns how often a worker or a zygote was lost that nobody wanted to end.
    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Returns the number of workers that have ended, by reason.
    pub fn ends(&self) -> &BTreeMap<&'static str, u64> {
        &self.ends
    }

    /// Since when there is a worker that is ready.
    pub fn serving_since(&self) -> Option<Instant> {
        self.serving_since
    }

    /// Returns the worker that was forked last.
    pub(super) fn last_key(&self) -> WorkerKey {
        self.last_key
    }

    /// Returns whether a worker is starting that is wanted and was asked for no later than `last`.
    pub(super) fn starts(&self, last: WorkerKey, zygotes: &Zygotes) -> bool {
        let is_born = |worker: &Worker| worker.pid().is_some() || zygotes.up_now() == Some(worker.generation);
        let starts = |worker: &Worker| worker.state() == State::Starting && worker.is_wanted() && is_born(worker);
        self.workers.range(..=last).any(|(_, worker)| starts(worker))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    pub(super) fn count(&self, is: impl Fn(&Worker) -> bool) -> usize {
        self.workers.values().filter(|worker| is(worker)).count()
    }

    pub(super) fn keys(&self) -> Vec<WorkerKey> {
        self.workers.keys().copied().collect()
    }

    /// Returns the generations of the workers.
    pub(super) fn generations(&self) -> BTreeSet<u32> {
        self.workers.values().map(|worker| worker.generation).collect()
    }

    pub(super) fn generation_of(&self, key: WorkerKey) -> Option<u32> {
        self.workers.get(&key).map(|worker| worker.generation)
    }

    /// Generations whose zygotes alone can tell of what is left.
    pub(super) fn waits_for(&self) -> BTreeSet<u32> {
        let waits = self.workers.values().filter(|worker| worker.process.needs_zygote());
        waits.map(|worker| worker.generation).collect()
    }

    /// Why an image is given up that has not loaded in time.
    pub(super) fn load_overdue(&self) -> String {
        self.config.start_overdue("loading")
    }

    pub(super) fn start_timeout(&self) -> Duration {
        self.config.start_timeout()
    }

    /// Returns how long workers have to end in order, and after TERM.
    pub(super) fn graces(&self) -> (Duration, Duration) {
        (self.config.grace(), self.config.term_grace())
    }

    fn stopped_limit(&self) -> Duration {
        Duration::from_millis(self.config.stopped_limit_ms)
    }

    // ---- what workers and their zygotes say

    /// Returns whether the worker has said before that it is ready.
    pub(super) fn forked(&mut self, key: WorkerKey, pid: i32, watched: bool, now: Instant) -> bool {
        self.workers.get_mut(&key).is_some_and(|worker| worker.forked(pid, watched, now))
    }

    /// Returns whether the worker serves from now on.
    pub(super) fn worker_ready(&mut self, key: WorkerKey, at: Scene<'_>, out: &mut Vec<Action>) -> bool {
        let Some(worker) = self.workers.get_mut(&key) else { return false };
        let Some(replaced) = worker.serve() else {
            // Told to end while it started, it went on: there is nothing more to start.
            out.extend(worker.ends_after_start().then_some(Action::End { worker: key }));
            return false;
        };
        out.push(Action::Admit { worker: key, calls: worker.retirement.calls() });
        if let Some((old, why)) = replaced.and_then(|old| Some((old, self.workers.get(&old)?.retirement.why()?))) {
            self.drain(old, why, at, out);
        }
        true
    }

    pub(super) fn start_failed(&mut self, key: WorkerKey, reason: String) {
        self.with(key, |worker| worker.last_words = LastWords::Reason(reason));
    }

    pub(super) fn last_output(&mut self, key: WorkerKey, text: String) {
        self.with(key, |worker| worker.last_words.note_output(text));
    }

    pub(super) fn died(&mut self, key: WorkerKey, now: Instant) {
        self.with(key, |worker| worker.process.die(now));
    }

    /// A worker that broke its link and lives on is of no use.
    pub(super) fn link_ended(&mut self, key: WorkerKey, reason: Option<String>, now: Instant, out: &mut Vec<Action>) {
        let Some(worker) = self.workers.get_mut(&key) else { return };
        worker.process.unlink(now);
        worker.last_words.note_broken(reason);
        out.push(Action::Kill { worker: key, signal: EndSignal::Kill });
    }

    /// `since`: when a signal stopped the worker; none: it goes on.
    pub(super) fn stopped(&mut self, key: WorkerKey, since: Option<Instant>, out: &mut Vec<Action>) {
        self.with(key, |worker| worker.stopped(since, out));
    }

    pub(super) fn debug(&mut self, key: WorkerKey, on: bool, now: Instant, out: &mut Vec<Action>) {
        let grace = self.config.grace();
        self.with(key, |worker| worker.debug(on, grace, now, out));
    }

    /// Work in it was told to stop and has not. Alone it is ended at once; neighbours have the grace.
    pub(super) fn stuck(&mut self, key: WorkerKey, cause: String, now: Instant, out: &mut Vec<Action>) {
        let by = now + self.config.grace();
        if self.workers.get_mut(&key).is_some_and(|worker| worker.note_stuck(cause, by)) {
            self.terminate(key, GRACE_OVER, now, out);
        }
    }

    /// The pool says that nothing is left in it; `stuck`: but what will not stop. `end_by`: when it is told with TERM
    /// unless it has ended in order.
    pub(super) fn drained(
        &mut self,
        key: WorkerKey,
        stuck: bool,
        end_by: Instant,
        at: Scene<'_>,
        out: &mut Vec<Action>,
    ) {
        let Some(worker) = self.workers.get_mut(&key) else { return };
        match worker.state() {
            // Its calls are used up before its replacement is ready; the pool says once more that nothing is left.
            State::Ready => {
                let why = worker.retirement.why().unwrap_or(Leave::Calls);
                self.leave(key, why, at, out);
                self.drain(key, why, at, out);
            }
            State::Draining if stuck => self.terminate(key, GRACE_OVER, at.now, out),
            State::Draining => {
                if !worker.escalation.is_spared() {
                    worker.escalation.end_by(end_by);
                }
                out.push(Action::End { worker: key });
            }
            // A handler of its own may have heard TERM without waking what waits for work, or not end the process.
            State::Killed if worker.escalation.is_termed() => out.push(Action::End { worker: key }),
            State::Starting | State::Killed => {}
        }
    }

    /// The worker has ended. Returns what it was; `fate` none: nobody could tell how.
    pub(super) fn gone(
        &mut self,
        key: WorkerKey,
        fate: Option<Fate>,
        at: Scene<'_>,
        out: &mut Vec<Action>,
    ) -> Option<Worker> {
        let worker = self.remove(key, fate, at, out)?;
        *self.ends.entry(why_it_ended(&worker, fate)).or_default() += 1;
        if worker.state() == State::Ready || (worker.state() == State::Killed && !worker.is_out()) {
            self.restarts += 1;
        }
        Some(worker)
    }

    /// A zygote that had workers has ended by itself.
    pub(super) fn note_restart(&mut self) {
        self.restarts += 1;
    }

    /// Workers that a lost zygote was told to fork and had not.
    pub(super) fn forget_unborn(&mut self, generation: u32, at: Scene<'_>, out: &mut Vec<Action>) {
        let unborn = |worker: &Worker| worker.generation == generation && worker.pid().is_none();
        for key in self.keys() {
            if self.workers.get(&key).is_some_and(unborn) {
                self.remove(key, None, at, out);
            }
        }
    }

    fn remove(&mut self, key: WorkerKey, fate: Option<Fate>, at: Scene<'_>, out: &mut Vec<Action>) -> Option<Worker> {
        let worker = self.workers.remove(&key)?;
        let record = WorkerRecord {
            nr: worker.nr,
            generation: worker.generation,
            pid: worker.pid().unwrap_or(0),
            said: worker.last_words.reason().map(str::to_owned),
            cause: worker.cause().map(str::to_owned),
            untold: fate.is_none() && worker.pid().is_some() && at.zygotes.tells(worker.generation),
            served: worker.has_served(),
            left: worker.left(),
        };
        out.push(Action::Gone { worker: key, fate, record: Box::new(record) });
        Some(worker)
    }

    // ---- what time brings

    /// Does what is due of one worker. Returns the generation of a zygote that has not forked it in time.
    pub(super) fn keep_time(&mut self, key: WorkerKey, at: Scene<'_>, out: &mut Vec<Action>) -> Option<u32> {
        let now = at.now;
        let (limit, stopped_limit, term_grace) = (self.start_timeout(), self.stopped_limit(), self.config.term_grace());
        let worker = self.workers.get_mut(&key)?;
        let start_due = due_of(worker, at, limit);
        if worker.standstill.stopped_since.take_if(|since| now >= *since + stopped_limit).is_some() {
            worker.kill(STOPPED_TOO_LONG, now, out);
        }
        if start_due.is_some_and(|due| now >= due) {
            out.push(Action::ShowWorker { worker: key });
            worker.kill(&self.config.start_overdue("the start"), now, out);
            return worker.pid().is_none().then_some(worker.generation);
        }
        match worker.escalation.due(now, worker.standstill.debugged) {
            Some(Due::Term(cause)) => worker.terminate(cause, term_grace, now, out),
            Some(Due::Kill(cause)) => worker.kill(cause, now, out),
            None => {}
        }
        None
    }

    /// Returns whether the worker is gone for us without a word of its zygote's.
    pub(super) fn is_over(&self, key: WorkerKey, at: Scene<'_>) -> bool {
        self.workers.get(&key).and_then(|worker| over_at(worker, at)).is_some_and(|over| over <= at.now)
    }

    pub(super) fn note_serving(&mut self, now: Instant) {
        self.serving_since = if self.ready() > 0 { self.serving_since.or(Some(now)) } else { None };
    }

    pub(super) fn next_wake(&self, at: Scene<'_>) -> Option<Instant> {
        let (limit, stopped_limit) = (self.start_timeout(), self.stopped_limit());
        let wakes = self.workers.values().flat_map(|worker| {
            let start = due_of(worker, at, limit);
            let stopped = worker.standstill.stopped_since.map(|since| since + stopped_limit);
            // One that is too old already waits for its turn.
            let age = worker.retirement.next_wake(at.now).filter(|_| worker.stays());
            [start, stopped, over_at(worker, at), age, worker.escalation.next_wake(worker.standstill.debugged)]
        });
        wakes.flatten().min()
    }

    // ---- what is done with one worker

    pub(super) fn with(&mut self, key: WorkerKey, change: impl FnOnce(&mut Worker)) {
        if let Some(worker) = self.workers.get_mut(&key) {
            change(worker);
        }
    }

    /// Drains a worker. If its image is to be replaced, it has the grace for what it runs.
    pub(super) fn drain(&mut self, key: WorkerKey, why: Leave, at: Scene<'_>, out: &mut Vec<Action>) {
        let by = at.now + self.config.grace();
        self.with(key, |worker| {
            let end_by = at.zygotes.is_outdated(worker.generation).then_some(by);
            worker.drain(why, end_by, out);
        });
    }

    pub(super) fn terminate(&mut self, key: WorkerKey, cause: &str, now: Instant, out: &mut Vec<Action>) {
        let term_grace = self.config.term_grace();
        self.with(key, |worker| worker.terminate(cause, term_grace, now, out));
    }

    // ---- what is done with all of them

    /// The old code gets no more work, while it may end in order what it has.
    pub(super) fn leave_at_once(&mut self, now: Instant, out: &mut Vec<Action>) {
        let limit = now + self.config.grace();
        for worker in self.workers.values_mut() {
            worker.retirement.leave_now_for(Leave::Reload);
            match worker.state() {
                State::Ready => worker.drain(Leave::Reload, Some(limit), out),
                State::Starting => worker.terminate(OVERTAKEN, self.config.grace(), now, out),
                State::Draining => worker.escalation.end_by(limit),
                State::Killed => {}
            }
        }
    }

    /// Other code takes over: what drains already has the grace from now on.
    pub(super) fn hurry_draining(&mut self, now: Instant) {
        let limit = now + self.config.grace();
        let draining = self.workers.values_mut().filter(|worker| worker.state() == State::Draining);
        draining.for_each(|worker| worker.escalation.end_by(limit));
    }

    /// The pool stops: nobody gets work any more, and nobody starts. What is being started may end in order until `limit`:
    /// the lifespan of an app is not to be cut off in the middle.
    pub(super) fn quiet(&mut self, cause: &str, limit: Instant, at: Scene<'_>, out: &mut Vec<Action>) {
        for key in self.keys() {
            let Some(worker) = self.workers.get_mut(&key) else { continue };
            match worker.state() {
                // The stop has limits of its own.
                State::Ready => worker.drain(Leave::Stopped, None, out),
                State::Starting if worker.escalation.is_termed() && worker.escalation.is_spared() => {}
                State::Starting if worker.escalation.is_spared() => {
                    out.push(Action::Kill { worker: key, signal: EndSignal::Term });
                }
                State::Starting => worker.terminate(cause, limit.saturating_duration_since(at.now), at.now, out),
                State::Draining | State::Killed => {}
            }
        }
    }

    /// A stop without a grace cuts off what runs; `idle` run nothing, or start, and end in order until `limit`. A later
    /// one may call them off.
    pub(super) fn spare_idle(&mut self, idle: &[WorkerKey], limit: Instant) {
        for (key, worker) in &mut self.workers {
            let lives = worker.state() != State::Killed && worker.pid().is_some();
            let heeds = lives && !worker.is_stopped() && !worker.escalation.is_stuck();
            worker.escalation.spare_until((heeds && idle.contains(key)).then_some(limit));
        }
    }

    /// TERM to all but those that may end in order.
    pub(super) fn terminate_all(&mut self, cause: &str, now: Instant, out: &mut Vec<Action>) {
        let term_grace = self.config.term_grace();
        let left = self.workers.values_mut().filter(|worker| !worker.escalation.is_spared());
        let left = left.filter(|worker| worker.state() != State::Killed);
        left.for_each(|worker| worker.terminate(cause, term_grace, now, out));
    }

    /// KILL to all but those that may end in order. Returns whether it was to all.
    pub(super) fn kill_all(&mut self, cause: &str, now: Instant, out: &mut Vec<Action>) -> bool {
        let left = self.workers.values_mut().filter(|worker| !worker.escalation.is_spared());
        left.for_each(|worker| worker.kill(cause, now, out));
        self.count(|worker| worker.escalation.is_spared()) == 0
    }

    // ---- what is missing

    /// Has as many forked as are missing, and as a zygote may have to fork at a time.
    pub(super) fn fork_missing(&mut self, target: usize, origin: Origin, now: Instant, out: &mut Vec<Action>) {
        let under_way = self.count(|worker| worker.pid().is_none());
        let missing = target.saturating_sub(self.live()).min(FORKS_MAX.saturating_sub(under_way));
        if missing == 0 {
            return;
        }
        let used = self.used_nrs();
        let mut free = (0..).filter(|nr| !used.contains(nr));
        let mut old = self.unreplaced().into_iter();
        for _ in 0..missing {
            let replaces = old.next();
            let its = replaces.and_then(|key| self.workers.get(&key)).map(|worker| worker.nr);
            let nr = its.or_else(|| free.next()).unwrap_or(0);
            self.fork(nr, origin, replaces, now, out);
        }
    }

    pub(super) fn live(&self) -> usize {
        self.count(Worker::is_live)
    }

    /// Also that of one that serves until it is replaced: it may have to stay.
    fn used_nrs(&self) -> BTreeSet<u32> {
        let serves = |worker: &&Worker| worker.is_live() || worker.state() == State::Ready;
        self.workers.values().filter(serves).map(|worker| worker.nr).collect()
    }

    fn fork(&mut self, nr: u32, origin: Origin, replaces: Option<WorkerKey>, now: Instant, out: &mut Vec<Action>) {
        self.last_key += 1;
        let (key, Origin { generation, slots }) = (self.last_key, origin);
        // A fixed sequence spreads the thresholds evenly (multiples of the golden ratio).
        let draw = (f64::from(key) * 0.618_033_988_75).fract();
        let worker = Worker {
            key,
            nr,
            generation,
            slots,
            stage: Stage::Starting { since: now, replaces },
            process: ProcessLife::default(),
            last_words: LastWords::default(),
            standstill: Standstill::default(),
            retirement: Retirement::new(Recycling::draw(&self.config, now, draw)),
            escalation: Escalation::default(),
        };
        self.workers.insert(key, worker);
        out.push(Action::Fork { worker: key, nr, generation });
    }
}

/// When the start of a worker has taken too long. One that was killed has its limit always, one that was told to end has
/// another.
fn due_of(worker: &Worker, at: Scene<'_>, limit: Duration) -> Option<Instant> {
    let due = worker.start_due(at.zygotes.answered_at(worker.generation), limit);
    let is_limited = at.zygotes.start_limit().is_some() || worker.cause().is_some();
    due.filter(|_| is_limited && !worker.escalation.is_termed())
}

fn over_at(worker: &Worker, at: Scene<'_>) -> Option<Instant> {
    worker.process.over_at(at.zygotes.tells(worker.generation))
}

#[cfg(test)]
mod tests;
