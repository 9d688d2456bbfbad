//! Processes and threads: their signals, their ends, and what the kernel says of them.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::str::FromStr;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal};

use super::end_signals::send_own_term;
use super::fd::adopt;

/// A descriptor of the process itself: readable when it ends.
pub fn pidfd(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("pid 0"))?;
    Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
}

/// Signal that ends a process group: TERM may be ignored, KILL cannot be.
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

/// Sends a whole process group a signal that ends it; its leader heeds TERM from its dispatcher alone.
pub fn end_group(pid: i32, signal: EndSignal) {
    if signal == EndSignal::Term {
        send_own_term(pid);
    }
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

/// Sends a signal to a process.
pub fn signal_process(pid: i32, signal: i32) {
    // SAFETY: sends a signal; a process that is gone makes it fail, which is what nobody minds.
    unsafe { libc::kill(pid, signal) };
}

/// Among the real-time signals: has a worker or zygote show its stacks.
pub const STACKS_SIGNAL: i32 = 11;

/// The real-time signal with this offset: free for programs, and used by hardly any.
pub fn real_time_signal(offset: i32) -> i32 {
    libc::SIGRTMIN() + offset
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

/// CPU time that a process has used so far, its threads that have ended included. One that has ended has it until it is
/// reaped. None: there is no such process.
pub fn cpu_time(pid: i32) -> Option<Duration> {
    let mut clock = 0;
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the first call fills `clock`; the second fills `time`, which is zeroed before.
    let time = unsafe {
        if libc::clock_getcpuclockid(pid, &mut clock) != 0 || libc::clock_gettime(clock, time.as_mut_ptr()) != 0 {
            return None;
        }
        time.assume_init()
    };
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

/// CPU time that this thread has used.
pub fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Time that the threads of a process which live now were ready to run and had no CPU: the second number of their
/// schedstat. At most so many threads are looked at.
pub fn cpu_wait(pid: i32, threads_max: usize) -> Option<Duration> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten().take(threads_max);
    let texts = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok());
    let waits = texts.filter_map(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    Some(Duration::from_nanos(waits.fold(0, u64::saturating_add)))
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

/// A line of the kernel about a process: /proc/PID/stat of proc(5).
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

/// Sets what `ps` and `top` show in place of the command line, as far as that has room: the kernel reads it where it is, in the
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
