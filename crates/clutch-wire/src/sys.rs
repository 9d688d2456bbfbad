//! Calls to the kernel about descriptors, shared memory and processes. With `sys/apart.rs` the only file of this crate with
//! `unsafe`.
//!
//! Everything here is a thin, safe door: shared mappings are exposed as atomics and copies.

pub mod apart;

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Most descriptors received by one call; more than any frame carries.
const DESCRIPTORS_MAX: usize = 16;

/// A pair of connected sockets that carry messages in order, closed on exec.
pub fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// A pipe, closed on exec: (read end, write end).
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

/// An eventfd that does not block: written to wake whoever polls it.
pub fn event_fd() -> io::Result<OwnedFd> {
    Ok(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

pub fn signal_event(fd: BorrowedFd<'_>) {
    // A full counter means that the reader has been woken already.
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}

pub fn clear_event(fd: BorrowedFd<'_>) {
    let _ = rustix::io::read(fd, &mut [0u8; 8]);
}

/// Sends bytes and descriptors; `wait` says whether a full socket blocks. Returns the number of bytes sent.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>], wait: bool) -> io::Result<usize> {
    let flags = SendFlags::NOSIGNAL | if wait { SendFlags::empty() } else { SendFlags::DONTWAIT };
    if fds.is_empty() {
        return Ok(rustix::net::send(socket, bytes, flags)?);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    Ok(rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?)
}

/// Receives one message. 0 is the end.
pub fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8], wait: bool) -> io::Result<usize> {
    let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
    let (count, _) = rustix::net::recv(socket, bytes, flags)?;
    Ok(count)
}

/// Receives one message, and its descriptors into `fds`. 0 is the end.
pub fn receive_with_descriptors(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    fds: &mut impl Extend<OwnedFd>,
    wait: bool,
) -> io::Result<usize> {
    let flags = RecvFlags::CMSG_CLOEXEC | if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = part {
            fds.extend(received);
        }
    }
    Ok(message.bytes)
}

/// Ends a connection in both directions, whoever else has a copy of its socket.
pub fn hang_up(socket: BorrowedFd<'_>) {
    // The peer may have ended it already.
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
}

/// Whether the other end has closed a connection, or broken it, and left nothing to read.
pub fn is_at_end(socket: BorrowedFd<'_>) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match rustix::net::recv(socket, &mut [0u8; 1][..], flags) {
        Ok((count, _)) => count == 0,
        Err(errno) => errno != rustix::io::Errno::AGAIN && errno != rustix::io::Errno::INTR,
    }
}

/// A socket that this process was handed over by number, listening already; the number stays its owner's.
pub fn listening_socket(fd: RawFd) -> io::Result<OwnedFd> {
    let missing = || io::Error::new(io::ErrorKind::InvalidInput, format!("descriptor {fd} is not a listening socket"));
    // SAFETY: the number is only used for this call, which copies it or fails.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    let socket = if copy < 0 { return Err(missing()) } else { adopt(copy) };
    // Looked at before anything is changed: the flags are the original's too, and that may be a pipe of our own.
    if !rustix::net::sockopt::socket_acceptconn(&socket).unwrap_or(false) {
        return Err(missing());
    }
    rustix::fs::fcntl_setfl(&socket, rustix::fs::fcntl_getfl(&socket)? | rustix::fs::OFlags::NONBLOCK)?;
    Ok(socket)
}

/// Waits until `fd` is readable or the deadline passes; false when it passed.
pub fn wait_readable(fd: BorrowedFd<'_>, deadline: Option<Instant>) -> io::Result<bool> {
    let timeout = deadline.map(|at| at.saturating_duration_since(Instant::now())).map(timespec);
    let mut polled = [PollFd::new(&fd, PollFlags::IN)];
    Ok(rustix::event::poll(&mut polled, timeout.as_ref())? > 0)
}

