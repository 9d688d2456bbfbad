//! The format of Celery: what its watch hears, and which queues are asked. What runs a task is tested with Celery itself (`tests/e2e/celery`).

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "redis/server.rs"]
mod server;

use std::time::Duration;

use clutch_jobs::job::{Claimed, Ending, Millis, settle};
use clutch_jobs::store::{Keep, Report, Round, Runner, Store, Want};
use clutch_jobs::stores;
use redis::{Commands, Connection};

/// Less than the interval at which a watch looks without a notice.
const HEARD: Duration = Duration::from_secs(4);
const QUIET: Duration = Duration::from_millis(500);
const NOW: Millis = 1_800_000_000_000;
const KEEP: Keep =
    Keep { completed: Duration::from_secs(60), cancelled: Duration::from_secs(60), dead: Duration::from_secs(60) };

/// Sends a task by `LPUSH`.
fn send(connection: &mut Connection, list: &str, id: &str) {
    send_as(connection, list, id, id);
}

fn send_as(connection: &mut Connection, list: &str, id: &str, tag: &str) {
    let headers = format!(r#"{{"lang":"py","task":"add","id":"{id}"}}"#);
    let properties = format!(r#"{{"delivery_tag":"{tag}","delivery_info":{{"exchange":"","routing_key":"q"}}}}"#);
    let text = format!(r#"{{"body":"W10=","headers":{headers},"properties":{properties}}}"#);
    let _: u64 = connection.lpush(list, text).unwrap();
}

/// A round of a runner that was started with one queue.
fn round(store: &dyn Store, runner: &mut Runner) -> Round {
    runner.round += 1;
    let want = Want { limit: 2, queues: vec!["mails".to_owned()] };
    store.round(runner, &Report::default(), &want, NOW).unwrap()
}

/// What another program tells of a runner that is gone: that this job has ended.
fn inherited(store: &dyn Store, runner: &mut Runner, job: &Claimed) -> Round {
    runner.round += 1;
    let settled = vec![settle(job, Ending::Returned("null".to_owned()), NOW, 0.5)];
    store.round(runner, &Report { settled, ..Report::default() }, &Want { limit: 0, queues: Vec::new() }, NOW).unwrap()
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

/// A client has sent two with one id: which of them has ended, its successor does not know, and takes none for done.
#[test]
fn of_messages_with_one_id_a_successor_loses_none() {
    let Some(server) = server::shared() else { return };
    let url = server.new_url_of("celery", "prefix");
    let prefix = url.split_once("prefix=").unwrap().1;
    let (store, mut connection) = (stores::open(&url).unwrap(), server.connect());
    let list = format!("{prefix}mails");
    for (id, tag) in [("1", "a"), ("1", "b")] {
        send_as(&mut connection, &list, id, tag);
    }
    let mut runner = leased(&*store);
    let claimed = round(&*store, &mut runner).claimed;
    assert_eq!(claimed.iter().map(|job| job.id.as_str()).collect::<Vec<_>>(), ["1", "1#2"]);
    let successor = stores::open(&url).unwrap();
    let unacked = format!("{prefix}unacked");
    for job in &claimed {
        assert_eq!(inherited(&*successor, &mut runner, job).lost, std::slice::from_ref(&job.id));
    }
    let left: u64 = connection.hlen(&unacked).unwrap();
    assert_eq!(left, 2);
    assert!(inherited(&*store, &mut runner, &claimed[1]).lost.is_empty(), "whoever has claimed it knows");
    assert!(inherited(&*successor, &mut runner, &claimed[0]).lost.is_empty(), "it is the only one by now");
    let left: u64 = connection.hlen(&unacked).unwrap();
    assert_eq!(left, 0);
}

/// A message that a peer took so long ago.
fn taken_by_peer(connection: &mut Connection, prefix: &str, (tag, exchange, routing_key): (&str, &str, &str)) {
    let list = format!("{prefix}sent");
    send(connection, &list, tag);
    let text: String = connection.rpop(&list, None).unwrap();
    let kept = format!(r#"[{text},"{exchange}","{routing_key}"]"#);
    let _: u64 = connection.hset(format!("{prefix}unacked"), tag, kept).unwrap();
    let _: u64 = connection.zadd(format!("{prefix}unacked_index"), tag, NOW / 1000).unwrap();
}

/// How many messages a program that comes later puts back.
fn swept(url: &str, now: Millis) -> usize {
    stores::open(url).unwrap().look_after(&KEEP, 100, &[], &[], now).unwrap().rescued
}

/// An hour, as clients and peers agree on.
const VISIBILITY_MS: Millis = 3_600_000;

/// Also where a broker has stood still, so that nobody could renew: that time is not counted in a lease.
#[test]
fn what_a_runner_has_is_abandoned_when_its_lease_lapses_and_what_a_peer_has_by_its_time() {
    let Some(server) = server::shared() else { return };
    let url = server.new_url_of("celery", "prefix");
    let prefix = url.split_once("prefix=").unwrap().1;
    let (store, mut connection) = (stores::open(&url).unwrap(), server.connect());
    let list = format!("{prefix}mails");
    send(&mut connection, &list, "held");
    let mut runner = leased(&*store);
    assert_eq!(round(&*store, &mut runner).claimed.len(), 1);
    taken_by_peer(&mut connection, prefix, ("taken", "", "mails"));
    assert_eq!(swept(&url, NOW + VISIBILITY_MS - 1000), 0);
    assert_eq!(swept(&url, NOW + VISIBILITY_MS + 1000), 1);
    let back: Vec<String> = connection.lrange(&list, 0, -1).unwrap();
    assert!(back.len() == 1 && back[0].contains("taken"), "{back:?}");
    let held: Vec<String> = connection.hkeys(format!("{prefix}unacked")).unwrap();
    assert_eq!(held, ["held"]);
}

/// Peers take what is not renewed for abandoned, too.
#[test]
fn a_sweep_finds_what_a_peer_has_behind_much_that_waits_and_renews_that() {
    const WAITING: usize = 1500;
    let Some(server) = server::shared() else { return };
    let url = server.new_url_of("celery", "prefix");
    let (prefix, mut connection) = (url.split_once("prefix=").unwrap().1, server.connect());
    let key = |name: &str| format!("{prefix}clutch.celery:{name}");
    for nr in 0..WAITING {
        let tag = format!("waits {nr:04}");
        taken_by_peer(&mut connection, prefix, (&tag, "", "mails"));
        let _: u64 = connection.hset(key("keys"), &tag, format!("{prefix}mails")).unwrap();
        let _: u64 = connection.rpush(key("due"), &tag).unwrap();
    }
    taken_by_peer(&mut connection, prefix, ("zz", "", "mails"));
    let now = NOW + VISIBILITY_MS + 1000;
    assert_eq!(swept(&url, now), 1);
    let index = format!("{prefix}unacked_index");
    let renewed: usize = connection.zcount(&index, now / 1000, "+inf").unwrap();
    let all: usize = connection.zcard(&index).unwrap();
    assert_eq!((renewed, all), (WAITING, WAITING));
}

#[test]
fn an_abandoned_message_goes_back_into_each_queue_of_its_exchange() {
    let Some(server) = server::shared() else { return };
    let url = server.new_url_of("celery", "prefix");
    let (prefix, mut connection) = (url.split_once("prefix=").unwrap().1, server.connect());
    for queue in ["one", "two"] {
        let bound = format!("news\u{6}\u{16}\u{6}\u{16}{queue}");
        let _: u64 = connection.sadd(format!("{prefix}_kombu.binding.shop"), bound).unwrap();
    }
    taken_by_peer(&mut connection, prefix, ("taken", "shop", "news"));
    assert_eq!(swept(&url, NOW + VISIBILITY_MS + 1000), 1);
    let lengths = ["one", "two"].map(|queue| -> u64 { connection.llen(format!("{prefix}{queue}")).unwrap() });
    assert_eq!(lengths, [1, 1]);
}

/// Somebody has put it back, and a peer has it by the same tag.
#[test]
fn what_was_held_and_went_elsewhere_leaves_nothing_that_shields_it() {
    let Some(server) = server::shared() else { return };
    let url = server.new_url_of("celery", "prefix");
    let prefix = url.split_once("prefix=").unwrap().1;
    let (store, mut connection) = (stores::open(&url).unwrap(), server.connect());
    send(&mut connection, &format!("{prefix}mails"), "1");
    let mut runner = leased(&*store);
    let claimed = round(&*store, &mut runner).claimed;
    let _: u64 = connection.hset(format!("{prefix}clutch.celery:keys"), "1", "mails").unwrap();
    let _: u64 = connection.hdel(format!("{prefix}unacked"), "1").unwrap();
    assert!(store.renew(&runner, &[claimed[0].id.clone()], NOW).unwrap().unwrap().lost.len() == 1);
    taken_by_peer(&mut connection, prefix, ("1", "", "mails"));
    assert_eq!(swept(&url, NOW + VISIBILITY_MS + 1000), 1);
}
