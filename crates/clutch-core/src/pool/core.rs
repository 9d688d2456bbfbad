//! What is behind the pool's lock: the machine, the links' ends, and how its actions are carried out.
//!
//! Nothing here blocks or calls out: what has to be told or written afterwards is collected in [`Effects`].

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

use super::peer::{self, Link, Peer};
use super::state::{Action, Event, Machine, Verdict, WorkerKey};
use super::stop::{self, Expiring, OnLink};
use super::{Memory, Notice, Pool};
use crate::link::word;
use crate::sys::Poller;
use crate::telemetry;
use crate::wire::{self, Kind};
use crate::work::{Codec, Failure, FunctionId, Outcome, Payload, Refusal, Reply, Work, WorkId};

/// A function that workers know by number.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) codec: Codec,
    pub(super) body: Vec<u8>,
}

/// What the machine keeps with each piece of work.
pub(super) struct Entry {
    pub(super) work: Work,
    /// On the board of the worker that it was sent to.
    pub(super) word: Option<u32>,
}

pub(super) struct Core {
    pub(super) machine: Machine<Box<Entry>>,
    pub(super) peers: BTreeMap<WorkerKey, Peer>,
    pub(super) functions: Vec<Function>,
    pub(super) names: HashMap<Vec<u8>, FunctionId>,
    pub(super) failing: Option<Arc<Failure>>,
    /// Of the worker that died last: what its begun work is answered with.
    pub(super) lost: Option<Arc<Failure>>,
    /// Private memory at which a worker gets no more work.
    pub(super) memory_limit: Option<u64>,
    /// Workers run another Python version: code by value cannot go there.
    pub(super) foreign: Option<String>,
    pub(super) done: u64,
    pub(super) failed: u64,
    /// Endless work that was cut off so that its worker could end.
    pub(super) drained: u64,
    /// Past their deadlines, their callers wait for the stacks.
    pub(super) expiring: Vec<Expiring>,
    /// Room for the actions of a transaction, kept from one to the next.
    pub(super) spare: Vec<Action<Box<Entry>>>,
}

/// What is done after the core's lock is released.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) flush: SmallVec<[Arc<Link>; 2]>,
    pub(super) replies: SmallVec<[(Arc<dyn Reply>, Told); 1]>,
    pub(super) notices: Vec<Notice>,
    /// Work that is to be interrupted, and whether the stacks are wanted first.
    pub(super) interrupts: SmallVec<[(Arc<Link>, WorkId, bool); 1]>,
    /// Answers to questions for the stacks of tasks.
    pub(super) stacks: Vec<(u64, String)>,
    /// When the driver has to look again, at the latest.
    pub(super) look_at: Option<Instant>,
}

pub(super) enum Told {
    Chunk(Payload),
    Credit(u32),
    Finish(Outcome),
    Begun,
    Admitted,
}

/// What a worker said.
pub(super) enum Incoming {
    Finished {
        id: WorkId,
        run_ns: u64,
        outcome: Outcome,
    },
    Chunk {
        id: WorkId,
        payload: Payload,
    },
    Credit {
        id: WorkId,
        count: u32,
    },
    Begun {
        id: WorkId,
    },
    /// `asked`: an answer to a question that is not about one piece of work.
    Stacks {
        id: u64,
        asked: bool,
        text: String,
    },
    Ready(String),
    StartFailed(String),
    Memory(Memory),
    Other,
}

impl Incoming {
    pub(super) fn of(received: &crate::link::Received<'_>) -> Result<Incoming, wire::WireError> {
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
            Kind::Credit => Incoming::Credit { id: frame.head.id, count: frame.credit() },
            Kind::Stacks => {
                let asked = frame.head.flags & wire::flag::ASKED != 0;
                Incoming::Stacks { id: frame.head.id, asked, text: text() }
            }
            Kind::Ready => Incoming::Ready(text()),
            Kind::Failed => Incoming::StartFailed(text()),
            Kind::Stats => serde_json::from_slice(frame.payload).map_or(Incoming::Other, Incoming::Memory),
            _ => Incoming::Other,
        })
    }
}

