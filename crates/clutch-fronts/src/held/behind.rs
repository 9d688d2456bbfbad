//! Code that goes on behind a response in its worker, as background tasks do: work of the pool, as its request would be.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_host::Warnings;
use clutch_pool::pool::{Adopted, Pool};
use clutch_pool::work::{Outcome, Refusal, Reply, Work, WorkKind};
use clutch_wire::Payload;

use super::holder::Holder;
use super::ledger::{Adoption, BEGINNING_BYTES};
use super::message::{GoesOn, ToWorker};

/// The reply of such work.
struct Behind {
    what: String,
    since: Instant,
    /// Its front may have ended before it.
    warnings: Arc<Warnings>,
}

impl Reply for Behind {
    fn chunk(&self, _payload: Payload) {}

    fn finish(&self, outcome: Outcome, _queued: Option<Duration>) {
        if matches!(outcome, Outcome::Refused(Refusal::Draining { .. })) {
            self.warnings.tell("behind", || words(&self.what, self.since.elapsed()));
        }
    }

    fn describe(&self, _payload: &Payload) -> Option<String> {
        Some(self.what.clone())
    }
}

fn words(what: &str, age: Duration) -> String {
    format!("{what} was told to stop after {:.1} s: its worker is to end", age.as_secs_f64())
}

impl Holder {
    /// Has the pool know it, and tells its worker by what. To be called without a lock, as the pool may end other work.
    pub(super) fn adopt_behind(&self, pool: Option<&Pool>, told: GoesOn<'_>) {
        let adoption = pool.and_then(|pool| self.behind_known(pool, told));
        let mut message = Vec::new();
        ToWorker::Known { number: told.number, adoption }.put(&mut message);
        self.say(message);
    }

    fn behind_known(&self, pool: &Pool, told: GoesOn<'_>) -> Option<Adoption> {
        let (terms, now) = (self.terms()?, Instant::now());
        let since = now.checked_sub(Duration::from_micros(told.age_us)).unwrap_or(now);
        let mut beginning = [0; BEGINNING_BYTES];
        beginning.iter_mut().zip(told.beginning).for_each(|(kept, byte)| *kept = *byte);
        let what = format!("{} (behind its response)", terms.describe(&beginning));
        let reply = Arc::new(Behind { what, since, warnings: terms.warnings() });
        let work = Work::new(WorkKind::REQUEST, terms.function(), Payload::empty(), reply);
        let word = self.words.lock().word_of(None, || pool.reserve_words(self.worker, 1).pop())?;
        let Adopted { id, next_word } = pool.adopt(self.worker, word, since, Work { is_counted: false, ..work })?;
        Some(Adoption { id, word, next_word: self.words.lock().adopted(word, next_word) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_what_was_told_to_stop() {
        let said = words("GET /mail (behind its response)", Duration::from_millis(1500));
        assert_eq!(said, "GET /mail (behind its response) was told to stop after 1.5 s: its worker is to end");
    }
}
