//! What every store promises, checked on each: a new store is one more entry in [`stores!`].

#![allow(clippy::unwrap_used, reason = "each promise is the body of a test")]

#[path = "redis/server.rs"]
mod server;

use std::collections::HashSet;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use clutch_jobs::job::{Backoff, Claimed, Ending, JobError, Millis, NewJob, Rate, Settled, State, now, settle};
use clutch_jobs::store::{
    Change, Filter, Keep, Noted, QueueChange, Renewed, Report, Round, Runner, Store, StoreError, Tick, Upkeep, Want,
};
use clutch_jobs::stores;
use serde_json::value::RawValue;

const HOUR: Millis = 3_600_000;
/// Of the store's clock, in these tests: nobody's real time.
const NOW: Millis = 1_800_000_000_000;
const LEASE: Duration = Duration::from_secs(30);
const KEEP: Keep =
    Keep { completed: Duration::from_secs(60), cancelled: Duration::from_secs(120), dead: Duration::from_secs(180) };

/// A store that is empty, which several programs have open.
struct House {
    store: Arc<dyn Store>,
    open: Box<dyn Fn() -> Arc<dyn Store>>,
    _kept: Box<dyn std::any::Any>,
}

fn house(url: String, kept: impl std::any::Any) -> House {
    let open = move || stores::open(&url).unwrap();
    House { store: open(), open: Box::new(open), _kept: Box::new(kept) }
}

fn sqlite() -> Option<House> {
    let folder = tempfile::tempdir().unwrap();
    Some(house(format!("sqlite:///{}", folder.path().join("jobs.db").display()), folder))
}

/// None where no server is installed.
fn redis() -> Option<House> {
    Some(house(server::shared()?.new_url(), ()))
}

/// None where no server is installed.
fn sidekiq() -> Option<House> {
    Some(house(server::shared()?.new_url_of("sidekiq", "namespace"), ()))
}

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

