//! What the supervisor's machine says of its workers and zygotes, and whom it blames for what.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::world::{GRACE, MEMORY, Play, TARGET, TERM_GRACE, Zygote, config, with_threads};
use clutch_pool::config::{PoolConfig, Profile, Shape};
use clutch_pool::pool::Denied;
use clutch_pool::supervisor::scale::Bounds;
use clutch_pool::supervisor::state::{Event, Leave, State, fate_text, signal_name};
use clutch_wire::sys::{EndSignal, Fate};

const SECOND: Duration = Duration::from_secs(1);
const START_TIMEOUT: Duration = Duration::from_secs(5);

fn failed(reason: &str) -> Result<(), Denied> {
    Err(Denied::Failed(reason.to_owned()))
}

fn scale(play: &mut Play, min: usize, max: usize, idle: &[u32]) {
    let ticket = 1000 + play.world.done.len() as u64;
    play.tell(Event::Scale { ticket, min, max, idle: idle.to_vec() });
}

fn stuck(worker: u32) -> Event {
    Event::Stuck { worker, cause: "late".to_owned() }
}

fn draining(play: &Play) -> Vec<u32> {
    play.world.draining.keys().copied().filter(|worker| play.world.alive.contains_key(worker)).collect()
}

// ---- words

#[test]
fn states_and_reasons_are_told_by_their_names() {
    let states = [State::Starting, State::Ready, State::Draining, State::Killed].map(State::as_str);
    assert_eq!(states, ["starting", "ready", "draining", "killed"]);
    let of_policy = [Leave::Age, Leave::Calls, Leave::Memory, Leave::Recycle, Leave::Reload].map(Leave::as_str);
    assert_eq!(of_policy, ["age", "calls", "memory", "recycle", "reload"]);
    assert_eq!([Leave::Surplus, Leave::Stuck, Leave::Stopped].map(Leave::as_str), ["surplus", "stuck", "stopped"]);
}

#[test]
fn an_end_is_told_by_signal_or_code_where_it_is_known() {
    assert_eq!(fate_text(Some(Fate::Exited(3))), "exited with code 3");
    assert_eq!(fate_text(Some(Fate::Signaled(1))), "was killed by signal 1 (SIGHUP)");
    assert_eq!(fate_text(None), "ended, nobody could tell how");
    assert_eq!([0, -1, 2, 15, 32].map(signal_name), ["", "", " (SIGINT)", " (SIGTERM)", ""]);
}

#[test]
fn a_pool_tells_how_many_there_are_and_since_when_it_serves() {
    let mut play = Play::new(with_threads(4));
    let began = play.machine.fleet().serving_since();
    play.load();
    assert_eq!((began, play.machine.fleet().serving_since()), (None, None));
    assert_eq!((play.machine.fleet().starting(), play.machine.fleet().ready()), (3, 0));
    play.let_fork(1);
    play.pass(SECOND);
    play.let_be_ready(1);
    let since = play.machine.fleet().serving_since().expect("one is ready");
    assert_eq!((play.machine.fleet().starting(), play.machine.fleet().ready()), (2, 1));
    play.pass(SECOND);
    play.let_start();
    assert_eq!((play.machine.fleet().starting(), play.machine.fleet().ready()), (0, 3));
    assert_eq!(play.machine.fleet().serving_since(), Some(since), "since the first");
    assert_eq!(play.machine.slots(), 4);
    assert_eq!(play.machine.bounds(), Bounds { min: 3, max: 3, target: 3 });
    for worker in 1..=TARGET {
        play.end(worker, Fate::Signaled(9));
    }
    assert_eq!(play.machine.fleet().serving_since(), None);
    play.let_start();
    assert_eq!(play.machine.fleet().serving_since(), Some(since + SECOND), "anew");
}

