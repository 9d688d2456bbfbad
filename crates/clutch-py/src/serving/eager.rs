//! Work that is started on the running loop as soon as it is read: its coroutine takes the first step at once.

use std::sync::Arc;
use std::time::Instant;

use clutch_wire::Payload;
use pyo3::prelude::*;

use super::starter::{EagerStarter, Unstarted};
use crate::call::Call;
use crate::handlers::handler::{Function, Prepared};
use crate::handlers::kinds::{handler_of, prepare};
use crate::handlers::outcome::{Trouble, describe, outcome_of};
use crate::link::call_frame::{CallFrame, Claim};
use crate::worker::Worker;

/// A piece of work on its way to its first step.
struct Starting<'py> {
    frame: CallFrame,
    started: Instant,
    prepared: Result<(Prepared, Unstarted<'py>), Trouble>,
}

/// A call whose coroutine waits for something, with its task.
pub type Waiting<'py> = (Call, Bound<'py, PyAny>);

/// Starts calls on the running loop: each takes its first step. Gives those that wait for something, with their tasks. The
/// answers of the others go with the caller's flush, or before it where the steps take long.
pub fn start_eagerly<'py>(
    worker: &Bound<'py, Worker>,
    starter: &EagerStarter,
    frames: Vec<(CallFrame, Option<Arc<Function>>)>,
) -> PyResult<Vec<Waiting<'py>>> {
    let (py, link) = (worker.py(), worker.get().link.get());
    let starting = starter.making(py, || {
        let begun = frames.into_iter().filter(|(frame, _)| link.begin(py, &Claim::of(frame)));
        begun.map(|(frame, function)| Starting::new(worker, starter, frame, function)).collect::<Vec<_>>()
    })?;
    let (mut waiting, mut written) = (Vec::new(), Instant::now());
    for one in starting {
        waiting.extend(one.step(worker, starter)?);
        written = link.flusher.flush_late(py, written)?;
    }
    Ok(waiting)
}

impl<'py> Starting<'py> {
    fn new(
        worker: &Bound<'py, Worker>,
        starter: &EagerStarter,
        mut frame: CallFrame,
        function: Option<Arc<Function>>,
    ) -> Starting<'py> {
        let (py, started) = (worker.py(), Instant::now());
        let prepared = prepare(worker.get().link.bind(py), &worker.get().functions.let_go, function, &mut frame)
            .and_then(|prepared| {
                let coroutine = prepared.invocation.function.bind(py).call1(prepared.invocation.arguments.bind(py))?;
                let unstarted = starter.make(coroutine)?;
                Ok((prepared, unstarted))
            });
        Starting { frame, started, prepared }
    }

    fn step(self, worker: &Bound<'py, Worker>, starter: &EagerStarter) -> PyResult<Option<Waiting<'py>>> {
        let (py, this) = (worker.py(), worker.get());
        let Starting { frame, started, prepared } = self;
        let end = match prepared {
            Err(trouble) => {
                this.link.get().streams.close(py, frame.id);
                Err(describe(py, trouble))
            }
            Ok((prepared, unstarted)) => {
                let handler = handler_of(&prepared);
                handler.eager().map_or(Ok(()), |eager| eager.enter_first_step(py, &prepared))?;
                let stepped = first_step(py, this, starter, frame.word, unstarted);
                if !matches!(stepped, Ok(Some(_))) {
                    this.link.get().leave_copy(py, stepped.as_ref().err())?;
                }
                match stepped {
                    Ok(Some(task)) => {
                        handler.eager().map_or(Ok(()), |eager| eager.leave_first_step(py, &prepared))?;
                        return Ok(Some((Call::begun(worker.clone().unbind(), frame, started, prepared), task)));
                    }
                    ended => handler.end(py, &prepared, ended.map(|_| Payload::empty()).map_err(Trouble::Raised)),
                }
            }
        };
        this.link.get().sender.put_end(frame.id, started, end)?;
        Ok(None)
    }
}

/// Takes the first step of a task. None: it is done. Raises what it has raised.
fn first_step<'py>(
    py: Python<'py>,
    worker: &Worker,
    starter: &EagerStarter,
    word: u32,
    unstarted: Unstarted<'py>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let slots = worker.slots.get();
    slots.enter_step(word);
    let stepped = starter.step(py, unstarted).and_then(|task| match is_done(&task)? {
        true => outcome_of(&task).map(|()| None),
        false => starter.keep(&task).map(|()| Some(task)),
    });
    slots.leave_step();
    stepped
}

fn is_done(task: &Bound<'_, PyAny>) -> PyResult<bool> {
    task.call_method0(pyo3::intern!(task.py(), "done"))?.is_truthy()
}
