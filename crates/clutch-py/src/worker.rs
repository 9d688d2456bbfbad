//! Worker process: its link, its slots, and the functions that it knows.

use std::sync::Arc;

use clutch_wire::sys;
use pyo3::prelude::*;

use crate::handlers::Functions;
use crate::link::{LinkLimits, WorkerLink};
use crate::slots::Slots;

/// The state that all calls of a worker share.
#[pyclass(frozen, module = "clutch._core")]
pub struct Worker {
    #[pyo3(get)]
    pub link: Py<WorkerLink>,
    #[pyo3(get)]
    pub slots: Py<Slots>,
    pub functions: Arc<Functions>,
}

#[pymethods]
impl Worker {
    /// In the main thread. Takes over four descriptors: link, board, alarm, and a pidfd of the dispatcher. `resolve(codec, body)`
    /// gives a `Tool` for a function's name, a `Definition` for its pickle. From `memory_floor` bytes of private memory on,
    /// it is told after calls that raised it; with `tells_cpu` the CPU time of each request, too.
    #[new]
    #[pyo3(signature = (descriptors, resolve, payload_bytes_max, memory_floor=None, tells_cpu=false))]
    fn new(
        py: Python<'_>,
        descriptors: (i32, i32, i32, i32),
        resolve: Py<PyAny>,
        payload_bytes_max: u64,
        memory_floor: Option<u64>,
        tells_cpu: bool,
    ) -> PyResult<Worker> {
        let (link, board, alarm, dispatcher) = descriptors;
        let functions = Arc::new(Functions::new(resolve));
        let defined = functions.clone();
        let on_define =
            Box::new(move |py: Python<'_>, number, codec, body: &[u8]| defined.define(py, number, codec, body));
        let limits = LinkLimits { payload_bytes_max, memory_floor, tells_cpu };
        let link = WorkerLink::open(sys::adopt(link), sys::adopt(board), limits, on_define)?;
        let slots = Slots::watch(&link, sys::adopt(alarm), sys::adopt(dispatcher))?;
        Ok(Worker { link: Py::new(py, link)?, slots: Py::new(py, slots)?, functions })
    }
}
