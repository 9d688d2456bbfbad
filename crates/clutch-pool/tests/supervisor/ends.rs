//! How the supervisor's machine knows that a worker is gone, and that a zygote does not do what it is told.

use std::time::Duration;

use crate::world::{GRACE, Play, TARGET, TERM_GRACE, Zygote, config};
use clutch_pool::config::{PoolConfig, Shape};
use clutch_pool::supervisor::state::{Event, FORKS_MAX, STATUS_WAIT, fate_text, stop_term};
use clutch_wire::sys::Fate;

const TICK: Duration = Duration::from_millis(1);
const START_TIMEOUT: Duration = Duration::from_secs(5);

fn of_workers(workers: u32) -> PoolConfig {
    PoolConfig { shape: Shape { workers, ..config().shape }, workers_min: workers, ..config() }
}

fn link_ended(play: &mut Play, worker: u32) {
    play.tell(Event::LinkEnded { worker, reason: None });
}

#[test]
fn failure_60_a_zygote_has_so_many_forks_to_make_at_a_time() {
    let workers = 3 * FORKS_MAX + 1;
    let mut play = Play::new(of_workers(workers as u32));
    play.load();
    while let Some(key) = play.world.wanted.keys().next().copied() {
        let missing = workers - play.world.alive.len();
        assert_eq!(play.world.wanted.len(), missing.min(FORKS_MAX));
        play.let_fork(key);
    }
    play.let_start();
    assert_eq!(play.machine.fleet().ready(), workers);
}

#[test]
fn failure_62_a_dead_worker_is_gone_when_its_zygote_has_had_time_to_tell_how() {
    let mut play = Play::ready(config());
    play.die(1);
    play.pass(STATUS_WAIT - TICK);
    assert!(!play.world.gone.contains(&1));
    play.pass(TICK);
    assert!(play.world.gone.contains(&1) && play.world.wanted.len() == 1, "its replacement is on its way");
}

#[test]
fn failure_62_a_dead_worker_without_a_zygote_is_gone_at_once() {
    let mut play = Play::ready(config());
    play.lose_zygote(1, Some(9));
    play.die(1);
    assert!(play.world.gone.contains(&1));
}

#[test]
fn failure_62_nobody_judges_a_worker_that_lives() {
    for zygote in [true, false] {
        let mut play = Play::ready(config());
        if !zygote {
            play.lose_zygote(1, Some(9));
        }
        link_ended(&mut play, 1);
        play.pass(2 * STATUS_WAIT);
        assert!(!play.world.gone.contains(&1), "it was killed, and is not known to be dead");
        play.die(1);
        play.pass(STATUS_WAIT);
        assert!(play.world.gone.contains(&1));
    }
}

#[test]
fn failure_62_a_zygote_that_does_not_fork_is_followed_by_another() {
    let mut play = Play::ready(config());
    play.end(1, Fate::Signaled(9));
    play.pass(START_TIMEOUT);
    assert_eq!(play.world.zygotes[&1], Zygote::Ending);
    assert!(play.machine.reason().is_some_and(|reason| reason.contains("start_timeout")));
    assert_eq!(play.world.failing, None, "it had workers that were ready");
    play.bury();
    play.load();
    play.let_start();
    assert_eq!((play.machine.fleet().ready(), play.machine.reason()), (TARGET as usize, None));
}

#[test]
fn a_zygote_that_forks_slowly_is_left_alone() {
    let mut play = Play::new(of_workers(4));
    play.load();
    for key in 1..=4 {
        play.pass(START_TIMEOUT - TICK);
        play.let_fork(key);
        play.let_be_ready(key);
    }
    assert_eq!((play.machine.fleet().ready(), play.world.zygotes_started), (4, 1));
}

#[test]
fn failure_62_a_stop_does_not_wait_for_a_zygote_that_does_not_answer() {
    let mut play = Play::new(config());
    play.load();
    play.tell(Event::Stop { grace: GRACE, term: stop_term(GRACE, TERM_GRACE), idle: vec![] });
    for _ in 0..40 {
        play.pass(Duration::from_millis(100));
        play.bury();
    }
    assert!(play.machine.is_closed());
}

#[test]
fn failure_12_only_zygotes_that_are_killed_again_and_again_make_the_pool_failing() {
    let mut play = Play::new(config());
    for death in 1..=3 {
        let generation = play.zygote(Zygote::Loading).expect("one loads");
        play.lose_zygote(generation, Some(9));
        assert_eq!(play.world.failing.is_some(), death == 3);
        play.pass(Duration::from_secs(1));
    }
}

#[test]
fn a_worker_that_broke_its_link_died_of_itself() {
    let mut play = Play::ready(config());
    play.tell(Event::LinkEnded { worker: 1, reason: Some("its link broke: unknown frame kind 255".to_owned()) });
    play.end(1, Fate::Signaled(9));
    let record = &play.world.records[&1];
    assert!(record.said.as_ref().is_some_and(|said| said.contains("255")) && record.cause.is_none(), "{record:?}");
}

#[test]
fn signals_have_their_names() {
    for (signal, name) in [(9, " (SIGKILL)"), (11, " (SIGSEGV)"), (14, " (SIGALRM)"), (31, " (SIGSYS)"), (40, "")] {
        assert_eq!(fate_text(Some(Fate::Signaled(signal))), format!("was killed by signal {signal}{name}"));
    }
}
