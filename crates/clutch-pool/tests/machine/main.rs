//! The pool's pure machine and its waiting line.

mod fetching;
mod growth;
mod limits;
mod model;
mod own_work;
mod queue;
mod races;
