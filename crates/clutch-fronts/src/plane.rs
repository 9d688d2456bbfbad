//! What all ways to the operator plane share: the pools of the process, and its host.

pub(crate) mod pools;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use clutch_pool::telemetry::{Durations, Histograms, Scope, Sink, Telemetry};
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

/// What operators see beside pools and the fronts of a network: those who run the jobs of a store.
pub trait Member: Send + Sync {
    /// Why readiness waits for it; none: it does not.
    fn unready(&self) -> Option<Value>;

    /// For `GET /pools`.
    fn shown(&self) -> Value;

    fn figures(&self) -> Vec<Figure>;
}

/// One value for metrics, under a name that begins with `clutch_jobs_`.
#[derive(Clone, Debug)]
pub struct Figure {
    pub name: &'static str,
    pub help: &'static str,
    pub labels: Vec<(&'static str, String)>,
    pub value: FigureValue,
}

#[derive(Clone, Debug)]
pub enum FigureValue {
    /// It only grows.
    Counter(u64),
    Gauge(u64),
    Durations(Durations),
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
    /// For as long as each is kept.
    members: Mutex<Vec<Weak<dyn Member>>>,
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
            members: Mutex::default(),
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

    /// Shows one more, for as long as it is kept.
    pub fn add(&self, member: Weak<dyn Member>) {
        self.members.lock().push(member);
    }

    pub(crate) fn members(&self) -> Vec<Arc<dyn Member>> {
        self.members.lock().iter().filter_map(Weak::upgrade).collect()
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
