//! The writing side of the socket of a worker's link.

use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clutch_pool::link::journal::{Journal, Position};
use clutch_pool::link::{Flushed, Outbox};
use clutch_wire::forked::Tracked;
use clutch_wire::sys;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};

/// Results never wait longer than this behind a call that turns out to be long.
const BEHIND: Duration = Duration::from_millis(1);

/// The writing half of the worker's link.
#[derive(Debug)]
pub struct Writer {
    pub socket: Tracked,
    pub outbox: Outbox,
    /// A timer that wakes the watcher.
    pub timer: Tracked,
    armed: AtomicBool,
}

impl Writer {
    /// Makes a writer. Messages that are put here and not sent are found in the journal when this process has died.
    pub fn new(socket: OwnedFd, journal: Journal) -> io::Result<Writer> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let (socket, timer) = (Tracked::new(socket), Tracked::new(timer));
        Ok(Writer { socket, outbox: Outbox::with_journal(journal), timer, armed: AtomicBool::new(false) })
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Writes all that waits, also on a link that somebody has made non-blocking (event loops do).
    pub fn flush(&self) -> io::Result<()> {
        loop {
            match self.outbox.flush(self.socket(), true)? {
                Flushed::All => return Ok(()),
                Flushed::Short => std::thread::sleep(BEHIND),
                Flushed::Blocked => match poll(&mut [PollFd::new(&self.socket, PollFlags::OUT)], None) {
                    Err(rustix::io::Errno::INTR) => {}
                    polled => drop(polled?),
                },
            }
        }
    }

    /// Writes, or waits for the thread that does, until all is sent up to there.
    pub fn wait_sent(&self, end: Position) -> io::Result<()> {
        self.outbox.wait_sent(end, || self.flush())
    }

    /// Writes what waits as far as there is room; true: nothing is left.
    pub fn flush_some(&self) -> io::Result<bool> {
        Ok(self.outbox.flush(self.socket(), false)? == Flushed::All)
    }

    /// Has the watcher look around soon: it writes what waits if nobody else has done so, sends interrupts again, and begins to
    /// sweep.
    pub fn write_soon(&self) {
        if self.armed.swap(true, Ordering::AcqRel) {
            return;
        }
        let value = Itimerspec { it_interval: sys::timespec(Duration::ZERO), it_value: sys::timespec(BEHIND) };
        // Without the timer the next flush writes it.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &value);
    }

    /// Called when the timer has run out.
    pub fn on_timer(&self) {
        let _ = rustix::io::read(&self.timer, &mut [0u8; 8]);
        self.armed.store(false, Ordering::Release);
        self.write_now();
    }

    /// Writes waiting frames, and later those for which there is no room now.
    pub fn write_now(&self) {
        if matches!(self.flush_some(), Ok(false)) {
            self.write_soon();
        }
    }
}

/// Ends this worker: with a link that cannot be read it would hear of nothing any more.
pub fn link_broke(error: &dyn Display) -> ! {
    let _ = writeln!(io::stderr(), "clutch: the link of this worker broke: {error}");
    sys::exit_now(1)
}
