//! The lives of workers: forked, ready, gone; starts that fail; starting what is missing.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use clutch_wire::sys::Fate;

use super::escalation::Escalation;
use super::retirement::Retirement;
use super::{Action, Leave, State, Supervisor, Worker, fate_text};
use crate::pool::state::WorkerKey;
use crate::supervisor::recycle::Recycling;

/// First wait after a start that failed; doubled each time.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
/// Longest wait between attempts to start.
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// Workers (or zygotes) that die before they are ready, without saying why, before the pool is called failing.
pub(super) const SILENT_DEATHS: u32 = 3;
/// Forks that a zygote is told to make and has not made yet. What they need travels in its socket, descriptors with it.
pub const FORKS_MAX: usize = 64;

/// Why no worker can be had.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) reason: String,
    /// It is what the pool is told to run, or by what, that cannot be loaded.
    pub(super) by_code: bool,
}

impl Supervisor {
    // ---- starts that fail

    /// No worker of this generation can be had: the image before takes over again, or nothing does.
    pub(super) fn cannot_start(&mut self, generation: u32, trouble: Trouble, now: Instant, out: &mut Vec<Action>) {
        if self.config.development {
            return self.stay_broken(generation, trouble, now, out);
        }
        let rolled = self.roll.as_ref().is_some_and(|roll| generation >= roll.generation);
        if !(rolled && self.roll_back(&trouble.reason, now, out)) {
            self.fail(trouble, now, out);
        }
    }

    pub(super) fn fail(&mut self, trouble: Trouble, now: Instant, out: &mut Vec<Action>) {
        self.back_off(now);
        self.fail_recycles(&trouble.reason, now, out);
        if self.ready() == 0 && self.stopping.is_none() {
            self.say_failing(trouble, out);
        }
    }

    fn say_failing(&mut self, trouble: Trouble, out: &mut Vec<Action>) {
        self.failing = Some(trouble.reason.clone());
        out.push(Action::Failing { reason: trouble.reason, by_code: trouble.by_code });
    }

