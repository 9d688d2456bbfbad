//! Events and who hears of them. Logs, metrics, test signals and event streams all derive from one catalogue.
//!
//! A [`Sink`] subscribes for as long as it is kept. With nobody listening an event costs one atomic load, and it is not
//! made.

mod catalogue;
mod histograms;
mod mailbox;

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};

use clutch_wire::sync::Mutex;

pub use self::catalogue::Event;
pub use self::histograms::{BOUNDS_S, Durations, Histograms};
pub use self::mailbox::Subscription;

/// Reads events. Called by the thread in which they happen, often under the pool's lock: to note them is all it may do.
pub trait Sink: Send + Sync {
    fn event(&self, event: &Event);
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

    pub fn pool(&self) -> Arc<str> {
        self.pool.clone()
    }

    /// See [`Telemetry::subscribe`]: of all pools that report to the same place.
    pub fn subscribe(&self, sink: Weak<dyn Sink>, scope: Scope) {
        self.telemetry.subscribe(sink, scope);
    }

    /// See [`Telemetry::mailbox`].
    pub fn mailbox(&self, scope: Scope) -> Subscription {
        self.telemetry.mailbox(scope)
    }

    pub fn hears(&self, scope: Scope) -> bool {
        self.telemetry.hears(scope)
    }

    pub fn emit(&self, make: impl FnOnce(Arc<str>) -> Event) {
        self.telemetry.emit(Scope::LIVES, || make(self.pool.clone()));
    }

    /// Of one piece of work: there may be many a second.
    pub fn emit_of_work(&self, scope: Scope, make: impl FnOnce(Arc<str>) -> Event) {
        self.telemetry.emit(scope, || make(self.pool.clone()));
    }
}

/// Where events go.
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
        // Those that are gone are found by the next event, too; but where none comes, they would pile up.
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

    fn emit(&self, scope: Scope, make: impl FnOnce() -> Event) {
        if self.hears(scope) {
            self.tell(&make(), scope);
        }
    }

    fn tell(&self, event: &Event, of: Scope) {
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

    struct Deaf;

    impl Sink for Deaf {
        fn event(&self, _: &Event) {}
    }

    #[test]
    fn sinks_that_are_gone_do_not_pile_up_where_nothing_happens() {
        let telemetry = Telemetry::default();
        let kept: Arc<dyn Sink> = Arc::new(Deaf);
        telemetry.subscribe(Arc::downgrade(&kept), Scope::LIVES);
        for _ in 0..100 {
            let gone: Arc<dyn Sink> = Arc::new(Deaf);
            telemetry.subscribe(Arc::downgrade(&gone), Scope::ALL);
        }
        telemetry.subscribe(Arc::downgrade(&kept), Scope::INCIDENTS);
        assert_eq!(telemetry.sinks.lock().len(), 2);
        assert!(!telemetry.hears(Scope::BEGUN));
    }
}
