//! The front's look at requests that workers run: those that run for long are adopted, so that their pool knows them, and
//! those whose time is over lose their connections, so that nothing of a late response reaches the client.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clutch_pool::pool::{Adopted, Pool};
use clutch_pool::work::{Outcome, Work, WorkId, WorkKind};
use clutch_wire::{Payload, sys};

use super::adopted::{AdoptedRequest, Known};
use super::holder::{Holder, UNREAD_MAX};
use super::ledger::{Adoption, Noted};
use super::news::Asked;
use super::places::{Held, Places};
use super::terms::Terms;
use crate::account::figures::End;

/// A request that runs for so long is adopted, or one for the tenth part of a shorter limit.
const LONG: Duration = Duration::from_millis(100);
const LONG_MIN: Duration = Duration::from_millis(5);

/// Time after which a request is adopted. `limit`: until its response begins.
fn long_of(limit: Option<Duration>) -> Duration {
    limit.map_or(LONG, |limit| (limit / 10).clamp(LONG_MIN, LONG))
}

/// Interval of the looks.
fn interval_of(limit: Option<Duration>) -> Duration {
    long_of(limit).min(UNREAD_MAX)
}

/// A connection with a request that runs for long.
struct Long {
    noted: Noted,
    serial: u64,
    is_first: bool,
}

impl Holder {
    /// Looks at what runs. Returns when to look again.
    pub(super) fn look_at_running(self: &Arc<Holder>, pool: &Pool) -> Instant {
        let Some(terms) = self.terms() else { return Instant::now() + UNREAD_MAX };
        let limit = terms.timeout();
        self.adopt_long(pool, &*terms, limit);
        self.mark_endless(pool, &*terms);
        let again = Instant::now() + interval_of(limit);
        let due = self.end_overdue(pool, &*terms);
        self.forget_answered();
        due.map_or(again, |due| due.min(again))
    }

    /// Without the lock of the places while it is in the pool, which may tell the end of another adopted request meanwhile:
    /// that takes the lock, in this thread too. That the request is the one which was seen, its number says.
    fn adopt_long(self: &Arc<Holder>, pool: &Pool, terms: &dyn Terms, limit: Option<Duration>) {
        let long = long_of(limit);
        let found: Vec<Long> = {
            let places = self.places.lock();
            let found = places.held.iter().filter_map(|(place, held)| {
                let noted = self.ledger.runs_for(*place, long)?;
                Some(Long { is_first: noted.turn == held.first, serial: held.serial, noted })
            });
            found.collect()
        };
        found.into_iter().for_each(|long| self.adopt(pool, terms, limit, long));
    }

    fn adopt(self: &Arc<Holder>, pool: &Pool, terms: &dyn Terms, limit: Option<Duration>, long: Long) {
        let Long { noted, serial, is_first } = long;
        let reserve = || pool.reserve_words(self.worker, 1).pop();
        let Some(word) = self.words.lock().word_of(noted.word, reserve) else { return };
        let asked = Asked { beginning: noted.beginning, is_first };
        let what = terms.describe(&asked.beginning);
        // From here on the worker may wait for the end of this.
        if !self.ledger.adopt(&noted) {
            return;
        }
        let now = Instant::now();
        let since = now.checked_sub(noted.age).unwrap_or(now);
        let (holder, turn) = (Arc::downgrade(self), noted.turn);
        let request = Arc::new(AdoptedRequest {
            holder,
            turn,
            serial,
            asked,
            since,
            what,
            ending: Default::default(),
            has_paused: false.into(),
        });
        // Without its deadline, which ends with the begin of the response: that is seen here.
        let work = Work::new(WorkKind::REQUEST, terms.function(), Payload::empty(), request.clone());
        let adopted = pool.adopt(self.worker, word, since, work);
        let adoption = adopted.map(|Adopted { id, next_word }| {
            let next_word = self.words.lock().adopted(word, next_word);
            Adoption { id, word, next_word }
        });
        self.ledger.adopted(turn, adoption);
        let Some(Adoption { id, .. }) = adoption else { return };
        let waits = limit.is_none().then(|| terms.wait(id, since));
        if let Some(held) = self.places.lock().of(turn.place, serial) {
            held.known = Some(Known { request, id, waits, endless: None });
        }
    }

