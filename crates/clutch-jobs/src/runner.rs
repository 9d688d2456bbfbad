//! Runs the jobs of one store in one pool: the thin loops around [`Fetcher`] and [`Maintenance`].
//!
//! Three threads: one claims, submits and settles; one looks after the store; one waits for news of it. Answers of the pool
//! come on its own threads and only put a note in the inbox.

mod answer;
pub mod inline;
mod unserved;
mod work;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clutch_pool::pool::{Batch, Health, Pool};
use clutch_pool::telemetry::{Emitter, Event};
use clutch_pool::work::{FunctionId, Outcome, WorkId};
use clutch_wire::sync::{Condvar, Mutex};
use clutch_wire::{Payload, sys};
use serde::Serialize;

use self::unserved::Unserved;
use crate::fetcher::{self, Fetcher, Lanes};
use crate::job::{self, Claimed, Ending, JobId, Settled, State, settle};
use crate::maintenance::{self, Maintenance};
use crate::random;
use crate::store::{Keep, Noted, QueueStats, Renewed, Report, Runner, Store, StoreError, Upkeep, Want};

/// How often the pool's slots are counted anew.
const SLOTS_INTERVAL: Duration = Duration::from_millis(200);

/// How often the queues are counted while somebody looks at them, and how long that lasts.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);
const LOOKED_FOR: Duration = Duration::from_secs(60);

/// How often they are counted while nobody does, to find those that nobody serves.
const UNSERVED_INTERVAL: Duration = Duration::from_secs(60);

/// How long one wait for news of the store lasts at most: a stop comes in between.
const WATCH_WAIT: Duration = Duration::from_millis(500);

/// Most names of tools that are remembered; the target's own are far fewer.
const FUNCTIONS_MAX: usize = 10_000;

/// What a runner is told to do.
#[derive(Clone, Debug)]
pub struct Config {
    /// The front's, as in logs.
    pub name: Arc<str>,
    pub lanes: Lanes,
    /// Most jobs at a time; none: as many as the pool has slots.
    pub slots_max: Option<usize>,
    pub lease: Duration,
    pub keep: Keep,
}

/// Counts since the start, and what is so now.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Stats {
    pub running: usize,
    pub completed: u64,
    /// Failed, to run again.
    pub retried: u64,
    /// Snoozed, or put back unharmed.
    pub postponed: u64,
    pub cancelled: u64,
    pub dead: u64,
    /// Ended when its lease had lapsed.
    pub lost: u64,
    /// Why the store cannot be had now.
    pub reason: Option<String>,
}

impl Stats {
    /// One more attempt has ended.
    fn count(&mut self, settled: &Settled) {
        let count = match settled.state {
            State::Completed => &mut self.completed,
            State::Cancelled => &mut self.cancelled,
            State::Dead => &mut self.dead,
            State::Scheduled if settled.error.is_some() => &mut self.retried,
            _ => &mut self.postponed,
        };
        *count += 1;
    }
}

/// What the loop is told.
enum Note {
    Answered { key: usize, outcome: Outcome },
    Said { key: usize, payload: Payload },
    Arrived,
    Quiet(bool),
}

/// Where others leave notes for the loop.
#[derive(Default)]
struct Inbox {
    notes: Mutex<Vec<Note>>,
    came: Condvar,
}

impl Inbox {
    fn put(&self, note: Note) {
        let mut notes = self.notes.lock();
        notes.push(note);
        if notes.len() == 1 {
            self.came.notify_one();
        }
    }

    fn take(&self) -> Vec<Note> {
        std::mem::take(&mut *self.notes.lock())
    }

    fn wait(&self, until: Instant) -> Vec<Note> {
        let (mut notes, _) = self.came.wait_until(self.notes.lock(), until, |notes| !notes.is_empty());
        std::mem::take(&mut *notes)
    }
}

/// The queues as they were counted last.
#[derive(Default)]
struct Counts {
    queues: Vec<QueueStats>,
    counted_at: Option<Instant>,
    looked_at: Option<Instant>,
    unserved: Unserved,
}

