//! Regions: sealed shared memory for payload parts too large for a frame.
//!
//! The writer owns a region and lends it with the frame that names it. The region's first word says who has it: the
//! writer sets it when it lends, the reader clears it when it has let go. A reader that was forked meanwhile, or has died,
//! may have left a copy of itself that still looks at the region: that one is not used again, and the kernel keeps its
//! pages for whoever maps them. Both sides hold a bounded number: the writer keeps in memory of its own what waits to be
//! sent, the reader copies what it is lent beyond that. Free regions are swept: what was not used again for two sweeps goes
//! back to the kernel.

mod reader;
mod writer;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

pub use self::reader::RegionTable;
pub use self::writer::{RegionPool, WRITTEN_MAX};
use crate::forked::Moment;
use crate::frame::RegionRef;
use crate::sync::Mutex;
use crate::sys::{self, Heap, Mapping};

/// Data starts on the second page, so that arrays are aligned; the first holds the word.
const DATA_OFFSET: usize = 4096;

const FREE: u32 = 0;

const LENT: u32 = 1;

/// Never reused; the memory lasts as long as a process has it mapped.
const RETIRED: u32 = 2;

/// For any number of readers at once, none of whom changes it. Never reused, as a retired one.
const SHARED: u32 = 3;

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

/// A piece of shared memory.
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
    /// This is the reader, and nobody else is.
    None,
    /// This is one of several readers, each of which may map it once more for itself.
    Received(OwnedFd),
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
        let is_shared = mapping.word(0).load(Ordering::Acquire) == SHARED;
        let descriptor = if is_shared { Announcement::Received(descriptor) } else { Announcement::None };
        Ok(Region { id, mapping, descriptor, reader: AtomicU64::new(u64::MAX), _written: None })
    }

    /// Bytes of the whole memfd, as a descriptor frame announces them.
    pub fn size(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// Returns the descriptor of a region that has several readers.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.descriptor {
            Announcement::Kept(descriptor) => Some(descriptor.as_fd()),
            _ => None,
        }
    }

    /// Takes the descriptor of a region that has one reader, for that one.
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

    /// Marks it as never to be lent again, which a shared one never is.
    pub fn retire(&self) {
        let word = self.mapping.word(0);
        let _ = word.fetch_update(Ordering::Release, Ordering::Acquire, |word| (word != SHARED).then_some(RETIRED));
    }

    /// Allows any number of readers at once.
    fn share(&self) {
        self.mapping.word(0).store(SHARED, Ordering::Release);
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
    /// A shared region as this process alone has it.
    Private(Mapping),
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

    /// Returns the place in shared memory, if it has one.
    pub fn region(&self) -> Option<&Arc<Region>> {
        match &self.memory {
            Memory::Written(region, _) | Memory::Read { region, .. } => Some(region),
            Memory::Private(_) | Memory::Own(_) => None,
        }
    }

    /// The bytes where they lie. In a region another process may change them, against all rules: what has to be one thing
    /// from its check to its use is copied first.
    pub fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Own(heap) => heap.bytes(),
            Memory::Private(mapping) => mapping.bytes(DATA_OFFSET, self.len),
            Memory::Written(region, _) | Memory::Read { region, .. } => region.mapping.bytes(DATA_OFFSET, self.len),
        }
    }

    /// Address of the bytes, for a buffer that user code may write to.
    pub fn address(&self) -> *mut u8 {
        match &self.memory {
            Memory::Own(heap) => heap.address(),
            Memory::Private(mapping) => mapping.address(DATA_OFFSET),
            Memory::Written(region, _) | Memory::Read { region, .. } => region.mapping.address(DATA_OFFSET),
        }
    }

    /// Returns what this process may write to, if the bytes are shared with other readers: they have their own pages from
    /// then on.
    pub fn private(&self) -> io::Result<Option<Lease>> {
        let Some(Announcement::Received(descriptor)) = self.region().map(|region| &region.descriptor) else {
            return Ok(None);
        };
        let mapping = Mapping::private(descriptor.as_fd(), DATA_OFFSET + self.len)?;
        Ok(Some(Lease::new(Memory::Private(mapping), self.len)))
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

    /// Called when the reader is dead, and may have left a copy of itself that still looks at it.
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
            Memory::Private(_) | Memory::Own(_) => {}
        }
    }
}

impl Lease {
    fn write(&self, bytes: &[u8]) {
        if let Some(region) = self.region() {
            region.mapping.write(DATA_OFFSET, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::time::Instant;

    use super::reader::READ_MAX;
    use super::writer::WAITING_BYTES_MAX;
    use super::*;
    use crate::frame::{Shortage, WireError};

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
    fn several_read_what_is_shared_and_each_writes_to_pages_of_its_own() {
        let (pool, tables) = (pool(), [Mutex::default(), Mutex::default()]);
        let lease = pool.store_shared(&[7; LARGE]).expect("shared memory");
        let [one, other] = tables.each_ref().map(|table| read(table, &lease));
        let private = one.private().expect("mapped").expect("it is shared");
        // SAFETY: nobody else has the private mapping.
        unsafe { private.address().write(9) };
        assert_eq!(private.bytes()[..2], [9, 7]);
        assert!([&one, &other].iter().all(|lease| lease.bytes() == &[7; LARGE][..]));
        let first = id(&lease);
        drop((one, other, lease));
        assert_eq!(pool.dropped().load(Ordering::Relaxed), 1, "it is not kept for reuse");
        assert_ne!(id(&pool.store(&[1; LARGE]).expect("shared memory")), first);
        assert_eq!(private.bytes()[..2], [9, 7], "and lasts as long as somebody has it");
    }

    #[test]
    fn what_one_reader_is_lent_is_not_made_private() {
        let (pool, table) = (pool(), Mutex::default());
        let lease = pool.store(&[7; LARGE]).expect("shared memory");
        assert!(read(&table, &lease).private().expect("nothing to do").is_none());
    }

    #[test]
    fn what_is_held_is_let_go_some_sweeps_later() {
        let (pool, mut due) = (pool(), None);
        let held: Arc<dyn Any + Send + Sync> = Arc::new(pool.store_shared(&[7; LARGE]).expect("shared memory"));
        let alive = Arc::downgrade(&held);
        pool.hold(&held, LARGE);
        pool.hold(&held, LARGE);
        drop(held);
        let swept = (0..100).take_while(|_| sweep_then(&pool, &mut due)).count();
        assert!(alive.upgrade().is_none() && (5..50).contains(&swept), "after {swept} sweeps");
        assert_eq!(pool.bytes(), (0, 0));
    }

    #[test]
    fn failure_66_a_few_are_held_and_not_much() {
        let pool = pool();
        let hold = |bytes: usize| {
            let held: Arc<dyn Any + Send + Sync> = Arc::new(pool.store_shared(&[7; LARGE]).expect("shared memory"));
            pool.hold(&held, bytes);
            Arc::downgrade(&held)
        };
        let few: Vec<_> = (0..10).map(|_| hold(LARGE)).collect();
        assert_eq!(few.iter().filter(|held| held.strong_count() > 0).count(), 4);
        let large: Vec<_> = (0..3).map(|_| hold(200 << 20)).collect();
        assert_eq!(few.iter().chain(&large).filter(|held| held.strong_count() > 0).count(), 1, "the last one");
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
