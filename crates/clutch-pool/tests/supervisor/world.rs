//! A world around the supervisor's machine: it answers actions in any order and at any time, and checks what always holds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use clutch_pool::config::{PoolConfig, Shape};
use clutch_pool::pool::state::WorkerKey;
use clutch_pool::pool::{Carried, Memory, Ticket, Weighed};
use clutch_pool::supervisor::state::{Action, Event, State, Supervisor, WorkerRecord};
use clutch_wire::sys::{EndSignal, Fate};

#[path = "../support/config.rs"]
mod options;

pub const TARGET: u32 = 3;
/// Private memory at which a worker is replaced.
pub const MEMORY: u64 = 1000;
pub const GRACE: Duration = Duration::from_secs(1);
pub const TERM_GRACE: Duration = Duration::from_millis(700);
const NS: Duration = Duration::from_nanos(1);

/// Three workers of one slot; tests change what they are about.
pub fn config() -> PoolConfig {
    let free = options::config("model");
    PoolConfig {
        shape: Shape { workers: TARGET, ..free.shape },
        workers_min: TARGET,
        start_timeout_ms: Some(5_000),
        recycle_memory_bytes: Some(MEMORY),
        recycle_jitter: 0.1,
        grace_ms: GRACE.as_millis() as u64,
        term_grace_ms: TERM_GRACE.as_millis() as u64,
        stopped_limit_ms: 2_000,
        payload_bytes_max: 1 << 20,
        output_kept_bytes: 8 << 10,
        ..free
    }
}

