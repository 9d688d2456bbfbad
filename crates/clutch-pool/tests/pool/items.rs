//! Work, and items of batches, whose time is limited: what is told of them when one has run for too long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{PATIENCE, Stage, Worker, config, lost};
use clutch_pool::link::items;
use clutch_pool::pool::Answer;
use clutch_pool::work::{Outcome, Refusal, Where, Work, WorkKind};
use clutch_wire::Failure;

const LIMIT: Duration = Duration::from_millis(40);

/// Results, where None was past the limit.
fn results(answer: &Answer) -> Vec<Option<String>> {
    assert!(answer.wait_done(PATIENCE), "no answer came");
    let Some(Outcome::Value(payload)) = answer.outcome() else { panic!("{:?}", answer.outcome()) };
    let (_, items) = items::read(&payload);
    let read = items.map(|item| {
        let item = item.expect("an item");
        if item.failed {
            let failure = Failure::decode(item.bytes).expect("a failure");
            let Failure::Expired(expired) = failure else { panic!("{failure:?}") };
            assert!(expired.after >= LIMIT && expired.what == "echo", "{expired:?}");
            return None;
        }
        Some(String::from_utf8(item.bytes.to_vec()).expect("text"))
    });
    read.collect()
}

/// Lets time pass until the batch is told to stop. Nobody else drives the pool: callers wait for as long as the test likes.
fn let_it_pass_its_limit(stage: &Stage) {
    let is_stopped = || stage.pool.running().iter().any(|(_, running)| running.iter().any(|one| one.abandoned));
    while !is_stopped() {
        stage.driver.tick(None, |_| None);
        std::thread::yield_now();
    }
}

/// The pool hears what its worker has written, and then waits for nothing more.
fn end_of(stage: &Stage, worker: &Worker, answer: &Answer) -> Vec<Option<String>> {
    (0..3).for_each(|_| stage.driver.on_ready(u64::from(worker.key)));
    while !answer.is_done() {
        stage.driver.tick(None, |_| None);
        std::thread::yield_now();
    }
    results(answer)
}

fn texts(expected: &[Option<&str>]) -> Vec<Option<String>> {
    expected.iter().map(|text| text.map(str::to_owned)).collect()
}

#[test]
fn of_a_batch_whose_item_takes_too_long_finished_items_are_kept_and_those_that_have_not_begun_left_out() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(1);
    let answer = stage.submit_limited_batch("echo", 5, Some(LIMIT));
    let call = worker.next_call();
    for text in ["0", "1"] {
        worker.begin_item(&call);
        worker.item(&call, text);
    }
    worker.begin_item(&call);
    (0..3).for_each(|_| stage.driver.on_ready(u64::from(worker.key)));
    let_it_pass_its_limit(&stage);
    assert_eq!(end_of(&stage, &worker, &answer), texts(&[Some("0"), Some("1"), None]));
    let slowest = stage.pool.insights().slowest;
    assert!(matches!(&slowest[..], [(ns, slow)] if slow.item == Some(2) && *ns >= 40_000_000), "{slowest:?}");
}

#[test]
fn results_that_come_with_the_end_of_a_batch_that_was_stopped_count() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(1);
    let answer = stage.submit_limited_batch("echo", 4, Some(LIMIT));
    let call = worker.next_call();
    (0..3).for_each(|_| worker.begin_item(&call));
    let_it_pass_its_limit(&stage);
    worker.item(&call, "0");
    worker.item(&call, "1");
    assert_eq!(end_of(&stage, &worker, &answer), texts(&[Some("0"), Some("1"), None]));
}

#[test]
fn an_item_that_began_while_its_batch_was_stopped_is_not_left_out() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(1);
    let answer = stage.submit_limited_batch("echo", 3, Some(LIMIT));
    let call = worker.next_call();
    worker.begin_item(&call);
    let_it_pass_its_limit(&stage);
    worker.begin_item(&call);
    worker.item(&call, "0");
    assert_eq!(end_of(&stage, &worker, &answer), texts(&[Some("0"), None]), "it may have run, and is not to run again");
}

#[test]
fn an_item_that_runs_again_elsewhere_has_its_whole_time_there() {
    let stage = Stage::undriven(config("api"));
    let mut first = stage.worker(1);
    let answer = Arc::new(Answer::default());
    let work =
        Work { kind: WorkKind::BATCH, items: 2, run_limit: Some(LIMIT), retry: 1, ..stage.work("echo", "[]", &answer) };
    answer.set_id(stage.pool.submit(work, false));
    let call = first.next_call();
    first.begin_item(&call);
    let died = Instant::now() + LIMIT / 2;
    while Instant::now() < died {
        stage.driver.tick(None, |_| None);
    }
    let mut second = stage.worker(1);
    stage.driver.worker_gone(first.key, lost(), false);
    let again = second.next_call();
    assert_eq!((again.id, again.skip), (call.id, 0));
    let begun = Instant::now();
    second.begin_item(&again);
    let_it_pass_its_limit(&stage);
    assert!(begun.elapsed() >= LIMIT);
    assert_eq!(end_of(&stage, &second, &answer), texts(&[None]));
}

#[test]
fn a_batch_whose_results_are_all_here_is_whole_though_its_end_does_not_come() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(1);
    let answer = stage.submit_limited_batch("echo", 2, Some(LIMIT));
    let call = worker.next_call();
    for text in ["0", "1"] {
        worker.begin_item(&call);
        worker.item(&call, text);
    }
    (0..3).for_each(|_| stage.driver.on_ready(u64::from(worker.key)));
    let_it_pass_its_limit(&stage);
    assert_eq!(end_of(&stage, &worker, &answer), texts(&[Some("0"), Some("1")]));
}

#[test]
fn the_time_of_work_begins_with_its_code_and_stands_while_it_waits_for_its_turn() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(1);
    let answer = Arc::new(Answer::default());
    answer.set_id(stage.pool.submit(Work { run_limit: Some(LIMIT), ..stage.work("echo", "1", &answer) }, false));
    let call = worker.next_unbegun();
    let pass = |long: Duration| {
        let end = Instant::now() + long;
        while Instant::now() < end {
            stage.driver.tick(None, |_| None);
        }
    };
    pass(2 * LIMIT);
    assert!(worker.begin(&call));
    worker.board.await_turn(call.word, true);
    pass(2 * LIMIT);
    assert!(!answer.is_done(), "its code has not begun");
    worker.board.await_turn(call.word, false);
    let begun = Instant::now();
    let_it_pass_its_limit(&stage);
    assert!(begun.elapsed() >= LIMIT);
    while !answer.is_done() {
        stage.driver.tick(None, |_| None);
    }
    let outcome = answer.outcome();
    let Some(Outcome::Refused(Refusal::Expired(expired))) = outcome else { panic!("{outcome:?}") };
    assert_eq!(expired.at, Where::Running);
}