    pub(super) fn back_off(&mut self, now: Instant) {
        let wait = BACKOFF_FIRST * 2u32.saturating_pow(self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(now + wait.min(BACKOFF_MAX));
    }

    // ---- workers

    pub(super) fn forked(&mut self, key: WorkerKey, pid: i32, watched: bool, now: Instant, out: &mut Vec<Action>) {
        let Some(worker) = self.workers.get_mut(&key) else { return };
        (worker.pid, worker.watched, worker.since) = (Some(pid), watched, now);
        let (generation, greeted) = (worker.generation, worker.greeted);
        self.zygote_answered(generation, now);
        if greeted {
            self.worker_ready(key, now, out);
        }
    }

    pub(super) fn fork_failed(&mut self, key: WorkerKey, reason: String, now: Instant, out: &mut Vec<Action>) {
        if let Some(generation) = self.workers.get(&key).map(|worker| worker.generation) {
            self.zygote_answered(generation, now);
        }
        self.start_failed(key, reason);
        self.gone(key, None, now, out);
    }

    pub(super) fn worker_ready(&mut self, key: WorkerKey, now: Instant, out: &mut Vec<Action>) {
        // One that was ended meanwhile, or whose link has, is not wanted any more.
        let is_wanted = |worker: &Worker| worker.cause().is_none() && worker.link_ended.is_none();
        let starts = |worker: &&mut Worker| worker.state == State::Starting && is_wanted(worker);
        let Some(worker) = self.workers.get_mut(&key).filter(starts) else { return };
        if worker.pid.is_none() {
            // Its zygote's word that it was forked was overtaken.
            worker.greeted = true;
            return;
        }
        (worker.state, worker.since) = (State::Ready, now);
        let (calls, replaced) = (worker.recycling.calls, worker.replaces.take());
        if let Some(zygote) = self.zygotes.get_mut(&worker.generation) {
            zygote.proven = true;
        }
        (self.failures, self.retry_at, self.failing) = (0, None, None);
        (self.zygotes_killed, self.trouble) = (0, None);
        out.push(Action::Admit { worker: key, calls });
        if let Some((old, why)) = replaced.and_then(|old| Some((old, self.workers.get(&old)?.retirement.why()?))) {
            self.drain(old, why, now, out);
        }
    }

    pub(super) fn drain(&mut self, key: WorkerKey, why: Leave, now: Instant, out: &mut Vec<Action>) {
        let grace = self.config.grace();
        let outdated = self.workers.get(&key).is_some_and(|worker| self.is_outdated(worker.generation));
        let Some(worker) = self.workers.get_mut(&key).filter(|worker| worker.state == State::Ready) else { return };
        worker.state = State::Draining;
        if outdated {
            worker.escalation.end_by(now + grace);
        }
        let debugged = worker.debugged;
        out.push(Action::Drain { worker: key, reason: why.as_str() });
        if debugged {
            out.push(Action::Spare { worker: key });
        }
    }

    pub(super) fn start_failed(&mut self, key: WorkerKey, reason: String) {
        if let Some(worker) = self.workers.get_mut(&key) {
            worker.said = Some(reason);
        }
    }

    pub(super) fn last_output(&mut self, key: WorkerKey, text: String) {
        if let Some(worker) = self.workers.get_mut(&key) {
            worker.last_output = Some(text);
        }
    }

    pub(super) fn died_starting(&mut self, worker: Worker, fate: Option<Fate>, now: Instant, out: &mut Vec<Action>) {
        let generation = worker.generation;
        match worker.said.as_deref().or(worker.cause()).map(str::to_owned) {
            Some(reason) => self.cannot_start(generation, Trouble { reason, by_code: false }, now, out),
            None if self.failures + 1 >= SILENT_DEATHS => {
                let last = worker.last_output.map_or_else(String::new, |text| format!("; its last output:\n{text}"));
                let reason = format!("workers die before they are ready: the last one {}{last}", fate_text(fate));
                self.cannot_start(generation, Trouble { reason, by_code: false }, now, out);
            }
            None => self.back_off(now),
        }
    }

    // ---- what time brings

    pub(super) fn keep_time(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.keep_loading(now, out);
        for key in self.keys() {
            self.keep_worker_time(key, now, out);
        }
    }

    fn keep_worker_time(&mut self, key: WorkerKey, now: Instant, out: &mut Vec<Action>) {
        let (limit, stopped_limit) = (self.start_timeout(), self.stopped_limit());
        let Some(start_due) = self.workers.get(&key).map(|worker| self.start_due(worker)) else { return };
        let Some(worker) = self.workers.get_mut(&key) else { return };
        let late = worker.state == State::Starting && now >= start_due && !worker.debugged;
        let unborn = worker.pid.is_none().then_some(worker.generation);
        let stopped = worker.stopped_since.is_some_and(|since| now >= since + stopped_limit);
        if stopped {
            worker.stopped_since = None;
            self.kill(key, "it was stopped for longer than stopped_limit", now, out);
        }
        if late {
            let reason = format!("the start took longer than start_timeout ({} s)", limit.as_secs_f64());
            self.kill(key, &reason, now, out);
            unborn.into_iter().for_each(|generation| self.zygote_hangs(generation, now, out));
        }
        self.escalate(key, now, out);
        if self.workers.get(&key).and_then(|worker| self.over_at(worker)).is_some_and(|at| at <= now) {
            self.gone(key, None, now, out);
        }
    }

    /// Starts what is missing.
    pub(super) fn keep_target(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.trim(&[], now, out);
        self.keep_turns(now, out);
        self.let_go_unreplaced(now, out);
        self.keep_roll(out);
        self.keep_recycles(out);
        if self.must_wait(now, out) {
            return;
        }
        if self.current.is_none() && self.reload.is_none() {
            let generation = self.start_zygote(now, out);
            self.current = Some(generation);
        } else if self.current_is_up() {
            self.fork_missing(now, out);
        }
    }

    /// After starts that failed, or when too many workers died.
    fn must_wait(&mut self, now: Instant, out: &mut Vec<Action>) -> bool {
        self.retry_at = self.retry_at.filter(|at| *at > now);
        self.held_until = self.deaths.wait_until(now);
        if self.held_until.is_some() && self.ready() == 0 && self.failing.is_none() {
            self.say_failing(Trouble { reason: self.deaths.reason(), by_code: false }, out);
        }
        self.retry_at.is_some() || self.held_until.is_some() || self.awaits_reload
    }

    /// As many as a zygote may have to fork at a time.
    fn fork_missing(&mut self, now: Instant, out: &mut Vec<Action>) {
        let under_way = self.workers.values().filter(|worker| worker.pid.is_none()).count();
        let missing = self.target.saturating_sub(self.live()).min(FORKS_MAX.saturating_sub(under_way));
        if missing == 0 {
            return;
        }
        let used = self.used_nrs();
        let mut free = (0..).filter(|nr| !used.contains(nr));
        let mut old = self.unreplaced().into_iter();
        for _ in 0..missing {
            let old = old.next();
            let its = old.and_then(|key| self.workers.get(&key)).map(|worker| worker.nr);
            let nr = its.or_else(|| free.next()).unwrap_or(0);
            self.fork(nr, old, now, out);
        }
    }

    pub(super) fn live(&self) -> usize {
        self.workers.values().filter(|worker| worker.is_live()).count()
    }

    /// Also that of one that serves until it is replaced: it may have to stay.
    fn used_nrs(&self) -> BTreeSet<u32> {
        let serves = |worker: &&Worker| worker.is_live() || worker.state == State::Ready;
        self.workers.values().filter(serves).map(|worker| worker.nr).collect()
    }

    fn fork(&mut self, nr: u32, replaces: Option<WorkerKey>, now: Instant, out: &mut Vec<Action>) {
        let Some(generation) = self.current else { return };
        self.next_key += 1;
        let key = self.next_key;
        // A fixed sequence spreads the thresholds evenly (multiples of the golden ratio).
        self.draws += 1;
        let draw = (self.draws as f64 * 0.618_033_988_75).fract();
        let worker = Worker {
            nr,
            generation,
            pid: None,
            state: State::Starting,
            slots: self.shape.slots() as usize,
            watched: false,
            greeted: false,
            since: now,
            recycling: Recycling::draw(&self.config, now, draw),
            retirement: Retirement::default(),
            memory: None,
            barred: false,
            replaces,
            stopped_since: None,
            link_ended: None,
            dead_since: None,
            last_output: None,
            debugged: false,
            escalation: Escalation::default(),
            said: None,
        };
        self.workers.insert(key, worker);
        out.push(Action::Fork { worker: key, nr, generation });
    }
}
