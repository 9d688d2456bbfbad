//! A call as Python asks for it, and errors that name it.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::errors::clutch_error;

/// A function with its arguments.
pub(super) struct PythonCall<'a, 'py> {
    pub(super) function: &'a Bound<'py, PyAny>,
    pub(super) args: &'a Bound<'py, PyTuple>,
    pub(super) kwargs: Option<&'a Bound<'py, PyDict>>,
}

/// The name for people: as defined, or the type of the object.
pub(super) fn name_of(function: &Bound<'_, PyAny>) -> Option<Box<str>> {
    let py = function.py();
    let named = function.getattr(pyo3::intern!(py, "__qualname__"));
    let name = named.and_then(|name| name.extract::<String>()).or_else(|_| function.get_type().name()?.extract());
    name.ok().map(String::into_boxed_str)
}

/// Arguments that cannot be encoded: the caller's mistake, told before anything is sent. Ctrl-C stays what it is.
pub(super) fn unsendable(asked: &PythonCall<'_, '_>, error: PyErr) -> PyErr {
    let py = asked.function.py();
    if !error.is_instance_of::<PyException>(py) {
        return error;
    }
    let message = format!(
        "the arguments of {} cannot be sent to a worker: {}",
        asked.function.repr().map_or_else(|_| "this function".to_owned(), |text| text.to_string()),
        error.value(py)
    );
    let wrapped = clutch_error(py, "BadArguments", &message, &[]);
    wrapped.set_cause(py, Some(error));
    wrapped
}