/// Waits until `fd` takes bytes, or never will.
pub fn wait_writable(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut polled = [PollFd::new(&fd, PollFlags::OUT)];
    match rustix::event::poll(&mut polled, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Nanoseconds of CLOCK_MONOTONIC, the same in all processes of this machine.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The same clock at the kernel's last tick, which is cheaper to read.
pub fn coarse_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Time between two ticks.
pub fn coarse_tick_ns() -> u64 {
    static TICK: OnceLock<u64> = OnceLock::new();
    *TICK.get_or_init(|| {
        let tick = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
        tick.tv_sec as u64 * 1_000_000_000 + tick.tv_nsec as u64
    })
}

/// A duration as a timespec.
pub fn timespec(duration: Duration) -> rustix::event::Timespec {
    rustix::event::Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: duration.subsec_nanos() as _ }
}

/// Anonymous shared memory that can be passed to another process and never shrinks.
pub fn shared_memory(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, bytes as u64)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

/// A shared mapping of a whole memfd.
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
        let size = rustix::fs::fstat(fd)?.st_size as usize;
        let sealed = rustix::fs::fcntl_get_seals(fd)?.contains(SealFlags::SHRINK);
        if size < len || !sealed || len == 0 {
            return Err(io::Error::other("shared memory that is too short or may shrink"));
        }
        // SAFETY: a fresh shared mapping at an address that the kernel chooses; the file cannot shrink below `len`.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, fd, 0)?
        };
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

/// Whether a call to the kernel failed for want of memory or descriptors: it may succeed some time later.
pub fn is_shortage(error: &io::Error) -> bool {
    let short = [libc::ENOBUFS, libc::ENOMEM, libc::ETOOMANYREFS, libc::EMFILE, libc::ENFILE];
    error.raw_os_error().is_some_and(|number| short.contains(&number))
}

/// Takes over a descriptor that this process was given by number.
pub fn adopt(fd: RawFd) -> OwnedFd {
    // SAFETY: the caller hands over the one owner of this number.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Makes `fd` refer to what `by` does, closed on exec; its owner may still close the number.
pub fn replace(fd: RawFd, by: BorrowedFd<'_>) {
    // SAFETY: dup3 onto a number that some OwnedFd in this process keeps owning.
    unsafe { libc::dup3(by.as_raw_fd(), fd, libc::O_CLOEXEC) };
}

/// A descriptor of the process itself: readable when it ends.
pub fn pidfd(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("pid 0"))?;
    Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
}

/// How a process group is ended: TERM may be ignored, KILL cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EndSignal {
    Kill = 9,
    Term = 15,
}

impl EndSignal {
    /// By its number; every other number is KILL's.
    pub fn of_number(number: u8) -> EndSignal {
        if number == EndSignal::Term as u8 { EndSignal::Term } else { EndSignal::Kill }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            EndSignal::Kill => "SIGKILL",
            EndSignal::Term => "SIGTERM",
        }
    }
}

/// Sends a whole process group a signal that ends it.
pub fn end_group(pid: i32, signal: EndSignal) {
    let number = match signal {
        EndSignal::Kill => Signal::KILL,
        EndSignal::Term => Signal::TERM,
    };
    if let Some(group) = Pid::from_raw(pid) {
        // The group may be gone already.
        let _ = rustix::process::kill_process_group(group, number);
    }
}

/// Kills one child that is not reaped yet (its pid cannot have been given to another).
pub fn kill_one(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}

/// Kills the process that a pidfd holds.
pub fn kill_held(pidfd: BorrowedFd<'_>) {
    // It may have ended already.
    let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
}

/// Ends this process at once: no handlers, no destructors.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

/// Makes the process end by SIGINT, after everything that it does at its end.
pub fn interrupt_at_exit() {
    extern "C" fn interrupt() {
        // SAFETY: SIG_DFL is a valid disposition, and `raise` only sends a signal.
        unsafe {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            libc::raise(libc::SIGINT);
        }
    }
    // SAFETY: the function lives as long as the library, which Python never unloads.
    unsafe { libc::atexit(interrupt) };
}

