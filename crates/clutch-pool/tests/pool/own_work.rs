//! Work that workers take by themselves, and what the pool knows of it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{Call, PATIENCE, Stage, Worker, config, lost, value};
use clutch_pool::config::PoolConfig;
use clutch_pool::link::board::word;
use clutch_pool::pool::facts::WorkBegun;
use clutch_pool::pool::state::WorkerKey;
use clutch_pool::pool::{Answer, Notice, Served, WorkerView};
use clutch_pool::work::{Outcome, Refusal, Reply, Where, Work, WorkKind};
use clutch_wire::Payload;

const MS: Duration = Duration::from_millis(1);

/// A worker that is shown to those who look, and that may have so many calls.
fn worker(stage: &Stage, slots: usize, calls_max: Option<u64>) -> Worker {
    let worker = stage.starting_worker(slots);
    stage.driver.worker_ready(worker.key, (0, 7), slots, calls_max);
    let view =
        WorkerView { nr: 0, pid: Some(7), generation: 1, state: "ready", calls: 0, sent: 0, rss: None, private: None };
    stage.driver.update_status(|status| status.workers.push((worker.key, view)));
    worker
}

/// What the supervisor is told of the calls of a worker.
fn told(stage: &Stage, worker: WorkerKey) -> Vec<&'static str> {
    let notices = stage.driver.drain_notices();
    let told = notices.iter().filter_map(|notice| match notice {
        Notice::Worn(key) if *key == worker => Some("worn"),
        Notice::Drained { worker: key, .. } if *key == worker => Some("drained"),
        _ => None,
    });
    told.collect()
}

// ---- served

#[test]
fn calls_that_a_worker_took_by_itself_count_as_those_that_it_was_sent() {
    let stage = Stage::undriven(config("api"));
    let mut worker = worker(&stage, 2, None);
    stage.submit("echo", "1");
    let call = worker.next_call();
    worker.result(&call, "1");
    stage.driver.on_ready(u64::from(worker.key));
    stage.pool.served(worker.key, Served { calls: 40, failed: 3, lost: 0, run: 2 * MS });
    stage.pool.served(worker.key, Served { calls: 0, failed: 0, lost: 0, run: MS });
    let stats = stage.pool.stats();
    assert_eq!((stats.done, stats.failed, stats.workers[0].calls, stats.sent), (41, 3, 41, 0));
    assert_eq!(stage.pool.insights().slowest.len(), 1, "nothing is known of a single one");
    let demand = stage.driver.take_demand();
    assert_eq!((demand.finished, demand.run_ns), (41, 2_000_000 + 1000));
}

#[test]
fn a_worker_that_has_served_the_calls_that_it_may_have_is_replaced() {
    let stage = Stage::undriven(config("api"));
    let worker = worker(&stage, 1, Some(10));
    let served = |calls| stage.pool.served(worker.key, Served { calls, failed: 0, lost: 0, run: MS });
    served(7);
    assert!(told(&stage, worker.key).is_empty());
    served(2);
    assert_eq!(told(&stage, worker.key), ["worn"]);
    served(5);
    assert_eq!(told(&stage, worker.key), ["drained"]);
    served(5);
    assert!(told(&stage, worker.key).is_empty(), "it was said once");
    let waits = stage.submit("echo", "1");
    assert!(stage.pool.worker_of(waits.id()).is_none(), "it gets no more");
}

#[test]
fn calls_of_a_worker_that_is_gone_count_in_the_totals_of_its_pool() {
    let stage = Stage::undriven(config("api"));
    let gone = worker(&stage, 1, Some(10));
    let since = Instant::now();
    while since.elapsed() < 3 * MS {
        std::thread::yield_now();
    }
    stage.driver.worker_gone(gone.key, lost(), false);
    let before = stage.pool.insights().spent;
    stage.pool.served(gone.key, Served { calls: 20, failed: 1, lost: 2, run: 2 * MS });
    let (stats, after) = (stage.pool.stats(), stage.pool.insights().spent);
    assert_eq!((stats.done, stats.failed), (20, 3));
    assert_eq!((after.run, after.wait), (before.run + 2 * MS, before.wait - 2 * MS));
    assert!(told(&stage, gone.key).is_empty());
}

// ---- adopted

/// Tells its own requests, as a front does.
struct Own<'a> {
    stage: &'a Stage,
    worker: Worker,
    /// Of its one slot.
    word: u32,
}

