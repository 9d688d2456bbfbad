//! Regions of ours that the other end of a link knows.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use clutch_wire::Payload;
use clutch_wire::frame::{self, Head, INLINE_BYTES_MAX, RegionRef, WireError};
use clutch_wire::region::{Lease, Region, RegionPool};
use clutch_wire::sys;
use thiserror::Error;

use super::outbox::{Attached, Pending};

/// Regions that an end of a link has announced to the other end.
#[derive(Debug)]
pub struct Announced {
    known: HashMap<u32, Weak<Region>>,
    /// Counter of the regions that their pool has dropped, and its value when this end last checked which of them are
    /// dead.
    dropped: Arc<AtomicU32>,
    seen: u32,
    /// The other end is the only reader of these regions: it gets the descriptor itself.
    only_reader: bool,
}

/// Why a frame cannot be put on a link; the link itself is unharmed.
#[derive(Debug, Error)]
pub enum PutError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("no shared memory for a large value: {0}; raise the limit of descriptors (ulimit -n), or of memory")]
    Memory(#[from] io::Error),
}

impl PutError {
    /// Whether there may be room some time later.
    pub fn is_shortage(&self) -> bool {
        matches!(self, PutError::Memory(error) if sys::is_shortage(error))
    }
}

impl Announced {
    /// To one of several readers of our regions.
    pub fn to_one_of_many(regions: &RegionPool) -> Announced {
        Announced { known: HashMap::new(), dropped: regions.dropped(), seen: 0, only_reader: false }
    }

    /// To the only reader: when it has a region's descriptor, nobody needs it any more.
    pub fn to_only_reader(regions: &RegionPool) -> Announced {
        Announced { only_reader: true, ..Announced::to_one_of_many(regions) }
    }

    /// Appends a frame with its payload; announces regions that the other end has not seen. On an error nothing of it is
    /// appended.
    pub fn put(
        &mut self,
        out: &mut Pending,
        mut head: Head,
        fixed: &[u8],
        payload: &Payload,
        reader: u64,
    ) -> Result<(), PutError> {
        head.form = payload.form;
        self.forget_dead(out);
        if payload.leases.is_empty() {
            return Ok(frame::put(&mut out.bytes, head, &[], fixed, &payload.inline)?);
        }
        self.announce_all(out, payload)?;
        head.regions = payload.leases.len() as u8;
        let references: Vec<RegionRef> = payload.leases.iter().filter_map(|lease| lease.reference()).collect();
        frame::put(&mut out.bytes, head, &references, fixed, &payload.inline)?;
        payload.leases.iter().for_each(|lease| lease.lend(reader));
        Ok(())
    }

    /// Announces the regions of a payload. Before what else travels beside its frame: that comes last.
    pub fn announce_all(&mut self, out: &mut Pending, payload: &Payload) -> Result<(), PutError> {
        payload.leases.iter().try_for_each(|lease| self.announce(out, lease))
    }

    fn announce(&mut self, out: &mut Pending, lease: &Lease) -> Result<(), PutError> {
        let region = lease.region().ok_or_else(|| io::Error::other("memory of this process alone"))?;
        if self.known.contains_key(&region.id) {
            return Ok(());
        }
        let attached = match self.only_reader {
            true => region.take_descriptor().map(|descriptor| Attached::Given(vec![descriptor])),
            false => region.descriptor().map(|_| Attached::Lent(region.clone())),
        };
        out.attach(attached.ok_or_else(|| io::Error::other("a region of the other end"))?);
        frame::put_descriptor(&mut out.bytes, region.id, region.size());
        self.known.insert(region.id, Arc::downgrade(region));
        Ok(())
    }

    /// Has the other end let go of regions that are no more.
    pub fn forget_dead(&mut self, out: &mut Pending) {
        let dropped = self.dropped.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.seen, dropped) == dropped {
            return;
        }
        self.known.retain(|id, region| {
            let alive = region.strong_count() > 0;
            if !alive {
                frame::put_descriptor(&mut out.bytes, *id, 0);
            }
            alive
        });
    }

    /// The other end could not take the descriptor of this region: it is of no use to anybody.
    pub fn was_unreceived(&mut self, id: u32) {
        if let Some(region) = self.known.remove(&id).and_then(|region| region.upgrade()) {
            region.retire();
        }
    }
}

/// Whether a part of a payload goes into a region.
pub fn is_large(len: usize) -> bool {
    len > INLINE_BYTES_MAX
}
