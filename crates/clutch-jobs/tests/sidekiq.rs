//! The format of Sidekiq and Exq: what Clutch writes is what they read, and the other way round.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "redis/server.rs"]
mod server;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clutch_jobs::job::{Claimed, Ending, JobError, Millis, NewJob, Settled, State, settle};
use clutch_jobs::store::{Change, Keep, Noted, Renewed, Report, Round, Runner, Store, StoreError, Want};
use clutch_jobs::stores;
use redis::{Commands, Connection};
use serde_json::value::RawValue;
use serde_json::{Value, json};

const NOW: Millis = 1_800_000_000_000;
const DAY: Duration = Duration::from_secs(24 * 3600);
const KEEP: Keep = Keep { completed: DAY, cancelled: DAY, dead: DAY };

/// As a program in Ruby pushes it, with a field that nobody else knows.
const OF_RUBY: &str = r#"{"retry":true,"queue":"default","class":"HardJob","args":[1.50,{"a":[]}],"jid":"b4a577edbccf1d805744efa9","created_at":1799999999.25,"enqueued_at":1799999999.5,"cattr":{"user":  7}}"#;

fn job() -> NewJob {
    NewJob {
        attempts_max: 26,
        ..NewJob::new(
            "default",
            "HardJob",
            RawValue::from_string(r#"{"args":["x",1.50],"kwargs":{}}"#.to_owned()).unwrap(),
        )
    }
}

struct Site {
    store: Arc<dyn Store>,
    connection: Connection,
    url: String,
    /// With its colon.
    namespace: String,
}

fn site() -> Option<Site> {
    let server = server::shared()?;
    let url = server.new_url_of("sidekiq", "namespace");
    let namespace = format!("{}:", url.split_once("namespace=").unwrap().1);
    Some(Site { store: stores::open(&url).unwrap(), connection: server.connect(), url, namespace })
}

fn runner() -> Runner {
    Runner::new("host:7:abc".to_owned(), Duration::from_secs(30))
}

fn error() -> JobError {
    let message = "ValueError: no".to_owned();
    JobError { at: NOW, attempt: 1, kind: "ValueError".to_owned(), message, traceback: String::new() }
}

impl Site {
    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.namespace)
    }

    fn push(&mut self, text: &str) {
        let (queues, queue) = (self.key("queues"), self.key("queue:default"));
        self.connection.sadd::<_, _, ()>(queues, "default").unwrap();
        self.connection.lpush::<_, _, ()>(queue, text).unwrap();
    }

    fn list(&mut self, name: &str) -> Vec<String> {
        let key = self.key(name);
        self.connection.lrange(key, 0, -1).unwrap()
    }

    fn filed(&mut self, name: &str) -> Vec<(String, f64)> {
        let key = self.key(name);
        self.connection.zrange_withscores(key, 0, -1).unwrap()
    }

    fn round(&self, limit: usize, settled: Vec<Settled>, now: Millis) -> Round {
        let want = Want { limit, queues: vec!["default".to_owned()] };
        self.store.round(&runner(), &Report { settled, ..Report::default() }, &want, now).unwrap()
    }

    fn claim(&self) -> Claimed {
        self.round(1, Vec::new(), NOW).claimed.remove(0)
    }

    fn end(&self, job: &Claimed, ending: Ending, now: Millis) -> Round {
        self.round(0, vec![settle(job, ending, now, 0.0)], now)
    }
}

