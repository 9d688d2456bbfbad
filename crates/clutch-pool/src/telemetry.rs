//! The event catalogue: all that the pool and the supervisor tell of themselves, once.
//!
//! Test signals and logs derive from it. Emitting without subscribers costs one atomic load, and what happens to single
//! pieces of work is made into an event for those alone who want to hear of it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use clutch_wire::sync::{Condvar, Mutex};
use serde::Serialize;

use crate::work::Running;

/// Something that happened. `name()` is how tests, logs and metrics call it.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
    /// A debugger asks there: it is not ended before that is over, although it is to end.
    WorkerDebugged {
        pool: String,
        nr: u32,
        pid: i32,
    },
    /// It is made to end, by a signal.
    WorkerKilled {
        pool: String,
        nr: u32,
        pid: i32,
        signal: String,
        reason: String,
        running: Vec<Running>,
    },
    /// `left`: why it was to end, of one that did so when it was told. `ended`: Clutch ended it itself. `running`: what it
    /// had begun and not ended.
    WorkerGone {
        pool: String,
        nr: u32,
        pid: i32,
        cause: String,
        left: Option<String>,
        ended: bool,
        running: Vec<Running>,
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
        what: String,
    },
    PoolFailing {
        pool: String,
        reason: String,
    },
    PoolRecovered {
        pool: String,
    },
    /// It refuses work. Told at most once a second; `refused`: so many times since it was told last.
    PoolFull {
        pool: String,
        refused: u64,
        limit: usize,
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
    closed: AtomicBool,
}

/// Where events go.
#[derive(Default)]
pub struct Telemetry {
    subscribers: Mutex<Vec<Subscriber>>,
    count: AtomicUsize,
    /// Of those, who hear of single pieces of work, too.
    count_of_all: AtomicUsize,
}

struct Subscriber {
    mailbox: Weak<Mailbox>,
    scope: Scope,
}

/// What a subscriber hears of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    All,
    /// Pools and workers, and of single pieces of work what is rare.
    Lives,
}

impl Telemetry {
    /// Whether anybody listens.
    pub fn is_watched(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    pub fn emit(&self, make: impl FnOnce() -> Event) {
        if self.is_watched() {
            self.tell(&make(), |_| true);
        }
    }

    /// Of one piece of work: there may be many a second.
    pub fn emit_of_work(&self, make: impl FnOnce() -> Event) {
        if self.count_of_all.load(Ordering::Relaxed) > 0 {
            self.tell(&make(), |scope| scope == Scope::All);
        }
    }

    fn tell(&self, event: &Event, hears: impl Fn(Scope) -> bool) {
        let mut subscribers = self.subscribers.lock();
        subscribers.retain(|subscriber| match subscriber.mailbox.upgrade() {
            Some(mailbox) => {
                if hears(subscriber.scope) {
                    mailbox.put(event.clone());
                }
                true
            }
            None => false,
        });
        self.recount(&subscribers);
    }

    pub fn subscribe(&self, scope: Scope) -> Subscription {
        let mailbox = Arc::new(Mailbox::default());
        let mut subscribers = self.subscribers.lock();
        subscribers.push(Subscriber { mailbox: Arc::downgrade(&mailbox), scope });
        self.recount(&subscribers);
        Subscription { mailbox }
    }

    fn recount(&self, subscribers: &[Subscriber]) {
        let of_all = subscribers.iter().filter(|subscriber| subscriber.scope == Scope::All).count();
        self.count.store(subscribers.len(), Ordering::Relaxed);
        self.count_of_all.store(of_all, Ordering::Relaxed);
    }
}

impl Mailbox {
    fn put(&self, event: Event) {
        let mut events = self.events.lock();
        if self.closed.load(Ordering::Relaxed) {
            return;
        }
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
    /// The next event, or none when the deadline passes first, or nothing is to come.
    pub fn next(&self, deadline: Instant) -> Option<Event> {
        let events = self.mailbox.events.lock();
        let there = |events: &VecDeque<Event>| !events.is_empty() || self.is_closed();
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
