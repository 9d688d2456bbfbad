//! The fronts of a dispatcher.

use std::error::Error;
use std::io;
use std::time::Duration;

use clutch_host::{FrontKind, Start};
use clutch_jobs::store::StoreError;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::dispatcher::finalizing::wait_when_finalizing;
use crate::dispatcher::jobs;
use crate::dispatcher::plane::Plane;

/// All kinds of fronts, by the crate that has them.
const KINDS: &[&[FrontKind]] = &[clutch_fronts::KINDS, clutch_jobs::front::KINDS];

/// Running fronts.
#[pyclass(frozen, module = "clutch._core")]
pub struct Fronts {
    running: clutch_host::Fronts,
}

#[pymethods]
impl Fronts {
    /// Starts fronts, for the pools of `plane`. `fronts`: of each its name, its kind, and its options as JSON. Raises
    /// ValueError for options that cannot be used, OSError when a bind fails, and `StoreUnavailable` or `StoreError`.
    #[new]
    fn new(py: Python<'_>, plane: &Plane, fronts: Vec<(String, String, String)>) -> PyResult<Fronts> {
        let starts = fronts.into_iter().map(|(name, kind, options)| {
            let start = start_of(&kind, &options);
            start.map(|start| (name.clone(), start)).map_err(|why| format!("the config of front {name}: {why}"))
        });
        let starts = starts.collect::<Result<Vec<_>, _>>().map_err(PyValueError::new_err)?;
        let running = py.detach(|| clutch_host::Fronts::start(&plane.plane, starts));
        Ok(Fronts { running: running.map_err(|failure| not_started(py, failure))? })
    }

    /// Returns the addresses of a front, each `host:port` or `unix:path`.
    fn addresses(&self, front: &str) -> Vec<String> {
        self.running.addresses(front)
    }

    /// Returns the address by which a client on this machine reaches it, or None.
    fn address(&self, front: &str) -> Option<String> {
        self.running.address(front)
    }

    /// Returns a token that it accepts, or None if it needs none.
    fn token(&self, front: &str) -> Option<String> {
        self.running.token(front)
    }

    /// Waits for the next warning for the log. None: the fronts were stopped.
    fn next_warning(&self, py: Python<'_>) -> Option<String> {
        wait_when_finalizing();
        py.detach(|| self.running.next_warning())
    }

    /// Reopens log files, after the old ones were moved away.
    fn reopen_logs(&self) {
        self.running.reopen_logs();
    }

    /// Reads certificates and tokens anew, those of an app only where its pool is among these. Returns pairs of the option
    /// that names the files, and why they cannot be used: then the old ones go on.
    fn reload_files(&self, py: Python<'_>, pools: Vec<String>) -> Vec<(String, Option<String>)> {
        let reread = py.detach(|| self.running.reload_files(&pools));
        reread.into_iter().map(|one| (one.option, one.result.err().map(|error| error.to_string()))).collect()
    }

    /// Begins the stop: nothing takes in more. Lets requests end for this many seconds, then aborts them. Jobs that have
    /// begun go on, and the admin front serves.
    fn stop_work(&self, py: Python<'_>, grace_s: f64) {
        py.detach(|| self.running.stop_work(seconds(grace_s)));
    }

    /// Stops fronts of jobs when the pools have ended: settles what became of the jobs, for at most this many seconds.
    fn settle(&self, py: Python<'_>, at_most_s: f64) {
        py.detach(|| self.running.settle(seconds(at_most_s)));
    }

    /// Leaves the jobs that run to other programs at once, right before the end of the process, also in the midst of a
    /// stop. Takes half a second at most for each front of jobs.
    fn leave(&self, py: Python<'_>) {
        py.detach(|| self.running.leave());
    }

    /// Stops all fronts that still serve, the admin front last. A second stop has no effect.
    fn stop(&self, py: Python<'_>, grace_s: f64) {
        py.detach(|| self.running.stop(seconds(grace_s)));
    }
}

fn start_of(kind: &str, options: &str) -> Result<Box<dyn Start>, String> {
    let known = KINDS.iter().copied().flatten().find(|known| known.name == kind);
    let known = known.ok_or_else(|| format!("no front has the kind {kind}"))?;
    (known.read)(options).map_err(|error| error.to_string())
}

fn not_started(py: Python<'_>, failure: Box<dyn Error + Send + Sync>) -> PyErr {
    let of_store = |failure: Box<StoreError>| jobs::error(py, &failure);
    let of_system = |failure: Box<dyn Error + Send + Sync>| match failure.downcast::<io::Error>() {
        Ok(error) => (*error).into(),
        Err(other) => PyValueError::new_err(other.to_string()),
    };
    failure.downcast::<StoreError>().map_or_else(of_system, of_store)
}

fn seconds(given: f64) -> Duration {
    Duration::try_from_secs_f64(given.max(0.0)).unwrap_or(Duration::ZERO)
}
