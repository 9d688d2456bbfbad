//! The handler of requests for WSGI apps.

mod environ;
mod start_response;

use std::sync::Arc;

use clutch_wire::frame::flag;
use clutch_wire::{Failure, Payload};
use pyo3::prelude::*;

pub use self::start_response::StartResponse;
use super::handler::{Function, Handler, Invocation, Prepared};
use super::http::{App, raised};
use super::outcome::{Trouble, describe};
use crate::link::WorkerLink;
use crate::link::call_frame::CallFrame;

pub struct Wsgi {
    app: Arc<App>,
}

impl Wsgi {
    pub fn new(tool: &Bound<'_, PyAny>) -> PyResult<Wsgi> {
        Ok(Wsgi { app: Arc::new(App::of(tool)?) })
    }
}

impl Handler for Wsgi {
    fn prepare(
        &self,
        link: &Bound<'_, WorkerLink>,
        _function: Option<&Function>,
        frame: &mut CallFrame,
        payload: &Payload,
    ) -> Result<Invocation, Trouble> {
        let has_input = frame.flags & flag::HAS_INPUT != 0;
        let (request, arguments) = StartResponse::of(link, &self.app, frame.id, payload, has_input)?;
        let run = self.app.run.clone_ref(link.py());
        Ok(Invocation { state: Some(request.into_any()), ..Invocation::of(run, arguments.unbind()) })
    }

    fn take<'py>(&self, work: &Prepared, made: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        work.state::<StartResponse>(made.py())?.get().take(made.py(), made)
    }

    /// What the app has returned is taken, and what it gave is sent.
    fn encode(&self, _: &WorkerLink, _: &Prepared, _: &Bound<'_, PyAny>, _: bool) -> Result<Payload, Trouble> {
        Ok(Payload::empty())
    }

    fn send(&self, _: &WorkerLink, work: &Prepared, value: &Bound<'_, PyAny>) -> PyResult<()> {
        work.state::<StartResponse>(value.py())?.get().send(value)
    }

    fn end(&self, py: Python<'_>, work: &Prepared, made: Result<Payload, Trouble>) -> Result<Payload, Failure> {
        let request = work.state::<StartResponse>(py).map_err(|error| describe(py, Trouble::Raised(error)))?;
        let end = raised(made).and_then(|raised| request.get().end(py, raised.as_ref()));
        request.get().close(py);
        end
    }
}