impl Counts {
    fn is_due(&self, now: Instant) -> bool {
        let within = |at: Option<Instant>, time: Duration| at.is_some_and(|at| now < at + time);
        let interval = if within(self.looked_at, LOOKED_FOR) { COUNT_INTERVAL } else { UNSERVED_INTERVAL };
        !within(self.counted_at, interval)
    }
}

struct Shared {
    store: Arc<dyn Store>,
    config: Config,
    inbox: Arc<Inbox>,
    stats: Mutex<Stats>,
    counts: Mutex<Counts>,
    /// Once it stops: until when it waits for what runs.
    stopping: Mutex<Option<Instant>>,
    stopped: Condvar,
    telemetry: Emitter,
}

/// A running front of jobs.
pub struct Runs {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Runs {
    /// Claims as soon as the pool has slots. Fails when no thread can be had.
    pub fn start(store: Arc<dyn Store>, pool: &Arc<Pool>, config: Config) -> io::Result<Runs> {
        let shared = Arc::new(Shared {
            store,
            config,
            inbox: Arc::default(),
            stats: Mutex::default(),
            counts: Mutex::default(),
            stopping: Mutex::new(None),
            stopped: Condvar::new(),
            telemetry: pool.telemetry.clone(),
        });
        let runs = Runs { shared: shared.clone(), threads: Mutex::default() };
        let (of_loop, pool) = (shared.clone(), pool.clone());
        runs.spawn("clutch-jobs", move || Loop::new(of_loop, pool).run())?;
        let of_upkeep = shared.clone();
        runs.spawn("clutch-upkeep", move || of_upkeep.look_after())?;
        runs.spawn("clutch-watch", move || shared.watch())?;
        Ok(runs)
    }

    fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let run = move || {
            sys::block_signals();
            run();
        };
        self.threads.lock().push(std::thread::Builder::new().name(name.to_owned()).spawn(run)?);
        Ok(())
    }

    pub fn stats(&self) -> Stats {
        self.shared.stats.lock().clone()
    }

    pub fn name(&self) -> &str {
        &self.shared.config.name
    }

    /// Of the store, without secrets.
    pub fn store(&self) -> &str {
        self.shared.store.name()
    }

    /// The queues of the store, as of some seconds ago: to count them may take long.
    pub fn queues(&self) -> Vec<QueueStats> {
        let mut counts = self.shared.counts.lock();
        counts.looked_at = Some(Instant::now());
        counts.queues.clone()
    }

    /// The queues that it takes jobs from.
    pub fn served(&self) -> impl Iterator<Item = &str> {
        self.shared.config.lanes.queues.iter().map(|(name, _)| name.as_str())
    }

    /// Claims no more, or again. What runs goes on.
    pub fn set_quiet(&self, quiet: bool) {
        self.shared.inbox.put(Note::Quiet(quiet));
    }

    /// Claims no more, settles what has ended, and waits until nothing runs: for at most so long. What is left then is
    /// another runner's when the lease lapses. A second stop has no effect.
    pub fn stop(&self, at_most: Duration) {
        *self.shared.stopping.lock() = Some(Instant::now() + at_most);
        self.shared.stopped.notify_all();
        self.set_quiet(true);
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // A panic of it was told when it happened.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn stops(&self) -> bool {
        self.stopping.lock().is_some()
    }

    /// Waits until a time, or the stop.
    fn pause(&self, until: Instant) {
        drop(self.stopped.wait_until(self.stopping.lock(), until, Option::is_some));
    }

    fn failed(&self, error: &StoreError) {
        let reason = error.to_string();
        if self.stats.lock().reason.replace(reason.clone()).is_none() {
            let (front, store) = (self.config.name.clone(), self.store.name().to_owned());
            self.telemetry.emit(|pool| Event::StoreLost { pool, front, store, reason });
        }
    }

