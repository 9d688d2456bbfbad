//! The process: the events of all its pools, and what happens when user code forks it.

use std::io;
use std::sync::Arc;

use clutch_pool::output::{self, Printed};
use clutch_pool::telemetry::{Scope, Subscription, Telemetry};
use clutch_wire::forked::{self, PerProcess};
use clutch_wire::sys;
use clutch_wire::terminal;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::dispatcher::timeout::wait_in_slices;

pub fn telemetry() -> io::Result<Arc<Telemetry>> {
    static TELEMETRY: PerProcess<Arc<Telemetry>> = PerProcess::new();
    TELEMETRY.get(|| Ok(Arc::default())).map(|(telemetry, _)| telemetry.clone())
}

#[pyfunction]
fn before_fork() {
    forked::before();
}

#[pyfunction]
fn after_fork_in_parent() {
    forked::in_parent();
}

#[pyfunction]
fn after_fork_in_child() {
    forked::in_child();
}

/// From now on every `os.fork()` of this process, a dispatcher, zygote or worker, is noted: see forked.rs. What Python code
/// registers later for its copies finds all descriptors gone.
pub fn watch_forks(py: Python<'_>) -> PyResult<()> {
    let hooks = PyDict::new(py);
    hooks.set_item("before", wrap_pyfunction!(before_fork, py)?)?;
    hooks.set_item("after_in_parent", wrap_pyfunction!(after_fork_in_parent, py)?)?;
    hooks.set_item("after_in_child", wrap_pyfunction!(after_fork_in_child, py)?)?;
    py.import("os")?.getattr("register_at_fork")?.call((), Some(&hooks)).map(drop)
}

/// A copy of this process lets go of these descriptors, which stay open as long as it lives.
#[pyfunction]
pub fn keep_from_copies(descriptors: Vec<i32>) {
    descriptors.into_iter().for_each(forked::track);
}

/// The output of workers up to now; None if this process has no workers.
#[pyclass(frozen, module = "clutch._core")]
pub struct PrintedByNow(Option<Printed>);

#[pymethods]
impl PrintedByNow {
    #[new]
    fn new() -> PrintedByNow {
        PrintedByNow(Printed::by_now())
    }

    /// Waits until that output is on this process's stdout and stderr. False: not in time.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let Some(printed) = &self.0 else { return Ok(true) };
        let written = |at| printed.wait_written(at).then_some(());
        wait_in_slices(py, timeout, written, || Ok(())).map(|written| written.is_some())
    }
}

/// Workers that start from now on have their lines passed on so: "json", objects; "plain", as they are; else with the
/// worker's name.
#[pyfunction]
pub fn print_as(style: &str) {
    output::pass_on_as(match style {
        "json" => output::Style::Json,
        "plain" => output::Style::Plain,
        _ => output::Style::Named,
    });
}

/// Takes the terminal back from a debugger. This process is about to end: this thread takes no signals any more.
#[pyfunction]
pub fn recover_terminal() {
    sys::block_signals();
    terminal::recover_at_end();
}

/// Events of all pools from now on. `scope`: "lives", of pools and workers; "incidents", also work that expires, is cancelled,
/// lost, drained or taken back; "all", also where each piece of work begins and finishes.
#[pyclass(frozen, module = "clutch._core")]
pub struct Events {
    subscription: Subscription,
}

#[pymethods]
impl Events {
    #[new]
    #[pyo3(signature = (scope = "all"))]
    fn new(scope: &str) -> PyResult<Events> {
        let named = Scope::named(scope);
        let scope = named.ok_or_else(|| PyValueError::new_err(format!("no scope of events is named '{scope}'")))?;
        Ok(Events { subscription: telemetry()?.mailbox(scope) })
    }

    /// The next event as JSON; None after `timeout` seconds, or when it is closed and all is read.
    #[pyo3(signature = (timeout = None))]
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<String>> {
        let next = |at| {
            let event = self.subscription.next(at);
            (event.is_some() || self.subscription.is_closed()).then_some(event)
        };
        let event = wait_in_slices(py, timeout, next, || Ok(()))?.flatten();
        let text = event.map(|event| serde_json::to_string(&event)).transpose();
        text.map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Closes it: no events after the present ones.
    fn close(&self) {
        self.subscription.close();
    }
}
