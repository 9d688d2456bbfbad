//! Calls of functions by value: in one pickle with their arguments, or apart from them.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::Open;
use super::code::SentFunction;
use super::python_call::{PythonCall, name_of};
use crate::codec::{Encoded, Encoder, Pickled};

impl Open {
    /// A large function goes apart from its arguments. Any other goes in one pickle with them, so that what both refer to
    /// stays one object.
    pub(super) fn encode_by_value(&self, asked: &PythonCall<'_, '_>, function: &Bound<'_, PyAny>) -> PyResult<Encoded> {
        let py = function.py();
        if self.sent_functions.has_one_like(function)
            && let Some(sent) = self.large(function)?
        {
            return self.encode_apart(asked, &sent);
        }
        let kwargs = asked.kwargs.map_or_else(|| PyDict::new(py), Bound::clone);
        let all = PyTuple::new(py, [function, asked.args.as_any(), kwargs.as_any()])?;
        // Plain pickle is enough for partials and bound methods.
        let together = Pickled::of(all.as_any(), self.by_value)?;
        if together.is_large()
            && let Some(sent) = self.large(function)?
        {
            return self.encode_apart(asked, &sent);
        }
        let payload = together.store(|bytes| self.pool.regions().store(bytes))?;
        Ok(Encoded { payload, by_value: together.has_code, function: name_of(function) })
    }

    fn encode_apart(&self, asked: &PythonCall<'_, '_>, sent: &SentFunction) -> PyResult<Encoded> {
        let arguments = Encoder::new(self.pool.regions()).arguments(asked.args, asked.kwargs, self.by_value)?;
        Ok(sent.with(0, arguments))
    }

    fn large(&self, function: &Bound<'_, PyAny>) -> PyResult<Option<Arc<SentFunction>>> {
        let pickled = Pickled::of(function, self.by_value)?;
        let regions = self.pool.regions();
        let is_apart = pickled.is_large() && regions.has_room();
        is_apart.then(|| self.sent_functions.store_and_hold(function, &pickled, regions)).transpose()
    }
}
