//! Limits of queues and keys: jobs at a time, and rates.

use std::thread;
use std::time::Duration;

use clutch_jobs::job::{Ending, NewJob, Rate, State, now};
use clutch_jobs::store::{Change, Filter, QueueChange, Report, StoreError};

use super::house::{HOUR, House, NOW, done, failure, ids, job, runner, want};

pub fn a_paused_queue_gives_nothing_and_takes_everything(house: &House) {
    house.enqueue(&[job("default")]);
    house.store.set_queue("default", QueueChange::Pause(true)).unwrap();
    house.enqueue(&[job("default")]);
    assert!(house.claim("a", 9).is_empty());
    let queues = house.store.queues().unwrap();
    assert_eq!((queues[0].is_paused, queues[0].available), (true, 2));
    house.store.set_queue("default", QueueChange::Pause(false)).unwrap();
    assert_eq!(house.claim("a", 9).len(), 2);
}

pub fn a_queue_without_jobs_is_known_for_as_long_as_it_has_a_setting(house: &House) {
    let known = || house.store.queues().unwrap().into_iter().map(|queue| queue.name).collect::<Vec<_>>();
    house.store.set_queue("typo", QueueChange::Pause(true)).unwrap();
    house.store.set_queue("typo", QueueChange::RunningMax(Some(2))).unwrap();
    house.store.set_queue("typo", QueueChange::Pause(false)).unwrap();
    assert_eq!(known(), ["typo"]);
    house.store.set_queue("typo", QueueChange::RunningMax(None)).unwrap();
    assert!(known().is_empty());
}

pub fn names_that_no_job_may_give_are_no_queues_to_change(house: &House) {
    for (name, why) in
        [("", "empty"), ("a\nb", "\"a\\nb\": control"), (&"q".repeat(3000), "3000 bytes: allowed are 1000")]
    {
        for is_paused in [true, false] {
            let refused = house.store.set_queue(name, QueueChange::Pause(is_paused)).unwrap_err();
            assert!(matches!(&refused, StoreError::Refused(text) if text.contains(why)), "{refused}");
        }
        assert!(matches!(house.store.set_queue(name, QueueChange::RunningMax(Some(1))), Err(StoreError::Refused(_))));
    }
    assert!(house.store.queues().unwrap().is_empty());
}

pub fn a_queue_runs_no_more_than_its_limit_over_all_runners(house: &House) {
    house.enqueue(&vec![job("default"); 5]);
    house.store.set_queue("default", QueueChange::RunningMax(Some(2))).unwrap();
    let first = house.claim("a", 1);
    assert_eq!((first.len(), house.claim("b", 9).len(), house.claim("c", 9).len()), (1, 1, 0));
    house.end("a", &first[0], done(), NOW);
    assert_eq!(house.claim("c", 9).len(), 1);
    house.store.set_queue("default", QueueChange::RunningMax(None)).unwrap();
    assert_eq!(house.claim("c", 9).len(), 2);
}

pub fn jobs_with_a_key_run_one_at_a_time_in_order(house: &House) {
    let keyed = |key: &str| NewJob { key: Some(key.to_owned()), ..job("default") };
    let enqueued = house.enqueue(&[keyed("a"), keyed("a"), keyed("b"), job("default"), keyed("a")]);
    let first = house.claim("r", 9);
    assert_eq!(ids(&first), [enqueued[0].as_str(), &enqueued[2], &enqueued[3]]);
    assert!(house.claim("r", 9).is_empty());
    house.end("r", &first[0], failure(), NOW);
    let second = house.claim("r", 9);
    assert_eq!(ids(&second), [enqueued[1].as_str()], "one that waits for its retry holds nobody up");
    house.store.change(&enqueued[4], Change::Cancel, NOW).unwrap();
    house.end("r", &second[0], done(), NOW);
    assert!(house.claim("r", 9).is_empty());
    house.look(NOW + 1000);
    assert_eq!(ids(&house.claim_at("r", 9, &["default"], NOW + 1000)), [enqueued[0].as_str()]);
}

