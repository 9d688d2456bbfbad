//! Who leaves when: in turn, by command, for another image, or because there are too many; and when starts have to wait.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::world::{GRACE, Play, TARGET, TERM_GRACE, Zygote, config, with_threads};
use clutch_pool::config::{PoolConfig, Profile, Shape};
use clutch_pool::pool::Denied;
use clutch_pool::pool::state::WorkerKey;
use clutch_pool::supervisor::state::{Action, Event, Leave};
use clutch_wire::sys::{EndSignal, Fate};

const HOUR: Duration = Duration::from_secs(3600);

fn aging(together: usize) -> PoolConfig {
    let hour = Some(HOUR.as_millis() as u64);
    PoolConfig { recycle_age_ms: hour, recycle_jitter: 0.0, recycle_together: together, ..config() }
}

fn draining(play: &Play) -> Vec<WorkerKey> {
    play.world.draining.keys().copied().filter(|worker| play.world.alive.contains_key(worker)).collect()
}

/// One step of the world in which nothing goes wrong.
fn step(play: &mut Play) {
    play.let_start();
    play.let_end();
    play.bury();
}

fn failed(reason: &str) -> Result<(), Denied> {
    Err(Denied::Failed(reason.to_owned()))
}

// ---- in turn

#[test]
fn failure_34_all_due_at_once_leave_in_turn() {
    for together in [1, 2] {
        let mut play = Play::ready(aging(together));
        play.pass(HOUR);
        for _ in 0..TARGET.div_ceil(together as u32) {
            assert_eq!(play.world.wanted.len(), together.min(TARGET as usize - play.world.gone.len()));
            assert!(draining(&play).is_empty(), "nobody leaves before the replacement is ready");
            play.let_start();
            assert!(draining(&play).len() <= together);
            play.let_end();
        }
        assert_eq!(play.workers(|_| true).len(), TARGET as usize);
        assert!(play.world.gone.is_superset(&BTreeSet::from([1, 2, 3])));
    }
}

#[test]
fn failure_34_thresholds_are_spread() {
    let start_timeout_ms = Some(2 * HOUR.as_millis() as u64);
    let mut play = Play::ready(PoolConfig { recycle_jitter: 0.5, start_timeout_ms, ..aging(3) });
    let mut out = Vec::new();
    for _ in 0..60 {
        play.pass(HOUR / 60);
        out.push(play.world.wanted.len());
    }
    out.dedup();
    assert_eq!(out, [0, 1, 2, 3], "one at a time, although three might go together");
}

#[test]
fn failure_34_a_replacement_that_fails_to_start_leaves_the_old_one_serving() {
    let mut play = Play::ready(aging(1));
    play.pass(HOUR);
    for _ in 0..5 {
        play.fail_starts("no database");
        assert_eq!(play.machine.fleet().ready(), TARGET as usize);
        play.pass(Duration::from_secs(2));
    }
    assert!(draining(&play).is_empty() && play.machine.failing().is_none());
    step(&mut play);
    assert!(play.world.gone.contains(&1), "and goes when there is one");
}

#[test]
fn a_promise_of_calls_wins_over_turns() {
    let mut play = Play::ready(config());
    for worker in 1..=TARGET {
        play.tell(Event::Worn { worker, why: Leave::Calls });
    }
    assert_eq!(play.world.wanted.len(), 1);
    play.world.spent.extend([2, 3]);
    for worker in [2, 3] {
        play.tell(Event::Drained { worker, stuck: false });
    }
    assert_eq!(draining(&play), [2, 3], "calls that are used up are used up");
    assert_eq!(play.world.wanted.len(), 3, "and each is replaced");
}

// ---- deaths

