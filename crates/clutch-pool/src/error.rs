//! Errors of the machinery itself, addressed to whoever operates it. What befalls work is in `work.rs`.

use std::io;

use thiserror::Error;

#[derive(Debug, Error)]
pub enum Error {
    #[error("{what}: {source}")]
    Io { what: &'static str, source: io::Error },
    #[error("the link is broken: {0}")]
    Wire(#[from] clutch_wire::frame::WireError),
    #[error("config: {0}")]
    Config(String),
}

impl Error {
    pub fn io(what: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { what, source }
    }

    pub fn errno(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Error {
        move |errno| Error::Io { what, source: errno.into() }
    }
}

pub type Result<T> = std::result::Result<T, Error>;