fn job(queue: &str) -> NewJob {
    NewJob {
        attempts_max: 3,
        backoff: Backoff::Constant { ms: 1000 },
        ..NewJob::new(queue, "send", raw(r#"{"args":[1],"kwargs":{}}"#))
    }
}

fn runner(name: &str) -> Runner {
    Runner::new(name.to_owned(), LEASE)
}

fn want(limit: usize, queues: &[&str]) -> Want {
    Want { limit, queues: queues.iter().map(|name| (*name).to_owned()).collect() }
}

impl House {
    fn enqueue(&self, jobs: &[NewJob]) -> Vec<String> {
        self.store.enqueue(jobs, NOW).unwrap().into_iter().map(|one| one.id).collect()
    }

    fn claim_at(&self, name: &str, limit: usize, queues: &[&str], now: Millis) -> Vec<Claimed> {
        self.store.round(&runner(name), &Report::default(), &want(limit, queues), now).unwrap().claimed
    }

    fn claim(&self, name: &str, limit: usize) -> Vec<Claimed> {
        self.claim_at(name, limit, &["default"], NOW)
    }

    fn settle(&self, name: &str, settled: Vec<Settled>, now: Millis) -> Round {
        let report = Report { settled, ..Report::default() };
        self.store.round(&runner(name), &report, &Want::default(), now).unwrap()
    }

    fn end(&self, name: &str, job: &Claimed, ending: Ending, now: Millis) -> Round {
        self.settle(name, vec![settle(job, ending, now, 0.5)], now)
    }

    fn look(&self, now: Millis) -> Upkeep {
        self.store.look_after(&KEEP, 1000, &[], now).unwrap()
    }

    fn tick(&self, ticks: &[Tick]) -> Vec<Millis> {
        self.store.look_after(&KEEP, 0, ticks, NOW).unwrap().last_ticks
    }

    fn state(&self, id: &str) -> Option<State> {
        self.store.get(id).unwrap().map(|job| job.state)
    }
}

fn tick(name: &str, at: Millis) -> Tick {
    Tick { name: name.to_owned(), at, job: Some(job("default")) }
}

fn done() -> Ending {
    Ending::Returned("null".to_owned())
}

fn failure() -> Ending {
    let kind = "raised".to_owned();
    let message = "ValueError: no".to_owned();
    Ending::Failed(JobError { at: NOW, attempt: 1, kind, message, traceback: "Traceback …".to_owned() })
}

fn ids(jobs: &[Claimed]) -> Vec<&str> {
    jobs.iter().map(|job| job.id.as_str()).collect()
}

// ---- enqueue

fn a_job_comes_out_as_it_went_in(house: &House) {
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

fn jobs_begin_in_order_of_priority_then_age(house: &House) {
    let with = |priority| NewJob { priority, ..job("default") };
    let enqueued = house.enqueue(&[with(0), with(-9), with(9), with(0)]);
    let order: Vec<_> = [2, 0, 3, 1].iter().map(|at: &usize| enqueued[*at].clone()).collect();
    assert_eq!(ids(&house.claim("a", 10)), order);
}

fn a_claim_takes_no_more_than_it_wants_and_queues_in_order(house: &House) {
    let mut jobs = vec![job("low"); 3];
    jobs.extend(vec![job("high"); 3]);
    house.enqueue(&jobs);
    let claimed = house.claim_at("a", 4, &["high", "low", "none"], NOW);
    assert_eq!(claimed.iter().map(|job| job.queue.as_str()).collect::<Vec<_>>(), ["high", "high", "high", "low"]);
    assert!(house.claim_at("a", 0, &["low"], NOW).is_empty());
    assert_eq!(house.claim_at("b", 9, &["low"], NOW).len(), 2);
    assert!(house.claim_at("b", 9, &["low", "high"], NOW).is_empty());
}

fn odd_names_of_queues_are_names(house: &House) {
    for name in ["", " ", "a:b", "{x}", "*", "q'; DROP TABLE x", "é \u{1F98A}", "%00", "a\nb"] {
        let id = house.enqueue(&[job(name)]).remove(0);
        assert_eq!(ids(&house.claim_at("a", 2, &[name], NOW)), [id], "{name:?}");
        assert!(house.store.queues().unwrap().iter().any(|queue| queue.name == name));
    }
}

fn a_claim_may_ask_thousands_of_queues(house: &House) {
    let names: Vec<_> = (0..4000).map(|nr| format!("queue{nr}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let id = house.enqueue(&[job("queue3999")]).remove(0);
    assert_eq!(ids(&house.claim_at("a", 2, &names, NOW)), [id]);
}

fn a_unique_job_is_there_once_until_it_has_ended(house: &House) {
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

fn within_one_batch_the_first_of_the_same_is_the_one(house: &House) {
    let unique = NewJob { unique: Some("one".to_owned()), ..job("default") };
    let told = house.store.enqueue(&[unique.clone(), unique], NOW).unwrap();
    assert_eq!((told[0].is_new, told[1].is_new), (true, false));
    assert_eq!(told[0].id, told[1].id);
}

// ---- settle

fn a_completed_job_never_runs_again(house: &House) {
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

fn a_failed_job_is_scheduled_with_its_error_and_dead_at_last(house: &House) {
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

fn a_result_is_kept_for_as_long_as_it_was_asked_for(house: &House) {
    let real = clutch_jobs::job::now();
    let keeps = NewJob { result_ms: 60_000, ..job("default") };
    let ids = [house.enqueue(&[keeps]).remove(0), house.enqueue(&[job("default")]).remove(0)];
    for claimed in house.claim_at("a", 2, &["default"], real) {
        house.end("a", &claimed, Ending::Returned(r#"{"n":1}"#.to_owned()), real);
    }
    let result = |id: &str| house.store.get(id).unwrap().unwrap().result.map(|value| value.get().to_owned());
    assert_eq!((result(&ids[0]).as_deref(), result(&ids[1])), (Some(r#"{"n":1}"#), None));
}

fn what_is_noted_reaches_people_and_the_next_attempt(house: &House) {
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

fn a_job_that_is_put_back_is_first_in_line_again(house: &House) {
    let enqueued = house.enqueue(&[job("default"), job("default")]);
    let claimed = house.claim("a", 1).remove(0);
    house.end("a", &claimed, Ending::CutOff { reason: "stopping".to_owned() }, NOW);
    let again = house.claim("b", 1).remove(0);
    assert_eq!((&again.id, again.attempt), (&enqueued[0], 1), "it was no attempt");
}

fn nobody_settles_what_is_anothers(house: &House) {
    let id = house.enqueue(&[job("default")]).remove(0);
    let claimed = house.claim("a", 1).remove(0);
    assert_eq!(house.end("b", &claimed, done(), NOW).lost, std::slice::from_ref(&id));
    assert_eq!(house.state(&id), Some(State::Running));
}

// ---- leases

fn a_lapsed_lease_gives_its_jobs_back_once(house: &House) {
    let id = house.enqueue(&[job("default")]).remove(0);
    let claimed = house.claim("a", 1).remove(0);
    let late = NOW + 31_000;
    assert_eq!(house.look(NOW + 29_000).rescued, 0);
    assert_eq!(house.look(late).rescued, 1);
    assert_eq!(house.look(late).rescued, 0);
    let told = house.store.get(&id).unwrap().unwrap();
    assert_eq!(told.errors[0].kind, "lease_lapsed");
    let again = house.claim_at("b", 1, &["default"], late).remove(0);
    assert_eq!((&again.id, again.attempt), (&id, 1), "it was no attempt");
    assert_eq!(house.store.renew(&runner("a"), std::slice::from_ref(&id), late).unwrap(), None, "who lost it is told");
    assert_eq!(house.end("a", &claimed, done(), late).lost, std::slice::from_ref(&id));
    assert!(house.end("b", &again, done(), late).lost.is_empty());
}

fn a_renewed_lease_does_not_lapse(house: &House) {
    let id = house.enqueue(&[job("default")]).remove(0);
    house.claim("a", 1);
    assert_eq!(
        house.store.renew(&runner("a"), std::slice::from_ref(&id), NOW + 20_000).unwrap(),
        Some(Renewed::default())
    );
    assert_eq!(house.look(NOW + 45_000).rescued, 0);
    assert_eq!(house.look(NOW + 51_000).rescued, 1);
}

fn a_round_that_comes_late_revives_no_lease(house: &House) {
    house.enqueue(&[job("default"), job("default")]);
    let held = ids(&house.claim("a", 1)).into_iter().map(str::to_owned).collect::<Vec<_>>();
    let later = NOW + 31_000;
    house.look(later);
    let late = Runner { round: 2, ..runner("a") };
    let round = house.store.round(&late, &Report::default(), &want(9, &["default"]), later).unwrap();
    assert!(round.has_no_lease && round.claimed.is_empty());
    assert_eq!(house.store.renew(&late, &held, later).unwrap(), None);
    let other = Runner { round: 1, ..runner("b") };
    let round = house.store.round(&other, &Report::default(), &want(9, &["default"]), later).unwrap();
    assert!(!round.has_no_lease && round.claimed.len() == 2);
    let lost = house.store.renew(&other, &["77".to_owned()], later).unwrap().unwrap().lost;
    assert_eq!(lost, ["77"], "it holds what is not its own");
}

fn a_claim_whose_answer_was_lost_is_given_back_by_the_renewal(house: &House) {
    let enqueued = house.enqueue(&[job("default"), job("default")]);
    house.claim("a", 2);
    house.store.renew(&runner("a"), &enqueued[..1], NOW).unwrap();
    let again = house.claim("b", 2);
    assert_eq!(ids(&again), [enqueued[1].as_str()]);
    assert_eq!(again[0].attempt, 1);
}

fn a_job_whose_runners_all_die_is_dead_in_the_end(house: &House) {
    let id = house.enqueue(&[job("default")]).remove(0);
    let mut now = NOW;
    for life in 0..50 {
        if house.claim_at(&format!("r{life}"), 1, &["default"], now).is_empty() {
            break;
        }
        now += 31_000;
        house.look(now);
    }
    assert_eq!(house.state(&id), Some(State::Dead));
}

fn who_leaves_holds_nothing(house: &House) {
    house.enqueue(&[job("default")]);
    house.claim("a", 1);
    assert!(house.store.lead(&runner("a"), NOW).unwrap());
    house.store.leave(&runner("a"), NOW).unwrap();
    assert!(house.store.lead(&runner("b"), NOW).unwrap(), "at once");
    assert_eq!(house.look(NOW + 1).rescued, 1, "and what it left behind is another's");
}

fn one_leads_at_a_time(house: &House) {
    assert!(house.store.lead(&runner("a"), NOW).unwrap());
    assert!(!house.store.lead(&runner("b"), NOW + 29_000).unwrap());
    assert!(house.store.lead(&runner("a"), NOW + 29_000).unwrap());
    assert!(!house.store.lead(&runner("b"), NOW + 58_000).unwrap());
    assert!(house.store.lead(&runner("b"), NOW + 60_000).unwrap());
    assert!(!house.store.lead(&runner("a"), NOW + 60_000).unwrap());
}

// ---- upkeep

fn due_jobs_are_staged_once_and_on_time(house: &House) {
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

fn failure_47_a_hundred_thousand_due_at_once_are_staged_once_by_two_keepers(house: &House) {
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
                    let looks = (0..).map(|_| store.look_after(&KEEP, 5000, &[], NOW + 10).unwrap().staged);
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

fn ended_jobs_are_pruned_by_their_state(house: &House) {
    let enqueued = house.enqueue(&[job("default"), job("default"), job("default")]);
    let claimed = house.claim("a", 3);
    house.end("a", &claimed[0], done(), NOW);
    house.end("a", &claimed[1], Ending::Cancelled, NOW);
    let Ending::Failed(error) = failure() else { unreachable!() };
    house.end("a", &claimed[2], Ending::Impossible(error), NOW);
    let states = || enqueued.iter().map(|id| house.state(id)).collect::<Vec<_>>();
    assert_eq!(house.look(NOW + 59_000).pruned, 0);
    assert_eq!(states(), [Some(State::Completed), Some(State::Cancelled), Some(State::Dead)]);
    assert_eq!(house.look(NOW + 61_000).pruned, 1);
    assert_eq!(states(), [None, Some(State::Cancelled), Some(State::Dead)]);
    assert_eq!(house.look(NOW + 181_000).pruned, 2);
    assert_eq!(states(), [None, None, None]);
}

fn a_tick_makes_one_job_and_one_that_is_not_later_none(house: &House) {
    let mut watch = house.store.watch().unwrap();
    while watch.wait(Duration::ZERO).unwrap() {}
    assert_eq!(house.tick(&[tick("a", NOW), tick("b é \u{1F98A}", NOW - 5)]), [NOW, NOW - 5]);
    assert!(watch.wait(Duration::from_secs(30)).unwrap(), "runners are told");
    assert_eq!(house.claim("r", 9).len(), 2);
    assert_eq!(house.tick(&[tick("a", NOW), tick("a", NOW - 1), tick("b é \u{1F98A}", NOW)]), [NOW, NOW, NOW]);
    assert_eq!(house.claim("r", 9).len(), 1);
    // By whoever looks, and among all else that it does.
    let last_ticks = (house.open)().look_after(&KEEP, 1000, &[tick("a", NOW + 1)], NOW).unwrap().last_ticks;
    assert_eq!((last_ticks, house.claim("r", 9).len()), (vec![NOW + 1], 1));
}

fn an_entry_is_made_known_without_a_job(house: &House) {
    let known = |at| Tick { job: None, ..tick("a", at) };
    assert_eq!(house.tick(&[known(NOW), known(NOW + 5)]), [NOW, NOW], "the first is the one");
    assert_eq!(house.tick(&[tick("a", NOW)]), [NOW]);
    assert!(house.claim("r", 9).is_empty());
    assert_eq!(house.tick(&[tick("a", NOW + 1), known(NOW + 5)]), [NOW + 1, NOW + 1]);
    assert_eq!(house.claim("r", 9).len(), 1);
}

fn a_tick_whose_unique_job_has_not_ended_makes_none(house: &House) {
    let unique =
        |at| Tick { job: Some(NewJob { unique: Some("cron:a".to_owned()), ..job("default") }), ..tick("a", at) };
    house.tick(&[unique(NOW)]);
    let claimed = house.claim("r", 9).remove(0);
    assert_eq!(house.tick(&[unique(NOW + 1)]), [NOW + 1], "it was, all the same");
    house.end("r", &claimed, done(), NOW);
    assert_eq!(house.tick(&[unique(NOW + 1)]), [NOW + 1]);
    assert!(house.claim("r", 9).is_empty());
    house.tick(&[unique(NOW + 2)]);
    assert_eq!(house.claim("r", 9).len(), 1);
}

fn of_many_at_once_one_takes_each_tick(house: &House) {
    const TICKS: usize = 100;
    let others: Vec<_> = (0..3).map(|_| (house.open)()).collect();
    let start = Barrier::new(others.len());
    thread::scope(|scope| {
        for store in &others {
            scope.spawn(|| {
                for at in (NOW..).take(TICKS) {
                    start.wait();
                    assert_eq!(store.look_after(&KEEP, 0, &[tick("a", at)], NOW).unwrap().last_ticks, [at]);
                    start.wait();
                }
            });
        }
    });
    assert_eq!(house.claim("r", 1000).len(), TICKS);
}

// ---- changes by people

fn a_waiting_job_is_cancelled_and_a_running_one_told(house: &House) {
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

fn a_cancelled_job_does_not_run_again(house: &House) {
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

fn a_dead_job_is_retried_by_hand_and_a_scheduled_one_at_once(house: &House) {
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

fn a_job_is_deleted_unless_it_runs(house: &House) {
    let id = house.enqueue(&[job("default")]).remove(0);
    let claimed = house.claim("a", 1).remove(0);
    assert!(!house.store.change(&id, Change::Delete, NOW).unwrap());
    house.end("a", &claimed, done(), NOW);
    assert!(house.store.change(&id, Change::Delete, NOW).unwrap());
    assert_eq!(house.state(&id), None);
}

// ---- limits

fn a_paused_queue_gives_nothing_and_takes_everything(house: &House) {
    house.enqueue(&[job("default")]);
    house.store.set_queue("default", QueueChange::Pause(true)).unwrap();
    house.enqueue(&[job("default")]);
    assert!(house.claim("a", 9).is_empty());
    let queues = house.store.queues().unwrap();
    assert_eq!((queues[0].is_paused, queues[0].available), (true, 2));
    house.store.set_queue("default", QueueChange::Pause(false)).unwrap();
    assert_eq!(house.claim("a", 9).len(), 2);
}

fn names_that_no_job_may_give_are_no_queues_to_change(house: &House) {
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

fn a_queue_runs_no_more_than_its_limit_over_all_runners(house: &House) {
    house.enqueue(&vec![job("default"); 5]);
    house.store.set_queue("default", QueueChange::RunningMax(Some(2))).unwrap();
    let first = house.claim("a", 1);
    assert_eq!((first.len(), house.claim("b", 9).len(), house.claim("c", 9).len()), (1, 1, 0));
    house.end("a", &first[0], done(), NOW);
    assert_eq!(house.claim("c", 9).len(), 1);
    house.store.set_queue("default", QueueChange::RunningMax(None)).unwrap();
    assert_eq!(house.claim("c", 9).len(), 2);
}

fn jobs_with_a_key_run_one_at_a_time_in_order(house: &House) {
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

fn jobs_with_a_key_run_as_many_as_their_limit_says(house: &House) {
    let keyed = NewJob { key: Some("k".to_owned()), key_limit: 2, ..job("default") };
    let ids_of = house.enqueue(&vec![keyed.clone(); 4]);
    let claimed = house.claim("a", 9);
    assert_eq!(ids(&claimed), ids_of[..2]);
    house.end("a", &claimed[1], done(), NOW);
    assert_eq!(ids(&house.claim("a", 9)), [&ids_of[2]]);
    house.end("a", &claimed[0], done(), NOW);
    assert_eq!(ids(&house.claim("a", 9)), [&ids_of[3]]);
}

fn a_queue_begins_no_more_than_its_rate(house: &House) {
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

fn many_runners_begin_no_more_than_a_rate(house: &House) {
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

fn a_key_begins_no_more_than_its_rate(house: &House) {
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

/// A short rate forgets soon what a long one needs.
fn each_rate_of_a_key_has_its_own_memory(house: &House) {
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

fn a_key_is_free_again_when_its_runner_dies(house: &House) {
    let keyed = NewJob { key: Some("k".to_owned()), ..job("default") };
    house.enqueue(&[keyed.clone(), keyed]);
    assert_eq!(house.claim("a", 9).len(), 1);
    let late = NOW + 31_000;
    house.look(late);
    let next = house.claim_at("b", 9, &["default"], late);
    assert_eq!(next.len(), 1);
    house.end("b", &next[0], done(), late);
    assert_eq!(house.claim_at("b", 9, &["default"], late).len(), 1);
}

fn a_key_is_free_again_when_who_waits_with_it_is_cancelled_or_deleted(house: &House) {
    let keyed = NewJob { key: Some("k".to_owned()), ..job("default") };
    let enqueued = house.enqueue(&[keyed.clone(), keyed.clone(), keyed]);
    assert!(house.store.change(&enqueued[0], Change::Delete, NOW).unwrap());
    assert!(house.store.change(&enqueued[1], Change::Cancel, NOW).unwrap());
    assert_eq!(ids(&house.claim("a", 9)), [enqueued[2].as_str()]);
}

// ---- what people see

fn lists_are_filtered_and_newest_first(house: &House) {
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

fn queues_are_counted_by_state(house: &House) {
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

// ---- many at once

fn every_job_is_claimed_once_by_many_runners(house: &House) {
    const JOBS: usize = 2000;
    for _ in 0..4 {
        house.enqueue(&vec![job("default"); JOBS / 4]);
    }
    let others: Vec<_> = (0..4).map(|_| (house.open)()).collect();
    let claimed: Vec<String> = thread::scope(|scope| {
        let runners: Vec<_> = others
            .iter()
            .enumerate()
            .map(|(at, store)| {
                scope.spawn(move || {
                    let (runner, mut mine, mut report) = (runner(&format!("r{at}")), Vec::new(), Report::default());
                    loop {
                        let round = store.round(&runner, &report, &want(7, &["default"]), NOW).unwrap();
                        assert!(round.lost.is_empty());
                        if round.claimed.is_empty() {
                            return mine;
                        }
                        report.settled = round.claimed.iter().map(|job| settle(job, done(), NOW, 0.5)).collect();
                        mine.extend(round.claimed.into_iter().map(|job| job.id));
                    }
                })
            })
            .collect();
        runners.into_iter().flat_map(|runner| runner.join().unwrap()).collect()
    });
    assert_eq!(claimed.len(), JOBS);
    assert_eq!(claimed.iter().collect::<HashSet<_>>().len(), JOBS);
    assert_eq!(house.store.queues().unwrap()[0].completed, JOBS as u64);
}

fn jobs_of_another_program_are_noticed(house: &House) {
    let mut watch = house.store.watch().unwrap();
    while watch.wait(Duration::ZERO).unwrap() {}
    assert!(!watch.wait(Duration::from_millis(20)).unwrap(), "nothing has happened");
    let other = (house.open)();
    let told = thread::scope(|scope| {
        let waits = scope.spawn(|| watch.wait(Duration::from_secs(30)).unwrap());
        other.enqueue(&[job("default")], NOW).unwrap();
        waits.join().unwrap()
    });
    assert!(told);
}

/// Each promise on each store.
macro_rules! stores {
    ($($store:ident),*; $($promise:ident),* $(,)?) => { stores!(@each [$($store),*] [$($promise),*]); };
    (@each [$($store:ident),*] $promises:tt) => { $(stores!(@one $store $promises);)* };
    (@one $store:ident [$($promise:ident),*]) => {
        mod $store {
            $(#[test] fn $promise() {
                if let Some(house) = super::$store() {
                    super::$promise(&house);
                }
            })*
        }
    };
}

stores! {
    sqlite, redis;
    a_job_comes_out_as_it_went_in,
    jobs_begin_in_order_of_priority_then_age,
    a_claim_takes_no_more_than_it_wants_and_queues_in_order,
    odd_names_of_queues_are_names,
    a_claim_may_ask_thousands_of_queues,
    a_unique_job_is_there_once_until_it_has_ended,
    within_one_batch_the_first_of_the_same_is_the_one,
    a_completed_job_never_runs_again,
    a_failed_job_is_scheduled_with_its_error_and_dead_at_last,
    a_result_is_kept_for_as_long_as_it_was_asked_for,
    what_is_noted_reaches_people_and_the_next_attempt,
    a_job_that_is_put_back_is_first_in_line_again,
    nobody_settles_what_is_anothers,
    a_lapsed_lease_gives_its_jobs_back_once,
    a_renewed_lease_does_not_lapse,
    a_round_that_comes_late_revives_no_lease,
    a_claim_whose_answer_was_lost_is_given_back_by_the_renewal,
    a_job_whose_runners_all_die_is_dead_in_the_end,
    who_leaves_holds_nothing,
    one_leads_at_a_time,
    due_jobs_are_staged_once_and_on_time,
    failure_47_a_hundred_thousand_due_at_once_are_staged_once_by_two_keepers,
    ended_jobs_are_pruned_by_their_state,
    a_tick_makes_one_job_and_one_that_is_not_later_none,
    an_entry_is_made_known_without_a_job,
    a_tick_whose_unique_job_has_not_ended_makes_none,
    of_many_at_once_one_takes_each_tick,
    a_waiting_job_is_cancelled_and_a_running_one_told,
    a_cancelled_job_does_not_run_again,
    a_dead_job_is_retried_by_hand_and_a_scheduled_one_at_once,
    a_job_is_deleted_unless_it_runs,
    a_paused_queue_gives_nothing_and_takes_everything,
    names_that_no_job_may_give_are_no_queues_to_change,
    a_queue_runs_no_more_than_its_limit_over_all_runners,
    jobs_with_a_key_run_as_many_as_their_limit_says,
    a_queue_begins_no_more_than_its_rate,
    many_runners_begin_no_more_than_a_rate,
    a_key_begins_no_more_than_its_rate,
    each_rate_of_a_key_has_its_own_memory,
    jobs_with_a_key_run_one_at_a_time_in_order,
    a_key_is_free_again_when_its_runner_dies,
    a_key_is_free_again_when_who_waits_with_it_is_cancelled_or_deleted,
    lists_are_filtered_and_newest_first,
    queues_are_counted_by_state,
    every_job_is_claimed_once_by_many_runners,
    jobs_of_another_program_are_noticed,
}

// The format of Sidekiq keeps neither completed nor cancelled jobs, only the last error of each, no results, no progress and no
// ticks of periodic jobs; its lists have no order of age over all states; and it refuses priorities, keys, unique jobs, keyword arguments and limits.
// What of the other promises it keeps in its own way is in sidekiq.rs.
stores! {
    sidekiq;
    a_claim_takes_no_more_than_it_wants_and_queues_in_order,
    odd_names_of_queues_are_names,
    a_claim_may_ask_thousands_of_queues,
    a_job_that_is_put_back_is_first_in_line_again,
    nobody_settles_what_is_anothers,
    a_lapsed_lease_gives_its_jobs_back_once,
    a_renewed_lease_does_not_lapse,
    a_round_that_comes_late_revives_no_lease,
    a_claim_whose_answer_was_lost_is_given_back_by_the_renewal,
    a_job_whose_runners_all_die_is_dead_in_the_end,
    who_leaves_holds_nothing,
    one_leads_at_a_time,
    due_jobs_are_staged_once_and_on_time,
    failure_47_a_hundred_thousand_due_at_once_are_staged_once_by_two_keepers,
    a_paused_queue_gives_nothing_and_takes_everything,
    names_that_no_job_may_give_are_no_queues_to_change,
    jobs_of_another_program_are_noticed,
}
