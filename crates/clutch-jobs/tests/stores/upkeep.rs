//! What the runner that leads looks after, and the ticks of periodic jobs.

use std::collections::HashSet;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use clutch_jobs::job::{Ending, Millis, NewJob, State, settle};
use clutch_jobs::store::{Keep, Report, SCHEDULES_MAX, Schedule, ScheduleChange, StoreError, Tick, Want};

use super::house::{HOUR, House, KEEP, NOW, done, failure, job, runner, tick};

pub fn due_jobs_are_staged_once_and_on_time(house: &House) {
    let at = |scheduled_at| NewJob { scheduled_at: Some(scheduled_at), ..job("default") };
    let enqueued = house.enqueue(&[at(NOW + 2000), at(NOW + 1000), at(NOW - 5)]);
    assert_eq!(house.state(&enqueued[2]), Some(State::Available), "what is past is now");
    let upkeep = house.look(NOW);
    assert_eq!((upkeep.staged, upkeep.next_due), (0, Some(NOW + 1000)));
    let upkeep = house.look(NOW + 1500);
    assert_eq!((upkeep.staged, upkeep.next_due), (1, Some(NOW + 2000)));
    assert_eq!(house.state(&enqueued[1]), Some(State::Available));
    // A clock that went back stages nothing twice and loses nothing.
    assert_eq!(house.look(NOW - HOUR).staged, 0);
    let upkeep = house.look(NOW + 2000);
    assert_eq!((upkeep.staged, upkeep.next_due), (1, None));
    assert_eq!(house.claim_at("a", 9, &["default"], NOW + 2000).len(), 3);
}

pub fn failure_47_a_hundred_thousand_due_at_once_are_staged_once_by_two_keepers(house: &House) {
    const COUNT: usize = 100_000;
    let many: Vec<_> =
        (0..COUNT as Millis).map(|n| NewJob { scheduled_at: Some(NOW + 1 + n % 7), ..job("default") }).collect();
    for batch in many.chunks(10_000) {
        house.enqueue(batch);
    }
    let others: Vec<_> = (0..2).map(|_| (house.open)()).collect();
    let staged: usize = thread::scope(|scope| {
        let keepers: Vec<_> = others
            .iter()
            .map(|store| {
                scope.spawn(move || {
                    let looks = (0..).map(|_| store.look_after(&KEEP, 5000, &[], &[], NOW + 10).unwrap().staged);
                    looks.take_while(|staged| *staged > 0).sum::<usize>()
                })
            })
            .collect();
        keepers.into_iter().map(|keeper| keeper.join().unwrap()).sum()
    });
    assert_eq!(staged + house.look(NOW + 10).staged, COUNT);
    let mut claimed = HashSet::new();
    while claimed.len() < COUNT {
        let round = house.claim_at("a", 20_000, &["default"], NOW + 10);
        assert!(!round.is_empty() && round.into_iter().all(|job| claimed.insert(job.id)));
    }
    assert!(house.claim_at("a", 1, &["default"], NOW + 10).is_empty());
}

pub fn ended_jobs_are_pruned_by_their_state(house: &House) {
    let enqueued = house.enqueue(&[job("default"), job("default"), job("default")]);
    let claimed = house.claim("a", 3);
    house.end("a", &claimed[0], done(), NOW);
    house.end("a", &claimed[1], Ending::Cancelled, NOW);
    let Ending::Failed(error) = failure() else { unreachable!() };
    house.end("a", &claimed[2], Ending::Impossible { error, why: "it says so".into() }, NOW);
    let states = || enqueued.iter().map(|id| house.state(id)).collect::<Vec<_>>();
    assert_eq!(house.look(NOW + 59_000).pruned, 0);
    assert_eq!(states(), [Some(State::Completed), Some(State::Cancelled), Some(State::Dead)]);
    assert_eq!(house.look(NOW + 61_000).pruned, 1);
    assert_eq!(states(), [None, Some(State::Cancelled), Some(State::Dead)]);
    assert_eq!(house.look(NOW + 181_000).pruned, 2);
    assert_eq!(states(), [None, None, None]);
}

