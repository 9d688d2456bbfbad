//! The Python stacks of this worker as text, whatever it does: written by faulthandler in a signal's handler, so that
//! neither the GIL nor a willing thread is needed.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use clutch_core::sys;

/// How long one thread may take to write its stacks.
const WRITTEN: Duration = Duration::from_millis(500);

/// Longest text that is sent: it has to fit one message.
const TEXT_BYTES_MAX: usize = 30 << 10;

/// Where faulthandler writes, and how its end is known.
#[derive(Debug)]
pub struct Stacks {
    file: OwnedFd,
    /// Signalled by the handler that faulthandler calls after itself.
    written: OwnedFd,
    signal: i32,
    /// The handler shows all threads. Without the GIL only its own can be shown safely.
    shows_all: bool,
}

impl Stacks {
    pub fn new(signal: i32, shows_all: bool) -> io::Result<Stacks> {
        let file = sys::memory_file("clutch-stacks")?;
        Ok(Stacks { file, written: sys::tell_of_signal(signal)?, signal, shows_all })
    }

    /// For `faulthandler.register`.
    pub fn file(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// The stacks of all threads, or one after the other of these (the main thread when there are none).
    pub fn take(&self, threads: &[i32]) -> Vec<u8> {
        let main = rustix::process::getpid().as_raw_nonzero().get();
        if self.shows_all || threads.is_empty() {
            self.signal(main);
        } else {
            threads.iter().for_each(|thread| self.signal(*thread));
        }
        sys::take_file(self.file.as_fd(), TEXT_BYTES_MAX).unwrap_or_default()
    }

    fn signal(&self, thread: i32) {
        let written: BorrowedFd<'_> = self.written.as_fd();
        sys::clear_event(written);
        sys::signal_thread(thread, self.signal);
        // A thread that the kernel holds does not write; what others wrote is sent.
        let _ = sys::wait_readable(written, Some(Instant::now() + WRITTEN));
    }
}
