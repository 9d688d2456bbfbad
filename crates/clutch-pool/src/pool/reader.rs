//! Reading the links of a pool's workers: the handle of a front that does it in the threads that need the answers.

use std::sync::{Arc, Weak};

use super::links::Reader;
use super::{Link, Pool};

/// The result of a look at a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    Some,
    Nothing,
    /// Another thread is reading.
    Elsewhere,
    End,
}

/// Reads the links of a pool in place of its driver. Does not keep the pool alive.
#[derive(Clone)]
pub struct LinkReader(Weak<Pool>);

impl LinkReader {
    pub fn of(pool: &Arc<Pool>) -> LinkReader {
        LinkReader(Arc::downgrade(pool))
    }

    /// From now on links are read by who is given them here, and by the driver where that is not enough.
    pub fn take_over(&self, reader: Reader) {
        let Some(pool) = self.0.upgrade() else { return };
        let mut kept = pool.links.reader.lock();
        let mut core = pool.core.lock();
        for peer in core.peers.values_mut() {
            peer.disarm(&pool.links.poller);
            peer.is_read = true;
            reader(peer.link.clone());
        }
        *kept = Some(reader);
    }

    /// The driver reads the links again.
    pub fn give_back(&self) {
        let Some(pool) = self.0.upgrade() else { return };
        *pool.links.reader.lock() = None;
        for peer in pool.core.lock().peers.values_mut() {
            peer.is_read = false;
            let armed = peer.arm(&pool.links.poller);
            pool.links.must_be_watched(peer.link.key, armed);
        }
    }

    /// Reads once what is there. Who is told of it only once must look again when another thread is at it.
    pub fn read(&self, link: &Arc<Link>) -> Read {
        self.0.upgrade().map_or(Read::End, |pool| pool.read_link(link))
    }
}
