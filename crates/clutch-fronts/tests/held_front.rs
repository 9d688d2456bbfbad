//! `dispatch = "connection"`: what a front does with connections that workers hold.

mod support;

use std::time::Duration;

use clutch_fronts::config::{ConnectionConfig, ServeConfig};
use clutch_fronts::held::ledger::State;
use clutch_fronts::held::message::ToFront;

use support::client::Client;
use support::held_house::{House, answer_call, get, serve};
use support::holding::{Heard, Holding, response};
use support::house::connection;
use support::lost;

#[test]
fn a_worker_answers_what_comes_by_a_connection() {
    let house = House::new();
    let (_worker, mut holding) = house.worker();
    let mut client = house.asking("/first");
    let passed = holding.next_pass();
    assert_eq!(passed.bytes, get("/first"));
    assert_eq!(passed.client.0, "127.0.0.1");
    holding.begin(passed.place);
    holding.answer(passed.place, "one");
    assert_eq!(client.response().body, b"one");
    client.send(&get("/second"));
    let place = holding.next_request(passed.place, &get("/second"));
    holding.answer(place, "two");
    assert_eq!(client.response().body, b"two");
    client.send(&get("/last"));
    let place = holding.next_request(place, &get("/last"));
    holding.write(place, &response("three"));
    holding.close(place);
    assert_eq!(client.response().body, b"three");
    assert_eq!(client.rest(), b"", "the front closes its copy");
}

#[test]
fn what_a_worker_hands_back_is_answered_by_the_pool() {
    let house = House::new();
    let (mut worker, mut holding) = house.worker();
    let mut client = house.asking("/upload");
    let passed = holding.next_pass();
    holding.begin(passed.place);
    holding.hand_back(passed.place, &passed.bytes);
    answer_call(&mut worker, "/upload", "by the pool");
    assert_eq!(client.response().body, b"by the pool");
    client.send(&get("/next"));
    answer_call(&mut worker, "/next", "too");
    assert_eq!(client.response().body, b"too");
}

#[test]
fn a_connection_that_is_handed_back_at_rest_is_passed_again() {
    let house = House::new();
    let (_worker, mut holding) = house.worker();
    let mut client = house.asking("/first");
    let passed = holding.next_pass();
    holding.begin(passed.place);
    holding.answer(passed.place, "one");
    assert_eq!(client.response().body, b"one");
    assert!(holding.ledger.hand_back(passed.place));
    holding.hand_back(passed.place, b"");
    client.send(&get("/second"));
    let again = holding.next_pass();
    assert_eq!(again.bytes, get("/second"));
    holding.begin(again.place);
    holding.answer(again.place, "two");
    assert_eq!(client.response().body, b"two");
}

