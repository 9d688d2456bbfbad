//! One request in a pool: what its worker says, for the tasks that wait for it.
//!
//! Two tasks may wait: the one that answers the client, and the one that feeds the body. The worker asks for the body by
//! giving credit, so that nothing of it is read before the app wants it. Time in which the worker waits for the client is
//! not the app's.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use clutch_pool::config::Disconnect;
use clutch_pool::pool::{Part, Pool};
use clutch_pool::work::{Outcome, Reply, Work, WorkId};
use clutch_wire::sync::Mutex;
use clutch_wire::{Codec, Payload};

use crate::account::Queued;
use crate::codec::http::{INPUT_WINDOW, RequestHead};

/// Characters of a path that are shown where somebody looks what runs.
const PATH_SHOWN_MAX: usize = 200;

#[derive(Default)]
struct Inner {
    /// Bounded by the credit that the worker has.
    chunks: VecDeque<Payload>,
    outcome: Option<Outcome>,
    /// Pieces of the body that the worker will take; below zero when the last was larger than what was left.
    credit: i64,
    /// Nothing more of the body is wanted.
    ended: bool,
    answering: Option<Waker>,
    feeding: Option<Waker>,
    /// Let go of when the work has ended, whoever still waited for it.
    at_work: Option<AtWork>,
}

/// Written by whoever learns of the answer.
#[derive(Default)]
pub(crate) struct Inbound {
    inner: Mutex<Inner>,
    clock: Mutex<Clock>,
    /// How long it waited for its slot, in nanoseconds and one more; 0: no worker has it yet.
    queued_ns: AtomicU64,
}

impl Queued for Inbound {
    fn queued(&self) -> Option<Duration> {
        self.queued_ns.load(Ordering::Relaxed).checked_sub(1).map(Duration::from_nanos)
    }
}

fn wait(place: &mut Option<Waker>, context: &Context<'_>) {
    if !place.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
        *place = Some(context.waker().clone());
    }
}

impl Reply for Inbound {
    fn chunk(&self, payload: Payload) {
        let mut inner = self.inner.lock();
        inner.chunks.push_back(payload);
        let waker = inner.answering.take();
        drop(inner);
        waker.into_iter().for_each(Waker::wake);
    }

