//! The loops of a worker: calls are taken off its link and run in the threads of slots, or handed to an event loop.

mod eager;
mod sleep;
mod starter;

use pyo3::prelude::*;

use self::eager::{Waiting, start_eagerly};
pub use self::sleep::LoopSleep;
pub use self::starter::EagerStarter;
use crate::call::{Call, run};
use crate::handlers::kinds::handler;
use crate::link::reader::Next;
use crate::way;
use crate::worker::Worker;

/// The loop of one slot: runs calls in this thread until the worker is told to end. What a call makes that is no
/// plain value goes to `slot.finish(call, made)`; calls of tools that are not simple to `slot.special(call)`;
/// coroutines of a mapped batch to `slot.wait(coroutine)`.
#[pyfunction]
pub fn serve(worker: &Bound<'_, Worker>, slot: &Bound<'_, PyAny>) -> PyResult<()> {
    let link = worker.get().link.get();
    while let Some(next) = link.reader.next(worker.py())? {
        match next {
            Next::Call(frame) => run(worker, slot, frame)?,
            Next::Ready(ready) => ready.run(worker.py())?,
        }
    }
    link.flush(worker.py())
}

/// For an event loop: takes in what has come, without waiting. Whether more may come, `WorkerLink.is_draining` knows.
#[pyfunction]
pub fn poll(worker: &Bound<'_, Worker>) -> PyResult<Vec<Call>> {
    let frames = worker.get().link.get().reader.take_in(worker.py(), None)?;
    Ok(frames.into_iter().map(|frame| Call::new(worker.clone().unbind(), frame)).collect())
}

/// The same for the asyncio loop of `starter`, on which at most `room` pieces of eager work take their first steps. Gives
/// those that wait for something, with their tasks, and what has not begun.
#[pyfunction]
pub fn poll_eagerly<'py>(
    worker: &Bound<'py, Worker>,
    starter: &Bound<'py, EagerStarter>,
    room: usize,
) -> PyResult<(Vec<Waiting<'py>>, Vec<Call>)> {
    let py = worker.py();
    way::turn(py, || start_what_came(worker, starter, room), || worker.get().link.get().flush(py))
}

fn start_what_came<'py>(
    worker: &Bound<'py, Worker>,
    starter: &Bound<'py, EagerStarter>,
    room: usize,
) -> PyResult<(Vec<Waiting<'py>>, Vec<Call>)> {
    let (py, this) = (worker.py(), worker.get());
    let frames = this.link.get().reader.take_in(py, Some(starter.get().event_loop(py)))?;
    let (mut eager, mut later) = (Vec::new(), Vec::new());
    for frame in frames {
        let function = this.functions.known(frame.function);
        match handler(function.as_deref(), frame.kind()).eager() {
            Some(_) => eager.push((frame, function)),
            None => later.push(frame),
        }
    }
    later.extend(eager.split_off(room.min(eager.len())).into_iter().map(|(frame, _)| frame));
    let started = if eager.is_empty() { Vec::new() } else { start_eagerly(worker, starter.get(), eager)? };
    Ok((started, later.into_iter().map(|frame| Call::new(worker.clone().unbind(), frame)).collect()))
}
