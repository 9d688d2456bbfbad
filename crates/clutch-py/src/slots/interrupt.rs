//! Stopping code that runs in this worker: which thread runs what, and the exception that is raised in it.
//!
//! Nobody is hit by another's interrupt: an exception is sent to a thread only while that thread is inside the work that is
//! to stop, under its lock; what was sent and not raised when the work has ended is taken back. Each piece of work gets it
//! once, so that its clean-up is left alone. An event loop would lose it between two steps of its tasks: a thread that runs
//! one has its waker called first, and gets the exception when a step of a task goes on all the same. Python runs this in
//! the main thread, from a signal's handler.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use clutch_pool::link::board::{Board, word};
use clutch_wire::sync::Mutex;
use clutch_wire::sys;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// A thread, as Python and the kernel know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// As `threading.get_ident()`, where nobody has patched that.
    pub ident: std::ffi::c_ulong,
    /// As `threading.get_native_id()`.
    pub native: i32,
}

impl Thread {
    pub fn current() -> Thread {
        Thread { ident: sys::thread_ident(), native: sys::thread_id() }
    }
}

/// A thread that runs user code.
struct SlotThread {
    thread: Thread,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    /// The board word of the work that may be interrupted here.
    word: Option<u32>,
    told: Progress,
    /// The task that an event loop runs here. `stop()`, called from the main thread, has the loop cancel it; true: it
    /// holds the loop up. `wake()` ends a wait of the loop. `show(tell)`, from any thread, has the loop tell where it stands.
    waker: Option<Py<PyAny>>,
}

/// Progress of the interrupt of a piece of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Progress {
    #[default]
    No,
    Woken,
    /// An exception was sent to the thread, or was raised there.
    Sent,
    /// The exception was raised in the thread itself.
    Raised,
    /// The exception did not come out of the code that ran there, see [`SlotThreads::lost`]: another one follows.
    Lost,
}

thread_local! {
    static SLOT: OnceCell<Arc<SlotThread>> = const { OnceCell::new() };
}

/// The threads of one worker that have run user code.
#[derive(Default)]
pub struct SlotThreads {
    known: Mutex<Vec<Weak<SlotThread>>>,
    /// Number of times that the handler was to run, and how many of them it has done.
    expected: AtomicU32,
    handled: AtomicU32,
}

impl SlotThreads {
    fn with_mine<R>(&self, with: impl FnOnce(&SlotThread) -> R) -> R {
        SLOT.with(|slot| {
            with(slot.get_or_init(|| {
                let slot = Arc::new(SlotThread { thread: Thread::current(), running: Mutex::default() });
                let mut known = self.known.lock();
                known.retain(|slot| slot.strong_count() > 0);
                known.push(Arc::downgrade(&slot));
                slot
            }))
        })
    }

