//! Permits of a pool for one who fetches work from elsewhere, such as a runner of jobs.

use std::sync::Arc;
use std::time::Instant;

use super::exchange::batch::Batch;
use super::state::Places;
use crate::work::{FetcherKey, Work, WorkId};

/// See [`state::fetching`](super::state). What is held when it is dropped is given back.
pub struct Permits {
    batch: Arc<Batch>,
    key: FetcherKey,
}

impl Permits {
    /// `tell`: called, on any thread, when there may be room after [`Permits::take`] gave fewer than it was asked for.
    pub fn open(batch: &Arc<Batch>, tell: impl Fn() + Send + Sync + 'static) -> Permits {
        let key = batch.pool().transact(|core, _, _| {
            let key = core.machine.open_fetcher();
            core.fetchers.insert(key, Arc::new(tell));
            key
        });
        Permits { batch: batch.clone(), key }
    }

    /// Places of the pool for what is fetched.
    pub fn places(&self) -> Places {
        self.batch.pool().core.lock().machine.places(self.key)
    }

    /// Takes at most so many. Who gets fewer is told of room, until it has what it asks for or gives way.
    pub fn take(&self, most: usize) -> usize {
        self.batch.pool().core.lock().machine.permit(self.key, most)
    }

    /// Waits for no room any more, so that others may have it: of none it is told.
    pub fn give_way(&self) {
        self.batch.pool().core.lock().machine.give_way(self.key);
    }

    pub fn give_back(&self, permits: usize) {
        if permits > 0 {
            self.batch.pool().transact(|core, _, _| core.machine.give_back_permits(self.key, permits));
        }
    }

    /// Submits work that was fetched under a permit; it is written with the next flush.
    pub fn submit(&self, work: Work) -> WorkId {
        self.batch.submit(Work { fetcher: Some(self.key), ..work }, true)
    }

    /// Says since when there is more to be fetched than can begin, so that a pool of a range of workers starts some;
    /// none: there is not.
    pub fn set_backlog(&self, since: Option<Instant>) {
        let pool = self.batch.pool();
        pool.core.lock().machine.set_backlog(self.key, since);
        pool.wake_for(since.and_then(|since| pool.clock.watch_delay().map(|delay| since + delay)));
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        self.batch.pool().transact(|core, _, _| {
            core.machine.close_fetcher(self.key);
            core.fetchers.remove(&self.key);
        });
    }
}
