//! All handlers, and which one runs which work.

use std::sync::Arc;

use clutch_wire::{Codec, Payload};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::asgi::Request;
use super::batch::Batch;
use super::connection::Connection;
use super::handler::{Function, Handler, Invocation, Prepared};
use super::http::Requests;
use super::job::Job;
use super::outcome::Trouble;
use super::tool::{ByValue, Tool};
use super::wsgi::StartResponse;
use crate::link::WorkerLink;
use crate::link::call_frame::{CallFrame, Claim};

/// The handler of a function, by the `kind` of its `handlers/call.py:Tool`.
pub fn handler_of_kind(kind: &str, tool: &Bound<'_, PyAny>) -> PyResult<Box<dyn Handler>> {
    Ok(match kind {
        "tool" => Box::new(Tool),
        "asgi" => Box::new(Requests::<Request>::new(tool)?),
        "wsgi" => Box::new(Requests::<StartResponse>::new(tool)?),
        "connection" => Box::new(Connection),
        unknown => Box::new(Unknown(unknown.to_owned())),
    })
}

/// Stands for the handler of a kind that has none: every call tells its name.
struct Unknown(String);

impl Handler for Unknown {
    fn prepare(
        &self,
        _link: &Bound<'_, WorkerLink>,
        _function: Option<&Function>,
        _frame: &mut CallFrame,
        _payload: &Payload,
    ) -> Result<Invocation, Trouble> {
        Err(PyValueError::new_err(format!("there is no handler for functions of the kind '{}'", self.0)).into())
    }
}

/// The handler of work that came in this form for this function.
pub fn handler(function: Option<&Function>, codec: Codec) -> &dyn Handler {
    match (codec, function) {
        (Codec::Batch, _) => &Batch,
        (Codec::Job, _) => &Job,
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