#[test]
fn too_many_deaths_in_a_minute_let_the_next_starts_wait() {
    let mut play = Play::ready(PoolConfig { restarts_max: 5, ..config() });
    for death in 0..6 {
        assert!(play.machine.reason().is_none());
        play.end(play.workers(|_| true)[0], Fate::Signaled(9));
        if death < 5 {
            play.let_start();
        }
        play.pass(Duration::from_secs(1));
    }
    assert!(play.world.wanted.is_empty(), "the sixth is not replaced");
    let reason = play.machine.reason().expect("it says why");
    assert!(reason.contains("restarts_max = 5"), "{reason}");
    assert!(play.machine.failing().is_none(), "two of three serve");
    for worker in play.workers(|_| true) {
        play.end(worker, Fate::Signaled(11));
    }
    assert_eq!(play.world.failing.as_deref(), Some(&*reason), "with nobody left it is failing");
    play.pass(Duration::from_secs(57));
    assert!(!play.world.wanted.is_empty(), "a minute later they start");
    play.let_start();
    assert!(play.machine.failing().is_none());
}

#[test]
fn deaths_that_were_asked_for_do_not_count() {
    let mut play = Play::ready(PoolConfig { restarts_max: 1, ..config() });
    for ticket in 0..20 {
        play.tell(Event::Recycle { ticket, nr: Some(0) });
        step(&mut play);
        let stuck = play.workers(|_| true)[0];
        play.tell(Event::Stuck { worker: stuck, cause: "late".to_owned() });
        play.end(stuck, Fate::Signaled(15));
        play.let_start();
    }
    assert!(play.machine.reason().is_none());
    assert_eq!(play.world.done.len(), 20);
}

// ---- reload

#[test]
fn failure_36_a_reload_replaces_one_after_the_other() {
    let mut play = Play::ready(config());
    play.tell(Event::Reload { ticket: 7 });
    assert_eq!(play.zygote(Zygote::Loading), Some(2));
    assert!(play.world.wanted.is_empty());
    play.load();
    for _ in 0..TARGET {
        assert_eq!(play.world.wanted.len(), 1);
        assert_eq!(play.world.zygotes.get(&1), Some(&Zygote::Up), "the old one lives while its workers do");
        play.let_start();
        assert_eq!(draining(&play).len(), 1);
        assert!(play.world.done.is_empty());
        play.let_end();
    }
    assert_eq!(play.generations(), BTreeSet::from([2]));
    assert_eq!(play.world.zygotes.get(&1), Some(&Zygote::Ending), "and ends with the last of them");
    assert_eq!(play.world.done.get(&7), Some(&Ok(())));
    assert_eq!(play.world.reloads, [Action::ReloadStarted { generation: 2 }, Action::ReloadFinished { generation: 2 }]);
}

#[test]
fn failure_36_code_that_does_not_import_changes_nothing() {
    let mut play = Play::ready(config());
    play.tell(Event::Reload { ticket: 7 });
    play.fail_load(2, "SyntaxError");
    play.bury();
    assert_eq!(play.world.done.get(&7), Some(&failed("SyntaxError")));
    assert_eq!(play.world.zygotes.keys().copied().collect::<Vec<_>>(), [1]);
    assert_eq!(play.machine.fleet().ready(), TARGET as usize);
    assert!(play.world.draining.is_empty() && play.machine.failing().is_none());
    play.end(1, Fate::Signaled(9));
    play.let_start();
    assert_eq!(play.generations(), BTreeSet::from([1]), "deaths are replaced from the old image at once");
}

#[test]
fn failure_36_loading_has_a_limit() {
    let mut play = Play::ready(config());
    play.tell(Event::Reload { ticket: 7 });
    play.pass(Duration::from_secs(5));
    assert!(matches!(play.world.done.get(&7), Some(Err(Denied::Failed(reason))) if reason.contains("start_timeout")));
    assert_eq!(play.machine.fleet().ready(), TARGET as usize);
}

#[test]
fn failure_36_workers_that_do_not_start_bring_the_old_image_back() {
    let mut play = Play::ready(config());
    play.tell(Event::Reload { ticket: 7 });
    play.load();
    step(&mut play);
    assert_eq!(play.generations(), BTreeSet::from([1, 2]), "one has taken over");
    play.fail_starts("no database");
    assert_eq!(play.world.done.get(&7), Some(&failed("no database")));
    assert_eq!(play.machine.fleet().ready(), TARGET as usize);
    for _ in 0..TARGET {
        step(&mut play);
        assert_eq!(play.machine.fleet().ready(), TARGET as usize);
    }
    assert_eq!(play.generations(), BTreeSet::from([1]), "and leaves again");
    assert_eq!(play.world.zygotes.keys().copied().collect::<Vec<_>>(), [1]);
}

