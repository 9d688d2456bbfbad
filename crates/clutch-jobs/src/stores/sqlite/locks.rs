//! SQLite beside neighbours in the same process, and after a fork.
//!
//! SQLite locks with POSIX record locks, which belong to the process: when anybody in it closes any descriptor of the same
//! file, all of them are gone, and two writers may destroy the file (<https://www.sqlite.org/howtocorrupt.html>, 2.2). SQLite
//! takes care of that within one copy of itself; but a program that uses Python's `sqlite3` on the file where its jobs are
//! has two copies. So ours takes open file description locks (fcntl(2)), which end with its own descriptors only, and
//! whoever opens a store for a program keeps it open, since to close it would take the neighbour's locks away.
//!
//! After a fork, SQLite in the copy would find the original's files in its own tables, take their locks for its own, and
//! write beside the original (2.6). So a copy sees each file under another device number: it knows none of them, and opens
//! them anew. The descriptors of the original are closed in it, or their locks would outlive the original. What SQLite
//! shares between its connections is free in the copy, since a fork waits until no thread is in the midst of it.
//!
//! The only unsafe code of this crate.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Once, OnceLock};

use clutch_wire::forked;
use rusqlite::{Connection, ffi};

/// Far above the numbers of real devices.
const DEVICE_OF_COPY: u32 = 40;

type Any = unsafe extern "C" fn();
type Open = unsafe extern "C" fn(*const c_char, c_int, c_int) -> c_int;
type Close = unsafe extern "C" fn(c_int) -> c_int;
type Fcntl = unsafe extern "C" fn(c_int, c_int, *mut c_void) -> c_int;
type Stat = unsafe extern "C" fn(*const c_char, *mut libc::stat) -> c_int;
type Fstat = unsafe extern "C" fn(c_int, *mut libc::stat) -> c_int;

/// Before the first connection of the process. Where other threads may fork, not beside a fork: a copy that is made in its
/// midst never gets through.
pub fn keep_from_neighbours() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        static_mutexes();
        // SAFETY: none of the three unwinds, and they live as long as the library that has them.
        unsafe {
            libc::pthread_atfork(Some(enter_static_mutexes), Some(leave_static_mutexes), Some(leave_static_mutexes))
        };
        // SAFETY: SQLite calls a replaced system call with the signature of the original. That of fcntl is variadic: with
        // integers and pointers such a call passes its arguments as any other on the platforms of Linux that this is built
        // for (x86-64 and AArch64).
        let calls: [(&CStr, Any); 5] = unsafe {
            [
                (c"open", std::mem::transmute::<Open, Any>(open)),
                (c"close", std::mem::transmute::<Close, Any>(close)),
                (c"fcntl", std::mem::transmute::<Fcntl, Any>(fcntl)),
                (c"stat", std::mem::transmute::<Stat, Any>(stat)),
                (c"fstat", std::mem::transmute::<Fstat, Any>(fstat)),
            ]
        };
        // SAFETY: the default VFS lives as long as the library.
        unsafe {
            let vfs = ffi::sqlite3_vfs_find(std::ptr::null());
            if let Some(vfs) = vfs.as_mut()
                && let Some(set) = vfs.xSetSystemCall
            {
                for (name, call) in calls {
                    set(vfs, name.as_ptr(), Some(call));
                }
            }
        }
    });
}

/// Whether another file, or none, is at the path of the one that is open: SQLite compares the descriptor that it has.
pub(super) fn has_moved(connection: &Connection) -> bool {
    let mut moved: c_int = 0;
    // SAFETY: the connection is open, and this call writes one number of this kind.
    let answer = unsafe {
        let number = std::ptr::from_mut(&mut moved).cast::<c_void>();
        ffi::sqlite3_file_control(connection.handle(), c"main".as_ptr(), ffi::SQLITE_FCNTL_HAS_MOVED, number)
    };
    answer == ffi::SQLITE_OK && moved != 0
}

/// Locks one byte of an open file, unless another open file has it.
pub(super) fn try_lock(file: impl AsFd, at: u64) -> io::Result<bool> {
    match lock_call(file, libc::F_OFD_SETLK, libc::F_WRLCK, at..at + 1) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

pub(super) fn unlock(file: impl AsFd, at: u64) {
    let _ = lock_call(file, libc::F_OFD_SETLK, libc::F_UNLCK, at..at + 1);
}

/// The first byte of a lock that another open file has in a range; of several any.
pub(super) fn any_lock(file: impl AsFd, range: Range<u64>) -> Option<u64> {
    let found = lock_call(file, libc::F_OFD_GETLK, libc::F_WRLCK, range).ok()?;
    let is_locked = i32::from(found.l_type) != libc::F_UNLCK;
    is_locked.then(|| u64::try_from(found.l_start).ok()).flatten()
}

fn lock_call(file: impl AsFd, command: c_int, kind: c_int, range: Range<u64>) -> io::Result<libc::flock> {
    let mut lock = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: range.start as i64,
        l_len: (range.end - range.start) as i64,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and the lock lives as long as the call.
    match unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, &raw mut lock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(lock),
    }
}

