//! The client of a pool that every front uses: one piece of work, values in both directions, and what becomes of it when
//! its own client goes.
//!
//! Two tasks may wait: one for what the worker says, one that brings input. The worker asks for input by giving credit, so
//! that nothing is read from a client before it is wanted. Time in which the worker waits for the client is not the app's.

pub(super) mod answer;
pub(super) mod batch;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use clutch_wire::sync::Mutex;
use clutch_wire::{Codec, Form, Payload};

use super::{Batch, Part, Pool};
use crate::config::Disconnect;
use crate::work::{Outcome, Reply, Work, WorkId};

/// Progress of a piece of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Milestone {
    #[default]
    Submitted,
    /// The work is in the waiting line, or beyond.
    Admitted,
    /// User code has started; known of work that asked for it.
    Begun,
    Ended,
}

#[derive(Default)]
struct Progress {
    milestone: Milestone,
    /// Bounded by the credit that the worker has.
    chunks: VecDeque<Payload>,
    outcome: Option<Outcome>,
    /// Pieces of input that the worker will take; below zero when the last was larger than what was left.
    credit: i64,
    /// No more input is wanted.
    takes_no_more: bool,
    receiving: Option<Waker>,
    sending: Option<Waker>,
    /// Dropped when the work has ended, whoever still waits for it.
    held: Option<Box<dyn Send>>,
}

impl Progress {
    fn reach(&mut self, milestone: Milestone) -> [Option<Waker>; 2] {
        self.milestone = self.milestone.max(milestone);
        [self.receiving.take(), self.sending.take()]
    }
}

/// Written by whoever learns of the answer.
struct Inbound {
    progress: Mutex<Progress>,
    clock: Mutex<Clock>,
    /// Time that the work waited for its slot, in nanoseconds plus one; 0: no worker has it yet.
    queued_ns: AtomicU64,
    /// CPU time that it has used, in the same way; 0: it is not known.
    cpu_ns: AtomicU64,
    describe: Describe,
    is_over: AtomicBool,
}

/// Time that a piece of work waited; kept after its end.
#[derive(Clone)]
pub struct QueueTime(Arc<Inbound>);

impl QueueTime {
    /// Until it was sent to the worker that has it; none: no worker had it.
    pub fn get(&self) -> Option<Duration> {
        self.0.queued_ns.load(Ordering::Relaxed).checked_sub(1).map(Duration::from_nanos)
    }

    /// CPU time that it used there; none: it is not known.
    pub fn cpu(&self) -> Option<Duration> {
        self.0.cpu_ns.load(Ordering::Relaxed).checked_sub(1).map(Duration::from_nanos)
    }
}

fn wait(place: &mut Option<Waker>, context: &Context<'_>) {
    if !place.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
        *place = Some(context.waker().clone());
    }
}

fn wake(wakers: impl IntoIterator<Item = Option<Waker>>) {
    wakers.into_iter().flatten().for_each(Waker::wake);
}

impl Reply for Inbound {
    fn chunk(&self, payload: Payload) {
        let mut progress = self.progress.lock();
        progress.chunks.push_back(payload);
        let waker = progress.receiving.take();
        drop(progress);
        wake([waker]);
    }

    fn finish(&self, outcome: Outcome, queued: Option<Duration>) {
        queued.into_iter().for_each(|queued| self.sent(queued));
        let mut progress = self.progress.lock();
        progress.outcome = Some(outcome);
        progress.takes_no_more = true;
        let (wakers, held) = (progress.reach(Milestone::Ended), progress.held.take());
        drop(progress);
        drop(held);
        wake(wakers);
    }

    fn sent(&self, queued: Duration) {
        // Five hundred years of nanoseconds fit.
        self.queued_ns.store(queued.as_nanos() as u64 + 1, Ordering::Relaxed);
    }

    fn used(&self, cpu: Duration) {
        self.cpu_ns.store(cpu.as_nanos() as u64 + 1, Ordering::Relaxed);
    }

    fn begun(&self) {
        let wakers = self.progress.lock().reach(Milestone::Begun);
        wake(wakers);
    }

    fn admitted(&self) {
        let wakers = self.progress.lock().reach(Milestone::Admitted);
        wake(wakers);
    }

