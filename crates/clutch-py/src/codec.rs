//! Python values to payloads and back.
//!
//! Scalars and tuples of them have a tagged form of their own ("plain"); everything else is pickle, protocol 5, with
//! large buffers beside it in shared memory. docs/wire.md describes both.

use std::io;
use std::sync::Arc;

use clutch_pool::link::is_large;
use clutch_wire::frame::WireError;
use clutch_wire::region::{Lease, RegionPool};
use clutch_wire::{Codec, Form, Payload};
use pyo3::exceptions::{PyException, PyMemoryError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMemoryView, PyString, PyTuple};

use crate::buffer::{BufferSink, LEASES_MAX, RegionView, bytes_of, new_bytearray, new_bytes};

/// The function number that means: the function comes with the arguments.
pub const BY_VALUE: u32 = 0;

/// Tuples nested deeper than this are pickled.
const DEPTH_MAX: usize = 8;

/// Larger values are pickled, except parts that go into regions: a pickle writes a repeated object once.
const PLAIN_BYTES_MAX: usize = 1 << 20;

/// Name in a pickle that refers to something in the program's main script; other pickles may contain it, too.
const MAIN: &[u8] = b"__main__";

mod tag {
    pub(super) const NONE: u8 = 0;
    pub(super) const TRUE: u8 = 1;
    pub(super) const FALSE: u8 = 2;
    pub(super) const INT: u8 = 3;
    pub(super) const FLOAT: u8 = 4;
    pub(super) const STR: u8 = 5;
    pub(super) const BYTES: u8 = 6;
    pub(super) const TUPLE: u8 = 7;
    pub(super) const BYTEARRAY: u8 = 8;
    pub(super) const MEMORYVIEW: u8 = 9;
    /// Added to STR, BYTES, BYTEARRAY, MEMORYVIEW: the content is the next region.
    pub(super) const IN_REGION: u8 = 32;
}

/// The modules and functions that encoding uses, looked up once.
struct Pickle {
    dumps: Py<PyAny>,
    loads: Py<PyAny>,
    cloud: Py<PyAny>,
}

fn pickle(py: Python<'_>) -> PyResult<&'static Pickle> {
    static PICKLE: PyOnceLock<Pickle> = PyOnceLock::new();
    PICKLE.get_or_try_init(py, || {
        let module = py.import("pickle")?;
        Ok(Pickle {
            dumps: module.getattr("dumps")?.unbind(),
            loads: module.getattr("loads")?.unbind(),
            cloud: py.import("clutch._pickle")?.getattr("dumps_by_value")?.unbind(),
        })
    })
}

/// Says that a value is not of the plain kind.
pub struct NotPlain;

impl From<WireError> for NotPlain {
    fn from(_: WireError) -> NotPlain {
        NotPlain
    }
}

/// Writes a small value of the commonest types as a plain one; the others are left to the [`Encoder`].
pub fn write_scalar(out: &mut Vec<u8>, value: &Bound<'_, PyAny>) -> Result<(), NotPlain> {
    if value.is_none() {
        out.push(tag::NONE);
    } else if let Ok(number) = value.cast_exact::<PyInt>() {
        let number: i64 = number.extract().map_err(|_| NotPlain)?;
        out.push(tag::INT);
        out.extend_from_slice(&number.to_le_bytes());
    } else if let Ok(number) = value.cast_exact::<PyFloat>() {
        out.push(tag::FLOAT);
        out.extend_from_slice(&number.value().to_le_bytes());
    } else if let Ok(truth) = value.cast_exact::<PyBool>() {
        out.push(if truth.is_true() { tag::TRUE } else { tag::FALSE });
    } else {
        return Err(NotPlain);
    }
    Ok(())
}

/// An encoding in progress.
pub struct Encoder<'a> {
    regions: &'a Arc<RegionPool>,
    out: Vec<u8>,
    leases: Vec<Arc<Lease>>,
}

/// An encoded payload, and whether it holds code by value.
pub struct Encoded {
    pub payload: Payload,
    pub by_value: bool,
    /// The name of the function in it, if there is one.
    pub function: Option<Box<str>>,
}

