//! The supervisor's decisions as a pure machine: who lives. No I/O, no clock, no wait.
//!
//! Worker states: Starting → Ready → Draining → Gone. A replacement is Ready before the old worker is told to drain.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

mod ladder;

use self::ladder::Stopping;
pub use self::ladder::stop_term;
use super::recycle::Recycling;
use crate::config::{PoolConfig, Shape};
use crate::pool::state::WorkerKey;
use crate::sys::{EndSignal, Fate};

/// First wait after a start that failed; doubled each time.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
/// Longest wait between attempts to start.
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// Workers (or zygotes) that die before they are ready, without saying why, before the pool is called failing.
const SILENT_DEATHS: u32 = 3;
/// How long the exit status of a worker whose link has ended may take to arrive.
const STATUS_WAIT: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Starting,
    Ready,
    Draining,
    /// Told to die; its end is awaited.
    Killed,
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Ready => "ready",
            State::Draining => "draining",
            State::Killed => "killed",
        }
    }
}

/// Why a worker is replaced, or goes without a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    Age,
    Calls,
    Stuck,
    Stopped,
}

impl Leave {
    pub fn as_str(self) -> &'static str {
        match self {
            Leave::Age => "age",
            Leave::Calls => "calls",
            Leave::Stuck => "stuck",
            Leave::Stopped => "stopped",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Worker {
    pub nr: u32,
    pub generation: u32,
    pub pid: Option<i32>,
    pub state: State,
    since: Instant,
    recycling: Recycling,
    /// To be drained as soon as its replacement is ready.
    leaving: Option<Leave>,
    replaces: Option<WorkerKey>,
    stopped_since: Option<Instant>,
    link_ended: Option<Instant>,
    /// Work in it was told to stop and has not.
    stuck: Option<String>,
    /// What has not ended by then is told with TERM.
    end_at: Option<Instant>,
    /// Was told with TERM: KILL follows.
    kill_at: Option<Instant>,
    /// What it said of a start that failed.
    said: Option<String>,
    /// Why Clutch ended it itself.
    cause: Option<String>,
}

impl Worker {
    /// Whether it counts towards the pool's size.
    pub fn is_live(&self) -> bool {
        matches!(self.state, State::Starting | State::Ready) && self.leaving.is_none()
    }

    fn end_by(&mut self, at: Instant) {
        self.end_at = Some(self.end_at.map_or(at, |before| before.min(at)));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zygote {
    Absent,
    Loading {
        since: Instant,
    },
    Up,
    /// Told to end.
    Ending,
}

#[derive(Debug)]
pub enum Event {
    /// `shape`: profile and numbers where the image's policy changed them.
    ZygoteUp {
        shape: Option<Shape>,
    },
    /// Loading failed; the reason is the user's to mend.
    ZygoteFailed(String),
    /// `signaled`: it could not say why.
    ZygoteGone {
        reason: String,
        signaled: bool,
    },
    Forked {
        worker: WorkerKey,
        pid: i32,
    },
    ForkFailed {
        worker: WorkerKey,
        reason: String,
    },
    WorkerReady {
        worker: WorkerKey,
    },
    StartFailed {
        worker: WorkerKey,
        reason: String,
    },
    Fate {
        worker: WorkerKey,
        fate: Fate,
    },
    LinkEnded {
        worker: WorkerKey,
    },
    Worn {
        worker: WorkerKey,
    },
    Drained {
        worker: WorkerKey,
    },
    /// Work in it was told to stop and has not.
    Stuck {
        worker: WorkerKey,
        cause: String,
    },
    /// `term`: what lies between TERM and KILL once the grace is over.
    Stop {
        grace: Duration,
        term: Duration,
    },
    /// The closed pool has no work left.
    Empty,
    Tick,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    StartZygote {
        generation: u32,
    },
    KillZygote,
    Fork {
        worker: WorkerKey,
        nr: u32,
    },
    /// Its slots take work from now on.
    Admit {
        worker: WorkerKey,
        calls: Option<u64>,
    },
    Hold {
        worker: WorkerKey,
        held: bool,
    },
    /// Gets no more work.
    Drain {
        worker: WorkerKey,
        reason: &'static str,
    },
    /// Has nothing left: told to end.
    End {
        worker: WorkerKey,
    },
    /// Its group is sent the signal.
    Kill {
        worker: WorkerKey,
        signal: EndSignal,
    },
    /// Its work is answered; `fate` none: nobody could tell.
    Gone {
        worker: WorkerKey,
        fate: Option<Fate>,
        record: Box<WorkerRecord>,
    },
    /// No worker can be had; `loaded`: the image is there, it is the workers that do not start.
    Failing {
        reason: String,
        loaded: bool,
    },
    RefuseWaiting,
    Closed,
}

/// What is known of a worker at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerRecord {
    pub nr: u32,
    pub generation: u32,
    pub pid: i32,
    /// What it said of a start that failed.
    pub said: Option<String>,
    /// Why Clutch ended it itself.
    pub cause: Option<String>,
}

#[derive(Debug)]
pub struct Supervisor {
    config: PoolConfig,
    pub target: usize,
    /// Of one worker.
    pub slots: usize,
    pub generation: u32,
    zygote: Zygote,
    /// A worker of this zygote was ready.
    proven: bool,
    pub workers: BTreeMap<WorkerKey, Worker>,
    next_key: WorkerKey,
    failures: u32,
    retry_at: Option<Instant>,
    /// Why no worker can be had, until one is ready.
    failing: Option<String>,
    stopping: Option<Stopping>,
    closed: bool,
    pub restarts: u64,
    draws: u64,
}

impl Supervisor {
    pub fn new(config: PoolConfig) -> Supervisor {
        Supervisor {
            target: config.shape.workers as usize,
            slots: config.shape.slots() as usize,
            config,
            generation: 0,
            zygote: Zygote::Absent,
            proven: false,
            workers: BTreeMap::new(),
            next_key: 0,
            failures: 0,
            retry_at: None,
            failing: None,
            stopping: None,
            closed: false,
            restarts: 0,
            draws: 0,
        }
    }

    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Why no worker can be had.
    pub fn failing(&self) -> Option<&str> {
        self.failing.as_deref()
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    pub fn ready(&self) -> usize {
        self.workers.values().filter(|worker| worker.state == State::Ready).count()
    }

    pub fn zygote_is_up(&self) -> bool {
        self.zygote == Zygote::Up
    }

    /// One inbox, one match.
    pub fn on(&mut self, event: Event, now: Instant, out: &mut Vec<Action>) {
        match event {
            Event::ZygoteUp { shape } => self.zygote_up(shape),
            Event::ZygoteFailed(reason) => {
                self.zygote = Zygote::Absent;
                self.fail(reason, now, out);
            }
            Event::ZygoteGone { reason, signaled } => self.zygote_gone(reason, signaled, now, out),
            Event::Forked { worker, pid } => self.forked(worker, pid),
            Event::ForkFailed { worker, reason } => self.fork_failed(worker, reason, now, out),
            Event::WorkerReady { worker } => self.worker_ready(worker, now, out),
            Event::StartFailed { worker, reason } => self.start_failed(worker, reason),
            Event::Fate { worker, fate } => self.fate(worker, fate, now, out),
            Event::LinkEnded { worker } => self.link_ended(worker, now, out),
            Event::Worn { worker } => self.retire(worker, Leave::Calls),
            Event::Drained { worker } => self.drained(worker, now, out),
            Event::Stuck { worker, cause } => self.stuck(worker, cause, now, out),
            Event::Stop { grace, term } => self.stop(grace, term, now),
            Event::Empty => self.stop_empty(now),
            Event::Tick => {}
        }
        self.keep_time(now, out);
        if self.stopping.is_some() { self.keep_stopping(now, out) } else { self.keep_target(now, out) }
    }

    /// When [`Event::Tick`] has something to do.
    pub fn next_wake(&self) -> Option<Instant> {
        let limit = Duration::from_millis(self.config.start_timeout_ms);
        let loading = match self.zygote {
            Zygote::Loading { since } => Some(since + limit),
            _ => None,
        };
        let workers = self.workers.values().flat_map(|worker| {
            let start = (worker.state == State::Starting).then(|| worker.since + limit);
            let stopped = worker.stopped_since.map(|since| since + self.stopped_limit());
            let ended = worker.link_ended.map(|since| since + STATUS_WAIT);
            let stays = worker.state == State::Ready && worker.leaving.is_none();
            let age = if stays { worker.recycling.at } else { None };
            [start, stopped, ended, age, worker.end_at, worker.kill_at]
        });
        let stop = self.stopping.filter(|_| !self.closed).map(|stop| stop.next_wake());
        workers.chain([loading, self.retry_at, stop]).flatten().min()
    }

    fn stopped_limit(&self) -> Duration {
        Duration::from_millis(self.config.stopped_limit_ms)
    }

    // ---- zygote

    fn zygote_up(&mut self, shape: Option<Shape>) {
        self.zygote = Zygote::Up;
        if let Some(shape) = shape {
            (self.target, self.slots) = (shape.workers as usize, shape.slots() as usize);
        }
    }

    fn zygote_gone(&mut self, reason: String, signaled: bool, now: Instant, out: &mut Vec<Action>) {
        let was = std::mem::replace(&mut self.zygote, Zygote::Absent);
        let unborn = self.workers.iter().filter(|(_, worker)| worker.pid.is_none()).map(|(key, _)| *key);
        for key in unborn.collect::<Vec<_>>() {
            self.remove(key, None, out);
        }
        match was {
            // One that dies before any worker was ready would do so again and again.
            Zygote::Up if self.proven => self.restarts += 1,
            Zygote::Loading { .. } | Zygote::Up if signaled && self.failures + 1 < SILENT_DEATHS => self.back_off(now),
            Zygote::Loading { .. } | Zygote::Up => self.fail(reason, now, out),
            _ => {}
        }
    }

    fn fail(&mut self, reason: String, now: Instant, out: &mut Vec<Action>) {
        self.back_off(now);
        if self.ready() == 0 && self.stopping.is_none() {
            self.failing = Some(reason.clone());
            let loaded = self.zygote == Zygote::Up;
            out.push(Action::Failing { reason, loaded });
        }
    }

    fn back_off(&mut self, now: Instant) {
        let wait = BACKOFF_FIRST * 2u32.saturating_pow(self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(now + wait.min(BACKOFF_MAX));
    }

    // ---- workers

    fn forked(&mut self, worker: WorkerKey, pid: i32) {
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.pid = Some(pid);
        }
    }

    fn fork_failed(&mut self, worker: WorkerKey, reason: String, now: Instant, out: &mut Vec<Action>) {
        let Some(worker) = self.remove(worker, None, out) else { return };
        // One that was ended meanwhile was not wanted any more.
        if worker.state == State::Starting && worker.cause.is_none() {
            self.fail(reason, now, out);
        }
    }

    fn worker_ready(&mut self, key: WorkerKey, now: Instant, out: &mut Vec<Action>) {
        let Some(worker) = self.workers.get_mut(&key).filter(|worker| worker.state == State::Starting) else { return };
        worker.state = State::Ready;
        worker.since = now;
        self.proven |= worker.generation == self.generation;
        let (calls, replaced) = (worker.recycling.calls, worker.replaces.take());
        (self.failures, self.retry_at, self.failing) = (0, None, None);
        out.push(Action::Admit { worker: key, calls });
        if let Some(old) = replaced {
            let why = self.workers.get(&old).and_then(|worker| worker.leaving);
            self.drain(old, why.unwrap_or(Leave::Age), out);
        }
    }

    fn drain(&mut self, key: WorkerKey, why: Leave, out: &mut Vec<Action>) {
        if let Some(worker) = self.workers.get_mut(&key).filter(|worker| worker.state == State::Ready) {
            worker.state = State::Draining;
            out.push(Action::Drain { worker: key, reason: why.as_str() });
        }
    }

    fn start_failed(&mut self, key: WorkerKey, reason: String) {
        if let Some(worker) = self.workers.get_mut(&key) {
            worker.said = Some(reason);
        }
    }

    fn fate(&mut self, key: WorkerKey, fate: Fate, now: Instant, out: &mut Vec<Action>) {
        let Some(worker) = self.workers.get_mut(&key) else { return };
        match fate {
            Fate::Stopped => {
                worker.stopped_since.get_or_insert(now);
                out.push(Action::Hold { worker: key, held: true });
            }
            Fate::Continued => {
                worker.stopped_since = None;
                out.push(Action::Hold { worker: key, held: false });
            }
            Fate::Exited(_) | Fate::Signaled(_) => self.gone(key, Some(fate), now, out),
        }
    }

    /// The zygote tells of the end soon; when there is none any more, the end of the link has to do.
    fn link_ended(&mut self, key: WorkerKey, now: Instant, out: &mut Vec<Action>) {
        let told_by_zygote = self.zygote == Zygote::Up || self.zygote == Zygote::Ending;
        let generation = self.generation;
        let Some(worker) = self.workers.get_mut(&key) else { return };
        if told_by_zygote && worker.generation == generation {
            worker.link_ended.get_or_insert(now);
            // A worker that broke its link and lives on is of no use.
            out.push(Action::Kill { worker: key, signal: EndSignal::Kill });
        } else {
            out.push(Action::Kill { worker: key, signal: EndSignal::Kill });
            self.gone(key, None, now, out);
        }
    }

    fn gone(&mut self, key: WorkerKey, fate: Option<Fate>, now: Instant, out: &mut Vec<Action>) {
        let Some(worker) = self.remove(key, fate, out) else { return };
        let by_policy = worker.leaving.is_some_and(|why| why != Leave::Stuck);
        if worker.state == State::Ready || (worker.state == State::Killed && !by_policy) {
            self.restarts += 1;
        }
        if worker.state == State::Starting && self.stopping.is_none() {
            self.died_starting(worker, fate, now, out);
        }
    }

    fn remove(&mut self, key: WorkerKey, fate: Option<Fate>, out: &mut Vec<Action>) -> Option<Worker> {
        let worker = self.workers.remove(&key)?;
        let record = WorkerRecord {
            nr: worker.nr,
            generation: worker.generation,
            pid: worker.pid.unwrap_or(0),
            said: worker.said.clone(),
            cause: worker.cause.clone(),
        };
        out.push(Action::Gone { worker: key, fate, record: Box::new(record) });
        Some(worker)
    }

    fn died_starting(&mut self, worker: Worker, fate: Option<Fate>, now: Instant, out: &mut Vec<Action>) {
        match worker.said.or(worker.cause) {
            Some(reason) => self.fail(reason, now, out),
            None if self.failures + 1 >= SILENT_DEATHS => {
                self.fail(format!("workers die before they are ready: the last one {}", fate_text(fate)), now, out);
            }
            None => self.back_off(now),
        }
    }

    fn retire(&mut self, key: WorkerKey, why: Leave) {
        if let Some(worker) = self.workers.get_mut(&key) {
            worker.leaving.get_or_insert(why);
        }
    }

    // ---- what time brings

    fn keep_time(&mut self, now: Instant, out: &mut Vec<Action>) {
        let limit = Duration::from_millis(self.config.start_timeout_ms);
        if let Zygote::Loading { since } = self.zygote
            && now >= since + limit
        {
            self.zygote = Zygote::Absent;
            out.push(Action::KillZygote);
            let reason = format!("loading took longer than start_timeout ({} s)", limit.as_secs_f64());
            self.fail(reason, now, out);
        }
        let keys: Vec<WorkerKey> = self.workers.keys().copied().collect();
        for key in keys {
            self.keep_worker_time(key, limit, now, out);
        }
    }

    fn keep_worker_time(&mut self, key: WorkerKey, limit: Duration, now: Instant, out: &mut Vec<Action>) {
        let stopped_limit = self.stopped_limit();
        let Some(worker) = self.workers.get_mut(&key) else { return };
        if worker.state == State::Starting && now >= worker.since + limit {
            worker.since = now;
            let reason = format!("the start took longer than start_timeout ({} s)", limit.as_secs_f64());
            self.kill(key, &reason, now, out);
        } else if worker.stopped_since.is_some_and(|since| now >= since + stopped_limit) {
            worker.stopped_since = None;
            self.kill(key, "it was stopped for longer than stopped_limit", now, out);
        } else if worker.link_ended.is_some_and(|since| now >= since + STATUS_WAIT) {
            self.gone(key, None, now, out);
        } else {
            self.keep_ladder(key, now, out);
        }
    }

    /// At most one worker leaves for its age at a time.
    fn keep_ages(&mut self, now: Instant) {
        if self.workers.values().any(|worker| worker.leaving.is_some()) {
            return;
        }
        let aged = self.workers.iter().find(|(_, worker)| worker.state == State::Ready && worker.recycling.due(now));
        if let Some(key) = aged.map(|(key, _)| *key) {
            self.retire(key, Leave::Age);
        }
    }

    /// Starts what is missing.
    fn keep_target(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.keep_ages(now);
        if self.retry_at.is_some_and(|at| at > now) {
            return;
        }
        match self.zygote {
            Zygote::Absent => {
                self.retry_at = None;
                self.generation += 1;
                self.proven = false;
                self.zygote = Zygote::Loading { since: now };
                out.push(Action::StartZygote { generation: self.generation });
            }
            Zygote::Up => {
                self.retry_at = None;
                self.fork_missing(now, out);
            }
            Zygote::Loading { .. } | Zygote::Ending => {}
        }
    }

    fn fork_missing(&mut self, now: Instant, out: &mut Vec<Action>) {
        loop {
            let live: Vec<&Worker> = self.workers.values().filter(|worker| worker.is_live()).collect();
            if live.len() >= self.target {
                return;
            }
            let used: Vec<u32> = live.iter().map(|worker| worker.nr).collect();
            let nr = (0..).find(|nr| !used.contains(nr)).unwrap_or(0);
            let replaces = self.workers.iter().find(|(_, worker)| worker.leaving.is_some() && worker.nr == nr);
            let replaces = replaces.filter(|(_, worker)| worker.state == State::Ready).map(|(key, _)| *key);
            self.fork(nr, replaces, now, out);
        }
    }

    fn fork(&mut self, nr: u32, replaces: Option<WorkerKey>, now: Instant, out: &mut Vec<Action>) {
        self.next_key += 1;
        let key = self.next_key;
        // A fixed sequence spreads the thresholds evenly (multiples of the golden ratio).
        self.draws += 1;
        let draw = (self.draws as f64 * 0.618_033_988_75).fract();
        let worker = Worker {
            nr,
            generation: self.generation,
            pid: None,
            state: State::Starting,
            since: now,
            recycling: Recycling::draw(&self.config, now, draw),
            leaving: None,
            replaces,
            stopped_since: None,
            link_ended: None,
            stuck: None,
            end_at: None,
            kill_at: None,
            said: None,
            cause: None,
        };
        self.workers.insert(key, worker);
        out.push(Action::Fork { worker: key, nr });
    }

    // ---- the end

    fn end_zygote(&mut self, out: &mut Vec<Action>) {
        if !self.workers.is_empty() || self.closed {
            return;
        }
        match self.zygote {
            Zygote::Absent => {
                self.closed = true;
                out.push(Action::Closed);
            }
            Zygote::Loading { .. } | Zygote::Up => {
                self.zygote = Zygote::Ending;
                out.push(Action::KillZygote);
            }
            Zygote::Ending => {}
        }
    }
}

/// How a worker ended, in words.
pub fn fate_text(fate: Option<Fate>) -> String {
    match fate {
        Some(Fate::Signaled(signal)) => format!("was killed by signal {signal}{}", signal_name(signal)),
        Some(Fate::Exited(code)) => format!("exited with code {code}"),
        _ => "ended, nobody could tell how".to_owned(),
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        15 => " (SIGTERM)",
        _ => "",
    }
}
