//! Events and their listeners: logs, metrics, test signals and event streams all read the same records.
//!
//! A [`Sink`] subscribes for as long as it is kept. With nobody listening an event costs one atomic load, and it is not
//! made. Facts are declared beside the code that emits them (record.rs).

mod durations;
mod mailbox;
mod record;

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};

use clutch_wire::sync::Mutex;

pub use self::durations::{BOUNDS_S, Durations};
pub use self::mailbox::Subscription;
pub use self::record::{Description, EventRecord, Fact, KeptRecord};

/// Reads events. Called by the thread in which they happen, often under the pool's lock: to note them is all it may do.
pub trait Sink: Send + Sync {
    fn event(&self, event: &EventRecord<'_>);
}

/// A set of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope(u8);

impl Scope {
    /// Pools and workers, and poisoned work.
    pub const LIVES: Scope = Scope(1);
    /// Single pieces of work that expire, are cancelled, lost, drained or taken back.
    pub const INCIDENTS: Scope = Scope(2);
    /// Work on which user code starts: workers send a frame more for each.
    pub const BEGUN: Scope = Scope(4);
    /// Work that workers have answered.
    pub const FINISHED: Scope = Scope(8);
    pub const ALL: Scope = Scope(15);

    /// By its name: `lives`, `incidents` (with the former) or `all`.
    pub fn named(name: &str) -> Option<Scope> {
        match name {
            "lives" => Some(Scope::LIVES),
            "incidents" => Some(Scope::LIVES.and(Scope::INCIDENTS)),
            "all" => Some(Scope::ALL),
            _ => None,
        }
    }

    pub const fn and(self, other: Scope) -> Scope {
        Scope(self.0 | other.0)
    }

    /// The name by which operators ask for it: the first that [`Scope::named`] includes it in.
    pub fn name(self) -> &'static str {
        let includes = |name: &&str| Scope::named(name).is_some_and(|scope| scope.meets(self));
        ["lives", "incidents", "all"].into_iter().find(includes).unwrap_or_default()
    }

    fn meets(self, other: Scope) -> bool {
        self.0 & other.0 != 0
    }
}

/// Reports what happens in one pool.
#[derive(Clone)]
pub struct Emitter {
    telemetry: Arc<Telemetry>,
    pool: Arc<str>,
}

impl Emitter {
    pub fn new(telemetry: Arc<Telemetry>, pool: &str) -> Emitter {
        Emitter { telemetry, pool: pool.into() }
    }

    /// As [`Telemetry::subscribe`]: events of all pools that report to the same place.
    pub fn subscribe(&self, sink: Weak<dyn Sink>, scope: Scope) {
        self.telemetry.subscribe(sink, scope);
    }

    /// As [`Telemetry::mailbox`].
    pub fn mailbox(&self, scope: Scope) -> Subscription {
        self.telemetry.mailbox(scope)
    }

    pub fn hears(&self, scope: Scope) -> bool {
        self.telemetry.hears(scope)
    }

    /// Tells who listens, now. The fact is made only if somebody does.
    pub fn emit<F: Fact>(&self, make: impl FnOnce() -> F) {
        if self.hears(F::SCOPE) {
            let fact = make();
            self.telemetry.tell(&EventRecord::now(&self.pool, &fact), F::SCOPE);
        }
    }

    /// Stamps a fact that is told later; none if nobody listens.
    pub fn stamp<F: Fact>(&self, make: impl FnOnce() -> F) -> Option<KeptRecord> {
        self.hears(F::SCOPE).then(|| EventRecord::now(&self.pool, &make()).keep())
    }

    /// Tells what [`Emitter::stamp`] has made.
    pub fn tell(&self, kept: &KeptRecord) {
        self.telemetry.tell(&kept.as_record(), kept.scope());
    }
}

/// The listeners of a process.
#[derive(Default)]
pub struct Telemetry {
    sinks: Mutex<Vec<(Weak<dyn Sink>, Scope)>>,
    /// The scopes of all sinks together.
    heard: AtomicU8,
}

impl Telemetry {
    /// Gives the sink every event of `scope` from now on, until its last owner drops it.
    pub fn subscribe(&self, sink: Weak<dyn Sink>, scope: Scope) {
        let mut sinks = self.sinks.lock();
        // The next event drops sinks that are gone, but it may be long in coming.
        sinks.retain(|(sink, _)| sink.strong_count() > 0);
        sinks.push((sink, scope));
        self.recount(&sinks);
    }

    /// A mailbox with every event of `scope` from now on.
    pub fn mailbox(&self, scope: Scope) -> Subscription {
        let (subscription, sink) = Subscription::new();
        self.subscribe(sink, scope);
        subscription
    }

    fn hears(&self, scope: Scope) -> bool {
        scope.meets(Scope(self.heard.load(Ordering::Relaxed)))
    }

    fn tell(&self, event: &EventRecord<'_>, of: Scope) {
        let mut sinks = self.sinks.lock();
        let before = sinks.len();
        sinks.retain(|(sink, scope)| match sink.upgrade() {
            Some(sink) => {
                if scope.meets(of) {
                    sink.event(event);
                }
                true
            }
            None => false,
        });
        if sinks.len() < before {
            self.recount(&sinks);
        }
    }

    fn recount(&self, sinks: &[(Weak<dyn Sink>, Scope)]) {
        let heard = sinks.iter().fold(0, |heard, (_, scope)| heard | scope.0);
        self.heard.store(heard, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sinks_that_come_and_go_leave_nothing_though_nothing_happens() {
        let telemetry = Telemetry::default();
        for _ in 0..100 {
            drop(telemetry.mailbox(Scope::ALL));
        }
        let kept = telemetry.mailbox(Scope::LIVES);
        assert_eq!(telemetry.sinks.lock().len(), 1);
        assert!(telemetry.hears(Scope::LIVES) && !telemetry.hears(Scope::FINISHED));
        drop(kept);
    }
}