    /// Has the pool know those whose response has turned out to have no end of its own. It is asked without the lock of the
    /// places, as above.
    fn mark_endless(&self, pool: &Pool, terms: &dyn Terms) {
        let found: Vec<(Arc<AdoptedRequest>, WorkId)> = {
            let places = self.places.lock();
            let known = places.held.values().filter_map(|held| held.known.as_ref());
            let found = known.filter(|known| known.endless.is_none() && self.ledger.is_endless(known.request.turn));
            found.map(|known| (known.request.clone(), known.id)).collect()
        };
        for (request, id) in found {
            pool.mark_endless(id);
            let endless = terms.endless();
            let mut places = self.places.lock();
            let known = places.of(request.turn.place, request.serial).and_then(|held| held.known.as_mut());
            if let Some(known) = known.filter(|known| known.id == id) {
                known.endless = Some(endless);
            }
        }
    }

    /// Ends those whose response has not begun in time, or pauses for too long. Returns when the next is due.
    fn end_overdue(&self, pool: &Pool, terms: &dyn Terms) -> Option<Instant> {
        let (now, limit, silence) = (Instant::now(), terms.timeout(), terms.silence());
        if limit.is_none() && silence.is_none() {
            return None;
        }
        let (mut overdue, mut next) = (Vec::new(), None::<Instant>);
        for held in self.places.lock().held.values() {
            let Some(Known { request, id, .. }) = &held.known else { continue };
            let due = match self.ledger.pause(request.turn) {
                Some(pause) => silence.and_then(|silence| now.checked_add(silence)?.checked_sub(pause)),
                None => limit
                    .and_then(|limit| request.since.checked_add(limit))
                    .filter(|_| self.ledger.is_unanswered(request.turn)),
            };
            match due {
                Some(due) if due <= now => overdue.push((request.clone(), *id)),
                Some(due) => next = Some(next.map_or(due, |next| next.min(due))),
                None => {}
            }
        }
        for (request, id) in overdue {
            // While somebody debugs nothing is late.
            if pool.is_untimed(id) {
                continue;
            }
            // At once: what the worker would write until the pool has told the end is nobody's. It is told with the end, so
            // that it can still tell where the request is.
            if let Some(mut held) = self.take_unanswered(&request, Places::take_away) {
                held.known = None;
                request.keep(held, self, terms);
            } else if let Some(held) = self.places.lock().of(request.turn.place, request.serial) {
                // It is told once; its worker may tell of an end before the pool does.
                (held.known, held.cut) = (None, Some(End::Timeout));
                request.has_paused.store(true, Ordering::Relaxed);
            }
            pool.expire(id);
        }
        next
    }

    /// What is not waited for any more is not told of as such.
    fn forget_answered(&self) {
        let mut places = self.places.lock();
        for held in places.held.values_mut() {
            held.known.take_if(|known| !self.ledger.runs(known.request.turn));
            if let Some(known) = held.known.as_mut().filter(|known| !self.ledger.is_unanswered(known.request.turn)) {
                known.waits = None;
            }
        }
    }

    /// The pool has ended a request that goes on in its worker.
    pub(super) fn end_adopted(&self, request: &AdoptedRequest, outcome: &Outcome, terms: &dyn Terms) {
        if let Some(held) = self.take_unanswered(request, |places, place| self.taken(places, place)) {
            return held.give(request.news(Some(outcome), terms));
        }
        let mut places = self.places.lock();
        let held = places.of(request.turn.place, request.serial);
        // It may end in this very moment: then its client has all of it.
        let held = held.filter(|_| self.ledger.runs(request.turn));
        held.iter().for_each(|held| sys::hang_up(held.socket.as_fd()));
        if held.is_some() || request.has_paused.load(Ordering::Relaxed) {
            let cut = terms.cut_off(outcome);
            held.into_iter().for_each(|held| held.cut = Some(cut));
        }
    }

    /// Takes the connection of a request of whose response nothing is written, in the ledger and by `take`.
    fn take_unanswered(
        &self,
        request: &AdoptedRequest,
        take: impl FnOnce(&mut Places, u32) -> Option<Held>,
    ) -> Option<Held> {
        let (mut places, place) = (self.places.lock(), request.turn.place);
        places.of(place, request.serial)?;
        if self.ledger.take_unanswered(request.turn) { take(&mut places, place) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_limit_has_requests_adopted_earlier_and_looked_at_more_often() {
        let of = |limit_ms: u64| {
            let limit = Some(Duration::from_millis(limit_ms));
            (long_of(limit).as_millis(), interval_of(limit).as_millis())
        };
        assert_eq!([30_000, 1000, 600, 200, 10].map(of), [(100, 50), (100, 50), (60, 50), (20, 20), (5, 5)]);
        assert_eq!((long_of(None), interval_of(None)), (LONG, UNREAD_MAX));
    }
}
