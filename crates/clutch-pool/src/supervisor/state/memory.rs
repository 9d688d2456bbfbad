//! What a worker's memory means for it, and what the pool's budget means for replacements.

use std::time::Instant;

use super::{Action, Leave, State, Supervisor, Worker};
use crate::pool::Memory;
use crate::pool::state::WorkerKey;
use crate::supervisor::scale;

impl Worker {
    pub(super) fn private(&self) -> Option<u64> {
        self.memory.and_then(|memory| memory.private)
    }
}

impl Supervisor {
    /// Private memory of those that live, where it is known.
    pub fn private(&self) -> Vec<u64> {
        self.workers.values().filter_map(Worker::private).collect()
    }

    /// A worker whose memory is at the limit is out at once, whoever else is. The limit is a promise, like calls.
    pub(super) fn weigh(&mut self, figures: Vec<(WorkerKey, Memory)>, now: Instant, out: &mut Vec<Action>) {
        let limit = self.config.recycle_memory_bytes;
        for (key, memory) in figures {
            let Some(worker) = self.workers.get_mut(&key) else { continue };
            worker.memory = Some(memory);
            if memory.reaches(limit) && worker.state == State::Ready {
                worker.barred = true;
                out.push(Action::Bar { worker: key, barred: true });
                self.worn(key, Leave::Memory);
                self.leave(key, Leave::Memory, now, out);
            }
        }
    }

    /// While no replacement can be had, the old ones stay and serve.
    pub(super) fn let_barred_serve(&mut self, out: &mut Vec<Action>) {
        if self.failures == 0 {
            return;
        }
        for (key, worker) in self.workers.iter_mut().filter(|(_, worker)| worker.barred) {
            worker.barred = false;
            out.push(Action::Bar { worker: *key, barred: false });
        }
    }

    /// To be drained when its replacement is ready; at once, when memory has no room for both.
    pub(super) fn leave(&mut self, key: WorkerKey, why: Leave, now: Instant, out: &mut Vec<Action>) {
        let room = self.has_room();
        let Some(worker) = self.workers.get_mut(&key).filter(|worker| !worker.leaves()) else { return };
        worker.retirement.leave(why);
        if !room && worker.state == State::Ready {
            worker.retirement.leave_first(why);
            out.push(Action::Short { worker: key });
            self.drain(key, why, now, out);
        }
    }

    /// Whether there may be one more worker for a while.
    fn has_room(&self) -> bool {
        let memory_max = self.config.memory_max_bytes;
        memory_max.is_none_or(|most| scale::room(most, &self.private(), self.workers.len()) > 0)
    }
}
