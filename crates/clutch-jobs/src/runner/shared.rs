//! State that the threads of a runner share: notes for the loop, counters, why it cannot go on, and the order to stop;
//! and the threads beside the loop.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use clutch_pool::telemetry::Emitter;
use clutch_pool::work::Outcome;
use clutch_wire::sync::{Condvar, Mutex, MutexGuard};

use super::unserved::Unserved;
use super::{Config, Stats, UPKEEP, WATCH, new_runner};
use crate::cron::watch::{Silence, Watch as CronWatch};
use crate::cron::{Cron, Missed};
use crate::ends::{Ends, Heirs};
use crate::facts::{
    ClockDiffers, CronAhead, CronMissed, CronRefused, CronSkipped, JobsInherited, JobsRescued, QueueUnserved,
    StoreDamaged, StoreFilling, StoreLost, StoreRecovered,
};
use crate::job::Millis;
use crate::maintenance::{Duty, Maintenance, Performed};
use crate::store::{Noted, QueueStats, Report, Runner, Store, Tick, Upkeep};

/// Interval at which the queues are counted while somebody looks at them, and how long that lasts.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);
const LOOKED_FOR: Duration = Duration::from_secs(60);

/// Interval at which they are counted while nobody looks, to find unserved ones.
const UNSERVED_INTERVAL: Duration = Duration::from_secs(60);

/// Interval at which the ends that dead runners of this machine have left are looked for.
const INHERIT_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which entries of periodic jobs are read that the store keeps.
const SCHEDULES_INTERVAL: Duration = Duration::from_secs(2);

/// They are counted at most for this part of the time, 1 of so many: while somebody looks, and while nobody does.
const COUNT_SHARE: u32 = 20;
const UNSERVED_SHARE: u32 = 100;

/// Maximum wait of the first look until they are counted.
const COUNT_WAIT: Duration = Duration::from_millis(250);

/// How long something counts as damaged after the store has said so last: it does when the part is used.
const DAMAGED_FOR: Duration = Duration::from_secs(20);

/// Largest difference between this machine's clock and the store's that is not told.
const CLOCK_MS_MAX: Millis = 5_000;

/// How often the log is told that the store's memory is nearly full.
const FILLING_INTERVAL: Duration = Duration::from_secs(3600);

/// Pause of a thread that has panicked.
const PANIC_PAUSE: Duration = Duration::from_secs(1);

/// Maximum length of one wait for news of the store: a stop comes in between.
const WATCH_WAIT: Duration = Duration::from_millis(500);

/// Messages to the loop.
pub(super) enum Note {
    Answered {
        key: usize,
        outcome: Outcome,
        ran: Option<Duration>,
    },
    Arrived,
    /// The pool may give permits again.
    Room,
    Quiet(bool),
}

/// What has come for the loop.
#[derive(Default)]
pub(super) struct News {
    pub(super) notes: Vec<Note>,
    /// By running job, the last of each kind that it said: a loop that waits for its store keeps no more of them.
    pub(super) said: HashMap<usize, Noted>,
}

impl News {
    fn is_empty(&self) -> bool {
        self.notes.is_empty() && self.said.is_empty()
    }
}

/// Inbox of the loop.
#[derive(Default)]
pub(super) struct Inbox {
    news: Mutex<News>,
    came: Condvar,
}

impl Inbox {
    pub(super) fn put(&self, note: Note) {
        self.add(|news| news.notes.push(note));
    }

    /// A running job has said something.
    pub(super) fn say(&self, key: usize, note: impl FnOnce(&mut Noted)) {
        self.add(|news| note(news.said.entry(key).or_default()));
    }

    fn add(&self, add: impl FnOnce(&mut News)) {
        let mut news = self.news.lock();
        let is_first = news.is_empty();
        add(&mut news);
        if is_first {
            self.came.notify_one();
        }
    }

    pub(super) fn take(&self) -> News {
        std::mem::take(&mut *self.news.lock())
    }

