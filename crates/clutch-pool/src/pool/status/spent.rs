//! Accounting of the time of a pool's workers, and the longest runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_wire::Payload;

use super::company::Company;
use crate::pool::Served;
use crate::slowest::Slowest;
use crate::work::FunctionId;

/// Time of one worker, by how it was spent.
#[derive(Clone, Copy, Debug)]
pub(in crate::pool) struct Life {
    /// Since when the worker is waited for.
    pub(in crate::pool) wanted: Instant,
    pub(in crate::pool) ready: Option<Instant>,
    pub(in crate::pool) slots: usize,
    /// The nr and the pid of the worker.
    pub(in crate::pool) who: (u32, i32),
    /// In all slots together, of what has ended.
    pub(in crate::pool) run_ns: u64,
    /// CPU time of the process, when it was looked at last.
    pub(in crate::pool) cpu: Duration,
}

/// Time of slots: of a worker with two, two seconds pass in each second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Until their workers were ready.
    pub start: Duration,
    /// With nothing to run.
    pub wait: Duration,
    pub run: Duration,
    /// CPU time of the processes, as the kernel counts it.
    pub cpu: Duration,
}

/// A call, or an item of a map, that ran long.
#[derive(Clone, Debug)]
pub struct Slow {
    /// The name of the function.
    pub what: String,
    pub function: FunctionId,
    /// The number of the item in its batch.
    pub item: Option<u32>,
    /// Arguments of the whole batch; none: they were too large to be kept.
    pub arguments: Option<Arc<Payload>>,
}

/// Time that a pool has spent since it was made.
#[derive(Clone, Debug, Default)]
pub struct Insights {
    /// Number of workers so far.
    pub workers: u64,
    pub spent: Spent,
    /// The longest first, with their nanoseconds.
    pub slowest: Vec<(u64, Slow)>,
}

/// Minimum time between two warnings that the pool refuses work.
const TELL_FULL_EVERY: Duration = Duration::from_secs(1);

/// Counts of ended work, by how it ended; of a batch its items count.
#[derive(Debug, Default)]
pub(in crate::pool) struct Tally {
    pub(in crate::pool) done: u64,
    pub(in crate::pool) failed: u64,
    /// Endless work that was cut off so that its worker could end.
    pub(in crate::pool) drained: u64,
    /// Work refused because the queue was full, since that was told, and when it was.
    refused: u64,
    told_full: Option<Instant>,
}

impl Tally {
    /// Counts what was answered, `failed` of it without a value.
    pub(in crate::pool) fn note(&mut self, done: u32, failed: u32) {
        self.done += u64::from(done);
        self.failed += u64::from(failed);
    }

    /// Counts what a worker had taken by itself.
    pub(in crate::pool) fn note_served(&mut self, served: Served) {
        self.done = self.done.saturating_add(served.calls);
        self.failed = self.failed.saturating_add(served.failed.min(served.calls)).saturating_add(served.lost);
    }

    /// Counts work that is refused because the queue is full. Returns how much was, where that is to be told now.
    pub(in crate::pool) fn refuse(&mut self, now: Instant) -> Option<u64> {
        self.refused += 1;
        if self.told_full.is_some_and(|at| now < at + TELL_FULL_EVERY) {
            return None;
        }
        self.told_full = Some(now);
        Some(std::mem::take(&mut self.refused))
    }
}

/// Notes taken as work ends and workers go.
#[derive(Default)]
pub(in crate::pool) struct Noted {
    pub(in crate::pool) tally: Tally,
    /// By workers that are gone, and how many those are.
    pub(in crate::pool) past: Spent,
    pub(in crate::pool) workers_past: u64,
    /// A worker was ready once: whoever starts from then on is waited for from its start on.
    pub(in crate::pool) has_served: bool,
    /// Until then, when those ended that no other has followed.
    pub(in crate::pool) vacant: Vec<Instant>,
    pub(in crate::pool) slowest: Slowest<Slow>,
    pub(in crate::pool) company: Company,
}

impl Life {
    /// Adds the run time of what has ended.
    pub(in crate::pool) fn has_run(&mut self, run: Duration) {
        let run_ns = u64::try_from(run.as_nanos()).unwrap_or(u64::MAX);
        self.run_ns = self.run_ns.saturating_add(run_ns);
    }

    /// `unended_s`: so long it has run what it has not ended.
    pub(in crate::pool) fn spent(&self, unended_s: f64, now: Instant) -> Spent {
        let slots = u32::try_from(self.slots).unwrap_or(u32::MAX);
        let ready = self.ready.unwrap_or(now);
        let alive = now.saturating_duration_since(ready).saturating_mul(slots);
        let unended = Duration::try_from_secs_f64(unended_s).unwrap_or_default();
        let run = Duration::from_nanos(self.run_ns).saturating_add(unended).min(alive);
        let start = ready.saturating_duration_since(self.wanted).saturating_mul(slots);
        Spent { start, wait: alive - run, run, cpu: self.cpu }
    }
}

impl Spent {
    /// Notes that workers ran something in time in which nothing was known of it.
    pub(in crate::pool) fn has_run(&mut self, run: Duration) {
        let run = run.min(self.wait);
        self.wait -= run;
        self.run = self.run.saturating_add(run);
    }

    pub(in crate::pool) fn add(&mut self, other: Spent) {
        self.start = self.start.saturating_add(other.start);
        self.wait = self.wait.saturating_add(other.wait);
        self.run = self.run.saturating_add(other.run);
        self.cpu = self.cpu.saturating_add(other.cpu);
    }
}

impl Noted {
    /// Since when the worker is waited for that starts now. `so_far`: how many did before; `least`: so many are there from
    /// the pool's beginning, as long as nothing fails; `waits_since`: the oldest work, which others are started for.
    pub(in crate::pool) fn wanted(
        &mut self,
        so_far: u64,
        least: u64,
        waits_since: Option<Instant>,
        now: Instant,
    ) -> Option<Instant> {
        if self.has_served {
            return Some(now);
        }
        let vacant = self.vacant.pop();
        vacant.or_else(|| (so_far >= least).then(|| waits_since.unwrap_or(now)))
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
