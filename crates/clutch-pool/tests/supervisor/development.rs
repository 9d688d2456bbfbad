//! Reloads while code is being written: the old code gets no more work, and what is wrong with the new one is the answer.

use crate::world::{GRACE, Play, TARGET, TERM_GRACE, Zygote, config};
use clutch_pool::config::PoolConfig;
use clutch_pool::pool::Denied;
use clutch_pool::supervisor::state::{Action, Event, stop_term};
use clutch_wire::sys::{EndSignal, Fate};

/// All workers may leave at a time: none of them is waited for.
fn developed() -> PoolConfig {
    PoolConfig { development: true, recycle_together: TARGET as usize, ..config() }
}

fn reload(play: &mut Play, ticket: u64) {
    play.tell(Event::Reload { ticket });
}

#[test]
fn old_code_gets_no_work_from_the_moment_that_new_code_is_loaded() {
    let mut play = Play::ready(developed());
    let old = play.workers(|_| true);
    reload(&mut play, 1);
    assert!(old.iter().all(|worker| play.world.draining.get(worker) == Some(&"reload")), "{:?}", play.world.draining);
    assert_eq!(play.machine.fleet().ready(), 0, "so work waits");
    play.load();
    play.let_start();
    assert_eq!(play.machine.fleet().ready(), TARGET as usize);
    assert!(old.iter().all(|worker| play.world.alive.contains_key(worker)), "what runs there has its grace");
    assert_eq!(play.world.done.get(&1), Some(&Ok(())), "and nobody waits for that");
    play.pass(GRACE);
    assert!(old.iter().all(|worker| play.told(*worker, EndSignal::Term).is_some()));
}

#[test]
fn new_code_that_does_not_load_is_the_answer_until_the_next_reload() {
    let mut play = Play::ready(developed());
    reload(&mut play, 1);
    play.let_end();
    let generation = play.zygote(Zygote::Loading).expect("the new code is loaded");
    play.fail_load(generation, "SyntaxError");
    assert_eq!(play.world.failing.as_deref(), Some("SyntaxError"));
    assert_eq!(play.world.done.get(&1), Some(&Err(Denied::Failed("SyntaxError".to_owned()))));
    play.bury();
    let started = play.world.zygotes_started;
    play.pass(GRACE * 60);
    assert_eq!(play.world.zygotes_started, started, "the same code would fail again");
    reload(&mut play, 2);
    assert_eq!(play.world.failing, None, "what comes now waits for the code that is being loaded");
    play.load();
    play.let_start();
    assert_eq!(play.world.done.get(&2), Some(&Ok(())));
}

#[test]
fn a_first_start_that_fails_waits_for_a_reload() {
    let mut play = Play::new(developed());
    let generation = play.zygote(Zygote::Loading).expect("the code is loaded");
    play.fail_load(generation, "no module named shop");
    play.bury();
    play.pass(GRACE * 60);
    assert_eq!((play.world.zygotes_started, play.world.failing.is_some()), (1, true));
    reload(&mut play, 1);
    play.load();
    play.let_start();
    assert_eq!(play.machine.fleet().ready(), TARGET as usize);
}

#[test]
fn workers_whose_start_fails_are_tried_again() {
    let mut play = Play::ready(developed());
    reload(&mut play, 1);
    play.let_end();
    play.load();
    play.fail_starts("no database");
    assert_eq!(play.world.failing.as_deref(), Some("no database"), "the old code does not come back");
    play.mend();
    assert_eq!(play.machine.fleet().ready(), TARGET as usize, "the database may be there now");
}

#[test]
fn a_second_reload_overtakes_the_first() {
    let mut play = Play::ready(developed());
    reload(&mut play, 1);
    reload(&mut play, 2);
    assert_eq!(play.world.zygote_ends.len(), 1, "of the code that nobody wants any more");
    play.bury();
    play.load();
    play.let_fork(*play.world.wanted.keys().next().expect("a worker is wanted"));
    reload(&mut play, 3);
    let early = play.workers(|alive| !alive.ready && alive.generation == 3);
    assert!(early.iter().all(|worker| play.told(*worker, EndSignal::Term).is_some()), "it would be of old code");
    early.into_iter().for_each(|worker| play.end(worker, Fate::Signaled(9)));
    play.load();
    play.let_start();
    let finished = |action: &&Action| matches!(action, Action::ReloadFinished { .. });
    assert_eq!(play.world.reloads.iter().filter(finished).count(), 1);
    assert_eq!(play.world.done.len(), 3, "each of them is told");
    assert!(play.world.failing.is_none());
}

#[test]
fn a_stop_ends_a_reload() {
    let mut play = Play::ready(developed());
    reload(&mut play, 1);
    play.tell(Event::Stop { grace: GRACE, term: stop_term(GRACE, TERM_GRACE), idle: vec![] });
    assert_eq!(play.world.done.get(&1), Some(&Err(Denied::Closed)));
    play.let_end();
    play.bury();
    assert_eq!(play.world.closed, 1);
}

#[test]
fn no_limit_of_a_worker_passes_while_a_debugger_asks_there() {
    let mut play = Play::ready(developed());
    let debugged = play.workers(|_| true)[0];
    play.tell(Event::Debugging { worker: debugged, on: true });
    reload(&mut play, 1);
    play.load();
    play.let_start();
    assert!(play.world.spared.contains(&debugged), "it is said");
    assert_eq!(play.world.done.get(&1), Some(&Ok(())), "new code does not wait for it");
    play.tell(Event::Stuck { worker: debugged, cause: "late".to_owned() });
    play.pass(GRACE * 60);
    assert_eq!(play.told(debugged, EndSignal::Term), None);
    play.tell(Event::Debugging { worker: debugged, on: false });
    let since = play.now;
    play.pass(GRACE * 2);
    assert_eq!(play.told(debugged, EndSignal::Term), Some(since + GRACE), "its grace begins when the prompt is left");
}

#[test]
fn a_start_may_be_debugged_and_a_stop_ends_that() {
    let mut play = Play::new(developed());
    play.load();
    play.world.wanted.keys().copied().collect::<Vec<_>>().into_iter().for_each(|worker| play.let_fork(worker));
    let starting = play.workers(|_| true);
    starting.iter().for_each(|worker| play.tell(Event::Debugging { worker: *worker, on: true }));
    play.pass(GRACE * 60);
    assert!(
        starting.iter().all(|worker| play.told(*worker, EndSignal::Kill).is_none()),
        "it takes as long as it takes"
    );
    play.tell(Event::Stop { grace: GRACE, term: stop_term(GRACE, TERM_GRACE), idle: vec![] });
    assert!(starting.iter().all(|worker| play.told(*worker, EndSignal::Term).is_some()));
}
