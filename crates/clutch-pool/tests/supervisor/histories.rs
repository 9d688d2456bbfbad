//! Properties of the supervisor's machine under any history, and what it does with workers that do not end.

use std::time::Duration;

use crate::world::{GRACE, MEMORY, Play, TARGET, TERM_GRACE, Zygote, config, with_threads};
use clutch_pool::config::PoolConfig;
use clutch_pool::pool::state::WorkerKey;
use clutch_pool::supervisor::state::{Event, IDLE_LEAVE, Leave, State, stop_term};
use clutch_wire::sys::{EndSignal, Fate};
use proptest::prelude::*;

const KINDS: u8 = 27;

/// One thing that may happen next; `pick` chooses among those that it may happen to.
fn happen(play: &mut Play, what: u8, pick: usize) {
    let nth = |keys: Vec<WorkerKey>| keys.get(pick % keys.len().max(1)).copied();
    let worker = nth(play.workers(|_| true));
    match what {
        0 => play.load(),
        1 => {
            if let Some(generation) = play.zygote(Zygote::Loading) {
                play.fail_load(generation, "no module named shop");
            }
        }
        2 => {
            let generations: Vec<u32> = play.world.zygotes.keys().copied().collect();
            if let Some(generation) = nth(generations) {
                play.lose_zygote(generation, [None, Some(9), Some(11)][pick % 3]);
            }
        }
        3..=5 => nth(play.world.wanted.keys().copied().collect()).into_iter().for_each(|key| play.let_fork(key)),
        15 => play.pass(Duration::from_millis(10 << (pick % 10))),
        19 => play.fail_starts("no database"),
        25 => nth(play.world.wanted.keys().copied().collect()).into_iter().for_each(|key| play.overtake(key)),
        26 => play.pass(Duration::from_secs(5)),
        20 => play.bury(),
        21 => play.let_end(),
        22 => {
            let (target, idlest) = (1 + pick % TARGET as usize, play.workers(|_| true));
            play.tell(Event::Resize { target, idlest });
        }
        _ => worker.into_iter().for_each(|worker| happen_to(play, worker, what)),
    }
}

fn happen_to(play: &mut Play, worker: WorkerKey, what: u8) {
    match what {
        6..=8 => play.let_be_ready(worker),
        9 => play.end(worker, Fate::Signaled(9)),
        10 => play.tell(Event::Fate { worker, fate: Fate::Stopped }),
        11 => play.tell(Event::Worn { worker, why: Leave::Calls }),
        12 => {
            if play.machine.fleet().workers()[&worker].state() == State::Ready {
                play.world.spent.insert(worker);
            }
            play.tell(Event::Drained { worker, stuck: false });
        }
        13 => play.tell(stuck(worker)),
        14 => play.tell(Event::LinkEnded { worker, reason: Some("a frame too long".to_owned()) }),
        24 => play.die(worker),
        23 => play.weigh(&[worker], [0, MEMORY - 1, MEMORY][worker as usize % 3]),
        18 => play.tell(Event::Fate { worker, fate: Fate::Continued }),
        _ => {}
    }
}

fn histories() -> impl Strategy<Value = Vec<(u8, usize)>> {
    prop::collection::vec((0u8..KINDS, any::<usize>()), 0..120)
}

fn stuck(worker: WorkerKey) -> Event {
    Event::Stuck { worker, cause: "late".to_owned() }
}

