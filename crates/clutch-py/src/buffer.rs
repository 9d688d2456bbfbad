//! Python's buffer protocol over shared memory.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use clutch_pool::link::is_large;
use clutch_wire::region::Lease;
use clutch_wire::sync::Mutex;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};

/// Parts of a payload that may lie in regions of their own: those of code and of arguments together fit into one frame.
pub const LEASES_MAX: usize = 120;

/// A writable view of a region's bytes. The region is given back when the last reference to the view is gone.
#[pyclass(frozen, module = "clutch._core")]
pub struct RegionView {
    lease: Arc<Lease>,
}

impl RegionView {
    pub fn of(py: Python<'_>, lease: Arc<Lease>) -> PyResult<Bound<'_, RegionView>> {
        Bound::new(py, RegionView { lease })
    }
}

#[pymethods]
impl RegionView {
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill"));
        }
        let lease = &slf.get().lease;
        let address: *mut c_void = lease.address().cast();
        let length = lease.len() as ffi::Py_ssize_t;
        // SAFETY: `view` is CPython's, non-null (checked); the memory outlives it, because the view holds a reference
        // to `slf`, which holds the lease, which holds the mapping. The other side does not touch a lent region.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), address, length, 0, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// A new `bytes`. Raises MemoryError, where PyO3's own constructor panics.
pub fn new_bytes<'py>(py: Python<'py>, content: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let (start, length) = (content.as_ptr().cast(), content.len() as ffi::Py_ssize_t);
    // SAFETY: copies `length` bytes; returns a new reference, or null with an exception set.
    let made = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(start, length))? };
    Ok(made.cast_into()?)
}

/// A new `bytearray`. Raises MemoryError, where PyO3's own constructor panics. It grows from nothing: one that CPython cannot
/// make at its full length complains on stderr when it is dropped.
pub fn new_bytearray<'py>(py: Python<'py>, content: &[u8]) -> PyResult<Bound<'py, PyByteArray>> {
    let made = PyByteArray::new(py, &[]);
    made.resize(content.len())?;
    // SAFETY: it is of this length, and nobody else has it yet.
    unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), made.data(), content.len()) };
    Ok(made)
}

/// Sets the first byte of `flag` to 1, and returns whether it was set. Of all threads and processes that share the memory, one
/// gets False. Raises BufferError where it has no byte, or one that cannot be written.
#[pyfunction]
pub fn test_and_set(py: Python<'_>, flag: PyBuffer<u8>) -> PyResult<bool> {
    let byte = flag.as_mut_slice(py).and_then(<[_]>::first);
    let byte = byte.ok_or_else(|| PyBufferError::new_err("a flag is a writable buffer of at least one byte"))?;
    // SAFETY: kept alive by `flag`; whoever shares it changes it here alone.
    Ok(unsafe { AtomicU8::from_ptr(byte.as_ptr()) }.swap(1, Ordering::Relaxed) != 0)
}

/// Calls `read` with the bytes of a contiguous buffer.
pub fn bytes_of<R>(value: &Bound<'_, PyAny>, read: impl FnOnce(&[u8]) -> R) -> PyResult<R> {
    let value = match value.cast::<pyo3::types::PyMemoryView>() {
        // Of any item format: cast to bytes, which CPython does for contiguous views only.
        Ok(view) => view.call_method1("cast", ("B",))?,
        Err(_) => value.clone(),
    };
    let buffer = PyBuffer::<u8>::get(&value)?;
    if !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err("a buffer that is not contiguous"));
    }
    if buffer.len_bytes() == 0 {
        return Ok(read(&[])); // the address may be NULL
    }
    // SAFETY: contiguous, with bytes (both checked), `len_bytes` long, kept alive by `buffer` until `read` returns.
    let bytes = unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), buffer.len_bytes()) };
    Ok(read(bytes))
}

/// Pickle's `buffer_callback`: keeps large buffers out of the pickle.
#[pyclass(frozen, module = "clutch._core")]
#[derive(Default)]
pub struct BufferSink {
    kept: Mutex<Vec<Py<PyAny>>>,
}

impl BufferSink {
    pub fn take(&self) -> Vec<Py<PyAny>> {
        std::mem::take(&mut self.kept.lock())
    }

    pub fn clear(&self) {
        self.take();
    }
}

#[pymethods]
impl BufferSink {
    /// True: leave it in the pickle.
    fn __call__(&self, buffer: &Bound<'_, PyAny>) -> PyResult<bool> {
        let raw = buffer.call_method0("raw")?;
        let length: usize = raw.getattr("nbytes")?.extract()?;
        let mut kept = self.kept.lock();
        if !is_large(length) || kept.len() >= LEASES_MAX {
            return Ok(true);
        }
        kept.push(raw.unbind());
        Ok(false)
    }
}