#[test]
fn restarts_are_those_that_nobody_asked_for() {
    let mut play = Play::ready(config());
    play.end(1, Fate::Signaled(11));
    assert_eq!(play.machine.fleet().restarts(), 1, "died while it served");
    play.end(4, Fate::Exited(1));
    assert_eq!(play.machine.fleet().restarts(), 1, "was not ready yet");
    play.pass(SECOND);
    play.let_start();
    play.tell(stuck(2));
    play.end(2, Fate::Signaled(15));
    assert_eq!(play.machine.fleet().restarts(), 2, "was ended since it was stuck");
    play.let_start();
    play.tell(Event::Recycle { ticket: 1, nr: Some(2) });
    play.let_start();
    play.end(3, Fate::Signaled(9));
    assert_eq!(play.machine.fleet().restarts(), 2, "drained, and was to go");
    play.lose_zygote(1, None);
    assert_eq!(play.machine.fleet().restarts(), 3, "a zygote that had workers");
}

#[test]
fn a_stuck_worker_takes_nobodys_turn() {
    let mut play = Play::ready(with_threads(4));
    play.tell(stuck(1));
    assert_eq!(play.world.wanted.len(), 1);
    play.tell(Event::Worn { worker: 2, why: Leave::Calls });
    assert_eq!(play.world.wanted.len(), 2, "it leaves for its calls, beside the other");
    play.tell(Event::Worn { worker: 3, why: Leave::Calls });
    assert_eq!(play.world.wanted.len(), 2, "in turn");
}

#[test]
fn what_is_known_of_a_worker_is_kept_at_its_end() {
    let told = |play: &Play, worker| (play.world.records[&worker].pid, play.world.records[&worker].untold);
    let mut play = Play::ready(config());
    play.end(1, Fate::Signaled(9));
    assert_eq!(told(&play, 1), (1001, false), "its zygote told");
    let record = &play.world.records[&1];
    assert_eq!((record.nr, record.generation, &record.said, &record.cause), (0, 1, &None, &None));
    play.die(2);
    play.pass(SECOND);
    assert_eq!(told(&play, 2), (1002, true), "its zygote is there and did not tell");
    play.tell(Event::ForkFailed { worker: 4, reason: "no memory".to_owned() });
    assert_eq!(told(&play, 4), (0, false), "there was nothing to tell");
    assert_eq!(play.world.records[&4].said.as_deref(), Some("no memory"));
    play.lose_zygote(1, None);
    play.die(3);
    assert_eq!(told(&play, 3), (1003, false), "there was nobody to tell");
}

#[test]
fn silent_deaths_are_told_with_the_last_that_was_written() {
    for (output, last) in [(None, ""), (Some("no such table"), "; its last output:\nno such table")] {
        let mut play = Play::new(config());
        play.load();
        for worker in play.world.wanted.keys().copied().collect::<Vec<_>>() {
            play.let_fork(worker);
        }
        for worker in 1..=3 {
            assert_eq!(play.world.failing, None);
            if let Some(text) = output {
                play.tell(Event::LastOutput { worker, text: text.to_owned() });
            }
            play.end(worker, Fate::Exited(3));
        }
        let reason = format!("workers die before they are ready: the last one exited with code 3{last}");
        assert_eq!(play.world.failing.as_deref(), Some(&*reason));
        assert_eq!(play.machine.failing(), Some(&*reason));
        assert_eq!(play.machine.reason(), Some(reason));
        assert_eq!(play.world.by_code, [false]);
    }
}

// ---- zygotes

#[test]
fn the_generation_is_that_which_workers_come_from_or_the_last_that_was_tried() {
    let mut play = Play::new(config());
    assert_eq!(play.machine.generation(), 1);
    play.fail_load(1, "SyntaxError");
    play.bury();
    assert_eq!(play.machine.generation(), 1, "the last try");
    play.pass(SECOND);
    assert_eq!(play.machine.generation(), 2);
    play.load();
    play.let_start();
    play.tell(Event::Reload { ticket: 1 });
    assert_eq!(play.machine.generation(), 2, "while the next one loads");
    play.load();
    assert_eq!(play.machine.generation(), 3);
}

