//! A pool without processes: a scripted worker that speaks the worker's side of the link, and the loop that drives it.
//!
//! A worker here does what its test says, frame by frame, and fails the test on any frame that was not expected.
//! Everything waits for what it needs and panics when that does not come in [`PATIENCE`]; nothing sleeps.
#![allow(dead_code)]

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clutch_pool::config::PoolConfig;
use clutch_pool::link::board::{Board, word};
use clutch_pool::link::{Announced, Filled, Flushed, Inbox, Outbox};
use clutch_pool::pool::state::WorkerKey;
use clutch_pool::pool::{Answer, Health, Link, Notice, Pool, PoolDriver, WAKE};
use clutch_pool::telemetry::{Fact, Scope, Subscription, Telemetry};
use clutch_pool::work::{Outcome, Work, WorkId, WorkKind};
use clutch_wire::frame::{self, Head, Kind};
use clutch_wire::region::{Lease, RegionPool};
use clutch_wire::sys;
use clutch_wire::{Codec, Failure, Form, Payload};

#[path = "../support/config.rs"]
mod options;

pub use options::config;

/// How long a test waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A pool and the thread that drives it, as the supervisor's would.
pub struct Stage {
    pub pool: Arc<Pool>,
    pub events: Subscription,
    pub driver: Arc<PoolDriver>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    next_key: AtomicU32,
}

impl Stage {
    pub fn new(config: PoolConfig) -> Stage {
        let mut stage = Stage::undriven(config);
        let (driver, stop) = (stage.driver.clone(), stage.stop.clone());
        stage.thread = Some(std::thread::spawn(move || drive(&driver, &stop)));
        stage
    }

    /// Without the driver: the test itself calls `pool.on_ready` and `pool.tick`, when it wants them.
    pub fn undriven(config: PoolConfig) -> Stage {
        let telemetry = Arc::new(Telemetry::default());
        let events = telemetry.mailbox(Scope::ALL);
        let (pool, driver) = Pool::new(config, telemetry).expect("a pool");
        Stage {
            pool,
            events,
            driver: Arc::new(driver),
            stop: Arc::default(),
            thread: None,
            next_key: AtomicU32::new(0),
        }
    }

    /// A worker that has said that it is ready.
    pub fn worker(&self, slots: usize) -> Worker {
        self.worker_by(slots, |_| {})
    }

    /// The same; `before` is shown the dispatcher's end of its link before the pool is.
    pub fn worker_by(&self, slots: usize, before: impl FnOnce(&OwnedFd)) -> Worker {
        let worker = self.starting_worker_by(slots, before);
        self.driver.worker_ready(worker.key, (0, 7), slots, None);
        self.driver.update_status(|status| status.health = Health::Ready);
        worker
    }

    /// A worker that has not said that it is ready.
    pub fn starting_worker(&self, slots: usize) -> Worker {
        self.starting_worker_by(slots, |_| {})
    }

    fn starting_worker_by(&self, slots: usize, before: impl FnOnce(&OwnedFd)) -> Worker {
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        let (ours, theirs) = sys::socket_pair().expect("a socketpair");
        before(&ours);
        let (board, descriptor) = Board::create(Board::words_for(slots as u32)).expect("a board");
        let (alarm, their_alarm) = sys::socket_pair().expect("a socketpair");
        self.driver.attach(Link::new(key, ours, board, alarm));
        Worker::new(key, theirs, their_alarm, Board::open(descriptor).expect("the board"))
    }

    /// The zygote has told these names.
    pub fn tools(&self, names: &[&str]) {
        let image = serde_json::json!({ "tools": names });
        self.driver.update_status(|status| status.image = image);
    }

    /// The zygote has told these schemas of its tools.
    pub fn schemas(&self, schemas: &serde_json::Value) {
        // By way of text: they are kept as they were written.
        let schemas = serde_json::from_str(&schemas.to_string()).expect("schemas");
        self.driver.update_status(|status| status.schemas = Some(Arc::new(schemas)));
    }

