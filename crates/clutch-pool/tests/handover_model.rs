//! All orders of what threads do that leave frames in an outbox, and of what their memory lets them see: none is left
//! behind, and no two write at a time.

mod atomic {
    pub use loom::sync::atomic::{AtomicU32, Ordering};
}

#[path = "../src/link/handover.rs"]
mod handover;

use std::sync::Arc;

use atomic::{AtomicU32, Ordering};
use handover::Handover;

/// An outbox of one number: how much is pending, how much is written, and whether somebody writes.
#[derive(Default)]
struct Outbox {
    handover: Handover,
    pending: Count,
    written: Count,
    writers: Count,
}

struct Count(AtomicU32);

impl Default for Count {
    fn default() -> Count {
        Count(AtomicU32::new(0))
    }
}

impl Outbox {
    fn push_and_flush(&self) {
        self.pending.0.fetch_add(1, Ordering::Relaxed);
        if !self.handover.enter() {
            return;
        }
        loop {
            assert_eq!(self.writers.0.fetch_add(1, Ordering::Relaxed), 0, "two write at a time");
            // Relaxed on purpose: what makes the others' pushes visible here is the hand-over alone.
            let seen = self.pending.0.load(Ordering::Relaxed);
            self.written.0.store(seen, Ordering::Relaxed);
            self.writers.0.fetch_sub(1, Ordering::Relaxed);
            if self.handover.leave() {
                return;
            }
        }
    }
}

fn nothing_is_left_behind(threads: usize) {
    let outbox = Arc::new(Outbox::default());
    let others: Vec<_> = (1..threads)
        .map(|_| {
            let outbox = outbox.clone();
            loom::thread::spawn(move || outbox.push_and_flush())
        })
        .collect();
    outbox.push_and_flush();
    others.into_iter().for_each(|other| other.join().expect("a thread"));
    assert_eq!(outbox.written.0.load(Ordering::SeqCst), threads as u32);
}

#[test]
fn what_two_threads_push_is_written_whatever_order_they_run_in() {
    loom::model(|| nothing_is_left_behind(2));
}

#[test]
fn what_three_threads_push_is_written_whatever_order_they_run_in() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| nothing_is_left_behind(3));
}

/// A full socket: who writes leaves with things unwritten, and is told when there is room.
#[test]
fn one_that_gives_up_lets_the_next_one_write_all() {
    loom::model(|| {
        let outbox = Arc::new(Outbox::default());
        let other = outbox.clone();
        let blocked = loom::thread::spawn(move || {
            other.pending.0.fetch_add(1, Ordering::Relaxed);
            if other.handover.enter() {
                other.handover.give_up();
            }
        });
        outbox.push_and_flush();
        blocked.join().expect("a thread");
        outbox.push_and_flush();
        assert_eq!(outbox.written.0.load(Ordering::SeqCst), 3);
    });
}
