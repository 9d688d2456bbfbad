//! The state behind the pool's lock: the machine, the links' ends, and how its actions are carried out.
//!
//! Nothing here blocks or calls out: what has to be told or written afterwards is collected in [`Effects`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clutch_wire::{Failure, Payload};

use super::Pool;
use super::channels::{ChannelOwner, OwnerKey};
use super::effects::{Effects, Lease, OnLink, Told};
use super::entry::Entry;
use super::expiring::Expiring;
use super::facts::{
    PoolFull, WorkBegun, WorkCancelled, WorkExpired, WorkFinished, WorkLost, WorkPoisoned, WorkTakenBack,
};
use super::functions::Functions;
use super::memory::{Memory, Weighed};
use super::notice::Notice;
use super::peer::incoming::Incoming;
use super::peer::{self, Link, Peer};
use super::run_clock::RunClocks;
use super::state::{Action, Event, Hold, Limits, Machine, StopCause, Verdict, WorkerKey};
use super::status::spent::Noted;
use crate::config::{Overflow, PoolConfig};
use crate::link::PutError;
use crate::link::items::Items;
use crate::telemetry::{Emitter, Scope};
use crate::work::{Expired, FetcherKey, Outcome, Refusal, WorkId};

/// Behind the pool's lock.
pub(super) struct Core {
    pub(super) machine: Machine<Box<Entry>>,
    pub(super) peers: BTreeMap<WorkerKey, Peer>,
    pub(super) config: Arc<PoolConfig>,
    pub(super) functions: Functions,
    pub(super) excuses: Excuses,
    /// Past their deadlines, their callers wait for the stacks.
    pub(super) expiring: BTreeMap<WorkId, Expiring>,
    pub(super) run_clocks: RunClocks,
    /// Room for the actions of a transaction, kept from one to the next.
    pub(super) spare: Vec<Action<Box<Entry>>>,
    pub(super) telemetry: Emitter,
    pub(super) noted: Noted,
    /// By fetcher of work, what tells it that there is room.
    pub(super) fetchers: BTreeMap<FetcherKey, Arc<dyn Fn() + Send + Sync>>,
    pub(super) channel_owners: BTreeMap<OwnerKey, Arc<dyn ChannelOwner>>,
}

/// Failures told to callers whose work no worker runs to its end.
#[derive(Default)]
pub(super) struct Excuses {
    /// No worker can start.
    pub(super) failing: Option<Arc<Failure>>,
    /// The answer to work that the worker which died last had begun.
    pub(super) lost: Option<Arc<Failure>>,
}

/// Work that is answered without a result.
struct OfWork<'a> {
    id: WorkId,
    entry: &'a Entry,
    since: Instant,
    now: Instant,
}

impl Core {
    pub(super) fn new(config: Arc<PoolConfig>, telemetry: Emitter) -> Core {
        let limits = Limits {
            queue: config.queue_limit,
            block: config.overflow == Overflow::Block,
            deaths_max: config.deaths_max,
            takes_turns: config.takes_turns,
        };
        Core {
            machine: Machine::new(limits),
            peers: BTreeMap::new(),
            config,
            functions: Functions::default(),
            excuses: Excuses::default(),
            expiring: BTreeMap::new(),
            run_clocks: RunClocks::default(),
            spare: Vec::new(),
            telemetry,
            noted: Noted::default(),
            fetchers: BTreeMap::new(),
            channel_owners: BTreeMap::new(),
        }
    }

    /// The end of a worker's link that is the pool's.
    pub(super) fn link(&self, worker: WorkerKey) -> Option<Arc<Link>> {
        self.peers.get(&worker).map(|peer| peer.link.clone())
    }

    /// Returns the number of workers that the pool has had.
    pub(super) fn workers_so_far(&self) -> u64 {
        self.noted.workers_past + self.peers.len() as u64
    }

    /// Endless work of these workers is told to end. They hear it whatever their Python does.
    pub(super) fn tell_endless(&self, which: impl Fn(WorkerKey) -> bool) {
        self.peers.values().filter(|peer| which(peer.link.key)).for_each(|peer| peer.link.alarm.drain());
    }

