//! Regions: sealed shared memory for payload parts too large for a frame.
//!
//! The writer owns a region and lends it with the frame that names it. The region's first word says who has it: the
//! writer sets it when it lends, the reader clears it when it has let go. A reader that was forked meanwhile, or has died,
//! may have left a copy of itself that still looks at the region: that one is not used again, and the kernel keeps its
//! pages for whoever maps them.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::forked::Moment;
use crate::sys::{self, Mapping};
use crate::wire::{RegionRef, WireError};

/// Data starts on the second page, so that arrays are aligned; the first holds the word.
const DATA_OFFSET: usize = 4096;

/// Smallest region's data.
const SMALLEST_BYTES: usize = 256 << 10;

/// Free regions kept for reuse, in bytes; more than that is given back to the kernel.
const FREE_BYTES_MAX: usize = 256 << 20;

const FREE: u32 = 0;
const LENT: u32 = 1;
/// Its reader was forked while it had it. It stays so.
const RETIRED: u32 = 2;

/// One piece of shared memory.
#[derive(Debug)]
pub struct Region {
    pub id: u32,
    mapping: Mapping,
    /// Only the writer keeps the descriptor, to hand it to further readers.
    descriptor: Option<OwnedFd>,
    /// Key of the reader that has it or had it last.
    reader: AtomicU64,
}

impl Region {
    fn create(id: u32, data_bytes: usize) -> io::Result<Region> {
        let len = DATA_OFFSET + data_bytes;
        let descriptor = sys::shared_memory("clutch-region", len)?;
        let mapping = Mapping::new(descriptor.as_fd(), len)?;
        Ok(Region { id, mapping, descriptor: Some(descriptor), reader: AtomicU64::new(u64::MAX) })
    }

    fn open(id: u32, descriptor: OwnedFd, size: u64) -> io::Result<Region> {
        let len = usize::try_from(size).map_err(io::Error::other)?;
        if len <= DATA_OFFSET {
            return Err(io::Error::other("a region without room"));
        }
        let mapping = Mapping::new(descriptor.as_fd(), len)?;
        Ok(Region { id, mapping, descriptor: None, reader: AtomicU64::new(u64::MAX) })
    }

    /// Bytes of the whole memfd, as a descriptor frame announces them.
    pub fn size(&self) -> u64 {
        self.mapping.len() as u64
    }

    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.as_ref().map(AsFd::as_fd)
    }

    fn data_bytes(&self) -> usize {
        self.mapping.len() - DATA_OFFSET
    }

    fn word(&self) -> u32 {
        self.mapping.word(0).load(Ordering::Acquire)
    }

    /// Marks the region as lent to `reader`, just before the frame that names it.
    pub fn lend(&self, reader: u64) {
        self.reader.store(reader, Ordering::Relaxed);
        self.turn(FREE, LENT);
    }

    /// Nobody reads it any more.
    pub fn free(&self) {
        self.turn(LENT, FREE);
    }

    /// One that is retired stays so.
    fn turn(&self, from: u32, to: u32) {
        let _ = self.mapping.word(0).compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    }

    fn retire(&self) {
        self.mapping.word(0).store(RETIRED, Ordering::Release);
    }
}

/// The right to the first `len` bytes of a region, as long as it lives.
#[derive(Debug)]
pub struct Lease {
    pub region: Arc<Region>,
    len: usize,
    /// Of the writer's lease: where the region goes back to. A reader's lease has none and clears the word.
    home: Option<Arc<RegionPool>>,
    made: Moment,
}

impl Lease {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn bytes(&self) -> &[u8] {
        self.region.mapping.bytes(DATA_OFFSET, self.len)
    }

    /// Address of the bytes, for a buffer that user code may write to.
    pub fn address(&self) -> *mut u8 {
        self.region.mapping.address(DATA_OFFSET)
    }

    pub fn reference(&self) -> RegionRef {
        RegionRef { id: self.region.id, len: self.len as u64 }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        match &self.home {
            // The original's: neither its word nor its lock are ours.
            _ if self.made.is_in_copy() => {}
            Some(home) => home.give_back(self.region.clone()),
            None if self.made.may_have_copies() => self.region.retire(),
            None => self.region.free(),
        }
    }
}

#[derive(Debug, Default)]
struct Shelf {
    free: Vec<Arc<Region>>,
    free_bytes: usize,
    /// Done with here, still held by its reader.
    lent: Vec<Arc<Region>>,
    next_id: u32,
}

/// The writer's regions.
#[derive(Debug, Default)]
pub struct RegionPool {
    shelf: Mutex<Shelf>,
}

impl RegionPool {
    /// A region that holds a copy of `bytes`.
    pub fn store(self: &Arc<Self>, bytes: &[u8]) -> io::Result<Lease> {
        let lease = self.reserve(bytes.len())?;
        lease.region.mapping.write(DATA_OFFSET, bytes);
        Ok(lease)
    }

    fn reserve(self: &Arc<Self>, len: usize) -> io::Result<Lease> {
        let mut shelf = self.shelf.lock();
        shelf.collect();
        let fit = shelf
            .free
            .iter()
            .enumerate()
            .filter(|(_, region)| region.data_bytes() >= len)
            .min_by_key(|(_, region)| region.data_bytes())
            .map(|(at, _)| at);
        let region = match fit {
            Some(at) => {
                let region = shelf.free.swap_remove(at);
                shelf.free_bytes -= region.data_bytes();
                region
            }
            None => {
                shelf.next_id += 1;
                let id = shelf.next_id;
                drop(shelf);
                Arc::new(Region::create(id, len.max(SMALLEST_BYTES).next_power_of_two())?)
            }
        };
        Ok(Lease { region, len, home: Some(self.clone()), made: Moment::now() })
    }

