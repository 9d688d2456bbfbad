//! Regions: sealed shared memory for payload parts too large for a frame.
//!
//! The writer owns a region and lends it with the frame that names it. The region's first word says who has it: the
//! writer sets it when it lends, the reader clears it when it has let go. A reader that was forked meanwhile, or has died,
//! may have left a copy of itself that still looks at the region: that one is not used again, and the kernel keeps its
//! pages for whoever maps them. Both sides hold a bounded number: the writer keeps in memory of its own what waits to be
//! sent, the reader copies what it is lent beyond that. Free regions are swept: what was not used again for two sweeps goes
//! back to the kernel.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::forked::Moment;
use crate::frame::{RegionRef, Shortage, WireError};
use crate::sync::Mutex;
use crate::sys::{self, Heap, Mapping};

/// Data starts on the second page, so that arrays are aligned; the first holds the word.
const DATA_OFFSET: usize = 4096;

/// Smallest region's data.
const SMALLEST_BYTES: usize = 256 << 10;

/// Free regions kept for reuse, in bytes and in number; more than that is given back to the kernel.
const FREE_BYTES_MAX: usize = 256 << 20;
const FREE_MAX: usize = 64;

/// How often free regions are swept, as long as there are any.
const SWEEP_EACH: Duration = Duration::from_secs(1);

/// Number of sweeps that a region must be free for before it is returned to the kernel.
const SWEEPS_KEPT: u8 = 1;

/// Regions of a writer with many readers, each with a descriptor; what is stored beyond that waits in private memory. Fewer
/// where the process may not have many more descriptors, but for a few.
pub const WRITTEN_MAX: usize = 256;
const WRITTEN_MIN: usize = 8;

/// Larger parts never wait in private memory: copying one when it is sent would hold up the pool, and memory runs out
/// before descriptors do.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// Regions that a reader holds of one writer; what it is lent beyond that is copied, and let go at once.
const READ_MAX: usize = 256;

const FREE: u32 = 0;
const LENT: u32 = 1;
/// Never reused; the memory lasts as long as a process has it mapped.
const RETIRED: u32 = 2;

