//! Signals that end a process: in workers and zygotes, those of their dispatcher count, and no others.
//!
//! A service manager, `timeout` or a shell sends TERM to every process of a service at once. The dispatcher then ends its
//! workers in order, so they must not end by themselves. The dispatcher's own TERM comes as a real-time signal: of two TERMs
//! that are pending a process hears the first alone.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use super::fd::event_fd;

/// Among the real-time signals: stands for the dispatcher's TERM.
const OWN_TERM: i32 = 12;

/// Signals that are sent to whole groups to end or reload a service.
const GUARDED: [i32; 3] = [libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// The process that guards itself. Its forks inherit the handler, and are ended by everybody.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// An eventfd that is written when a TERM from outside was not heeded; -1: there is none.
static BELL: AtomicI32 = AtomicI32::new(-1);

/// What was there before this handler, by signal: the handler and its flags.
static BEFORE: [Before; GUARDED.len()] = [const { Before::new() }; GUARDED.len()];

struct Before {
    handler: AtomicUsize,
    flags: AtomicI32,
}

impl Before {
    const fn new() -> Before {
        Before { handler: AtomicUsize::new(libc::SIG_DFL), flags: AtomicI32::new(0) }
    }

    fn of(signal: i32) -> Option<&'static Before> {
        GUARDED.iter().position(|guarded| *guarded == signal).map(|at| &BEFORE[at])
    }
}

/// Sends a process the TERM that it heeds.
pub fn send_own_term(pid: i32) {
    super::signal_process(pid, own_term());
}

/// From here on this process does not heed the signals of others that end processes.
pub fn guard_from_signals() {
    OWNER.store(own_pid(), Ordering::Release);
    GUARDED.into_iter().for_each(guard);
    hear_own_term();
}

/// The same for TERM alone, once another handler has been set, which the dispatcher's TERM then reaches.
pub fn guard_from_term() {
    if OWNER.load(Ordering::Acquire) == own_pid() {
        guard(libc::SIGTERM);
        hear_own_term();
    }
}

/// The real-time signal that stands for the dispatcher's TERM.
pub fn own_term() -> i32 {
    libc::SIGRTMIN() + OWN_TERM
}

/// Returns an eventfd that is readable when others have sent TERM.
pub fn foreign_terms() -> io::Result<OwnedFd> {
    let bell = event_fd()?;
    BELL.store(bell.as_fd().as_raw_fd(), Ordering::Release);
    Ok(bell)
}

fn own_pid() -> i32 {
    // SAFETY: it cannot fail.
    unsafe { libc::getpid() }
}

fn guard(signal: i32) {
    let Some(before) = Before::of(signal) else { return };
    let ours = on_signal as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
    // SAFETY: both structures are whole, and the handler does only what a signal handler may.
    unsafe {
        let mut was = MaybeUninit::<libc::sigaction>::zeroed();
        if libc::sigaction(signal, std::ptr::null(), was.as_mut_ptr()) != 0 {
            return;
        }
        let was = was.assume_init();
        if was.sa_sigaction == ours {
            return;
        }
        before.handler.store(was.sa_sigaction, Ordering::Release);
        before.flags.store(was.sa_flags, Ordering::Release);
        handle(signal, ours);
    }
}

fn hear_own_term() {
    let handler = on_own_term as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
    // SAFETY: the handler does only what a signal handler may.
    unsafe { handle(own_term(), handler) };
}

/// # Safety
/// `handler` is one with three arguments.
unsafe fn handle(signal: i32, handler: usize) {
    // SAFETY: the structure is whole.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = handler;
        // Without SA_RESTART, as Python's own handlers: what waits returns, and Python's handlers run.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
    }
}

/// The handler of the dispatcher's TERM.
extern "C" fn on_own_term(_: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: as in `on_signal`.
    unsafe {
        let errno = *libc::__errno_location();
        if is_elsewhere() {
            libc::syscall(libc::SYS_tgkill, own_pid(), own_pid(), own_term());
        } else {
            pass_on(libc::SIGTERM, info, context);
        }
        *libc::__errno_location() = errno;
    }
}

/// The handler of guarded signals: passes what a process sends itself to what was there before.
extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a whole siginfo; all calls here are async-signal-safe, and errno is put back.
    unsafe {
        let errno = *libc::__errno_location();
        if own_pid() != OWNER.load(Ordering::Acquire) || is_own(&*info) {
            pass_on(signal, info, context);
        } else if signal == libc::SIGTERM {
            let bell = BELL.load(Ordering::Acquire);
            if bell >= 0 {
                libc::write(bell, (&raw const ONE).cast(), size_of::<u64>());
            }
        }
        *libc::__errno_location() = errno;
    }
}

/// Returns whether a handler was set and this is not the main thread: Python's handlers run there alone, and what waits in
/// it would not notice. The kernel chooses another thread while a signal is pending for that one.
fn is_elsewhere() -> bool {
    let handler = Before::of(libc::SIGTERM).map_or(libc::SIG_DFL, |before| before.handler.load(Ordering::Acquire));
    // SAFETY: it cannot fail.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    handler != libc::SIG_DFL && handler != libc::SIG_IGN && thread != i64::from(own_pid())
}

static ONE: u64 = 1;

/// # Safety
/// In a handler with SA_SIGINFO.
unsafe fn is_own(info: &libc::siginfo_t) -> bool {
    // SAFETY: these fields are there for signals that were sent, which the code says first.
    unsafe {
        match info.si_code {
            libc::SI_USER | libc::SI_TKILL | libc::SI_QUEUE => info.si_pid() == own_pid(),
            // By the kernel.
            code => code > 0,
        }
    }
}

/// # Safety
/// In a handler with SA_SIGINFO, with its own arguments.
unsafe fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(before) = Before::of(signal) else { return };
    // SAFETY: the handler is one that was registered with these flags.
    unsafe {
        match before.handler.load(Ordering::Acquire) {
            libc::SIG_IGN => {}
            libc::SIG_DFL => {
                libc::signal(signal, libc::SIG_DFL);
                // Where this is its own handler, it is blocked until that returns.
                libc::raise(signal);
            }
            handler if before.flags.load(Ordering::Acquire) & libc::SA_SIGINFO != 0 => {
                let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = std::mem::transmute(handler);
                handler(signal, info, context);
            }
            handler => {
                let handler: extern "C" fn(i32) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}
