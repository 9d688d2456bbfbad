//! Pools of Python workers: queue, link, supervisor and fronts. Knows nothing of Python itself.
//!
//! Read ARCHITECTURE.md for the map. The one door is [`pool::Pool::submit`].

#[cfg(not(target_os = "linux"))]
compile_error!("Clutch runs on Linux only: it builds on pidfd, memfd, epoll and subreapers");

use std::sync::atomic;

pub mod app;
pub mod config;
mod date;
pub mod descriptor;
pub mod error;
pub mod forked;
pub mod front;
mod handover;
pub mod items;
pub mod journal;
pub mod link;
pub mod load;
pub mod outbox;
pub mod pool;
pub mod region;
pub mod slowest;
pub mod stdio;
pub mod supervisor;
pub mod sync;
pub mod sys;
pub mod telemetry;
pub mod terminal;
pub mod wire;
pub mod work;
