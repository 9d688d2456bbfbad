//! The driver's half of a pool: links that are readable, workers that come and go, the clock.

use std::io::{self, ErrorKind};
use std::ops::Deref;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clutch_wire::Failure;
use clutch_wire::frame::{self, Kind};
use clutch_wire::sys;

use super::peer::{Link, Peer};
use super::state::{Demand, Event, Hold, WorkerKey};
use super::status::spent::Life;
use super::status::{Health, Status};
use super::{Carried, END_OF_FILE, Memory, Notice, Pool, ReadFrom, Reader, Ticket};
use crate::link::{Filled, Flushed};
use crate::work::Running;

/// What a look at a link brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    Some,
    Nothing,
    /// Another thread is reading.
    Elsewhere,
    End,
}

/// Marks the tokens of alarms in the poller.
const ALARM: u64 = 1 << 40;

/// The driver looks again after so long while work with deadlines comes: nothing that ends later has to wake it.
const STAY_AWAKE: Duration = Duration::from_millis(250);

/// How often a worker whose board has no free word is looked at again, and a link that the kernel was too short for.
const STARVED_LOOK: Duration = Duration::from_millis(5);

/// What only the driver of a pool may do. There is one for each pool, and it goes to the supervisor.
pub struct PoolDriver(pub(super) Arc<Pool>);

impl Deref for PoolDriver {
    type Target = Arc<Pool>;

    fn deref(&self) -> &Arc<Pool> {
        &self.0
    }
}

impl Drop for PoolDriver {
    /// Nothing happens in a pool that nobody drives.
    fn drop(&mut self) {
        self.update_status(|status| status.set_health(Health::Closed));
    }
}

impl PoolDriver {
    pub fn drain_notices(&self) -> Vec<Notice> {
        sys::clear_event(self.wake.as_fd());
        std::mem::take(&mut *self.notices.lock())
    }

    /// The driver wants to look when work waits for so long.
    pub fn watch_waiting(&self, delay: Option<Duration>) {
        let us = delay.map_or(u64::MAX, |delay| delay.as_micros() as u64);
        self.watch_us.store(us, Ordering::Release);
    }

    /// What the pool has to do, and had at least since this was asked last.
    pub fn take_demand(&self) -> Demand {
        let mut core = self.core.lock();
        let demand = core.machine.demand();
        core.machine.begin_window();
        demand
    }

    /// The workers, those with the least to do first.
    pub fn by_load(&self) -> Vec<WorkerKey> {
        let core = self.core.lock();
        let mut workers: Vec<WorkerKey> = core.peers.keys().copied().collect();
        workers.sort_by_key(|worker| core.machine.worker(*worker).map(|(sent, _)| sent));
        workers
    }

    /// Runs the machine's clock. Returns when it wants to run again. `look_at` says, of when the oldest work that waits was
    /// submitted (where [`Pool::watch_waiting`] asks for it), when the driver wants to look.
    pub fn tick(
        &self,
        sleep_until: Option<Instant>,
        look_at: impl FnOnce(Option<Instant>) -> Option<Instant>,
    ) -> Option<Instant> {
        self.driver_wakes_us.store(0, Ordering::Release);
        let starved = self.transact_with(|core, now, actions, effects| {
            core.machine.tick(now, actions);
            core.answer_expiring(now, effects);
            core.look_at_items(self, now, effects);
            core.feed_starved()
        });
        let look_again = (self.flush_short() || starved).then(|| Instant::now() + STARVED_LOOK);
        let sweep_at = self.regions.sweep_when_due(Instant::now());
        // Under the lock: a submission is either seen here, or sees when this wakes.
        let mut core = self.core.lock();
        let next = core.machine.next_deadline();
        let waits_since = self.watch_delay().and_then(|_| core.machine.waits_since());
        // Where work with deadlines comes and goes, each would wake it up for nothing.
        let stay = self.deadlines_come.swap(false, Ordering::Relaxed).then(|| Instant::now() + STAY_AWAKE);
        let next_item = core.item_clocks.next_look();
        let wakes =
            [next, core.next_expiring(), next_item, look_again, sweep_at, sleep_until, look_at(waits_since), stay];
        let wakes = wakes.into_iter().flatten().min();
        let us = wakes.map_or(u64::MAX, |at| at.saturating_duration_since(self.epoch).as_micros() as u64);
        self.driver_wakes_us.store(us, Ordering::Release);
        wakes
    }

