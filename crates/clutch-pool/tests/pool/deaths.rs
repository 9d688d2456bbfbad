//! What a worker that dies, or says what it should not, takes along: what it was running, and nothing else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{PATIENCE, Stage, Worker, config, lost, value};
use clutch_pool::link::board::word;
use clutch_pool::link::items;
use clutch_pool::pool::{Answer, Notice};
use clutch_pool::work::{Outcome, Refusal, Where, Work};
use clutch_wire::frame::{self, Kind, NO_DEADLINE};
use clutch_wire::sys;
use clutch_wire::{Codec, Failure, Payload};

/// The items of a batch: their values, and none where the worker died.
fn results(answer: &Answer) -> Vec<Option<String>> {
    assert!(answer.wait_done(PATIENCE), "no answer came");
    let Some(Outcome::Value(payload)) = answer.outcome() else { panic!("{:?}", answer.outcome()) };
    let (_, items) = items::read(&payload);
    let text = |item: items::Item<'_>| String::from_utf8(item.bytes.to_vec()).expect("text");
    items.map(|item| item.expect("an item")).map(|item| (!item.failed).then(|| text(item))).collect()
}

fn is_lost(answer: &Answer) -> bool {
    matches!(answer.outcome(), Some(Outcome::Failure(failure)) if matches!(*failure, Failure::WorkerLost { .. }))
}

fn link_ended(stage: &Stage, worker: &Worker) -> bool {
    let ended = |notice: &Notice| matches!(notice, Notice::LinkEnded(key, _) if *key == worker.key);
    stage.driver.drain_notices().iter().any(ended)
}

#[test]
fn failure_71_answers_that_were_finished_arrive_though_the_worker_died_before_it_wrote_them() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(1);
    let finished: Vec<_> = (0..50).map(|nr| (stage.submit("echo", &nr.to_string()), nr)).collect();
    let running = stage.submit("echo", "running");
    worker.stops_writing();
    for (answer, nr) in &finished {
        while stage.pool.worker_of(answer.id()).is_none() {
            stage.driver.tick(None, |_| None);
        }
        let call = worker.next_call();
        worker.result(&call, &nr.to_string());
        if *nr == 0 {
            // A worker has one slot: the others are sent when they are known to be short.
            worker.writes_again();
            stage.driver.on_ready(u64::from(worker.key));
            worker.stops_writing();
        }
    }
    worker.next_call();
    stage.driver.worker_gone(worker.key, lost(), false);
    finished.iter().for_each(|(answer, nr)| assert_eq!(value(answer), nr.to_string()));
    assert!(is_lost(&running), "{:?}", running.outcome());
}

#[test]
fn failure_71_of_a_batch_the_item_that_ran_is_lost_and_the_rest_runs_elsewhere() {
    for is_running in [true, false] {
        let stage = Stage::undriven(config("api"));
        let mut first = stage.worker(1);
        let answer = stage.submit_batch("echo", 4);
        let call = first.next_call();
        assert_eq!(call.skip, 0);
        first.begin_item(&call);
        first.item(&call, "0");
        first.stops_writing();
        first.begin_item(&call);
        first.item(&call, "1");
        if is_running {
            first.begin_item(&call);
        }
        let mut second = stage.worker(1);
        stage.driver.worker_gone(first.key, lost(), false);
        let rest = second.next_call();
        assert_eq!((rest.id, rest.skip), (call.id, if is_running { 3 } else { 2 }));
        for nr in rest.skip..4 {
            second.begin_item(&rest);
            second.item(&rest, &nr.to_string());
        }
        second.end(&rest);
        (0..3).for_each(|_| stage.driver.on_ready(u64::from(second.key)));
        let third = (!is_running).then_some("2");
        assert_eq!(results(&answer), [Some("0"), Some("1"), third, Some("3")].map(|text| text.map(str::to_owned)));
    }
}

#[test]
fn failure_71_a_batch_whose_items_have_all_run_is_answered_whole() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(1);
    let answer = stage.submit_batch("echo", 2);
    let call = worker.next_call();
    worker.stops_writing();
    worker.item(&call, "0");
    worker.item(&call, "1");
    stage.driver.worker_gone(worker.key, lost(), false);
    assert_eq!(results(&answer), [Some("0".to_owned()), Some("1".to_owned())]);
    assert_eq!(stage.pool.stats().failed, 0);
}

#[test]
fn failure_71_items_that_have_run_are_answered_when_no_worker_is_left_for_the_rest() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(1);
    let answer = stage.submit_batch("echo", 3);
    let call = worker.next_call();
    worker.begin_item(&call);
    worker.item(&call, "0");
    worker.begin_item(&call);
    stage.driver.worker_gone(worker.key, lost(), false);
    stage.driver.set_failing(Some(Failure::Config { message: "no module named shop".to_owned() }));
    assert_eq!(results(&answer), [Some("0".to_owned()), None, None]);
}

#[test]
fn failure_65_a_worker_that_tells_of_what_another_one_has_is_ended() {
    for kind in [Kind::Result, Kind::Chunk, Kind::Credit, Kind::Begun, Kind::Item, Kind::Stacks] {
        let stage = Stage::undriven(config("api"));
        let (mut honest, mut liar) = (stage.worker(1), stage.worker(1));
        let answers = [stage.submit("echo", "1"), stage.submit("echo", "2")];
        let (call, _) = (honest.next_call(), liar.next_call());
        let mut bytes = Vec::new();
        let head = frame::Head::with(kind, call.id, Codec::Json);
        frame::put(&mut bytes, head, &[], &vec![0; kind.fixed_bytes()], b"\"a lie\"").expect("it fits");
        liar.raw(&bytes);
        stage.driver.on_ready(u64::from(liar.key));
        assert!(link_ended(&stage, &liar), "{kind:?}");
        assert!(answers.iter().all(|answer| !answer.is_done()), "{kind:?}");
        honest.result(&call, "1");
        stage.driver.on_ready(u64::from(honest.key));
        assert_eq!(value(&answers[0]), "1");
    }
}

