//! The policy of scaling against loads: a simulated pool with a start-up time is driven by arrivals, and asked what it did.
//!
//! A load is data: stretches of time with a rate of arrivals and a run time, whose arrivals are drawn by a generator that
//! always draws the same. The simulated pool keeps the appointments that the policy asks for, and no others.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use clutch_pool::supervisor::scale::{Bounds, Rules, Sample, Scaling, room};

const STEP: Duration = Duration::from_millis(1);
const RULES: Rules = Rules { delay: Duration::from_millis(100), idle: Duration::from_secs(30), memory_max: None };

/// So many seconds with so many calls a second, each of which runs for so many milliseconds.
type Stretch = (f64, f64, u64);

const STEADY: &[Stretch] = &[(600.0, 40.0, 50)];
const STEADY_SHORT: &[Stretch] = &[(300.0, 1500.0, 2)];
const STEP_UP_AND_DOWN: &[Stretch] = &[(60.0, 2.0, 50), (60.0, 100.0, 50), (180.0, 2.0, 50)];
const BURST: &[Stretch] = &[(30.0, 0.0, 1), (0.2, 2000.0, 20), (120.0, 0.0, 1)];
const SLOW_CALLS: &[Stretch] = &[(5.0, 0.0, 1), (0.1, 50.0, 20_000), (120.0, 0.0, 1)];
const IDLE_NIGHT: &[Stretch] = &[(3600.0, 0.02, 5)];
const TRICKLE: &[Stretch] = &[(600.0, 5.0, 10)];

/// On for so many seconds, off for as many, and again.
fn sawtooth(seconds: f64, times: usize) -> Vec<Stretch> {
    [(seconds, 80.0, 50), (seconds, 0.0, 1)].repeat(times)
}

/// When calls arrive and how long they run.
fn arrivals(load: &[Stretch]) -> Vec<(Duration, Duration)> {
    let (mut found, mut begin, mut state) = (Vec::new(), 0.0, 7u64);
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 11) as f64 / (1u64 << 53) as f64).max(1e-12)
    };
    for (seconds, rate, run_ms) in load {
        let end = begin + seconds;
        // A rate of zero puts the first one at infinity.
        let mut at = begin - draw().ln() / rate;
        while at < end {
            found.push((Duration::from_secs_f64(at), Duration::from_millis(*run_ms)));
            at -= draw().ln() / rate;
        }
        begin += seconds;
    }
    found
}

struct Worker {
    ready_at: Duration,
    leaving: bool,
    /// When each of its slots is free again.
    slots: Vec<Duration>,
}

/// A pool, its clock, and what happened.
struct Pool {
    scaling: Scaling,
    bounds: Bounds,
    start_up: Duration,
    slots: usize,
    private: u64,
    start: Instant,
    now: Duration,
    workers: Vec<Worker>,
    queue: VecDeque<(Duration, Duration)>,
    busy_least: usize,
    finished: u64,
    run_ns: u64,
    looks: usize,
    changes: Vec<(Duration, usize, usize)>,
    /// How long each call waited, by when it began.
    waits: Vec<(Duration, Duration)>,
}

impl Pool {
    fn new(min: usize, max: usize) -> Pool {
        let mut pool = Pool {
            scaling: Scaling::new(RULES),
            bounds: Bounds { min, max, target: min },
            start_up: Duration::from_millis(30),
            slots: 1,
            private: 10,
            start: Instant::now(),
            now: Duration::ZERO,
            workers: Vec::new(),
            queue: VecDeque::new(),
            busy_least: 0,
            finished: 0,
            run_ns: 0,
            looks: 0,
            changes: Vec::new(),
            waits: Vec::new(),
        };
        pool.add_missing(Duration::ZERO);
        pool
    }

    fn after(min: usize, max: usize, load: &[Stretch]) -> Pool {
        let mut pool = Pool::new(min, max);
        pool.live_through(load);
        pool
    }

