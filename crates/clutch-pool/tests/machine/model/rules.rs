//! What always holds, of the machine and of what the world knows: checked whenever the machine has settled.

use std::collections::BTreeSet;
use std::time::Instant;

use clutch_pool::pool::state::WorkerKey;
use clutch_pool::work::WorkId;

use super::{Word, Worker, World};

impl World {
    pub fn queued(&self) -> usize {
        self.machine.counts().queued
    }

    /// Sums over all that the world knows.
    fn check_counts(&mut self) {
        let demand = self.machine.demand();
        self.machine.begin_window();
        assert_eq!(demand.busy, self.busy(), "slots that run something");
        assert!(demand.busy_least <= demand.busy, "the fewest are more than there are");
        assert_eq!((demand.finished, demand.run_ns), (self.finished, self.run_ns), "what was answered");
        let counts = self.machine.counts();
        let frames: usize = self.workers.values().map(|worker| worker.frames.len()).sum();
        let slots: usize = self.workers.values().filter(|worker| worker.takes()).map(|worker| worker.slots).sum();
        assert_eq!((counts.workers, counts.sent), (self.workers.len(), frames), "workers, and what they were sent");
        assert!(counts.slots <= slots, "more slots than there are");
        assert!(counts.slots == slots || self.has_suspects(), "slots that take work");
        assert!(demand.waiting == counts.queued + counts.blocked || self.has_suspects(), "what waits");
        let open = self.works.values().any(|known| known.answers == 0) || frames > 0;
        assert!(!(open && self.machine.is_empty()), "nothing is left, with something open");
        assert_eq!(self.machine.is_closed(), self.closed);
    }

    /// The machine wants to be told of an instant when something is due then, and of none before.
    fn check_due(&mut self) {
        let on_links = self.workers.values().flat_map(|worker| worker.frames.iter().map(move |frame| (worker, frame)));
        let of_links = on_links.filter_map(|(worker, (id, word))| match word {
            Word::Abandoned(by) => Some(*by),
            Word::Stuck => None,
            Word::Sent | Word::Begun => {
                let request = self.works[id].request;
                request.deadline.into_iter().chain(worker.cut_at.filter(|_| request.endless)).min()
            }
        });
        let open = self.works.iter().filter(|(id, known)| known.answers == 0 && self.machine.worker_of(**id).is_none());
        let due = of_links.chain(open.filter_map(|(_, known)| known.request.deadline)).min();
        assert_eq!(self.machine.next_deadline(), due, "when something is due");
    }

    fn has_suspects(&self) -> bool {
        self.works.values().any(|known| known.answers == 0 && known.suspect)
    }

    fn oldest_waiting(&self) -> Option<Instant> {
        let on_links: BTreeSet<WorkId> =
            self.workers.values().flat_map(|worker| &worker.frames).map(|(id, _)| *id).collect();
        let open = self.works.iter().filter(|(id, known)| known.answers == 0 && !on_links.contains(id));
        open.map(|(_, known)| known.submitted).min()
    }

    fn busy(&self) -> usize {
        let counted = self.workers.values().filter(|worker| !worker.draining);
        counted.map(|worker| worker.frames.len().min(worker.slots)).sum()
    }

    pub fn free_slots(&self) -> usize {
        self.workers.values().map(Worker::free).sum()
    }

    pub(super) fn check(&mut self) {
        self.machine.check_indexes(self.now);
        self.check_counts();
        self.check_due();
        let waits_since = self.machine.waits_since();
        assert_eq!(waits_since, self.oldest_waiting(), "the oldest that waits is another");
        let counts = self.machine.counts();
        let free = self.free_slots();
        // A worker may be kept free for a suspect.
        let free = if self.has_suspects() { 0 } else { free };
        let idle_for_nothing = free > 0 && counts.queued + counts.blocked > 0;
        assert!(!idle_for_nothing, "{free} slots idle while work waits: {counts:?}");
        self.check_queue(counts.queued);
        for (key, worker) in &self.workers {
            self.check_worker(*key, worker, free);
        }
        if self.failing {
            assert_eq!(counts.queued + counts.blocked, 0, "work waits for workers that cannot start");
        }
        self.check_whereabouts(counts.queued + counts.blocked);
    }

    /// The queue keeps its bound, but for work that came back from workers.
    fn check_queue(&self, queued: usize) {
        let came_back = self.works.values().filter(|known| known.answers == 0 && known.sends > 0).count();
        let most = self.limits.queue.map_or(usize::MAX, |most| most.max(1).saturating_add(came_back));
        assert!(queued <= most, "{queued} queued, {most} allowed");
    }

    fn check_worker(&self, key: WorkerKey, worker: &Worker, free: usize) {
        let adopted = worker.frames.iter().filter(|(id, _)| self.works[id].adopted).count();
        assert!(worker.begun() - adopted <= worker.slots, "more begun than slots");
        assert_eq!(self.machine.sent(key).count(), worker.frames.len(), "the machine has lost track of {key}");
        let idle_elsewhere = free > 0 && worker.frames.len() > worker.slots;
        let takeable = worker.frames.iter().any(|(_, word)| *word == Word::Sent);
        assert!(!(idle_elsewhere && takeable), "work waits behind a busy worker while a slot is idle");
        if !worker.holds.is_empty() || worker.draining {
            assert!(!takeable, "a worker that takes nothing holds work that has not begun");
        }
        assert_eq!(self.machine.worker(key), Some((worker.frames.len(), worker.calls)), "the machine counts otherwise");
        assert!(worker.frames.iter().all(|(id, _)| self.machine.worker_of(*id) == Some(key)), "on another's link");
        assert_eq!(worker.worn, worker.said_worn, "worn, and nobody was told");
        let ends = worker.draining || worker.is_spent();
        let left = worker.frames.iter().any(|(_, word)| *word != Word::Stuck);
        assert_eq!(self.machine.drained(key).is_some(), ends && !left, "whether worker {key} has drained");
        if worker.draining && worker.frames.iter().all(|(_, word)| *word == Word::Stuck) {
            assert!(worker.drained, "worker {key} has drained and nobody was told");
        }
    }

    /// Nothing is lost: what is not answered waits or is on a link.
    fn check_whereabouts(&self, waiting: usize) {
        let open: BTreeSet<WorkId> =
            self.works.iter().filter(|(_, known)| known.answers == 0).map(|(id, _)| *id).collect();
        let on_links = self.workers.values().flat_map(|worker| &worker.frames);
        let unanswered = on_links.filter(|(id, _)| open.contains(id)).count();
        assert_eq!(unanswered + waiting, open.len(), "work is lost, or counted twice");
    }
}
