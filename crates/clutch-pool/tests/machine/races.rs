//! The pool's pure machine against random events and races; `model` says what always holds.

use std::time::{Duration, Instant};

use crate::model::{STOPS_IN, Word, World, request};
use clutch_pool::pool::state::{
    AHEAD_MAX, Action, Event, Hold, Limits, Machine, Request, StopCause, Verdict, WorkerKey,
};
use clutch_pool::work::WorkId;
use proptest::prelude::*;

/// One thing that happens. Numbers pick among what is there.
#[derive(Clone, Debug)]
enum Happening {
    Submit {
        function: u32,
        priority: i8,
        deadline_ms: Option<u64>,
        block: bool,
        retry: u32,
        calls: u64,
        endless: bool,
    },
    Begin(usize),
    Finish {
        pick: usize,
        run_us: u64,
    },
    LateReply(usize),
    /// Work that runs turns out to have no end.
    MarkEndless(usize),
    Withdraw(usize),
    Abandon(usize),
    CancelWaiting,
    Pass {
        us: u64,
    },
    /// Time passes and the machine is not told.
    Slip {
        us: u64,
    },
    Ready {
        slots: usize,
        calls_max: Option<u64>,
    },
    Hold(usize, Hold),
    Release(usize, Hold),
    Drain(usize),
    Gone(usize),
    /// Ended by the pool itself.
    Ended(usize),
    /// It turns out that the worker has begun this by itself, so long ago.
    Adopt {
        pick: usize,
        deadline_us: Option<u64>,
        ran_us: u64,
        retry: u32,
        calls: u64,
        endless: bool,
    },
    /// The worker has ended calls that it had taken by itself.
    Serve {
        pick: usize,
        calls: u64,
        run_us: u64,
    },
    Racy(bool),
    Close,
    Failing,
    Recovered,
}

/// But [`Hold::Starved`], which leaves a worker what it has: see pool_limits.rs.
fn why() -> impl Strategy<Value = Hold> {
    prop_oneof![Just(Hold::Stopped), Just(Hold::Memory)]
}

fn submit() -> impl Strategy<Value = Happening> {
    let deadline = prop_oneof![3 => Just(None), 1 => (0u64..20).prop_map(Some)];
    let retry = prop_oneof![4 => Just(0u32), 1 => 1u32..3];
    let (block, endless) = (prop::bool::weighted(0.1), prop::bool::weighted(0.2));
    let calls = prop_oneof![4 => Just(1u64), 1 => 2u64..5];
    (0u32..3, -1i8..=1, deadline, block, retry, endless, calls).prop_map(
        |(function, priority, deadline_ms, block, retry, endless, calls)| Happening::Submit {
            function,
            priority,
            deadline_ms,
            block,
            retry,
            calls,
            endless,
        },
    )
}

fn adopt() -> impl Strategy<Value = Happening> {
    let deadline = prop_oneof![1 => Just(None), 1 => (0u64..5000).prop_map(Some)];
    (0usize..8, deadline, 0u64..200_000, 0u32..3, 1u64..3, any::<bool>()).prop_map(
        |(pick, deadline_us, ran_us, retry, calls, endless)| Happening::Adopt {
            pick,
            deadline_us,
            ran_us,
            retry,
            calls,
            endless,
        },
    )
}

fn happening() -> impl Strategy<Value = Happening> {
    let pick = 0usize..8;
    prop_oneof![
        30 => submit(),
        15 => pick.clone().prop_map(Happening::Begin),
        15 => (pick.clone(), prop_oneof![1u64..100, 1000u64..100_000])
            .prop_map(|(pick, run_us)| Happening::Finish { pick, run_us }),
        2 => pick.clone().prop_map(Happening::LateReply),
        3 => pick.clone().prop_map(Happening::MarkEndless),
        5 => (0usize..64).prop_map(Happening::Withdraw),
        5 => (0usize..64).prop_map(Happening::Abandon),
        1 => Just(Happening::CancelWaiting),
        10 => prop_oneof![1u64..500, 1000u64..5000].prop_map(|us| Happening::Pass { us }),
        5 => prop_oneof![1u64..500, 1000u64..5000].prop_map(|us| Happening::Slip { us }),
        6 => (1usize..4, prop_oneof![3 => Just(None), 1 => (1u64..8).prop_map(Some)])
            .prop_map(|(slots, calls_max)| Happening::Ready { slots, calls_max }),
        3 => (pick.clone(), why()).prop_map(|(pick, why)| Happening::Hold(pick, why)),
        4 => (pick.clone(), why()).prop_map(|(pick, why)| Happening::Release(pick, why)),
        2 => pick.clone().prop_map(Happening::Drain),
        3 => pick.clone().prop_map(Happening::Gone),
        1 => pick.clone().prop_map(Happening::Ended),
        8 => adopt(),
        4 => (pick, 0u64..5, 1u64..5000).prop_map(|(pick, calls, run_us)| Happening::Serve { pick, calls, run_us }),
        2 => any::<bool>().prop_map(Happening::Racy),
        1 => prop::bool::weighted(0.2).prop_map(|close| if close { Happening::Close } else { Happening::Recovered }),
        1 => Just(Happening::Failing),
        1 => Just(Happening::Recovered),
    ]
}