#[test]
fn failure_36_silent_deaths_at_the_start_of_the_new_image_fail_the_reload_too() {
    let mut play = Play::ready(config());
    play.tell(Event::Reload { ticket: 7 });
    play.load();
    for _ in 0..3 {
        assert!(play.world.done.is_empty());
        for worker in play.world.wanted.keys().copied().collect::<Vec<_>>() {
            play.let_fork(worker);
            play.end(worker, Fate::Signaled(11));
        }
        play.pass(Duration::from_secs(1));
    }
    assert!(matches!(play.world.done.get(&7), Some(Err(Denied::Failed(reason))) if reason.contains("SIGSEGV")));
    play.mend();
    assert_eq!(play.generations(), BTreeSet::from([1]));
}

#[test]
fn a_second_reload_overtakes_the_first() {
    let mut play = Play::ready(config());
    play.tell(Event::Reload { ticket: 1 });
    play.tell(Event::Reload { ticket: 2 });
    assert_eq!(play.world.zygotes.get(&2), Some(&Zygote::Ending), "while it loads, it is ended");
    play.load();
    step(&mut play);
    play.tell(Event::Reload { ticket: 3 });
    play.load();
    assert!(play.world.done.is_empty(), "while it takes over, the next one takes over from it");
    play.mend();
    assert_eq!(play.generations(), BTreeSet::from([4]));
    assert!(play.world.done.values().all(|outcome| *outcome == Ok(())) && play.world.done.len() == 3);
}

#[test]
fn deaths_while_the_new_image_takes_over_are_replaced_from_it() {
    let mut play = Play::ready(config());
    play.tell(Event::Reload { ticket: 7 });
    play.load();
    for worker in 1..=TARGET {
        play.end(worker, Fate::Signaled(9));
    }
    play.let_start();
    assert_eq!(play.generations(), BTreeSet::from([2]));
    assert_eq!(play.world.done.get(&7), Some(&Ok(())));
}

#[test]
fn a_reload_waits_for_running_work_no_longer_than_the_grace() {
    let mut play = Play::ready(aging(1));
    play.pass(HOUR);
    play.let_start();
    let aged = draining(&play)[0];
    play.pass(10 * GRACE);
    assert_eq!(play.told(aged, EndSignal::Term), None);
    let asked = play.now;
    play.tell(Event::Reload { ticket: 7 });
    play.load();
    play.pass(GRACE);
    assert_eq!(play.told(aged, EndSignal::Term), Some(asked + GRACE), "also of those that drain already");
}

#[test]
fn a_failing_pool_is_mended_by_a_reload() {
    let mut play = Play::new(config());
    play.fail_load(1, "SyntaxError");
    play.bury();
    play.tell(Event::Reload { ticket: 7 });
    play.load();
    play.let_start();
    assert_eq!(play.world.done.get(&7), Some(&Ok(())));
    assert_eq!(play.machine.fleet().ready(), TARGET as usize);
}

#[test]
fn a_zygote_that_dies_while_it_takes_over_is_followed_by_another() {
    let mut play = Play::ready(config());
    play.tell(Event::Reload { ticket: 7 });
    play.load();
    step(&mut play);
    play.lose_zygote(2, Some(9));
    play.mend();
    assert_eq!(play.world.done.get(&7), Some(&Ok(())));
    assert!(!play.generations().contains(&1));
}

// ---- commands

#[test]
fn recycling_by_command_replaces_one_or_all() {
    let mut play = Play::ready(config());
    play.tell(Event::Recycle { ticket: 1, nr: Some(1) });
    step(&mut play);
    assert_eq!(play.world.gone, BTreeSet::from([2]));
    assert_eq!(play.world.done.get(&1), Some(&Ok(())));
    play.tell(Event::Recycle { ticket: 2, nr: None });
    for _ in 0..TARGET {
        assert!(!play.world.done.contains_key(&2));
        step(&mut play);
    }
    assert_eq!(play.world.gone, BTreeSet::from([1, 2, 3, 4]));
    assert_eq!(play.world.done.get(&2), Some(&Ok(())));
}

