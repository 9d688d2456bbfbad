//! The handle of a pool: the machine behind a mutex, and the links of its workers.
//!
//! Owns what waits and what is on the links. Events run on the thread that brings them: a caller's, or the driver's (the
//! one thread of the supervisor). A blocking caller that gets an idle worker also reads that worker's link until its
//! answer has come: no thread in between. Locks are taken in this order: inbox, core, outbox; replies are told without
//! the core's.

mod channels;
mod core;
mod drive;
mod driver_clock;
mod effects;
mod entry;
mod exchange;
mod expiring;
pub mod facts;
mod functions;
mod histograms;
mod links;
mod memory;
mod notice;
mod notices;
mod orders;
mod own_work;
mod peer;
mod permits;
mod reader;
mod run_clock;
pub mod state;
mod status;
mod stop;
mod transact;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use clutch_wire::Codec;
use clutch_wire::frame;
use clutch_wire::region::RegionPool;
use clutch_wire::sync::Mutex;

pub use self::channels::{ChannelOwner, Channels};
use self::core::Core;
pub use self::drive::PoolDriver;
use self::driver_clock::DriverClock;
use self::effects::{Effects, Lease};
use self::entry::Entry;
pub use self::exchange::answer::{Answer, Part, Waker};
pub use self::exchange::batch::Batch;
pub use self::exchange::{Describe, Exchange, Input, Pause, QueueTime, Terms};
use self::facts::OperatorActed;
pub use self::histograms::{Histograms, ToolCalls};
use self::links::Links;
pub use self::links::Reader;
pub use self::memory::{Memory, Weighed};
pub use self::notice::Notice;
use self::orders::Orders;
pub use self::orders::{Carried, Command, Denied, Order, Ticket};
pub use self::own_work::{Adopted, Served};
pub use self::peer::Link;
use self::peer::alarm::Questions;
pub use self::permits::Permits;
pub use self::reader::{LinkReader, Read};
use self::state::{Action, Event, Request, WorkerKey};
use self::status::StatusBoard;
pub use self::status::company::Pace;
pub use self::status::running::RunningInWorker;
pub use self::status::schemas::{SharedSchemas, ToolProblem, ToolSchema, ToolSchemas};
pub use self::status::spent::{Insights, Slow, Spent};
pub use self::status::{Health, Stats, Status, WorkerView};
use crate::config::{PoolConfig, WORKERS_MAX};
use crate::link::board::word;
use crate::telemetry::{Emitter, Telemetry};
use crate::work::{FunctionId, Outcome, Refusal, Work, WorkId};

/// Interval at which a thread that waits for its answer checks for signals.
const SIGNALS_LOOK: Duration = Duration::from_millis(100);

/// Why a link ended that was only closed.
pub const END_OF_FILE: &str = "end of file";

/// Token of the driver's own wake-up in the poller; workers use their keys.
pub const WAKE: u64 = u64::MAX;

/// A pool, for its callers. Everything goes through [`Pool::submit`] or its blocking twin [`Pool::call`]. Fronts have more of
/// each piece of work by an [`Exchange`] and a [`LinkReader`]; what only the supervisor may do, [`PoolDriver`] has.
pub struct Pool {
    pub config: Arc<PoolConfig>,
    telemetry: Emitter,
    regions: Arc<RegionPool>,
    /// Number of dropped regions when workers were last told of them.
    told_dropped: AtomicU32,
    core: Mutex<Core>,
    links: Links,
    status: StatusBoard,
    questions: Questions,
    orders: Orders,
    clock: DriverClock,
}

impl Pool {
    /// The handle that callers share, and what drives it.
    pub fn new(config: PoolConfig, telemetry: Arc<Telemetry>) -> io::Result<(Arc<Pool>, PoolDriver)> {
        let (telemetry, config) = (Emitter::new(telemetry, &config.name), Arc::new(config));
        let links = Links::new()?;
        let pool = Arc::new(Pool {
            regions: Arc::new(RegionPool::for_many_readers(links.notices.waker()?)),
            told_dropped: AtomicU32::new(0),
            core: Mutex::new(Core::new(config.clone(), telemetry.clone())),
            links,
            status: StatusBoard::new(&config),
            questions: Questions::default(),
            orders: Orders::default(),
            clock: DriverClock::new(),
            config,
            telemetry,
        });
        Ok((pool.clone(), PoolDriver(pool)))
    }

    pub fn telemetry(&self) -> &Emitter {
        &self.telemetry
    }

    /// Shared memory for large parts of payloads.
    pub fn regions(&self) -> &Arc<RegionPool> {
        &self.regions
    }