impl Core {
    pub(super) fn take_in(&mut self, key: WorkerKey, incoming: Incoming, now: Instant, effects: &mut Effects) {
        match incoming {
            Incoming::Finished { id, run_ns, outcome } => self.finish(key, id, run_ns, outcome, now, effects),
            Incoming::Chunk { id, payload } => {
                self.machine.told_part(id);
                self.tell(id, Told::Chunk(payload), effects);
            }
            Incoming::Begun { id } => self.begin(id, effects),
            Incoming::Stacks { id, asked: true, text } => effects.stacks.push((id, text)),
            Incoming::Stacks { id, asked: false, text } => self.take_stacks(id, text, false, effects),
            Incoming::Ready(json) => effects.notices.push(Notice::Ready(key, json)),
            Incoming::StartFailed(json) => effects.notices.push(Notice::StartFailed(key, json)),
            Incoming::Credit { id, count } => self.tell(id, Told::Credit(count), effects),
            Incoming::Memory(memory) => self.weigh(key, memory, effects),
            Incoming::Other => {}
        }
    }

    /// User code has started: a connection is its worker's alone from here on.
    fn begin(&mut self, id: WorkId, effects: &mut Effects) {
        if let Some(entry) = self.machine.body_mut(id) {
            entry.work.descriptor.take_if(|descriptor| !descriptor.was_left_behind());
        }
        self.tell(id, Told::Begun, effects);
    }

    fn weigh(&mut self, key: WorkerKey, memory: Memory, effects: &mut Effects) {
        let full = memory.reaches(self.memory_limit);
        if let Some(peer) = self.peers.get_mut(&key) {
            peer.barred |= full;
        }
        effects.notices.push(Notice::Memory(vec![(key, memory)]));
    }

    /// A worker that has just said that its memory is at the limit gets nothing more, before anybody else decides.
    pub(super) fn bar_full(&mut self, worker: WorkerKey, now: Instant, actions: &mut Vec<Action<Box<Entry>>>) {
        if self.peers.get(&worker).is_some_and(|peer| peer.barred) {
            self.hold(worker, now, actions);
        }
    }

    /// Tells the machine whether a worker may have work.
    pub(super) fn hold(&mut self, worker: WorkerKey, now: Instant, actions: &mut Vec<Action<Box<Entry>>>) {
        let held = self.peers.get(&worker).is_some_and(Peer::is_held);
        let event = if held { Event::WorkerHeld { worker } } else { Event::WorkerResumed { worker } };
        self.machine.on(event, now, actions);
    }

    fn finish(
        &mut self,
        key: WorkerKey,
        id: WorkId,
        run_ns: u64,
        outcome: Outcome,
        now: Instant,
        effects: &mut Effects,
    ) {
        if let Some(peer) = self.peers.get_mut(&key) {
            match self.machine.body(id) {
                Some(entry) => entry.word.into_iter().for_each(|word| peer.release(word)),
                None => peer.release_abandoned(id),
            }
            if peer.is_fed() {
                self.machine.on(Event::WorkerResumed { worker: key }, now, &mut Vec::new());
            }
        }
        self.done += 1;
        self.failed += u64::from(!matches!(outcome, Outcome::Value(_)) && !self.machine.is_drained(id));
        if let Some(entry) = self.machine.finished(key, id, run_ns, now) {
            effects.replies.push((entry.work.reply, Told::Finish(outcome)));
        }
    }

    /// Lets workers have work again whose board has words again. Returns whether some still have none.
    pub(super) fn feed_starved(&mut self, now: Instant, actions: &mut Vec<Action<Box<Entry>>>) -> bool {
        for (key, peer) in &mut self.peers {
            if peer.is_fed() {
                self.machine.on(Event::WorkerResumed { worker: *key }, now, actions);
            }
        }
        self.peers.values().any(|peer| peer.starved)
    }

    fn tell(&self, id: WorkId, told: Told, effects: &mut Effects) {
        if let Some(entry) = self.machine.body(id) {
            effects.replies.push((entry.work.reply.clone(), told));
        }
    }

    pub(super) fn begun(&self, board: &crate::link::Board, id: WorkId) -> bool {
        self.machine.body(id).is_some_and(|entry| entry.word.is_some_and(|word| board.get(word) == word::BEGUN))
    }

