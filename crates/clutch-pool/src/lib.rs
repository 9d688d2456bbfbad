//! Pools of workers: queue, link, supervisor, output, telemetry. Knows nothing of Python, nor of what work arrives by.
//!
//! Read ARCHITECTURE.md for the map. The one door is [`pool::Pool::submit`].

// Tests outside and inside share what names the crate.
#[cfg(test)]
extern crate self as clutch_pool;

mod atomic;
pub mod config;
pub mod date;
pub mod link;
pub mod output;
pub mod pool;
pub mod slowest;
pub mod supervisor;
pub mod telemetry;
pub mod work;
