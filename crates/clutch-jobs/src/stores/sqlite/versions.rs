//! Notices what is written into the file: by this process at once, by others when SQLite has counted their commits.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_wire::sync::{Condvar, Mutex};

use super::connections::Opened;
use crate::store::Watch;

/// Interval at which writes of other processes are noticed.
const WATCH_INTERVAL: Duration = Duration::from_millis(5);

/// Wakes watches of this process.
#[derive(Default)]
pub struct Written {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Written {
    pub fn wake(&self) {
        *self.count.lock() += 1;
        self.changed.notify_all();
    }
}

/// Notices the commits of others: SQLite counts them.
pub struct Versions {
    /// There until it ends.
    opened: Option<Opened>,
    last: Option<i64>,
    written: Arc<Written>,
    seen: u64,
}

impl Versions {
    pub fn new(opened: Opened, written: &Arc<Written>) -> Versions {
        Versions { opened: Some(opened), last: None, written: written.clone(), seen: 0 }
    }
}

impl Drop for Versions {
    fn drop(&mut self) {
        if let Some(opened) = self.opened.take() {
            opened.put_aside();
        }
    }
}

impl Watch for Versions {
    fn wait(&mut self, at_most: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + at_most;
        loop {
            let Some(opened) = &self.opened else { return Ok(false) };
            if !opened.is_current() {
                return Err(io::Error::other("its file was removed or replaced"));
            }
            let version = opened.connection.prepare_cached("PRAGMA data_version");
            let version = version.and_then(|mut version| version.query_row([], |row| row.get(0)));
            let version = Some(version.map_err(io::Error::other)?);
            if std::mem::replace(&mut self.last, version) != version {
                return Ok(true);
            }
            let wake_at = deadline.min(Instant::now() + WATCH_INTERVAL);
            let seen = self.seen;
            let (count, is_new) =
                self.written.changed.wait_until(self.written.count.lock(), wake_at, |count| *count != seen);
            self.seen = *count;
            drop(count);
            if is_new || Instant::now() >= deadline {
                return Ok(is_new);
            }
        }
    }
}
