//! Adopted requests: what their pool tells of their end, and what becomes of their connections then.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use clutch_pool::work::{Outcome, Reply, WorkId};
use clutch_wire::sync::Mutex;
use clutch_wire::{Failure, Payload};

use super::holder::Holder;
use super::ledger::Turn;
use super::news::{Asked, News, Unanswered};
use super::places::Held;
use super::terms::Terms;

/// A request that its pool knows, for whoever looks at its connection.
pub(super) struct Known {
    pub(super) request: Arc<AdoptedRequest>,
    pub(super) id: WorkId,
    /// Where nothing limits it: kept while nothing of its response is written.
    pub(super) waits: Option<Box<dyn Send>>,
    /// Where its response has no end of its own: kept until it is over.
    pub(super) endless: Option<Box<dyn Send>>,
}

/// See the file's head. The reply of its work.
pub(super) struct AdoptedRequest {
    pub(super) holder: Weak<Holder>,
    pub(super) turn: Turn,
    /// Which of all connections that were passed to its worker it came by.
    pub(super) serial: u64,
    pub(super) asked: Asked,
    pub(super) since: Instant,
    pub(super) what: String,
    pub(super) ending: Mutex<Ending>,
    /// Its response has paused for too long.
    pub(super) has_paused: AtomicBool,
}

/// Its end, as far as it has come.
#[derive(Default)]
pub(super) enum Ending {
    #[default]
    Awaited,
    /// Its time is over, and its connection was taken from the worker: what its client is told comes with the end.
    Taken(Held),
    Come(Outcome),
}

impl AdoptedRequest {
    /// Its time is over: its client and its worker are told so when the pool has told the end.
    pub(super) fn keep(&self, held: Held, holder: &Holder, terms: &dyn Terms) {
        let outcome = {
            let mut ending = self.ending.lock();
            match &*ending {
                Ending::Come(outcome) => outcome.clone(),
                _ => return *ending = Ending::Taken(held),
            }
        };
        self.end_late(held, &outcome, holder, terms);
    }

    /// What its worker has answered meanwhile, nobody waits for.
    fn end_late(&self, held: Held, outcome: &Outcome, holder: &Holder, terms: &dyn Terms) {
        let refused = Some(outcome).filter(|outcome| matches!(outcome, Outcome::Refused(_)));
        held.give(self.news(refused, terms));
        holder.tell_of_taken(&mut holder.places.lock(), self.turn.place);
    }

    pub(super) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    pub(super) fn news(&self, outcome: Option<&Outcome>, terms: &dyn Terms) -> News {
        let verdict = terms.verdict(outcome);
        News::Unanswered(Box::new(Unanswered { asked: self.asked, after: self.age(), verdict }))
    }
}

impl Reply for AdoptedRequest {
    /// Its response goes to the client's connection.
    fn chunk(&self, _payload: Payload) {}

    /// Called on the driver's thread or on that of the looks, without the pool's lock. Neither has that of the places then.
    fn finish(&self, outcome: Outcome, _queued: Option<Duration>) {
        let Some(holder) = self.holder.upgrade() else { return };
        let Some(terms) = holder.terms() else { return };
        let before = std::mem::replace(&mut *self.ending.lock(), Ending::Come(outcome.clone()));
        match before {
            Ending::Taken(held) => self.end_late(held, &outcome, &holder, &*terms),
            _ if is_told_by_worker(&outcome) => {}
            _ => holder.end_adopted(self, &outcome, &*terms),
        }
    }

    fn describe(&self, _payload: &Payload) -> Option<String> {
        Some(self.what.clone())
    }
}

/// Whether the channel of its worker tells of the rest: a response, or the end of the worker.
fn is_told_by_worker(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Value(_) => true,
        Outcome::Failure(failure) => matches!(**failure, Failure::WorkerLost { .. }),
        Outcome::Refused(_) => false,
    }
}
