//! When a worker is replaced by policy. Each condition is one function of the worker and the time.

use std::time::{Duration, Instant};

use crate::config::PoolConfig;

/// The thresholds of one worker, drawn once when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recycling {
    pub at: Option<Instant>,
    pub calls: Option<u64>,
}

impl Recycling {
    /// `draw` in 0..1 lowers the age by up to the configured jitter; calls are a promise and are not jittered down
    /// when they are few.
    pub fn draw(config: &PoolConfig, born: Instant, draw: f64) -> Recycling {
        let factor = 1.0 - config.recycle_jitter.clamp(0.0, 1.0) * draw.clamp(0.0, 1.0);
        let age = config.recycle_age_ms.map(|ms| Duration::from_secs_f64(ms as f64 / 1000.0 * factor));
        let calls = config.recycle_calls.map(|calls| if calls < 100 { calls } else { (calls as f64 * factor) as u64 });
        Recycling { at: age.map(|age| born + age), calls }
    }

    /// Whether its age says that the worker is to be replaced.
    pub fn due(&self, now: Instant) -> bool {
        self.at.is_some_and(|at| at <= now)
    }
}