    fn give_back(&self, region: Arc<Region>) {
        self.shelf.lock().put(region);
    }

    /// All that this reader held is let go of: it is gone.
    pub fn reader_gone(&self, reader: u64) {
        let mut shelf = self.shelf.lock();
        shelf.lent.retain(|region| region.reader.load(Ordering::Relaxed) != reader);
        shelf.collect();
    }

    /// Bytes of shared memory held: (free, still with readers).
    pub fn bytes(&self) -> (usize, usize) {
        let shelf = self.shelf.lock();
        (shelf.free_bytes, shelf.lent.iter().map(|region| region.data_bytes()).sum())
    }
}

impl Shelf {
    fn put(&mut self, region: Arc<Region>) {
        match region.word() {
            FREE => self.keep(region),
            LENT => self.lent.push(region),
            // Retired: the other end is told to forget it with the next ones that are announced.
            _ => {}
        }
    }

    fn keep(&mut self, region: Arc<Region>) {
        if self.free_bytes + region.data_bytes() <= FREE_BYTES_MAX {
            self.free_bytes += region.data_bytes();
            self.free.push(region);
        }
    }

    fn collect(&mut self) {
        for region in std::mem::take(&mut self.lent) {
            self.put(region);
        }
    }
}

/// The reader's regions: what the other end announced.
#[derive(Debug, Default)]
pub struct RegionTable {
    known: HashMap<u32, Arc<Region>>,
}

impl RegionTable {
    pub fn announce(&mut self, id: u32, size: u64, descriptor: Option<OwnedFd>) -> Result<(), WireError> {
        if size == 0 {
            self.known.remove(&id);
            return Ok(());
        }
        let descriptor = descriptor.ok_or(WireError::Descriptor)?;
        let region = Region::open(id, descriptor, size).map_err(|_| WireError::Region(id))?;
        self.known.insert(id, Arc::new(region));
        Ok(())
    }

    pub fn lease(&self, reference: RegionRef) -> Result<Arc<Lease>, WireError> {
        let region = self.known.get(&reference.id).ok_or(WireError::Region(reference.id))?;
        if reference.len > region.data_bytes() as u64 {
            return Err(WireError::Region(reference.id));
        }
        let (region, len) = (region.clone(), reference.len as usize);
        Ok(Arc::new(Lease { region, len, home: None, made: Moment::now() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_reused_once_its_reader_let_go() {
        let pool = Arc::new(RegionPool::default());
        let lease = pool.store(&[7; 300_000]).expect("shared memory");
        let id = lease.region.id;
        lease.region.lend(1);
        let mut table = RegionTable::default();
        let descriptor = lease.region.descriptor().expect("writer").try_clone_to_owned().expect("dup");
        table.announce(id, lease.region.size(), Some(descriptor)).expect("announce");
        let read = table.lease(lease.reference()).expect("lease");
        assert_eq!(read.bytes(), &[7; 300_000][..]);
        drop(lease);
        assert_ne!(pool.store(&[1; 10]).expect("shared memory").region.id, id);
        drop(read);
        assert_eq!(pool.store(&[1; 300_000]).expect("shared memory").region.id, id);
    }

    #[test]
    fn failure_57_a_region_whose_reader_was_forked_is_not_used_again() {
        let pool = Arc::new(RegionPool::default());
        let lease = pool.store(&[7; 300_000]).expect("shared memory");
        let (region, reference) = (lease.region.clone(), lease.reference());
        region.lend(1);
        let read = Lease { region: region.clone(), len: 300_000, home: None, made: Moment::before_a_fork() };
        drop(lease);
        drop(read);
        assert_ne!(pool.store(&[1; 300_000]).expect("shared memory").region.id, reference.id);
        assert_eq!(pool.bytes().1, 0, "it is nobody's any more");
        region.lend(2);
        region.free();
        assert_eq!(region.word(), RETIRED, "a later reader does not free it");
    }

    #[test]
    fn a_dead_reader_holds_nothing() {
        let pool = Arc::new(RegionPool::default());
        let lease = pool.store(&[7; 300_000]).expect("shared memory");
        lease.region.lend(9);
        drop(lease);
        assert!(pool.bytes().1 > 0);
        pool.reader_gone(9);
        assert_eq!(pool.bytes().1, 0);
    }

    #[test]
    fn a_reference_beyond_its_region_is_refused() {
        let pool = Arc::new(RegionPool::default());
        let lease = pool.store(&[7; 10]).expect("shared memory");
        let mut table = RegionTable::default();
        let descriptor = lease.region.descriptor().expect("writer").try_clone_to_owned().expect("dup");
        table.announce(1, lease.region.size(), Some(descriptor)).expect("announce");
        assert_eq!(table.lease(RegionRef { id: 1, len: 1 << 40 }).err(), Some(WireError::Region(1)));
        assert_eq!(table.lease(RegionRef { id: 2, len: 1 }).err(), Some(WireError::Region(2)));
    }
}