    /// Waits for an event that fits.
    pub fn wait_event<F: Fact>(&self) -> F {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let event = self.events.next(deadline).expect("the event never came");
            if let Some(fact) = event.get() {
                return F::clone(fact);
            }
        }
    }

    /// Waits until the pool's figures are as wanted. For what no event tells.
    pub fn wait_stats(&self, fits: impl Fn(&clutch_pool::pool::Stats) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !fits(&self.pool.stats()) {
            assert!(Instant::now() < deadline, "never so: {:?}", self.pool.stats());
            std::thread::yield_now();
        }
    }

    /// Submits a call by name and returns where its answer will be.
    pub fn submit(&self, tool: &str, arguments: &str) -> Arc<Answer> {
        self.submit_work(tool, arguments, false)
    }

    pub fn submit_by_value(&self, tool: &str, arguments: &str) -> Arc<Answer> {
        self.submit_work(tool, arguments, true)
    }

    /// Submits a mapped batch of so many items.
    pub fn submit_batch(&self, tool: &str, items: u32) -> Arc<Answer> {
        self.submit_limited_batch(tool, items, None)
    }

    /// The same where each item may run for so long.
    pub fn submit_limited_batch(&self, tool: &str, items: u32, item_limit: Option<Duration>) -> Arc<Answer> {
        let answer = Arc::new(Answer::default());
        answer.set_id(self.pool.submit(
            Work { kind: WorkKind::BATCH, items, run_limit: item_limit, ..self.work(tool, "[]", &answer) },
            false,
        ));
        answer
    }

    fn submit_work(&self, tool: &str, arguments: &str, by_value: bool) -> Arc<Answer> {
        let answer = Arc::new(Answer::default());
        answer.set_id(self.pool.submit(Work { by_value, ..self.work(tool, arguments, &answer) }, false));
        answer
    }

    /// A call by name, without anything special.
    pub fn work(&self, tool: &str, arguments: &str, answer: &Arc<Answer>) -> Work {
        let function = self.pool.function(Codec::Name, tool.as_bytes(), tool);
        Work::new(WorkKind::CALL, function, Payload::new(Codec::Json, arguments.as_bytes().to_vec()), answer.clone())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.driver.wake();
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(ended.is_none_or(|ended| ended.is_ok()), "the driver panicked");
        }
    }
}

/// Headers and body of a call.
fn told(payload: &Payload) -> (Vec<(String, String)>, Vec<u8>) {
    if payload.form.codec != Codec::Headed {
        return (Vec::new(), payload.body().to_vec());
    }
    let (headers, body) = payload.headed().expect("headers");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    (headers.iter().map(|(name, value)| (text(name), text(value))).collect(), body.to_vec())
}

fn drive(pool: &PoolDriver, stop: &AtomicBool) {
    let mut tokens = Vec::new();
    while !stop.load(Ordering::Acquire) {
        let wake = pool.tick(None, |_| None);
        pool.poller().wait(&mut tokens, wake).expect("epoll");
        for token in tokens.drain(..) {
            match token {
                WAKE => pool.drain_notices().into_iter().for_each(|notice| heed(pool, notice)),
                other => pool.on_ready(other),
            }
        }
    }
}

/// What a supervisor would do at once; deaths are those that tests make.
fn heed(pool: &PoolDriver, notice: Notice) {
    match notice {
        Notice::WantWrite(worker) => pool.want_write(worker, true),
        Notice::LinkEnded(worker, _) => drop(pool.worker_gone(worker, lost(), false)),
        _ => {}
    }
}

/// What callers of a dead worker are told.
pub fn lost() -> Failure {
    Failure::WorkerLost {
        message: "worker test/0 (pid 42) was killed by signal 9".to_owned(),
        worker_pid: 42,
        signal: Some(9),
        exit_code: None,
        output: "last words".to_owned(),
        cause: None,
    }
}

/// A call as the worker got it.
#[derive(Debug)]
pub struct Call {
    pub id: WorkId,
    pub tool: String,
    /// Of a call of a network front: what came beside the arguments.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub word: u32,
    pub deadline_ns: u64,
    /// Of a mapped batch: how many of its items were run before.
    pub skip: u32,
    /// The dispatcher wants to know when its code starts.
    pub wants_begun: bool,
    /// The worker's copy of the connection.
    pub descriptor: Option<OwnedFd>,
    lease: Option<Arc<Lease>>,
}

impl Call {
    /// What the worker had begun by itself.
    pub fn known(id: WorkId, word: u32) -> Call {
        Call {
            id,
            tool: String::new(),
            headers: Vec::new(),
            body: Vec::new(),
            word,
            deadline_ns: frame::NO_DEADLINE,
            skip: 0,
            wants_begun: false,
            descriptor: None,
            lease: None,
        }
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }
}

