//! What is to be called, with what: read out of a frame.

use std::sync::Arc;

use clutch_wire::frame::flag;
use clutch_wire::{Codec, Failure, Payload};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use super::outcome::Trouble;
use crate::codec;
use crate::descriptor::Descriptor;
use crate::serve::{App, Served};
use crate::worker::{CallFrame, Entry, WorkerLink};

/// What is to be called, with what.
pub struct Prepared {
    pub tool: Option<Py<PyAny>>,
    pub function: Py<PyAny>,
    pub by_name: bool,
    pub arguments: Py<PyTuple>,
    pub keywords: Option<Py<PyDict>>,
    /// What came beside the arguments of a network's caller.
    pub headers: Option<Py<PyDict>>,
    /// Of a mapped batch: whether each item is a tuple of arguments.
    pub spread: bool,
    /// It comes from a client of the app.
    pub request: Option<Served>,
}

/// Reads what is to be called out of a frame.
pub fn prepare(
    link: &Bound<'_, WorkerLink>,
    entry: Option<&Entry>,
    frame: &mut CallFrame,
) -> Result<Prepared, Trouble> {
    let py = link.py();
    let payload = link.get().payload(frame).map_err(Trouble::Failure)?;
    let Some(entry) = entry else {
        let made = match frame.codec {
            Codec::Batch => batch(py, None, &payload),
            Codec::Pickle => by_value(py, &payload),
            // Least of all a network's bytes are unpickled.
            codec => Err(PyTypeError::new_err(format!("{codec:?} for a function that was never defined"))),
        };
        return made.map_err(|error| Trouble::Failure(unreadable(py, error)));
    };
    if let Some(app) = &entry.app {
        return request(link, app, frame, &payload).map_err(Trouble::Raised);
    }
    if frame.flags & flag::HAS_DESCRIPTOR != 0 {
        let descriptor = Descriptor::new(frame.descriptor.take());
        let arguments = PyTuple::new(py, [Py::new(py, descriptor)?])?;
        return Ok(Prepared::of(py, entry, arguments, None));
    }
    let read = match frame.codec {
        Codec::Json => return json(py, entry, payload.body()).map_err(Trouble::Raised),
        Codec::HeadedJson => return headed(py, entry, &payload).map_err(Trouble::Raised),
        Codec::Batch => batch(py, Some(entry), &payload),
        _ => codec::decode_arguments(py, &payload)
            .map(|(arguments, keywords)| Prepared::of(py, entry, arguments, keywords)),
    };
    read.map_err(|error| Trouble::Failure(unreadable(py, error)))
}

/// The same with the headers before them.
fn headed(py: Python<'_>, entry: &Entry, payload: &Payload) -> PyResult<Prepared> {
    let (headers, body) = payload.headed().map_err(|error| PyValueError::new_err(error.to_string()))?;
    let shown = PyDict::new(py);
    for (name, value) in headers.iter() {
        shown.set_item(String::from_utf8_lossy(name), String::from_utf8_lossy(value))?;
    }
    Ok(Prepared { headers: Some(shown.unbind()), ..json(py, entry, body)? })
}

/// The arguments of a network's caller, by name.
fn json(py: Python<'_>, entry: &Entry, body: &[u8]) -> PyResult<Prepared> {
    let body = PyBytes::new(py, body);
    let keywords = entry.tool.bind(py).call_method1("decode_json", (body,))?.cast_into::<PyDict>()?;
    Ok(Prepared::of(py, entry, PyTuple::empty(py), Some(keywords)))
}

/// The function comes with its arguments.
fn by_value(py: Python<'_>, payload: &Payload) -> PyResult<Prepared> {
    let (function, arguments, keywords) = codec::unpickle(py, payload)?.extract()?;
    let keywords: Py<PyDict> = keywords;
    Ok(Prepared { keywords: Some(keywords), ..Prepared::unknown(function, arguments) })
}

fn request(link: &Bound<'_, WorkerLink>, app: &Arc<App>, frame: &CallFrame, payload: &Payload) -> PyResult<Prepared> {
    let has_input = frame.flags & flag::HAS_INPUT != 0;
    let (request, arguments) = Served::of(link, app, frame.id, payload, has_input)?;
    let prepared = Prepared::unknown(app.run.clone_ref(link.py()), arguments.unbind());
    Ok(Prepared { request: Some(request), ..prepared })
}

/// A batch is `(spread, items)`, or `(function, spread, items)` when the function comes by value.
fn batch(py: Python<'_>, entry: Option<&Entry>, payload: &Payload) -> PyResult<Prepared> {
    let parts = codec::unpickle(py, payload)?.cast_into::<PyTuple>()?;
    let (function, spread, items) = match entry {
        Some(entry) => (entry.function.clone_ref(py), parts.get_item(0)?, parts.get_item(1)?),
        None => (parts.get_item(0)?.unbind(), parts.get_item(1)?, parts.get_item(2)?),
    };
    let tool = entry.map(|entry| entry.tool.clone_ref(py));
    let arguments = items.cast::<PyList>()?.to_tuple().unbind();
    Ok(Prepared { tool, spread: spread.is_truthy()?, ..Prepared::unknown(function, arguments) })
}

fn unreadable(py: Python<'_>, error: PyErr) -> Failure {
    let explained =
        py.import("clutch._worker.script").and_then(|script| script.call_method1("explain", (error.value(py),)));
    let error = explained.map_or_else(|_| error, PyErr::from_value);
    let message =
        format!("the arguments cannot be read in the worker: {error}; what they refer to must be importable there");
    Failure::BadArguments { message, detail: String::new() }
}

impl Prepared {
    pub fn copy(&self, py: Python<'_>) -> Prepared {
        Prepared {
            tool: self.tool.as_ref().map(|tool| tool.clone_ref(py)),
            function: self.function.clone_ref(py),
            by_name: self.by_name,
            arguments: self.arguments.clone_ref(py),
            keywords: self.keywords.as_ref().map(|keywords| keywords.clone_ref(py)),
            headers: self.headers.as_ref().map(|headers| headers.clone_ref(py)),
            spread: self.spread,
            request: self.request.as_ref().map(|request| request.clone_ref(py)),
        }
    }

    /// Of a function that came by number.
    fn of<'py>(
        py: Python<'py>,
        entry: &Entry,
        arguments: Bound<'py, PyTuple>,
        keywords: Option<Bound<'py, PyDict>>,
    ) -> Prepared {
        Prepared {
            tool: Some(entry.tool.clone_ref(py)),
            by_name: entry.by_name,
            keywords: keywords.map(Bound::unbind),
            ..Prepared::unknown(entry.function.clone_ref(py), arguments.unbind())
        }
    }

    fn unknown(function: Py<PyAny>, arguments: Py<PyTuple>) -> Prepared {
        Prepared {
            tool: None,
            function,
            by_name: false,
            arguments,
            keywords: None,
            headers: None,
            spread: false,
            request: None,
        }
    }
}