/// Counts as one of a limited number while it lives.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Counted {
        count.fetch_add(1, Ordering::Relaxed);
        Counted(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One piece of shared memory.
#[derive(Debug)]
pub struct Region {
    pub id: u32,
    mapping: Mapping,
    descriptor: Announcement,
    /// Key of the current or last reader.
    reader: AtomicU64,
    /// Only in the process of the writer.
    _written: Option<Written>,
}

/// A region of its writer.
#[derive(Debug)]
struct Written {
    counted: Option<Counted>,
    dropped: Arc<AtomicU32>,
}

impl Drop for Written {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// The descriptor that announces a region.
#[derive(Debug)]
enum Announcement {
    /// Kept, for several readers.
    Kept(OwnedFd),
    /// Sent, or about to be sent, to the only reader.
    Given(Mutex<Option<OwnedFd>>),
    /// This is the reader.
    None,
}

impl Region {
    fn create(id: u32, data_bytes: usize, written: Written) -> io::Result<Region> {
        let len = DATA_OFFSET + data_bytes;
        let descriptor = sys::shared_memory("clutch-region", len)?;
        let mapping = Mapping::new(descriptor.as_fd(), len)?;
        let descriptor = match written.counted {
            Some(_) => Announcement::Kept(descriptor),
            None => Announcement::Given(Mutex::new(Some(descriptor))),
        };
        Ok(Region { id, mapping, descriptor, reader: AtomicU64::new(u64::MAX), _written: Some(written) })
    }

    fn open(id: u32, descriptor: OwnedFd, size: u64) -> io::Result<Region> {
        let len = usize::try_from(size).map_err(io::Error::other)?;
        if len <= DATA_OFFSET {
            return Err(io::Error::other("a region without room"));
        }
        let mapping = Mapping::new(descriptor.as_fd(), len)?;
        Ok(Region { id, mapping, descriptor: Announcement::None, reader: AtomicU64::new(u64::MAX), _written: None })
    }

    /// Bytes of the whole memfd, as a descriptor frame announces them.
    pub fn size(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// Of one that has several readers.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.descriptor {
            Announcement::Kept(descriptor) => Some(descriptor.as_fd()),
            _ => None,
        }
    }

    /// Of one that has one reader, for that one.
    pub fn take_descriptor(&self) -> Option<OwnedFd> {
        match &self.descriptor {
            Announcement::Given(descriptor) => descriptor.lock().take(),
            _ => None,
        }
    }

    fn data_bytes(&self) -> usize {
        self.mapping.len() - DATA_OFFSET
    }

    fn word(&self) -> u32 {
        self.mapping.word(0).load(Ordering::Acquire)
    }

    /// A retired region stays retired.
    fn turn(&self, from: u32, to: u32) {
        let _ = self.mapping.word(0).compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Nobody has it any more: its memory goes back, although its reader may have it mapped until it is told to forget it.
    fn discard(&self) {
        self.mapping.discard(DATA_OFFSET);
    }

    /// Marks it as never to be lent again.
    pub fn retire(&self) {
        self.mapping.word(0).store(RETIRED, Ordering::Release);
    }
}

/// A right to read bytes while it lives: in a region, or in a copy.
#[derive(Debug)]
pub struct Lease {
    memory: Memory,
    len: usize,
    made: Moment,
}

#[derive(Debug)]
enum Memory {
    /// The writer's region, which returns to its pool.
    Written(Arc<Region>, Arc<RegionPool>),
    /// The reader's region, whose word is cleared.
    Read { region: Arc<Region>, _counted: Counted },
    /// Private memory.
    Own(Heap),
}

impl Lease {
    fn new(memory: Memory, len: usize) -> Lease {
        Lease { memory, len, made: Moment::now() }
    }

    fn own(bytes: &[u8]) -> io::Result<Lease> {
        Ok(Lease::new(Memory::Own(Heap::copy_of(bytes)?), bytes.len()))
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its place in shared memory, if it has one.
    pub fn region(&self) -> Option<&Arc<Region>> {
        match &self.memory {
            Memory::Written(region, _) | Memory::Read { region, .. } => Some(region),
            Memory::Own(_) => None,
        }
    }

    /// The bytes where they lie. In a region another process may change them, against all rules: what has to be one thing
    /// from its check to its use is copied first.
    pub fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Own(heap) => heap.bytes(),
            Memory::Written(region, _) | Memory::Read { region, .. } => region.mapping.bytes(DATA_OFFSET, self.len),
        }
    }

    /// Address of the bytes, for a buffer that user code may write to.
    pub fn address(&self) -> *mut u8 {
        match &self.memory {
            Memory::Own(heap) => heap.address(),
            Memory::Written(region, _) | Memory::Read { region, .. } => region.mapping.address(DATA_OFFSET),
        }
    }

    pub fn reference(&self) -> Option<RegionRef> {
        self.region().map(|region| RegionRef { id: region.id, len: self.len as u64 })
    }

    /// Marks the region as lent to `reader`, with the frame that names it.
    pub fn lend(&self, reader: u64) {
        if let Some(region) = self.region() {
            region.reader.store(reader, Ordering::Relaxed);
            region.turn(FREE, LENT);
        }
    }

    /// Its reader is dead, and may have left a copy of itself that still looks at it.
    pub fn retire(&self) {
        self.region().into_iter().for_each(|region| region.retire());
    }

    /// Called when the frame that names it was taken back: the reader will never touch it.
    pub fn take_back(&self) {
        self.region().into_iter().for_each(|region| region.turn(LENT, FREE));
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        match &self.memory {
            // The original's: neither its word nor its lock are ours.
            _ if self.made.is_in_copy() => {}
            Memory::Written(region, home) => home.give_back(region.clone()),
            Memory::Read { region, .. } if self.made.may_have_copies() => region.retire(),
            Memory::Read { region, .. } => region.turn(LENT, FREE),
            Memory::Own(_) => {}
        }
    }
}

/// A free region.
#[derive(Debug)]
struct Free {
    region: Arc<Region>,
    sweeps: u8,
}

#[derive(Debug, Default)]
struct Shelf {
    free: Vec<Free>,
    free_bytes: usize,
    /// Released by the writer, still held by their readers.
    lent: Vec<Arc<Region>>,
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
    /// Whether someone sweeps while there are regions.
    is_swept: AtomicBool,
    /// Wakes the sweeper when the first region is made.
    sweeper: Option<OwnedFd>,
}

impl RegionPool {
    /// Of a writer whose regions have one reader, which is lent them at once.
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

    /// Of a writer whose regions wait, and then go to any of several readers. `sweeper` is an event: who waits for it calls
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
        let old = shelf.sweep();
        let living = shelf.next_id.wrapping_sub(self.dropped.load(Ordering::Relaxed)) as usize;
        let next = (living > old.len()).then(|| now + SWEEP_EACH);
        shelf.sweep_at = next;
        self.is_swept.store(next.is_some(), Ordering::Release);
        drop(shelf);
        old.iter().for_each(|free| free.region.discard());
        next
    }

    /// Called when there are no readers left: returns all regions to the kernel, now and as they come back.
    pub fn close(&self) {
        let mut shelf = self.shelf.lock();
        let free = std::mem::take(&mut shelf.free);
        (shelf.free_bytes, shelf.is_closed) = (0, true);
        shelf.lent.clear();
        drop(shelf);
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
        shelf.next_id += 1;
        let id = shelf.next_id;
        self.wake_sweeper();
        drop(shelf);
        let size = len.max(SMALLEST_BYTES).next_power_of_two();
        let written = Written { counted: self.written.as_ref().map(Counted::new), dropped: self.dropped.clone() };
        match Region::create(id, size, written) {
            Ok(region) => Ok(Some(self.lease(Arc::new(region), len))),
            // By the time it is sent there may be room again.
            Err(_) if may_wait => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn lease(self: &Arc<Self>, region: Arc<Region>, len: usize) -> Lease {
        Lease::new(Memory::Written(region, self.clone()), len)
    }

    fn give_back(&self, region: Arc<Region>) {
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

impl Lease {
    fn write(&self, bytes: &[u8]) {
        if let Some(region) = self.region() {
            region.mapping.write(DATA_OFFSET, bytes);
        }
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

    /// What has been free for longer than it is kept.
    fn sweep(&mut self) -> Vec<Free> {
        let (old, mut kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.free).into_iter().partition(|free| free.sweeps == SWEEPS_KEPT);
        kept.iter_mut().for_each(|free| free.sweeps += 1);
        self.free = kept;
        self.free_bytes -= old.iter().map(|free| free.region.data_bytes()).sum::<usize>();
        self.collect();
        old
    }
}

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

    fn lease(table: &Mutex<RegionTable>, reference: RegionRef) -> Result<Arc<Lease>, WireError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: usize = 300_000;

    fn pool() -> Arc<RegionPool> {
        Arc::new(RegionPool::for_many_readers(sys::event_fd().expect("an event")))
    }

    fn id(lease: &Lease) -> u32 {
        lease.region().expect("a region").id
    }

    /// A lease on a region that was announced to this reader.
    fn read(table: &Mutex<RegionTable>, lease: &Lease) -> Arc<Lease> {
        let region = lease.region().expect("a region");
        let descriptor = region.descriptor().expect("kept").try_clone_to_owned().expect("dup");
        lease.lend(1);
        assert!(table.lock().announce(region.id, region.size(), Some(descriptor)).expect("announce"));
        RegionTable::lease(table, lease.reference().expect("a region")).expect("lease")
    }

    #[test]
    fn a_region_is_reused_once_its_reader_let_go() {
        let (pool, table) = (pool(), Mutex::default());
        let lease = pool.store(&[7; LARGE]).expect("shared memory");
        let first = id(&lease);
        let read = read(&table, &lease);
        assert_eq!(read.bytes(), &[7; LARGE][..]);
        drop(lease);
        assert_ne!(id(&pool.store(&[1; 10]).expect("shared memory")), first);
        drop(read);
        assert_eq!(id(&pool.store(&[1; LARGE]).expect("shared memory")), first);
    }

    #[test]
    fn failure_57_a_region_whose_reader_was_forked_is_not_used_again() {
        let pool = pool();
        let lease = pool.store(&[7; LARGE]).expect("shared memory");
        let region = lease.region().expect("a region").clone();
        lease.lend(1);
        let memory = Memory::Read { region: region.clone(), _counted: Counted::new(&Arc::default()) };
        let mut read = Lease::new(memory, LARGE);
        read.made = Moment::before_a_fork();
        drop(lease);
        drop(read);
        assert_ne!(id(&pool.store(&[1; LARGE]).expect("shared memory")), region.id);
        assert_eq!(pool.bytes().1, 0, "it is nobody's any more");
        region.turn(FREE, LENT);
        region.turn(LENT, FREE);
        assert_eq!(region.word(), RETIRED, "a later reader does not free it");
    }

    /// Sweeps at the time that was said; whether there is another one.
    fn sweep_then(pool: &RegionPool, due: &mut Option<Instant>) -> bool {
        *due = pool.sweep_when_due(due.unwrap_or_else(Instant::now));
        due.is_some()
    }

    #[test]
    fn failure_66_what_is_not_used_again_goes_back_to_the_kernel() {
        let (pool, table, mut due) = (pool(), Mutex::default(), None);
        assert!(!sweep_then(&pool, &mut due), "there is nothing");
        let lease = pool.store(&[7; LARGE]).expect("shared memory");
        let read = read(&table, &lease);
        drop(lease);
        (0..5).for_each(|_| assert!(sweep_then(&pool, &mut due)));
        assert_eq!(read.bytes(), &[7; LARGE][..], "its reader has it still");
        let region = read.region().expect("a region").clone();
        drop(read);
        assert!(sweep_then(&pool, &mut due) && sweep_then(&pool, &mut due));
        assert!(pool.bytes().0 > 0, "it may be used again soon");
        assert!(!sweep_then(&pool, &mut due));
        assert_eq!(pool.bytes(), (0, 0));
        assert_eq!(region.mapping.bytes(DATA_OFFSET, LARGE), &[0; LARGE][..], "where its reader has it mapped, too");
    }

    #[test]
    fn failure_66_who_sweeps_is_woken_by_the_first_region_alone() {
        let woken = sys::event_fd().expect("an event");
        let pool = Arc::new(RegionPool::for_many_readers(woken.try_clone().expect("dup")));
        let is_woken = || rustix::io::read(&woken, &mut [0; 8]).is_ok();
        for _ in 0..2 {
            let leases: Vec<_> = (0..3).map(|_| pool.store(&[7; LARGE]).expect("shared memory")).collect();
            assert!(is_woken());
            assert_eq!(leases.len(), 3);
            let mut due = pool.sweep_when_due(Instant::now());
            assert_eq!(pool.sweep_when_due(Instant::now()), due, "it is not yet time");
            drop(leases);
            drop(pool.store(&[7; LARGE]).expect("shared memory"));
            assert!(!is_woken(), "it knows");
            while sweep_then(&pool, &mut due) {}
            assert_eq!(pool.bytes(), (0, 0));
        }
    }

    #[test]
    fn failure_66_a_pool_that_is_over_keeps_nothing() {
        let pool = pool();
        let leases: Vec<_> = (0..3).map(|_| pool.store(&[7; LARGE]).expect("shared memory")).collect();
        let [first, second, third] = leases.try_into().expect("three");
        let regions = [&first, &second, &third].map(|lease: &Lease| Arc::downgrade(lease.region().expect("a region")));
        second.lend(1);
        third.lend(1);
        drop((first, second));
        assert!(regions.iter().all(|region| region.strong_count() == 1));
        pool.close();
        drop((third, pool.store(&[7; LARGE]).expect("shared memory")));
        assert!(regions.iter().all(|region| region.strong_count() == 0));
        assert_eq!(pool.bytes(), (0, 0));
    }

    #[test]
    fn what_is_used_again_and_again_is_kept() {
        let (pool, mut due) = (pool(), None);
        let first = id(&pool.store(&[7; LARGE]).expect("shared memory"));
        for _ in 0..10 {
            assert!(sweep_then(&pool, &mut due));
            assert_eq!(id(&pool.store(&[7; LARGE]).expect("shared memory")), first);
        }
    }

    #[test]
    fn a_dead_reader_holds_nothing() {
        let pool = pool();
        let lease = pool.store(&[7; LARGE]).expect("shared memory");
        lease.lend(9);
        drop(lease);
        assert!(pool.bytes().1 > 0);
        pool.reader_gone(9);
        assert_eq!(pool.bytes().1, 0);
    }

    #[test]
    fn failure_66_what_was_taken_back_and_given_up_is_free() {
        let pool = pool();
        let lease = pool.store(&[7; LARGE]).expect("shared memory");
        lease.lend(9);
        lease.take_back();
        drop(lease);
        assert_eq!(pool.bytes().1, 0);
    }

    #[test]
    fn a_reference_beyond_its_region_is_refused() {
        let (pool, table) = (pool(), Mutex::default());
        let lease = pool.store(&[7; 10]).expect("shared memory");
        read(&table, &lease);
        let region = id(&lease);
        let refused = |id, len| RegionTable::lease(&table, RegionRef { id, len }).err();
        assert_eq!(refused(region, 1 << 40), Some(WireError::Region(region)));
        assert_eq!(refused(region + 1, 1), Some(WireError::Region(region + 1)));
    }

    #[test]
    fn failure_59_a_writer_keeps_what_waits_beyond_its_regions_in_private_memory() {
        let pool = pool();
        let mut waiting: Vec<_> =
            (0..WRITTEN_MAX + 2).map(|_| Arc::new(pool.store(&[7; 70_000]).expect("memory"))).collect();
        let mut last = waiting.pop().expect("one");
        assert!(last.region().is_none());
        assert_eq!(last.bytes(), &[7; 70_000][..]);
        pool.place(&mut last).expect("shared memory");
        assert_eq!(last.bytes(), &[7; 70_000][..]);
        assert!(last.region().is_some(), "what is sent has to be in one");
        assert!(pool.store(&vec![7; WAITING_BYTES_MAX + 1]).expect("memory").region().is_some());
    }

    #[test]
    fn failure_59_a_reader_copies_what_it_keeps_beyond_a_number() {
        let (pool, table) = (pool(), Mutex::default());
        let lease = pool.store(&[7; 70_000]).expect("shared memory");
        let kept: Vec<_> = (0..READ_MAX).map(|_| read(&table, &lease)).collect();
        let copied = read(&table, &lease);
        assert!(copied.region().is_none());
        assert_eq!(copied.bytes(), kept[0].bytes());
        drop(kept);
        assert!(read(&table, &lease).region().is_some());
    }

    #[test]
    fn failure_59_a_region_that_did_not_arrive_fails_what_names_it_alone() {
        let table = Mutex::new(RegionTable::default());
        assert_eq!(table.lock().announce(3, 1 << 20, None), Ok(false));
        let error = RegionTable::lease(&table, RegionRef { id: 3, len: 1 }).err();
        assert_eq!(error, Some(WireError::Unreceived(3, Shortage::Descriptors)));
    }
}
