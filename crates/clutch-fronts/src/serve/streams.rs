//! Counts the streams of one HTTP/2 connection that are at work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A stream whose work has not ended, whether or not its client still waits for it.
pub(super) struct OpenStream(Arc<AtomicU32>);

impl OpenStream {
    /// Counts one more of its connection; none: as many are at work as may be.
    pub(super) fn begin(of_connection: &Arc<AtomicU32>, most: u32) -> Option<OpenStream> {
        let stream = OpenStream(of_connection.clone());
        (of_connection.fetch_add(1, Ordering::Relaxed) < most).then_some(stream)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
