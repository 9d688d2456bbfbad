//! Options of one submission.

use std::time::Duration;

use clutch_pool::pool::state::queue::PRIORITY_MAX;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The options of one submission.
#[pyclass(frozen, module = "clutch._core", skip_from_py_object)]
#[derive(Clone, Copy, Default)]
pub struct CallOptions {
    pub(super) deadline: Option<Duration>,
    pub(super) priority: i8,
    pub(super) retry: u32,
    pub(super) block: bool,
    pub(super) item_limit: Option<Duration>,
}

#[pymethods]
impl CallOptions {
    /// `deadline` and `item_limit`, of each item of a batch, in seconds; `priority` −9..9; `retry`: how often it may run
    /// again when its worker dies; `block`: wait for room whatever the pool's overflow says.
    #[new]
    #[pyo3(signature = (deadline = None, priority = 0, retry = 0, block = false, item_limit = None))]
    fn new(
        deadline: Option<f64>,
        priority: i64,
        retry: i64,
        block: bool,
        item_limit: Option<f64>,
    ) -> PyResult<CallOptions> {
        let wrong = |what: String| PyValueError::new_err(what);
        let highest = i64::from(PRIORITY_MAX);
        if !(-highest..=highest).contains(&priority) {
            return Err(wrong(format!("priority {priority}: allowed are -9 to 9, larger first")));
        }
        let retry = u32::try_from(retry)
            .map_err(|_| wrong(format!("retry {retry}: allowed is how often work may run again, 0 to {}", u32::MAX)))?;
        let time = |seconds: f64| {
            Duration::try_from_secs_f64(seconds)
                .map_err(|error| wrong(format!("deadline {seconds:?}: allowed are seconds from 0 up ({error})")))
        };
        let (deadline, item_limit) = (deadline.map(time).transpose()?, item_limit.map(time).transpose()?);
        Ok(CallOptions { deadline, priority: priority as i8, retry, block, item_limit })
    }
}
