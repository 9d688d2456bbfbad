//! What people see of a store, and change.

use clutch_jobs::job::{Ending, NewJob, State};
use clutch_jobs::store::{Change, Filter, Renewed};

use super::house::{HOUR, House, NOW, done, failure, job, raw, runner};

pub fn a_waiting_job_is_cancelled_and_a_running_one_told(house: &House) {
    let enqueued = house.enqueue(&[job("default"), job("default")]);
    let claimed = house.claim("a", 1).remove(0);
    for id in &enqueued {
        assert!(house.store.change(id, Change::Cancel, NOW).unwrap());
    }
    assert_eq!(house.state(&enqueued[1]), Some(State::Cancelled));
    assert_eq!(house.state(&enqueued[0]), Some(State::Running));
    let told = house.store.renew(&runner("a"), &enqueued[..1], NOW).unwrap();
    assert_eq!(told, Some(Renewed { cancelled: vec![enqueued[0].clone()], lost: vec![] }));
    house.end("a", &claimed, Ending::Cancelled, NOW);
    assert_eq!(house.state(&enqueued[0]), Some(State::Cancelled));
    assert!(!house.store.change(&enqueued[0], Change::Cancel, NOW).unwrap(), "it has ended");
    assert!(!house.store.change("no such job", Change::Cancel, NOW).unwrap());
}

pub fn a_cancelled_job_does_not_run_again(house: &House) {
    let enqueued = house.enqueue(&vec![job("default"); 4]);
    let claimed = house.claim("a", 4);
    for id in &enqueued {
        assert!(house.store.change(id, Change::Cancel, NOW).unwrap());
    }
    // Before its runner is told, one fails, one is cut off, one is completed, and the answer to the claim of one was lost.
    house.end("a", &claimed[0], failure(), NOW);
    house.end("a", &claimed[1], Ending::CutOff { reason: "stopping".to_owned() }, NOW);
    house.end("a", &claimed[2], done(), NOW);
    house.store.renew(&runner("a"), &[], NOW).unwrap();
    let told = enqueued.iter().map(|id| house.store.get(id).unwrap().unwrap()).collect::<Vec<_>>();
    for at in [0, 1, 3] {
        assert_eq!((told[at].state, told[at].finished_at), (State::Cancelled, Some(NOW)), "{at}");
        assert_eq!(told[at].reason.as_deref(), Some("cancelled"));
    }
    assert_eq!((told[2].state, told[0].errors.len()), (State::Completed, 1));
    house.look(NOW + 5000);
    assert!(house.claim("b", 9).is_empty());
}

pub fn a_dead_job_is_retried_by_hand_and_a_scheduled_one_at_once(house: &House) {
    let once = NewJob { attempts_max: 1, ..job("default") };
    let later = NewJob { scheduled_at: Some(NOW + HOUR), ..job("default") };
    let enqueued = house.enqueue(&[once, later]);
    let claimed = house.claim("a", 2).remove(0);
    house.end("a", &claimed, failure(), NOW);
    for id in &enqueued {
        assert!(house.store.change(id, Change::Retry, NOW).unwrap());
        assert_eq!(house.state(id), Some(State::Available));
    }
    let again = house.claim("a", 2);
    let dead = again.iter().find(|job| job.id == enqueued[0]).unwrap();
    assert_eq!(dead.attempt, 2);
    assert!(dead.attempts_max >= 2, "it has an attempt");
    assert!(!house.store.change(&enqueued[0], Change::Retry, NOW).unwrap(), "it runs");
}