/// Gives SIGCHLD its default meaning: ignored (also across exec), the kernel reaps children and nobody is told of them.
pub fn default_child_signal() {
    // SAFETY: SIG_DFL is a valid disposition and no handler runs.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Blocks SIGCHLD in this thread, and nothing else (the thread that started this process blocks everything); returns a
/// descriptor that becomes readable when one is pending.
pub fn child_signals() -> io::Result<OwnedFd> {
    let mask = signal_set(&[libc::SIGCHLD]);
    // SAFETY: both calls only read the mask.
    let fd = unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
        libc::signalfd(-1, &mask, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(adopt(fd)) }
}

/// Empties a descriptor of [`child_signals`].
pub fn clear_child_signals(fd: BorrowedFd<'_>) {
    let mut bytes = [0u8; 128 * 4];
    while rustix::io::read(fd, &mut bytes).is_ok_and(|n| n > 0) {}
}

/// The kernel's number of this thread.
pub fn thread_id() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Python's number of this thread.
pub fn thread_ident() -> std::ffi::c_ulong {
    // SAFETY: it cannot fail.
    unsafe { libc::pthread_self() }
}

/// Sends a signal to one thread of this process.
pub fn signal_thread(thread: i32, signal: i32) {
    // SAFETY: sends a signal; a thread that is gone makes it fail, which is what nobody minds.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
}

/// The real-time signal with this offset: free for programs, and used by hardly any.
pub fn real_time_signal(offset: i32) -> i32 {
    libc::SIGRTMIN() + offset
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

/// Sets the timeout of blocking reads of a socket.
pub fn limit_reads(socket: BorrowedFd<'_>, longest: Duration) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_timeout(socket, rustix::net::sockopt::Timeout::Recv, Some(longest))?)
}

/// Unblocks all signals, in a forked child.
pub fn unblock_signals() {
    let mask = signal_set(&[]);
    // SAFETY: only reads the mask.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut()) };
}

/// Blocks every signal in this thread: signals belong to Python's main thread.
pub fn block_signals() {
    // SAFETY: fills and reads a local mask.
    unsafe {
        let mut mask = MaybeUninit::uninit();
        libc::sigfillset(mask.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, mask.as_ptr(), std::ptr::null_mut());
    }
}

fn signal_set(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: sigemptyset initialises the set before it is read.
    unsafe {
        let mut mask = MaybeUninit::uninit();
        libc::sigemptyset(mask.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(mask.as_mut_ptr(), *signal);
        }
        mask.assume_init()
    }
}

/// Peak resident memory of this process, in bytes.
pub fn peak_rss() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage fills `usage`, which is zeroed before.
    let kilobytes = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init().ru_maxrss
    };
    kilobytes.max(0) as u64 * 1024
}

/// The status of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Exited(i32),
    Signaled(i32),
    Stopped,
    Continued,
}

/// The next child with news, without reaping it: (pid, fate).
pub fn next_fate() -> Option<(i32, Fate)> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::WSTOPPED | libc::WCONTINUED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: waitid fills `info`, which is zeroed before, so that si_pid is 0 when there is no news.
    let (pid, code, status) = unsafe {
        if libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), options) != 0 {
            return None;
        }
        let info = info.assume_init();
        (info.si_pid(), info.si_code, info.si_status())
    };
    let fate = match code {
        _ if pid == 0 => return None,
        libc::CLD_EXITED => Fate::Exited(status),
        libc::CLD_STOPPED | libc::CLD_TRAPPED => Fate::Stopped,
        libc::CLD_CONTINUED => Fate::Continued,
        _ => Fate::Signaled(status),
    };
    Some((pid, fate))
}

/// Takes note of what [`next_fate`] reported of this child, reaping it when it has ended.
pub fn acknowledge(pid: i32, fate: Fate) {
    let option = match fate {
        Fate::Stopped => libc::WSTOPPED,
        Fate::Continued => libc::WCONTINUED,
        _ => libc::WEXITED,
    };
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: waitid fills `info`, which is not read.
    unsafe { libc::waitid(libc::P_PID, pid as u32, info.as_mut_ptr(), option | libc::WNOHANG) };
}

/// The soft limit of descriptors that this process came with, if it was raised here; 0: it was not.
static LIMIT_BEFORE: AtomicU64 = AtomicU64::new(0);

/// What workers get as their soft limit of descriptors: the one from before it was raised.
pub fn descriptor_limit_before() -> Option<u64> {
    Some(LIMIT_BEFORE.load(Ordering::Acquire)).filter(|limit| *limit > 0)
}

/// How many descriptors this process may have more, once its soft limit is raised to the hard one.
pub fn descriptors_left() -> u64 {
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    let hard = rustix::process::getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    hard.saturating_sub(open)
}

/// Makes room for `more` descriptors beside those that are open, and for `wanted` ones beyond them as far as the hard limit
/// allows. Returns how many are left beyond `more`. An error is the hard limit that is too low.
pub fn make_room_for_descriptors(more: u64, wanted: u64) -> Result<u64, u64> {
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    let (needed, all) = (open + more, open + more + wanted);
    let old = rustix::process::getrlimit(Resource::Nofile);
    let (soft, hard) = (old.current.unwrap_or(u64::MAX), old.maximum.unwrap_or(u64::MAX));
    if hard < needed {
        return Err(hard);
    }
    if soft >= all.min(hard) {
        return Ok(soft - needed);
    }
    let current = all.saturating_mul(2).min(hard);
    let _ = LIMIT_BEFORE.compare_exchange(0, soft, Ordering::AcqRel, Ordering::Relaxed);
    let raised = Rlimit { current: Some(current), maximum: old.maximum };
    rustix::process::setrlimit(Resource::Nofile, raised).map_err(|_| hard)?;
    Ok(current - needed)
}

