//! The pool's waiting line against a line for each priority that is kept the slow way.

use std::collections::{BTreeMap, BTreeSet};

use clutch_pool::pool::state::queue::{PRIORITY_MAX, Queue};
use clutch_pool::work::WorkId;
use proptest::prelude::*;

/// Removed entries that may stay beside as many as are live.
const STALE_MIN: usize = 64;

/// The upper half of an id counts submissions; this many are left before it wraps.
const BEFORE_WRAP: u32 = 20;

#[derive(Clone, Debug)]
enum Step {
    PushBack { priority: i8 },
    PutBack { pick: usize },
    Pop,
    Remove { pick: usize },
    RemoveMany { keep: usize },
    Peek,
    Fronts,
}

/// The queue, and what should be in it: by lane, the numbers of submission in order.
struct Line {
    queue: Queue,
    lanes: BTreeMap<i8, BTreeSet<u32>>,
    live: BTreeMap<WorkId, i8>,
    /// What was taken out and may come back.
    out: Vec<(u32, i8)>,
    submitted: u32,
}

fn id_of(number: u32) -> WorkId {
    let serial = number.wrapping_sub(BEFORE_WRAP);
    // Slots are used again in any order.
    (u64::from(serial) << 32) | u64::from(number.wrapping_mul(7) % 16)
}

impl Line {
    fn new() -> Line {
        Line { queue: Queue::default(), lanes: BTreeMap::new(), live: BTreeMap::new(), out: Vec::new(), submitted: 0 }
    }

    fn add(&mut self, number: u32, priority: i8) {
        let lane = -priority.clamp(-PRIORITY_MAX, PRIORITY_MAX);
        assert!(self.lanes.entry(lane).or_default().insert(number), "put in twice");
        self.live.insert(id_of(number), priority);
    }

    fn forget(&mut self, number: u32) -> i8 {
        self.lanes.values_mut().for_each(|lane| lane.retain(|other| *other != number));
        self.live.remove(&id_of(number)).expect("it is live")
    }

    fn first(&self) -> Option<u32> {
        self.lanes.values().find_map(|lane| lane.first().copied())
    }

    fn numbers(&self) -> Vec<u32> {
        self.lanes.values().flatten().copied().collect()
    }

    fn remove(&mut self, number: u32) {
        self.forget(number);
        let live = &self.live;
        self.queue.removed(|id| live.contains_key(&id));
    }

    fn pop(&mut self) {
        let (first, live) = (self.first(), &self.live);
        assert_eq!(self.queue.pop(|id| live.contains_key(&id)), first.map(id_of));
        if let Some(number) = first {
            let priority = self.forget(number);
            self.out.push((number, priority));
        }
    }

    fn happen(&mut self, step: Step) {
        let numbers = self.numbers();
        let live = &self.live;
        match step {
            Step::PushBack { priority } => {
                self.queue.push_back(id_of(self.submitted), priority);
                self.add(self.submitted, priority);
                self.submitted += 1;
            }
            Step::PutBack { pick } if !self.out.is_empty() => {
                let (number, priority) = self.out.swap_remove(pick % self.out.len());
                self.queue.put_back(id_of(number), priority);
                self.add(number, priority);
            }
            Step::Pop => self.pop(),
            Step::Remove { pick } if !numbers.is_empty() => self.remove(numbers[pick % numbers.len()]),
            Step::RemoveMany { keep } => numbers.into_iter().skip(keep).for_each(|number| self.remove(number)),
            Step::Peek => assert_eq!(self.queue.peek(|id| live.contains_key(&id)), self.first().map(id_of)),
            Step::Fronts => {
                let fronts: Vec<WorkId> = self.queue.fronts(|id| live.contains_key(&id)).collect();
                let firsts: Vec<WorkId> =
                    self.lanes.values().filter_map(|lane| lane.first().copied().map(id_of)).collect();
                assert_eq!(fronts, firsts);
            }
            Step::PutBack { .. } | Step::Remove { .. } => {}
        }
    }

    fn check(&self) {
        let live = self.live.len();
        assert_eq!(self.queue.len(), live);
        assert_eq!(self.queue.is_empty(), live == 0);
        let entries = self.queue.entries();
        assert!((live..=2 * live + STALE_MIN).contains(&entries), "{entries} entries for {live} that are live");
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        // Priorities beyond the largest are taken for the largest.
        12 => (-11i8..=11).prop_map(|priority| Step::PushBack { priority }),
        12 => (-1i8..=1).prop_map(|priority| Step::PushBack { priority }),
        6 => any::<usize>().prop_map(|pick| Step::PutBack { pick }),
        8 => Just(Step::Pop),
        8 => any::<usize>().prop_map(|pick| Step::Remove { pick }),
        1 => (0usize..20).prop_map(|keep| Step::RemoveMany { keep }),
        4 => Just(Step::Peek),
        4 => Just(Step::Fronts),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn failure_21_the_line_is_in_order_and_as_short_as_promised_whatever_happens(
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let mut line = Line::new();
        for step in steps {
            line.happen(step);
            line.check();
        }
        while !line.queue.is_empty() {
            line.pop();
            line.check();
        }
        line.pop();
        prop_assert_eq!(line.queue.entries(), 0, "entries of nothing");
    }
}

/// A line of so many, and of nothing else.
fn of(count: u64) -> Queue {
    let mut queue = Queue::default();
    (0..count).for_each(|number| queue.push_back(number << 32, 0));
    queue
}

#[test]
fn failure_21_what_was_removed_stays_until_it_is_more_than_what_is_live_and_a_constant() {
    for live in [1, 2, 10, 100] {
        let stale = STALE_MIN as u64 + live;
        let mut queue = of(live + stale);
        for removed in 1..=stale {
            queue.removed(|id| id >= removed << 32);
            assert_eq!(queue.entries() as u64, live + stale, "swept too early, with {live} live");
        }
        queue.removed(|id| id > stale << 32);
        assert_eq!((queue.entries() as u64, queue.len() as u64), (live - 1, live - 1), "not swept, with {live} live");
    }
}

#[test]
fn what_is_not_live_any_more_is_passed_over_and_forgotten() {
    let live = |id: WorkId| id >> 32 == 3;
    let removed = |mut queue: Queue| {
        (0..3).for_each(|_| queue.removed(live));
        assert_eq!((queue.len(), queue.entries()), (1, 4));
        queue
    };
    let mut peeked = removed(of(4));
    assert_eq!((peeked.peek(live), peeked.entries(), peeked.len()), (Some(3 << 32), 1, 1));
    let mut looked_at = removed(of(4));
    assert_eq!(looked_at.fronts(live).collect::<Vec<_>>(), [3 << 32]);
    assert_eq!((looked_at.entries(), looked_at.len()), (1, 1));
    let mut popped = removed(of(4));
    assert_eq!((popped.pop(live), popped.entries(), popped.len()), (Some(3 << 32), 0, 0));
}
