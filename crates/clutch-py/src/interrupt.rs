//! Stopping code that runs in this worker: which thread runs what, and the exception that is raised in it.
//!
//! Nobody is hit by another's interrupt: an exception is sent to a thread only while that thread is inside the work that is
//! to stop, under its lock; what was sent and not raised when the work has ended is taken back. Each piece of work gets it
//! once, so that its clean-up is left alone. Python runs this in the main thread, from a signal's handler.

use std::cell::OnceCell;
use std::sync::{Arc, Weak};

use clutch_core::link::{Board, word};
use clutch_core::sys;
use parking_lot::Mutex;
use pyo3::ffi;
use pyo3::prelude::*;

/// A thread that runs user code.
struct Slot {
    /// As `threading.get_ident()`.
    ident: std::ffi::c_ulong,
    /// As `threading.get_native_id()`.
    native: i32,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    /// Its word on the board while a piece of work may be interrupted here.
    word: Option<u32>,
    /// Interrupted already.
    told: bool,
    /// Called too, from the main thread: wakes what no exception wakes (an event loop).
    waker: Option<Py<PyAny>>,
}

thread_local! {
    static SLOT: OnceCell<Arc<Slot>> = const { OnceCell::new() };
}

/// The threads of one worker that have run user code.
#[derive(Default)]
pub struct Slots {
    known: Mutex<Vec<Weak<Slot>>>,
}

impl Slots {
    fn with_mine<R>(&self, py: Python<'_>, with: impl FnOnce(&Slot) -> R) -> R {
        SLOT.with(|slot| {
            with(slot.get_or_init(|| {
                // Without a number nothing can be raised there; that cannot be but in an interpreter that is ending.
                let ident = py.import("threading").and_then(|threading| threading.call_method0("get_ident")?.extract());
                let ident = ident.unwrap_or_default();
                let slot = Arc::new(Slot { ident, native: sys::thread_id(), running: Mutex::default() });
                let mut known = self.known.lock();
                known.retain(|slot| slot.strong_count() > 0);
                known.push(Arc::downgrade(&slot));
                slot
            }))
        })
    }

    fn all(&self) -> Vec<Arc<Slot>> {
        self.known.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// From here on this thread may be interrupted for the work with this word. False: it is to stop already.
    pub fn enter(&self, py: Python<'_>, board: &Board, at: u32) -> bool {
        self.with_mine(py, |slot| {
            let mut running = slot.running.lock();
            if running.word != Some(at) {
                *running = Running { word: Some(at), told: false, waker: None };
            }
        });
        // After it is known here: an interrupt that came before saw nothing to interrupt.
        board.get(at) != word::ABANDONED
    }

    /// The work is over in this thread: no exception for it comes any more.
    pub fn leave(&self, py: Python<'_>) {
        self.with_mine(py, |slot| {
            let ended = std::mem::take(&mut *slot.running.lock());
            if ended.told {
                // SAFETY: takes back an exception of this very thread that was sent and not raised yet.
                unsafe { ffi::PyThreadState_SetAsyncExc(slot.ident as _, std::ptr::null_mut()) };
            }
        });
    }

    /// What wakes this thread when it waits in a way that no exception ends; none: no more.
    pub fn set_waker(&self, py: Python<'_>, waker: Option<Py<PyAny>>) {
        let before = self.with_mine(py, |slot| std::mem::replace(&mut slot.running.lock().waker, waker));
        drop(before);
    }

    /// Raises `exception` in every thread whose work is to stop; true: in this thread too, by the caller.
    pub fn interrupt(&self, py: Python<'_>, board: &Board, exception: &Bound<'_, PyAny>) -> bool {
        let here = SLOT.with(|slot| slot.get().map(Arc::as_ptr));
        let mut hit = false;
        for slot in self.all() {
            let mut running = slot.running.lock();
            let is_to_stop = running.word.is_some_and(|at| board.get(at) == word::ABANDONED);
            if !is_to_stop || std::mem::replace(&mut running.told, true) {
                continue;
            }
            let waker = running.waker.as_ref().map(|waker| waker.clone_ref(py));
            if Some(Arc::as_ptr(&slot)) == here {
                hit = true;
            } else {
                // SAFETY: `exception` is a class; the thread is inside the work, as its lock is held.
                unsafe { ffi::PyThreadState_SetAsyncExc(slot.ident as _, exception.as_ptr()) };
            }
            drop(running);
            wake(py, waker);
        }
        hit
    }

    /// Native numbers of the threads that run something now.
    pub fn busy_threads(&self) -> Vec<i32> {
        self.all().iter().filter(|slot| slot.running.lock().word.is_some()).map(|slot| slot.native).collect()
    }
}

fn wake(py: Python<'_>, waker: Option<Py<PyAny>>) {
    if let Some(waker) = waker
        && let Err(error) = waker.call0(py)
    {
        error.write_unraisable(py, None);
    }
}