    /// Tries again what the kernel had no memory for; whether it still has none.
    fn flush_short(&self) -> bool {
        let links = std::mem::take(&mut *self.short.lock());
        links.iter().for_each(|link| self.flush(link));
        !self.short.lock().is_empty()
    }

    /// A worker is being started: its link is read from now on.
    pub fn attach(&self, link: Arc<Link>) {
        let reader = self.reader.lock();
        let mut core = self.core.lock();
        let wanted = core.wanted(u64::from(self.config.workers_min)).unwrap_or(self.epoch);
        let life = Life { wanted, ready: None, slots: self.config.shape.slots() as usize, run_ns: 0 };
        let mut peer = Peer::new(link.clone(), &self.regions, life);
        match reader.as_ref() {
            Some(reader) => {
                peer.is_read = true;
                reader(link.clone());
            }
            None => self.must_be_watched(link.key, peer.arm(&self.poller)),
        }
        // An alarm that cannot be heard answers no questions; code is stopped all the same.
        let _ = self.poller.add(link.alarm.socket(), ALARM | u64::from(link.key), false);
        core.peers.insert(link.key, peer);
    }

    pub fn worker_ready(&self, key: WorkerKey, slots: usize, calls_max: Option<u64>) {
        self.transact(|core, now, actions| {
            let Some(peer) = core.peers.get_mut(&key) else { return };
            (peer.life.ready, peer.life.slots) = (Some(now), slots);
            let words = peer.link.board.len() / 2;
            core.failing = None;
            core.note_served();
            core.machine.on(Event::WorkerReady { worker: key, slots, words, calls_max }, now, actions);
        });
    }

    /// Workers that have nothing on their links.
    pub fn idle_workers(&self) -> Vec<WorkerKey> {
        let core = self.core.lock();
        let idle = |key: &&WorkerKey| core.machine.worker(**key).is_some_and(|(sent, _)| sent == 0);
        core.peers.keys().filter(idle).copied().collect()
    }

    pub fn order_done(&self, ticket: Ticket, carried: Carried) {
        self.orders.done(ticket, carried);
    }

    /// The supervisor is gone.
    pub fn close_orders(&self) {
        self.orders.close();
    }

    pub fn set_foreign(&self, version: Option<String>) {
        self.core.lock().foreign = version;
    }

    /// A worker gets nothing, or again what it may get, as far as this reason goes.
    pub fn hold(&self, worker: WorkerKey, why: Hold, held: bool) {
        let event = if held { Event::Hold { worker, why } } else { Event::Release { worker, why } };
        self.transact(|core, now, actions| core.machine.on(event, now, actions));
    }

    /// Workers that were held for this reason get again what they may get.
    pub fn release_all(&self, why: Hold) {
        self.transact(|core, now, actions| {
            for worker in core.peers.keys() {
                core.machine.on(Event::Release { worker: *worker, why }, now, actions);
            }
        });
    }

    pub fn worker_draining(&self, worker: WorkerKey) {
        let by = Instant::now() + self.config.grace();
        self.transact(|core, now, actions| {
            core.machine.on(Event::WorkerDraining { worker }, now, actions);
            core.machine.on(Event::EndEndless { worker, by }, now, actions);
        });
        self.wake_for(Some(by));
        // After what has not begun was taken back: whatever begins there now has begun before, and hears of it.
        self.tell_endless(|key| key == worker);
    }

    /// Tells a worker to finish and end.
    pub fn send_drain(&self, worker: WorkerKey) {
        let link = self.core.lock().peers.get(&worker).map(|peer| peer.link.clone());
        if let Some(link) = link {
            link.outbox.push(|out| frame::put_head(&mut out.bytes, Kind::Drain, 0, 0));
            self.flush(&link);
        }
    }

