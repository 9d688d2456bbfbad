//! The Python stacks of this worker as text, whatever it does.
//!
//! Python is asked first, by a thread that waits for the GIL. Where code keeps that, or there is none, faulthandler writes
//! them in a signal's handler, and needs neither the GIL nor a willing thread. What it takes for a frame may be anything,
//! where a thread enters or leaves a function right then: it runs apart, so that no worker dies of it.

use std::ffi::c_ulong;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use clutch_wire::sync::Mutex;
use clutch_wire::sys::{self, apart};
use pyo3::prelude::*;

use super::interrupt::{SlotThreads, Thread};

/// Maximum time to wait for the GIL. A thread that runs Python releases it after 5 ms.
const ASKED: Duration = Duration::from_millis(15);

/// Maximum time for one thread to write its stacks.
const WRITTEN: Duration = Duration::from_millis(500);

/// Maximum number of attempts while a thread writes nothing, and the time after each.
const TRIES: u32 = 10;
const TRIED: Duration = Duration::from_millis(1);

/// Longest text that is sent: it has to fit one message.
const TEXT_BYTES_MAX: usize = 30 << 10;

/// Most threads that are shown beside the main thread.
const THREADS_SHOWN: usize = 100;

/// Time that event loops have to tell where their tasks stand, once the threads have told. Short: the caller of work
/// past its deadline waits for both.
const TASKS_WAIT: Duration = Duration::from_millis(10);

/// File that faulthandler writes to, and the descriptor that tells its end.
#[derive(Debug)]
pub struct Stacks {
    file: OwnedFd,
    /// Signalled when faulthandler's handler has ended, in whatever way.
    written: OwnedFd,
    /// Signal whose handler shows only the thread that it runs in: the frames of another thread may change while it is
    /// read.
    signal: i32,
    /// Parts of the lines of frames that are not the user's code, but carry it.
    carriers: Vec<String>,
    /// Python's answer: `of_threads(idents)`. None without a GIL: what a thread runs may be freed while another one looks.
    of_threads: Option<Arc<Py<PyAny>>>,
    main: Thread,
    /// Whether a thread waits for the GIL.
    asking: Arc<AtomicBool>,
}

impl Stacks {
    /// Must be called in the main thread.
    pub fn new(signal: i32, carriers: Vec<String>, of_threads: Option<Py<PyAny>>) -> io::Result<Stacks> {
        let (file, written) = (sys::memory_file("clutch-stacks")?, sys::event_fd()?);
        let (of_threads, main, asking) = (of_threads.map(Arc::new), Thread::current(), Arc::default());
        Ok(Stacks { file, written, signal, carriers, of_threads, main, asking })
    }

    /// To be called when faulthandler is registered.
    pub fn run_apart(&self) -> io::Result<()> {
        apart::run_apart(self.signal, self.written.as_fd())
    }