    fn live_through(&mut self, load: &[Stretch]) {
        let until = self.now + Duration::from_secs_f64(load.iter().map(|(seconds, ..)| seconds).sum());
        let begin = self.now;
        let mut arriving: VecDeque<_> = arrivals(load).into();
        while self.now < until {
            self.end_calls();
            while arriving.front().is_some_and(|(at, _)| begin + *at <= self.now) {
                self.queue.extend(arriving.pop_front().map(|(at, run)| (begin + at, run)));
            }
            self.begin_calls();
            self.look();
            self.now += STEP;
        }
    }

    fn end_calls(&mut self) {
        let now = self.now;
        self.workers.retain(|worker| !worker.leaving || worker.slots.iter().any(|free_at| *free_at > now));
        self.busy_least = self.busy_least.min(self.busy());
    }

    fn serving(&self) -> impl Iterator<Item = &Worker> {
        self.workers.iter().filter(|worker| !worker.leaving && worker.ready_at <= self.now)
    }

    fn busy(&self) -> usize {
        self.serving().flat_map(|worker| &worker.slots).filter(|free_at| **free_at > self.now).count()
    }

    fn begin_calls(&mut self) {
        let now = self.now;
        for worker in self.workers.iter_mut().filter(|worker| !worker.leaving && worker.ready_at <= now) {
            for slot in worker.slots.iter_mut().filter(|free_at| **free_at <= now) {
                let Some((came, run)) = self.queue.pop_front() else { return };
                *slot = now + run;
                self.finished += 1;
                self.run_ns += run.as_nanos() as u64;
                self.waits.push((now, now - came));
            }
        }
    }

    fn look(&mut self) {
        let waits_since = self.queue.front().map(|(came, _)| self.start + *came);
        let now = self.start + self.now;
        if self.scaling.next_look(self.bounds, waits_since).is_none_or(|at| at > now) {
            return;
        }
        self.looks += 1;
        let sample = self.sample();
        self.busy_least = self.busy();
        let Some(decision) = self.scaling.decide(&sample, now) else { return };
        let Bounds { min, max, target } = self.bounds;
        assert!((min..=max).contains(&decision.target) && decision.target != target, "{decision:?} of {target}");
        assert!(decision.target > target || self.queue.is_empty(), "a step down while work waits");
        assert!(decision.target + 1 >= target, "down by more than one");
        self.changes.push((self.now, target, decision.target));
        self.bounds.target = decision.target;
        self.add_missing(self.start_up);
        self.let_one_go(target);
    }

    fn sample(&self) -> Sample {
        let ready = self.serving().count();
        let staying = self.workers.iter().filter(|worker| !worker.leaving).count();
        Sample {
            bounds: self.bounds,
            serving: self.now,
            ready,
            starting: staying - ready,
            processes: self.workers.len(),
            slots: self.slots,
            busy: self.busy(),
            busy_least: self.busy_least.min(self.busy()),
            waiting: self.queue.len(),
            waited: self.queue.front().map(|(came, _)| self.now - *came),
            finished: self.finished,
            run_ns: self.run_ns,
            private: vec![self.private; ready],
        }
    }

    fn add_missing(&mut self, start_up: Duration) {
        while self.workers.iter().filter(|worker| !worker.leaving).count() < self.bounds.target {
            let slots = vec![Duration::ZERO; self.slots];
            self.workers.push(Worker { ready_at: self.now + start_up, leaving: false, slots });
        }
    }

    fn let_one_go(&mut self, before: usize) {
        if self.bounds.target < before {
            let now = self.now;
            let staying = self.workers.iter_mut().filter(|worker| !worker.leaving);
            let idlest = staying.min_by_key(|worker| worker.slots.iter().filter(|free_at| **free_at > now).count());
            idlest.expect("a worker").leaving = true;
        }
    }

    // ---- what is asked of it

    /// Changes from up to down and from down to up.
    fn turns(&self) -> usize {
        let ups: Vec<bool> = self.changes.iter().map(|(_, from, to)| to > from).collect();
        ups.windows(2).filter(|pair| pair[0] != pair[1]).count()
    }

    fn changes_from(&self, seconds: u64) -> usize {
        self.changes.iter().filter(|(at, ..)| at.as_secs() >= seconds).count()
    }