    fn describe(&self, payload: &Payload) -> Option<String> {
        (self.describe)(payload)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn credit(&self, count: u32) {
        let mut progress = self.progress.lock();
        progress.credit += i64::from(count);
        let waker = progress.sending.take();
        drop(progress);
        wake([waker]);
    }
}

/// When the app's time is over. It stands while the client is waited for.
#[derive(Debug, Default)]
struct Clock {
    /// None: its time is not measured, or no longer.
    deadline: Option<Instant>,
    stands: bool,
}

/// Gives what work is, for people; none: the name of its function says it.
pub type Describe = fn(&Payload) -> Option<String>;

/// The terms of one exchange.
pub struct Terms {
    /// The fate of the work when the exchange is dropped before its end.
    pub disconnect: Disconnect,
    /// Waits for room where the queue is full, whatever the pool's overflow says.
    pub block: bool,
    pub describe: Describe,
    /// Dropped when the work has ended.
    pub held: Option<Box<dyn Send>>,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms { disconnect: Disconnect::Cancel, block: false, describe: |_| None, held: None }
    }
}

/// Work that was submitted. Dropped before its end has been seen, its client is gone: see [`Terms::disconnect`].
pub struct Exchange {
    batch: Arc<Batch>,
    inbound: Arc<Inbound>,
    id: WorkId,
    disconnect: Disconnect,
    ended: bool,
}

impl Exchange {
    /// Submits what `work` makes of the reply; it is written with the next flush of `batch`.
    pub fn submit(batch: &Arc<Batch>, terms: Terms, work: impl FnOnce(Arc<dyn Reply>) -> Work) -> Exchange {
        let Terms { disconnect, block, describe, held } = terms;
        let inbound = Arc::new(Inbound {
            progress: Mutex::new(Progress { held, ..Progress::default() }),
            clock: Mutex::default(),
            queued_ns: AtomicU64::default(),
            cpu_ns: AtomicU64::default(),
            is_over: AtomicBool::new(false),
            describe,
        });
        let work = Work { notes_queue_time: true, ..work(inbound.clone()) };
        inbound.clock.lock().deadline = work.deadline;
        let id = batch.submit(work, block);
        Exchange { batch: batch.clone(), inbound, id, disconnect, ended: false }
    }

    fn pool(&self) -> &Arc<Pool> {
        self.batch.pool()
    }

    /// Returns the queue time of this work, which can be read at any time.
    pub fn queue_time(&self) -> QueueTime {
        QueueTime(self.inbound.clone())
    }

    /// A debugger has been open meanwhile.
    pub fn is_untimed(&self) -> bool {
        self.pool().is_untimed(self.id)
    }

    /// For the task that brings the input.
    pub fn input(&self) -> Input {
        Input { pool: self.pool().clone(), inbound: self.inbound.clone(), id: self.id }
    }

    // ---- from the worker

    /// The next chunk, or the end.
    pub fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Part> {
        let mut progress = self.inbound.progress.lock();
        if let Some(chunk) = progress.chunks.pop_front() {
            return Poll::Ready(Part::Chunk(chunk));
        }
        if let Some(outcome) = progress.outcome.take() {
            self.ended = true;
            return Poll::Ready(Part::End(outcome));
        }
        wait(&mut progress.receiving, context);
        Poll::Pending
    }

    pub async fn part(&mut self) -> Part {
        poll_fn(|context| self.poll_part(context)).await
    }

    /// Waits until user code has started, or all has ended.
    pub async fn begun(&self) {
        poll_fn(|context| self.inbound.poll_milestone(Milestone::Begun, |progress| &mut progress.receiving, context))
            .await;
    }

    /// Removes it unless user code has started.
    pub fn withdraw(&self) {
        self.pool().withdraw(self.id);
    }

    /// Lets the worker send this many more chunks; written with the next flush.
    pub fn give_credit(&self, chunks: u32) {
        self.batch.credit(self.id, chunks);
    }

    /// The same, written at once.
    pub fn give_credit_now(&self, chunks: u32) {
        self.pool().credit(self.id, chunks);
    }

    // ---- to the worker

    /// Waits until the worker takes something more, or ends.
    pub fn poll_wanted(&mut self, context: &Context<'_>) -> Poll<()> {
        let mut progress = self.inbound.progress.lock();
        if progress.credit > 0 {
            return Poll::Ready(());
        }
        wait(&mut progress.sending, context);
        Poll::Pending
    }

    /// Sends a message that takes so much of the worker's credit; written with the next flush.
    pub fn feed(&self, form: impl Into<Form>, bytes: &[u8], credit: u32) {
        self.inbound.progress.lock().credit -= i64::from(credit);
        self.batch.feed(self.id, form.into(), bytes);
    }

