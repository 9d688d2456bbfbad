//! Frames for workers that are written together.

use std::sync::Arc;

use clutch_wire::Form;
use clutch_wire::frame;
use clutch_wire::sync::Mutex;
use smallvec::SmallVec;

use crate::pool::Pool;
use crate::pool::peer::Link;
use crate::work::{Work, WorkId};

/// Puts frames on links and writes them with [`Batch::flush`], or when it is dropped.
pub struct Batch {
    pool: Arc<Pool>,
    links: Mutex<SmallVec<[Arc<Link>; 4]>>,
}

impl Batch {
    pub fn new(pool: &Arc<Pool>) -> Arc<Batch> {
        Arc::new(Batch { pool: pool.clone(), links: Mutex::default() })
    }

    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// As [`Pool::submit`].
    pub fn submit(&self, work: Work, block: bool) -> WorkId {
        let (id, mut effects) = self.pool.take_in(work, block);
        effects.flush.drain(..).for_each(|link| self.keep(link));
        self.pool.carry_out(effects);
        id
    }

    /// Sends a chunk of an inbound stream, in pieces where it is large; `Codec::Empty` ends it.
    pub fn feed(&self, id: WorkId, form: Form, bytes: &[u8]) {
        self.put(id, |out| frame::put_pieces(out, id, form, bytes));
    }

    /// As [`Pool::credit`].
    pub fn credit(&self, id: WorkId, count: u32) {
        self.put(id, |out| frame::put_credit(out, id, count));
    }

    fn put(&self, id: WorkId, put: impl FnOnce(&mut Vec<u8>)) {
        self.pool.put(id, put).into_iter().for_each(|link| self.keep(link));
    }

    fn keep(&self, link: Arc<Link>) {
        let mut links = self.links.lock();
        if !links.iter().any(|known| known.key == link.key) {
            links.push(link);
        }
    }

    pub fn flush(&self) {
        let links = std::mem::take(&mut *self.links.lock());
        links.iter().for_each(|link| self.pool.links.flush(link));
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.flush();
    }
}
