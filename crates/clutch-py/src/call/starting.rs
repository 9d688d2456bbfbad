//! Requests of an ASGI app, started on the running loop: the first step of each is taken at once.

use std::time::Instant;

use pyo3::prelude::*;

use super::Call;
use super::outcome::{Trouble, describe, end_of_request, outcome_of};
use super::prepare::{Prepared, prepare};
use crate::serve::{Served, Starter, Unstarted};
use crate::worker::{CallFrame, Claim, WorkerLink, flush_late};

/// A request on its way to its first step.
struct Starting<'py> {
    id: u64,
    frame: CallFrame,
    started: Instant,
    prepared: Result<(Prepared, Unstarted<'py>), Trouble>,
}

/// A request whose coroutine waits for something, with its task.
pub type Waiting<'py> = (Call, Bound<'py, PyAny>);

/// Starts requests of an ASGI app on the running loop: each takes its first step. Gives those that wait for something, with
/// their tasks. The answers of the others go with the caller's flush, or before it where the steps take long.
pub fn start_requests<'py>(
    link: &Bound<'py, WorkerLink>,
    starter: &Starter,
    frames: Vec<CallFrame>,
) -> PyResult<Vec<Waiting<'py>>> {
    let (py, this) = (link.py(), link.get());
    let starting = starter.making(py, || {
        let begun = frames.into_iter().filter(|frame| this.begin(py, &Claim::of(frame)));
        begun.map(|frame| Starting::new(link, starter, frame)).collect::<Vec<_>>()
    })?;
    let (mut waiting, mut written) = (Vec::new(), Instant::now());
    for one in starting {
        waiting.extend(one.step(link, starter)?);
        written = flush_late(link, written)?;
    }
    Ok(waiting)
}

impl<'py> Starting<'py> {
    fn new(link: &Bound<'py, WorkerLink>, starter: &Starter, mut frame: CallFrame) -> Starting<'py> {
        let started = Instant::now();
        let entry = link.get().known(frame.function);
        let prepared = prepare(link, entry.as_deref(), &mut frame).and_then(|prepared| {
            let coroutine = prepared.function.bind(link.py()).call1(prepared.arguments.bind(link.py()))?;
            let unstarted = starter.make(coroutine)?;
            Ok((prepared, unstarted))
        });
        Starting { id: frame.id, frame, started, prepared }
    }

    fn step(self, link: &Bound<'py, WorkerLink>, starter: &Starter) -> PyResult<Option<Waiting<'py>>> {
        let (py, this) = (link.py(), link.get());
        let Starting { id, frame, started, prepared } = self;
        let end = match prepared {
            Err(trouble) => Err(describe(py, this, trouble)),
            Ok((prepared, unstarted)) => {
                this.enter_step(frame.word);
                enter_first_step(&prepared);
                let stepped = starter.step(py, unstarted).and_then(|task| match is_done(&task)? {
                    true => outcome_of(&task).map(|()| None),
                    false => starter.keep(&task).map(|()| Some(task)),
                });
                this.leave_step();
                if !matches!(stepped, Ok(Some(_))) {
                    this.leave_copy(py, stepped.as_ref().err())?;
                }
                match stepped {
                    Ok(Some(task)) => {
                        leave_first_step(&prepared)?;
                        return Ok(Some((Call::begun(link.clone().unbind(), frame, started, prepared), task)));
                    }
                    ended => end_of_request(py, &prepared, ended.err().map(Trouble::Raised)),
                }
            }
        };
        this.close_stream(py, id);
        this.put_end(id, started, end)?;
        Ok(None)
    }
}

fn enter_first_step(prepared: &Prepared) {
    prepared.request.iter().filter_map(Served::asgi).for_each(|request| request.enter_first_step());
}

fn leave_first_step(prepared: &Prepared) -> PyResult<()> {
    prepared.request.iter().filter_map(Served::asgi).try_for_each(|request| request.leave_first_step())
}

fn is_done(task: &Bound<'_, PyAny>) -> PyResult<bool> {
    task.call_method0(pyo3::intern!(task.py(), "done"))?.is_truthy()
}
