//! What a pool does with a worker whose memory is at the limit, whoever has measured it.

use crate::support::{Stage, Worker, config, value};
use clutch_pool::config::PoolConfig;
use clutch_pool::pool::state::Hold;
use clutch_pool::pool::{Memory, Notice, Weighed};
use clutch_wire::Codec;
use clutch_wire::frame::{self, Kind};

const LIMIT: u64 = 1 << 30;

fn limited() -> Stage {
    Stage::undriven(PoolConfig { recycle_memory_bytes: Some(LIMIT), ..config("memory") })
}

/// What the supervisor is told.
fn told(stage: &Stage) -> Vec<Weighed> {
    let notices = stage.driver.drain_notices().into_iter();
    notices
        .filter_map(|notice| if let Notice::Memory(figures) = notice { Some(figures) } else { None })
        .flatten()
        .collect()
}

/// The worker tells its private memory.
fn say(stage: &Stage, worker: &mut Worker, private: u64) {
    let mut said = Vec::new();
    let memory = format!("{{\"peak_rss\":{LIMIT},\"rss\":{LIMIT},\"private\":{private}}}");
    frame::put_simple(&mut said, Kind::Stats, 0, Codec::Json, memory.as_bytes()).expect("it fits");
    worker.raw(&said);
    stage.driver.on_ready(u64::from(worker.key));
}

#[test]
fn failure_35_a_worker_that_says_it_is_at_the_limit_gets_no_more_work() {
    for (private, at_limit) in [(LIMIT - 1, false), (LIMIT, true)] {
        let stage = limited();
        let mut worker = stage.worker(1);
        say(&stage, &mut worker, private);
        let _answer = stage.submit("echo", "1");
        assert_eq!(stage.pool.stats().queued, usize::from(at_limit), "before the supervisor has heard of it");
        let memory = Memory { rss: LIMIT, private: Some(private) };
        assert_eq!(told(&stage), [Weighed { worker: worker.key, memory, at_limit }]);
    }
}

#[test]
fn failure_34_workers_at_the_limit_serve_on_when_nobody_can_take_their_place() {
    let stage = limited();
    let (mut one, other) = (stage.worker(1), stage.worker(1));
    say(&stage, &mut one, LIMIT);
    stage.driver.hold(other.key, Hold::Stopped, true);
    let answer = stage.submit("echo", "1");
    assert_eq!((told(&stage).len(), stage.pool.stats().queued), (1, 1));
    stage.driver.release_all(Hold::Memory);
    let call = one.next_call();
    one.result(&call, "1");
    stage.driver.on_ready(u64::from(one.key));
    assert_eq!((value(&answer).as_str(), stage.pool.stats().queued), ("1", 0));
    assert_eq!(stage.pool.stats().slots, 1, "the other one is stopped still");
}
