//! The regions of a writer: made, lent, taken back, swept.

use std::any::Any;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::{Counted, FREE, LENT, Lease, Memory, Region, Written};
use crate::sync::Mutex;
use crate::sys;

/// Smallest region's data.
const SMALLEST_BYTES: usize = 256 << 10;

/// Free regions kept for reuse, in bytes and in number; more than that is given back to the kernel.
const FREE_BYTES_MAX: usize = 256 << 20;

const FREE_MAX: usize = 64;

/// Interval at which free regions are swept, as long as there are any.
const SWEEP_EACH: Duration = Duration::from_secs(1);

/// Number of sweeps that a region must be free for before it is returned to the kernel.
const SWEEPS_KEPT: u8 = 1;

/// Number of sweeps for which something is held that may be wanted again, and how much of it is: in number, and in bytes
/// beyond the last.
const SWEEPS_HELD: u8 = 10;

const HELD_MAX: usize = 4;

const HELD_BYTES_MAX: usize = 256 << 20;

/// Regions of a writer with many readers, each with a descriptor; what is stored beyond that waits in private memory. Fewer
/// where the process may not have many more descriptors, but for a few.
pub const WRITTEN_MAX: usize = 256;

const WRITTEN_MIN: usize = 8;

/// Larger parts never wait in private memory: copying one when it is sent would hold up the pool, and memory runs out
/// before descriptors do.
pub(super) const WAITING_BYTES_MAX: usize = 16 << 20;

/// A free region.
#[derive(Debug)]
struct Free {
    region: Arc<Region>,
    sweeps: u8,
}

/// What has leases, and the sweeps that it is still held for.
struct Held {
    what: Arc<dyn Any + Send + Sync>,
    bytes: usize,
    sweeps: u8,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("sweeps", &self.sweeps).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Shelf {
    free: Vec<Free>,
    free_bytes: usize,
    /// Released by the writer, still held by their readers.
    lent: Vec<Arc<Region>>,
    held: Vec<Held>,
    next_id: u32,
    sweep_at: Option<Instant>,
    /// Set when the pool is closed: nothing is reused.
    is_closed: bool,
}

/// The writer's regions.
#[derive(Debug)]
pub struct RegionPool {
    shelf: Mutex<Shelf>,
    /// Number of regions, if it is limited.
    written: Option<Arc<AtomicUsize>>,
    written_max: AtomicUsize,
    /// Number of regions that are gone.
    dropped: Arc<AtomicU32>,
    /// True if someone sweeps while there are regions.
    is_swept: AtomicBool,
    /// Wakes the sweeper when the first region is made.
    sweeper: Option<OwnedFd>,
}

impl RegionPool {
    /// Makes the regions of a writer with one reader, which is lent them at once.
    pub fn for_one_reader() -> RegionPool {
        RegionPool {
            shelf: Mutex::default(),
            written: None,
            written_max: AtomicUsize::new(WRITTEN_MAX),
            dropped: Arc::default(),
            is_swept: AtomicBool::new(false),
            sweeper: None,
        }
    }

    /// Makes regions that wait, and then go to any of several readers. `sweeper` is an event: who waits for it calls
    /// [`RegionPool::sweep_when_due`].
    pub fn for_many_readers(sweeper: OwnedFd) -> RegionPool {
        RegionPool { written: Some(Arc::default()), sweeper: Some(sweeper), ..RegionPool::for_one_reader() }
    }

    /// Requests sweeps while there are regions. Returns whether they had been requested.
    pub fn ask_for_sweeps(&self) -> bool {
        self.is_swept.swap(true, Ordering::AcqRel)
    }

    /// Takes back regions from readers, and returns to the kernel those that were free for long, if it is due. Returns
    /// when it is due again, or None if there are no regions.
    pub fn sweep_when_due(&self, now: Instant) -> Option<Instant> {
        if !self.is_swept.load(Ordering::Acquire) {
            return None;
        }
        let mut shelf = self.shelf.lock();
        let due = *shelf.sweep_at.get_or_insert(now + SWEEP_EACH);
        if now < due {
            return Some(due);
        }
        let (old, over) = shelf.sweep();
        let living = shelf.next_id.wrapping_sub(self.dropped.load(Ordering::Relaxed)) as usize;
        let next = (living > old.len()).then(|| now + SWEEP_EACH);
        shelf.sweep_at = next;
        self.is_swept.store(next.is_some(), Ordering::Release);
        drop(shelf);
        drop(over);
        old.iter().for_each(|free| free.region.discard());
        next
    }

