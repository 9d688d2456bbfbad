//! Requests for ASGI apps, and their WebSockets.

mod awaiting;
pub mod held;
mod late_heads;
mod line;
mod lines;
mod messages;
mod request;
pub mod scope;
mod websocket;

use pyo3::prelude::*;

pub use self::lines::PyLines;
pub use self::request::Request;
pub use self::scope::share_state;
use super::handler::{Eager, Prepared};
use super::http::Requests;

impl Eager for Requests<Request> {
    fn enter_first_step(&self, py: Python<'_>, work: &Prepared) -> PyResult<()> {
        work.state::<Request>(py)?.get().enter_first_step();
        Ok(())
    }

    fn leave_first_step(&self, py: Python<'_>, work: &Prepared) -> PyResult<()> {
        Request::leave_first_step(work.state::<Request>(py)?)
    }
}
