//! Room for jobs that come: what the server has left of the memory that it may use, and which completed jobs go for it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use redis::Cmd;

use super::link::{Link, field};
use super::record::text;
use crate::job::Millis;
use crate::store::StoreError;

/// Above this part of `maxmemory` completed jobs are deleted early: the rest is room for jobs that come meanwhile, and for
/// what other programs keep there.
const USED_MAX: f64 = 0.75;

/// For so long they are kept in any case: whoever enqueued one may ask what became of it.
const KEPT_LEAST_MS: Millis = 60_000;

#[derive(Default)]
pub(super) struct Room {
    /// This user may not ask for it.
    is_forbidden: AtomicBool,
    /// How many of those that are deleted next have results, and stay: the next look begins behind them.
    passed_over: AtomicUsize,
}

impl Room {
    /// Adds to the arguments of a look which completed jobs go early: those that have ended before this time, from this
    /// place on. An empty time: none.
    pub fn add_to(&self, cmd: &mut Cmd, is_short: bool, now: Millis) {
        match is_short {
            true => cmd.arg(now - KEPT_LEAST_MS).arg(self.passed_over.load(Ordering::Relaxed)),
            false => cmd.arg("").arg(0),
        };
    }

    /// Behind so many the next look begins.
    pub fn looked(&self, passed_over: usize) {
        self.passed_over.store(passed_over, Ordering::Relaxed);
    }

    /// Whether little is left. Not known, and then said to be false, where the user may not ask.
    pub fn is_short(&self, link: &Link) -> bool {
        if self.is_forbidden.load(Ordering::Relaxed) {
            return false;
        }
        match link.query(redis::cmd("INFO").arg("memory")) {
            Ok(about) => text(about).is_some_and(|about| is_short(&about)),
            Err(error) => {
                self.is_forbidden.store(!matches!(error, StoreError::Unavailable { .. }), Ordering::Relaxed);
                false
            }
        }
    }
}

fn is_short(about: &str) -> bool {
    let bytes = |name| field(about, name).and_then(|bytes| bytes.parse::<f64>().ok()).unwrap_or(0.0);
    let most = bytes("maxmemory");
    most > 0.0 && bytes("used_memory") > most * USED_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_short_above_three_quarters_of_what_is_allowed() {
        let about =
            |used, most| format!("# Memory\r\nused_memory:{used}\r\nmaxmemory:{most}\r\nmaxmemory_human:1M\r\n");
        assert!(is_short(&about(76, 100)) && !is_short(&about(75, 100)));
        assert!(!is_short(&about(76, 0)), "without a limit there is none");
        assert!(!is_short(""), "it is not known");
    }
}