    /// Holds what has leases of so many bytes for some seconds more, as it may soon be wanted again.
    pub fn hold(&self, what: &Arc<dyn Any + Send + Sync>, bytes: usize) {
        let mut shelf = self.shelf.lock();
        if shelf.is_closed {
            return;
        }
        let mut over: Vec<Held> = shelf.held.extract_if(.., |held| Arc::ptr_eq(&held.what, what)).collect();
        while !shelf.held.is_empty()
            && (shelf.held.len() >= HELD_MAX
                || shelf.held.iter().map(|held| held.bytes).sum::<usize>() + bytes > HELD_BYTES_MAX)
        {
            over.push(shelf.held.remove(0));
        }
        shelf.held.push(Held { what: what.clone(), bytes, sweeps: 0 });
        drop(shelf);
        drop(over);
    }

    /// Tells whether there may be more regions.
    pub fn has_room(&self) -> bool {
        let max = self.written_max.load(Ordering::Relaxed);
        self.written.as_ref().is_none_or(|written| written.load(Ordering::Relaxed) < max)
    }

    /// Called when there are no readers left: returns all regions to the kernel, now and as they come back.
    pub fn close(&self) {
        let mut shelf = self.shelf.lock();
        let free = std::mem::take(&mut shelf.free);
        (shelf.free_bytes, shelf.is_closed) = (0, true);
        shelf.lent.clear();
        let held = std::mem::take(&mut shelf.held);
        drop(shelf);
        drop(held);
        free.iter().for_each(|free| free.region.discard());
    }

    /// Under the lock of the shelf: a sweep sees the region that is about to be made, or is over and asked for again.
    fn wake_sweeper(&self) {
        if let Some(sweeper) = self.sweeper.as_ref().filter(|_| !self.ask_for_sweeps()) {
            sys::signal_event(sweeper.as_fd());
        }
    }

    /// Counts dropped regions, which readers are to forget.
    pub fn dropped(&self) -> Arc<AtomicU32> {
        self.dropped.clone()
    }

    /// Limits the regions to half of the descriptors that this process may still open.
    pub fn bound_by(&self, descriptors: u64) {
        let half = usize::try_from(descriptors / 2).unwrap_or(WRITTEN_MAX);
        self.written_max.store(half.clamp(WRITTEN_MIN, WRITTEN_MAX), Ordering::Relaxed);
    }

    /// A copy of `bytes`, in a region; or in private memory until it is sent ([`RegionPool::place`]), where there are
    /// regions enough.
    pub fn store(self: &Arc<Self>, bytes: &[u8]) -> io::Result<Lease> {
        match self.reserve(bytes.len(), true)? {
            Some(lease) => {
                lease.write(bytes);
                Ok(lease)
            }
            None => Lease::own(bytes),
        }
    }

    /// A copy of `bytes` for any number of readers.
    pub fn store_shared(self: &Arc<Self>, bytes: &[u8]) -> io::Result<Lease> {
        let mut shelf = self.shelf.lock();
        let id = self.next_id(&mut shelf);
        drop(shelf);
        let region = self.create(id, bytes.len())?;
        region.share();
        let lease = self.lease(region, bytes.len());
        lease.write(bytes);
        Ok(lease)
    }

    /// Puts a payload that is about to be sent into a region.
    pub fn place(self: &Arc<Self>, lease: &mut Arc<Lease>) -> io::Result<()> {
        if let Memory::Own(bytes) = &lease.memory {
            let placed = self.reserve(bytes.len(), false)?.ok_or_else(|| io::Error::other("no region"))?;
            placed.write(bytes.bytes());
            *lease = Arc::new(placed);
        }
        Ok(())
    }

