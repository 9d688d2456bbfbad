//! The tcp front over real sockets: who holds a connection when, and what its peer sees.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use clutch_fronts::config::TcpConfig;
use clutch_host::Fronts;
use clutch_pool::config::PoolConfig;
use clutch_pool::pool::facts::{WorkCancelled, WorkDrained};
use clutch_pool::pool::state::Hold;
use support::{Call, PATIENCE, Stage, Worker, config};

struct House {
    stage: Stage,
    fronts: Fronts,
}

fn start(stage: &Stage, pool: &str, connections_max: usize) -> clutch_host::Result<Fronts> {
    let bind = vec!["127.0.0.1:0".to_owned(), "127.0.0.1:0".to_owned()];
    let tcp = TcpConfig { pool: pool.to_owned(), bind, connections_max };
    support::serve(&[stage], "tcp", Box::new(tcp))
}

impl House {
    fn new() -> House {
        House::with(config("app"), 100)
    }

    fn with(pool: PoolConfig, connections_max: usize) -> House {
        let stage = Stage::new(pool);
        let fronts = start(&stage, "app", connections_max).expect("fronts");
        House { stage, fronts }
    }

    /// Comes in by one of the two addresses.
    fn peer(&self, door: usize) -> TcpStream {
        let peer = TcpStream::connect(&self.fronts.addresses("tcp")[door]).expect("a connection");
        peer.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        peer
    }
}

/// The worker's copy.
fn socket(call: &mut Call) -> TcpStream {
    TcpStream::from(call.descriptor.take().expect("a connection beside the call"))
}

fn begin(worker: &mut Worker) -> (Call, TcpStream) {
    let mut call = worker.next_call();
    worker.say_begun(&call);
    let socket = socket(&mut call);
    (call, socket)
}

fn heard(mut socket: &TcpStream, text: &str) {
    let mut bytes = vec![0; text.len()];
    socket.read_exact(&mut bytes).expect("the text");
    assert_eq!(bytes, text.as_bytes());
}

fn is_at_end(mut socket: &TcpStream) -> bool {
    matches!(socket.read(&mut [0; 1]), Ok(0))
}

#[test]
fn the_accepted_socket_itself_goes_to_the_worker_and_is_its_alone_once_it_has_begun() {
    let house = House::new();
    let mut worker = house.stage.worker(2);
    for door in [0, 1] {
        let mut peer = house.peer(door);
        peer.write_all(b"ping").expect("a write");
        let (call, mut socket) = begin(&mut worker);
        assert_eq!((call.tool.as_str(), call.body.len()), ("", 0), "the app, without arguments");
        heard(&socket, "ping");
        socket.write_all(b"pong").expect("a write");
        heard(&peer, "pong");
        drop(socket);
        assert!(is_at_end(&peer), "no copy is left");
        worker.end(&call);
    }
    house.stage.wait_stats(|stats| (stats.done, stats.failed, stats.sent) == (2, 0, 0));
}

#[test]
fn a_connection_is_not_ended_by_a_worker_that_dies_before_it_begins() {
    let house = House::new();
    let mut first = house.stage.worker(1);
    let mut peer = house.peer(0);
    peer.write_all(b"hello").expect("a write");
    let unbegun = first.next_unbegun();
    assert!(unbegun.descriptor.is_some());
    drop(unbegun);
    drop(first);
    let mut second = house.stage.worker(1);
    let (call, socket) = begin(&mut second);
    heard(&socket, "hello");
    drop(socket);
    assert!(is_at_end(&peer));
    second.end(&call);
    house.stage.wait_stats(|stats| stats.done == 1);
}

#[test]
fn the_peer_sees_the_end_also_where_a_worker_has_a_copy_of_what_was_taken_back() {
    let house = House::new();
    let mut first = house.stage.worker(1);
    let peer = house.peer(0);
    let stale = first.next_unbegun();
    house.stage.driver.hold(first.key, Hold::Stopped, true);
    let mut second = house.stage.worker(1);
    let (_, socket) = begin(&mut second);
    drop(socket);
    drop(second);
    assert!(is_at_end(&peer));
    drop(stale);
}

