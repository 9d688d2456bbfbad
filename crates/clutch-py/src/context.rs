//! A copy of the current `contextvars` context around a piece of user code: what it sets there is gone after it.

use std::ffi::c_int;

use pyo3::ffi::PyObject;
use pyo3::prelude::*;

// Declared here, since they are public in each CPython from 3.7 on, but not in its stable ABI.
unsafe extern "C" {
    fn PyContext_CopyCurrent() -> *mut PyObject;
    fn PyContext_Enter(context: *mut PyObject) -> c_int;
    fn PyContext_Exit(context: *mut PyObject) -> c_int;
}

/// An entered copy; dropping it leaves it.
struct Entered<'py> {
    context: Bound<'py, PyAny>,
}

impl<'py> Entered<'py> {
    fn new(py: Python<'py>) -> PyResult<Entered<'py>> {
        // SAFETY: returns a new reference, or null with an exception set; the GIL (or the thread state) is held.
        let context = unsafe { Bound::from_owned_ptr_or_err(py, PyContext_CopyCurrent())? };
        Entered::enter(context)
    }

    fn enter(context: Bound<'py, PyAny>) -> PyResult<Entered<'py>> {
        let py = context.py();
        // SAFETY: raises when it is no context, or when somebody has entered it.
        match unsafe { PyContext_Enter(context.as_ptr()) } {
            0 => Ok(Entered { context }),
            _ => Err(PyErr::fetch(py)),
        }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // SAFETY: this thread entered it, and what was entered after it has been left: user code returned.
        let left = unsafe { PyContext_Exit(self.context.as_ptr()) };
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