    /// The longest wait of calls that began between these seconds.
    fn longest_wait(&self, from: u64, to: u64) -> Duration {
        let within = self.waits.iter().filter(|(at, _)| (from..to).contains(&at.as_secs()));
        within.map(|(_, waited)| *waited).max().unwrap_or_default()
    }

    /// The target at a time.
    fn target_at(&self, seconds: f64) -> usize {
        let at = Duration::from_secs_f64(seconds);
        let before = self.changes.iter().rev().find(|(changed, ..)| *changed <= at);
        before.map_or(self.bounds.min, |(_, _, to)| *to)
    }

    fn report(&self) -> String {
        let changes: Vec<String> =
            self.changes.iter().map(|(at, from, to)| format!("{:.2}s {from}→{to}", at.as_secs_f64())).collect();
        format!("{} looks; {}", self.looks, changes.join(", "))
    }
}

/// A look, its decision and the start of a worker take this much at most, beside `scale.delay`.
const REACTION: Duration = Duration::from_millis(100);

#[test]
fn failure_37_steady_load_finds_its_size_and_stays() {
    let pool = Pool::after(1, 16, STEADY);
    assert!(pool.bounds.target >= 2, "two slots are always busy");
    assert!(pool.changes.len() <= 5 && pool.turns() <= 2, "{}", pool.report());
    assert_eq!(pool.changes_from(120), 0, "{}", pool.report());
    assert!(pool.longest_wait(0, 600) <= RULES.delay + REACTION);
}

#[test]
fn failure_37_a_thousand_short_calls_a_second_do_not_shake_it() {
    let pool = Pool::after(1, 16, STEADY_SHORT);
    assert!((3..=6).contains(&pool.bounds.target), "{}", pool.report());
    assert!(pool.changes.len() <= 3 && pool.changes_from(60) == 0, "{}", pool.report());
    assert!(pool.longest_wait(5, 300) <= RULES.delay);
}

#[test]
fn failure_37_a_step_is_followed_and_it_comes_back() {
    let pool = Pool::after(1, 16, STEP_UP_AND_DOWN);
    assert_eq!(pool.target_at(60.0), 1, "one was enough: {}", pool.report());
    assert!(pool.target_at(60.5) >= 5, "five slots are needed, at once rather than one by one: {}", pool.report());
    assert!(pool.longest_wait(0, 300) <= RULES.delay + REACTION);
    assert!(pool.longest_wait(62, 120) <= RULES.delay);
    assert!(pool.target_at(120.0 + 30.0) >= 5, "not before it was idle: {}", pool.report());
    assert_eq!(pool.bounds.target, 1, "{}", pool.report());
    assert!(pool.turns() <= 1, "{}", pool.report());
}

#[test]
fn failure_37_after_a_burst_it_is_small_again() {
    let pool = Pool::after(2, 8, BURST);
    let (first, ..) = pool.changes[0];
    assert!(first < Duration::from_millis(30_000 + 300), "{}", pool.report());
    assert!(pool.changes.iter().any(|(.., to)| *to == 8) && pool.turns() == 1, "{}", pool.report());
    assert_eq!(pool.bounds.target, 2, "{}", pool.report());
}

#[test]
fn failure_37_calls_of_unknown_length_get_a_slot_each() {
    let pool = Pool::after(1, 16, SLOW_CALLS);
    let calls = pool.waits.len();
    assert!(calls > 2 && pool.target_at(10.0) == calls, "{}", pool.report());
    assert!(pool.longest_wait(0, 10) <= RULES.delay + 2 * REACTION);
    assert_eq!(pool.changes_from(10), calls - 1, "one after the other when they are over: {}", pool.report());
}

#[test]
fn failure_37_a_load_that_comes_and_goes_faster_than_idle_changes_nothing() {
    let pool = Pool::after(1, 16, &sawtooth(10.0, 20));
    assert!(pool.changes_from(1) <= 2 && pool.turns() <= 1, "{}", pool.report());
}

#[test]
fn failure_37_one_that_comes_and_goes_slowly_is_followed_once_each_time() {
    const TIMES: usize = 6;
    let pool = Pool::after(1, 16, &sawtooth(60.0, TIMES));
    assert!(pool.turns() < 2 * TIMES, "{}", pool.report());
    assert!(pool.longest_wait(0, 720) <= 4 * RULES.delay, "{}", pool.report());
    for time in 0..TIMES {
        assert!(pool.target_at(120.0 * time as f64 + 30.0) >= 4, "{}", pool.report());
    }
}

