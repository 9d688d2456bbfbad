//! Timeouts as Python gives them: in seconds, of any size, and perhaps no number at all.

use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::dispatcher::finalizing::wait_when_finalizing;

/// Interval at which a waiting thread checks for signals.
pub const LOOK_FOR_SIGNALS: Duration = Duration::from_millis(100);

/// The deadline; none for no limit. A negative timeout is over at once, as in the standard library. Raises ValueError
/// for nan.
pub fn until(timeout: Option<f64>) -> PyResult<Option<Instant>> {
    match timeout {
        Some(seconds) if seconds.is_nan() => {
            Err(PyValueError::new_err("timeout nan: allowed are seconds, or None for no limit"))
        }
        // What is too long for a clock is as good as no limit.
        Some(seconds) => {
            Ok(Duration::try_from_secs_f64(seconds.max(0.0)).ok().and_then(|wait| Instant::now().checked_add(wait)))
        }
        None => Ok(None),
    }
}

/// Waits without the GIL, and looks for signals now and then, and whether `goes_on` raises; none: not in time.
pub fn wait_in_slices<T: Send>(
    py: Python<'_>,
    timeout: Option<f64>,
    wait: impl Fn(Instant) -> Option<T> + Sync,
    goes_on: impl Fn() -> PyResult<()>,
) -> PyResult<Option<T>> {
    wait_when_finalizing();
    let deadline = until(timeout)?;
    loop {
        let slice = Instant::now() + LOOK_FOR_SIGNALS;
        let found = py.detach(|| wait(deadline.map_or(slice, |deadline| deadline.min(slice))));
        if found.is_some() || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Ok(found);
        }
        py.check_signals()?;
        goes_on()?;
    }
}
