//! Ends that are not results: cancelled, expired, abandoned, stuck, refused, lost with a worker.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::load::{EXPIRED_EVERY, EXPIRED_RUN_MIN, Load};
use super::quarantine::Sentence;
use super::{Action, Machine, Place, StopCause, Stopping, Submission, Verdict, WorkerKey};
use crate::work::{Where, WorkId};

/// When all that workers have is cut off.
#[derive(Debug, Default)]
pub(super) struct CutAll {
    pub(super) by: Option<Instant>,
    is_told: bool,
}

impl CutAll {
    /// Brings it forward to `by`, if that is earlier.
    fn bring(&mut self, by: Instant) {
        self.by = Some(self.by.map_or(by, |before| before.min(by)));
    }

    /// When workers are to be told; none: never, or they were.
    pub(super) fn next(&self) -> Option<Instant> {
        self.by.filter(|_| !self.is_told)
    }

    /// Whether workers are to be told now; true once.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.next().is_some_and(|by| by <= now);
        self.is_told |= is_due;
        is_due
    }
}

impl<T> Machine<T> {
    pub(super) fn abandon(&mut self, id: WorkId, out: &mut Vec<Action<T>>) {
        match self.submissions.get(id).map(|work| work.place) {
            Some(Place::Sent { worker, .. }) => out.push(Action::Abandon { worker, id }),
            Some(Place::Abandoned { .. }) | None => {}
            Some(_) => self.withdraw(id, Verdict::Cancelled, out),
        }
    }

    /// The deadline of one piece of work has passed.
    pub fn expire(&mut self, id: WorkId, out: &mut Vec<Action<T>>) {
        let is_cut = self.submissions.get(id).is_some_and(Submission::is_cut);
        match self.submissions.get(id).map(|work| work.place) {
            Some(Place::Sent { worker, .. }) if is_cut => out.push(Action::CutOff { worker, id }),
            Some(Place::Sent { worker, .. }) => out.push(Action::Overdue { worker, id }),
            Some(Place::Abandoned { worker, stopping }) => self.stuck(worker, id, stopping, out),
            Some(_) => self.withdraw(id, Verdict::Expired(Where::Queue), out),
            None => {}
        }
    }

    /// Answers work that a worker has begun; its slot stays busy until the code has stopped, which it should by `by`.
    pub fn answer_running(&mut self, id: WorkId, cause: StopCause, by: Instant) -> Option<T> {
        let work = self.submissions.get_mut(id)?;
        let Place::Sent { worker, .. } = work.place else { return None };
        work.place = Place::Abandoned { worker, stopping: Stopping { by, cause, stuck: false } };
        let body = work.body.take();
        self.submissions.await_instant(by, id);
        body
    }

    /// Notes that running work was answered because its deadline has passed. Returns whether its worker is to be replaced.
    pub fn note_expired(&mut self, worker: WorkerKey, ran: Duration, now: Instant) -> bool {
        let often = ran >= EXPIRED_RUN_MIN && self.slots.change(worker, Load::has_expired).unwrap_or(false);
        let due = often && self.replaced_at.is_none_or(|at| now >= at + EXPIRED_EVERY);
        if due {
            self.replaced_at = Some(now);
        }
        due
    }

    /// Work that has its first answer may take its time for the rest.
    pub fn lift_deadline(&mut self, id: WorkId) {
        if let Some(work) = self.submissions.get_mut(id).filter(|work| work.stopping().is_none()) {
            work.request.deadline = None;
        }
    }

    /// Moves the deadline of the work.
    pub fn set_deadline(&mut self, id: WorkId, at: Instant) {
        let Some(work) = self.submissions.get_mut(id).filter(|work| work.stopping().is_none() && !work.untimed) else {
            return;
        };
        work.request.deadline = Some(at);
        self.submissions.await_instant(at, id);
    }

    /// Running work may go on until then, where its deadline is not earlier, until it runs anew.
    pub fn limit(&mut self, id: WorkId, at: Instant) {
        let Some(work) = self.submissions.get_mut(id).filter(|work| work.stopping().is_none() && !work.untimed) else {
            return;
        };
        work.limit_at = Some(at);
        self.submissions.await_due(id);
    }

    /// Sets whether a debugger is open: what is here meanwhile has no deadline any more, for good.
    pub fn set_untimed(&mut self, untimed: bool) {
        self.untimed = untimed;
        if untimed {
            self.submissions.untime();
        }
    }

    pub fn is_untimed(&self, id: WorkId) -> bool {
        self.submissions.get(id).is_some_and(|work| work.untimed)
    }

    /// Returns whether the work was cut off because its worker is to end.
    pub fn is_drained(&self, id: WorkId) -> bool {
        self.submissions
            .get(id)
            .and_then(Submission::stopping)
            .is_some_and(|stopping| stopping.cause == StopCause::Drained)
    }

    fn stuck(&mut self, worker: WorkerKey, id: WorkId, stopping: Stopping, out: &mut Vec<Action<T>>) {
        self.submissions[id].place = Place::Abandoned { worker, stopping: Stopping { stuck: true, ..stopping } };
        out.push(Action::Stuck { worker, id, cause: stopping.cause });
        self.tell_drained(worker, out);
    }

    /// Answers work that waits.
    pub(super) fn withdraw(&mut self, id: WorkId, verdict: Verdict, out: &mut Vec<Action<T>>) {
        let place = self.submissions[id].place;
        self.finished.gave_up += u64::from(matches!(verdict, Verdict::Cancelled | Verdict::Expired(_)));
        self.answer(id, verdict, out);
        self.line.removed(id, place, &self.submissions);
    }

