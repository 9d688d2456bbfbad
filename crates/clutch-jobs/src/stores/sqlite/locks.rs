//! Locks of files that no neighbour in the same process can take away.
//!
//! SQLite locks with POSIX record locks, which belong to the process: when anybody in it closes any descriptor of the same
//! file, all of them are gone, and two writers may destroy the file (<https://www.sqlite.org/howtocorrupt.html>, 2.2). SQLite
//! takes care of that within one copy of itself; but a program that uses Python's `sqlite3` on the file where its jobs are
//! has two copies. So ours takes open file description locks (fcntl(2)), which end with its own descriptors only, and
//! whoever opens a store for a program keeps it open, since to close it would take the neighbour's locks away.
//!
//! The only unsafe code of this crate.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Once;

use rusqlite::ffi;

/// Before the first connection.
pub(super) fn keep_from_neighbours() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        const NAME: *const c_char = c"fcntl".as_ptr();
        // SAFETY: the default VFS lives as long as the library. SQLite calls a replaced system call with the signature of
        // the original, fcntl(int, int, ...); with integers and pointers a variadic call passes its arguments as any other
        // on the platforms of Linux that this is built for (x86-64 and AArch64).
        unsafe {
            let vfs = ffi::sqlite3_vfs_find(std::ptr::null());
            if let Some(vfs) = vfs.as_mut()
                && let Some(set) = vfs.xSetSystemCall
            {
                let ours = std::mem::transmute::<Fcntl, unsafe extern "C" fn()>(fcntl);
                set(vfs, NAME, Some(ours));
            }
        }
    });
}

type Fcntl = unsafe extern "C" fn(c_int, c_int, *mut c_void) -> c_int;

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
