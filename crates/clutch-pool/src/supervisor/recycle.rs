//! When a worker is replaced by policy. Each condition is one function of the worker and the time.
//!
//! Thresholds are drawn lower than what the options say, never higher. Calls and memory are promises beyond that: a
//! worker that has used up its calls, or whose private memory has reached `recycle.memory` itself, gets no more work.

use std::time::{Duration, Instant};

use super::leave::Leave;
use crate::config::PoolConfig;

/// The thresholds of one worker, drawn once when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recycling {
    pub at: Option<Instant>,
    pub calls: Option<u64>,
    /// Private memory in bytes.
    pub memory: Option<u64>,
}

impl Recycling {
    /// `draw` in 0..1 lowers age and memory by up to the configured jitter; calls are not lowered when they are few.
    pub fn draw(config: &PoolConfig, born: Instant, draw: f64) -> Recycling {
        let factor = factor(config, draw);
        let age = config.recycle_age_ms.map(|ms| Duration::from_secs_f64(ms as f64 / 1000.0 * factor));
        let calls = config.recycle_calls.map(|calls| if calls < 100 { calls } else { (calls as f64 * factor) as u64 });
        let memory = config.recycle_memory_bytes.map(|bytes| lowered(bytes, factor));
        Recycling { at: age.map(|age| born + age), calls, memory }
    }

    /// Why the worker is to be replaced, when its turn comes. Its calls are counted by the pool.
    pub fn due(&self, now: Instant, private: Option<u64>) -> Option<Leave> {
        let grown = self.memory.zip(private).is_some_and(|(most, private)| private >= most);
        let aged = self.at.is_some_and(|at| at <= now);
        if grown { Some(Leave::Memory) } else { aged.then_some(Leave::Age) }
    }
}

/// Private memory below which no worker of this pool is replaced, whatever was drawn for it.
pub fn memory_floor(config: &PoolConfig) -> Option<u64> {
    config.recycle_memory_bytes.map(|bytes| lowered(bytes, factor(config, 1.0)))
}

fn factor(config: &PoolConfig, draw: f64) -> f64 {
    1.0 - config.recycle_jitter.clamp(0.0, 1.0) * draw.clamp(0.0, 1.0)
}

fn lowered(bytes: u64, factor: f64) -> u64 {
    (bytes as f64 * factor) as u64
}
