//! Who holds jobs, and what becomes of those whose runner is gone; many runners at once.

use std::collections::HashSet;
use std::thread;
use std::time::Duration;

use clutch_jobs::job::{Ending, NewJob, State, millis, settle};
use clutch_jobs::leases::Lapsed;
use clutch_jobs::store::{Renewed, Report, Runner};

use super::house::{HOUR, House, LEASE, NOW, done, ids, job, runner, want};

pub fn a_lapsed_lease_gives_its_jobs_back_once(house: &House) {
    let id = house.enqueue(&[job("default")]).remove(0);
    let claimed = house.claim("a", 1).remove(0);
    let late = NOW + 31_000;
    assert_eq!(house.look(late).rescued, 0, "time alone ends none");
    let seen = [house.seen("a")];
    let upkeep = house.look_lapsed(&seen, late);
    assert_eq!((upkeep.rescued, upkeep.leases), (1, Vec::new()));
    assert_eq!(house.look_lapsed(&seen, late).rescued, 0);
    let told = house.store.get(&id).unwrap().unwrap();
    assert_eq!(told.errors[0].kind, "lease_lapsed");
    let again = house.claim_at("b", 1, &["default"], late).remove(0);
    assert_eq!((&again.id, again.attempt), (&id, 1), "it was no attempt");
    let late_one = Runner { round: 1, ..runner("a") };
    assert_eq!(house.store.renew(&late_one, std::slice::from_ref(&id), late).unwrap(), None, "who lost it is told");
    assert_eq!(house.end("a", &claimed, done(), late).lost, std::slice::from_ref(&id));
    assert!(house.end("b", &again, done(), late).lost.is_empty());
}

pub fn a_lease_that_was_renewed_since_is_not_ended(house: &House) {
    let id = house.enqueue(&[job("default")]).remove(0);
    house.claim("a", 1);
    let held = std::slice::from_ref(&id);
    let one = Runner { round: 1, ..runner("a") };
    let seen = [house.seen("a")];
    for _ in 0..12 {
        assert_eq!(house.store.renew(&one, held, NOW).unwrap(), Some(Renewed::default()));
        assert_eq!(house.look_lapsed(&seen, NOW + HOUR).rescued, 0, "however late somebody says so");
    }
    let lease = house.lease("a").unwrap();
    assert_eq!((lease.renewals, lease.length), (seen[0].renewals + 12, LEASE));
    assert!(!house.store.lead(&runner("b"), &seen).unwrap().leads || house.lease("a").is_some());
    assert_eq!(house.look_lapsed(&[house.seen("a")], NOW).rescued, 1);
}

pub fn the_first_renewal_takes_the_lease(house: &House) {
    let id = house.enqueue(&[job("default")]).remove(0);
    assert_eq!(house.store.renew(&runner("a"), &[], NOW).unwrap(), Some(Renewed::default()));
    assert!(house.lease("a").is_some(), "others see that it is there");
    let later = Runner { round: 3, ..runner("a") };
    let round = house.store.round(&later, &Report::default(), &want(9, &["default"]), NOW).unwrap();
    assert_eq!(ids(&round.claimed), [id.as_str()]);
    assert_eq!(house.store.renew(&Runner { round: 1, ..runner("b") }, &[], NOW).unwrap(), None);
}

pub fn who_holds_leases_is_shown_with_what_they_run(house: &House) {
    assert_eq!(house.store.holders().unwrap(), []);
    house.enqueue(&[job("default"), job("default"), job("other")]);
    house.claim("b", 2);
    house.claim_at("a", 9, &["other"], NOW);
    house.store.lead(&runner("leader"), &[]).unwrap();
    let shown = || {
        let all = house.store.holders().unwrap().into_iter();
        all.map(|one| (one.name.clone(), one)).collect::<std::collections::BTreeMap<_, _>>()
    };
    let before = shown();
    let told: Vec<_> = before.values().map(|one| (&*one.name, one.running, one.leads)).collect();
    assert_eq!(told, [("a", 1, false), ("b", 2, false), ("leader", 0, true)]);
    house.store.renew(&Runner { round: 1, ..runner("b") }, &[], NOW).unwrap();
    let after = shown();
    let has_moved = |name: &str| after[name].renewals > before[name].renewals;
    assert!(has_moved("b") && !has_moved("a"), "who lives is seen by two looks");
    let renewal = house.store.renewal(LEASE);
    assert_eq!((after["b"].lease_ms, after["b"].renewal_ms), (millis(LEASE), millis(renewal)));
    assert_eq!(after["b"].running, 0, "a renewal that holds none gives both back");
    house.store.leave(&runner("a")).unwrap();
    assert!(!shown().contains_key("a"));
}

