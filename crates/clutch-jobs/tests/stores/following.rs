//! Jobs that come after others: each row of the table in docs/jobs/workflows.md.

use std::collections::HashSet;
use std::thread;

use clutch_jobs::flow::{self, LINKS_MAX};
use clutch_jobs::job::{AfterFailure, Claimed, Ending, JobId, NewJob, RESULTS_BYTES_MAX, State};
use clutch_jobs::store::{Change, StoreError};

use super::house::{HOUR, House, KEEP, NOW, done, failure, ids, job, want};

fn after(parents: &[&str]) -> NewJob {
    NewJob { after: parents.iter().map(|id| (*id).to_owned()).collect(), ..job("default") }
}

fn anyway(parents: &[&str]) -> NewJob {
    NewJob { after_failure: AfterFailure::Run, ..after(parents) }
}

/// Each with a record on Redis, or as an entry.
fn of_both_kinds() -> [NewJob; 2] {
    [job("default"), NewJob { priority: 1, ..job("default") }]
}

fn one(house: &House, job: NewJob) -> JobId {
    house.enqueue(&[job]).remove(0)
}

fn dead() -> Ending {
    let Ending::Failed(error) = failure() else { unreachable!() };
    Ending::Impossible { error, why: "it says so".into() }
}

/// Claims this job, others waiting meanwhile, and ends it.
fn end(house: &House, id: &str, ending: Ending) {
    let claimed = house.claim("a", 99);
    let (own, others): (Vec<_>, Vec<_>) = claimed.into_iter().partition(|job| job.id == id);
    for other in others {
        house.end("a", &other, Ending::CutOff { reason: "not yet".to_owned() }, NOW);
    }
    assert!(house.end("a", &own[0], ending, NOW).lost.is_empty());
}

fn states(house: &House, ids: &[JobId]) -> Vec<State> {
    ids.iter().map(|id| house.state(id).unwrap()).collect()
}

pub fn a_job_comes_after_those_that_have_to_complete(house: &House) {
    for parent in of_both_kinds() {
        let parents = house.enqueue(&[parent.clone(), parent]);
        let child = one(house, after(&[&parents[0], &parents[1]]));
        let told = house.store.get(&child).unwrap().unwrap();
        assert_eq!((told.state, told.waits_for, told.after_count), (State::Waiting, 2, 2));
        assert_eq!(told.after.as_deref(), Some(&parents[..]));
        assert_eq!(house.store.get(&parents[0]).unwrap().unwrap().dependents.unwrap(), std::slice::from_ref(&child));
        assert_eq!(house.store.queues().unwrap()[0].waiting, 1);
        let claimed = house.claim("a", 9);
        assert_eq!(claimed.len(), 2, "it waits");
        house.end("a", &claimed[0], done(), NOW);
        assert_eq!(house.store.get(&child).unwrap().unwrap().waits_for, 1);
        assert!(house.claim("a", 9).is_empty());
        house.end("a", &claimed[1], failure(), NOW);
        assert_eq!(house.state(&child), Some(State::Waiting), "it is tried again");
        house.look(NOW + 1000);
        let again = house.claim_at("a", 9, &["default"], NOW + 1000);
        assert_eq!(again.len(), 1);
        house.end("a", &again[0], done(), NOW + 1000);
        let claimed = house.claim_at("a", 9, &["default"], NOW + 1000);
        assert_eq!(ids(&claimed), [&child]);
        assert_eq!(claimed[0].due_at, NOW + 1000, "its wait for a slot begins now");
        house.end("a", &claimed[0], done(), NOW + 1000);
    }
}

pub fn what_has_ended_before_counts(house: &House) {
    for parent in of_both_kinds() {
        let parents = house.enqueue(&[parent.clone(), parent]);
        end(house, &parents[0], done());
        end(house, &parents[1], dead());
        let children =
            house.enqueue(&[after(&[&parents[0]]), after(&[&parents[1]]), anyway(&[&parents[0], &parents[1]])]);
        assert_eq!(states(house, &children), [State::Available, State::Cancelled, State::Available]);
        let told = house.store.get(&children[1]).unwrap().unwrap();
        assert_eq!(told.reason, Some(flow::halted(&parents[1])));
        assert_eq!(house.claim("a", 9).len(), 2);
    }
}

