//! How long the dispatcher stood still: a timer on each of its event loops, which notes how late it fires.
//!
//! All other times begin when a loop reads what has come. What had to wait before, because the process was stopped, had no
//! CPU, or was swapped out, is in none of them.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use clutch_pool::telemetry::Durations;
use clutch_wire::sync::Mutex;
use tokio::runtime::Handle;

use crate::figures::{Figure, FigureValue};
use crate::plane::Member;
use crate::warnings::Warnings;

/// Interval of the timers: so much of a stall is not seen at most, and so often an idle dispatcher wakes for it.
const INTERVAL: Duration = Duration::from_millis(250);

/// Timers of a busy machine are late by less than this.
const LEAST: Duration = Duration::from_millis(50);

/// A stall that is longer is told.
const TOLD: Duration = Duration::from_secs(1);

/// Stalls of all event loops of a dispatcher; those of several at the same time are one.
pub struct Stalls {
    measured: Mutex<Measured>,
    warnings: Arc<Warnings>,
}

/// Stalls up to now.
#[derive(Debug, Default)]
struct Measured {
    durations: Durations,
    /// End of the last stall.
    until: Option<Instant>,
}

impl Measured {
    /// Counts a timer that was due then and fired now. Returns how long a stall was that is news.
    fn fired(&mut self, due: Instant, now: Instant) -> Option<Duration> {
        let late = now.saturating_duration_since(due);
        let is_known = self.until.is_some_and(|until| due < until);
        if late < LEAST || is_known {
            return None;
        }
        self.until = Some(now);
        self.durations.add(late.as_secs_f64());
        Some(late)
    }
}

impl Stalls {
    pub(crate) fn new(warnings: &Arc<Warnings>) -> Arc<Stalls> {
        Arc::new(Stalls { measured: Mutex::default(), warnings: warnings.clone() })
    }

    /// Watches an event loop for as long as somebody keeps this.
    pub fn watch(self: &Arc<Self>, event_loop: &Handle) {
        event_loop.spawn(tick(Arc::downgrade(self)));
    }

    fn fired(&self, due: Instant, now: Instant) {
        let stall = self.measured.lock().fired(due, now);
        if let Some(stall) = stall.filter(|stall| *stall > TOLD) {
            self.warnings.tell("stall", || {
                format!(
                    "the dispatcher stood still for {:.1} s: its process was stopped, had no CPU, or was swapped out; \
                     what came meanwhile has waited for as long, and is measured from now",
                    stall.as_secs_f64()
                )
            });
        }
    }
}

impl Member for Stalls {
    fn figures(&self) -> Vec<Figure> {
        vec![Figure {
            name: "dispatcher_stall_seconds",
            help: "How long the dispatcher stood still, each time that it did",
            labels: Vec::new(),
            value: FigureValue::Histogram((&self.measured.lock().durations).into()),
        }]
    }
}

async fn tick(stalls: Weak<Stalls>) {
    loop {
        let due = Instant::now() + INTERVAL;
        tokio::time::sleep_until(due.into()).await;
        let Some(stalls) = stalls.upgrade() else { return };
        stalls.fired(due, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn a_late_timer_is_a_stall() {
        let (mut measured, start) = (Measured::default(), Instant::now());
        assert_eq!(measured.fired(start, after(start, 49)), None);
        assert_eq!(measured.fired(after(start, 100), after(start, 2100)), Some(Duration::from_secs(2)));
        assert_eq!((measured.durations.count(), measured.durations.sum), (1, 2.0));
    }

    #[test]
    fn a_stall_of_several_loops_is_one() {
        let (mut measured, start) = (Measured::default(), Instant::now());
        assert!(measured.fired(start, after(start, 1000)).is_some());
        assert_eq!(measured.fired(after(start, 50), after(start, 1010)), None);
        assert!(measured.fired(after(start, 1050), after(start, 1200)).is_some());
        assert_eq!(measured.durations.count(), 2);
    }

    #[test]
    fn only_long_ones_are_told() {
        let (warnings, start) = (Arc::<Warnings>::default(), Instant::now());
        let stalls = Stalls::new(&warnings);
        stalls.fired(start, after(start, 1000));
        stalls.fired(after(start, 1000), after(start, 2500));
        warnings.close();
        let told: Vec<_> = std::iter::from_fn(|| warnings.next()).collect();
        assert!(matches!(&told[..], [one] if one.contains("stood still for 1.5 s")), "{told:?}");
        assert!(matches!(&stalls.figures()[0].value, FigureValue::Histogram(histogram) if histogram.sum == 2.5));
    }
}
