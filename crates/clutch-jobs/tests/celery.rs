//! The format of Celery: what its watch hears, and which queues are asked. What runs a task is tested with Celery itself (`tests/e2e/celery`).

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "redis/server.rs"]
mod server;

use std::time::Duration;

use clutch_jobs::job::Millis;
use clutch_jobs::store::{Report, Round, Runner, Store, Want};
use clutch_jobs::stores;
use redis::{Commands, Connection};

/// Less than the interval at which a watch looks without a notice.
const HEARD: Duration = Duration::from_secs(4);
const QUIET: Duration = Duration::from_millis(500);
const NOW: Millis = 1_800_000_000_000;

/// Sends a task by `LPUSH`.
fn send(connection: &mut Connection, list: &str, id: &str) {
    let headers = format!(r#"{{"lang":"py","task":"add","id":"{id}"}}"#);
    let properties = format!(r#"{{"delivery_tag":"{id}","delivery_info":{{"exchange":"","routing_key":"q"}}}}"#);
    let text = format!(r#"{{"body":"W10=","headers":{headers},"properties":{properties}}}"#);
    let _: u64 = connection.lpush(list, text).unwrap();
}

/// A round of a runner that was started with one queue.
fn round(store: &dyn Store, runner: &mut Runner) -> Round {
    runner.round += 1;
    let want = Want { limit: 2, queues: vec!["mails".to_owned()] };
    store.round(runner, &Report::default(), &want, NOW).unwrap()
}

fn leased(store: &dyn Store) -> Runner {
    let runner = Runner::new("a".to_owned(), Duration::from_secs(30));
    assert!(store.renew(&runner, &[], NOW).unwrap().is_some());
    runner
}

#[test]
fn queues_that_the_node_has_added_are_asked_at_once() {
    let Some(server) = server::shared() else { return };
    let url = server.new_url_of("celery", "prefix");
    let prefix = url.split_once("prefix=").unwrap().1;
    let (store, mut connection) = (stores::open(&format!("{url}&node=n")).unwrap(), server.connect());
    let mut runner = leased(&*store);
    send(&mut connection, &format!("{prefix}parcels"), "1");
    assert_eq!(round(&*store, &mut runner).again_in, None);
    let _: () =
        connection.set(format!("{prefix}clutch.celery:settings:n"), r#"{"queues": ["mails", "parcels"]}"#).unwrap();
    let heard = round(&*store, &mut runner);
    assert_eq!((heard.claimed.len(), heard.again_in), (0, Some(Duration::ZERO)), "it has asked before it heard");
    let asked = round(&*store, &mut runner);
    let queues: Vec<&str> = asked.claimed.iter().map(|job| job.queue.as_str()).collect();
    assert_eq!((queues, asked.again_in), (vec!["parcels"], None));
}

#[test]
fn a_watch_tells_of_what_comes_into_a_queue_that_was_added_meanwhile() {
    let Some(server) = server::shared() else { return };
    let url = server.new_url_of("celery", "prefix");
    let prefix = url.split_once("prefix=").unwrap().1;
    let (store, mut connection) = (stores::open(&url).unwrap(), server.connect());
    let mut runner = leased(&*store);
    let mut watch = store.watch().unwrap();
    while watch.wait(QUIET).unwrap() {}
    assert!(round(&*store, &mut runner).claimed.is_empty());
    send(&mut connection, &format!("{prefix}mails"), "1");
    assert!(watch.wait(HEARD).unwrap());
}

#[test]
fn a_watch_tells_of_what_is_put_away() {
    let Some(server) = server::shared() else { return };
    let url = server.new_url_of("celery", "prefix");
    let prefix = url.split_once("prefix=").unwrap().1;
    let (store, mut connection) = (stores::open(&url).unwrap(), server.connect());
    for (key, is_list) in [("due", true), ("failing", true), ("scheduled", false)] {
        let key = format!("{prefix}clutch.celery:{key}");
        let mut watch = store.watch().unwrap();
        assert!(!watch.wait(QUIET).unwrap(), "there is nothing");
        if is_list {
            let _: u64 = connection.lpush(&key, "tag").unwrap();
        } else {
            let _: u64 = connection.zadd(&key, "tag", 1).unwrap();
        }
        assert!(watch.wait(HEARD).unwrap(), "{key}");
        let _: u64 = connection.del(&key).unwrap();
    }
}