    fn works(&self) {
        if self.stats.lock().reason.take().is_some() {
            let (front, store) = (self.config.name.clone(), self.store.name().to_owned());
            self.telemetry.emit(|pool| Event::StoreRecovered { pool, front, store });
        }
    }

    fn tell(&self, upkeep: &Upkeep) {
        if upkeep.rescued > 0 {
            let (front, jobs, dead) = (self.config.name.clone(), upkeep.rescued, upkeep.buried);
            self.telemetry.emit(|pool| Event::JobsRescued { pool, front, jobs, dead });
        }
    }

    fn watch(&self) {
        let mut watch = None;
        while !self.stops() {
            let waited = match &mut watch {
                None => match self.store.watch() {
                    Ok(made) => {
                        watch = Some(made);
                        Ok(true)
                    }
                    Err(error) => Err(io::Error::other(error)),
                },
                Some(watch) => watch.wait(WATCH_WAIT),
            };
            match waited {
                Ok(true) => self.inbox.put(Note::Arrived),
                Ok(false) => {}
                Err(_) => {
                    watch = None;
                    self.pause(Instant::now() + WATCH_WAIT);
                }
            }
        }
    }

    fn count_queues(&self) {
        let now = Instant::now();
        if self.counts.lock().is_due(now)
            && let Ok(queues) = self.store.queues()
        {
            let mut counts = self.counts.lock();
            for (queue, waited_s) in counts.unserved.found(&queues, &self.config.lanes, job::now()) {
                let (front, name, available) = (self.config.name.clone(), queue.name.clone(), queue.available);
                self.telemetry.emit(|pool| Event::QueueUnserved { pool, front, queue: name, available, waited_s });
            }
            (counts.queues, counts.counted_at) = (queues, Some(now));
        }
    }

    fn look_after(&self) {
        let runner = new_runner(self.config.lease);
        let mut machine = Maintenance::new(self.config.lease, Instant::now());
        while !self.stops() {
            self.count_queues();
            let event = match machine.step(Instant::now()) {
                maintenance::Step::Lead => self.store.lead(&runner, job::now()).map(maintenance::Event::Leads),
                maintenance::Step::Look => {
                    let now = job::now();
                    let looked = self.store.look_after(&self.config.keep, maintenance::BATCH, now);
                    looked.inspect(|upkeep| self.tell(upkeep)).map(|upkeep| maintenance::Event::Looked { upkeep, now })
                }
                maintenance::Step::Wait(until) => {
                    self.pause(until.min(Instant::now() + COUNT_INTERVAL));
                    continue;
                }
            };
            machine.on(event.unwrap_or(maintenance::Event::Failed), Instant::now());
        }
        // The next leader comes at once; where the store cannot be had, when the lease ends.
        let _ = self.store.leave(&runner, job::now());
    }
}

/// With a name unlike any other's.
fn new_runner(lease: Duration) -> Runner {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy().into_owned();
    let pid = std::process::id();
    Runner::new(format!("{host}:{pid}:{:016x}", u64::from_ne_bytes(random::bytes())), lease)
}

/// One job that runs.
struct RunningJob {
    job: Claimed,
    id: WorkId,
    /// Its runner's lease has lapsed: it is another's.
    is_dropped: bool,
    is_cancelled: bool,
}

struct Loop {
    shared: Arc<Shared>,
    batch: Arc<Batch>,
    runner: Runner,
    machine: Fetcher,
    functions: HashMap<String, FunctionId>,
    running: HashMap<usize, RunningJob>,
    next_key: usize,
    /// What jobs that run have noted, by their keys.
    noted: HashMap<usize, Noted>,
    settled: Vec<Settled>,
    slots_at: Instant,
}

impl Loop {
    fn new(shared: Arc<Shared>, pool: Arc<Pool>) -> Loop {
        let now = Instant::now();
        Loop {
            batch: Batch::new(&pool),
            runner: new_runner(shared.config.lease),
            machine: Fetcher::new(shared.config.lease, now),
            functions: HashMap::new(),
            running: HashMap::new(),
            next_key: 0,
            noted: HashMap::new(),
            settled: Vec::new(),
            slots_at: now,
            shared,
        }
    }

