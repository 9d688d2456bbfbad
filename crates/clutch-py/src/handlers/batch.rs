//! The handler of batches of `map`: many items in one call. Each has its result on the link before the next one runs, so
//! that a worker that dies takes only the item along that it was running.

use std::time::Instant;

use clutch_pool::slowest::Slowest;
use clutch_wire::sys;
use clutch_wire::{Codec, Payload};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use super::connections;
use super::handler::{Function, Handler, Invocation, Prepared};
use super::outcome::{Trouble, describe, encode_plain, unreadable};
use super::types::is_coroutine;
use crate::codec;
use crate::context::in_copy;
use crate::link::WorkerLink;
use crate::link::call_frame::CallFrame;

pub struct Batch;

impl Handler for Batch {
    fn prepare(
        &self,
        link: &Bound<'_, WorkerLink>,
        function: Option<&Function>,
        _frame: &mut CallFrame,
        payload: &Payload,
    ) -> Result<Invocation, Trouble> {
        let py = link.py();
        let function = function.ok_or_else(|| PyTypeError::new_err("a batch of a function that was never defined"))?;
        items_of(py, function, payload).map_err(|error| unreadable(py, error))
    }

    /// Runs all items. An item that fails does not touch the others. Gives what ran longest, as bytes.
    fn run<'py>(
        &self,
        link: &Bound<'py, WorkerLink>,
        work: &Prepared,
        slot: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyAny>, Trouble> {
        let (py, link) = (link.py(), link.get());
        let (word, skip) = (work.claim.word, work.claim.skip);
        let is_abandoned = || link.is_abandoned(word);
        let mut timed = Timed::default();
        for (at, item) in (0..).zip(work.invocation.arguments.bind(py)).skip(skip as usize) {
            // In this order: who abandons the batch and then counts what has begun, leaves out nothing that runs.
            link.board.begin_item(word);
            if is_abandoned() {
                // The item before has swallowed what was to end all.
                return Err(Trouble::interrupted(py));
            }
            timed.next(Some(at));
            let made = run_item(&work.invocation, &item, slot);
            // The items behind it are the worker's.
            link.leave_copy(py, made.as_ref().err())?;
            match made {
                Err(error) if is_abandoned() => return Err(Trouble::Raised(error)),
                made => put_item(py, link, work.claim.id, made)?,
            }
        }
        Ok(PyBytes::new(py, timed.end().body()).into_any())
    }

    fn encode(&self, _: &WorkerLink, _: &Prepared, value: &Bound<'_, PyAny>, _: bool) -> Result<Payload, Trouble> {
        let slowest = value.cast::<PyBytes>().map_err(PyErr::from)?;
        Ok(Payload::new(Codec::Bytes, slowest.as_bytes().to_vec()))
    }
}

/// A batch is `(spread, items)`.
fn items_of(py: Python<'_>, function: &Function, payload: &Payload) -> PyResult<Invocation> {
    let (spread, items): (bool, Bound<'_, PyList>) = codec::unpickle(py, payload)?.extract()?;
    let arguments = items.to_tuple().unbind();
    Ok(Invocation { spread, ..Invocation::of(function.function.clone_ref(py), arguments) })
}

fn run_item<'py>(
    invocation: &Invocation,
    item: &Bound<'py, PyAny>,
    slot: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = item.py();
    let function = invocation.function.bind(py);
    let call = || match invocation.spread {
        true => function.call1(item.cast::<PyTuple>()?),
        false => function.call1((item,)),
    };
    let made = in_copy(py, || connections::around(py, call));
    match (made, slot) {
        (Ok(made), Some(slot)) if is_coroutine(&made) => slot.call_method1("wait", (made,)),
        (made, _) => made,
    }
}

/// Shorter items are not timed: reading the clock costs a fifth of the shortest.
const SHORT_NS: u64 = 2_000;

/// After this many short items in a row, the following ones are assumed to be short.
const SHORT_ITEMS: u32 = 3;

/// Finds the items of a batch that ran longest. Short items are timed by a clock that costs nothing to read and ticks
/// every few milliseconds: it finds those that are much longer.
#[derive(Default)]
pub struct Timed {
    running: Option<(u32, Began)>,
    short_ones: u32,
    slowest: Slowest<u32>,
}

#[derive(Clone, Copy)]
enum Began {
    At(Instant),
    Tick(u64),
}

impl Timed {
    /// Called between two items.
    pub fn next(&mut self, item: Option<u32>) {
        let now = match self.running {
            Some((before, Began::At(began))) => {
                let now = Instant::now();
                self.ended(before, (now - began).as_nanos() as u64);
                Some(now)
            }
            Some((before, Began::Tick(began))) => {
                let tick = sys::coarse_ns();
                let ns = tick.saturating_sub(began);
                // One tick says nothing: it comes to the shortest, too.
                if ns <= sys::coarse_tick_ns() {
                    self.running = item.map(|item| (item, Began::Tick(tick)));
                    return;
                }
                self.ended(before, ns);
                None
            }
            None => None,
        };
        let began = match self.short_ones >= SHORT_ITEMS {
            true => Began::Tick(sys::coarse_ns()),
            false => Began::At(now.unwrap_or_else(Instant::now)),
        };
        self.running = item.map(|item| (item, began));
    }

    fn ended(&mut self, item: u32, ns: u64) {
        self.short_ones = if ns < SHORT_NS { self.short_ones + 1 } else { 0 };
        self.slowest.note(ns, item);
    }

    /// The report to the dispatcher at the end of the batch.
    pub fn end(&mut self) -> Payload {
        self.next(None);
        Payload::new(Codec::Bytes, self.slowest.to_bytes())
    }
}

/// Puts the result of an item on the link: its value, or what it raised.
pub fn put_item(py: Python<'_>, link: &WorkerLink, id: u64, made: PyResult<Bound<'_, PyAny>>) -> PyResult<()> {
    let end = match made {
        Ok(value) if link.sender.put_scalar_item(id, &value) => return Ok(()),
        Ok(value) => encode_plain(link, &value),
        Err(error) => Err(Trouble::Raised(error)),
    };
    Ok(link.sender.put_item(id, end.map_err(|trouble| describe(py, trouble)))?)
}
