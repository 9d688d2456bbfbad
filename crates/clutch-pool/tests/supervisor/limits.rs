//! When the supervisor's machine does what it has to: nothing just before a limit, and all of it at the limit itself.
//!
//! `world` sees to it that the machine asks to be woken in time.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::world::{GRACE, Play, TARGET, TERM_GRACE, Zygote, config, with_threads};
use clutch_pool::config::{PoolConfig, Shape};
use clutch_pool::supervisor::state::{Event, IDLE_LEAVE, STATUS_WAIT};
use clutch_wire::sys::{EndSignal, Fate};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const NS: Duration = Duration::from_nanos(1);
const START_TIMEOUT: Duration = Duration::from_secs(5);
const STOPPED_LIMIT: Duration = Duration::from_secs(2);
/// How long a zygote that was told to end has, a worker that was killed, and what should be dead before it is killed again.
const END_WAIT: Duration = Duration::from_millis(500);
const DEATH_WAIT: Duration = Duration::from_secs(10);
const KILL_AGAIN: Duration = Duration::from_millis(200);

fn of_workers(workers: u32) -> PoolConfig {
    PoolConfig { shape: Shape { workers, ..config().shape }, workers_min: workers, ..config() }
}

fn stuck(worker: u32) -> Event {
    Event::Stuck { worker, cause: "late".to_owned() }
}

fn stop(play: &mut Play, grace: Duration, term: Duration) {
    play.tell(Event::Stop { grace, term, idle: vec![] });
}

fn link_ended(play: &mut Play, worker: u32) {
    play.tell(Event::LinkEnded { worker, reason: None });
}

/// How often this worker was killed.
fn kills(play: &Play, worker: u32) -> Vec<Duration> {
    let kills = play.world.signals.iter().filter(|(to, what, _)| (*to, *what) == (worker, EndSignal::Kill));
    kills.map(|(.., at)| *at).collect()
}

// ---- starts

#[test]
fn a_start_has_until_start_timeout() {
    let mut play = Play::new(config());
    play.load();
    play.pass(SECOND);
    (1..=TARGET).for_each(|worker| play.let_fork(worker));
    play.let_be_ready(1);
    play.pass(START_TIMEOUT - NS);
    assert!(play.world.signals.is_empty());
    play.pass(NS);
    assert_eq!((kills(&play, 1), kills(&play, 2)), (vec![], vec![SECOND + START_TIMEOUT]));
    play.let_be_ready(2);
    assert_eq!(play.machine.fleet().ready(), 1, "what was killed is not ready any more");
    play.end(2, Fate::Signaled(9));
    let cause = play.world.records[&2].cause.as_deref();
    let text =
        "the start took longer than start_timeout (5 s); to allow more, set start_timeout = \"10s\" of pool \"model\"";
    assert_eq!(cause, Some(text));
    assert_eq!(play.world.zygotes_started, 1, "its zygote has forked it");
}

#[test]
fn a_zygote_has_until_start_timeout_to_load_and_then_to_end() {
    let mut play = Play::new(config());
    play.pass(START_TIMEOUT - NS);
    assert!(play.world.zygote_ends.is_empty());
    play.pass(NS);
    assert_eq!(play.world.zygote_ends, [(1, true, START_TIMEOUT)], "killed: while it loads it hears nothing");
    let text =
        "loading took longer than start_timeout (5 s); to allow more, set start_timeout = \"10s\" of pool \"model\"";
    assert_eq!(play.world.failing.as_deref(), Some(text));
}

#[test]
fn a_zygote_that_was_told_to_end_is_killed_when_it_does_not() {
    let mut play = Play::ready(config());
    play.pass(SECOND);
    play.tell(Event::Reload { ticket: 1 });
    play.load();
    for _ in 0..TARGET {
        play.let_start();
        play.let_end();
    }
    assert_eq!(play.world.zygote_ends, [(1, false, SECOND)]);
    play.pass(END_WAIT - NS);
    assert_eq!(play.world.zygote_ends.len(), 1);
    play.pass(NS);
    assert_eq!(play.world.zygote_ends[1..], [(1, true, SECOND + END_WAIT)]);
    play.pass(10 * END_WAIT);
    assert_eq!(play.world.zygote_ends.len(), 2, "once");
}

