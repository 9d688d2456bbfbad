//! A worker: how far its life has come, and each step of its end.
//!
//! Starting → Ready → Draining → gone, or Killed from any of them.

use std::time::{Duration, Instant};

use clutch_wire::sys::EndSignal;

use super::escalation::Escalation;
use super::life::{LastWords, ProcessLife};
use super::retirement::Retirement;
use super::{Action, Leave};
use crate::pool::Memory;
use crate::pool::state::WorkerKey;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Starting,
    Ready,
    Draining,
    /// Told to die; its end is awaited.
    Killed,
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Ready => "ready",
            State::Draining => "draining",
            State::Killed => "killed",
        }
    }
}

/// The same, with what belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// `since`: the beginning of the step that `start_timeout` limits. `replaces`: the worker that is drained when this
    /// one is ready.
    Starting {
        since: Instant,
        replaces: Option<WorkerKey>,
    },
    Ready,
    Draining,
    Killed,
}

/// Reasons that keep a worker from going on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standstill {
    /// When a signal stopped its process.
    pub(super) stopped_since: Option<Instant>,
    /// A debugger asks there: it is left alone.
    pub(super) debugged: bool,
}

#[derive(Clone, Debug)]
pub struct Worker {
    pub key: WorkerKey,
    pub nr: u32,
    pub generation: u32,
    pub slots: usize,
    pub(super) stage: Stage,
    pub(super) process: ProcessLife,
    pub(super) last_words: LastWords,
    pub(super) standstill: Standstill,
    pub(super) retirement: Retirement,
    pub(super) escalation: Escalation,
}

impl Worker {
    pub fn state(&self) -> State {
        match self.stage {
            Stage::Starting { .. } => State::Starting,
            Stage::Ready => State::Ready,
            Stage::Draining => State::Draining,
            Stage::Killed => State::Killed,
        }
    }

    /// None: its zygote has not told it yet.
    pub fn pid(&self) -> Option<i32> {
        self.process.pid()
    }

    pub fn is_stopped(&self) -> bool {
        self.standstill.stopped_since.is_some()
    }

    /// Returns whether the worker counts towards the pool's size.
    pub fn is_live(&self) -> bool {
        let stays = matches!(self.state(), State::Starting | State::Ready) && !self.leaves();
        stays || self.retirement.leaves_first()
    }

    pub(super) fn leaves(&self) -> bool {
        self.retirement.why().is_some()
    }

    /// Returns whether the worker serves and has no turn to leave.
    pub(super) fn stays(&self) -> bool {
        self.state() == State::Ready && !self.leaves()
    }

    /// Returns whether the worker has taken its turn to leave and is not gone yet.
    pub fn is_out(&self) -> bool {
        self.retirement.why().is_some_and(Leave::by_policy)
    }

    pub fn has_broken_link(&self) -> bool {
        self.process.is_unlinked()
    }

    /// Why Clutch ends it itself.
    pub fn cause(&self) -> Option<&str> {
        self.escalation.cause()
    }

