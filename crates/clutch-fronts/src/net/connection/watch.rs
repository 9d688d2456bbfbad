//! State that the tasks of one connection share, and the loop that drives the connection to its end.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

use clutch_wire::sync::Mutex;
use hyper_util::server::graceful::GracefulConnection;
use tokio::sync::Notify;

use super::closed::{Closed, Ended};
use super::timeouts::{Limits, Timeouts, Verdict};
use crate::account::figures::Figures;
use crate::net::stream::ConnectionPermit;

/// State that the tasks of one connection share.
pub(crate) struct Watch {
    pub(super) limits: Limits,
    pub(super) came: Instant,
    pub(super) timeouts: Mutex<Timeouts>,
    pub(super) figures: Arc<Figures>,
    /// Told when the last request of the connection has come.
    pub(super) spent: Notify,
    /// Work of its requests that has not ended, whether or not somebody waits for it.
    pub(crate) at_work: Arc<AtomicU32>,
}

impl Watch {
    pub(super) fn new(limits: Limits, figures: Arc<Figures>) -> Arc<Watch> {
        let came = Instant::now();
        let timeouts = Mutex::new(Timeouts::new(came));
        Arc::new(Watch { limits, came, timeouts, figures, spent: Notify::new(), at_work: Arc::default() })
    }

    pub(super) fn closed(&self, ended: Ended) -> Closed {
        let timeouts = self.timeouts.lock();
        Closed { ended, came: self.came, head_since: timeouts.head_since(), is_first: timeouts.is_first() }
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
