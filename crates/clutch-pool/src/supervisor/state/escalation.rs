//! How workers are ended: quiet, drain, TERM, KILL, each step with its limit; one worker, or all of them at a stop.

use std::time::{Duration, Instant};

use clutch_wire::sys::EndSignal;

use super::ends::STATUS_WAIT;
use super::{Action, Leave, State, Supervisor};
use crate::pool::state::WorkerKey;

/// Longest wait between TERM and KILL at a stop: what a stop takes beyond its grace is bounded by it.
const STOP_TERM_MAX: Duration = Duration::from_millis(500);
/// What a worker with nothing to do has to end in order at a stop that gives running work no grace.
pub const IDLE_LEAVE: Duration = Duration::from_secs(5);
/// How often what should be dead is killed again: an order to fork may have been on its way.
const KILL_AGAIN: Duration = Duration::from_millis(200);

const GRACE_OVER: &str = "it was to end and the grace was over";
const STOPPED: &str = "the pool was stopped";
const LEAVE_OVER: &str = "the pool was stopped and it took too long to end in order";
const STOP_OVER: &str = "the pool was stopped and the grace was over";

/// A stop under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stopping {
    term_at: Instant,
    kill_at: Instant,
    /// No worker takes work any more.
    quiet: bool,
    termed: bool,
    /// Since when those that are left are killed, over and over.
    killing_since: Option<Instant>,
    /// Why, for the calls that it cuts off.
    cause: &'static str,
}

impl Stopping {
    pub(super) fn next_wake(&self) -> Instant {
        if self.termed { self.kill_at } else { self.term_at.min(self.kill_at) }
    }
}

impl Supervisor {
    /// Work in it was told to stop and has not. Alone it is ended at once; neighbours have the grace.
    pub(super) fn stuck(&mut self, key: WorkerKey, cause: String, now: Instant, out: &mut Vec<Action>) {
        let grace = self.config.grace();
        let Some(worker) = self.workers.get_mut(&key) else { return };
        if !matches!(worker.state, State::Ready | State::Draining) || worker.stuck.is_some() || worker.debugged {
            return;
        }
        worker.stuck = Some(cause);
        if worker.slots == 1 {
            self.terminate(key, GRACE_OVER, now, out);
        } else {
            worker.end_by(now + grace);
            worker.retirement.leave(Leave::Stuck);
        }
    }

    /// The pool says that nothing is left in it, or nothing that anybody waits for.
    pub(super) fn drained(&mut self, key: WorkerKey, now: Instant, out: &mut Vec<Action>) {
        let grace = self.config.grace();
        let Some(worker) = self.workers.get_mut(&key) else { return };
        match worker.state {
            // Its calls are used up before its replacement is ready; the pool says once more that nothing is left.
            State::Ready => {
                let why = worker.retirement.why().unwrap_or(Leave::Calls);
                self.leave(key, why, now, out);
                self.drain(key, why, now, out);
            }
            State::Draining if worker.stuck.is_some() => self.terminate(key, GRACE_OVER, now, out),
            State::Draining => {
                if worker.leave_by.is_none() {
                    worker.end_by(now + grace);
                }
                out.push(Action::End { worker: key });
            }
            State::Starting | State::Killed => {}
        }
    }

    /// TERM to its group, then KILL.
    fn terminate(&mut self, key: WorkerKey, cause: &str, now: Instant, out: &mut Vec<Action>) {
        let term_grace = Duration::from_millis(self.config.term_grace_ms);
        let Some(worker) = self.workers.get_mut(&key) else { return };
        let heeds = matches!(worker.state, State::Ready | State::Draining) && worker.stopped_since.is_none();
        if !heeds || term_grace.is_zero() {
            return self.kill(key, cause, now, out);
        }
        let reason = worker.stuck.clone().unwrap_or_else(|| cause.to_owned());
        self.leave_for_good(key, reason, out);
        out.push(Action::Kill { worker: key, signal: EndSignal::Term });
        if let Some(worker) = self.workers.get_mut(&key) {
            worker.kill_at = Some(now + term_grace);
        }
    }

    /// KILL to its group, at once.
    pub(super) fn kill(&mut self, key: WorkerKey, cause: &str, now: Instant, out: &mut Vec<Action>) {
        let Some(worker) = self.workers.get_mut(&key) else { return };
        (worker.kill_at, worker.leave_by) = (None, None);
        match worker.state {
            State::Killed => {}
            State::Starting => {
                worker.since = now;
                worker.cause.get_or_insert_with(|| cause.to_owned());
            }
            State::Ready | State::Draining => {
                let reason = worker.stuck.clone().unwrap_or_else(|| cause.to_owned());
                self.leave_for_good(key, reason, out);
            }
        }
        out.push(Action::Kill { worker: key, signal: EndSignal::Kill });
    }

    /// From here on it gets no work, also while it ignores what it is told.
    fn leave_for_good(&mut self, key: WorkerKey, reason: String, out: &mut Vec<Action>) {
        let Some(worker) = self.workers.get_mut(&key) else { return };
        if worker.state == State::Ready {
            out.push(Action::Drain { worker: key, reason: worker.retirement.why().unwrap_or(Leave::Stuck).as_str() });
        }
        (worker.state, worker.cause, worker.end_at) = (State::Killed, Some(reason), None);
    }

