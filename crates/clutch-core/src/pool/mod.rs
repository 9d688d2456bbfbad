//! The handle of a pool: the machine behind a mutex, and the links of its workers.
//!
//! Owns what waits and what is on the links. Events run on the thread that brings them: a caller's, or the driver's (the
//! one thread of the supervisor). A blocking caller that gets an idle worker also reads that worker's link until its
//! answer has come: no thread in between. Locks are taken in this order: inbox, core, outbox; replies are told without
//! the core's.

mod answer;
mod peer;
pub mod queue;
pub mod state;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use serde::Serialize;
use smallvec::SmallVec;

pub use self::answer::{Answer, Part, Waker};
pub use self::peer::Link;
use self::peer::Peer;
use self::state::{Action, Event, Limits, Machine, Request, Verdict, WorkerKey};
use crate::config::{Overflow, PoolConfig};
use crate::link::{Filled, Flushed, Inbox, word};
use crate::region::RegionPool;
use crate::sys::{self, Poller};
use crate::telemetry::{self, Telemetry};
use crate::wire::{self, Kind};
use crate::work::{Codec, Failure, FunctionId, Outcome, Payload, Refusal, Reply, Where, Work, WorkId};

/// Token of the driver's own wake-up in the poller; workers use their keys.
pub const WAKE: u64 = u64::MAX;

/// What the pool tells its supervisor.
#[derive(Debug)]
pub enum Notice {
    /// Most of its calls are used up.
    Worn(WorkerKey),
    /// Told to take no more, and nothing is left.
    Drained(WorkerKey),
    /// Its running work is past the deadline.
    Overdue(WorkerKey),
    /// The link ended or broke.
    LinkEnded(WorkerKey, String),
    /// The worker said that it is ready (its JSON).
    Ready(WorkerKey, String),
    /// The worker could not start (its JSON).
    StartFailed(WorkerKey, String),
    /// Its socket is full: tell when there is room.
    WantWrite(WorkerKey),
    /// Closed, and nothing is left.
    Empty,
    /// Stop: wait for running work for so long.
    Stop { grace: Duration },
}

/// A function that workers know by number.
#[derive(Debug)]
struct Function {
    codec: Codec,
    body: Vec<u8>,
}

/// What the machine keeps with each piece of work.
struct Entry {
    work: Work,
    word: u32,
}

struct Core {
    machine: Machine<Entry>,
    peers: BTreeMap<WorkerKey, Peer>,
    functions: Vec<Function>,
    names: HashMap<Vec<u8>, FunctionId>,
    failing: Option<Arc<Failure>>,
    /// Workers run another Python version: code by value cannot go there.
    foreign: Option<String>,
    done: u64,
    failed: u64,
    /// Room for the actions of a transaction, kept from one to the next.
    spare: Vec<Action<Entry>>,
}

/// What the rest of the world may know of a pool's workers.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerView {
    pub nr: u32,
    pub pid: i32,
    pub generation: u32,
    pub state: &'static str,
    pub calls: u64,
    pub sent: usize,
}

/// State of the whole pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    Starting,
    Ready,
    Failing,
    Draining,
    Closed,
}

/// Kept by the supervisor, read by anybody.
#[derive(Clone, Debug)]
pub struct Status {
    pub health: Health,
    pub reason: Option<String>,
    pub ready: usize,
    pub target: usize,
    pub workers: Vec<(WorkerKey, WorkerView)>,
    pub zygote_pid: Option<i32>,
    pub generation: u32,
    pub restarts: u64,
    /// The zygote's own words: tools, warnings, Python version; JSON.
    pub image: serde_json::Value,
}

/// Counts and workers at one instant.
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    pub name: String,
    pub state: Health,
    pub reason: Option<String>,
    pub queued: usize,
    pub lobby: usize,
    pub sent: usize,
    pub slots: usize,
    pub ready: usize,
    pub target: usize,
    pub done: u64,
    pub failed: u64,
    pub restarts: u64,
    pub generation: u32,
    pub zygote_pid: Option<i32>,
    pub workers: Vec<WorkerView>,
    pub image: serde_json::Value,
}

