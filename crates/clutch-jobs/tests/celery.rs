//! The format of Celery: what its watch hears. What runs a task is tested with Celery itself (`tests/e2e/celery`).

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "redis/server.rs"]
mod server;

use std::time::Duration;

use clutch_jobs::stores;
use redis::Commands;

/// Less than the interval at which a watch looks without a notice.
const HEARD: Duration = Duration::from_secs(4);
const QUIET: Duration = Duration::from_millis(500);

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
