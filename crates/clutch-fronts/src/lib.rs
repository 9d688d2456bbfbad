//! The ways in from the network, and what they share.
//!
//! A front turns what arrives into `Work` and what comes of it into an answer; it decides nothing about workers. All of
//! them share the dispatcher's async runtime. Assumes that signals belong to another thread.

mod account;
mod admin;
pub mod app;
mod body;
pub mod codec;
pub mod config;
pub mod held;
mod http;
mod names;
mod net;
mod serve;
mod tcp;

pub use admin::OperatorSocket;

use clutch_host::FrontKind;

/// The kinds of fronts of this crate.
pub const KINDS: &[FrontKind] = &[
    FrontKind::of::<config::HttpConfig>("http"),
    FrontKind::of::<config::ServeConfig>("serve"),
    FrontKind::of::<config::TcpConfig>("tcp"),
    FrontKind::of::<config::AdminConfig>("admin"),
];
