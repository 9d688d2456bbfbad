//! A store whose server sentinels choose.

use std::collections::BTreeSet;
use std::time::Duration;

use clutch_jobs::job::State;
use clutch_jobs::store::{Enqueued, Filter, StoreError};
use clutch_jobs::stores;
use redis::{Connection, Value};

use super::server::Server;
use super::{NOW, done, is_unavailable, is_unusable, job, round, until_done};

/// The users' password is "right", that of the sentinels "watch".
const PASSWORDS: [&str; 4] = ["--requirepass", "right", "--masterauth", "right"];

fn replica(primary: &Server) -> Option<Server> {
    let port = primary.port.to_string();
    let mut flags = vec!["--replicaof", "127.0.0.1", &port, "--repl-diskless-sync-delay", "0"];
    flags.extend(PASSWORDS);
    Server::with_port(&flags)
}

fn sentinel(primary: &Server) -> Option<Server> {
    Server::sentinel(&format!(
        "requirepass watch\nsentinel monitor main 127.0.0.1 {} 1\nsentinel auth-pass main right\n\
         sentinel down-after-milliseconds main 300\nsentinel failover-timeout main 5000\n",
        primary.port
    ))
}

fn ids_of(jobs: &[Enqueued]) -> BTreeSet<String> {
    jobs.iter().map(|job| job.id.clone()).collect()
}

/// Returns when a replica has all that was written.
fn replicate(connection: &mut Connection) {
    redis::cmd("SET").arg("written").arg(1).exec(connection).unwrap();
    let replicas: u32 = redis::cmd("WAIT").arg(1).arg(30_000).query(connection).unwrap();
    assert_eq!(replicas, 1);
}

#[test]
fn a_failover_is_followed_and_loses_nothing_that_was_replicated() {
    let Some(mut primary) = Server::with_port(&PASSWORDS) else { return };
    let (mut connection, replica) = (primary.connect_with("right"), replica(&primary).unwrap());
    replicate(&mut connection);
    let sentinel = sentinel(&primary).unwrap();
    let mut ask = sentinel.connect_with("watch");
    until_done(|| match redis::cmd("SENTINEL").arg("REPLICAS").arg("main").query(&mut ask).unwrap() {
        Value::Array(replicas) if !replicas.is_empty() => Ok(()),
        _ => Err(StoreError::Unavailable { store: "sentinel".to_owned(), reason: "it knows no replica".to_owned() }),
    });

    // Of the sentinels, the first is gone.
    let sentinels = format!("127.0.0.1:1,127.0.0.1:{}", sentinel.port);
    let store = stores::open(&format!("redis+sentinel://:right@{sentinels}/main?sentinel_password=watch")).unwrap();
    assert_eq!(store.name(), format!("redis+sentinel://{sentinels}/main/0"));
    let mut ids = ids_of(&store.enqueue(&[job(), job(), job()], NOW).unwrap());
    let claimed = round(&*store, 1, Vec::new()).unwrap().claimed;
    let mut watch = store.watch().unwrap();
    assert!(watch.wait(Duration::from_secs(30)).unwrap());
    replicate(&mut connection);

    primary.stop();
    assert!(watch.wait(Duration::from_secs(30)).is_err(), "whoever waits is told");
    let ended = || claimed.iter().map(done).collect::<Vec<_>>();
    assert!(is_unavailable(round(&*store, 1, ended())), "nobody is the primary yet");
    let next = until_done(|| round(&*store, 1, ended()));
    assert_eq!((next.lost.len(), next.claimed.len()), (0, 1), "the new primary knows who had claimed it");
    ids.extend(ids_of(&store.enqueue(&[job()], NOW).unwrap()));
    let jobs = store.list(&Filter { limit: 9, ..Filter::default() }).unwrap();
    assert_eq!(jobs.iter().map(|job| job.id.clone()).collect::<BTreeSet<_>>(), ids);
    assert_eq!(store.get(&claimed[0].id).unwrap().unwrap().state, State::Completed);
    assert!(store.watch().unwrap().wait(Duration::from_secs(30)).unwrap());
    redis::cmd("SET").arg("written").arg(2).exec(&mut replica.connect_with("right")).unwrap();
}

#[test]
fn what_sentinels_do_not_know_or_do_not_tell_is_final() {
    let Some(primary) = Server::with_port(&PASSWORDS) else { return };
    let sentinel = sentinel(&primary).unwrap();
    let open = |rest: &str| stores::open(&format!("redis+sentinel://:right@127.0.0.1:{}/{rest}", sentinel.port));
    for (rest, reason) in
        [("other?sentinel_password=watch", "no sentinel knows the primary"), ("main?sentinel_password=x", "password")]
    {
        let error = open(rest).err().unwrap();
        assert!(error.to_string().contains(reason), "{error}");
        assert!(is_unusable::<()>(Err(error)));
    }
    drop(sentinel);
    let store = stores::open(&format!("redis+sentinel://:right@127.0.0.1:1,127.0.0.1:{}/main", primary.port));
    assert!(store.is_err(), "a server is no sentinel");
}

#[test]
fn sentinels_that_name_a_replica_are_asked_again() {
    let Some(primary) = Server::with_port(&PASSWORDS) else { return };
    let sentinel = sentinel(&primary).unwrap();
    let url = format!("redis+sentinel://:right@127.0.0.1:{}/main?sentinel_password=watch", sentinel.port);
    let store = stores::open(&url).unwrap();
    let mut connection = primary.connect_with("right");
    redis::cmd("REPLICAOF").arg("127.0.0.1").arg("1").exec(&mut connection).unwrap();
    for _ in 0..2 {
        let error = store.enqueue(&[job()], NOW).unwrap_err();
        assert!(error.to_string().contains("replica"), "{error}");
        assert!(is_unavailable::<()>(Err(error)));
    }
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut connection).unwrap();
    store.enqueue(&[job()], NOW).unwrap();
}
