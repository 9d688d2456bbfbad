//! What requests, responses and WebSocket messages look like in a payload: between a front and the worker's side of it.

pub mod http;
pub mod websocket;
