//! How a pool stops: no more work, then TERM to those that are left, then KILL, each step with its limit.

use std::time::{Duration, Instant};

use super::ends::STATUS_WAIT;
use super::{Action, Leave, State, Supervisor};
use crate::pool::state::WorkerKey;

/// Longest wait between TERM and KILL at a stop: what a stop takes beyond its grace is bounded by it.
const STOP_TERM_MAX: Duration = Duration::from_millis(500);
/// What a worker with nothing to do has to end in order at a stop that gives running work no grace.
pub const IDLE_LEAVE: Duration = Duration::from_secs(5);
/// How often what should be dead is killed again: an order to fork may have been on its way.
const KILL_AGAIN: Duration = Duration::from_millis(200);

const STOPPED: &str = "the pool was stopped";
const STOP_OVER: &str = "the pool was stopped and the grace was over";

/// A stop under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shutdown {
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

impl Shutdown {
    pub(super) fn next_wake(&self) -> Instant {
        if self.termed { self.kill_at } else { self.term_at.min(self.kill_at) }
    }
}

impl Supervisor {
    /// `term`: between TERM and KILL. A stop that is under way only becomes shorter.
    pub(super) fn stop(&mut self, grace: Duration, term: Duration, now: Instant) {
        let term_at = now + grace;
        let cause = if grace.is_zero() { STOPPED } else { STOP_OVER };
        let kill_at = term_at + term;
        let asked = Shutdown { term_at, kill_at, quiet: false, termed: false, killing_since: None, cause };
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
            let heeds = serves && worker.stopped_since.is_none() && !worker.escalation.is_stuck();
            worker.escalation.spare_until((heeds && idle.contains(key)).then_some(limit));
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
        self.workers.get(&key).is_some_and(|worker| worker.escalation.is_spared())
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
