//! The network fronts, for `clutch run`.

use std::collections::HashMap;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::dispatcher::finalizing::wait_when_finalizing;
use crate::dispatcher::pool::PoolCore;

/// Running fronts.
#[pyclass(frozen, module = "clutch._core")]
pub struct Fronts {
    running: clutch_fronts::Fronts,
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
        let pools = pools.values().map(|pool| pool.get().core(py)).collect::<PyResult<clutch_fronts::Pools>>()?;
        let configs = clutch_fronts::FrontConfigs {
            http: parse("http", http)?,
            serve: parse("serve", serve)?,
            tcp: parse("tcp", tcp)?,
            admin: parse("admin", admin)?,
        };
        Ok(Fronts { running: py.detach(|| clutch_fronts::Fronts::start(pools, configs))? })
    }

    /// Where the http front listens, each `host:port` or `unix:path`.
    fn http_addresses(&self) -> Vec<String> {
        self.running.http_addresses()
    }

    /// Where a client of this machine calls, or None.
    fn http_address(&self) -> Option<String> {
        self.running.http_address()
    }

    /// A token that the http front takes, or None where it needs none.
    fn http_token(&self) -> Option<String> {
        self.running.http_token()
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

    /// Certificates and tokens are read anew, those of an app only where its pool is among these. Pairs of the option that
    /// names the files, and why they cannot be used: then the old ones go on.
    fn reload_files(&self, py: Python<'_>, pools: Vec<String>) -> Vec<(&'static str, Option<String>)> {
        let reread = py.detach(|| self.running.reload_files(&pools));
        reread.into_iter().map(|one| (one.option, one.result.err().map(|error| error.to_string()))).collect()
    }

    /// Stops accepting, lets requests end for so many seconds, then cuts them off. A second stop has no effect.
    fn stop(&self, py: Python<'_>, grace_s: f64) {
        let grace = Duration::try_from_secs_f64(grace_s.max(0.0)).unwrap_or(Duration::ZERO);
        py.detach(|| self.running.stop(grace));
    }
}