#[test]
fn who_is_to_blame_for_a_zygote_that_dies_before_it_had_workers() {
    let blamed = |signal: Option<i32>| {
        let mut play = Play::new(config());
        for death in 1..=3 {
            let generation = play.zygote(Zygote::Loading).expect("one loads");
            play.lose_zygote(generation, signal);
            if !play.world.by_code.is_empty() {
                assert_eq!(play.world.failing.as_deref(), Some("gone"));
                return (death, play.world.by_code[0]);
            }
            play.pass(SECOND);
        }
        panic!("nobody is to blame");
    };
    assert_eq!(blamed(None), (1, true), "it ended of itself");
    assert_eq!(blamed(Some(11)), (3, true), "code did this to itself");
    assert_eq!([blamed(Some(9)), blamed(Some(15))], [(3, false); 2], "somebody did");
}

#[test]
fn zygotes_that_were_killed_count_in_a_row() {
    let mut play = Play::new(config());
    for _ in 0..3 {
        for _ in 0..2 {
            let generation = play.zygote(Zygote::Loading).expect("one loads");
            play.lose_zygote(generation, Some(9));
            play.pass(SECOND);
        }
        assert_eq!(play.world.failing, None);
        play.load();
        for worker in play.workers(|_| true) {
            play.end(worker, Fate::Signaled(9));
        }
        play.let_start();
        let current = play.machine.generation();
        play.lose_zygote(current, Some(9));
        assert_eq!(play.machine.generation(), current + 1, "one that had workers is followed at once");
    }
}

#[test]
fn a_zygote_that_is_not_the_current_one_any_more_is_not_followed() {
    let mut play = Play::ready(config());
    play.tell(Event::Reload { ticket: 1 });
    play.load();
    play.lose_zygote(1, Some(9));
    assert_eq!((play.world.zygotes_started, play.machine.fleet().restarts()), (2, 0));
    play.mend();
    assert_eq!(play.world.done.get(&1), Some(&Ok(())));
    assert_eq!(play.generations(), BTreeSet::from([2]));
}

#[test]
fn an_image_that_dies_while_it_loads_fails_its_reload() {
    for signal in [None, Some(9), Some(11)] {
        let mut play = Play::ready(config());
        play.tell(Event::Reload { ticket: 1 });
        play.lose_zygote(2, signal);
        assert_eq!(play.world.done.get(&1), Some(&failed("gone")));
        assert_eq!((play.machine.generation(), play.machine.failing()), (1, None));
        assert_eq!(play.world.zygotes_started, 2);
    }
}

#[test]
fn a_start_that_fails_beside_others_is_told_and_does_not_fail_the_pool() {
    let mut play = Play::new(config());
    play.load();
    for worker in 1..=3 {
        play.let_fork(worker);
    }
    let fail = |play: &mut Play, worker| {
        play.tell(Event::StartFailed { worker, reason: "locked".to_owned() });
        play.end(worker, Fate::Exited(1));
    };
    fail(&mut play, 1);
    assert_eq!((play.machine.failing(), play.machine.reason().as_deref()), (None, Some("locked")), "others start");
    play.let_be_ready(2);
    assert_eq!(play.machine.reason(), None);
    fail(&mut play, 3);
    play.pass(SECOND);
    assert_eq!((play.machine.failing(), play.machine.reason().as_deref()), (None, Some("locked")), "one serves");
}

#[test]
fn a_pool_is_failing_when_all_first_attempts_have_failed() {
    let mut play = Play::new(config());
    play.load();
    for worker in 1..=3 {
        play.let_fork(worker);
    }
    for worker in 1..=3 {
        assert_eq!(play.machine.failing(), None);
        play.tell(Event::StartFailed { worker, reason: "locked".to_owned() });
        play.end(worker, Fate::Exited(1));
        play.pass(SECOND);
        play.world.wanted.keys().copied().collect::<Vec<_>>().into_iter().for_each(|again| play.let_fork(again));
    }
    assert_eq!(play.machine.failing(), Some("locked"), "whoever is tried again meanwhile");
}

