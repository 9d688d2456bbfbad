//! The supervisor's decisions as a pure machine: who lives. No I/O, no clock, no wait.
//!
//! Worker states: Starting → Ready → Draining → Gone. A replacement is Ready before the old worker is told to drain.

mod deaths;
mod development;
mod ends;
mod escalation;
mod memory;
mod retirement;
mod rollout;
mod stop;
mod workers;
mod zygotes;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use clutch_wire::sys::{EndSignal, Fate};

use self::deaths::Deaths;
pub use self::ends::{STATUS_WAIT, fate_text, signal_name};
use self::escalation::Escalation;
use self::retirement::Retirement;
use self::rollout::Recycle;
use self::stop::Shutdown;
pub use self::stop::{IDLE_LEAVE, stop_term};
pub use self::workers::FORKS_MAX;
use self::zygotes::{Reload, ZygoteRecord};
pub use super::leave::Leave;
use super::recycle::Recycling;
use super::scale::Bounds;
use crate::config::{PoolConfig, Shape};
use crate::pool::state::WorkerKey;
use crate::pool::{Denied, Memory, Ticket};

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

#[derive(Clone, Debug)]
pub struct Worker {
    pub nr: u32,
    pub generation: u32,
    pub pid: Option<i32>,
    pub state: State,
    pub slots: usize,
    /// The end of its process is watched: [`Event::Died`] follows.
    watched: bool,
    /// It was ready before its zygote told its pid.
    greeted: bool,
    since: Instant,
    recycling: Recycling,
    retirement: Retirement,
    pub memory: Option<Memory>,
    /// Gets no more work: its memory is at the limit.
    barred: bool,
    replaces: Option<WorkerKey>,
    pub stopped_since: Option<Instant>,
    link_ended: Option<Instant>,
    /// Since when its process is known to be dead.
    dead_since: Option<Instant>,
    /// A debugger asks there: it is left alone.
    debugged: bool,
    escalation: Escalation,
    /// What it said of a start that failed, or what was wrong with its link.
    said: Option<String>,
    /// The last it wrote, of one that died before it was ready.
    last_output: Option<String>,
}

impl Worker {
    /// Whether it counts towards the pool's size.
    pub fn is_live(&self) -> bool {
        let stays = matches!(self.state, State::Starting | State::Ready) && !self.leaves();
        stays || self.retirement.leaves_first()
    }

    fn leaves(&self) -> bool {
        self.retirement.why().is_some()
    }

    /// Whether it has taken its turn to leave and is not gone yet.
    pub fn is_out(&self) -> bool {
        self.retirement.why().is_some_and(Leave::by_policy)
    }

    pub fn has_broken_link(&self) -> bool {
        self.link_ended.is_some()
    }

    /// Why Clutch ends it itself.
    pub fn cause(&self) -> Option<&str> {
        self.escalation.cause()
    }

    /// Why it was to end, of one that was told to and not made to.
    fn left(&self) -> Option<&'static str> {
        (self.state == State::Draining).then(|| self.retirement.why().unwrap_or(Leave::Stopped).as_str())
    }
}