#[test]
fn failure_65_bytes_that_are_no_frames_end_the_link() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(1);
    worker.raw(&[0xff; 64]);
    stage.driver.on_ready(u64::from(worker.key));
    assert!(link_ended(&stage, &worker));
}

#[test]
fn what_a_worker_tells_of_work_that_nobody_knows_any_more_is_dropped() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(1);
    let answer = stage.submit("echo", "1");
    let call = worker.next_call();
    worker.result(&call, "1");
    worker.give_credit(&call, 1);
    stage.driver.on_ready(u64::from(worker.key));
    assert_eq!(value(&answer), "1");
    assert!(!link_ended(&stage, &worker));
}

/// What the dispatcher sends a worker says when nobody waits any more: the worker looks before it begins.
#[test]
fn work_that_its_worker_finds_late_is_taken_back_and_was_never_begun() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(1);
    let answer = Arc::new(Answer::default());
    let deadline = Instant::now() + Duration::from_millis(20);
    let work = Work { deadline: Some(deadline), ..stage.work("echo", "1", &answer) };
    answer.set_id(stage.pool.submit(work, false));
    let call = worker.next_unbegun();
    assert_ne!(call.deadline_ns, NO_DEADLINE);
    while sys::monotonic_ns() < call.deadline_ns {
        std::thread::yield_now();
    }
    assert!(worker.board.claim(call.word, word::SENT, word::LATE));
    stage.driver.tick(None, |_| None);
    let expired = answer.outcome();
    let at = |outcome: &Option<Outcome>| match outcome {
        Some(Outcome::Refused(Refusal::Expired(expired))) => Some(expired.at),
        _ => None,
    };
    assert_eq!(at(&expired), Some(Where::Queue), "{expired:?}");
    assert_eq!(worker.board.get(call.word), word::FREE);
    let next = stage.submit("echo", "2");
    let call = worker.next_call();
    worker.result(&call, "2");
    stage.driver.on_ready(u64::from(worker.key));
    assert_eq!(value(&next), "2");
}

#[test]
fn failure_66_shared_memory_of_calls_that_were_taken_back_and_given_up_is_free_again() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(1);
    let answer = Arc::new(Answer::default());
    let lease = stage.pool.regions().store(&[7; 100_000]).expect("shared memory");
    let payload = Payload { form: Codec::Json.into(), inline: Vec::new(), leases: vec![Arc::new(lease)] };
    answer.set_id(stage.pool.submit(Work { payload, ..stage.work("echo", "", &answer) }, false));
    worker.next_unbegun();
    assert!(stage.pool.cancel(answer.id()));
    assert_eq!(stage.pool.regions().bytes().1, 0, "with a reader that will never touch it");
}

#[test]
fn failure_58_a_function_that_no_frame_can_name_fails_its_own_call() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(1);
    let refused = stage.submit(&"x".repeat(frame::FRAME_BYTES_MAX + 1), "1");
    assert!(matches!(refused.outcome(), Some(Outcome::Failure(_))), "{:?}", refused.outcome());
    let answer = stage.submit("echo", "1");
    let call = worker.next_call();
    worker.result(&call, "1");
    stage.driver.on_ready(u64::from(worker.key));
    assert_eq!(value(&answer), "1");
}

#[test]
fn what_says_something_beside_its_one_value_runs_again_and_what_has_told_a_part_does_not() {
    for (one_value, runs_again) in [(true, true), (false, false)] {
        let stage = Stage::undriven(config("api"));
        let mut worker = stage.worker(1);
        let answer = Arc::new(Answer::default());
        let work = Work { one_value, retry: 1, ..stage.work("echo", "1", &answer) };
        answer.set_id(stage.pool.submit(work, false));
        let call = worker.next_call();
        worker.chunk(&call, "0.5");
        stage.driver.on_ready(u64::from(worker.key));
        let mut other = stage.worker(1);
        stage.driver.worker_gone(worker.key, lost(), false);
        assert_eq!(is_lost(&answer), !runs_again, "one value: {one_value}");
        if runs_again {
            assert_eq!(other.next_call().id, call.id);
        }
    }
}

#[test]
fn work_that_a_worker_died_of_is_not_put_back_and_what_has_not_begun_is() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(1);
    let submitted = || {
        let answer = Arc::new(Answer::default());
        answer.set_id(stage.pool.submit(Work { retry: 2, ..stage.work("echo", "1", &answer) }, false));
        answer
    };
    let (fatal, waiting) = (submitted(), submitted());
    worker.next_call();
    assert!(!stage.pool.put_back(fatal.id()), "it runs");
    stage.driver.worker_gone(worker.key, lost(), false);
    assert!(!stage.pool.put_back(fatal.id()), "whoever gets it next would not know that it kills");
    assert!(stage.pool.put_back(waiting.id()));
    assert!(matches!(waiting.outcome(), Some(Outcome::Refused(Refusal::Cancelled))));
    assert!(!fatal.is_done());
}
