//! The handle of a pool: the machine behind a mutex, and the links of its workers.
//!
//! Owns what waits and what is on the links. Events run on the thread that brings them: a caller's, or the driver's (the
//! one thread of the supervisor). A blocking caller that gets an idle worker also reads that worker's link until its
//! answer has come: no thread in between. Locks are taken in this order: inbox, core, outbox; replies are told without
//! the core's.

mod core;
mod drive;
mod effects;
mod entry;
mod exchange;
mod expiring;
mod item_clock;
mod memory;
mod notice;
mod orders;
mod peer;
pub mod state;
mod status;
mod stop;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use clutch_wire::forked::Moment;
use clutch_wire::frame::{self, Kind, NO_DEADLINE, WireError};
use clutch_wire::region::RegionPool;
use clutch_wire::sync::{Condvar, Mutex};
use clutch_wire::sys::{self, Poller};
use clutch_wire::{Codec, Form};
use smallvec::SmallVec;

use self::core::Core;
pub use self::drive::{PoolDriver, Read};
use self::effects::{Effects, Told};
use self::entry::{Entry, Function};
pub use self::exchange::answer::{Answer, Part, Waker};
pub use self::exchange::batch::Batch;
pub use self::exchange::{Describe, Exchange, Input, Pause, QueueTime, Terms};
use self::peer::alarm::Questions;
use self::peer::incoming::Incoming;

use self::item_clock::ItemClocks;
pub use self::memory::{Memory, Weighed};
pub use self::notice::Notice;
use self::orders::Orders;
pub use self::orders::{Carried, Command, Denied, Order, Ticket};
pub use self::peer::Link;
use self::state::{Action, Event, Limits, Machine, Request, WorkerKey};
pub use self::status::running::RunningInWorker;
pub use self::status::schemas::{SharedSchemas, ToolSchema, ToolSchemas};
use self::status::spent::Noted;
pub use self::status::spent::{Insights, Slow, Spent};
pub use self::status::{Health, Stats, Status, WorkerView};
use crate::config::{Overflow, PoolConfig, WORKERS_MAX};
use crate::link::board::word;
use crate::link::{Filled, Inbox, Received};
use crate::telemetry::{self, Emitter, Telemetry};
use crate::work::{FunctionId, Outcome, Refusal, Work, WorkId};

/// How often a thread that waits for its answer looks for signals.
const SIGNALS_LOOK: Duration = Duration::from_millis(100);

/// Why a link ended that was only closed.
pub const END_OF_FILE: &str = "end of file";

/// Token of the driver's own wake-up in the poller; workers use their keys.
pub const WAKE: u64 = u64::MAX;

/// Is given each link that it has to read: see [`Pool::read_link`].
pub type Reader = Box<dyn Fn(Arc<Link>) + Send + Sync>;

/// A pool. Everything goes through [`Pool::submit`] or its blocking twin [`Pool::call`].
pub struct Pool {
    pub config: PoolConfig,
    pub telemetry: Emitter,
    pub regions: Arc<RegionPool>,
    pub poller: Poller,
    core: Mutex<Core>,
    wake: OwnedFd,
    notices: Mutex<Vec<Notice>>,
    status: Mutex<Status>,
    changed: Condvar,
    questions: Questions,
    orders: Orders,
    /// Who reads the links instead of the driver.
    reader: Mutex<Option<Reader>>,
    /// Links that the kernel was too short to write to: the driver tries again.
    short: Mutex<Vec<Arc<Link>>>,
    epoch: Instant,
    /// The same in nanoseconds of CLOCK_MONOTONIC, which workers read, too.
    epoch_ns: u64,
    /// When the driver wakes up by itself, in microseconds since `epoch`.
    driver_wakes_us: AtomicU64,
    /// Work with a deadline has come since the driver last looked.
    deadlines_come: AtomicBool,
    /// The driver wants to know of work that waits for so long; `u64::MAX`: it does not.
    watch_us: AtomicU64,
    /// By it a copy of this process knows that the pool is not its own, and leaves it alone: its locks may be held for
    /// ever there, and the boards are the original's.
    made: Moment,
}