    /// For `faulthandler.register`.
    pub fn file(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// Returns the stacks of the tasks that event loops run here, then those of the threads, the threads of `busy`
    /// first.
    pub fn take(&self, slots: &Arc<SlotThreads>, busy: &[Thread]) -> Vec<u8> {
        let others = busy.iter().copied().filter(|thread| *thread != self.main).take(THREADS_SHOWN);
        let threads: Vec<Thread> = others.chain([self.main]).collect();
        let told = self.ask(slots.clone(), threads.iter().map(|thread| thread.ident).collect());
        // An empty text, where Python must not look at threads: it is told at once.
        let by_python = told.as_ref().and_then(|told| told.recv_timeout(ASKED).ok());
        let tasks = by_python.as_ref().and(told.as_ref()).map(wait_told);
        let shown = by_python.filter(|_| self.of_threads.is_some()).unwrap_or_else(|| self.written_by(&threads));
        let mut parts = tasks.unwrap_or_default();
        parts.push(users_part(&shown, &self.carriers));
        parts.retain(|part| !part.is_empty());
        let mut text = parts.join("\n").into_bytes();
        text.truncate(TEXT_BYTES_MAX);
        text
    }

    /// Has Python tell the stacks of the threads, then those of the tasks of event loops. In a thread of its own, which may
    /// wait for the GIL: the watcher must not.
    fn ask(&self, slots: Arc<SlotThreads>, idents: Vec<c_ulong>) -> Option<Receiver<String>> {
        if self.asking.swap(true, Ordering::AcqRel) {
            return None;
        }
        let (tell, told) = channel();
        let (asking, of_threads) = (self.asking.clone(), self.of_threads.clone());
        let ask = move || {
            sys::block_signals();
            Python::try_attach(|py| {
                let told = tell_all(py, of_threads.as_deref(), idents, &slots, tell);
                told.unwrap_or_else(|error| error.write_unraisable(py, None));
                drop((of_threads, slots));
            });
            asking.store(false, Ordering::Release);
        };
        let spawned = std::thread::Builder::new().name("clutch-stacks".to_owned()).spawn(ask);
        if spawned.is_err() {
            self.asking.store(false, Ordering::Release);
        }
        spawned.ok().map(|_| told)
    }

    fn written_by(&self, threads: &[Thread]) -> String {
        threads.iter().for_each(|thread| self.signal(thread.native));
        let written = sys::take_file(self.file.as_fd(), TEXT_BYTES_MAX).unwrap_or_default();
        String::from_utf8_lossy(&written).into_owned()
    }

    /// Has one thread write. While the child of another one does, it writes nothing, and is asked again.
    fn signal(&self, thread: i32) {
        let written: BorrowedFd<'_> = self.written.as_fd();
        for _ in 0..TRIES {
            let before = self.written_bytes();
            sys::clear_event(written);
            sys::signal_thread(thread, self.signal);
            // A thread that the kernel holds does not write; what others wrote is sent.
            let heard = sys::wait_readable(written, Some(Instant::now() + WRITTEN));
            if !matches!(heard, Ok(true)) || self.written_bytes() > before {
                return;
            }
            std::thread::sleep(TRIED);
        }
    }

    fn written_bytes(&self) -> i64 {
        rustix::fs::fstat(&self.file).map_or(0, |stat| stat.st_size)
    }
}

/// Callable for an event loop, which passes it the stack of its task.
#[pyclass(frozen, module = "clutch._core")]
struct Tell(Mutex<Sender<String>>);

#[pymethods]
impl Tell {
    fn __call__(&self, text: String) {
        // Nobody waits any more.
        let _ = self.0.lock().send(text);
    }
}

fn tell_all(
    py: Python<'_>,
    of_threads: Option<&Py<PyAny>>,
    idents: Vec<c_ulong>,
    slots: &SlotThreads,
    tell: Sender<String>,
) -> PyResult<()> {
    let threads = of_threads.map(|of_threads| of_threads.call1(py, (idents,))?.extract(py)).transpose()?;
    // Nobody waits any more, if it cannot be sent.
    let _ = tell.send(threads.unwrap_or_default());
    if slots.has_loops() { slots.show_tasks(Bound::new(py, Tell(Mutex::new(tell)))?.as_any()) } else { Ok(()) }
}

/// Returns the texts of the loops: of all of them, or of those that told in time.
fn wait_told(told: &Receiver<String>) -> Vec<String> {
    let until = Instant::now() + TASKS_WAIT;
    let mut texts = Vec::new();
    while let Ok(text) = told.recv_timeout(until.saturating_duration_since(Instant::now())) {
        texts.push(text);
    }
    texts
}

/// The stacks of threads that run the user's code, without the frames below it.
fn users_part(text: &str, carriers: &[String]) -> String {
    let is_carrier = |line: &str| carriers.iter().any(|part| line.contains(part));
    let mut shown = String::new();
    let mut lines = text.lines().peekable();
    while let Some(head) = lines.next() {
        let mut frames = Vec::new();
        while let Some(frame) = lines.next_if(|line| line.starts_with("  ")) {
            frames.push(frame);
        }
        if let Some(first) = frames.iter().rposition(|frame| !is_carrier(frame)) {
            let users = [head].into_iter().chain(frames[..=first].iter().copied());
            shown.extend(users.flat_map(|line| [line, "\n"]));
        }
    }
    shown
}
