//! Runs the jobs of one store in one pool: the thin loops around [`Fetcher`] and
//! [`Maintenance`](crate::maintenance::Maintenance).
//!
//! Four threads: one claims, submits and settles; one looks after the store; one waits for news of it; one counts its
//! queues. Answers of the pool come on its own threads and only put a note in the inbox. A thread that panics is started
//! again, and readiness says so.

mod answer;
mod functions;
pub mod inline;
mod missing;
mod shared;
mod threads;
mod unserved;
mod work;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clutch_pool::pool::state::Places;
use clutch_pool::pool::{Batch, Health, Permits, Pool};
use clutch_pool::telemetry::Durations;
use clutch_pool::work::{FunctionId, Outcome, Refusal, WorkId};
use serde::Serialize;

use self::functions::Functions;
use self::missing::{Missed, Missing, PAUSE_MS};
use self::shared::{Inbox, News, Note, Shared};
use self::threads::Threads;
use crate::cron::CronEntry;
use crate::ends::{Cell, Ends};
use crate::facts::{JobsLapsed, JobsUnsettled, ToolMissing};
use crate::fetcher::{self, Fetcher, Lanes};
use crate::job::{Claimed, Ending, JobId, Millis, Settled, State, settle};
use crate::random;
use crate::store::{Keep, Noted, QueueStats, Renewed, Report, Runner, Store, Want};

/// Interval at which the pool's health and what has not begun are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// A job that has not begun for so long is put back for others: work of other fronts has come before it, or the jobs before
/// it have turned out long.
const PATIENCE: Duration = Duration::from_millis(200);

/// Maximum wait of a stop beyond its time, for the store to take the runner's leave.
const LEAVE_WAIT: Duration = Duration::from_millis(500);

const NOT_BEGUN: &str = "it could not begin here: other work came before it";

/// Names of its threads, and of what the loop does beside rounds.
const LOOP: &str = "clutch-jobs";
const RENEWAL: &str = "clutch-renewal";
const UPKEEP: &str = "clutch-upkeep";
const WATCH: &str = "clutch-watch";
const COUNTS: &str = "clutch-counts";

/// Most names of tools in figures, and the name of all others there.
const TOOLS_MAX: usize = 1000;
const OTHER_TOOLS: &str = "other";

/// Name, for workers that run any tool, of all that they do not have and that have no number of their own.
const ANY_TOOL: &str = "?";

/// Configuration of a runner.
#[derive(Clone, Debug)]
pub struct Config {
    /// The front's, as in logs.
    pub name: Arc<str>,
    pub lanes: Lanes,
    /// Most jobs at a time; none: as many as the pool has slots.
    pub slots_max: Option<usize>,
    pub lease: Duration,
    pub keep: Keep,
    /// The periodic jobs of the store that this program knows.
    pub cron: Vec<CronEntry>,
    /// Where ends are kept that the store has not been told of: a folder of this user alone. None: nowhere, and then no job
    /// is claimed ahead.
    pub folder: Option<PathBuf>,
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
    /// Have ended, which the store has not been told.
    #[serde(skip)]
    pub unsettled: usize,
    #[serde(skip)]
    pub tools: BTreeMap<String, ToolStats>,
    /// By queue, how long jobs that were due had waited when they began.
    #[serde(skip)]
    pub waits: BTreeMap<String, Durations>,
    /// By entry of periodic jobs, ticks that made no job, since the one of an earlier tick had not ended.
    #[serde(skip)]
    pub skipped: BTreeMap<String, u64>,
    /// Why nothing can be claimed now: mostly, that the store cannot be had.
    pub reason: Option<String>,
    /// What the store has set aside since somebody has damaged it; the rest goes on.
    pub damaged: Option<String>,
    /// That this machine's clock is not that of the store.
    pub clock: Option<String>,
}

