//! `dispatch = "connection"`: requests that run for long on connections that workers hold.

mod support;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_fronts::config::{ConnectionConfig, ServeConfig, Timeout};
use clutch_fronts::held::ledger::{Adoption, NO_WORD, State};
use clutch_fronts::held::message::{Told, ToldEnd};
use clutch_pool::link::board::word;
use clutch_pool::pool::Answer;
use clutch_pool::pool::facts::{WorkBegun, WorkFinished};
use clutch_pool::work::Running;

use support::held_house::{House, answer_call, get, serve};
use support::holding::{Holding, Passed, response};
use support::house::connection;
use support::{Call, PATIENCE, Worker, lost};

/// A front whose responses begin in so many milliseconds, with an access log.
fn limited(timeout_ms: Option<u64>, log: Option<&Log>) -> ServeConfig {
    let access_log = log.map(|log| log.0.to_string_lossy().into_owned());
    let connection = ConnectionConfig { access_log, ..connection() };
    ServeConfig { timeout_ms: Timeout::After(timeout_ms), connection, ..serve() }
}

/// An access log of one test.
struct Log(PathBuf);

impl Log {
    fn new(test: &str) -> Log {
        Log(std::env::temp_dir().join(format!("clutch-adopted-{test}-{}", std::process::id())))
    }

    /// Its lines, when all connections have ended.
    fn lines(self, house: &House) -> Vec<String> {
        house.fronts.stop(Duration::from_secs(60));
        let text = fs::read_to_string(&self.0).expect("a log");
        fs::remove_file(&self.0).expect("its end");
        text.lines().map(str::to_owned).collect()
    }
}

/// Begins with a request that was passed, by a word of the worker, or by none.
fn begin(holding: &mut Holding, passed: &Passed, word: u32) {
    holding.begin(passed.place);
    holding.note(passed.place, word, &passed.bytes);
}

/// Waits until a request is adopted; returns what the pool shows of it.
fn adopted(house: &House, worker: &Worker) -> Running {
    let begun: WorkBegun = house.stage.wait_event();
    let running = house.stage.pool.running_in(worker.key);
    running.into_iter().find(|running| running.id == begun.id).expect("it runs")
}

/// Waits for what no event tells.
fn wait_until(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it never was so");
        std::thread::yield_now();
    }
}

/// Adopts work until the worker's board has no free word.
fn fill_board(house: &House, worker: &Worker) {
    let (pool, answer) = (&house.stage.pool, Arc::<Answer>::default());
    let words = pool.reserve_words(worker.key, worker.board.len());
    let adopted = |word| pool.adopt(worker.key, word, Instant::now(), house.stage.work("page", "1", &answer));
    for word in words {
        let mut word = Some(word);
        while let Some(own) = word {
            word = adopted(own).map(|adopted| adopted.next_word);
        }
    }
}

/// Ends adopted work as a worker does, and waits for that.
fn end(house: &House, worker: &mut Worker, adoption: Adoption) {
    worker.end(&Call::known(adoption.id, adoption.word));
    let finished: WorkFinished = house.stage.wait_event();
    assert_eq!(finished.id, adoption.id);
}

#[test]
fn a_request_that_runs_for_long_is_known_to_the_pool_until_its_worker_ends_it() {
    let house = House::new();
    let (mut worker, mut holding) = house.worker();
    let [own] = holding.settings.words[..] else { panic!("one word for one loop: {:?}", holding.settings.words) };
    let mut client = house.asking("/slow?a=b");
    let passed = holding.next_pass();
    begin(&mut holding, &passed, own);
    let running = adopted(&house, &worker);
    assert_eq!((&*running.what, running.abandoned), ("GET /slow", false));
    assert!(running.seconds >= 0.1, "since it began: {running:?}");
    let adoption = holding.answer(passed.place, "one").expect("it was adopted");
    assert_eq!((adoption.id, adoption.word), (running.id, own));
    assert!(adoption.next_word != own && worker.board.get(adoption.next_word) == word::BEGUN);
    assert_eq!(client.response().body, b"one");
    end(&house, &mut worker, adoption);
    assert!(house.stage.pool.running_in(worker.key).is_empty());
    // It rests, and serves on; what is quick is counted by what the worker tells.
    client.send(&get("/next"));
    let place = holding.next_request(passed.place, &get("/next"));
    assert!(holding.answer(place, "two").is_none());
    assert_eq!(client.response().body, b"two");
    house.stage.wait_stats(|stats| (stats.done, stats.sent) == (2, 0));
}

#[test]
fn one_that_waits_without_a_word_gets_one_of_the_front() {
    let house = House::new();
    let (worker, mut holding) = house.worker();
    let clients = ["/a", "/b"].map(|path| house.asking(path));
    let passed = [holding.next_pass(), holding.next_pass()];
    passed.iter().for_each(|passed| begin(&mut holding, passed, NO_WORD));
    let ids = [adopted(&house, &worker), adopted(&house, &worker)].map(|running| running.id);
    let adoptions = passed.map(|passed| holding.answer(passed.place, "one").expect("it was adopted"));
    assert!(adoptions.iter().all(|adoption| ids.contains(&adoption.id) && adoption.next_word == NO_WORD));
    assert!(adoptions[0].word != adoptions[1].word && !holding.settings.words.contains(&adoptions[0].word));
    drop(clients);
}