#[test]
fn recycling_by_command_fails_with_the_replacement() {
    let mut play = Play::ready(config());
    play.tell(Event::Recycle { ticket: 1, nr: None });
    play.fail_starts("no database");
    assert_eq!(play.world.done.get(&1), Some(&failed("no database")));
    play.pass(HOUR);
    assert!(play.world.wanted.is_empty() && play.world.draining.is_empty(), "all stay");
}

#[test]
fn a_stuck_worker_leaves_although_the_command_that_it_was_to_leave_for_fails() {
    let mut play = Play::ready(with_threads(4));
    play.tell(Event::Recycle { ticket: 1, nr: Some(0) });
    let stuck = play.workers(|_| true)[0];
    play.tell(Event::Stuck { worker: stuck, cause: "late".to_owned() });
    play.fail_starts("no database");
    assert_eq!(play.world.done.get(&1), Some(&failed("no database")));
    play.pass(GRACE / 2);
    play.let_start();
    assert_eq!(play.world.draining.get(&stuck), Some(&"stuck"), "it gets no work that its end would cut off");
    assert!(play.world.signals.is_empty());
}

fn scale(ticket: u64, min: usize, max: usize, idle: &[WorkerKey]) -> Event {
    Event::Scale { ticket, min, max, idle: idle.to_vec() }
}

#[test]
fn a_start_that_is_not_wanted_any_more_ends_in_order() {
    let mut play = Play::ready(config());
    play.tell(scale(1, 4, 4, &[]));
    play.let_fork(4);
    play.tell(scale(2, 3, 3, &[]));
    play.let_be_ready(4);
    assert!(play.world.ended.contains(&4) && !play.world.admitted.contains(&4));
    play.pass(GRACE);
    assert!(play.told(4, EndSignal::Kill).is_some(), "it has not ended in its time");
}

#[test]
fn a_start_that_is_to_end_is_told_once_and_its_time_only_becomes_shorter() {
    let mut play = Play::ready(config());
    play.tell(scale(1, 4, 4, &[]));
    play.let_fork(4);
    play.tell(scale(2, 3, 3, &[]));
    play.pass(GRACE / 2);
    play.tell(Event::Stop { grace: GRACE, term: TERM_GRACE, idle: vec![] });
    play.pass(GRACE / 2);
    let told: Vec<_> = play.world.signals.iter().filter(|(to, ..)| *to == 4).map(|(_, what, _)| *what).collect();
    assert_eq!(told, [EndSignal::Term, EndSignal::Kill], "its shutdown is not interrupted before its time is over");
}

#[test]
fn a_stop_without_a_grace_spares_starts_that_were_to_end_already() {
    let mut play = Play::ready(config());
    play.tell(scale(1, 4, 4, &[]));
    play.let_fork(4);
    play.tell(scale(2, 3, 3, &[]));
    play.tell(Event::Stop { grace: Duration::ZERO, term: Duration::ZERO, idle: vec![4] });
    assert!(play.told(4, EndSignal::Kill).is_none() && play.told(1, EndSignal::Kill).is_some());
    play.tell(Event::Stop { grace: Duration::ZERO, term: Duration::ZERO, idle: vec![] });
    play.pass(Duration::from_secs(1));
    assert!(play.told(4, EndSignal::Kill).is_some(), "a second one ends it at once");
}

#[test]
fn a_smaller_pool_loses_first_whom_it_costs_least() {
    let mut play = Play::ready(config());
    play.tell(scale(1, 5, 5, &[]));
    play.let_fork(4);
    play.tell(scale(2, 3, 3, &[]));
    assert_eq!(play.workers(|_| true), [1, 2, 3, 4]);
    assert!(play.told(4, EndSignal::Term).is_some() && play.told(5, EndSignal::Kill).is_some(), "those not ready");
    play.end(4, Fate::Signaled(9));
    play.tell(Event::ForkFailed { worker: 5, reason: "withdrawn".to_owned() });
    play.tell(scale(3, 2, 2, &[1]));
    assert_eq!(draining(&play), [1], "the idle one");
    play.let_end();
    play.tell(scale(4, 1, 1, &[]));
    assert_eq!(draining(&play), [3], "the last one");
    play.let_end();
    assert!(play.world.wanted.is_empty(), "nobody is replaced");
    assert_eq!(play.machine.fleet().ready(), 1);
    assert!(play.machine.failing().is_none());
    play.tell(scale(5, 2, 4, &[]));
    assert_eq!((play.machine.bounds().target, play.world.wanted.len()), (2, 1), "the target moves into the bounds");
}

