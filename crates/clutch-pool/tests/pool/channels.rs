//! Channels: each worker has one to each owner, from when it is ready until it is dead.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::support::{PATIENCE, Stage, config, lost};
use clutch_pool::pool::ChannelOwner;
use clutch_pool::pool::state::WorkerKey;
use clutch_wire::sys;

#[derive(Debug)]
enum Told {
    Opened(WorkerKey, u32, OwnedFd),
    Leaving(WorkerKey),
    Quiet(bool),
    Ended(WorkerKey),
}

struct Owner(Sender<Told>);

impl ChannelOwner for Owner {
    fn opened(&self, worker: WorkerKey, nr: u32, channel: OwnedFd) {
        self.0.send(Told::Opened(worker, nr, channel)).expect("somebody listens");
    }

    fn requests_of(&self, _: WorkerKey) -> Vec<String> {
        vec!["GET /a".to_owned()]
    }

    fn waiting(&self) -> usize {
        3
    }

    fn leaving(&self, worker: WorkerKey) {
        self.0.send(Told::Leaving(worker)).expect("somebody listens");
    }

    fn quiet(&self, quiet: bool) {
        self.0.send(Told::Quiet(quiet)).expect("somebody listens");
    }

    fn ended(&self, worker: WorkerKey) {
        self.0.send(Told::Ended(worker)).expect("somebody listens");
    }
}

fn owner() -> (Arc<Owner>, Receiver<Told>) {
    let (tell, told) = channel();
    (Arc::new(Owner(tell)), told)
}

/// The next channel; it leads to `theirs`.
fn expect_opened(told: &Receiver<Told>, worker: WorkerKey, theirs: &OwnedFd) {
    match told.recv_timeout(PATIENCE) {
        Ok(Told::Opened(key, 0, ours)) if key == worker => {
            sys::send(ours.as_fd(), b"hello", &[], false).expect("the channel");
            let mut bytes = [0; 8];
            assert_eq!(sys::receive(theirs.as_fd(), &mut bytes, true).expect("the channel"), 5);
        }
        other => panic!("the channel of {worker} was expected, not {other:?}"),
    }
}

#[test]
fn workers_that_are_ready_and_those_to_come_get_channels() {
    let stage = Stage::new(config("channels"));
    let mut early = stage.worker(1);
    let (owner, told) = owner();
    let channels = stage.pool.open_channels(owner.clone());
    expect_opened(&told, early.key, &early.expect_channel());
    let mut late = stage.worker(1);
    expect_opened(&told, late.key, &late.expect_channel());
    // Another front of the same pool.
    let (other, other_told) = self::owner();
    let _others = stage.pool.open_channels(other);
    for worker in [&mut early, &mut late] {
        expect_opened(&other_told, worker.key, &worker.expect_channel());
    }
    assert_eq!(stage.driver.requests_held_by(early.key), ["GET /a"; 2], "of both");
    assert_eq!(stage.pool.stats().queued, 6, "what waits at workers waits, too");
    for quiet in [true, false] {
        stage.pool.set_quiet(quiet);
        for told in [&told, &other_told] {
            assert!(matches!(told.recv_timeout(PATIENCE), Ok(Told::Quiet(heard)) if heard == quiet));
        }
    }
    let key = early.key;
    stage.driver.worker_draining(key);
    for told in [&told, &other_told] {
        assert!(matches!(told.recv_timeout(PATIENCE), Ok(Told::Leaving(leaving)) if leaving == key));
    }
    drop(stage.driver.worker_gone(key, lost(), false));
    for told in [&told, &other_told] {
        assert!(matches!(told.recv_timeout(PATIENCE), Ok(Told::Ended(ended)) if ended == key));
    }
    drop(channels);
    assert_eq!(Arc::strong_count(&owner), 1, "nothing keeps it any more");
    let mut last = stage.worker(1);
    expect_opened(&other_told, last.key, &last.expect_channel());
}

#[test]
fn a_worker_that_is_not_ready_has_no_channel() {
    let stage = Stage::new(config("channels"));
    let worker = stage.starting_worker(1);
    let (owner, told) = owner();
    let _channels = stage.pool.open_channels(owner);
    assert!(told.try_recv().is_err());
    stage.driver.worker_ready(worker.key, (3, 7), 1, None);
    assert!(matches!(told.recv_timeout(PATIENCE), Ok(Told::Opened(key, 3, _)) if key == worker.key));
}