/// The worker's end of a link, in the hands of a test.
pub struct Worker {
    pub key: WorkerKey,
    pub board: Board,
    socket: OwnedFd,
    /// Socket of the worker's watcher.
    alarm: OwnedFd,
    heard: Inbox,
    inbox: Inbox,
    outbox: Outbox,
    regions: Arc<RegionPool>,
    announced: Announced,
    names: HashMap<u64, String>,
    writes: bool,
}

/// A frame without what the worker keeps of it.
#[derive(Debug)]
enum Heard {
    Define,
    Call { call: Call, begun: bool },
    Credit { id: WorkId, count: u32 },
    Chunk { id: WorkId, form: Form, more: bool, body: Vec<u8> },
    Cancel(WorkId),
    Drain,
    Channel(OwnedFd),
}

impl Worker {
    fn new(key: WorkerKey, socket: OwnedFd, alarm: OwnedFd, board: Board) -> Worker {
        let (journal, regions) = (board.journal(), Arc::new(RegionPool::for_one_reader()));
        Worker {
            key,
            board,
            socket,
            alarm,
            heard: Inbox::default(),
            inbox: Inbox::default(),
            outbox: Outbox::with_journal(journal),
            announced: Announced::to_only_reader(&regions),
            regions,
            names: HashMap::new(),
            writes: true,
        }
    }

    // ---- what comes

    /// The next call, begun. Calls that were taken back are passed over, as a worker does.
    pub fn next_call(&mut self) -> Call {
        self.call_or_end(Some(PATIENCE)).expect("the dispatcher closed the link")
    }

    /// As [`Worker::next_call`], or none when the link ends.
    fn call_or_end(&mut self, patience: Option<Duration>) -> Option<Call> {
        loop {
            match self.hear_or_end(true, patience)? {
                Heard::Define => {}
                Heard::Call { call, begun: true } => return Some(call),
                Heard::Call { call, .. } => self.board.set(call.word, word::FREE),
                other => panic!("a call was expected, not {other:?}"),
            }
        }
    }

    /// The next call, left as it was sent.
    pub fn next_unbegun(&mut self) -> Call {
        loop {
            match self.hear(false) {
                Heard::Define => {}
                Heard::Call { call, .. } => return call,
                other => panic!("a call was expected, not {other:?}"),
            }
        }
    }

    /// Comes by all that was taken back, and nothing else is there.
    pub fn pass_over(&mut self, count: usize) {
        for _ in 0..count {
            match self.hear(true) {
                Heard::Call { call, begun: false } => self.board.set(call.word, word::FREE),
                Heard::Define => {}
                other => panic!("only calls that were taken back were expected, not {other:?}"),
            }
        }
    }

    /// Claims a call for user code; false when the dispatcher has taken it back.
    pub fn begin(&self, call: &Call) -> bool {
        self.board.claim(call.word, word::SENT, word::BEGUN)
    }

    /// Says that user code has started.
    pub fn say_begun(&mut self, call: &Call) {
        self.put(Kind::Begun, call.id, &[], &Payload::empty());
    }

    pub fn expect_credit(&mut self, of: &Call) -> u32 {
        match self.hear(true) {
            Heard::Credit { id, count } if id == of.id => count,
            other => panic!("credit for {} was expected, not {other:?}", of.id),
        }
    }

    /// The next value of a call's inbound stream, its pieces put together; credit may come before it.
    pub fn next_chunk(&mut self, of: &Call) -> (Form, Vec<u8>) {
        let mut whole = Vec::new();
        loop {
            match self.hear(true) {
                Heard::Credit { id, .. } if id == of.id => {}
                Heard::Chunk { id, form, more, body } if id == of.id => {
                    whole.extend(body);
                    if !more {
                        return (form, whole);
                    }
                }
                other => panic!("a chunk for {} was expected, not {other:?}", of.id),
            }
        }
    }

    /// Waits for the cancel frame of a call; credit may come before it.
    pub fn expect_cancel(&mut self, of: &Call) {
        loop {
            match self.hear(true) {
                Heard::Credit { .. } => {}
                Heard::Cancel(id) if id == of.id => return,
                other => panic!("the cancel of {} was expected, not {other:?}", of.id),
            }
        }
    }

