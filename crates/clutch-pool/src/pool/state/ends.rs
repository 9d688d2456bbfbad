//! Ends that are not results: cancelled, expired, abandoned, stuck, refused.

use std::time::Instant;

use super::{Action, Machine, Place, StopCause, Stopping, Submission, Verdict, WorkerKey};
use crate::work::{Where, WorkId};

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

    /// Work that has its first answer may take its time for the rest.
    pub fn lift_deadline(&mut self, id: WorkId) {
        if let Some(work) = self.submissions.get_mut(id).filter(|work| work.stopping().is_none()) {
            work.request.deadline = None;
        }
    }

    /// Its time ends at another moment than was said before.
    pub fn set_deadline(&mut self, id: WorkId, at: Instant) {
        let Some(work) = self.submissions.get_mut(id).filter(|work| work.stopping().is_none() && !work.untimed) else {
            return;
        };
        work.request.deadline = Some(at);
        self.submissions.await_instant(at, id);
    }

    /// Whether a debugger is open: what is here meanwhile has no deadline any more, for good.
    pub fn set_untimed(&mut self, untimed: bool) {
        self.untimed = untimed;
        if untimed {
            self.submissions.untime();
        }
    }

    pub fn is_untimed(&self, id: WorkId) -> bool {
        self.submissions.get(id).is_some_and(|work| work.untimed)
    }

    /// Whether it was cut off because its worker is to end.
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
        self.answer(id, verdict, out);
        self.line.removed(id, place, &self.submissions);
    }

    pub(super) fn fail(&mut self, out: &mut Vec<Action<T>>) {
        self.failing = true;
        self.answer_waiting(Verdict::Failing, out);
    }

    pub(super) fn answer_waiting(&mut self, verdict: Verdict, out: &mut Vec<Action<T>>) {
        let waiting: Vec<WorkId> =
            self.submissions.iter().filter(|work| work.place.waits()).map(Submission::id).collect();
        for id in waiting {
            self.withdraw(id, verdict, out);
        }
    }
}
