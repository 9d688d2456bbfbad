//! The native thread of a worker: net (a) against orphans, and the end of waiting for results that wait for company.
//!
//! It needs neither Python nor the GIL. When the link or the dispatcher ends, it kills the worker's own process group.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clutch_core::link::{Flushed, Outbox};
use clutch_core::sys::{self, EndSignal};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};

/// Results never wait longer than this behind a call that turns out to be long.
const BEHIND: Duration = Duration::from_millis(1);

/// The writing half of the worker's link.
#[derive(Debug)]
pub struct Writer {
    socket: OwnedFd,
    pub outbox: Outbox,
    timer: OwnedFd,
    armed: AtomicBool,
}

impl Writer {
    pub fn new(socket: OwnedFd) -> io::Result<Writer> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        Ok(Writer { socket, outbox: Outbox::default(), timer, armed: AtomicBool::new(false) })
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Writes all that waits, also on a link that somebody has made non-blocking (event loops do).
    pub fn flush(&self) -> io::Result<()> {
        while self.outbox.flush(self.socket(), true)? == Flushed::Blocked {
            poll(&mut [PollFd::new(&self.socket, PollFlags::OUT)], None)?;
        }
        Ok(())
    }

    /// Lets the watcher write what waits if nobody else has done so soon.
    pub fn write_soon(&self) {
        if self.armed.swap(true, Ordering::AcqRel) {
            return;
        }
        let value = Itimerspec { it_interval: sys::timespec(Duration::ZERO), it_value: sys::timespec(BEHIND) };
        // Without the timer the next flush writes it.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &value);
    }

    fn on_timer(&self) {
        let _ = rustix::io::read(&self.timer, &mut [0u8; 8]);
        self.armed.store(false, Ordering::Release);
        if matches!(self.outbox.flush(self.socket(), false), Ok(Flushed::Blocked)) {
            self.write_soon();
        }
    }
}

/// Starts the thread. `dispatcher` is a pidfd of the dispatcher's process.
pub fn start(writer: Arc<Writer>, dispatcher: OwnedFd) -> io::Result<()> {
    let body = move || watch(&writer, &dispatcher);
    std::thread::Builder::new().name("clutch-watcher".to_owned()).stack_size(64 << 10).spawn(body)?;
    Ok(())
}

fn watch(writer: &Writer, dispatcher: &OwnedFd) {
    sys::block_signals();
    loop {
        let mut fds = [
            PollFd::new(&writer.socket, PollFlags::empty()),
            PollFd::new(dispatcher, PollFlags::IN),
            PollFd::new(&writer.timer, PollFlags::IN),
        ];
        if poll(&mut fds, None).is_err() {
            continue;
        }
        let [link, dispatcher, timer] = fds.map(|fd| fd.revents());
        if !link.is_empty() || !dispatcher.is_empty() {
            sys::end_group(rustix::process::getpid().as_raw_nonzero().get(), EndSignal::Kill);
        }
        if !timer.is_empty() {
            writer.on_timer();
        }
    }
}
