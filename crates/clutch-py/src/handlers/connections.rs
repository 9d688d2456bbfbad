//! Old connections of Django's, which are closed around each call, job and item, as Django does it around its requests.
//!
//! Costs a look into a dict where Django's databases are not imported. What is closed, and what is kept by `CONN_MAX_AGE`,
//! Django decides.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use super::types::is_coroutine;

/// Runs a function of the user's between two closings. A coroutine that it makes has them around its own run.
pub fn around<'py>(py: Python<'py>, run: impl FnOnce() -> PyResult<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
    if !is_django_here(py)? {
        return run();
    }
    let closing = py.import("clutch._worker.connections")?;
    closing.call_method0("close_old")?;
    let made = run();
    match &made {
        Ok(made) if is_coroutine(made) => closing.call_method1("around", (made,)),
        _ => {
            closing.call_method0("close_old")?;
            made
        }
    }
}

fn is_django_here(py: Python<'_>) -> PyResult<bool> {
    static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let modules = || Ok::<_, PyErr>(py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?.unbind());
    MODULES.get_or_try_init(py, modules)?.bind(py).contains(pyo3::intern!(py, "django.db"))
}
