//! A sink that counts how long work waited and ran, by pool and by kind of work.
//!
//! There are as many histograms as pools times kinds, whatever callers send.

use std::collections::BTreeMap;
use std::sync::Arc;

use clutch_wire::sync::Mutex;

use super::facts::WorkFinished;
use crate::telemetry::{Durations, EventRecord, Sink};

/// Time in the queue, and in user code.
type Pair = (Durations, Durations);

/// A histogram of the time in the queue and one of the run time, for each pool and kind of work.
#[derive(Default)]
pub struct Histograms(Mutex<BTreeMap<(Arc<str>, &'static str), Pair>>);

impl Histograms {
    /// By pool and kind: how long work waited until it was sent to its worker, and how long it ran there.
    pub fn read(&self) -> BTreeMap<(Arc<str>, &'static str), Pair> {
        self.0.lock().clone()
    }
}

impl Sink for Histograms {
    fn event(&self, event: &EventRecord<'_>) {
        if let Some(WorkFinished { kind, queued_s, run_s, .. }) = event.get() {
            let mut all = self.0.lock();
            let (queued, run) = all.entry((event.pool.clone(), kind)).or_default();
            queued.add(*queued_s);
            run.add(*run_s);
        }
    }
}
