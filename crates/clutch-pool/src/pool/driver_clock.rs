//! When the driver sleeps, and whether something has come that it would sleep beyond.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clutch_wire::frame::NO_DEADLINE;
use clutch_wire::sys;

/// The driver looks again after so long while work with deadlines comes: nothing that ends later has to wake it.
const STAY_AWAKE: Duration = Duration::from_millis(250);

/// See the file's head. Shared by all threads that submit.
pub(super) struct DriverClock {
    epoch: Instant,
    /// The same in nanoseconds of CLOCK_MONOTONIC, which workers read, too.
    epoch_ns: u64,
    /// When the driver wakes up by itself, in microseconds since `epoch`.
    wakes_us: AtomicU64,
    /// Work with a deadline has come since the driver last looked.
    deadlines_come: AtomicBool,
    /// The driver wants to know of work that waits for so long; `u64::MAX`: it does not.
    watch_us: AtomicU64,
}

impl DriverClock {
    pub(super) fn new() -> DriverClock {
        DriverClock {
            epoch: Instant::now(),
            epoch_ns: sys::monotonic_ns(),
            wakes_us: AtomicU64::new(0),
            deadlines_come: AtomicBool::new(false),
            watch_us: AtomicU64::new(u64::MAX),
        }
    }

    /// The pool's beginning.
    pub(super) fn epoch(&self) -> Instant {
        self.epoch
    }

    /// As workers are told it.
    pub(super) fn deadline_ns(&self, deadline: Option<Instant>) -> u64 {
        let since = deadline.map(|at| at.saturating_duration_since(self.epoch).as_nanos() as u64);
        since.map_or(NO_DEADLINE, |since| self.epoch_ns.saturating_add(since))
    }

    fn us(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.epoch).as_micros() as u64
    }

    /// Notes that something is due then. Returns whether the driver would sleep beyond it and is to be woken.
    pub(super) fn sleeps_beyond(&self, at: Instant) -> bool {
        self.deadlines_come.store(true, Ordering::Relaxed);
        let us = self.us(at);
        let beyond = us < self.wakes_us.load(Ordering::Acquire);
        if beyond {
            self.wakes_us.store(us, Ordering::Release);
        }
        beyond
    }

    // ---- the driver's

    pub(super) fn watch_waiting(&self, delay: Option<Duration>) {
        let us = delay.map_or(u64::MAX, |delay| delay.as_micros() as u64);
        self.watch_us.store(us, Ordering::Release);
    }

    pub(super) fn watch_delay(&self) -> Option<Duration> {
        Some(self.watch_us.load(Ordering::Acquire)).filter(|us| *us < u64::MAX).map(Duration::from_micros)
    }

    pub(super) fn wakes_now(&self) {
        self.wakes_us.store(0, Ordering::Release);
    }

    /// Until when the driver stays awake, as work with deadlines comes: each piece would wake it for nothing.
    pub(super) fn stays_awake(&self) -> Option<Instant> {
        self.deadlines_come.swap(false, Ordering::Relaxed).then(|| Instant::now() + STAY_AWAKE)
    }

    /// `until` none: until it is woken.
    pub(super) fn sleeps(&self, until: Option<Instant>) {
        self.wakes_us.store(until.map_or(u64::MAX, |at| self.us(at)), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_woken_once_for_what_it_would_sleep_beyond() {
        let (clock, step) = (DriverClock::new(), Duration::from_secs(1));
        let now = clock.epoch();
        assert!(!clock.sleeps_beyond(now + step), "it is awake");
        assert!(clock.stays_awake().is_some() && clock.stays_awake().is_none(), "since something came");
        clock.sleeps(Some(now + 3 * step));
        assert!(!clock.sleeps_beyond(now + 4 * step));
        assert!(clock.sleeps_beyond(now + 2 * step) && !clock.sleeps_beyond(now + 2 * step));
        clock.sleeps(None);
        assert!(clock.sleeps_beyond(now + 9 * step));
    }

    #[test]
    fn workers_are_told_instants_by_the_clock_that_they_read() {
        let clock = DriverClock::new();
        assert_eq!(clock.deadline_ns(None), NO_DEADLINE);
        let (one, other) = (clock.epoch() + Duration::from_secs(1), clock.epoch() + Duration::from_secs(3));
        assert_eq!(clock.deadline_ns(Some(other)) - clock.deadline_ns(Some(one)), 2_000_000_000);
    }
}
