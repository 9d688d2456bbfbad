//! Work that workers take by themselves.

use std::time::{Duration, Instant};

use clutch_pool::pool::state::{Begun, Event, Request, WorkerKey};
use clutch_pool::work::WorkId;

use super::{Word, World};

impl World {
    /// The worker has begun this by itself, whatever it was sent. None: it is gone.
    pub fn adopt(&mut self, worker: WorkerKey, request: Request, since: Instant) -> Option<WorkId> {
        let body = self.next_body;
        self.next_body += 1;
        let mut out = Vec::new();
        let id = self.machine.adopt(request, body, Begun { worker, since }, self.now, &mut out);
        assert_eq!(id.is_some(), self.workers.contains_key(&worker), "whether it could be adopted");
        let (id, by) = (id?, self.workers.get_mut(&worker)?);
        by.take(id, &request, Word::Begun);
        let cut_at = by.cut_at.filter(|_| request.endless);
        self.bodies.insert(body, id);
        self.know(id, Request { retry: 0, ..request }, since, true);
        assert_eq!(self.machine.sent_at(id, worker), Some(since), "since when it runs");
        self.run(out);
        assert_eq!(self.works[&id].answers, 0, "it runs, and was answered");
        if request.deadline.into_iter().chain(cut_at).any(|at| at <= self.now) {
            // The driver wakes up at once.
            self.pass(Duration::ZERO);
        }
        Some(id)
    }

    /// The worker, which may be gone, has ended calls that it had taken by itself.
    pub fn serve(&mut self, worker: WorkerKey, calls: u64, run: Duration) {
        self.finished += calls;
        self.run_ns += run.as_nanos() as u64;
        let mut told_drained = false;
        if let Some(known) = self.workers.get_mut(&worker) {
            let was_spent = known.is_spent();
            known.count(calls);
            told_drained = known.is_spent() && !was_spent && known.is_empty();
            known.drained &= !told_drained;
        }
        self.on(Event::Served { worker, calls, run });
        assert!(!told_drained || self.workers[&worker].drained, "its calls are used up, and nobody was told");
    }
}
