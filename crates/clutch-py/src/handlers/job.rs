//! The handler of jobs: a tool whose arguments come out of a store, and which is told of its attempt.
//!
//! Both sides of the bridge are described in `_worker/handlers/job.py`; a directive in place of a value (to snooze, say) has
//! a form of its own.

use clutch_jobs::ends;
use clutch_jobs::job::DIRECTIVE;
use clutch_wire::{Codec, Failure, Payload};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use super::handler::{Function, Handler, Invocation, Prepared, Shown};
use super::outcome::{Trouble, describe, unencodable};
use crate::codec;
use crate::link::WorkerLink;
use crate::link::call_frame::CallFrame;

/// The header with what a job is told of its attempt, as JSON.
const DETAILS: &[u8] = b"job";

/// The header with where it is written that the code of a job has returned.
const END: &[u8] = b"end";

pub struct Job;

impl Handler for Job {
    fn prepare(
        &self,
        link: &Bound<'_, WorkerLink>,
        function: Option<&Function>,
        frame: &mut CallFrame,
        payload: &Payload,
    ) -> Result<Invocation, Trouble> {
        let function = function.ok_or_else(|| PyRuntimeError::new_err("a job for a tool that was never defined"))?;
        let invocation = read(link, function, frame.id, payload)?;
        if let Some(ms) = function.attempt_ms {
            link.get().sender.say_limit(link.py(), frame.id, ms)?;
        }
        Ok(invocation)
    }

    fn encode(
        &self,
        link: &WorkerLink,
        work: &Prepared,
        value: &Bound<'_, PyAny>,
        _item: bool,
    ) -> Result<Payload, Trouble> {
        if value.is_none() {
            return Ok(Payload::new(Codec::Json, b"null".to_vec()));
        }
        written(link, work, value).map_err(|error| unencodable(value.py(), error))
    }

    fn end(&self, py: Python<'_>, work: &Prepared, made: Result<Payload, Trouble>) -> Result<Payload, Failure> {
        if let Ok(payload) = &made
            && payload.form != DIRECTIVE
            && payload.leases.is_empty()
        {
            note_end(py, work, payload.body());
        }
        made.or_else(|trouble| raised(py, work, &trouble).ok_or_else(|| describe(py, trouble)))
    }
}

/// Writes down that its code has returned, whatever becomes of this worker and its dispatcher.
fn note_end(py: Python<'_>, work: &Prepared, result: &[u8]) {
    let job = work.invocation.state.as_ref().map(|job| job.bind(py));
    let channel = job.and_then(|job| job.getattr(intern!(py, "_channel")).ok());
    let channel = channel.as_ref().and_then(|channel| channel.cast::<JobChannel>().ok());
    if let Some(mark) = channel.and_then(|channel| channel.get().mark.as_deref()) {
        ends::note_end(mark, result);
    }
}

/// The directive that an exception is, or stands for by the options of the tool.
fn raised(py: Python<'_>, work: &Prepared, trouble: &Trouble) -> Option<Payload> {
    let Trouble::Raised(error) = trouble else { return None };
    let tool = work.function.as_ref().map(|function| &function.tool);
    let job = py.import("clutch._worker.handlers.job").ok()?;
    let directive = job.call_method1("directive_of", (tool, error.clone_ref(py).into_value(py))).ok()?;
    Some(Payload::new(DIRECTIVE, directive.extract().ok()?))
}

fn read(link: &Bound<'_, WorkerLink>, function: &Function, id: u64, payload: &Payload) -> PyResult<Invocation> {
    static PREPARE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static CURRENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = link.py();
    let (headers, body) = payload.headed().map_err(|error| PyValueError::new_err(error.to_string()))?;
    let header = |wanted| headers.iter().find_map(|(name, value)| (name == wanted).then_some(value));
    let (details, mark) = (header(DETAILS).unwrap_or_default(), header(END).map(Box::from));
    let channel = Py::new(py, JobChannel { link: link.clone().unbind(), id, mark })?;
    let prepare = PREPARE.import(py, "clutch._worker.handlers.job", "prepare")?;
    let told = (&function.tool, channel, PyBytes::new(py, details), PyBytes::new(py, body));
    let (job, arguments, keywords): (Py<PyAny>, Py<PyTuple>, Py<PyDict>) = prepare.call1(told)?.extract()?;
    let variable = CURRENT.import(py, "clutch._worker.handlers.job", "CURRENT")?.clone().unbind();
    Ok(Invocation {
        by_name: true,
        keywords: Some(keywords),
        shown: Some(Shown { variable, value: job.clone_ref(py) }),
        state: Some(job),
        ..Invocation::of(function.function.clone_ref(py), arguments)
    })
}

fn written(link: &WorkerLink, work: &Prepared, value: &Bound<'_, PyAny>) -> PyResult<Payload> {
    static ENCODE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = value.py();
    let encode = ENCODE.import(py, "clutch._worker.handlers.job", "encode")?;
    let tool = work.function.as_ref().map(|function| &function.tool);
    let (is_directive, bytes): (bool, Bound<'_, PyBytes>) =
        encode.call1((tool, &work.invocation.state, value))?.extract()?;
    let form = if is_directive { DIRECTIVE } else { Codec::Json.into() };
    Ok(codec::raw(&link.sender.regions, form, bytes.as_bytes())?)
}

/// By which a job says something while it runs.
#[pyclass(frozen, module = "clutch._core")]
pub struct JobChannel {
    link: Py<WorkerLink>,
    id: u64,
    mark: Option<Box<[u8]>>,
}

#[pymethods]
impl JobChannel {
    /// Sends this JSON at once. Of a job that has ended nobody hears it.
    fn send(&self, py: Python<'_>, said: &[u8]) -> PyResult<()> {
        let link = self.link.get();
        if link.is_in_copy() {
            return Ok(());
        }
        link.sender.put_chunk(self.id, &codec::raw(&link.sender.regions, Codec::Json, said)?)?;
        link.flush(py)
    }

    /// Notes that its code begins. Whether it may: it is not another's meanwhile.
    fn begin(&self) -> bool {
        self.mark.as_deref().is_none_or(ends::note_begin)
    }

    /// Ends the attempt in this time from now on (milliseconds).
    fn limit(&self, py: Python<'_>, ms: u64) -> PyResult<()> {
        let link = self.link.get();
        if link.is_in_copy() {
            return Ok(());
        }
        link.sender.say_limit(py, self.id, ms)
    }
}
