//! Batches of `map`: many items in one call. Each has its result on the link before the next one runs, so that a worker
//! that dies takes only the item along that it was running.

use std::time::Instant;

use clutch_pool::link::board::word;
use clutch_pool::slowest::Slowest;
use clutch_wire::sys;
use clutch_wire::{Codec, Payload};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::interrupted;
use super::outcome::{Trouble, describe, encode};
use super::prepare::Prepared;
use crate::context::in_copy;
use crate::types::is_coroutine;
use crate::worker::{Claim, WorkerLink};

/// Runs the items of a batch in this thread. An item that fails does not touch the others. Returns what ran longest.
pub(super) fn run_batch(
    py: Python<'_>,
    link: &WorkerLink,
    slot: Option<&Bound<'_, PyAny>>,
    prepared: &Prepared,
    claim: Claim,
) -> Result<Payload, Trouble> {
    let is_abandoned = || link.board.get(claim.word) == word::ABANDONED;
    let function = prepared.function.bind(py);
    let mut timed = Timed::default();
    for (at, item) in (0..).zip(prepared.arguments.bind(py)).skip(claim.skip as usize) {
        // In this order: who abandons the batch and then counts what has begun, leaves out nothing that runs.
        link.board.begin_item(claim.word);
        if is_abandoned() {
            // The item before has swallowed what was to end all.
            return Err(Trouble::Raised(interrupted(py)));
        }
        timed.next(Some(at));
        let made = in_copy(py, || match prepared.spread {
            true => function.call1(item.cast::<PyTuple>()?),
            false => function.call1((&item,)),
        });
        let made = match (made, slot) {
            (Ok(made), Some(slot)) if is_coroutine(&made) => slot.call_method1("wait", (made,)),
            (made, _) => made,
        };
        // The items behind it are the worker's.
        link.leave_copy(py, made.as_ref().err())?;
        match made {
            Err(error) if is_abandoned() => return Err(Trouble::Raised(error)),
            made => put_item(py, link, claim.id, made)?,
        }
    }
    Ok(timed.end())
}

/// Items shorter than this are not worth the clock, which costs a fifth of the shortest.
const SHORT_NS: u64 = 2_000;

/// So many short ones in a row, and those behind them are taken for short.
const SHORT_ITEMS: u32 = 3;

/// Which items of a batch ran longest. Among short ones a clock is looked at that is read at no cost and ticks every few
/// milliseconds: it finds those that are much longer.
#[derive(Default)]
pub(super) struct Timed {
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
    /// The item before has ended, and this one begins.
    pub(super) fn next(&mut self, item: Option<u32>) {
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

    /// What the dispatcher is told with the end of the batch.
    pub(super) fn end(&mut self) -> Payload {
        self.next(None);
        Payload::new(Codec::Bytes, self.slowest.to_bytes())
    }
}

/// Puts the result of an item on the link: its value, or what it raised.
pub(super) fn put_item(py: Python<'_>, link: &WorkerLink, id: u64, made: PyResult<Bound<'_, PyAny>>) -> PyResult<()> {
    let end = match made {
        Ok(value) if link.put_scalar_item(id, &value) => return Ok(()),
        Ok(value) => encode(py, link, Codec::Plain, None, &value, false),
        Err(error) => Err(Trouble::Raised(error)),
    };
    Ok(link.put_item(id, end.map_err(|trouble| describe(py, link, trouble)))?)
}
