//! Outcomes to Python exceptions: the one file where errors cross the boundary.

use std::cell::Cell;

use clutch_pool::work::{Outcome, Refusal};
use clutch_wire::{Expired, Failure, Payload};
use pyo3::BoundObject;
use pyo3::exceptions::{PyException, PyRuntimeError, PyStopAsyncIteration, PyStopIteration};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// An error of Clutch's tree, by class name.
pub fn clutch_error(py: Python<'_>, class: &str, message: &str, attributes: &[(&str, Py<PyAny>)]) -> PyErr {
    new_error(py, class, message, attributes).unwrap_or_else(|error| error)
}

/// The same as an object to keep. Raises an exception of a signal's handler that interrupted its creation.
fn new_error(py: Python<'_>, class: &str, message: &str, attributes: &[(&str, Py<PyAny>)]) -> PyResult<PyErr> {
    let make = || -> PyResult<PyErr> {
        let kwargs = PyDict::new(py);
        for (name, value) in attributes {
            kwargs.set_item(name, value)?;
        }
        let module = if class == "WorkerLost" { "clutch.broken" } else { "clutch.errors" };
        let class = py.import(module)?.getattr(class)?;
        Ok(PyErr::from_value(class.call((message,), Some(&kwargs))?))
    };
    make().or_else(|error| unless_broken_off(py, error))
}

fn object<'py, T: IntoPyObject<'py>>(py: Python<'py>, value: T) -> Py<PyAny> {
    value.into_pyobject(py).map_or_else(|_| py.None(), |value| value.into_any().unbind())
}

fn attribute<'py, T: IntoPyObject<'py>>(py: Python<'py>, name: &'static str, value: T) -> (&'static str, Py<PyAny>) {
    (name, object(py, value))
}

/// The error for every use of a pool in a fork of its process.
pub fn forked_error(py: Python<'_>) -> PyErr {
    let message = "this process was forked from the one that created the pool: create a pool of its own here";
    clutch_error(py, "PoolClosed", message, &[])
}

/// The outcome of work, in Python.
pub type CallResult<'py> = Result<Bound<'py, PyAny>, PyErr>;

/// The value of an outcome, read by `decode`, or the exception that tells what became of the work.
///
/// Raises what broke off the reading and is no error of the answer: Ctrl-C, the program's end. It can be read again then.
pub fn told<'py>(
    py: Python<'py>,
    outcome: &Outcome,
    decode: impl FnOnce(&Payload) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<CallResult<'py>> {
    Ok(match outcome {
        Outcome::Value(payload) => match decode(payload) {
            Ok(value) => Ok(value),
            Err(error) => Err(unreadable(py, error)?),
        },
        Outcome::Failure(failure) => Err(failure_error(py, failure)?),
        Outcome::Refused(refusal) => Err(unless_broken_off(py, refusal_error(py, refusal))?),
    })
}

thread_local! {
    static IS_NEVER_BROKEN_OFF: Cell<bool> = const { Cell::new(false) };
}

/// Said by a thread that handles no signals and whose end is nobody's wish: what is raised there while an answer is read
/// comes from the answer, a SystemExit too.
pub fn is_never_broken_off() {
    IS_NEVER_BROKEN_OFF.set(true);
}

/// Raises the error where it is none of what was read: nothing that `except Exception` would catch.
fn unless_broken_off(py: Python<'_>, error: PyErr) -> PyResult<PyErr> {
    if error.is_instance_of::<PyException>(py) || IS_NEVER_BROKEN_OFF.get() { Ok(error) } else { Err(error) }
}

pub fn refusal_error(py: Python<'_>, refusal: &Refusal) -> PyErr {
    let message = refusal.to_string();
    match refusal {
        Refusal::Overloaded { pool, .. } => {
            clutch_error(py, "Overloaded", &message, &[attribute(py, "pool", pool), attribute(py, "retry_after", 1.0)])
        }
        Refusal::Draining { pool } => clutch_error(py, "Draining", &message, &[attribute(py, "pool", pool)]),
        Refusal::Expired(expired) => expired_error(py, expired),
        Refusal::Cancelled => match py.import("concurrent.futures").and_then(|module| module.getattr("CancelledError"))
        {
            Ok(class) => PyErr::from_type(
                class.cast_into().unwrap_or_else(|_| py.get_type::<pyo3::exceptions::PyRuntimeError>()),
                (),
            ),
            Err(error) => error,
        },
        Refusal::Closed { .. } => clutch_error(py, "PoolClosed", &message, &[]),
        Refusal::Failing { .. } => clutch_error(py, "ConfigError", &message, &[]),
    }
}

fn expired_error(py: Python<'_>, expired: &Expired) -> PyErr {
    let attributes = [attribute(py, "where", expired.at.as_str()), attribute(py, "stacks", &expired.stacks)];
    clutch_error(py, "DeadlineExceeded", &expired.to_string(), &attributes)
}

