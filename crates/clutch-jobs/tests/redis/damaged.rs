//! A key that somebody has written over, and a user who may not do everything: nothing is half done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clutch_jobs::job::{Claimed, Millis, NewJob, Rate, State};
use clutch_jobs::store::{Report, Runner, Store, StoreError, Want};
use clutch_jobs::stores;

use super::server::{self, Server};
use super::{KEEP, NOW, done, enqueue, failed, is_unusable, job, lapsed, round, shared};

/// What one runner gets, of two queues.
struct Jobs {
    store: Arc<dyn Store>,
    runner: Runner,
    held: Vec<Claimed>,
    /// How often each began.
    begun: BTreeMap<String, usize>,
    now: Millis,
}

impl Jobs {
    fn new(store: Arc<dyn Store>) -> Jobs {
        let runner = Runner::new("a".to_owned(), Duration::from_secs(30));
        Jobs { store, runner, held: Vec::new(), begun: BTreeMap::new(), now: NOW }
    }

    /// As a runner does: what it holds is made sure of after a failure, and what has ended is told until it is taken.
    fn round(&mut self, limit: usize) -> Result<Vec<String>, StoreError> {
        self.now += 10_000;
        let held: Vec<_> = self.held.iter().map(|job| job.id.clone()).collect();
        self.store.renew(&self.runner, &held, self.now)?;
        self.runner.round += 1;
        let report = Report { settled: self.held.iter().map(done).collect(), ..Report::default() };
        let want = Want { limit, queues: vec!["other".to_owned(), "default".to_owned()] };
        let round = self.store.round(&self.runner, &report, &want, self.now)?;
        assert!(round.lost.is_empty(), "{:?}", round.lost);
        for job in &round.claimed {
            *self.begun.entry(job.id.clone()).or_default() += 1;
        }
        self.held = round.claimed;
        Ok(round.damaged)
    }
}

fn kinds(nr: usize) -> [NewJob; 6] {
    let keyed = NewJob { key: Some("k".to_owned()), ..job() };
    let rate = Some(Rate { count: 1000, per_ms: 1000 });
    [
        job(),
        NewJob { priority: 1, ..job() },
        keyed.clone(),
        NewJob { key_rate: rate, key: Some("r".to_owned()), key_limit: 1000, ..job() },
        NewJob { unique: Some(format!("u{nr}")), ..job() },
        NewJob { scheduled_at: Some(NOW + 5), ..keyed },
    ]
}

/// Of each key of the table in redis.rs, whatever its type should be.
#[test]
fn no_job_is_lost_or_doubled_whatever_key_is_damaged() {
    const NAMES: [&str; 33] = [
        "all",
        "arrivals",
        "broken",
        "cancelling",
        "counts",
        "cron",
        "done",
        "ended:3",
        "ended:4",
        "ended:5",
        "holding",
        "inboxes",
        "delete:3",
        "delete:4",
        "delete:5",
        "leader",
        "orphaned",
        "renewals",
        "scheduled",
        "schema",
        "settings",
        "unique",
        "news",
        "running:a",
        "ready:default",
        "inbox:default",
        "ready:other",
        "inbox:other",
        "key:k",
        "key:r",
        "rate:1000/1000:key:r",
        "ready:none",
        "none",
    ];
    for name in NAMES {
        let Some((server, store, root)) = shared() else { return };
        let mut connection = server.connect();
        let mut sure: Vec<String> =
            kinds(0).iter().flat_map(|one| enqueue(&*store, std::slice::from_ref(one))).collect();
        let mut jobs = Jobs::new(store.clone());
        jobs.round(2).unwrap();
        let (key, aside) = (format!("{root}:{name}"), format!("{root}:aside"));
        let had: bool = redis::cmd("RENAME").arg(&key).arg(&aside).exec(&mut connection).is_ok();
        match name {
            "schema" => redis::cmd("RPUSH").arg(&key).arg("x").exec(&mut connection).unwrap(),
            _ => redis::cmd("SET").arg(&key).arg("x").exec(&mut connection).unwrap(),
        }
        for nr in 1..4 {
            for one in kinds(nr) {
                match store.enqueue(&[one], NOW) {
                    Ok(told) => sure.extend(told.into_iter().map(|one| one.id)),
                    Err(error) => assert!(error.to_string().contains(&key), "{name}: {error}"),
                }
            }
            for failed in [jobs.round(3).err(), store.look_after(&KEEP, 100, &[], &[], jobs.now).err()] {
                assert!(failed.is_none_or(|error| error.to_string().contains(&key)), "{name}");
            }
        }
        redis::cmd("DEL").arg(&key).exec(&mut connection).unwrap();
        if had {
            redis::cmd("RENAME").arg(&aside).arg(&key).exec(&mut connection).unwrap();
        }
        for _ in 0..30 {
            store.look_after(&KEEP, 100, &[], &[], jobs.now).unwrap();
            jobs.round(9).unwrap();
        }
        let wrong: Vec<_> = sure.iter().filter(|id| jobs.begun.get(*id) != Some(&1)).collect();
        assert!(wrong.is_empty() && jobs.begun.len() == sure.len(), "{name}: {wrong:?} of {sure:?}");
        assert!(
            store.queues().unwrap().iter().all(|queue| queue.available + queue.running + queue.scheduled == 0),
            "{name}"
        );
    }
}

