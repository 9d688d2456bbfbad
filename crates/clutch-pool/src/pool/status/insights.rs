//! Where the time of a pool's workers went, and what ran longest: noted as answers come, added up when somebody asks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_wire::Payload;

use super::spent::{Insights, Life, Slow};
use crate::pool::Pool;
use crate::pool::core::Core;
use crate::pool::effects::OnLink;
use crate::pool::entry::Entry;
use crate::slowest::Slowest;
use crate::work::{Outcome, Running};

/// Arguments of this size are kept with what ran longest.
const ARGUMENTS_BYTES_MAX: usize = 64 << 10;

impl Core {
    /// Since when the worker is waited for that starts now; none: since the pool's beginning.
    pub(in crate::pool) fn wanted(&mut self, least: u64) -> Option<Instant> {
        let so_far = self.noted.workers_past + self.peers.len() as u64;
        let waits_since = self.machine.waits_since();
        self.noted.wanted(so_far, least, waits_since, Instant::now())
    }

    pub(in crate::pool) fn note_served(&mut self) {
        self.noted.has_served = true;
        self.noted.vacant = Vec::new();
    }

    /// What has ended by itself, as its worker says.
    pub(in crate::pool) fn note_slow(&mut self, entry: &Entry, run_ns: u64, outcome: &Outcome) {
        if !entry.work.is_call() || !self.noted.slowest.takes(run_ns) {
            return;
        }
        let items = entry.work.items;
        let told: Vec<(u32, u64)> = match outcome {
            Outcome::Value(payload) if items > 0 => Slowest::read(payload.body()).collect(),
            _ => Vec::new(),
        };
        if items > 0 && !told.iter().any(|(_, ns)| self.noted.slowest.takes(*ns)) {
            return;
        }
        let slow = self.slow(entry);
        if items == 0 {
            self.noted.slowest.note(run_ns, slow.clone());
        }
        for (item, item_ns) in told.into_iter().filter(|(item, _)| *item < items) {
            self.noted.slowest.note(item_ns.min(run_ns), Slow { item: Some(item), ..slow.clone() });
        }
    }

    /// What was told to stop, by its deadline or its caller; `item`: of a batch, the one that ran.
    pub(in crate::pool) fn note_ended(&mut self, entry: &Entry, item: Option<u32>, ran: Duration) {
        let ran_ns = u64::try_from(ran.as_nanos()).unwrap_or(u64::MAX);
        if entry.work.is_call() && self.noted.slowest.takes(ran_ns) {
            let slow = Slow { item, ..self.slow(entry) };
            self.noted.slowest.note(ran_ns, slow);
        }
    }

    fn slow(&self, entry: &Entry) -> Slow {
        let (what, function) = (self.describe(entry), entry.work.function);
        Slow { what, function, item: None, arguments: kept(&entry.work.payload) }
    }

    /// How long a call has run on this worker.
    pub(in crate::pool) fn ran(&self, work: OnLink) -> Duration {
        let sent = self.machine.sent_at(work.id, work.worker);
        sent.map_or(Duration::ZERO, |sent| work.now.saturating_duration_since(sent))
    }

    /// Its worker is gone, and was running this.
    pub(in crate::pool) fn note_past(&mut self, life: Life, running: &[Running], now: Instant) {
        for one in running {
            let ran_ns = (one.seconds * 1e9) as u64;
            let lost = self.machine.body(one.id).filter(|entry| entry.work.is_call() && entry.work.items == 0);
            if let Some(slow) = lost.filter(|_| self.noted.slowest.takes(ran_ns)).map(|entry| self.slow(entry)) {
                self.noted.slowest.note(ran_ns, slow);
            }
        }
        self.noted.workers_past += 1;
        self.noted.past.add(life.spent(running, now));
        if !self.noted.has_served {
            self.noted.vacant.push(now);
        }
    }
}

/// Shared memory is not kept: it is needed.
fn kept(payload: &Payload) -> Option<Arc<Payload>> {
    let fits = payload.leases.is_empty() && payload.inline.len() <= ARGUMENTS_BYTES_MAX;
    fits.then(|| Arc::new(Payload::new(payload.form, payload.inline.clone())))
}

impl Pool {
    pub fn insights(&self) -> Insights {
        if self.is_forked() {
            return Insights::default();
        }
        let (core, now) = (self.core.lock(), Instant::now());
        let noted = &core.noted;
        let mut spent = noted.past;
        for (key, peer) in &core.peers {
            spent.add(peer.life.spent(&core.running(*key, now), now));
        }
        let workers = noted.workers_past + core.peers.len() as u64;
        Insights { workers, spent, slowest: noted.slowest.iter().cloned().collect() }
    }
}
