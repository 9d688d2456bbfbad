//! Batches of `map`: many items in one call. Each has its result on the link before the next one runs, so that a worker
//! that dies takes only the item along that it was running.

use clutch_core::link::word;
use clutch_core::work::{Codec, Payload};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::interrupted;
use super::outcome::{Trouble, describe, encode};
use super::prepare::Prepared;
use crate::context::in_copy;
use crate::types::is_coroutine;
use crate::worker::{Claim, WorkerLink};

/// Runs the items of a batch in this thread. An item that fails does not touch the others.
pub(super) fn run_batch(
    py: Python<'_>,
    link: &WorkerLink,
    slot: Option<&Bound<'_, PyAny>>,
    prepared: &Prepared,
    claim: Claim,
) -> Result<Payload, Trouble> {
    let is_abandoned = || link.board.get(claim.word) == word::ABANDONED;
    let function = prepared.function.bind(py);
    for item in prepared.arguments.bind(py).iter().skip(claim.skip as usize) {
        if is_abandoned() {
            // The item before has swallowed what was to end all.
            return Err(Trouble::Raised(interrupted(py)));
        }
        link.board.begin_item(claim.word);
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
    Ok(Payload::empty())
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