#[test]
fn a_damaged_queue_is_named_and_the_others_go_on() {
    let Some((server, store, root)) = shared() else { return };
    let mut connection = server.connect();
    redis::cmd("SET").arg(format!("{root}:ready:other")).arg("x").exec(&mut connection).unwrap();
    let ids = enqueue(&*store, &[job(), NewJob { priority: 1, ..job() }]);
    let mut jobs = Jobs::new(store.clone());
    let damaged = jobs.round(9).unwrap();
    assert_eq!(jobs.begun.keys().collect::<Vec<_>>(), ids.iter().collect::<Vec<_>>());
    assert!(damaged[0].contains(&format!("{root}:ready:other is a string, and only a zset is allowed")), "{damaged:?}");
    let refused = store.enqueue(&[NewJob { queue: "other".to_owned(), priority: 1, ..job() }], NOW);
    assert!(matches!(refused, Err(StoreError::Damaged { .. })), "{refused:?}");
    assert!(store.queues().unwrap().iter().any(|queue| queue.running == 2), "people can still look");
    redis::cmd("DEL").arg(format!("{root}:ready:other")).exec(&mut connection).unwrap();
    assert_eq!(jobs.round(9).unwrap(), [""; 0]);
}

/// Jobs that are put back, or rescued, or whose time comes, wait where they are until their queue is mended.
#[test]
fn what_cannot_go_where_it_belongs_stays() {
    let Some((server, store, root)) = shared() else { return };
    let mut connection = server.connect();
    let later = NewJob { scheduled_at: Some(NOW + 5), ..job() };
    let ids = enqueue(&*store, &[job(), NewJob { priority: 1, ..job() }, later]);
    let claimed = round(&*store, 2, Vec::new()).unwrap().claimed;
    assert_eq!(claimed.len(), 2);
    redis::cmd("SET").arg(format!("{root}:ready:default")).arg("x").exec(&mut connection).unwrap();
    let seen = lapsed(&*store);
    let upkeep = store.look_after(&KEEP, 100, &[], &[seen], NOW + 10).unwrap();
    assert_eq!((upkeep.rescued, upkeep.staged, upkeep.damaged.len()), (0, 0, 1));
    redis::cmd("DEL").arg(format!("{root}:ready:default")).exec(&mut connection).unwrap();
    let upkeep = store.look_after(&KEEP, 100, &[], &[], NOW + 10_000).unwrap();
    assert_eq!((upkeep.rescued, upkeep.staged, upkeep.damaged.len()), (2, 1, 0));
    assert!(ids.iter().all(|id| store.get(id).unwrap().unwrap().state == State::Available));
    let claimed = round(&*store, 9, Vec::new()).unwrap().claimed;
    round(&*store, 0, claimed.iter().map(failed).collect()).unwrap();
}

#[test]
fn a_user_who_may_not_do_all_is_told_before_anything_is_done() {
    let Some(server) = Server::with_port(&[]) else { return };
    let mut connection = server.connect();
    let url = format!("redis://bob:pass@127.0.0.1:{}", server.port);
    let rules = |rules: &[&str]| {
        let mut set = redis::cmd("ACL");
        set.arg("SETUSER").arg("bob").arg("on").arg(">pass").arg("~*").arg("+@all").arg(rules);
        set
    };
    rules(&["-xadd", "-rpush"]).exec(&mut connection).unwrap();
    for (scheme, missing) in
        [("redis", "RPUSH, XADD: allow it, as by ACL SETUSER NAME +rpush +xadd"), ("sidekiq", "RPUSH:")]
    {
        let error = stores::open(&url.replace("redis:", &format!("{scheme}:"))).err().unwrap();
        assert!(error.to_string().contains(&format!("may not run {missing}")), "{error}");
        assert!(is_unusable::<()>(Err(error)));
    }
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    assert_eq!(keys, ["{clutch}:schema"]);
    rules(&[]).exec(&mut connection).unwrap();
    let store = stores::open(&url).unwrap();
    // While it is open.
    rules(&["-xadd"]).exec(&mut connection).unwrap();
    let ids = enqueue(&*store, &[job(), NewJob { priority: 1, ..job() }]);
    assert!(ids.iter().all(|id| store.get(id).unwrap().is_some()), "who is told that it failed would do it twice");
}

/// The connect itself must not fail where it cannot be known.
#[test]
fn a_full_server_is_no_lack_of_rights() {
    let Some(server) = server::Server::start(&["--maxmemory", "1"]) else { return };
    stores::open(&server.new_url()).unwrap();
}
