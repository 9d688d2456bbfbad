//! The ways in from the network: what they share, and how they start and stop.
//!
//! A front turns what arrives into `Work` and what comes of it into an answer; it decides nothing about workers. All of
//! them share the dispatcher's async runtime. Assumes that signals belong to another thread.

mod account;
mod admin;
pub mod app;
mod body;
pub mod codec;
pub mod config;
mod front;
mod fronts;
mod http;
mod names;
mod net;
mod plane;
mod serve;
mod tcp;

pub use admin::OperatorSocket;
pub use front::Reread;
pub use fronts::{Fronts, runtime};
pub use plane::pools::Pools;
pub use plane::{Figure, FigureValue, Host, Member, Plane};