    // ---- its end

    /// The answer is whole: from here on the app has as long as it likes, and nobody waits for it. What it has not read of
    /// the input is not for it any more.
    pub fn answered(&mut self) {
        self.ended = true;
        self.inbound.is_over.store(true, Ordering::Relaxed);
        let mut progress = self.inbound.progress.lock();
        progress.takes_no_more = true;
        let (sending, held) = (progress.sending.take(), progress.held.take());
        drop(progress);
        drop(held);
        wake([sending]);
    }

    /// The first of the answer is there: the time until it is no longer measured.
    pub fn head_came(&self) {
        self.inbound.clock.lock().deadline = None;
        self.pool().lift_deadline(self.id);
    }

    pub fn id(&self) -> WorkId {
        self.id
    }

    /// Its time is over now: it ends as work whose deadline has passed.
    pub fn expire(&self) {
        self.pool().expire(self.id);
    }

    /// The app waits for the input of its client.
    pub fn waits_for_client(&self) -> bool {
        self.inbound.clock.lock().stands
    }

    /// Marks work that has no end of its own: it is told when its worker is to end.
    pub fn mark_endless(&self) {
        self.pool().mark_endless(self.id);
    }

    /// Stops it, whatever was agreed for clients that go.
    pub fn stop(&mut self) {
        self.ended = true;
        self.pool().cancel(self.id);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let pool = self.pool();
        match self.disconnect {
            Disconnect::Cancel => drop(pool.cancel(self.id)),
            Disconnect::Tell if pool.withdraw(self.id) => {}
            Disconnect::Tell => pool.feed(self.id, Codec::Empty, &[]),
        }
    }
}

impl Inbound {
    fn poll_milestone(
        &self,
        milestone: Milestone,
        place: impl FnOnce(&mut Progress) -> &mut Option<Waker>,
        context: &Context<'_>,
    ) -> Poll<()> {
        let mut progress = self.progress.lock();
        if progress.milestone >= milestone {
            return Poll::Ready(());
        }
        wait(place(&mut progress), context);
        Poll::Pending
    }
}

/// Brings input to the worker.
pub struct Input {
    pool: Arc<Pool>,
    inbound: Arc<Inbound>,
    id: WorkId,
}

impl Input {
    /// Waits until the work has a place in the waiting line, or has ended.
    pub async fn admitted(&self) {
        poll_fn(|context| self.inbound.poll_milestone(Milestone::Admitted, |progress| &mut progress.sending, context))
            .await;
    }

    /// Waits until the worker takes one piece more. False: it takes no more.
    pub async fn wanted(&self) -> bool {
        poll_fn(|context| {
            let mut progress = self.inbound.progress.lock();
            if progress.takes_no_more {
                return Poll::Ready(false);
            }
            if progress.credit > 0 {
                progress.credit -= 1;
                return Poll::Ready(true);
            }
            wait(&mut progress.sending, context);
            Poll::Pending
        })
        .await
    }

    pub fn feed(&self, form: impl Into<Form>, bytes: &[u8]) {
        self.pool.feed(self.id, form, bytes);
    }

    /// Waits until the app waits for the piece that is to be fed: it has taken all before, and has credit for its whole
    /// `window` but that piece.
    pub async fn app_waits(&self, window: u32) {
        poll_fn(|context| {
            let mut progress = self.inbound.progress.lock();
            if progress.credit >= i64::from(window) - 1 || progress.takes_no_more {
                return Poll::Ready(());
            }
            wait(&mut progress.sending, context);
            Poll::Pending
        })
        .await;
    }

    /// The app waits for its client: its clock stands until the result is dropped.
    pub fn stand(&self) -> Pause<'_> {
        let mut clock = self.inbound.clock.lock();
        clock.stands = true;
        if clock.deadline.is_some() {
            self.pool.lift_deadline(self.id);
        }
        Pause { input: self, since: Instant::now() }
    }
}

/// Time that is not the app's.
pub struct Pause<'a> {
    input: &'a Input,
    since: Instant,
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        let Input { pool, inbound, id } = self.input;
        let mut clock = inbound.clock.lock();
        clock.stands = false;
        if let Some(deadline) = &mut clock.deadline {
            *deadline += self.since.elapsed();
            pool.set_deadline(*id, *deadline);
        }
    }
}
