//! `clutch.Jobs`' native half.

pub mod inline;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use clutch_jobs::cron::{CronEntry, EntryOptions, WrongEntry};
use clutch_jobs::enqueuer::{Enqueuer, Strategy};
use clutch_jobs::job::{self, NewJob, Rate, State};
use clutch_jobs::store::{Change, Enqueued, Filter, Offers, QueueChange, ScheduleChange, Store, StoreError};
use clutch_jobs::stores::{self, sqlite};
use clutch_wire::forked::Moment;
use clutch_wire::sync::Mutex;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use serde::Deserialize;

use crate::dispatcher::bridge::Bridge;
use crate::dispatcher::finalizing::wait_when_finalizing;
use crate::errors::clutch_error;

pub(super) fn error(py: Python<'_>, error: &StoreError) -> PyErr {
    match error {
        StoreError::Unavailable { .. } => clutch_error(py, "StoreUnavailable", &error.to_string(), &[]),
        StoreError::Unusable { .. } | StoreError::Damaged { .. } => {
            clutch_error(py, "StoreError", &error.to_string(), &[])
        }
        StoreError::Refused(why) => PyValueError::new_err(why.clone()),
    }
}

fn unreadable(error: serde_json::Error) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn to_json(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(unreadable)
}

/// Property of the process that made it: a forked copy neither uses nor closes it.
struct Own<T>(Arc<T>, Moment);

impl<T> Own<T> {
    fn new(value: T) -> Own<T> {
        Own(Arc::new(value), Moment::now())
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if self.1.is_in_copy() {
            std::mem::forget(self.0.clone());
        }
    }
}

/// A statement, its parameters by name, the file that it is for, and the jobs that it comes after: by their ids, and how many
/// of those before it.
type Insert = (&'static str, Vec<(&'static str, Py<PyAny>)>, PathBuf, Vec<String>, usize);

/// See [`JobStore::schedules`].
type ScheduleTold = (String, String, bool, i64, String, usize);

type Outcome = clutch_jobs::store::Result<Vec<Enqueued>>;

/// A store that is open, for those who enqueue and look.
#[pyclass(frozen, module = "clutch._core")]
pub struct JobStore {
    store: Own<(Arc<dyn Store>, Arc<Enqueuer>)>,
}

impl JobStore {
    fn store(&self) -> &Arc<dyn Store> {
        &self.store.0.0
    }
}

/// Names of jobs with whether each is new.
fn told(py: Python<'_>, outcome: Outcome) -> PyResult<Vec<(String, bool)>> {
    let enqueued = outcome.map_err(|failed| error(py, &failed))?;
    Ok(enqueued.into_iter().map(|one| (one.id, one.is_new)).collect())
}

fn read_jobs(jobs: &[String]) -> PyResult<Vec<NewJob>> {
    jobs.iter().map(|text| serde_json::from_str(text)).collect::<Result<_, _>>().map_err(unreadable)
}