pub fn with_threads(threads: u32) -> PoolConfig {
    PoolConfig { shape: Shape { threads, ..config().shape }, ..config() }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zygote {
    Loading,
    Up,
    Ending,
}

#[derive(Clone, Copy, Debug)]
pub struct Alive {
    pub generation: u32,
    pub ready: bool,
}

/// What the outside of the machine is like.
#[derive(Debug, Default)]
pub struct World {
    pub zygotes: BTreeMap<u32, Zygote>,
    /// Asked for, not forked yet: by generation.
    pub wanted: BTreeMap<WorkerKey, u32>,
    pub alive: BTreeMap<WorkerKey, Alive>,
    /// Said that they are ready before their zygote said that they are forked.
    pub early: BTreeSet<WorkerKey>,
    /// Of those, whose process is dead: their zygote has not told.
    pub dead: BTreeSet<WorkerKey>,
    /// Told to take no more, and why.
    pub draining: BTreeMap<WorkerKey, &'static str>,
    /// Get work.
    pub admitted: BTreeSet<WorkerKey>,
    /// A debugger asks there, and they are to end.
    pub spared: BTreeSet<WorkerKey>,
    /// Get none while they are stopped by a signal.
    pub held: BTreeSet<WorkerKey>,
    /// Told to end in order.
    pub ended: BTreeSet<WorkerKey>,
    pub gone: BTreeSet<WorkerKey>,
    /// What is known of those.
    pub records: BTreeMap<WorkerKey, WorkerRecord>,
    /// When each was told what.
    pub signals: Vec<(WorkerKey, EndSignal, Duration)>,
    /// Get no more work, for their memory.
    pub barred: BTreeSet<WorkerKey>,
    /// Those that leave before their replacement is there.
    pub short: Vec<WorkerKey>,
    /// Used up its calls, or its memory, before its turn.
    pub spent: BTreeSet<WorkerKey>,
    pub done: BTreeMap<Ticket, Carried>,
    pub reloads: Vec<Action>,
    pub zygotes_started: u32,
    /// Which of them was told to end, or killed (true), and when.
    pub zygote_ends: Vec<(u32, bool, Duration)>,
    pub failing: Option<String>,
    /// Whether the user's code was said to be the reason, each time that one was said.
    pub by_code: Vec<bool>,
    pub refused: u32,
    pub closed: u32,
}

pub struct Play {
    pub machine: Supervisor,
    pub world: World,
    start: Instant,
    pub now: Duration,
    pub together: usize,
    /// Events of one turn of the driver: the machine settles once for them.
    pub turn: u32,
    taken: u32,
}

impl Play {
    pub fn new(config: PoolConfig) -> Play {
        let together = config.recycle_together;
        let machine = Supervisor::new(config);
        let (world, start, now) = (World::default(), Instant::now(), Duration::ZERO);
        let mut play = Play { machine, world, start, now, together, turn: 1, taken: 0 };
        play.tell(Event::Tick);
        play
    }

    /// A pool with all of its workers ready.
    pub fn ready(config: PoolConfig) -> Play {
        let mut play = Play::new(config);
        play.load();
        play.let_start();
        play
    }

    pub fn tell(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.machine.take(event, self.start + self.now, &mut actions);
        actions.into_iter().for_each(|action| self.see(action));
        self.taken += 1;
        if self.taken >= self.turn {
            self.settle();
        }
    }

    fn settle(&mut self) {
        self.taken = 0;
        let mut actions = Vec::new();
        self.machine.settle(self.start + self.now, &mut actions);
        actions.into_iter().for_each(|action| self.see(action));
        self.check();
    }

    /// The driver sleeps as the machine asks it to: while it does nothing becomes due.
    pub fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(wake) = self.wakes_at().filter(|at| *at <= until) {
            self.sleep_until(wake - NS);
            self.now = wake;
            self.tell(Event::Tick);
        }
        self.sleep_until(until);
    }

    /// None: it is not known before the turn is over.
    fn wakes_at(&self) -> Option<Duration> {
        let settled = self.taken == 0 && self.turn == 1 && !self.machine.is_closed();
        self.machine.next_wake().filter(|_| settled).map(|at| at - self.start)
    }

    fn sleep_until(&mut self, at: Duration) {
        self.now = at;
        if self.taken > 0 || self.turn > 1 {
            return self.tell(Event::Tick);
        }
        let mut actions = Vec::new();
        self.machine.settle(self.start + at, &mut actions);
        assert!(actions.is_empty(), "the driver would have slept over this: {actions:?}");
        self.check();
    }

    // ---- what the world does

    /// Every zygote that loads is up.
    pub fn load(&mut self) {
        while let Some(generation) = self.zygote(Zygote::Loading) {
            self.world.zygotes.insert(generation, Zygote::Up);
            self.tell(Event::ZygoteUp { generation, shape: None });
        }
    }

    pub fn zygote(&self, is: Zygote) -> Option<u32> {
        self.world.zygotes.iter().find(|(_, zygote)| **zygote == is).map(|(generation, _)| *generation)
    }

    /// Fails the load of a zygote whose code does not import.
    pub fn fail_load(&mut self, generation: u32, reason: &str) {
        self.tell(Event::ZygoteFailed { generation, reason: reason.to_owned() });
    }

    /// Zygotes that were told to end have.
    pub fn bury(&mut self) {
        while let Some(generation) = self.zygote(Zygote::Ending) {
            self.lose_zygote(generation, None);
        }
    }

    pub fn lose_zygote(&mut self, generation: u32, signal: Option<i32>) {
        self.world.zygotes.remove(&generation);
        self.world.wanted.retain(|_, from| *from != generation);
        self.tell(Event::ZygoteGone { generation, reason: "gone".to_owned(), signal });
    }

    pub fn let_fork(&mut self, worker: WorkerKey) {
        let Some(generation) = self.world.wanted.remove(&worker) else { return };
        let ready = self.world.early.remove(&worker);
        self.world.alive.insert(worker, Alive { generation, ready });
        // Not all of them: descriptors may be short.
        let watched = !worker.is_multiple_of(4);
        self.tell(Event::Forked { worker, pid: 1000 + worker as i32, watched });
    }

    /// A worker's word that it is ready overtakes the zygote's that it is forked.
    pub fn overtake(&mut self, worker: WorkerKey) {
        self.world.early.insert(worker);
        self.tell(Event::WorkerReady { worker });
    }

    pub fn let_be_ready(&mut self, worker: WorkerKey) {
        if let Some(alive) = self.world.alive.get_mut(&worker) {
            alive.ready = true;
            self.tell(Event::WorkerReady { worker });
        }
    }

    /// What was asked for is forked and becomes ready.
    pub fn let_start(&mut self) {
        for worker in self.world.wanted.keys().copied().collect::<Vec<_>>() {
            self.let_fork(worker);
        }
        for worker in self.workers(|alive| !alive.ready) {
            self.let_be_ready(worker);
        }
    }

    /// What was asked for is forked, and its start fails.
    pub fn fail_starts(&mut self, reason: &str) {
        for worker in self.world.wanted.keys().copied().collect::<Vec<_>>() {
            self.let_fork(worker);
            self.tell(Event::StartFailed { worker, reason: reason.to_owned() });
            self.end(worker, Fate::Exited(1));
        }
    }

    pub fn workers(&self, is: impl Fn(&Alive) -> bool) -> Vec<WorkerKey> {
        self.world.alive.iter().filter(|(_, alive)| is(alive)).map(|(worker, _)| *worker).collect()
    }

    pub fn end(&mut self, worker: WorkerKey, fate: Fate) {
        self.tell(Event::Fate { worker, fate });
    }

    /// Shows a worker's process as dead, where it is watched; nobody has told how it ended yet.
    pub fn die(&mut self, worker: WorkerKey) {
        if !worker.is_multiple_of(4) && self.world.alive.contains_key(&worker) {
            self.world.dead.insert(worker);
            self.tell(Event::Died { worker });
        }
    }

    /// What drains has nothing left and ends in order; what was killed is dead.
    pub fn let_end(&mut self) {
        for worker in self.workers(|_| true) {
            if self.told(worker, EndSignal::Kill).is_some() {
                self.end(worker, Fate::Signaled(9));
            } else if self.world.draining.contains_key(&worker) {
                self.tell(Event::Drained { worker, stuck: false });
                self.end(worker, Fate::Exited(0));
            }
        }
    }

    /// From here on nothing goes wrong: every zygote loads, every worker is ready, what drains ends.
    pub fn mend(&mut self) {
        for worker in self.workers(|_| true) {
            self.end(worker, Fate::Continued);
        }
        for _ in 0..200 {
            self.load();
            self.let_end();
            self.bury();
            self.let_start();
            self.pass(Duration::from_millis(500));
        }
    }

    /// They were looked at, and each has so much private memory. The pool gives no more work to those at the limit.
    pub fn weigh(&mut self, workers: &[WorkerKey], private: u64) {
        let (memory, at_limit) = (Memory { rss: 2 * MEMORY, private: Some(private) }, private >= MEMORY);
        let serves = |worker: &&WorkerKey| {
            self.machine.fleet().workers().get(worker).is_some_and(|worker| worker.state() == State::Ready)
        };
        let barred = workers.iter().filter(|_| at_limit).filter(serves);
        let barred: Vec<WorkerKey> = barred.copied().collect();
        self.world.barred.extend(&barred);
        self.world.spent.extend(&barred);
        let weighed = workers.iter().map(|worker| Weighed { worker: *worker, memory, at_limit });
        self.tell(Event::Memory(weighed.collect()));
    }

    // ---- what the machine did

    /// When this worker was told so for the first time.
    pub fn told(&self, worker: WorkerKey, signal: EndSignal) -> Option<Duration> {
        self.world.signals.iter().find(|(to, what, _)| (*to, *what) == (worker, signal)).map(|(_, _, at)| *at)
    }

    pub fn generations(&self) -> BTreeSet<u32> {
        self.world.alive.values().map(|alive| alive.generation).collect()
    }

    fn see(&mut self, action: Action) {
        let now = self.now;
        let stopping = self.machine.is_stopping();
        let world = &mut self.world;
        match action {
            Action::StartZygote { generation } => {
                assert!(world.zygotes.insert(generation, Zygote::Loading).is_none(), "a generation twice");
                world.zygotes_started += 1;
            }
            Action::EndZygote { generation, at_once } => {
                let before = world.zygotes.insert(generation, Zygote::Ending);
                assert!(at_once || before == Some(Zygote::Up), "{before:?} was told to end");
                let left = world.alive.values().any(|alive| alive.generation == generation);
                assert!(!left || at_once, "a zygote was ended before its workers");
                world.zygote_ends.push((generation, at_once, now));
            }
            Action::Fork { worker, generation, .. } => {
                assert_eq!(world.zygotes.get(&generation), Some(&Zygote::Up), "a fork without a zygote");
                assert!(world.wanted.insert(worker, generation).is_none(), "forked twice");
            }
            Action::Admit { worker, .. } => {
                assert!(self.machine.fleet().workers()[&worker].pid().is_some(), "admitted without a pid");
                assert!(world.alive.get(&worker).is_some_and(|alive| alive.ready), "admitted before ready");
                assert!(world.signals.iter().all(|(to, ..)| *to != worker), "admitted when it was to end");
                assert!(world.admitted.insert(worker), "admitted twice");
            }
            Action::Drain { worker, reason } => {
                assert!(world.draining.insert(worker, reason).is_none(), "drained twice");
            }
            Action::ServeOn => world.barred.clear(),
            Action::Short { worker } => world.short.push(worker),
            Action::End { worker } => {
                let termed = world.signals.iter().any(|(to, ..)| *to == worker);
                assert!(termed || world.draining.contains_key(&worker), "ended before it was drained");
                world.ended.insert(worker);
            }
            Action::Kill { worker, signal } => world.signals.push((worker, signal, now)),
            Action::Gone { worker, record, .. } => {
                assert!(world.gone.insert(worker), "gone twice");
                world.records.insert(worker, *record);
                world.wanted.remove(&worker);
                world.alive.remove(&worker);
                world.dead.remove(&worker);
                world.barred.remove(&worker);
            }
            Action::Done { ticket, outcome } => {
                assert!(world.done.insert(ticket, outcome).is_none(), "an order was answered twice");
            }
            Action::ReloadStarted { .. } | Action::ReloadFinished { .. } | Action::ReloadFailed { .. } => {
                world.reloads.push(action);
            }
            Action::Failing { reason, by_code } => {
                assert!(!stopping, "a pool that stops was called failing");
                world.failing = Some(reason);
                world.by_code.push(by_code);
            }
            Action::Closed => world.closed += 1,
            Action::Hold { worker, held: true } => {
                world.held.insert(worker);
            }
            Action::Hold { worker, held: false } => {
                world.held.remove(&worker);
            }
            Action::RefuseWaiting => world.refused += 1,
            Action::ShowWorker { .. } | Action::ShowZygote { .. } => {}
            Action::Spare { worker } => {
                world.spared.insert(worker);
            }
            Action::Hope => world.failing = None,
        }
    }

    fn check(&self) {
        let workers = || self.machine.fleet().workers().values();
        let live: Vec<u32> = workers().filter(|worker| worker.is_live()).map(|worker| worker.nr).collect();
        assert!(live.len() <= self.machine.bounds().target || self.machine.is_stopping(), "{live:?} live workers");
        assert_eq!(live.iter().collect::<BTreeSet<_>>().len(), live.len(), "two of one number: {live:?}");
        let out = self
            .machine
            .fleet()
            .workers()
            .iter()
            .filter(|(_, worker)| worker.is_out() && worker.state() != State::Starting);
        let in_turn = out.filter(|(key, _)| !self.world.spent.contains(key)).count();
        assert!(in_turn <= self.together, "{in_turn} are out");
        let loading = self.world.zygotes.values().filter(|zygote| **zygote == Zygote::Loading).count();
        assert!(loading <= 2, "{loading} zygotes load");
        let serving = self.machine.fleet().workers().values().any(|worker| worker.state() == State::Ready);
        assert_eq!(self.machine.fleet().serving_since().is_some(), serving, "whether a worker is ready");
        assert!(self.world.closed <= 1, "closed twice");
        assert!(self.world.closed == 0 || self.machine.is_stopping(), "closed without a word");
        assert!(self.world.refused <= u32::from(self.machine.is_stopping()), "what waits was refused");
        assert!(self.world.closed == 0 || self.world.alive.is_empty(), "closed over living workers");
        assert!(self.world.closed == 0 || self.world.zygotes.is_empty(), "closed over zygotes");
        let wake = self.machine.next_wake().filter(|_| !self.machine.is_closed());
        assert!(wake.is_none_or(|at| at > self.start + self.now), "it would not let the driver sleep");
    }
}
