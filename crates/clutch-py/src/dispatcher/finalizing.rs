//! Threads that still run when the interpreter finalizes: they wait for the end of the process.
//!
//! Before 3.14 CPython ends a daemon thread that wants the GIL then with `pthread_exit`, which unwinds its stack. A Rust
//! frame on it, and there is one below all that this extension waits for and calls, would abort the process. From 3.14 on
//! CPython has such threads wait; with a handler of [`wait_when_finalizing`] a thread does so with the others, too.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use pyo3::ffi;

/// Buffer in which the C library keeps a handler, opaque: `_pthread_cleanup_buffer` of glibc, which is the larger,
/// `__ptcb` of musl.
type Buffer = [*mut c_void; 4];

unsafe extern "C" {
    fn _pthread_cleanup_push(buffer: *mut Buffer, routine: extern "C" fn(*mut c_void), argument: *mut c_void);
    fn _pthread_cleanup_pop(buffer: *mut Buffer, execute: c_int);
}

/// A handler of this thread's `pthread_exit`. The C library calls it before the first frame is unwound, as its buffer lies in
/// none of them.
struct ExitHandler(*mut Buffer);

impl ExitHandler {
    fn new() -> ExitHandler {
        let buffer = Box::into_raw(Box::new([null_mut(); 4]));
        // SAFETY: the buffer is freed only after it was popped.
        unsafe { _pthread_cleanup_push(buffer, wait_for_end, null_mut()) };
        ExitHandler(buffer)
    }
}

impl Drop for ExitHandler {
    fn drop(&mut self) {
        // SAFETY: this thread pushed it, and nobody else's handler is left where thread-locals are dropped: at its end.
        unsafe { _pthread_cleanup_pop(self.0, 0) };
        // SAFETY: from `into_raw`; the C library knows it no more.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// Leaves alone a thread that somebody else ends.
extern "C" fn wait_for_end(_: *mut c_void) {
    // SAFETY: only reads a flag, from any thread; finalization takes it back first of all.
    while unsafe { ffi::Py_IsInitialized() } == 0 {
        std::thread::park();
    }
}

thread_local! {
    static HANDLER: ExitHandler = ExitHandler::new();
}

/// From here on the interpreter's finalization leaves this thread waiting, wherever it is.
pub fn wait_when_finalizing() {
    // A thread whose thread-locals are gone comes to no Python code any more.
    let _ = HANDLER.try_with(|_| ());
}