impl Pool {
    /// The handle that callers share, and what drives it.
    pub fn new(config: PoolConfig, telemetry: Arc<Telemetry>) -> io::Result<(Arc<Pool>, PoolDriver)> {
        let telemetry = Emitter::new(telemetry, &config.name);
        let limits = Limits {
            queue: config.queue_limit,
            block: config.overflow == Overflow::Block,
            deaths_max: config.deaths_max,
        };
        let core = Core {
            machine: Machine::new(limits),
            peers: BTreeMap::new(),
            functions: Vec::new(),
            names: HashMap::new(),
            failing: None,
            lost: None,
            interrupt_grace: config.interrupt_grace(),
            memory_limit: config.recycle_memory_bytes,
            foreign: None,
            done: 0,
            failed: 0,
            drained: 0,
            refused: 0,
            told_full: None,
            expiring: BTreeMap::new(),
            item_clocks: ItemClocks::default(),
            spare: Vec::new(),
            noted: Noted::default(),
            telemetry: telemetry.clone(),
        };
        let status = Status::new(&config);
        let poller = Poller::new()?;
        let wake = sys::event_fd()?;
        poller.add(wake.as_fd(), WAKE, false)?;
        let regions = Arc::new(RegionPool::for_many_readers(wake.try_clone()?));
        let pool = Arc::new(Pool {
            config,
            telemetry,
            regions,
            poller,
            core: Mutex::new(core),
            wake,
            notices: Mutex::new(Vec::new()),
            status: Mutex::new(status),
            changed: Condvar::new(),
            questions: Questions::default(),
            orders: Orders::default(),
            reader: Mutex::new(None),
            short: Mutex::default(),
            epoch: Instant::now(),
            epoch_ns: sys::monotonic_ns(),
            driver_wakes_us: AtomicU64::new(0),
            deadlines_come: AtomicBool::new(false),
            watch_us: AtomicU64::new(u64::MAX),
            made: Moment::now(),
        });
        Ok((pool.clone(), PoolDriver(pool)))
    }

    // ---- for callers

    /// The number of a function, by its name or its pickle; the same bytes always get the same number. `name`: for people.
    pub fn function(&self, codec: Codec, body: &[u8], name: &str) -> FunctionId {
        let mut core = self.core.lock();
        let mut key = vec![codec as u8];
        key.extend_from_slice(body);
        if let Some(id) = core.names.get(&key) {
            return *id;
        }
        let id = core.functions.len() as FunctionId;
        core.functions.push(Function { codec, body: body.to_vec(), name: name.to_owned() });
        core.names.insert(key, id);
        id
    }

    /// Hands in work; its reply is told the answer, exactly once, possibly before this returns. `block`: it waits for room
    /// where the queue is full, whatever the pool's overflow says.
    pub fn submit(&self, work: Work, block: bool) -> WorkId {
        let (id, effects) = self.take_in(work, block);
        self.carry_out(effects);
        id
    }

    fn take_in(&self, work: Work, block: bool) -> (WorkId, Effects) {
        if self.is_forked() {
            return (self.refuse_in_copy(&work), Effects::default());
        }
        let request = request_of(&work, block);
        let taken =
            self.transact_only(|core, now, actions, _| core.machine.submit(request, Entry::new(work), now, actions));
        self.wake_for(request.deadline);
        taken
    }

    /// The pool is another process's.
    fn refuse_in_copy(&self, work: &Work) -> WorkId {
        work.reply.finish(Outcome::Refused(Refusal::Closed { pool: self.config.name.clone() }));
        0
    }

    /// Removes work that waits, stops work that runs. Returns whether it was not answered before.
    pub fn cancel(&self, id: WorkId) -> bool {
        self.transact(|core, now, actions| {
            let waits = core.machine.body(id).is_some();
            core.machine.on(Event::Abandon { id }, now, actions);
            waits
        })
    }

    /// Takes back all that has not begun.
    pub fn cancel_waiting(&self) {
        self.transact(|core, now, actions| {
            let workers: Vec<WorkerKey> = core.peers.keys().copied().collect();
            for worker in workers {
                let sent: Vec<WorkId> = core.machine.sent(worker).collect();
                actions.extend(sent.into_iter().map(|id| Action::Take { worker, id }));
            }
            core.claim_back(actions, now);
            core.machine.on(Event::CancelWaiting, now, actions);
        });
    }

    /// Removes work that has not begun; false: it has.
    pub fn withdraw(&self, id: WorkId) -> bool {
        self.transact(|core, now, actions| core.withdraw(id, now, actions))
    }

    /// Its time is no longer measured.
    pub fn lift_deadline(&self, id: WorkId) {
        if self.is_forked() {
            return;
        }
        self.core.lock().machine.lift_deadline(id);
    }

    /// Whether its time is not measured, because a debugger has been open while it was here.
    pub fn is_untimed(&self, id: WorkId) -> bool {
        !self.is_forked() && self.core.lock().machine.is_untimed(id)
    }

    /// Its time ends at another moment than was said before.
    pub fn set_deadline(&self, id: WorkId, at: Instant) {
        if self.is_forked() {
            return;
        }
        self.core.lock().machine.set_deadline(id, at);
        self.wake_for(Some(at));
    }

