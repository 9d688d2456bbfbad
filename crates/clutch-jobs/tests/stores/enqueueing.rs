//! What comes of jobs that are enqueued, and of those that have ended.

use clutch_jobs::job::{Backoff, Ending, NewJob, State};
use clutch_jobs::store::{Noted, Report, Want};

use super::house::{HOUR, House, NOW, done, failure, ids, job, raw, runner};

pub fn a_job_comes_out_as_it_went_in(house: &House) {
    let given = NewJob {
        tool: "mail.send \u{1F98A}".to_owned(),
        arguments: raw(
            "{\"args\":[1.50,\"\\u0000 \u{1F98A}\",123456789012345678901234567890],\"kwargs\":{\"a\":null}}",
        ),
        priority: -4,
        attempts_max: 25,
        backoff: Backoff::Exponential { first_ms: 5, most_ms: 50 },
        deadline_at: Some(NOW + HOUR),
        unique: Some("u".to_owned()),
        key: Some("k".to_owned()),
        tags: vec!["a".to_owned(), "b c".to_owned()],
        meta: Some(raw(r#"{"trace":"00-1"}"#)),
        result_ms: 7,
        ..job("default")
    };
    let id = house.enqueue(std::slice::from_ref(&given)).remove(0);
    let told = house.store.get(&id).unwrap().unwrap();
    assert_eq!((told.state, told.created_at, told.attempt, told.attempts_max), (State::Available, NOW, 0, 25));
    assert_eq!(told.arguments.get(), given.arguments.get(), "to the byte");
    assert_eq!((told.unique.as_deref(), told.key.as_deref(), told.priority), (Some("u"), Some("k"), -4));
    let claimed = house.claim("a", 1).remove(0);
    assert_eq!((claimed.id.as_str(), claimed.tool.as_str(), claimed.attempt), (id.as_str(), given.tool.as_str(), 1));
    assert_eq!(claimed.arguments, given.arguments.get());
    assert_eq!((claimed.backoff, claimed.attempts_max, claimed.result_ms), (given.backoff, 25, 7));
    assert_eq!((claimed.deadline_at, claimed.tags), (given.deadline_at, given.tags));
    assert_eq!((claimed.key, claimed.meta.as_deref(), claimed.priority), (given.key, Some(r#"{"trace":"00-1"}"#), -4));
    assert_eq!(claimed.checkpoint, None);
    let told = house.store.get(&id).unwrap().unwrap();
    assert_eq!((told.state, told.runner.as_deref(), told.attempted_at), (State::Running, Some("a"), Some(NOW)));
}

pub fn jobs_begin_in_order_of_priority_then_age(house: &House) {
    let with = |priority| NewJob { priority, ..job("default") };
    let enqueued = house.enqueue(&[with(0), with(-9), with(9), with(0)]);
    let order: Vec<_> = [2, 0, 3, 1].iter().map(|at: &usize| enqueued[*at].clone()).collect();
    assert_eq!(ids(&house.claim("a", 10)), order);
}

pub fn a_claim_takes_no_more_than_it_wants_and_queues_in_order(house: &House) {
    let mut jobs = vec![job("low"); 3];
    jobs.extend(vec![job("high"); 3]);
    house.enqueue(&jobs);
    let claimed = house.claim_at("a", 4, &["high", "low", "none"], NOW);
    assert_eq!(claimed.iter().map(|job| job.queue.as_str()).collect::<Vec<_>>(), ["high", "high", "high", "low"]);
    assert!(house.claim_at("a", 0, &["low"], NOW).is_empty());
    assert_eq!(house.claim_at("b", 9, &["low"], NOW).len(), 2);
    assert!(house.claim_at("b", 9, &["low", "high"], NOW).is_empty());
}

pub fn odd_names_of_queues_are_names(house: &House) {
    for name in ["", " ", "a:b", "{x}", "*", "q'; DROP TABLE x", "é \u{1F98A}", "%00", "a\nb"] {
        let id = house.enqueue(&[job(name)]).remove(0);
        assert_eq!(ids(&house.claim_at("a", 2, &[name], NOW)), [id], "{name:?}");
        assert!(house.store.queues().unwrap().iter().any(|queue| queue.name == name));
    }
}

pub fn a_claim_may_ask_thousands_of_queues(house: &House) {
    let names: Vec<_> = (0..4000).map(|nr| format!("queue{nr}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let id = house.enqueue(&[job("queue3999")]).remove(0);
    assert_eq!(ids(&house.claim_at("a", 2, &names, NOW)), [id]);
}

pub fn a_unique_job_is_there_once_until_it_has_ended(house: &House) {
    let unique = NewJob { unique: Some("daily".to_owned()), ..job("default") };
    let first = house.store.enqueue(std::slice::from_ref(&unique), NOW).unwrap().remove(0);
    assert!(first.is_new);
    let many = house.store.enqueue(&[unique.clone(), job("default"), unique.clone()], NOW).unwrap();
    assert_eq!([many[0].is_new, many[1].is_new, many[2].is_new], [false, true, false]);
    assert_eq!([&many[0].id, &many[2].id], [&first.id, &first.id]);
    let claimed = house.claim("a", 1).remove(0);
    assert!(!house.store.enqueue(std::slice::from_ref(&unique), NOW).unwrap()[0].is_new, "while it runs");
    house.end("a", &claimed, failure(), NOW);
    assert!(!house.store.enqueue(std::slice::from_ref(&unique), NOW).unwrap()[0].is_new, "while it is to be retried");
    house.look(NOW + 1000);
    let claimed = house.claim_at("a", 2, &["default"], NOW + 1000).into_iter().find(|job| job.id == first.id).unwrap();
    house.end("a", &claimed, done(), NOW + 1000);
    assert!(house.store.enqueue(&[unique], NOW + 1000).unwrap()[0].is_new);
}

pub fn within_one_batch_the_first_of_the_same_is_the_one(house: &House) {
    let unique = NewJob { unique: Some("one".to_owned()), ..job("default") };
    let told = house.store.enqueue(&[unique.clone(), unique], NOW).unwrap();
    assert_eq!((told[0].is_new, told[1].is_new), (true, false));
    assert_eq!(told[0].id, told[1].id);
}

pub fn a_completed_job_never_runs_again(house: &House) {
    let id = house.enqueue(&[job("default")]).remove(0);
    let claimed = house.claim("a", 1).remove(0);
    assert!(house.end("a", &claimed, done(), NOW).lost.is_empty());
    assert_eq!(house.state(&id), Some(State::Completed));
    assert_eq!(house.store.get(&id).unwrap().unwrap().finished_at, Some(NOW));
    house.look(NOW + 1000);
    assert!(house.claim("b", 1).is_empty());
    assert_eq!(house.end("a", &claimed, failure(), NOW).lost, std::slice::from_ref(&id), "it is settled once");
    assert_eq!(house.state(&id), Some(State::Completed));
}

pub fn a_failed_job_is_scheduled_with_its_error_and_dead_at_last(house: &House) {
    let id = house.enqueue(&[job("default")]).remove(0);
    let mut now = NOW;
    for attempt in 1..=3 {
        house.look(now);
        let claimed = house.claim_at("a", 1, &["default"], now).remove(0);
        assert_eq!(claimed.attempt, attempt);
        house.end("a", &claimed, failure(), now);
        let told = house.store.get(&id).unwrap().unwrap();
        assert_eq!(told.errors.len(), attempt as usize);
        assert_eq!(told.errors.last().unwrap().message, "ValueError: no");
        assert!(house.claim_at("a", 1, &["default"], now).is_empty(), "not at once");
        now += 1000;
    }
    assert_eq!(house.state(&id), Some(State::Dead));
}

pub fn a_result_is_kept_for_as_long_as_it_was_asked_for(house: &House) {
    let real = clutch_jobs::job::now();
    let keeps = NewJob { result_ms: 60_000, ..job("default") };
    let ids = [house.enqueue(&[keeps]).remove(0), house.enqueue(&[job("default")]).remove(0)];
    for claimed in house.claim_at("a", 2, &["default"], real) {
        house.end("a", &claimed, Ending::Returned(r#"{"n":1}"#.to_owned()), real);
    }
    let result = |id: &str| house.store.get(id).unwrap().unwrap().result.map(|value| value.get().to_owned());
    assert_eq!((result(&ids[0]).as_deref(), result(&ids[1])), (Some(r#"{"n":1}"#), None));
}

pub fn what_is_noted_reaches_people_and_the_next_attempt(house: &House) {
    let id = house.enqueue(&[job("default")]).remove(0);
    let claimed = house.claim("a", 1).remove(0);
    let note = |attempt, checkpoint: Option<&str>, progress: Option<&str>| {
        let (checkpoint, progress) = (checkpoint.map(str::to_owned), progress.map(str::to_owned));
        let noted = vec![Noted { id: id.clone(), attempt, checkpoint, progress }];
        house.store.round(&runner("a"), &Report { noted, ..Report::default() }, &Want::default(), NOW).unwrap();
    };
    note(1, Some("[1]"), None);
    note(1, None, Some("0.5"));
    note(9, Some("[9]"), Some("9"));
    let told = house.store.get(&id).unwrap().unwrap();
    assert_eq!((told.checkpoint.unwrap().get(), told.progress.unwrap().get()), ("[1]", "0.5"));
    house.end("a", &claimed, failure(), NOW);
    house.look(NOW + 1000);
    let claimed = house.claim_at("a", 1, &["default"], NOW + 1000).remove(0);
    assert_eq!(claimed.checkpoint.as_deref(), Some("[1]"));
}

pub fn a_job_that_is_put_back_is_first_in_line_again(house: &House) {
    let enqueued = house.enqueue(&[job("default"), job("default")]);
    let claimed = house.claim("a", 1).remove(0);
    house.end("a", &claimed, Ending::CutOff { reason: "stopping".to_owned() }, NOW);
    let again = house.claim("b", 1).remove(0);
    assert_eq!((&again.id, again.attempt), (&enqueued[0], 1), "it was no attempt");
}

pub fn nobody_settles_what_is_anothers(house: &House) {
    let id = house.enqueue(&[job("default")]).remove(0);
    let claimed = house.claim("a", 1).remove(0);
    assert_eq!(house.end("b", &claimed, done(), NOW).lost, std::slice::from_ref(&id));
    assert_eq!(house.state(&id), Some(State::Running));
}
