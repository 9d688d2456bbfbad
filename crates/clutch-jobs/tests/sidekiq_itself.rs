//! Sidekiq itself on one server with Clutch: each runs and sees what the other wrote. Skipped where it is not installed.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests")]

#[path = "redis/server.rs"]
mod server;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use clutch_jobs::job::{Claimed, Ending, JobError, NewJob, now, settle};
use clutch_jobs::store::{Change, Report, Runner, Store, Want};
use clutch_jobs::stores;
use redis::Commands;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use self::server::Server;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/sidekiq").join(name)
}

/// What one of the scripts says.
fn ruby(script: &str, server: &Server) -> String {
    let output = Command::new("ruby").arg(path(script)).arg(server.socket()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn look(server: &Server) -> Value {
    serde_json::from_str(&ruby("look.rb", server)).unwrap()
}

fn start() -> Option<(Server, Arc<dyn Store>)> {
    let version = Command::new("ruby").args(["-r", "sidekiq", "-e", "puts Sidekiq::VERSION"]).output();
    let Some(version) = version.ok().filter(|output| output.status.success()) else {
        println!("skipped: Sidekiq is not installed");
        return None;
    };
    let version = String::from_utf8(version.stdout).unwrap();
    let server = Server::start(&[])?;
    let store = stores::open(&format!(
        "sidekiq+unix://{}?version={}",
        server.socket().display(),
        version.split('.').next().unwrap()
    ))
    .unwrap();
    Some((server, store))
}

fn job(args: &str) -> NewJob {
    NewJob {
        attempts_max: 4,
        ..NewJob::new(
            "default",
            "HardJob",
            RawValue::from_string(format!(r#"{{"args":{args},"kwargs":{{}}}}"#)).unwrap(),
        )
    }
}

fn runner() -> Runner {
    Runner::new("host:7:abc".to_owned(), Duration::from_secs(30))
}

fn claim(store: &dyn Store, limit: usize) -> Vec<Claimed> {
    let want = Want { limit, queues: vec!["default".to_owned()] };
    store.round(&runner(), &Report::default(), &want, now()).unwrap().claimed
}

fn end(store: &dyn Store, job: &Claimed, ending: Ending) {
    let report = Report { settled: vec![settle(job, ending, now(), 0.0)], ..Report::default() };
    assert!(store.round(&runner(), &report, &Want::default(), now()).unwrap().lost.is_empty());
}

fn error() -> JobError {
    let message = "no".to_owned();
    JobError { at: now(), attempt: 1, kind: "ValueError".to_owned(), message, traceback: String::new() }
}

#[test]
fn clutch_runs_what_sidekiq_pushes_and_sidekiq_sees_what_came_of_it() {
    let Some((server, store)) = start() else { return };
    let jid = ruby("push.rb", &server).trim().to_owned();
    let claimed = claim(&*store, 9).remove(0);
    assert_eq!((claimed.id.as_str(), claimed.tool.as_str(), claimed.attempts_max), (jid.as_str(), "HardJob", 4));
    let arguments: Value = serde_json::from_str(&claimed.arguments).unwrap();
    assert_eq!(arguments["args"], json!(["\u{e9} \u{1F98A}", 1.5, {"a": [null]}]));
    assert_eq!(claimed.tags, ["red"]);
    assert!((now() - claimed.created_at).abs() < 600_000);
    end(&*store, &claimed, Ending::Failed(error()));
    // Its retry and what it has for later, as it lists them.
    let seen = look(&server);
    let retried = &seen["retries"][0];
    assert_eq!((&retried["jid"], &retried["retry_count"]), (&json!(jid), &json!(0)));
    assert_eq!((&retried["error"], &retried["args"]), (&json!(["ValueError", "no"]), &arguments["args"]));
    assert_eq!(
        (seen["scheduled"].as_array().unwrap().len(), &seen["processed"], &seen["failed"]),
        (1, &json!(1), &json!(1))
    );
    assert!(store.change(&jid, Change::Retry, now()).unwrap());
    let again = claim(&*store, 9).remove(0);
    end(&*store, &again, Ending::Impossible { error: error(), why: "it says so".into() });
    let seen = look(&server);
    assert_eq!((&seen["dead"][0]["jid"], &seen["retries"]), (&json!(jid), &json!([])));
}

#[test]
fn sidekiq_sees_a_runner_as_one_of_its_processes() {
    let Some((server, store)) = start() else { return };
    let enqueued = store.enqueue(&[job("[1]"), job("[2]")], now()).unwrap();
    let claimed = claim(&*store, 1).remove(0);
    store.renew(&runner(), std::slice::from_ref(&claimed.id), now()).unwrap().unwrap();
    let seen = look(&server);
    assert_eq!(seen["processes"], json!([["host", 7, 1]]));
    assert_eq!((&seen["work"][0][0], &seen["work"][0][1]), (&json!("host:7:abc"), &json!("default")));
    let waiting = &seen["queues"]["default"];
    assert_eq!((waiting.as_array().unwrap().len(), &waiting[0]["jid"]), (1, &json!(enqueued[1].id)));
    assert_eq!(waiting[0]["args"], json!([2]));
}

#[test]
fn sidekiq_runs_what_clutch_enqueues() {
    let Some((server, store)) = start() else { return };
    let id = store.enqueue(&[job("[\"\u{e9}\",{\"a\":1.5}]")], now()).unwrap().remove(0).id;
    let mut sidekiq = Command::new("sidekiq")
        .args(["-c", "1", "-q", "default", "-t", "1", "-r"])
        .arg(path("worker.rb"))
        .env("REDIS_SOCKET", server.socket())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let done: Option<(String, String)> = server.connect().blpop("done", 60.0).unwrap();
    sidekiq.kill().unwrap();
    sidekiq.wait().unwrap();
    let (_, done) = done.expect("it has run within a minute");
    assert_eq!(serde_json::from_str::<Value>(&done).unwrap(), json!([id, ["\u{e9}", {"a": 1.5}]]));
}
