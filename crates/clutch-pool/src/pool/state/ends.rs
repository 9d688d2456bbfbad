//! Ends that are not results: cancelled, expired, abandoned, stuck, refused.

use std::time::Instant;

use super::{Action, Item, Machine, Place, StopCause, Stopping, Verdict, WorkerKey};
use crate::work::{Where, WorkId};

impl<T> Machine<T> {
    pub(super) fn abandon(&mut self, id: WorkId, out: &mut Vec<Action<T>>) {
        match self.items.get(id).map(|item| item.place) {
            Some(Place::Sent { worker, .. }) => out.push(Action::Abandon { worker, id }),
            Some(Place::Abandoned { .. }) | None => {}
            Some(_) => self.withdraw(id, Verdict::Cancelled, out),
        }
    }

    /// The deadline of one piece of work has passed.
    pub fn expire(&mut self, id: WorkId, out: &mut Vec<Action<T>>) {
        let is_cut = self.items.get(id).is_some_and(Item::is_cut);
        match self.items.get(id).map(|item| item.place) {
            Some(Place::Sent { worker, .. }) if is_cut => out.push(Action::CutOff { worker, id }),
            Some(Place::Sent { worker, .. }) => out.push(Action::Overdue { worker, id }),
            Some(Place::Abandoned { worker, stopping }) => self.stuck(worker, id, stopping, out),
            Some(_) => self.withdraw(id, Verdict::Expired(Where::Queue), out),
            None => {}
        }
    }

    /// Answers work that a worker has begun; its slot stays busy until the code has stopped, which it should by `by`.
    pub fn answer_running(&mut self, id: WorkId, cause: StopCause, by: Instant) -> Option<T> {
        let item = self.items.get_mut(id)?;
        let Place::Sent { worker, .. } = item.place else { return None };
        item.place = Place::Abandoned { worker, stopping: Stopping { by, cause, stuck: false } };
        let body = item.body.take();
        self.items.await_instant(by, id);
        body
    }

    /// Work that has its first answer may take its time for the rest.
    pub fn lift_deadline(&mut self, id: WorkId) {
        if let Some(item) = self.items.get_mut(id).filter(|item| item.stopping().is_none()) {
            item.request.deadline = None;
        }
    }

    /// Its time ends at another moment than was said before.
    pub fn set_deadline(&mut self, id: WorkId, at: Instant) {
        let Some(item) = self.items.get_mut(id).filter(|item| item.stopping().is_none() && !item.untimed) else {
            return;
        };
        item.request.deadline = Some(at);
        self.items.await_instant(at, id);
    }

    /// Whether a debugger is open: what is here meanwhile has no deadline any more, for good.
    pub fn set_untimed(&mut self, untimed: bool) {
        self.untimed = untimed;
        if untimed {
            self.items.untime();
        }
    }

    pub fn is_untimed(&self, id: WorkId) -> bool {
        self.items.get(id).is_some_and(|item| item.untimed)
    }

    /// Whether it was cut off because its worker is to end.
    pub fn is_drained(&self, id: WorkId) -> bool {
        self.items.get(id).and_then(Item::stopping).is_some_and(|stopping| stopping.cause == StopCause::Drained)
    }

    fn stuck(&mut self, worker: WorkerKey, id: WorkId, stopping: Stopping, out: &mut Vec<Action<T>>) {
        self.items[id].place = Place::Abandoned { worker, stopping: Stopping { stuck: true, ..stopping } };
        out.push(Action::Stuck { worker, id, cause: stopping.cause });
        self.tell_drained(worker, out);
    }

    /// Answers work that waits.
    pub(super) fn withdraw(&mut self, id: WorkId, verdict: Verdict, out: &mut Vec<Action<T>>) {
        let place = self.items[id].place;
        self.answer(id, verdict, out);
        self.line.removed(id, place, &self.items);
    }

    pub(super) fn fail(&mut self, out: &mut Vec<Action<T>>) {
        self.failing = true;
        self.answer_waiting(Verdict::Failing, out);
    }

    pub(super) fn answer_waiting(&mut self, verdict: Verdict, out: &mut Vec<Action<T>>) {
        let waiting: Vec<WorkId> = self.items.iter().filter(|item| item.place.waits()).map(Item::id).collect();
        for id in waiting {
            self.withdraw(id, verdict, out);
        }
    }
}
