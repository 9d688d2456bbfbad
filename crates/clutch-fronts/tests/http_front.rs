//! The http front over real sockets, in front of a pool whose workers are scripted: answers, refusals and limits.

mod support;

use std::time::{Duration, Instant};

use clutch_fronts::config::{ConnectionConfig, HttpConfig};
use clutch_pool::config::PoolConfig;
use clutch_wire::Failure;
use clutch_wire::sys;
use serde_json::{Value, json};
use support::house::{ECHO, House, connection, http, limited};
use support::{PATIENCE, config};

// ---- answers

#[test]
fn a_result_comes_back_as_the_worker_wrote_it() {
    let house = House::echoing();
    let response = house.post("", r#"{"n": 9007199254740993, "none": null}"#);
    assert_eq!(response.status, 200);
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(response.body, br#"{"result":{"n": 9007199254740993, "none": null}}"#);
}

#[test]
fn large_bodies_travel_both_ways() {
    let house = House::echoing();
    let body = json!({ "text": "x".repeat(1 << 20) });
    let response = house.post("", &body.to_string());
    assert_eq!(response.json(), json!({ "result": body }));
}

#[test]
fn a_connection_serves_many_requests_and_pipelined_ones_in_order() {
    let house = House::echoing();
    let mut client = house.client();
    let requests: Vec<u8> = (0..50).flat_map(|n| client.request("POST", ECHO, "", &format!("{{\"n\":{n}}}"))).collect();
    client.send(&requests);
    for n in 0..50 {
        assert_eq!(client.response().json()["result"]["n"], n);
    }
    assert_eq!(client.post(ECHO, "", "{}").status, 200);
}

#[test]
fn chunked_bodies_and_escaped_names_are_read() {
    let house = House::echoing();
    let mut client = house.client();
    let host = client.host.clone();
    let head = format!("POST /pools/%61pi/tools/ech%6F HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n");
    client.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n3\r\n{{\"n\r\n4\r\n\":1}}\r\n0\r\n\r\n").as_bytes());
    assert_eq!(client.response().json(), json!({ "result": { "n": 1 } }));
}

#[test]
fn every_failure_has_its_status_and_type() {
    let text = || "why".to_owned();
    let cases: [(Failure, u16, &str); 7] = [
        (
            Failure::Raised {
                type_name: "ValueError".into(),
                message: text(),
                traceback: text(),
                pickled: vec![1],
                problem: vec![],
            },
            500,
            "raised",
        ),
        (Failure::Encode { type_name: "EncodeError".into(), message: text(), traceback: text() }, 500, "encode"),
        (Failure::BadArguments { message: text(), detail: r#"[{"loc":["n"]}]"#.into() }, 422, "bad-arguments"),
        (Failure::NoSuchTool { message: text() }, 404, "no-such-tool"),
        (Failure::Poisoned { message: text(), deaths: 3 }, 500, "poisoned"),
        (Failure::Config { message: text() }, 503, "config-error"),
        (
            Failure::Raised {
                type_name: "é".into(),
                message: "\u{0}".into(),
                traceback: "".into(),
                pickled: vec![],
                problem: vec![],
            },
            500,
            "raised",
        ),
    ];
    let house = House::new();
    let mut worker = house.stage.worker(1);
    for (failure, status, kind) in cases {
        let mut client = house.start("", "{}");
        let call = worker.next_call();
        worker.failure(&call, &failure);
        let response = client.response();
        assert_eq!((response.status, response.problem().as_str()), (status, kind), "{failure:?}");
    }
}

#[test]
fn a_problem_of_the_tools_own_is_its_answer() {
    let raised = |problem: &[u8]| Failure::Raised {
        type_name: "shop.NoUser".to_owned(),
        message: "no user 7".to_owned(),
        traceback: "line 1".to_owned(),
        pickled: vec![],
        problem: problem.to_vec(),
    };
    let house = House::new();
    let mut worker = house.stage.worker(1);
    let mut answer = |problem: &Value| {
        let mut client = house.start("", "{}");
        let call = worker.next_call();
        worker.failure(&call, &raised(&serde_json::to_vec(problem).expect("JSON")));
        client.response()
    };
    let own =
        json!({ "type": "urn:shop:no-user", "title": "No user", "status": 404, "detail": "no user 7", "user": 7 });
    let response = answer(&own);
    assert_eq!((response.status, response.json()), (404, own.clone()));
    assert_eq!(response.header("content-type"), Some("application/problem+json"));
    for (member, wrong) in
        [("status", json!(200)), ("status", json!(null)), ("status", json!(70_000)), ("type", json!(1))]
    {
        let mut document = own.clone();
        document[member] = wrong;
        let response = answer(&document);
        assert_eq!((response.status, response.json()["type"].clone()), (500, json!("urn:clutch:raised")), "{document}");
    }
}

#[test]
fn an_exception_is_told_with_its_type_message_and_traceback() {
    let house = House::new();
    let mut worker = house.stage.worker(1);
    let mut client = house.start("", "{}");
    let call = worker.next_call();
    let (type_name, message) = ("KeyError".to_owned(), "'x'".to_owned());
    worker.failure(
        &call,
        &Failure::Raised { type_name, message, traceback: "line 1".to_owned(), pickled: vec![], problem: vec![] },
    );
    let document = client.response().json();
    assert_eq!(document["type_name"], "KeyError");
    assert_eq!(document["message"], "'x'");
    assert_eq!(document["traceback"], "line 1");
}

#[test]
fn failure_25_a_worker_that_dies_is_told_to_its_caller_only() {
    let house = House::new();
    let mut worker = house.stage.worker(1);
    let mut running = house.start("", "{}");
    worker.next_call();
    let mut queued = house.start("", r#"{"n":1}"#);
    house.stage.wait_stats(|stats| stats.queued + stats.sent == 2);
    drop(worker);
    let response = running.response();
    assert_eq!((response.status, response.problem().as_str()), (502, "worker-lost"));
    let document = response.json();
    assert_eq!(
        (&document["pid"], &document["signal"], &document["output"]),
        (&json!(42), &json!(9), &json!("last words"))
    );
    house.stage.worker(1).echo();
    assert_eq!(queued.response().status, 200);
}

#[test]
fn failure_19_a_full_queue_refuses_at_once_and_all_accepted_work_finishes() {
    let house = House::with(PoolConfig { queue_limit: Some(2), ..config("api") }, http("127.0.0.1:0"));
    let mut accepted = [house.start("", "{}"), house.start("", "{}")];
    house.stage.wait_stats(|stats| stats.queued == 2);
    let mut client = house.client();
    let asked = Instant::now();
    let response = client.post(ECHO, "", "{}");
    let waited = asked.elapsed();
    assert_eq!((response.status, response.problem().as_str()), (503, "overloaded"));
    assert_eq!(response.header("retry-after"), Some("1"));
    assert!(waited < Duration::from_millis(500), "{waited:?}");
    house.stage.worker(1).echo();
    accepted.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
}

#[test]
fn deadlines_are_answered_on_time_and_say_where() {
    let house = House::new();
    let response = house.post("Clutch-Timeout: 30ms\r\n", "{}");
    assert_eq!((response.status, response.problem().as_str()), (504, "deadline-exceeded"));
    assert_eq!(response.json()["where"], "queue");
    let mut worker = house.stage.worker(1);
    let mut client = house.start("Clutch-Timeout: 0.1s\r\n", "{}");
    let call = worker.next_call();
    assert!(call.deadline_ns <= sys::monotonic_ns() + 100_000_000, "{}", call.deadline_ns);
    let response = client.response();
    assert_eq!((response.status, response.json()["where"].as_str()), (504, Some("running")));
    worker.result(&call, "1");
}

#[test]
fn the_pools_own_deadline_holds_for_calls_that_bring_none() {
    let house = House::with(PoolConfig { deadline_ms: Some(30), ..config("api") }, http("127.0.0.1:0"));
    assert_eq!(house.post("", "{}").status, 504);
}

#[test]
fn larger_priority_goes_first() {
    let house = House::new();
    let mut clients = Vec::new();
    for (n, priority) in [(0, "-9"), (1, "0"), (2, "9")] {
        clients.push(house.start(&format!("Clutch-Priority: {priority}\r\n"), &format!("{{\"n\":{n}}}")));
        house.stage.wait_stats(|stats| stats.queued == n + 1);
    }
    let mut worker = house.stage.worker(1);
    for expected in [2, 1, 0] {
        let call = worker.next_call();
        assert_eq!(call.text(), format!("{{\"n\":{expected}}}"));
        worker.result(&call, "null");
    }
    clients.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
}

#[test]
fn a_pool_that_fails_closes_or_drains_says_so() {
    let house = House::new();
    house.stage.driver.set_failing(Some(Failure::Config { message: "no module named shop".to_owned() }));
    let response = house.post("", "{}");
    assert_eq!((response.status, response.problem().as_str()), (503, "config-error"));
    assert_eq!(response.json()["detail"], "no module named shop");
    house.stage.driver.set_failing(None);
    house.stage.pool.set_quiet(true);
    let response = house.post("", "{}");
    assert_eq!((response.status, response.problem().as_str()), (503, "draining"));
    house.stage.pool.set_quiet(false);
    house.stage.pool.close();
    let response = house.post("", "{}");
    assert_eq!((response.status, response.problem().as_str()), (503, "draining"));
    assert!(response.header("retry-after").is_some());
}

#[test]
fn a_cancelled_call_is_answered() {
    let house = House::new();
    let mut client = house.start("", "{}");
    house.stage.wait_stats(|stats| stats.queued == 1);
    house.stage.pool.cancel_waiting();
    assert_eq!(client.response().problem(), "cancelled");
}

// ---- refused by the head

#[test]
fn hosts_and_origins_that_are_not_its_own_are_refused() {
    let house = House::echoing();
    let mut client = house.client();
    let host = client.host.clone();
    for wrong in ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1"] {
        client.host = wrong.to_owned();
        let response = client.post(ECHO, "", "{}");
        assert_eq!((response.status, response.problem().as_str()), (421, "wrong-host"), "{wrong}");
    }
    client.host = host.replace("127.0.0.1", "localhost");
    assert_eq!(client.post(ECHO, "", "{}").status, 200);
    client.host = host.clone();
    assert_eq!(client.post(ECHO, "Host: evil.example\r\n", "{}").status, 400);
    for wrong in ["http://evil.example", "null", "http://localhost:3000"] {
        let response = client.post(ECHO, &format!("Origin: {wrong}\r\n"), "{}");
        assert_eq!((response.status, response.problem().as_str()), (403, "foreign-origin"), "{wrong}");
    }
    assert_eq!(client.post(ECHO, &format!("Origin: http://{host}\r\n"), "{}").status, 200);
    client
        .send(b"POST /pools/api/tools/echo HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
    assert_eq!(client.response().status, 400);
    client.send(b"POST http://evil.example/pools/api/tools/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.response().status, 421);
}

#[test]
fn without_its_token_nobody_comes_in() {
    let token = Some("a secret".to_owned());
    let house = House::with(config("api"), HttpConfig { token, ..http("127.0.0.1:0") });
    house.stage.worker(1).echo();
    let response = house.post("", "{}");
    assert_eq!((response.status, response.problem().as_str()), (401, "unauthorized"));
    assert_eq!(response.header("www-authenticate"), Some("Bearer"));
    assert_eq!(house.post("Authorization: Bearer a secre\r\n", "{}").status, 401);
    assert_eq!(house.post("Authorization: Bearer a secret\r\n", "{}").status, 200);
}

#[test]
fn what_is_not_a_call_is_refused_by_name() {
    let house = House::echoing();
    let mut client = house.client();
    let cases = [
        ("POST", "/", "method-not-allowed", 405),
        ("POST", "/openapi.json", "method-not-allowed", 405),
        ("POST", "/pools/api/tools", "method-not-allowed", 405),
        ("GET", "/ui", "no-such-path", 404),
        ("POST", "/pools/api", "no-such-path", 404),
        ("POST", "/pools/api/tools/", "no-such-path", 404),
        ("POST", "/pools/api/tools/echo/", "no-such-path", 404),
        ("POST", "/pools/apo/tools/echo", "no-such-pool", 404),
        ("POST", "/pools/api/tools/ecco", "no-such-tool", 404),
        ("POST", "/pools/api/tools/__import__", "no-such-tool", 404),
        ("GET", ECHO, "method-not-allowed", 405),
        ("OPTIONS", ECHO, "method-not-allowed", 405),
    ];
    for (method, path, kind, status) in cases {
        let request = client.request(method, path, "", "{}");
        client.send(&request);
        let response = client.response();
        assert_eq!((response.status, response.problem().as_str()), (status, kind), "{method} {path}");
    }
    let response = client.post("/pools/api/tools/ecco", "", "{}");
    assert_eq!(response.json()["detail"], "no tool 'ecco' in pool 'api'; did you mean 'echo'?");
    let request = client.request("PUT", ECHO, "", "{}");
    client.send(&request);
    assert_eq!(client.response().header("allow"), Some("POST"));
}

#[test]
fn headers_that_cannot_be_understood_are_refused() {
    let house = House::echoing();
    for header in ["Clutch-Timeout: soon", "Clutch-Timeout: 0", "Clutch-Timeout: -1s", "Clutch-Priority: 10"] {
        let response = house.post(&format!("{header}\r\n"), "{}");
        assert_eq!((response.status, response.problem().as_str()), (400, "bad-request"), "{header}");
    }
    let mut client = house.client();
    let host = client.host.clone();
    for media_type in ["", "Content-Type: text/plain\r\n", "Content-Type: application/json; charset=utf-16\r\n"] {
        client.send(
            format!("POST {ECHO} HTTP/1.1\r\nHost: {host}\r\n{media_type}Content-Length: 2\r\n\r\n{{}}").as_bytes(),
        );
        let response = client.response();
        assert_eq!((response.status, response.problem().as_str()), (415, "unsupported-media-type"), "{media_type}");
    }
    assert_eq!(house.post("Content-Encoding: gzip\r\n", "{}").status, 415);
}

#[test]
fn names_that_strangers_ask_for_do_not_fill_the_pool() {
    let house = House::new();
    house.stage.driver.update_status(|status| status.image = serde_json::Value::Null);
    let mut worker = house.stage.worker(1);
    let mut client = house.client();
    for n in 0..1000 {
        let request = client.request("POST", &format!("/pools/api/tools/t{n}"), "", "{}");
        client.send(&request);
        let call = worker.next_call();
        worker.failure(&call, &Failure::NoSuchTool { message: call.tool.clone() });
        assert_eq!(client.response().status, 404);
    }
    assert_eq!(client.post("/pools/api/tools/t1000", "", "{}").problem(), "not-ready");
    house.stage.tools(&["t1000"]);
    worker.echo();
    assert_eq!(client.post("/pools/api/tools/t1000", "", "{}").status, 200);
    assert_eq!(client.post("/pools/api/tools/t1001", "", "{}").problem(), "no-such-tool");
}

// ---- limits

#[test]
fn bodies_beyond_the_limit_are_refused() {
    let house = House::with(config("api"), HttpConfig { body_bytes_max: 1000, ..http("127.0.0.1:0") });
    house.stage.worker(1).echo();
    let fits = format!("\"{}\"", "x".repeat(998));
    assert_eq!(house.post("", &fits).status, 200);
    let response = house.post("", &format!("{fits} "));
    assert_eq!((response.status, response.problem().as_str()), (413, "body-too-large"));
    let response = house.post("", &"x".repeat(3 << 20));
    assert_eq!(response.json()["bytes_max"], 1000);
    let mut client = house.client();
    let host = client.host.clone();
    let head = format!("POST {ECHO} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n");
    client.send(
        format!("{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{}\r\n0\r\n\r\n", 2000, "x".repeat(2000)).as_bytes(),
    );
    assert_eq!(client.response().status, 413);
    client.send(format!("{head}Expect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n").as_bytes());
    assert_eq!(client.response().status, 413);
}

#[test]
fn the_pools_limit_of_payloads_holds_too() {
    let house = House::with(PoolConfig { payload_bytes_max: 10, ..config("api") }, http("127.0.0.1:0"));
    assert_eq!(house.post("", "{\"n\":10000}").status, 413);
}

#[test]
fn slow_heads_and_bodies_are_cut_off() {
    let limits =
        limited(ConnectionConfig { head_timeout_ms: 200, keep_alive_ms: 200, body_timeout_ms: 200, ..connection() });
    let house = House::with(config("api"), limits);
    let mut slow = house.client();
    slow.send(b"POST /pools/api/tools/echo HTTP/1.1\r\nHost: ");
    let said = String::from_utf8(slow.rest()).expect("text");
    assert!(said.is_empty() || said.starts_with("HTTP/1.1 408"), "{said}");
    let mut silent = house.client();
    assert!(silent.rest().len() < 1000);
    let mut slow = house.client();
    let host = slow.host.clone();
    slow.send(
        format!(
            "POST {ECHO} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{{"
        )
        .as_bytes(),
    );
    let response = slow.response();
    assert_eq!((response.status, response.problem().as_str()), (408, "body-too-slow"));
    assert!(slow.rest().is_empty());
}

#[test]
fn connections_beyond_the_limit_are_told_so() {
    let house = House::with(config("api"), limited(ConnectionConfig { connections_max: 2, ..connection() }));
    house.stage.worker(1).echo();
    let mut kept = [house.client(), house.client()];
    kept.iter_mut().for_each(|client| assert_eq!(client.post(ECHO, "", "{}").status, 200));
    assert_eq!(house.client().response().problem(), "too-many-connections");
    drop(kept);
    let deadline = Instant::now() + PATIENCE;
    while house.post("", "{}").status != 200 {
        assert!(Instant::now() < deadline, "the places of closed connections are never free");
    }
}

#[test]
fn hostile_bytes_are_answered_or_cut_off_and_do_no_harm() {
    let house = House::echoing();
    let host = house.client().host;
    let good = format!("POST {ECHO} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n");
    let cases: Vec<Vec<u8>> = vec![
        b"\0\0\0\0\0\0\0\0\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec(),
        b"GARBAGE\r\n\r\n".to_vec(),
        b"POST / HTTP/9.9\r\n\r\n".to_vec(),
        vec![b'A'; 100_000],
        format!("{good}Content-Length: -1\r\n\r\n").into_bytes(),
        format!("{good}Content-Length: 1\r\nContent-Length: 2\r\n\r\n{{}}").into_bytes(),
        format!("{good}Transfer-Encoding: chunked\r\n\r\nzz\r\n").into_bytes(),
        format!("{good}Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n").into_bytes(),
        format!("{good}X: \0\r\n\r\n").into_bytes(),
        format!("{good}{}\r\n", "X: y\r\n".repeat(10_000)).into_bytes(),
        format!("{good}X: {}\r\n\r\n", "y".repeat(20_000)).into_bytes(),
        format!("{good} folded: header\r\nContent-Length: 2\r\n\r\n{{}}").into_bytes(),
        format!("POST /pools/{} HTTP/1.1\r\nHost: {host}\r\n\r\n", "%00".repeat(1000)).into_bytes(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
    ];
    for bytes in cases {
        let mut client = house.client();
        client.try_send(&bytes);
        client.finish_sending();
        let said = client.rest();
        let shown = String::from_utf8_lossy(&said);
        assert!(said.is_empty() || shown.starts_with("HTTP/1.1 4") || shown.starts_with("HTTP/1.1 5"), "{shown}");
    }
    assert_eq!(house.post("", "{}").status, 200);
    assert_eq!(house.stage.pool.stats().queued, 0);
}

// ---- what there is to call

#[test]
fn tools_are_told_as_the_zygote_wrote_them_and_anew_after_a_reload() {
    let house = House::new();
    assert_eq!(house.get("/pools/api/tools").json()["tools"], json!([]));
    for (summary, hint) in [("One.", "integer"), ("Two.", "string")] {
        house.stage.schemas(&json!({
            "tools": [{
                "name": "echo", "signature": "(n)", "summary": summary, "description": summary, "stream": false,
                "note": null, "parameters": { "type": "object" }, "result": { "type": hint },
                "shared": { "parameters": { "type": "object" }, "result": { "type": hint } },
            }],
            "definitions": {},
        }));
        let tools = house.get("/pools/api/tools").json();
        assert_eq!((&tools["pool"], &tools["tools"][0]["summary"]), (&json!("api"), &json!(summary)));
        assert!(tools["tools"][0].get("shared").is_none());
        let document = house.get("/openapi.json").json();
        assert_eq!(document, house.get("/openapi.json").json());
        assert_eq!(document["paths"][ECHO]["post"]["summary"], summary);
    }
    house.stage.driver.update_status(|status| status.image = serde_json::Value::Null);
    assert_eq!(house.get("/pools/api/tools").problem(), "not-ready");
}

#[test]
fn pools_are_listed_with_their_state() {
    let house = House::echoing();
    let pool = house.get("/pools").json()["pools"][0].clone();
    let expected = json!({ "name": "api", "state": "ready", "profile": "process", "tools": ["echo", "countdown"] });
    assert_eq!(pool, expected);
}
