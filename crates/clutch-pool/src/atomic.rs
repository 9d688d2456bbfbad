//! The atomics of links: a model of them replaces these in tests/handover_model.rs.

pub use std::sync::atomic::{AtomicU32, Ordering};
