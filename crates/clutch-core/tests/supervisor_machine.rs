//! Properties of the supervisor's machine, under a world that answers its actions in any order and at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use clutch_core::config::{Overflow, PoolConfig, Profile, Shape, Start};
use clutch_core::pool::Memory;
use clutch_core::pool::state::WorkerKey;
use clutch_core::supervisor::state::{Action, Event, Supervisor};
use clutch_core::sys::Fate;
use proptest::prelude::*;

const TARGET: u32 = 3;
const MEMORY: u64 = 1000;

fn config(recycle_age_ms: Option<u64>) -> PoolConfig {
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
        recycle_age_ms,
        recycle_memory_bytes: Some(MEMORY),
        workers_min: TARGET,
        scale_delay_ms: 100,
        scale_idle_ms: 30_000,
        memory_max_bytes: None,
        recycle_jitter: 0.1,
        grace_ms: 1_000,
        deaths_max: 3,
        interrupt_grace_ms: 1_000,
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
    /// Why, in order.
    reasons: Vec<&'static str>,
    /// Get no more work, for their memory.
    barred: BTreeSet<WorkerKey>,
    /// Those that leave before their replacement is there.
    short: Vec<WorkerKey>,
    gone: BTreeSet<WorkerKey>,
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
    fn new(recycle_age_ms: Option<u64>) -> Play {
        Play::with(config(recycle_age_ms))
    }

    fn with(config: PoolConfig) -> Play {
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

    fn see(&mut self, action: Action) {
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
            Action::Drain { worker, reason } => {
                assert!(world.draining.insert(worker), "drained twice");
                world.reasons.push(reason);
            }
            Action::Bar { worker, barred } => {
                assert!(world.alive.contains_key(&worker), "barred before it lives");
                if barred {
                    world.barred.insert(worker)
                } else {
                    world.barred.remove(&worker)
                };
            }
            Action::End { worker } => assert!(world.draining.contains(&worker), "ended before it was drained"),
            Action::Gone { worker, .. } => {
                assert!(world.gone.insert(worker), "gone twice");
                world.wanted.remove(&worker);
                world.alive.remove(&worker);
                world.barred.remove(&worker);
            }
            Action::Closed => world.closed += 1,
            Action::Short { worker } => world.short.push(worker),
            Action::Hold { .. } | Action::Kill { .. } | Action::Failing { .. } | Action::RefuseWaiting => {}
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
                self.tell(Event::ZygoteUp);
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
            13 => alive.into_iter().for_each(|worker| self.tell(Event::Overdue { worker })),
            14 => alive.into_iter().for_each(|worker| self.tell(Event::LinkEnded { worker })),
            15 => self.pass(Duration::from_millis(10 << (pick % 10))),
            17 => {
                let (target, idlest) = (1 + pick % TARGET as usize, self.world.alive.keys().copied().collect());
                self.tell(Event::Resize { target, idlest });
            }
            16 => alive.into_iter().for_each(|worker| self.weigh(&[worker], [0, MEMORY - 1, MEMORY][pick / 7 % 3])),
            _ => {}
        }
    }

    /// They were looked at, and each has so much private memory.
    fn weigh(&mut self, workers: &[WorkerKey], private: u64) {
        let memory = Memory { rss: 2 * MEMORY, private: Some(private) };
        self.tell(Event::Memory(workers.iter().map(|worker| (*worker, memory)).collect()));
    }

    /// Forks all that is asked for; each is ready.
    fn start_wanted(&mut self) {
        for worker in std::mem::take(&mut self.world.wanted) {
            self.world.alive.insert(worker, true);
            self.tell(Event::Forked { worker, pid: 1000 + worker as i32 });
            self.tell(Event::WorkerReady { worker });
        }
    }

    /// A full pool, and its workers.
    fn full(config: PoolConfig) -> (Play, Vec<WorkerKey>) {
        let mut play = Play::with(config);
        play.happen(0, 0);
        play.start_wanted();
        let workers: Vec<WorkerKey> = play.world.alive.keys().copied().collect();
        assert_eq!(workers.len(), TARGET as usize);
        (play, workers)
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
        history in prop::collection::vec((0u8..18, any::<usize>()), 0..120),
        aging in any::<bool>(),
    ) {
        let mut play = Play::new(aging.then_some(60_000));
        for (what, pick) in history {
            play.happen(what, pick);
        }
        // Workers that were killed answer at last.
        for key in play.world.alive.keys().copied().collect::<Vec<_>>() {
            play.tell(Event::Fate { worker: key, fate: Fate::Signaled(9) });
        }
        play.mend();
        prop_assert_eq!(play.machine.ready(), play.machine.target);
        prop_assert!(play.machine.failing().is_none());
        prop_assert!(play.world.barred.is_empty());
    }

    #[test]
    fn any_history_ends_when_told_to(history in prop::collection::vec((0u8..18, any::<usize>()), 0..120)) {
        let mut play = Play::new(None);
        for (what, pick) in history {
            play.happen(what, pick);
        }
        play.tell(Event::Stop { grace: Duration::from_secs(1) });
        play.pass(Duration::from_secs(2));
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

#[test]
fn failure_12_every_start_fails_at_a_bounded_rate() {
    let mut play = Play::new(None);
    for _ in 0..600_000 {
        play.happen(1, 0);
        play.pass(Duration::from_millis(1));
    }
    // Ten minutes: 0.1, 0.2, 0.4 … 6.4 s, then one try each 10 s.
    assert!(play.world.zygotes_started <= 70, "{} starts", play.world.zygotes_started);
    assert!(play.machine.failing().is_some());
}

#[test]
fn failure_34_workers_that_have_grown_leave_one_after_the_other() {
    let (mut play, workers) = Play::full(config(None));
    play.weigh(&workers, MEMORY - 1);
    for nr in 0..workers.len() {
        assert_eq!(play.world.wanted.len(), 1, "one replacement at a time");
        assert_eq!(play.world.draining.len(), nr, "it is ready before the old one drains");
        assert!(play.world.barred.is_empty(), "below the limit itself they go on meanwhile");
        play.start_wanted();
        let leaving = *play.world.draining.iter().next_back().expect("a worker that drains");
        assert!(play.world.wanted.is_empty(), "the next one waits until this one is gone");
        play.tell(Event::Fate { worker: leaving, fate: Fate::Exited(0) });
    }
    assert!(play.world.wanted.is_empty(), "the new ones are small");
    assert_eq!(play.world.reasons, ["memory"; TARGET as usize]);
}

#[test]
fn failure_35_at_the_limit_a_worker_gets_no_more_work() {
    let (mut play, workers) = Play::full(config(None));
    play.weigh(&workers[..2], MEMORY);
    assert_eq!(play.world.barred, workers[..2].iter().copied().collect(), "both at once: the limit is a promise");
    assert_eq!(play.world.wanted.len(), 2);
    assert!(play.world.draining.is_empty());
    play.start_wanted();
    assert_eq!(play.world.draining, workers[..2].iter().copied().collect());
}

#[test]
fn failure_34_without_a_replacement_the_old_one_serves_on() {
    let (mut play, workers) = Play::full(config(None));
    play.weigh(&workers[..1], MEMORY);
    let worker = *play.world.wanted.iter().next().expect("a replacement");
    play.tell(Event::ForkFailed { worker, reason: "no memory".to_owned() });
    play.world.wanted.clear();
    assert!(play.world.barred.is_empty() && play.world.draining.is_empty());
    play.weigh(&workers[..1], 2 * MEMORY);
    assert!(play.world.barred.is_empty(), "it may grow meanwhile");
    play.pass(Duration::from_secs(1));
    play.start_wanted();
    assert_eq!(play.world.draining, workers[..1].iter().copied().collect(), "starts work again");
}

#[test]
fn nothing_is_due_while_another_is_replaced() {
    let (mut play, _) = Play::full(config(Some(1000)));
    play.pass(Duration::from_secs(2));
    assert_eq!(play.world.wanted.len(), 1);
    let next = play.machine.next_wake().expect("the replacement's start has a limit");
    assert!(next > play.start + play.now, "or the driver would spin");
}

#[test]
fn failure_37_those_with_the_least_to_do_leave() {
    let (mut play, workers) = Play::full(config(None));
    let idlest = vec![workers[1], workers[0], workers[2]];
    play.tell(Event::Resize { target: 2, idlest: idlest.clone() });
    assert_eq!(play.world.draining, BTreeSet::from([workers[1]]));
    assert_eq!(play.world.reasons, ["scaled down"]);
    play.tell(Event::Resize { target: 1, idlest });
    assert_eq!(play.world.draining, BTreeSet::from([workers[0], workers[1]]));
    for worker in [workers[0], workers[1]] {
        play.tell(Event::Drained { worker });
        play.tell(Event::Fate { worker, fate: Fate::Exited(0) });
    }
    assert!(play.world.wanted.is_empty(), "nobody takes their places");
    assert_eq!((play.machine.ready(), play.machine.restarts), (1, 0));
    play.tell(Event::Resize { target: 3, idlest: Vec::new() });
    assert_eq!(play.world.wanted.len(), 2);
}

#[test]
fn whoever_is_left_after_a_step_down_is_replaced_by_policy_too() {
    let (mut play, workers) = Play::full(config(None));
    play.tell(Event::Resize { target: 1, idlest: vec![workers[0], workers[1], workers[2]] });
    for worker in &workers[..2] {
        play.tell(Event::Fate { worker: *worker, fate: Fate::Exited(0) });
    }
    play.tell(Event::Worn { worker: workers[2] });
    play.start_wanted();
    assert!(play.world.draining.contains(&workers[2]), "though its number is not the lowest");
    assert_eq!(play.machine.ready(), 1);
}

#[test]
fn with_a_full_budget_the_old_worker_goes_before_the_new_one_comes() {
    let budget = 3 * MEMORY / 2;
    let (mut play, workers) = Play::full(PoolConfig { memory_max_bytes: Some(budget), ..config(None) });
    play.weigh(&workers, budget / 3);
    play.tell(Event::Worn { worker: workers[0] });
    assert_eq!(play.world.short, workers[..1]);
    assert_eq!(play.world.draining, BTreeSet::from([workers[0]]));
    play.tell(Event::Drained { worker: workers[0] });
    assert!(play.world.wanted.is_empty(), "not while the old one is there");
    play.tell(Event::Fate { worker: workers[0], fate: Fate::Exited(0) });
    assert_eq!(play.world.wanted.len(), 1);
    play.start_wanted();
    play.weigh(&workers[1..], budget / 10);
    let newest = *play.world.alive.keys().next_back().expect("the new one");
    play.weigh(&[newest], budget / 10);
    play.tell(Event::Worn { worker: workers[1] });
    assert_eq!((play.world.wanted.len(), play.world.short.len()), (1, 1), "with room as ever: the new one first");
}
