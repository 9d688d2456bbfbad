//! Functions by value that weigh more than a frame takes: pickled apart from their arguments, stored once while they are
//! the same.
//!
//! A function is pickled at each call, since its globals may have changed, and once for a map. If the bytes are those of
//! a call before, that one's memory is named again: workers have it mapped already.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use clutch_pool::pool::Pool;
use clutch_wire::Payload;
use clutch_wire::code::Code;
use clutch_wire::region::RegionPool;
use clutch_wire::sync::Mutex;
use pyo3::prelude::*;

use super::python_call::name_of;
use crate::codec::{Encoded, Pickled};

/// A function as it was pickled.
pub struct SentFunction {
    pickle: Payload,
    has_code: bool,
    name: Option<Box<str>>,
}

impl SentFunction {
    /// Returns a call of it. `number`: of the map, or 0.
    pub(super) fn with(&self, number: u64, arguments: Encoded) -> Encoded {
        let payload = Code { number, pickle: self.pickle.clone() }.with(arguments.payload);
        Encoded { payload, by_value: self.has_code || arguments.by_value, function: self.name.clone() }
    }
}

/// The functions that were stored, as long as something refers to them.
#[derive(Default)]
pub(super) struct SentFunctions {
    stored: Mutex<Vec<Weak<SentFunction>>>,
}

impl SentFunctions {
    /// Tells whether a function of this name was stored of late, so that it is likely to be large.
    pub(super) fn has_one_like(&self, function: &Bound<'_, PyAny>) -> bool {
        let stored = self.stored.lock();
        if stored.is_empty() {
            return false;
        }
        let name = name_of(function);
        stored.iter().filter_map(Weak::upgrade).any(|stored| stored.name == name)
    }

    /// As [`SentFunctions::store`]. It stays for some seconds: the next call may be of the same function.
    pub(super) fn store_and_hold(
        &self,
        function: &Bound<'_, PyAny>,
        pickled: &Pickled<'_>,
        regions: &Arc<RegionPool>,
    ) -> PyResult<Arc<SentFunction>> {
        let stored = self.store(function, pickled, regions)?;
        hold(&stored, regions);
        Ok(stored)
    }

    /// Returns the function as it was stored before, if it has not changed, or as it is stored now.
    pub(super) fn store(
        &self,
        function: &Bound<'_, PyAny>,
        pickled: &Pickled<'_>,
        regions: &Arc<RegionPool>,
    ) -> PyResult<Arc<SentFunction>> {
        let stored: Vec<Arc<SentFunction>> = {
            let mut stored = self.stored.lock();
            stored.retain(|stored| stored.strong_count() > 0);
            stored.iter().filter_map(Weak::upgrade).collect()
        };
        for before in stored {
            if pickled.is_stored_as(&before.pickle)? {
                return Ok(before);
            }
        }
        let pickle = pickled.store(|bytes| regions.store_shared(bytes))?;
        let made = Arc::new(SentFunction { pickle, has_code: pickled.has_code, name: name_of(function) });
        if pickled.is_large() {
            self.stored.lock().push(Arc::downgrade(&made));
        }
        Ok(made)
    }
}

fn hold(function: &Arc<SentFunction>, regions: &RegionPool) {
    let bytes = function.pickle.bytes_total() as usize;
    let function: Arc<dyn Any + Send + Sync> = function.clone();
    regions.hold(&function, bytes);
}

/// The function of a map, pickled when the first batch is sent.
#[pyclass(frozen, module = "clutch._core")]
pub struct MapFunction {
    #[pyo3(get)]
    pub(super) function: Py<PyAny>,
    pub(super) sent: OnceLock<Arc<SentFunction>>,
    /// Of this map among all of this process.
    pub(super) number: u64,
    /// Whose workers may keep it.
    pub(super) pool: OnceLock<Arc<Pool>>,
}

impl Drop for MapFunction {
    /// A small one is not worth a word to each worker: the next map takes its place.
    fn drop(&mut self) {
        if let (Some(pool), Some(sent)) = (self.pool.get(), self.sent.take()) {
            let is_large = !sent.pickle.leases.is_empty();
            drop(sent);
            if is_large && !pool.is_forked() {
                pool.forget_map(self.number);
            }
        }
    }
}

#[pymethods]
impl MapFunction {
    #[new]
    fn new(function: Py<PyAny>) -> MapFunction {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        MapFunction { function, sent: OnceLock::new(), number, pool: OnceLock::new() }
    }
}