    /// It turned out to have no end of its own: it is told when its worker is to end, and cut off at the grace.
    pub fn mark_endless(&self, id: WorkId) {
        if self.is_forked() {
            return;
        }
        let cut_at = self.core.lock().machine.mark_endless(id);
        self.wake_for(cut_at);
    }

    /// Lets the producer of a stream send this many more chunks.
    pub fn credit(&self, id: WorkId, count: u32) {
        self.post(id, |out| frame::put_credit(out, id, count));
    }

    /// Sends a chunk of an inbound stream, in pieces where it is large; `Codec::Empty` ends it.
    pub fn feed(&self, id: WorkId, form: impl Into<Form>, bytes: &[u8]) {
        self.post(id, |out| frame::put_pieces(out, id, form.into(), bytes));
    }

    /// Whether it waits or runs, and somebody waits for it.
    pub fn is_awaited(&self, id: WorkId) -> bool {
        !self.is_forked() && self.core.lock().machine.body(id).is_some()
    }

    /// Whether user code has started on it.
    pub fn has_begun(&self, id: WorkId) -> bool {
        if self.is_forked() {
            return false;
        }
        let core = self.core.lock();
        let Some(entry) = core.machine.body(id) else { return false };
        let peer = core.machine.worker_of(id).and_then(|worker| core.peers.get(&worker));
        peer.is_some_and(|peer| entry.word.is_some_and(|at| peer.link.board.get(at) == word::BEGUN))
    }

    /// No more submissions; what is in goes on.
    pub fn close(&self) {
        self.transact(|core, now, actions| core.machine.on(Event::Close, now, actions));
    }

    /// Quiet: takes no submissions, finishes what it has, and keeps its workers.
    pub fn set_quiet(&self, quiet: bool) {
        self.transact(|core, now, actions| core.machine.on(Event::Quiet { quiet }, now, actions));
        self.status.lock().set_quiet(quiet);
        self.changed.notify_all();
    }

    /// Endless work in all workers is told to end: nothing is to come after it.
    pub fn end_endless(&self) {
        self.tell_endless(|_| true);
    }

    /// Closes and stops: running work has `grace`, then the workers are told with TERM and, after `term`, killed. Idle
    /// ones end in order also without a grace.
    pub fn stop(&self, grace: Duration, term: Duration) {
        // First: who hears only that it is closed and empty has its workers end without being told how.
        self.notify(Notice::Stop { grace, term, spares_idle: true });
        self.close();
    }

    /// Closes and ends all workers, idle ones too: they are told with TERM at once and, after `term`, killed.
    pub fn end_workers(&self, term: Duration) {
        self.notify(Notice::Stop { grace: Duration::ZERO, term, spares_idle: false });
        self.close();
    }

    /// Tells the log what an operator had done.
    pub fn note_action(&self, action: impl Into<String>) {
        self.telemetry.emit(|pool| telemetry::Event::OperatorActed { pool, action: action.into() });
    }