impl Own<'_> {
    fn new(stage: &Stage) -> Own<'_> {
        let worker = worker(stage, 1, None);
        let words = stage.pool.reserve_words(worker.key, 1);
        let [word] = words[..] else { panic!("one word was expected, not {words:?}") };
        assert_eq!(worker.board.get(word), word::BEGUN);
        Own { stage, worker, word }
    }

    /// What its slot runs since so long is made known.
    fn adopt(&mut self, ran: Duration, terms: impl FnOnce(Work) -> Work) -> (Call, Arc<Answer>) {
        let answer = Arc::new(Answer::default());
        let work = terms(self.stage.work("page", "1", &answer));
        let since = Instant::now().checked_sub(ran).expect("the clock runs");
        let adopted = self.stage.pool.adopt(self.worker.key, self.word, since, work).expect("adopted");
        answer.set_id(adopted.id);
        let call = Call::known(adopted.id, std::mem::replace(&mut self.word, adopted.next_word));
        assert_eq!(self.worker.board.get(self.word), word::BEGUN);
        (call, answer)
    }

    fn ends(&mut self, call: &Call) {
        self.worker.result(call, "\"ended\"");
        self.stage.driver.on_ready(u64::from(self.worker.key));
    }

    fn word_of(&self, call: &Call) -> u32 {
        self.worker.board.get(call.word)
    }

    fn tick(&self) {
        self.stage.driver.tick(None, |_| None);
    }

    fn told(&self) -> Vec<Notice> {
        self.stage.driver.drain_notices()
    }
}

fn refused(answer: &Answer) -> Refusal {
    match answer.outcome() {
        Some(Outcome::Refused(refusal)) => refusal,
        other => panic!("a refusal was expected, not {other:?}"),
    }
}

#[test]
fn adopted_work_is_known_from_its_begin_to_its_end() {
    let stage = Stage::undriven(config("api"));
    let mut own = Own::new(&stage);
    let (call, answer) = own.adopt(100 * MS, |work| work);
    let begun: WorkBegun = stage.wait_event();
    assert_eq!((begun.id, &begun.what[..], begun.queued_s), (call.id, "page", 0.0));
    let [running] = &stage.pool.running_in(own.worker.key)[..] else { panic!("one runs") };
    assert_eq!((running.id, &running.what[..], running.abandoned), (call.id, "page", false));
    assert!(running.seconds >= 0.1, "since it began, not since it is known");
    assert_eq!((stage.pool.worker_of(call.id), stage.pool.has_begun(call.id)), (Some(own.worker.key), true));
    let stats = stage.pool.stats();
    assert_eq!((stats.sent, stats.queued, stats.workers[0].calls, stats.done), (1, 0, 1, 0));
    assert!(stats.run_s > 0.0);
    let waits = stage.submit("echo", "1");
    assert!(stage.pool.worker_of(waits.id()).is_none(), "its slot is busy");
    own.ends(&call);
    assert_eq!((value(&answer), own.word_of(&call)), ("\"ended\"".to_owned(), word::SENT), "and is used again");
    assert_eq!(own.worker.next_call().id, waits.id());
    assert_eq!(stage.pool.stats().done, 1);
}

/// Hears each step.
#[derive(Default)]
struct Steps(Mutex<Vec<String>>);

impl Reply for Steps {
    fn chunk(&self, _payload: Payload) {
        self.0.lock().expect("a lock").push("chunk".to_owned());
    }

    fn sent(&self, queued: Duration) {
        self.0.lock().expect("a lock").push(format!("sent {queued:?}"));
    }

    fn begun(&self) {
        self.0.lock().expect("a lock").push("begun".to_owned());
    }

    fn finish(&self, outcome: Outcome, queued: Option<Duration>) {
        self.0.lock().expect("a lock").push(format!("{:?} {queued:?}", outcome.error_kind()));
    }
}

#[test]
fn who_makes_work_known_is_told_what_a_submitter_is() {
    let stage = Stage::undriven(config("api"));
    let (mut own, steps) = (Own::new(&stage), Arc::<Steps>::default());
    let (call, _unused) = own.adopt(MS, |work| Work { reply: steps.clone(), notes_queue_time: true, ..work });
    own.ends(&call);
    assert_eq!(*steps.0.lock().expect("a lock"), ["sent 0ns", "begun", "None Some(0ns)"]);
}

#[test]
fn no_board_runs_out_of_words_by_work_that_is_adopted() {
    let stage = Stage::undriven(config("api"));
    let mut own = Own::new(&stage);
    for nr in 0..3 * own.worker.board.len() {
        let (call, answer) = own.adopt(MS, |work| work);
        if nr % 2 == 0 {
            assert!(stage.pool.cancel(call.id));
            own.worker.expect_cancel(&call);
        }
        own.ends(&call);
        assert!(answer.is_done());
    }
}

#[test]
fn adopted_work_past_its_deadline_is_told_to_stop_and_is_then_called_stuck() {
    let stage = Stage::undriven(PoolConfig { interrupt_grace_ms: 0, ..config("api") });
    let mut own = Own::new(&stage);
    let (call, answer) = own.adopt(100 * MS, |work| Work { deadline: Some(Instant::now()), ..work });
    own.tick();
    assert_eq!((own.word_of(&call), own.worker.board.get(own.word)), (word::ABANDONED, word::BEGUN));
    own.worker.expect_cancel(&call);
    own.worker.expect_interrupt(&call);
    let expiring = Instant::now();
    while !answer.is_done() {
        assert!(expiring.elapsed() < PATIENCE, "nobody answers");
        own.tick();
    }
    let Refusal::Expired(expired) = refused(&answer) else { panic!("{:?}", answer.outcome()) };
    assert_eq!((expired.at, &expired.what[..]), (Where::Running, "page"));
    assert!(expired.after >= 100 * MS, "{:?}", expired.after);
    assert!(own.told().iter().any(|notice| matches!(notice, Notice::Stuck { .. })));
    assert!(stage.pool.running_in(own.worker.key)[0].abandoned);
    own.ends(&call);
    assert_eq!(own.word_of(&call), word::FREE);
}