#[test]
fn a_first_attempt_that_hangs_does_not_hide_the_failure_of_the_others_for_ever() {
    let mut play = Play::new(config());
    play.load();
    let mut tried = BTreeSet::from([1]);
    play.let_fork(1);
    while play.machine.failing().is_none() {
        assert!(play.now < 3 * START_TIMEOUT + Duration::from_secs(30), "nobody is told");
        for worker in play.world.wanted.keys().copied().collect::<Vec<_>>() {
            play.let_fork(worker);
            tried.insert(worker);
            play.tell(Event::StartFailed { worker, reason: "no database".to_owned() });
            play.end(worker, Fate::Exited(1));
        }
        play.pass(SECOND);
    }
    assert_eq!(play.machine.failing(), Some("no database"));
    assert!(play.now >= START_TIMEOUT && tried.len() > 3);
}

#[test]
fn a_reload_that_fails_too_tells_what_is_wrong_now() {
    let mut play = Play::new(config());
    play.fail_load(1, "SyntaxError");
    play.tell(Event::Reload { ticket: 1 });
    play.fail_load(2, "ImportError");
    assert_eq!(play.world.done.get(&1), Some(&failed("ImportError")));
    assert_eq!(play.machine.failing(), Some("ImportError"));
    assert_eq!(play.world.by_code, [true, true]);
}

#[test]
fn failure_62_a_zygote_that_forks_nothing_is_told_of() {
    let reason = "the zygote forked no worker within start_timeout (5 s) and was killed";
    let mut play = Play::new(config());
    play.load();
    play.pass(START_TIMEOUT);
    assert_eq!(play.machine.reason().as_deref(), Some(reason));
    assert_eq!((play.world.failing.as_deref(), play.world.by_code.as_slice()), (Some(reason), [false].as_slice()));
    assert_eq!(play.world.zygote_ends, [(1, true, START_TIMEOUT)]);
    play.bury();
    assert_eq!(play.world.gone, BTreeSet::from([1, 2, 3]), "what it was to fork is nowhere");
    // One that had workers, and is the current one no more.
    let mut play = Play::ready(config());
    play.end(1, Fate::Signaled(9));
    play.tell(Event::Reload { ticket: 1 });
    play.load();
    for worker in play.world.wanted.iter().filter(|(_, from)| **from == 2).map(|(key, _)| *key).collect::<Vec<_>>() {
        play.let_fork(worker);
        play.let_be_ready(worker);
    }
    play.pass(START_TIMEOUT);
    assert_eq!(play.world.zygotes[&1], Zygote::Ending);
    assert_eq!((play.world.zygotes_started, play.machine.generation(), play.machine.fleet().restarts()), (2, 2, 1));
    assert!(play.world.done.is_empty(), "the new one goes on");
}

#[test]
fn workers_that_a_lost_zygote_had_not_forked_are_gone_and_no_others() {
    let mut play = Play::new(config());
    play.load();
    play.let_fork(1);
    play.let_be_ready(1);
    play.let_fork(2);
    play.lose_zygote(1, None);
    assert_eq!(play.world.gone, BTreeSet::from([3]));
    assert_eq!(play.world.records[&3].pid, 0);
    // Of another image.
    let mut play = Play::ready(config());
    play.end(1, Fate::Signaled(9));
    play.tell(Event::Reload { ticket: 1 });
    play.load();
    play.end(2, Fate::Signaled(9));
    assert_eq!(play.world.wanted.values().copied().collect::<BTreeSet<_>>(), BTreeSet::from([1, 2]));
    play.lose_zygote(1, None);
    assert_eq!(play.world.wanted.values().copied().collect::<BTreeSet<_>>(), BTreeSet::from([2]));
    assert_eq!(play.world.gone, BTreeSet::from([1, 2, 4]));
}

// ---- reloads

#[test]
fn an_image_that_loads_and_is_overtaken_is_killed_and_stays_so() {
    let mut play = Play::ready(config());
    play.tell(Event::Reload { ticket: 1 });
    play.tell(Event::Reload { ticket: 2 });
    assert_eq!(play.world.zygote_ends, [(2, true, Duration::ZERO)]);
    play.tell(Event::ZygoteUp { generation: 2, shape: None });
    play.pass(SECOND);
    assert_eq!(play.world.zygote_ends.len(), 1, "its last word changes nothing");
    assert_eq!((play.machine.generation(), play.zygote(Zygote::Loading)), (1, Some(3)));
}