impl<'a> Encoder<'a> {
    pub fn new(regions: &'a Arc<RegionPool>) -> Encoder<'a> {
        Encoder { regions, out: Vec::with_capacity(64), leases: Vec::new() }
    }

    /// Encodes one value.
    pub fn value(mut self, value: &Bound<'_, PyAny>) -> PyResult<Encoded> {
        match self.plain(value, 0) {
            Ok(()) => self.finish_plain(),
            Err(NotPlain) => self.pickled(value, false),
        }
    }

    /// The arguments of a call.
    pub fn arguments(
        mut self,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
        is_unnamed: bool,
    ) -> PyResult<Encoded> {
        match self.plain_arguments(args, kwargs) {
            Ok(()) => self.finish_plain(),
            Err(NotPlain) => {
                let py = args.py();
                let kwargs = kwargs.map_or_else(|| PyDict::new(py), Bound::clone);
                let both = PyTuple::new(py, [args.as_any(), kwargs.as_any()])?;
                self.pickled(both.as_any(), is_unnamed)
            }
        }
    }

    /// Any value: by plain pickle where that is enough, with its code by value otherwise. `is_unnamed`: the `__main__` of this
    /// program is no file, and workers find nothing there.
    pub fn pickled(self, value: &Bound<'_, PyAny>, is_unnamed: bool) -> PyResult<Encoded> {
        let pickled = Pickled::of(value, is_unnamed)?;
        let payload = pickled.store(|bytes| self.regions.store(bytes))?;
        Ok(Encoded { payload, by_value: pickled.has_code, function: None })
    }

    /// Returns the encoded value. If it is too large for a frame, as many small values may be, it goes into a region of
    /// its own, before those of its parts.
    fn finish_plain(mut self) -> PyResult<Encoded> {
        if is_large(self.out.len()) {
            self.leases.insert(0, Arc::new(self.regions.store(&self.out)?));
            self.out = Vec::new();
        }
        let payload = Payload { leases: self.leases, ..Payload::new(Codec::Plain, self.out) };
        Ok(Encoded { payload, by_value: false, function: None })
    }

    fn plain_arguments(
        &mut self,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> Result<(), NotPlain> {
        self.plain_tuple(args, 0)?;
        let count = kwargs.map_or(0, |kwargs| kwargs.len());
        self.out.extend_from_slice(&(count as u32).to_le_bytes());
        if let Some(kwargs) = kwargs {
            for (key, value) in kwargs.iter() {
                self.plain(&key, 0)?;
                self.plain(&value, 0)?;
            }
        }
        Ok(())
    }

    fn plain_tuple(&mut self, tuple: &Bound<'_, PyTuple>, depth: usize) -> Result<(), NotPlain> {
        if depth > DEPTH_MAX {
            return Err(NotPlain);
        }
        self.out.push(tag::TUPLE);
        self.out.extend_from_slice(&(tuple.len() as u32).to_le_bytes());
        tuple.iter_borrowed().try_for_each(|item| self.plain(&item, depth + 1))
    }

    fn plain(&mut self, value: &Bound<'_, PyAny>, depth: usize) -> Result<(), NotPlain> {
        if self.out.len() > PLAIN_BYTES_MAX {
            return Err(NotPlain);
        }
        if let Ok(text) = value.cast_exact::<PyString>() {
            let text = text.to_str().map_err(|_| NotPlain)?;
            return self.bytes(tag::STR, text.as_bytes());
        }
        if let Ok(bytes) = value.cast_exact::<PyBytes>() {
            self.bytes(tag::BYTES, bytes.as_bytes())
        } else if let Ok(tuple) = value.cast_exact::<PyTuple>() {
            self.plain_tuple(tuple, depth)
        } else if value.is_exact_instance_of::<PyByteArray>() {
            bytes_of(value, |bytes| self.bytes(tag::BYTEARRAY, bytes)).map_err(|_| NotPlain)?
        } else if depth <= 1 && is_view_of_bytes(value) {
            bytes_of(value, |bytes| self.bytes(tag::MEMORYVIEW, bytes)).map_err(|_| NotPlain)?
        } else {
            write_scalar(&mut self.out, value)
        }
    }

    fn bytes(&mut self, tag: u8, bytes: &[u8]) -> Result<(), NotPlain> {
        if is_large(bytes.len()) && self.leases.len() < LEASES_MAX {
            self.out.push(tag + tag::IN_REGION);
            self.leases.push(Arc::new(self.regions.store(bytes).map_err(|_| NotPlain)?));
            return Ok(());
        }
        if bytes.len() + self.out.len() > PLAIN_BYTES_MAX {
            return Err(NotPlain);
        }
        self.out.push(tag);
        self.out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.out.extend_from_slice(bytes);
        Ok(())
    }
}

/// A pickle, its buffers where they were.
pub struct Pickled<'py> {
    body: Bound<'py, PyBytes>,
    buffers: Vec<Bound<'py, PyAny>>,
    /// True if it holds code by value.
    pub has_code: bool,
}

impl<'py> Pickled<'py> {
    /// As [`Encoder::pickled`].
    pub fn of(value: &Bound<'py, PyAny>, is_unnamed: bool) -> PyResult<Pickled<'py>> {
        let py = value.py();
        let pickle = pickle(py)?;
        let sink = Bound::new(py, BufferSink::default())?;
        let kwargs = PyDict::new(py);
        kwargs.set_item(pyo3::intern!(py, "buffer_callback"), &sink)?;
        let (body, has_code): (Bound<'py, PyBytes>, bool) = match pickle.dumps.bind(py).call((value, 5), Some(&kwargs))
        {
            Ok(body) if !is_unnamed || !body.contains(PyBytes::new(py, MAIN))? => (body.cast_into()?, false),
            Err(error) if !error.is_instance_of::<PyException>(py) => return Err(error),
            _ => {
                sink.get().clear();
                let kwargs = PyDict::new(py);
                kwargs.set_item(pyo3::intern!(py, "classes_by_name"), !is_unnamed)?;
                pickle.cloud.bind(py).call((value, &sink), Some(&kwargs))?.extract()?
            }
        };
        let buffers = sink.get().take().into_iter().map(|buffer| buffer.into_bound(py)).collect();
        Ok(Pickled { body, buffers, has_code })
    }

    /// Tells whether something of it lies beside the frame.
    pub fn is_large(&self) -> bool {
        is_large(self.body.as_bytes().len()) || !self.buffers.is_empty()
    }

    /// Returns it as a payload, whose large parts `store` has put away.
    pub fn store(&self, store: impl Fn(&[u8]) -> io::Result<Lease>) -> PyResult<Payload> {
        let body = self.body.as_bytes();
        let (inline, first) = match is_large(body.len()) {
            true => (Vec::new(), Some(Arc::new(store(body)?))),
            false => (body.to_vec(), None),
        };
        let mut leases = Vec::from_iter(first);
        for buffer in &self.buffers {
            leases.push(Arc::new(bytes_of(buffer, &store)??));
        }
        Ok(Payload { leases, ..Payload::new(Codec::Pickle, inline) })
    }

    /// Tells whether these are the bytes that were stored as `payload`.
    pub fn is_stored_as(&self, payload: &Payload) -> PyResult<bool> {
        let parts = payload.leases.iter().map(|lease| lease.bytes());
        let mut parts = Some(&payload.inline[..]).filter(|inline| !inline.is_empty()).into_iter().chain(parts);
        let mut is_next = |bytes: &[u8]| parts.next().is_some_and(|part| part == bytes);
        if !is_next(self.body.as_bytes()) {
            return Ok(false);
        }
        for buffer in &self.buffers {
            if !bytes_of(buffer, &mut is_next)? {
                return Ok(false);
            }
        }
        Ok(parts.next().is_none())
    }
}

/// Other views keep the kind of their items and their shape in the pickle.
fn is_view_of_bytes(value: &Bound<'_, PyAny>) -> bool {
    let is = |name: &str, wanted: Bound<'_, PyAny>| -> PyResult<bool> { value.getattr(name)?.eq(wanted) };
    let py = value.py();
    value.is_exact_instance_of::<PyMemoryView>()
        && is("format", PyString::new(py, "B").into_any()).unwrap_or(false)
        && is("ndim", PyInt::new(py, 1).into_any()).unwrap_or(false)
}

/// Reads plain values.
struct Decoder<'a> {
    rest: &'a [u8],
    leases: std::slice::Iter<'a, Arc<Lease>>,
}

/// Raises MemoryError where `to_vec` would end the process.
fn copied(bytes: &[u8]) -> PyResult<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(|error| PyMemoryError::new_err(error.to_string()))?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

fn short() -> PyErr {
    PyValueError::new_err("a plain payload ends too early")
}

impl<'a> Decoder<'a> {
    /// Values that were too large for a frame are in the first region: `body` is to be a copy of it.
    fn of(inline: &'a [u8], leases: &'a [Arc<Lease>], body: &'a mut Vec<u8>) -> PyResult<Decoder<'a>> {
        Ok(match leases.split_first() {
            Some((first, others)) if inline.is_empty() => {
                *body = copied(first.bytes())?;
                Decoder { rest: body, leases: others.iter() }
            }
            _ => Decoder { rest: inline, leases: leases.iter() },
        })
    }

    fn take(&mut self, count: usize) -> PyResult<&'a [u8]> {
        if self.rest.len() < count {
            return Err(short());
        }
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> PyResult<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| short())
    }