#[test]
fn one_that_does_not_answer_in_time_gets_504_and_what_comes_later_goes_nowhere() {
    let log = Log::new("late");
    let house = House::with(limited(Some(300), Some(&log)));
    let (mut worker, mut holding) = house.worker();
    let mut client = house.asking("/slow");
    let passed = holding.next_pass();
    let own = holding.settings.words[0];
    begin(&mut holding, &passed, own);
    let running = adopted(&house, &worker);
    let told = client.response();
    assert_eq!((told.status, &*told.body, told.header("connection")), (504, &b"Gateway Timeout\n"[..], Some("close")));
    assert_eq!(client.rest(), b"", "once");
    let (turn, place) = (holding.turn(passed.place), passed.place);
    assert!(!holding.ledger.answers(turn), "nothing is to be written");
    let adoption = holding.ledger.adoption_of(turn).expect("what it is to end");
    assert_eq!((adoption.id, worker.board.get(adoption.word)), (running.id, word::ABANDONED));
    assert!(house.stage.pool.running_in(worker.key)[0].abandoned);
    assert_eq!(holding.next_taken(), place);
    worker.end(&Call::known(adoption.id, adoption.word));
    house.stage.wait_stats(|stats| stats.sent == 0);
    let [line] = &log.lines(&house)[..] else { panic!("one line was expected") };
    assert!(line.contains("\"GET /slow HTTP/1.1\" 504 16 ") && line.contains("timeout"), "{line}");
}