#[test]
fn an_image_that_is_to_replace_a_lost_one_gives_way_to_the_reload() {
    let mut play = Play::ready(config());
    play.tell(Event::Reload { ticket: 1 });
    play.lose_zygote(1, None);
    assert_eq!(play.world.zygotes_started, 2, "the next one is on its way");
    play.load();
    assert_eq!(play.machine.generation(), 2);
    let mut play = Play::ready(config());
    play.lose_zygote(1, None);
    assert_eq!(play.zygote(Zygote::Loading), Some(2));
    play.tell(Event::Reload { ticket: 1 });
    play.world.zygotes.insert(3, Zygote::Up);
    play.tell(Event::ZygoteUp { generation: 3, shape: None });
    assert_eq!(play.world.zygote_ends, [(2, true, Duration::ZERO)], "while it loads");
    assert_eq!(play.machine.generation(), 3);
}

#[test]
fn a_reload_is_done_when_all_are_ready_and_none_is_old() {
    let mut play = Play::ready(config());
    play.tell(Event::Reload { ticket: 1 });
    play.load();
    for worker in 1..=TARGET {
        play.end(worker, Fate::Signaled(9));
    }
    for worker in play.world.wanted.keys().copied().collect::<Vec<_>>() {
        assert!(play.world.done.is_empty() && play.world.zygotes[&1] == Zygote::Up, "the old image may be needed");
        play.let_fork(worker);
        play.let_be_ready(worker);
    }
    assert_eq!(play.world.done.get(&1), Some(&Ok(())));
    assert_eq!(play.world.zygotes[&1], Zygote::Ending);
}

#[test]
fn an_old_image_without_workers_comes_back_when_the_new_one_fails() {
    let mut play = Play::ready(config());
    play.tell(Event::Reload { ticket: 1 });
    play.load();
    for worker in 1..=TARGET {
        play.end(worker, Fate::Signaled(9));
    }
    let new: Vec<_> = play.world.wanted.keys().copied().collect();
    new.iter().for_each(|worker| play.let_fork(*worker));
    play.tell(Event::StartFailed { worker: new[0], reason: "no database".to_owned() });
    play.end(new[0], Fate::Exited(1));
    assert_eq!(play.world.done.get(&1), Some(&failed("no database")));
    assert_eq!(play.machine.generation(), 1);
    for worker in &new[1..] {
        assert!(play.told(*worker, EndSignal::Term).is_some(), "of no use any more");
        play.end(*worker, Fate::Signaled(9));
        assert_eq!(play.world.records[worker].cause.as_deref(), Some("the reload failed"));
    }
    assert_eq!(play.machine.failing(), None, "they had not failed");
    play.let_start();
    assert_eq!((play.machine.fleet().ready(), play.generations()), (TARGET as usize, BTreeSet::from([1])));
}

#[test]
fn workers_of_an_image_that_was_taken_back_leave_also_without_it() {
    let mut play = Play::ready(PoolConfig { restarts_max: 1, ..config() });
    play.tell(Event::Reload { ticket: 1 });
    play.load();
    play.let_start();
    play.let_end();
    play.fail_starts("no database");
    assert_eq!(play.generations(), BTreeSet::from([1, 2]));
    for worker in play.workers(|alive| alive.generation == 1) {
        play.end(worker, Fate::Signaled(9));
    }
    play.lose_zygote(1, None);
    play.lose_zygote(2, None);
    assert!(play.world.wanted.is_empty(), "more starts have to wait");
    for _ in 0..70 {
        play.load();
        play.let_start();
        play.let_end();
        play.pass(SECOND);
    }
    assert_eq!((play.machine.fleet().ready(), play.generations()), (TARGET as usize, BTreeSet::from([3])));
}

#[test]
fn an_image_with_more_workers_keeps_the_share_that_is_always_there() {
    let mut play = Play::ready(PoolConfig { workers_min: 2, ..config() });
    scale(&mut play, 4, 6, &[]);
    play.tell(Event::Reload { ticket: 1 });
    play.world.zygotes.insert(2, Zygote::Up);
    let shape = Some(Shape { profile: Profile::Process, workers: 5, threads: 2, tasks: 3 });
    play.tell(Event::ZygoteUp { generation: 2, shape });
    assert_eq!(play.machine.bounds(), Bounds { min: 3, max: 5, target: 3 });
    assert_eq!(play.machine.slots(), 6);
}

