//! Links that cannot be watched.

mod support;

use std::os::fd::AsFd;

use clutch_core::pool::Notice;
use support::{Stage, config};

#[test]
fn failure_59_the_supervisor_is_told_of_a_link_that_cannot_be_watched() {
    let stage = Stage::undriven(config("links"));
    // As good as the kernel's limit of watches: a socket that is in the poller already.
    let worker = stage.worker_by(1, |link| stage.pool.poller.add(link.as_fd(), 7, false).expect("room in the poller"));
    let told = stage.pool.drain_notices().into_iter().find_map(|notice| match notice {
        Notice::LinkEnded(key, reason) => Some((key, reason)),
        _ => None,
    });
    let (key, reason) = told.expect("a notice");
    assert_eq!(key, worker.key);
    assert!(reason.contains("cannot be watched: File exists"), "{reason}");
}
