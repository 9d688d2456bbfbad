//! The admin front over real sockets: health, readiness, figures.

mod support;

use clutch_fronts::config::AdminConfig;
use clutch_host::Fronts;
use clutch_pool::config::PoolConfig;
use clutch_pool::pool::{Health, WorkerView};
use serde_json::json;
use support::client::Client;
use support::{Stage, config, value};

fn admin(token: Option<&str>) -> AdminConfig {
    AdminConfig { bind: "127.0.0.1:0".to_owned(), token: token.map(str::to_owned), token_file: None, insecure: false }
}

fn serve(stages: &[&Stage], config: AdminConfig) -> Fronts {
    support::serve(stages, "admin", Box::new(config)).expect("fronts")
}

fn client(fronts: &Fronts) -> Client {
    Client::new(&fronts.address("admin").expect("an address"))
}

#[test]
fn it_is_alive_before_it_is_ready() {
    let (needed, optional) = (Stage::new(config("api")), Stage::new(PoolConfig { required: false, ..config("extra") }));
    let fronts = serve(&[&needed, &optional], admin(None));
    let ask = || client(&fronts);
    assert_eq!(ask().get("/healthz").status, 200);
    let response = ask().get("/readyz");
    assert_eq!(response.status, 503);
    let waiting = json!([{ "pool": "api", "state": "starting", "reason": null }]);
    assert_eq!(response.json(), json!({ "ready": false, "stopping": false, "waiting": waiting }));
    let _worker = needed.worker(1);
    let response = ask().get("/readyz");
    assert_eq!((response.status, &response.json()["ready"]), (200, &json!(true)));
    needed.driver.update_status(|status| {
        status.health = Health::Failing;
        status.reason = Some("no module named shop".to_owned());
    });
    let response = ask().get("/readyz");
    assert_eq!((response.status, &response.json()["waiting"][0]["reason"]), (503, &json!("no module named shop")));
    assert_eq!(ask().get("/healthz").status, 200);
}

#[test]
fn figures_follow_the_pools() {
    let stage = Stage::new(config("api"));
    let fronts = serve(&[&stage], admin(None));
    let ask = || client(&fronts);
    let waiting = stage.submit("echo", "1");
    let response = ask().get("/metrics");
    assert!(response.header("content-type").is_some_and(|given| given.starts_with("application/openmetrics-text")));
    let text = String::from_utf8(response.body).expect("text");
    for line in [
        "# TYPE clutch_pool_queued gauge",
        "clutch_pool_queued{pool=\"api\"} 1",
        "clutch_pool_slots{pool=\"api\"} 0",
        "# TYPE clutch_pool_done counter",
        "clutch_pool_done_total{pool=\"api\"} 0",
        "clutch_pool_queued_seconds_total{pool=\"api\"} 0.0",
        "clutch_pool_workers{pool=\"api\",state=\"ready\"} 0",
        "clutch_pool_state{pool=\"api\",state=\"starting\"} 1",
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
    stage.worker(3).echo();
    assert_eq!(value(&waiting), "1");
    let text = String::from_utf8(ask().get("/metrics").body).expect("text");
    assert!(text.contains("clutch_pool_done_total{pool=\"api\"} 1\n"), "{text}");
    assert!(text.contains("clutch_pool_slots{pool=\"api\"} 3\n"), "{text}");
    assert!(!text.contains("clutch_pool_queued_seconds_total{pool=\"api\"} 0.0\n"), "it waited for its worker: {text}");
    let pools = ask().get("/pools").json();
    assert_eq!((&pools["pools"][0]["name"], &pools["pools"][0]["done"]), (&json!("api"), &json!(1)));
}

/// A worker whose memory is known, as the supervisor would tell of it.
fn with_memory(stage: &Stage, rss: u64, private: Option<u64>) {
    let view =
        WorkerView { nr: 2, pid: Some(43), generation: 1, state: "ready", calls: 0, sent: 0, rss: Some(rss), private };
    stage.driver.update_status(|status| status.workers.push((7, view)));
}

#[test]
fn the_memory_of_workers_is_told_where_it_is_known() {
    let stage = Stage::new(config("api"));
    let fronts = serve(&[&stage], admin(None));
    let ask = || client(&fronts);
    let text = || String::from_utf8(ask().get("/metrics").body).expect("text");
    assert!(!text().contains("worker_rss_bytes{"), "nobody has looked");
    with_memory(&stage, 5000, None);
    let known = text();
    assert!(known.contains("clutch_pool_worker_rss_bytes{pool=\"api\",nr=\"2\",pid=\"43\"} 5000\n"), "{known}");
    assert!(!known.contains("worker_private_bytes{"), "{known}");
}

#[test]
fn every_metric_is_documented() {
    let stage = Stage::new(config("api"));
    with_memory(&stage, 5000, Some(1000));
    let fronts = serve(&[&stage], admin(None));
    let text = String::from_utf8(client(&fronts).get("/metrics").body).expect("text");
    let page = include_str!("../../../docs/metrics.md");
    let names = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split(['{', ' ']).next());
    for name in names {
        assert!(page.contains(&format!("`{name}`")), "docs/metrics.md does not tell of {name}");
    }
}

#[test]
fn it_has_the_same_door_as_the_http_front() {
    let stage = Stage::new(config("api"));
    let fronts = serve(&[&stage], admin(Some("secret")));
    let ask = || client(&fronts);
    assert_eq!(ask().get("/healthz").problem(), "unauthorized");
    let mut client = ask();
    let host = client.host.clone();
    client.send(format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer secret\r\n\r\n").as_bytes());
    assert_eq!(client.response().status, 200);
    let mut client = ask();
    client.host = "evil.example".to_owned();
    assert_eq!(client.get("/healthz").problem(), "wrong-host");
}

#[test]
fn other_paths_and_methods_are_refused() {
    let stage = Stage::new(config("api"));
    let fronts = serve(&[&stage], admin(None));
    let ask = || client(&fronts);
    assert_eq!(ask().get("/").problem(), "no-such-path");
    assert_eq!(ask().post("/metrics", "", "{}").problem(), "method-not-allowed");
    let mut client = ask();
    let host = client.host.clone();
    client.send(format!("HEAD /readyz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes());
    assert!(String::from_utf8(client.rest()).expect("text").ends_with("\r\n\r\n"));
}

#[test]
fn a_connection_has_one_request() {
    let stage = Stage::new(config("api"));
    let fronts = serve(&[&stage], admin(None));
    let mut client = client(&fronts);
    client.send(format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", client.host).repeat(3).as_bytes());
    assert_eq!(client.response().header("connection"), Some("close"));
    assert!(client.rest().is_empty());
}