    fn length(&mut self) -> PyResult<usize> {
        Ok(u32::from_le_bytes(self.array()?) as usize)
    }

    fn content(&mut self, tag: u8) -> PyResult<&'a [u8]> {
        if tag >= tag::IN_REGION {
            return Ok(self.leases.next().ok_or_else(short)?.bytes());
        }
        let length = self.length()?;
        self.take(length)
    }

    /// Text in shared memory is copied before it is looked at: whoever has written it could change it meanwhile.
    fn text<'py>(&mut self, py: Python<'py>, tag: u8) -> PyResult<Bound<'py, PyString>> {
        let content = self.content(tag)?;
        if tag >= tag::IN_REGION {
            return PyString::from_bytes(py, &copied(content)?);
        }
        PyString::from_bytes(py, content)
    }

    fn tuple<'py>(&mut self, py: Python<'py>, depth: usize) -> PyResult<Bound<'py, PyTuple>> {
        let length = self.length()?;
        if length > self.rest.len() || depth > 2 * DEPTH_MAX {
            return Err(short());
        }
        if length == 1 {
            return PyTuple::new(py, [self.value(py, depth + 1)?]);
        }
        let items = (0..length).map(|_| self.value(py, depth + 1)).collect::<PyResult<Vec<_>>>()?;
        PyTuple::new(py, items)
    }

    fn value<'py>(&mut self, py: Python<'py>, depth: usize) -> PyResult<Bound<'py, PyAny>> {
        let [tag] = self.array()?;
        Ok(match tag & !tag::IN_REGION {
            tag::NONE => py.None().into_bound(py),
            tag::TRUE => PyBool::new(py, true).to_owned().into_any(),
            tag::FALSE => PyBool::new(py, false).to_owned().into_any(),
            tag::INT => i64::from_le_bytes(self.array()?).into_pyobject(py)?.into_any(),
            tag::FLOAT => PyFloat::new(py, f64::from_le_bytes(self.array()?)).into_any(),
            tag::STR => self.text(py, tag)?.into_any(),
            tag::BYTES => new_bytes(py, self.content(tag)?)?.into_any(),
            tag::BYTEARRAY => new_bytearray(py, self.content(tag)?)?.into_any(),
            tag::MEMORYVIEW => PyMemoryView::from(new_bytes(py, self.content(tag)?)?.as_any())?.into_any(),
            tag::TUPLE => self.tuple(py, depth)?.into_any(),
            other => return Err(PyValueError::new_err(format!("unknown tag {other} in a plain payload"))),
        })
    }
}

