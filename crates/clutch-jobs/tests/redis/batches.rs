//! Many jobs at a time: all or none, and the server is never busy with them for long.

use clutch_jobs::job::{NewJob, Rate};
use clutch_jobs::store::StoreError;
use clutch_jobs::stores;

use super::server::Server;
use super::{KEEP, NOW, done, enqueue, is_unavailable, job, keys, round, shared};

fn keyed(limit: u32) -> NewJob {
    let key_rate = Some(Rate { count: limit, per_ms: 60_000 });
    NewJob { key: Some("mail".to_owned()), key_limit: limit, key_rate, ..job() }
}

/// Returns how many commands the server has run.
fn commands(server: &Server) -> u64 {
    let about: String = redis::cmd("INFO").arg("commandstats").query(&mut server.connect()).unwrap();
    let calls = about.lines().filter_map(|line| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok());
    calls.sum()
}

#[test]
fn a_large_batch_comes_as_a_whole_and_in_order() {
    let Some((server, store, root)) = shared() else { return };
    let unique = NewJob { unique: Some("u".to_owned()), ..job() };
    let first = enqueue(&*store, std::slice::from_ref(&unique)).remove(0);
    let mut many = vec![NewJob { result_ms: 1, ..job() }; 3000];
    many[2500] = unique;
    many[7] = job();
    let told = store.enqueue(&many, NOW).unwrap();
    assert_eq!(told.iter().filter(|one| !one.is_new).map(|one| &one.id).collect::<Vec<_>>(), [&first]);
    assert!(keys(server, &root).iter().all(|key| !key.starts_with("coming:") && key != "arrivals"));
    let claimed = round(&*store, 9999, Vec::new()).unwrap().claimed;
    assert_eq!(claimed.len(), 3000);
    let ids: Vec<_> = told.iter().filter(|one| one.is_new).map(|one| &one.id).collect();
    assert!(ids.iter().all(|id| claimed.iter().any(|job| job.id == **id)));
    assert_eq!(store.enqueue(&vec![job(); 30_000], NOW).unwrap().len(), 30_000);
    assert_eq!(round(&*store, 99_999, claimed.iter().map(done).collect()).unwrap().claimed.len(), 30_000);
}

/// Whoever enqueued it is gone before all of it has come.
#[test]
fn a_batch_that_was_committed_is_brought_in_by_the_leader() {
    let Some((server, store, root)) = shared() else { return };
    let mut connection = server.connect();
    let entry = |nr: usize| {
        format!(r#"["01ARZ3NDEKTSV4RRFFQ69G{nr:04}","5\ndefault\nt\n1\n\n{{}}\n01ARZ3NDEKTSV4RRFFQ69G{nr:04}"]"#)
    };
    let texts: Vec<_> = ["no JSON".to_owned(), "[1]".to_owned()].into_iter().chain((0..6000).map(entry)).collect();
    for batch in ["committed", "not"] {
        redis::cmd("RPUSH").arg(format!("{root}:coming:{batch}")).arg(&texts).exec(&mut connection).unwrap();
    }
    redis::cmd("ZADD").arg(format!("{root}:arrivals")).arg(5).arg("committed").exec(&mut connection).unwrap();
    let available = || store.queues().unwrap().first().map_or(0, |queue| queue.available);
    let mut looks = 0;
    while available() < 6000 {
        let before = available();
        store.look_after(&KEEP, 100, &[], &[], NOW).unwrap();
        // Else its own program may be at it.
        redis::cmd("ZADD")
            .arg(format!("{root}:arrivals"))
            .arg("XX")
            .arg(5)
            .arg("committed")
            .exec(&mut connection)
            .unwrap();
        looks += 1;
        assert!(available() > before && looks < 9);
    }
    assert!(looks > 1, "in parts");
    store.look_after(&KEEP, 100, &[], &[], NOW).unwrap();
    assert_eq!(available(), 6000);
    assert!(keys(server, &root).contains("coming:not") && !keys(server, &root).contains("coming:committed"));
}

#[test]
fn a_batch_that_is_refused_leaves_nothing_that_lasts() {
    let Some(server) = Server::start(&[]) else { return };
    let store = stores::open(&server.new_url()).unwrap();
    let mut connection = server.connect();
    redis::cmd("SET").arg("{t0}:key:mail").arg("x").exec(&mut connection).unwrap();
    let refused = store.enqueue(&vec![keyed(5); 3000], NOW);
    assert!(matches!(refused, Err(StoreError::Damaged { .. })), "{refused:?}");
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("1").exec(&mut connection).unwrap();
    assert!(is_unavailable(store.enqueue(&vec![NewJob { priority: 1, ..job() }; 3000], NOW)));
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("0").exec(&mut connection).unwrap();
    let coming: Vec<String> = redis::cmd("KEYS").arg("*coming*").query(&mut connection).unwrap();
    for key in coming {
        let expires_s: i64 = redis::cmd("TTL").arg(&key).query(&mut connection).unwrap();
        assert!((1..=600).contains(&expires_s), "{key}: {expires_s}");
    }
    assert_eq!(store.queues().unwrap(), []);
}

/// Once, each job looked at all of its key that might run: a server was busy for minutes.
#[test]
fn what_a_job_costs_does_not_depend_on_the_limit_of_its_key() {
    let mut costs = Vec::new();
    for limit in [10, 2000] {
        let Some(server) = Server::start(&[]) else { return };
        let store = stores::open(&server.new_url()).unwrap();
        store.enqueue(&vec![keyed(limit); 3000], NOW).unwrap();
        let later = NewJob { scheduled_at: Some(NOW + 1), ..keyed(limit) };
        store.enqueue(&vec![later; 1000], NOW).unwrap();
        store.look_after(&KEEP, 1000, &[], &[], NOW + 1).unwrap();
        let claimed = round(&*store, 10, Vec::new()).unwrap().claimed;
        round(&*store, 0, claimed.iter().map(done).collect()).unwrap();
        costs.push(commands(&server));
    }
    assert!(costs[1] < costs[0] + costs[0] / 4, "{costs:?}");
}
