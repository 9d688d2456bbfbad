//! The waiting line: suspects, which run alone; the queue; and what waits for room in it.
//!
//! Owns where work that waits is: it alone puts work at one of these three places, and into the order of it.

use std::collections::VecDeque;
use std::time::Instant;

use super::queue::{Queue, is_older};
use super::submissions::{Place, Submission, Submissions};
use crate::work::WorkId;

#[derive(Debug)]
pub(super) struct WaitingLine {
    /// Most that wait in the queue; none: no limit.
    limit: Option<usize>,
    queue: Queue,
    /// All of one priority: whoever came first leaves first.
    blocked: Queue,
    /// Oldest first.
    suspects: VecDeque<WorkId>,
}

impl WaitingLine {
    pub(super) fn new(limit: Option<usize>) -> WaitingLine {
        WaitingLine { limit, queue: Queue::default(), blocked: Queue::default(), suspects: VecDeque::new() }
    }

    /// Suspects included; not what waits for room.
    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.suspects.len()
    }

    /// Returns the number of submitters that wait for room in the queue.
    pub(super) fn blocked(&self) -> usize {
        self.blocked.len()
    }

    /// Nothing waits, not even for room.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.blocked.is_empty() && self.suspects.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| self.len() >= limit)
    }

    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// When the oldest that waits was submitted.
    pub(super) fn since<T>(&mut self, submissions: &Submissions<T>) -> Option<Instant> {
        if self.is_empty() {
            return None;
        }
        let queued = self.queue.fronts(|id| submissions.is_at(id, Place::Queued));
        let blocked = self.blocked.fronts(|id| submissions.is_at(id, Place::Blocked));
        queued.chain(blocked).chain(self.suspects.front().copied()).map(|id| submissions[id].since).min()
    }

    // ---- in

    pub(super) fn push<T>(&mut self, work: &mut Submission<T>) {
        work.place = Place::Queued;
        self.queue.push_back(work.id(), work.request.priority);
    }

    pub(super) fn block<T>(&mut self, work: &mut Submission<T>) {
        work.place = Place::Blocked;
        self.blocked.push_back(work.id(), 0);
    }

    /// To where it was before it was sent.
    pub(super) fn put_back<T>(&mut self, work: &mut Submission<T>) {
        if work.alone {
            work.place = Place::Suspect;
            self.suspects.insert(self.place_of_suspect(work.id()), work.id());
        } else {
            work.place = Place::Queued;
            self.queue.put_back(work.id(), work.request.priority);
        }
    }

    fn place_of_suspect(&self, id: WorkId) -> usize {
        self.suspects.partition_point(|other| is_older(*other, id))
    }

    /// Lets what waits for room into the queue, where that has some. Of a queue without any, one may wait for a slot.
    pub(super) fn let_in<T>(&mut self, submissions: &mut Submissions<T>) -> Option<WorkId> {
        if self.blocked.is_empty() || self.limit.is_some_and(|limit| self.len() >= limit.max(1)) {
            return None;
        }
        let id = self.blocked.pop(|id| submissions.is_at(id, Place::Blocked))?;
        self.push(&mut submissions[id]);
        Some(id)
    }

    // ---- out

    /// Returns what is next in the queue, and leaves it where it is.
    pub(super) fn first<T>(&mut self, submissions: &Submissions<T>) -> Option<WorkId> {
        self.queue.peek(|id| submissions.is_at(id, Place::Queued))
    }

    pub(super) fn pop<T>(&mut self, submissions: &Submissions<T>) -> Option<WorkId> {
        self.queue.pop(|id| submissions.is_at(id, Place::Queued))
    }

    pub(super) fn first_suspect(&self) -> Option<WorkId> {
        self.suspects.front().copied()
    }

    pub(super) fn pop_suspect(&mut self) -> Option<WorkId> {
        self.suspects.pop_front()
    }

    /// Notes that what waited at `place` is gone.
    pub(super) fn removed<T>(&mut self, id: WorkId, place: Place, submissions: &Submissions<T>) {
        match place {
            Place::Suspect => drop(self.suspects.remove(self.place_of_suspect(id))),
            Place::Blocked => self.blocked.removed(|id| submissions.is_at(id, place)),
            _ => self.queue.removed(|id| submissions.is_at(id, place)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::state::Request;

    struct Waiting {
        line: WaitingLine,
        submissions: Submissions<()>,
    }

    impl Waiting {
        fn new(limit: Option<usize>) -> Waiting {
            Waiting { line: WaitingLine::new(limit), submissions: Submissions::default() }
        }

        fn work(&mut self) -> WorkId {
            let request = Request {
                function: 0,
                priority: 0,
                deadline: None,
                block: false,
                retry: 0,
                endless: false,
                calls: 1,
                fetcher: None,
            };
            self.submissions.insert(request, (), Instant::now(), false)
        }

        fn suspect(&mut self) -> WorkId {
            let id = self.work();
            self.submissions[id].alone = true;
            id
        }

        fn put_back(&mut self, id: WorkId) {
            self.line.put_back(&mut self.submissions[id]);
        }
    }

    #[test]
    fn what_waits_for_room_is_let_in_one_by_one_also_where_the_queue_has_none() {
        for limit in [0, 1] {
            let mut waiting = Waiting::new(Some(limit));
            let ids = [waiting.work(), waiting.work()];
            ids.iter().for_each(|id| waiting.line.block(&mut waiting.submissions[*id]));
            assert_eq!(waiting.line.let_in(&mut waiting.submissions), Some(ids[0]), "limit {limit}");
            assert_eq!(waiting.line.let_in(&mut waiting.submissions), None, "limit {limit}");
            assert_eq!((waiting.line.len(), waiting.line.blocked()), (1, 1));
            assert_eq!(waiting.line.pop(&waiting.submissions), Some(ids[0]));
        }
    }

    #[test]
    fn suspects_wait_oldest_first_and_any_may_leave() {
        let mut waiting = Waiting::new(None);
        let ids = [waiting.suspect(), waiting.suspect(), waiting.suspect()];
        ids.iter().rev().for_each(|id| waiting.put_back(*id));
        waiting.submissions.remove(ids[1]);
        waiting.line.removed(ids[1], Place::Suspect, &waiting.submissions);
        assert_eq!([waiting.line.pop_suspect(), waiting.line.pop_suspect()], [Some(ids[0]), Some(ids[2])]);
        assert!(waiting.line.is_empty());
    }
}
