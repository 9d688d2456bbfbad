//! Connections that workers hold: a front passes the socket of a client to a worker, which answers plain requests on it by
//! itself, and gets it back for everything else.
//!
//! The front keeps a copy of the socket and of what it knows of the connection. A place in the [`Ledger`], a page that both
//! share, says who may read from it now; so a connection on which nothing runs can be taken from a worker whatever that does.
//! A channel of [messages](message), one to each worker, says the rest.
//!
//! A request that runs for long is adopted: from then on the pool knows it as if it had been dispatched.
//!
//! So does code that goes on behind a response (`behind`): its worker tells of it.
//!
//! `life` decides what becomes of a connection, `holder` is the front's end of one worker, `holders` that of all.

mod adopted;
mod adopting;
mod behind;
pub(crate) mod holder;
pub(crate) mod holders;
pub mod ledger;
pub(crate) mod life;
pub mod message;
pub(crate) mod news;
mod places;
pub mod sums;
pub(crate) mod terms;
mod words;

pub use self::ledger::Ledger;
