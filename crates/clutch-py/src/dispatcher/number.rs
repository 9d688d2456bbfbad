//! Numbers of calls and workers as Python gives them, of any size.

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

/// None: no call, or worker, can have it.
#[derive(Clone, Copy, Debug)]
pub struct Number<T>(pub Option<T>);

impl<'a, 'py, T: FromPyObject<'a, 'py, Error = PyErr>> FromPyObject<'a, 'py> for Number<T> {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Number<T>> {
        match T::extract(given) {
            Ok(number) => Ok(Number(Some(number))),
            Err(error) if error.is_instance_of::<PyOverflowError>(given.py()) => Ok(Number(None)),
            Err(error) => Err(error),
        }
    }
}
