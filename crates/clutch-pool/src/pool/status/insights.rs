//! The longest runs, noted as answers come.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_wire::Payload;

use super::spent::{Life, Noted, Slow};
use crate::pool::entry::Entry;
use crate::slowest::Slowest;
use crate::work::{Outcome, Running, WorkId};

/// Arguments of this size are kept with what ran longest.
const ARGUMENTS_BYTES_MAX: usize = 64 << 10;

impl Noted {
    pub(in crate::pool) fn note_served(&mut self) {
        self.has_served = true;
        self.vacant = Vec::new();
    }

    /// Notes what has ended by itself, as its worker says. `what` it is, is asked for only where it ran long.
    pub(in crate::pool) fn note_slow(
        &mut self,
        entry: &Entry,
        what: impl FnOnce() -> String,
        run_ns: u64,
        outcome: &Outcome,
    ) {
        if !entry.work.is_call() || !self.slowest.takes(run_ns) {
            return;
        }
        let items = entry.work.items;
        let told: Vec<(u32, u64)> = match outcome {
            Outcome::Value(payload) if items > 0 => Slowest::read(payload.body()).collect(),
            _ => Vec::new(),
        };
        if items > 0 && !told.iter().any(|(_, ns)| self.slowest.takes(*ns)) {
            return;
        }
        let slow = slow(entry, what());
        if items == 0 {
            self.slowest.note(run_ns, slow.clone());
        }
        for (item, item_ns) in told.into_iter().filter(|(item, _)| *item < items) {
            self.slowest.note(item_ns.min(run_ns), Slow { item: Some(item), ..slow.clone() });
        }
    }

    /// Notes what was told to stop, by its deadline or its caller; `item`: of a batch, the one that ran.
    pub(in crate::pool) fn note_ended(
        &mut self,
        entry: &Entry,
        what: impl FnOnce() -> String,
        item: Option<u32>,
        ran: Duration,
    ) {
        let ran_ns = u64::try_from(ran.as_nanos()).unwrap_or(u64::MAX);
        if entry.work.is_call() && self.slowest.takes(ran_ns) {
            self.slowest.note(ran_ns, Slow { item, ..slow(entry, what()) });
        }
    }

    /// Notes that a worker is gone which was running this. `find` gives work that is to be answered still, and what it is.
    pub(in crate::pool) fn note_past<'a>(
        &mut self,
        life: Life,
        running: &[Running],
        now: Instant,
        find: impl Fn(WorkId) -> Option<(&'a Entry, String)>,
    ) {
        for one in running {
            let ran_ns = (one.seconds * 1e9) as u64;
            let lost = Some(one.id).filter(|_| self.slowest.takes(ran_ns)).and_then(&find);
            let is_call = |entry: &Entry| entry.work.is_call() && entry.work.items == 0;
            if let Some((entry, what)) = lost.filter(|(entry, _)| is_call(entry)) {
                self.slowest.note(ran_ns, slow(entry, what));
            }
        }
        self.workers_past += 1;
        self.past.add(life.spent(running.iter().map(|running| running.seconds).sum(), now));
        if !self.has_served {
            self.vacant.push(now);
        }
    }
}

fn slow(entry: &Entry, what: String) -> Slow {
    Slow { what, function: entry.work.function, item: None, arguments: kept(&entry.work.payload) }
}

/// Shared memory is not kept: it is needed.
fn kept(payload: &Payload) -> Option<Arc<Payload>> {
    let fits = payload.leases.is_empty() && payload.inline.len() <= ARGUMENTS_BYTES_MAX;
    fits.then(|| Arc::new(Payload::new(payload.form, payload.inline.clone())))
}