fn limits() -> impl Strategy<Value = Limits> {
    let queue = prop_oneof![1 => Just(None), 3 => (0usize..6).prop_map(Some)];
    let turns = (any::<bool>(), any::<bool>());
    (queue, turns).prop_map(|(queue, (block, takes_turns))| Limits { queue, block, deaths_max: 2, takes_turns })
}

fn pick_worker(world: &World, pick: usize) -> Option<WorkerKey> {
    let count = world.workers.len();
    (count > 0).then(|| *world.workers.keys().nth(pick % count).expect("in range"))
}

/// One that is there, mostly, or gone, or still to come.
fn any_worker(world: &World, pick: usize) -> WorkerKey {
    let next = world.workers.keys().last().map_or(0, |last| last + 1);
    pick_worker(world, pick).filter(|_| pick > 0).unwrap_or(next / 2 * (next % 3))
}

fn pick_work(world: &World, pick: usize) -> Option<WorkId> {
    let count = world.works.len();
    (count > 0).then(|| *world.works.keys().nth_back(pick % count).expect("in range"))
}

fn happen(world: &mut World, happening: Happening) {
    match happening {
        Happening::Submit { function, priority, deadline_ms, block, retry, endless, calls } => {
            let deadline = deadline_ms.map(|ms| world.now + Duration::from_millis(ms));
            world.submit(Request { function, priority, deadline, block, retry, endless, calls, fetcher: None });
        }
        Happening::Withdraw(pick) => pick_work(world, pick).into_iter().for_each(|id| world.withdraw(id)),
        Happening::Abandon(pick) => pick_work(world, pick).into_iter().for_each(|id| world.abandon(id)),
        Happening::CancelWaiting => world.cancel_waiting(),
        Happening::Pass { us } => world.pass(Duration::from_micros(us)),
        Happening::Slip { us } => world.now += Duration::from_micros(us),
        Happening::Ready { slots, calls_max } if world.workers.len() < 6 => {
            world.worker(slots, calls_max);
        }
        Happening::Ready { .. } => {}
        Happening::Adopt { pick, deadline_us, ran_us, retry, calls, endless } => {
            let deadline = deadline_us.map(|us| world.now + Duration::from_micros(us));
            let worker = any_worker(world, pick);
            let since = world.now - Duration::from_micros(ran_us);
            world.adopt(worker, Request { deadline, retry, endless, calls, ..request(0) }, since);
        }
        Happening::Serve { pick, calls, run_us } => {
            let worker = any_worker(world, pick);
            world.serve(worker, calls, Duration::from_micros(run_us));
        }
        Happening::Racy(racy) => world.racy = racy,
        Happening::Close => world.close(),
        Happening::Failing => world.fail(true),
        Happening::Recovered => world.fail(false),
        Happening::Begin(pick)
        | Happening::Finish { pick, .. }
        | Happening::LateReply(pick)
        | Happening::MarkEndless(pick)
        | Happening::Hold(pick, _)
        | Happening::Release(pick, _)
        | Happening::Drain(pick)
        | Happening::Gone(pick)
        | Happening::Ended(pick) => {
            if let Some(worker) = pick_worker(world, pick) {
                happen_to(world, worker, &happening);
            }
        }
    }
}

