//! The words of the board under the pool's handle: none is lost, whatever races.

use std::time::Instant;

use crate::support::{Stage, config, lost, value};
use clutch_pool::pool::Notice;
use clutch_pool::work::{Outcome, Refusal};
use clutch_wire::Failure;

#[test]
fn a_call_given_up_while_its_answer_is_on_the_way_loses_no_word() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(1);
    for _ in 0..3 * worker.board.len() {
        let answer = stage.submit("echo", "1");
        let call = worker.next_call();
        worker.result(&call, "1");
        stage.pool.cancel(answer.id());
        worker.expect_cancel(&call);
        stage.driver.on_ready(u64::from(worker.key));
        assert!(matches!(answer.outcome(), Some(Outcome::Refused(Refusal::Cancelled))));
    }
}

#[test]
fn calls_taken_back_from_a_worker_that_sleeps_lose_no_word() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(1);
    for _ in 0..worker.board.len() + 10 {
        let answer = stage.submit("echo", "1");
        assert!(stage.pool.cancel(answer.id()));
    }
    let answer = stage.submit("echo", "1");
    assert!(stage.driver.tick(None, |_| None).is_some(), "the driver looks again");
    for _ in 0..=worker.board.len() {
        stage.driver.on_ready(u64::from(worker.key));
        worker.pass_over(1);
    }
    assert!(stage.driver.tick(None, |_| None).is_none());
    let call = worker.next_call();
    worker.result(&call, "1");
    stage.driver.on_ready(u64::from(worker.key));
    assert_eq!(value(&answer), "1");
}

#[test]
fn a_link_that_was_full_is_watched_for_room_only_as_long_as_it_is() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(1000);
    let body = format!("\"{}\"", "x".repeat(60_000));
    let answers: Vec<_> = (0..50).map(|_| stage.submit("echo", &body)).collect();
    let notices = stage.driver.drain_notices();
    assert!(notices.iter().any(|notice| matches!(notice, Notice::WantWrite(0))), "the socket is full: {notices:?}");
    stage.driver.want_write(worker.key, true);
    for _ in &answers {
        let call = worker.next_call();
        worker.result(&call, "1");
        stage.driver.on_ready(u64::from(worker.key));
    }
    answers.iter().for_each(|answer| assert_eq!(value(answer), "1"));
    assert_eq!(ready(&stage), Vec::<u64>::new(), "nothing is to be read or written, and the driver may sleep");
}

/// What the driver would be woken for now.
fn ready(stage: &Stage) -> Vec<u64> {
    let mut tokens = Vec::new();
    stage.driver.drain_notices();
    stage.driver.poller().wait(&mut tokens, Some(Instant::now())).expect("epoll");
    tokens
}

#[test]
fn code_by_value_that_cannot_go_there_takes_nobodys_word() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(2);
    let running = stage.submit("echo", "1");
    let call = worker.next_call();
    stage.driver.set_foreign(Some("3.13".to_owned()));
    let refused = stage.submit_by_value("echo", "1");
    assert!(matches!(refused.outcome(), Some(Outcome::Failure(_))));
    let _queued = stage.submit("echo", "2");
    let second = worker.next_call();
    assert_ne!(second.word, call.word, "a word for two calls");
    worker.result(&call, "1");
    stage.driver.on_ready(u64::from(worker.key));
    assert_eq!(value(&running), "1");
}

#[test]
fn a_pool_that_fails_says_why_also_after_a_worker_died() {
    let stage = Stage::undriven(config("api"));
    let worker = stage.worker(1);
    let reason = Failure::Config { message: "no module named shop".to_owned() };
    stage.driver.set_failing(Some(reason.clone()));
    stage.driver.worker_gone(worker.key, lost(), false);
    let refused = stage.submit("echo", "1");
    assert!(matches!(refused.outcome(), Some(Outcome::Failure(failure)) if *failure == reason));
}