// ---- fewer, and more

#[test]
fn those_that_are_not_ready_are_the_first_to_be_lost_whatever_their_number() {
    for idlest in [vec![], vec![3, 2, 4], vec![4, 3, 2]] {
        let mut play = Play::ready(config());
        play.end(1, Fate::Signaled(9));
        play.let_fork(4);
        let starting = play.machine.fleet().workers()[&4].nr;
        assert_eq!(starting, 0, "the lowest number is free again");
        scale(&mut play, 2, 2, &idlest);
        assert_eq!((draining(&play), play.told(4, EndSignal::Term)), (vec![], Some(Duration::ZERO)), "{idlest:?}");
        play.end(4, Fate::Signaled(9));
        assert_eq!(play.world.records[&4].cause.as_deref(), Some("the pool was made smaller"));
        scale(&mut play, 3, 3, &[]);
        assert_eq!(play.world.wanted.len(), 1, "it had not failed: nothing has to wait");
    }
}

#[test]
fn the_idlest_leave_in_their_order_and_then_those_with_the_highest_numbers() {
    let mut play = Play::ready(PoolConfig { workers_min: 1, ..config() });
    scale(&mut play, 1, 6, &[]);
    play.tell(Event::Resize { target: 6, idlest: vec![] });
    play.let_start();
    play.tell(Event::Resize { target: 5, idlest: vec![2, 5, 1] });
    assert_eq!(draining(&play), [2]);
    play.tell(Event::Resize { target: 3, idlest: vec![5, 1] });
    assert_eq!(draining(&play), [1, 2, 5]);
    play.tell(Event::Resize { target: 2, idlest: vec![1] });
    assert_eq!(draining(&play), [1, 2, 5, 6]);
}

#[test]
fn who_leaves_before_its_replacement_is_not_lost_again() {
    let budget = 3 * MEMORY / 2;
    let mut play = Play::ready(PoolConfig { memory_max_bytes: Some(budget), workers_min: 1, ..config() });
    play.tell(Event::Resize { target: 3, idlest: vec![] });
    play.let_start();
    let workers = play.workers(|_| true);
    play.weigh(&workers, budget / 3);
    play.tell(Event::Worn { worker: workers[0], why: Leave::Calls });
    assert_eq!(play.world.short, workers[..1]);
    play.tell(Event::Resize { target: 2, idlest: workers.clone() });
    assert_eq!(draining(&play), workers[..2], "another one leaves");
    play.let_end();
    assert_eq!(play.world.wanted.len(), 1);
}

#[test]
fn who_waits_for_a_replacement_that_was_lost_goes_when_enough_are_ready() {
    let mut play = Play::ready(config());
    play.tell(Event::Worn { worker: 1, why: Leave::Calls });
    play.let_fork(4);
    scale(&mut play, 2, 2, &[]);
    assert!(play.told(4, EndSignal::Term).is_some(), "the one that starts is too many");
    scale(&mut play, 3, 3, &[]);
    assert_eq!(play.machine.fleet().workers()[&5].nr, 3, "the number of one that may have to stay is not free");
    scale(&mut play, 2, 2, &[]);
    play.end(3, Fate::Signaled(9));
    play.end(4, Fate::Signaled(9));
    play.tell(Event::ForkFailed { worker: 5, reason: "withdrawn".to_owned() });
    assert!(play.world.draining.is_empty(), "only one other is ready");
    play.let_start();
    assert_eq!(draining(&play), [1]);
}

#[test]
fn what_is_stuck_and_stopped_for_good_is_killed_once() {
    let mut play = Play::ready(config());
    play.tell(stuck(1));
    play.tell(stuck(1));
    play.pass(GRACE + TERM_GRACE);
    let told: Vec<_> = play.world.signals.iter().filter(|(to, ..)| *to == 1).map(|(_, what, _)| *what).collect();
    assert_eq!(told, [EndSignal::Term, EndSignal::Kill]);
}