#[test]
fn a_late_answer_to_head_has_no_body() {
    let house = House::with(limited(Some(50), None));
    let (_worker, mut holding) = house.worker();
    let mut client = house.client();
    client.send(b"HEAD /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    let passed = holding.next_pass();
    begin(&mut holding, &passed, NO_WORD);
    let told = String::from_utf8(client.rest()).expect("text");
    assert!(told.starts_with("HTTP/1.1 504 ") && told.ends_with("\r\n\r\n"), "{told}");
}

#[test]
fn a_response_that_has_begun_in_time_is_not_limited() {
    let house = House::with(limited(Some(1000), None));
    let (mut worker, mut holding) = house.worker();
    let mut client = house.asking("/stream");
    let passed = holding.next_pass();
    begin(&mut holding, &passed, NO_WORD);
    holding.write(passed.place, "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n");
    adopted(&house, &worker);
    // A request that began later is out of time: so is this one, by far.
    let mut late = house.asking("/late");
    let second = holding.next_pass();
    begin(&mut holding, &second, NO_WORD);
    assert_eq!(late.response().status, 504);
    holding.write(passed.place, "one");
    assert_eq!(client.response().body, b"one");
    end(&house, &mut worker, holding.over(passed.place).expect("it was adopted"));
}

#[test]
fn a_request_behind_another_is_limited_by_its_own_time() {
    let log = Log::new("behind");
    let house = House::with(limited(Some(1000), Some(&log)));
    let (worker, mut holding) = house.worker();
    let mut client = house.asking("/first");
    let passed = holding.next_pass();
    begin(&mut holding, &passed, NO_WORD);
    holding.write(passed.place, &response("one"));
    holding.over(passed.place);
    holding.note(passed.place, NO_WORD, &get("/second"));
    assert_eq!(client.response().body, b"one");
    adopted(&house, &worker);
    assert_eq!(client.rest(), b"", "it is cut off: what was before it may not be sent yet");
    let (place, adopted) = (passed.place, true);
    holding.tell(Told { place, end: ToldEnd::ClientGone, adopted, request_head: &get("/second"), ..Told::default() });
    holding.close(place);
    let lines = log.lines(&house);
    assert!(lines.iter().any(|line| line.contains("GET /second") && line.contains("timeout")), "{lines:?}");
}

#[test]
fn a_request_that_is_cancelled_is_answered_or_cut_off() {
    let house = House::new();
    let (worker, mut holding) = house.worker();
    let mut waits = house.asking("/waits");
    let passed = holding.next_pass();
    begin(&mut holding, &passed, NO_WORD);
    assert!(house.stage.pool.cancel(adopted(&house, &worker).id));
    assert_eq!(waits.response().status, 500);
    assert_eq!(holding.next_taken(), passed.place);
    let mut answers = house.asking("/answers");
    let passed = holding.next_pass();
    begin(&mut holding, &passed, NO_WORD);
    holding.write(passed.place, "HTTP/1.1 200 OK\r\n");
    assert!(house.stage.pool.cancel(adopted(&house, &worker).id));
    assert_eq!(answers.rest(), b"HTTP/1.1 200 OK\r\n");
}

#[test]
fn the_client_of_a_dead_worker_is_answered_once() {
    let log = Log::new("dead");
    let house = House::with(limited(Some(60_000), Some(&log)));
    let (worker, mut holding) = house.worker();
    let mut client = house.asking("/fatal");
    let passed = holding.next_pass();
    let own = holding.settings.words[0];
    begin(&mut holding, &passed, own);
    adopted(&house, &worker);
    let key = worker.key;
    drop((worker, holding));
    drop(house.stage.driver.worker_gone(key, lost(), false));
    assert_eq!(client.response().status, 502);
    assert_eq!(client.rest(), b"");
    let [line] = &log.lines(&house)[..] else { panic!("one line was expected") };
    assert!(line.contains("\"GET /fatal HTTP/1.1\" 502 12 ") && line.contains("worker-lost"), "{line}");
}

#[test]
fn the_client_of_a_worker_that_dies_too_late_is_told_so() {
    let house = House::with(limited(Some(200), None));
    let (worker, mut holding) = house.worker();
    // The pool does not know the request, and so does not end it.
    fill_board(&house, &worker);
    let mut client = house.asking("/fatal");
    let passed = holding.next_pass();
    let own = holding.settings.words[0];
    begin(&mut holding, &passed, own);
    wait_until(|| holding.ledger.age(passed.place) > Duration::from_millis(200));
    let key = worker.key;
    drop((worker, holding));
    drop(house.stage.driver.worker_gone(key, lost(), false));
    assert_eq!(client.response().status, 504);
    assert_eq!(client.rest(), b"");
}

#[test]
fn what_the_pool_does_not_take_goes_on_and_counts_as_any_other() {
    let house = House::new();
    let (worker, mut holding) = house.worker();
    fill_board(&house, &worker);
    let mut client = house.asking("/slow");
    let passed = holding.next_pass();
    let own = holding.settings.words[0];
    begin(&mut holding, &passed, own);
    assert!(holding.ledger.is_unknown(passed.place));
    wait_until(|| !holding.ledger.is_unknown(passed.place));
    assert!(holding.answer(passed.place, "one").is_none());
    assert_eq!(client.response().body, b"one");
    house.stage.wait_stats(|stats| stats.done == 1);
}

#[test]
fn a_request_that_its_worker_leaves_unread_is_served_by_the_pool() {
    let house = House::new();
    let (mut worker, mut holding) = house.worker();
    let mut unread = house.asking("/unread");
    let passed = holding.next_pass();
    assert_eq!(holding.ledger.state(passed.place), State::Sent);
    answer_call(&mut worker, "/unread", "by the pool");
    assert_eq!(unread.response().body, b"by the pool");
    assert_eq!(holding.next_taken(), passed.place);
}

#[test]
fn bytes_that_a_worker_leaves_unread_on_a_connection_at_rest_are_served_by_the_pool() {
    let house = House::new();
    let (mut worker, mut holding) = house.worker();
    let mut client = house.asking("/first");
    let passed = holding.next_pass();
    holding.begin(passed.place);
    holding.answer(passed.place, "one");
    assert_eq!(client.response().body, b"one");
    client.send(&get("/unread"));
    answer_call(&mut worker, "/unread", "by the pool");
    assert_eq!(client.response().body, b"by the pool");
    assert_eq!(holding.next_taken(), passed.place);
}

#[test]
fn a_worker_that_is_to_leave_keeps_only_what_it_runs() {
    let house = House::new();
    let (worker, mut leaving) = house.worker();
    let mut idle = house.asking("/first");
    let resting = leaving.next_pass();
    leaving.begin(resting.place);
    leaving.answer(resting.place, "one");
    assert_eq!(idle.response().body, b"one");
    let mut slow = house.asking("/slow");
    let passed = leaving.next_pass();
    begin(&mut leaving, &passed, NO_WORD);
    adopted(&house, &worker);
    house.stage.driver.worker_draining(worker.key);
    assert_eq!(leaving.next_taken(), resting.place);
    let (_staying, mut staying) = house.worker();
    idle.send(&get("/second"));
    let again = staying.next_pass();
    staying.begin(again.place);
    staying.answer(again.place, "two");
    assert_eq!(idle.response().body, b"two");
    assert!(leaving.ledger.is_wanted_back());
    leaving.answer(passed.place, "slow").expect("it was adopted");
    assert_eq!(slow.response().body, b"slow");
}

#[test]
fn wsgi_apps_have_their_limit_and_a_word_for_each_slot() {
    let house = House::with(ServeConfig { timeout_ms: Timeout::ByApp(clutch_fronts::config::ByApp::Auto), ..serve() });
    let image = serde_json::json!({ "interface": "wsgi" });
    house.stage.driver.update_status(|status| status.image = image);
    let (worker, mut holding) = house.worker();
    assert_eq!(holding.settings.words.len(), 8);
    let client = house.asking("/");
    let passed = holding.next_pass();
    let own = holding.settings.words[7];
    begin(&mut holding, &passed, own);
    assert_eq!(adopted(&house, &worker).what, "GET /");
    drop(client);
}
