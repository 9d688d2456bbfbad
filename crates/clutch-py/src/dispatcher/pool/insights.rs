//! Converts a pool's insights for Python: how its workers' time was spent, and the slowest calls. The arguments of
//! these calls are decoded when they are asked for.

use clutch_pool::pool::{Insights, Slow};
use clutch_wire::code::read_code;
use clutch_wire::{Codec, Payload};
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::codec;
use crate::codec::BY_VALUE;

type Item<'py> = (String, f64, Option<codec::Arguments<'py>>);
/// Seconds of start, wait, run and CPU.
type Seconds = (f64, f64, f64, f64);
pub type Report<'py> = (u64, Seconds, Vec<Item<'py>>);

pub fn told<'py>(py: Python<'py>, insights: Insights) -> PyResult<Report<'py>> {
    let spent = insights.spent;
    let each = [spent.start, spent.wait, spent.run, spent.cpu].map(|spent| spent.as_secs_f64());
    let slowest = insights.slowest.into_iter().map(|(ns, slow)| {
        let arguments = match arguments(py, &slow) {
            // What the user's code raises when it is unpickled is its affair; ^C is not.
            Err(error) if error.is_instance_of::<PyKeyboardInterrupt>(py) => return Err(error),
            arguments => arguments.ok(),
        };
        Ok((slow.what, ns as f64 / 1e9, arguments))
    });
    Ok((insights.workers, each.into(), slowest.collect::<PyResult<_>>()?))
}

fn arguments<'py>(py: Python<'py>, slow: &Slow) -> PyResult<codec::Arguments<'py>> {
    let payload = slow.arguments.as_deref().ok_or_else(|| PyValueError::new_err("not kept"))?;
    match (payload.form.codec, slow.item) {
        (Codec::Code, item) => {
            let (_, arguments) = read_code(payload).ok_or_else(|| PyValueError::new_err("a payload that is cut"))?;
            match item {
                Some(item) => Ok((item_of(py, &arguments, item)?, None)),
                None => codec::decode_arguments(py, &arguments),
            }
        }
        (Codec::Pickle, Some(item)) => Ok((item_of(py, payload, item)?, None)),
        (Codec::Pickle, None) if slow.function == BY_VALUE => {
            let (_, arguments, keywords): (Bound<'py, PyAny>, Bound<'py, PyTuple>, Bound<'py, PyDict>) =
                codec::unpickle(py, payload)?.extract()?;
            Ok((arguments, Some(keywords)))
        }
        (Codec::Plain | Codec::Pickle, None) => codec::decode_arguments(py, payload),
        // What came over a network is not unpickled, nor shown.
        (codec, _) => Err(PyValueError::new_err(format!("{codec:?} is no arguments from Python"))),
    }
}

/// The arguments of one item of a batch, which is `(spread, items)`.
fn item_of<'py>(py: Python<'py>, payload: &Payload, item: u32) -> PyResult<Bound<'py, PyTuple>> {
    let parts = codec::unpickle(py, payload)?.cast_into::<PyTuple>()?;
    let item = parts.get_item(1)?.get_item(item)?;
    if parts.get_item(0)?.is_truthy()? { Ok(item.cast_into()?) } else { PyTuple::new(py, [item]) }
}
