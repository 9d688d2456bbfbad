//! State that the tasks of one connection share, and the loop that drives the connection to its end.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use clutch_wire::sync::Mutex;
use clutch_wire::sys;
use hyper_util::server::graceful::GracefulConnection;
use tokio::sync::Notify;

use super::closed::{Closed, Ended};
use super::framing::{FIRST_LINE_MAX, RawTarget};
use super::timeouts::{Limits, Timeouts, Verdict};
use crate::account::figures::Figures;
use crate::net::stream::ConnectionPermit;

/// State that the tasks of one connection share.
pub(crate) struct Watch {
    pub(super) limits: Limits,
    pub(super) came: Instant,
    pub(super) timeouts: Mutex<Timeouts>,
    pub(super) figures: Arc<Figures>,
    /// Targets as they came, of requests for which the library has others, by the number of their head.
    targets: Mutex<VecDeque<(u64, RawTarget)>>,
    has_targets: AtomicBool,
    /// Heads that have become requests of HTTP/1.
    heads: AtomicU64,
    /// The first line of the head that came last, when nothing more is written.
    last_line: Mutex<Vec<u8>>,
    /// Told when the last request of the connection has come.
    pub(super) spent: Notify,
    /// Work of its requests that has not ended, whether or not somebody waits for it.
    pub(crate) at_work: Arc<AtomicU32>,
    /// The socket right under HTTP, where nothing stands between them: open as long as a request is answered.
    bare: OnceLock<RawFd>,
    /// A worker has a copy of it, too.
    shared: Mutex<Option<SharedSocket>>,
}

/// A copy of a connection's socket. Dropped, it ends the connection, whoever else has a copy.
pub(crate) struct SharedSocket(OwnedFd);

impl SharedSocket {
    pub(crate) fn copy(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }
}

impl Drop for SharedSocket {
    fn drop(&mut self) {
        sys::hang_up(self.0.as_fd());
    }
}

impl Watch {
    pub(super) fn new(limits: Limits, figures: Arc<Figures>) -> Arc<Watch> {
        let came = Instant::now();
        let timeouts = Mutex::new(Timeouts::new(came));
        Arc::new(Watch {
            limits,
            came,
            timeouts,
            figures,
            targets: Mutex::default(),
            has_targets: AtomicBool::new(false),
            heads: AtomicU64::new(0),
            last_line: Mutex::default(),
            spent: Notify::new(),
            at_work: Arc::default(),
            bare: OnceLock::new(),
            shared: Mutex::default(),
        })
    }

    /// Nothing stands between HTTP and this socket.
    pub(crate) fn is_on(&self, socket: RawFd) {
        let _ = self.bare.set(socket);
    }

    /// A copy of that socket, for a worker. Only while a request of HTTP/1 is answered.
    pub(crate) fn share(&self) -> Option<OwnedFd> {
        let bare = *self.bare.get()?;
        // Both first: without a descriptor for one of them the connection goes on as it is.
        let (ours, theirs) = (sys::copy_of(bare).ok()?, sys::copy_of(bare).ok()?);
        *self.shared.lock() = Some(SharedSocket(ours));
        Some(theirs)
    }

    /// The socket of which a worker has a copy: whoever takes it ends the connection.
    pub(crate) fn take_shared(&self) -> Option<SharedSocket> {
        self.shared.lock().take()
    }

    pub(super) fn came_with(&self, targets: Vec<(u64, RawTarget)>) {
        if !targets.is_empty() {
            self.targets.lock().extend(targets);
            self.has_targets.store(true, Ordering::Release);
        }
    }

    /// The next head has become a request; returns its target as it came, where the library has another one.
    pub(super) fn next_target(&self) -> Option<RawTarget> {
        let number = self.heads.fetch_add(1, Ordering::Relaxed) + 1;
        if !self.has_targets.load(Ordering::Acquire) {
            return None;
        }
        let mut targets = self.targets.lock();
        let is_next = targets.front().is_some_and(|(head, _)| *head == number);
        let target = if is_next { targets.pop_front()?.1 } else { return None };
        self.has_targets.store(!targets.is_empty(), Ordering::Release);
        Some(target)
    }

    pub(super) fn ends_after(&self, first_line: &[u8]) {
        let mut last = self.last_line.lock();
        last.clear();
        last.extend_from_slice(&first_line[..first_line.len().min(FIRST_LINE_MAX)]);
    }

    /// The first line of the head that came last.
    fn last_line(&self) -> Box<str> {
        String::from_utf8_lossy(&self.last_line.lock()).trim_end().into()
    }

    pub(super) fn closed(&self, ended: Ended) -> Closed {
        let timeouts = self.timeouts.lock();
        let line = matches!(ended, Ended::Malformed(_)).then(|| self.last_line()).filter(|line| !line.is_empty());
        Closed { ended, came: self.came, head_since: timeouts.head_since(), is_first: timeouts.is_first(), line }
    }

    /// Drives a connection to its end, in the limits of its client. None: it was cut off.
    pub(super) async fn drive<C: GracefulConnection>(
        &self,
        mut connection: Pin<&mut C>,
        mut permit: ConnectionPermit,
    ) -> Option<Result<(), C::Error>> {
        let mut leaves = false;
        loop {
            let verdict = tokio::select! {
                biased;
                // Whatever ends a connection early is the client's doing, and it is told by hyper where HTTP has a word.
                ended = connection.as_mut() => return Some(ended),
                () = permit.leave_asked(), if !leaves => Verdict::Leave,
                () = self.spent.notified(), if !leaves => Verdict::Leave,
                verdict = self.next_verdict() => verdict,
            };
            if verdict == Verdict::Cut {
                return None;
            }
            leaves = true;
            self.timeouts.lock().leave(Instant::now());
            connection.as_mut().graceful_shutdown();
        }
    }

    /// Waits for the limit that is reached. Looks now and then: nothing is told when a limit changes.
    async fn next_verdict(&self) -> Verdict {
        loop {
            let next = self.timeouts.lock().next_limit(&self.limits);
            let now = Instant::now();
            match next {
                Some((at, verdict)) if at <= now => return verdict,
                _ => {}
            }
            let look = now + self.limits.shortest();
            tokio::time::sleep_until(next.map_or(look, |(at, _)| at.min(look)).into()).await;
        }
    }
}
