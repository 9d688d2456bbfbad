//! All handlers, and which of them runs which work.

use std::sync::Arc;

use clutch_wire::{Codec, Payload, WorkKind};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::asgi::Request;
use super::batch::Batch;
use super::by_value::LetGo;
use super::connection::Connection;
use super::handler::{Function, Handler, Invocation, Prepared};
use super::http::Requests;
use super::job::Job;
use super::outcome::Trouble;
use super::tool::ToolCall;
use super::wsgi::StartResponse;
use crate::link::WorkerLink;
use crate::link::call_frame::{CallFrame, Claim};

/// The handler of each kind of work. A new one is a row here.
const HANDLERS: &[(WorkKind, &dyn Handler)] = &[
    // Requests have the handler of their app.
    (WorkKind::CALL, &ToolCall),
    (WorkKind::BATCH, &Batch),
    (WorkKind::CONNECTION, &Connection),
    (WorkKind::JOB, &Job),
];

/// The handler of an app's requests, by the `protocol` of its `handlers/call.py:Tool`.
pub fn app_handler(protocol: String, tool: &Bound<'_, PyAny>) -> PyResult<Box<dyn Handler>> {
    Ok(match &protocol[..] {
        "asgi" => Box::new(Requests::<Request>::new(tool)?),
        "wsgi" => Box::new(Requests::<StartResponse>::new(tool)?),
        _ => Box::new(Unknown(protocol)),
    })
}

/// The handlers by the numbers of their kinds.
static BY_NUMBER: [&dyn Handler; WorkKind::NUMBERS] = {
    let (mut table, mut at): ([&dyn Handler; WorkKind::NUMBERS], usize) = ([&Missing; WorkKind::NUMBERS], 0);
    while at < HANDLERS.len() {
        table[HANDLERS[at].0.number() as usize] = HANDLERS[at].1;
        at += 1;
    }
    table
};

/// Stands for the handler that a kind of work does not have here.
struct Missing;

impl Handler for Missing {
    fn prepare(
        &self,
        _link: &Bound<'_, WorkerLink>,
        _function: Option<&Function>,
        frame: &mut CallFrame,
        _payload: &Payload,
    ) -> Result<Invocation, Trouble> {
        let message = format!("this worker has no handler for work of the kind {}", frame.kind());
        Err(PyValueError::new_err(message).into())
    }
}

/// Stands for the handler of a protocol that has none: every request tells its name.
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

/// The handler of work of this kind for this function: an app takes nothing but what its own understands.
pub fn handler(function: Option<&Function>, kind: u8) -> &dyn Handler {
    match function.and_then(|function| function.app.as_deref()) {
        Some(app) => app,
        None => BY_NUMBER[usize::from(kind)],
    }
}

/// The handler of work that was prepared.
pub fn handler_of(work: &Prepared) -> &dyn Handler {
    handler(work.function.as_deref(), work.claim.kind())
}

/// Reads what is to be called out of a frame. `function` is what its number stands for.
pub fn prepare(
    link: &Bound<'_, WorkerLink>,
    let_go: &LetGo,
    function: Option<Arc<Function>>,
    frame: &mut CallFrame,
) -> Result<Prepared, Trouble> {
    let claim = Claim::of(frame);
    let payload = link.get().reader.payload(frame).map_err(Trouble::Failure)?;
    let (function, by_value, payload) = match function {
        None if payload.form.codec == Codec::Code => {
            let (by_value, arguments) = let_go.load(link.py(), &payload)?;
            // It is read as the arguments' own form.
            frame.form = arguments.form;
            (Some(by_value.function.clone()), Some(by_value), arguments)
        }
        function => (function, None, payload),
    };
    let invocation = handler(function.as_deref(), claim.kind()).prepare(link, function.as_deref(), frame, &payload)?;
    Ok(Prepared { claim, codec: frame.form.codec, function, by_value, invocation })
}
