//! The admin front over real sockets: health, readiness, figures.

mod support;

use std::time::Duration;

use clutch_fronts::config::AdminConfig;
use clutch_host::Fronts;
use clutch_pool::config::PoolConfig;
use clutch_pool::pool::{Health, WorkerView};
use serde_json::json;
use support::client::{Client, Response};
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
fn a_connection_is_kept_for_more_requests() {
    let stage = Stage::new(config("api"));
    let fronts = serve(&[&stage], admin(None));
    let mut client = client(&fronts);
    client.send(format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", client.host).repeat(3).as_bytes());
    for _ in 0..3 {
        let response = client.response();
        assert_eq!((response.status, response.header("connection")), (200, None));
    }
    fronts.stop(Duration::from_secs(60));
    assert!(client.rest().is_empty());
}

/// An admin front with a token, and a browser that has signed in.
struct SignedIn {
    fronts: Fronts,
    _stage: Stage,
    cookie: String,
}

fn sign_in(client: &mut Client, token: &str) -> Response {
    client.post("/sign-in", "", &json!({ "token": token }).to_string())
}

impl SignedIn {
    fn new(config_of_front: AdminConfig, token: &str) -> SignedIn {
        let stage = Stage::new(config("api"));
        let fronts = serve(&[&stage], config_of_front);
        let answer = sign_in(&mut client(&fronts), token);
        assert_eq!(answer.status, 200, "{answer:?}");
        let set = answer.header("set-cookie").expect("a cookie");
        for attribute in ["; HttpOnly", "; SameSite=Strict", "; Path=/", "; Max-Age=43200"] {
            assert!(set.contains(attribute), "{set}");
        }
        assert!(!set.contains(token) && !set.contains("Secure"), "{set}");
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        let cookie = set.split(';').next().unwrap_or_default().to_owned();
        SignedIn { fronts, _stage: stage, cookie }
    }

    /// Asks with the cookie, and further headers.
    fn ask(&self, method: &str, path: &str, headers: &str) -> Response {
        let mut client = client(&self.fronts);
        let request = client.request(method, path, &format!("Cookie: a=b; {}\r\n{headers}", self.cookie), "");
        client.send(&request);
        client.response()
    }

    fn own_origin(&self) -> String {
        format!("Origin: http://{}\r\n", client(&self.fronts).host)
    }
}

#[test]
fn a_browser_signs_in_once_and_its_cookie_stands_for_the_token() {
    let browser = SignedIn::new(admin(Some("secret")), "secret");
    assert_eq!(browser.ask("GET", "/process", "").status, 200);
    assert_eq!(browser.ask("POST", "/pools/api/drain", &browser.own_origin()).status, 200);
    for origin in ["", "Origin: http://evil.example\r\n", "Origin: null\r\n", "Origin: http://localhost:1\r\n"] {
        assert_eq!(browser.ask("POST", "/pools/api/drain", origin).problem(), "foreign-origin", "{origin}");
    }
    let twice = browser.own_origin().repeat(2);
    assert_eq!(browser.ask("POST", "/pools/api/drain", &twice).problem(), "foreign-origin");
    assert_eq!(browser.ask("GET", "/process", "Authorization: Bearer wrong\r\n").problem(), "unauthorized");
    let header = "Authorization: Bearer secret\r\n";
    assert_eq!(client(&browser.fronts).post("/pools/api/drain", header, "").status, 200, "a program needs no Origin");
}

#[test]
fn no_other_cookie_is_let_in() {
    let mut browser = SignedIn::new(admin(Some("secret")), "secret");
    let (name, id) = browser.cookie.split_once('=').expect("a pair");
    let (name, id) = (name.to_owned(), id.to_owned());
    for wrong in ["", "secret", &id[1..], &"0".repeat(id.len()), &format!("{id}0")] {
        browser.cookie = format!("{name}={wrong}");
        assert_eq!(browser.ask("GET", "/process", "").problem(), "unauthorized", "{wrong}");
    }
}

#[test]
fn whoever_signs_out_is_out() {
    let browser = SignedIn::new(admin(Some("secret")), "secret");
    assert_eq!(browser.ask("POST", "/sign-out", "").problem(), "foreign-origin");
    assert_eq!(browser.ask("GET", "/process", "").status, 200);
    let out = browser.ask("POST", "/sign-out", &browser.own_origin());
    assert!(out.header("set-cookie").is_some_and(|set| set.contains("=; ") && set.contains("Max-Age=0")), "{out:?}");
    assert_eq!(browser.ask("GET", "/process", "").problem(), "unauthorized");
}

#[test]
fn a_session_ends_with_its_token() {
    let file = std::env::temp_dir().join(format!("clutch-session-{}", std::process::id()));
    let write = |text: &str| std::fs::write(&file, text).expect("a file");
    write("one\ntwo\n");
    let token_file = Some(file.display().to_string());
    let browser = SignedIn::new(AdminConfig { token_file, ..admin(None) }, "two");
    assert_eq!(browser.ask("GET", "/process", "").status, 200);
    write("one\n");
    assert!(browser.fronts.reload_files(&[]).iter().all(|file| file.result.is_ok()));
    assert_eq!(browser.ask("GET", "/process", "").problem(), "unauthorized");
    std::fs::remove_file(&file).expect("gone");
}

#[test]
fn only_whoever_is_let_in_keeps_a_connection() {
    let stage = Stage::new(config("api"));
    let (fronts, open) = (serve(&[&stage], admin(Some("secret"))), serve(&[&stage], admin(None)));
    let bearer = "Authorization: Bearer secret\r\n";
    let wrong = r#"{"token": "wrong"}"#;
    for (fronts, method, path, headers, body, status) in [
        (&fronts, "GET", "/healthz", "", "", 401),
        (&fronts, "GET", "/nope", "Authorization: Bearer wrong\r\n", "", 401),
        (&fronts, "GET", "/healthz", "Host: evil.example\r\n", "", 400),
        (&fronts, "POST", "/drain", "Origin: http://evil.example\r\n", "", 403),
        (&fronts, "POST", "/sign-in", "", wrong, 401),
        (&fronts, "POST", "/sign-in", "", "[]", 400),
        (&open, "GET", "/process", "", "", 403),
        (&open, "POST", "/sign-in", "", wrong, 409),
    ] {
        let mut client = client(fronts);
        let request = client.request(method, path, headers, body);
        client.send(&request);
        let answer = client.response();
        assert_eq!((answer.status, answer.header("connection")), (status, Some("close")), "{method} {path} {headers}");
        assert!(client.rest().is_empty());
    }
    let mut foreign = client(&fronts);
    foreign.host = "evil.example".to_owned();
    let answer = foreign.get("/healthz");
    assert_eq!((answer.status, answer.header("connection")), (421, Some("close")));
    let mut client = client(&fronts);
    assert_eq!(sign_in(&mut client, "secret").status, 200);
    for (path, status) in [("/pools/api/drain", 200), ("/pools/nope/drain", 404), ("/pools/api/resume", 200)] {
        let answer = client.post(path, bearer, "");
        assert_eq!((answer.status, answer.header("connection")), (status, None), "{path}");
    }
}

#[test]
fn a_session_is_not_for_pages_at_other_ports() {
    let browser = SignedIn::new(admin(Some("secret")), "secret");
    let by = |site: &str| browser.ask("GET", "/process", &format!("Sec-Fetch-Site: {site}\r\n"));
    for site in ["same-origin", "none"] {
        assert_eq!(by(site).status, 200, "{site}");
    }
    for site in ["same-site", "cross-site", "", "none\r\nSec-Fetch-Site: same-site"] {
        assert_eq!(by(site).problem(), "foreign-origin", "{site}");
    }
    let headers = format!("{}Sec-Fetch-Site: same-origin\r\n", browser.own_origin());
    assert_eq!(browser.ask("POST", "/pools/api/drain", &headers).status, 200);
}

#[test]
fn a_cookie_of_another_port_hides_no_session() {
    let mut browser = SignedIn::new(admin(Some("secret")), "secret");
    let (own, name) = (browser.cookie.clone(), browser.cookie.split('=').next().unwrap_or_default().to_owned());
    browser.cookie = format!("{name}=; {name}=junk; {own}");
    assert_eq!(browser.ask("GET", "/process", "").status, 200);
    assert_eq!(browser.ask("POST", "/sign-out", &browser.own_origin()).status, 200);
    browser.cookie = own;
    assert_eq!(browser.ask("GET", "/process", "").problem(), "unauthorized");
}

#[test]
fn sign_ins_with_wrong_tokens_are_refused_and_bounded() {
    let stage = Stage::new(config("api"));
    let fronts = serve(&[&stage], admin(Some("secret")));
    let ask = || client(&fronts);
    let foreign = ask().post("/sign-in", "Origin: http://evil.example\r\n", r#"{"token": "secret"}"#);
    assert_eq!(foreign.problem(), "foreign-origin");
    assert_eq!(ask().post("/sign-in", "", "[]").problem(), "bad-request");
    for nr in 0..10 {
        assert_eq!(sign_in(&mut ask(), "secret").status, 200, "only wrong ones count");
        let answer = sign_in(&mut ask(), ["", "secre", "secrets"][nr % 3]);
        assert_eq!((answer.problem().as_str(), answer.header("set-cookie")), ("unauthorized", None));
    }
    let answer = sign_in(&mut ask(), "secrets");
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("60")));
    assert_eq!(answer.header("connection"), Some("close"));
    assert_eq!(answer.problem(), "too-many-sign-ins");
    assert_eq!(sign_in(&mut ask(), "secret").status, 200, "whoever has the token is not locked out");
    let open = serve(&[&stage], admin(None));
    assert_eq!(sign_in(&mut client(&open), "secret").problem(), "refused", "it needs no token");
}