#[test]
fn starts_that_fail_are_tried_again_after_twice_as_long_and_ten_seconds_at_most() {
    let mut play = Play::new(config());
    let mut wait = 100 * MS;
    for start in 1..=10 {
        assert_eq!(play.world.zygotes_started, start);
        let generation = play.zygote(Zygote::Loading).expect("one loads");
        play.fail_load(generation, "no module named shop");
        play.bury();
        play.pass(wait - NS);
        assert_eq!(play.world.zygotes_started, start, "before {wait:?}");
        play.pass(NS);
        wait = (2 * wait).min(10 * SECOND);
    }
    play.load();
    play.let_start();
    play.lose_zygote(11, None);
    play.load();
    play.end(1, Fate::Signaled(9));
    let worker = *play.world.wanted.keys().next().expect("a replacement");
    play.tell(Event::ForkFailed { worker, reason: "no memory".to_owned() });
    play.pass(100 * MS - NS);
    assert!(play.world.wanted.is_empty());
    play.pass(NS);
    assert_eq!(play.world.wanted.len(), 1, "once workers were ready the waits are short again");
}

#[test]
fn a_minute_after_the_first_of_too_many_deaths_starts_go_on() {
    let mut play = Play::ready(PoolConfig { restarts_max: 2, ..config() });
    let first = play.now;
    for worker in [1, 4] {
        play.end(worker, Fate::Signaled(9));
        play.let_start();
        play.pass(SECOND);
    }
    play.end(5, Fate::Signaled(9));
    let held = "more than 2 workers died in the last minute (restarts_max = 2): the next starts wait";
    assert_eq!(play.machine.reason().as_deref(), Some(held));
    for worker in [2, 3] {
        play.end(worker, Fate::Signaled(9));
    }
    assert_eq!(play.world.failing.as_deref(), Some(held));
    assert_eq!(play.machine.failing(), Some(held));
    assert_eq!(play.world.by_code, [false], "said once, and nobody's code is to blame");
    // The first three have become old by then, the last two have not.
    let now = play.now;
    play.pass(first + 62 * SECOND - now - NS);
    assert!(play.world.wanted.is_empty());
    play.pass(NS);
    assert_eq!((play.world.wanted.len(), play.world.by_code.len()), (3, 1));
    play.let_start();
    assert_eq!((play.machine.reason(), play.machine.failing()), (None, None));
}

#[test]
fn deaths_that_are_far_enough_apart_hold_nothing_up() {
    let mut play = Play::ready(PoolConfig { restarts_max: 2, ..config() });
    for _ in 0..10 {
        play.end(play.workers(|_| true)[0], Fate::Signaled(9));
        assert_eq!(play.world.wanted.len(), 1);
        play.let_start();
        play.pass(30 * SECOND);
    }
}

// ---- ends

#[test]
fn a_worker_that_is_stopped_by_a_signal_has_until_stopped_limit() {
    let mut play = Play::ready(config());
    play.pass(SECOND);
    for worker in [1, 2] {
        play.tell(Event::Fate { worker, fate: Fate::Stopped });
    }
    assert_eq!(play.world.held, BTreeSet::from([1, 2]));
    play.pass(SECOND);
    play.tell(Event::Fate { worker: 1, fate: Fate::Stopped });
    play.tell(Event::Fate { worker: 2, fate: Fate::Continued });
    assert_eq!(play.world.held, BTreeSet::from([1]), "what goes on gets work again");
    play.pass(STOPPED_LIMIT - SECOND - NS);
    assert!(play.world.signals.is_empty());
    play.pass(NS);
    assert_eq!(play.world.signals, [(1, EndSignal::Kill, SECOND + STOPPED_LIMIT)], "told twice, stopped once");
    play.pass(STOPPED_LIMIT);
    assert_eq!(play.world.signals.len(), 1);
    play.end(1, Fate::Signaled(9));
    assert_eq!(play.world.records[&1].cause.as_deref(), Some("it was stopped for longer than stopped_limit"));
}

