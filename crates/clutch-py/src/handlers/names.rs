//! Names of headers as apps have them, kept: most requests have the same few.

use std::cell::RefCell;
use std::mem::ManuallyDrop;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use rustc_hash::FxHashMap;

/// Most names of a thread that are kept, and bytes of each: clients choose them.
const KEPT_MAX: usize = 256;
const KEPT_BYTES_MAX: usize = 64;

type Kept<T> = RefCell<ManuallyDrop<FxHashMap<Box<[u8]>, Py<T>>>>;

thread_local! {
    // Not dropped at the thread's end, which is without Python: see [`crate::dispatcher::Bridge`].
    static OF_ASGI: Kept<PyBytes> = RefCell::new(ManuallyDrop::new(FxHashMap::default()));
    static OF_WSGI: Kept<PyString> = RefCell::new(ManuallyDrop::new(FxHashMap::default()));
}

/// The name in lower case, of one as it came.
pub fn of_asgi<'py>(py: Python<'py>, name: &[u8]) -> Bound<'py, PyBytes> {
    kept(py, &OF_ASGI, name, || PyBytes::new(py, &name.to_ascii_lowercase()))
}

/// `HTTP_NAME`, of one in lower case.
pub fn of_wsgi<'py>(py: Python<'py>, name: &[u8], made: impl FnOnce() -> Bound<'py, PyString>) -> Bound<'py, PyString> {
    kept(py, &OF_WSGI, name, made)
}

fn kept<'py, T>(
    py: Python<'py>,
    names: &'static std::thread::LocalKey<Kept<T>>,
    name: &[u8],
    make: impl FnOnce() -> Bound<'py, T>,
) -> Bound<'py, T> {
    if let Some(known) = names.with_borrow(|names| names.get(name).map(|known| known.clone_ref(py))) {
        return known.into_bound(py);
    }
    let made = make();
    names.with_borrow_mut(|names| {
        if names.len() < KEPT_MAX && name.len() <= KEPT_BYTES_MAX {
            names.insert(name.into(), made.clone().unbind());
        }
    });
    made
}
