//! Waiting for descriptors, and the clocks of the machine.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Waits until `fd` is readable or the deadline passes; false when it passed.
pub fn wait_readable(fd: BorrowedFd<'_>, deadline: Option<Instant>) -> io::Result<bool> {
    let timeout = deadline.map(|at| at.saturating_duration_since(Instant::now())).map(timespec);
    let mut polled = [PollFd::new(&fd, PollFlags::IN)];
    Ok(rustix::event::poll(&mut polled, timeout.as_ref())? > 0)
}

/// Returns which of these, by index, can be read from without waiting, be it their end.
pub fn readable_ones<'a>(fds: impl Iterator<Item = BorrowedFd<'a>>) -> Vec<usize> {
    let mut polled: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    // An error of the call itself: none is known to be.
    let _ = rustix::event::poll(&mut polled, Some(&timespec(Duration::ZERO)));
    let is_ready = |(at, polled): (usize, &PollFd<'_>)| (!polled.revents().is_empty()).then_some(at);
    polled.iter().enumerate().filter_map(is_ready).collect()
}

/// Waits until `fd` takes bytes, or never will, or the deadline passes; false when it passed.
pub fn wait_writable_until(fd: BorrowedFd<'_>, deadline: Instant) -> io::Result<bool> {
    let timeout = timespec(deadline.saturating_duration_since(Instant::now()));
    let mut polled = [PollFd::new(&fd, PollFlags::OUT)];
    Ok(rustix::event::poll(&mut polled, Some(&timeout))? > 0)
}

/// Waits until `fd` takes bytes, or never will.
pub fn wait_writable(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut polled = [PollFd::new(&fd, PollFlags::OUT)];
    match rustix::event::poll(&mut polled, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Tells whether nothing goes either way on a connection any more: the other end takes nothing that is sent.
pub fn is_hung_up(socket: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::new(&socket, PollFlags::empty())];
    rustix::event::poll(&mut polled, Some(&timespec(Duration::ZERO))).is_ok_and(|count| count > 0)
}

/// Nanoseconds of CLOCK_MONOTONIC, the same in all processes of this machine.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The same clock at the kernel's last tick, which is cheaper to read.
pub fn coarse_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Time of day at the kernel's last tick, which is cheaper to read: for what is told in seconds.
pub fn coarse_time() -> SystemTime {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    UNIX_EPOCH + Duration::new(now.tv_sec.max(0) as u64, now.tv_nsec as u32)
}

/// Time between two ticks.
pub fn coarse_tick_ns() -> u64 {
    static TICK: OnceLock<u64> = OnceLock::new();
    *TICK.get_or_init(|| {
        let tick = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
        tick.tv_sec as u64 * 1_000_000_000 + tick.tv_nsec as u64
    })
}

/// A duration as a timespec.
pub fn timespec(duration: Duration) -> rustix::event::Timespec {
    rustix::event::Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: duration.subsec_nanos() as _ }
}

/// Longest wait of a poller: before Linux 5.11 it is counted in milliseconds, in 31 bits.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Most tokens that one wait gives.
pub const TOKENS_MAX: usize = 64;

/// Bit of a token: the other end sends nothing more. What it has sent may be there still.
pub const ENDED: u64 = 1 << 63;

/// What a poller tells of a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interests {
    pub reads: bool,
    pub writes: bool,
}

impl Interests {
    pub const NONE: Interests = Interests { reads: false, writes: false };
    pub const READS: Interests = Interests { reads: true, writes: false };

    fn flags(self) -> EventFlags {
        let mut flags = EventFlags::ET;
        flags.set(EventFlags::IN | EventFlags::RDHUP, self.reads);
        flags.set(EventFlags::OUT, self.writes);
        flags
    }
}

/// An epoll instance with `u64` tokens.
#[derive(Debug)]
pub struct Poller(OwnedFd);

impl Poller {
    pub fn new() -> io::Result<Poller> {
        Ok(Poller(rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?))
    }

    pub fn add(&self, fd: BorrowedFd<'_>, token: u64, write: bool) -> io::Result<()> {
        use rustix::event::epoll::{EventData, add};
        let flags = EventFlags::IN | if write { EventFlags::OUT } else { EventFlags::empty() };
        Ok(add(&self.0, fd, EventData::new_u64(token), flags)?)
    }

    pub fn modify(&self, fd: BorrowedFd<'_>, token: u64, write: bool) -> io::Result<()> {
        use rustix::event::epoll::{EventData, modify};
        let flags = EventFlags::IN | if write { EventFlags::OUT } else { EventFlags::empty() };
        Ok(modify(&self.0, fd, EventData::new_u64(token), flags)?)
    }

