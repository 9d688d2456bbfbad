//! The words of the board under the pool's handle: none is lost, whatever races.

mod support;

use clutch_core::work::{Outcome, Refusal};
use support::{Stage, config, value};

#[test]
fn a_call_given_up_while_its_answer_is_on_the_way_loses_no_word() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(1);
    for _ in 0..3 * worker.board.len() {
        let answer = stage.submit("echo", "1");
        let call = worker.next_call();
        worker.result(&call, "1");
        stage.pool.abandon(answer.id());
        worker.expect_cancel(&call);
        stage.pool.on_ready(worker.key);
        assert!(matches!(answer.outcome(), Some(Outcome::Refused(Refusal::Cancelled))));
    }
}

#[test]
fn code_by_value_that_cannot_go_there_takes_nobodys_word() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(2);
    let running = stage.submit("echo", "1");
    let call = worker.next_call();
    stage.pool.set_foreign(Some("3.13".to_owned()));
    let refused = stage.submit_by_value("echo", "1");
    assert!(matches!(refused.outcome(), Some(Outcome::Failure(_))));
    let _queued = stage.submit("echo", "2");
    let second = worker.next_call();
    assert_ne!(second.word, call.word, "a word for two calls");
    worker.result(&call, "1");
    stage.pool.on_ready(worker.key);
    assert_eq!(value(&running), "1");
}
