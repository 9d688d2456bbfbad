//! The network fronts, for `clutch run`.

use std::collections::HashMap;
use std::time::Duration;

use clutch_core::front;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::finalizing::wait_when_finalizing;
use crate::pool::PoolCore;

/// Running fronts.
#[pyclass(frozen, module = "clutch._core")]
pub struct Fronts {
    running: front::Fronts,
}

fn parse<T: serde::de::DeserializeOwned>(what: &str, text: Option<&str>) -> PyResult<Option<T>> {
    let wrong = |error: serde_json::Error| PyValueError::new_err(format!("the config of the {what} front: {error}"));
    text.map(|text| serde_json::from_str(text).map_err(wrong)).transpose()
}

#[pymethods]
impl Fronts {
    /// Starts listening. All but the pools are the JSON of `config.rs`'s structs. Raises OSError when a bind fails.
    #[new]
    #[pyo3(signature = (pools, http = None, admin = None, serve = None, tcp = None))]
    fn new(
        py: Python<'_>,
        pools: HashMap<String, Bound<'_, PoolCore>>,
        http: Option<&str>,
        admin: Option<&str>,
        serve: Option<&str>,
        tcp: Option<&str>,
    ) -> PyResult<Fronts> {
        let pools = pools.values().map(|pool| pool.get().core(py)).collect::<PyResult<front::Pools>>()?;
        let configs = front::FrontConfigs {
            http: parse("http", http)?,
            serve: parse("serve", serve)?,
            tcp: parse("tcp", tcp)?,
            admin: parse("admin", admin)?,
        };
        Ok(Fronts { running: py.detach(|| front::Fronts::start(pools, configs))? })
    }

    /// Where the http front listens: `host:port`, or None.
    fn http_address(&self) -> Option<&str> {
        self.running.http_address()
    }

    /// Where the app is served, each `host:port` or `unix:path`.
    fn serve_addresses(&self) -> Vec<String> {
        self.running.serve_addresses().to_vec()
    }

    /// Where connections are taken, each `host:port` or `unix:path`.
    fn tcp_addresses(&self) -> Vec<String> {
        self.running.tcp_addresses().to_vec()
    }

    fn admin_address(&self) -> Option<&str> {
        self.running.admin_address()
    }

    /// The next warning for the log; waits for it. None: the fronts were stopped.
    fn next_warning(&self, py: Python<'_>) -> Option<String> {
        wait_when_finalizing();
        py.detach(|| self.running.next_warning())
    }

    /// Log files were moved away: new ones are begun.
    fn reopen_logs(&self) {
        self.running.reopen_logs();
    }

    /// Certificate and key of served apps are read anew. Raises OSError for files that cannot be used: the old ones go on.
    fn reload_certificate(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.running.reload_certificate())?)
    }

    /// Stops accepting, lets requests end for so many seconds, then cuts them off. A second stop has no effect.
    fn stop(&self, py: Python<'_>, grace_s: f64) {
        let grace = Duration::try_from_secs_f64(grace_s.max(0.0)).unwrap_or(Duration::ZERO);
        py.detach(|| self.running.stop(grace));
    }
}
