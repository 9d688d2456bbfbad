//! A copy of the current `contextvars` context around a piece of user code: what it sets there is gone after it.

use pyo3::ffi;
use pyo3::prelude::*;

/// An entered copy; dropping it leaves it.
struct Entered<'py> {
    context: Bound<'py, PyAny>,
}

impl<'py> Entered<'py> {
    fn new(py: Python<'py>) -> PyResult<Entered<'py>> {
        // SAFETY: returns a new reference, or null with an exception set; the GIL (or the thread state) is held.
        let context = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyContext_CopyCurrent())? };
        Entered::enter(context)
    }

    fn enter(context: Bound<'py, PyAny>) -> PyResult<Entered<'py>> {
        let py = context.py();
        // SAFETY: raises when it is no context, or when somebody has entered it.
        match unsafe { ffi::PyContext_Enter(context.as_ptr()) } {
            0 => Ok(Entered { context }),
            _ => Err(PyErr::fetch(py)),
        }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // SAFETY: this thread entered it, and what was entered after it has been left: user code returned.
        let left = unsafe { ffi::PyContext_Exit(self.context.as_ptr()) };
        if left != 0 {
            PyErr::fetch(self.context.py()).write_unraisable(self.context.py(), None);
        }
    }
}

/// Calls `run` in this context.
pub fn within<'py, R>(context: Bound<'py, PyAny>, run: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    let entered = Entered::enter(context)?;
    let result = run();
    drop(entered);
    result
}

/// Calls `run` in a copy of the current context.
pub fn in_copy<'py, R>(py: Python<'py>, run: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    let entered = Entered::new(py)?;
    let result = run();
    drop(entered);
    result
}