    pub(super) fn wait(&self, until: Instant) -> News {
        let (mut news, _) = self.came.wait_until(self.news.lock(), until, |news| !news.is_empty());
        std::mem::take(&mut *news)
    }
}

/// The queues as they were counted last.
#[derive(Default)]
struct Counts {
    queues: Vec<QueueStats>,
    counted_at: Option<Instant>,
    /// How long that took.
    took: Duration,
    looked_at: Option<Instant>,
    unserved: Unserved,
}

/// Orders to the threads.
#[derive(Default)]
struct Orders {
    /// The store has told of something since the leader has looked.
    has_news: bool,
    /// Once it stops: until when it waits for what runs.
    stopping: Option<Instant>,
    /// Somebody waits for the queues to be counted.
    counts: bool,
}

impl Counts {
    /// When they are to be counted next.
    fn due_at(&self, now: Instant) -> Instant {
        let is_looked_at = self.looked_at.is_some_and(|at| now < at + LOOKED_FOR);
        let (interval, share) =
            if is_looked_at { (COUNT_INTERVAL, COUNT_SHARE) } else { (UNSERVED_INTERVAL, UNSERVED_SHARE) };
        self.counted_at.map_or(now, |at| at + interval.max(self.took * share))
    }

    fn is_due(&self, now: Instant) -> bool {
        now >= self.due_at(now)
    }
}

pub(super) struct Shared {
    pub(super) store: Arc<dyn Store>,
    pub(super) config: Config,
    pub(super) inbox: Arc<Inbox>,
    /// Next key of a running job. A new life of the loop uses none of an earlier one, whose answers come late.
    pub(super) next_key: AtomicUsize,
    pub(super) stats: Mutex<Stats>,
    /// Why threads cannot do their part now, by their names.
    failing: Mutex<BTreeMap<&'static str, String>>,
    /// What the store has set aside as damaged, and when it said so last.
    damaged: Mutex<BTreeMap<String, Instant>>,
    /// That this machine's clock is not that of the store.
    clock: Mutex<Option<String>>,
    /// When the log was told last that the store's memory is nearly full.
    filling_told: Mutex<Option<Instant>>,
    counts: Mutex<Counts>,
    counted: Condvar,
    orders: Mutex<Orders>,
    ordered: Condvar,
    pub(super) telemetry: Emitter,
}

impl Shared {
    pub(super) fn new(store: Arc<dyn Store>, config: Config, telemetry: Emitter) -> Shared {
        Shared {
            store,
            config,
            inbox: Arc::default(),
            next_key: AtomicUsize::new(0),
            stats: Mutex::default(),
            failing: Mutex::default(),
            damaged: Mutex::default(),
            clock: Mutex::default(),
            filling_told: Mutex::default(),
            counts: Mutex::default(),
            counted: Condvar::new(),
            orders: Mutex::default(),
            ordered: Condvar::new(),
            telemetry,
        }
    }

    /// The file of ends of a runner, where there is a folder for it and the store can be told them by others.
    pub(super) fn ends_of(&self, runner: &Runner) -> Option<Ends> {
        let folder = self.config.folder.as_ref().filter(|_| self.store.settles_for_others())?;
        Ends::create(folder, self.store.name(), runner).ok()
    }

    fn order(&self, change: impl FnOnce(&mut Orders)) {
        change(&mut self.orders.lock());
        self.ordered.notify_all();
    }

    /// None: it does not stop. Else until when it waits for what runs.
    pub(super) fn stopping(&self) -> Option<Instant> {
        self.orders.lock().stopping
    }

    /// A second stop can only hurry the first.
    pub(super) fn stop(&self, until: Instant) {
        self.order(|orders| orders.stopping = Some(orders.stopping.map_or(until, |set| set.min(until))));
    }

    /// Waits until a time, news of the store, or the stop. Whether there was news since it was asked last.
    fn pause_for_news(&self, until: Instant) -> bool {
        let is_over = |orders: &Orders| orders.stopping.is_some() || orders.has_news;
        let (mut orders, _) = self.ordered.wait_until(self.orders.lock(), until, is_over);
        std::mem::take(&mut orders.has_news)
    }

