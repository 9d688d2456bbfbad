//! The answer of one piece of work, for a task that waits for it; gone before the end, the work is given up.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::sync::Mutex;

use crate::pool::{Part, Pool};
use crate::work::{Outcome, Payload, Reply, Work, WorkId};

#[derive(Default)]
struct Inner {
    /// At most a window of them: the producer waits for credit.
    chunks: VecDeque<Payload>,
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

/// Written by whoever learns of the answer, read by the one task that waits.
#[derive(Default)]
pub(super) struct Pending {
    inner: Mutex<Inner>,
}

impl Pending {
    fn change(&self, change: impl FnOnce(&mut Inner)) {
        let waker = {
            let mut inner = self.inner.lock();
            change(&mut inner);
            inner.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Reply for Pending {
    fn chunk(&self, payload: Payload) {
        self.change(|inner| inner.chunks.push_back(payload));
    }

    fn finish(&self, outcome: Outcome) {
        self.change(|inner| inner.outcome = Some(outcome));
    }
}

/// Work that was handed in. Dropped before its end has been seen, it is abandoned: nobody waits for it any more.
pub(super) struct Waiting {
    pool: Arc<Pool>,
    pending: Arc<Pending>,
    id: WorkId,
    ended: bool,
}

impl Waiting {
    /// Submits what `work` makes of the reply.
    pub(super) fn submit(pool: Arc<Pool>, work: impl FnOnce(Arc<dyn Reply>) -> Work) -> Waiting {
        let pending = Arc::new(Pending::default());
        let id = pool.submit(work(pending.clone()), false);
        Waiting { pool, pending, id, ended: false }
    }

    /// The next chunk, or the end.
    pub(super) fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Part> {
        let mut inner = self.pending.inner.lock();
        if let Some(chunk) = inner.chunks.pop_front() {
            return Poll::Ready(Part::Chunk(chunk));
        }
        if let Some(outcome) = inner.outcome.take() {
            self.ended = true;
            return Poll::Ready(Part::End(outcome));
        }
        if !inner.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            inner.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }

    pub(super) fn give_credit(&self, chunks: u32) {
        self.pool.credit(self.id, chunks);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.ended {
            self.pool.abandon(self.id);
        }
    }
}
