//! The functions of this worker by their numbers.

use std::sync::{Arc, OnceLock};

use clutch_wire::Codec;
use clutch_wire::sync::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::by_value::LetGo;
use super::handler::Function;
use super::kinds::app_handler;
use crate::link::WorkerLink;

/// The definition of a function's number.
struct Definition {
    /// Missing before the first call of a function that came as its pickle.
    read: OnceLock<Arc<Function>>,
    /// `handlers/call.py:Definition`, which gives the tool when it is read; of a name, the tool.
    source: Py<PyAny>,
}

/// The functions that were defined, by their numbers.
pub struct Functions {
    /// `resolve(codec, body)` gives a `Tool` for a function's name, a `Definition` for its pickle.
    resolve: Py<PyAny>,
    defined: Mutex<Vec<Option<Arc<Definition>>>>,
    pub let_go: LetGo,
}

impl Functions {
    pub fn new(resolve: Py<PyAny>) -> Functions {
        Functions { resolve, defined: Mutex::default(), let_go: LetGo::default() }
    }

    /// Runs no user code, as [`crate::link::reader::OnDefine`] requires.
    pub fn define(&self, py: Python<'_>, number: u32, codec: Codec, body: &[u8]) -> PyResult<()> {
        if codec == Codec::Empty {
            return self.let_go.forget(py, body.first_chunk().map_or(0, |number| u64::from_le_bytes(*number)));
        }
        let source = self.resolve.bind(py).call1((codec as u8, PyBytes::new(py, body)))?;
        let read = match codec {
            Codec::Name => OnceLock::from(Arc::new(function_of(&source, true)?)),
            _ => OnceLock::new(),
        };
        let definition = Definition { read, source: source.unbind() };
        let at = number as usize;
        let mut defined = self.defined.lock();
        if defined.len() <= at {
            defined.resize_with(at + 1, || None);
        }
        defined[at] = Some(Arc::new(definition));
        Ok(())
    }

    /// The tool of a function's number; none if it is undefined or its definition was not read yet.
    pub fn known(&self, number: u32) -> Option<Arc<Function>> {
        self.defined.lock().get(number as usize)?.as_ref()?.read.get().cloned()
    }

    /// Tells whether its definition was read, or needs no reading.
    pub fn is_known(&self, number: u32) -> bool {
        self.definition(number).is_none_or(|definition| definition.read.get().is_some())
    }

    /// Returns the function of a call that has begun. Its definition is read if it was not before, which may run the
    /// user's code: `enter` makes that code interruptible. None: the function comes with the arguments.
    pub fn read(
        &self,
        py: Python<'_>,
        link: &WorkerLink,
        number: u32,
        enter: impl FnOnce() -> PyResult<()>,
    ) -> PyResult<Option<Arc<Function>>> {
        if let Some(known) = self.known(number) {
            return Ok(Some(known));
        }
        let Some(definition) = self.definition(number) else { return Ok(None) };
        enter()?;
        let tool = definition.source.bind(py).call_method0("read");
        link.leave_copy(py, tool.as_ref().err())?;
        let function = Arc::new(function_of(&tool?, false)?);
        Ok(Some(definition.read.get_or_init(|| function).clone()))
    }

    fn definition(&self, number: u32) -> Option<Arc<Definition>> {
        self.defined.lock().get(number as usize).cloned().flatten()
    }
}

fn function_of(tool: &Bound<'_, PyAny>, by_name: bool) -> PyResult<Function> {
    let protocol: Option<String> = tool.getattr("protocol")?.extract()?;
    Ok(Function {
        function: tool.getattr("function")?.unbind(),
        simple: tool.getattr("simple")?.extract()?,
        attempt_ms: tool.getattr("attempt_ms")?.extract()?,
        by_name,
        app: protocol.map(|protocol| app_handler(protocol, tool)).transpose()?,
        tool: tool.clone().unbind(),
    })
}