pub fn jobs_with_a_key_run_as_many_as_their_limit_says(house: &House) {
    let keyed = NewJob { key: Some("k".to_owned()), key_limit: 2, ..job("default") };
    let ids_of = house.enqueue(&vec![keyed.clone(); 4]);
    let claimed = house.claim("a", 9);
    assert_eq!(ids(&claimed), ids_of[..2]);
    house.end("a", &claimed[1], done(), NOW);
    assert_eq!(ids(&house.claim("a", 9)), [&ids_of[2]]);
    house.end("a", &claimed[0], done(), NOW);
    assert_eq!(ids(&house.claim("a", 9)), [&ids_of[3]]);
}

pub fn a_queue_begins_no_more_than_its_rate(house: &House) {
    house.store.set_queue("default", QueueChange::Rate(Some(Rate { count: 2, per_ms: 60_000 }))).unwrap();
    assert_eq!(house.store.queues().unwrap()[0].rate, Some(Rate { count: 2, per_ms: 60_000 }));
    house.enqueue(&vec![job("default"); 3]);
    let round =
        |name: &str, now| house.store.round(&runner(name), &Report::default(), &want(9, &["default"]), now).unwrap();
    let first = round("a", NOW);
    assert_eq!(first.claimed.len(), 2);
    let wait = first.again_in.unwrap();
    assert!(Duration::from_secs(50) < wait && wait <= Duration::from_secs(60), "{wait:?}");
    assert_eq!(round("b", NOW + 40_000).claimed.len(), 0, "of all runners");
    assert_eq!(round("b", NOW + 61_000).claimed.len(), 1);
    house.store.set_queue("default", QueueChange::Rate(None)).unwrap();
    house.enqueue(&vec![job("default"); 5]);
    assert_eq!(round("b", NOW + 61_000).claimed.len(), 5);
}

pub fn a_rate_forgets_what_began_before_the_clock_was_set_back(house: &House) {
    house.store.set_queue("default", QueueChange::Rate(Some(Rate { count: 1, per_ms: 60_000 }))).unwrap();
    house.enqueue(&vec![job("default"); 3]);
    assert_eq!(house.claim_at("a", 9, &["default"], NOW + HOUR).len(), 1);
    assert!(house.claim_at("a", 9, &["default"], NOW + HOUR - 3000).is_empty(), "it is only late");
    assert_eq!(house.claim_at("a", 9, &["default"], NOW).len(), 1);
}

pub fn many_runners_begin_no_more_than_a_rate(house: &House) {
    let rate = Rate { count: 5, per_ms: 3_600_000 };
    house.store.set_queue("default", QueueChange::Rate(Some(rate))).unwrap();
    house.enqueue(&vec![job("default"); 40]);
    let stores: Vec<_> = (0..4).map(|_| (house.open)()).collect();
    let claimed: usize = thread::scope(|scope| {
        let runners: Vec<_> = stores
            .iter()
            .enumerate()
            .map(|(nr, store)| {
                scope.spawn(move || {
                    let runner = runner(&format!("r{nr}"));
                    // Whoever comes late to the lock of the store has a time of before.
                    let claim = |_| store.round(&runner, &Report::default(), &want(1, &["default"]), now()).unwrap();
                    (0..20).map(claim).map(|round| round.claimed.len()).sum::<usize>()
                })
            })
            .collect();
        runners.into_iter().map(|runner| runner.join().unwrap()).sum()
    });
    assert_eq!(claimed, 5);
}

