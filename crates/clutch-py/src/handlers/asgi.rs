//! The handler of requests for ASGI apps, and of their WebSockets.

mod messages;
mod request;
mod scope;
mod websocket;

use std::sync::Arc;

use clutch_wire::frame::flag;
use clutch_wire::{Failure, Payload};
use pyo3::prelude::*;

use self::request::Request;
pub use self::scope::share_state;
use super::handler::{Eager, Function, Handler, Invocation, Prepared};
use super::http::{App, misuse, raised};
use super::outcome::{Trouble, describe};
use crate::link::WorkerLink;
use crate::link::call_frame::CallFrame;

pub struct Asgi {
    app: Arc<App>,
}

impl Asgi {
    pub fn new(tool: &Bound<'_, PyAny>) -> PyResult<Asgi> {
        Ok(Asgi { app: Arc::new(App::of(tool)?) })
    }
}

impl Handler for Asgi {
    fn prepare(
        &self,
        link: &Bound<'_, WorkerLink>,
        _function: Option<&Function>,
        frame: &mut CallFrame,
        payload: &Payload,
    ) -> Result<Invocation, Trouble> {
        let has_input = frame.flags & flag::HAS_INPUT != 0;
        let (request, arguments) = Request::of(link, &self.app, frame.id, payload, has_input)?;
        let arguments = arguments.into_pyobject(link.py())?.unbind();
        let run = self.app.run.clone_ref(link.py());
        Ok(Invocation { state: Some(request.into_any().unbind()), ..Invocation::of(run, arguments) })
    }

    /// The app sends its response itself.
    fn encode(&self, _: &WorkerLink, _: &Prepared, _: &Bound<'_, PyAny>, _: bool) -> Result<Payload, Trouble> {
        Ok(Payload::empty())
    }

    fn send(&self, _: &WorkerLink, _: &Prepared, _: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(misuse("an ASGI app sends its body itself"))
    }

    fn end(&self, py: Python<'_>, work: &Prepared, made: Result<Payload, Trouble>) -> Result<Payload, Failure> {
        let request = work.state::<Request>(py).map_err(|error| describe(py, Trouble::Raised(error)))?;
        let end = raised(made).and_then(|raised| request.get().end(py, raised.as_ref()));
        request.get().close(py);
        end
    }

    fn eager(&self) -> Option<&dyn Eager> {
        Some(self)
    }
}

impl Eager for Asgi {
    fn enter_first_step(&self, py: Python<'_>, work: &Prepared) -> PyResult<()> {
        work.state::<Request>(py)?.get().enter_first_step();
        Ok(())
    }

    fn leave_first_step(&self, py: Python<'_>, work: &Prepared) -> PyResult<()> {
        work.state::<Request>(py)?.get().leave_first_step()
    }
}