#[test]
fn requests_that_are_not_plain_are_the_pools() {
    let house = House::new();
    let (mut worker, _holding) = house.worker();
    let mut client = house.client();
    client.send(b"GET /old HTTP/1.0\r\nHost: a\r\n\r\n");
    answer_call(&mut worker, "/old", "one");
    assert_eq!(client.response().body, b"one");
    let mut client = house.client();
    client.send(b"POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    let call = worker.next_call();
    drop((client, call));
}

#[test]
fn a_request_that_comes_in_parts_is_passed_when_it_is_whole() {
    let house = House::new();
    let (_worker, mut holding) = house.worker();
    let mut client = house.client();
    let request = get("/parts");
    // The first part is read before the rest comes, as the second client shows, which comes after it.
    client.send(&request[..10]);
    let other = house.asking("/other");
    assert_eq!(holding.next_pass().bytes, get("/other"));
    client.send(&request[10..]);
    assert_eq!(holding.next_pass().bytes, request);
    drop(other);
}

#[test]
fn a_client_that_does_not_finish_its_head_is_cut_off() {
    let serve = ServeConfig { connection: ConnectionConfig { head_timeout_ms: 100, ..connection() }, ..serve() };
    let house = House::with(serve);
    let (_worker, _holding) = house.worker();
    let mut client = house.client();
    client.send(b"GET / HTTP/1.1\r\nHost");
    assert_eq!(client.rest(), b"");
}

#[test]
fn an_idle_client_is_cut_off_in_time() {
    let serve = ServeConfig { connection: ConnectionConfig { keep_alive_ms: 100, ..connection() }, ..serve() };
    let house = House::with(serve);
    let (_worker, mut holding) = house.worker();
    assert_eq!(house.client().rest(), b"", "one that says nothing");
    let mut client = house.asking("/");
    let passed = holding.next_pass();
    holding.begin(passed.place);
    holding.answer(passed.place, "one");
    assert_eq!(client.response().body, b"one");
    assert_eq!(holding.next_taken(), passed.place);
    assert_eq!(client.rest(), b"");
}

#[test]
fn the_worker_that_holds_the_fewest_gets_the_next() {
    let house = House::new();
    let (mut first, mut second) = (house.worker(), house.worker());
    let clients: Vec<Client> = (0..6).map(|_| house.asking("/")).collect();
    for (_, holding) in [&mut first, &mut second] {
        for _ in 0..3 {
            let passed = holding.next_pass();
            holding.begin(passed.place);
        }
    }
    drop(clients);
}

#[test]
fn a_worker_that_has_less_to_do_gets_the_next_though_it_holds_more() {
    let house = House::new();
    let (mut first, mut second) = (house.worker(), house.worker());
    let mut clients: Vec<Client> = (0..2).map(|_| house.asking("/")).collect();
    let busy = first.1.next_pass();
    first.1.begin(busy.place);
    let passed = second.1.next_pass();
    second.1.begin(passed.place);
    // The second one has the more connections, and answers.
    for _ in 0..3 {
        clients.push(house.asking("/"));
    }
    let answer_all = |holding: &mut Holding, count: usize| {
        for _ in 0..count {
            let passed = holding.next_pass();
            holding.begin(passed.place);
            holding.answer(passed.place, "one");
        }
    };
    let more = first.1.next_pass();
    first.1.begin(more.place);
    answer_all(&mut second.1, 2);
    second.1.answer(passed.place, "one");
    clients.push(house.asking("/"));
    answer_all(&mut second.1, 1);
    drop(clients);
}

#[test]
fn clients_of_a_dead_worker_are_told_and_those_at_rest_notice_nothing() {
    let house = House::new();
    let (worker, mut dying) = house.worker();
    let (mut busy, mut answering, mut idle) = (house.asking("/busy"), house.asking("/answering"), house.client());
    let mut places = std::collections::HashMap::new();
    idle.send(&get("/idle"));
    for _ in 0..3 {
        let passed = dying.next_pass();
        dying.begin(passed.place);
        places.insert(passed.text()[4..].split(' ').next().expect("a path").to_owned(), passed.place);
    }
    dying.answer(places["/idle"], "one");
    assert_eq!(idle.response().body, b"one");
    dying.write(places["/answering"], "HTTP/1.1 200 OK\r\n");
    let key = worker.key;
    drop((worker, dying));
    drop(house.stage.driver.worker_gone(key, lost(), false));
    assert_eq!(busy.response().status, 502);
    assert_eq!(busy.rest(), b"");
    assert_eq!(answering.rest(), b"HTTP/1.1 200 OK\r\n");
    house.stage.wait_stats(|stats| stats.failed == 2);
    let (_worker, mut holding) = house.worker();
    idle.send(&get("/again"));
    let passed = holding.next_pass();
    assert_eq!(passed.bytes, get("/again"));
    holding.begin(passed.place);
    holding.answer(passed.place, "two");
    assert_eq!(idle.response().body, b"two");
}

#[test]
fn a_request_that_a_dead_worker_has_not_read_is_passed_to_another() {
    let house = House::new();
    let (worker, mut dying) = house.worker();
    let mut client = house.asking("/");
    let unread = dying.next_pass();
    let (_other, mut other) = house.worker();
    // It may be moved before its worker is dead, too.
    assert!(matches!(dying.ledger.state(unread.place), State::Sent | State::Taken));
    let key = worker.key;
    drop((worker, dying));
    drop(house.stage.driver.worker_gone(key, lost(), false));
    let passed = other.next_pass();
    other.begin(passed.place);
    other.answer(passed.place, "here");
    assert_eq!(client.response().body, b"here");
}

#[test]
fn a_worker_that_stands_still_loses_what_it_does_not_read() {
    let house = House::new();
    let (_slow, mut slow) = house.worker();
    let mut client = house.asking("/first");
    let passed = slow.next_pass();
    slow.begin(passed.place);
    slow.answer(passed.place, "one");
    assert_eq!(client.response().body, b"one");
    // At rest with it, and one that it never reads.
    let mut unread = house.asking("/unread");
    slow.next_pass();
    let (_quick, mut quick) = house.worker();
    let moved = quick.next_pass();
    assert_eq!(moved.bytes, get("/unread"));
    quick.begin(moved.place);
    quick.answer(moved.place, "quick");
    assert_eq!(unread.response().body, b"quick");
    slow.next_taken();
    client.send(&get("/second"));
    let moved = quick.next_pass();
    assert_eq!(moved.bytes, get("/second"));
    quick.begin(moved.place);
    quick.answer(moved.place, "quick, too");
    assert_eq!(client.response().body, b"quick, too");
    assert_eq!(slow.next_taken(), passed.place);
}

#[test]
fn a_worker_that_leaves_gets_no_more_and_what_it_hands_back_goes_elsewhere() {
    let house = House::new();
    let (_leaving, mut leaving) = house.worker();
    let mut client = house.asking("/");
    let passed = leaving.next_pass();
    let (_staying, mut staying) = house.worker();
    leaving.begin(passed.place);
    leaving.send(&ToFront::Leaving);
    leaving.hand_back(passed.place, &passed.bytes);
    let passed = staying.next_pass();
    staying.begin(passed.place);
    staying.answer(passed.place, "here");
    assert_eq!(client.response().body, b"here");
    let others = [house.asking("/a"), house.asking("/b")];
    for _ in &others {
        staying.next_pass();
    }
}

#[test]
fn a_stop_closes_what_rests_and_waits_for_what_runs() {
    let House { fronts, stage } = House::new();
    let mut worker = stage.worker(8);
    let mut holding = Holding::of(&mut worker);
    let address = fronts.addresses("serve")[0].clone();
    let (mut idle, mut busy) = (Client::new(&address), Client::new(&address));
    idle.send(&get("/idle"));
    let passed = holding.next_pass();
    holding.begin(passed.place);
    holding.answer(passed.place, "one");
    assert_eq!(idle.response().body, b"one");
    busy.send(&get("/busy"));
    let running = loop {
        match holding.hear() {
            Heard::Pass(passed) => break passed,
            Heard::Taken(place) => holding.ledger.free(place),
        }
    };
    holding.begin(running.place);
    let stopping = std::thread::spawn(move || fronts.stop(Duration::from_secs(60)));
    assert_eq!(idle.rest(), b"", "it is closed at once");
    assert!(holding.ledger.is_wanted_back());
    holding.write(running.place, &response("last"));
    holding.over(running.place);
    holding.ledger.rest(holding.turn(running.place));
    if holding.ledger.hand_back(running.place) {
        holding.hand_back(running.place, b"");
    }
    assert_eq!(busy.response().body, b"last");
    assert_eq!(busy.rest(), b"");
    stopping.join().expect("the stop");
}

#[test]
fn a_stop_without_grace_cuts_off_what_runs() {
    let House { fronts, stage } = House::new();
    let mut worker = stage.worker(8);
    let mut holding = Holding::of(&mut worker);
    let mut client = Client::new(&fronts.addresses("serve")[0]);
    client.send(&get("/"));
    let running = holding.next_pass();
    holding.begin(running.place);
    fronts.stop(Duration::ZERO);
    assert_eq!(client.rest(), b"", "though the worker has it open");
}

#[test]
fn connections_of_wsgi_apps_are_passed_too() {
    let house = House::new();
    let image = serde_json::json!({ "interface": "wsgi" });
    house.stage.driver.update_status(|status| status.image = image);
    let (_worker, mut holding) = house.worker();
    let mut client = house.asking("/");
    let passed = holding.next_pass();
    holding.begin(passed.place);
    holding.answer(passed.place, "here");
    assert_eq!(client.response().body, b"here");
}

#[test]
fn options_that_workers_cannot_keep_turn_it_off() {
    let house = House::with(ServeConfig { connection_requests_max: Some(10), ..serve() });
    let mut worker = house.stage.worker(8);
    let mut client = house.asking("/");
    // No channel comes before it.
    answer_call(&mut worker, "/", "by the pool");
    assert_eq!(client.response().body, b"by the pool");
}