/// Returns how many orders were given.
fn play_history(play: &mut Play, history: Vec<(u8, usize)>) -> usize {
    let mut ticket = 0;
    for (what, pick) in history {
        ticket += u64::from(matches!(what, 16 | 17));
        match what {
            16 => play.tell(Event::Reload { ticket }),
            17 => play.tell(Event::Recycle { ticket, nr: (pick % 4 < 3).then_some(pick as u32 % TARGET) }),
            _ => happen(play, what, pick),
        }
    }
    ticket as usize
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn any_history_keeps_the_promises_and_recovers(
        history in histories(),
        aging in any::<bool>(),
        threads in 1u32..3,
        recycle_together in 1usize..3,
        turn in 1u32..4,
    ) {
        let recycle_age_ms = aging.then_some(60_000);
        let mut play = Play::new(PoolConfig { recycle_age_ms, recycle_together, ..with_threads(threads) });
        play.turn = turn;
        let orders = play_history(&mut play, history);
        play.turn = 1;
        // Workers that were killed answer at last.
        for worker in play.workers(|_| true) {
            play.end(worker, Fate::Signaled(9));
        }
        play.mend();
        prop_assert_eq!(play.machine.fleet().ready(), TARGET as usize);
        prop_assert!(play.machine.failing().is_none());
        prop_assert_eq!(play.world.done.len(), orders, "each order is answered");
        let mut of_use = play.generations();
        of_use.insert(play.machine.generation());
        prop_assert!(play.world.zygotes.keys().all(|zygote| of_use.contains(zygote)), "a zygote of no use is left");
    }

    #[test]
    fn any_history_ends_when_told_to(history in histories(), threads in 1u32..3) {
        let mut play = Play::new(with_threads(threads));
        let orders = play_history(&mut play, history);
        play.tell(Event::Stop { grace: GRACE, term: stop_term(GRACE, TERM_GRACE), idle: vec![] });
        prop_assert_eq!(play.world.done.len(), orders, "each order is answered");
        play.pass(GRACE);
        for key in play.world.alive.keys() {
            let told = play.world.signals.iter().any(|(to, _, _)| to == key);
            prop_assert!(told, "worker {key} was told nothing when the grace was over");
        }
        play.pass(Duration::from_millis(500));
        for key in play.workers(|_| true) {
            prop_assert!(play.told(key, EndSignal::Kill).is_some(), "worker {key} was not killed");
            play.end(key, Fate::Signaled(9));
        }
        for key in play.world.wanted.keys().copied().collect::<Vec<_>>() {
            play.tell(Event::ForkFailed { worker: key, reason: "withdrawn".to_owned() });
        }
        play.bury();
        prop_assert!(play.machine.is_closed());
        prop_assert_eq!(play.world.closed, 1);
    }

    #[test]
    fn any_history_ends_in_order_who_is_idle_at_a_stop_without_a_grace(history in histories(), threads in 1u32..3) {
        let mut play = Play::new(with_threads(threads));
        play_history(&mut play, history);
        let signals = play.world.signals.len();
        let idle: Vec<_> = play.workers(|_| true).into_iter().filter(|worker| worker % 2 == 1).collect();
        play.tell(Event::Stop { grace: Duration::ZERO, term: Duration::ZERO, idle: idle.clone() });
        for key in play.workers(|_| true) {
            let state = play.machine.fleet().workers()[&key].state();
            if state == State::Starting && play.told(key, EndSignal::Kill).is_none() {
                prop_assert!(idle.contains(&key), "worker {key}, which starts, goes on");
                prop_assert!(play.told(key, EndSignal::Term).is_some(), "worker {key} does not know of the stop");
                continue;
            }
            let is_well = state == State::Draining;
            prop_assert!(!is_well || idle.contains(&key), "worker {key}, which is at work, goes on");
            prop_assert!(is_well || play.told(key, EndSignal::Kill).is_some(), "worker {key} goes on");
            if is_well {
                prop_assert!(play.world.signals[signals..].iter().all(|(to, ..)| *to != key), "{key} was sent a signal");
                play.tell(Event::Drained { worker: key, stuck: false });
                prop_assert!(play.world.ended.contains(&key), "worker {key} was not told to end");
            }
        }
        play.pass(IDLE_LEAVE);
        for key in play.workers(|_| true) {
            prop_assert!(play.told(key, EndSignal::Kill).is_some(), "worker {key} was not killed");
        }
    }

    #[test]
    fn without_deaths_there_are_never_fewer_than_there_should_be(
        history in prop::collection::vec((0u8..7, any::<usize>()), 0..60),
        recycle_together in 1usize..3,
    ) {
        let aging = PoolConfig { recycle_age_ms: Some(60_000), recycle_together, ..config() };
        let mut play = Play::ready(aging);
        for (at, (what, pick)) in history.into_iter().enumerate() {
            let ticket = at as u64;
            match what {
                0 => play.tell(Event::Reload { ticket }),
                1 => play.tell(Event::Recycle { ticket, nr: Some(pick as u32 % TARGET) }),
                2 => play.load(),
                3 => play.let_start(),
                4 => play.let_end(),
                5 => play.fail_starts("no database"),
                _ => play.pass(Duration::from_secs(pick as u64 % 60)),
            }
            prop_assert!(play.machine.fleet().ready() >= TARGET as usize, "{} are ready", play.machine.fleet().ready());
        }
    }
}