impl Stats {
    /// Counts the end of an attempt.
    fn count(&mut self, settled: &Settled) {
        let count = match outcome_of(settled) {
            "completed" => &mut self.completed,
            "cancelled" => &mut self.cancelled,
            "dead" => &mut self.dead,
            "retried" => &mut self.retried,
            _ => &mut self.postponed,
        };
        *count += 1;
    }
}

/// What has become of a job by an attempt, as figures have it.
fn outcome_of(settled: &Settled) -> &'static str {
    match settled.state {
        State::Completed => "completed",
        State::Cancelled => "cancelled",
        State::Dead => "dead",
        State::Scheduled if settled.error.is_some() => "retried",
        State::Waiting | State::Scheduled | State::Available | State::Running => "postponed",
    }
}

/// Counts of the attempts of one tool.
#[derive(Clone, Debug, Default)]
pub struct ToolStats {
    /// By what has become of the job.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Attempts that failed, by the kind of their error.
    pub failures: BTreeMap<String, u64>,
    /// How long attempts ran.
    pub runs: Durations,
}

impl ToolStats {
    fn count(&mut self, settled: &Settled) {
        *self.outcomes.entry(outcome_of(settled)).or_default() += 1;
        if let Some(error) = &settled.error {
            *self.failures.entry(error.kind.clone()).or_default() += 1;
        }
    }
}

/// A running front of jobs.
pub struct Runs {
    shared: Arc<Shared>,
    threads: Arc<Threads>,
}

impl Runs {
    /// Claims as soon as the pool has slots. Fails when no thread can be had.
    pub fn start(store: Arc<dyn Store>, pool: &Arc<Pool>, config: Config) -> io::Result<Runs> {
        let runs =
            Runs { shared: Arc::new(Shared::new(store, config, pool.telemetry().clone())), threads: Arc::default() };
        let pool = pool.clone();
        runs.spawn(LOOP, move |shared| Loop::new(shared.clone(), &pool).run())?;
        runs.spawn(UPKEEP, |shared| shared.look_after())?;
        runs.spawn(WATCH, |shared| shared.watch())?;
        runs.spawn(COUNTS, |shared| shared.count())?;
        Ok(runs)
    }

    fn spawn(&self, name: &'static str, run: impl Fn(&Arc<Shared>) + Send + 'static) -> io::Result<()> {
        let shared = self.shared.clone();
        self.threads.spawn(name, move || shared.keep_running(name, || run(&shared)))
    }

    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    pub fn name(&self) -> &str {
        &self.shared.config.name
    }

    /// Returns the name of the store, without secrets.
    pub fn store(&self) -> &str {
        self.shared.store.name()
    }

    /// Returns the queues of the store, as of some seconds ago. The first look waits a moment until they are counted.
    pub fn queues(&self) -> Vec<QueueStats> {
        self.shared.queues()
    }

    /// The queues that it takes jobs from.
    pub fn served(&self) -> impl Iterator<Item = &str> {
        self.shared.config.lanes.queues.iter().map(|(name, _)| name.as_str())
    }

    /// Claims no more, or again. What runs goes on.
    pub fn set_quiet(&self, quiet: bool) {
        self.shared.inbox.put(Note::Quiet(quiet));
    }

    /// Claims no more, settles what has ended, and waits until nothing runs: for at most so long, and half a second
    /// more until the store has heard that its jobs are free. However long the store itself takes, this returns then.
    /// What is left is another runner's when the lease lapses. A second stop can only hurry the first.
    pub fn stop(&self, at_most: Duration) {
        let until = Instant::now() + at_most;
        self.shared.stop(until);
        self.set_quiet(true);
        let has_ended = self.threads.wait(until + LEAVE_WAIT);
        let stats = self.stats();
        let jobs = stats.running + stats.unsettled;
        if jobs > 0 && (!has_ended || stats.reason.is_some()) {
            let front = self.shared.config.name.clone();
            self.shared.telemetry.emit(|| JobsUnsettled { front, jobs });
        }
    }
}

