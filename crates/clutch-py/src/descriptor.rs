//! A descriptor that came with a call, until the handler takes it.

use std::os::fd::{IntoRawFd, OwnedFd};

use clutch_wire::sync::Mutex;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// The one argument of a handler of connections. What nobody takes is closed with it.
#[pyclass(frozen, module = "clutch._core")]
pub struct Descriptor(Mutex<Option<OwnedFd>>);

impl Descriptor {
    /// None: it was lost on its way, because this process may have no more of them.
    pub fn new(descriptor: Option<OwnedFd>) -> Descriptor {
        Descriptor(Mutex::new(descriptor))
    }
}

#[pymethods]
impl Descriptor {
    /// The number, now the caller's to close. Once.
    fn take(&self) -> PyResult<i32> {
        let taken = self.0.lock().take().map(IntoRawFd::into_raw_fd);
        taken.ok_or_else(|| {
            PyOSError::new_err(
                "this worker had no descriptor left for a connection; raise its limit (ulimit -n), or have fewer slots in it",
            )
        })
    }
}
