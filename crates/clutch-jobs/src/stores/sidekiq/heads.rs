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

/// The same where no queue has had a job for a while.
const IDLE_INTERVAL: Duration = Duration::from_millis(20);
const IDLE_AFTER: Duration = Duration::from_secs(2);

/// Interval of notices while queues are as long as before: one job may have come in place of another.
const AGAIN_INTERVAL: Duration = Duration::from_millis(50);

/// Notices when a queue has jobs.
pub(super) struct Heads {
    connection: Connection,
    root: String,
    /// None: all.
    queues: Arc<Mutex<BTreeSet<String>>>,
    /// Lengths of those that have some.
    last: Option<String>,
    noticed_at: Instant,
}

impl Heads {
    pub fn new(connection: Connection, root: String, queues: Arc<Mutex<BTreeSet<String>>>) -> Heads {
        Heads { connection, root, queues, last: None, noticed_at: Instant::now() }
    }

    fn look(&mut self) -> io::Result<bool> {
        let queues: Vec<_> = self.queues.lock().iter().cloned().collect();
        let lengths = HEADS.key(&self.root).arg(queues).invoke::<String>(&mut self.connection);
        let lengths = lengths.map_err(io::Error::other)?;
        let is_first = self.last.is_none();
        let have_changed = self.last.as_ref() != Some(&lengths);
        let have_jobs = !lengths.is_empty();
        self.last = Some(lengths);
        let is_due = have_changed || self.noticed_at.elapsed() >= AGAIN_INTERVAL;
        let is_news = is_first || (have_jobs && is_due);
        if is_news {
            self.noticed_at = Instant::now();
        }
        Ok(is_news)
    }
}

impl Watch for Heads {
    fn wait(&mut self, at_most: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + at_most;
        loop {
            if self.look()? {
                return Ok(true);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let is_idle = self.noticed_at.elapsed() >= IDLE_AFTER;
            thread::sleep(left.min(if is_idle { IDLE_INTERVAL } else { WATCH_INTERVAL }));
        }
    }
}
