//! The sleep of an asyncio loop. Other threads end it once for all that they ask of the loop, and only while it sleeps. What
//! Clutch reads itself is served within it: a turn of the loop's own code takes longer than many a request.

use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use clutch_wire::sync::Mutex;
use clutch_wire::sys::{self, Ready};
use pyo3::exceptions::{PyKeyboardInterrupt, PySystemExit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use crate::way;

/// `selectors.EVENT_READ`, `selectors.EVENT_WRITE`.
const READS: u8 = 1;
const WRITES: u8 = 2;

/// No sleep: the loop runs.
const AWAKE: u64 = 0;

/// Stands in for `select` of a loop's selector, and for what writes to the loop to end it.
///
/// A thread adds to what the loop is to run and then looks whether it sleeps; the loop says that it sleeps and then looks at
/// what it is to run. So one of them sees the other.
#[pyclass(frozen, module = "clutch._core")]
pub struct LoopSleep {
    event_loop: Py<PyAny>,
    epoll: OwnedFd,
    /// The selector's keys, by descriptor.
    keys: Py<PyDict>,
    /// What the loop is to run.
    ready: Py<PyAny>,
    /// Ends a sleep.
    write: Py<PyAny>,
    /// `asyncio.current_task`.
    current_task: Py<PyAny>,
    sources: Mutex<Vec<Source>>,
    slept: AtomicU64,
    /// The sleep of the moment.
    sleep: AtomicU64,
    /// The last one that somebody has ended.
    ended: AtomicU64,
    /// It has slept within its own sleep, in a signal's handler: it is woken each time from then on.
    nests: AtomicBool,
}

/// What is called at once when its descriptor can be read.
struct Source {
    fd: RawFd,
    /// The selector's: with another one the descriptor is somebody else's.
    key: Py<PyAny>,
    callback: Py<PyAny>,
}

/// Callbacks of sources that are ready, and others with their keys.
type Sorted<'py> = (Vec<Py<PyAny>>, Vec<(Ready, Bound<'py, PyAny>)>);

#[pymethods]
impl LoopSleep {
    /// The loop has this, and this has the loop: the collector finds both.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for one in [&self.event_loop, &self.ready, &self.write, &self.current_task] {
            visit.call(one)?;
        }
        visit.call(&self.keys)?;
        let Some(sources) = self.sources.try_lock() else { return Ok(()) };
        sources.iter().try_for_each(|source| visit.call(&source.key).and_then(|()| visit.call(&source.callback)))
    }

    /// `epoll`: the number of the selector's descriptor.
    #[new]
    fn new(
        py: Python<'_>,
        event_loop: Py<PyAny>,
        epoll: RawFd,
        keys: Py<PyDict>,
        ready: Py<PyAny>,
        write: Py<PyAny>,
    ) -> PyResult<Self> {
        way::knows_sleeps();
        Ok(LoopSleep {
            current_task: py.import("asyncio")?.getattr("current_task")?.unbind(),
            event_loop,
            epoll: sys::copy_of(epoll)?,
            keys,
            ready,
            write,
            sources: Mutex::default(),
            slept: AtomicU64::new(AWAKE),
            sleep: AtomicU64::new(AWAKE),
            ended: AtomicU64::new(AWAKE),
            nests: AtomicBool::new(false),
        })
    }

    /// Serves a descriptor that the loop reads: `callback()` is called within the sleep, in no callback of the loop's.
    fn serve(&self, py: Python<'_>, fd: RawFd, callback: Py<PyAny>) -> PyResult<()> {
        let Some(key) = self.keys.bind(py).get_item(fd)? else { return Ok(()) };
        let mut sources = self.sources.lock();
        let before = sources.iter().position(|source| source.fd == fd).map(|at| sources.swap_remove(at));
        sources.push(Source { fd, key: key.unbind(), callback });
        drop(sources);
        drop(before);
        Ok(())
    }

    /// Returns `(key, events)` of what is ready and is none of the sources, as a selector does. As long as the loop has
    /// nothing to do but what sources do within its sleep, it sleeps on.
    #[pyo3(signature = (timeout = None))]
    fn select<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        // In whole milliseconds, as a selector of Python's: the loop wakes when something is due, and not just before.
        let timeout = timeout.map(|seconds| Duration::from_millis((seconds * 1e3).ceil() as u64));
        let planned = self.planned(py)?;
        let until = timeout.map(|timeout| Instant::now() + timeout);
        let (mut ready, mut left) = (Vec::new(), timeout);
        loop {
            self.sleep(py, &mut ready, left)?;
            let (sources, others) = self.sort(py, &ready)?;
            sources.iter().try_for_each(|callback| self.call(py, callback))?;
            // Of a descriptor that nobody has any more, the loop hears nothing, but it turns, as with its own selector: to
            // sleep on would be to spin.
            if !others.is_empty() || sources.is_empty() {
                return self.tell(py, others);
            }
            left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let is_over = ready.is_empty() || left.is_some_and(|left| left.is_zero());
            if is_over || !self.sleeps_on(py, &planned)? {
                return Ok(PyTuple::empty(py).into_any());
            }
            py.check_signals()?;
        }
    }

    /// Ends the sleep of the moment, if nobody has.
    fn wake(&self, py: Python<'_>) -> PyResult<()> {
        fence(Ordering::SeqCst);
        let sleep = self.sleep.load(Ordering::Relaxed);
        let needs_none = sleep == AWAKE || sleep == self.ended.load(Ordering::Relaxed);
        if needs_none && !self.nests.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.write.call0(py)?;
        // Not before, as a thread may be interrupted anywhere; and not the loop's next one, which it may be in by now.
        self.ended.store(sleep, Ordering::Relaxed);
        Ok(())
    }
}

