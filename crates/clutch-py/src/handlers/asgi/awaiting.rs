//! What `receive()` and `send()` of an app return: coroutines that end at once, or wait for something to happen to a request.

use pyo3::PyClass;
use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// What a request can be waited for.
pub trait Waits {
    /// Returns the next message for `receive`; none: it has to wait.
    fn next_message(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>>;

    fn has_message(&self, py: Python<'_>) -> bool;

    fn has_room(&self, py: Python<'_>) -> bool;

    /// Something to wait on that ends when something has happened to the request, unless `is_there` holds by now.
    fn wait(&self, py: Python<'_>, is_there: &dyn Fn() -> bool) -> PyResult<Py<PyAny>>;
}

/// A request that is waited for, of whichever class.
pub struct Asked {
    request: Py<PyAny>,
    waits: for<'a> fn(&'a Bound<'_, PyAny>) -> PyResult<&'a dyn Waits>,
}

impl Asked {
    pub fn of<T: PyClass<Frozen = True> + Waits + Sync>(request: &Bound<'_, T>) -> Asked {
        Asked { request: request.clone().into_any().unbind(), waits: |request| Ok(request.cast::<T>()?.get()) }
    }

    fn clone_ref(&self, py: Python<'_>) -> Asked {
        Asked { request: self.request.clone_ref(py), waits: self.waits }
    }
}

/// The `receive` of a request.
#[pyclass(frozen, module = "clutch._core")]
pub struct Receive(pub Asked);

#[pymethods]
impl Receive {
    fn __call__(&self, py: Python<'_>) -> PyResult<Py<Awaiting>> {
        Py::new(py, Awaiting { asked: Some(self.0.clone_ref(py)), awaited: Awaited::Message })
    }
}

/// A coroutine that waits for nothing.
pub fn nothing(py: Python<'_>) -> PyResult<Py<Awaiting>> {
    static NOTHING: PyOnceLock<Py<Awaiting>> = PyOnceLock::new();
    NOTHING
        .get_or_try_init(py, || Py::new(py, Awaiting { asked: None, awaited: Awaited::Room }))
        .map(|nothing| nothing.clone_ref(py))
}

/// The thing that is waited for.
enum Awaited {
    Message,
    Room,
}

/// A coroutine, to whoever awaits it or makes a task of it.
#[pyclass(frozen, module = "clutch._core")]
pub struct Awaiting {
    /// None: it waits for nothing.
    asked: Option<Asked>,
    awaited: Awaited,
}

impl Awaiting {
    /// Waits until the client of a request has taken some of what it was sent.
    pub fn room_of(asked: Asked) -> Awaiting {
        Awaiting { asked: Some(asked), awaited: Awaited::Room }
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
        let Some(asked) = &self.asked else { return Ok(None) };
        let request = (asked.waits)(asked.request.bind(py))?;
        match self.awaited {
            Awaited::Room if request.has_room(py) => Ok(None),
            Awaited::Room => request.wait(py, &|| request.has_room(py)).map(Some),
            Awaited::Message => match request.next_message(py)? {
                Some(message) => Err(PyStopIteration::new_err((message,))),
                None => request.wait(py, &|| request.has_message(py)).map(Some),
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
