//! What all ways to the operator plane share: the pools of the process, and its host.

pub(crate) mod pools;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use clutch_pool::telemetry::{Histograms, Scope, Sink, Telemetry};
use clutch_wire::sync::Mutex;
use serde_json::Value;

use self::pools::Pools;
use crate::account::figures::{Figures, Snapshot};

/// What operators ask that only the program around the pools can do. Called from threads that may block; an error says why
/// it is not done.
pub trait Host: Send + Sync {
    /// Loads the code of these pools anew, and waits until it is in use. By pool: why the new code cannot be used.
    fn reload(&self, pools: Vec<String>) -> Result<BTreeMap<String, String>, String>;

    /// Begins to stop the process, with the grace of its pools or `now`; returns at once.
    fn stop(&self, now: bool) -> Result<(), String>;

    /// The fronts, by name, with what a client on this machine needs to reach each.
    fn fronts(&self) -> Result<Value, String>;
}

/// One for the process.
pub struct Plane {
    pub pools: Pools,
    /// Where all pools of the process report.
    pub(crate) telemetry: Arc<Telemetry>,
    /// What the process says of itself: `config`, `folder`, `is_program`.
    pub(crate) identity: Value,
    pub(crate) host: Box<dyn Host>,
    /// Of all fronts that speak HTTP.
    figures: Mutex<Vec<Arc<Figures>>>,
    /// How long work waited and ran; nobody counts that without a front that shows it.
    pub(crate) histograms: OnceLock<Arc<Histograms>>,
    /// Set when the fronts begin to stop.
    stopping: AtomicBool,
}

impl Plane {
    pub fn new(identity: Value, telemetry: Arc<Telemetry>, host: Box<dyn Host>) -> Arc<Plane> {
        Arc::new(Plane {
            pools: Pools::default(),
            telemetry,
            identity,
            host,
            figures: Mutex::default(),
            histograms: OnceLock::new(),
            stopping: AtomicBool::new(false),
        })
    }

    /// From now on /readyz and the operators' pages say that the process stops.
    pub fn stops(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// One more front whose figures are shown.
    pub(crate) fn count(&self, figures: Arc<Figures>) {
        self.figures.lock().push(figures);
    }

    pub(crate) fn readings(&self) -> Vec<Snapshot> {
        self.figures.lock().iter().map(|figures| figures.read()).collect()
    }

    /// Counts how long work waits and runs from now on, which costs each piece of work an event.
    pub(crate) fn measure_work(&self) {
        self.histograms.get_or_init(|| {
            let histograms = Arc::<Histograms>::default();
            let sink: Arc<dyn Sink> = histograms.clone();
            self.telemetry.subscribe(Arc::downgrade(&sink), Scope::FINISHED);
            histograms
        });
    }
}