    /// Carries out actions, and those that follow from them, until there are none.
    pub(super) fn run(
        &mut self,
        pool: &Pool,
        now: Instant,
        actions: &mut Vec<Action<Box<Entry>>>,
        effects: &mut Effects,
    ) {
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
        action: Action<Box<Entry>>,
        now: Instant,
        actions: &mut Vec<Action<Box<Entry>>>,
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
            Action::Overdue { worker, id } => self.overdue(pool, OnLink { worker, id, now }, actions, effects),
            Action::Abandon { worker, id } => self.abandon(pool, OnLink { worker, id, now }, actions, effects),
            Action::CutOff { worker, id } => self.cut_off(pool, OnLink { worker, id, now }, actions, effects),
            Action::Stuck { worker, cause, .. } => effects.notices.push(stop::stuck(worker, cause)),
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
        actions: &mut Vec<Action<Box<Entry>>>,
        effects: &mut Effects,
    ) {
        let foreign = self.foreign.as_ref().filter(|_| self.machine.body(id).is_some_and(|entry| entry.work.by_value));
        if let Some(version) = foreign {
            let failure = peer::foreign_failure(&pool.config.name, version);
            self.finish(worker, id, 0, Outcome::Failure(Arc::new(failure)), now, effects);
            return;
        }
        let Core { machine, peers, functions, .. } = self;
        let (Some(peer), Some((entry, queued))) = (peers.get_mut(&worker), machine.sending(id)) else { return };
        match peer.put_call(entry, id, functions, now) {
            Ok(true) => {
                entry.work.reply.sent(queued);
                if !peer.armed && !peer.leased {
                    pool.must_be_watched(worker, peer.arm(&pool.poller));
                }
                if !effects.flush.iter().any(|link| link.key == worker) {
                    effects.flush.push(peer.link.clone());
                }
            }
            Ok(false) => {
                pool.wake_driver();
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
    pub(super) fn take(&mut self, worker: WorkerKey, id: WorkId) -> bool {
        let (Some(peer), Some(entry)) = (self.peers.get_mut(&worker), self.machine.body(id)) else { return false };
        let taken = entry.word.is_some_and(|word| peer.take(word));
        if let Some(descriptor) = entry.work.descriptor.as_ref().filter(|_| taken) {
            descriptor.leave_behind();
        }
        taken
    }

    /// Carries out the attempts to take back among the actions, in place.
    pub(super) fn claim_back(&mut self, actions: &mut Vec<Action<Box<Entry>>>, now: Instant) {
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

    fn outcome(&mut self, pool: &Pool, id: WorkId, verdict: Verdict) -> Outcome {
        let name = || pool.config.name.clone();
        let refusal = match verdict {
            Verdict::Overloaded => {
                pool.emit(|pool| telemetry::Event::PoolFull { pool });
                let limit = pool.config.queue_limit.unwrap_or(usize::MAX);
                Refusal::Overloaded { pool: name(), queued: self.machine.counts().queued, limit }
            }
            Verdict::Draining => Refusal::Draining { pool: name() },
            Verdict::Closed => Refusal::Closed { pool: name() },
            Verdict::Expired(at) => {
                pool.emit(|pool| telemetry::Event::WorkExpired { pool, id, at: at.as_str().to_owned() });
                Refusal::Expired { at, stacks: String::new() }
            }
            Verdict::Cancelled => {
                pool.emit(|pool| telemetry::Event::WorkCancelled { pool, id });
                Refusal::Cancelled
            }
            Verdict::Poisoned { deaths, .. } => {
                pool.emit(|pool| telemetry::Event::WorkPoisoned { pool, id, deaths });
                self.failed += 1;
                let last = self.lost.as_ref().map(ToString::to_string).unwrap_or_default();
                let message =
                    format!("it killed its worker {deaths} times and is not tried again; the last time: {last}");
                return Outcome::Failure(Arc::new(Failure::Poisoned { message, deaths }));
            }
            Verdict::Failing if self.failing.is_none() => Refusal::Closed { pool: name() },
            Verdict::Failing | Verdict::Lost(_) => {
                if matches!(verdict, Verdict::Lost(_)) {
                    pool.emit(|pool| telemetry::Event::WorkLost { pool, id });
                }
                self.failed += 1;
                let unknown = || Failure::Config { message: format!("pool '{}' cannot start workers", name()) };
                let known = if verdict == Verdict::Failing { &self.failing } else { &self.lost };
                return Outcome::Failure(known.clone().unwrap_or_else(|| Arc::new(unknown())));
            }
        };
        Outcome::Refused(refusal)
    }

    /// The link to read for this work, when it went to an otherwise idle worker that nobody reads.
    pub(super) fn lease(&mut self, id: WorkId, actions: &[Action<Box<Entry>>], poller: &Poller) -> Option<Arc<Link>> {
        let worker = actions.iter().find_map(|action| match action {
            Action::Send { worker, id: sent } if *sent == id => Some(*worker),
            _ => None,
        })?;
        let alone = self.machine.worker(worker).is_some_and(|(sent, _)| sent == 1);
        let peer = self.peers.get_mut(&worker)?;
        if !alone || peer.leased || peer.is_read {
            return None;
        }
        peer.leased = true;
        peer.disarm(poller);
        Some(peer.link.clone())
    }
}
