//! Handlers of a worker, one for each kind of work: from a frame to the user's callable, and back to an answer.
//!
//! A new kind is a file here with its [`handler::Handler`], and a line in kinds.rs.

pub mod asgi;
mod batch;
mod by_value;
mod connection;
mod connections;
pub mod early;
mod functions;
pub mod http;
mod job;
mod tool;
pub mod wsgi;

pub mod handler;
pub mod held;
pub mod kinds;
pub mod names;
pub mod outcome;
pub mod output;
pub mod routes;
pub mod types;

pub use self::asgi::share_state;
pub use self::batch::{Timed, put_item};
pub use self::connection::Descriptor;
pub use self::functions::Functions;
pub use self::job::JobChannel;
pub use self::wsgi::StartResponse;
