//! The process of a worker, held by a pidfd: its end is known exactly, and its number is nobody else's while it lives.
//!
//! So a worker can be ended, and is known to be dead, whatever its zygote does.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use clutch_wire::sys::{self, EndSignal, Poller, ProcessStat};

use crate::pool::state::WorkerKey;

/// Tokens of processes in the pool's poller: this, plus the worker's key.
const PROCESS: u64 = 1 << 41;

/// The worker whose process a token of the poller means.
pub fn worker_of(token: u64) -> Option<WorkerKey> {
    token.checked_sub(PROCESS).and_then(|key| WorkerKey::try_from(key).ok())
}

/// A worker's process.
pub struct Process {
    pid: i32,
    pidfd: OwnedFd,
}

impl Process {
    /// Takes hold of a child of `zygote`, and has the poller tell of its end. None: it is not there (any more), or no
    /// descriptor is left; then its zygote alone tells of it.
    pub fn watch(worker: WorkerKey, pid: i32, zygote: i32, poller: &Poller) -> Option<Process> {
        let pidfd = sys::pidfd(pid).ok()?;
        // Asked while it is held: the number may have been another's before.
        let is_its = parent_of(pid) == Some(zygote);
        let watched = is_its && poller.add(pidfd.as_fd(), PROCESS + u64::from(worker), false).is_ok();
        watched.then_some(Process { pid, pidfd })
    }

    /// Buries a process that has ended: the poller has no more to tell. The rest of its group is killed; while a
    /// process is in the group, its number is not given to another.
    pub fn bury(&self, poller: &Poller) {
        poller.remove(self.pidfd.as_fd());
        sys::end_group(self.pid, EndSignal::Kill);
    }

    /// Releases a process that is of no interest any more. A forked copy of this process may hold its descriptor open:
    /// it does not leave the poller by itself.
    pub fn release(self, poller: &Poller) {
        poller.remove(self.pidfd.as_fd());
    }

    /// Tells it alone to end: what it has started, such as a migration in the lifespan of an app, may come to its end.
    pub fn tell_term(&self) {
        if !matches!(sys::wait_readable(self.pidfd.as_fd(), Some(Instant::now())), Ok(true)) {
            sys::send_own_term(self.pid);
        }
    }

    /// Sends its group a signal, and at the end itself, should it have left its group.
    pub fn end(&self, signal: EndSignal) {
        let ended = sys::wait_readable(self.pidfd.as_fd(), Some(Instant::now()));
        if matches!(ended, Ok(true)) {
            return;
        }
        sys::end_group(self.pid, signal);
        if signal == EndSignal::Kill {
            sys::kill_held(self.pidfd.as_fd());
        }
    }
}

fn parent_of(pid: i32) -> Option<i32> {
    const PPID: usize = 4;
    ProcessStat::of(pid)?.field(PPID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_not_the_zygotes_is_not_held() {
        let poller = Poller::new().expect("a poller");
        let (own, parent) = (std::process::id() as i32, parent_of(std::process::id() as i32).expect("a parent"));
        assert!(Process::watch(1, own, parent, &poller).is_some());
        assert!(Process::watch(2, own, own, &poller).is_none());
        assert!(Process::watch(3, 0, parent, &poller).is_none());
    }
}