    fn finish(&self, outcome: Outcome) {
        let mut inner = self.inner.lock();
        inner.outcome = Some(outcome);
        inner.ended = true;
        let wakers = [inner.answering.take(), inner.feeding.take()];
        let at_work = inner.at_work.take();
        drop(inner);
        drop(at_work);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    fn sent(&self, queued: Duration) {
        // Five hundred years of nanoseconds fit.
        self.queued_ns.store(queued.as_nanos() as u64 + 1, Ordering::Relaxed);
    }

    fn describe(&self, payload: &Payload) -> Option<String> {
        let (head, _) = RequestHead::read(payload.body()).ok().filter(|_| payload.codec == Codec::Http)?;
        let line = head.line;
        let path: String = String::from_utf8_lossy(line.path).chars().take(PATH_SHOWN_MAX).collect();
        Some(format!("{} {path}", line.method))
    }

    fn credit(&self, count: u32) {
        let mut inner = self.inner.lock();
        inner.credit += i64::from(count);
        let waker = inner.feeding.take();
        drop(inner);
        waker.into_iter().for_each(Waker::wake);
    }
}

/// Work of one connection that has not ended, whether or not somebody waits for it. Dropped, it has.
pub(crate) struct AtWork(Arc<AtomicU32>);

impl AtWork {
    /// Takes a place for it; none: as many are at work as may be.
    pub(crate) fn begin(of_connection: &Arc<AtomicU32>, most: u32) -> Option<AtWork> {
        let work = AtWork(of_connection.clone());
        (of_connection.fetch_add(1, Ordering::Relaxed) < most).then_some(work)
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// When the app's time is over. It stands while the client is waited for.
#[derive(Debug, Default)]
struct Clock {
    /// None: its time is not measured, or no longer.
    deadline: Option<Instant>,
    stands: bool,
}

/// A request that was handed in. Dropped before its end has been seen, its client is gone.
pub(crate) struct Exchange {
    pool: Arc<Pool>,
    inbound: Arc<Inbound>,
    id: WorkId,
    disconnect: Disconnect,
    ended: bool,
}

impl Exchange {
    /// Submits what `work` makes of the reply; it is on its way with the next flush.
    pub(crate) fn submit_unflushed(
        pool: &Arc<Pool>,
        disconnect: Disconnect,
        at_work: Option<AtWork>,
        work: impl FnOnce(Arc<dyn Reply>) -> Work,
    ) -> Exchange {
        let inbound = Arc::new(Inbound::default());
        inbound.inner.lock().at_work = at_work;
        let work = work(inbound.clone());
        inbound.clock.lock().deadline = work.deadline;
        let id = pool.submit_unflushed(work);
        Exchange { pool: pool.clone(), inbound, id, disconnect, ended: false }
    }

    /// Submits a call. It is stopped when nobody waits for it any more.
    pub(crate) fn submit(pool: &Arc<Pool>, work: impl FnOnce(Arc<dyn Reply>) -> Work) -> Exchange {
        let exchange = Exchange::submit_unflushed(pool, Disconnect::Cancel, None, work);
        pool.flush_all();
        exchange
    }

    /// Where it can be asked later how long this waited.
    pub(crate) fn inbound(&self) -> Arc<Inbound> {
        self.inbound.clone()
    }

    /// A debugger has been open meanwhile.
    pub(crate) fn is_untimed(&self) -> bool {
        self.pool.is_untimed(self.id)
    }

    pub(crate) fn feeder(&self) -> Feeder {
        Feeder { pool: self.pool.clone(), inbound: self.inbound.clone(), id: self.id }
    }

    /// The next chunk, or the end.
    pub(crate) fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Part> {
        let mut inner = self.inbound.inner.lock();
        if let Some(chunk) = inner.chunks.pop_front() {
            return Poll::Ready(Part::Chunk(chunk));
        }
        if let Some(outcome) = inner.outcome.take() {
            self.ended = true;
            return Poll::Ready(Part::End(outcome));
        }
        wait(&mut inner.answering, context);
        Poll::Pending
    }

    pub(crate) async fn part(&mut self) -> Part {
        poll_fn(|context| self.poll_part(context)).await
    }

    /// Until the worker takes something more, or ends.
    pub(crate) fn poll_wanted(&mut self, context: &Context<'_>) -> Poll<()> {
        let mut inner = self.inbound.inner.lock();
        if inner.credit > 0 {
            return Poll::Ready(());
        }
        wait(&mut inner.feeding, context);
        Poll::Pending
    }

    /// Sends a message that takes so much of the worker's credit; it is on its way with the next flush.
    pub(crate) fn feed(&self, codec: Codec, bytes: &[u8], credit: u32) {
        self.inbound.inner.lock().credit -= i64::from(credit);
        self.pool.feed_unflushed(self.id, codec, bytes);
    }

    /// As [`Exchange::give_credit`]; it is on its way with the next flush.
    pub(crate) fn give_credit_unflushed(&self, chunks: u32) {
        self.pool.credit_unflushed(self.id, chunks);
    }

    pub(crate) fn give_credit(&self, chunks: u32) {
        self.pool.credit(self.id, chunks);
    }

    /// The response is whole: from here on the app has as long as it likes, and nobody waits for it. What it has not read
    /// of the body is not for it any more.
    pub(crate) fn answered(&mut self) {
        self.ended = true;
        let mut inner = self.inbound.inner.lock();
        inner.ended = true;
        let (feeding, at_work) = (inner.feeding.take(), inner.at_work.take());
        drop(inner);
        drop(at_work);
        feeding.into_iter().for_each(Waker::wake);
    }

    /// The head is there: the time until it is no longer measured.
    pub(crate) fn head_came(&self) {
        self.inbound.clock.lock().deadline = None;
        self.pool.lift_deadline(self.id);
    }

    /// The app waits for the body of its client.
    pub(crate) fn waits_for_client(&self) -> bool {
        self.inbound.clock.lock().stands
    }

    /// What its app says has no end: it is told when its worker is to end.
    pub(crate) fn mark_endless(&self) {
        self.pool.mark_endless(self.id);
    }

    /// The app is stopped, whatever was wished for clients that go.
    pub(crate) fn stop(&mut self) {
        self.ended = true;
        self.pool.abandon(self.id);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        match self.disconnect {
            Disconnect::Cancel => self.pool.abandon(self.id),
            Disconnect::Tell if self.pool.withdraw(self.id) => {}
            Disconnect::Tell => self.pool.feed(self.id, Codec::Empty, &[]),
        }
    }
}

/// What brings the body to the worker.
pub(crate) struct Feeder {
    pool: Arc<Pool>,
    inbound: Arc<Inbound>,
    id: WorkId,
}

impl Feeder {
    /// Waits until the worker takes one piece more. False: it takes no more.
    pub(crate) async fn wanted(&self) -> bool {
        poll_fn(|context| {
            let mut inner = self.inbound.inner.lock();
            if inner.ended {
                return Poll::Ready(false);
            }
            if inner.credit > 0 {
                inner.credit -= 1;
                return Poll::Ready(true);
            }
            wait(&mut inner.feeding, context);
            Poll::Pending
        })
        .await
    }

    pub(crate) fn feed(&self, codec: Codec, bytes: &[u8]) {
        self.pool.feed(self.id, codec, bytes);
    }

    /// Until the app waits for the piece that is to be fed: it has taken all that was fed before, and asks for more.
    pub(crate) async fn app_waits(&self) {
        poll_fn(|context| {
            let mut inner = self.inbound.inner.lock();
            if inner.credit >= i64::from(INPUT_WINDOW) - 1 || inner.ended {
                return Poll::Ready(());
            }
            wait(&mut inner.feeding, context);
            Poll::Pending
        })
        .await;
    }

    /// The app waits for its client: its clock stands until the result is dropped.
    pub(crate) fn stand(&self) -> Standing<'_> {
        let mut clock = self.inbound.clock.lock();
        clock.stands = true;
        if clock.deadline.is_some() {
            self.pool.lift_deadline(self.id);
        }
        Standing { feeder: self, since: Instant::now() }
    }
}

/// Time that is not the app's.
pub(crate) struct Standing<'a> {
    feeder: &'a Feeder,
    since: Instant,
}

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        let Feeder { pool, inbound, id } = self.feeder;
        let mut clock = inbound.clock.lock();
        clock.stands = false;
        if let Some(deadline) = &mut clock.deadline {
            *deadline += self.since.elapsed();
            pool.set_deadline(*id, *deadline);
        }
    }
}
