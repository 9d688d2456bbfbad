//! What a store on Redis does when its server does not do well.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "redis/batches.rs"]
mod batches;
#[path = "redis/clock.rs"]
mod clock;
#[path = "redis/cluster.rs"]
mod cluster;
#[path = "redis/damaged.rs"]
mod damaged;
#[path = "redis/late.rs"]
mod late;
#[path = "redis/sentinel.rs"]
mod sentinel;
#[path = "redis/server.rs"]
mod server;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clutch_jobs::cron::{AHEAD_MAX, REFUSED};
use clutch_jobs::job::{Backoff, Claimed, Ending, JobError, Millis, NewJob, Settled, State, settle};
use clutch_jobs::leases::Lapsed;
use clutch_jobs::store::{
    Change, Filter, Keep, QueueChange, Renewed, Report, Round, Runner, Store, StoreError, Tick, Want,
};
use clutch_jobs::stores;
use redis::Commands;
use serde_json::value::RawValue;

use self::server::Server;

const NOW: Millis = 1_800_000_000_000;
const KEEP: Keep =
    Keep { completed: Duration::from_secs(60), cancelled: Duration::from_secs(60), dead: Duration::from_secs(60) };

fn job() -> NewJob {
    NewJob {
        attempts_max: 3,
        backoff: Backoff::Constant { ms: 1000 },
        ..NewJob::new("default", "send", RawValue::from_string(r#"{"args":[1],"kwargs":{}}"#.to_owned()).unwrap())
    }
}

fn runner() -> Runner {
    Runner::new("a".to_owned(), Duration::from_secs(30))
}

fn round(store: &dyn Store, limit: usize, settled: Vec<Settled>) -> Result<Round, StoreError> {
    let want = Want { limit, queues: vec!["default".to_owned()] };
    store.round(&runner(), &Report { settled, ..Report::default() }, &want, NOW)
}

fn done(job: &Claimed) -> Settled {
    settle(job, Ending::Returned("null".to_owned()), NOW, 0.5)
}

fn failed(job: &Claimed) -> Settled {
    let message = "ValueError: no".to_owned();
    let error = JobError { at: NOW, attempt: 1, kind: "raised".to_owned(), message, traceback: String::new() };
    settle(job, Ending::Failed(error), NOW, 0.5)
}

fn is_unavailable<T>(result: Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Unavailable { .. }))
}

fn is_unusable<T>(result: Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Unusable { .. }))
}

