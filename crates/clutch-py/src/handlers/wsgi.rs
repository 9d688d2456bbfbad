//! Requests for WSGI apps.

mod environ;
mod start_response;

pub use self::start_response::StartResponse;