#[test]
fn failure_37_a_night_without_work_costs_nothing() {
    for load in [IDLE_NIGHT, TRICKLE] {
        let pool = Pool::after(1, 16, load);
        assert!(pool.waits.len() > 20);
        assert_eq!((pool.changes.len(), pool.looks), (0, 0), "it does not even look");
    }
}

#[test]
fn failure_37_beside_one_long_call_there_is_room_for_short_ones() {
    let mut pool = Pool::new(1, 16);
    pool.queue.push_back((Duration::ZERO, Duration::from_secs(300)));
    pool.live_through(&[(400.0, 1.0, 10)]);
    assert!((2..=3).contains(&pool.target_at(10.0)), "{}", pool.report());
    assert_eq!(pool.target_at(299.0), 2, "{}", pool.report());
    assert!(pool.changes.len() <= 4 && pool.turns() <= 1, "{}", pool.report());
    assert_eq!(pool.bounds.target, 1, "{}", pool.report());
}

#[test]
fn failure_37_slow_starts_are_waited_for() {
    let mut pool = Pool::new(1, 16);
    pool.start_up = Duration::from_secs(2);
    pool.live_through(STEP_UP_AND_DOWN);
    assert!(pool.longest_wait(70, 120) <= 2 * RULES.delay, "{}", pool.report());
    let ups = pool.changes.iter().filter(|(at, from, to)| at.as_secs() < 70 && to > from).count();
    assert!(ups <= 8, "{}", pool.report());
    assert_eq!(pool.bounds.target, 1, "{}", pool.report());
}

#[test]
fn failure_37_workers_with_many_slots_are_counted_by_their_slots() {
    let mut pool = Pool::new(1, 16);
    pool.workers.clear();
    pool.slots = 8;
    pool.add_missing(Duration::ZERO);
    pool.live_through(&[(60.0, 400.0, 50), (120.0, 2.0, 50)]);
    assert!((3..=5).contains(&pool.target_at(30.0)), "twenty slots are needed: {}", pool.report());
    assert_eq!(pool.bounds.target, 1, "{}", pool.report());
}

#[test]
fn failure_37_what_waits_for_the_first_worker_does_not_make_it_grow() {
    let mut scaling = Scaling::new(RULES);
    let pool = Pool::new(1, 16);
    let waiting = Sample { waiting: 10, waited: Some(Duration::from_secs(5)), ready: 0, starting: 1, ..pool.sample() };
    let mut decide = |sample: &Sample, ms| scaling.decide(sample, pool.start + Duration::from_millis(ms));
    for ms in [5000, 5100] {
        assert_eq!(decide(&Sample { serving: Duration::ZERO, ..waiting.clone() }, ms), None);
    }
    let served = |ms| Sample { ready: 1, starting: 0, busy: 1, serving: Duration::from_millis(ms), ..waiting.clone() };
    assert_eq!(decide(&served(50), 5150), None, "just ready");
    assert_eq!(decide(&served(120), 5220), None, "for a blink");
    assert_eq!(decide(&served(150), 5250).map(|decision| decision.target), Some(11), "a slot for each");
}

#[test]
fn failure_37_memory_bounds_growth() {
    let mut pool = Pool::new(1, 16);
    pool.scaling = Scaling::new(Rules { memory_max: Some(45), ..RULES });
    pool.live_through(STEP_UP_AND_DOWN);
    let most = pool.changes.iter().map(|(.., to)| *to).max();
    assert_eq!(most, Some(4), "four workers of 10 bytes are less than 45, five are more: {}", pool.report());
}

#[test]
fn room_is_what_the_largest_needs() {
    assert_eq!(room(100, &[20, 10], 2), 3);
    assert_eq!(room(100, &[20, 10], 3), 2, "the third is not known yet: as large as the largest");
    assert_eq!(room(100, &[120], 1), 0);
    assert_eq!(room(100, &[], 1), 0, "nobody knows what one needs");
}