/// Whatever key somebody has written over, of the format or of ours.
#[test]
fn no_job_is_lost_or_doubled_whatever_key_is_damaged() {
    const NAMES: [&str; 13] = [
        "queues",
        "paused",
        "retry",
        "schedule",
        "dead",
        "processes",
        "heartbeats",
        "queue:default",
        "clutch:queues",
        "clutch:renewals",
        "clutch:orphaned",
        "clutch:cancelling",
        "queue:backup::host:7:abc::default",
    ];
    for name in NAMES {
        let Some(mut site) = site() else { return };
        let later = NewJob { scheduled_at: Some(NOW + 5), ..job() };
        let mut sure: Vec<_> = site.store.enqueue(&[job(), job(), later], NOW).unwrap();
        let (key, aside) = (site.key(name), site.key("aside"));
        let (mut begun, mut number, mut held) = (BTreeMap::<String, usize>::new(), 0, Vec::<Claimed>::new());
        let mut step = |site: &Site, limit| -> Result<(), StoreError> {
            let ids: Vec<_> = held.iter().map(|job| job.id.clone()).collect();
            site.store.renew(&Runner { round: number, ..runner() }, &ids, NOW)?;
            number += 1;
            let settled = held.iter().map(|job| settle(job, Ending::Returned("1".to_owned()), NOW, 0.0)).collect();
            let want = Want { limit, queues: vec!["default".to_owned()] };
            let report = Report { settled, ..Report::default() };
            let round = site.store.round(&Runner { round: number, ..runner() }, &report, &want, NOW)?;
            assert!(round.lost.is_empty());
            round.claimed.iter().for_each(|job| *begun.entry(job.id.clone()).or_default() += 1);
            held = round.claimed;
            Ok(())
        };
        step(&site, 1).unwrap();
        let had = redis::cmd("RENAME").arg(&key).arg(&aside).exec(&mut site.connection).is_ok();
        site.connection.set::<_, _, ()>(&key, "x").unwrap();
        for _ in 0..3 {
            sure.extend(site.store.enqueue(&[job()], NOW).unwrap_or_default());
            let failures = [step(&site, 1).err(), site.store.look_after(&KEEP, 9, &[], &[], NOW + 10).err()];
            for failure in failures.into_iter().flatten() {
                assert!(failure.to_string().contains(name), "{name}: {failure}");
            }
        }
        site.connection.del::<_, ()>(&key).unwrap();
        if had {
            redis::cmd("RENAME").arg(&aside).arg(&key).exec(&mut site.connection).unwrap();
        }
        for _ in 0..9 {
            site.store.look_after(&KEEP, 9, &[], &[], NOW + 20_000).unwrap();
            step(&site, 3).unwrap();
        }
        let wrong = sure.iter().filter(|one| begun.get(&one.id) != Some(&1)).count();
        assert_eq!((wrong, begun.len()), (0, sure.len()), "{name}: {begun:?}");
    }
}

