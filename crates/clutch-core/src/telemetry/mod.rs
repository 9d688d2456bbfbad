//! The event catalogue: all that the pool and the supervisor tell of themselves, once.
//!
//! Test signals, logs and metrics derive from it. Emitting without subscribers costs one atomic load.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::sync::{Condvar, Mutex};
use serde::Serialize;

/// Something that happened. `name()` is how tests, logs and metrics call it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    ZygoteStarted {
        pool: String,
        generation: u32,
        pid: i32,
    },
    ZygoteReady {
        pool: String,
        generation: u32,
        warnings: Vec<String>,
    },
    ZygoteLost {
        pool: String,
        generation: u32,
        reason: String,
    },
    ReloadStarted {
        pool: String,
        generation: u32,
    },
    ReloadFinished {
        pool: String,
        generation: u32,
    },
    ReloadFailed {
        pool: String,
        generation: u32,
        reason: String,
    },
    WorkerStarting {
        pool: String,
        nr: u32,
        generation: u32,
        pid: i32,
    },
    WorkerReady {
        pool: String,
        nr: u32,
        generation: u32,
        pid: i32,
    },
    WorkerDraining {
        pool: String,
        nr: u32,
        pid: i32,
        reason: String,
    },
    WorkerStopped {
        pool: String,
        nr: u32,
        pid: i32,
    },
    WorkerContinued {
        pool: String,
        nr: u32,
        pid: i32,
    },
    WorkerGone {
        pool: String,
        nr: u32,
        pid: i32,
        cause: String,
    },
    WorkTakenBack {
        pool: String,
        id: u64,
    },
    WorkExpired {
        pool: String,
        id: u64,
        at: String,
    },
    WorkCancelled {
        pool: String,
        id: u64,
    },
    /// Endless work was cut off so that its worker could end.
    WorkDrained {
        pool: String,
        id: u64,
    },
    WorkLost {
        pool: String,
        id: u64,
    },
    WorkPoisoned {
        pool: String,
        id: u64,
        deaths: u32,
    },
    PoolFailing {
        pool: String,
        reason: String,
    },
    PoolRecovered {
        pool: String,
    },
    PoolFull {
        pool: String,
    },
    /// It should have another number of workers from now on.
    PoolScaled {
        pool: String,
        from: usize,
        to: usize,
        reason: String,
    },
    /// It has one worker fewer than it should for a while.
    PoolShort {
        pool: String,
        nr: u32,
        reason: String,
    },
    PoolClosed {
        pool: String,
    },
}

/// Events kept for a subscriber that does not read; older ones are dropped.
const KEPT_MAX: usize = 10_000;

#[derive(Default)]
struct Mailbox {
    events: Mutex<VecDeque<Event>>,
    arrived: Condvar,
}

/// Where events go.
#[derive(Default)]
pub struct Telemetry {
    subscribers: Mutex<Vec<Weak<Mailbox>>>,
    count: AtomicUsize,
}

impl Telemetry {
    /// Whether anybody listens.
    pub fn is_watched(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    pub fn emit(&self, make: impl FnOnce() -> Event) {
        if !self.is_watched() {
            return;
        }
        let event = make();
        let mut subscribers = self.subscribers.lock();
        subscribers.retain(|subscriber| match subscriber.upgrade() {
            Some(mailbox) => {
                mailbox.put(event.clone());
                true
            }
            None => false,
        });
        self.count.store(subscribers.len(), Ordering::Relaxed);
    }

    pub fn subscribe(&self) -> Subscription {
        let mailbox = Arc::new(Mailbox::default());
        let mut subscribers = self.subscribers.lock();
        subscribers.push(Arc::downgrade(&mailbox));
        self.count.store(subscribers.len(), Ordering::Relaxed);
        Subscription { mailbox }
    }
}

impl Mailbox {
    fn put(&self, event: Event) {
        let mut events = self.events.lock();
        if events.len() == KEPT_MAX {
            events.pop_front();
        }
        events.push_back(event);
        self.arrived.notify_all();
    }
}

/// Events since it was made, in order.
pub struct Subscription {
    mailbox: Arc<Mailbox>,
}

impl Subscription {
    /// The next event, or none when the deadline passes first.
    pub fn next(&self, deadline: Instant) -> Option<Event> {
        let events = self.mailbox.events.lock();
        let (mut events, _) = self.mailbox.arrived.wait_until(events, deadline, |events| !events.is_empty());
        events.pop_front()
    }
}