/// With a name unlike any other's.
fn new_runner(lease: Duration) -> Runner {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy().into_owned();
    let pid = std::process::id();
    Runner::new(format!("{host}:{pid}:{:016x}", u64::from_ne_bytes(random::bytes())), lease)
}

/// Whether the pool's target has this tool. None: it is not known what it has.
fn has_tool(pool: &Pool, tool: &str) -> Option<bool> {
    let status = pool.status();
    Some(status.image.get("tools")?.as_array()?.iter().any(|known| known == tool))
}

/// A running job.
struct RunningJob {
    job: Claimed,
    id: WorkId,
    /// In the file of ends.
    cell: Option<Cell>,
    since: Instant,
    /// True once it was found to have begun.
    has_begun: bool,
    /// True once it was taken back from the pool, before it had begun.
    is_put_back: bool,
    /// True once the runner's lease has expired: the job is another's.
    is_dropped: bool,
    is_cancelled: bool,
}

struct Loop {
    shared: Arc<Shared>,
    batch: Arc<Batch>,
    permits: Permits,
    backlog_since: Option<Instant>,
    /// Most jobs at a time.
    slots_max: usize,
    runner: Runner,
    machine: Fetcher,
    functions: Functions,
    missing: Missing,
    running: HashMap<usize, RunningJob>,
    /// Notes of running jobs, by their keys.
    noted: HashMap<usize, Noted>,
    settled: Vec<Settled>,
    ends: Option<Ends>,
    /// Cells of those that are settled.
    cells: Vec<Cell>,
    look_at: Instant,
}

impl Drop for Loop {
    /// After a panic nobody settles what runs: it is stopped, since others run it again when the lease has lapsed.
    fn drop(&mut self) {
        if std::thread::panicking() {
            for one in self.running.values() {
                self.batch.pool().cancel(one.id);
            }
        }
    }
}

impl Loop {
    fn new(shared: Arc<Shared>, pool: &Arc<Pool>) -> Loop {
        let (now, runner) = (Instant::now(), new_runner(shared.config.lease));
        let (batch, inbox) = (Batch::new(pool), shared.inbox.clone());
        Loop {
            permits: Permits::open(&batch, move || inbox.put(Note::Room)),
            batch,
            backlog_since: None,
            slots_max: 0,
            ends: shared.ends_of(&runner),
            runner,
            machine: Fetcher::new(shared.store.renewal(shared.config.lease), now),
            functions: Functions::default(),
            missing: Missing::new(now),
            running: HashMap::new(),
            noted: HashMap::new(),
            settled: Vec::new(),
            cells: Vec::new(),
            look_at: now,
            shared,
        }
    }

    fn run(mut self) {
        while !self.is_over() {
            self.look_at_pool();
            let now = Instant::now();
            let news = match self.machine.step(now) {
                fetcher::Step::Round { limit } => {
                    self.round(limit);
                    self.shared.inbox.take()
                }
                fetcher::Step::Renew => {
                    self.renew();
                    self.shared.inbox.take()
                }
                fetcher::Step::Wait(until) => self.shared.inbox.wait(until.min(self.look_at)),
            };
            self.read(news);
        }
        // What still runs can be another's at once. A store that did not answer is not waited for: its lease lapses.
        if !self.machine.is_failing() {
            let _ = self.shared.store.leave(&self.runner);
        }
    }

    /// Returns whether it stops and has nothing left to do.
    fn is_over(&self) -> bool {
        self.shared.stopping().is_some_and(|until| self.machine.held() == 0 || Instant::now() >= until)
    }