#[test]
fn a_job_is_pushed_as_sidekiq_does_it() {
    let Some(mut site) = site() else { return };
    let later = NewJob { scheduled_at: Some(NOW + 1500), tags: vec!["red".to_owned()], ..job() };
    let ids = site.store.enqueue(&[job(), later], NOW).unwrap();
    assert!(ids[0].id.len() == 24 && ids[0].id.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let expected = format!(
        r#"{{"class":"HardJob","args":["x",1.50],"jid":"{}","queue":"default","retry":25,"created_at":1800000000.0,"enqueued_at":1800000000.0}}"#,
        ids[0].id
    );
    assert_eq!(site.list("queue:default"), [expected]);
    let (scheduled, at) = site.filed("schedule").remove(0);
    let scheduled: Value = serde_json::from_str(&scheduled).unwrap();
    assert_eq!((at, &scheduled["tags"], scheduled.get("enqueued_at")), (1_800_000_001.5, &json!(["red"]), None));
    let queues: Vec<String> = site.connection.smembers(site.key("queues")).unwrap();
    assert_eq!(queues, ["default"]);
}

#[test]
fn the_name_has_no_secrets() {
    let store = stores::open("sidekiq://:s3cret@127.0.0.1:1/3?namespace=app").unwrap();
    assert_eq!(store.name(), "sidekiq://127.0.0.1:1/3 (app)");
}

#[test]
fn sidekiq_eight_gets_milliseconds() {
    let Some(mut site) = site() else { return };
    let store = stores::open(&format!("{}&version=8", site.url)).unwrap();
    store.enqueue(&[job()], NOW).unwrap();
    assert!(site.list("queue:default")[0].ends_with(r#""created_at":1800000000000,"enqueued_at":1800000000000}"#));
}

#[test]
fn a_job_of_ruby_is_run_and_leaves_nothing() {
    let Some(mut site) = site() else { return };
    site.push(OF_RUBY);
    let claimed = site.claim();
    assert_eq!((claimed.tool.as_str(), claimed.attempts_max), ("HardJob", 26));
    assert_eq!(claimed.arguments, r#"{"args":[1.50,{"a":[]}],"kwargs":{}}"#);
    assert_eq!(site.list("queue:backup::host:7:abc::default"), [OF_RUBY], "where Exq's monitors find it");
    assert_eq!(site.list("queue:default"), [""; 0]);
    assert_eq!(site.store.get(&claimed.id).unwrap().unwrap().state, State::Running);
    assert!(site.end(&claimed, Ending::Returned("1".to_owned()), NOW).lost.is_empty());
    assert_eq!(site.list("queue:backup::host:7:abc::default"), [""; 0]);
    assert!(site.store.get(&claimed.id).unwrap().is_none());
    for name in ["stat:processed", "stat:processed:2027-01-15"] {
        assert_eq!(site.connection.get::<_, i64>(site.key(name)).unwrap(), 1);
    }
    assert_eq!(site.end(&claimed, Ending::Returned("1".to_owned()), NOW).lost, [claimed.id], "it is settled once");
}

#[test]
fn a_failure_is_retried_with_all_its_fields_and_dead_at_last() {
    let Some(mut site) = site() else { return };
    site.push(&OF_RUBY.replace(r#""retry":true"#, r#""retry":1"#));
    let claimed = site.claim();
    site.end(&claimed, Ending::Failed(error()), NOW);
    let (text, at) = site.filed("retry").remove(0);
    assert_eq!(at, 1_800_000_015.0);
    let plain = OF_RUBY.replace(r#""retry":true"#, r#""retry":1"#);
    let plain = plain.trim_end_matches('}');
    let failed =
        r#","error_message":"ValueError: no","error_class":"ValueError","failed_at":1800000000.0,"retry_count":0}"#;
    assert_eq!(text, format!("{plain}}}{failed}"), "all else to the byte");
    assert_eq!(site.store.look_after(&KEEP, 100, &[], &[], NOW + 14_999).unwrap().next_due, Some(NOW + 15_000));
    assert_eq!(site.store.look_after(&KEEP, 100, &[], &[], NOW + 15_000).unwrap().staged, 1);
    let again = site.round(1, Vec::new(), NOW + 15_000).claimed.remove(0);
    assert_eq!((again.attempt, again.attempts_max), (2, 2));
    site.end(&again, Ending::Failed(error()), NOW + 16_000);
    let (text, at) = site.filed("dead").remove(0);
    assert_eq!(at, 1_800_000_016.0);
    let dead: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&dead["retry_count"], &dead["retried_at"]), (&json!(1), &json!(1_800_000_016.0)));
    assert_eq!(dead["cattr"], json!({"user": 7}));
    assert_eq!(site.connection.get::<_, i64>(site.key("stat:failed")).unwrap(), 2);
    // By hand: as Sidekiq does it.
    assert!(site.store.change(&again.id, Change::Retry, NOW + 17_000).unwrap());
    assert_eq!((site.filed("dead").len(), site.list("queue:default").len()), (0, 1));
}

/// A client may give an id twice, and even the same job.
/// As Rails writes them.
#[test]
fn a_job_of_active_job_is_that_of_its_class_and_its_wrapper_stays() {
    let Some(mut site) = site() else { return };
    for class in ["Sidekiq::ActiveJob::Wrapper", "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper"] {
        let wrapper = format!(
            r#""class":"{class}","wrapped":"Mail::WelcomeJob","args":[{{"job_class":"Mail::WelcomeJob","job_id":"2b8a4a5e","arguments":[7,{{"language":"de","_aj_ruby2_keywords":["language"]}}],"executions":0,"locale":"en"}}]"#
        );
        site.push(&format!(r#"{{"retry":3,"queue":"default",{wrapper},"jid":"b4a577edbccf1d805744efa9"}}"#));
        let claimed = site.claim();
        assert_eq!(claimed.tool, "Mail::WelcomeJob");
        assert_eq!(claimed.arguments, r#"{"args":[7],"kwargs":{"language":"de"}}"#);
        site.end(&claimed, Ending::Failed(error()), NOW);
        let (text, _) = site.filed("retry").remove(0);
        assert!(text.contains(&wrapper), "{text}");
        let found = site.store.get(&claimed.id).unwrap().unwrap();
        assert_eq!((found.tool.as_str(), found.state), ("Mail::WelcomeJob", State::Scheduled));
        let refused = site.store.change(&claimed.id, Change::RetryWith(r#"{"args":[],"kwargs":{}}"#), NOW).unwrap_err();
        assert!(refused.to_string().contains("its arguments are ActiveJob's"), "{refused}");
        assert!(site.store.change(&claimed.id, Change::Delete, NOW).unwrap());
    }
}

#[test]
fn two_jobs_with_one_id_run_once_each() {
    let Some(mut site) = site() else { return };
    let other = OF_RUBY.replace("\"args\":[", "\"args\":[77,");
    assert_ne!(other, OF_RUBY);
    for text in [OF_RUBY, OF_RUBY, &other] {
        site.push(text);
    }
    let claimed = site.round(9, Vec::new(), NOW).claimed;
    let ids: Vec<_> = claimed.iter().map(|job| job.id.clone()).collect();
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 3, "{ids:?}");
    assert_eq!(site.store.renew(&runner(), &ids, NOW).unwrap(), Some(Renewed::default()), "all three are its own");
    for job in &claimed {
        site.end(job, Ending::Returned("null".to_owned()), NOW);
    }
    site.store.renew(&runner(), &[], NOW).unwrap();
    assert!(site.round(9, Vec::new(), NOW).claimed.is_empty());
    assert_eq!(site.list("queue:backup::host:7:abc::default").len(), 0);
}

#[test]
fn a_retry_has_a_queue_of_its_own() {
    let Some(mut site) = site() else { return };
    site.push(&OF_RUBY.replace("{\"retry\"", "{\"retry_queue\":\"low\",\"retry\""));
    let claimed = site.claim();
    site.end(&claimed, Ending::Failed(error()), NOW);
    site.store.look_after(&KEEP, 100, &[], &[], NOW + 60_000).unwrap();
    assert_eq!((site.list("queue:default").len(), site.list("queue:low").len()), (0, 1));
}

#[test]
fn what_a_job_says_of_its_end_is_followed() {
    let Some(mut site) = site() else { return };
    site.push(&OF_RUBY.replace(r#""retry":true"#, r#""retry":false,"dead":false"#));
    let claimed = site.claim();
    assert_eq!(claimed.attempts_max, 1);
    site.end(&claimed, Ending::Failed(error()), NOW);
    assert!(site.filed("dead").is_empty() && site.store.get(&claimed.id).unwrap().is_none());
    site.push(&OF_RUBY.replace(r#""queue":"default","#, ""));
    let claimed = site.claim();
    site.end(&claimed, Ending::Failed(error()), NOW);
    assert!(site.filed("retry")[0].0.contains(r#""queue":"default""#), "it comes back to where it was");
}

#[test]
fn what_is_no_job_is_dead_as_it_came() {
    let Some(mut site) = site() else { return };
    for text in ["{no json", "[]", "\"\"", r#"{"class":"A","args":7,"jid":"x"}"#] {
        site.push(text);
    }
    site.push(OF_RUBY);
    let key = site.key("schedule");
    site.connection.zadd::<_, _, _, ()>(key, "also none", 1.0).unwrap();
    assert_eq!(site.round(9, Vec::new(), NOW).claimed.len(), 1);
    site.store.look_after(&KEEP, 100, &[], &[], NOW).unwrap();
    let dead: HashSet<_> = site.filed("dead").into_iter().map(|(text, _)| text).collect();
    assert_eq!(dead.len(), 5);
    assert!(dead.contains("{no json") && dead.contains("also none"));
    assert_eq!((site.list("queue:default").len(), site.list("queue:backup::host:7:abc::default").len()), (0, 1));
}

#[test]
fn the_next_attempt_gets_the_checkpoint() {
    let Some(mut site) = site() else { return };
    site.push(OF_RUBY);
    let claimed = site.claim();
    let noted = Noted { id: claimed.id.clone(), attempt: 1, checkpoint: Some("[1]".to_owned()), progress: None };
    let settled = vec![settle(&claimed, Ending::Snoozed { ms: 5 }, NOW, 0.0)];
    site.store.round(&runner(), &Report { noted: vec![noted], settled, keep: None }, &Want::default(), NOW).unwrap();
    assert_eq!((site.filed("retry").len(), site.filed("schedule").len()), (0, 1), "it has not failed");
    site.store.look_after(&KEEP, 100, &[], &[], NOW + 5).unwrap();
    let again = site.claim();
    assert_eq!((again.checkpoint.as_deref(), again.attempt), (Some("[1]"), 1));
}

#[test]
fn a_cancelled_job_does_not_run_again() {
    let Some(mut site) = site() else { return };
    site.push(OF_RUBY);
    let waits = site.store.enqueue(&[job()], NOW).unwrap().remove(0).id;
    assert!(site.store.change(&waits, Change::Cancel, NOW).unwrap());
    assert!(site.store.get(&waits).unwrap().is_none());
    let claimed = site.claim();
    assert!(site.store.change(&claimed.id, Change::Cancel, NOW).unwrap());
    let held = [claimed.id.clone()];
    assert_eq!(
        site.store.renew(&runner(), &held, NOW).unwrap(),
        Some(Renewed { cancelled: held.to_vec(), lost: vec![] })
    );
    site.end(&claimed, Ending::Failed(error()), NOW);
    assert!(site.filed("retry").is_empty() && site.store.get(&claimed.id).unwrap().is_none());
}

#[test]
fn a_runner_is_seen_as_a_process() {
    let Some(mut site) = site() else { return };
    site.push(OF_RUBY);
    let claimed = site.claim();
    site.store.renew(&runner(), std::slice::from_ref(&claimed.id), NOW).unwrap().unwrap();
    let processes: Vec<String> = site.connection.smembers(site.key("processes")).unwrap();
    assert_eq!(processes, ["host:7:abc"]);
    let fields: BTreeMap<String, String> = site.connection.hgetall(site.key("host:7:abc")).unwrap();
    let info: Value = serde_json::from_str(&fields["info"]).unwrap();
    assert_eq!((&info["hostname"], &info["pid"], &info["identity"]), (&json!("host"), &json!(7), &json!("host:7:abc")));
    assert_eq!((fields["busy"].as_str(), fields["quiet"].as_str()), ("1", "false"));
    let work: BTreeMap<String, String> = site.connection.hgetall(site.key("host:7:abc:work")).unwrap();
    let work: Value = serde_json::from_str(&work[&claimed.id]).unwrap();
    assert_eq!((work["payload"].as_str(), &work["run_at"]), (Some(OF_RUBY), &json!(1_800_000_000)));
    assert_eq!(site.filed("heartbeats"), [("host:7:abc".to_owned(), 1_800_000_000.0)]);
    site.store.leave(&runner()).unwrap();
    assert!(site.connection.smembers::<_, Vec<String>>(site.key("processes")).unwrap().is_empty());
}

#[test]
fn what_the_format_has_no_place_for_is_refused() {
    let Some(site) = site() else { return };
    let named = RawValue::from_string(r#"{"args":[],"kwargs":{"a":1}}"#.to_owned()).unwrap();
    let refused = [
        NewJob { arguments: named, ..job() },
        NewJob { priority: 1, ..job() },
        NewJob { unique: Some("u".to_owned()), ..job() },
        NewJob { key: Some("k".to_owned()), ..job() },
        NewJob { result_ms: 1, ..job() },
    ];
    for one in refused {
        assert!(matches!(site.store.enqueue(&[job(), one], NOW), Err(StoreError::Refused(_))));
    }
    assert_eq!(site.store.queues().unwrap(), [], "all of them, or none");
}

#[test]
fn every_job_is_claimed_once_by_many_runners() {
    let Some(site) = site() else { return };
    site.store.enqueue(&vec![job(); 2000], NOW).unwrap();
    let url = &site.url;
    let claimed: Vec<String> = thread::scope(|scope| {
        let runners: Vec<_> = (0..4)
            .map(|nr| {
                scope.spawn(move || {
                    let store = stores::open(url).unwrap();
                    let runner = Runner::new(format!("host:1:{nr}"), Duration::from_secs(30));
                    let want = Want { limit: 7, queues: vec!["default".to_owned()] };
                    let (mut mine, mut report) = (Vec::new(), Report::default());
                    loop {
                        let round = store.round(&runner, &report, &want, NOW).unwrap();
                        assert!(round.lost.is_empty());
                        if round.claimed.is_empty() {
                            return mine;
                        }
                        let end = |job| settle(job, Ending::Returned("1".to_owned()), NOW, 0.0);
                        report.settled = round.claimed.iter().map(end).collect();
                        mine.extend(round.claimed.into_iter().map(|job| job.id));
                    }
                })
            })
            .collect();
        runners.into_iter().flat_map(|runner| runner.join().unwrap()).collect()
    });
    assert_eq!((claimed.len(), claimed.iter().collect::<HashSet<_>>().len()), (2000, 2000));
    assert_eq!(site.store.queues().unwrap().iter().map(|queue| queue.available + queue.running).sum::<u64>(), 0);
}