    /// Hands an order to the supervisor, unless it cannot be carried out as it is.
    pub fn order(&self, command: Command) -> Result<Order<'_>, Denied> {
        match command {
            Command::Scale { min, max } if !(1 <= min && min <= max && max <= WORKERS_MAX) => {
                return Err(Denied::NotAllowed(format!(
                    "pool '{}' cannot have {min} to {max} workers; allowed: 1 <= min <= max <= {WORKERS_MAX}",
                    self.config.name
                )));
            }
            Command::Kill { nr } | Command::Recycle { nr: Some(nr) } => self.check_worker(nr)?,
            _ => {}
        }
        let ticket = self.orders.open()?;
        self.notify(Notice::Order { ticket, command });
        Ok(Order { orders: &self.orders, ticket })
    }

    /// Fails when there is no worker of this number.
    pub fn check_worker(&self, nr: u32) -> Result<(), Denied> {
        let known: BTreeSet<u32> = self.status().workers.iter().map(|(_, view)| view.nr).collect();
        if known.contains(&nr) {
            return Ok(());
        }
        let known: Vec<String> = known.iter().map(u32::to_string).collect();
        let (name, known) = (&self.config.name, known.join(", "));
        Err(Denied::NoSuchWorker(format!("pool '{name}' has no worker {nr}; allowed: {known}")))
    }

    /// The Python stacks of one worker, without stopping it; none: it did not answer until the deadline.
    pub fn stacks(&self, worker: WorkerKey, deadline: Instant) -> Option<String> {
        let link = self.core.lock().peers.get(&worker)?.link.clone();
        let has_tasks = self.config.shape.profile.has_tasks();
        let question = self.questions.open(has_tasks);
        link.alarm.ask(question);
        if has_tasks {
            link.outbox.push(|out| frame::put_question(&mut out.bytes, question));
            self.flush(&link);
        }
        self.questions.wait(question, deadline)
    }

    /// The worker that has begun this work, or was sent it.
    pub fn worker_of(&self, id: WorkId) -> Option<WorkerKey> {
        self.core.lock().machine.worker_of(id)
    }

    /// This is a forked copy of the dispatcher: nothing works here.
    pub fn is_forked(&self) -> bool {
        self.made.is_in_copy()
    }

    // ---- blocking callers

    /// Submits and waits. `interrupted` is asked when a signal came, and now and then; true ends the wait.
    pub fn call(&self, work: Work, answer: &Answer, block: bool, interrupted: &mut dyn FnMut() -> bool) {
        if self.is_forked() {
            answer.set_id(self.refuse_in_copy(&work));
            return;
        }
        let request = request_of(&work, block);
        let mut leased = None;
        let id = self.transact(|core, now, actions| {
            let id = core.machine.submit(request, Entry::new(work), now, actions);
            core.machine.settle(now, actions);
            leased = core.lease(id, actions, &self.poller);
            id
        });
        answer.set_id(id);
        self.wake_for(request.deadline);
        let mut has_signal = leased.is_some_and(|link| self.read_for(&link, answer));
        while has_signal || !answer.wait_done(SIGNALS_LOOK) {
            has_signal = false;
            // A signal's handler may have forked, too.
            if !answer.is_done() && (interrupted() || self.is_forked()) {
                self.cancel(id);
                return;
            }
        }
    }

    /// Reads a link in the caller's thread until its answer is there, for a short while: it may come from elsewhere, too.
    /// Returns whether a signal came: its handler runs when the link is free, whatever it does.
    fn read_for(&self, link: &Arc<Link>, answer: &Answer) -> bool {
        let mut inbox = link.inbox.lock();
        let (mut ended, mut has_signal) = (None, false);
        while !answer.is_done() && ended.is_none() {
            match inbox.fill(link.socket.as_fd(), true) {
                Ok(Filled::Bytes) => ended = self.absorb(link, &mut inbox, ReadFrom::Link).err(),
                Ok(Filled::Nothing) => break,
                Ok(Filled::End) => ended = Some(END_OF_FILE.to_owned()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    has_signal = true;
                    break;
                }
                Err(error) => ended = Some(error.to_string()),
            }
        }
        self.end_lease(link, ended.is_some());
        drop(inbox);
        if let Some(reason) = ended {
            self.notify(Notice::LinkEnded(link.key, reason));
        }
        has_signal
    }

    fn end_lease(&self, link: &Arc<Link>, broken: bool) {
        if self.is_forked() {
            return;
        }
        let mut core = self.core.lock();
        let busy = core.machine.worker(link.key).is_some_and(|(sent, _)| sent > 0);
        if let Some(peer) = core.peers.get_mut(&link.key) {
            peer.leased = false;
            if busy || broken || peer.orphaned {
                let armed = peer.arm(&self.poller);
                self.must_be_watched(link.key, armed);
            }
        }
    }

    // ---- inside

    /// As workers are told it.
    pub(super) fn deadline_ns(&self, deadline: Option<Instant>) -> u64 {
        let since = deadline.map(|at| at.saturating_duration_since(self.epoch).as_nanos() as u64);
        since.map_or(NO_DEADLINE, |since| self.epoch_ns.saturating_add(since))
    }

    /// One transaction: an event under the lock, then all that follows from it. In a copy of the process it is none.
    fn transact<R: Default>(&self, event: impl FnOnce(&mut Core, Instant, &mut Vec<Action<Box<Entry>>>) -> R) -> R {
        self.transact_with(|core, now, actions, _| event(core, now, actions))
    }

    /// The same for an event that has effects of its own.
    fn transact_with<R: Default>(
        &self,
        event: impl FnOnce(&mut Core, Instant, &mut Vec<Action<Box<Entry>>>, &mut Effects) -> R,
    ) -> R {
        let (result, effects) = self.transact_only(event);
        self.carry_out(effects);
        result
    }

    /// The same, the effects being the caller's to carry out.
    fn transact_only<R: Default>(
        &self,
        event: impl FnOnce(&mut Core, Instant, &mut Vec<Action<Box<Entry>>>, &mut Effects) -> R,
    ) -> (R, Effects) {
        let mut effects = Effects::default();
        if self.is_forked() {
            return (R::default(), effects);
        }
        let now = Instant::now();
        let (result, waits) = {
            let mut core = self.core.lock();
            let mut actions = std::mem::take(&mut core.spare);
            let result = event(&mut core, now, &mut actions, &mut effects);
            core.run(self, now, &mut actions, &mut effects);
            core.spare = actions;
            (result, core.machine.has_waiting())
        };
        if waits {
            self.wake_for(self.watch_delay().map(|delay| now + delay));
        }
        (result, effects)
    }

    fn carry_out(&self, effects: Effects) {
        for link in &effects.flush {
            self.flush(link);
        }
        for (link, id, stacks) in effects.interrupts {
            link.alarm.interrupt(id, stacks);
        }
        for (reply, told) in effects.replies {
            match told {
                Told::Chunk(payload) => reply.chunk(payload),
                Told::Finish(outcome) => reply.finish(outcome),
                Told::Credit(count) => reply.credit(count),
                Told::Begun => reply.begun(),
                Told::Admitted => reply.admitted(),
            }
        }
        for notice in effects.notices {
            self.notify(notice);
        }
        for (question, text) in effects.stacks {
            self.questions.answer(question, text, false);
        }
        self.wake_for(effects.look_at);
    }

    /// Frames about one piece of work, to the worker that has it.
    fn post(&self, id: WorkId, put: impl FnOnce(&mut Vec<u8>)) {
        if let Some(link) = self.put(id, put) {
            self.flush(&link);
        }
    }

    fn put(&self, id: WorkId, put: impl FnOnce(&mut Vec<u8>)) -> Option<Arc<Link>> {
        if self.is_forked() {
            return None;
        }
        let link = {
            let core = self.core.lock();
            let peer = core.machine.worker_of(id).and_then(|worker| core.peers.get(&worker));
            peer.map(|peer| peer.link.clone())?
        };
        link.outbox.push(|out| put(&mut out.bytes));
        Some(link)
    }

    /// Takes in all whole frames of an inbox. An error breaks the link.
    fn absorb(&self, link: &Arc<Link>, inbox: &mut Inbox, read_from: ReadFrom) -> Result<(), String> {
        let mut incoming = SmallVec::<[Incoming; 2]>::new();
        let broken = |error: WireError| error.to_string();
        let mut unsaid = SmallVec::<[u64; 2]>::new();
        while let Some(received) = inbox.next_frame().map_err(broken)? {
            if read_from == ReadFrom::Journal && is_unsaid(&received, &mut unsaid) {
                continue;
            }
            let is_more = incoming.last_mut().map_or(Ok(false), |last| last.add(&received)).map_err(broken)?;
            if !is_more {
                incoming.push(Incoming::of(&received).map_err(broken)?);
            }
            incoming.last_mut().into_iter().for_each(|last| last.add_more(inbox));
        }
        self.tell_unreceived(link, inbox.take_unreceived());
        if incoming.is_empty() {
            return Ok(());
        }
        let wrong = self.transact_with(|core, now, actions, effects| {
            // What comes of a worker that is gone, by who still reads its link, is about work that has moved on.
            if !core.peers.contains_key(&link.key) {
                return None;
            }
            let taken = incoming.into_iter().try_for_each(|one| core.take_in(link.key, one, now, actions, effects));
            if core.machine.drained(link.key) {
                effects.notices.push(Notice::Drained(link.key));
            }
            taken.err()
        });
        wrong.map_or(Ok(()), Err)
    }

    /// The worker is to use these regions no more: no descriptor was left here to receive theirs.
    fn tell_unreceived(&self, link: &Arc<Link>, regions: Vec<u32>) {
        for region in regions {
            link.outbox.push(|out| frame::put_head(&mut out.bytes, Kind::Unreceived, u64::from(region), 0));
            self.flush(link);
        }
    }
}

/// Where frames come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadFrom {
    Link,
    /// The journal of a dead worker, without the descriptors that went with them: what names those was never said.
    Journal,
}

/// Whether a frame in a journal names memory that did not come with it, or comes behind one of the same work that does.
fn is_unsaid(received: &Received<'_>, unsaid: &mut SmallVec<[u64; 2]>) -> bool {
    let id = received.frame.head.id;
    if matches!(received.leases(), Err(WireError::Unreceived(..))) {
        unsaid.push(id);
    }
    unsaid.contains(&id)
}

fn request_of(work: &Work, block: bool) -> Request {
    Request {
        function: work.function,
        priority: work.priority,
        deadline: work.deadline,
        block,
        retry: work.retry,
        endless: work.is_endless(),
        calls: u64::from(work.items.max(1)),
    }
}
