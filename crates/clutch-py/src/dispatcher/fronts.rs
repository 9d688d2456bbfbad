//! The network fronts of a dispatcher, and the async runtime that they share.

use std::time::Duration;

use clutch_wire::sync::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use tokio::runtime;

use crate::dispatcher::finalizing::wait_when_finalizing;
use crate::dispatcher::plane::Plane;

/// How long the end waits until aborted tasks have released their resources.
const CUT: Duration = Duration::from_secs(1);

/// The async runtime of a dispatcher, with its threads.
#[pyclass(frozen, module = "clutch._core")]
pub struct Runtime(Mutex<Option<runtime::Runtime>>);

#[pymethods]
impl Runtime {
    /// Raises OSError where no thread can be had.
    #[new]
    fn new() -> PyResult<Runtime> {
        Ok(Runtime(Mutex::new(Some(clutch_fronts::runtime()?))))
    }

    /// Ends its threads and aborts what still runs in them. A second stop has no effect.
    fn stop(&self, py: Python<'_>) {
        if let Some(runtime) = self.0.lock().take() {
            py.detach(|| runtime.shutdown_timeout(CUT));
        }
    }
}

impl Drop for Runtime {
    /// Cuts everything off without waiting: a forked copy has no threads that could be waited for.
    fn drop(&mut self) {
        self.0.lock().take().into_iter().for_each(runtime::Runtime::shutdown_background);
    }
}

/// Running fronts.
#[pyclass(frozen, module = "clutch._core")]
pub struct Fronts {
    running: clutch_fronts::Fronts,
}

#[pymethods]
impl Fronts {
    /// Starts listening, for the pools of `plane`. `fronts`: by name, the JSON of a `FrontConfig`. Raises OSError when a bind fails.
    #[new]
    fn new(py: Python<'_>, runtime: &Runtime, plane: &Plane, fronts: Vec<(String, String)>) -> PyResult<Fronts> {
        let handle = runtime.0.lock().as_ref().map(|runtime| runtime.handle().clone());
        let handle = handle.ok_or_else(|| PyRuntimeError::new_err("this runtime was stopped"))?;
        let read = |(name, text): (String, String)| match serde_json::from_str(&text) {
            Ok(config) => Ok((name, config)),
            Err(error) => Err(PyValueError::new_err(format!("the config of front {name}: {error}"))),
        };
        let configs = fronts.into_iter().map(read).collect::<PyResult<Vec<_>>>()?;
        Ok(Fronts { running: py.detach(|| clutch_fronts::Fronts::start(&handle, &plane.plane, configs))? })
    }

    /// The addresses of a front, each `host:port` or `unix:path`.
    fn addresses(&self, front: &str) -> Vec<String> {
        self.running.addresses(front)
    }

    /// The address by which a client on this machine reaches it, or None.
    fn address(&self, front: &str) -> Option<String> {
        self.running.address(front)
    }

    /// A token that it accepts, or None if it needs none.
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

    /// Certificates and tokens are read anew, those of an app only where its pool is among these. Pairs of the option that
    /// names the files, and why they cannot be used: then the old ones go on.
    fn reload_files(&self, py: Python<'_>, pools: Vec<String>) -> Vec<(String, Option<String>)> {
        let reread = py.detach(|| self.running.reload_files(&pools));
        reread.into_iter().map(|one| (one.option, one.result.err().map(|error| error.to_string()))).collect()
    }

    /// Stops accepting, lets requests end for this many seconds, then aborts them. The admin front goes on.
    fn stop_work(&self, py: Python<'_>, grace_s: f64) {
        py.detach(|| self.running.stop_work(seconds(grace_s)));
    }

    /// The same with all fronts, the admin front last. A second stop has no effect.
    fn stop(&self, py: Python<'_>, grace_s: f64) {
        py.detach(|| self.running.stop(seconds(grace_s)));
    }
}

fn seconds(given: f64) -> Duration {
    Duration::try_from_secs_f64(given.max(0.0)).unwrap_or(Duration::ZERO)
}