    fn look_at_pool(&mut self) {
        let now = Instant::now();
        if now >= self.look_at {
            self.look_at = now + LOOK_INTERVAL;
            // A pool that drains or cannot start its workers would give all jobs back.
            let is_ready = self.batch.pool().stats().state == Health::Ready;
            self.slots_max = if is_ready { self.shared.config.slots_max.unwrap_or(usize::MAX) } else { 0 };
            self.put_back(now);
            if !self.machine.wants_more() {
                self.give_way(now);
            }
        }
        let places = self.permits.places();
        // A kill would make all of them run again that have ended and are not settled, if their ends were nowhere. And of a
        // front that may have fewer jobs at a time than there are slots, the pool would run those ahead at once.
        let is_ahead = self.ends.is_some() && places.slots <= self.slots_max;
        let ahead = if is_ahead { places.ahead } else { 0 };
        let places = Places { slots: places.slots.min(self.slots_max), ahead };
        self.machine.on(fetcher::Event::Places { all: places.all(), slots: places.slots }, now);
        let backlog_since = self.machine.backlog_since();
        if self.backlog_since != backlog_since {
            self.backlog_since = backlog_since;
            self.permits.set_backlog(backlog_since);
        }
    }

    /// Gives way to other fronts. Nobody tells of room then: it asks for permits again when it wants some.
    fn give_way(&mut self, now: Instant) {
        self.permits.give_way();
        self.machine.on(fetcher::Event::Room, now);
    }

    /// Takes jobs back from the pool that have waited there for too long.
    fn put_back(&mut self, now: Instant) {
        let waits = |one: &&mut RunningJob| !one.has_begun && !one.is_dropped && now >= one.since + PATIENCE;
        for one in self.running.values_mut().filter(waits) {
            one.is_put_back = self.batch.pool().put_back(one.id);
            one.has_begun = !one.is_put_back;
        }
    }

    fn read(&mut self, news: News) {
        let now = Instant::now();
        // What a job said comes before its end.
        for (key, said) in news.said {
            self.said(key, said);
        }
        for note in news.notes {
            match note {
                Note::Arrived => self.machine.on(fetcher::Event::Arrived, now),
                Note::Room => self.machine.on(fetcher::Event::Room, now),
                Note::Quiet(quiet) => self.machine.on(fetcher::Event::Quiet(quiet), now),
                Note::Answered { key, outcome, ran } => self.answered(key, outcome, ran),
            }
        }
    }

    fn round(&mut self, wanted: usize) {
        let limit = self.permits.take(wanted);
        if limit == 0 && wanted > 0 {
            self.machine.on(fetcher::Event::Crowded, Instant::now());
            if self.settled.is_empty() && self.noted.is_empty() {
                return;
            }
        }
        let queues = if limit > 0 { self.shared.config.lanes.order(random::fraction) } else { Vec::new() };
        let want = Want { limit, queues };
        let noted = std::mem::take(&mut self.noted);
        let (settled, keep) = (std::mem::take(&mut self.settled), Some(self.shared.config.keep));
        let cells = std::mem::take(&mut self.cells);
        let report = Report { noted: noted.values().cloned().collect(), settled, keep };
        self.runner.round += 1;
        let round = self.shared.store.round(&self.runner, &report, &want, self.shared.store.now());
        let now = Instant::now();
        self.permits.give_back(limit - round.as_ref().map_or(0, |round| round.claimed.len()).min(limit));
        match round {
            Ok(round) => {
                self.shared.works(LOOP);
                self.shared.found_damaged(&round.damaged);
                if let Some(ends) = &mut self.ends {
                    cells.into_iter().for_each(|cell| ends.forget(cell));
                }
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
                stats.unsettled = 0;
                drop(stats);
                for job in round.claimed {
                    self.begin(job);
                }
                self.batch.flush();
                self.shared.stats.lock().running = self.running.len();
            }
            Err(error) => {
                (self.noted, self.settled, self.cells) = (noted, report.settled, cells);
                self.shared.failed(LOOP, error.to_string());
                self.machine.on(fetcher::Event::Failed { is_round: true }, now);
                // Others are not to wait for one that waits for its store.
                self.give_way(now);
            }
        }
    }

