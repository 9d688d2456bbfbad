//! The outcome of a call: its value encoded, its exception described, and the exception that a failed step raises.

use std::sync::Arc;

use clutch_wire::{Failure, Payload};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::codec::Encoder;
use crate::errors::clutch_error;
use crate::link::WorkerLink;

/// Why a call has no value.
pub enum Trouble {
    /// User code raised this.
    Raised(PyErr),
    Failure(Failure),
}

impl From<PyErr> for Trouble {
    fn from(error: PyErr) -> Trouble {
        Trouble::Raised(error)
    }
}

impl Trouble {
    /// The error of code that was stopped.
    pub fn interrupted(py: Python<'_>) -> Trouble {
        Trouble::Raised(clutch_error(py, "Interrupted", "", &[]))
    }
}

/// A value for callers in Python.
pub fn encode_plain(link: &WorkerLink, value: &Bound<'_, PyAny>) -> Result<Payload, Trouble> {
    let encoded = Encoder::new(&link.sender.regions).value(value);
    encoded.map(|encoded| encoded.payload).map_err(|error| unencodable(value.py(), error))
}

/// Why a value could not be encoded.
pub fn unencodable(py: Python<'_>, error: PyErr) -> Trouble {
    Trouble::Failure(match describe(py, Trouble::Raised(error)) {
        Failure::Raised { type_name, message, traceback, .. } => Failure::Encode { type_name, message, traceback },
        other => other,
    })
}

/// The failure of a call whose arguments could not be read.
pub fn unreadable(py: Python<'_>, error: PyErr) -> Trouble {
    let explained =
        py.import("clutch._worker.script").and_then(|script| script.call_method1("explain", (error.value(py),)));
    let error = explained.map_or_else(|_| error, PyErr::from_value);
    let message =
        format!("the arguments cannot be read in the worker: {error}; what they refer to must be importable there");
    Trouble::Failure(Failure::BadArguments { message, detail: String::new() })
}

/// The failure that an exception becomes. Python gives `(kind, type name, message, traceback, pickle, problem)`.
pub fn describe(py: Python<'_>, trouble: Trouble) -> Failure {
    static DESCRIBE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let error = match trouble {
        Trouble::Failure(failure) => return failure,
        Trouble::Raised(error) => error,
    };
    type Described = (String, String, String, String, Vec<u8>, Vec<u8>);
    let describe = DESCRIBE.import(py, "clutch._worker.failure", "describe");
    let described = describe.and_then(|describe| describe.call1((error.into_value(py),))?.extract::<Described>());
    match described {
        Ok((kind, type_name, message, traceback, pickled, problem)) => match kind.as_str() {
            "bad_arguments" => Failure::BadArguments { message, detail: traceback },
            "no_such_tool" => Failure::NoSuchTool { message },
            "encode" => Failure::Encode { type_name, message, traceback },
            _ => Failure::Raised { type_name, message, traceback, pickled, problem },
        },
        Err(second) => Failure::Raised {
            type_name: "Exception".to_owned(),
            message: format!("an exception that cannot be described: {second}"),
            traceback: String::new(),
            pickled: Vec::new(),
            problem: Vec::new(),
        },
    }
}

/// Makes the exception of a failed step of a call: the user's exception as it is, or a carrier for a failure, which
/// `Call.fail` knows.
pub fn raise(trouble: Trouble) -> PyErr {
    match trouble {
        Trouble::Raised(error) => error,
        Trouble::Failure(failure) => PyErr::new::<CallFailed, _>((Carried(Arc::new(failure)),)),
    }
}

/// Returns the trouble that [`raise`] made an exception of.
pub fn trouble_of(error: &Bound<'_, PyAny>) -> Trouble {
    let carried = error.getattr("args").and_then(|args| args.get_item(0));
    let failure = carried.ok().and_then(|first| first.cast::<Carried>().ok().map(|carried| (*carried.get().0).clone()));
    match failure {
        Some(failure) if error.is_instance_of::<CallFailed>() => Trouble::Failure(failure),
        _ => Trouble::Raised(PyErr::from_value(error.clone())),
    }
}

/// A failure on its way through Python code.
#[pyclass(frozen, module = "clutch._core", skip_from_py_object)]
#[derive(Clone)]
struct Carried(Arc<Failure>);

pyo3::create_exception!(clutch._core, CallFailed, PyRuntimeError, "A call failed before or after the user's code.");

/// Returns the error that a finished task has raised.
pub fn outcome_of(task: &Bound<'_, PyAny>) -> PyResult<()> {
    let error = task.call_method0(pyo3::intern!(task.py(), "exception"))?;
    if error.is_none() { Ok(()) } else { Err(PyErr::from_value(error)) }
}
