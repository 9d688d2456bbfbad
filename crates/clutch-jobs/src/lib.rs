//! Durable work: jobs wait in a store, survive everything, and run in the pools.
//!
//! A [`store::Store`] keeps jobs. The [`runner`] of a pool claims what free slots can begin and settles what came of it;
//! its decisions are the pure machine [`fetcher`]. One runner of a store looks after all its jobs ([`maintenance`]), those
//! of lapsed [`leases`] too; each that has periodic jobs enqueues them when they are due ([`cron`]). Jobs may come after others
//! ([`flow`]). To a dispatcher all of this is a [`front`].

pub mod cron;
pub mod ends;
pub mod enqueuer;
pub mod facts;
pub mod fetcher;
pub mod flow;
pub mod front;
pub mod job;
pub mod leases;
pub mod maintenance;
mod random;
pub mod runner;
pub mod store;
pub mod stores;