    /// The steps of one worker's end that are due.
    pub(super) fn escalate(&mut self, key: WorkerKey, now: Instant, out: &mut Vec<Action>) {
        let Some(worker) = self.workers.get(&key) else { return };
        if worker.kill_at.is_some_and(|at| at <= now) {
            self.kill(key, GRACE_OVER, now, out);
        } else if worker.leave_by.is_some_and(|at| at <= now) {
            self.kill(key, LEAVE_OVER, now, out);
        } else if worker.end_at.is_some_and(|at| at <= now) && !worker.debugged {
            self.terminate(key, GRACE_OVER, now, out);
        }
    }

    // ---- all of them

    /// `term`: between TERM and KILL. A stop that is under way only becomes shorter.
    pub(super) fn stop(&mut self, grace: Duration, term: Duration, now: Instant) {
        let term_at = now + grace;
        let cause = if grace.is_zero() { STOPPED } else { STOP_OVER };
        let kill_at = term_at + term;
        let asked = Stopping { term_at, kill_at, quiet: false, termed: false, killing_since: None, cause };
        let under_way = self.stopping.get_or_insert(asked);
        if asked.term_at < under_way.term_at {
            (under_way.term_at, under_way.cause) = (asked.term_at, cause);
        }
        under_way.kill_at = under_way.kill_at.min(asked.kill_at);
    }

    /// A stop without a grace cuts off what runs; `idle` run nothing and end in order. A later one may call them off.
    pub(super) fn spare_idle(&mut self, idle: &[WorkerKey], now: Instant) {
        let limit = now + IDLE_LEAVE;
        for (key, worker) in &mut self.workers {
            let serves = matches!(worker.state, State::Ready | State::Draining);
            let heeds = serves && worker.stopped_since.is_none() && worker.stuck.is_none();
            let before = worker.leave_by.unwrap_or(limit);
            worker.leave_by = (heeds && idle.contains(key)).then(|| before.min(limit));
        }
    }

    /// The stop of a pool that was closed and has no work left.
    pub(super) fn stop_empty(&mut self, now: Instant) {
        let grace = self.config.grace();
        if grace.is_zero() && self.stopping.is_none() {
            // All of them are idle.
            let all: Vec<WorkerKey> = self.workers.keys().copied().collect();
            self.spare_idle(&all, now);
        }
        self.stop(grace, stop_term(grace, self.config.term_grace()), now);
    }

    pub(super) fn keep_stopping(&mut self, now: Instant, out: &mut Vec<Action>) {
        let Some(stop) = self.stopping else { return };
        if !stop.quiet {
            self.quiet_all(now, out);
        }
        if stop.kill_at <= now {
            self.kill_all(now, out);
        } else if stop.term_at <= now && !stop.termed {
            self.terminate_all(now, out);
        }
    }

    /// Nothing is left.
    pub(super) fn keep_closed(&mut self, out: &mut Vec<Action>) {
        if self.stopping.is_some() && self.workers.is_empty() && self.has_no_zygote() && !self.closed {
            self.closed = true;
            out.push(Action::Closed);
        }
    }

    fn quiet_all(&mut self, now: Instant, out: &mut Vec<Action>) {
        if let Some(stop) = self.stopping.as_mut() {
            stop.quiet = true;
        }
        out.push(Action::RefuseWaiting);
        self.deny_commands(out);
        for key in self.keys() {
            match self.workers.get(&key).map(|worker| worker.state) {
                Some(State::Ready) => self.drain(key, Leave::Stopped, now, out),
                Some(State::Starting) => self.kill(key, STOPPED, now, out),
                _ => {}
            }
        }
    }

    fn terminate_all(&mut self, now: Instant, out: &mut Vec<Action>) {
        let Some(stop) = self.stopping.as_mut() else { return };
        stop.termed = true;
        let cause = stop.cause;
        for key in self.keys() {
            if !self.may_leave(key) && self.workers.get(&key).is_some_and(|worker| worker.state != State::Killed) {
                self.terminate(key, cause, now, out);
            }
        }
    }

    fn may_leave(&self, key: WorkerKey) -> bool {
        self.workers.get(&key).is_some_and(|worker| worker.leave_by.is_some())
    }

    fn kill_all(&mut self, now: Instant, out: &mut Vec<Action>) {
        let Some(cause) = self.stopping.map(|stop| stop.cause) else { return };
        let (leaving, left): (Vec<_>, Vec<_>) = self.keys().into_iter().partition(|key| self.may_leave(*key));
        for key in left {
            self.kill(key, cause, now, out);
        }
        let Some(stop) = self.stopping.as_mut() else { return };
        (stop.termed, stop.kill_at) = (true, now + KILL_AGAIN);
        if !leaving.is_empty() {
            return; // their zygote tells of them
        }
        if now >= *stop.killing_since.get_or_insert(now) + STATUS_WAIT {
            self.end_deaf_zygotes(out);
        }
    }
}

/// What lies between TERM and KILL at a stop: nothing where no grace is given either.
pub fn stop_term(grace: Duration, term_grace: Duration) -> Duration {
    if grace.is_zero() { Duration::ZERO } else { term_grace.min(STOP_TERM_MAX) }
}