#[test]
fn a_stuck_worker_with_one_slot_is_told_at_once_and_replaced_at_once() {
    let mut play = Play::ready(config());
    play.tell(stuck(1));
    assert_eq!(play.told(1, EndSignal::Term), Some(Duration::ZERO));
    assert_eq!(play.world.wanted.len(), 1, "its replacement is on its way");
    assert!(play.world.draining.contains_key(&1), "it gets no work while it ignores TERM");
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
    assert!(play.world.draining.contains_key(&1));
    play.pass(Duration::from_millis(300));
    play.tell(Event::Drained { worker: 1, stuck: true });
    assert_eq!(play.told(1, EndSignal::Term), Some(Duration::from_millis(300)));
    play.pass(TERM_GRACE);
    assert_eq!(play.told(1, EndSignal::Kill), Some(Duration::from_millis(300) + TERM_GRACE));
}

#[test]
fn a_stuck_worker_whose_work_ends_after_all_ends_in_order() {
    let mut play = Play::ready(with_threads(4));
    play.tell(stuck(1));
    play.let_start();
    play.pass(Duration::from_millis(300));
    play.tell(Event::Drained { worker: 1, stuck: false });
    assert!(play.world.ended.contains(&1), "what lives in it, as a lifespan, has its end");
    play.pass(GRACE - Duration::from_millis(301));
    assert_eq!(play.told(1, EndSignal::Term), None);
    play.pass(Duration::from_millis(1));
    assert_eq!(play.told(1, EndSignal::Term), Some(GRACE));
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
    let worker = *play.world.draining.keys().next().expect("one leaves");
    play.pass(10 * GRACE);
    assert_eq!(play.told(worker, EndSignal::Term), None, "finite work is waited for without limit");
    play.tell(Event::Drained { worker, stuck: false });
    play.pass(GRACE);
    assert!(play.told(worker, EndSignal::Term).is_some());
}

#[test]
fn a_worker_that_was_told_with_term_and_has_nothing_left_may_end_in_order() {
    let mut play = Play::ready(config());
    play.tell(Event::Stop { grace: Duration::ZERO, term: TERM_GRACE, idle: vec![] });
    assert_eq!(play.told(1, EndSignal::Term), Some(Duration::ZERO));
    play.tell(Event::Drained { worker: 1, stuck: false });
    assert!(play.world.ended.contains(&1), "its handler of TERM may do anything");
}

#[test]
fn failure_06_a_stop_tells_all_workers_at_the_same_time() {
    for (grace, term) in [(GRACE, Duration::from_millis(500)), (Duration::ZERO, Duration::ZERO)] {
        assert_eq!(stop_term(grace, TERM_GRACE), term);
        let mut play = Play::ready(config());
        play.tell(Event::Stop { grace, term, idle: vec![] });
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
        if let Some(generation) = play.zygote(Zygote::Loading) {
            play.fail_load(generation, "no module named shop");
            play.bury();
        }
        play.pass(Duration::from_millis(1));
    }
    // Ten minutes: 0.1, 0.2, 0.4 … 6.4 s, then one try each 10 s.
    assert!(play.world.zygotes_started <= 70, "{} starts", play.world.zygotes_started);
    assert!(play.machine.failing().is_some());
}
