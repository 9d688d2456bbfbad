//! What tests of stores need of the machine.

pub mod redis_server;