/// A pool. Everything goes through [`Pool::submit`] or its blocking twin [`Pool::call`].
pub struct Pool {
    pub config: PoolConfig,
    pub telemetry: Arc<Telemetry>,
    pub regions: Arc<RegionPool>,
    pub poller: Poller,
    core: Mutex<Core>,
    wake: OwnedFd,
    notices: Mutex<Vec<Notice>>,
    status: Mutex<Status>,
    changed: Condvar,
    epoch: Instant,
    /// When the driver wakes up by itself, in microseconds since `epoch`.
    driver_wakes_us: AtomicU64,
    forked: AtomicBool,
}

/// What is done after the core's lock is released.
#[derive(Default)]
struct Effects {
    flush: SmallVec<[Arc<Link>; 2]>,
    replies: SmallVec<[(Arc<dyn Reply>, Told); 1]>,
    notices: Vec<Notice>,
}

enum Told {
    Chunk(Payload),
    Finish(Outcome),
    Begun,
    Admitted,
}

/// What a worker said.
enum Incoming {
    Finished { id: WorkId, run_ns: u64, outcome: Outcome },
    Chunk { id: WorkId, payload: Payload },
    Credit,
    Begun { id: WorkId },
    Ready(String),
    StartFailed(String),
    Other,
}

impl Pool {
    pub fn new(config: PoolConfig, telemetry: Arc<Telemetry>) -> io::Result<Arc<Pool>> {
        let limits = Limits { queue: config.queue_limit, block: config.overflow == Overflow::Block };
        let core = Core {
            machine: Machine::new(limits),
            peers: BTreeMap::new(),
            functions: Vec::new(),
            names: HashMap::new(),
            failing: None,
            foreign: None,
            done: 0,
            failed: 0,
            spare: Vec::new(),
        };
        let status = Status {
            health: Health::Starting,
            reason: None,
            ready: 0,
            target: config.shape.workers as usize,
            workers: Vec::new(),
            zygote_pid: None,
            generation: 0,
            restarts: 0,
            image: serde_json::Value::Null,
        };
        let poller = Poller::new()?;
        let wake = sys::event_fd()?;
        poller.add(wake.as_fd(), WAKE, false)?;
        Ok(Arc::new(Pool {
            config,
            telemetry,
            regions: Arc::new(RegionPool::default()),
            poller,
            core: Mutex::new(core),
            wake,
            notices: Mutex::new(Vec::new()),
            status: Mutex::new(status),
            changed: Condvar::new(),
            epoch: Instant::now(),
            driver_wakes_us: AtomicU64::new(0),
            forked: AtomicBool::new(false),
        }))
    }

    // ---- for callers

    /// The number of a function, by its name or its pickle; the same bytes always get the same number.
    pub fn function(&self, codec: Codec, body: &[u8]) -> FunctionId {
        let mut core = self.core.lock();
        let mut key = vec![codec as u8];
        key.extend_from_slice(body);
        if let Some(id) = core.names.get(&key) {
            return *id;
        }
        let id = core.functions.len() as FunctionId;
        core.functions.push(Function { codec, body: body.to_vec() });
        core.names.insert(key, id);
        id
    }

    /// Hands in work; its reply is told the answer, exactly once, possibly before this returns.
    pub fn submit(&self, work: Work, block: bool) -> WorkId {
        let request = request_of(&work, block);
        let id = self.transact(|core, now, actions| {
            core.machine.submit(request, Entry { work, word: 0 }, now, actions)
        });
        self.wake_for(request.deadline);
        id
    }

