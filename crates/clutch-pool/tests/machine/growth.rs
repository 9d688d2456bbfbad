//! What a call costs does not grow with the workers, the slots or the calls there are.
//!
//! Compared is the best of some rounds: what a busy machine adds is not the pool's. What was a walk over all is a hundred
//! times as much here.

use std::time::{Duration, Instant};

use crate::model::request;
use clutch_pool::pool::state::{Action, Event, Limits, Machine, WorkerKey};
use clutch_pool::work::WorkId;

const MANY_WORKERS: u32 = 1000;
const MANY_SLOTS: usize = 10_000;
const ROUNDS: usize = 5;
const CALLS_OF_ROUND: usize = 2000;
/// Times what it costs among few: the logarithm, caches, and a busy machine.
const FACTOR_MAX: u32 = 8;

const SHORT: Duration = Duration::from_micros(20);
const LONG: Duration = Duration::from_millis(5);

/// A machine whose workers begin what they are sent, and answer what the test says.
struct Busy {
    machine: Machine<()>,
    now: Instant,
    sent: Vec<(WorkerKey, WorkId)>,
}

impl Busy {
    fn new(workers: u32, slots: usize) -> Busy {
        let (now, sent) = (Instant::now(), Vec::new());
        let mut busy = Busy { machine: Machine::new(Limits::default()), now, sent };
        for worker in 0..workers {
            let ready = Event::WorkerReady { worker, slots, words: slots * 66, calls_max: None };
            busy.machine.on(ready, now, &mut Vec::new());
        }
        busy
    }

    fn submit(&mut self) {
        let mut out = Vec::new();
        self.machine.submit(request(1), (), self.now, &mut out);
        self.settle(out);
    }

    /// One of those that were sent ends, any of them.
    fn finish(&mut self, which: usize, run: Duration) {
        let (worker, id) = self.sent.swap_remove(which % self.sent.len());
        self.machine.finished(worker, id, run.as_nanos() as u64, self.now);
        self.settle(Vec::new());
    }

    fn settle(&mut self, mut out: Vec<Action<()>>) {
        loop {
            self.machine.settle(self.now, &mut out);
            if out.is_empty() {
                return;
            }
            for action in out.drain(..) {
                if let Action::Send { worker, id } = action {
                    self.sent.push((worker, id));
                }
            }
        }
    }

    /// Of one call, with so many more waiting than there are slots.
    fn cost(mut self, waiting: usize, run: Duration) -> Duration {
        self.submit();
        self.finish(0, run);
        for _ in 0..self.machine.counts().slots + waiting {
            self.submit();
        }
        let round = |round: usize| {
            let started = Instant::now();
            for nr in 0..CALLS_OF_ROUND {
                self.finish((round * CALLS_OF_ROUND + nr).wrapping_mul(7919), run);
                self.submit();
            }
            started.elapsed() / CALLS_OF_ROUND as u32
        };
        (0..ROUNDS).map(round).min().unwrap_or_default()
    }
}

fn assert_alike(what: &str, few: Duration, many: Duration) {
    assert!(many <= few * FACTOR_MAX, "{what}: {many:?} for each call, where few take {few:?}");
}

#[test]
fn a_call_costs_as_much_among_many_workers() {
    for (what, waiting, run) in
        [("idle", 0, LONG), ("long work waits", 2000, LONG), ("short work waits", 40_000, SHORT)]
    {
        let cost = |workers| Busy::new(workers, 1).cost(waiting, run);
        assert_alike(what, cost(2), cost(MANY_WORKERS));
    }
}

#[test]
fn a_call_costs_as_much_in_many_slots() {
    let cost = |slots| Busy::new(1, slots).cost(100, LONG);
    assert_alike("slots", cost(4), cost(MANY_SLOTS));
}

#[test]
fn a_call_costs_as_much_before_a_million_others() {
    let cost = |waiting| Busy::new(4, 1).cost(waiting, LONG);
    assert_alike("waiting", cost(10), cost(1_000_000));
}