#[test]
fn a_worker_that_was_drained_has_the_grace_to_end() {
    let mut play = Play::ready(config());
    play.tell(Event::Recycle { ticket: 1, nr: Some(0) });
    play.let_start();
    play.pass(SECOND);
    play.tell(Event::Drained { worker: 1, stuck: false });
    assert_eq!(play.world.ended, BTreeSet::from([1]), "told to end in order");
    play.pass(GRACE - NS);
    assert!(play.world.signals.is_empty());
    play.pass(NS);
    assert_eq!(play.world.signals, [(1, EndSignal::Term, SECOND + GRACE)]);
    play.pass(TERM_GRACE - NS);
    assert!(kills(&play, 1).is_empty());
    play.pass(NS);
    assert_eq!(kills(&play, 1), [SECOND + GRACE + TERM_GRACE]);
    play.end(1, Fate::Signaled(9));
    assert_eq!(play.world.records[&1].cause.as_deref(), Some("it was told to end, and its grace has passed"));
    assert_eq!(play.machine.fleet().restarts(), 0, "it was to go anyway");
}

#[test]
fn without_a_grace_for_term_what_is_stuck_is_killed() {
    let mut play = Play::ready(PoolConfig { term_grace_ms: 0, ..config() });
    play.tell(stuck(1));
    assert_eq!(play.world.signals, [(1, EndSignal::Kill, Duration::ZERO)]);
}

#[test]
fn only_workers_that_serve_can_be_stuck_and_only_once() {
    let mut play = Play::new(with_threads(4));
    play.load();
    play.let_fork(1);
    play.tell(stuck(1));
    play.let_be_ready(1);
    play.let_fork(2);
    play.let_be_ready(2);
    assert!(play.world.signals.is_empty());
    play.tell(stuck(2));
    play.pass(GRACE - MS);
    play.tell(Event::Stuck { worker: 2, cause: "later".to_owned() });
    play.pass(MS);
    assert_eq!(play.world.signals, [(2, EndSignal::Term, GRACE)], "by the first time");
    play.tell(stuck(2));
    play.pass(TERM_GRACE);
    assert_eq!(kills(&play, 2), [GRACE + TERM_GRACE]);
    play.end(2, Fate::Signaled(9));
    assert_eq!(play.world.records[&2].cause.as_deref(), Some("late"));
    assert_eq!(play.world.draining[&2], "stuck");
}

#[test]
fn an_old_worker_has_the_grace_from_when_a_reload_drains_it() {
    let mut play = Play::ready(config());
    play.tell(Event::Reload { ticket: 1 });
    play.load();
    play.pass(2 * GRACE);
    assert!(play.world.signals.is_empty(), "who serves until it is replaced has no limit");
    play.let_start();
    assert_eq!(play.world.draining.keys().copied().collect::<Vec<_>>(), [1]);
    play.pass(GRACE - NS);
    assert!(play.world.signals.is_empty());
    play.pass(NS);
    assert_eq!(play.world.signals, [(1, EndSignal::Term, 3 * GRACE)]);
}

#[test]
fn failure_62_how_long_the_word_of_a_workers_end_is_waited_for() {
    // Every fourth worker is not watched: its link is all that tells.
    let after = |worker: u32, zygote: bool| {
        let mut play = Play::ready(of_workers(4));
        if !zygote {
            play.lose_zygote(1, Some(9));
        }
        link_ended(&mut play, worker);
        assert_eq!(kills(&play, worker), [Duration::ZERO], "of no use without its link");
        let mut waited = [Duration::ZERO, STATUS_WAIT - NS, STATUS_WAIT, DEATH_WAIT - NS, DEATH_WAIT].into_iter();
        waited.find(|at| {
            play.pass(*at - play.now);
            play.world.gone.contains(&worker)
        })
    };
    assert_eq!(after(1, true), Some(DEATH_WAIT), "as long as it may take to die");
    assert_eq!(after(1, false), Some(DEATH_WAIT));
    assert_eq!(after(4, true), Some(STATUS_WAIT), "its zygote may tell");
    assert_eq!(after(4, false), Some(Duration::ZERO), "nobody can tell");
}

// ---- stops

