//! The pool's record of each piece of work.

use std::time::Duration;

use clutch_wire::Failure;

use super::status::company::Joined;
use crate::link::items::Items;
use crate::work::{Outcome, Work};

/// A piece of work as the machine keeps it.
pub(super) struct Entry {
    pub(super) work: Work,
    /// On the board of the worker that it was sent to, as long as it is there.
    pub(super) word: Option<u32>,
    /// Time that the work had waited when it was last sent to a worker.
    pub(super) queued: Option<Duration>,
    /// Results so far of a mapped batch.
    pub(super) items: Items,
    /// The worker tells when user code starts on it.
    pub(super) tells_begin: bool,
    /// Who ran in the worker as it was sent there; none where it runs one at a time.
    pub(super) joined: Option<Joined>,
}

impl Entry {
    pub(super) fn new(work: Work) -> Box<Entry> {
        Box::new(Entry { work, word: None, queued: None, items: Items::default(), tells_begin: false, joined: None })
    }

    /// The id of the job that it is an attempt of.
    pub(super) fn job(&self) -> Option<String> {
        self.work.reply.job().map(str::to_owned)
    }

    /// Returns whether this is a batch of which some items have not run.
    pub(super) fn has_items_left(&self) -> bool {
        self.items.count() < self.work.items
    }

    /// Returns the number of a batch's items that have failed, or have no result.
    pub(super) fn failed(&self) -> u32 {
        self.items.failed() + self.work.items.saturating_sub(self.items.count())
    }

    /// Returns what the submitter is told. Items of a batch that have a result keep it, whatever became of the rest.
    pub(super) fn conclude(&mut self, outcome: Outcome, run_ns: u64) -> Outcome {
        match outcome {
            Outcome::Value(_) if self.work.items > 0 => {
                let message = "its worker did not report its result".to_owned();
                let (type_name, traceback) = ("RuntimeError".to_owned(), String::new());
                self.answer_of_items(&Failure::Encode { type_name, message, traceback }, run_ns)
            }
            Outcome::Failure(failure) if self.items.count() > 0 => self.answer_of_items(&failure, run_ns),
            other => other,
        }
    }

    /// `otherwise`: what items without a result are told.
    fn answer_of_items(&mut self, otherwise: &Failure, run_ns: u64) -> Outcome {
        while self.has_items_left() {
            self.items.push_failure(otherwise);
        }
        Outcome::Value(std::mem::take(&mut self.items).into_payload(run_ns))
    }
}
