//! The operator plane of this process: its pools, its program in Python, and its socket.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use clutch_fronts::OperatorSocket;
use clutch_host::Program;
use clutch_pool::supervisor::facts::PoolClosed;
use clutch_pool::telemetry::{EventRecord, Scope, Sink};
use clutch_wire::sync::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::Value;
use tokio::sync::Notify;

use crate::dispatcher::finalizing::wait_when_finalizing;
use crate::dispatcher::pool::PoolCore;
use crate::dispatcher::registry;

/// The socket, while it is open. Its own thread closes it, too.
type Socket = Arc<Mutex<Option<OperatorSocket>>>;

/// The operator plane of this process.
#[pyclass(frozen, module = "clutch._core")]
pub struct Plane {
    pub(super) plane: Arc<clutch_host::Plane>,
    socket: Socket,
    closings: Arc<Closings>,
}

/// Notes that a pool is over.
#[derive(Default)]
struct Closings(Arc<Notify>);

impl Sink for Closings {
    fn event(&self, event: &EventRecord<'_>) {
        if event.get::<PoolClosed>().is_some() {
            self.0.notify_one();
        }
    }
}

#[pymethods]
impl Plane {
    /// `identity`: a JSON object, what the process says of itself. `host`: has `reload(pools)`, which returns by pool why its
    /// new code cannot be used, `stop(now)`, and `fronts()`, which returns JSON; each may raise.
    #[new]
    fn new(identity: &str, host: Py<PyAny>) -> PyResult<Plane> {
        let identity = serde_json::from_str(identity).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let telemetry = registry::telemetry()?;
        let closings = Arc::<Closings>::default();
        let sink: Arc<dyn Sink> = closings.clone();
        telemetry.subscribe(Arc::downgrade(&sink), Scope::LIVES);
        let plane = clutch_host::Plane::new(identity, telemetry, Box::new(PythonProgram(host)));
        Ok(Plane { plane, socket: Socket::default(), closings })
    }

    /// Shows a pool, under its own name or, where another has that, as `name-2`.
    fn add(&self, py: Python<'_>, pool: &PoolCore) -> PyResult<()> {
        self.plane.pools.add(pool.core(py)?);
        Ok(())
    }

    /// Listens at `path` until it is closed, or with `while_pools` until its last pool is over. Nothing, where it listens
    /// already. Raises OSError.
    fn open(&self, py: Python<'_>, path: PathBuf, while_pools: bool) -> PyResult<()> {
        py.detach(|| {
            let mut socket = self.socket.lock();
            if socket.is_none() {
                let (plane, own) = (self.plane.clone(), self.socket.clone());
                let is_over = move || while_pools && retire(&plane, &own);
                *socket = Some(OperatorSocket::open(&path, self.plane.clone(), self.closings.0.clone(), is_over)?);
            }
            Ok(())
        })
    }

    /// From now on operators are told that the process stops.
    fn stops(&self) {
        self.plane.stops();
    }

    fn is_open(&self) -> bool {
        self.socket.lock().is_some()
    }

    /// Forgets the pools that are over, and closes the socket if none is left.
    fn retire(&self, py: Python<'_>) {
        py.detach(|| retire(&self.plane, &self.socket));
    }

    /// Closes the socket; waits for a moment until commands under way have answered, where asked to.
    fn close(&self, py: Python<'_>, waits: bool) {
        py.detach(|| {
            let socket = self.socket.lock().take();
            socket.iter().for_each(|socket| socket.close(waits));
        });
    }

    /// Removes the socket's file, before an end that waits for nothing.
    fn remove_file(&self) {
        self.socket.lock().iter().for_each(OperatorSocket::remove_file);
    }
}

/// Returns whether no pool is left.
fn retire(plane: &clutch_host::Plane, socket: &Socket) -> bool {
    let mut open = socket.lock();
    if plane.pools.keep_open() {
        return false;
    }
    let closed = open.take();
    // Before somebody else opens one at the same place.
    closed.iter().for_each(OperatorSocket::remove_file);
    drop(open);
    true
}

struct PythonProgram(Py<PyAny>);

impl PythonProgram {
    fn ask<T>(&self, asked: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> Result<T, String> {
        wait_when_finalizing();
        let answer = Python::try_attach(|py| {
            let said = |error: PyErr| error.value(py).str().map_or_else(|_| error.to_string(), |text| text.to_string());
            asked(self.0.bind(py)).map_err(said)
        });
        answer.unwrap_or_else(|| Err("the process is about to end".to_owned()))
    }
}

impl Program for PythonProgram {
    fn reload(&self, pools: Vec<String>) -> Result<BTreeMap<String, String>, String> {
        self.ask(|host| host.call_method1("reload", (pools,))?.extract())
    }

    fn stop(&self, now: bool) -> Result<(), String> {
        self.ask(|host| host.call_method1("stop", (now,)).map(drop))
    }

    fn fronts(&self) -> Result<Value, String> {
        let text: String = self.ask(|host| host.call_method0("fronts")?.extract())?;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }
}

/// The folder of this user's running programs, with their control sockets, whether or not it exists.
#[pyfunction]
pub fn programs_folder() -> PathBuf {
    clutch_host::programs::folder()
}
