//! Properties of the supervisor's machine, under a world that answers its actions in any order and at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use clutch_core::config::{Overflow, PoolConfig, Profile, Shape, Start};
use clutch_core::pool::state::WorkerKey;
use clutch_core::supervisor::state::{Action, Event, Supervisor, stop_term};
use clutch_core::sys::{EndSignal, Fate};
use proptest::prelude::*;

const TARGET: u32 = 3;
const GRACE: Duration = Duration::from_secs(1);
const TERM_GRACE: Duration = Duration::from_millis(700);

/// Three workers of one slot; tests change what they are about.
fn config() -> PoolConfig {
    PoolConfig {
        name: "model".to_owned(),
        shape: Shape { profile: Profile::Process, workers: TARGET, threads: 1, tasks: 1 },
        python: "python3".to_owned(),
        env: BTreeMap::new(),
        start: Start::Fork,
        start_timeout_ms: 5_000,
        deadline_ms: None,
        queue_limit: None,
        overflow: Overflow::Reject,
        recycle_calls: None,
        recycle_age_ms: None,
        recycle_jitter: 0.1,
        grace_ms: GRACE.as_millis() as u64,
        interrupt_grace_ms: 1_000,
        term_grace_ms: TERM_GRACE.as_millis() as u64,
        stopped_limit_ms: 2_000,
        payload_bytes_max: 1 << 20,
        output_kept_bytes: 8 << 10,
        required: true,
        launch: serde_json::Value::Null,
    }
}

/// What the outside of the machine is like.
#[derive(Debug, Default)]
struct World {
    zygote_loading: bool,
    zygote_up: bool,
    /// Asked for, not forked yet.
    wanted: BTreeSet<WorkerKey>,
    /// Alive, and whether ready.
    alive: BTreeMap<WorkerKey, bool>,
    draining: BTreeSet<WorkerKey>,
    gone: BTreeSet<WorkerKey>,
    /// When each was told what.
    signals: Vec<(WorkerKey, EndSignal, Duration)>,
    zygotes_started: u32,
    closed: u32,
}

struct Play {
    machine: Supervisor,
    world: World,
    start: Instant,
    now: Duration,
}

impl Play {
    fn new(config: PoolConfig) -> Play {
        let machine = Supervisor::new(config);
        let mut play = Play { machine, world: World::default(), start: Instant::now(), now: Duration::ZERO };
        play.tell(Event::Tick);
        play
    }

    fn tell(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.machine.on(event, self.start + self.now, &mut actions);
        for action in actions {
            self.see(action);
        }
        self.check();
    }

    /// A pool with all of its workers ready.
    fn ready(config: PoolConfig) -> Play {
        let mut play = Play::new(config);
        play.happen(0, 0);
        play.let_start();
        play
    }

    /// What was asked for is forked and becomes ready.
    fn let_start(&mut self) {
        while let Some(key) = self.world.wanted.pop_first() {
            self.world.alive.insert(key, false);
            self.tell(Event::Forked { worker: key, pid: 1000 + key as i32 });
        }
        for key in self.world.alive.iter().filter(|(_, ready)| !**ready).map(|(key, _)| *key).collect::<Vec<_>>() {
            self.world.alive.insert(key, true);
            self.tell(Event::WorkerReady { worker: key });
        }
    }

    /// When this worker was told so for the first time.
    fn told(&self, worker: WorkerKey, signal: EndSignal) -> Option<Duration> {
        self.world.signals.iter().find(|(to, what, _)| (*to, *what) == (worker, signal)).map(|(_, _, at)| *at)
    }

    fn see(&mut self, action: Action) {
        let now = self.now;
        let world = &mut self.world;
        match action {
            Action::StartZygote { .. } => {
                assert!(!world.zygote_loading && !world.zygote_up, "a second zygote");
                world.zygote_loading = true;
                world.zygotes_started += 1;
            }
            Action::KillZygote => (world.zygote_loading, world.zygote_up) = (false, false),
            Action::Fork { worker, nr } => {
                assert!(world.zygote_up, "a fork without a zygote");
                assert!(nr < TARGET, "worker {nr} of {TARGET}");
                assert!(world.wanted.insert(worker), "forked twice");
            }
            Action::Admit { worker, .. } => assert_eq!(world.alive.get(&worker), Some(&true), "admitted before ready"),
            Action::Drain { worker, .. } => assert!(world.draining.insert(worker), "drained twice"),
            Action::End { worker } => assert!(world.draining.contains(&worker), "ended before it was drained"),
            Action::Gone { worker, .. } => {
                assert!(world.gone.insert(worker), "gone twice");
                world.wanted.remove(&worker);
                world.alive.remove(&worker);
            }
            Action::Closed => world.closed += 1,
            Action::Kill { worker, signal } => world.signals.push((worker, signal, now)),
            Action::Hold { .. } | Action::Failing { .. } | Action::RefuseWaiting => {}
        }
    }