impl LoopSleep {
    /// Waits for what is ready, at most until a signal comes.
    fn sleep(&self, py: Python<'_>, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> PyResult<()> {
        if self.sleep.load(Ordering::Relaxed) != AWAKE {
            self.nests.store(true, Ordering::Relaxed);
        }
        self.sleep.store(self.slept.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let slept = self.wait(py, ready, timeout);
        self.sleep.store(AWAKE, Ordering::Relaxed);
        slept
    }

    fn wait(&self, py: Python<'_>, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> PyResult<()> {
        ready.clear();
        let timeout = if self.ready.bind(py).len()? > 0 { Some(Duration::ZERO) } else { timeout };
        // What is there is taken with the GIL: see `way`.
        sys::wait_ready(self.epoll.as_fd(), ready, Some(Duration::ZERO))?;
        if !ready.is_empty() || timeout == Some(Duration::ZERO) {
            return Ok(());
        }
        let from = sys::monotonic_ns();
        let is_cut = py.detach(|| {
            let is_cut = sys::wait_ready(self.epoll.as_fd(), ready, timeout);
            way::slept(from);
            is_cut
        })?;
        if is_cut { py.check_signals() } else { Ok(()) }
    }

    /// What the loop has planned for later: how much, and what comes first. None: it has no such list.
    fn planned<'py>(&self, py: Python<'py>) -> PyResult<Option<(usize, Option<Bound<'py, PyAny>>)>> {
        let Some(planned) = self.event_loop.bind(py).getattr_opt(intern!(py, "_scheduled"))? else { return Ok(None) };
        let Ok(planned) = planned.cast_into::<PyList>() else { return Ok(None) };
        Ok(Some((planned.len(), planned.get_item(0).ok())))
    }

    /// Whether the loop has nothing to do since then: nothing to run, nothing planned or taken back, no order to stop.
    fn sleeps_on(&self, py: Python<'_>, then: &Option<(usize, Option<Bound<'_, PyAny>>)>) -> PyResult<bool> {
        let (Some((count, first)), Some((count_now, first_now))) = (then, &self.planned(py)?) else { return Ok(false) };
        let is_first_same =
            first.as_ref().map(|first| first.as_ptr()) == first_now.as_ref().map(|first| first.as_ptr());
        let is_stopping = || self.event_loop.bind(py).getattr(intern!(py, "_stopping"))?.is_truthy();
        Ok(count == count_now && is_first_same && self.ready.bind(py).len()? == 0 && !is_stopping()?)
    }

    /// The callbacks of the sources that are ready, and the others with their keys. A loop in whose task this is, as nested
    /// ones are, runs no other task: it queues what it is told of. So does one that is to tell which callback takes long.
    fn sort<'py>(&self, py: Python<'py>, ready: &[Ready]) -> PyResult<Sorted<'py>> {
        let (mut sources, mut others) = (Vec::new(), Vec::new());
        let serves = !ready.is_empty() && self.serves(py)?;
        for one in ready {
            let Some(key) = self.keys.bind(py).get_item(one.fd)? else { continue };
            match self.callback(py, one.fd, &key).filter(|_| serves) {
                Some(callback) => sources.push(callback),
                None => others.push((*one, key)),
            }
        }
        Ok((sources, others))
    }

    fn serves(&self, py: Python<'_>) -> PyResult<bool> {
        let event_loop = self.event_loop.bind(py);
        let is_debugged =
            event_loop.getattr_opt(intern!(py, "_debug"))?.is_some_and(|debug| debug.is_truthy().unwrap_or(true));
        Ok(!is_debugged && self.current_task.call1(py, (event_loop,))?.is_none(py))
    }

    fn callback(&self, py: Python<'_>, fd: RawFd, key: &Bound<'_, PyAny>) -> Option<Py<PyAny>> {
        let sources = self.sources.lock();
        let source = sources.iter().find(|source| source.fd == fd && source.key.is(key))?;
        Some(source.callback.clone_ref(py))
    }

    /// As a selector does, but for what the code of sources has made the loop wait for otherwise since then: a descriptor with
    /// another key may be another one.
    fn tell<'py>(&self, py: Python<'py>, others: Vec<(Ready, Bound<'py, PyAny>)>) -> PyResult<Bound<'py, PyAny>> {
        let told = PyList::empty(py);
        for (ready, key) in others {
            if self.keys.bind(py).get_item(ready.fd)?.is_some_and(|now| now.is(&key)) {
                let wanted: u8 = key.getattr(intern!(py, "events"))?.extract()?;
                let events = if ready.reads { READS } else { 0 } | if ready.writes { WRITES } else { 0 };
                told.append((key, events & wanted))?;
            }
        }
        Ok(told.into_any())
    }

    /// As a callback of the loop's: what ends a loop ends it, all else is the loop's handler's.
    fn call(&self, py: Python<'_>, callback: &Py<PyAny>) -> PyResult<()> {
        let Err(error) = callback.call0(py) else { return Ok(()) };
        if error.is_instance_of::<PySystemExit>(py) || error.is_instance_of::<PyKeyboardInterrupt>(py) {
            return Err(error);
        }
        let context = PyDict::new(py);
        context.set_item("message", format!("Exception in callback {}", callback.bind(py).repr()?))?;
        context.set_item("exception", error)?;
        self.event_loop.bind(py).call_method1(intern!(py, "call_exception_handler"), (context,)).map(drop)
    }
}