    /// The worker is dead (`ended`: by our own hand): what it had begun fails with `failure`, the rest runs elsewhere.
    /// Returns what it was running.
    pub fn worker_gone(&self, key: WorkerKey, failure: Failure, ended: bool) -> Vec<Running> {
        let Some(link) = self.core.lock().peers.get(&key).map(|peer| peer.link.clone()) else { return Vec::new() };
        self.read_rest(&link);
        let failure = Arc::new(failure);
        let running = self.transact_with(|core, now, actions, effects| {
            let running = core.running(key, now);
            let Some(mut peer) = core.peers.remove(&key) else { return running };
            self.poller.remove(peer.link.socket.as_fd());
            self.poller.remove(peer.link.alarm.socket());
            core.note_past(peer.life, &running, now);
            core.answer_expiring_of(key, effects);
            core.machine.set_untimed(core.peers.values().any(|peer| peer.debugged));
            let begun = core.leave_behind(&mut peer, &failure, ended, now, effects);
            core.lost = Some(failure);
            core.machine.on(Event::WorkerGone { worker: key, begun, ended }, now, actions);
            running
        });
        self.regions.reader_gone(u64::from(key));
        running
    }

    /// Takes in what a worker that has ended had still written.
    pub fn hear_out(&self, key: WorkerKey) {
        let link = self.core.lock().peers.get(&key).map(|peer| peer.link.clone());
        link.iter().for_each(|link| self.read_rest(link));
    }