    fn run(mut self) {
        loop {
            self.count_slots();
            let now = Instant::now();
            match self.machine.step(now) {
                fetcher::Step::Round { limit } => self.round(limit),
                fetcher::Step::Renew => self.renew(),
                fetcher::Step::Wait(until) => {
                    if self.is_over() {
                        break;
                    }
                    let notes = self.shared.inbox.wait(until.min(self.slots_at));
                    self.read(notes);
                    continue;
                }
            }
            let notes = self.shared.inbox.take();
            self.read(notes);
        }
        let _ = self.shared.store.leave(&self.runner, job::now());
    }

    /// It stops, and nothing is left that it could do.
    fn is_over(&self) -> bool {
        let stopping = *self.shared.stopping.lock();
        stopping.is_some_and(|until| self.machine.held() == 0 || Instant::now() >= until)
    }

    fn count_slots(&mut self) {
        let now = Instant::now();
        if now < self.slots_at {
            return;
        }
        self.slots_at = now + SLOTS_INTERVAL;
        let stats = self.batch.pool().stats();
        // A pool that drains or cannot start its workers would give all jobs back.
        let slots = if stats.state == Health::Ready { stats.slots } else { 0 };
        let slots = self.shared.config.slots_max.map_or(slots, |most| most.min(slots));
        self.machine.on(fetcher::Event::Slots(slots), now);
    }

    fn read(&mut self, notes: Vec<Note>) {
        let now = Instant::now();
        for note in notes {
            match note {
                Note::Arrived => self.machine.on(fetcher::Event::Arrived, now),
                Note::Quiet(quiet) => self.machine.on(fetcher::Event::Quiet(quiet), now),
                Note::Answered { key, outcome } => self.answered(key, outcome),
                Note::Said { key, payload } => self.said(key, &payload),
            }
        }
    }

    fn round(&mut self, limit: usize) {
        let queues = if limit > 0 { self.shared.config.lanes.order(random::fraction) } else { Vec::new() };
        let want = Want { limit, queues };
        let noted = std::mem::take(&mut self.noted);
        let report = Report { noted: noted.values().cloned().collect(), settled: std::mem::take(&mut self.settled) };
        self.runner.round += 1;
        let round = self.shared.store.round(&self.runner, &report, &want, job::now());
        let now = Instant::now();
        match round {
            Ok(round) => {
                self.shared.works();
                let (claimed, settled) = (round.claimed.len(), report.settled.len());
                self.machine.on(fetcher::Event::Round { asked: limit, claimed, settled }, now);
                if round.has_no_lease {
                    self.machine.on(fetcher::Event::Unleased, now);
                }
                if let Some(wait) = round.again_in {
                    self.machine.on(fetcher::Event::HeldBack(now + wait), now);
                }
                let mut stats = self.shared.stats.lock();
                stats.lost += round.lost.len() as u64;
                drop(stats);
                for job in round.claimed {
                    self.begin(job);
                }
                self.batch.flush();
                self.shared.stats.lock().running = self.running.len();
            }
            Err(error) => {
                (self.noted, self.settled) = (noted, report.settled);
                self.failed(&error);
            }
        }
    }

    fn failed(&mut self, error: &StoreError) {
        self.shared.failed(error);
        self.machine.on(fetcher::Event::Failed, Instant::now());
    }

