//! What the tests of fronts stand on: the stage of the pool's own tests, a client, and a house with a front.

#![allow(dead_code)] // each test file uses a part of it

#[path = "../../../clutch-pool/tests/pool/support.rs"]
mod stage;

pub mod client;
pub mod house;

pub use stage::*;

/// One for all tests of a file, as of one dispatcher.
pub fn runtime() -> tokio::runtime::Handle {
    static RUNTIME: std::sync::OnceLock<tokio::runtime::Runtime> = std::sync::OnceLock::new();
    RUNTIME.get_or_init(|| clutch_fronts::runtime().expect("a runtime")).handle().clone()
}