    /// Takes in what a worker said. An error when it is about work that another worker has: its link is not to be trusted.
    pub(super) fn take_in(
        &mut self,
        key: WorkerKey,
        incoming: Incoming,
        now: Instant,
        actions: &mut Vec<Action<Box<Entry>>>,
        effects: &mut Effects,
    ) -> Result<(), String> {
        if let Some(id) = incoming.work() {
            match self.machine.worker_of(id) {
                Some(worker) if worker == key => {}
                None if self.machine.request(id).is_none() => return Ok(()),
                _ => return Err(format!("it reported on work {id}, which it does not have")),
            }
        }
        match incoming {
            Incoming::Finished { id, run_ns, outcome } => self.finish(key, id, run_ns, outcome, now, effects),
            Incoming::Chunk { id, payload } => {
                // What says something beside its one value has told no part of that.
                if self.machine.body(id).is_some_and(|entry| !entry.work.one_value) {
                    self.machine.told_part(id);
                }
                self.tell(id, Told::Chunk(payload), effects);
            }
            Incoming::Items { id, items } => self.add_items(id, items, effects),
            Incoming::Unreadable { id, failure } => {
                let outcome = Outcome::Failure(Arc::new(failure));
                self.end_with(OnLink { worker: key, id, now }, StopCause::Cancelled, outcome, effects);
            }
            Incoming::Unreceived { region } => {
                self.peers.get_mut(&key).into_iter().for_each(|peer| peer.was_unreceived(region));
            }
            Incoming::Begun { id } => self.begin(id, effects),
            Incoming::Used { id, cpu } => self.tell(id, Told::Used(cpu), effects),
            Incoming::Limited { id, time } => {
                if let Some(at) = now.checked_add(time) {
                    self.machine.limit(id, at);
                    effects.look_by(at);
                }
            }
            Incoming::Stacks { id, asked: true, text } => effects.stacks.push((id, text)),
            Incoming::Stacks { id, asked: false, text } => self.take_stacks(id, text, false, effects),
            Incoming::Ready(json) => effects.notices.push(Notice::Ready(key, json)),
            Incoming::StartFailed(json) => effects.notices.push(Notice::StartFailed(key, json)),
            Incoming::Credit { id, count } => self.tell(id, Told::Credit(count), effects),
            Incoming::Memory(memory) => self.weigh(&[(key, memory)], now, actions, effects),
            Incoming::SentTerm => effects.notices.push(Notice::SentTerm(key)),
            Incoming::Debugging(on) => self.debug(key, on, effects),
            Incoming::Other => {}
        }
        Ok(())
    }

    /// Judges the memory of workers. Those at the limit get no more work, before the supervisor decides what becomes of them.
    pub(super) fn weigh(
        &mut self,
        figures: &[(WorkerKey, Memory)],
        now: Instant,
        actions: &mut Vec<Action<Box<Entry>>>,
        effects: &mut Effects,
    ) {
        let limit = self.config.recycle_memory_bytes;
        let weighed: Vec<Weighed> = figures.iter().map(|(worker, memory)| memory.weigh(*worker, limit)).collect();
        for figure in weighed.iter().filter(|figure| figure.at_limit) {
            self.machine.on(Event::Hold { worker: figure.worker, why: Hold::Memory }, now, actions);
        }
        effects.notices.push(Notice::Memory(weighed));
    }

    fn add_items(&mut self, id: WorkId, items: Items, effects: &mut Effects) {
        let Some(entry) = self.machine.body_mut(id) else { return self.add_late_items(id, items, effects) };
        if entry.items.count().saturating_add(items.count()) <= entry.work.items {
            entry.items.append(items);
        }
    }

    /// Whether it is a call of its own.
    pub(super) fn is_counted(&self, id: WorkId) -> bool {
        self.machine.request(id).is_none_or(|request| request.calls > 0)
    }

    /// User code has started: a connection is its worker's alone from here on.
    pub(super) fn begin(&mut self, id: WorkId, effects: &mut Effects) {
        if let Some((entry, queued)) = self.machine.sending(id) {
            entry.work.descriptor.take_if(|descriptor| !descriptor.was_left_behind());
            let (kind, trace) = (entry.work.kind.name(), entry.work.trace.clone());
            let what = || self.machine.body(id).map(|entry| self.functions.describe(entry)).unwrap_or_default();
            self.telemetry.emit(|| WorkBegun { id, kind, what: what(), queued_s: queued.as_secs_f64(), trace });
        }
        self.tell(id, Told::Begun, effects);
    }

    /// While somebody thinks at a prompt nothing is late, neither there nor behind it.
    fn debug(&mut self, key: WorkerKey, on: bool, effects: &mut Effects) {
        let Some(peer) = self.peers.get_mut(&key) else { return };
        peer.debugged = on;
        let is_open = self.peers.values().any(|peer| peer.debugged);
        self.machine.set_untimed(is_open);
        effects.notices.push(Notice::Debugging { worker: key, on });
    }