    /// Takes back work that has not begun. False when it has begun or is answered.
    pub fn cancel(&self, id: WorkId) -> bool {
        self.transact(|core, now, actions| {
            let before = core.machine.request(id).is_some();
            core.machine.on(Event::Cancel { id }, now, actions);
            core.claim_back(actions, now);
            core.machine.on(Event::Cancel { id }, now, actions);
            before && core.machine.request(id).is_none()
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

    /// Nobody waits for it any more: it is removed where it has not begun; a stream that runs is told to end.
    pub fn abandon(&self, id: WorkId) {
        self.transact(|core, now, actions| core.machine.on(Event::Abandon { id }, now, actions));
    }

    /// Lets the producer of a stream send so many chunks more.
    pub fn credit(&self, id: WorkId, count: u32) {
        self.post(id, |out| wire::put_credit(out, id, count));
    }

    /// Sends a chunk of an inbound stream; `Codec::Empty` ends it.
    pub fn feed(&self, id: WorkId, codec: Codec, bytes: &[u8]) {
        self.post(id, |out| wire::put_simple(out, Kind::Chunk, id, codec, bytes));
    }

    /// Whether user code has started on it.
    pub fn has_begun(&self, id: WorkId) -> bool {
        let core = self.core.lock();
        let Some(entry) = core.machine.body(id) else { return false };
        let peer = core.machine.worker_of(id).and_then(|worker| core.peers.get(&worker));
        peer.is_some_and(|peer| peer.link.board.get(entry.word) == word::BEGUN)
    }

    /// No more submissions; what is in goes on.
    pub fn close(&self) {
        self.transact(|core, now, actions| core.machine.on(Event::Close, now, actions));
    }

    /// Closes and stops: running work has `grace`, then the workers are killed.
    pub fn stop(&self, grace: Duration) {
        self.close();
        self.notify(Notice::Stop { grace });
    }

    pub fn stats(&self) -> Stats {
        let (counts, done, failed, status) = {
            let core = self.core.lock();
            (core.machine.counts(), core.done, core.failed, self.status_with_calls(&core))
        };
        Stats {
            name: self.config.name.clone(),
            state: status.health,
            reason: status.reason,
            queued: counts.queued,
            lobby: counts.lobby,
            sent: counts.sent,
            slots: counts.slots,
            ready: status.ready,
            target: status.target,
            done,
            failed,
            restarts: status.restarts,
            generation: status.generation,
            zygote_pid: status.zygote_pid,
            workers: status.workers.into_iter().map(|(_, view)| view).collect(),
            image: status.image,
        }
    }

    fn status_with_calls(&self, core: &Core) -> Status {
        let mut status = self.status.lock().clone();
        for (key, view) in &mut status.workers {
            if let Some((sent, calls)) = core.machine.worker(*key) {
                (view.sent, view.calls) = (sent, calls);
            }
        }
        status
    }

    pub fn status(&self) -> Status {
        self.status.lock().clone()
    }

    /// Waits until `done` holds of the status, or the deadline passes; returns whether it holds.
    pub fn wait_status(&self, deadline: Option<Instant>, done: impl Fn(&Status) -> bool) -> bool {
        let mut status = self.status.lock();
        while !done(&status) {
            let timed_out = match deadline {
                Some(at) => self.changed.wait_until(&mut status, at).timed_out(),
                None => {
                    self.changed.wait(&mut status);
                    false
                }
            };
            if timed_out {
                return done(&status);
            }
        }
        true
    }

    /// In a forked copy of the dispatcher: nothing works any more, and the links are not held open.
    pub fn forked(&self) {
        self.forked.store(true, Ordering::Release);
    }

    pub fn is_forked(&self) -> bool {
        self.forked.load(Ordering::Acquire)
    }

    // ---- blocking callers

    /// Submits and waits. `interrupted` is asked when a signal came, and now and then; true ends the wait.
    pub fn call(&self, work: Work, answer: &Answer, block: bool, interrupted: &mut dyn FnMut() -> bool) {
        let request = request_of(&work, block);
        let mut leased = None;
        let id = self.transact(|core, now, actions| {
            let id = core.machine.submit(request, Entry { work, word: 0 }, now, actions);
            core.machine.settle(now, actions);
            leased = core.lease(id, actions, &self.poller);
            id
        });
        answer.set_id(id);
        match leased {
            Some(link) => self.read_for(&link, answer, request.deadline, interrupted),
            None => self.wake_for(request.deadline),
        }
        while !answer.wait_done(Duration::from_millis(100)) {
            if interrupted() {
                self.abandon(id);
                return;
            }
        }
    }

    /// Reads a link in the caller's thread until its answer is there.
    fn read_for(&self, link: &Arc<Link>, answer: &Answer, deadline: Option<Instant>, stop: &mut dyn FnMut() -> bool) {
        let mut inbox = link.inbox.lock();
        let ended = loop {
            if answer.is_done() {
                break None;
            }
            if deadline.is_some() && !matches!(sys::wait_readable(link.socket.as_fd(), deadline), Ok(true)) {
                break None;
            }
            match inbox.fill(link.socket.as_fd(), true) {
                Ok(Filled::Bytes) => {}
                Ok(Filled::Nothing) => continue,
                Ok(Filled::End) => break Some("end of file".to_owned()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    if stop() {
                        break None;
                    }
                    continue;
                }
                Err(error) => break Some(error.to_string()),
            }
            if let Err(error) = self.absorb(link, &mut inbox) {
                break Some(error);
            }
        };
        self.end_lease(link, ended.is_some());
        drop(inbox);
        if let Some(reason) = ended {
            self.notify(Notice::LinkEnded(link.key, reason));
        } else if deadline.is_some() && !answer.is_done() {
            self.wake_driver();
        }
    }

    fn end_lease(&self, link: &Arc<Link>, broken: bool) {
        let mut core = self.core.lock();
        let busy = core.machine.worker(link.key).is_some_and(|(sent, _)| sent > 0);
        if let Some(peer) = core.peers.get_mut(&link.key) {
            peer.leased = false;
            if busy || broken {
                peer.arm(&self.poller);
            }
        }
    }

    // ---- for the driver

    pub fn drain_notices(&self) -> Vec<Notice> {
        sys::clear_event(self.wake.as_fd());
        std::mem::take(&mut *self.notices.lock())
    }

    pub fn notify(&self, notice: Notice) {
        self.notices.lock().push(notice);
        self.wake_driver();
    }

    pub fn wake_driver(&self) {
        sys::signal_event(self.wake.as_fd());
    }

    /// Wakes the driver when it would sleep beyond this deadline.
    fn wake_for(&self, deadline: Option<Instant>) {
        let Some(deadline) = deadline else { return };
        let at = deadline.saturating_duration_since(self.epoch).as_micros() as u64;
        if at < self.driver_wakes_us.load(Ordering::Acquire) {
            self.driver_wakes_us.store(at, Ordering::Release);
            self.wake_driver();
        }
    }

    /// Runs the machine's clock. Returns when it wants to run again.
    pub fn tick(&self, sleep_until: Option<Instant>) -> Option<Instant> {
        self.driver_wakes_us.store(0, Ordering::Release);
        self.transact(|core, now, actions| core.machine.tick(now, actions));
        let next = self.core.lock().machine.next_deadline();
        let wakes = [next, sleep_until].into_iter().flatten().min();
        let us = wakes.map_or(u64::MAX, |at| at.saturating_duration_since(self.epoch).as_micros() as u64);
        self.driver_wakes_us.store(us, Ordering::Release);
        wakes
    }

    /// A worker is being started: its link is read by the driver from now on.
    pub fn attach(&self, link: Arc<Link>) {
        let mut core = self.core.lock();
        let mut peer = Peer::new(link.clone());
        peer.arm(&self.poller);
        core.peers.insert(link.key, peer);
    }

    pub fn worker_ready(&self, key: WorkerKey, slots: usize, calls_max: Option<u64>) {
        self.transact(|core, now, actions| {
            let Some(words) = core.peers.get(&key).map(|peer| peer.link.board.len() / 2) else { return };
            core.failing = None;
            core.machine.on(Event::WorkerReady { worker: key, slots, words, calls_max }, now, actions);
        });
    }

    pub fn set_foreign(&self, version: Option<String>) {
        self.core.lock().foreign = version;
    }

    pub fn worker_held(&self, worker: WorkerKey, held: bool) {
        let event = if held { Event::WorkerHeld { worker } } else { Event::WorkerResumed { worker } };
        self.transact(|core, now, actions| core.machine.on(event, now, actions));
    }

    pub fn worker_draining(&self, worker: WorkerKey) {
        self.transact(|core, now, actions| core.machine.on(Event::WorkerDraining { worker }, now, actions));
    }

    /// Tells a worker to finish and end.
    pub fn send_drain(&self, worker: WorkerKey) {
        let link = self.core.lock().peers.get(&worker).map(|peer| peer.link.clone());
        if let Some(link) = link {
            link.outbox.push(|out| wire::put_simple(&mut out.bytes, Kind::Drain, 0, Codec::Empty, &[]));
            self.flush(&link);
        }
    }

    /// The worker is dead: what it had begun fails with `failure`, the rest runs elsewhere.
    pub fn worker_gone(&self, key: WorkerKey, failure: Failure) {
        let Some(link) = self.core.lock().peers.get(&key).map(|peer| peer.link.clone()) else { return };
        self.read_rest(&link);
        let failure = Arc::new(failure);
        self.transact(|core, now, actions| {
            let Some(peer) = core.peers.remove(&key) else { return };
            self.poller.remove(peer.link.socket.as_fd());
            let board = &peer.link.board;
            let begun = core.machine.sent(key).filter(|id| core.begun(board, *id)).collect();
            core.failing = Some(failure.clone());
            core.machine.on(Event::WorkerGone { worker: key, begun }, now, actions);
        });
        self.regions.reader_gone(u64::from(key));
    }

    /// Takes in what a dead worker had still written.
    fn read_rest(&self, link: &Arc<Link>) {
        let Some(mut inbox) = link.inbox.try_lock() else { return };
        while matches!(inbox.fill(link.socket.as_fd(), false), Ok(Filled::Bytes)) {
            if self.absorb(link, &mut inbox).is_err() {
                return;
            }
        }
    }

    /// Work that waits, and work to come, is answered with this until a worker is ready.
    pub fn set_failing(&self, failure: Option<Failure>) {
        let event = if failure.is_some() { Event::Failing } else { Event::Recovered };
        self.transact(|core, now, actions| {
            core.failing = failure.map(Arc::new);
            core.machine.on(event, now, actions);
        });
    }

    /// What waits is answered as closed.
    pub fn refuse_waiting(&self) {
        self.transact(|core, now, actions| {
            core.failing = None;
            core.machine.on(Event::Close, now, actions);
            core.machine.on(Event::Failing, now, actions);
        });
    }

    pub fn update_status(&self, update: impl FnOnce(&mut Status)) {
        update(&mut self.status.lock());
        self.changed.notify_all();
    }

    /// Links that nobody reads are read by the driver: their ends are not told by a zygote any more.
    pub fn arm_all(&self) {
        let mut core = self.core.lock();
        for peer in core.peers.values_mut().filter(|peer| !peer.leased) {
            peer.arm(&self.poller);
        }
    }

    /// A link is readable or writable.
    pub fn on_ready(&self, key: WorkerKey) {
        let Some(link) = self.core.lock().peers.get(&key).map(|peer| peer.link.clone()) else { return };
        self.flush(&link);
        let Some(mut inbox) = link.inbox.try_lock() else { return };
        let ended = match inbox.fill(link.socket.as_fd(), false) {
            Ok(Filled::Nothing) => return,
            Ok(Filled::Bytes) => self.absorb(&link, &mut inbox).err(),
            Ok(Filled::End) => Some("end of file".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(reason) = ended {
            if let Some(peer) = self.core.lock().peers.get_mut(&key) {
                peer.disarm(&self.poller);
            }
            self.notify(Notice::LinkEnded(key, reason));
        }
    }

    /// Asks the poller to tell when a full socket has room, or no longer to.
    pub fn want_write(&self, key: WorkerKey, wanted: bool) {
        let mut core = self.core.lock();
        if let Some(peer) = core.peers.get_mut(&key) {
            peer.watch_writable(&self.poller, wanted);
        }
    }

    pub fn flush(&self, link: &Arc<Link>) {
        match link.outbox.flush(link.socket.as_fd(), false) {
            Ok(Flushed::All) => {}
            Ok(Flushed::Blocked) => self.notify(Notice::WantWrite(link.key)),
            // The reading side learns of the end, with the reason.
            Err(_) => {}
        }
    }

    // ---- inside

    /// One transaction: an event under the lock, then all that follows from it.
    fn transact<R>(&self, event: impl FnOnce(&mut Core, Instant, &mut Vec<Action<Entry>>) -> R) -> R {
        let mut effects = Effects::default();
        let now = Instant::now();
        let result = {
            let mut core = self.core.lock();
            let mut actions = std::mem::take(&mut core.spare);
            let result = event(&mut core, now, &mut actions);
            core.run(self, now, &mut actions, &mut effects);
            core.spare = actions;
            result
        };
        self.carry_out(effects);
        result
    }

    fn carry_out(&self, effects: Effects) {
        for link in &effects.flush {
            self.flush(link);
        }
        for (reply, told) in effects.replies {
            match told {
                Told::Chunk(payload) => reply.chunk(payload),
                Told::Finish(outcome) => reply.finish(outcome),
                Told::Begun => reply.begun(),
                Told::Admitted => reply.admitted(),
            }
        }
        for notice in effects.notices {
            self.notify(notice);
        }
    }

    /// Frames about one piece of work, to the worker that has it.
    fn post(&self, id: WorkId, put: impl FnOnce(&mut Vec<u8>)) {
        let link = {
            let core = self.core.lock();
            let peer = core.machine.worker_of(id).and_then(|worker| core.peers.get(&worker));
            peer.map(|peer| peer.link.clone())
        };
        if let Some(link) = link {
            link.outbox.push(|out| put(&mut out.bytes));
            self.flush(&link);
        }
    }

    /// Takes in all whole frames of an inbox.
    fn absorb(&self, link: &Arc<Link>, inbox: &mut Inbox) -> Result<(), String> {
        let mut incoming = SmallVec::<[Incoming; 2]>::new();
        while let Some(received) = inbox.next_frame().map_err(|error| error.to_string())? {
            incoming.push(Incoming::of(&received).map_err(|error| error.to_string())?);
        }
        if incoming.is_empty() {
            return Ok(());
        }
        let mut effects = Effects::default();
        let now = Instant::now();
        {
            let mut core = self.core.lock();
            let mut actions = std::mem::take(&mut core.spare);
            for one in incoming {
                core.take_in(link.key, one, now, &mut effects);
            }
            if core.machine.drained(link.key) {
                effects.notices.push(Notice::Drained(link.key));
            }
            core.run(self, now, &mut actions, &mut effects);
            core.spare = actions;
        }
        self.carry_out(effects);
        Ok(())
    }

    fn emit(&self, make: impl FnOnce(String) -> telemetry::Event) {
        self.telemetry.emit(|| make(self.config.name.clone()));
    }
}

fn request_of(work: &Work, block: bool) -> Request {
    Request { function: work.function, priority: work.priority, deadline: work.deadline, block, retry: work.retry }
}

impl Incoming {
    fn of(received: &crate::link::Received<'_>) -> Result<Incoming, wire::WireError> {
        let frame = &received.frame;
        let text = || String::from_utf8_lossy(frame.payload).into_owned();
        Ok(match frame.head.kind {
            Kind::Result => Incoming::Finished {
                id: frame.head.id,
                run_ns: frame.run_ns(),
                outcome: Outcome::Value(received.payload()?),
            },
            Kind::Failure => Incoming::Finished {
                id: frame.head.id,
                run_ns: frame.run_ns(),
                outcome: Outcome::Failure(Arc::new(wire::decode_failure(received.payload()?.body())?)),
            },
            Kind::Chunk => Incoming::Chunk { id: frame.head.id, payload: received.payload()? },
            Kind::Begun => Incoming::Begun { id: frame.head.id },
            Kind::Credit => Incoming::Credit,
            Kind::Ready => Incoming::Ready(text()),
            Kind::Failed => Incoming::StartFailed(text()),
            _ => Incoming::Other,
        })
    }
}

impl Core {
    fn take_in(&mut self, key: WorkerKey, incoming: Incoming, now: Instant, effects: &mut Effects) {
        match incoming {
            Incoming::Finished { id, run_ns, outcome } => self.finish(key, id, run_ns, outcome, now, effects),
            Incoming::Chunk { id, payload } => self.tell(id, Told::Chunk(payload), effects),
            Incoming::Begun { id } => self.tell(id, Told::Begun, effects),
            Incoming::Ready(json) => effects.notices.push(Notice::Ready(key, json)),
            Incoming::StartFailed(json) => effects.notices.push(Notice::StartFailed(key, json)),
            Incoming::Credit | Incoming::Other => {}
        }
    }

    fn finish(&mut self, key: WorkerKey, id: WorkId, run_ns: u64, outcome: Outcome, now: Instant, effects: &mut Effects) {
        if let (Some(peer), Some(entry)) = (self.peers.get_mut(&key), self.machine.body(id)) {
            peer.release(entry.word);
        }
        self.done += 1;
        self.failed += u64::from(!matches!(outcome, Outcome::Value(_)));
        if let Some(entry) = self.machine.finished(key, id, run_ns, now) {
            effects.replies.push((entry.work.reply, Told::Finish(outcome)));
        }
    }

    fn tell(&self, id: WorkId, told: Told, effects: &mut Effects) {
        if let Some(entry) = self.machine.body(id) {
            effects.replies.push((entry.work.reply.clone(), told));
        }
    }

    fn begun(&self, board: &crate::link::Board, id: WorkId) -> bool {
        self.machine.body(id).is_some_and(|entry| board.get(entry.word) == word::BEGUN)
    }

    /// Carries out actions, and those that follow from them, until there are none.
    fn run(&mut self, pool: &Pool, now: Instant, actions: &mut Vec<Action<Entry>>, effects: &mut Effects) {
        loop {
            self.machine.settle(now, actions);
            if actions.is_empty() {
                return;
            }
            let mut todo = std::mem::take(actions);
            for action in todo.drain(..) {
                self.act(pool, action, now, actions, effects);
            }
            if actions.is_empty() {
                *actions = todo;
            }
            if self.machine.is_closed() && self.machine.is_empty() {
                return;
            }
        }
    }

    fn act(
        &mut self,
        pool: &Pool,
        action: Action<Entry>,
        now: Instant,
        actions: &mut Vec<Action<Entry>>,
        effects: &mut Effects,
    ) {
        match action {
            Action::Send { worker, id } => self.send(pool, worker, id, now, actions, effects),
            Action::Take { worker, id } => {
                let taken = self.take(worker, id);
                if taken {
                    pool.emit(|pool| telemetry::Event::WorkTakenBack { pool, id });
                }
                self.machine.on(Event::Taken { worker, id, taken }, now, actions);
            }
            Action::Answer { id, verdict, body } => {
                let outcome = self.outcome(pool, id, verdict);
                effects.replies.push((body.work.reply, Told::Finish(outcome)));
            }
            Action::Admitted { id } => self.admitted(id, effects),
            Action::Overdue { worker, id } => self.overdue(pool, worker, id, now, actions, effects),
            Action::Abandon { worker, id } => self.abandon(worker, id, now, actions, effects),
            Action::Worn { worker } => effects.notices.push(Notice::Worn(worker)),
            Action::Drained { worker } => effects.notices.push(Notice::Drained(worker)),
            Action::Empty => effects.notices.push(Notice::Empty),
        }
    }

    fn admitted(&mut self, id: WorkId, effects: &mut Effects) {
        self.tell(id, Told::Admitted, effects);
    }

    /// Puts a frame on a link. What cannot go there is answered here.
    fn send(
        &mut self,
        pool: &Pool,
        worker: WorkerKey,
        id: WorkId,
        now: Instant,
        actions: &mut Vec<Action<Entry>>,
        effects: &mut Effects,
    ) {
        let foreign = self.foreign.as_ref().filter(|_| self.machine.body(id).is_some_and(|entry| entry.work.by_value));
        if let Some(version) = foreign {
            let failure = peer::foreign_failure(&pool.config.name, version);
            self.finish(worker, id, 0, Outcome::Failure(Arc::new(failure)), now, effects);
            return;
        }
        let Core { machine, peers, functions, .. } = self;
        let (Some(peer), Some(entry)) = (peers.get_mut(&worker), machine.body_mut(id)) else { return };
        match peer.put_call(entry, id, functions, now) {
            Ok(true) => {
                if !peer.armed && !peer.leased {
                    peer.arm(&pool.poller);
                }
                if !effects.flush.iter().any(|link| link.key == worker) {
                    effects.flush.push(peer.link.clone());
                }
            }
            Ok(false) => {
                machine.on(Event::Taken { worker, id, taken: true }, now, actions);
                machine.on(Event::WorkerHeld { worker }, now, actions);
            }
            Err(error) => {
                let failure = Failure::BadArguments { message: error.to_string(), detail: String::new() };
                self.finish(worker, id, 0, Outcome::Failure(Arc::new(failure)), now, effects);
            }
        }
    }

    /// Claims a word back from the worker.
    fn take(&mut self, worker: WorkerKey, id: WorkId) -> bool {
        let (Some(peer), Some(entry)) = (self.peers.get_mut(&worker), self.machine.body(id)) else { return false };
        peer.take(entry.word)
    }

    /// Carries out the attempts to take back among the actions, in place.
    fn claim_back(&mut self, actions: &mut Vec<Action<Entry>>, now: Instant) {
        for action in std::mem::take(actions) {
            match action {
                Action::Take { worker, id } => {
                    let taken = self.take(worker, id);
                    self.machine.on(Event::Taken { worker, id, taken }, now, actions);
                }
                other => actions.push(other),
            }
        }
    }

    fn overdue(
        &mut self,
        pool: &Pool,
        worker: WorkerKey,
        id: WorkId,
        now: Instant,
        actions: &mut Vec<Action<Entry>>,
        effects: &mut Effects,
    ) {
        if self.take(worker, id) {
            self.machine.on(Event::Taken { worker, id, taken: true }, now, actions);
            self.machine.expire(id, actions);
        } else if let Some(entry) = self.machine.answer_running(id) {
            pool.emit(|pool| telemetry::Event::WorkExpired { pool, id, at: "running".to_owned() });
            if let Some(peer) = self.peers.get_mut(&worker) {
                peer.abandon(entry.word);
            }
            let refusal = Refusal::Expired { at: Where::Running, stacks: String::new() };
            effects.replies.push((entry.work.reply, Told::Finish(Outcome::Refused(refusal))));
            effects.notices.push(Notice::Overdue(worker));
        }
    }

    fn abandon(
        &mut self,
        worker: WorkerKey,
        id: WorkId,
        now: Instant,
        actions: &mut Vec<Action<Entry>>,
        effects: &mut Effects,
    ) {
        if self.take(worker, id) {
            self.machine.on(Event::Taken { worker, id, taken: true }, now, actions);
            self.machine.on(Event::Abandon { id }, now, actions);
            return;
        }
        let Some(entry) = self.machine.answer_running(id) else { return };
        if let Some(peer) = self.peers.get_mut(&worker) {
            peer.abandon(entry.word);
            peer.link.outbox.push(|out| wire::put_simple(&mut out.bytes, Kind::Cancel, id, Codec::Empty, &[]));
            effects.flush.push(peer.link.clone());
        }
        effects.replies.push((entry.work.reply, Told::Finish(Outcome::Refused(Refusal::Cancelled))));
    }

    fn outcome(&mut self, pool: &Pool, id: WorkId, verdict: Verdict) -> Outcome {
        let name = || pool.config.name.clone();
        let refusal = match verdict {
            Verdict::Overloaded => {
                pool.emit(|pool| telemetry::Event::PoolFull { pool });
                let limit = pool.config.queue_limit.unwrap_or(usize::MAX);
                Refusal::Overloaded { pool: name(), queued: self.machine.counts().queued, limit }
            }
            Verdict::Closed => Refusal::Closed { pool: name() },
            Verdict::Expired(at) => {
                pool.emit(|pool| telemetry::Event::WorkExpired { pool, id, at: at.as_str().to_owned() });
                Refusal::Expired { at, stacks: String::new() }
            }
            Verdict::Cancelled => {
                pool.emit(|pool| telemetry::Event::WorkCancelled { pool, id });
                Refusal::Cancelled
            }
            Verdict::Failing if self.failing.is_none() => Refusal::Closed { pool: name() },
            Verdict::Failing | Verdict::Lost(_) => {
                if matches!(verdict, Verdict::Lost(_)) {
                    pool.emit(|pool| telemetry::Event::WorkLost { pool, id });
                }
                self.failed += 1;
                let unknown = || Failure::Config { message: format!("pool '{}' cannot start workers", name()) };
                return Outcome::Failure(self.failing.clone().unwrap_or_else(|| Arc::new(unknown())));
            }
        };
        Outcome::Refused(refusal)
    }

    /// The link to read for this work, when it went to an otherwise idle worker that nobody reads.
    fn lease(&mut self, id: WorkId, actions: &[Action<Entry>], poller: &Poller) -> Option<Arc<Link>> {
        let worker = actions.iter().find_map(|action| match action {
            Action::Send { worker, id: sent } if *sent == id => Some(*worker),
            _ => None,
        })?;
        let alone = self.machine.worker(worker).is_some_and(|(sent, _)| sent == 1);
        let peer = self.peers.get_mut(&worker)?;
        if !alone || peer.leased {
            return None;
        }
        peer.leased = true;
        peer.disarm(poller);
        Some(peer.link.clone())
    }
}