/// Whose settings say how long a job is kept: those of the front that ran it, whoever looks after the store.
pub fn a_job_is_kept_as_its_own_front_says(house: &House) {
    let with_result = NewJob { result_ms: 2 * HOUR, ..job("default") };
    let keyed = NewJob { key: Some("k".to_owned()), ..job("default") };
    let enqueued = house.enqueue(&[job("default"), job("default"), keyed, with_result]);
    let hour = Some(Keep { completed: Duration::from_secs(3600), ..KEEP });
    for claimed in &house.claim("a", 9) {
        let keep = hour.filter(|_| claimed.id != enqueued[0]);
        let settled = vec![settle(claimed, done(), NOW, 0.5)];
        house.store.round(&runner("a"), &Report { settled, keep, ..Report::default() }, &Want::default(), NOW).unwrap();
    }
    assert_eq!(house.store.get(&enqueued[1]).unwrap().unwrap().finished_at, Some(NOW));
    assert_eq!(house.look(NOW + 61_000).pruned, 1);
    assert_eq!((house.state(&enqueued[0]), house.look(NOW + HOUR - 1000).pruned), (None, 0));
    assert_eq!(house.look(NOW + HOUR + 1000).pruned, 2);
    assert!(house.state(&enqueued[3]).is_some(), "its result is kept for longer");
    assert_eq!(house.look(NOW + 2 * HOUR + 1000).pruned, 1);
}

pub fn a_tick_makes_one_job_and_one_that_is_not_later_none(house: &House) {
    let mut watch = house.store.watch().unwrap();
    while watch.wait(Duration::ZERO).unwrap() {}
    assert_eq!(house.tick(&[tick("a", NOW), tick("b é \u{1F98A}", NOW - 5)]), [NOW, NOW - 5]);
    assert!(watch.wait(Duration::from_secs(30)).unwrap(), "runners are told");
    assert_eq!(house.claim("r", 9).len(), 2);
    assert_eq!(house.tick(&[tick("a", NOW), tick("a", NOW - 1), tick("b é \u{1F98A}", NOW)]), [NOW, NOW, NOW]);
    assert_eq!(house.claim("r", 9).len(), 1);
    // By whoever looks, and among all else that it does.
    let last_ticks = (house.open)().look_after(&KEEP, 1000, &[tick("a", NOW + 1)], &[], NOW).unwrap().last_ticks;
    assert_eq!((last_ticks, house.claim("r", 9).len()), (vec![NOW + 1], 1));
}

pub fn an_entry_is_made_known_without_a_job(house: &House) {
    let known = |at| Tick { job: None, ..tick("a", at) };
    assert_eq!(house.tick(&[known(NOW), known(NOW + 5)]), [NOW, NOW], "the first is the one");
    assert_eq!(house.tick(&[tick("a", NOW)]), [NOW]);
    assert!(house.claim("r", 9).is_empty());
    assert_eq!(house.tick(&[tick("a", NOW + 1), known(NOW + 5)]), [NOW + 1, NOW + 1]);
    assert_eq!(house.claim("r", 9).len(), 1);
}

pub fn a_tick_whose_unique_job_has_not_ended_makes_none(house: &House) {
    let unique =
        |at| Tick { job: Some(NewJob { unique: Some("cron:a".to_owned()), ..job("default") }), ..tick("a", at) };
    house.tick(&[unique(NOW)]);
    let claimed = house.claim("r", 9).remove(0);
    let upkeep = house.store.look_after(&KEEP, 0, &[unique(NOW + 1)], &[], NOW).unwrap();
    assert_eq!((upkeep.last_ticks, upkeep.skipped), (vec![NOW + 1], vec!["a".to_owned()]), "it was, all the same");
    house.end("r", &claimed, done(), NOW);
    assert_eq!(house.tick(&[unique(NOW + 1)]), [NOW + 1]);
    assert!(house.claim("r", 9).is_empty());
    house.tick(&[unique(NOW + 2)]);
    assert_eq!(house.claim("r", 9).len(), 1);
}

fn put(house: &House, name: &str, entry: &str, now: Millis) {
    assert!(house.store.set_schedule(name, ScheduleChange::Put(entry), now).unwrap());
}