    fn arrived(&self) {
        self.inbox.put(Note::Arrived);
        if !std::mem::replace(&mut self.orders.lock().has_news, true) {
            self.ordered.notify_all();
        }
    }

    /// Waits until a time, or the stop.
    fn pause(&self, until: Instant) {
        drop(self.ordered.wait_until(self.orders.lock(), until, |orders| orders.stopping.is_some()));
    }

    /// Runs until the stop: again when it panics, which the program's log tells.
    pub(super) fn keep_running(&self, name: &'static str, run: impl Fn()) {
        while catch_unwind(AssertUnwindSafe(&run)).is_err() && self.stopping().is_none() {
            self.failed(name, format!("its thread {name} has panicked, and is started again"));
            self.pause(Instant::now() + PANIC_PAUSE);
        }
    }

    pub(super) fn stats(&self) -> Stats {
        let reason = self.failing.lock().values().next().cloned();
        let damaged = self.still_damaged().keys().next().cloned();
        let clock = self.clock.lock().clone();
        Stats { reason, damaged, clock, ..self.stats.lock().clone() }
    }

    /// The queues, as of some seconds ago. To count them may take long: who looks for the first time waits for that a
    /// moment only.
    pub(super) fn queues(&self) -> Vec<QueueStats> {
        let (now, is_there) = (Instant::now(), self.failing.lock().is_empty());
        let mut counts = self.counts.lock();
        counts.looked_at = Some(now);
        if counts.is_due(now) && is_there {
            self.order(|orders| orders.counts = true);
            let is_counted = |counts: &Counts| counts.counted_at >= Some(now);
            (counts, _) = self.counted.wait_until(counts, now + COUNT_WAIT, is_counted);
        }
        counts.queues.clone()
    }

    pub(super) fn failed(&self, thread: &'static str, reason: String) {
        let mut failing = self.failing.lock();
        let is_news = failing.is_empty();
        failing.insert(thread, reason.clone());
        drop(failing);
        if is_news {
            let (front, store) = (self.config.name.clone(), self.store.name().to_owned());
            self.telemetry.emit(|| StoreLost { front, store, reason });
        }
    }

    pub(super) fn works(&self, thread: &'static str) {
        let mut failing = self.failing.lock();
        let is_news = failing.remove(thread).is_some() && failing.is_empty();
        drop(failing);
        if is_news {
            let (front, store) = (self.config.name.clone(), self.store.name().to_owned());
            self.telemetry.emit(|| StoreRecovered { front, store });
        }
    }

    fn still_damaged(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        let mut damaged = self.damaged.lock();
        damaged.retain(|_, at| at.elapsed() < DAMAGED_FOR);
        damaged
    }

    /// Tells the log once of each.
    pub(super) fn found_damaged(&self, found: &[String]) {
        for reason in found {
            if self.still_damaged().insert(reason.clone(), Instant::now()).is_none() {
                let (front, store) = (self.config.name.clone(), self.store.name().to_owned());
                self.telemetry.emit(|| StoreDamaged { front, store, reason: reason.clone() });
            }
        }
    }

    /// Tells the log when this machine's clock is another than the store's, once. All goes by that of the store.
    fn check_clock(&self) {
        let ahead_ms = self.store.clock_ahead();
        let mut told = self.clock.lock();
        if ahead_ms.abs() <= CLOCK_MS_MAX {
            *told = None;
        } else if told.is_none() {
            let (front, store) = (self.config.name.clone(), self.store.name().to_owned());
            let (seconds, side) = (ahead_ms.abs() / 1000, if ahead_ms > 0 { "ahead of" } else { "behind" });
            *told = Some(format!("this machine's clock is {seconds} s {side} that of {store}, by which its jobs go"));
            self.telemetry.emit(|| ClockDiffers { front, store, ahead_s: ahead_ms as f64 / 1000.0 });
        }
    }

