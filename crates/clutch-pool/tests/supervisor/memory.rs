//! What workers' memory, and other numbers of them, mean for who leaves when.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::world::{MEMORY, Play, TARGET, config};
use clutch_pool::config::PoolConfig;
use clutch_pool::pool::state::WorkerKey;
use clutch_pool::supervisor::state::{Event, Leave};
use clutch_wire::sys::Fate;

/// A full pool, and its workers.
fn full(config: PoolConfig) -> (Play, Vec<WorkerKey>) {
    let play = Play::ready(config);
    let workers = play.workers(|_| true);
    assert_eq!(workers.len(), TARGET as usize);
    (play, workers)
}

fn scaling(config: PoolConfig) -> PoolConfig {
    PoolConfig { workers_min: 1, ..config }
}

/// The same, of a pool that may shrink.
fn grown(config: PoolConfig) -> (Play, Vec<WorkerKey>) {
    let mut play = Play::ready(scaling(config));
    play.tell(Event::Resize { target: TARGET as usize, idlest: Vec::new() });
    play.let_start();
    let workers = play.workers(|_| true);
    assert_eq!(workers.len(), TARGET as usize);
    (play, workers)
}

fn draining(play: &Play) -> BTreeSet<WorkerKey> {
    play.world.draining.keys().copied().collect()
}

fn set(workers: &[WorkerKey]) -> BTreeSet<WorkerKey> {
    workers.iter().copied().collect()
}

#[test]
fn failure_34_workers_that_have_grown_leave_one_after_the_other() {
    let (mut play, workers) = full(config());
    play.weigh(&workers, MEMORY - 1);
    for nr in 0..workers.len() {
        assert_eq!(play.world.wanted.len(), 1, "one replacement at a time");
        assert_eq!(play.world.draining.len(), nr, "it is ready before the old one drains");
        assert!(play.world.barred.is_empty(), "below the limit itself they go on meanwhile");
        play.let_start();
        assert!(play.world.wanted.is_empty(), "the next one waits until this one is gone");
        play.let_end();
    }
    assert!(play.world.wanted.is_empty(), "the new ones are small");
    assert!(play.world.draining.values().all(|reason| *reason == "memory"));
}

#[test]
fn failure_35_at_the_limit_a_worker_gets_no_more_work() {
    let (mut play, workers) = full(config());
    play.weigh(&workers[..2], MEMORY);
    assert_eq!(play.world.barred, set(&workers[..2]), "both at once: the limit is a promise");
    assert_eq!(play.world.wanted.len(), 2);
    assert!(play.world.draining.is_empty());
    play.let_start();
    assert_eq!(draining(&play), set(&workers[..2]));
}

#[test]
fn failure_34_without_a_replacement_the_old_one_serves_on() {
    let (mut play, workers) = full(config());
    play.weigh(&workers[..1], MEMORY);
    let worker = *play.world.wanted.keys().next().expect("a replacement");
    play.tell(Event::ForkFailed { worker, reason: "no memory".to_owned() });
    play.world.wanted.clear();
    assert!(play.world.barred.is_empty() && play.world.draining.is_empty());
    play.weigh(&workers[..1], 2 * MEMORY);
    assert!(play.world.barred.is_empty(), "it may grow meanwhile");
    play.pass(Duration::from_secs(1));
    play.let_start();
    assert_eq!(draining(&play), set(&workers[..1]), "starts work again");
}

#[test]
fn failure_37_those_with_the_least_to_do_leave() {
    let (mut play, workers) = grown(config());
    let idlest = vec![workers[1], workers[0], workers[2]];
    play.tell(Event::Resize { target: 2, idlest: idlest.clone() });
    assert_eq!(draining(&play), set(&workers[1..2]));
    play.tell(Event::Resize { target: 1, idlest });
    assert_eq!(draining(&play), set(&workers[..2]));
    assert!(play.world.draining.values().all(|reason| *reason == "surplus"));
    play.let_end();
    assert!(play.world.wanted.is_empty(), "nobody takes their places");
    assert_eq!((play.machine.fleet().ready(), play.machine.fleet().restarts()), (1, 0));
    play.tell(Event::Resize { target: 3, idlest: Vec::new() });
    assert_eq!(play.world.wanted.len(), 2);
    play.tell(Event::Resize { target: 30, idlest: Vec::new() });
    assert_eq!(play.machine.bounds().target, TARGET as usize, "never above max");
}

#[test]
fn whoever_is_left_after_a_step_down_is_replaced_by_policy_too() {
    let (mut play, workers) = grown(config());
    play.tell(Event::Resize { target: 1, idlest: workers.clone() });
    play.let_end();
    let last = play.workers(|_| true)[0];
    play.tell(Event::Worn { worker: last, why: Leave::Calls });
    play.let_start();
    assert!(play.world.draining.contains_key(&last), "though its number is not the lowest");
    assert_eq!(play.machine.fleet().ready(), 1);
}

const BUDGET: u64 = 3 * MEMORY / 2;

/// Makes a pool whose workers take all of the budget.
fn without_room() -> (Play, Vec<WorkerKey>) {
    let (mut play, workers) = full(PoolConfig { memory_max_bytes: Some(BUDGET), ..config() });
    play.weigh(&workers, BUDGET / 3);
    (play, workers)
}

#[test]
fn with_a_full_budget_the_old_worker_goes_before_the_new_one_comes() {
    let (mut play, workers) = without_room();
    play.tell(Event::Worn { worker: workers[0], why: Leave::Calls });
    assert_eq!(play.world.short, workers[..1]);
    assert_eq!(draining(&play), set(&workers[..1]));
    play.tell(Event::Drained { worker: workers[0], stuck: false });
    assert!(play.world.wanted.is_empty(), "not while the old one is there");
    play.end(workers[0], Fate::Exited(0));
    assert_eq!(play.world.wanted.len(), 1);
    play.let_start();
    play.weigh(&workers[1..], BUDGET / 10);
    let newest = *play.workers(|_| true).last().expect("the new one");
    play.weigh(&[newest], BUDGET / 10);
    play.tell(Event::Worn { worker: workers[1], why: Leave::Calls });
    assert_eq!((play.world.wanted.len(), play.world.short.len()), (1, 1), "with room as ever: the new one first");
}

/// The worker's last call ended before anybody told that it is worn.
#[test]
fn a_worker_with_nothing_left_goes_before_the_new_one_comes_too() {
    let (mut play, workers) = without_room();
    play.tell(Event::Drained { worker: workers[0], stuck: false });
    assert_eq!((draining(&play), &play.world.short[..]), (set(&workers[..1]), &workers[..1]));
    assert!(play.world.wanted.is_empty(), "not while the old one is there");
    play.end(workers[0], Fate::Exited(0));
    assert_eq!(play.world.wanted.len(), 1);
}
