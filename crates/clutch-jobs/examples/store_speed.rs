//! Measures a store: `cargo run --release -p clutch-jobs --example store_speed -- redis://localhost 100000`.
//!
//! The program enqueues in batches, claims and settles in rounds, and asks how long an idle runner takes to notice a
//! job. The store should be empty, and is not afterwards.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program for people, which ends when something is wrong"
)]

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use clutch_jobs::job::{Ending, NewJob, now, settle};
use clutch_jobs::store::{Report, Runner, Store, Want};
use clutch_jobs::stores;
use serde_json::value::RawValue;

const LEASE: Duration = Duration::from_secs(30);

fn job() -> NewJob {
    NewJob {
        attempts_max: 25,
        ..NewJob::new(
            "speed",
            "mail.send",
            RawValue::from_string(r#"{"args":[1,"somebody@example.com"],"kwargs":{}}"#.to_owned()).unwrap(),
        )
    }
}

fn want(limit: usize) -> Want {
    Want { limit, queues: vec!["speed".to_owned()] }
}

fn rate(what: &str, jobs: usize, since: Instant) {
    let seconds = since.elapsed().as_secs_f64();
    println!("{what:<42} {:>9.0} jobs/s  {:>7.2} us/job", jobs as f64 / seconds, seconds * 1e6 / jobs as f64);
}

fn enqueue(store: &dyn Store, jobs: usize, batch: usize) {
    let (since, batch_of) = (Instant::now(), vec![job(); batch]);
    for _ in 0..jobs / batch {
        store.enqueue(&batch_of, now()).unwrap();
    }
    rate(&format!("enqueue, {batch} at a time"), jobs / batch * batch, since);
}

/// Settles what it has and claims the next, as a runner does.
fn drain(store: &dyn Store, jobs: usize, limit: usize) {
    let mut runner = Runner::new(format!("speed:{limit}"), LEASE);
    let (since, mut report, mut done) = (Instant::now(), Report::default(), 0);
    while done < jobs {
        runner.round += 1;
        let round = store.round(&runner, &report, &want(limit), now()).unwrap();
        assert!(round.lost.is_empty() && (!round.claimed.is_empty() || !report.settled.is_empty()), "it is empty");
        done += report.settled.len();
        let end = |job| settle(job, Ending::Returned("null".to_owned()), now(), 0.5);
        report.settled = round.claimed.iter().map(end).collect();
    }
    rate(&format!("claim and settle, {limit} a round"), done, since);
    store.round(&runner, &report, &Want::default(), now()).unwrap();
}

const CLAIMS: usize = 50;

/// Claims of ten, with so many that wait.
fn claim(store: &dyn Store, waiting: usize) {
    let runner = Runner::new("speed:claim".to_owned(), LEASE);
    let mut times = Vec::new();
    for _ in 0..CLAIMS {
        let since = Instant::now();
        let round = store.round(&runner, &Report::default(), &want(10), now()).unwrap();
        times.push(since.elapsed());
        assert_eq!(round.claimed.len(), 10);
    }
    times.sort();
    println!("claim of 10 with {waiting:>7} waiting: median {:?}, longest {:?}", times[CLAIMS / 2], times[CLAIMS - 1]);
}

/// From an enqueue to its claim by a runner that waited for news.
fn latency(store: &Arc<dyn Store>) {
    let (told, claimed) = channel();
    let of_runner = store.clone();
    thread::spawn(move || {
        let runner = Runner::new("speed:idle".to_owned(), LEASE);
        let mut watch = of_runner.watch().unwrap();
        loop {
            let round = of_runner.round(&runner, &Report::default(), &want(10), now()).unwrap();
            if !round.claimed.is_empty() && told.send(Instant::now()).is_err() {
                return;
            }
            watch.wait(Duration::from_secs(1)).unwrap();
        }
    });
    let mut times = Vec::new();
    for _ in 0..500 {
        let since = Instant::now();
        store.enqueue(&[job()], now()).unwrap();
        times.push(claimed.recv().unwrap() - since);
    }
    times.sort();
    println!("enqueue until an idle runner has it: median {:?}, p99 {:?}", times[250], times[495]);
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().expect("the URL of an empty store");
    let jobs: usize = arguments.next().map_or(100_000, |jobs| jobs.parse().unwrap());
    let store = stores::open(&url).unwrap();
    for batch in [1, 10, 100, 1000] {
        enqueue(&*store, if batch == 1 { jobs / 10 } else { jobs }, batch);
    }
    for limit in [10, 100, 1000] {
        drain(&*store, jobs, limit);
    }
    while let Some(queue) = store.queues().unwrap().first().filter(|queue| queue.available > 0) {
        drain(&*store, queue.available as usize, 1000);
    }
    latency(&store);
    let mut waiting = 0;
    for upto in [1000, jobs, 10 * jobs] {
        enqueue(&*store, upto - waiting, 500);
        claim(&*store, upto);
        waiting = upto - 10 * CLAIMS;
    }
}
