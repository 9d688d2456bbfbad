//! What becomes of a call: its value encoded, its exception described, and what a failed step raises in Python.

use std::sync::Arc;

use clutch_wire::{Codec, Failure, Payload};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::prepare::Prepared;
use crate::codec::{self, Encoder};
use crate::worker::WorkerLink;

/// Why a call has no value.
pub enum Trouble {
    /// The user's code raised this.
    Raised(PyErr),
    Failure(Failure),
}

impl From<PyErr> for Trouble {
    fn from(error: PyErr) -> Trouble {
        Trouble::Raised(error)
    }
}

/// A value as the caller wants it; `item` says that it is one of a stream.
pub fn encode(
    py: Python<'_>,
    link: &WorkerLink,
    codec: Codec,
    tool: Option<&Py<PyAny>>,
    value: &Bound<'_, PyAny>,
    item: bool,
) -> Result<Payload, Trouble> {
    let encoded = match (codec, tool) {
        (Codec::Json | Codec::HeadedJson, Some(tool)) => {
            let method = if item { "encode_item" } else { "encode_json" };
            tool.bind(py).call_method1(method, (value,)).and_then(|bytes| {
                let bytes = bytes.cast_into::<PyBytes>()?;
                Ok(codec::raw(&link.regions, Codec::Json, bytes.as_bytes())?)
            })
        }
        _ => Encoder::new(&link.regions).value(value).map(|encoded| encoded.payload),
    };
    encoded.map_err(|error| Trouble::Failure(encode_failure(py, link, error)))
}

pub fn encode_failure(py: Python<'_>, link: &WorkerLink, error: PyErr) -> Failure {
    match describe(py, link, Trouble::Raised(error)) {
        Failure::Raised { type_name, message, traceback, .. } => Failure::Encode { type_name, message, traceback },
        other => other,
    }
}

/// The failure that an exception becomes. `describe` in Python gives `(kind, type name, message, traceback, pickle)`.
pub fn describe(py: Python<'_>, link: &WorkerLink, trouble: Trouble) -> Failure {
    let error = match trouble {
        Trouble::Failure(failure) => return failure,
        Trouble::Raised(error) => error,
    };
    type Described = (String, String, String, String, Vec<u8>);
    let described =
        link.describe.bind(py).call1((error.into_value(py),)).and_then(|value| value.extract::<Described>());
    match described {
        Ok((kind, type_name, message, traceback, pickled)) => match kind.as_str() {
            "bad_arguments" => Failure::BadArguments { message, detail: traceback },
            "no_such_tool" => Failure::NoSuchTool { message },
            "encode" => Failure::Encode { type_name, message, traceback },
            _ => Failure::Raised { type_name, message, traceback, pickled },
        },
        Err(second) => Failure::Raised {
            type_name: "Exception".to_owned(),
            message: format!("an exception that cannot be described: {second}"),
            traceback: String::new(),
            pickled: Vec::new(),
        },
    }
}

/// What a task that is done has raised.
pub fn outcome_of(task: &Bound<'_, PyAny>) -> PyResult<()> {
    let error = task.call_method0(pyo3::intern!(task.py(), "exception"))?;
    if error.is_none() { Ok(()) } else { Err(PyErr::from_value(error)) }
}

/// What the work of a request ends with.
pub fn end_of_request(py: Python<'_>, prepared: &Prepared, trouble: Option<Trouble>) -> Result<Payload, Failure> {
    let raised = match trouble {
        Some(Trouble::Failure(failure)) => return Err(failure),
        Some(Trouble::Raised(error)) => Some(error),
        None => None,
    };
    match &prepared.request {
        Some(request) => request.end(py, raised.as_ref()),
        None => Ok(Payload::empty()),
    }
}

/// What a failed [`Call`] step raises: the user's exception as it is, a failure as a carrier that `fail` knows.
pub fn raise(trouble: Trouble) -> PyErr {
    match trouble {
        Trouble::Raised(error) => error,
        Trouble::Failure(failure) => PyErr::new::<CallFailed, _>((Carried(Arc::new(failure)),)),
    }
}

/// A failure on its way through Python code.
#[pyclass(frozen, module = "clutch._core", skip_from_py_object)]
#[derive(Clone)]
pub struct Carried(pub Arc<Failure>);

pyo3::create_exception!(clutch._core, CallFailed, PyRuntimeError, "A call failed before or after the user's code.");
