//! The handler of calls: a tool, or a function that comes with its arguments.

use clutch_wire::{Codec, Payload};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use super::handler::{Function, Handler, Invocation, Prepared, Shown};
use super::outcome::{Trouble, encode_plain, unencodable, unreadable};
use crate::codec;
use crate::link::WorkerLink;
use crate::link::call_frame::CallFrame;

/// Arguments come in Python's form, or in JSON from callers over a network.
pub struct ToolCall;

impl Handler for ToolCall {
    fn prepare(
        &self,
        link: &Bound<'_, WorkerLink>,
        function: Option<&Function>,
        frame: &mut CallFrame,
        payload: &Payload,
    ) -> Result<Invocation, Trouble> {
        let py = link.py();
        match (frame.form.codec, function) {
            (Codec::Json, Some(function)) => json(py, function, payload.body()).map_err(Trouble::Raised),
            (Codec::Headed, Some(function)) => headed(py, function, payload).map_err(Trouble::Raised),
            (Codec::Plain | Codec::Pickle, Some(function)) => codec::decode_arguments(py, payload)
                .map(|(arguments, keywords)| call_of(py, function, arguments, keywords))
                .map_err(|error| unreadable(py, error)),
            (Codec::Pickle, None) => with_arguments(py, payload).map_err(|error| unreadable(py, error)),
            // Least of all a network's bytes are unpickled.
            (codec, function) => {
                let what = if function.is_some() { "as arguments" } else { "for a function that was never defined" };
                Err(unreadable(py, PyTypeError::new_err(format!("{codec:?} {what}"))))
            }
        }
    }

    fn encode(
        &self,
        link: &WorkerLink,
        work: &Prepared,
        value: &Bound<'_, PyAny>,
        item: bool,
    ) -> Result<Payload, Trouble> {
        match (work.codec, &work.function) {
            (Codec::Json | Codec::Headed, Some(function)) => {
                let py = value.py();
                let method = if item { "encode_item" } else { "encode_json" };
                let encoded = function.tool.bind(py).call_method1(method, (value,)).and_then(|bytes| {
                    let bytes = bytes.cast_into::<PyBytes>()?;
                    Ok(codec::raw(&link.sender.regions, Codec::Json, bytes.as_bytes())?)
                });
                encoded.map_err(|error| unencodable(py, error))
            }
            _ => encode_plain(link, value),
        }
    }
}

/// A call of a function that was defined.
fn call_of<'py>(
    py: Python<'py>,
    function: &Function,
    arguments: Bound<'py, PyTuple>,
    keywords: Option<Bound<'py, PyDict>>,
) -> Invocation {
    Invocation {
        by_name: function.by_name,
        keywords: keywords.map(Bound::unbind),
        ..Invocation::of(function.function.clone_ref(py), arguments.unbind())
    }
}

/// The arguments of a network's caller, by name.
fn json(py: Python<'_>, function: &Function, body: &[u8]) -> PyResult<Invocation> {
    let body = PyBytes::new(py, body);
    let keywords = function.tool.bind(py).call_method1("decode_json", (body,))?.cast_into::<PyDict>()?;
    Ok(call_of(py, function, PyTuple::empty(py), Some(keywords)))
}

/// The same with the headers before them.
fn headed(py: Python<'_>, function: &Function, payload: &Payload) -> PyResult<Invocation> {
    static VARIABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let (headers, body) = payload.headed().map_err(|error| PyValueError::new_err(error.to_string()))?;
    let shown = PyDict::new(py);
    for (name, value) in headers.iter() {
        shown.set_item(String::from_utf8_lossy(name), String::from_utf8_lossy(value))?;
    }
    let variable = VARIABLE.import(py, "clutch._worker.call_headers", "HEADERS")?.clone().unbind();
    let shown = Shown { variable, value: shown.into_any().unbind() };
    Ok(Invocation { shown: Some(shown), ..json(py, function, body)? })
}

/// A function in one pickle with its arguments.
fn with_arguments(py: Python<'_>, payload: &Payload) -> PyResult<Invocation> {
    let (function, arguments, keywords): (_, _, Py<PyDict>) = codec::unpickle(py, payload)?.extract()?;
    Ok(Invocation { keywords: Some(keywords), ..Invocation::of(function, arguments) })
}
