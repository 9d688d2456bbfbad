//! Sockets that connections come in by, and what is the same for all connections.

pub(crate) mod accept;
pub(crate) mod access_control;
pub(crate) mod connection;
pub(crate) mod cors;
pub(crate) mod listen;
pub(crate) mod peer;
pub(crate) mod preamble;
pub(crate) mod protocol;
pub(crate) mod sessions;
pub(crate) mod stream;
pub(crate) mod thread;
pub(crate) mod tls;
pub(crate) mod tokens;
