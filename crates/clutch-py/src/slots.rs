//! The slots of a worker, as far as what they run may be stopped, looked at, and told that the worker is to end.
//!
//! The native thread of [`watcher`] hears the dispatcher, whatever Python does; what it needs of slots is here.

mod drain;
mod interrupt;
mod stacks;
mod watcher;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

use clutch_pool::link::board::{Board, word};
use clutch_wire::forked::Tracked;
use clutch_wire::sys;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use self::drain::Drain;
use self::interrupt::SlotThreads;
use self::stacks::Stacks;
use self::watcher::Alarm;
use crate::link::WorkerLink;
use crate::link::writer::Writer;

/// Among the real-time signals: the one that interrupts, those that show the stacks of all threads and of one.
const INTERRUPT_SIGNAL: i32 = 10;

/// The slots of one worker.
#[pyclass(frozen, module = "clutch._core")]
pub struct Slots {
    board: Arc<Board>,
    writer: Arc<Writer>,
    threads: Arc<SlotThreads>,
    stacks: Arc<OnceLock<Stacks>>,
    drain: Arc<Drain>,
    /// Word of the work that takes its first step in the main thread's event loop, and one; 0: none does.
    stepping: AtomicU64,
    main: ThreadId,
}

impl Slots {
    /// In the main thread. `alarm` is a socket; `dispatcher` a pidfd of its process: when that or the link ends, so does the
    /// worker.
    pub fn watch(link: &WorkerLink, alarm: OwnedFd, dispatcher: OwnedFd) -> PyResult<Slots> {
        let slots = Slots {
            board: link.board.clone(),
            writer: link.sender.writer.clone(),
            threads: Arc::default(),
            stacks: Arc::default(),
            drain: Arc::default(),
            stepping: AtomicU64::new(0),
            main: std::thread::current().id(),
        };
        let alarm = Alarm {
            socket: Tracked::new(alarm),
            threads: slots.threads.clone(),
            board: slots.board.clone(),
            stacks: slots.stacks.clone(),
            drain: slots.drain.clone(),
            terms: Tracked::new(sys::foreign_terms()?),
            interrupt_signal: Slots::interrupt_signal(),
        };
        watcher::start(slots.writer.clone(), Tracked::new(dispatcher), alarm, link.sender.regions.clone())?;
        Ok(slots)
    }

    /// From here on this thread may be interrupted for the work with this word. False: it is to stop already, and the thread
    /// has left it.
    pub fn try_enter(&self, py: Python<'_>, word: u32) -> bool {
        let is_wanted = self.threads.enter(&self.board, word);
        if !is_wanted {
            self.leave(py);
        }
        is_wanted
    }

    /// The first step of work on an event loop begins: it may be stopped. The loops of other threads are not interrupted.
    pub fn enter_step(&self, word: u32) {
        if std::thread::current().id() == self.main {
            self.stepping.store(u64::from(word) + 1, Ordering::Relaxed);
        }
    }

    pub fn leave_step(&self) {
        if std::thread::current().id() == self.main {
            self.stepping.store(0, Ordering::Relaxed);
        }
    }
}

#[pymethods]
impl Slots {
    /// The signal whose handler has to call [`Slots::interrupt`] in the main thread.
    #[staticmethod]
    fn interrupt_signal() -> i32 {
        sys::real_time_signal(INTERRUPT_SIGNAL)
    }

    /// The signal that has a process show its stacks.
    #[staticmethod]
    fn stacks_signal() -> i32 {
        sys::real_time_signal(sys::STACKS_SIGNAL)
    }

    /// Prepares to show stacks: `(signal, descriptor)` for `faulthandler.register(…, all_threads=False)`. Frames
    /// with one of `carriers` in their lines are left out where they lie below the user's. `of_threads(idents)` gives the
    /// text of these threads.
    fn show_stacks(&self, carriers: Vec<String>, of_threads: Option<Py<PyAny>>) -> PyResult<(i32, i32)> {
        let signal = Slots::stacks_signal();
        let stacks = Stacks::new(signal, carriers, of_threads)?;
        let file = stacks.file();
        let _ = self.stacks.set(stacks);
        Ok((signal, file))
    }

    /// To be called when faulthandler has been registered: what it looks at may make it crash.
    fn show_stacks_apart(&self) -> PyResult<()> {
        Ok(self.stacks.get().map_or(Ok(()), Stacks::run_apart)?)
    }

    /// Raises `exception` (a class) in the threads whose work is to stop, where `is_safe(ident)`. True: this thread is one
    /// of them.
    fn interrupt(&self, exception: &Bound<'_, PyAny>, is_safe: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.threads.interrupt(&self.board, exception, is_safe)
    }

    /// Said where an Interrupted is raised that nobody hears: whether it was for work of this thread. Then it comes again.
    fn interrupt_lost(&self) -> bool {
        let lost = self.threads.lost();
        if lost {
            self.writer.write_soon();
        }
        lost
    }

    /// To be called by the handler again soon: it could not do what it should now.
    fn interrupt_again(&self) {
        self.threads.expect();
        self.writer.write_soon();
    }

    /// Has `waker.stop()` called when this thread's work is interrupted, `waker.wake()` when that was sent an exception, and
    /// `waker.show(tell)` when somebody wants to see where it stands; None: no more.
    fn set_waker(&self, waker: Option<Py<PyAny>>) {
        self.threads.set_waker(waker);
    }

    /// Calls `function(word, *args)` while nothing interrupts this thread, `word` being that of its work. Raises Interrupted
    /// when that is to stop by then.
    #[pyo3(signature = (function, /, *args))]
    fn outside<'py>(&self, function: &Bound<'py, PyAny>, args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let py = function.py();
        let word = self.threads.leave(py);
        let own = PyTuple::new(py, [word])?;
        let made = function.call1(own.as_sequence().concat(args.as_sequence())?.to_tuple()?);
        word.map_or(Ok(()), |word| self.enter(py, word))?;
        made
    }

    /// From here on the work with this word may be interrupted in this thread. Raises Interrupted when it is to stop already.
    pub fn enter(&self, py: Python<'_>, word: u32) -> PyResult<()> {
        match self.try_enter(py, word) {
            true => Ok(()),
            false => Err(crate::errors::clutch_error(py, "Interrupted", "", &[])),
        }
    }

    /// Forbids interrupts of this thread until it enters again.
    pub fn leave(&self, py: Python<'_>) {
        self.threads.leave(py);
    }

    /// Whether this thread is inside work that may be interrupted: not while a stream waits, nor when it is closed.
    fn is_inside(&self) -> bool {
        self.threads.is_inside()
    }

    /// Whether work that takes its first step is to stop; true once.
    fn is_step_to_stop(&self) -> bool {
        let stepping = self.stepping.load(Ordering::Relaxed);
        let is_to_stop = stepping > 0 && self.board.get((stepping - 1) as u32) == word::ABANDONED;
        if is_to_stop {
            self.leave_step();
        }
        is_to_stop
    }

    /// Calls `listener()` once when this worker is to end, while its work goes on: for work that has no end of its own. In
    /// a thread of its own, whatever other threads do; in this one when that was told before.
    fn on_drain(&self, py: Python<'_>, listener: Py<PyAny>) {
        self.drain.listen(py, listener);
    }
}
