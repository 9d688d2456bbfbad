//! The regions of a reader: those that the other end has announced.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Counted, Lease, Memory, Region};
use crate::frame::{RegionRef, Shortage, WireError};
use crate::sync::Mutex;
use crate::sys;

/// Regions that a reader holds of one writer; what it is lent beyond that is copied, and let go at once.
pub(super) const READ_MAX: usize = 256;

/// The reader's regions: what the other end announced.
#[derive(Debug, Default)]
pub struct RegionTable {
    known: HashMap<u32, Result<Arc<Region>, Shortage>>,
    lent: Arc<AtomicUsize>,
}

impl RegionTable {
    /// Records an announced region. False: it was not received, and frames that name it cannot be read.
    pub fn announce(&mut self, id: u32, size: u64, descriptor: Option<OwnedFd>) -> Result<bool, WireError> {
        if size == 0 {
            self.known.remove(&id);
            return Ok(true);
        }
        let region = match descriptor {
            Some(descriptor) => match Region::open(id, descriptor, size) {
                Ok(region) => Ok(Arc::new(region)),
                Err(error) if sys::is_shortage(&error) => Err(Shortage::Memory),
                Err(_) => return Err(WireError::Region(id)),
            },
            None => Err(Shortage::Descriptors),
        };
        let received = region.is_ok();
        self.known.insert(id, region);
        Ok(received)
    }

    /// The regions of one frame.
    pub fn leases(
        table: &Mutex<RegionTable>,
        references: impl Iterator<Item = RegionRef>,
    ) -> Result<Vec<Arc<Lease>>, WireError> {
        references.map(|reference| RegionTable::lease(table, reference)).collect()
    }

    pub(super) fn lease(table: &Mutex<RegionTable>, reference: RegionRef) -> Result<Arc<Lease>, WireError> {
        let (region, lent) = {
            let table = table.lock();
            let region = table.known.get(&reference.id).ok_or(WireError::Region(reference.id))?.clone();
            (region.map_err(|shortage| WireError::Unreceived(reference.id, shortage))?, table.lent.clone())
        };
        if reference.len > region.data_bytes() as u64 {
            return Err(WireError::Region(reference.id));
        }
        let len = reference.len as usize;
        let lease = Lease::new(Memory::Read { region, _counted: Counted::new(&lent) }, len);
        let enough = lent.load(Ordering::Relaxed) > READ_MAX;
        // What does not fit into memory a second time stays where it is.
        let copy = if enough { Lease::own(lease.bytes()).ok() } else { None };
        Ok(Arc::new(copy.unwrap_or(lease)))
    }
}
