//! Sending work to free slots, suspects alone, and ahead of busy slots; and taking it back.
//!
//! Sending ahead spares short work a wake-up each.

use std::time::Instant;

use super::load::{AHEAD, Alone, Hold, Load};
use super::{Action, Machine, Place, Submission, Verdict, WorkerKey};
use crate::work::{Where, WorkId};

impl<T> Machine<T> {
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

    pub(super) fn tell_drained(&self, worker: WorkerKey, out: &mut Vec<Action<T>>) {
        if let Some(stuck) = self.drained(worker) {
            out.push(Action::Drained { worker, stuck });
        }
    }

    /// Of a worker that drains and has nothing left but what will not stop: whether there is such. Ask after
    /// [`Machine::finished`].
    pub fn drained(&self, worker: WorkerKey) -> Option<bool> {
        let load = self.slots.get(worker).filter(|load| load.draining || load.is_spent())?;
        load.sent.iter().all(|id| self.is_stuck(id)).then(|| load.sent.iter().next().is_some())
    }

    pub(super) fn is_stuck(&self, id: WorkId) -> bool {
        self.submissions.get(id).and_then(Submission::stopping).is_some_and(|stopping| stopping.stuck)
    }

    // ---- to a slot

    pub(super) fn send(&mut self, worker: WorkerKey, id: WorkId, now: Instant, out: &mut Vec<Action<T>>) {
        let load_ns =
            self.run_times.expected_ns(self.submissions[id].request.function).unwrap_or(AHEAD.as_nanos() as u64);
        let work = &mut self.submissions[id];
        (work.place, work.load_ns) = (Place::Sent { worker, begun: false }, load_ns);
        work.queued = now.saturating_duration_since(work.since);
        let calls = work.request.calls;
        let sent = self.slots.change(worker, |load| load.add(id, load_ns, calls, now));
        let Some((number, worn)) = sent else { return };
        self.slots.had_its_turn(worker);
        self.submissions[id].sent_as = number;
        out.push(Action::Send { worker, id });
        if worn {
            out.push(Action::Worn { worker });
        }
    }

    /// Takes work off a worker's account; `answered`: when it was, if it was.
    pub(super) fn unload(&mut self, worker: WorkerKey, id: WorkId, answered: Option<Instant>) {
        let Some(Submission { sent_as, load_ns, request, place, .. }) = self.submissions.get(id) else { return };
        let (number, load_ns, calls) = (*sent_as, *load_ns, request.calls);
        let in_time = !matches!(place, Place::Abandoned { .. });
        self.slots.change(worker, |load| {
            load.remove(number, id, load_ns);
            match answered {
                Some(now) => load.has_answered(in_time, now),
                None => load.give_back(calls),
            }
        });
    }

    /// Lets suspects run, each alone in its worker. When none is idle, one worker is kept free of other work until it is.
    pub(super) fn send_suspects(&mut self, now: Instant, out: &mut Vec<Action<T>>) {
        while let Some(id) = self.line.first_suspect() {
            if self.submissions[id].request.deadline.is_some_and(|deadline| deadline <= now) {
                self.withdraw(id, Verdict::Expired(Where::Queue), out);
                continue;
            }
            if !self.slots.has_room_for_suspect() {
                return;
            }
            let Some(worker) = self.slots.idle_for_suspect() else {
                self.slots.reserve();
                return;
            };
            self.line.pop_suspect();
            self.slots.change(worker, |load| load.alone = Alone::Running(id));
            self.send(worker, id, now, out);
        }
        self.slots.release_reserved();
    }

    // ---- ahead of a slot

    /// Fills up the workers that have run low, so that many frames share one write.
    pub(super) fn send_ahead(&mut self, now: Instant, out: &mut Vec<Action<T>>) {
        while let Some(worker) = self.slots.lowest(now) {
            loop {
                let Some(head) = self.first_queued(now, out) else { return };
                let request = self.submissions[head].request;
                let expected = self.run_times.expected_ns(request.function).filter(|_| !request.endless);
                if expected.is_none_or(|ns| ns > AHEAD.as_nanos() as u64) {
                    return;
                }
                if !self.slots.get(worker).is_some_and(Load::has_room_ahead) {
                    break;
                }
                let Some(id) = self.next_queued(now, out) else { return };
                self.send(worker, id, now, out);
            }
        }
    }

    pub(super) fn next_queued(&mut self, now: Instant, out: &mut Vec<Action<T>>) -> Option<WorkId> {
        self.first_queued(now, out)?;
        self.line.pop(&self.submissions)
    }

    /// Returns what is next, and leaves it where it is. Expired work before it is answered.
    fn first_queued(&mut self, now: Instant, out: &mut Vec<Action<T>>) -> Option<WorkId> {
        loop {
            let id = self.line.first(&self.submissions)?;
            if self.submissions[id].request.deadline.is_none_or(|deadline| deadline > now) {
                return Some(id);
            }
            self.withdraw(id, Verdict::Expired(Where::Queue), out);
        }
    }

    // ---- back

    /// Takes work back from workers that make no progress, and from busy ones for slots that are idle.
    pub(super) fn take_back(&mut self, now: Instant, out: &mut Vec<Action<T>>) {
        let mut wanted = if self.line.queued() == 0 { self.slots.totals().free } else { 0 };
        let mut stood_still = Vec::new();
        for (worker, load) in self.slots.with_work_ahead() {
            let stalled = load.is_stalled(now);
            if !stalled && wanted == 0 {
                break;
            }
            let may_be_taken = load.sent.iter().filter(|id| self.may_take(*id));
            // What its slots have stays there unless another's is idle: it would be sent there again.
            let share = if stalled { wanted.max(load.ahead()) } else { wanted.min(load.ahead().div_ceil(2)) };
            // The newest first: whatever a worker begins meanwhile is older than what was taken.
            let taken: Vec<WorkId> = match stalled {
                true => may_be_taken.rev().take(share).collect(),
                false => may_be_taken.take(share).collect::<Vec<_>>().into_iter().rev().collect(),
            };
            out.extend(taken.iter().map(|id| Action::Take { worker, id: *id }));
            wanted = wanted.saturating_sub(taken.len());
            if stalled && !taken.is_empty() {
                stood_still.push(worker);
            }
        }
        for worker in stood_still {
            self.slots.change(worker, Load::stands_still);
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
        if self.intake.is_failing() {
            return self.answer(id, self.intake.verdict_of_rest(), out);
        }
        let work = &mut self.submissions[id];
        let was_limited = work.cut_at.take().is_some() | work.limit_at.take().is_some();
        self.line.put_back(work);
        if was_limited {
            self.submissions.await_due(id);
        }
    }
}
