//! How many requests a worker takes at a time: as many as it has answered in a moment of late. What it does not take, others
//! may be given.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clutch_wire::sys;

use crate::handlers::early::UNSENT_MAX;

/// Time that the requests which are taken at a time may need.
const TURN: Duration = Duration::from_millis(2);

/// Of each request's time, so much counts towards the mean.
const WEIGHT: u64 = 8;

/// Mean time that a request has needed.
#[derive(Debug, Default)]
pub(super) struct Pace {
    mean_ns: AtomicU64,
}

impl Pace {
    /// Most requests that are taken at a time.
    pub(super) fn most(&self) -> usize {
        let mean = self.mean_ns.load(Ordering::Relaxed);
        (TURN.as_nanos() as u64 / mean.max(1)).clamp(1, sys::TOKENS_MAX as u64) as usize
    }

    /// So many requests have needed this time.
    pub(super) fn note(&self, count: usize, time: Duration) {
        let each = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) / count.max(1) as u64;
        let mean = self.mean_ns.load(Ordering::Relaxed);
        self.mean_ns.store((mean * (WEIGHT - 1) + each.min(1 << 40)) / WEIGHT, Ordering::Relaxed);
    }

    /// Goes through what is taken at a time: `one` for each, and `send` now and then, so that no response waits for long.
    pub(super) fn each<T, E>(
        &self,
        all: Vec<T>,
        mut one: impl FnMut(T) -> Result<(), E>,
        mut send: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let (count, begun) = (all.len(), Instant::now());
        let (mut last, mut told) = (begun, Ok(()));
        for (nr, next) in all.into_iter().enumerate() {
            told = told.and(one(next));
            let now = Instant::now();
            if nr + 1 < count && now.duration_since(last) >= UNSENT_MAX {
                told = told.and(send());
                last = now;
            }
        }
        if count > 0 {
            self.note(count, begun.elapsed());
        }
        told
    }
}