    /// None if the payload may wait and there are enough regions.
    fn reserve(self: &Arc<Self>, len: usize, may_wait: bool) -> io::Result<Option<Lease>> {
        let mut shelf = self.shelf.lock();
        if let Some(region) = shelf.take(len) {
            return Ok(Some(self.lease(region, len)));
        }
        let may_wait = may_wait && len <= WAITING_BYTES_MAX && self.written.is_some();
        if may_wait
            && self
                .written
                .as_ref()
                .is_some_and(|written| written.load(Ordering::Relaxed) >= self.written_max.load(Ordering::Relaxed))
        {
            return Ok(None);
        }
        let id = self.next_id(&mut shelf);
        drop(shelf);
        match self.create(id, len.max(SMALLEST_BYTES).next_power_of_two()) {
            Ok(region) => Ok(Some(self.lease(region, len))),
            // By the time it is sent there may be room again.
            Err(_) if may_wait => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn next_id(&self, shelf: &mut Shelf) -> u32 {
        shelf.next_id += 1;
        self.wake_sweeper();
        shelf.next_id
    }

    fn create(&self, id: u32, data_bytes: usize) -> io::Result<Arc<Region>> {
        let written = Written { counted: self.written.as_ref().map(Counted::new), dropped: self.dropped.clone() };
        Region::create(id, data_bytes, written).map(Arc::new)
    }

    fn lease(self: &Arc<Self>, region: Arc<Region>, len: usize) -> Lease {
        Lease::new(Memory::Written(region, self.clone()), len)
    }

    pub(super) fn give_back(&self, region: Arc<Region>) {
        self.shelf.lock().put(region);
    }

    /// Takes back all regions of a reader that is gone.
    pub fn reader_gone(&self, reader: u64) {
        let mut shelf = self.shelf.lock();
        shelf.lent.retain(|region| region.reader.load(Ordering::Relaxed) != reader);
        shelf.collect();
    }

    /// Bytes of shared memory held: (free, still with readers).
    pub fn bytes(&self) -> (usize, usize) {
        let mut shelf = self.shelf.lock();
        shelf.collect();
        (shelf.free_bytes, shelf.lent.iter().map(|region| region.data_bytes()).sum())
    }
}

impl Shelf {
    /// The smallest free region of at least this many bytes; or one that has come back, mostly the last that was lent.
    fn take(&mut self, len: usize) -> Option<Arc<Region>> {
        let fits = self.free.iter().enumerate().filter(|(_, free)| free.region.data_bytes() >= len);
        if let Some((at, _)) = fits.min_by_key(|(_, free)| free.region.data_bytes()) {
            let region = self.free.swap_remove(at).region;
            self.free_bytes -= region.data_bytes();
            return Some(region);
        }
        let back = self.lent.iter().rposition(|region| region.word() == FREE && region.data_bytes() >= len);
        if back.is_none() {
            self.collect();
        }
        back.map(|at| self.lent.swap_remove(at))
    }

    fn put(&mut self, region: Arc<Region>) {
        match region.word() {
            FREE => self.keep(region),
            LENT if !self.is_closed => self.lent.push(region),
            // Nobody is there to give it back.
            LENT => {}
            // Retired: the other end is told to forget it with the next ones that are announced.
            _ => {}
        }
    }

    fn keep(&mut self, region: Arc<Region>) {
        let bytes = self.free_bytes + region.data_bytes();
        if bytes <= FREE_BYTES_MAX && self.free.len() < FREE_MAX && !self.is_closed {
            self.free_bytes = bytes;
            self.free.push(Free { region, sweeps: 0 });
        } else {
            region.discard();
        }
    }

    fn collect(&mut self) {
        for region in std::mem::take(&mut self.lent) {
            self.put(region);
        }
    }

    /// Takes the regions that have been free, and the others that were held, for longer than they are kept.
    fn sweep(&mut self) -> (Vec<Free>, Vec<Held>) {
        let (old, mut kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.free).into_iter().partition(|free| free.sweeps == SWEEPS_KEPT);
        kept.iter_mut().for_each(|free| free.sweeps += 1);
        self.free = kept;
        self.free_bytes -= old.iter().map(|free| free.region.data_bytes()).sum::<usize>();
        self.collect();
        let (over, mut held): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.held).into_iter().partition(|held| held.sweeps == SWEEPS_HELD);
        held.iter_mut().for_each(|held| held.sweeps += 1);
        self.held = held;
        (old, over)
    }
}
