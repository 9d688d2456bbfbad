//! Work past its deadline: what its caller is told once the stacks of its worker are there.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clutch_wire::Failure;

use super::effects::{Effects, Told};
use super::peer::Link;
use super::peer::alarm::Parts;
use super::state::WorkerKey;
use crate::link::items::Items;
use crate::work::{Expired, Outcome, Refusal, Reply};

/// Work past its deadline whose caller waits for the stacks.
pub(super) struct Expiring {
    pub(super) worker: WorkerKey,
    pub(super) reply: Arc<dyn Reply>,
    pub(super) queued: Option<Duration>,
    pub(super) until: Instant,
    pub(super) stacks: Parts,
    pub(super) expired: Box<Expired>,
    pub(super) batch: Option<Cut>,
}

/// A batch that was told to stop: what it has.
pub(super) struct Cut {
    pub(super) items: Items,
    pub(super) items_max: u32,
    /// Number of items that have begun. It is counted when the code has ended, or when nobody waits for its end any
    /// longer: an item that begins after that finds that nobody waits for it, and does not run.
    pub(super) begun: Option<u32>,
    pub(super) link: Arc<Link>,
    pub(super) word: Option<u32>,
    /// Items counted as begun at least, so that none is tried for ever.
    pub(super) begun_min: u32,
}

impl Cut {
    /// Returns whether the results are here of all that ran before the item that runs.
    pub(super) fn is_known(&self) -> bool {
        self.begun.unwrap_or_else(|| self.begun_by_now()) <= self.items.count() + 1
    }

    pub(super) fn begun_by_now(&self) -> u32 {
        let counted = self.word.map_or(0, |word| self.link.board.items_begun(word).load(Ordering::Acquire));
        counted.clamp(self.begun_min, self.items_max)
    }

    pub(super) fn count_begun(&mut self) -> u32 {
        let begun = self.begun.unwrap_or_else(|| self.begun_by_now());
        *self.begun.insert(begun)
    }

    /// Returns the number of items that are answered, and of those that have failed.
    pub(super) fn counted(&mut self) -> (u32, u32) {
        let late = self.count_begun().saturating_sub(self.items.count());
        (self.items.count() + late, self.items.failed() + late)
    }

    /// Items that have begun and have no result are past their deadline. The rest is left out: its submitter knows.
    pub(super) fn outcome(mut self, expired: &Expired) -> Outcome {
        let begun = self.count_begun();
        while self.items.count() < begun {
            self.items.push_failure(&Failure::Expired(Box::new(expired.clone())));
        }
        Outcome::Value(self.items.into_payload(0))
    }
}

impl Expiring {
    pub(super) fn answer(mut self, effects: &mut Effects) {
        self.expired.stacks = self.stacks.text();
        let outcome = match self.batch {
            Some(batch) => batch.outcome(&self.expired),
            None => Outcome::Refused(Refusal::Expired(self.expired)),
        };
        effects.replies.push((self.reply, Told::Finish { outcome, queued: self.queued }));
    }

    pub(super) fn is_whole(&self) -> bool {
        self.stacks.is_whole() && self.batch.as_ref().is_none_or(Cut::is_known)
    }

    /// Results that were on their way when it was told to stop.
    pub(super) fn add_items(&mut self, items: Items) {
        let Some(batch) = &mut self.batch else { return };
        if batch.items.count().saturating_add(items.count()) <= batch.items_max {
            batch.items.append(items);
        }
    }

    /// Notes that the worker runs nothing of it any more; its word is somebody else's from now on.
    pub(super) fn code_ended(&mut self) {
        if let Some(batch) = &mut self.batch {
            batch.count_begun();
        }
    }
}