/// Mutexes that SQLite's connections share, in the order in which it enters them itself: caches, tables of open
/// files, random numbers (whose first look for a VFS is within), tables of its parts, pages, memory. Each is held for a
/// moment: at most while a file is opened or closed, and never while another process is waited for.
const STATIC_MUTEXES: [c_int; 7] = [
    ffi::SQLITE_MUTEX_STATIC_OPEN,
    ffi::SQLITE_MUTEX_STATIC_VFS1,
    ffi::SQLITE_MUTEX_STATIC_PRNG,
    ffi::SQLITE_MUTEX_STATIC_MAIN,
    ffi::SQLITE_MUTEX_STATIC_LRU,
    ffi::SQLITE_MUTEX_STATIC_PMEM,
    ffi::SQLITE_MUTEX_STATIC_MEM,
];

/// A mutex that SQLite never frees.
struct StaticMutex(*mut ffi::sqlite3_mutex);

// SAFETY: to be used by any thread is what it is for.
unsafe impl Send for StaticMutex {}
// SAFETY: see above.
unsafe impl Sync for StaticMutex {}

fn static_mutexes() -> &'static [StaticMutex] {
    static MUTEXES: OnceLock<Vec<StaticMutex>> = OnceLock::new();
    // SAFETY: those of these numbers exist always, and are given, not made.
    MUTEXES.get_or_init(|| {
        STATIC_MUTEXES.into_iter().map(|id| StaticMutex(unsafe { ffi::sqlite3_mutex_alloc(id) })).collect()
    })
}

unsafe extern "C" fn enter_static_mutexes() {
    // SAFETY: no thread forks from within SQLite, so this one has none of them.
    static_mutexes().iter().for_each(|mutex| unsafe { ffi::sqlite3_mutex_enter(mutex.0) });
}

unsafe extern "C" fn leave_static_mutexes() {
    // SAFETY: this thread, or the one that it is the copy of, has entered them.
    static_mutexes().iter().rev().for_each(|mutex| unsafe { ffi::sqlite3_mutex_leave(mutex.0) });
}

unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    // SAFETY: as SQLite has called it.
    let descriptor = unsafe { libc::open(path, flags, mode) };
    if descriptor >= 0 {
        forked::track(descriptor);
    }
    descriptor
}

unsafe extern "C" fn close(descriptor: c_int) -> c_int {
    forked::untrack(descriptor);
    // SAFETY: as SQLite has called it.
    unsafe { libc::close(descriptor) }
}

unsafe extern "C" fn fcntl(descriptor: c_int, command: c_int, argument: *mut c_void) -> c_int {
    let own = match command {
        libc::F_SETLK => libc::F_OFD_SETLK,
        libc::F_SETLKW => libc::F_OFD_SETLKW,
        libc::F_GETLK => libc::F_OFD_GETLK,
        // SAFETY: as SQLite has called it.
        other => return unsafe { libc::fcntl(descriptor, other, argument) },
    };
    // SAFETY: with these commands the argument is a lock. The kernel wants no process named in it.
    unsafe {
        (*argument.cast::<libc::flock>()).l_pid = 0;
        libc::fcntl(descriptor, own, argument)
    }
}

unsafe extern "C" fn stat(path: *const c_char, found: *mut libc::stat) -> c_int {
    // SAFETY: as SQLite has called it.
    unsafe { renamed(libc::stat(path, found), found) }
}

unsafe extern "C" fn fstat(descriptor: c_int, found: *mut libc::stat) -> c_int {
    // SAFETY: as SQLite has called it.
    unsafe { renamed(libc::fstat(descriptor, found), found) }
}

/// The same file under the device number of this copy.
///
/// # Safety
/// `found` is filled where `result` is 0.
unsafe fn renamed(result: c_int, found: *mut libc::stat) -> c_int {
    if result == 0 {
        // SAFETY: see above.
        unsafe { (*found).st_dev ^= (forked::generation() as libc::dev_t) << DEVICE_OF_COPY };
    }
    result
}