    /// Counts what periodic jobs have skipped, and tells the log what silences them.
    fn tell_of_cron(&self, watch: &mut CronWatch, ticks: &[Tick], upkeep: &Upkeep, now: Millis) {
        for name in &upkeep.skipped {
            *self.stats.lock().skipped.entry(name.clone()).or_default() += 1;
        }
        for (entry, silence) in watch.on(ticks, &upkeep.last_ticks, &upkeep.skipped, now) {
            let front = self.config.name.clone();
            match silence {
                Silence::Skipped => self.telemetry.emit(|| CronSkipped { front, entry }),
                Silence::Refused => self.telemetry.emit(|| CronRefused { front, entry }),
                Silence::Ahead(ms) => {
                    let ahead_s = u64::try_from(ms / 1000).unwrap_or_default();
                    self.telemetry.emit(|| CronAhead { front, entry, ahead_s });
                }
            }
        }
    }

    fn tell(&self, upkeep: &Upkeep) {
        self.found_damaged(&upkeep.damaged);
        if upkeep.rescued > 0 {
            let (front, jobs, dead) = (self.config.name.clone(), upkeep.rescued, upkeep.buried);
            self.telemetry.emit(|| JobsRescued { front, jobs, dead });
        }
        if upkeep.pruned_early > 0 {
            self.is_filling();
        }
    }

    /// Tells the log now and then.
    fn is_filling(&self) {
        let mut told = self.filling_told.lock();
        if told.is_none_or(|at| at.elapsed() >= FILLING_INTERVAL) {
            *told = Some(Instant::now());
            let (front, store) = (self.config.name.clone(), self.store.name().to_owned());
            self.telemetry.emit(|| StoreFilling { front, store });
        }
    }

    pub(super) fn watch(&self) {
        let mut watch = None;
        while self.stopping().is_none() {
            let waited = match &mut watch {
                None => match self.store.watch() {
                    Ok(made) => {
                        self.works(WATCH);
                        watch = Some(made);
                        Ok(true)
                    }
                    Err(error) => Err(io::Error::other(error)),
                },
                Some(watch) => watch.wait(WATCH_WAIT),
            };
            match waited {
                Ok(true) => self.arrived(),
                Ok(false) => {}
                Err(_) => {
                    watch = None;
                    self.pause(Instant::now() + WATCH_WAIT);
                }
            }
        }
    }

    /// In a thread of its own: to count a store with many jobs takes long, and what is due does not wait for it.
    pub(super) fn count(&self) {
        while self.stopping().is_none() {
            self.orders.lock().counts = false;
            let now = Instant::now();
            let is_known = !self.counts.lock().is_due(now) || self.count_queues(now);
            let until = if is_known { self.counts.lock().due_at(Instant::now()) } else { now + COUNT_INTERVAL };
            let is_ordered = |orders: &Orders| orders.stopping.is_some() || orders.counts;
            drop(self.ordered.wait_until(self.orders.lock(), until, is_ordered));
        }
    }

    /// Whether the store has told them.
    fn count_queues(&self, since: Instant) -> bool {
        let Ok(queues) = self.store.queues() else { return false };
        let mut counts = self.counts.lock();
        for (queue, waited_s) in counts.unserved.found(&queues, &self.config.lanes, self.store.now()) {
            let (front, name, available) = (self.config.name.clone(), queue.name.clone(), queue.available);
            self.telemetry.emit(|| QueueUnserved { front, queue: name, available, waited_s });
        }
        let now = Instant::now();
        (counts.queues, counts.counted_at, counts.took) = (queues, Some(now), now - since);
        self.counted.notify_all();
        true
    }

    /// Settles what had completed under runners of this machine that are gone. A store that is out of reach is asked again.
    fn inherit(&self, heirs: &mut Heirs, now: Instant) {
        let report = Report { keep: Some(self.config.keep), ..Report::default() };
        let jobs = heirs.settle(&*self.store, &report, now).unwrap_or(0);
        if jobs > 0 {
            let front = self.config.name.clone();
            self.telemetry.emit(|| JobsInherited { front, jobs });
        }
    }

