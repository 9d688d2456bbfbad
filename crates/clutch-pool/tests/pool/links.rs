//! Links that cannot be watched, and the last words on them.

use std::os::fd::AsFd;

use crate::support::{Stage, config};
use clutch_pool::pool::{LinkReader, Notice};
use clutch_wire::Codec;
use clutch_wire::frame::{self, Kind};

#[test]
fn failure_59_the_supervisor_is_told_of_a_link_that_cannot_be_watched() {
    let stage = Stage::undriven(config("links"));
    // As good as the kernel's limit of watches: a socket that is in the poller already.
    let worker =
        stage.worker_by(1, |link| stage.driver.poller().add(link.as_fd(), 7, false).expect("room in the poller"));
    let told = stage.driver.drain_notices().into_iter().find_map(|notice| match notice {
        Notice::LinkEnded(key, reason) => Some((key, reason)),
        _ => None,
    });
    let (key, reason) = told.expect("a notice");
    assert_eq!(key, worker.key);
    assert!(reason.contains("cannot be watched: File exists"), "{reason}");
}

#[test]
fn failure_12_the_last_words_of_a_dead_worker_are_heard_whoever_reads_its_link() {
    let stage = Stage::undriven(config("links"));
    // A front's thread, which has not come to it yet.
    LinkReader::of(&stage.pool).take_over(Box::new(|_| {}));
    let mut worker = stage.worker(1);
    let mut frame = Vec::new();
    frame::put_simple(&mut frame, Kind::Failed, 0, Codec::Json, b"{\"reason\":\"no database\"}").expect("it fits");
    worker.raw(&frame);
    let key = worker.key;
    drop(worker);
    stage.driver.hear_out(key);
    let told = stage.driver.drain_notices();
    assert!(
        told.iter().any(|notice| matches!(notice, Notice::StartFailed(from, _) if *from == key)),
        "its end is judged by what it said: {told:?}"
    );
}
