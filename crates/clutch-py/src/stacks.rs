//! The Python stacks of this worker as text, whatever it does: written by faulthandler in a signal's handler, so that
//! neither the GIL nor a willing thread is needed.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use clutch_core::sys;
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::interrupt::Slots;

/// How long one thread may take to write its stacks.
const WRITTEN: Duration = Duration::from_millis(500);

/// How often a thread that wrote nothing is asked again, and after how long.
const TRIES: u32 = 10;
const RESTORED: Duration = Duration::from_millis(1);

/// Longest text that is sent: it has to fit one message.
const TEXT_BYTES_MAX: usize = 30 << 10;

/// Most threads that are shown beside the main thread.
const THREADS_SHOWN: usize = 100;

/// How long event loops have to tell where their tasks stand, once the threads have been shown. Short: the caller of work
/// past its deadline waits for both.
const TASKS_WAIT: Duration = Duration::from_millis(10);

/// Where faulthandler writes, and how its end is known.
#[derive(Debug)]
pub struct Stacks {
    file: OwnedFd,
    /// Signalled by the handler that faulthandler calls after itself.
    written: OwnedFd,
    /// Its handler shows the thread that it runs in: what another one runs may change while it is looked at.
    signal: i32,
    /// Parts of the lines of frames that are not the user's code, but carry it.
    carriers: Vec<String>,
    /// Somebody waits for the GIL, to ask the event loops.
    asking: Arc<AtomicBool>,
}

impl Stacks {
    pub fn new(signal: i32, carriers: Vec<String>) -> io::Result<Stacks> {
        let file = sys::memory_file("clutch-stacks")?;
        Ok(Stacks { file, written: sys::tell_of_signal(signal)?, signal, carriers, asking: Arc::default() })
    }

    /// For `faulthandler.register`.
    pub fn file(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// Where the tasks stand that event loops run here, then the stacks of the threads, those of `busy` first.
    pub fn take(&self, slots: &Arc<Slots>, busy: &[i32]) -> Vec<u8> {
        let asked = slots.has_loops().then(|| self.ask_loops(slots.clone())).flatten();
        let threads = self.of_threads(busy);
        let mut parts = asked.map_or_else(Vec::new, |told| wait_told(&told));
        parts.push(users_part(&String::from_utf8_lossy(&threads), &self.carriers));
        parts.retain(|part| !part.is_empty());
        let mut text = parts.join("\n").into_bytes();
        text.truncate(TEXT_BYTES_MAX);
        text
    }

    /// In a thread of its own, which may wait for the GIL: the watcher must not.
    fn ask_loops(&self, slots: Arc<Slots>) -> Option<Receiver<String>> {
        if self.asking.swap(true, Ordering::AcqRel) {
            return None;
        }
        let (tell, told) = channel();
        let asking = self.asking.clone();
        let ask = move || {
            sys::block_signals();
            Python::try_attach(|py| {
                let shown = Bound::new(py, Tell(Mutex::new(tell))).and_then(|tell| slots.show_tasks(tell.as_any()));
                if let Err(error) = shown {
                    error.write_unraisable(py, None);
                }
            });
            asking.store(false, Ordering::Release);
        };
        // Without it the threads are shown all the same.
        let spawned = std::thread::Builder::new().name("clutch-stacks".to_owned()).spawn(ask);
        if spawned.is_err() {
            self.asking.store(false, Ordering::Release);
        }
        spawned.ok().map(|_| told)
    }

    fn of_threads(&self, busy: &[i32]) -> Vec<u8> {
        let main = rustix::process::getpid().as_raw_nonzero().get();
        let others = busy.iter().copied().filter(|thread| *thread != main).take(THREADS_SHOWN);
        others.chain([main]).for_each(|thread| self.signal(thread));
        sys::take_file(self.file.as_fd(), TEXT_BYTES_MAX).unwrap_or_default()
    }

    /// Has one thread write. Faulthandler takes its own handler away for a moment after each time, while it calls ours:
    /// a signal that comes then writes nothing, and is sent again.
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
            std::thread::sleep(RESTORED);
        }
    }

    fn written_bytes(&self) -> i64 {
        rustix::fs::fstat(&self.file).map_or(0, |stat| stat.st_size)
    }
}

/// What an event loop calls with the stack of its task.
#[pyclass(frozen, module = "clutch._core")]
struct Tell(Mutex<Sender<String>>);

#[pymethods]
impl Tell {
    fn __call__(&self, text: String) {
        // Nobody waits any more.
        let _ = self.0.lock().send(text);
    }
}

/// What the loops have told: all of them, or those that came to it in time.
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