pub fn results_come_in_order(house: &House) {
    let keeps = NewJob { result_ms: 60_000, ..job("default") };
    let parents = house.enqueue(&[keeps.clone(), job("default"), keeps.clone(), keeps]);
    let child = anyway(&[&parents[2], &parents[1], &parents[3], &parents[0], &parents[2]]);
    let children = house.enqueue(&[child.clone(), child]);
    end(house, &parents[0], Ending::Returned("0".to_owned()));
    end(house, &parents[1], Ending::Returned("1".to_owned()));
    end(house, &parents[2], Ending::Returned(r#"{"n":2}"#.to_owned()));
    end(house, &parents[3], dead());
    // Whatever becomes of those before it meanwhile.
    for parent in &parents {
        assert!(house.store.change(parent, Change::Delete, NOW).unwrap());
    }
    let claimed = house.claim("a", 1).remove(0);
    let results = r#"[{"value":{"n":2}},{},null,{"value":0},{"value":{"n":2}}]"#;
    assert_eq!((claimed.id.as_str(), claimed.results.as_deref()), (children[0].as_str(), Some(results)));
    assert_eq!(claimed.body(), format!(r#"{{"results":{results},"args":[1],"kwargs":{{}}}}"#));
    house.end("a", &claimed, failure(), NOW);
    house.look(NOW + 1000);
    let again = house.claim_at("a", 9, &["default"], NOW + 1000);
    assert!(again.iter().all(|job| job.results.as_deref() == Some(results)), "each attempt has them");
    // More than any job is given.
    let large = Ending::Returned(format!("\"{}\"", "x".repeat(RESULTS_BYTES_MAX / 2)));
    let parents = house.enqueue(&vec![NewJob { result_ms: 60_000, ..job("default") }; 3]);
    let child = one(house, after(&ids_of(&parents)));
    for parent in &parents {
        end(house, parent, large.clone());
    }
    house.claim("a", 9);
    let told = house.store.get(&child).unwrap().unwrap();
    assert_eq!(told.state, State::Dead);
    assert!(told.errors[0].message.contains("results"), "{:?}", told.errors);
}

fn ids_of(ids: &[JobId]) -> Vec<&str> {
    ids.iter().map(String::as_str).collect()
}

pub fn one_that_does_not_complete_cancels_what_comes_after_it(house: &House) {
    for parent in of_both_kinds() {
        for ending in [dead(), Ending::CancelledItself { reason: "no".to_owned() }] {
            let parents = house.enqueue(&[parent.clone(), parent.clone()]);
            let child = one(house, NewJob { unique: Some("u".to_owned()), ..after(&ids_of(&parents)) });
            let grandchild = one(house, after(&[&child]));
            end(house, &parents[0], ending);
            assert_eq!(states(house, &[child.clone(), grandchild.clone()]), [State::Cancelled, State::Cancelled]);
            let told = house.store.get(&child).unwrap().unwrap();
            assert_eq!((told.reason, told.finished_at), (Some(flow::halted(&parents[0])), Some(NOW)));
            assert_eq!(house.store.get(&grandchild).unwrap().unwrap().reason, Some(flow::halted(&child)));
            let other = one(house, NewJob { unique: Some("u".to_owned()), ..job("default") });
            assert_ne!(other, child, "its key is free");
            assert!(house.store.change(&other, Change::Delete, NOW).unwrap());
            end(house, &parents[1], done());
            assert_eq!(house.state(&child), Some(State::Cancelled));
        }
        // Before it has begun, by hand.
        let parent = one(house, parent);
        let child = one(house, after(&[&parent]));
        assert!(house.store.change(&parent, Change::Cancel, NOW).unwrap());
        assert_eq!(house.state(&child), Some(State::Cancelled));
    }
    let queue = house.store.queues().unwrap().remove(0);
    assert_eq!((queue.waiting, queue.available), (0, 0));
}

pub fn a_retry_lets_what_was_cancelled_with_it_wait_again(house: &House) {
    for parent in of_both_kinds() {
        let parents = house.enqueue(&[parent.clone(), parent]);
        let child = one(house, NewJob { unique: Some("u".to_owned()), ..after(&ids_of(&parents)) });
        let grandchild = one(house, after(&[&child]));
        let by_hand = one(house, after(&[&parents[0]]));
        assert!(house.store.change(&by_hand, Change::Cancel, NOW).unwrap());
        end(house, &parents[0], dead());
        end(house, &parents[1], dead());
        assert!(house.store.change(&parents[0], Change::Retry, NOW).unwrap());
        assert_eq!(house.state(&child), Some(State::Cancelled), "the other one is dead");
        assert!(house.store.change(&parents[1], Change::Retry, NOW).unwrap());
        let all = [child.clone(), grandchild.clone(), by_hand];
        assert_eq!(states(house, &all), [State::Waiting, State::Waiting, State::Cancelled]);
        let told = house.store.get(&child).unwrap().unwrap();
        assert_eq!((told.waits_for, told.reason, told.finished_at), (2, None, None));
        assert_eq!(
            house.store.enqueue(&[NewJob { unique: Some("u".to_owned()), ..job("default") }], NOW).unwrap()[0].id,
            child
        );
        for id in [&parents[0], &parents[1], &child, &grandchild] {
            end(house, id, done());
        }
        // What has completed once may run again: that is nobody else's business.
        assert!(house.store.change(&parents[0], Change::Retry, NOW).unwrap());
        end(house, &parents[0], dead());
        assert_eq!(states(house, &[child, grandchild]), [State::Completed, State::Completed]);
    }
    // Another job has its key meanwhile: then it stays cancelled.
    let parent = one(house, job("default"));
    let child = one(house, NewJob { unique: Some("v".to_owned()), ..after(&[&parent]) });
    end(house, &parent, dead());
    let other = one(house, NewJob { unique: Some("v".to_owned()), ..job("default") });
    assert!(house.store.change(&parent, Change::Retry, NOW).unwrap());
    assert_eq!(house.state(&child), Some(State::Cancelled));
    end(house, &other, done());
    end(house, &parent, dead());
    assert!(house.store.change(&parent, Change::Retry, NOW).unwrap());
    assert_eq!(house.state(&child), Some(State::Waiting));
}

pub fn a_job_may_run_whatever_became_of_those_before_it(house: &House) {
    let parents = house.enqueue(&vec![job("default"); 3]);
    let child = one(house, anyway(&ids_of(&parents)));
    end(house, &parents[0], dead());
    assert!(house.store.change(&parents[1], Change::Cancel, NOW).unwrap());
    assert_eq!(house.state(&child), Some(State::Waiting), "until all have ended");
    assert!(house.store.change(&parents[0], Change::Retry, NOW).unwrap());
    end(house, &parents[2], done());
    assert_eq!(house.state(&child), Some(State::Available), "it has ended once");
    // Of one that is there no more nobody knows more than that.
    end(house, &parents[0], done());
    assert!(house.store.change(&parents[0], Change::Delete, NOW).unwrap());
    assert_eq!(house.state(&one(house, anyway(&[&parents[0]]))), Some(State::Available));
}

pub fn a_job_that_is_deleted_does_not_complete(house: &House) {
    for parent in of_both_kinds() {
        let parents = house.enqueue(&vec![parent; 2]);
        let children = house.enqueue(&[after(&[&parents[0]]), anyway(&[&parents[0]]), after(&[&parents[1]])]);
        assert!(house.store.change(&parents[0], Change::Delete, NOW).unwrap());
        assert_eq!(states(house, &children), [State::Cancelled, State::Available, State::Waiting]);
        // One that has completed may go.
        end(house, &parents[1], done());
        assert!(house.store.change(&parents[1], Change::Delete, NOW).unwrap());
        assert_eq!(house.state(&children[2]), Some(State::Available));
        house.claim("b", 9);
    }
}

pub fn a_job_runs_at_once_if_somebody_wants_it(house: &House) {
    let parent = one(house, job("default"));
    let children = house.enqueue(&[after(&[&parent]), after(&[&parent])]);
    assert!(house.store.change(&children[0], Change::Retry, NOW).unwrap());
    assert_eq!(states(house, &children), [State::Available, State::Waiting]);
    end(house, &children[0], done());
    end(house, &parent, dead());
    assert_eq!(states(house, &children), [State::Completed, State::Cancelled]);
    assert!(house.store.change(&children[1], Change::Retry, NOW).unwrap());
    assert!(house.store.change(&parent, Change::Retry, NOW).unwrap());
    assert_eq!(house.state(&children[1]), Some(State::Available));
    end(house, &parent, done());
    assert_eq!(ids(&house.claim("a", 9)), [&children[1]], "once");
}

pub fn a_job_waits_for_its_time_and_its_key_as_well(house: &House) {
    let parent = one(house, job("default"));
    let keyed = NewJob { key: Some("k".to_owned()), ..job("default") };
    let children = house.enqueue(&[
        NewJob { scheduled_at: Some(NOW + HOUR), ..after(&[&parent]) },
        NewJob { key: Some("k".to_owned()), ..after(&[&parent]) },
        keyed,
    ]);
    assert_eq!(states(house, &children), [State::Waiting, State::Waiting, State::Available]);
    end(house, &parent, done());
    assert_eq!(states(house, &children), [State::Scheduled, State::Available, State::Available]);
    let claimed = house.claim("a", 9);
    assert_eq!(ids(&claimed), [&children[2]], "it came first to the key");
    house.end("a", &claimed[0], done(), NOW);
    assert_eq!(ids(&house.claim("a", 9)), [&children[1]]);
    house.look(NOW + HOUR);
    assert_eq!(house.state(&children[0]), Some(State::Available));
}

pub fn jobs_come_after_those_of_their_own_batch(house: &House) {
    let outside = one(house, job("default"));
    let then = NewJob { after_previous: 2, after: vec![outside.clone()], ..job("default") };
    let next = NewJob { after_previous: 1, ..job("default") };
    let unique = NewJob { unique: Some("u".to_owned()), ..job("default") };
    let known = one(house, unique.clone());
    let batch = house.enqueue(&[job("default"), unique, then, next]);
    assert_eq!(batch[1], known, "one that exists already is as good");
    let told = |nr: usize| house.store.get(&batch[nr]).unwrap().unwrap();
    assert_eq!(told(2).after.unwrap(), [outside.clone(), batch[0].clone(), known.clone()]);
    assert_eq!(told(3).after.unwrap(), [batch[2].clone()]);
    for id in [&outside, &batch[0], &known, &batch[2], &batch[3]] {
        end(house, id, done());
    }
    // After one that will never complete.
    let lost = one(house, job("default"));
    end(house, &lost, dead());
    let batch = house.enqueue(&[after(&[&lost]), NewJob { after_previous: 1, ..job("default") }]);
    assert_eq!(states(house, &batch), [State::Cancelled, State::Cancelled]);
    assert!(house.store.change(&lost, Change::Retry, NOW).unwrap());
    assert_eq!(states(house, &batch), [State::Waiting, State::Waiting]);
    let fewer = house.store.enqueue(&[NewJob { after_previous: 1, ..job("default") }], NOW);
    assert!(matches!(fewer, Err(StoreError::Refused(_))), "{fewer:?}");
}

pub fn a_large_batch_has_links_to_what_there_was_already(house: &House) {
    const COUNT: usize = 2500;
    let unique = NewJob { unique: Some("u".to_owned()), ..job("first") };
    let known = one(house, unique.clone());
    let mut batch = vec![job("default"); COUNT];
    batch[0] = unique.clone();
    batch[COUNT - 1] = unique;
    batch.push(NewJob { after_previous: COUNT, ..job("then") });
    batch.push(NewJob { after_previous: 1, ..job("then") });
    let batch = house.enqueue(&batch);
    assert_eq!((&batch[0], &batch[COUNT - 1]), (&known, &known));
    let told = |id: &str| house.store.get(id).unwrap().unwrap();
    assert_eq!(
        (told(&batch[COUNT]).waits_for, told(&batch[COUNT]).after.unwrap()[..2].to_vec()),
        (COUNT, batch[..2].to_vec())
    );
    assert_eq!(told(&batch[COUNT + 1]).after.unwrap(), [batch[COUNT].clone()]);
    for claimed in house.claim("a", COUNT) {
        house.end("a", &claimed, done(), NOW);
    }
    assert_eq!(told(&batch[COUNT]).waits_for, 2, "it is there twice");
    let claimed = house.claim_at("a", 1, &["first"], NOW).remove(0);
    house.end("a", &claimed, done(), NOW);
    assert_eq!(states(house, &batch[COUNT..]), [State::Available, State::Waiting]);
}

pub fn what_does_not_exist_is_refused_with_all_that_goes_along(house: &House) {
    let parent = one(house, job("default"));
    assert!(house.store.change(&parent, Change::Delete, NOW).unwrap());
    let unknown = [after(&[&parent]), after(&["no such job"]), anyway(&["no such job"])];
    for job_after in unknown {
        let refused = house.store.enqueue(&[job("default"), job_after.clone()], NOW);
        let Err(StoreError::Refused(why)) = refused else { panic!("{job_after:?}: {refused:?}") };
        assert!(why.contains("there is no job") && why.contains(house.store.name()), "{why}");
    }
    assert!(house.claim("a", 9).is_empty());
}

pub fn a_job_never_comes_after_itself(house: &House) {
    let unique = NewJob { unique: Some("u".to_owned()), ..job("default") };
    let parent = one(house, unique.clone());
    let refused = house.store.enqueue(&[NewJob { after: vec![parent.clone()], ..unique.clone() }], NOW);
    assert!(matches!(&refused, Err(StoreError::Refused(why)) if *why == flow::itself(&parent)), "{refused:?}");
    for count in [3, 2500] {
        let mut batch: Vec<_> =
            (0..count).map(|nr| NewJob { unique: Some(format!("{nr} of {count}")), ..job("default") }).collect();
        let (first, last) = (batch[0].unique.clone(), batch[count - 1].unique.clone());
        batch.push(NewJob { after_previous: count, ..job("default") });
        let then = NewJob { after_previous: 1, ..job("default") };
        let through_another = NewJob { unique: first, ..then.clone() };
        let at_once = [&batch[..count], &[NewJob { unique: last, ..then }]].concat();
        for batch in [[&batch[..], &[through_another]].concat(), at_once] {
            let refused = house.store.enqueue(&batch, NOW);
            assert!(matches!(&refused, Err(StoreError::Refused(why)) if why.contains("itself")), "{refused:?}");
        }
    }
    end(house, &parent, done());
    assert!(house.claim("a", 9).is_empty(), "nothing of what was refused is there");
    let next = one(house, NewJob { after: vec![parent.clone()], ..unique });
    assert!(next != parent && house.state(&next) == Some(State::Available), "its key was free");
}

pub fn one_is_released_once_by_ten_thousand(house: &House) {
    const COUNT: usize = 10_000;
    let mut batch = vec![job("default"); COUNT];
    batch.push(NewJob { after_previous: COUNT, ..job("then") });
    let enqueued = house.enqueue(&batch);
    let stores: Vec<_> = (0..3).map(|_| (house.open)()).collect();
    let released: usize = thread::scope(|scope| {
        let runners: Vec<_> = (0..3)
            .zip(&stores)
            .map(|(nr, store)| {
                scope.spawn(move || {
                    let mut runner = super::house::runner(&format!("r{nr}"));
                    let (mut held, mut released): (Vec<Claimed>, usize) = (Vec::new(), 0);
                    loop {
                        runner.round += 1;
                        let settled = held.iter().map(|job| clutch_jobs::job::settle(job, done(), NOW, 0.5)).collect();
                        let report = clutch_jobs::store::Report { settled, ..Default::default() };
                        let round = store.round(&runner, &report, &want(500, &["default", "then"]), NOW).unwrap();
                        released += round.claimed.iter().filter(|job| job.queue == "then").count();
                        if round.claimed.is_empty() {
                            return released;
                        }
                        held = round.claimed;
                    }
                })
            })
            .collect();
        runners.into_iter().map(|runner| runner.join().unwrap()).sum()
    });
    let rest = house.claim_at("z", 9, &["then"], NOW).len();
    assert_eq!(released + rest, 1);
    assert_eq!(house.store.get(&enqueued[COUNT]).unwrap().unwrap().after_count, COUNT);
}

pub fn what_many_wait_for_is_passed_on_by_and_by(house: &House) {
    let count = LINKS_MAX * 2 + 10;
    let parent = one(house, job("first"));
    let children = house.enqueue(&vec![after(&[&parent]); count]);
    let claimed = house.claim_at("a", 1, &["first"], NOW).remove(0);
    house.end("a", &claimed, dead(), NOW);
    let cancelled = |house: &House| house.store.queues().unwrap().iter().map(|queue| queue.cancelled).sum::<u64>();
    assert_eq!(cancelled(house), LINKS_MAX as u64);
    // Retried half way: those that are cancelled wait again, the others still do.
    assert!(house.store.change(&parent, Change::Retry, NOW).unwrap());
    while house.look(NOW).passed > 0 {}
    assert_eq!(cancelled(house), 0);
    assert_eq!(house.state(&children[0]), Some(State::Waiting));
    let claimed = house.claim_at("a", 1, &["first"], NOW).remove(0);
    house.end("a", &claimed, done(), NOW);
    assert!(house.store.change(&parent, Change::Delete, NOW).unwrap(), "what is noted is passed on all the same");
    while house.look(NOW).passed > 0 {}
    let claimed = house.claim("a", count);
    let all: HashSet<_> = ids(&claimed).into_iter().collect();
    assert_eq!((claimed.len(), all.len()), (count, count));
}

pub fn an_end_is_passed_on_as_it_was_before_a_change_takes_it_away(house: &House) {
    let count = LINKS_MAX * 2 + 10;
    let returned = Ending::Returned("7".to_owned());
    let cases = [
        (Change::Delete, returned.clone(), r#"[{"value":7}]"#),
        (Change::Retry, returned, r#"[{"value":7}]"#),
        (Change::Retry, dead(), "[null]"),
    ];
    for (change, ending, results) in cases {
        let parent = one(house, NewJob { result_ms: 60_000, ..job("first") });
        house.enqueue(&vec![anyway(&[&parent]); count]);
        let claimed = house.claim_at("a", 9, &["first"], NOW);
        let claimed = claimed.into_iter().find(|job| job.id == parent).unwrap();
        house.end("a", &claimed, ending, NOW);
        assert!(house.store.change(&parent, change, NOW).unwrap());
        while house.look(NOW).passed > 0 {}
        let claimed = house.claim("a", count);
        assert_eq!(claimed.len(), count, "{change:?}");
        for job in claimed {
            assert_eq!(job.results.as_deref(), Some(results), "{change:?}");
        }
    }
}

pub fn the_end_of_a_runner_is_passed_on(house: &House) {
    for parent in of_both_kinds() {
        let parents = house.enqueue(&vec![parent; 2]);
        let children = house.enqueue(&[after(&[&parents[0]]), after(&[&parents[1]])]);
        house.claim("x", 2);
        assert!(house.store.change(&parents[0], Change::Cancel, NOW).unwrap());
        house.look_lapsed(&[house.seen("x")], NOW);
        assert_eq!(states(house, &children), [State::Cancelled, State::Waiting], "one was to stop, one runs again");
        end(house, &parents[1], done());
        assert_eq!(ids(&house.claim("a", 9)), [&children[1]]);
    }
}

pub fn links_go_with_their_jobs(house: &House) {
    let parent = one(house, job("default"));
    let child = one(house, after(&[&parent]));
    let links = |id: &str| house.store.get(id).unwrap().unwrap();
    assert!(house.store.change(&child, Change::Delete, NOW).unwrap());
    assert_eq!(links(&parent).dependents.unwrap(), [""; 0]);
    let child = one(house, after(&[&parent]));
    end(house, &parent, done());
    let late = NOW + KEEP.completed.as_millis() as i64 + 1000;
    assert_eq!(house.look(late).pruned, 1);
    assert_eq!(house.state(&parent), None);
    assert_eq!(links(&child).after.unwrap(), [parent]);
    let claimed = house.claim("a", 1).remove(0);
    house.end("a", &claimed, done(), late);
    assert_eq!(house.look(late * 2).pruned, 1);
}