pub fn a_schedule_that_is_gone_paused_or_another_makes_no_job(house: &House) {
    let tick = |at, entry: &str| Tick { kept: Some(entry.to_owned()), ..tick("a", at) };
    put(house, "a", "{}", NOW);
    assert_eq!(house.tick(&[tick(NOW + 1, "{}")]), [NOW + 1]);
    assert_eq!(house.claim("r", 9).len(), 1);
    house.store.set_schedule("a", ScheduleChange::Pause(true), NOW + 1).unwrap();
    assert_eq!(house.tick(&[tick(NOW + 2, "{}")]), [NOW + 2], "it is over for who has not read that it is paused");
    house.store.set_schedule("a", ScheduleChange::Pause(false), NOW + 1).unwrap();
    put(house, "a", r#"{"n":1}"#, NOW + 1);
    assert_eq!(house.tick(&[tick(NOW + 3, "{}")]), [NOW + 3]);
    house.store.set_schedule("a", ScheduleChange::Remove, NOW).unwrap();
    assert_eq!(house.tick(&[tick(NOW + 4, r#"{"n":1}"#)]), [NOW + 4]);
    assert!(house.claim("r", 9).is_empty());
    assert_eq!(house.store.schedules().unwrap(), []);
    put(house, "a", "{}", NOW + 4);
    assert_eq!(house.tick(&[tick(NOW + 5, "{}")]), [NOW + 5]);
    assert_eq!(house.claim("r", 9).len(), 1, "nothing is left of the one before");
}

pub fn schedules_are_kept_changed_and_removed(house: &House) {
    let other = (house.open)();
    assert_eq!(other.schedules().unwrap(), []);
    for change in [ScheduleChange::Pause(true), ScheduleChange::Remove] {
        assert!(!house.store.set_schedule("a", change, NOW).unwrap(), "there is none");
    }
    put(house, "b", "{}", NOW);
    put(house, "a é", r#"{"n":1}"#, NOW);
    let kept = |name: &str, entry: &str, is_paused, ticked_at| Schedule {
        name: name.to_owned(),
        entry: entry.to_owned(),
        is_paused,
        ticked_at,
    };
    assert_eq!(other.schedules().unwrap(), [kept("a é", r#"{"n":1}"#, false, NOW), kept("b", "{}", false, NOW)]);
    assert!(house.store.set_schedule("b", ScheduleChange::Pause(true), NOW + 1).unwrap());
    put(house, "a é", "{}", NOW + 2);
    assert_eq!(other.schedules().unwrap(), [kept("a é", "{}", false, NOW + 2), kept("b", "{}", true, NOW)]);
    assert!(house.store.set_schedule("b", ScheduleChange::Remove, NOW).unwrap());
    put(house, "b", "{}", NOW + 9);
    assert_eq!(other.schedules().unwrap()[1], kept("b", "{}", false, NOW + 9), "it begins anew, and is not paused");
}

pub fn a_schedule_begins_with_its_next_tick(house: &House) {
    let ticked = |house: &House| house.store.schedules().unwrap()[0].ticked_at;
    put(house, "a", "1", NOW);
    assert_eq!(house.tick(&[tick("a", NOW)]), [NOW]);
    assert!(house.claim("r", 9).is_empty(), "what was before is no business of it");
    assert_eq!(house.tick(&[tick("a", NOW + 5)]), [NOW + 5]);
    put(house, "a", "1", NOW + 50);
    assert_eq!(ticked(house), NOW + 5, "nothing has changed");
    put(house, "a", "2", NOW + 60);
    assert_eq!(ticked(house), NOW + 60);
    for (is_paused, ticks) in [(true, NOW + 60), (true, NOW + 60), (false, NOW + 72), (false, NOW + 72)] {
        assert!(house.store.set_schedule("a", ScheduleChange::Pause(is_paused), ticks.max(NOW + 70)).unwrap());
        assert_eq!(ticked(house), ticks.max(if is_paused { 0 } else { NOW + 72 }));
    }
}

pub fn a_store_keeps_a_bounded_number_of_schedules(house: &House) {
    for nr in 0..SCHEDULES_MAX {
        put(house, &format!("{nr}"), "{}", NOW);
    }
    let refused = house.store.set_schedule("more", ScheduleChange::Put("{}"), NOW);
    assert!(matches!(&refused, Err(StoreError::Refused(why)) if why.contains("1000")), "{refused:?}");
    put(house, "7", "1", NOW);
}

pub fn of_many_at_once_one_takes_each_tick(house: &House) {
    const TICKS: usize = 100;
    let others: Vec<_> = (0..3).map(|_| (house.open)()).collect();
    let start = Barrier::new(others.len());
    thread::scope(|scope| {
        for store in &others {
            scope.spawn(|| {
                for at in (NOW..).take(TICKS) {
                    start.wait();
                    assert_eq!(store.look_after(&KEEP, 0, &[tick("a", at)], &[], NOW).unwrap().last_ticks, [at]);
                    start.wait();
                }
            });
        }
    });
    assert_eq!(house.claim("r", 1000).len(), TICKS);
}
