//! The Python stacks of this worker as text, whatever it does: written by faulthandler in a signal's handler, so that
//! neither the GIL nor a willing thread is needed.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use clutch_core::sys;

/// How long one thread may take to write its stacks.
const WRITTEN: Duration = Duration::from_millis(500);

/// How often a thread that wrote nothing is asked again, and after how long.
const TRIES: u32 = 10;
const RESTORED: Duration = Duration::from_millis(1);

/// Longest text that is sent: it has to fit one message.
const TEXT_BYTES_MAX: usize = 30 << 10;

/// Most threads that are shown beside the main thread.
const THREADS_SHOWN: usize = 100;

/// Where faulthandler writes, and how its end is known.
#[derive(Debug)]
pub struct Stacks {
    file: OwnedFd,
    /// Signalled by the handler that faulthandler calls after itself.
    written: OwnedFd,
    /// Its handler shows the thread that it runs in: what another one runs may change while it is looked at.
    signal: i32,
}

impl Stacks {
    pub fn new(signal: i32) -> io::Result<Stacks> {
        let file = sys::memory_file("clutch-stacks")?;
        Ok(Stacks { file, written: sys::tell_of_signal(signal)?, signal })
    }

    /// For `faulthandler.register`.
    pub fn file(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// The stacks of `busy`, one after the other, then of the main thread.
    pub fn take(&self, busy: &[i32]) -> Vec<u8> {
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
