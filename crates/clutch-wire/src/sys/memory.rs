//! Memory that is shared with other processes, and memory that user code writes to.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// Anonymous shared memory that can be passed to another process and never shrinks.
pub fn shared_memory(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, bytes as u64)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

/// A mapping of a whole memfd.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain shared memory without thread affinity; access goes through atomics and copies below.
unsafe impl Send for Mapping {}

// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `fd`, which must be at least that long and sealed against shrinking (checked).
    pub fn new(fd: BorrowedFd<'_>, len: usize) -> io::Result<Mapping> {
        Mapping::with(MapFlags::SHARED, fd, len)
    }

    /// Maps the same bytes for this process alone: whoever writes gets a copy of the page.
    pub fn private(fd: BorrowedFd<'_>, len: usize) -> io::Result<Mapping> {
        Mapping::with(MapFlags::PRIVATE, fd, len)
    }

    fn with(flags: MapFlags, fd: BorrowedFd<'_>, len: usize) -> io::Result<Mapping> {
        let size = rustix::fs::fstat(fd)?.st_size as usize;
        let sealed = rustix::fs::fcntl_get_seals(fd)?.contains(SealFlags::SHRINK);
        if size < len || !sealed || len == 0 {
            return Err(io::Error::other("shared memory that is too short or may shrink"));
        }
        // SAFETY: a fresh mapping at an address that the kernel chooses; the file cannot shrink below `len`.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags, fd, 0)? };
        NonNull::new(start.cast()).map(|start| Mapping { start, len }).ok_or_else(|| io::Error::other("mmap at 0"))
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The atomic word at byte offset `4 * index`.
    pub fn word(&self, index: usize) -> &AtomicU32 {
        assert!((index + 1) * 4 <= self.len, "a word outside of its mapping");
        // SAFETY: in bounds (checked), aligned (mappings are page-aligned), and only ever accessed as an atomic.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(index * 4).cast()) }
    }

    /// So many words from `index` on.
    pub fn words(&self, index: usize, count: usize) -> &[AtomicU32] {
        assert!((index + count) * 4 <= self.len, "words outside of their mapping");
        // SAFETY: as for one; atomics may be shared.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(index * 4).cast(), count) }
    }

    /// Address of the byte at `offset`, for buffers that user code writes to.
    pub fn address(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.len, "an offset outside of its mapping");
        // SAFETY: within the mapping or one past its end (checked).
        unsafe { self.start.as_ptr().add(offset) }
    }

    /// `len` bytes at `offset`. The other process has handed them over and writes them no more.
    pub fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "bytes outside of their mapping");
        // SAFETY: in bounds (checked); ownership of a region passes with the frame that names it.
        unsafe { std::slice::from_raw_parts(self.address(offset), len) }
    }

    /// Gives the memory from `offset` on back to the kernel, for all who have it mapped: it holds zeros then. Nobody may look
    /// at it any more.
    pub fn discard(&self, offset: usize) {
        let (start, len) = (self.address(offset), self.len - offset);
        // SAFETY: in bounds (checked); the writer owns the region, and no reader holds it. Where the kernel refuses, the memory
        // lasts as long as somebody has it mapped.
        let _ = unsafe { rustix::mm::madvise(start.cast(), len, rustix::mm::Advice::LinuxRemove) };
    }

    /// Copies `bytes` to `offset`.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.len), "a write outside of its mapping");
        // SAFETY: in bounds (checked); the writer owns the region until it sends the frame that names it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.address(offset), bytes.len()) }
    }
}

impl Mapping {
    /// Copies from `offset` into `bytes`.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.len), "a read outside of its mapping");
        // SAFETY: in bounds (checked); private memory of the caller is written.
        unsafe { std::ptr::copy_nonoverlapping(self.address(offset), bytes.as_mut_ptr(), bytes.len()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing borrows from it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Private memory that user code may write to while we hold it.
#[derive(Debug)]
pub struct Heap {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory without thread affinity, as that of a mapping.
unsafe impl Send for Heap {}

// SAFETY: as above.
unsafe impl Sync for Heap {}

impl Heap {
    pub fn copy_of(bytes: &[u8]) -> io::Result<Heap> {
        let mut copy = Vec::new();
        copy.try_reserve_exact(bytes.len())?;
        copy.extend_from_slice(bytes);
        let (len, memory) = (copy.len(), Box::leak(copy.into_boxed_slice()));
        Ok(Heap { start: NonNull::from(memory).cast(), len })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn address(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is ours and of this length; who is given its address has the only use of it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: made from a box of this length, which nothing else has freed.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len)) });
    }
}

/// Anonymous memory with these bytes, to be read from its start.
pub fn memory_with(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = std::fs::File::from(memory_file(name)?);
    std::io::Write::write_all(&mut file, bytes)?;
    std::io::Seek::rewind(&mut file)?;
    Ok(file.into())
}

/// Anonymous memory as a file of this process, empty.
pub fn memory_file(name: &str) -> io::Result<OwnedFd> {
    Ok(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?)
}

/// Takes up to `len` bytes from the start of a file, and empties it.
pub fn take_file(file: BorrowedFd<'_>, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let count = rustix::io::pread(file, &mut bytes, 0)?;
    bytes.truncate(count);
    rustix::fs::ftruncate(file, 0)?;
    rustix::fs::seek(file, rustix::fs::SeekFrom::Start(0))?;
    Ok(bytes)
}