/// Longest wait of a poller: before Linux 5.11 it is counted in milliseconds, in 31 bits.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// An epoll instance with `u64` tokens.
#[derive(Debug)]
pub struct Poller(OwnedFd);

impl Poller {
    pub fn new() -> io::Result<Poller> {
        Ok(Poller(rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?))
    }

    pub fn add(&self, fd: BorrowedFd<'_>, token: u64, write: bool) -> io::Result<()> {
        use rustix::event::epoll::{EventData, EventFlags, add};
        let flags = EventFlags::IN | if write { EventFlags::OUT } else { EventFlags::empty() };
        Ok(add(&self.0, fd, EventData::new_u64(token), flags)?)
    }

    pub fn modify(&self, fd: BorrowedFd<'_>, token: u64, write: bool) -> io::Result<()> {
        use rustix::event::epoll::{EventData, EventFlags, modify};
        let flags = EventFlags::IN | if write { EventFlags::OUT } else { EventFlags::empty() };
        Ok(modify(&self.0, fd, EventData::new_u64(token), flags)?)
    }

    pub fn remove(&self, fd: BorrowedFd<'_>) {
        // Not being registered is what the caller wants.
        let _ = rustix::event::epoll::delete(&self.0, fd);
    }

    /// Tokens of what is ready; none when the deadline passed, a signal came, or an hour is over.
    pub fn wait(&self, tokens: &mut Vec<u64>, deadline: Option<Instant>) -> io::Result<()> {
        use rustix::event::epoll::{Event, EventData, EventFlags, wait};
        tokens.clear();
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 64];
        let timeout = deadline.map(|at| timespec(at.saturating_duration_since(Instant::now()).min(WAIT_MAX)));
        match wait(&self.0, &mut events[..], timeout.as_ref()) {
            Ok(ready) => tokens.extend(events[..ready].iter().map(|event| event.data.u64())),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }

    pub fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// For a runtime, which is entered: tells when the descriptor that `owner` keeps open is readable.
pub fn readable<T: AsFd + AsRawFd>(owner: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: the descriptor is open as long as its owner lives, which the result keeps, and is always the same one:
    // both traits are of types that own or borrow one descriptor.
    unsafe { AsyncFd::register_with_interest(owner, Interest::READABLE) }.map_err(io::Error::from)
}

/// One line of the kernel about a process: /proc/PID/stat of proc(5).
pub struct ProcessStat(String);

impl ProcessStat {
    /// None: there is no such process.
    pub fn of(pid: i32) -> Option<ProcessStat> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        Some(ProcessStat(String::from_utf8_lossy(&stat).into_owned()))
    }

    /// The field with this number in proc(5), which counts from 1; those behind the program's name, so 3 and more.
    pub fn field<T: FromStr>(&self, nr: usize) -> Option<T> {
        // The name is any bytes that the process has chosen, in parentheses.
        self.0.rsplit_once(") ")?.1.split_whitespace().nth(nr.checked_sub(3)?)?.parse().ok()
    }
}

/// What `ps` and `top` show in place of the command line, as far as that has room: the kernel reads it where it is, in the
/// memory of the process (proc(5), `arg_start` and `arg_end` of /proc/pid/stat).
pub fn set_title(title: &str) -> io::Result<()> {
    const ARG_START: usize = 48;
    const ARG_END: usize = 49;
    let stat = ProcessStat::of(std::process::id() as i32).ok_or(io::ErrorKind::Unsupported)?;
    let (Some(start), Some(end)) = (stat.field::<u64>(ARG_START), stat.field::<u64>(ARG_END)) else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    let mut room = vec![0; usize::try_from(end.saturating_sub(start)).unwrap_or_default()];
    // A last byte that is not zero would mean that the title goes on in the environment.
    let shown = title.len().min(room.len().saturating_sub(1));
    room[..shown].copy_from_slice(&title.as_bytes()[..shown]);
    let memory = std::fs::OpenOptions::new().write(true).open("/proc/self/mem")?;
    std::os::unix::fs::FileExt::write_all_at(&memory, &room, start)
}
