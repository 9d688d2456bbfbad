//! Where the time of workers went, and what ran longest, as their frames tell it.

use std::time::{Duration, Instant};

use crate::support::{Call, Stage, Worker, config, lost, value};
use clutch_pool::pool::Spent;
use clutch_pool::slowest::{SLOWEST_MAX, Slowest};
use clutch_wire::Codec;
use clutch_wire::frame::{self, Head, Kind};

/// Ends the call in so many milliseconds of its worker's clock.
fn end_in(stage: &Stage, worker: &mut Worker, call: &Call, ms: u64, told: &[u8]) {
    let mut bytes = Vec::new();
    let head = Head::with(Kind::Result, call.id, Codec::Bytes);
    frame::put(&mut bytes, head, &[], &(ms * 1_000_000).to_le_bytes(), told).expect("it fits");
    worker.raw(&bytes);
    // Once for each message: those of the items came before.
    (0..4).for_each(|_| stage.driver.on_ready(u64::from(worker.key)));
}

/// Milliseconds, function, number in its batch, arguments.
type Shown = (u64, String, Option<u32>, Option<Vec<u8>>);

fn slowest(stage: &Stage) -> Vec<Shown> {
    let slowest = stage.pool.insights().slowest.into_iter();
    let body = |slow: &clutch_pool::pool::Slow| slow.arguments.as_ref().map(|payload| payload.body().to_vec());
    slowest.map(|(ns, slow)| (ns / 1_000_000, slow.what.clone(), slow.item, body(&slow))).collect()
}

#[test]
fn the_longest_calls_are_kept_with_their_arguments() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(1);
    for ms in [3, 1, 7, 2, 9, 5, 4] {
        let answer = stage.submit("echo", &ms.to_string());
        let call = worker.next_call();
        end_in(&stage, &mut worker, &call, ms, b"null");
        assert_eq!(value(&answer), "null");
    }
    let wanted = [9, 7, 5, 4, 3].map(|ms| (ms, "echo".to_owned(), None, Some(ms.to_string().into_bytes())));
    assert_eq!(slowest(&stage), wanted);
    assert_eq!(wanted.len(), SLOWEST_MAX);
}

#[test]
fn what_its_caller_or_its_worker_left_counts() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(1);
    let cancelled = stage.submit("echo", "1");
    let call = worker.next_call();
    stage.pool.cancel(cancelled.id());
    worker.expect_cancel(&call);
    end_in(&stage, &mut worker, &call, 1, b"null");
    stage.submit("echo", "2");
    worker.next_call();
    stage.driver.worker_gone(worker.key, lost(), false);
    let mut found: Vec<_> = slowest(&stage).into_iter().map(|(_, _, item, arguments)| (item, arguments)).collect();
    found.sort();
    assert_eq!(found, [(None, Some(b"1".to_vec())), (None, Some(b"2".to_vec()))]);
}

#[test]
fn large_arguments_are_not_kept() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(1);
    let large = "1".repeat(70_000);
    stage.submit("echo", &large);
    let call = worker.next_call();
    end_in(&stage, &mut worker, &call, 1, b"null");
    assert_eq!(slowest(&stage), [(1, "echo".to_owned(), None, None)]);
}

#[test]
fn items_of_a_batch_count_by_themselves_and_only_those_that_it_has() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(1);
    stage.submit_batch("echo", 3);
    let call = worker.next_call();
    (0..3).for_each(|nr| worker.item(&call, &nr.to_string()));
    let mut told = Slowest::default();
    // The batch as a whole ran 50 ms: no item of it ran longer.
    [(40, 2), (6, 0), (99, 1), (7, 3)].iter().for_each(|(ms, item)| told.note(ms * 1_000_000, *item));
    end_in(&stage, &mut worker, &call, 50, &told.to_bytes());
    let found: Vec<_> = slowest(&stage).into_iter().map(|(ms, _, item, _)| (ms, item)).collect();
    assert_eq!(found, [(50, Some(1)), (40, Some(2)), (6, Some(0))]);
}

#[test]
fn the_time_of_a_worker_is_start_wait_and_run_in_each_of_its_slots() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(2);
    let spent = || stage.pool.insights().spent;
    let started = spent().start;
    assert!(started > Duration::ZERO && spent().run == Duration::ZERO);
    stage.submit("echo", "1");
    let call = worker.next_call();
    end_in(&stage, &mut worker, &call, 3_600_000, b"null");
    // It cannot have run for longer than it has been there.
    let bounded = spent();
    assert_eq!((bounded.start, bounded.wait), (started, Duration::ZERO));
    stage.driver.worker_gone(worker.key, lost(), false);
    let after = stage.pool.insights();
    assert_eq!((after.workers, after.spent.start, after.spent.wait), (1, started, Duration::ZERO));
    assert!(after.spent.run >= bounded.run);
    assert_eq!(stage.pool.insights().spent, after.spent, "nobody is there whose time goes on");
    assert_ne!(after.spent, Spent::default());
}

#[test]
fn starts_that_fail_one_after_the_other_do_not_overlap() {
    let since = Instant::now();
    let stage = Stage::undriven(config("api"));
    for _ in 0..5 {
        let worker = stage.starting_worker(1);
        stage.driver.worker_gone(worker.key, lost(), false);
    }
    let worker = stage.starting_worker(1);
    stage.driver.worker_ready(worker.key, (0, 7), 1, None);
    let told = stage.pool.insights();
    assert_eq!(told.workers, 6);
    assert!(told.spent.start <= since.elapsed(), "{:?} of {:?}", told.spent.start, since.elapsed());
}