#[test]
fn a_stop_begins_with_all_workers_at_once() {
    let mut play = Play::ready(of_workers(4));
    play.tell(Event::Recycle { ticket: 1, nr: Some(0) });
    play.let_start();
    play.end(2, Fate::Signaled(9));
    let starting = *play.world.wanted.keys().next().expect("a replacement");
    play.let_fork(starting);
    stop(&mut play, GRACE, 300 * MS);
    assert_eq!(play.world.refused, 1);
    let drained: Vec<_> = play.world.draining.iter().map(|(worker, reason)| (*worker, *reason)).collect();
    assert_eq!(drained, [(1, "recycle"), (3, "stopped"), (4, "stopped"), (5, "stopped")]);
    assert_eq!(play.world.signals, [(starting, EndSignal::Term, Duration::ZERO)], "what it starts may end in order");
    play.end(starting, Fate::Exited(0));
    assert_eq!(play.world.records[&starting].cause.as_deref(), Some("the pool was stopped"));
    assert!(play.world.wanted.is_empty() && play.machine.failing().is_none());
    play.pass(GRACE - NS);
    assert_eq!(play.world.signals.len(), 1);
    play.pass(NS);
    let told: Vec<_> = play.world.signals[1..].to_vec();
    assert_eq!(told, [1, 3, 4, 5].map(|worker| (worker, EndSignal::Term, GRACE)));
    play.pass(300 * MS - NS);
    assert_eq!(play.world.signals.len(), 5);
    play.pass(NS);
    assert_eq!(play.world.signals[5..], [1, 3, 4, 5].map(|worker| (worker, EndSignal::Kill, GRACE + 300 * MS)));
    for worker in [1, 3, 4, 5] {
        assert_eq!((play.world.closed, play.zygote(Zygote::Up)), (0, Some(1)), "it tells of their ends");
        play.end(worker, Fate::Signaled(9));
    }
    assert_eq!(play.world.records[&5].cause.as_deref(), Some("the pool was stopped and the grace was over"));
    assert_eq!((play.world.closed, play.zygote(Zygote::Ending)), (0, Some(1)));
    play.bury();
    assert_eq!((play.world.closed, play.machine.is_closed()), (1, true));
}

#[test]
fn a_stop_under_way_only_becomes_shorter() {
    for (first, second) in [(GRACE, 2 * GRACE), (2 * GRACE, GRACE)] {
        let mut play = Play::ready(config());
        stop(&mut play, first, 300 * MS);
        stop(&mut play, second, 300 * MS);
        play.pass(2 * GRACE);
        assert_eq!(play.told(1, EndSignal::Term), Some(GRACE));
        assert_eq!(play.told(1, EndSignal::Kill), Some(GRACE + 300 * MS));
    }
}

/// Without a grace; these have nothing to do.
fn stop_quickly(play: &mut Play, idle: &[u32]) {
    play.tell(Event::Stop { grace: Duration::ZERO, term: Duration::ZERO, idle: idle.to_vec() });
}

#[test]
fn idle_workers_end_in_order_also_without_a_grace() {
    for grace_ms in [0, config().grace_ms] {
        let mut play = Play::ready(PoolConfig { grace_ms, ..config() });
        stop_quickly(&mut play, &[1, 2]);
        assert_eq!(play.world.signals, [(3, EndSignal::Kill, Duration::ZERO)], "what runs is cut off at once");
        for worker in [1, 2] {
            play.tell(Event::Drained { worker, stuck: false });
        }
        assert_eq!(play.world.ended, BTreeSet::from([1, 2]));
        play.end(1, Fate::Exited(0));
        play.end(3, Fate::Signaled(9));
        assert_eq!(play.world.records[&1].cause, None);
        play.pass(IDLE_LEAVE - NS);
        assert_eq!((kills(&play, 2), play.world.closed), (vec![], 0));
        play.pass(NS);
        assert_eq!(play.told(2, EndSignal::Kill), Some(IDLE_LEAVE), "in a bounded time");
        play.end(2, Fate::Signaled(9));
        let cause = play.world.records[&2].cause.as_deref();
        assert_eq!(cause, Some("the pool was stopped and it took too long to end in order"));
        play.bury();
        assert!(play.machine.is_closed());
    }
}

#[test]
fn what_is_stopped_by_a_signal_cannot_end_in_order() {
    let mut play = Play::ready(config());
    play.tell(Event::Fate { worker: 1, fate: Fate::Stopped });
    stop_quickly(&mut play, &[1, 2, 3]);
    assert_eq!(play.world.signals, [(1, EndSignal::Kill, Duration::ZERO)]);
}