    fn is_debugged(&self, worker: WorkerKey) -> bool {
        self.peers.get(&worker).is_some_and(|peer| peer.debugged)
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
        let mut who = (0, 0);
        if let Some(peer) = self.peers.get_mut(&key) {
            who = peer.life.who;
            peer.life.run_ns = peer.life.run_ns.saturating_add(run_ns);
            match self.machine.body_mut(id) {
                Some(entry) => entry.word.take().into_iter().for_each(|word| peer.release(word)),
                None => {
                    self.expiring.get_mut(&id).into_iter().for_each(Expiring::code_ended);
                    peer.release_abandoned(id);
                }
            }
            if self.machine.is_starved(key) && peer.has_words() {
                self.machine.release(key, Hold::Starved);
            }
        }
        self.note_company(key, id, &outcome, now);
        self.finish_by(who, OnLink { worker: key, id, now }, run_ns, outcome, effects);
    }

    /// Notes whether work that ends was alone in its worker, and how long it was there.
    fn note_company(&mut self, key: WorkerKey, id: WorkId, outcome: &Outcome, now: Instant) {
        let Core { machine, peers, functions, noted, .. } = self;
        let Some(peer) = peers.get_mut(&key).filter(|peer| peer.life.slots > 1) else { return };
        let left = machine.worker(key).map_or(0, |(sent, _)| sent.saturating_sub(1)).min(peer.life.slots);
        let Some((entry, joined)) = machine.body(id).and_then(|entry| Some((entry, entry.joined?))) else { return };
        let (busy, time) = peer.crowd.leave(joined, left, now);
        if !matches!(outcome, Outcome::Value(_)) || !noted.company.is_due(now) {
            return;
        }
        // How long it goes on says nothing of the next one.
        if machine.request(id).is_some_and(|request| !request.endless) {
            noted.company.note(&functions.describe(entry), time / entry.work.items.max(1), busy, now);
        }
    }

    /// Ends work by the answer of a worker that may be gone. `who`: its nr and pid.
    fn finish_by(&mut self, who: (u32, i32), at: OnLink, run_ns: u64, outcome: Outcome, effects: &mut Effects) {
        let OnLink { worker, id, now } = at;
        let failed = !matches!(outcome, Outcome::Value(_)) && !self.machine.is_drained(id);
        let batch =
            self.machine.body(id).filter(|entry| entry.work.items > 0).map(|entry| (entry.work.items, entry.failed()));
        let (answered, failures) = batch.unwrap_or((1, u32::from(failed)));
        if self.is_counted(id) {
            self.noted.tally.note(answered, failures);
        }
        self.run_clocks.stop(id);
        let queued = self.machine.sending(id).map(|(_, queued)| queued).unwrap_or_default();
        if let Some(mut entry) = self.machine.finished(worker, id, run_ns, now) {
            self.noted.note_slow(&entry, || self.functions.describe(&entry), run_ns, &outcome);
            self.tell_finished((who, id), &entry, (queued, run_ns), &outcome);
            let outcome = entry.conclude(outcome, run_ns);
            if entry.work.reply.job().is_some() {
                effects.replies.push((entry.work.reply.clone(), Told::Ran(Duration::from_nanos(run_ns))));
            }
            effects.finish(*entry, outcome);
        }
    }

    fn tell_finished(
        &self,
        ((nr, pid), id): ((u32, i32), WorkId),
        entry: &Entry,
        (queued, run_ns): (Duration, u64),
        outcome: &Outcome,
    ) {
        self.telemetry.emit(|| {
            // Whoever only counts needs no name, which has to be made.
            let is_named = self.telemetry.hears(Scope::BEGUN);
            WorkFinished {
                id,
                kind: entry.work.kind.name(),
                what: if is_named { self.functions.describe(entry) } else { String::new() },
                tool: self.functions.tool(&entry.work),
                nr,
                pid,
                queued_s: queued.as_secs_f64(),
                run_s: Duration::from_nanos(run_ns).as_secs_f64(),
                failed: !matches!(outcome, Outcome::Value(_)),
                error: outcome.error_kind(),
                trace: entry.work.trace.clone(),
            }
        });
    }

    /// Lets workers have work again whose board has words again. Returns whether some still have none.
    pub(super) fn feed_starved(&mut self) -> bool {
        let starved = self.machine.starved();
        let (before, mut fed) = (starved.len(), 0);
        for worker in starved {
            if self.peers.get_mut(&worker).is_some_and(Peer::has_words) {
                self.machine.release(worker, Hold::Starved);
                fed += 1;
            }
        }
        fed < before
    }

    fn tell(&self, id: WorkId, told: Told, effects: &mut Effects) {
        if let Some(entry) = self.machine.body(id) {
            effects.replies.push((entry.work.reply.clone(), told));
        }
    }

