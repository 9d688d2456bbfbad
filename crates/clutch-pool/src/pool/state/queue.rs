//! The waiting line: first in, first out among equal priorities, with O(1) push, pop and (amortised) removal.

use std::collections::VecDeque;

use crate::work::WorkId;

/// Priorities run from −9 to 9.
pub const PRIORITY_MAX: i8 = 9;
const LANES: usize = 2 * PRIORITY_MAX as usize + 1;

/// Removed entries that may stay in a lane before it is swept.
const STALE_MIN: usize = 64;

/// Ids in order. A removed id stays as a stale entry until it is popped or swept; `is_live` tells them apart.
#[derive(Debug)]
pub struct Queue {
    lanes: [VecDeque<WorkId>; LANES],
    live: usize,
    entries: usize,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue { lanes: std::array::from_fn(|_| VecDeque::new()), live: 0, entries: 0 }
    }
}

/// Lane 0 is served first.
fn lane(priority: i8) -> usize {
    (PRIORITY_MAX - priority.clamp(-PRIORITY_MAX, PRIORITY_MAX)) as usize
}

/// The upper half of an id counts submissions, and wraps.
pub(super) fn is_older(one: WorkId, other: WorkId) -> bool {
    (((one >> 32) as u32).wrapping_sub((other >> 32) as u32) as i32) < 0
}

impl Queue {
    pub fn len(&self) -> usize {
        self.live
    }

    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    pub fn push_back(&mut self, id: WorkId, priority: i8) {
        self.lanes[lane(priority)].push_back(id);
        self.live += 1;
        self.entries += 1;
    }

    /// Back to where it came from: behind what was submitted before it, before all that was submitted after.
    pub fn put_back(&mut self, id: WorkId, priority: i8) {
        let lane = &mut self.lanes[lane(priority)];
        let at = lane.iter().take_while(|waiting| is_older(**waiting, id)).count();
        lane.insert(at, id);
        self.live += 1;
        self.entries += 1;
    }

    /// The next live id.
    pub fn pop(&mut self, is_live: impl Fn(WorkId) -> bool) -> Option<WorkId> {
        for lane in &mut self.lanes {
            while let Some(id) = lane.pop_front() {
                self.entries -= 1;
                if is_live(id) {
                    self.removed(is_live);
                    return Some(id);
                }
            }
        }
        None
    }

    /// Returns the id that [`Queue::pop`] would return.
    pub fn peek(&mut self, is_live: impl Fn(WorkId) -> bool) -> Option<WorkId> {
        for lane in &mut self.lanes {
            while let Some(id) = lane.front() {
                if is_live(*id) {
                    return Some(*id);
                }
                lane.pop_front();
                self.entries -= 1;
            }
        }
        None
    }

    /// The first live id of each priority.
    pub fn fronts(&mut self, is_live: impl Fn(WorkId) -> bool) -> impl Iterator<Item = WorkId> + '_ {
        for lane in &mut self.lanes {
            while lane.front().is_some_and(|id| !is_live(*id)) {
                lane.pop_front();
                self.entries -= 1;
            }
        }
        self.lanes.iter().filter_map(|lane| lane.front().copied())
    }

    /// Notes that one live id has left; where it has an entry still, it must not be live any more by now.
    pub fn removed(&mut self, is_live: impl Fn(WorkId) -> bool) {
        self.live -= 1;
        if self.entries - self.live > STALE_MIN + self.live {
            for lane in &mut self.lanes {
                lane.retain(|id| is_live(*id));
            }
            self.entries = self.lanes.iter().map(VecDeque::len).sum();
        }
    }

    /// Entries held, stale ones included: bounded by twice the live ones and a constant.
    pub fn entries(&self) -> usize {
        self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn larger_priority_first_then_first_in_first_out() {
        let mut queue = Queue::default();
        for (id, priority) in [(1, 0), (2, 5), (3, 0), (4, -9), (5, 5)] {
            queue.push_back(id, priority);
        }
        let order: Vec<WorkId> = std::iter::from_fn(|| queue.pop(|_| true)).collect();
        assert_eq!(order, [2, 5, 1, 3, 4]);
    }

    #[test]
    fn what_is_put_back_waits_where_it_did_before() {
        let mut queue = Queue::default();
        let ids = [u64::from(u32::MAX) << 32, 0, 1 << 32, 2 << 32];
        for id in [ids[2], ids[3]] {
            queue.push_back(id, 0);
        }
        for id in [ids[1], ids[0]] {
            queue.put_back(id, 0);
        }
        assert_eq!(queue.pop(|_| true), Some(ids[0]), "the counter has wrapped after this one");
        queue.put_back(ids[0], 0);
        queue.removed(|id| id != ids[0]);
        assert_eq!(queue.pop(|id| id != ids[0]), Some(ids[1]));
        queue.put_back(ids[1], 0);
        let order: Vec<WorkId> = std::iter::from_fn(|| queue.pop(|_| true)).collect();
        assert_eq!(order, ids[1..]);
    }

    #[test]
    fn failure_21_memory_is_flat_after_a_million_removals() {
        let mut queue = Queue::default();
        let mut live = HashSet::new();
        for id in 0..1_000_000 {
            queue.push_back(id, 0);
            live.insert(id);
            if id >= 10 {
                live.remove(&(id - 5));
                queue.removed(|id| live.contains(&id));
            }
        }
        assert!(queue.entries() <= 2 * queue.len() + STALE_MIN + 1, "{} entries", queue.entries());
    }
}