    fn check(&self) {
        let live = self.machine.workers.values().filter(|worker| worker.is_live()).count();
        assert!(live <= TARGET as usize, "{live} live workers");
        assert!(self.world.closed <= 1, "closed twice");
        assert!(self.world.closed == 0 || self.world.alive.is_empty(), "closed over living workers");
    }

    /// One thing that may happen next; `pick` chooses among the workers that it may happen to.
    fn happen(&mut self, what: u8, pick: usize) {
        let nth = |keys: Vec<WorkerKey>| keys.get(pick % keys.len().max(1)).copied();
        let wanted = nth(self.world.wanted.iter().copied().collect());
        let alive = nth(self.world.alive.keys().copied().collect());
        let gone = |signaled| Event::ZygoteGone { reason: "gone".to_owned(), signaled };
        match what {
            0 if self.world.zygote_loading => {
                (self.world.zygote_loading, self.world.zygote_up) = (false, true);
                self.tell(Event::ZygoteUp { shape: None });
            }
            1 if self.world.zygote_loading => {
                self.world.zygote_loading = false;
                self.tell(Event::ZygoteFailed("no module named shop".to_owned()));
            }
            2 if self.world.zygote_loading || self.world.zygote_up => {
                (self.world.zygote_loading, self.world.zygote_up) = (false, false);
                self.tell(gone(pick % 2 == 0));
            }
            3..=5 => {
                if let Some(worker) = wanted.filter(|_| self.world.zygote_up) {
                    self.world.wanted.remove(&worker);
                    self.world.alive.insert(worker, false);
                    self.tell(Event::Forked { worker, pid: 1000 + worker as i32 });
                }
            }
            6..=8 => {
                if let Some(worker) = alive {
                    self.world.alive.insert(worker, true);
                    self.tell(Event::WorkerReady { worker });
                }
            }
            9 => alive.into_iter().for_each(|worker| self.tell(Event::Fate { worker, fate: Fate::Signaled(9) })),
            10 => alive.into_iter().for_each(|worker| self.tell(Event::Fate { worker, fate: Fate::Stopped })),
            11 => alive.into_iter().for_each(|worker| self.tell(Event::Worn { worker })),
            12 => alive.into_iter().for_each(|worker| self.tell(Event::Drained { worker })),
            13 => alive.into_iter().for_each(|worker| self.tell(Event::Stuck { worker, cause: "late".to_owned() })),
            14 => alive.into_iter().for_each(|worker| self.tell(Event::LinkEnded { worker })),
            15 => self.pass(Duration::from_millis(10 << (pick % 10))),
            _ => {}
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.tell(Event::Tick);
    }

    /// From here on nothing goes wrong: every zygote loads, every worker is ready, what drains ends.
    fn mend(&mut self) {
        for _ in 0..200 {
            self.happen(0, 0);
            for key in self.world.wanted.clone() {
                self.world.wanted.remove(&key);
                self.world.alive.insert(key, false);
                self.tell(Event::Forked { worker: key, pid: 1000 + key as i32 });
            }
            for (key, ready) in self.world.alive.clone() {
                if self.world.draining.contains(&key) {
                    self.tell(Event::Fate { worker: key, fate: Fate::Exited(0) });
                } else if !ready && self.world.alive.contains_key(&key) {
                    self.world.alive.insert(key, true);
                    self.tell(Event::WorkerReady { worker: key });
                } else {
                    self.tell(Event::Fate { worker: key, fate: Fate::Continued });
                }
            }
            self.pass(Duration::from_millis(500));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn any_history_keeps_the_promises_and_recovers(
        history in prop::collection::vec((0u8..16, any::<usize>()), 0..120),
        aging in any::<bool>(),
        threads in 1u32..3,
    ) {
        let mut play = Play::new(PoolConfig { recycle_age_ms: aging.then_some(60_000), ..with_threads(threads) });
        for (what, pick) in history {
            play.happen(what, pick);
        }
        // Workers that were killed answer at last.
        for key in play.world.alive.keys().copied().collect::<Vec<_>>() {
            play.tell(Event::Fate { worker: key, fate: Fate::Signaled(9) });
        }
        play.mend();
        prop_assert_eq!(play.machine.ready(), TARGET as usize);
        prop_assert!(play.machine.failing().is_none());
    }

    #[test]
    fn any_history_ends_when_told_to(
        history in prop::collection::vec((0u8..16, any::<usize>()), 0..120),
        threads in 1u32..3,
    ) {
        let mut play = Play::new(with_threads(threads));
        for (what, pick) in history {
            play.happen(what, pick);
        }
        play.tell(Event::Stop { grace: GRACE, term: stop_term(GRACE, TERM_GRACE) });
        play.pass(GRACE);
        for key in play.world.alive.keys() {
            let told = play.world.signals.iter().any(|(to, _, _)| to == key);
            prop_assert!(told, "worker {key} was told nothing when the grace was over");
        }
        play.pass(Duration::from_millis(500));
        for key in play.world.alive.keys() {
            prop_assert!(play.told(*key, EndSignal::Kill).is_some(), "worker {key} was not killed");
        }
        for key in play.world.alive.keys().copied().collect::<Vec<_>>() {
            play.tell(Event::Fate { worker: key, fate: Fate::Signaled(9) });
        }
        if !play.machine.is_closed() {
            play.tell(Event::ZygoteGone { reason: "told to".to_owned(), signaled: false });
        }
        prop_assert!(play.machine.is_closed());
        prop_assert_eq!(play.world.closed, 1);
    }
}

fn with_threads(threads: u32) -> PoolConfig {
    PoolConfig { shape: Shape { threads, ..config().shape }, ..config() }
}

fn stuck(worker: WorkerKey) -> Event {
    Event::Stuck { worker, cause: "late".to_owned() }
}

#[test]
fn a_stuck_worker_with_one_slot_is_told_at_once_and_replaced_at_once() {
    let mut play = Play::ready(config());
    play.tell(stuck(1));
    assert_eq!(play.told(1, EndSignal::Term), Some(Duration::ZERO));
    assert_eq!(play.world.wanted.len(), 1, "its replacement is on its way");
    assert!(play.world.draining.contains(&1), "it gets no work while it ignores TERM");
    play.pass(TERM_GRACE - Duration::from_millis(1));
    assert_eq!(play.told(1, EndSignal::Kill), None);
    play.pass(Duration::from_millis(1));
    assert_eq!(play.told(1, EndSignal::Kill), Some(TERM_GRACE));
}

#[test]
fn a_stopped_worker_cannot_heed_term() {
    let mut play = Play::ready(config());
    play.tell(Event::Fate { worker: 1, fate: Fate::Stopped });
    play.tell(stuck(1));
    assert_eq!(play.told(1, EndSignal::Kill), Some(Duration::ZERO));
}

#[test]
fn neighbours_in_a_stuck_worker_have_until_they_end() {
    let mut play = Play::ready(with_threads(4));
    play.tell(stuck(1));
    assert!(play.world.signals.is_empty() && play.world.draining.is_empty(), "it serves until it is replaced");
    play.let_start();
    assert!(play.world.draining.contains(&1));
    play.pass(Duration::from_millis(300));
    play.tell(Event::Drained { worker: 1 });
    assert_eq!(play.told(1, EndSignal::Term), Some(Duration::from_millis(300)));
    play.pass(TERM_GRACE);
    assert_eq!(play.told(1, EndSignal::Kill), Some(Duration::from_millis(300) + TERM_GRACE));
}

#[test]
fn neighbours_in_a_stuck_worker_have_the_grace_at_most_also_without_a_replacement() {
    let mut play = Play::ready(with_threads(4));
    play.tell(stuck(1));
    play.pass(GRACE);
    assert_eq!(play.told(1, EndSignal::Term), Some(GRACE));
    play.pass(TERM_GRACE);
    assert_eq!(play.told(1, EndSignal::Kill), Some(GRACE + TERM_GRACE));
}

#[test]
fn a_drained_worker_that_does_not_end_is_made_to() {
    let mut play = Play::ready(PoolConfig { recycle_age_ms: Some(10_000), ..config() });
    play.pass(Duration::from_secs(10));
    play.let_start();
    let worker = *play.world.draining.first().expect("one leaves");
    play.pass(10 * GRACE);
    assert_eq!(play.told(worker, EndSignal::Term), None, "finite work is waited for without limit");
    play.tell(Event::Drained { worker });
    play.pass(GRACE);
    assert!(play.told(worker, EndSignal::Term).is_some());
}

#[test]
fn failure_06_a_stop_tells_all_workers_at_the_same_time() {
    for (grace, term) in [(GRACE, Duration::from_millis(500)), (Duration::ZERO, Duration::ZERO)] {
        assert_eq!(stop_term(grace, TERM_GRACE), term);
        let mut play = Play::ready(config());
        play.tell(Event::Stop { grace, term });
        play.pass(grace);
        play.pass(term);
        for worker in 1..=TARGET {
            let told = play.told(worker, EndSignal::Term);
            assert_eq!(told, (!term.is_zero()).then_some(grace));
            assert_eq!(play.told(worker, EndSignal::Kill), Some(grace + term));
        }
    }
}

#[test]
fn failure_12_every_start_fails_at_a_bounded_rate() {
    let mut play = Play::new(config());
    for _ in 0..600_000 {
        play.happen(1, 0);
        play.pass(Duration::from_millis(1));
    }
    // Ten minutes: 0.1, 0.2, 0.4 … 6.4 s, then one try each 10 s.
    assert!(play.world.zygotes_started <= 70, "{} starts", play.world.zygotes_started);
    assert!(play.machine.failing().is_some());
}
