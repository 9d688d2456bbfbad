//! Channels: sockets between a front and each worker of its pool, beside the links. What travels there is the front's and
//! its handler's own.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use clutch_wire::frame::{self, Kind};
use clutch_wire::sys;

use super::core::Core;
use super::state::WorkerKey;
use super::{Link, Pool};
use crate::link::Attached;

/// Owner of a channel to each worker. Called on the driver's thread, or on that of [`Pool::open_channels`]; without a lock.
pub trait ChannelOwner: Send + Sync {
    /// A worker is ready, and gets the other end of `channel`. `nr`: its number in the pool.
    fn opened(&self, worker: WorkerKey, nr: u32, channel: OwnedFd);

    /// Requests that the worker has begun on connections that came by its channel, and that the pool does not know.
    fn requests_of(&self, worker: WorkerKey) -> Vec<String>;

    /// Number of requests that wait at workers, whose pools do not know of them, on connections that came by channels.
    fn waiting(&self) -> usize;

    /// The worker gets no more work. What it runs by itself goes on.
    fn leaving(&self, worker: WorkerKey);

    /// The pool takes no submissions, or does again: its workers get nothing else, either.
    fn quiet(&self, quiet: bool);

    /// The worker is dead: it writes nothing any more, and what it has written can be read.
    fn ended(&self, worker: WorkerKey);
}

/// Number of an owner in its pool.
pub(super) type OwnerKey = u64;

/// Channels to the workers of a pool, those to come too, while this is kept. Does not keep the pool alive.
pub struct Channels {
    pool: Weak<Pool>,
    key: OwnerKey,
}

impl Drop for Channels {
    fn drop(&mut self) {
        let owner = self.pool.upgrade().and_then(|pool| pool.core.lock().channel_owners.remove(&self.key));
        // Its end is not ours to run under the lock.
        drop(owner);
    }
}

impl Pool {
    /// Opens a channel to each worker that is ready, and to each that will be.
    pub fn open_channels(self: &Arc<Pool>, owner: Arc<dyn ChannelOwner>) -> Channels {
        let (key, ready) = {
            let mut core = self.core.lock();
            let key = core.channel_owners.last_key_value().map_or(0, |(last, _)| last + 1);
            core.channel_owners.insert(key, owner.clone());
            let ready = core.peers.values().filter(|peer| peer.life.ready.is_some());
            (key, ready.map(|peer| (peer.link.clone(), peer.life.who.0)).collect::<Vec<_>>())
        };
        for (link, nr) in ready {
            self.open_channel(&link, nr, &*owner);
        }
        Channels { pool: Arc::downgrade(self), key }
    }

    /// A process without a descriptor left, or a worker that has just died, has no channel: its work goes by the link.
    pub(super) fn open_channel(&self, link: &Arc<Link>, nr: u32, owner: &dyn ChannelOwner) {
        let Ok((ours, theirs)) = sys::socket_pair() else { return };
        link.outbox.push(|out| {
            out.attach(Attached::Given(vec![theirs]));
            frame::put_head(&mut out.bytes, Kind::Channel, 0, 0);
        });
        self.links.flush(link);
        owner.opened(link.key, nr, ours);
    }

    /// Requests that a worker has begun on connections that came by its channels.
    pub(super) fn requests_held_by(&self, worker: WorkerKey) -> Vec<String> {
        let owners = self.core.lock().channel_owners();
        owners.iter().flat_map(|owner| owner.requests_of(worker)).collect()
    }

    /// Number of requests that wait at workers, on connections that came by their channels.
    pub(super) fn waiting_at_workers(&self) -> usize {
        let owners = self.core.lock().channel_owners();
        owners.iter().map(|owner| owner.waiting()).sum()
    }

    /// Tells the owners that a worker gets no more work.
    pub(super) fn leave_channels_of(&self, worker: WorkerKey) {
        let owners = self.core.lock().channel_owners();
        owners.iter().for_each(|owner| owner.leaving(worker));
    }

    pub(super) fn quiet_channels(&self, quiet: bool) {
        let owners = self.core.lock().channel_owners();
        owners.iter().for_each(|owner| owner.quiet(quiet));
    }

    /// Tells the owners that a worker is dead.
    pub(super) fn end_channels_of(&self, worker: WorkerKey) {
        let owners = self.core.lock().channel_owners();
        owners.iter().for_each(|owner| owner.ended(worker));
    }
}

impl Core {
    /// A worker that becomes ready in the same transaction is left to whoever asks.
    pub(super) fn channel_owners(&self) -> Vec<Arc<dyn ChannelOwner>> {
        self.channel_owners.values().cloned().collect()
    }
}
