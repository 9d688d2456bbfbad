//! Calls to the kernel about descriptors, shared memory and processes: the only files of this crate with `unsafe`.
//!
//! Everything here is a thin, safe door: shared mappings are exposed as atomics and copies.

pub mod apart;
mod end_signals;
mod fd;
mod memory;
mod poll;
mod process;

pub use self::end_signals::*;
pub use self::fd::*;
pub use self::memory::*;
pub use self::poll::*;
pub use self::process::*;
