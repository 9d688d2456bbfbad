//! The driver's half of a pool: links that are readable, workers that come and go, the clock.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_wire::Failure;
use clutch_wire::frame::{self, Kind};
use clutch_wire::sys::{self, Poller};

use super::core::Core;
use super::peer::{Link, Peer};
use super::state::{Demand, Event, Hold, WorkerKey};
use super::status::spent::Life;
use super::status::{Health, Status};
use super::transact::ReadFrom;
use super::{Carried, Notice, Pool, Ticket};
use crate::config::PoolConfig;
use crate::link::Filled;
use crate::work::Running;

/// Marks the tokens of alarms in the poller.
const ALARM: u64 = 1 << 40;

/// Interval at which a worker whose board has no free word, or a link that the kernel was too short for, is checked
/// again.
const STARVED_LOOK: Duration = Duration::from_millis(5);

/// The driver's handle of a pool. There is one for each pool, and it goes to the supervisor.
pub struct PoolDriver(pub(super) Arc<Pool>);

impl Drop for PoolDriver {
    /// Nothing happens in a pool that nobody drives.
    fn drop(&mut self) {
        self.update_status(|status| status.set_health(Health::Closed));
    }
}

impl PoolDriver {
    /// The callers' handle of the same pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.0
    }

    pub fn config(&self) -> &PoolConfig {
        &self.0.config
    }

    pub fn poller(&self) -> &Poller {
        &self.0.links.poller
    }

    /// Ends the driver's wait in its poller.
    pub fn wake(&self) {
        self.0.links.notices.wake();
    }

    pub fn drain_notices(&self) -> Vec<Notice> {
        self.0.links.notices.drain()
    }

    /// The driver wants to look when work waits for so long.
    pub fn watch_waiting(&self, delay: Option<Duration>) {
        self.0.clock.watch_waiting(delay);
    }

    /// Returns what the pool has to do, and had at least since this was asked last.
    pub fn take_demand(&self) -> Demand {
        let mut core = self.0.core.lock();
        let demand = core.machine.demand();
        core.machine.begin_window();
        demand
    }

    /// The workers, those with the least to do first.
    pub fn by_load(&self) -> Vec<WorkerKey> {
        let core = self.0.core.lock();
        let mut workers: Vec<WorkerKey> = core.peers.keys().copied().collect();
        workers.sort_by_key(|worker| core.machine.worker(*worker).map(|(sent, _)| sent));
        workers
    }

    /// Runs the machine's clock. Returns when it wants to run again. `look_at` says, of when the oldest work that waits was
    /// submitted (where [`PoolDriver::watch_waiting`] asks for it), when the driver wants to look.
    pub fn tick(
        &self,
        sleep_until: Option<Instant>,
        look_at: impl FnOnce(Option<Instant>) -> Option<Instant>,
    ) -> Option<Instant> {
        self.0.clock.wakes_now();
        let starved = self.0.transact_with(|core, now, actions, effects| {
            core.machine.tick(now, actions);
            core.answer_expiring(now, effects);
            core.look_at_runs(&self.0, now, effects);
            core.feed_starved()
        });
        let look_again = (self.0.links.flush_short() || starved).then(|| Instant::now() + STARVED_LOOK);
        let sweep_at = self.0.regions.sweep_when_due(Instant::now());
        self.0.tell_dropped();
        // Under the lock: a submission is either seen here, or sees when this wakes.
        let mut core = self.0.core.lock();
        let next = core.machine.next_deadline();
        let waits_since = self.0.clock.watch_delay().and_then(|_| core.machine.waits_since());
        let next_item = core.run_clocks.next_look();
        let wakes = [
            next,
            core.next_expiring(),
            next_item,
            look_again,
            sweep_at,
            sleep_until,
            look_at(waits_since),
            self.0.clock.stays_awake(),
        ];
        let wakes = wakes.into_iter().flatten().min();
        self.0.clock.sleeps(wakes);
        wakes
    }

    /// A worker is being started: its link is read from now on.
    pub fn attach(&self, link: Arc<Link>) {
        let reader = self.0.links.reader.lock();
        let mut core = self.0.core.lock();
        let (so_far, least) = (core.workers_so_far(), u64::from(self.config().workers_min));
        let waits_since = core.machine.waits_since();
        let wanted = core.noted.wanted(so_far, least, waits_since, Instant::now());
        let wanted = wanted.unwrap_or(self.0.clock.epoch());
        let slots = self.0.config.shape.slots() as usize;
        let life = Life { wanted, ready: None, slots, who: (0, 0), run_ns: 0, cpu: Duration::ZERO };
        let mut peer = Peer::new(link.clone(), &self.0.regions, life);
        match reader.as_ref() {
            Some(reader) => {
                peer.is_read = true;
                reader(link.clone());
            }
            None => self.0.links.must_be_watched(link.key, peer.arm(&self.0.links.poller)),
        }
        // An alarm that cannot be heard answers no questions; code is stopped all the same.
        let _ = self.0.links.poller.add(link.alarm.socket(), ALARM | u64::from(link.key), false);
        core.peers.insert(link.key, peer);
    }

    /// Gives the worker work from now on. `who`: its nr and pid.
    pub fn worker_ready(&self, key: WorkerKey, who: (u32, i32), slots: usize, calls_max: Option<u64>) {
        let (link, owners) = self.0.transact(|core, now, actions| {
            let Some(peer) = core.peers.get_mut(&key) else { return Default::default() };
            (peer.life.ready, peer.life.slots, peer.life.who) = (Some(now), slots, who);
            let (words, link) = (peer.link.board.len() / 2, peer.link.clone());
            core.excuses.failing = None;
            core.noted.note_served();
            core.machine.on(Event::WorkerReady { worker: key, slots, words, calls_max }, now, actions);
            (Some(link), core.channel_owners())
        });
        for (link, owner) in link.iter().flat_map(|link| owners.iter().map(move |owner| (link, owner))) {
            self.0.open_channel(link, who.0, &**owner);
        }
    }

    /// The CPU time that a worker has used to its end.
    pub fn worker_used(&self, key: WorkerKey, cpu: Duration) {
        if let Some(peer) = self.0.core.lock().peers.get_mut(&key) {
            peer.life.cpu = cpu;
        }
    }

    /// Workers that have nothing on their links.
    pub fn idle_workers(&self) -> Vec<WorkerKey> {
        let core = self.0.core.lock();
        let idle = |key: &&WorkerKey| core.machine.worker(**key).is_some_and(|(sent, _)| sent == 0);
        core.peers.keys().filter(idle).copied().collect()
    }

    /// Workers that run nothing but endless work.
    pub fn workers_without_ends(&self) -> Vec<WorkerKey> {
        let core = self.0.core.lock();
        core.peers.keys().filter(|key| core.machine.has_only_endless(**key)).copied().collect()
    }

    /// Endless work of these workers is cut off at `by`, unless that was to be earlier already. They tell it when they drain.
    pub fn limit_endless(&self, workers: &[WorkerKey], by: Instant) {
        self.0.transact(|core, now, actions| {
            for worker in workers {
                core.machine.on(Event::EndEndless { worker: *worker, by }, now, actions);
            }
        });
        self.0.wake_for(Some(by));
    }

    pub fn order_done(&self, ticket: Ticket, carried: Carried) {
        self.0.orders.done(ticket, carried);
    }

    /// The supervisor is gone.
    pub fn close_orders(&self) {
        self.0.orders.close();
    }

    pub fn set_foreign(&self, version: Option<String>) {
        self.0.core.lock().functions.set_foreign(version);
    }

    /// A worker gets nothing, or again what it may get, as far as this reason goes.
    pub fn hold(&self, worker: WorkerKey, why: Hold, held: bool) {
        let event = if held { Event::Hold { worker, why } } else { Event::Release { worker, why } };
        self.0.transact(|core, now, actions| core.machine.on(event, now, actions));
    }

    /// Workers that were held for this reason get again what they may get.
    pub fn release_all(&self, why: Hold) {
        self.0.transact(|core, now, actions| {
            for worker in core.peers.keys() {
                core.machine.on(Event::Release { worker: *worker, why }, now, actions);
            }
        });
    }

    pub fn worker_draining(&self, worker: WorkerKey) {
        let by = Instant::now() + self.0.config.grace();
        self.0.transact(|core, now, actions| {
            core.machine.on(Event::WorkerDraining { worker }, now, actions);
            core.machine.on(Event::EndEndless { worker, by }, now, actions);
        });
        self.0.wake_for(Some(by));
        // After what has not begun was taken back: whatever begins there now has begun before, and hears of it.
        self.0.core.lock().tell_endless(|key| key == worker);
        self.0.leave_channels_of(worker);
    }

    /// Tells a worker to finish and end.
    pub fn send_drain(&self, worker: WorkerKey) {
        let link = self.0.core.lock().link(worker);
        if let Some(link) = link {
            link.outbox.push(|out| frame::put_head(&mut out.bytes, Kind::Drain, 0, 0));
            self.0.links.flush(&link);
        }
    }

    /// Returns the requests that a worker has begun on connections of its own, as they are shown to people.
    pub fn requests_held_by(&self, worker: WorkerKey) -> Vec<String> {
        self.0.requests_held_by(worker)
    }

    /// The worker is dead (`ended`: by our own hand): what it had begun fails with `failure`, the rest runs elsewhere.
    /// Returns what it was running.
    pub fn worker_gone(&self, key: WorkerKey, failure: Failure, ended: bool) -> Vec<Running> {
        let Some(link) = self.0.core.lock().link(key) else { return Vec::new() };
        self.read_rest(&link);
        let failure = Arc::new(failure);
        let running = self.0.transact_with(|core, now, actions, effects| {
            let running = core.running(key, now);
            let Some(mut peer) = core.peers.remove(&key) else { return running };
            self.0.links.poller.remove(peer.link.socket.as_fd());
            self.0.links.poller.remove(peer.link.alarm.socket());
            let Core { machine, functions, noted, .. } = core;
            let find = |id| machine.body(id).map(|entry| (&**entry, functions.describe(entry)));
            noted.note_past(peer.life, &running, now, find);
            core.answer_expiring_of(key, effects);
            core.machine.set_untimed(core.peers.values().any(|peer| peer.debugged));
            let begun = core.leave_behind(&mut peer, &failure, ended, now, effects);
            core.excuses.lost = Some(failure);
            core.machine.on(Event::WorkerGone { worker: key, begun, ended }, now, actions);
            running
        });
        self.0.end_channels_of(key);
        self.0.regions.reader_gone(u64::from(key));
        running
    }

    /// Takes in what a worker that has ended had still written.
    pub fn hear_out(&self, key: WorkerKey) {
        let link = self.0.core.lock().link(key);
        link.iter().for_each(|link| self.read_rest(link));
    }

    /// Takes in what a dead worker had still written, and what it had finished and not written any more.
    fn read_rest(&self, link: &Arc<Link>) {
        // Who reads it lets go after a moment, and waits for nobody.
        let mut inbox = link.inbox.lock();
        while matches!(inbox.fill(link.socket.as_fd(), false), Ok(Filled::Bytes)) {
            if self.0.absorb(link, &mut inbox, ReadFrom::Link).is_err() {
                return;
            }
        }
        if inbox.fill_from(&link.board.journal()) {
            // What is wrong with it ends with the worker.
            let _ = self.0.absorb(link, &mut inbox, ReadFrom::Journal);
        }
    }

    /// Work that waits, and work to come, is answered with this until a worker is ready.
    pub fn set_failing(&self, failure: Option<Failure>) {
        let event = if failure.is_some() { Event::Failing } else { Event::Recovered };
        self.0.transact(|core, now, actions| {
            core.excuses.failing = failure.map(Arc::new);
            core.machine.on(event, now, actions);
        });
    }

    /// Answers what waits as closed.
    pub fn refuse_waiting(&self) {
        self.0.transact(|core, now, actions| {
            core.excuses.failing = None;
            core.machine.on(Event::Close, now, actions);
            core.machine.on(Event::Failing, now, actions);
        });
    }

    pub fn update_status(&self, update: impl FnOnce(&mut Status)) {
        self.0.status.update(update);
    }

    /// No zygote tells of the ends of these workers any more: the driver sees them by their links.
    pub fn orphaned(&self, workers: &[WorkerKey]) {
        let mut core = self.0.core.lock();
        for worker in workers {
            let Some(peer) = core.peers.get_mut(worker) else { continue };
            peer.orphaned = true;
            if !peer.leased {
                let armed = peer.arm(&self.0.links.poller);
                self.0.links.must_be_watched(*worker, armed);
            }
        }
    }

    /// Handles a token of the poller: a link that is readable or writable, or an alarm.
    pub fn on_ready(&self, token: u64) {
        match token & ALARM {
            0 => self.on_link(token as WorkerKey),
            _ => self.on_alarm(token as WorkerKey),
        }
    }

    /// Returns the stacks of the threads of a worker, waited for in the driver's thread.
    pub fn stacks_now(&self, key: WorkerKey, deadline: Instant) -> Option<String> {
        let link = self.0.core.lock().link(key)?;
        let question = self.0.questions.open(false);
        link.alarm.ask(question);
        if matches!(sys::wait_readable(link.alarm.socket(), Some(deadline)), Ok(true)) {
            self.on_alarm(key);
        }
        self.0.questions.wait(question, Instant::now()).filter(|text| !text.is_empty())
    }

    fn on_alarm(&self, key: WorkerKey) {
        let Some(link) = self.0.core.lock().link(key) else { return };
        let (answers, ended) = link.alarm.answers();
        if ended {
            self.0.links.poller.remove(link.alarm.socket());
        }
        for stacks in answers {
            match stacks.asked {
                true => self.0.questions.answer(stacks.id, stacks.text, true),
                false => {
                    self.0.transact_with(|core, _, _, effects| core.take_stacks(stacks.id, stacks.text, true, effects))
                }
            }
        }
    }

    fn on_link(&self, key: WorkerKey) {
        let found = self.0.core.lock().peers.get(&key).map(|peer| (peer.link.clone(), peer.writable_wanted));
        let Some((link, writable_wanted)) = found else { return };
        if writable_wanted {
            // Before the flush, which asks for it again when it does not get all written, in whatever thread.
            self.want_write(key, false);
        }
        self.0.links.flush(&link);
        self.0.read_link(&link);
    }

    /// Asks the poller to tell when a full socket has room, or no longer to.
    pub fn want_write(&self, key: WorkerKey, wanted: bool) {
        let mut core = self.0.core.lock();
        if let Some(peer) = core.peers.get_mut(&key) {
            let watched = peer.watch_writable(&self.0.links.poller, wanted);
            self.0.links.must_be_watched(key, watched);
        }
    }
}
