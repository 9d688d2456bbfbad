//! A signal's handler that may crash, run where that ends nobody: in a child that has this process's memory and nothing
//! else of it.
//!
//! The thread that got the signal waits for its child, so that what the handler looks at stands still. The child has
//! handlers of its own for crashes, and ends by them.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

const STACK_BYTES: usize = 128 << 10;

/// Signals that end the child alone.
const CRASHES: [c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];

#[repr(align(64))]
struct Stack(UnsafeCell<MaybeUninit<[u8; STACK_BYTES]>>);

// SAFETY: it is one child's at a time, see `TAKEN`.
unsafe impl Sync for Stack {}

static STACK: Stack = Stack(UnsafeCell::new(MaybeUninit::uninit()));
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The handler that may crash.
static HANDLER: AtomicUsize = AtomicUsize::new(0);

/// An eventfd that is signalled when it has ended.
static TOLD: AtomicI32 = AtomicI32::new(-1);

/// Has the handler that `signal` has now run in a child, in each thread that gets the signal. `told`, an eventfd that is to
/// stay open, is signalled each time it has ended, whether or not it crashed. For one signal of a process.
pub fn run_apart(signal: c_int, told: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a zeroed action is a valid one; both calls get pointers to actions that live until they return.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, std::ptr::null(), &mut now) != 0 {
            return Err(io::Error::last_os_error());
        }
        let own = handle as extern "C" fn(c_int) as usize;
        if now.sa_sigaction != own {
            HANDLER.store(now.sa_sigaction, Ordering::Release);
        }
        TOLD.store(told.as_raw_fd(), Ordering::Release);
        now.sa_sigaction = own;
        now.sa_flags = libc::SA_RESTART;
        match libc::sigaction(signal, &now, std::ptr::null_mut()) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

extern "C" fn handle(signal: c_int) {
    // SAFETY: of what a handler may call; errno is that of this thread, as is the child's: it is as it was when this ends.
    unsafe {
        let errno = *libc::__errno_location();
        if !TAKEN.swap(true, Ordering::AcqRel) {
            let top = STACK.0.get().cast::<u8>().add(STACK_BYTES).cast::<c_void>();
            // Without a signal at its end: whoever waits for children of this program does not see this one.
            let pid = libc::clone(child, top, libc::CLONE_VM | libc::CLONE_VFORK, signal as usize as *mut c_void);
            if pid > 0 {
                libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL);
            }
            TAKEN.store(false, Ordering::Release);
        }
        libc::write(TOLD.load(Ordering::Acquire), (&raw const ONE).cast(), size_of_val(&ONE));
        *libc::__errno_location() = errno;
    }
}

static ONE: u64 = 1;

extern "C" fn child(signal: *mut c_void) -> c_int {
    let handler = HANDLER.load(Ordering::Acquire);
    // SAFETY: the child has its own table of handlers and its own mask. `handler` was a signal's handler.
    unsafe {
        let mut ends: libc::sigaction = std::mem::zeroed();
        ends.sa_sigaction = end as extern "C" fn(c_int) as usize;
        let mut crashes: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut crashes);
        for crash in CRASHES {
            libc::sigaction(crash, &ends, std::ptr::null_mut());
            libc::sigaddset(&mut crashes, crash);
        }
        libc::sigprocmask(libc::SIG_UNBLOCK, &crashes, std::ptr::null_mut());
        if handler != libc::SIG_DFL && handler != libc::SIG_IGN {
            let handler: extern "C" fn(c_int) = std::mem::transmute(handler);
            handler(signal as usize as c_int);
        }
    }
    0
}

extern "C" fn end(_: c_int) {
    // SAFETY: ends the child at once, with nothing of this process's clean-up.
    unsafe { libc::_exit(1) };
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::sys;

    static RAN: AtomicI32 = AtomicI32::new(0);

    extern "C" fn crash_every_other_time(_: c_int) {
        if RAN.fetch_add(1, Ordering::SeqCst) % 2 == 0 {
            // SAFETY: it is not: the child dies of it.
            unsafe { std::ptr::null::<u8>().read_volatile() };
        }
    }

    #[test]
    fn a_handler_that_crashes_ends_nobody() {
        let signal = sys::real_time_signal(7);
        let told = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("an eventfd");
        // SAFETY: a handler for a signal that nobody else here uses.
        unsafe { libc::signal(signal, crash_every_other_time as extern "C" fn(c_int) as usize) };
        run_apart(signal, told.as_fd()).expect("a handler");
        let ended = || {
            u64::from_ne_bytes({
                let mut count = [0; 8];
                rustix::io::read(&told, &mut count).expect("it was told");
                count
            })
        };
        for _ in 0..20 {
            sys::signal_thread(sys::thread_id(), signal);
            assert_eq!(ended(), 1);
        }
        assert_eq!(RAN.load(Ordering::SeqCst), 20, "the child has the memory of this process");
        // SAFETY: asks for any child; there is none that such a call could find.
        assert_eq!(unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) }, -1);
    }
}