    /// Waits until its endless work is told, by the alarm, that the worker is to end.
    pub fn expect_end_of_endless(&mut self) {
        let readable = sys::wait_readable(self.alarm.as_fd(), Some(Instant::now() + PATIENCE)).expect("poll");
        assert!(readable, "the alarm said nothing");
        self.heard.fill(self.alarm.as_fd(), false).expect("the alarm");
        let kind = self.heard.next_frame().expect("the wire").expect("a frame").frame.head.kind;
        assert_eq!(kind, Kind::Drain);
    }

    /// Waits until its alarm says that this is to be interrupted; it may be asked for the stacks before.
    pub fn expect_interrupt(&mut self, of: &Call) {
        loop {
            let readable = sys::wait_readable(self.alarm.as_fd(), Some(Instant::now() + PATIENCE)).expect("poll");
            assert!(readable, "the alarm said nothing");
            self.heard.fill(self.alarm.as_fd(), false).expect("the alarm");
            while let Some(received) = self.heard.next_frame().expect("the wire") {
                let head = received.frame.head;
                assert_eq!(head.id, of.id, "{head:?}");
                if head.kind == Kind::Cancel {
                    return;
                }
            }
        }
    }

    /// Its end of a channel.
    pub fn expect_channel(&mut self) -> OwnedFd {
        match self.hear(true) {
            Heard::Channel(channel) => channel,
            other => panic!("a channel was expected, not {other:?}"),
        }
    }

    pub fn expect_drain(&mut self) {
        let heard = self.hear(true);
        assert!(matches!(heard, Heard::Drain), "a drain was expected, not {heard:?}");
    }

    /// Credit for a call, if any comes so soon: for what must not come.
    pub fn credit_within(&mut self, of: &Call, long: Duration) -> Option<u32> {
        let deadline = Instant::now() + long;
        loop {
            match self.take_frame(true) {
                Some(Heard::Credit { id, count }) if id == of.id => return Some(count),
                Some(other) => panic!("credit for {} was expected, not {other:?}", of.id),
                None if !sys::wait_readable(self.socket.as_fd(), Some(deadline)).expect("poll") => return None,
                None => drop(self.inbox.fill(self.socket.as_fd(), false)),
            }
        }
    }

    fn hear(&mut self, begin: bool) -> Heard {
        self.hear_or_end(begin, Some(PATIENCE)).expect("the dispatcher closed the link")
    }

    fn hear_or_end(&mut self, begin: bool, patience: Option<Duration>) -> Option<Heard> {
        let deadline = patience.map(|patience| Instant::now() + patience);
        loop {
            if let Some(heard) = self.take_frame(begin) {
                return Some(heard);
            }
            let readable = sys::wait_readable(self.socket.as_fd(), deadline).expect("poll");
            assert!(readable, "the dispatcher sent nothing");
            if matches!(self.inbox.fill(self.socket.as_fd(), false), Ok(Filled::End) | Err(_)) {
                return None;
            }
        }
    }

    fn take_frame(&mut self, begin: bool) -> Option<Heard> {
        let mut received = self.inbox.next_frame().expect("the wire")?;
        let descriptor = received.descriptors.pop();
        let frame = received.frame;
        Some(match frame.head.kind {
            Kind::Define => {
                self.names.insert(frame.head.id, String::from_utf8_lossy(frame.payload).into_owned());
                Heard::Define
            }
            Kind::Call => {
                let begun = begin && self.board.claim(frame.word(), word::SENT, word::BEGUN);
                let payload = if begun || !begin { Some(received.payload().expect("regions")) } else { None };
                let function = u64::from(frame.function());
                let (headers, body) = payload.as_ref().map(told).unwrap_or_default();
                let call = Call {
                    id: frame.head.id,
                    tool: self.names.get(&function).expect("a call of what was never defined").clone(),
                    headers,
                    body,
                    word: frame.word(),
                    deadline_ns: frame.deadline_ns(),
                    skip: frame.skip(),
                    wants_begun: frame.head.flags & frame::flag::WANT_BEGUN != 0,
                    descriptor,
                    lease: payload.and_then(|payload| payload.leases.into_iter().next()),
                };
                Heard::Call { call, begun }
            }
            Kind::Credit => Heard::Credit { id: frame.head.id, count: frame.credit() },
            Kind::Chunk => Heard::Chunk {
                id: frame.head.id,
                form: frame.head.form,
                more: frame.head.flags & frame::flag::MORE != 0,
                body: frame.payload.to_vec(),
            },
            Kind::Cancel => Heard::Cancel(frame.head.id),
            Kind::Drain => Heard::Drain,
            Kind::Channel => Heard::Channel(descriptor.expect("a descriptor beside it")),
            other => panic!("a {other:?} frame was not expected"),
        })
    }

