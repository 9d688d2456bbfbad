//! The handler of connections: the user's function gets the accepted socket, which came with the call.

use std::os::fd::{IntoRawFd, OwnedFd};

use clutch_wire::Payload;
use clutch_wire::sync::Mutex;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::handler::{Function, Handler, Invocation};
use super::outcome::Trouble;
use crate::link::WorkerLink;
use crate::link::call_frame::CallFrame;

pub struct Connection;

impl Handler for Connection {
    fn prepare(
        &self,
        link: &Bound<'_, WorkerLink>,
        function: Option<&Function>,
        frame: &mut CallFrame,
        _payload: &Payload,
    ) -> Result<Invocation, Trouble> {
        let py = link.py();
        let function = function.ok_or_else(|| PyRuntimeError::new_err("connections that nobody handles"))?;
        let descriptor = Py::new(py, Descriptor::new(frame.descriptor.take()))?;
        let arguments = PyTuple::new(py, [descriptor])?;
        Ok(Invocation::of(function.function.clone_ref(py), arguments.unbind()))
    }
}

/// A socket that has come with a call: the one argument of a handler of connections. What nobody takes is closed with it.
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