    fn renew(&mut self) {
        let running = self.running.values().filter(|one| !one.is_dropped).map(|one| one.job.id.clone());
        let held: Vec<JobId> = running.chain(self.settled.iter().map(|settled| settled.id.clone())).collect();
        let now = Instant::now();
        let renewed = self.shared.store.renew(&self.runner, &held, self.shared.store.now());
        match renewed {
            Ok(Some(renewed)) => {
                self.shared.works(RENEWAL);
                self.machine.on(fetcher::Event::Renewed, now);
                self.stop_running(&renewed);
            }
            Ok(None) => {
                self.shared.works(RENEWAL);
                if !held.is_empty() {
                    let (front, jobs) = (self.shared.config.name.clone(), held.len());
                    self.shared.telemetry.emit(|| JobsLapsed { front, jobs });
                }
                self.runner = new_runner(self.shared.config.lease);
                let mut stats = self.shared.stats.lock();
                stats.lost += self.settled.len() as u64;
                stats.unsettled = 0;
                drop(stats);
                self.settled.clear();
                self.noted.clear();
                // The file of the runner that is no more goes with it.
                (self.ends, self.cells) = (self.shared.ends_of(&self.runner), Vec::new());
                self.machine.on(fetcher::Event::Lapsed, now);
                for one in self.running.values_mut() {
                    (one.is_dropped, one.cell) = (true, None);
                    self.batch.pool().cancel(one.id);
                }
            }
            Err(error) => {
                self.shared.failed(RENEWAL, error.to_string());
                self.machine.on(fetcher::Event::Failed { is_round: false }, now);
                self.give_way(now);
            }
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
        let key = self.shared.next_key.fetch_add(1, Ordering::Relaxed);
        let reply = Arc::new(answer::JobReply {
            inbox: self.shared.inbox.clone(),
            key,
            job: job.id.clone(),
            ran_ns: AtomicU64::new(0),
        });
        let cell = self.ends.as_mut().and_then(|ends| ends.note(&job.id, job.attempt, job.result_ms));
        let mark = self.ends.as_ref().zip(cell).map(|(ends, cell)| ends.mark(cell));
        let now = self.shared.store.now();
        let submitted =
            self.function(&job, now).and_then(|function| work::of(&job, function, mark, self.batch.pool(), reply, now));
        match submitted {
            Ok(work) => {
                let waited = (now - job.due_at).max(0) as f64 / 1000.0;
                self.shared.stats.lock().waits.entry(job.queue.clone()).or_default().add(waited);
                let id = self.permits.submit(work);
                let running = RunningJob {
                    job,
                    id,
                    cell,
                    since: Instant::now(),
                    has_begun: false,
                    is_put_back: false,
                    is_dropped: false,
                    is_cancelled: false,
                };
                self.running.insert(key, running);
            }
            Err(ending) => {
                self.permits.give_back(1);
                self.cells.extend(cell);
                let ending = self.put_off_unknown(&job, ending);
                self.settle(&job, ending);
            }
        }
    }

    fn function(&mut self, job: &Claimed, now: Millis) -> Result<FunctionId, Ending> {
        let (pool, tool) = (self.batch.pool(), &*job.tool);
        let is_known = || has_tool(pool, tool) == Some(true);
        let number = |name: &str| pool.function(clutch_wire::Codec::Name, name.as_bytes(), name);
        let own = self.functions.of(tool, is_known, || number(tool));
        let found = match own {
            None if self.shared.store.runs_any_tool() => self.functions.of(ANY_TOOL, || true, || number(ANY_TOOL)),
            own => own,
        };
        found.ok_or_else(|| answer::unknown_tool(job, now))
    }

    fn answered(&mut self, key: usize, outcome: Outcome, ran: Option<Duration>) {
        let Some(one) = self.running.remove(&key) else { return };
        self.shared.stats.lock().running = self.running.len();
        if one.is_dropped {
            self.cells.extend(one.cell);
            return self.machine.on(fetcher::Event::Dropped, Instant::now());
        }
        let ending = match outcome {
            _ if one.is_cancelled => Ending::Cancelled,
            Outcome::Refused(Refusal::Cancelled) if one.is_put_back => {
                Ending::NotBegun { reason: NOT_BEGUN.to_owned() }
            }
            outcome => answer::ending(&one.job, outcome, self.shared.store.now()),
        };
        self.cells.extend(one.cell);
        let ending = self.put_off_unknown(&one.job, ending);
        if let Some(ran) = ran.filter(|_| !matches!(ending, Ending::PutOff { .. })) {
            let label = self.label_of(&one.job.tool);
            self.shared.stats.lock().tools.entry(label).or_default().runs.add(ran.as_secs_f64());
        }
        self.settle(&one.job, ending);
    }

    /// The name of a tool in figures: those that the target has, since jobs come from outside. Where it is not known what
    /// the target has, the first names.
    fn label_of(&self, tool: &str) -> String {
        let (was_seen, seen) = {
            let tools = &self.shared.stats.lock().tools;
            (tools.contains_key(tool), tools.len())
        };
        let is_known = || has_tool(self.batch.pool(), tool).unwrap_or(seen < TOOLS_MAX);
        if was_seen || is_known() { tool.to_owned() } else { OTHER_TOOLS.to_owned() }
    }

    /// A tool that these workers do not have is no fault of the job: while new code is rolled out, others have it.
    fn put_off_unknown(&mut self, job: &Claimed, ending: Ending) -> Ending {
        let Ending::Failed(error) = ending else { return ending };
        if error.kind != answer::NO_SUCH_TOOL {
            return Ending::Failed(error);
        }
        match self.missing.missed(&job.tool, error.at - job.created_at, Instant::now()) {
            Missed::Fail => return Ending::Failed(error),
            Missed::Wait { is_news: false } => {}
            Missed::Wait { is_news: true } => {
                let (front, tool, id) = (self.shared.config.name.clone(), job.tool.clone(), job.id.clone());
                self.shared.telemetry.emit(|| ToolMissing { front, tool, job: id, reason: error.message.clone() });
            }
        }
        Ending::PutOff { ms: PAUSE_MS, reason: error.message }
    }

    fn settle(&mut self, job: &Claimed, ending: Ending) {
        self.machine.on(fetcher::Event::Ended, Instant::now());
        // Not the job's fault: it is put back, and would be claimed again at once.
        if matches!(ending, Ending::CutOff { .. } | Ending::NotBegun { .. }) {
            self.machine.on(fetcher::Event::Refused, Instant::now());
        }
        let settled = settle(job, ending, self.shared.store.now(), random::fraction());
        let label = self.label_of(&job.tool);
        let mut stats = self.shared.stats.lock();
        stats.count(&settled);
        stats.tools.entry(label).or_default().count(&settled);
        stats.unsettled += 1;
        drop(stats);
        if let Some(error) = &settled.error {
            let front = self.shared.config.name.clone();
            self.shared.telemetry.emit(|| answer::failed_event(front, job, &settled, error));
        }
        self.settled.push(settled);
    }

    /// A job has said something while it runs. Of what it says often, the last is kept.
    fn said(&mut self, key: usize, said: Noted) {
        let Some(one) = self.running.get(&key).filter(|one| !one.is_dropped) else { return };
        let noted = self.noted.entry(key).or_default();
        (noted.id, noted.attempt) = (one.job.id.clone(), one.job.attempt);
        noted.checkpoint = said.checkpoint.or(noted.checkpoint.take());
        noted.progress = said.progress.or(noted.progress.take());
        self.machine.on(fetcher::Event::Noted, Instant::now());
    }
}