/// Decodes one value.
pub fn decode<'py>(py: Python<'py>, payload: &Payload) -> PyResult<Bound<'py, PyAny>> {
    match payload.form.codec {
        Codec::Empty => Ok(py.None().into_bound(py)),
        Codec::Json | Codec::Bytes | Codec::Name => Ok(new_bytes(py, payload.body())?.into_any()),
        codec => decode_parts(py, codec, &payload.inline, &payload.leases),
    }
}

/// Decodes one value that lies in a payload among others.
pub fn decode_parts<'py>(
    py: Python<'py>,
    codec: Codec,
    inline: &[u8],
    leases: &[Arc<Lease>],
) -> PyResult<Bound<'py, PyAny>> {
    match codec {
        Codec::Plain => Decoder::of(inline, leases, &mut Vec::new())?.value(py, 0),
        Codec::Pickle => unpickle_parts(py, inline, leases),
        codec => Err(PyTypeError::new_err(format!("a payload of {codec:?} is not one value"))),
    }
}

/// Arguments of a call.
pub type Arguments<'py> = (Bound<'py, PyTuple>, Option<Bound<'py, PyDict>>);

/// The arguments that [`Encoder::arguments`] encoded.
pub fn decode_arguments<'py>(py: Python<'py>, payload: &Payload) -> PyResult<Arguments<'py>> {
    if payload.form.codec != Codec::Plain {
        let both = unpickle(py, payload)?;
        let (args, kwargs): (Bound<'py, PyTuple>, Bound<'py, PyDict>) = both.extract()?;
        return Ok((args, Some(kwargs)));
    }
    let mut body = Vec::new();
    let mut decoder = Decoder::of(&payload.inline, &payload.leases, &mut body)?;
    let [tag] = decoder.array()?;
    if tag != tag::TUPLE {
        return Err(PyValueError::new_err("arguments that are no tuple"));
    }
    let args = decoder.tuple(py, 0)?;
    let count = decoder.length()?;
    if count == 0 {
        return Ok((args, None));
    }
    let kwargs = PyDict::new(py);
    for _ in 0..count {
        kwargs.set_item(decoder.value(py, 0)?, decoder.value(py, 0)?)?;
    }
    Ok((args, Some(kwargs)))
}

