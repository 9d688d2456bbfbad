//! The pool's pure machine and its waiting line.

mod growth;
mod limits;
mod model;
mod queue;
mod races;
