//! Notices that a queue has got a job.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clutch_wire::sync::Mutex;
use redis::Connection;

use super::HEADS;
use crate::store::Watch;

/// Interval at which queues are checked for jobs: a wait for a list would take from it.
const WATCH_INTERVAL: Duration = Duration::from_millis(5);

/// Notices when a queue has a newer job than before.
pub(super) struct Heads {
    pub connection: Connection,
    pub root: String,
    /// None: all.
    pub queues: Arc<Mutex<BTreeSet<String>>>,
    pub last: Option<String>,
}

impl Watch for Heads {
    fn wait(&mut self, at_most: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + at_most;
        loop {
            let queues: Vec<_> = self.queues.lock().iter().cloned().collect();
            let heads = HEADS.key(&self.root).arg(queues).invoke::<String>(&mut self.connection);
            let heads = Some(heads.map_err(io::Error::other)?);
            if self.last != heads {
                self.last = heads;
                return Ok(true);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            thread::sleep(left.min(WATCH_INTERVAL));
        }
    }
}
