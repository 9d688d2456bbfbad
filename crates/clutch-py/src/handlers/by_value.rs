//! Functions that come with their calls, and those of them that are kept for the next call of the same map.
//!
//! Each call has a function of its own, with its own copy of the caller's globals: no two run one at the same time. A map
//! gets back what a batch before it has let go.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_wire::Payload;
use clutch_wire::code::{Code, read_code};
use clutch_wire::sync::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use super::handler::{ByValue, Function, Prepared};
use super::outcome::{Trouble, unreadable};
use crate::codec;

/// What no batch has taken for so long is of a map that is over.
const KEPT_MAX: Duration = Duration::from_secs(1);

const KEPT_COUNT_MAX: usize = 64;

/// The functions of maps that no batch has at the moment.
#[derive(Default)]
pub struct LetGo {
    kept: Mutex<Vec<(ByValue, Instant)>>,
}

impl LetGo {
    /// Returns the function of a call, and the payload of its arguments.
    pub fn load(&self, py: Python<'_>, payload: &Payload) -> Result<(ByValue, Payload), Trouble> {
        let cut = || unreadable(py, PyValueError::new_err("a function by value that is cut"));
        let (code, arguments) = read_code(payload).ok_or_else(cut)?;
        if let Some(kept) = self.take(code.number, changes_of_classes(py)?) {
            return Ok((ByValue { loading: Duration::ZERO, ..kept }, arguments));
        }
        let began = Instant::now();
        let function = read(py, &code).map_err(|error| unreadable(py, error))?;
        let changes = changes_of_classes(py)?;
        let function =
            Function { tool: py.None(), function, simple: true, attempt_ms: None, by_name: false, app: None };
        let by_value = ByValue { function: Arc::new(function), number: code.number, changes, loading: began.elapsed() };
        Ok((by_value, arguments))
    }

    fn take(&self, number: u64, changes: u64) -> Option<ByValue> {
        let mut kept = self.kept.lock();
        let is_it = |kept: &ByValue| kept.number == number && kept.changes == changes;
        let at = kept.iter().rposition(|(kept, _)| is_it(kept)).filter(|_| number != 0)?;
        Some(kept.remove(at).0)
    }

    /// The map with this number is over. A function and a class of its globals refer to each other: their memory comes
    /// back by the garbage collector alone.
    pub fn forget(&self, py: Python<'_>, number: u64) -> PyResult<()> {
        let over: Vec<_> = self.kept.lock().extract_if(.., |(kept, _)| kept.number == number).collect();
        if over.is_empty() {
            return Ok(());
        }
        drop(over); // which may run finalizers
        py.import("gc")?.call_method0("collect").map(drop)
    }

    /// Keeps the function of work that has ended as it should, if it has come with it.
    pub fn keep(&self, work: &Prepared) {
        let Some(ByValue { function, number, changes, .. }) = &work.by_value else { return };
        let now = Instant::now();
        let mut kept = self.kept.lock();
        let old: Vec<_> = kept.extract_if(.., |(_, since)| now.duration_since(*since) > KEPT_MAX).collect();
        if *number != 0 && kept.len() < KEPT_COUNT_MAX {
            let function = function.clone();
            kept.push((ByValue { function, number: *number, changes: *changes, loading: Duration::ZERO }, now));
        }
        drop(kept);
        drop(old); // which may run finalizers
    }
}

/// Counts how often classes that have come by value got another state: there is one of each in a process, for all that
/// refers to it.
fn changes_of_classes(py: Python<'_>) -> PyResult<u64> {
    static MODULES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let modules = MODULES.import(py, "sys", "modules")?;
    let module = modules.call_method1("get", ("clutch._pickle.by_value",))?;
    // None while it is imported, in whatever thread: no class has come yet.
    let changes = if module.is_none() { None } else { module.getattr_opt("changes_of_classes")? };
    changes.map_or(Ok(0), |changes| changes.extract())
}

/// Whatever it changes of memory that other workers see, too, it changes for itself.
fn read(py: Python<'_>, code: &Code) -> PyResult<Py<PyAny>> {
    let mut pickle = code.pickle.clone();
    for lease in &mut pickle.leases {
        if let Some(private) = lease.private()? {
            *lease = Arc::new(private);
        }
    }
    codec::unpickle(py, &pickle).map(Bound::unbind)
}