/// A pickle whose buffers are views of shared memory: valid, and writable, as long as they are referenced.
pub fn unpickle<'py>(py: Python<'py>, payload: &Payload) -> PyResult<Bound<'py, PyAny>> {
    unpickle_parts(py, &payload.inline, &payload.leases)
}

fn unpickle_parts<'py>(py: Python<'py>, inline: &[u8], leases: &[Arc<Lease>]) -> PyResult<Bound<'py, PyAny>> {
    let loads = pickle(py)?.loads.bind(py);
    let is_large = !leases.is_empty() && inline.is_empty();
    let _pause = is_large.then(|| CollectorPause::begin(py));
    let (body, buffers) = match leases.split_first() {
        Some((body, buffers)) if inline.is_empty() => {
            (PyMemoryView::from(&RegionView::of(py, body.clone())?.into_any())?.into_any(), buffers)
        }
        _ => (new_bytes(py, inline)?.into_any(), leases),
    };
    if buffers.is_empty() {
        return loads.call1((body,));
    }
    let views = PyList::empty(py);
    for lease in buffers {
        views.append(RegionView::of(py, lease.clone())?)?;
    }
    let kwargs = PyDict::new(py);
    kwargs.set_item(pyo3::intern!(py, "buffers"), views)?;
    loads.call((body,), Some(&kwargs))
}

/// While it lasts, the garbage collector of this interpreter does not run: all that a large pickle makes is alive, and to
/// look through it again and again took three quarters of the time (30,000 dicts on 3.11: 14 ms of 49).
struct CollectorPause<'py> {
    _py: Python<'py>,
    was_enabled: bool,
}

impl<'py> CollectorPause<'py> {
    fn begin(py: Python<'py>) -> CollectorPause<'py> {
        // SAFETY: called with the interpreter attached.
        let was_enabled = unsafe { pyo3::ffi::PyGC_Disable() } != 0;
        CollectorPause { _py: py, was_enabled }
    }
}

impl Drop for CollectorPause<'_> {
    fn drop(&mut self) {
        if self.was_enabled {
            // SAFETY: as above.
            unsafe { pyo3::ffi::PyGC_Enable() };
        }
    }
}

/// A payload of raw bytes, in a region if there are many.
pub fn raw(regions: &Arc<RegionPool>, form: impl Into<Form>, bytes: &[u8]) -> io::Result<Payload> {
    let form = form.into();
    if !is_large(bytes.len()) {
        return Ok(Payload::new(form, bytes.to_vec()));
    }
    Ok(Payload { form, inline: Vec::new(), leases: vec![Arc::new(regions.store(bytes)?)] })
}
