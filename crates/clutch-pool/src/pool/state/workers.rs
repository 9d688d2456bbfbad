//! Workers that come, hold, drain and go, and their slots: who gets what.

use std::collections::HashSet;
use std::time::Instant;

use super::load::{AHEAD, Hold, Load};
use super::{Action, Machine, Place, Submission, Verdict, WorkerKey};
use crate::work::WorkId;

impl<T> Machine<T> {
    pub(super) fn ready(
        &mut self,
        worker: WorkerKey,
        slots: usize,
        words: usize,
        calls_max: Option<u64>,
        now: Instant,
    ) {
        self.slots.insert(worker, Load::new(slots, words, calls_max, now));
        self.failing = false;
    }

    pub(super) fn hold(&mut self, worker: WorkerKey, why: Hold, out: &mut Vec<Action<T>>) {
        self.slots.change(worker, |load| load.holds.insert(why));
        if why != Hold::Starved {
            self.take_all(worker, out);
        }
    }

    /// See [`Event::Release`].
    pub fn release(&mut self, worker: WorkerKey, why: Hold) {
        self.slots.change(worker, |load| load.holds.remove(why));
    }

    pub fn is_held(&self, worker: WorkerKey, why: Hold) -> bool {
        self.slots.get(worker).is_some_and(|load| load.holds.contains(why))
    }

    pub(super) fn drain(&mut self, worker: WorkerKey, out: &mut Vec<Action<T>>) {
        self.slots.change(worker, |load| load.draining = true);
        self.take_all(worker, out);
        self.tell_drained(worker, out);
    }

    /// Endless work in a worker that is to end goes on until then.
    pub(super) fn end_endless(&mut self, worker: WorkerKey, by: Instant) {
        let Some(by) = self.slots.change(worker, |load| *load.ends_by.get_or_insert(by)) else { return };
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

    fn cut_endless(&mut self, id: WorkId, by: Instant) {
        let Some(work) = self.submissions.get_mut(id).filter(|work| work.request.endless) else { return };
        let at = *work.cut_at.get_or_insert(by);
        self.submissions.await_instant(at, id);
    }

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

    /// It had begun in a worker that is gone, and what is left of it goes on elsewhere.
    pub fn goes_on(&mut self, id: WorkId) {
        if let Some(Place::Sent { begun, .. }) = self.submissions.get_mut(id).map(|work| &mut work.place) {
            *begun = false;
        }
    }

    /// Asks back all that a worker has not begun, the newest first, so that the oldest ends up in front.
    pub(super) fn take_all(&mut self, worker: WorkerKey, out: &mut Vec<Action<T>>) {
        let Some(load) = self.slots.get(worker) else { return };
        let takes = load.sent.iter().rev().filter(|id| self.may_take(*id)).map(|id| Action::Take { worker, id });
        out.extend(takes);
    }

    pub(super) fn may_take(&self, id: WorkId) -> bool {
        self.submissions.get(id).is_some_and(|work| matches!(work.place, Place::Sent { begun: false, .. }))
    }

    pub(super) fn tell_drained(&self, worker: WorkerKey, out: &mut Vec<Action<T>>) {
        if self.drained(worker) {
            out.push(Action::Drained { worker });
        }
    }

    pub(super) fn taken(&mut self, worker: WorkerKey, id: WorkId, taken: bool, out: &mut Vec<Action<T>>) {
        let Some(Place::Sent { worker: at, begun }) = self.submissions.get_mut(id).map(|work| &mut work.place) else {
            return;
        };
        if *at != worker {
            return;
        }
        *begun = !taken;
        if taken {
            self.unload(worker, id, None);
            self.requeue(id, out);
            self.tell_drained(worker, out);
        }
    }

    /// Back into the line, where there is one: a pool that cannot start workers lets nothing wait.
    pub(super) fn requeue(&mut self, id: WorkId, out: &mut Vec<Action<T>>) {
        if self.failing {
            return self.answer(id, Verdict::Failing, out);
        }
        let work = &mut self.submissions[id];
        work.cut_at = None;
        self.line.put_back(work);
    }

    // ---- slots

    pub(super) fn send(&mut self, worker: WorkerKey, id: WorkId, now: Instant, out: &mut Vec<Action<T>>) {
        let load_ns =
            self.run_times.expected_ns(self.submissions[id].request.function).unwrap_or(AHEAD.as_nanos() as u64);
        let work = &mut self.submissions[id];
        (work.place, work.load_ns) = (Place::Sent { worker, begun: false }, load_ns);
        work.queued = now.saturating_duration_since(work.since);
        let calls = work.request.calls;
        let sent = self.slots.change(worker, |load| load.add(id, load_ns, calls, now));
        let Some((number, worn)) = sent else { return };
        self.submissions[id].sent_as = number;
        out.push(Action::Send { worker, id });
        if worn {
            out.push(Action::Worn { worker });
        }
    }

    /// Takes work off a worker's account; `answered`: when it was, if it was.
    pub(super) fn unload(&mut self, worker: WorkerKey, id: WorkId, answered: Option<Instant>) {
        let Some(Submission { sent_as, load_ns, request, .. }) = self.submissions.get(id) else { return };
        let (number, load_ns, calls) = (*sent_as, *load_ns, request.calls);
        self.slots.change(worker, |load| {
            load.remove(number, id, load_ns);
            match answered {
                Some(now) => load.has_answered(now),
                None => load.give_back(calls),
            }
        });
    }

    /// Whether a worker that was told to drain has nothing left but what will not stop: ask after [`Machine::finished`].
    pub fn drained(&self, worker: WorkerKey) -> bool {
        self.slots
            .get(worker)
            .is_some_and(|load| (load.draining || load.is_spent()) && load.sent.iter().all(|id| self.is_stuck(id)))
    }

    pub(super) fn is_stuck(&self, id: WorkId) -> bool {
        self.submissions.get(id).and_then(Submission::stopping).is_some_and(|stopping| stopping.stuck)
    }
}
