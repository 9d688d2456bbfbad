//! Where the time of a pool's workers went, and what ran longest: noted as answers come, added up when somebody asks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_wire::Payload;

use super::Pool;
use super::core::{Core, Entry};
use super::stop::OnLink;
use crate::slowest::Slowest;
use crate::work::{FunctionId, Outcome, Running, WorkKind};

/// Arguments of this size are kept with what ran longest.
const ARGUMENTS_BYTES_MAX: usize = 64 << 10;

/// Of one worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    /// Since when it is waited for.
    pub(super) wanted: Instant,
    pub(super) ready: Option<Instant>,
    pub(super) slots: usize,
    /// In all slots together, of what has ended.
    pub(super) run_ns: u64,
}

/// Time of slots: of a worker with two, two seconds pass in each second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Until their workers were ready.
    pub start: Duration,
    /// With nothing to run.
    pub wait: Duration,
    pub run: Duration,
}

/// A call, or an item of a map, that ran long.
#[derive(Clone, Debug)]
pub struct Slow {
    /// Its function.
    pub what: String,
    pub function: FunctionId,
    /// Its number in its batch.
    pub item: Option<u32>,
    /// Of all its batch; none: they were too large to be kept.
    pub arguments: Option<Arc<Payload>>,
}

/// What a pool has spent since it was made.
#[derive(Clone, Debug, Default)]
pub struct Insights {
    /// How many there were so far.
    pub workers: u64,
    pub spent: Spent,
    /// The longest first, with their nanoseconds.
    pub slowest: Vec<(u64, Slow)>,
}

/// What is noted meanwhile.
#[derive(Default)]
pub(super) struct Noted {
    /// By workers that are gone, and how many those are.
    past: Spent,
    workers_past: u64,
    /// A worker was ready once: whoever starts from then on is waited for from its start on.
    has_served: bool,
    /// Until then, when those ended that no other has followed.
    vacant: Vec<Instant>,
    slowest: Slowest<Slow>,
}

impl Life {
    /// `running`: what it has not ended.
    fn spent(&self, running: &[Running], now: Instant) -> Spent {
        let slots = u32::try_from(self.slots).unwrap_or(u32::MAX);
        let ready = self.ready.unwrap_or(now);
        let alive = now.saturating_duration_since(ready).saturating_mul(slots);
        let unended = running.iter().map(|running| running.seconds).sum::<f64>();
        let unended = Duration::try_from_secs_f64(unended).unwrap_or_default();
        let run = Duration::from_nanos(self.run_ns).saturating_add(unended).min(alive);
        let start = ready.saturating_duration_since(self.wanted).saturating_mul(slots);
        Spent { start, wait: alive - run, run }
    }
}

impl Spent {
    fn add(&mut self, other: Spent) {
        self.start = self.start.saturating_add(other.start);
        self.wait = self.wait.saturating_add(other.wait);
        self.run = self.run.saturating_add(other.run);
    }
}

impl Noted {
    /// Since when the worker is waited for that starts now. `so_far`: how many did before; `least`: so many are there from
    /// the pool's beginning, as long as nothing fails; `waits_since`: the oldest work, which others are started for.
    fn wanted(&mut self, so_far: u64, least: u64, waits_since: Option<Instant>, now: Instant) -> Option<Instant> {
        if self.has_served {
            return Some(now);
        }
        let vacant = self.vacant.pop();
        vacant.or_else(|| (so_far >= least).then(|| waits_since.unwrap_or(now)))
    }
}

impl Core {
    /// Since when the worker is waited for that starts now; none: since the pool's beginning.
    pub(super) fn wanted(&mut self, least: u64) -> Option<Instant> {
        let so_far = self.noted.workers_past + self.peers.len() as u64;
        let waits_since = self.machine.waits_since();
        self.noted.wanted(so_far, least, waits_since, Instant::now())
    }

    pub(super) fn note_served(&mut self) {
        self.noted.has_served = true;
        self.noted.vacant = Vec::new();
    }

    /// What has ended by itself, as its worker says.
    pub(super) fn note_slow(&mut self, entry: &Entry, run_ns: u64, outcome: &Outcome) {
        if entry.work.kind != WorkKind::Call || !self.noted.slowest.takes(run_ns) {
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
    pub(super) fn note_ended(&mut self, entry: &Entry, item: Option<u32>, ran: Duration) {
        let ran_ns = u64::try_from(ran.as_nanos()).unwrap_or(u64::MAX);
        if entry.work.kind == WorkKind::Call && self.noted.slowest.takes(ran_ns) {
            let slow = Slow { item, ..self.slow(entry) };
            self.noted.slowest.note(ran_ns, slow);
        }
    }

    fn slow(&self, entry: &Entry) -> Slow {
        let (what, function) = (self.describe(entry), entry.work.function);
        Slow { what, function, item: None, arguments: kept(&entry.work.payload) }
    }

    /// How long a call has run on this worker.
    pub(super) fn ran(&self, work: OnLink) -> Duration {
        let sent = self.machine.sent_at(work.id, work.worker);
        sent.map_or(Duration::ZERO, |sent| work.now.saturating_duration_since(sent))
    }

    /// Its worker is gone, and was running this.
    pub(super) fn note_past(&mut self, life: Life, running: &[Running], now: Instant) {
        for one in running {
            let ran_ns = (one.seconds * 1e9) as u64;
            let lost =
                self.machine.body(one.id).filter(|entry| entry.work.kind == WorkKind::Call && entry.work.items == 0);
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
    fits.then(|| Arc::new(Payload::new(payload.codec, payload.inline.clone())))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_waited_for_from_when_its_place_was_empty() {
        let mut noted = Noted::default();
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(noted.wanted(0, 2, None, at(1)), None, "the first one of its place: since the pool's beginning");
        assert_eq!(noted.wanted(1, 2, Some(at(1)), at(2)), None);
        noted.vacant.push(at(3));
        assert_eq!(noted.wanted(2, 2, Some(at(1)), at(4)), Some(at(3)), "since the last attempt failed");
        assert_eq!(noted.wanted(2, 2, Some(at(1)), at(4)), Some(at(1)), "one more, for what waits");
        assert_eq!(noted.wanted(0, 0, None, at(4)), Some(at(4)));
        noted.has_served = true;
        assert_eq!(noted.wanted(3, 5, Some(at(1)), at(4)), Some(at(4)));
    }
}