    // ---- what is answered

    /// Ends a call with a JSON value.
    pub fn result(&mut self, call: &Call, json: &str) {
        self.answer(call, Kind::Result, &self.payload(Codec::Json, json.as_bytes()));
    }

    /// Ends a stream.
    pub fn end(&mut self, call: &Call) {
        self.answer(call, Kind::Result, &Payload::empty());
    }

    pub fn failure(&mut self, call: &Call, failure: &Failure) {
        self.answer(call, Kind::Failure, &Payload::new(Codec::Plain, Failure::encode(failure)));
    }

    pub fn chunk(&mut self, call: &Call, json: &str) {
        let payload = self.payload(Codec::Json, json.as_bytes());
        self.put(Kind::Chunk, call.id, &[], &payload);
    }

    /// A part of what an app says.
    pub fn say(&mut self, call: &Call, form: Form, bytes: &[u8]) {
        let payload = self.payload(form, bytes);
        self.put(Kind::Chunk, call.id, &[], &payload);
    }

    /// Takes so many chunks more.
    pub fn give_credit(&mut self, call: &Call, count: u32) {
        self.outbox.push(|out| frame::put_credit(&mut out.bytes, call.id, count));
        self.flush();
    }

    /// Whatever bytes, as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.outbox.push(|out| out.bytes.extend_from_slice(bytes));
        self.flush();
    }

    /// Answers each call by the script until the link ends.
    pub fn serve(mut self, mut script: impl FnMut(&mut Worker, Call) + Send + 'static) -> JoinHandle<()> {
        std::thread::spawn(move || {
            while let Some(call) = self.call_or_end(None) {
                script(&mut self, call);
            }
        })
    }

    /// Answers each call with its own arguments.
    pub fn echo(self) -> JoinHandle<()> {
        self.serve(|worker, call| {
            let body = call.text().to_owned();
            worker.result(&call, &body);
        })
    }

    fn payload(&self, form: impl Into<Form>, bytes: &[u8]) -> Payload {
        if bytes.len() <= frame::INLINE_BYTES_MAX {
            return Payload::new(form, bytes.to_vec());
        }
        let lease = self.regions.store(bytes).expect("a region");
        Payload { leases: vec![Arc::new(lease)], ..Payload::new(form, Vec::new()) }
    }

    /// What it puts on the link from here on is not written any more.
    pub fn stops_writing(&mut self) {
        self.writes = false;
    }

    pub fn writes_again(&mut self) {
        self.writes = true;
        self.flush();
    }

    /// The code of the next item of a batch starts.
    pub fn begin_item(&self, call: &Call) {
        self.board.begin_item(call.word);
    }

    /// The result of the next item of a batch.
    pub fn item(&mut self, call: &Call, json: &str) {
        let payload = self.payload(Codec::Json, json.as_bytes());
        self.put(Kind::Item, call.id, &[], &payload);
    }

    fn answer(&mut self, call: &Call, kind: Kind, payload: &Payload) {
        self.put(kind, call.id, &1000u64.to_le_bytes(), payload);
    }

    fn put(&mut self, kind: Kind, id: WorkId, fixed: &[u8], payload: &Payload) {
        let head = Head::with(kind, id, payload.form);
        let announced = &mut self.announced;
        self.outbox.push(|out| announced.put(out, head, fixed, payload, 0)).expect("a frame");
        self.flush();
    }

    fn flush(&self) {
        if !self.writes {
            return;
        }
        let flushed = self.outbox.flush(self.socket.as_fd(), true).expect("the link");
        assert_eq!(flushed, Flushed::All);
    }
}

/// The value that an answer ended with.
pub fn value(answer: &Answer) -> String {
    assert!(answer.wait_done(PATIENCE), "no answer came");
    match answer.outcome() {
        Some(Outcome::Value(payload)) => String::from_utf8(payload.body().to_vec()).expect("text"),
        other => panic!("a value was expected, not {other:?}"),
    }
}