    fn renew(&mut self) {
        let running = self.running.values().filter(|one| !one.is_dropped).map(|one| one.job.id.clone());
        let held: Vec<JobId> = running.chain(self.settled.iter().map(|settled| settled.id.clone())).collect();
        let now = Instant::now();
        match self.shared.store.renew(&self.runner, &held, job::now()) {
            Ok(Some(renewed)) => {
                self.shared.works();
                self.machine.on(fetcher::Event::Renewed, now);
                self.stop_running(&renewed);
            }
            Ok(None) => {
                self.shared.works();
                if !held.is_empty() {
                    let (front, jobs) = (self.shared.config.name.clone(), held.len());
                    self.shared.telemetry.emit(|pool| Event::JobsLapsed { pool, front, jobs });
                }
                self.runner = new_runner(self.shared.config.lease);
                self.settled.clear();
                self.noted.clear();
                self.machine.on(fetcher::Event::Lapsed, now);
                for one in self.running.values_mut() {
                    one.is_dropped = true;
                    self.batch.pool().cancel(one.id);
                }
            }
            Err(error) => self.failed(&error),
        }
    }

    /// Tells those that were cancelled, and those that are another's.
    fn stop_running(&mut self, renewed: &Renewed) {
        for one in self.running.values_mut().filter(|one| !one.is_dropped) {
            one.is_cancelled |= renewed.cancelled.contains(&one.job.id);
            let is_lost = renewed.lost.contains(&one.job.id);
            if is_lost {
                one.is_dropped = true;
            }
            if is_lost || one.is_cancelled {
                self.batch.pool().cancel(one.id);
            }
        }
    }

    fn begin(&mut self, job: Claimed) {
        let key = self.next_key;
        self.next_key += 1;
        let reply = Arc::new(answer::JobReply { inbox: self.shared.inbox.clone(), key });
        let submitted =
            self.function(&job.tool).and_then(|function| work::of(&job, function, self.batch.pool(), reply));
        match submitted {
            Ok(work) => {
                let id = self.batch.submit(work, true);
                self.running.insert(key, RunningJob { job, id, is_dropped: false, is_cancelled: false });
            }
            Err(ending) => {
                self.machine.on(fetcher::Event::Ended, Instant::now());
                self.settle(&job, ending);
            }
        }
    }

    fn function(&mut self, tool: &str) -> Result<FunctionId, Ending> {
        if let Some(function) = self.functions.get(tool) {
            return Ok(*function);
        }
        if self.functions.len() >= FUNCTIONS_MAX {
            self.functions.clear();
        }
        let function = self.batch.pool().function(clutch_wire::Codec::Name, tool.as_bytes(), tool);
        self.functions.insert(tool.to_owned(), function);
        Ok(function)
    }

    fn answered(&mut self, key: usize, outcome: Outcome) {
        let Some(one) = self.running.remove(&key) else { return };
        self.shared.stats.lock().running = self.running.len();
        if one.is_dropped {
            return self.machine.on(fetcher::Event::Dropped, Instant::now());
        }
        self.machine.on(fetcher::Event::Ended, Instant::now());
        if matches!(outcome, Outcome::Refused(_)) {
            self.machine.on(fetcher::Event::Refused, Instant::now());
        }
        let ending = if one.is_cancelled { Ending::Cancelled } else { answer::ending(&one.job, outcome, job::now()) };
        self.settle(&one.job, ending);
    }

    fn settle(&mut self, job: &Claimed, ending: Ending) {
        let settled = settle(job, ending, job::now(), random::fraction());
        self.shared.stats.lock().count(&settled);
        if let Some(error) = &settled.error {
            let front = self.shared.config.name.clone();
            self.shared.telemetry.emit(|pool| answer::failed_event(pool, front, job, &settled, error));
        }
        self.settled.push(settled);
    }

    /// A job says something while it runs. Of what it says often, the last is kept.
    fn said(&mut self, key: usize, payload: &Payload) {
        let Some(one) = self.running.get(&key).filter(|one| !one.is_dropped) else { return };
        let noted = self.noted.entry(key).or_insert_with(|| Noted {
            id: one.job.id.clone(),
            attempt: one.job.attempt,
            ..Noted::default()
        });
        answer::note(payload, noted);
        self.machine.on(fetcher::Event::Noted, Instant::now());
    }
}
