//! Shared by the dispatcher, its zygotes and its workers: frames, payloads, shared memory; and the calls of the kernel
//! that they stand on.
//!
//! The only crate with `unsafe` beside the bridge to Python. Knows neither pools nor fronts.

#[cfg(not(target_os = "linux"))]
compile_error!("Clutch runs on Linux only: it builds on pidfd, memfd, epoll and subreapers");

pub mod code;
mod codec;
pub mod collections;
pub mod descriptor;
mod failure;
pub mod forked;
pub mod frame;
pub mod headers;
mod payload;
pub mod region;
pub mod stdio;
pub mod sync;
pub mod sys;
pub mod terminal;
pub mod turns;

pub use codec::{Codec, FAREWELL, Form, WorkKind};
pub use failure::{Expired, Failure, Where};
pub use payload::Payload;