pub fn a_key_begins_no_more_than_its_rate(house: &House) {
    let rate = Some(Rate { count: 1, per_ms: 60_000 });
    let keyed = NewJob { key: Some("k".to_owned()), key_limit: 9, key_rate: rate, ..job("default") };
    let ids_of = house.enqueue(&[keyed.clone(), keyed.clone(), keyed, job("default")]);
    let claimed = house.claim("a", 2);
    assert_eq!(ids(&claimed), [&ids_of[0], &ids_of[3]], "who is held back takes nobody's place");
    let put_off = house.store.get(&ids_of[1]).unwrap().unwrap();
    assert_eq!((put_off.state, put_off.reason.as_deref(), put_off.attempt), (State::Scheduled, Some("rate"), 0));
    assert!(put_off.scheduled_at.is_some_and(|at| at > NOW + 50_000 && at <= NOW + 60_000));
    for time in [20_000, 40_000] {
        house.store.renew(&runner("a"), &ids_of, NOW + time).unwrap();
    }
    assert_eq!(house.look(NOW + 61_000).staged, 2);
    let later = house.claim_at("b", 9, &["default"], NOW + 61_000);
    assert_eq!(later.len(), 1);
    // Who is put off twice is still one of those of its key that may run.
    let waits = house.store.list(&Filter { state: Some(State::Scheduled), limit: 9, ..Filter::default() }).unwrap();
    assert!(house.store.change(&waits[0].id, Change::Cancel, NOW + 61_000).unwrap());
}

pub fn what_had_not_begun_is_no_start_for_a_rate(house: &House) {
    let rate = Some(Rate { count: 1, per_ms: 3_600_000 });
    let keyed = NewJob { key: Some("k".to_owned()), key_rate: rate, ..job("default") };
    house.store.set_queue("slow", QueueChange::Rate(rate)).unwrap();
    for (name, of) in [("default", keyed), ("slow", job("slow"))] {
        house.enqueue(&[of]);
        for _ in 0..2 {
            let claimed = house.claim_at("a", 9, &[name], NOW);
            assert_eq!(claimed.len(), 1, "{name}");
            house.end("a", &claimed[0], Ending::NotBegun { reason: "it waited".to_owned() }, NOW);
        }
        let claimed = house.claim_at("a", 9, &[name], NOW);
        house.end("a", &claimed[0], Ending::CutOff { reason: "it had begun".to_owned() }, NOW);
        assert!(house.claim_at("a", 9, &[name], NOW).is_empty(), "{name}: the hour is not over");
    }
}

/// A short rate forgets soon what a long one needs.
pub fn each_rate_of_a_key_has_its_own_memory(house: &House) {
    let keyed = |count, per_ms| NewJob {
        key: Some("k".to_owned()),
        key_limit: 9,
        key_rate: Some(Rate { count, per_ms }),
        ..job("default")
    };
    house.enqueue(&[keyed(1, 3_600_000), keyed(9, 1)]);
    assert_eq!(house.claim("a", 9).len(), 2);
    house.enqueue(&[keyed(9, 1), keyed(1, 3_600_000)]);
    assert_eq!(house.claim_at("a", 9, &["default"], NOW + 5_000).len(), 1, "not the second of the hour");
}

pub fn a_key_is_free_again_when_its_runner_dies(house: &House) {
    let keyed = NewJob { key: Some("k".to_owned()), ..job("default") };
    house.enqueue(&[keyed.clone(), keyed]);
    assert_eq!(house.claim("a", 9).len(), 1);
    let late = NOW + 31_000;
    house.look_lapsed(&[house.seen("a")], late);
    let next = house.claim_at("b", 9, &["default"], late);
    assert_eq!(next.len(), 1);
    house.end("b", &next[0], done(), late);
    assert_eq!(house.claim_at("b", 9, &["default"], late).len(), 1);
}

pub fn a_key_is_free_again_when_who_waits_with_it_is_cancelled_or_deleted(house: &House) {
    let keyed = NewJob { key: Some("k".to_owned()), ..job("default") };
    let enqueued = house.enqueue(&[keyed.clone(), keyed.clone(), keyed]);
    assert!(house.store.change(&enqueued[0], Change::Delete, NOW).unwrap());
    assert!(house.store.change(&enqueued[1], Change::Cancel, NOW).unwrap());
    assert_eq!(ids(&house.claim("a", 9)), [enqueued[2].as_str()]);
}