    /// Takes in what a dead worker had still written, and what it had finished and not written any more.
    fn read_rest(&self, link: &Arc<Link>) {
        // Who reads it lets go after a moment, and waits for nobody.
        let mut inbox = link.inbox.lock();
        while matches!(inbox.fill(link.socket.as_fd(), false), Ok(Filled::Bytes)) {
            if self.absorb(link, &mut inbox, ReadFrom::Link).is_err() {
                return;
            }
        }
        if inbox.fill_from(&link.board.journal()) {
            // What is wrong with it ends with the worker.
            let _ = self.absorb(link, &mut inbox, ReadFrom::Journal);
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

    /// No zygote tells of the ends of these workers any more: the driver sees them by their links.
    pub fn orphaned(&self, workers: &[WorkerKey]) {
        let mut core = self.core.lock();
        for worker in workers {
            let Some(peer) = core.peers.get_mut(worker) else { continue };
            peer.orphaned = true;
            if !peer.leased {
                let armed = peer.arm(&self.poller);
                self.must_be_watched(*worker, armed);
            }
        }
    }

    /// What the poller has told of: a link that is readable or writable, or an alarm.
    pub fn on_ready(&self, token: u64) {
        match token & ALARM {
            0 => self.on_link(token as WorkerKey),
            _ => self.on_alarm(token as WorkerKey),
        }
    }

    fn on_alarm(&self, key: WorkerKey) {
        let Some(link) = self.core.lock().peers.get(&key).map(|peer| peer.link.clone()) else { return };
        let (answers, ended) = link.alarm.answers();
        if ended {
            self.poller.remove(link.alarm.socket());
        }
        for stacks in answers {
            match stacks.asked {
                true => self.questions.answer(stacks.id, stacks.text, true),
                false => {
                    self.transact_with(|core, _, _, effects| core.take_stacks(stacks.id, stacks.text, true, effects))
                }
            }
        }
    }

    fn on_link(&self, key: WorkerKey) {
        let found = self.core.lock().peers.get(&key).map(|peer| (peer.link.clone(), peer.writable_wanted));
        let Some((link, writable_wanted)) = found else { return };
        if writable_wanted {
            // Before the flush, which asks for it again when it does not get all written, in whatever thread.
            self.want_write(key, false);
        }
        self.flush(&link);
        self.read_link(&link);
    }

    /// Asks the poller to tell when a full socket has room, or no longer to.
    pub fn want_write(&self, key: WorkerKey, wanted: bool) {
        let mut core = self.core.lock();
        if let Some(peer) = core.peers.get_mut(&key) {
            let watched = peer.watch_writable(&self.poller, wanted);
            self.must_be_watched(key, watched);
        }
    }
}

/// What others do for the driver, and with it.
impl Pool {
    pub fn notify(&self, notice: Notice) {
        if self.is_forked() {
            return;
        }
        self.notices.lock().push(notice);
        self.wake_driver();
    }

    /// Judges the memory of workers, and tells the supervisor.
    pub fn weigh(&self, figures: &[(WorkerKey, Memory)]) {
        self.transact_with(|core, now, actions, effects| core.weigh(figures, now, actions, effects));
    }

    pub fn wake_driver(&self) {
        sys::signal_event(self.wake.as_fd());
    }

    /// Wakes the driver when it would sleep beyond this deadline.
    pub(super) fn wake_for(&self, deadline: Option<Instant>) {
        let Some(deadline) = deadline else { return };
        self.deadlines_come.store(true, Ordering::Relaxed);
        let at = deadline.saturating_duration_since(self.epoch).as_micros() as u64;
        if at < self.driver_wakes_us.load(Ordering::Acquire) {
            self.driver_wakes_us.store(at, Ordering::Release);
            self.wake_driver();
        }
    }

    pub(super) fn watch_delay(&self) -> Option<Duration> {
        Some(self.watch_us.load(Ordering::Acquire)).filter(|us| *us < u64::MAX).map(Duration::from_micros)
    }

    /// From now on links are read by who is given them here, and by the driver where that is not enough.
    pub fn read_with(&self, reader: Reader) {
        let mut kept = self.reader.lock();
        let mut core = self.core.lock();
        for peer in core.peers.values_mut() {
            peer.disarm(&self.poller);
            peer.is_read = true;
            reader(peer.link.clone());
        }
        *kept = Some(reader);
    }

    /// The driver reads the links again.
    pub fn read_by_driver(&self) {
        *self.reader.lock() = None;
        for peer in self.core.lock().peers.values_mut() {
            peer.is_read = false;
            let armed = peer.arm(&self.poller);
            self.must_be_watched(peer.link.key, armed);
        }
    }

    /// A link that cannot be watched is as good as ended: its worker is replaced.
    pub(super) fn must_be_watched(&self, worker: WorkerKey, watched: io::Result<()>) {
        if let Err(error) = watched {
            self.notify(Notice::LinkEnded(worker, format!("it cannot be watched: {error}")));
        }
    }

    /// Endless work of these workers is told to end. They hear it whatever their Python does.
    pub(super) fn tell_endless(&self, which: impl Fn(WorkerKey) -> bool) {
        let core = self.core.lock();
        core.peers.values().filter(|peer| which(peer.link.key)).for_each(|peer| peer.link.alarm.drain());
    }

    /// Reads once what is there. Who is told of it only once must look again when another thread is at it.
    pub fn read_link(&self, link: &Arc<Link>) -> Read {
        let Some(mut inbox) = link.inbox.try_lock() else { return Read::Elsewhere };
        let ended = match inbox.fill(link.socket.as_fd(), false) {
            Ok(Filled::Nothing) => return Read::Nothing,
            Ok(Filled::Bytes) => self.absorb(link, &mut inbox, ReadFrom::Link).err(),
            Ok(Filled::End) => Some(END_OF_FILE.to_owned()),
            Err(error) => Some(error.to_string()),
        };
        let Some(reason) = ended else { return Read::Some };
        if let Some(peer) = self.core.lock().peers.get_mut(&link.key) {
            peer.disarm(&self.poller);
        }
        self.notify(Notice::LinkEnded(link.key, reason));
        Read::End
    }

    pub fn flush(&self, link: &Arc<Link>) {
        match link.outbox.flush(link.socket.as_fd(), false) {
            Ok(Flushed::All) => {}
            Ok(Flushed::Blocked) => self.notify(Notice::WantWrite(link.key)),
            Ok(Flushed::Short) => {
                self.short.lock().push(link.clone());
                self.wake_driver();
            }
            // The reading side learns of the end.
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {}
            Err(error) => self.notify(Notice::LinkEnded(link.key, error.to_string())),
        }
    }
}
