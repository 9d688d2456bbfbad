//! Batches of `map`: many items in one call.

use std::time::{Duration, Instant};

use clutch_core::link::word;
use clutch_core::work::{Codec, Failure, Payload};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use super::interrupted;
use super::outcome::{Trouble, describe, encode_failure};
use super::prepare::Prepared;
use crate::codec::{self, Encoder};
use crate::context::in_copy;
use crate::types::is_coroutine;
use crate::worker::WorkerLink;

/// Runs the items of a batch in this thread. An item that fails does not touch the others.
pub(super) fn run_batch(
    py: Python<'_>,
    link: &WorkerLink,
    slot: Option<&Bound<'_, PyAny>>,
    prepared: &Prepared,
    at: u32,
    started: Instant,
) -> Result<Payload, Trouble> {
    let is_abandoned = || link.board.get(at) == word::ABANDONED;
    let function = prepared.function.bind(py);
    let values = PyList::empty(py);
    let mut failures: Vec<(usize, Failure)> = Vec::new();
    for (at, item) in prepared.arguments.bind(py).iter().enumerate() {
        if is_abandoned() {
            // The item before has swallowed what was to end all.
            return Err(Trouble::Raised(interrupted(py)));
        }
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
            Ok(value) => values.append(value)?,
            Err(error) if is_abandoned() => return Err(Trouble::Raised(error)),
            Err(error) => {
                values.append(py.None())?;
                failures.push((at, describe(py, link, Trouble::Raised(error))));
            }
        }
    }
    encode_batch(py, link, &values, failures, started.elapsed())
}

/// Batch payload: run time (u64, ns), count of failures (u32), each failure as index (u32), length (u32) and body, then
/// the pickled list of values. A large head, or a large pickle, lies in a region of its own.
pub(super) fn encode_batch(
    py: Python<'_>,
    link: &WorkerLink,
    values: &Bound<'_, PyList>,
    mut failures: Vec<(usize, Failure)>,
    run: Duration,
) -> Result<Payload, Trouble> {
    let pickled = match Encoder::new(&link.regions).pickled(values.as_any(), false) {
        Ok(encoded) => encoded.payload,
        Err(_) => {
            blank_unpicklable(py, link, values, &mut failures)?;
            Encoder::new(&link.regions).pickled(values.as_any(), false)?.payload
        }
    };
    let mut head = Vec::with_capacity(12);
    head.extend_from_slice(&(run.as_nanos() as u64).to_le_bytes());
    head.extend_from_slice(&(failures.len() as u32).to_le_bytes());
    for (at, failure) in failures {
        let body = clutch_core::wire::encode_failure(&failure);
        head.extend_from_slice(&(at as u32).to_le_bytes());
        head.extend_from_slice(&(body.len() as u32).to_le_bytes());
        head.extend_from_slice(&body);
    }
    head.extend_from_slice(&pickled.inline);
    let mut payload = codec::raw(&link.regions, Codec::Batch, &head).map_err(PyErr::from)?;
    payload.leases.extend(pickled.leases);
    Ok(payload)
}

/// Replaces the values that cannot be encoded by their failures.
fn blank_unpicklable(
    py: Python<'_>,
    link: &WorkerLink,
    values: &Bound<'_, PyList>,
    failures: &mut Vec<(usize, Failure)>,
) -> PyResult<()> {
    for (at, value) in values.iter().enumerate() {
        if let Err(error) = Encoder::new(&link.regions).pickled(&value, false) {
            failures.push((at, encode_failure(py, link, error)));
            values.set_item(at, py.None())?;
        }
    }
    Ok(())
}