    /// Returns what a dead worker had begun and not answered. The rest is taken back from it; of a batch the item
    /// that ran is lost, unless it may run again, and the rest goes on elsewhere. `ended`: Clutch ended the worker itself.
    pub(super) fn leave_behind(
        &mut self,
        peer: &mut Peer,
        failure: &Failure,
        ended: bool,
        now: Instant,
        effects: &mut Effects,
    ) -> Vec<WorkId> {
        let key = peer.link.key;
        let mut begun = Vec::new();
        for id in self.machine.sent(key).collect::<Vec<_>>() {
            let Some(entry) = self.machine.body_mut(id) else { continue };
            let word = entry.word.take();
            let has_begun = word.is_some_and(|word| !peer.take(word));
            let items_begun = word.map_or(0, |word| peer.link.board.items_begun(word).load(Ordering::Acquire));
            let leases = &entry.work.payload.leases;
            if !has_begun {
                leases.iter().for_each(|lease| lease.take_back());
                continue;
            }
            leases.iter().for_each(|lease| lease.retire());
            let (item, retry) = (entry.items.count(), entry.work.retry);
            let item_ran = entry.has_items_left() && items_begun > item;
            if item_ran && self.machine.item_runs_again(id, item, retry, ended) {
                begun.push(id);
                continue;
            }
            let Some(entry) = self.machine.body_mut(id) else { continue };
            if item_ran {
                entry.items.push_failure(failure);
                let tool = self.functions.tool(&entry.work);
                self.telemetry.emit(|| WorkLost { id, tool });
            }
            let is_batch = entry.work.items > 0;
            match entry.has_items_left() {
                true => self.machine.goes_on(id),
                false if is_batch => {
                    let at = OnLink { worker: key, id, now };
                    self.finish_by(peer.life.who, at, 0, Outcome::Value(Payload::empty()), effects);
                }
                false => begun.push(id),
            }
        }
        begun
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
                    self.telemetry.emit(|| WorkTakenBack { id });
                }
                self.machine.on(Event::Taken { worker, id, taken }, now, actions);
            }
            Action::Answer { id, verdict, mut body, since } => {
                self.run_clocks.stop(id);
                let outcome = self.outcome(OfWork { id, entry: &body, since, now }, verdict);
                let outcome = body.conclude(outcome, 0);
                effects.finish(*body, outcome);
            }
            Action::Admitted { id } => self.tell(id, Told::Admitted, effects),
            Action::Overdue { worker, id } => self.overdue(pool, OnLink { worker, id, now }, actions, effects),
            Action::Abandon { worker, id } => self.abandon(OnLink { worker, id, now }, actions, effects),
            Action::CutOff { worker, id } => self.cut_off(OnLink { worker, id, now }, actions, effects),
            Action::CutRest { worker } => self.cut_rest(worker, effects),
            Action::Stuck { worker, .. } if self.is_debugged(worker) => {}
            Action::Stuck { worker, cause, .. } => effects.notices.push(Notice::stuck(worker, cause)),
            Action::Worn { worker } => effects.notices.push(Notice::Worn(worker)),
            Action::Drained { worker, stuck } => effects.notices.push(Notice::Drained { worker, stuck }),
            Action::Empty => effects.notices.push(Notice::Empty),
        }
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
        if let Some(version) = self.machine.body(id).and_then(|entry| self.functions.foreign_to(entry)) {
            let failure = peer::foreign_failure(&self.config.name, version);
            self.finish(worker, id, 0, Outcome::Failure(Arc::new(failure)), now, effects);
            return;
        }
        let Core { machine, peers, functions, run_clocks, telemetry, .. } = self;
        let others_run = machine.counts().sent > 1;
        let sent = machine.worker(worker).map_or(0, |(sent, _)| sent);
        let (Some(peer), Some((entry, queued))) = (peers.get_mut(&worker), machine.sending(id)) else { return };
        let deadline_ns = pool.clock.deadline_ns(entry.work.deadline);
        entry.tells_begin = telemetry.hears(Scope::BEGUN);
        let mut put = peer.put_call(entry, id, functions, deadline_ns, &pool.regions);
        // Other work that ends gives back what it has.
        if put.as_ref().is_err_and(PutError::is_shortage) && others_run {
            put = Ok(false);
        }
        match put {
            Ok(true) => {
                entry.queued = Some(queued);
                let slots = peer.life.slots;
                // What is sent ahead of a busy slot waits there.
                entry.joined = (slots > 1 && sent <= slots).then(|| peer.crowd.join(sent, now));
                if entry.work.notes_queue_time {
                    effects.sent.push((entry.work.reply.clone(), queued));
                }
                if let Some(limit) = entry.work.run_limit {
                    effects.look_by(run_clocks.start(id, limit, entry.items.count(), now));
                }
                if matches!(effects.lease, Lease::Wanted(caller) if caller == id) && sent == 1 && peer.may_be_leased() {
                    peer.lease(&pool.links.poller);
                    effects.lease = Lease::Granted(peer.link.clone());
                } else {
                    pool.links.watch(peer);
                }
                if !effects.flush.iter().any(|link| link.key == worker) {
                    effects.flush.push(peer.link.clone());
                }
            }
            Ok(false) => {
                pool.links.notices.wake();
                machine.on(Event::Taken { worker, id, taken: true }, now, actions);
                machine.on(Event::Hold { worker, why: Hold::Starved }, now, actions);
            }
            Err(error) => {
                let failure = Failure::BadArguments { message: error.to_string(), detail: String::new() };
                self.finish(worker, id, 0, Outcome::Failure(Arc::new(failure)), now, effects);
            }
        }
    }

    /// Claims a word back from the worker.
    pub(super) fn take(&mut self, worker: WorkerKey, id: WorkId) -> bool {
        if self.machine.worker_of(id) != Some(worker) {
            return false;
        }
        let (Some(peer), Some(entry)) = (self.peers.get_mut(&worker), self.machine.body_mut(id)) else { return false };
        let taken = entry.word.is_some_and(|word| peer.take(word));
        if taken {
            self.run_clocks.stop(id);
            entry.word = None;
            entry.work.payload.leases.iter().for_each(|lease| lease.take_back());
        }
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

    fn outcome(&mut self, work: OfWork<'_>, verdict: Verdict) -> Outcome {
        let id = work.id;
        let config = self.config.clone();
        let name = || config.name.clone();
        let refusal = match verdict {
            Verdict::Overloaded => {
                let limit = config.queue_limit.unwrap_or(usize::MAX);
                self.tell_full(limit, work.now);
                Refusal::Overloaded { pool: name(), queued: self.machine.counts().queued, limit }
            }
            Verdict::Draining => Refusal::Draining { pool: name() },
            Verdict::Closed => Refusal::Closed { pool: name() },
            Verdict::Expired(at) => {
                let tool = self.functions.tool(&work.entry.work);
                self.telemetry.emit(|| WorkExpired { id, at: at.as_str().to_owned(), tool });
                let (what, after) =
                    (self.functions.describe(work.entry), work.now.saturating_duration_since(work.since));
                Refusal::Expired(Box::new(Expired { at, what, after, worker: None, stacks: String::new() }))
            }
            Verdict::Cancelled => {
                self.telemetry.emit(|| WorkCancelled { id });
                Refusal::Cancelled
            }
            Verdict::Poisoned { deaths, .. } => {
                let (what, job) = (self.functions.describe(work.entry), work.entry.job());
                self.telemetry.emit(|| WorkPoisoned { id, deaths, what, job });
                self.noted.tally.failed += u64::from(work.entry.work.is_counted);
                let last = self.excuses.lost.as_ref().map(ToString::to_string).unwrap_or_default();
                let message =
                    format!("it has killed {deaths} of its workers and is not retried; the last time: {last}");
                return Outcome::Failure(Arc::new(Failure::Poisoned { message, deaths }));
            }
            Verdict::Failing if self.excuses.failing.is_none() => Refusal::Closed { pool: name() },
            Verdict::Failing | Verdict::Lost(_) => {
                if matches!(verdict, Verdict::Lost(_)) {
                    let tool = self.functions.tool(&work.entry.work);
                    self.telemetry.emit(|| WorkLost { id, tool });
                }
                let unknown = || Failure::Config { message: format!("pool '{}' cannot start workers", name()) };
                let known = if verdict == Verdict::Failing { &self.excuses.failing } else { &self.excuses.lost };
                let failure = known.clone().unwrap_or_else(|| Arc::new(unknown()));
                // A job then goes back to its store unharmed.
                let is_put_back = work.entry.job().is_some() && failure.is_of_pool();
                self.noted.tally.failed += u64::from(!is_put_back && work.entry.work.is_counted);
                return Outcome::Failure(failure);
            }
        };
        Outcome::Refused(refusal)
    }

    fn tell_full(&mut self, limit: usize, now: Instant) {
        if let Some(refused) = self.noted.tally.refuse(now) {
            self.telemetry.emit(|| PoolFull { refused, limit });
        }
    }
}