#[test]
fn who_is_spared_at_a_stop_can_be_called_off_and_is_given_no_more_time() {
    let mut play = Play::ready(config());
    stop_quickly(&mut play, &[1, 2, 3]);
    play.pass(SECOND);
    stop_quickly(&mut play, &[1, 2]);
    assert_eq!(play.world.signals, [(3, EndSignal::Kill, SECOND)]);
    play.pass(IDLE_LEAVE - SECOND);
    assert_eq!(play.told(1, EndSignal::Kill), Some(IDLE_LEAVE));
}

#[test]
fn a_closed_pool_without_work_stops_with_the_grace_of_its_config() {
    let mut play = Play::ready(config());
    play.tell(Event::Empty);
    assert!(play.machine.is_stopping() && play.world.draining.len() == TARGET as usize);
    play.pass(2 * GRACE);
    assert_eq!(play.told(1, EndSignal::Term), Some(GRACE));
    assert_eq!(play.told(1, EndSignal::Kill), Some(GRACE + 500 * MS), "and half a second at most for TERM");
}

#[test]
fn a_closed_pool_without_work_and_without_a_grace_lets_its_workers_end_in_order() {
    for spares in [true, false] {
        let mut play = Play::ready(PoolConfig { grace_ms: 0, ..config() });
        play.tell(Event::Empty);
        play.tell(Event::Drained { worker: 1, stuck: false });
        assert_eq!((play.world.signals.len(), &play.world.ended), (0, &BTreeSet::from([1])));
        // Who closed it says the rest a moment later.
        stop_quickly(&mut play, if spares { &[1, 2, 3] } else { &[] });
        play.tell(Event::Empty);
        let killed: BTreeSet<u32> = play.world.signals.iter().map(|(worker, ..)| *worker).collect();
        assert_eq!(killed, if spares { BTreeSet::new() } else { BTreeSet::from([1, 2, 3]) });
    }
}

#[test]
fn what_a_stop_has_killed_it_kills_again_until_it_is_dead() {
    let mut play = Play::ready(config());
    stop(&mut play, Duration::ZERO, Duration::ZERO);
    play.pass(2 * KILL_AGAIN);
    assert_eq!(kills(&play, 2), [Duration::ZERO, KILL_AGAIN, 2 * KILL_AGAIN]);
    play.pass(2 * SECOND);
    assert_eq!(play.zygote(Zygote::Up), Some(1), "who tells of those that are watched is left alone");
}

#[test]
fn failure_62_a_stop_kills_a_zygote_whose_word_it_waits_for_in_vain() {
    let unborn = {
        let mut play = Play::new(config());
        play.load();
        play
    };
    let unwatched = {
        let mut play = Play::ready(of_workers(4));
        (1..4).for_each(|worker| play.end(worker, Fate::Signaled(9)));
        play
    };
    for mut play in [unborn, unwatched] {
        stop(&mut play, Duration::ZERO, Duration::ZERO);
        for worker in play.world.wanted.keys().copied().filter(|worker| *worker > 4).collect::<Vec<_>>() {
            play.tell(Event::ForkFailed { worker, reason: "withdrawn".to_owned() });
        }
        play.pass(3 * KILL_AGAIN - NS);
        assert!(play.world.zygote_ends.is_empty(), "{:?}", play.world.zygote_ends);
        play.pass(NS);
        assert_eq!(play.world.zygote_ends, [(1, true, 3 * KILL_AGAIN)]);
        play.bury();
        play.workers(|_| true).into_iter().for_each(|worker| link_ended(&mut play, worker));
        assert!(play.machine.is_closed(), "nobody is left to wait for");
    }
}

#[test]
fn a_pool_that_is_stopped_while_it_loads_is_not_failing() {
    let mut play = Play::new(config());
    stop(&mut play, GRACE, Duration::ZERO);
    assert_eq!(play.world.zygote_ends, [(1, true, Duration::ZERO)]);
    play.fail_load(1, "no module named shop");
    assert_eq!(play.machine.failing(), None);
    play.bury();
    assert_eq!(play.world.closed, 1);
}
