//! The operator plane: what all ways to it share. It has the pools of the process, its members, and the program around them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use clutch_pool::pool::Histograms;
use clutch_pool::telemetry::{Scope, Sink, Telemetry};
use clutch_wire::sync::Mutex;
use serde_json::Value;

use crate::figures::{self, Figure};
use crate::pools::Pools;

/// The program around the pools, which alone can do some of what operators ask. Called from threads that may block; an
/// error says why it is not done.
pub trait Program: Send + Sync {
    /// Loads the code of these pools anew, and waits until it is in use. By pool: why the new code cannot be used.
    fn reload(&self, pools: Vec<String>) -> Result<BTreeMap<String, String>, String>;

    /// Begins to stop the process, with the grace of its pools or `now`; returns at once.
    fn stop(&self, now: bool) -> Result<(), String>;

    /// Returns the fronts, by name, with what a client on this machine needs to reach each.
    fn fronts(&self) -> Result<Value, String>;
}

/// A part of the process that operators see beside its pools.
pub trait Member: Send + Sync {
    /// Returns why readiness waits for it, if it does.
    fn unready(&self) -> Option<Value> {
        None
    }

    /// Returns what `GET /pools` shows of it, and under which key.
    fn shown(&self) -> Option<(&'static str, Value)> {
        None
    }

    fn figures(&self) -> Vec<Figure>;

    /// Returns the name of its front: operators reach it below `/fronts/NAME/`. None: nothing can be done by it.
    fn front(&self) -> Option<&str> {
        None
    }

    /// Returns the patterns of what operators can have done by it, such as `queues/{queue}/pause`.
    fn actions(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Does what one of [`Member::actions`] stands for, and blocks as long. `body`: what the request brings.
    fn act(&self, _path: &[String], _body: &[u8]) -> Result<Value, ActError> {
        Err(ActError::NoSuchAction)
    }
}

/// Why a member does not do what an operator asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActError {
    /// None of its patterns is meant.
    NoSuchAction,
    /// The thing to be acted on is not there. `kind`: as `no-such-job`.
    NotFound { kind: &'static str, detail: String },
    /// The request is wrong.
    Invalid(String),
    /// The request is right, and it cannot be done now.
    Refused(String),
}

/// The operator plane of a process.
pub struct Plane {
    pub pools: Pools,
    /// Events of all pools of the process.
    pub telemetry: Arc<Telemetry>,
    /// Facts that the process says of itself: `config`, `folder`, `is_program`.
    pub identity: Value,
    pub program: Box<dyn Program>,
    /// Members, for as long as each is kept.
    members: Mutex<Vec<Weak<dyn Member>>>,
    /// Members that are kept here.
    kept: Mutex<Vec<Arc<dyn Member>>>,
    /// Counts how long work waited and ran; there is none without a front that shows it.
    histograms: OnceLock<Arc<Histograms>>,
    /// Set when the fronts begin to stop.
    stopping: AtomicBool,
}

impl Plane {
    pub fn new(identity: Value, telemetry: Arc<Telemetry>, program: Box<dyn Program>) -> Arc<Plane> {
        Arc::new(Plane {
            pools: Pools::default(),
            telemetry,
            identity,
            program,
            members: Mutex::default(),
            kept: Mutex::default(),
            histograms: OnceLock::new(),
            stopping: AtomicBool::new(false),
        })
    }

    /// From now on /readyz and the operators' pages say that the process stops.
    pub fn stops(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Shows a member for as long as somebody keeps it.
    pub fn add(&self, member: &Arc<dyn Member>) {
        self.members.lock().push(Arc::downgrade(member));
    }

    /// Shows a member to the end, also when its front has stopped.
    pub fn keep(&self, member: Arc<dyn Member>) {
        self.add(&member);
        self.kept.lock().push(member);
    }

    pub fn members(&self) -> Vec<Arc<dyn Member>> {
        self.members.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Counts how long work waits and runs from now on, which costs each piece of work an event.
    pub fn measure_work(&self) {
        self.histograms.get_or_init(|| {
            let histograms = Arc::<Histograms>::default();
            let sink: Arc<dyn Sink> = histograms.clone();
            self.telemetry.subscribe(Arc::downgrade(&sink), Scope::FINISHED.and(Scope::INCIDENTS));
            histograms
        });
    }

    /// Returns the figures of the process in the text format of metrics.
    pub fn metrics(&self) -> String {
        let stats: Vec<_> = self.pools.all().iter().map(|(_, pool)| pool.stats()).collect();
        let mut all = figures::pools::of_pools(&stats);
        all.extend(self.histograms.get().into_iter().flat_map(|work| figures::pools::of_work(&work.read())));
        all.extend(self.histograms.get().into_iter().flat_map(|work| figures::pools::of_tools(&work.tools())));
        all.extend(self.members().iter().flat_map(|member| member.figures()));
        all.push(figures::build_info());
        figures::render(all)
    }
}
