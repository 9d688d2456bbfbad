//! The messages of ASGI as Python has them.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMapping, PyString};

use crate::handlers::http::{misuse, name_and_value};

/// Names and values of a message's headers.
pub fn header_lines<'py>(message: &Bound<'py, PyDict>) -> PyResult<Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
    match message.get_item(intern!(message.py(), "headers"))? {
        Some(headers) if !headers.is_none() => headers.try_iter()?.map(|header| name_and_value(&header?)).collect(),
        _ => Ok(Vec::new()),
    }
}

/// A message; any mapping is one.
pub fn dict_of<'py>(message: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    if let Ok(message) = message.cast::<PyDict>() {
        return Ok(message.clone());
    }
    let copy = PyDict::new(message.py());
    copy.update(message.cast::<PyMapping>()?)?;
    Ok(copy)
}

pub fn item<'py>(message: &Bound<'py, PyDict>, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
    message.get_item(name)?.ok_or_else(|| misuse(format!("the message {message} has no {name}")))
}

pub fn http_request(py: Python<'_>, body: &Bound<'_, PyBytes>, more: bool) -> PyResult<Py<PyAny>> {
    let message = PyDict::new(py);
    message.set_item(intern!(py, "type"), intern!(py, "http.request"))?;
    message.set_item(intern!(py, "body"), body)?;
    message.set_item(intern!(py, "more_body"), more)?;
    Ok(message.into_any().unbind())
}

/// An item of a message; none where it is missing or None.
pub fn given<'py>(message: &Bound<'py, PyDict>, name: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>> {
    Ok(message.get_item(name)?.filter(|value| !value.is_none()))
}
