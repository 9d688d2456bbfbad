//! Jobs in the caller's own thread, and the clock of jobs, for `clutch.testing`.

use std::sync::Arc;

use clutch_jobs::job::{self, Claimed, DIRECTIVE, Millis};
use clutch_jobs::runner::inline::InlineRunner;
use clutch_jobs::store::Want;
use clutch_jobs::stores;
use clutch_pool::work::Outcome;
use clutch_wire::sync::Mutex;
use clutch_wire::{Codec, Failure, Payload};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::{JobStore, Own, error, to_json};

/// Milliseconds since 1970, UTC, by the clock of jobs.
#[pyfunction]
pub fn jobs_now() -> Millis {
    job::now()
}

/// Lets the clock of jobs stand still in this process; None: it goes again. Returns what was told before.
#[pyfunction]
#[pyo3(signature = (at, /))]
pub fn stop_jobs_clock(at: Option<Millis>) -> Option<Millis> {
    job::stand_still(at)
}

/// Closes a store when the last who uses it is gone. Nobody else may have its file.
#[pyfunction]
#[pyo3(signature = (url, /))]
pub fn close_jobs_store(url: &str) {
    stores::forget(url);
}

/// Claims and settles jobs that its owner runs.
#[pyclass(frozen, module = "clutch._core")]
pub struct InlineJobs {
    runner: Own<Mutex<InlineRunner>>,
}

/// A job that was claimed.
#[pyclass(frozen, module = "clutch._core")]
pub struct ClaimedJob {
    job: Claimed,
}

#[pymethods]
impl ClaimedJob {
    #[getter]
    fn id(&self) -> &str {
        &self.job.id
    }

    #[getter]
    fn tool(&self) -> &str {
        &self.job.tool
    }

    /// Returns the fields that `CurrentJob` reads.
    #[getter]
    fn details<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &InlineRunner::details(&self.job))
    }

    #[getter]
    fn arguments<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.job.body().as_bytes())
    }
}

impl InlineJobs {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut InlineRunner) -> clutch_jobs::store::Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| act(&mut self.runner.0.lock())).map_err(|failed| error(py, &failed))
    }

    /// The state that the job is in now.
    fn settle(&self, py: Python<'_>, job: &ClaimedJob, outcome: Outcome) -> PyResult<&'static str> {
        self.with(py, |runner| runner.settle(&job.job, outcome)).map(|settled| settled.state.as_str())
    }
}

#[pymethods]
impl InlineJobs {
    #[new]
    fn new(store: &JobStore) -> InlineJobs {
        InlineJobs { runner: Own::new(Mutex::new(InlineRunner::new(store.store().clone()))) }
    }

    /// Makes jobs available that are due. When the next one is due, or None.
    fn stage(&self, py: Python<'_>) -> PyResult<Option<Millis>> {
        self.with(py, |runner| runner.stage()).map(|upkeep| upkeep.next_due)
    }

    /// At most so many jobs that can begin, and when a limit of rate lets more begin, or None.
    fn claim(&self, py: Python<'_>, queues: Vec<String>, limit: usize) -> PyResult<(Vec<ClaimedJob>, Option<Millis>)> {
        let round = self.with(py, |runner| runner.claim(&Want { limit, queues }))?;
        let again_at = round.again_in.map(|wait| job::now().saturating_add(job::millis(wait)));
        Ok((round.claimed.into_iter().map(|job| ClaimedJob { job }).collect(), again_at))
    }

    fn note(&self, py: Python<'_>, job: &ClaimedJob, said: Vec<u8>) -> PyResult<()> {
        self.with(py, |runner| runner.note(&job.job, &Payload::new(Codec::Json, said)))
    }

    /// `value`: as JSON; or a directive, as the handler of jobs writes both.
    fn finish(&self, py: Python<'_>, job: &ClaimedJob, is_directive: bool, value: Vec<u8>) -> PyResult<&'static str> {
        let form = if is_directive { DIRECTIVE } else { Codec::Json.into() };
        self.settle(py, job, Outcome::Value(Payload::new(form, value)))
    }

    /// As `_worker/failure.py` describes an exception.
    fn fail(
        &self,
        py: Python<'_>,
        job: &ClaimedJob,
        kind: &str,
        type_name: String,
        message: String,
        traceback: String,
    ) -> PyResult<&'static str> {
        let failure = match kind {
            "bad_arguments" => Failure::BadArguments { message, detail: traceback },
            "no_such_tool" => Failure::NoSuchTool { message },
            "encode" => Failure::Encode { type_name, message, traceback },
            _ => Failure::Raised { type_name, message, traceback, pickled: Vec::new(), problem: Vec::new() },
        };
        self.settle(py, job, Outcome::Failure(Arc::new(failure)))
    }

    fn put_back(&self, py: Python<'_>, job: &ClaimedJob, reason: &str) -> PyResult<()> {
        self.with(py, |runner| runner.put_back(&job.job, reason))
    }

    /// The JSON of its `Stats`.
    fn stats(&self) -> PyResult<String> {
        to_json(self.runner.0.lock().stats())
    }

    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |runner| runner.leave())
    }
}
