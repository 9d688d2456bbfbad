//! Load and latencies for the lab, which measures servers from Python: JSON in, JSON out, and the GIL is let go.

use std::io;
use std::time::Duration;

use clutch_load::Plan;
use clutch_wire::sync::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;
use serde::de::DeserializeOwned;

/// Connections to a server, for any number of measurements.
#[pyclass(frozen, module = "clutch._core")]
pub struct Load(Mutex<Option<clutch_load::Load>>);

#[pymethods]
impl Load {
    #[new]
    fn new(py: Python<'_>, plan: &str, bodies: Vec<Vec<PyBackedBytes>>) -> PyResult<Load> {
        let plan: Plan = parsed("plan", plan)?;
        let load = py.detach(|| clutch_load::Load::connect(&plan, &bodies)).map_err(error)?;
        Ok(Load(Mutex::new(Some(load))))
    }

    fn measure(&self, py: Python<'_>, measure: &str) -> PyResult<String> {
        let measure = parsed("measure", measure)?;
        let mut raised = None;
        let report = py.detach(|| match &mut *self.0.lock() {
            Some(load) => load.measure_while(&measure, || unless_raised(&mut raised)).map_err(error),
            None => Err(PyValueError::new_err("this load is closed")),
        })?;
        match raised {
            Some(raised) => Err(raised),
            None => serde_json::to_string(&report).map_err(|error| PyValueError::new_err(error.to_string())),
        }
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.0.lock().take()));
    }
}

/// Whether no handler of a signal has raised an exception; the first one is kept.
fn unless_raised(raised: &mut Option<PyErr>) -> bool {
    if raised.is_none() {
        *raised = Python::attach(|py| py.check_signals()).err();
    }
    raised.is_none()
}

/// ValueError for what cannot be meant, and the OSError of what cannot be done.
fn error(error: io::Error) -> PyErr {
    if error.kind() == io::ErrorKind::InvalidInput { PyValueError::new_err(error.to_string()) } else { error.into() }
}

fn parsed<T: DeserializeOwned>(what: &str, json: &str) -> PyResult<T> {
    serde_json::from_str(json).map_err(|error| PyValueError::new_err(format!("{what}: {error}")))
}

/// Latencies that Python itself has measured.
#[pyclass(frozen, module = "clutch._core")]
pub struct Latencies(Mutex<clutch_load::Latencies>);

#[pymethods]
impl Latencies {
    #[new]
    fn new() -> PyResult<Latencies> {
        Ok(Latencies(Mutex::new(clutch_load::Latencies::new()?)))
    }

    fn record(&self, seconds: f64) -> PyResult<()> {
        let latency = latency(seconds)?;
        self.0.lock().record(latency);
        Ok(())
    }

    fn record_many(&self, seconds: Vec<f64>) -> PyResult<()> {
        let all = seconds.into_iter().map(latency).collect::<PyResult<Vec<Duration>>>()?;
        let mut latencies = self.0.lock();
        all.into_iter().for_each(|latency| latencies.record(latency));
        Ok(())
    }

    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (count, shown) = {
            let latencies = self.0.lock();
            (latencies.count(), latencies.percentiles())
        };
        let report = PyDict::new(py);
        report.set_item("count", count)?;
        report.set_item("min_us", shown.min_us)?;
        report.set_item("mean_us", shown.mean_us)?;
        report.set_item("p50_us", shown.p50_us)?;
        report.set_item("p75_us", shown.p75_us)?;
        report.set_item("p90_us", shown.p90_us)?;
        report.set_item("p95_us", shown.p95_us)?;
        report.set_item("p99_us", shown.p99_us)?;
        report.set_item("p999_us", shown.p999_us)?;
        report.set_item("max_us", shown.max_us)?;
        report.set_item("by_percentile", shown.by_percentile)?;
        Ok(report)
    }
}

fn latency(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|error| PyValueError::new_err(format!("a latency of {seconds} s: {error}")))
}