    // ---- for callers

    /// The number of a function, by its name or its pickle; the same bytes always get the same number. `name`: for people.
    pub fn function(&self, codec: Codec, body: &[u8], name: &str) -> FunctionId {
        self.core.lock().functions.number(codec, body, name)
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
        work.reply.finish(Outcome::Refused(Refusal::Closed { pool: self.config.name.clone() }), None);
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

    /// Lets the producer of a stream send this many more chunks.
    pub fn credit(&self, id: WorkId, count: u32) {
        self.post(id, |out| frame::put_credit(out, id, count));
    }

    /// Returns whether the work waits or runs, and somebody waits for it.
    pub fn is_awaited(&self, id: WorkId) -> bool {
        !self.is_forked() && self.core.lock().machine.body(id).is_some()
    }

    /// Returns whether user code has started on the work.
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
        self.status.update(|status| status.set_quiet(quiet));
        self.quiet_channels(quiet);
    }

    /// Endless work in all workers is told to end: nothing is to come after it.
    pub fn end_endless(&self) {
        self.core.lock().tell_endless(|_| true);
    }

    /// Whether a worker that takes work could begin some now.
    pub fn has_free_slot(&self) -> bool {
        self.core.lock().machine.has_free_slot()
    }

    /// What workers have is cut off after this time, with what they have taken by themselves: its code is told to stop, and
    /// its worker may end in order.
    pub fn cut_off(&self, after: Duration) {
        let Some(by) = Instant::now().checked_add(after) else { return };
        self.transact(|core, _, _| core.machine.cut_all(by));
        self.wake_for(Some(by));
    }

    /// Closes and stops: running work has `grace`, then the workers are told with TERM and, after `term`, killed. Idle
    /// ones end in order also without a grace.
    pub fn stop(&self, grace: Duration, term: Duration) {
        // First: who hears only that it is closed and empty has its workers end without being told how.
        self.links.notices.tell(Notice::Stop { grace, term, spares_idle: true });
        self.close();
    }

    /// Closes and ends all workers, idle ones too: they are told with TERM at once and, after `term`, killed. What waits is
    /// cancelled.
    pub fn end_workers(&self, term: Duration) {
        self.transact(|core, _, _| core.machine.cancel_rest());
        self.links.notices.tell(Notice::Stop { grace: Duration::ZERO, term, spares_idle: false });
        self.close();
    }

    /// Tells the log what an operator had done.
    pub fn note_action(&self, action: impl Into<String>) {
        self.telemetry.emit(|| OperatorActed { action: action.into() });
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
        self.links.notices.tell(Notice::Order { ticket, command });
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
            self.links.flush(&link);
        }
        self.questions.wait(question, deadline)
    }

    /// The worker that has begun this work, or was sent it.
    pub fn worker_of(&self, id: WorkId) -> Option<WorkerKey> {
        self.core.lock().machine.worker_of(id)
    }

    /// This is a forked copy of the dispatcher: nothing works here.
    pub fn is_forked(&self) -> bool {
        self.links.notices.is_in_copy()
    }

    // ---- blocking callers

    /// Submits and waits. `interrupted` is asked when a signal came, and now and then; true ends the wait.
    pub fn call(&self, work: Work, answer: &Answer, block: bool, interrupted: &mut dyn FnMut() -> bool) {
        if self.is_forked() {
            answer.set_id(self.refuse_in_copy(&work));
            return;
        }
        let request = request_of(&work, block);
        let (id, mut effects) = self.transact_only(|core, now, actions, effects| {
            let id = core.machine.submit(request, Entry::new(work), now, actions);
            effects.lease = Lease::Wanted(id);
            id
        });
        let lease = std::mem::take(&mut effects.lease);
        self.carry_out(effects);
        answer.set_id(id);
        self.wake_for(request.deadline);
        let mut has_signal = matches!(lease, Lease::Granted(link) if self.read_for(&link, answer));
        while has_signal || !answer.wait_done(SIGNALS_LOOK) {
            has_signal = false;
            // A signal's handler may have forked, too.
            if !answer.is_done() && (interrupted() || self.is_forked()) {
                self.cancel(id);
                return;
            }
        }
    }
}

fn request_of(work: &Work, block: bool) -> Request {
    Request {
        function: work.function,
        priority: work.priority,
        deadline: work.deadline,
        block,
        retry: work.retry,
        endless: work.is_endless(),
        calls: if work.is_counted { u64::from(work.items.max(1)) } else { 0 },
        fetcher: work.fetcher,
    }
}