    /// The pool is cut off: what waits then, or comes back unbegun or to be retried, is cancelled.
    pub fn cancel_rest(&mut self) {
        self.intake.cancel_rest();
    }

    pub(super) fn fail(&mut self, out: &mut Vec<Action<T>>) {
        self.intake.set_failing(true);
        self.answer_waiting(self.intake.verdict_of_rest(), out);
    }

    pub(super) fn answer_waiting(&mut self, verdict: Verdict, out: &mut Vec<Action<T>>) {
        let waiting: Vec<WorkId> =
            self.submissions.iter().filter(|work| work.place.waits()).map(Submission::id).collect();
        for id in waiting {
            self.withdraw(id, verdict, out);
        }
    }

    // ---- endless work

    /// Endless work in a worker that is to end goes on until then.
    pub(super) fn end_endless(&mut self, worker: WorkerKey, by: Instant) {
        let earliest = |load: &mut Load| *load.ends_by.insert(load.ends_by.map_or(by, |before| before.min(by)));
        let Some(by) = self.slots.change(worker, earliest) else { return };
        for id in self.sent(worker).collect::<Vec<_>>() {
            self.cut_endless(id, by);
        }
    }

    /// Running work turns out to have no end of its own. In a worker that is to end it goes on as long as all such work.
    /// Returns when it is cut off, if ever.
    pub fn mark_endless(&mut self, id: WorkId) -> Option<Instant> {
        let work = self.submissions.get_mut(id).filter(|work| work.stopping().is_none())?;
        work.request.endless = true;
        let Place::Sent { worker, .. } = work.place else { return None };
        let by = self.slots.get(worker)?.ends_by?;
        self.cut_endless(id, by);
        Some(by)
    }

    pub(super) fn cut_endless(&mut self, id: WorkId, by: Instant) {
        if self.submissions.get(id).is_some_and(|work| work.request.endless) {
            self.cut_work(id, by);
        }
    }

    /// Work that workers have is cut off then, endless or not, and what they have taken by themselves, known or not.
    pub fn cut_all(&mut self, by: Instant) {
        self.cut.bring(by);
        let sent = self.submissions.iter().filter(|work| matches!(work.place, Place::Sent { .. }));
        for id in sent.map(|work| work.id()).collect::<Vec<_>>() {
            self.cut_work(id, by);
        }
    }

    pub(super) fn cut_work(&mut self, id: WorkId, by: Instant) {
        let Some(work) = self.submissions.get_mut(id) else { return };
        let at = *work.cut_at.insert(work.cut_at.map_or(by, |before| before.min(by)));
        self.submissions.await_instant(at, id);
    }

    // ---- the end of a worker

    pub(super) fn gone(&mut self, worker: WorkerKey, begun: &[WorkId], ended: bool, out: &mut Vec<Action<T>>) {
        let Some(load) = self.slots.remove(worker) else { return };
        let begun: HashSet<WorkId> = begun.iter().copied().collect();
        let has_run = |id| begun.contains(&id) || self.submissions.get(id).is_some_and(|work| work.place.has_begun());
        let suspects = load.sent.iter().filter(|id| has_run(*id)).count();
        for id in load.sent.iter().rev() {
            let Some(work) = self.submissions.get(id) else { continue };
            if work.stopping().is_some() {
                self.submissions.remove(id);
            } else if begun.contains(&id) || work.place.has_begun() {
                self.judge(worker, id, suspects, ended, out);
            } else {
                self.requeue(id, out);
            }
        }
    }

    /// Work that had begun in a worker that is gone.
    pub(super) fn judge(
        &mut self,
        worker: WorkerKey,
        id: WorkId,
        suspects: usize,
        ended: bool,
        out: &mut Vec<Action<T>>,
    ) {
        let (deaths_max, failing) = (self.limits.deaths_max, self.intake.is_failing());
        let Some(work) = self.submissions.get_mut(id) else { return };
        match work.sentence(suspects, ended, deaths_max) {
            Sentence::Lost => self.answer(id, Verdict::Lost(worker), out),
            Sentence::Poisoned => {
                let deaths = work.deaths;
                self.answer(id, Verdict::Poisoned { worker, deaths }, out);
            }
            // Nothing runs here any more: what it ended by is the last that is known of it.
            Sentence::Again { .. } if failing => self.answer(id, Verdict::Lost(worker), out),
            Sentence::Again { alone } => {
                // Once alone, always alone: it was not cleared yet.
                work.alone |= alone;
                self.requeue(id, out);
            }
        }
    }

    /// Decides whether an item of a batch, which ran when its worker died, runs again: each has the batch's `retry`. If
    /// so, the batch is to be among those that had begun in [`super::Event::WorkerGone`]; if not, the item is lost.
    pub fn item_runs_again(&mut self, id: WorkId, item: u32, retry: u32, ended: bool) -> bool {
        let deaths_max = self.limits.deaths_max;
        let Some(batch) = self.submissions.get_mut(id) else { return false };
        if batch.tried_item != item {
            (batch.tried_item, batch.deaths, batch.request.retry) = (item, 0, retry);
        }
        batch.request.retry > 0 && (ended || batch.deaths + 1 < deaths_max)
    }

    /// Lets work that had begun in a worker that is gone go on elsewhere with what is left of it.
    pub fn goes_on(&mut self, id: WorkId) {
        if let Some(Place::Sent { begun, .. }) = self.submissions.get_mut(id).map(|work| &mut work.place) {
            *begun = false;
        }
    }
}