pub fn a_job_is_retried_with_other_arguments(house: &House) {
    let arguments = r#"{"args":[1.50,"x"],"kwargs":{}}"#;
    let once = NewJob { attempts_max: 1, meta: Some(raw(r#"{"user": 7}"#)), ..job("default") };
    let later = NewJob { scheduled_at: Some(NOW + HOUR), ..job("default") };
    let enqueued = house.enqueue(&[once, later]);
    assert!(!house.store.change("no such job", Change::RetryWith(arguments), NOW).unwrap());
    let claimed = house.claim("a", 2).remove(0);
    assert!(!house.store.change(&claimed.id, Change::RetryWith(arguments), NOW).unwrap(), "it runs");
    house.end("a", &claimed, failure(), NOW);
    for id in &enqueued {
        assert!(house.store.change(id, Change::RetryWith(arguments), NOW).unwrap());
    }
    let again = house.claim("a", 2);
    assert_eq!(again.iter().map(|job| job.arguments.as_str()).collect::<Vec<_>>(), [arguments; 2]);
    let dead = again.iter().find(|job| job.id == enqueued[0]).unwrap();
    assert_eq!((dead.meta.as_deref(), dead.attempt), (Some(r#"{"user": 7}"#), 2), "all else is as it was");
}

pub fn a_job_that_is_retried_by_hand_has_no_deadline_any_more(house: &House) {
    let dated = NewJob { deadline_at: Some(NOW + 1000), attempts_max: 1, ..job("default") };
    let id = house.enqueue(&[dated]).remove(0);
    let claimed = house.claim("a", 1).remove(0);
    assert_eq!(claimed.deadline_at, Some(NOW + 1000));
    house.end("a", &claimed, failure(), NOW + 2000);
    assert!(house.store.change(&id, Change::Retry, NOW + 3000).unwrap());
    assert_eq!(house.store.get(&id).unwrap().unwrap().deadline_at, None, "and people see that");
    let again = house.claim_at("a", 1, &["default"], NOW + 3000).remove(0);
    assert_eq!(again.deadline_at, None, "it would be dead again at once");
}

pub fn a_job_is_deleted_unless_it_runs(house: &House) {
    let id = house.enqueue(&[job("default")]).remove(0);
    let claimed = house.claim("a", 1).remove(0);
    assert!(!house.store.change(&id, Change::Delete, NOW).unwrap());
    house.end("a", &claimed, done(), NOW);
    assert!(house.store.change(&id, Change::Delete, NOW).unwrap());
    assert_eq!(house.state(&id), None);
}

pub fn lists_are_filtered_and_newest_first(house: &House) {
    let tagged = NewJob { tags: vec!["red".to_owned()], tool: "paint".to_owned(), ..job("other") };
    let enqueued = house.enqueue(&[job("default"), tagged, job("default")]);
    house.claim("a", 1);
    let list = |filter: Filter| {
        let found = house.store.list(&Filter { limit: filter.limit.max(1), ..filter }).unwrap();
        found.into_iter().map(|job| job.id).collect::<Vec<_>>()
    };
    let all = Filter { limit: 10, ..Filter::default() };
    assert_eq!(list(all.clone()), [enqueued[2].clone(), enqueued[1].clone(), enqueued[0].clone()]);
    assert_eq!(list(Filter { limit: 1, ..Filter::default() }), [enqueued[2].clone()]);
    assert_eq!(
        list(Filter { before: Some(enqueued[2].clone()), ..all.clone() }),
        [enqueued[1].clone(), enqueued[0].clone()]
    );
    assert_eq!(list(Filter { state: Some(State::Running), ..all.clone() }), [enqueued[0].clone()]);
    assert_eq!(list(Filter { queue: Some("other".to_owned()), ..all.clone() }), [enqueued[1].clone()]);
    assert_eq!(list(Filter { tool: Some("paint".to_owned()), ..all.clone() }), [enqueued[1].clone()]);
    assert_eq!(list(Filter { tag: Some("red".to_owned()), ..all }), [enqueued[1].clone()]);
}

pub fn queues_are_counted_by_state(house: &House) {
    house.enqueue(&[job("default"), job("default"), NewJob { scheduled_at: Some(NOW + HOUR), ..job("default") }]);
    let claimed = house.claim("a", 1).remove(0);
    let queues = house.store.queues().unwrap();
    assert_eq!((queues.len(), queues[0].name.as_str()), (1, "default"));
    assert_eq!((queues[0].scheduled, queues[0].available, queues[0].running), (1, 1, 1));
    assert_eq!(queues[0].oldest_at, Some(NOW));
    house.end("a", &claimed, done(), NOW);
    let queues = house.store.queues().unwrap();
    assert_eq!((queues[0].running, queues[0].completed), (0, 1));
}
