//! A sink that keeps events for one reader.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use clutch_wire::sync::{Condvar, Mutex};

use super::{EventRecord, KeptRecord, Sink};

/// Events kept for a reader that does not read; older ones are dropped.
const KEPT_MAX: usize = 10_000;

#[derive(Default)]
struct Mailbox {
    events: Mutex<VecDeque<KeptRecord>>,
    arrived: Condvar,
    closed: AtomicBool,
}

impl Sink for Mailbox {
    fn event(&self, event: &EventRecord<'_>) {
        let mut events = self.events.lock();
        if self.closed.load(Ordering::Relaxed) {
            return;
        }
        if events.len() == KEPT_MAX {
            events.pop_front();
        }
        events.push_back(event.keep());
        self.arrived.notify_all();
    }
}

/// Events since it was made, in order.
pub struct Subscription {
    mailbox: Arc<Mailbox>,
}

impl Subscription {
    pub(super) fn new() -> (Subscription, Weak<dyn Sink>) {
        let mailbox = Arc::new(Mailbox::default());
        let sink: Arc<dyn Sink> = mailbox.clone();
        (Subscription { mailbox }, Arc::downgrade(&sink))
    }

    /// The next event; none when the deadline passes first, or nothing is to come.
    pub fn next(&self, deadline: Instant) -> Option<KeptRecord> {
        let events = self.mailbox.events.lock();
        let there = |events: &VecDeque<KeptRecord>| !events.is_empty() || self.is_closed();
        let (mut events, _) = self.mailbox.arrived.wait_until(events, deadline, there);
        events.pop_front()
    }

    /// Nothing comes after what is there.
    pub fn close(&self) {
        let _events = self.mailbox.events.lock();
        self.mailbox.closed.store(true, Ordering::Relaxed);
        self.mailbox.arrived.notify_all();
    }

    pub fn is_closed(&self) -> bool {
        self.mailbox.closed.load(Ordering::Relaxed)
    }
}
