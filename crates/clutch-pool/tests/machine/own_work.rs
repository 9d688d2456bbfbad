//! Work that workers begin by themselves, and that the machine is told of when it runs for long.

use std::time::Duration;

use crate::model::{CUT_IN, World, request};
use clutch_pool::pool::state::{Limits, Request, Verdict};
use clutch_pool::work::WorkId;

#[test]
fn what_waits_behind_work_that_its_worker_had_begun_by_itself_runs_elsewhere() {
    let mut world = World::new(Limits::default());
    let worker = world.worker(1, None);
    let waits = world.submit(request(1));
    assert_eq!(world.machine.worker_of(waits), Some(worker), "its slot seems to be free");
    let other = world.worker(1, None);
    assert_eq!(world.machine.worker_of(waits), Some(worker));
    let long = world.adopt(worker, request(1), world.now - Duration::from_millis(100)).expect("it lives");
    assert_eq!(world.machine.worker_of(waits), Some(other));
    let next = world.submit(request(1));
    assert_eq!((world.machine.worker_of(next), world.machine.demand().busy), (None, 2), "no slot is free");
    world.finish(worker, long, Duration::from_millis(200));
    assert_eq!(world.machine.worker_of(next), Some(worker));
    world.finish_all();
}

#[test]
fn a_worker_has_drained_when_all_has_ended_that_it_had_begun_by_itself() {
    let mut world = World::new(Limits::default());
    let worker = world.worker(1, None);
    let ids = [1, 2].map(|_| world.adopt(worker, request(1), world.now).expect("it lives"));
    world.drain(worker);
    let late = world.adopt(worker, Request { endless: true, ..request(1) }, world.now).expect("it drains");
    ids.iter().for_each(|id| world.finish(worker, *id, Duration::from_millis(200)));
    assert!(!world.workers[&worker].drained);
    world.pass(CUT_IN);
    assert_eq!(world.works[&late].answers, 1, "endless work is cut off when its neighbours are");
    world.finish(worker, late, Duration::from_millis(200));
    assert!(world.workers[&worker].drained);
    world.finish_all();
}

#[test]
fn work_that_its_worker_had_begun_by_itself_is_lost_with_it_and_says_nothing_of_other_work() {
    let mut world = World::new(Limits::default());
    let worker = world.worker(3, None);
    let lost = world.adopt(worker, Request { retry: 3, ..request(1) }, world.now).expect("it lives");
    let ended = world.adopt(worker, request(1), world.now).expect("it lives");
    world.finish(worker, ended, Duration::from_nanos(1));
    assert_eq!(world.adopt(worker + 1, request(1), world.now), None, "nobody has begun it");
    (0..2).for_each(|_| {
        world.submit(request(1));
    });
    assert_eq!(world.free_slots(), 0);
    let ids: Vec<WorkId> = (0..3).map(|_| world.submit(request(1))).collect();
    let sent = ids.iter().filter(|id| world.machine.worker_of(**id).is_some()).count();
    assert_eq!(sent, 0, "how short such work is was not learned of what was adopted");
    world.gone(worker);
    assert_eq!(world.works[&lost].verdict, Some(Verdict::Lost(worker)));
    world.finish_all();
}

#[test]
fn a_closed_machine_is_empty_when_what_was_adopted_has_ended() {
    let mut world = World::new(Limits::default());
    let worker = world.worker(1, None);
    world.close();
    assert!(world.machine.is_empty());
    let late = world.adopt(worker, request(1), world.now).expect("it lives");
    assert!(!world.machine.is_empty());
    world.finish(worker, late, Duration::from_millis(200));
    assert!(world.machine.is_empty());
    world.finish_all();
}
