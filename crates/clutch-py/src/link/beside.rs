//! What slots take on beside calls of the link: whoever reads the link waits for that, too.

use std::io;
use std::sync::Arc;

use pyo3::prelude::*;

/// Something that a slot runs in its thread.
pub trait Ready: Send + Sync {
    fn run(self: Arc<Self>, py: Python<'_>) -> PyResult<()>;
}

/// Where such things come from.
pub trait Beside: Send + Sync {
    /// Waits until the link can be read, or something is ready; with `wait` false, looks only. Returns whether the link can be
    /// read. Called without Python, by one thread at a time.
    fn wait(&self, wait: bool) -> io::Result<bool>;

    /// Takes what is ready.
    fn next(&self) -> Option<Arc<dyn Ready>>;

    fn count(&self) -> usize;

    /// The worker is to end: nothing more is taken on. Waits until all is done that was. Called without Python.
    fn leave(&self);
}