#[test]
fn a_smaller_pool_needs_no_replacement_for_those_who_leave() {
    let mut play = Play::ready(aging(1));
    play.pass(HOUR);
    play.let_fork(4);
    play.tell(scale(1, 2, 2, &[]));
    play.end(4, Fate::Signaled(9));
    play.let_end();
    assert_eq!(play.machine.fleet().ready(), 2);
    play.mend();
    assert_eq!(play.machine.fleet().ready(), 2);
}

#[test]
fn the_size_that_was_asked_for_outlives_a_reload() {
    let mut play = Play::ready(config());
    play.tell(scale(1, 5, 5, &[]));
    play.let_start();
    play.tell(Event::Reload { ticket: 2 });
    play.mend();
    assert_eq!(play.machine.fleet().ready(), 5);
    assert_eq!(play.generations(), BTreeSet::from([2]));
}

#[test]
fn a_pool_that_stops_takes_no_commands() {
    let mut play = Play::ready(config());
    play.tell(Event::Reload { ticket: 1 });
    play.tell(Event::Recycle { ticket: 2, nr: None });
    play.tell(Event::Stop { grace: GRACE, term: Duration::ZERO, idle: vec![] });
    play.tell(Event::Reload { ticket: 3 });
    play.tell(Event::Recycle { ticket: 4, nr: None });
    play.tell(scale(5, 9, 9, &[]));
    assert_eq!(play.world.done.len(), 5);
    assert!(play.world.done.values().all(|outcome| *outcome == Err(Denied::Closed)));
    assert_eq!(play.world.wanted.len(), 1, "the one that was on its way");
}

#[test]
fn an_image_that_was_taken_back_is_not_gone_back_to() {
    let mut play = Play::ready(config());
    play.tell(Event::Reload { ticket: 1 });
    play.load();
    step(&mut play);
    play.fail_starts("no database");
    assert_eq!(play.generations(), BTreeSet::from([1, 2]));
    play.tell(Event::Reload { ticket: 2 });
    play.load();
    step(&mut play);
    assert_eq!(play.generations(), BTreeSet::from([1]));
    assert_eq!(play.world.zygotes.get(&2), Some(&Zygote::Up));
    play.fail_starts("no database");
    assert_eq!(play.world.done.len(), 2);
    play.mend();
    assert_eq!(play.generations(), BTreeSet::from([1]));
}

#[test]
fn workers_that_were_to_be_recycled_are_also_when_a_reload_fails() {
    let mut play = Play::ready(config());
    play.tell(Event::Reload { ticket: 1 });
    play.load();
    play.tell(Event::Recycle { ticket: 2, nr: None });
    play.lose_zygote(2, None);
    assert_eq!(play.world.done.get(&1), Some(&failed("gone")));
    play.mend();
    assert_eq!(play.world.done.get(&2), Some(&Ok(())));
    assert_eq!(play.generations(), BTreeSet::from([1]));
}

#[test]
fn an_image_may_come_with_a_shape_of_its_own() {
    let mut play = Play::ready(config());
    let shape = Some(Shape { profile: Profile::Process, workers: 5, threads: 1, tasks: 1 });
    play.tell(Event::Reload { ticket: 1 });
    play.world.zygotes.insert(2, Zygote::Up);
    play.tell(Event::ZygoteUp { generation: 2, shape });
    play.mend();
    assert_eq!((play.machine.bounds().target, play.machine.fleet().ready()), (5, 5));
    play.tell(Event::Reload { ticket: 2 });
    play.mend();
    assert_eq!(
        (play.machine.bounds().target, play.machine.fleet().ready()),
        (3, 3),
        "the next one has that of the config again"
    );
}
