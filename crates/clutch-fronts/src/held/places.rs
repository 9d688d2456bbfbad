//! Places of one ledger, as the front uses them.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use super::adopted::Known;
use super::ledger::{PLACES, Turn};
use super::news::{News, Returned};
use crate::account::figures::End;
use crate::net::peer::Peer;

/// A connection that the worker holds.
pub(super) struct Held {
    /// Which of all that were passed to the worker it is.
    pub(super) serial: u64,
    pub(super) socket: OwnedFd,
    pub(super) tell: oneshot::Sender<Returned>,
    /// Of the request that came with it.
    pub(super) first: Turn,
    /// The request that runs, if it is adopted and no response has begun.
    pub(super) known: Option<Known>,
    /// It was cut off in the middle of a request, which has ended so.
    pub(super) cut: Option<End>,
}

impl Held {
    /// Whoever does not wait any more has cut it off.
    pub(super) fn give(self, news: News) {
        let _ = self.tell.send((news, self.socket));
    }
}

/// See the file's head.
#[derive(Default)]
pub(super) struct Places {
    pub(super) held: HashMap<u32, Held>,
    /// Taken from the worker, which has not been told.
    pub(super) untold: Vec<u32>,
    /// Other messages for which its channel had no room.
    pub(super) unsaid: Vec<Vec<u8>>,
    /// At rest, with bytes of their clients waiting, at the last look; and since when they wait.
    pub(super) waiting: HashMap<u32, Instant>,
    free: Vec<u32>,
    /// The first that was never used.
    next: u32,
    /// Taken from the worker, which has not freed them yet.
    taken: Vec<u32>,
    /// Whose connections the places were used for last: records come after the end, too.
    peers: HashMap<u32, Arc<Peer>>,
    passed: u64,
}

impl Places {
    pub(super) fn take_free(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            let place = (self.next < PLACES).then_some(self.next)?;
            self.next += 1;
            Some(place)
        })
    }

    /// Nothing was passed in it, or the worker has given it back.
    pub(super) fn give_back(&mut self, place: u32) {
        self.free.push(place);
    }

    /// A connection was passed, whose first request has this turn. Returns its serial number, and where it will come back.
    pub(super) fn hold(&mut self, first: Turn, socket: OwnedFd, peer: Arc<Peer>) -> (u64, oneshot::Receiver<Returned>) {
        let (tell, returned) = oneshot::channel();
        self.passed += 1;
        let held = Held { serial: self.passed, socket, tell, first, known: None, cut: None };
        self.held.insert(first.place, held);
        self.peers.insert(first.place, peer);
        (self.passed, returned)
    }

    /// The connection, unless the place is another's.
    pub(super) fn of(&mut self, place: u32, serial: u64) -> Option<&mut Held> {
        self.held.get_mut(&place).filter(|held| held.serial == serial)
    }

    /// It was taken from the worker, which frees the place when it comes by.
    pub(super) fn take_away(&mut self, place: u32) -> Option<Held> {
        let held = self.held.remove(&place)?;
        self.taken.push(place);
        Some(held)
    }

    /// Those of the taken ones that the worker has freed.
    pub(super) fn freed(&self, is_free: impl Fn(u32) -> bool) -> Vec<u32> {
        self.taken.iter().copied().filter(|place| is_free(*place)).collect()
    }

    pub(super) fn reuse(&mut self, freed: &[u32]) {
        self.taken.retain(|place| !freed.contains(place));
        self.free.extend(freed);
    }

    pub(super) fn peer(&self, place: u32) -> Option<Arc<Peer>> {
        self.peers.get(&place).cloned()
    }
}