    /// Tells once each time that something has come for `fd`, that it takes bytes, or either; from `before`, what it was to
    /// tell until now. A hang-up is told with anything. Who leaves something there calls [`Poller::tell_again`].
    pub fn change(&self, fd: BorrowedFd<'_>, token: u64, before: Interests, now: Interests) -> io::Result<()> {
        use rustix::event::epoll::{EventData, add, modify};
        let flags = now.flags();
        match (before == Interests::NONE, now == Interests::NONE) {
            _ if before == now => Ok(()),
            (_, true) => {
                self.remove(fd);
                Ok(())
            }
            (true, false) => Ok(add(&self.0, fd, EventData::new_u64(token), flags)?),
            (false, false) => Ok(modify(&self.0, fd, EventData::new_u64(token), flags)?),
        }
    }

    /// What is there already is told once more.
    pub fn tell_again(&self, fd: BorrowedFd<'_>, token: u64, now: Interests) -> io::Result<()> {
        use rustix::event::epoll::{EventData, modify};
        Ok(modify(&self.0, fd, EventData::new_u64(token), now.flags())?)
    }

    pub fn remove(&self, fd: BorrowedFd<'_>) {
        // Not being registered is what the caller wants.
        let _ = rustix::event::epoll::delete(&self.0, fd);
    }

    /// Tokens of what is ready, with [`ENDED`] where nothing more comes from one of [`Poller::change`]; none when the deadline
    /// passed, a signal came, or an hour is over.
    pub fn wait(&self, tokens: &mut Vec<u64>, deadline: Option<Instant>) -> io::Result<()> {
        let timeout = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        self.wait_for(tokens, timeout, TOKENS_MAX)
    }

    /// The same for a time, and for at most so many of them, up to [`TOKENS_MAX`]: the others are told the next time.
    pub fn wait_for(&self, tokens: &mut Vec<u64>, timeout: Option<Duration>, most: usize) -> io::Result<()> {
        tokens.clear();
        wait_events(self.as_fd(), timeout, most, |data, flags| {
            let is_ended = flags.contains(EventFlags::RDHUP);
            tokens.push(data | if is_ended { ENDED } else { 0 });
        })?;
        Ok(())
    }

    pub fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// For a runtime, which is entered: tells when the descriptor that `owner` keeps open is readable.
pub fn readable<T: AsFd + AsRawFd>(owner: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: the descriptor is open as long as its owner lives, which the result keeps, and is always the same one:
    // both traits are of types that own or borrow one descriptor.
    unsafe { AsyncFd::register_with_interest(owner, Interest::READABLE) }.map_err(io::Error::from)
}

/// What a descriptor of somebody else's epoll instance is ready for. An error or a hang-up is either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    pub fd: RawFd,
    pub reads: bool,
    pub writes: bool,
}

/// Waits on an epoll instance whose events bear the numbers of their descriptors (`epoll_data.fd`), and appends what is
/// ready, at most [`TOKENS_MAX`]. Returns whether a signal has ended the wait.
pub fn wait_ready(epoll: BorrowedFd<'_>, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<bool> {
    wait_events(epoll, timeout, TOKENS_MAX, |data, flags| {
        // The number is the first member of a union, beside the eight bytes of which nobody has set the others.
        let [a, b, c, d, ..] = data.to_ne_bytes();
        ready.push(Ready {
            fd: RawFd::from_ne_bytes([a, b, c, d]),
            reads: flags.intersects(EventFlags::OUT.complement()),
            writes: flags.intersects(EventFlags::IN.complement()),
        });
    })
}

/// Waits on an epoll instance, at most an hour and for at most so many events. Returns whether a signal has ended the wait.
fn wait_events(
    epoll: BorrowedFd<'_>,
    timeout: Option<Duration>,
    most: usize,
    mut tell: impl FnMut(u64, EventFlags),
) -> io::Result<bool> {
    use rustix::event::epoll::{Event, EventData, wait};
    let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; TOKENS_MAX];
    let timeout = timeout.map(|timeout| timespec(timeout.min(WAIT_MAX)));
    match wait(epoll, &mut events[..most.clamp(1, TOKENS_MAX)], timeout.as_ref()) {
        Ok(count) => events[..count].iter().for_each(|event| tell(event.data.u64(), event.flags)),
        Err(rustix::io::Errno::INTR) => return Ok(true),
        Err(errno) => return Err(errno.into()),
    }
    Ok(false)
}