#[test]
fn handlers_are_told_when_their_worker_is_to_end_and_cut_off_at_the_grace() {
    let house = House::with(PoolConfig { grace_ms: 50, ..config("app") }, 100);
    let mut worker = house.stage.worker(2);
    let _peer = house.peer(0);
    let (call, _socket) = begin(&mut worker);
    house.stage.driver.worker_draining(worker.key);
    worker.expect_end_of_endless();
    worker.expect_cancel(&call);
    house.stage.wait_event::<WorkDrained>();
    worker.end(&call);
    house.stage.wait_stats(|stats| (stats.drained, stats.failed, stats.sent) == (1, 0, 0));
}

#[test]
fn finite_work_of_a_worker_that_is_to_end_is_not_cut_off() {
    let house = House::with(PoolConfig { grace_ms: 50, ..config("app") }, 100);
    let mut worker = house.stage.worker(2);
    let answer = house.stage.submit("echo", "1");
    let finite = worker.next_call();
    let _peer = house.peer(0);
    let (endless, _socket) = begin(&mut worker);
    house.stage.driver.worker_draining(worker.key);
    worker.expect_cancel(&endless);
    worker.end(&endless);
    worker.result(&finite, "1");
    assert_eq!(support::value(&answer), "1");
}

#[test]
fn a_stop_tells_the_handlers_waits_for_them_and_cuts_the_rest_off() {
    let house = House::new();
    let mut worker = house.stage.worker(2);
    let peers = [house.peer(0), house.peer(1)];
    let (ends, first) = begin(&mut worker);
    let (stays, _second) = begin(&mut worker);
    let addresses = house.fronts.addresses("tcp");
    let stopping = std::thread::spawn(move || {
        house.fronts.stop(Duration::from_millis(300));
        house.stage
    });
    worker.expect_end_of_endless();
    for address in &addresses {
        assert!(TcpStream::connect(address).is_err(), "still accepting");
    }
    let name = first.peer_addr().expect("a name");
    drop(first);
    worker.end(&ends);
    let ended = peers.iter().find(|peer| peer.local_addr().expect("a name") == name).expect("its peer");
    assert!(is_at_end(ended));
    worker.expect_cancel(&stays);
    stopping.join().expect("the stop");
}

#[test]
fn beyond_connections_max_nobody_is_accepted_before_somebody_leaves() {
    let house = House::with(config("app"), 1);
    let mut worker = house.stage.worker(8);
    let _peers = [house.peer(0), house.peer(1), house.peer(0)];
    for _ in 0..3 {
        let (call, _socket) = begin(&mut worker);
        let stats = house.stage.pool.stats();
        assert_eq!((stats.sent, stats.queued), (1, 0));
        worker.end(&call);
    }
}

#[test]
fn a_peer_that_breaks_its_connection_while_it_waits_leaves_the_line() {
    let house = House::new();
    let peer = house.peer(0);
    house.stage.wait_stats(|stats| stats.queued == 1);
    drop(peer);
    house.stage.wait_event::<WorkCancelled>();
    house.stage.wait_stats(|stats| stats.queued == 0);
}

#[test]
fn a_pool_that_takes_no_work_closes_what_is_accepted() {
    let house = House::new();
    house.stage.pool.set_quiet(true);
    assert!(is_at_end(&house.peer(0)));
    house.stage.pool.set_quiet(false);
    house.stage.driver.set_failing(Some(support::lost()));
    assert!(is_at_end(&house.peer(1)));
}

#[test]
fn a_pool_that_is_not_there_is_named() {
    let stage = Stage::new(config("app"));
    let error = start(&stage, "ap", 1).err().expect("an error").to_string();
    assert!(error.contains("'ap'"), "{error}");
}
