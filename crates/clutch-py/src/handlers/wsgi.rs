//! Requests for WSGI apps.

mod environ;
pub mod held;
mod start_response;

pub use self::start_response::StartResponse;
