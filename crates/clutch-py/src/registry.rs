//! What belongs to the process: the events of all its pools, and what happens when the process is forked by somebody else.

use std::sync::{Arc, OnceLock};

use clutch_core::forked;
use clutch_core::telemetry::{Subscription, Telemetry};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::timeout::wait_in_slices;

pub fn telemetry() -> Arc<Telemetry> {
    static TELEMETRY: OnceLock<Arc<Telemetry>> = OnceLock::new();
    TELEMETRY.get_or_init(Arc::default).clone()
}

/// For `os.register_at_fork(after_in_child=…)`: this copy's pools are closed and hold no link open.
#[pyfunction]
pub fn after_fork_in_child() {
    forked::in_child();
}

/// Events of all pools since it was made.
#[pyclass(frozen, module = "clutch._core")]
pub struct Events {
    subscription: Subscription,
}

#[pymethods]
impl Events {
    #[new]
    fn new() -> Events {
        Events { subscription: telemetry().subscribe() }
    }

    /// The next event as JSON, or None after `timeout` seconds.
    fn next(&self, py: Python<'_>, timeout: f64) -> PyResult<Option<String>> {
        let event = wait_in_slices(py, Some(timeout), |at| self.subscription.next(at))?;
        let text = event.map(|event| serde_json::to_string(&event)).transpose();
        text.map_err(|error| PyValueError::new_err(error.to_string()))
    }
}