#[test]
fn a_limit_of_run_time_counts_from_the_begin_of_adopted_work() {
    let stage = Stage::undriven(config("api"));
    let mut own = Own::new(&stage);
    let (call, _answer) = own.adopt(100 * MS, |work| Work { run_limit: Some(50 * MS), ..work });
    own.tick();
    assert_eq!(own.word_of(&call), word::ABANDONED);
}

#[test]
fn adopted_work_that_has_no_end_is_cut_off_when_its_worker_is_to_end() {
    let stage = Stage::undriven(PoolConfig { grace_ms: 0, ..config("api") });
    let mut own = Own::new(&stage);
    let endless = |work| Work { kind: WorkKind::CONNECTION, ..work };
    let (early, first) = own.adopt(MS, endless);
    stage.driver.worker_draining(own.worker.key);
    own.worker.expect_end_of_endless();
    own.tick();
    assert!(matches!(refused(&first), Refusal::Draining { .. }));
    let (late, second) = own.adopt(MS, endless);
    own.tick();
    assert!(matches!(refused(&second), Refusal::Draining { .. }));
    assert_eq!([early, late].map(|call| own.word_of(&call)), [word::ABANDONED; 2]);
}

#[test]
fn adopted_work_is_lost_with_its_worker_and_runs_nowhere_else() {
    let stage = Stage::undriven(config("api"));
    let mut own = Own::new(&stage);
    let (call, answer) = own.adopt(MS, |work| Work { retry: 5, ..work });
    let other = stage.worker(1);
    let running = stage.driver.worker_gone(own.worker.key, lost(), false);
    assert_eq!(running.iter().map(|running| running.id).collect::<Vec<_>>(), [call.id]);
    assert!(
        matches!(answer.outcome(), Some(Outcome::Failure(failure)) if *failure == lost()),
        "{:?}",
        answer.outcome()
    );
    assert_eq!((stage.pool.stats().failed, stage.pool.worker_of(call.id)), (1, None));
    let late = Arc::new(Answer::default());
    assert_eq!(stage.pool.adopt(own.worker.key, own.word, Instant::now(), stage.work("page", "1", &late)), None);
    assert!(!late.is_done() && stage.pool.reserve_words(own.worker.key, 1).is_empty());
    drop(other);
}

#[test]
fn a_worker_that_drains_and_a_pool_that_closes_wait_for_adopted_work() {
    let stage = Stage::undriven(config("api"));
    let mut own = Own::new(&stage);
    let (first, _answer) = own.adopt(MS, |work| work);
    stage.driver.worker_draining(own.worker.key);
    stage.pool.close();
    let (second, _answer) = own.adopt(MS, |work| work);
    let ended = |notices: &[Notice]| {
        let drained = notices.iter().any(|notice| matches!(notice, Notice::Drained { .. }));
        (drained, notices.iter().any(|notice| matches!(notice, Notice::Empty)))
    };
    own.ends(&first);
    assert_eq!(ended(&own.told()), (false, false));
    own.ends(&second);
    assert_eq!(ended(&own.told()), (true, true));
}

#[test]
fn words_that_are_not_the_workers_own_adopt_nothing() {
    let stage = Stage::undriven(config("api"));
    let mut own = Own::new(&stage);
    let (call, _answer) = own.adopt(MS, |work| work);
    let tries = |word| {
        let unheard = Arc::new(Answer::default());
        stage.pool.adopt(own.worker.key, word, Instant::now(), stage.work("page", "1", &unheard))
    };
    assert_eq!([call.word, call.word + 100, u32::MAX].map(tries), [None; 3], "of other work, of nothing, of no board");
    let words = own.worker.board.len() / 2;
    let more = stage.pool.reserve_words(own.worker.key, usize::MAX);
    assert_eq!(more.len(), words - 1, "the other half is for what it is sent");
    assert!(stage.pool.reserve_words(own.worker.key, 1).is_empty());
}

#[test]
fn work_is_not_adopted_without_a_word_for_what_comes_next() {
    let stage = Stage::undriven(config("api"));
    let mut own = Own::new(&stage);
    let calls: Vec<_> = (1..own.worker.board.len()).map(|_| own.adopt(MS, |work| work)).collect();
    let (unheard, key, word) = (Arc::new(Answer::default()), own.worker.key, own.word);
    let again = || stage.pool.adopt(key, word, Instant::now(), stage.work("page", "1", &unheard));
    assert_eq!(again(), None);
    assert_eq!((stage.pool.stats().sent, unheard.is_done()), (calls.len(), false));
    own.worker.result(&calls[0].0, "1");
    stage.driver.on_ready(u64::from(own.worker.key));
    assert_eq!(again().map(|adopted| adopted.next_word), Some(calls[0].0.word));
}
