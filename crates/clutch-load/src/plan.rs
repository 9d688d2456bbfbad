//! Plan of a measurement.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Request, address, connections and duration of a measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub address: SocketAddr,
    pub protocol: Protocol,
    pub connections: usize,
    pub threads: usize,
    pub seconds: f64,
    /// Requests in all each second, whether earlier ones are answered or not. None: each connection sends its next
    /// request as soon as it has the answer to the last.
    pub per_second: Option<f64>,
}

/// Form of a request and of its answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Protocol {
    /// GET of this path with keep-alive; any answer with a length.
    Http { path: String },
    /// This text as a WebSocket message, which comes back as it went.
    WebSocket { path: String, message: String },
    /// These bytes, answered by those.
    Tcp { message: String, answer: String },
}