fn to_python(py: Python<'_>, value: sqlite::Value) -> PyResult<Py<PyAny>> {
    match value {
        sqlite::Value::Integer(number) => number.into_py_any(py),
        sqlite::Value::Real(number) => number.into_py_any(py),
        sqlite::Value::Text(text) => text.into_py_any(py),
        sqlite::Value::Blob(bytes) => bytes.into_py_any(py),
        sqlite::Value::Null => Ok(py.None()),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    state: Option<String>,
    queue: Option<String>,
    tool: Option<String>,
    tag: Option<String>,
    before: Option<String>,
    limit: usize,
}

#[pymethods]
impl JobStore {
    /// Opens a store. Raises `StoreUnavailable`, `StoreError`, or ValueError for what is no URL of a store.
    #[new]
    fn new(py: Python<'_>, url: &str, strategy: &str, connections: usize) -> PyResult<JobStore> {
        let strategy = Strategy::named(strategy).ok_or_else(|| PyValueError::new_err(strategy.to_owned()))?;
        stores::prepare(url); // Python forks with the lock that this thread has
        let open = || (0..connections.max(1)).map(|at| stores::shared(url, at)).collect::<Result<Vec<_>, _>>();
        let opened = py.detach(open).map_err(|failed| error(py, &failed))?;
        let store = opened[0].clone();
        Ok(JobStore { store: Own::new((store, Enqueuer::new(strategy, opened))) })
    }

    /// Returns what a store can do beyond what all do: `keywords`, `ticks`, `results`,
    /// `dependencies`, `transactions`. Raises ValueError for
    /// what is not the URL of a store. Opens nothing.
    #[staticmethod]
    fn offers(py: Python<'_>, url: &str) -> PyResult<HashMap<&'static str, bool>> {
        let Offers { keywords, ticks, results, dependencies, transactions } =
            stores::offers(url).map_err(|failed| error(py, &failed))?;
        let named = [
            ("keywords", keywords),
            ("ticks", ticks),
            ("results", results),
            ("dependencies", dependencies),
            ("transactions", transactions),
        ];
        Ok(named.into())
    }

    /// Returns the file that a store is; None for one that is not a file.
    #[staticmethod]
    fn file(url: &str) -> Option<PathBuf> {
        stores::file(url)
    }

    #[getter]
    fn name(&self) -> &str {
        self.store().name()
    }

    /// Returns what of its server is not as jobs need it, for the log.
    fn warnings(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| self.store().warnings())
    }

    /// Enqueues jobs, each the JSON of a `NewJob`; returns when they are durable.
    fn enqueue(&self, py: Python<'_>, jobs: Vec<String>) -> PyResult<Vec<(String, bool)>> {
        wait_when_finalizing();
        let jobs = read_jobs(&jobs)?;
        told(py, py.detach(|| self.store.0.1.enqueue(jobs)))
    }

    /// The same without waiting: `waiter` of an event loop is woken when `result` has the answer.
    fn enqueue_soon(
        &self,
        py: Python<'_>,
        jobs: Vec<String>,
        bridge: &Bridge,
        waiter: Py<PyAny>,
    ) -> PyResult<JobsEnqueued> {
        let jobs = read_jobs(&jobs)?;
        let outcome = Arc::<Mutex<Option<Outcome>>>::default();
        let (waker, for_done) = (bridge.waker_of(waiter), outcome.clone());
        let done = Box::new(move |enqueued| {
            *for_done.lock() = Some(enqueued);
            waker();
        });
        self.store.0.1.enqueue_soon(jobs, done).map_err(|failed| error(py, &failed))?;
        Ok(JobsEnqueued { outcome })
    }

    /// `what`: "cancel", "retry" or "delete"; `arguments`: other ones for the retry, as JSON. Whether there was something
    /// to change.
    #[pyo3(signature = (id, what, arguments=None))]
    fn change(&self, py: Python<'_>, id: &str, what: &str, arguments: Option<&str>) -> PyResult<bool> {
        let change = match (what, arguments) {
            ("cancel", None) => Change::Cancel,
            ("retry", None) => Change::Retry,
            ("retry", Some(arguments)) => {
                job::check_arguments(arguments).map_err(PyValueError::new_err)?;
                Change::RetryWith(arguments)
            }
            ("delete", None) => Change::Delete,
            _ => return Err(PyValueError::new_err(what.to_owned())),
        };
        wait_when_finalizing();
        let store = self.store();
        py.detach(|| store.read_clock().and_then(|now| store.change(id, change, now)))
            .map_err(|failed| error(py, &failed))
    }

    /// The JSON of a `Job`, or None.
    fn get(&self, py: Python<'_>, id: &str) -> PyResult<Option<String>> {
        wait_when_finalizing();
        let found = py.detach(|| self.store().get(id)).map_err(|failed| error(py, &failed))?;
        found.map(|job| to_json(&job)).transpose()
    }

    /// The JSON of a list of `Job`. `wanted`: the JSON of a filter.
    fn list(&self, py: Python<'_>, wanted: &str) -> PyResult<String> {
        let Wanted { state, queue, tool, tag, before, limit } = serde_json::from_str(wanted).map_err(unreadable)?;
        let state =
            state.as_deref().map(|name| State::named(name).ok_or_else(|| PyValueError::new_err(name.to_owned())));
        let filter = Filter { state: state.transpose()?, queue, tool, tag, before, limit };
        wait_when_finalizing();
        to_json(&py.detach(|| self.store().list(&filter)).map_err(|failed| error(py, &failed))?)
    }

    /// The JSON of a list of `Holder`.
    fn holders(&self, py: Python<'_>) -> PyResult<String> {
        wait_when_finalizing();
        to_json(&py.detach(|| self.store().holders()).map_err(|failed| error(py, &failed))?)
    }

    /// The JSON of a list of `QueueStats`.
    fn queues(&self, py: Python<'_>) -> PyResult<String> {
        wait_when_finalizing();
        to_json(&py.detach(|| self.store().queues()).map_err(|failed| error(py, &failed))?)
    }

    /// Statements that make the tables of a file that has none.
    #[classattr]
    const SCHEMA: &'static str = sqlite::SCHEMA;

    /// Version of these tables.
    #[classattr]
    const SCHEMA_VERSION: i64 = sqlite::SCHEMA_VERSION;

    /// What enqueues a job that comes after others, beside [`JobStore::insert_of`]: see there.
    #[classattr]
    const LINKS: [&'static str; 4] = [sqlite::PARENT, sqlite::LINK, sqlite::LINKS_COUNT, sqlite::TURN];

    /// Returns what enqueues a job on another connection to a file: the statement, its parameters by name, and the file; and
    /// the jobs that it comes after, which take the statements of `LINKS`: by their ids, and how many of those before it.
    /// Nothing is opened: that connection may have locked it.
    #[staticmethod]
    #[pyo3(name = "insert")]
    fn insert_of(py: Python<'_>, url: &str, job: &str) -> PyResult<Insert> {
        let mut job: NewJob = serde_json::from_str(job).map_err(unreadable)?;
        job.begin_at(job::now());
        job.check().map_err(PyValueError::new_err)?;
        let location = sqlite::DatabaseFile::parse(url).map_err(|failed| error(py, &failed))?;
        let row =
            sqlite::parameters(&job, job::now()).into_iter().map(|(name, value)| Ok((name, to_python(py, value)?)));
        Ok((sqlite::INSERT, row.collect::<PyResult<_>>()?, location.path, job.after, job.after_previous))
    }

    /// Changes an entry of periodic jobs that the store keeps. `what`: "put", with its JSON; "pause", "resume" or "remove".
    /// Whether there was one to change. Raises ValueError for an entry that can never be used: see `wrong_entry`.
    #[pyo3(signature = (name, what, entry=None))]
    fn set_schedule(&self, py: Python<'_>, name: &str, what: &str, entry: Option<&str>) -> PyResult<bool> {
        let change = match (what, entry) {
            ("put", Some(entry)) => {
                job::check_name("a schedule's name", name).map_err(|why| PyValueError::new_err(("name", why)))?;
                CronEntry::read(entry, job::now()).map_err(wrong_entry)?;
                ScheduleChange::Put(entry)
            }
            ("pause", None) => ScheduleChange::Pause(true),
            ("resume", None) => ScheduleChange::Pause(false),
            ("remove", None) => ScheduleChange::Remove,
            _ => return Err(PyValueError::new_err(what.to_owned())),
        };
        wait_when_finalizing();
        py.detach(|| self.store().set_schedule(name, change, job::now())).map_err(|failed| error(py, &failed))
    }

    /// Entries of periodic jobs that the store keeps: of each its name, its JSON, whether it is paused, its last tick, the
    /// next one in ISO 8601 (empty: it has none), and how many were missed.
    fn schedules(&self, py: Python<'_>) -> PyResult<Vec<ScheduleTold>> {
        wait_when_finalizing();
        let found = py.detach(|| self.store().schedules()).map_err(|failed| error(py, &failed))?;
        let now = job::now();
        Ok(found
            .into_iter()
            .map(|one| {
                // A newer version may have written one that this one cannot read.
                let entry = CronEntry::read(&one.entry, now).ok().filter(|_| !one.is_paused);
                let next = entry.as_ref().map_or_else(String::new, |entry| entry.next_shown(now.max(one.ticked_at)));
                let missed = entry.map_or(0, |entry| entry.missed(one.ticked_at, now));
                (one.name, one.entry, one.is_paused, one.ticked_at, next, missed)
            })
            .collect())
    }

    /// Enqueues the job of an entry of periodic jobs that the store keeps, as if it ticked now. None: there is no such entry.
    fn run_schedule(&self, py: Python<'_>, name: &str) -> PyResult<Option<(String, bool)>> {
        wait_when_finalizing();
        let found = py.detach(|| self.store().schedules()).map_err(|failed| error(py, &failed))?;
        let Some(schedule) = found.into_iter().find(|one| one.name == name) else { return Ok(None) };
        let now = job::now();
        let job = CronEntry::read(&schedule.entry, now).map_err(wrong_entry)?.job(now, now);
        Ok(told(py, py.detach(|| self.store.0.1.enqueue(vec![job])))?.pop())
    }

    fn pause(&self, py: Python<'_>, queue: &str, is_paused: bool) -> PyResult<()> {
        self.set_queue(py, queue, QueueChange::Pause(is_paused))
    }

    /// Most jobs of the queue that run at a time, and that begin in so many milliseconds, over all runners; None: no limit.
    fn limit(&self, py: Python<'_>, queue: &str, running_max: Option<u32>, rate: Option<(u32, u32)>) -> PyResult<()> {
        let rate = rate.map(|(count, per_ms)| Rate { count, per_ms });
        rate.as_ref().map_or(Ok(()), Rate::check).map_err(PyValueError::new_err)?;
        self.set_queue(py, queue, QueueChange::RunningMax(running_max))?;
        // Where there is no such limit, to have none is no change.
        match (rate, self.set_queue(py, queue, QueueChange::Rate(rate))) {
            (None, Err(error)) if error.is_instance_of::<PyValueError>(py) => Ok(()),
            (_, set) => set,
        }
    }
}

impl JobStore {
    fn set_queue(&self, py: Python<'_>, queue: &str, change: QueueChange) -> PyResult<()> {
        wait_when_finalizing();
        py.detach(|| self.store().set_queue(queue, change)).map_err(|failed| error(py, &failed))
    }
}

/// Outcome of jobs that were enqueued without waiting.
#[pyclass(frozen, module = "clutch._core")]
pub struct JobsEnqueued {
    outcome: Arc<Mutex<Option<Outcome>>>,
}

#[pymethods]
impl JobsEnqueued {
    /// Once, and not before its waiter is woken.
    fn result(&self, py: Python<'_>) -> PyResult<Vec<(String, bool)>> {
        let outcome = self.outcome.lock().take();
        told(py, outcome.ok_or_else(|| PyRuntimeError::new_err("it has no result yet"))?)
    }
}

/// Makes an exception whose arguments are the option that is to blame, or an empty text, and what is wrong.
fn wrong_entry(wrong: WrongEntry) -> PyErr {
    PyValueError::new_err((wrong.option, wrong.why))
}

/// When an entry of periodic jobs, given as JSON, ticks next after a time in milliseconds since 1970: in ISO 8601, with the
/// offset of its zone. Raises ValueError for one that can never be used: see `wrong_entry`.
#[pyfunction]
pub fn next_tick(entry: &str, after_ms: i64) -> PyResult<String> {
    let options: EntryOptions = serde_json::from_str(entry).map_err(unreadable)?;
    let entry = CronEntry::new(options, after_ms).map_err(wrong_entry)?;
    Ok(entry.next_shown(after_ms))
}
