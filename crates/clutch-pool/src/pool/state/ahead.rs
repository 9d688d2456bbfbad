//! Sending ahead of busy slots, and taking back: how short work is spared a wake-up each.

use std::time::Instant;

use super::load::{AHEAD, Load};
use super::{Action, Machine, Verdict};
use crate::work::{Where, WorkId};

impl<T> Machine<T> {
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

    /// What is next, left where it is. What has expired before it is answered.
    fn first_queued(&mut self, now: Instant, out: &mut Vec<Action<T>>) -> Option<WorkId> {
        loop {
            let id = self.line.first(&self.submissions)?;
            if self.submissions[id].request.deadline.is_none_or(|deadline| deadline > now) {
                return Some(id);
            }
            self.withdraw(id, Verdict::Expired(Where::Queue), out);
        }
    }

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
}