    fn all(&self) -> Vec<Arc<SlotThread>> {
        self.known.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Allows interrupts of this thread for the work with this word. False: the work is already to stop.
    pub fn enter(&self, board: &Board, at: u32) -> bool {
        self.with_mine(|slot| {
            let mut running = slot.running.lock();
            if running.word != Some(at) {
                *running = Running { word: Some(at), told: Progress::No, waker: running.waker.take() };
            }
        });
        // After it is known here: an interrupt that came before saw nothing to interrupt.
        board.get(at) != word::ABANDONED
    }

    /// No exception for its work comes in this thread any more: it is over, or the profile's own code has its turn. Gives
    /// the work's word, with which to enter again.
    pub fn leave(&self, py: Python<'_>) -> Option<u32> {
        self.with_mine(|slot| {
            let mut running = slot.running.lock();
            let (word, told) = (running.word, running.told);
            // The waker stays until it is taken back: a stream leaves and enters around each of its values.
            *running = Running { waker: running.waker.take(), ..Running::default() };
            drop(running);
            if told == Progress::Sent {
                slot.take_back(py);
            }
            word
        })
    }

    /// Whether this thread is inside a piece of work that may be interrupted.
    pub fn is_inside(&self) -> bool {
        self.with_mine(|slot| slot.running.lock().word.is_some())
    }

    /// Sets the callable that wakes this thread from a wait that no exception ends; none to remove it.
    pub fn set_waker(&self, waker: Option<Py<PyAny>>) {
        let before = self.with_mine(|slot| std::mem::replace(&mut slot.running.lock().waker, waker));
        drop(before);
    }

    /// Whether an event loop runs in one of the threads.
    pub fn has_loops(&self) -> bool {
        self.all().iter().any(|slot| slot.running.lock().waker.is_some())
    }

    /// Has each event loop call `tell(text)`, with where its task stands, at its next turn.
    pub fn show_tasks(&self, tell: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = tell.py();
        for slot in self.all() {
            let waker = slot.running.lock().waker.as_ref().map(|waker| waker.clone_ref(py));
            if let Some(waker) = waker {
                waker.call_method1(py, pyo3::intern!(py, "show"), (tell,))?;
            }
        }
        Ok(())
    }

    /// Raises `exception` in every thread whose work is to stop; true: in this thread too, by the caller. `is_safe(ident)`
    /// says whether an exception would come out of what that thread runs right now; if not, it is tried again soon.
    pub fn interrupt(&self, board: &Board, exception: &Bound<'_, PyAny>, is_safe: &Bound<'_, PyAny>) -> PyResult<bool> {
        let expected = self.expected.load(Ordering::Acquire);
        let here = SLOT.with(|slot| slot.get().map(Arc::as_ptr));
        let (mut hit, mut all_safe) = (false, true);
        for slot in self.all() {
            if !slot.is_held_up(exception.py(), board) {
                continue;
            }
            if !is_safe.call1((slot.thread.ident,))?.is_truthy()? {
                all_safe = false;
            } else if slot.is_here(here) {
                hit |= slot.begin_raise(board);
            } else {
                slot.raise(board, exception);
            }
        }
        if all_safe {
            self.handled.store(expected, Ordering::Release);
        }
        Ok(hit)
    }

    /// Notes that an exception raised in this thread came where the interpreter only prints exceptions: in a finalizer,
    /// say. Returns false if it was no interrupt of the work here.
    pub fn lost(&self) -> bool {
        self.with_mine(|slot| {
            let mut running = slot.running.lock();
            let was_told = matches!(running.told, Progress::Sent | Progress::Raised);
            if was_told {
                running.told = Progress::Lost;
            }
            was_told
        })
    }

    /// Called before the signal is sent.
    pub fn expect(&self) {
        self.expected.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether the signal is to be sent once more: it came just before the main thread went to wait in the kernel, where
    /// Python's handler does not run; or an event loop was told, and its work goes on.
    pub fn is_waiting(&self) -> bool {
        self.handled.load(Ordering::Acquire) != self.expected.load(Ordering::Acquire) || self.has_told(Progress::Woken)
    }

    /// Whether an exception was lost.
    pub fn has_lost(&self) -> bool {
        self.has_told(Progress::Lost)
    }

    fn has_told(&self, told: Progress) -> bool {
        self.all().iter().any(|slot| {
            let running = slot.running.lock();
            running.word.is_some() && running.told == told
        })
    }

    /// The threads that run something now, those whose work is to stop first.
    pub fn busy_threads(&self, board: &Board) -> Vec<Thread> {
        let busy = self.all().into_iter().filter_map(|slot| slot.running.lock().word.map(|at| (slot.thread, at)));
        let (mut first, rest): (Vec<_>, Vec<_>) = busy.partition(|(_, at)| board.get(*at) == word::ABANDONED);
        first.extend(rest);
        first.into_iter().map(|(thread, _)| thread).collect()
    }
}

impl SlotThread {
    fn is_here(&self, here: Option<*const SlotThread>) -> bool {
        here == Some(std::ptr::from_ref(self))
    }

    /// Whether code is to stop here by an exception now: it was not raised before, and where an event loop runs, that was
    /// told before and cannot do it.
    fn is_held_up(&self, py: Python<'_>, board: &Board) -> bool {
        let mut running = self.running.lock();
        if !running.is_to_stop(board) {
            return false;
        }
        let Some(waker) = running.waker.as_ref().map(|waker| waker.clone_ref(py)) else { return true };
        running.told = Progress::Woken;
        drop(running);
        let said = waker.call_method0(py, pyo3::intern!(py, "stop")).and_then(|said| said.is_truthy(py));
        said.unwrap_or_else(|error| {
            error.write_unraisable(py, None);
            false
        })
    }

    /// The lock was free meanwhile: the work may have ended.
    fn begin_raise(&self, board: &Board) -> bool {
        let mut running = self.running.lock();
        let is_to_stop = running.is_to_stop(board);
        if is_to_stop {
            running.told = Progress::Raised;
        }
        is_to_stop
    }

    /// Takes back an exception that was sent to this very thread and has not been raised yet.
    fn take_back(&self, py: Python<'_>) {
        if py.version_info() >= (3, 12) {
            // SAFETY: the exception is one of this thread.
            unsafe { ffi::PyThreadState_SetAsyncExc(self.thread.ident as _, std::ptr::null_mut()) };
            return;
        }
        // Where a trace function is set, older Pythons never come out of a call after that. The first thing that any
        // function does is to raise what was sent.
        static NOTHING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let nothing = NOTHING.get_or_try_init(py, || py.eval(c"lambda: None", None, None).map(Bound::unbind));
        // An exception that was raised is what this is for.
        let _ = nothing.and_then(|nothing| nothing.call0(py));
    }

    fn raise(&self, board: &Board, exception: &Bound<'_, PyAny>) {
        let py = exception.py();
        let mut running = self.running.lock();
        if !running.is_to_stop(board) {
            return;
        }
        running.told = Progress::Sent;
        // SAFETY: `exception` is a class; the thread is inside the work, as its lock is held.
        unsafe { ffi::PyThreadState_SetAsyncExc(self.thread.ident as _, exception.as_ptr()) };
        let waker = running.waker.as_ref().map(|waker| waker.clone_ref(py));
        drop(running);
        // Its task has gone to wait, perhaps, since it was found to hold the loop up.
        if let Some(Err(error)) = waker.map(|waker| waker.call_method0(py, pyo3::intern!(py, "wake"))) {
            error.write_unraisable(py, None);
        }
    }
}

impl Running {
    fn is_to_stop(&self, board: &Board) -> bool {
        !matches!(self.told, Progress::Sent | Progress::Raised)
            && self.word.is_some_and(|at| board.get(at) == word::ABANDONED)
    }
}