fn happen_to(world: &mut World, worker: WorkerKey, happening: &Happening) {
    match happening {
        Happening::Begin(_) => {
            world.begin(worker);
        }
        Happening::Finish { pick, run_us } => {
            let begun: Vec<WorkId> = world.workers[&worker]
                .frames
                .iter()
                .filter(|(_, word)| *word != Word::Sent)
                .map(|(id, _)| *id)
                .collect();
            if !begun.is_empty() {
                world.finish(worker, begun[pick % begun.len()], Duration::from_micros(*run_us));
            }
        }
        Happening::LateReply(pick) => {
            let answered = world.works.iter().filter(|(_, known)| known.answers == 1).map(|(id, _)| *id).nth(*pick);
            let on_link = |id: &WorkId| world.workers[&worker].frames.iter().any(|(known, _)| known == id);
            if let Some(id) = answered.filter(|id| !on_link(id)) {
                world.late_reply(worker, id);
            }
        }
        Happening::MarkEndless(pick) => {
            let begun = world.workers[&worker].frames.iter().filter(|(_, word)| *word == Word::Begun);
            if let Some(id) = begun.map(|(id, _)| *id).nth(*pick) {
                world.mark_endless(id);
            }
        }
        Happening::Hold(_, why) => world.hold(worker, *why),
        Happening::Release(_, why) => world.release(worker, *why),
        Happening::Drain(_) => world.drain(worker),
        Happening::Gone(_) => world.gone(worker),
        Happening::Ended(_) => world.leave(worker, true),
        other => unreachable!("{other:?} happens to no worker"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, max_shrink_iters: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Each submission is answered once, nothing starts past its deadline, no slot idles while work waits, first in is
    /// first out, the queue keeps its bound: whatever happens, in whatever order.
    #[test]
    fn failure_20_the_rules_hold_whatever_happens(
        limits in limits(),
        happenings in prop::collection::vec(happening(), 1..150),
    ) {
        let mut world = World::new(limits);
        for one in happenings {
            happen(&mut world, one);
        }
        world.finish_all();
    }
}

// ---- single rules, one scene each

/// Teaches the machine that function 0 is short.
fn with_short_function(world: &mut World, worker: WorkerKey) {
    for _ in 0..20 {
        world.submit(request(0));
        let id = world.begin(worker).expect("sent at once");
        world.finish(worker, id, Duration::from_micros(2));
    }
}

#[test]
fn failure_20_first_in_first_out_and_never_more_begun_than_slots() {
    let mut world = World::new(Limits::default());
    let ids: Vec<WorkId> = (0..10).map(|_| world.submit(request(1))).collect();
    let worker = world.worker(3, None);
    let sent: Vec<WorkId> = world.machine.sent(worker).collect();
    assert_eq!(sent, ids[..3], "long or unknown work is never sent ahead");
    for id in &ids {
        assert_eq!(world.begin(worker), Some(*id));
        world.finish(worker, *id, Duration::from_millis(5));
    }
    world.finish_all();
}

#[test]
fn failure_24_work_sent_ahead_of_a_stuck_call_runs_elsewhere() {
    let mut world = World::new(Limits::default());
    let stuck = world.worker(1, None);
    with_short_function(&mut world, stuck);
    let ids: Vec<WorkId> = (0..30).map(|_| world.submit(request(0))).collect();
    assert_eq!(world.begin(stuck), Some(ids[0]));
    assert!(world.workers[&stuck].frames.len() > 10, "short work is sent ahead of a busy slot");
    let other = world.worker(1, None);
    assert_eq!(world.begin(other), Some(ids[1]), "the oldest first, at once");
    for (at, id) in ids[1..].iter().enumerate() {
        world.finish(other, *id, Duration::from_micros(2));
        world.pass(Duration::from_micros(100));
        let next = ids.get(at + 2).copied();
        assert_eq!(world.begin(other), next, "everything but the stuck call runs elsewhere");
    }
    assert_eq!(world.workers[&stuck].frames.len(), 1);
    world.finish_all();
}

#[test]
fn failure_24_a_worker_that_makes_no_progress_gives_back_what_it_has_not_begun() {
    let mut world = World::new(Limits::default());
    let stuck = world.worker(1, None);
    with_short_function(&mut world, stuck);
    let ids: Vec<WorkId> = (0..10).map(|_| world.submit(request(0))).collect();
    assert_eq!(world.begin(stuck), Some(ids[0]));
    world.pass(Duration::from_millis(5));
    assert_eq!(world.workers[&stuck].frames.len(), 1);
    assert_eq!(world.queued(), 9);
    world.submit(request(0));
    assert_eq!(world.workers[&stuck].frames.len(), 1, "nothing more is sent to it");
    world.finish_all();
}

#[test]
fn a_worker_that_always_seems_to_stand_still_is_sent_little_that_is_taken_back() {
    let mut world = World::new(Limits::default());
    let slow = world.worker(100, None);
    with_short_function(&mut world, slow);
    let ids: Vec<WorkId> = (0..5000).map(|_| world.submit(request(0))).collect();
    while let Some(id) = world.begin(slow) {
        world.pass(Duration::from_millis(30));
        world.finish(slow, id, Duration::from_micros(2));
    }
    let sends: u32 = ids.iter().map(|id| world.works[id].sends).sum();
    assert!((5000..20_000).contains(&sends), "5000 calls were sent {sends} times");
    world.finish_all();
}

#[test]
fn what_is_sent_ahead_is_bounded() {
    let mut world = World::new(Limits::default());
    let worker = world.worker(2, None);
    with_short_function(&mut world, worker);
    for _ in 0..1000 {
        world.submit(request(0));
    }
    assert!(world.workers[&worker].frames.len() <= 2 + 2 * AHEAD_MAX);
    world.finish_all();
}

#[test]
fn failure_26_a_worker_that_dies_fails_what_it_had_begun_and_nothing_else() {
    let mut world = World::new(Limits::default());
    let dying = world.worker(4, None);
    with_short_function(&mut world, dying);
    let ids: Vec<WorkId> = (0..20).map(|_| world.submit(request(0))).collect();
    let begun: Vec<WorkId> = (0..4).filter_map(|_| world.begin(dying)).collect();
    assert_eq!(begun, ids[..4]);
    world.gone(dying);
    let failed: Vec<WorkId> = ids.iter().copied().filter(|id| world.works[id].answers == 1).collect();
    assert_eq!(failed, begun);
    world.finish_all();
}

// ---- counted

/// Small numbers that look random.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// One worker with one slot, and one piece of work whose deadline is now or never.
struct Race {
    machine: Machine<()>,
    out: Vec<Action<()>>,
    now: Instant,
    answers: u64,
    /// Whether the work is on the link, and whether the worker has begun it.
    sent: Option<bool>,
}

impl Race {
    fn new() -> Race {
        let (mut machine, mut out, now) = (Machine::new(Limits::default()), Vec::new(), Instant::now());
        machine.on(Event::WorkerReady { worker: 0, slots: 1, words: 64, calls_max: None }, now, &mut out);
        Race { machine, out, now, answers: 0, sent: None }
    }

    fn submit(&mut self) -> WorkId {
        let deadline = Some(self.now + Duration::from_micros(10));
        let request = Request { deadline, ..request(0) };
        self.machine.submit(request, (), self.now, &mut self.out)
    }

    fn happen(&mut self, id: WorkId, what: u64) {
        match what {
            0 => self.now += Duration::from_micros(4),
            1 => self.machine.tick(self.now, &mut self.out),
            2 if self.sent == Some(false) => self.sent = Some(true),
            3 if self.sent == Some(true) => self.finish(id),
            4 => self.machine.on(Event::Abandon { id }, self.now, &mut self.out),
            _ => {}
        }
        self.settle();
    }

    fn finish(&mut self, id: WorkId) {
        self.sent = None;
        self.answers += u64::from(self.machine.finished(0, id, 1_000_000, self.now).is_some());
    }

    fn settle(&mut self) {
        for _ in 0..100 {
            self.machine.settle(self.now, &mut self.out);
            if self.out.is_empty() {
                return;
            }
            for action in std::mem::take(&mut self.out) {
                self.act(action);
            }
        }
        panic!("the machine never settles");
    }

    fn act(&mut self, action: Action<()>) {
        match action {
            Action::Send { id, .. } => {
                let deadline = self.machine.request(id).and_then(|request| request.deadline);
                assert!(deadline.is_some_and(|at| at > self.now), "started past its deadline");
                self.sent = Some(false);
            }
            Action::Abandon { id, .. } if self.take() => {
                self.machine.on(Event::Taken { worker: 0, id, taken: true }, self.now, &mut self.out);
                self.machine.on(Event::Abandon { id }, self.now, &mut self.out);
            }
            Action::Abandon { id, .. } => {
                let answered = self.machine.answer_running(id, StopCause::Cancelled, self.now + STOPS_IN);
                self.answers += u64::from(answered.is_some());
            }
            Action::Overdue { id, .. } if self.take() => {
                self.machine.on(Event::Taken { worker: 0, id, taken: true }, self.now, &mut self.out);
                self.machine.expire(id, &mut self.out);
            }
            Action::Overdue { id, .. } => {
                let answered = self.machine.answer_running(id, StopCause::Deadline, self.now + STOPS_IN);
                self.answers += u64::from(answered.is_some());
            }
            Action::Answer { .. } => self.answers += 1,
            _ => {}
        }
    }

    /// The dispatcher's half of the compare-and-swap.
    fn take(&mut self) -> bool {
        let taken = self.sent == Some(false);
        if taken {
            self.sent = None;
        }
        taken
    }
}

#[test]
fn failure_18_a_million_races_between_deadline_and_dispatch_have_one_answer_each() {
    let (mut race, mut dice) = (Race::new(), Dice(0x9e37_79b9_7f4a_7c15));
    for round in 1..=1_000_000 {
        let id = race.submit();
        for _ in 0..6 {
            race.happen(id, dice.roll(5));
        }
        race.now += Duration::from_micros(20);
        race.happen(id, 1);
        race.happen(id, 3);
        assert_eq!(race.answers, round, "each submission has exactly one answer");
    }
    assert!(race.machine.is_empty());
}

#[test]
fn while_a_debugger_is_open_nothing_is_late_and_what_was_here_never_is() {
    let now = Instant::now();
    let later = now + Duration::from_secs(60);
    let late = Request { deadline: Some(now + Duration::from_secs(1)), ..request(0) };
    let (mut machine, mut out) = (Machine::new(Limits::default()), Vec::new());
    machine.on(Event::WorkerReady { worker: 1, slots: 1, words: 8, calls_max: None }, now, &mut out);
    let running = machine.submit(late, (), now, &mut out);
    machine.settle(now, &mut out);
    machine.set_untimed(true);
    let waiting = machine.submit(late, (), now, &mut out);
    out.clear();
    machine.set_deadline(running, now);
    machine.tick(later, &mut out);
    assert!(out.is_empty(), "{out:?}");
    machine.set_untimed(false);
    machine.set_deadline(waiting, now);
    machine.tick(later, &mut out);
    assert!(out.is_empty(), "the prompt has made them wait: {out:?}");
    let new = machine.submit(Request { deadline: Some(later), ..request(0) }, (), now, &mut out);
    machine.tick(later, &mut out);
    assert!(matches!(out[..], [Action::Answer { id, .. }] if id == new), "{out:?}");
}

#[test]
fn a_limit_holds_for_one_run_and_moves_no_deadline() {
    let now = Instant::now();
    let after = |seconds| now + Duration::from_secs(seconds);
    let (mut machine, mut out) = (Machine::new(Limits::default()), Vec::new());
    machine.on(Event::WorkerReady { worker: 1, slots: 1, words: 8, calls_max: None }, now, &mut out);
    let id = machine.submit(Request { deadline: Some(after(50)), retry: 1, ..request(0) }, (), now, &mut out);
    machine.settle(now, &mut out);
    out.clear();
    machine.limit(id, after(10));
    assert_eq!(machine.next_deadline(), Some(after(10)));
    machine.limit(id, after(90));
    assert_eq!(machine.next_deadline(), Some(after(50)), "its deadline is earlier");
    machine.limit(id, after(10));
    machine.tick(after(10), &mut out);
    assert!(matches!(out[..], [Action::Overdue { worker: 1, .. }]), "{out:?}");
    machine.on(Event::Taken { worker: 1, id, taken: true }, after(10), &mut out);
    assert_eq!(machine.next_deadline(), Some(after(50)), "it waits to run anew");
}

/// How much the machine holds, as the length of its description.
fn held(machine: &Machine<()>) -> usize {
    format!("{machine:?}").len()
}

/// Submits and cancels, with some that stay.
fn churn(machine: &mut Machine<()>, rounds: usize, now: Instant) {
    let mut out = Vec::new();
    for round in 0..rounds {
        let deadline = Some(now + Duration::from_secs(round as u64 % 100));
        let id = machine.submit(Request { deadline, ..request(0) }, (), now - Duration::from_secs(1), &mut out);
        machine.on(Event::Abandon { id }, now, &mut out);
        out.clear();
    }
}

#[test]
fn failure_21_memory_is_flat_after_a_million_cancels() {
    let now = Instant::now() + Duration::from_secs(10);
    let waiting = Limits { queue: Some(20), block: true, ..Limits::default() };
    for (limits, kept) in [(Limits::default(), 10), (waiting, 30)] {
        let (mut machine, mut out) = (Machine::new(limits), Vec::new());
        for _ in 0..kept {
            machine.submit(request(0), (), now, &mut out);
        }
        churn(&mut machine, 10_000, now);
        let before = held(&machine);
        churn(&mut machine, 1_000_000, now);
        let after = held(&machine);
        assert!(after < before + 8000, "{before} before, {after} after");
        let counts = machine.counts();
        assert_eq!(counts.queued + counts.blocked, kept, "what was not cancelled still waits");
    }
}

#[test]
fn failure_21_a_submit_takes_the_same_steps_with_10_or_10_000_queued() {
    let steps = |queued: usize| {
        let mut world = World::new(Limits::default());
        world.worker(1, None);
        for _ in 0..queued {
            world.machine.submit(request(0), 0, world.now, &mut Vec::new());
        }
        let (now, mut out) = (world.now, Vec::new());
        world.machine.settle(now, &mut out);
        let before = held_entries(&world.machine);
        let settled = out.len();
        world.machine.submit(request(0), 0, now, &mut out);
        world.machine.settle(now, &mut out);
        (out.len() - settled, held_entries(&world.machine) - before)
    };
    assert_eq!(steps(10), steps(10_000));
}

fn held_entries(machine: &Machine<u64>) -> usize {
    let counts = machine.counts();
    counts.queued + counts.blocked + counts.sent
}

#[test]
fn a_quiet_pool_refuses_what_comes_and_keeps_what_it_has() {
    let (now, mut out) = (Instant::now(), Vec::new());
    let mut machine: Machine<()> = Machine::new(Limits::default());
    machine.submit(request(0), (), now, &mut out);
    machine.on(Event::Quiet { quiet: true }, now, &mut out);
    assert!(out.is_empty());
    machine.submit(request(0), (), now, &mut out);
    machine.submit(Request { block: true, ..request(0) }, (), now, &mut out);
    let refused = |action: &Action<()>| matches!(action, Action::Answer { verdict: Verdict::Draining, .. });
    assert!(out.len() == 2 && out.iter().all(refused), "{out:?}");
    machine.on(Event::Quiet { quiet: false }, now, &mut out);
    machine.submit(request(0), (), now, &mut out);
    assert_eq!(machine.counts().queued, 2);
}

#[test]
fn work_has_waited_from_its_submission_until_it_was_sent() {
    let (start, mut out) = (Instant::now(), Vec::new());
    let after = |seconds| start + Duration::from_secs(seconds);
    let mut machine: Machine<()> = Machine::new(Limits::default());
    let ready = |worker| Event::WorkerReady { worker, slots: 1, words: 8, calls_max: None };
    machine.on(ready(1), start, &mut out);
    let ids = [0, 1].map(|_| machine.submit(request(0), (), start, &mut out));
    machine.settle(start, &mut out);
    machine.finished(1, ids[0], 1, after(2)).expect("its body");
    machine.settle(after(3), &mut out);
    let waited = |machine: &mut Machine<()>, id| machine.sending(id).expect("its body").1;
    assert_eq!(waited(&mut machine, ids[1]), Duration::from_secs(3));
    // Taken back, it waits on; only what is done is counted.
    machine.on(Event::Taken { worker: 1, id: ids[1], taken: true }, after(4), &mut out);
    machine.on(Event::Hold { worker: 1, why: Hold::Stopped }, after(4), &mut out);
    machine.on(ready(2), after(5), &mut out);
    machine.settle(after(5), &mut out);
    assert_eq!(machine.queued_total(), Duration::ZERO);
    machine.finished(2, ids[1], 1, after(9)).expect("its body");
    assert_eq!(machine.queued_total(), Duration::from_secs(5));
}

#[test]
fn work_that_ends_while_it_waits_has_given_up_and_what_is_refused_has_not() {
    let (now, mut out) = (Instant::now(), Vec::new());
    let mut machine: Machine<()> = Machine::new(Limits::default());
    let [cancelled, expired, waits] = [0; 3].map(|_| machine.submit(request(0), (), now, &mut out));
    machine.on(Event::Abandon { id: cancelled }, now, &mut out);
    assert_eq!(machine.gave_up(), 1);
    machine.expire(expired, &mut out);
    assert_eq!(machine.gave_up(), 2);
    machine.on(Event::WorkerReady { worker: 1, slots: 1, words: 8, calls_max: None }, now, &mut out);
    machine.settle(now, &mut out);
    machine.finished(1, waits, 1, now).expect("its body");
    machine.submit(request(0), (), now, &mut out);
    machine.submit(request(0), (), now, &mut out);
    machine.on(Event::Failing, now, &mut out);
    assert_eq!(machine.gave_up(), 2);
}