    /// Why it was to end, of one that was told to and not made to.
    pub(super) fn left(&self) -> Option<&'static str> {
        (self.state() == State::Draining).then(|| self.retirement.why().unwrap_or(Leave::Stopped).as_str())
    }

    /// Returns whether it has ever been ready.
    pub fn has_served(&self) -> bool {
        !matches!(self.stage, Stage::Starting { .. })
    }

    /// Returns whether the worker, which has ended, was not ready yet and still wanted.
    pub(super) fn has_failed_to_start(&self) -> bool {
        self.state() == State::Starting && !self.leaves()
    }

    /// Returns whether the worker is neither to leave nor to end.
    pub(super) fn is_wanted(&self) -> bool {
        !self.leaves() && !self.is_to_end()
    }

    /// Why it could not start, as far as it said so or was ended for it.
    pub(super) fn failure(&self) -> Option<&str> {
        self.last_words.reason().or(self.cause())
    }

    pub(super) fn last_output(&self) -> Option<&str> {
        self.last_words.output()
    }

    /// None: it was not looked at.
    pub fn memory(&self) -> Option<Memory> {
        self.retirement.memory()
    }

    /// The worker that it is to replace, while it starts.
    pub(super) fn replaces(&self) -> Option<WorkerKey> {
        match self.stage {
            Stage::Starting { replaces, .. } => replaces,
            _ => None,
        }
    }

    // ---- its start

    /// Returns whether its own word that it is ready has come before.
    pub(super) fn forked(&mut self, pid: i32, watched: bool, now: Instant) -> bool {
        self.start_anew(now);
        self.process.forked(pid, watched)
    }

    /// Begins to serve. Returns the worker that it replaces; none at all where it does not serve, or not yet.
    pub(super) fn serve(&mut self) -> Option<Option<WorkerKey>> {
        // One that was ended meanwhile, or whose link has, is not wanted any more.
        let Stage::Starting { replaces, .. } = self.stage else { return None };
        if self.is_to_end() || self.has_broken_link() || self.process.greet() {
            return None;
        }
        self.stage = Stage::Ready;
        Some(replaces)
    }

    /// Returns whether the worker was told to end while it started, and not killed.
    pub(super) fn ends_after_start(&self) -> bool {
        matches!(self.stage, Stage::Starting { .. }) && (self.escalation.is_termed() || self.escalation.is_spared())
    }

    /// Returns whether the worker was told to end, in whatever way.
    fn is_to_end(&self) -> bool {
        self.cause().is_some() || self.escalation.is_spared()
    }

    fn start_anew(&mut self, now: Instant) {
        if let Stage::Starting { since, .. } = &mut self.stage {
            *since = now;
        }
    }

    /// When its start has taken too long; `answered`: when its zygote did something last, where it has to fork it still.
    pub(super) fn start_due(&self, answered: Option<Instant>, limit: Duration) -> Option<Instant> {
        let Stage::Starting { since, .. } = self.stage else { return None };
        let answered = answered.filter(|_| self.pid().is_none());
        (!self.standstill.debugged).then(|| answered.map_or(since, |at| at.max(since)) + limit)
    }

    // ---- its end

    /// Gets no more work. `end_by`: when it is told with TERM, if it has a limit.
    pub(super) fn drain(&mut self, why: Leave, end_by: Option<Instant>, out: &mut Vec<Action>) {
        if self.stage != Stage::Ready {
            return;
        }
        self.stage = Stage::Draining;
        end_by.into_iter().for_each(|at| self.escalation.end_by(at));
        out.push(Action::Drain { worker: self.key, reason: why.as_str() });
        if self.standstill.debugged {
            out.push(Action::Spare { worker: self.key });
        }
    }

    /// Work in it was told to stop and has not. Returns whether it is to be ended at once: neighbours have until `by`.
    pub(super) fn note_stuck(&mut self, cause: String, by: Instant) -> bool {
        let serves = matches!(self.stage, Stage::Ready | Stage::Draining);
        if !serves || self.escalation.is_stuck() || self.standstill.debugged {
            return false;
        }
        self.escalation.note_stuck(cause);
        if self.slots > 1 {
            self.escalation.end_by(by);
            // Whatever it was to leave for before: that may be called off, and this is not.
            self.retirement.leave_now_for(Leave::Stuck);
        }
        self.slots == 1
    }

    /// TERM to its group, then KILL after `term_grace`.
    pub(super) fn terminate(&mut self, cause: &str, term_grace: Duration, now: Instant, out: &mut Vec<Action>) {
        let heeds = self.stage != Stage::Killed && self.pid().is_some() && !self.is_stopped();
        if !heeds || term_grace.is_zero() {
            return self.kill(cause, now, out);
        }
        self.leave(now, out);
        // One that was told already may be in the middle of its end: it hears TERM once.
        if self.escalation.term(cause, now + term_grace) {
            out.push(Action::Kill { worker: self.key, signal: EndSignal::Term });
        }
    }

    /// KILL to its group, at once.
    pub(super) fn kill(&mut self, cause: &str, now: Instant, out: &mut Vec<Action>) {
        self.leave(now, out);
        self.escalation.kill(cause);
        out.push(Action::Kill { worker: self.key, signal: EndSignal::Kill });
    }

    /// From here on it gets no work, also while it ignores what it is told. One that starts is still one that starts.
    fn leave(&mut self, now: Instant, out: &mut Vec<Action>) {
        if matches!(self.stage, Stage::Starting { .. }) {
            return self.start_anew(now);
        }
        if self.stage == Stage::Ready {
            let reason = self.retirement.why().unwrap_or(Leave::Stuck).as_str();
            out.push(Action::Drain { worker: self.key, reason });
        }
        self.stage = Stage::Killed;
    }

    /// While somebody thinks at a prompt, no limit of the worker passes; then each begins anew, for `grace`.
    pub(super) fn debug(&mut self, on: bool, grace: Duration, now: Instant, out: &mut Vec<Action>) {
        self.standstill.debugged = on;
        match self.stage {
            Stage::Starting { .. } if !on => self.start_anew(now),
            Stage::Draining if on => out.push(Action::Spare { worker: self.key }),
            Stage::Draining => self.escalation.put_off(now + grace),
            _ => {}
        }
    }

    /// The process was stopped by a signal, or goes on.
    pub(super) fn stopped(&mut self, since: Option<Instant>, out: &mut Vec<Action>) {
        let before = self.standstill.stopped_since;
        self.standstill.stopped_since = since.map(|since| before.unwrap_or(since));
        out.push(Action::Hold { worker: self.key, held: since.is_some() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervisor::recycle::Recycling;

    const STEP: Duration = Duration::from_secs(1);

    fn starting(now: Instant, slots: usize) -> Worker {
        let unlimited = Recycling { at: None, calls: None, memory: None };
        Worker {
            key: 7,
            nr: 0,
            generation: 1,
            slots,
            stage: Stage::Starting { since: now, replaces: Some(3) },
            process: ProcessLife::default(),
            last_words: LastWords::default(),
            standstill: Standstill::default(),
            retirement: Retirement::new(unlimited),
            escalation: Escalation::default(),
        }
    }

    fn ready(now: Instant, slots: usize) -> Worker {
        let mut worker = starting(now, slots);
        assert!(!worker.forked(1007, true, now));
        assert_eq!(worker.serve(), Some(Some(3)));
        worker
    }

    #[test]
    fn a_worker_serves_when_it_is_ready_and_its_pid_is_known() {
        let now = Instant::now();
        let mut worker = starting(now, 1);
        assert_eq!((worker.serve(), worker.state()), (None, State::Starting), "its pid is not known yet");
        assert!(worker.forked(1007, true, now), "it has said so before");
        assert_eq!((worker.serve(), worker.state(), worker.pid()), (Some(Some(3)), State::Ready, Some(1007)));
        assert_eq!((worker.serve(), worker.replaces()), (None, None), "once");
    }

    #[test]
    fn a_worker_that_is_to_end_does_not_begin_to_serve() {
        let now = Instant::now();
        let mut killed = starting(now, 1);
        killed.forked(1007, true, now);
        killed.kill("late", now, &mut Vec::new());
        let mut unlinked = starting(now, 1);
        unlinked.forked(1007, true, now);
        unlinked.process.unlink(now);
        assert_eq!((killed.serve(), unlinked.serve()), (None, None));
    }

    #[test]
    fn each_step_of_a_start_has_its_limit_but_while_it_is_debugged() {
        let now = Instant::now();
        let mut worker = starting(now, 1);
        assert_eq!(worker.start_due(None, STEP), Some(now + STEP));
        assert_eq!(worker.start_due(Some(now + STEP), STEP), Some(now + 2 * STEP), "its zygote was busy");
        worker.forked(1007, true, now + 3 * STEP);
        assert_eq!(worker.start_due(Some(now + 9 * STEP), STEP), Some(now + 4 * STEP));
        worker.debug(true, STEP, now, &mut Vec::new());
        assert_eq!(worker.start_due(None, STEP), None);
        worker.debug(false, STEP, now + 5 * STEP, &mut Vec::new());
        assert_eq!(worker.start_due(None, STEP), Some(now + 6 * STEP));
        worker.serve();
        assert_eq!(worker.start_due(None, STEP), None);
    }

    #[test]
    fn only_a_worker_of_one_slot_is_ended_at_once_when_it_is_stuck() {
        let now = Instant::now();
        let (mut one, mut many) = (ready(now, 1), ready(now, 2));
        assert!(one.note_stuck("late".to_owned(), now + STEP) && !many.note_stuck("late".to_owned(), now + STEP));
        assert_eq!(many.escalation.next_wake(false), Some(now + STEP));
        assert_eq!((one.retirement.why(), many.retirement.why()), (None, Some(Leave::Stuck)));
        assert!(!one.note_stuck("later".to_owned(), now), "once");
    }

    #[test]
    fn what_cannot_heed_term_is_killed() {
        let now = Instant::now();
        for (stopped, term_grace) in [(true, STEP), (false, Duration::ZERO)] {
            let (mut worker, mut out) = (ready(now, 1), Vec::new());
            worker.standstill.stopped_since = stopped.then_some(now);
            worker.terminate("over", term_grace, now, &mut out);
            assert_eq!(out[1..], [Action::Kill { worker: 7, signal: EndSignal::Kill }], "after it was drained");
            assert_eq!((worker.state(), worker.cause()), (State::Killed, Some("over")));
        }
    }

    #[test]
    fn a_worker_is_drained_once_and_its_limit_begins_with_that() {
        let now = Instant::now();
        let (mut worker, mut out) = (ready(now, 1), Vec::new());
        worker.debug(true, STEP, now, &mut out);
        worker.drain(Leave::Age, Some(now + STEP), &mut out);
        worker.drain(Leave::Reload, Some(now), &mut out);
        assert_eq!(out, [Action::Drain { worker: 7, reason: "age" }, Action::Spare { worker: 7 }]);
        assert_eq!((worker.escalation.next_wake(true), worker.escalation.next_wake(false)), (None, Some(now + STEP)));
    }
}
