//! Puts off garbage collections of a process with an event loop that find nothing ([`Sparing`] decides), by the thresholds of
//! CPython's collector. Native, since a collection may begin where Python code has no room for another frame.

use std::sync::atomic::{AtomicBool, Ordering};

use clutch_wire::collections::{Next, Sparing};
use clutch_wire::sync::Mutex;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyModule};

/// Nothing is put off for longer.
const SPARED_SECONDS: f64 = 0.1;

static FOLLOWER: Mutex<Option<Py<Collector>>> = Mutex::new(None);
/// Whether there is one, which is asked for each request.
static IS_FOLLOWED: AtomicBool = AtomicBool::new(false);

/// Whole numbers of C, which an app may set to any.
type Thresholds = (i64, i64, i64);

/// To be one of `gc.callbacks`, called in any thread and at any point of its code.
#[pyclass(frozen, module = "clutch._core")]
pub struct Collector {
    event_loop: Py<PyAny>,
    gc: Py<PyModule>,
    usual: Thresholds,
    sparing: Mutex<Sparing>,
    has_timer: AtomicBool,
}

#[pymethods]
impl Collector {
    /// `event_loop` keeps the time; `usual`: the thresholds of a new interpreter. Whoever sets others has them.
    #[new]
    fn new(event_loop: &Bound<'_, PyAny>, usual: Thresholds) -> PyResult<Collector> {
        Ok(Collector {
            event_loop: event_loop.clone().unbind(),
            gc: event_loop.py().import("gc")?.unbind(),
            usual,
            sparing: Mutex::new(Sparing::new(u32::try_from(usual.0)?)),
            has_timer: AtomicBool::new(false),
        })
    }

    fn __call__(slf: &Bound<'_, Self>, phase: &str, info: &Bound<'_, PyDict>) -> PyResult<()> {
        if phase == "start" {
            return Ok(());
        }
        let number = |name| info.get_item(name)?.map_or(Ok(0), |number| number.extract::<u64>());
        let has_found = number(intern!(slf.py(), "collected"))? > 0 || number(intern!(slf.py(), "uncollectable"))? > 0;
        let generation = number(intern!(slf.py(), "generation"))?.min(2) as u8;
        let this = slf.get();
        let may_spare = this.sparing.lock().ended(generation, has_found);
        if !may_spare {
            return this.end(slf.py());
        }
        let is_begun = IS_FOLLOWED.load(Ordering::Relaxed);
        if is_begun || !this.is_known(slf.py())? { Ok(()) } else { Self::begin(slf) }
    }

    /// From now on the interpreter collects as usual.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        follow_with(None);
        if self.is_ours(py)? { self.set(py, self.usual) } else { Ok(()) }
    }

    /// Time is up.
    fn rest(&self, py: Python<'_>) -> PyResult<()> {
        self.has_timer.store(false, Ordering::Relaxed);
        self.end(py)
    }
}

impl Collector {
    fn begin(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        if !this.has_timer.swap(true, Ordering::Relaxed) {
            let event_loop = this.event_loop.bind(py);
            let rest = slf.getattr(intern!(py, "rest"))?;
            let arguments = (event_loop.getattr(intern!(py, "call_later"))?, SPARED_SECONDS, rest);
            if event_loop.call_method1(intern!(py, "call_soon_threadsafe"), arguments).is_err() {
                // It has ended, or there is no room for its code here.
                this.has_timer.store(false, Ordering::Relaxed);
                return this.end(py);
            }
        }
        follow_with(Some(slf.clone().unbind()));
        this.set(py, this.with(this.usual.0))
    }

    fn moved(&self, py: Python<'_>) -> PyResult<()> {
        let (count, _, _) = self.counted(py)?;
        let next = self.sparing.lock().moved(count.clamp(0, i64::from(u32::MAX / 2)) as u32);
        match next {
            Next::Same => Ok(()),
            _ if !self.is_ours(py)? => Ok(()),
            Next::At(count) => self.set(py, self.with(count.into())),
            Next::Now => {
                self.set(py, self.with(self.usual.0))?;
                self.gc.bind(py).call_method1(intern!(py, "collect"), (1,))?;
                // When it is time for the third generation, the interpreter decides whether it is worth it.
                if self.counted(py)?.2 > self.usual.2 { self.end(py) } else { Ok(()) }
            }
        }
    }

    fn counted(&self, py: Python<'_>) -> PyResult<Thresholds> {
        self.gc.bind(py).call_method0(intern!(py, "get_count"))?.extract()
    }

    /// Thresholds that are set here: the second is one that nobody else sets.
    fn with(&self, first: i64) -> Thresholds {
        (first, self.usual.1 + 1, self.usual.2)
    }

    fn is_ours(&self, py: Python<'_>) -> PyResult<bool> {
        let found = self.found(py)?;
        Ok(found == self.with(found.0))
    }

    fn is_known(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.found(py)? == self.usual || self.is_ours(py)?)
    }

    fn found(&self, py: Python<'_>) -> PyResult<Thresholds> {
        self.gc.bind(py).call_method0(intern!(py, "get_threshold"))?.extract()
    }

    fn set(&self, py: Python<'_>, thresholds: Thresholds) -> PyResult<()> {
        self.gc.bind(py).call_method1(intern!(py, "set_threshold"), thresholds).map(drop)
    }
}

fn follow_with(follower: Option<Py<Collector>>) {
    IS_FOLLOWED.store(follower.is_some(), Ordering::Relaxed);
    let before = std::mem::replace(&mut *FOLLOWER.lock(), follower);
    drop(before);
}

/// Code of a request is about to run on an event loop, or is over.
pub fn follow(py: Python<'_>) {
    if !IS_FOLLOWED.load(Ordering::Relaxed) {
        return;
    }
    let follower = FOLLOWER.lock().as_ref().map(|follower| follower.clone_ref(py));
    if let Some(Err(error)) = follower.map(|follower| follower.get().moved(py)) {
        error.write_unraisable(py, None);
    }
}