pub fn a_round_that_comes_late_revives_no_lease(house: &House) {
    house.enqueue(&[job("default"), job("default")]);
    let held = ids(&house.claim("a", 1)).into_iter().map(str::to_owned).collect::<Vec<_>>();
    let later = NOW + 31_000;
    house.look_lapsed(&[house.seen("a")], later);
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

pub fn a_claim_whose_answer_was_lost_is_given_back_by_the_renewal(house: &House) {
    let enqueued = house.enqueue(&[job("default"), job("default")]);
    house.claim("a", 2);
    house.store.renew(&Runner { round: 1, ..runner("a") }, &enqueued[..1], NOW).unwrap();
    let again = house.claim("b", 2);
    assert_eq!(ids(&again), [enqueued[1].as_str()]);
    assert_eq!(again[0].attempt, 1);
}

pub fn a_job_whose_runners_all_die_is_dead_in_the_end(house: &House) {
    let id = house.enqueue(&[job("default")]).remove(0);
    let mut now = NOW;
    for life in 0..50 {
        let name = format!("r{life}");
        if house.claim_at(&name, 1, &["default"], now).is_empty() {
            break;
        }
        now += 31_000;
        house.look_lapsed(&[house.seen(&name)], now);
    }
    assert_eq!(house.state(&id), Some(State::Dead));
}

pub fn only_rescues_in_a_row_count(house: &House) {
    let id = house.enqueue(&[NewJob { attempts_max: 99, ..job("default") }]).remove(0);
    let mut now = NOW;
    for life in 0..30 {
        let name = format!("r{life}");
        let claimed = house.claim_at(&name, 1, &["default"], now).remove(0);
        if life % 9 == 8 {
            house.end(&name, &claimed, Ending::Snoozed { ms: 5 }, now);
        } else {
            house.look_lapsed(&[house.seen(&name)], now);
        }
        now += 31_000;
        house.look(now);
    }
    assert_eq!(house.state(&id), Some(State::Available));
}

pub fn who_leaves_holds_nothing(house: &House) {
    house.enqueue(&[job("default")]);
    house.claim("a", 1);
    let leads = |name| house.store.lead(&runner(name), &[]).unwrap().leads;
    assert!(leads("a"));
    house.store.leave(&runner("a")).unwrap();
    assert!(leads("b"), "at once");
    assert_eq!(house.look(NOW + 1).rescued, 1, "and what it left behind is another's");
}

pub fn one_leads_at_a_time(house: &House) {
    let lead = |name, lapsed: &[Lapsed]| house.store.lead(&runner(name), lapsed).unwrap();
    let first = lead("a", &[]);
    assert!(first.leads && first.leases.len() == 1, "{first:?}");
    assert!(!lead("b", &[]).leads);
    let seen = [house.seen("a")];
    assert!(lead("a", &[]).leads, "it goes on");
    assert!(!lead("b", &seen).leads, "it has raised its counter since");
    let seen = [house.seen("a")];
    let next = lead("b", &seen);
    assert_eq!((next.leads, next.leases.len(), &*next.leases[0].holder), (true, 1, "b"));
    assert!(!lead("a", &seen).leads, "who comes late leads no more");
}

pub fn every_job_is_claimed_once_by_many_runners(house: &House) {
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

pub fn jobs_of_another_program_are_noticed(house: &House) {
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
