//! Work on one worker's link, in the order of sending; any of it may leave.

use std::collections::VecDeque;

use crate::work::WorkId;

/// Numbers rise from the front on, so that one is found by halving; what leaves is mostly near the front.
#[derive(Debug, Default)]
pub(super) struct Sent {
    in_order: VecDeque<(u64, WorkId)>,
    last: u64,
}

impl Sent {
    pub(super) fn len(&self) -> usize {
        self.in_order.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.in_order.is_empty()
    }

    /// Returns the number by which it can be removed.
    pub(super) fn push(&mut self, id: WorkId) -> u64 {
        self.last += 1;
        self.in_order.push_back((self.last, id));
        self.last
    }

    /// False: this number stands for something else, or for nothing.
    pub(super) fn remove(&mut self, number: u64, id: WorkId) -> bool {
        let found = self.in_order.binary_search_by_key(&number, |(number, _)| *number);
        let Some(at) = found.ok().filter(|at| self.in_order[*at].1 == id) else { return false };
        self.in_order.remove(at);
        true
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = WorkId> + '_ {
        self.in_order.iter().map(|(_, id)| *id)
    }
}
