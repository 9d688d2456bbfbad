//! Time limits of requests that have waited at a proxy, whose clock may be wrong.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clutch_host::Warnings;

/// See the file's head.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    has_told: AtomicBool,
}

impl Clocks {
    /// Returns what is left of `timeout`. Half of it at least: else a clock that is wrong would refuse every request.
    pub(super) fn left(&self, front: &str, timeout: Duration, waited: Duration, warnings: &Warnings) -> Duration {
        let most = timeout / 2;
        if waited > most && !self.has_told.swap(true, Ordering::Relaxed) {
            warnings.tell("X-Request-Start", || told_of_clocks(front, waited, most));
        }
        timeout - waited.min(most)
    }
}

fn told_of_clocks(front: &str, waited: Duration, most: Duration) -> String {
    format!(
        "X-Request-Start: a request came {:.1} s after its first proxy had it, by the proxy's clock; counted are {:.1} s, \
         half of fronts.{front}.timeout. Either requests wait there, or one of the clocks is wrong (told once)",
        waited.as_secs_f64(),
        most.as_secs_f64(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_wrong_spends_half_of_the_time_and_is_told_once() {
        let (clocks, warnings, timeout) = (Clocks::default(), Warnings::default(), Duration::from_secs(30));
        let left = |seconds| clocks.left("shop", timeout, Duration::from_secs(seconds), &warnings).as_secs();
        assert_eq!([0, 10, 15, 16, 3600].map(left), [30, 20, 15, 15, 15]);
        warnings.close();
        assert!(
            warnings
                .next()
                .is_some_and(|words| words.contains("came 16.0 s after") && words.contains("fronts.shop.timeout"))
        );
        assert_eq!(warnings.next(), None);
    }
}
