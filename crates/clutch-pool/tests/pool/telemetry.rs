//! What is told of single pieces of work, and to whom.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use crate::support::{Call, Stage, Worker, config, lost};
use clutch_pool::pool::facts::{WorkBegun, WorkCancelled, WorkFinished};
use clutch_pool::pool::{Answer, Histograms};
use clutch_pool::supervisor::facts::PoolRecovered;
use clutch_pool::telemetry::{EventRecord, KeptRecord, Scope, Sink};
use clutch_pool::work::Work;
use clutch_wire::frame::{self, Head, Kind};
use clutch_wire::{Codec, Failure};

/// Ends a call after so many milliseconds of its worker's clock.
fn end_in(stage: &Stage, worker: &mut Worker, call: &Call, ms: u64) {
    let mut bytes = Vec::new();
    let head = Head::with(Kind::Result, call.id, Codec::Bytes);
    frame::put(&mut bytes, head, &[], &(ms * 1_000_000).to_le_bytes(), b"null").expect("it fits");
    worker.raw(&bytes);
    (0..4).for_each(|_| stage.driver.on_ready(u64::from(worker.key)));
}

/// The names of the events that are there.
fn names(stage: &Stage) -> Vec<String> {
    let now = Instant::now();
    let events = std::iter::from_fn(|| stage.events.next(now));
    events.map(|event| event.name().to_owned()).collect()
}

#[derive(Default)]
struct Kept(Mutex<Vec<KeptRecord>>);

impl Sink for Kept {
    fn event(&self, event: &EventRecord<'_>) {
        self.0.lock().expect("a lock").push(event.keep());
    }
}

#[test]
fn the_begin_and_the_end_of_work_carry_its_trace() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(1);
    let answer = Arc::new(Answer::default());
    let work = Work { trace: Some("00-aa-bb-01".into()), ..stage.work("echo", "1", &answer) };
    let id = stage.pool.submit(work, false);
    let call = worker.next_call();
    worker.say_begun(&call);
    end_in(&stage, &mut worker, &call, 7);
    let WorkBegun { id: of, kind, what, trace, .. } = stage.wait_event();
    assert_eq!((of, kind, &what[..], trace.as_deref()), (id, "call", "echo", Some("00-aa-bb-01")));
    let finished: WorkFinished = stage.wait_event();
    let WorkFinished { id: of, run_s, failed, trace, .. } = &finished;
    assert_eq!((*of, *run_s, *failed, trace.as_deref()), (id, 0.007, false, Some("00-aa-bb-01")));
    assert_eq!((&finished.what[..], finished.nr, finished.pid, finished.error), ("echo", 0, 7, None));
}

#[test]
fn a_batch_whose_last_item_killed_its_worker_names_that_worker() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.starting_worker(1);
    stage.driver.worker_ready(worker.key, (3, 9), 1, None);
    let answer = stage.submit_batch("echo", 1);
    let call = worker.next_call();
    worker.begin_item(&call);
    stage.driver.worker_gone(worker.key, lost(), false);
    let finished: WorkFinished = stage.wait_event();
    assert_eq!((finished.id, finished.nr, finished.pid), (answer.id(), 3, 9));
}

#[test]
fn a_sink_hears_its_scope_until_it_is_dropped() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(1);
    let kept = Arc::new(Kept::default());
    let sink: Arc<dyn Sink> = kept.clone();
    stage.pool.telemetry().subscribe(Arc::downgrade(&sink), Scope::INCIDENTS);
    drop(sink);
    let waits = stage.submit("echo", "1");
    let call = worker.next_call();
    stage.pool.cancel(waits.id());
    end_in(&stage, &mut worker, &call, 1);
    let heard = std::mem::take(&mut *kept.0.lock().expect("a lock"));
    assert!(matches!(&heard[..], [only] if only.is::<WorkCancelled>()), "{heard:?}");
    drop(kept);
    assert!(names(&stage).contains(&"work_cancelled".to_owned()), "others go on hearing");
}

#[test]
fn histograms_are_by_pool_and_kind_and_batches_are_their_own_kind() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(1);
    let histograms = Arc::<Histograms>::default();
    let sink: Arc<dyn Sink> = histograms.clone();
    stage.pool.telemetry().subscribe(Arc::downgrade(&sink), Scope::FINISHED);
    for ms in [1, 1, 20] {
        stage.submit("echo", "1");
        let call = worker.next_call();
        end_in(&stage, &mut worker, &call, ms);
    }
    stage.submit_batch("echo", 2);
    let call = worker.next_call();
    end_in(&stage, &mut worker, &call, 5);
    let read = histograms.read();
    let kinds: Vec<(&str, &str, u64, f64)> =
        read.iter().map(|((pool, kind), (_, run))| (&**pool, *kind, run.count(), run.sum)).collect();
    assert_eq!(kinds, [("api", "batch", 1, 0.005), ("api", "call", 3, 0.022)]);
}

/// Whether the worker was asked to tell when its code starts.
fn wants_begun(worker: &mut Worker) -> bool {
    worker.next_call().wants_begun
}

#[test]
fn workers_tell_the_begin_of_work_only_while_somebody_hears_it() {
    let mut stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(2);
    stage.submit("echo", "1");
    assert!(wants_begun(&mut worker));
    stage.events = stage.pool.telemetry().mailbox(Scope::LIVES);
    // The next event of any kind finds the old mailbox gone.
    stage.pool.telemetry().emit(|| PoolRecovered {});
    stage.submit("echo", "1");
    assert!(!wants_begun(&mut worker));
}

#[test]
fn an_event_has_the_time_at_which_it_happened() {
    let stage = Stage::undriven(config("api"));
    let before = SystemTime::now();
    let stamped = stage.pool.telemetry().stamp(|| PoolRecovered {}).expect("somebody listens");
    let after = SystemTime::now();
    std::thread::sleep(Duration::from_millis(2));
    stage.pool.telemetry().tell(&stamped);
    let heard = stage.events.next(Instant::now()).expect("it was told");
    assert!(before <= heard.at && heard.at <= after, "not the time of its delivery");
    let json = serde_json::to_value(&heard).expect("JSON");
    assert_eq!((&json["event"], &json["pool"]), (&"pool_recovered".into(), &"api".into()));
    assert!(json["time"].as_str().is_some_and(|time| time.ends_with('Z')));
}

#[test]
fn the_error_of_work_is_named_where_it_failed() {
    let stage = Stage::undriven(config("api"));
    let mut worker = stage.worker(1);
    stage.submit("echo", "1");
    let call = worker.next_call();
    worker.failure(&call, &Failure::NoSuchTool { message: "x".to_owned() });
    (0..4).for_each(|_| stage.driver.on_ready(u64::from(worker.key)));
    let finished: WorkFinished = stage.wait_event();
    assert_eq!((finished.failed, finished.error), (true, Some("no_such_tool")));
}