/// The exception that tells of a failure. Raises what broke off the reading of the one that the work raised.
pub fn failure_error(py: Python<'_>, failure: &Failure) -> PyResult<PyErr> {
    match failure {
        Failure::Raised { type_name, message, traceback, pickled, .. } => {
            raised(py, type_name, message, traceback, pickled)
        }
        Failure::Encode { type_name, message, traceback } => remote(py, "encode", type_name, message, traceback),
        Failure::BadArguments { message, detail } => {
            let attributes = match py.import("json").and_then(|json| json.call_method1("loads", (detail,))) {
                Ok(problems) => vec![("problems", problems.unbind())],
                Err(error) => unless_broken_off(py, error).map(|_| Vec::new())?,
            };
            new_error(py, "BadArguments", message, &attributes)
        }
        Failure::NoSuchTool { message } => new_error(py, "NoSuchTool", message, &[]),
        Failure::WorkerLost { message, worker_pid, signal, exit_code, output, cause } => {
            let attributes = [
                attribute(py, "pid", *worker_pid),
                ("signal", object(py, *signal)),
                ("exit_code", object(py, *exit_code)),
                attribute(py, "output", output),
                ("cause", object(py, cause.as_deref())),
            ];
            let last = output.trim_end();
            let full = if last.is_empty() { message.clone() } else { format!("{message}; its last output:\n{last}") };
            new_error(py, "WorkerLost", &full, &attributes)
        }
        Failure::Poisoned { message, deaths } => {
            new_error(py, "Poisoned", message, &[attribute(py, "deaths", *deaths)])
        }
        Failure::Config { message } => new_error(py, "ConfigError", message, &[]),
        Failure::Expired(expired) => Ok(expired_error(py, expired)),
    }
}

/// Tells of an answer that arrived and cannot be read here. Raises what is no error of the answer.
pub fn unreadable(py: Python<'_>, error: PyErr) -> PyResult<PyErr> {
    let error = unless_broken_off(py, error)?;
    let type_name = error.get_type(py).qualname().map_or_else(|_| String::new(), |name| name.to_string());
    let what = Some(error.value(py).to_string()).filter(|text| !text.is_empty()).unwrap_or_else(|| type_name.clone());
    let message = format!("the result cannot be read here: {what}");
    let attributes = [attribute(py, "kind", "decode"), attribute(py, "type_name", type_name)];
    let wrapped = new_error(py, "RemoteError", &message, &attributes)?;
    wrapped.set_cause(py, Some(error));
    Ok(wrapped)
}

/// As PEP 479 has it for generators: what the reader of an iterator would take for its end is the cause of a RuntimeError.
pub fn no_end(py: Python<'_>, error: PyErr) -> PyErr {
    let name = if error.is_instance_of::<PyStopIteration>(py) {
        "StopIteration"
    } else if error.is_instance_of::<PyStopAsyncIteration>(py) {
        "StopAsyncIteration"
    } else {
        return error;
    };
    let raised = PyRuntimeError::new_err(format!("generator raised {name}"));
    raised.set_cause(py, Some(error));
    raised
}

fn remote(py: Python<'_>, kind: &str, type_name: &str, message: &str, traceback: &str) -> PyResult<PyErr> {
    let attributes = [
        attribute(py, "kind", kind),
        attribute(py, "type_name", type_name),
        attribute(py, "remote_traceback", traceback),
    ];
    let error = new_error(py, "RemoteError", message, &attributes)?;
    with_traceback(py, error, traceback)
}

/// The original exception where it can be had, with the remote traceback as its cause.
fn raised(py: Python<'_>, type_name: &str, message: &str, traceback: &str, pickled: &[u8]) -> PyResult<PyErr> {
    if pickled.is_empty() {
        return remote(py, "raised", type_name, message, traceback);
    }
    match py.import("pickle").and_then(|pickle| pickle.call_method1("loads", (PyBytes::new(py, pickled),))) {
        Ok(value) => {
            if type_name == "NameError" {
                let note = py.import("clutch._pool.caller").and_then(|caller| caller.getattr("note_lost_global"));
                note.and_then(|note| note.call1((&value, traceback))).or_else(|error| {
                    // Without a note, then.
                    unless_broken_off(py, error).map(|_| py.None().into_bound(py))
                })?;
            }
            with_traceback(py, PyErr::from_value(value), traceback)
        }
        Err(error) => unless_broken_off(py, error).and_then(|_| remote(py, "raised", type_name, message, traceback)),
    }
}

fn with_traceback(py: Python<'_>, error: PyErr, traceback: &str) -> PyResult<PyErr> {
    let whole = if lacks_source(traceback) { with_source(py, traceback)? } else { None };
    let cause = new_error(py, "RemoteTraceback", whole.as_deref().unwrap_or(traceback), &[])?;
    error.set_cause(py, Some(cause));
    Ok(error)
}

/// Returns whether a frame has no line of source: its file is not one that the worker could read, as a notebook's cells.
fn lacks_source(traceback: &str) -> bool {
    let mut lines = traceback.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("  File ") && lines.peek().is_none_or(|next| !next.starts_with("    ")) {
            return true;
        }
    }
    false
}

/// The same with the lines that this program has.
fn with_source(py: Python<'_>, traceback: &str) -> PyResult<Option<String>> {
    let notebook = py.import("clutch._pool.notebook").and_then(|notebook| notebook.getattr("with_source"));
    let told = notebook.and_then(|with_source| with_source.call1((traceback,))?.extract::<String>());
    // As it came, then.
    told.map(Some).or_else(|error| unless_broken_off(py, error).map(|_| None))
}
