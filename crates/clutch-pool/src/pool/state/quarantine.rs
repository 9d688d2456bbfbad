//! Work that a worker died of: how often it may try, and that its next try runs alone where others could be guilty too.

use std::time::Instant;

use super::load::Alone;
use super::{Action, Machine, Submission, Verdict, WorkerKey};
use crate::work::{Where, WorkId};

/// What a worker's death means for one piece of work that had begun in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sentence {
    Lost,
    Poisoned,
    /// It runs again; `alone`: it was not the only one that could have done it.
    Again {
        alone: bool,
    },
}

impl<T> Submission<T> {
    /// `suspects`: how many had begun there. `ended`: Clutch ended the worker itself, which counts against nobody.
    pub(super) fn sentence(&mut self, suspects: usize, ended: bool, deaths_max: u32) -> Sentence {
        if ended {
            return if self.request.retry > 0 { Sentence::Again { alone: false } } else { Sentence::Lost };
        }
        self.deaths += 1;
        if self.deaths >= deaths_max {
            return Sentence::Poisoned;
        }
        match self.request.retry.checked_sub(1) {
            None => Sentence::Lost,
            Some(left) => {
                self.request.retry = left;
                Sentence::Again { alone: suspects > 1 }
            }
        }
    }
}

impl<T> Machine<T> {
    /// Whether an item of a batch, which ran when its worker died, may run again: each item has the batch's `retry`. If
    /// so, the batch is to be among those that had begun in [`super::Event::WorkerGone`]; if not, the item is lost.
    pub fn item_runs_again(&mut self, id: WorkId, item: u32, retry: u32, ended: bool) -> bool {
        let deaths_max = self.limits.deaths_max;
        let Some(batch) = self.submissions.get_mut(id) else { return false };
        if batch.tried_item != item {
            (batch.tried_item, batch.deaths, batch.request.retry) = (item, 0, retry);
        }
        batch.request.retry > 0 && (ended || batch.deaths + 1 < deaths_max)
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
        let (deaths_max, failing) = (self.limits.deaths_max, self.failing);
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
}
