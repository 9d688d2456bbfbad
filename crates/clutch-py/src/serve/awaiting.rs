//! What `receive()` and `send()` return: something to await that is mostly ready at once.

use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::asgi::Request;

/// What is waited for.
pub enum Wish {
    Nothing,
    Message,
    Room,
}

/// A coroutine, to whoever awaits it or makes a task of it.
#[pyclass(frozen, module = "clutch._core")]
pub struct Awaiting {
    request: Option<Py<Request>>,
    wish: Wish,
}

impl Awaiting {
    pub fn new(request: Option<Py<Request>>, wish: Wish) -> Awaiting {
        Awaiting { request, wish }
    }
}

#[pymethods]
impl Awaiting {
    fn __await__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// A future to wait for; at the end StopIteration with the message.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let Some(request) = &self.request else { return Ok(None) };
        let request = request.get();
        match self.wish {
            Wish::Nothing => Ok(None),
            Wish::Room if request.has_room() => Ok(None),
            Wish::Room => request.wait(py, Request::has_room).map(Some),
            Wish::Message => match request.next_message(py)? {
                Some(message) => Err(PyStopIteration::new_err((message,))),
                None => request.wait(py, Request::has_message).map(Some),
            },
        }
    }

    fn send(&self, py: Python<'_>, _value: Py<PyAny>) -> PyResult<Py<PyAny>> {
        self.__next__(py)?.ok_or_else(|| PyStopIteration::new_err((py.None(),)))
    }

    #[pyo3(signature = (kind, value = None, traceback = None))]
    fn throw(
        &self,
        kind: &Bound<'_, PyAny>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let _ = traceback;
        let error = match kind.cast::<PyType>() {
            Ok(kind) => match value {
                Some(value) if value.is_instance(kind)? => value,
                Some(value) => kind.call1((value,))?,
                None => kind.call0()?,
            },
            Err(_) => kind.clone(),
        };
        Err(PyErr::from_value(error))
    }

    fn close(&self) {}
}

/// Raised where a message is not what the protocol allows.
pub fn misuse(text: impl Into<String>) -> PyErr {
    PyRuntimeError::new_err(text.into())
}
