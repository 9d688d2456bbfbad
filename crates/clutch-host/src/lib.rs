//! Long-lived parts of a dispatcher: how fronts start and stop, and what operators see of the process.
//!
//! A front is whatever brings work to the pools for as long as the dispatcher lives: a way in from the network, or what runs
//! the jobs of a store. This crate knows no kind of front. Each crate that has some lists them as [`FrontKind`]s; the
//! bridge puts the lists together and starts what is configured.

mod address;
pub mod body;
pub mod figures;
mod front;
mod fronts;
mod plane;
mod pools;
pub mod programs;
pub mod routes;
mod runtime;
mod stalls;
mod warnings;

pub use address::Address;
pub use figures::{Figure, FigureValue};
pub use front::{Context, Front, FrontKind, Reread, Result, Start, StopOrder};
pub use fronts::Fronts;
pub use plane::{ActError, Member, Plane, Program};
pub use pools::{NamedPool, Pools};
pub use stalls::Stalls;
pub use warnings::Warnings;