    pub(super) fn look_after(&self) {
        let (lease, cron) = (self.config.lease, Cron::new(self.config.cron.clone()));
        let mut machine = Maintenance::new(lease, cron, Instant::now()).quiet(self.store.quiet_interval(), lease);
        let runner = new_runner(machine.lease());
        let (mut is_failing, mut has_news) = (false, false);
        let mut heirs = self.config.folder.clone().filter(|_| self.store.settles_for_others()).map(Heirs::new);
        let mut inherit_at = Instant::now();
        let (mut schedules_at, mut cron_watch) = (inherit_at, CronWatch::default());
        while self.stopping().is_none() {
            self.check_clock();
            let sent = Instant::now();
            if sent >= schedules_at {
                schedules_at = sent + SCHEDULES_INTERVAL;
                // Those that cannot be read now stay as they were.
                if let Ok(schedules) = self.store.schedules() {
                    machine.keep(&schedules, self.store.now());
                }
                machine.ask_of_future(self.store.now());
            }
            if let Some(heirs) = heirs.as_mut().filter(|_| sent >= inherit_at) {
                inherit_at = sent + INHERIT_INTERVAL;
                self.inherit(heirs, sent);
            }
            let event = match machine.step(sent, self.store.now()) {
                Duty::Lead => {
                    let led = self.store.lead(&runner, &machine.lapsed());
                    led.map(|led| Performed::Led { led, sent })
                }
                Duty::Look { limit } => {
                    has_news = false;
                    let now = self.store.now();
                    let (ticks, lapsed) = (machine.ticks(now), machine.lapsed());
                    let looked = self.store.look_after(&self.config.keep, limit, &ticks, &lapsed, now);
                    let looked = looked.inspect(|upkeep| {
                        self.tell(upkeep);
                        self.tell_of_cron(&mut cron_watch, &ticks, upkeep, now);
                    });
                    looked.map(|upkeep| Performed::Looked { upkeep, ticks, now, sent })
                }
                Duty::Wait(until) => {
                    let until = if heirs.is_some() { until.min(inherit_at) } else { until }.min(schedules_at);
                    // Once there is news, more of it changes nothing until the next look.
                    if has_news {
                        self.pause(until);
                    } else if self.pause_for_news(until) {
                        has_news = true;
                        machine.arrived();
                    }
                    continue;
                }
            };
            is_failing = event.is_err();
            match &event {
                Ok(_) => self.works(UPKEEP),
                Err(error) => self.failed(UPKEEP, error.to_string()),
            }
            machine.on(event.unwrap_or(Performed::Failed), Instant::now());
            for Missed { entry, ticks: missed, is_made_up } in machine.take_missed() {
                let front = self.config.name.clone();
                self.telemetry.emit(|| CronMissed { front, entry, missed, is_made_up });
            }
        }
        // The next leader comes at once; where the store cannot be had, when the lease ends.
        if !is_failing {
            let _ = self.store.leave(&runner);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use std::sync::atomic::Ordering;

    use super::super::{COUNTS, LOOP, Runs};
    use super::*;
    use crate::fetcher::Lanes;
    use crate::job::{self, NewJob, State};
    use crate::store::Keep;
    use crate::stores;

    fn shared(folder: &tempfile::TempDir) -> Arc<Shared> {
        let store = stores::open(&format!("sqlite:///{}/jobs.db", folder.path().display())).unwrap();
        let day = Duration::from_secs(86_400);
        let config = Config {
            cron: Vec::new(),
            folder: None,
            name: "jobs".into(),
            lanes: Lanes { queues: vec![("default".to_owned(), 1)], strict: false },
            slots_max: None,
            lease: Duration::from_secs(30),
            keep: Keep { completed: day, cancelled: day, dead: day },
        };
        Arc::new(Shared::new(store, config, Emitter::new(Arc::default(), "work")))
    }

    #[test]
    fn a_thread_that_panics_is_told_of_and_started_again() {
        let folder = tempfile::tempdir().unwrap();
        let shared = shared(&folder);
        let runs = AtomicUsize::new(0);
        shared.keep_running(UPKEEP, || {
            let reason = shared.failing.lock().get(UPKEEP).cloned();
            if runs.fetch_add(1, Ordering::Relaxed) == 0 {
                panic!("of the test");
            }
            assert!(reason.is_some_and(|reason| reason.contains(UPKEEP)), "readiness says so meanwhile");
        });
        assert_eq!(runs.into_inner(), 2);
    }

    #[test]
    fn what_the_store_sets_aside_is_shown_beside_what_works() {
        let folder = tempfile::tempdir().unwrap();
        let shared = shared(&folder);
        let found = ["its key x is a string".to_owned()];
        shared.found_damaged(&found);
        shared.found_damaged(&found);
        shared.works(LOOP);
        assert_eq!((shared.stats().damaged, shared.stats().reason), (Some(found[0].clone()), None));
        *shared.damaged.lock().get_mut(&found[0]).unwrap() -= DAMAGED_FOR;
        assert_eq!(shared.stats().damaged, None, "it was mended");
    }

    /// Whoever counts them holds up nothing but the counts.
    #[test]
    fn what_is_due_does_not_wait_for_the_count_of_the_queues() {
        let folder = tempfile::tempdir().unwrap();
        let runs = Runs { shared: shared(&folder), threads: Arc::default() };
        let store = runs.shared.store.clone();
        let job = NewJob::new("default", "send", RawValue::from_string("{}".to_owned()).unwrap());
        let id =
            store.enqueue(&[NewJob { scheduled_at: Some(job::now() + 1), ..job }], job::now()).unwrap().remove(0).id;
        let counts = runs.shared.counts.lock();
        runs.spawn(COUNTS, |shared| shared.count()).unwrap();
        runs.spawn(UPKEEP, |shared| shared.look_after()).unwrap();
        let state = || store.get(&id).unwrap().unwrap().state;
        let until = Instant::now() + Duration::from_secs(30);
        while state() == State::Scheduled && Instant::now() < until {
            std::thread::yield_now();
        }
        assert_eq!(state(), State::Available);
        drop(counts);
        runs.stop(Duration::ZERO);
    }

    #[test]
    fn the_queues_are_counted_for_a_small_part_of_the_time() {
        let now = Instant::now();
        let counted = |took| Counts { counted_at: Some(now), took, looked_at: Some(now), ..Counts::default() };
        assert_eq!(counted(Duration::from_millis(1)).due_at(now), now + COUNT_INTERVAL);
        assert_eq!(counted(Duration::from_secs(2)).due_at(now), now + Duration::from_secs(40));
        let unseen = |took| Counts { looked_at: None, ..counted(took) };
        assert_eq!(unseen(Duration::from_millis(100)).due_at(now), now + UNSERVED_INTERVAL);
        assert_eq!(unseen(Duration::from_secs(2)).due_at(now), now + Duration::from_secs(200));
    }

    #[test]
    fn whoever_looks_first_sees_what_is_there_now() {
        let folder = tempfile::tempdir().unwrap();
        let runs = Runs { shared: shared(&folder), threads: Arc::default() };
        runs.spawn(COUNTS, |shared| shared.count()).unwrap();
        assert_eq!(runs.queues(), [], "it is counted at the start");
        let arguments = RawValue::from_string("{}".to_owned()).unwrap();
        runs.shared.store.enqueue(&[NewJob::new("default", "send", arguments)], job::now()).unwrap();
        // Long ago.
        runs.shared.counts.lock().counted_at = Instant::now().checked_sub(COUNT_INTERVAL);
        assert_eq!(runs.queues().first().map(|queue| queue.available), Some(1));
        runs.stop(Duration::ZERO);
        assert!(runs.threads.wait(Instant::now() + Duration::from_secs(30)));
    }
}
