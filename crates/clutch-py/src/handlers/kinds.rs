//! All handlers, and which one runs which work.

use std::sync::Arc;

use clutch_wire::Codec;
use pyo3::prelude::*;

use super::asgi::Asgi;
use super::batch::Batch;
use super::connection::Connection;
use super::handler::{Function, Handler, Prepared};
use super::outcome::Trouble;
use super::tool::{ByValue, Tool};
use super::wsgi::Wsgi;
use crate::link::WorkerLink;
use crate::link::call_frame::{CallFrame, Claim};

/// The handler of a function, by the `kind` of its `handlers/call.py:Tool`.
pub fn handler_of_kind(kind: &str, tool: &Bound<'_, PyAny>) -> PyResult<Box<dyn Handler>> {
    Ok(match kind {
        "asgi" => Box::new(Asgi::new(tool)?),
        "wsgi" => Box::new(Wsgi::new(tool)?),
        "connection" => Box::new(Connection),
        _ => Box::new(Tool),
    })
}

/// The handler of work that came in this form for this function.
pub fn handler(function: Option<&Function>, codec: Codec) -> &dyn Handler {
    match (codec, function) {
        (Codec::Batch, _) => &Batch,
        (_, Some(function)) => &*function.handler,
        (_, None) => &ByValue,
    }
}

/// The handler of work that was prepared.
pub fn handler_of(work: &Prepared) -> &dyn Handler {
    handler(work.function.as_deref(), work.codec)
}

/// Reads what is to be called out of a frame.
pub fn prepare(
    link: &Bound<'_, WorkerLink>,
    function: Option<Arc<Function>>,
    frame: &mut CallFrame,
) -> Result<Prepared, Trouble> {
    let (claim, codec) = (Claim::of(frame), frame.codec);
    let payload = link.get().reader.payload(frame).map_err(Trouble::Failure)?;
    let invocation = handler(function.as_deref(), codec).prepare(link, function.as_deref(), frame, &payload)?;
    Ok(Prepared { claim, codec, function, invocation })
}
