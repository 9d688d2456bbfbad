//! Batches of `map`: many items as the arguments of one call. Tells a batch whose items cannot go as one from a function
//! that cannot go at all.

use std::sync::Arc;

use clutch_pool::work::FunctionId;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use super::code::{MapFunction, SentFunction};
use super::python_call::{PythonCall, unsendable};
use super::{CallOptions, Open, Reference};
use crate::codec::{BY_VALUE, Encoded, Encoder, Pickled};

/// The function of a batch as it is sent.
enum Sent {
    Number(FunctionId),
    ByValue(Arc<SentFunction>),
}

impl Open {
    /// Submits `batch.items`; sets `batch.payload_bytes`, and then `batch.future`. None: that is done. Else why they cannot
    /// go as one, and nothing is. Takes the items out of the batch where no worker can fail to read them.
    pub(super) fn submit_batch<'py>(
        &self,
        function: &Bound<'py, MapFunction>,
        spread: bool,
        batch: &Bound<'py, PyAny>,
        options: &CallOptions,
    ) -> PyResult<Option<Py<PyAny>>> {
        let py = function.py();
        let items = batch.getattr(pyo3::intern!(py, "items"))?.cast_into::<PyList>()?;
        let asked = PythonCall { function: function.get().function.bind(py), args: &PyTuple::empty(py), kwargs: None };
        let sent = self.sent(&asked, function.get())?;
        let encoded = match self.encode_items(&asked, spread, &items) {
            Err(error) if error.is_instance_of::<PyException>(py) => {
                return Ok(Some(error.into_value(py).into_any()));
            }
            encoded => encoded?,
        };
        batch.setattr(pyo3::intern!(py, "payload_bytes"), encoded.payload.bytes_total())?;
        let (number, encoded, is_readable) = match sent {
            Sent::Number(number) => {
                let is_readable = is_plain(encoded.payload.body()).unwrap_or(false);
                (number, encoded, is_readable)
            }
            Sent::ByValue(sent) => (BY_VALUE, sent.with(function.get().number, encoded), false),
        };
        let future = self.submit_encoded(py, number, encoded, options, items.len() as u32)?;
        batch.setattr(pyo3::intern!(py, "future"), &future)?;
        batch.setattr(pyo3::intern!(py, "is_readable"), is_readable)?;
        self.wait_for_room(&future, options)?;
        Ok(None)
    }

    fn sent(&self, asked: &PythonCall<'_, '_>, function: &MapFunction) -> PyResult<Sent> {
        if let Some(sent) = function.sent.get() {
            return Ok(Sent::ByValue(sent.clone()));
        }
        match self.reference(asked.function)? {
            Reference::Number(number) => Ok(Sent::Number(number)),
            Reference::ByValue(by_value) => {
                let pickled = Pickled::of(&by_value, self.by_value);
                let stored = pickled
                    .and_then(|pickled| self.sent_functions.store(&by_value, &pickled, self.pool.regions()))
                    .map_err(|error| unsendable(asked, error))?;
                let _ = function.pool.set(self.pool.clone()); // another thread may have
                Ok(Sent::ByValue(function.sent.get_or_init(|| stored).clone()))
            }
        }
    }

    fn encode_items(&self, asked: &PythonCall<'_, '_>, spread: bool, items: &Bound<'_, PyList>) -> PyResult<Encoded> {
        let parts = (spread, items).into_pyobject(items.py())?;
        let encoded = Encoder::new(self.pool.regions()).pickled(parts.as_any(), self.by_value);
        let encoded = encoded.map_err(|error| unsendable(asked, error))?;
        self.check_size(items.py(), &encoded)?;
        Ok(encoded)
    }
}

/// Whether a pickle is of builtin types alone, so that reading it runs nobody's code and imports nothing. None: it is cut.
///
/// To keep a million ints for the case that one cannot be read costs more than to look at their opcodes.
fn is_plain(pickle: &[u8]) -> Option<bool> {
    let mut rest = pickle;
    while let Some((opcode, behind)) = rest.split_first() {
        let skipped = match opcode {
            b'K' | b'h' | 0x80 => 1,                                         // BININT1, BINGET, PROTO
            b'M' => 2,                                                       // BININT2
            b'J' | b'j' => 4,                                                // BININT, LONG_BINGET
            b'G' | 0x95 => 8,                                                // BINFLOAT, FRAME
            b'C' | 0x8a | 0x8c => 1 + length::<1>(behind)?,                  // short bytes, LONG1, short str
            b'B' | b'X' | 0x8b => 4 + length::<4>(behind)?,                  // bytes, str, LONG4
            0x8d | 0x8e | 0x96 => 8usize.checked_add(length::<8>(behind)?)?, // long str, long bytes, bytearray
            // None, True, False, tuples, lists, dicts, sets, marks, the memo, the end
            b'N' | 0x88 | 0x89 | b')' | b't' | 0x85..=0x87 | b']' | b'a' | b'e' | b'}' | b's' | b'u' => 0,
            0x8f..=0x91 | b'(' | b'0' | b'1' | 0x94 | b'.' => 0,
            _ => return Some(false),
        };
        rest = behind.get(skipped..)?;
    }
    Some(true)
}

fn length<const N: usize>(bytes: &[u8]) -> Option<usize> {
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(bytes.first_chunk::<N>()?);
    usize::try_from(u64::from_le_bytes(wide)).ok()
}
