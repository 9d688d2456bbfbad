//! The http front over real sockets: streams, clients that go away, start and stop.

mod support;

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clutch_fronts::config::ConnectionConfig;
use clutch_pool::pool::facts::WorkCancelled;
use clutch_wire::Failure;
use clutch_wire::frame::STREAM_WINDOW;
use serde_json::json;
use support::client::Client;
use support::house::{ECHO, House, connection, http, limited};
use support::{PATIENCE, Worker, config};

// ---- streams

/// A stream whose first value has been read.
fn streaming(house: &House) -> (Worker, support::Call, Client, Vec<u8>) {
    let mut worker = house.stage.worker(1);
    let mut client = house.start("", "{}");
    let call = worker.next_call();
    worker.chunk(&call, r#"{"n":0}"#);
    let head = client.head();
    assert_eq!((head.status, head.header("content-type")), (200, Some("application/x-ndjson")));
    let mut pieces = Vec::new();
    assert_eq!(client.line(&mut pieces).as_deref(), Some(r#"{"n":0}"#));
    (worker, call, client, pieces)
}

#[test]
fn failure_40_the_first_line_is_there_before_the_second_is_produced() {
    let house = House::new();
    let (mut worker, call, mut client, mut pieces) = streaming(&house);
    for n in 1..5 {
        worker.chunk(&call, &n.to_string());
        assert_eq!(client.line(&mut pieces), Some(n.to_string()));
    }
    worker.end(&call);
    assert_eq!(client.line(&mut pieces), None);
    worker.echo();
    assert_eq!(client.post(ECHO, "", "{}").status, 200);
}

#[test]
fn failure_40_a_producer_that_raises_ends_the_stream_with_its_error_once() {
    let house = House::new();
    let (mut worker, call, mut client, mut pieces) = streaming(&house);
    worker.chunk(&call, "1");
    let message = "no more".to_owned();
    worker.failure(
        &call,
        &Failure::Raised {
            type_name: "E".to_owned(),
            message,
            traceback: String::new(),
            pickled: vec![],
            problem: vec![],
        },
    );
    assert_eq!(client.line(&mut pieces).as_deref(), Some("1"));
    let last: serde_json::Value = serde_json::from_str(&client.line(&mut pieces).expect("a line")).expect("JSON");
    assert_eq!((&last["error"]["type"], &last["error"]["detail"]), (&json!("urn:clutch:raised"), &json!("E: no more")));
    assert_eq!(client.line(&mut pieces), None);
}

#[test]
fn a_worker_that_dies_in_a_stream_ends_it_with_an_error() {
    let house = House::new();
    let (worker, _, mut client, mut pieces) = streaming(&house);
    drop(worker);
    assert!(client.line(&mut pieces).expect("a line").contains("urn:clutch:worker-lost"));
    assert_eq!(client.line(&mut pieces), None);
}

#[test]
fn an_empty_stream_has_no_lines() {
    let house = House::new();
    let mut worker = house.stage.worker(1);
    let mut client = house.start("", "{}");
    let call = worker.next_call();
    worker.end(&call);
    let response = client.response();
    assert_eq!((response.status, response.body.len()), (200, 0));
    assert_eq!(response.header("content-type"), Some("application/x-ndjson"));
}

#[test]
fn failure_39_a_producer_gets_credit_only_as_its_client_reads() {
    let house = House::new();
    let (mut worker, call, mut client, mut pieces) = streaming(&house);
    let value = format!("\"{}\"", "x".repeat(60_000));
    let mut credit = STREAM_WINDOW - 1;
    let mut sent = 1;
    // The client reads nothing: sooner or later all buffers are full and no credit comes.
    while credit > 0 {
        worker.chunk(&call, &value);
        (credit, sent) = (credit - 1, sent + 1);
        let long = Duration::from_millis(if credit == 0 { 500 } else { 0 });
        while let Some(more) = worker.credit_within(&call, long) {
            credit += more;
        }
    }
    assert!(sent < 1000, "{sent} chunks of 60 KB for a client that reads nothing");
    let reader = std::thread::spawn(move || std::iter::from_fn(|| client.line(&mut pieces)).count());
    assert!(worker.expect_credit(&call) > 0, "credit as it reads");
    worker.end(&call);
    assert_eq!(reader.join().expect("the reader"), sent as usize - 1);
}

#[test]
fn failure_67_a_client_that_reads_nothing_of_a_stream_is_cut_off() {
    let house = House::with(config("api"), limited(ConnectionConfig { write_timeout_ms: 300, ..connection() }));
    let (mut worker, call, _client, _) = streaming(&house);
    let value = format!("\"{}\"", "x".repeat(60_000));
    let mut credit = STREAM_WINDOW - 1;
    while credit > 0 {
        worker.chunk(&call, &value);
        credit -= 1;
        while let Some(more) = worker.credit_within(&call, Duration::from_millis(if credit == 0 { 100 } else { 0 })) {
            credit += more;
        }
    }
    worker.expect_cancel(&call);
    worker.end(&call);
    worker.echo();
    assert_eq!(house.post("", "{}").status, 200);
}

#[test]
fn failure_39_a_client_that_goes_away_closes_the_stream() {
    let house = House::new();
    let (mut worker, call, client, _) = streaming(&house);
    drop(client);
    worker.expect_cancel(&call);
    worker.end(&call);
    worker.echo();
    assert_eq!(house.post("", "{}").status, 200);
}

// ---- clients that go away

#[test]
fn a_client_that_goes_away_takes_its_queued_call_along() {
    let house = House::new();
    let client = house.start("", "{}");
    house.stage.wait_stats(|stats| stats.queued == 1);
    drop(client);
    house.stage.wait_event::<WorkCancelled>();
    house.stage.wait_stats(|stats| stats.queued == 0);
}

#[test]
fn a_client_that_goes_away_cancels_its_running_call() {
    let house = House::new();
    let mut worker = house.stage.worker(1);
    let client = house.start("", "{}");
    let call = worker.next_call();
    drop(client);
    worker.expect_cancel(&call);
    worker.result(&call, "1");
    worker.echo();
    assert_eq!(house.post("", "{}").status, 200);
}

// ---- start and stop

#[test]
fn a_stop_lets_requests_end_and_takes_no_more() {
    let house = House::new();
    let mut worker = house.stage.worker(1);
    let mut running = house.start("", "{}");
    let mut idle = house.client();
    let call = worker.next_call();
    let address = house.fronts.address("http").expect("an address");
    let fronts = std::sync::Arc::new(house.fronts);
    let stopping: JoinHandle<()> = std::thread::spawn({
        let fronts = fronts.clone();
        move || fronts.stop(PATIENCE)
    });
    assert!(idle.rest().is_empty());
    let deadline = Instant::now() + PATIENCE;
    while std::net::TcpStream::connect(&address).is_ok() {
        assert!(Instant::now() < deadline, "still accepting");
    }
    worker.result(&call, "1");
    let response = running.response();
    assert_eq!((response.status, response.json()), (200, json!({ "result": 1 })));
    stopping.join().expect("the stop");
    fronts.stop(PATIENCE);
}

#[test]
fn after_the_grace_requests_are_cut_off_and_their_calls_given_up() {
    let house = House::new();
    let mut worker = house.stage.worker(1);
    let mut running = house.start("", "{}");
    let call = worker.next_call();
    house.fronts.stop(Duration::from_millis(50));
    assert!(running.rest().is_empty());
    worker.expect_cancel(&call);
}

#[test]
fn an_address_that_is_taken_is_an_error_that_names_it() {
    let house = House::new();
    let address = house.fronts.address("http").expect("an address");
    let taken = support::serve(&[], "http", Box::new(http(&address)));
    let error = taken.err().expect("an error").to_string();
    assert!(error.contains("fronts.http") && error.contains(&address), "{error}");
}

#[test]
fn a_unix_socket_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = std::env::temp_dir().join(format!("clutch-front-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("http.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a stale socket"));
    let bind = format!("unix:{}", path.display());
    let house = House::with(config("api"), http(&bind));
    house.stage.worker(1).echo();
    let mode = std::fs::metadata(&path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(house.fronts.address("http").as_deref(), Some(bind.as_str()));
    assert_eq!(house.post("", "{}").status, 200);
    assert!(support::serve(&[], "http", Box::new(http(&bind))).is_err());
    assert_eq!(house.post("", "{}").status, 200);
    house.fronts.stop(PATIENCE);
    assert!(!path.exists());
    std::fs::write(&path, "a file of the user").expect("a file");
    assert!(support::serve(&[], "http", Box::new(http(&bind))).is_err());
    assert!(path.exists());
    std::fs::remove_dir_all(&folder).expect("clean");
}