/// Until it can be done: for as long as others need to notice and to agree.
fn until_done<T>(mut attempt: impl FnMut() -> Result<T, StoreError>) -> T {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(error) => assert!(Instant::now() < until && is_unavailable::<()>(Err(error.clone())), "{error}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// The server that the tests of this program share, and a store of its own on it.
fn shared() -> Option<(&'static Server, Arc<dyn Store>, String)> {
    let server = server::shared()?;
    let url = server.new_url();
    let root = format!("{{{}}}", url.split_once("prefix=").unwrap().1);
    Some((server, stores::open(&url).unwrap(), root))
}

/// The only lease, as one sees it who then sees no other counter for long.
fn lapsed(store: &dyn Store) -> Lapsed {
    let leases = store.look_after(&KEEP, 1, &[], &[], 0).unwrap().leases;
    let [lease] = &leases[..] else { panic!("{leases:?}") };
    Lapsed { holder: lease.holder.clone(), renewals: lease.renewals }
}

fn enqueue(store: &dyn Store, jobs: &[NewJob]) -> Vec<String> {
    store.enqueue(jobs, NOW).unwrap().into_iter().map(|one| one.id).collect()
}

fn keys(server: &Server, root: &str) -> BTreeSet<String> {
    let found: Vec<String> = server.connect().keys(format!("{root}:*")).unwrap();
    found.into_iter().map(|key| key[root.len() + 1..].to_owned()).collect()
}

#[test]
fn nothing_is_left_of_jobs_that_are_pruned() {
    let Some((server, store, root)) = shared() else { return };
    let keyed = NewJob { key: Some("k".to_owned()), unique: Some("u".to_owned()), ..job() };
    let again = NewJob { key: Some("k".to_owned()), scheduled_at: Some(NOW + 5), ..job() };
    let kept = NewJob { result_ms: 100_000, tags: vec!["red".to_owned()], ..job() };
    let ids = enqueue(&*store, &[keyed, again.clone(), again, kept, job(), job()]);
    assert!(store.change(&ids[5], Change::Cancel, NOW).unwrap());
    assert_eq!(store.look_after(&KEEP, 100, &[], &[], NOW + 5).unwrap().staged, 2);
    assert!(store.change(&ids[2], Change::Delete, NOW).unwrap());
    let claimed = round(&*store, 9, Vec::new()).unwrap().claimed;
    let mut ends: Vec<_> = claimed.iter().map(done).collect();
    assert!(store.change(&claimed[2].id, Change::Cancel, NOW).unwrap());
    ends[2] = failed(&claimed[2]);
    let claimed = round(&*store, 9, ends).unwrap().claimed;
    assert_eq!(claimed.iter().map(|job| job.id.as_str()).collect::<Vec<_>>(), [&ids[1]], "the key was free");
    round(&*store, 0, vec![done(&claimed[0])]).unwrap();
    // The job whose result is kept for longer outlives the others.
    assert_eq!(store.look_after(&KEEP, 100, &[], &[], NOW + 61_000).unwrap().pruned, 4);
    assert!(store.get(&ids[3]).unwrap().is_some());
    assert_eq!(store.look_after(&KEEP, 100, &[], &[], NOW + 100_001).unwrap().pruned, 1);
    store.leave(&runner()).unwrap();
    assert_eq!(keys(server, &root), ["news", "schema"].map(str::to_owned).into());
    assert_eq!(store.queues().unwrap(), []);
}

#[test]
fn long_lists_are_whole() {
    let Some((_, store, _)) = shared() else { return };
    let recorded = NewJob { result_ms: 1, ..job() };
    let kinds = [job(), recorded];
    let batch = |nr: usize| store.enqueue(&vec![kinds[nr % 2].clone(); 500], NOW + nr as Millis).unwrap();
    let ids: Vec<_> = (0..5).flat_map(batch).map(|one| one.id).collect();
    let claimed = round(&*store, 2300, Vec::new()).unwrap().claimed;
    let error = JobError { at: NOW, attempt: 1, kind: "x".into(), message: "x".into(), traceback: "".into() };
    let failed = Ending::Impossible { error, why: "it says so".into() };
    let dead = claimed.iter().take(20).map(|job| settle(job, failed.clone(), NOW, 0.5));
    round(&*store, 0, dead.collect()).unwrap();
    let list = |state, limit| {
        let found = store.list(&Filter { state, limit, ..Filter::default() }).unwrap();
        found.iter().map(|job| 1 + ids.binary_search(&job.id).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(list(None, 5000), (1..=2500).rev().collect::<Vec<_>>());
    assert_eq!(list(Some(State::Dead), 10), (11..=20).rev().collect::<Vec<_>>());
    // More than one index is read for.
    assert_eq!(list(Some(State::Running), 5000), (21..=2300).rev().collect::<Vec<_>>());
    assert_eq!(list(Some(State::Available), 3), [2500, 2499, 2498]);
    let before = Filter { before: Some(ids[11].clone()), state: Some(State::Dead), limit: 9, ..Filter::default() };
    assert_eq!(store.list(&before).unwrap().len(), 9);
}

#[test]
fn a_job_whose_record_is_gone_is_dead_with_the_reason() {
    let Some((server, store, root)) = shared() else { return };
    let ids = enqueue(&*store, &vec![NewJob { priority: 1, ..job() }; 3]);
    let mut connection = server.connect();
    connection.del::<_, ()>(format!("{root}:body:{}", ids[0])).unwrap();
    connection.set::<_, _, ()>(format!("{root}:body:{}", ids[1]), "{no json").unwrap();
    connection.rpush::<_, _, ()>(format!("{root}:inbox:default"), "no entry").unwrap();
    let claimed = round(&*store, 9, Vec::new()).unwrap().claimed;
    assert_eq!(claimed.iter().map(|job| job.id.as_str()).collect::<Vec<_>>(), [&ids[2]]);
    for id in &ids[..2] {
        let told = store.get(id).unwrap().unwrap();
        assert_eq!((told.state, told.errors[0].kind.as_str()), (State::Dead, "malformed"));
    }
}

/// Whatever is missing of one job, the others go on.
#[test]
fn a_damaged_job_stops_nobody_else() {
    let Some((server, store, root)) = shared() else { return };
    let keyed = |key: &str| NewJob { key: Some(key.to_owned()), ..job() };
    let later = NewJob { scheduled_at: Some(NOW + 5), ..job() };
    let urgent = NewJob { priority: 1, ..job() };
    let new = [urgent.clone(), urgent.clone(), keyed("k"), keyed("k"), keyed("k"), later.clone(), later, job(), job()];
    let ids = enqueue(&*store, &new);
    let mut connection = server.connect();
    // One that is ready, one that waits for its key, one that is scheduled.
    for at in [0, 3, 5] {
        connection.del::<_, ()>(format!("{root}:job:{}", ids[at])).unwrap();
    }
    assert_eq!(store.look_after(&KEEP, 100, &[], &[], NOW + 5).unwrap().staged, 2);
    let claimed = round(&*store, 9, Vec::new()).unwrap().claimed;
    let claimed_ids: BTreeSet<_> = claimed.iter().map(|job| job.id.clone()).collect();
    assert_eq!(claimed_ids, [1, 2, 6, 7, 8].map(|at| ids[at].clone()).into());
    // One that runs.
    connection.del::<_, ()>(format!("{root}:job:{}", ids[1])).unwrap();
    let lost = round(&*store, 9, claimed.iter().map(done).collect()).unwrap();
    assert_eq!((lost.lost, lost.claimed.len()), (vec![ids[1].clone()], 1), "the last of its key");
    assert_eq!(store.look_after(&KEEP, 100, &[], &[lapsed(&*store)], NOW + 40_000).unwrap().rescued, 1);
    assert_eq!(round(&*store, 9, Vec::new()).unwrap().claimed.len(), 1);
    round(&*store, 0, Vec::new()).unwrap();
    assert_eq!(store.queues().unwrap()[0].running, 1, "who is gone is not counted");
    let unique = NewJob { unique: Some("u".to_owned()), key: Some("only".to_owned()), ..job() };
    let gone = enqueue(&*store, std::slice::from_ref(&unique)).remove(0);
    connection.del::<_, ()>(format!("{root}:job:{gone}")).unwrap();
    let next = enqueue(&*store, &[unique]).remove(0);
    assert_ne!(next, gone, "its key is free");
    // Keys that hold jobs back are swept one at a time.
    let claimed = (0..99).find_map(|_| {
        store.look_after(&KEEP, 1, &[], &[], 0).unwrap();
        round(&*store, 9, Vec::new()).unwrap().claimed.pop()
    });
    assert_eq!(claimed.unwrap().id, next);
    connection.rpush::<_, _, ()>(format!("{root}:inbox:default"), "no entry").unwrap();
    let id = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    connection.rpush::<_, _, ()>(format!("{root}:inbox:default"), format!("abc\ndefault\nt\n1\n\n{{}}\n{id}")).unwrap();
    assert!(round(&*store, 2, Vec::new()).unwrap().again_in.is_some(), "there may be others behind it");
    let is_aside: bool = connection.sismember(format!("{root}:broken"), id).unwrap();
    assert!(is_aside, "its time is no number");
    assert!(store.get(&ids[0]).unwrap().is_none());
    assert_eq!(store.list(&Filter { limit: 99, ..Filter::default() }).unwrap().len(), 6);
}

/// What a connection that was given up has sent may come to the server after what was sent since.
#[test]
fn what_comes_late_does_no_harm() {
    let Some((_, store, _)) = shared() else { return };
    enqueue(&*store, &vec![job(); 3]);
    let at = |number| Runner { round: number, ..runner() };
    let want = || Want { limit: 1, queues: vec!["default".to_owned()] };
    let claim = |number, now| store.round(&at(number), &Report::default(), &want(), now).unwrap();
    let first = claim(1, NOW).claimed.remove(0).id;
    let second = claim(2, NOW).claimed.remove(0).id;
    let held = [first.clone()];
    assert_eq!(store.renew(&at(1), &held, NOW).unwrap(), Some(Renewed::default()));
    assert_eq!(store.get(&second).unwrap().unwrap().state, State::Running, "it was claimed after this renewal");
    assert_eq!(store.renew(&at(2), &held, NOW).unwrap(), Some(Renewed::default()));
    assert_eq!(store.get(&second).unwrap().unwrap().state, State::Available, "its claim was never heard of");
    let later = NOW + 31_000;
    assert_eq!(store.look_after(&KEEP, 100, &[], &[lapsed(&*store)], later).unwrap().rescued, 1);
    let round = claim(3, later);
    assert!(round.has_no_lease && round.claimed.is_empty(), "its lease has lapsed");
    assert_eq!(store.renew(&at(3), &held, later).unwrap(), None);
}

#[test]
fn a_server_that_forgot_the_scripts_is_taught_again() {
    let Some((server, store, _)) = shared() else { return };
    store.enqueue(&[job()], NOW).unwrap();
    redis::cmd("SCRIPT").arg("FLUSH").exec(&mut server.connect()).unwrap();
    store.enqueue(&[job()], NOW).unwrap();
    assert_eq!(store.queues().unwrap()[0].available, 2);
}

#[test]
fn a_newer_schema_is_not_touched() {
    let Some(server) = server::shared() else { return };
    let url = server.new_url();
    let root = format!("{{{}}}", url.split_once("prefix=").unwrap().1);
    let store = stores::open(&url).unwrap();
    store.enqueue(&[job()], NOW).unwrap();
    server.connect().set::<_, _, ()>(format!("{root}:schema"), "3").unwrap();
    let error = store.look_after(&KEEP, 9, &[], &[], NOW).unwrap_err();
    assert!(error.to_string().contains("version 3: install a newer"), "while it is open: {error}");
    let error = stores::open(&url).err().unwrap();
    assert!(error.to_string().contains("install a newer one"), "{error}");
}

#[test]
fn leases_of_version_1_are_watched() {
    let Some(server) = server::shared() else { return };
    let url = server.new_url();
    let root = format!("{{{}}}", url.split_once("prefix=").unwrap().1);
    let mut connection = server.connect();
    connection.set::<_, _, ()>(format!("{root}:schema"), "1").unwrap();
    connection.zadd::<_, _, _, ()>(format!("{root}:runners"), "old", 5.0).unwrap();
    connection.hset::<_, _, _, ()>(format!("{root}:leader"), "name", "gone").unwrap();
    let store = stores::open(&url).unwrap();
    let led = store.lead(&runner(), &[]).unwrap();
    let mut holders: Vec<_> = led.leases.iter().map(|lease| &*lease.holder).collect();
    holders.sort_unstable();
    assert_eq!((led.leads, holders), (true, vec!["a", "old"]));
    assert_eq!(connection.get::<_, String>(format!("{root}:schema")).unwrap(), "2", "older programs are refused");
    // What somebody has damaged is no lease.
    connection.hset::<_, _, _, ()>(format!("{root}:renewals"), "a", "no number").unwrap();
    let other = Runner::new("b".to_owned(), Duration::from_secs(30));
    let led = store.lead(&other, &[]).unwrap();
    assert!(led.leads && led.leases.iter().all(|lease| lease.holder != "a"), "{led:?}");
}

#[test]
fn connections_that_are_killed_are_made_again() {
    let Some(server) = Server::start(&[]) else { return };
    let store = stores::open(&server.new_url()).unwrap();
    let mut watch = store.watch().unwrap();
    let mut connection = server.connect();
    for _ in 0..2 {
        redis::cmd("CLIENT")
            .arg("KILL")
            .arg("TYPE")
            .arg("normal")
            .arg("SKIPME")
            .arg("yes")
            .exec(&mut connection)
            .unwrap();
        assert!(watch.wait(Duration::from_secs(30)).is_err(), "whoever waits is told");
        assert!(is_unavailable(store.enqueue(&[job()], NOW)), "what was asked may have been done or not");
        store.enqueue(&[job()], NOW).unwrap();
        watch = store.watch().unwrap();
        assert!(watch.wait(Duration::from_secs(30)).unwrap(), "it has missed nothing");
    }
}

#[test]
fn a_store_is_used_as_soon_as_its_server_is_there() {
    let Some(mut server) = Server::start(&[]) else { return };
    server.stop();
    let store = stores::open(&server.new_url()).unwrap();
    assert!(is_unavailable(store.enqueue(&[job()], NOW)));
    assert!(is_unavailable(store.watch().map(drop)));
    server.restart(&[]);
    store.enqueue(&[job()], NOW).unwrap();
    server.restart(&[]);
    assert!(is_unavailable(store.queues()));
    assert_eq!(store.queues().unwrap(), [], "nothing was to be kept");
    store.enqueue(&[job()], NOW).unwrap();
}

#[test]
fn a_server_that_keeps_a_file_loses_nothing_when_it_is_killed() {
    let flags = ["--appendonly", "yes", "--appendfsync", "always"];
    let Some(mut server) = Server::start(&flags) else { return };
    let store = stores::open(&server.new_url()).unwrap();
    assert_eq!(store.warnings(), [""; 0]);
    store.enqueue(&[job(), job()], NOW).unwrap();
    let claimed = round(&*store, 1, Vec::new()).unwrap().claimed;
    server.restart(&flags);
    let ended = || claimed.iter().map(done).collect::<Vec<_>>();
    assert!(is_unavailable(round(&*store, 1, ended())), "the connection is lost");
    let next = round(&*store, 1, ended()).unwrap();
    assert_eq!((next.lost.len(), next.claimed.len()), (0, 1));
    assert_eq!(store.get(&claimed[0].id).unwrap().unwrap().state, State::Completed);
}

#[test]
fn a_full_memory_refuses_new_jobs_and_lets_others_end() {
    let Some(server) = Server::start(&[]) else { return };
    let store = stores::open(&server.new_url()).unwrap();
    store.enqueue(&[job(), job()], NOW).unwrap();
    let claimed = round(&*store, 1, Vec::new()).unwrap().claimed;
    let mut connection = server.connect();
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("1").exec(&mut connection).unwrap();
    let before = store.queues().unwrap();
    let error = store.enqueue(&[job(), job()], NOW).unwrap_err();
    assert!(error.to_string().contains("OOM"), "{error}");
    assert!(is_unavailable::<()>(Err(error)));
    assert_eq!(store.queues().unwrap(), before, "nothing is half written");
    let next = round(&*store, 1, claimed.iter().map(done).collect()).unwrap();
    assert_eq!((next.lost.len(), next.claimed.len()), (0, 1));
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("0").exec(&mut connection).unwrap();
    store.enqueue(&[job()], NOW).unwrap();
}

/// What was written before it was full makes room again: nobody has to free any by hand.
#[test]
fn a_full_memory_is_looked_after() {
    let Some(server) = Server::start(&[]) else { return };
    let store = stores::open(&server.new_url()).unwrap();
    let later = NewJob { scheduled_at: Some(NOW + 5), ..job() };
    let ids = enqueue(&*store, &[job(), later, job()]);
    let claimed = round(&*store, 1, Vec::new()).unwrap().claimed;
    round(&*store, 0, claimed.iter().map(done).collect()).unwrap();
    let mut connection = server.connect();
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("1").exec(&mut connection).unwrap();
    let tick = Tick { name: "each".to_owned(), at: NOW, job: Some(job()), kept: None };
    assert!(is_unavailable(store.look_after(&KEEP, 100, &[tick], &[], NOW + 61_000)), "a tick needs memory");
    let stats = &store.queues().unwrap()[0];
    assert_eq!((stats.completed, stats.scheduled), (0, 0), "pruned and staged all the same");
    assert!(store.change(&ids[2], Change::Cancel, NOW).unwrap());
    store.set_queue("default", QueueChange::Pause(true)).unwrap();
    store.leave(&runner()).unwrap();
}

/// The server's own limit, so that it is used to this percentage.
fn set_memory_used(server: &Server, percent: i64) {
    let mut connection = server.connect();
    let about: String = redis::cmd("INFO").arg("memory").query(&mut connection).unwrap();
    let used = about.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
    let most = used.trim().parse::<i64>().unwrap() * 100 / percent;
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(most).exec(&mut connection).unwrap();
}

#[test]
fn completed_jobs_go_early_where_memory_is_short() {
    let Some(server) = Server::start(&[]) else { return };
    let store = stores::open(&server.new_url()).unwrap();
    let hour = Duration::from_secs(3600);
    let keep = Keep { completed: hour, cancelled: hour, dead: hour };
    let with_result = NewJob { result_ms: 7_200_000, ..job() };
    let expired = NewJob { result_ms: 30_000, ..job() };
    let keyed = NewJob { key: Some("k".to_owned()), ..job() };
    let last = NewJob { priority: -1, ..job() };
    let ids = enqueue(&*store, &[with_result, expired, keyed, job(), last]);
    let end = |count: usize, now: Millis| {
        let want = Want { limit: count, queues: vec!["default".to_owned()] };
        let claimed = store.round(&runner(), &Report::default(), &want, now).unwrap().claimed;
        let settled = claimed.iter().map(|job| settle(job, Ending::Returned("null".to_owned()), now, 0.5)).collect();
        let report = Report { settled, keep: Some(keep), ..Report::default() };
        store.round(&runner(), &report, &Want::default(), now).unwrap();
    };
    end(4, NOW);
    end(1, NOW + 50_000);
    let look = |limit: usize| store.look_after(&keep, limit, &[], &[], NOW + 61_000).unwrap();
    assert_eq!(look(100).pruned, 0, "there is no limit");
    set_memory_used(&server, 50);
    assert_eq!(look(100).pruned, 0, "there is room");
    set_memory_used(&server, 85);
    // Each look takes in one: those whose results are kept are not in the way of those behind them.
    let pruned: usize = (0..8).map(|_| look(1).pruned_early).sum();
    assert_eq!(pruned, 3);
    let left: Vec<_> = ids.iter().map(|id| store.get(id).unwrap().is_some()).collect();
    assert_eq!(left, [true, false, false, false, true], "a result that is kept, and what ended a moment ago, stay");
    assert_eq!(store.queues().unwrap()[0].completed, 2);
}

/// An answer holds few large jobs at a time, whatever is asked for.
#[test]
fn large_jobs_are_listed_and_found() {
    let Some((_, store, _)) = shared() else { return };
    let large = NewJob { arguments: RawValue::from_string(format!("\"{}\"", "x".repeat(2 << 20))).unwrap(), ..job() };
    let ids = enqueue(&*store, &vec![large; 5]);
    let small = enqueue(&*store, &vec![job(); 1200]);
    let list = |limit| store.list(&Filter { limit, ..Filter::default() }).unwrap();
    assert_eq!(list(9999).len(), 1205);
    assert_eq!(list(1)[0].id, small[1199]);
    for id in [&ids[0], &ids[4], &small[0], &small[700]] {
        assert_eq!(store.get(id).unwrap().unwrap().state, State::Available);
        assert!(store.change(id, Change::Cancel, NOW).unwrap());
    }
    assert_eq!(round(&*store, 9999, Vec::new()).unwrap().claimed.len(), 1201);
}

/// However many slots are free: an answer of a gigabyte would not come in time, and be asked for again for ever.
#[test]
fn few_large_jobs_are_claimed_at_a_time() {
    let Some((_, store, _)) = shared() else { return };
    let arguments = RawValue::from_string(format!("\"{}\"", "x".repeat(3 << 20))).unwrap();
    let ids = enqueue(&*store, &vec![NewJob { arguments, ..job() }; 7]);
    enqueue(&*store, &[job()]);
    let mut claimed = Vec::new();
    while claimed.len() < 8 {
        let next = round(&*store, 100, Vec::new()).unwrap();
        assert!(next.claimed.len() <= 3 && (claimed.len() + next.claimed.len() == 8 || next.again_in.is_some()));
        claimed.extend(next.claimed.into_iter().map(|job| job.id));
    }
    assert_eq!(claimed[..7], ids);
}

#[test]
fn a_replica_may_take_over() {
    let Some(server) = Server::start(&[]) else { return };
    let store = stores::open(&server.new_url()).unwrap();
    let mut connection = server.connect();
    redis::cmd("REPLICAOF").arg("127.0.0.1").arg("1").exec(&mut connection).unwrap();
    assert!(is_unavailable(store.enqueue(&[job()], NOW)));
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut connection).unwrap();
    store.enqueue(&[job()], NOW).unwrap();
}

#[test]
fn a_wrong_password_is_final_and_told_without_it() {
    let Some(server) = Server::start(&["--requirepass", "right"]) else { return };
    let socket = server.socket();
    let url = |pass: &str| format!("redis+unix://{}?pass={pass}", socket.display());
    for url in [url("s3cret"), url("").replace("?pass=", "")] {
        let error = stores::open(&url).err().unwrap();
        assert!(!error.to_string().contains("s3cret"), "{error}");
        assert!(is_unusable::<()>(Err(error)));
    }
    let store = stores::open(&url("right")).unwrap();
    store.enqueue(&[job()], NOW).unwrap();
    assert!(!store.name().contains("right"));
    assert_eq!(store.warnings().len(), 1, "it keeps nothing on disk: {:?}", store.warnings());
}

#[test]
fn what_is_no_redis_server_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let web = thread::spawn(move || {
        for connection in listener.incoming().take(2) {
            let mut connection = connection.unwrap();
            let _ = connection.read(&mut [0; 1024]).unwrap();
            connection.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        }
    });
    for (scheme, reason) in [("redis", "not a Redis server"), ("rediss", "TLS")] {
        let error = stores::open(&format!("{scheme}://{address}")).err().unwrap();
        assert!(error.to_string().contains(reason), "{error}");
        assert!(is_unusable::<()>(Err(error)));
    }
    web.join().unwrap();
}

#[test]
fn a_server_that_stands_still_is_noticed() {
    let Some(server) = Server::start(&[]) else { return };
    let store = stores::open(&server.new_url()).unwrap();
    let mut watch = store.watch().unwrap();
    let about: String = redis::cmd("INFO").arg("server").query(&mut server.connect()).unwrap();
    let pid = about.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap().trim().parse().unwrap();
    let server_pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(server_pid, rustix::process::Signal::STOP).unwrap();
    let since = Instant::now();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(is_unavailable(store.enqueue(&[job()], NOW))));
        }
        scope.spawn(|| assert!(watch.wait(Duration::from_millis(500)).is_err(), "it is never deaf"));
    });
    assert!(since.elapsed() < Duration::from_secs(15), "they wait side by side");
    rustix::process::kill_process(server_pid, rustix::process::Signal::CONT).unwrap();
    store.queues().unwrap();
}

