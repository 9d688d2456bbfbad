//! Work that a worker takes by itself, without a frame on its link.

use std::time::{Duration, Instant};

use super::load::AHEAD;
use super::{Action, Machine, Place, Request, WorkerKey};
use crate::work::WorkId;

/// Where work has begun, and when.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    pub worker: WorkerKey,
    pub since: Instant,
}

impl<T> Machine<T> {
    /// Takes in work that a worker has begun by itself, whatever else is refused: from here on it is on that worker's link,
    /// beyond its slots where those have work, and never runs again elsewhere. None: the worker gets no work yet, or no
    /// longer lives.
    pub fn adopt(
        &mut self,
        request: Request,
        body: T,
        begun: Begun,
        now: Instant,
        out: &mut Vec<Action<T>>,
    ) -> Option<WorkId> {
        let Begun { worker, since } = begun;
        let ends_by = self.slots.get(worker)?.ends_by;
        let id = self.insert(Request { retry: 0, ..request }, body, since);
        // It is known only because it runs for long.
        let load_ns = AHEAD.as_nanos() as u64;
        let (number, worn) = self.slots.change(worker, |load| load.add(id, load_ns, request.calls, now))?;
        let work = &mut self.submissions[id];
        work.place = Place::Sent { worker, begun: true };
        (work.adopted, work.load_ns, work.sent_as) = (true, load_ns, number);
        if let Some(deadline) = work.request.deadline {
            self.submissions.await_instant(deadline, id);
        }
        ends_by.into_iter().for_each(|by| self.cut_endless(id, by));
        self.cut.by.into_iter().for_each(|by| self.cut_work(id, by));
        if worn {
            out.push(Action::Worn { worker });
        }
        Some(id)
    }

    /// Counts calls that a worker has ended; they never waited here. A worker that is gone had them all the same.
    pub(super) fn served(&mut self, worker: WorkerKey, calls: u64, run: Duration, out: &mut Vec<Action<T>>) {
        self.finished.note_served(calls, run);
        let used = self.slots.change(worker, |load| {
            let was_spent = load.is_spent();
            load.has_served();
            (load.count(calls), load.is_spent() && !was_spent)
        });
        let Some((worn, spent)) = used else { return };
        if worn {
            out.push(Action::Worn { worker });
        }
        if spent {
            self.tell_drained(worker, out);
        }
    }
}