#[derive(Debug)]
pub enum Event {
    /// `shape`: profile and numbers where the image's policy changed them.
    ZygoteUp {
        generation: u32,
        shape: Option<Shape>,
    },
    /// Loading failed; the reason is the user's to mend.
    ZygoteFailed {
        generation: u32,
        reason: String,
    },
    /// `signal`: what killed it; it could not say why.
    ZygoteGone {
        generation: u32,
        reason: String,
        signal: Option<i32>,
    },
    /// `watched`: [`Event::Died`] tells of its end.
    Forked {
        worker: WorkerKey,
        pid: i32,
        watched: bool,
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
    /// What one that died before it was ready had written last.
    LastOutput {
        worker: WorkerKey,
        text: String,
    },
    Fate {
        worker: WorkerKey,
        fate: Fate,
    },
    /// Its process is dead; how it ended is the zygote's to tell.
    Died {
        worker: WorkerKey,
    },
    /// `reason`: what was wrong with it, unless it was just closed.
    LinkEnded {
        worker: WorkerKey,
        reason: Option<String>,
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
    /// A debugger asks at the terminal, or no longer does.
    Debugging {
        worker: WorkerKey,
        on: bool,
    },
    /// What was found when they were looked at.
    Memory(Vec<(WorkerKey, Memory)>),
    /// There should be so many; those too many leave, the first of `idlest` first.
    Resize {
        target: usize,
        idlest: Vec<WorkerKey>,
    },
    /// Load the code anew; all workers are to run it.
    Reload {
        ticket: Ticket,
    },
    /// `nr` none: all workers, in turn.
    Recycle {
        ticket: Ticket,
        nr: Option<u32>,
    },
    /// One worker is to end at once.
    Kill {
        ticket: Ticket,
        nr: u32,
    },
    /// `idle`: who has nothing to do, as far as is known; they go first.
    Scale {
        ticket: Ticket,
        min: usize,
        max: usize,
        idle: Vec<WorkerKey>,
    },
    /// `term`: what lies between TERM and KILL once the grace is over. `idle`: who has nothing to do, as far as is known,
    /// and ends in order also where there is no grace.
    Stop {
        grace: Duration,
        term: Duration,
        idle: Vec<WorkerKey>,
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
    /// Told to end; `at_once`: killed. [`Event::ZygoteGone`] follows.
    EndZygote {
        generation: u32,
        at_once: bool,
    },
    Fork {
        worker: WorkerKey,
        nr: u32,
        generation: u32,
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
    /// Its memory is at the limit: it gets no work, or gets some again when nobody can take its place.
    Bar {
        worker: WorkerKey,
        barred: bool,
    },
    /// It leaves first, its replacement comes when it is gone: for so long the pool is short of one.
    Short {
        worker: WorkerKey,
    },
    /// A debugger asks there, so that it is not ended although it is to end.
    Spare {
        worker: WorkerKey,
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
    /// No worker can be had; `by_code`: because of what the pool is told to run, or by what.
    Failing {
        reason: String,
        by_code: bool,
    },
    RefuseWaiting,
    /// Other code is being loaded: what was wrong with the code before is no answer any more.
    Hope,
    ReloadStarted {
        generation: u32,
    },
    /// All workers run this image.
    ReloadFinished {
        generation: u32,
    },
    /// The image before stays.
    ReloadFailed {
        generation: u32,
        reason: String,
    },
    /// What came of a command.
    Done {
        ticket: Ticket,
        outcome: Result<(), Denied>,
    },
    Closed,
}

/// What is known of a worker at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerRecord {
    pub nr: u32,
    pub generation: u32,
    pub pid: i32,
    /// What it said of a start that failed, or what was wrong with its link.
    pub said: Option<String>,
    /// Why Clutch ended it itself.
    pub cause: Option<String>,
    /// Its zygote was there and did not tell how it ended.
    pub untold: bool,
    /// It was to end, for this reason, and was not made to.
    pub left: Option<&'static str>,
}

#[derive(Debug)]
pub struct Supervisor {
    config: PoolConfig,
    /// How many workers there should be, and between which bounds commands and policies may set that.
    pub target: usize,
    pub min: usize,
    pub max: usize,
    /// Of the image that workers are forked from.
    shape: Shape,
    zygotes: BTreeMap<u32, ZygoteRecord>,
    /// The zygote that workers are forked from, loaded or not.
    current: Option<u32>,
    /// The last number given.
    generation: u32,
    reload: Option<Reload>,
    /// The reload whose workers are taking over.
    roll: Option<Reload>,
    /// Generations that were taken back, while they have workers.
    rejected: BTreeSet<u32>,
    recycles: Vec<Recycle>,
    pub workers: BTreeMap<WorkerKey, Worker>,
    next_key: WorkerKey,
    failures: u32,
    /// Zygotes in a row that were killed before any worker was ready.
    zygotes_killed: u32,
    retry_at: Option<Instant>,
    /// Nothing is tried again before a reload: the code is known to be broken, and is being mended.
    awaits_reload: bool,
    deaths: Deaths,
    /// Starts wait until then: too many workers died in the last minute.
    held_until: Option<Instant>,
    /// Why no worker can be had, until one is ready.
    failing: Option<String>,
    /// Why a zygote was killed, until a worker of another is ready.
    trouble: Option<String>,
    stopping: Option<Shutdown>,
    closed: bool,
    pub restarts: u64,
    /// How many workers have ended, by reason.
    pub ends: BTreeMap<&'static str, u64>,
    draws: u64,
    /// Since when there is a worker that is ready.
    pub serving_since: Option<Instant>,
    wake: Option<Instant>,
}

impl Supervisor {
    pub fn new(config: PoolConfig) -> Supervisor {
        let (min, max) = (config.workers_min as usize, config.shape.workers as usize);
        Supervisor {
            target: min,
            min,
            max,
            shape: config.shape,
            zygotes: BTreeMap::new(),
            current: None,
            generation: 0,
            reload: None,
            roll: None,
            rejected: BTreeSet::new(),
            recycles: Vec::new(),
            workers: BTreeMap::new(),
            next_key: 0,
            failures: 0,
            zygotes_killed: 0,
            retry_at: None,
            awaits_reload: false,
            deaths: Deaths::new(config.restarts_max),
            held_until: None,
            failing: None,
            trouble: None,
            stopping: None,
            closed: false,
            restarts: 0,
            ends: BTreeMap::new(),
            draws: 0,
            serving_since: None,
            wake: None,
            config,
        }
    }

    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Why no worker can be had.
    pub fn failing(&self) -> Option<&str> {
        self.failing.as_deref()
    }

    /// What is wrong, if anything: nothing can be had, or not all of it.
    pub fn reason(&self) -> Option<String> {
        let held = || self.held_until.map(|_| self.deaths.reason());
        self.failing.clone().or_else(held).or_else(|| self.trouble.clone())
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    pub fn ready(&self) -> usize {
        self.workers.values().filter(|worker| worker.state == State::Ready).count()
    }

    pub fn starting(&self) -> usize {
        self.workers.values().filter(|worker| worker.state == State::Starting).count()
    }

    pub fn bounds(&self) -> Bounds {
        Bounds { min: self.min, max: self.max, target: self.target }
    }

    /// Slots of a worker.
    pub fn slots(&self) -> usize {
        self.shape.slots() as usize
    }

    /// One inbox, one match. What follows for the others is found by [`Supervisor::settle`], once for many events: it
    /// looks at every worker.
    pub fn take(&mut self, event: Event, now: Instant, out: &mut Vec<Action>) {
        match event {
            Event::ZygoteUp { generation, shape } => self.zygote_up(generation, shape, now, out),
            Event::ZygoteFailed { generation, reason } => self.zygote_failed(generation, reason, now, out),
            Event::ZygoteGone { generation, reason, signal } => self.zygote_gone(generation, reason, signal, now, out),
            Event::Forked { worker, pid, watched } => self.forked(worker, pid, watched, now, out),
            Event::ForkFailed { worker, reason } => self.fork_failed(worker, reason, now, out),
            Event::WorkerReady { worker } => self.worker_ready(worker, now, out),
            Event::StartFailed { worker, reason } => self.start_failed(worker, reason),
            Event::LastOutput { worker, text } => self.last_output(worker, text),
            Event::Fate { worker, fate } => self.fate(worker, fate, now, out),
            Event::Died { worker } => self.died(worker, now),
            Event::LinkEnded { worker, reason } => self.link_ended(worker, reason, now, out),
            Event::Worn { worker } => self.worn(worker, Leave::Calls),
            Event::Drained { worker } => self.drained(worker, now, out),
            Event::Stuck { worker, cause } => self.stuck(worker, cause, now, out),
            Event::Debugging { worker, on } => self.debug(worker, on, now, out),
            Event::Memory(figures) => self.weigh(figures, now, out),
            Event::Resize { target, idlest } => self.aim(target, &idlest, now, out),
            Event::Reload { ticket } if self.config.development => self.start_over(ticket, now, out),
            Event::Reload { ticket } => self.reload(ticket, now, out),
            Event::Recycle { ticket, nr } => self.recycle(ticket, nr, out),
            Event::Kill { ticket, nr } => self.kill_by_command(ticket, nr, now, out),
            Event::Scale { ticket, min, max, idle } => self.scale(ticket, min..=max, &idle, now, out),
            Event::Stop { grace, term, idle } => {
                self.stop(grace, term, now);
                if grace.is_zero() {
                    self.spare_idle(&idle, now);
                }
            }
            Event::Empty => self.stop_empty(now),
            Event::Tick => {}
        }
    }

    /// What has become due, is missing or is too many.
    pub fn settle(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.keep_time(now, out);
        self.let_barred_serve(out);
        if self.stopping.is_some() {
            self.keep_stopping(now, out)
        } else {
            self.keep_target(now, out)
        }
        self.keep_zygotes(now, out);
        self.keep_closed(out);
        self.serving_since = if self.ready() > 0 { self.serving_since.or(Some(now)) } else { None };
        self.wake = self.find_wake(now);
    }

    /// When [`Event::Tick`] has something to do.
    pub fn next_wake(&self) -> Option<Instant> {
        self.wake
    }

    fn find_wake(&self, now: Instant) -> Option<Instant> {
        let limit = self.start_timeout();
        let workers = self.workers.values().flat_map(|worker| {
            let start = (worker.state == State::Starting && !worker.debugged).then(|| self.start_due(worker));
            let stopped = worker.stopped_since.map(|since| since + self.stopped_limit());
            let ended = self.over_at(worker);
            let stays = worker.state == State::Ready && !worker.leaves();
            // One that is too old already waits for its turn.
            let age = worker.recycling.at.filter(|at| stays && *at > now);
            [start, stopped, ended, age, worker.escalation.next_wake(worker.debugged)]
        });
        let zygotes = self.zygotes.values().map(|zygote| zygote.next_wake(limit));
        let (stop, start) = match self.stopping {
            Some(stop) => ((!self.closed).then(|| stop.next_wake()), None),
            None => (None, self.retry_at.max(self.held_until)),
        };
        workers.chain(zygotes).chain([stop, start]).flatten().min()
    }

    /// When a worker that starts has taken too long; of one that is not forked yet, when its zygote has.
    fn start_due(&self, worker: &Worker) -> Instant {
        let zygote = self.zygotes.get(&worker.generation).filter(|_| worker.pid.is_none());
        let since = zygote.and_then(|zygote| zygote.answered).map_or(worker.since, |at| at.max(worker.since));
        since + self.start_timeout()
    }

    fn start_timeout(&self) -> Duration {
        Duration::from_millis(self.config.start_timeout_ms)
    }

    fn stopped_limit(&self) -> Duration {
        Duration::from_millis(self.config.stopped_limit_ms)
    }

    fn keys(&self) -> Vec<WorkerKey> {
        self.workers.keys().copied().collect()
    }
}