#[test]
fn a_tick_that_is_ahead_of_the_servers_clock_is_refused() {
    let Some((_, store, _)) = shared() else { return };
    let last = |at: Millis, job: Option<NewJob>| {
        let tick = Tick { name: "a".to_owned(), at, job, kept: None };
        store.look_after(&KEEP, 0, &[tick], &[], NOW).unwrap().last_ticks[0]
    };
    assert_eq!(last(NOW + AHEAD_MAX * 2, None), REFUSED, "it would be new from then on only");
    assert_eq!(last(NOW, None), NOW);
    assert_eq!(last(NOW + AHEAD_MAX * 2, Some(job())), REFUSED);
    assert_eq!(last(NOW + AHEAD_MAX / 2, Some(job())), NOW + AHEAD_MAX / 2, "clocks may differ a little");
    assert_eq!(round(&*store, 9, Vec::new()).unwrap().claimed.len(), 1);
}

#[test]
fn what_is_wrong_in_a_url_is_told_with_what_to_write() {
    let Some(server) = Server::with_port(&[]) else { return };
    let said = |user: &str, rest: &str| {
        let opened = stores::open(&format!("redis://{user}127.0.0.1:{}{rest}", server.port));
        let error = opened.and_then(|store| store.queues()).unwrap_err();
        assert!(is_unusable::<()>(Err(error.clone())) && !error.to_string().contains("s3cret"), "{error}");
        error.to_string()
    };
    assert!(said(":s3cret@", "").contains("or has none itself, and then the URL must have none"));
    assert!(said("", "/99").contains("it has no database 99: a server has the numbers 0 to 15"));
    let mut connection = server.connect();
    redis::cmd("CONFIG").arg("SET").arg("requirepass").arg("s3cret").exec(&mut connection).unwrap();
    redis::cmd("ACL")
        .arg("SETUSER")
        .arg("ann")
        .arg("on")
        .arg(">s3cret")
        .arg("~x*")
        .arg("+@all")
        .exec(&mut connection)
        .unwrap();
    assert!(said("", "").contains("it wants a password, and the URL has none: write redis://:PASSWORD@"));
    assert!(said("s3cret@", "").contains("the URL has a user only: write redis://USER:PASSWORD@"));
    assert!(
        said("bob:s3cret@", "").contains("does not accept the user and the password of the URL, or has no such user")
    );
    assert!(said("ann:s3cret@", "").contains("as by ACL SETUSER NAME ~{clutch}*"));
}
