//! Who lives: the thin loop that moves events into the supervisor's machine and carries out its actions.
//!
//! One thread for each pool, the driver. It also reads the links that no caller reads. It never sleeps but in the poller,
//! and lives as long as the pool (the zygote's parent-death signal counts on that).

pub mod memory;
pub mod output;
pub mod recycle;
pub mod scale;
pub mod state;
pub mod zygote;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::output::Output;
use self::scale::{Rules, Sample, Scaling};
use self::state::{Action, Event, State, Supervisor, Worker, WorkerRecord, fate_text};
use self::zygote::{Ended, Said, Zygote, generation_of};
use crate::link::Board;
use crate::pool::state::WorkerKey;
use crate::pool::{Carried, Command, Health, Link, Notice, Pool, Ticket, WAKE, WorkerView};
use crate::sys::{self, EndSignal, Fate};
use crate::telemetry;
use crate::wire::WIRE_VERSION;
use crate::work::Failure;

/// What the dispatcher says of itself, to compare with a zygote's hello.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Like `cpython-311`: what code by value is bound to.
    pub tag: String,
}

/// The loop of one pool.
pub struct Driver {
    pool: Arc<Pool>,
    identity: Identity,
    machine: Supervisor,
    scaling: Scaling,
    /// By generation.
    zygotes: BTreeMap<u32, Zygote>,
    outputs: HashMap<WorkerKey, Output>,
    was_failing: bool,
    /// Events of the step under way: told once the status says the same.
    untold: Option<RefCell<Vec<telemetry::Event>>>,
    /// What came of orders in the step under way.
    carried: Vec<(Ticket, Carried)>,
}

/// Starts the driver of a pool on a thread of its own.
pub fn start(pool: Arc<Pool>, identity: Identity) -> io::Result<()> {
    let config = &pool.config;
    // For a budget, the private memory of every worker is wanted.
    let floor = if config.memory_max_bytes.is_some() { Some(0) } else { recycle::memory_floor(config) };
    if let Some(floor) = floor {
        memory::start(pool.clone(), floor)?;
    }
    let machine = Supervisor::new(config.clone());
    let rules = Rules::of(config);
    pool.watch_waiting((machine.min < machine.max).then_some(rules.delay));
    let name = format!("clutch-{}", pool.config.name);
    let driver = Driver {
        pool,
        identity,
        machine,
        scaling: Scaling::new(rules),
        zygotes: BTreeMap::new(),
        outputs: HashMap::new(),
        was_failing: false,
        untold: None,
        carried: Vec::new(),
    };
    std::thread::Builder::new().name(name.chars().take(15).collect()).spawn(move || driver.run())?;
    Ok(())
}

impl Driver {
    fn run(mut self) {
        sys::block_signals();
        self.serve();
        self.pool.close_orders();
    }

    fn serve(&mut self) {
        let mut tokens = Vec::new();
        self.tell(Event::Tick);
        while !self.machine.is_closed() && !self.pool.is_forked() {
            let mut look_at = None;
            let wake = self.pool.tick(self.machine.next_wake(), |waits_since| {
                look_at = self.scaling.next_look(self.machine.bounds(), waits_since);
                look_at
            });
            if self.pool.poller.wait(&mut tokens, wake).is_err() {
                return;
            }
            for token in tokens.drain(..) {
                match (token, generation_of(token)) {
                    (WAKE, _) => self.take_notices(),
                    (_, Some(generation)) => self.read_zygote(generation),
                    (other, None) => self.pool.on_ready(other),
                }
            }
            if self.machine.next_wake().is_some_and(|at| at <= Instant::now()) {
                self.tell(Event::Tick);
            }
            if look_at.is_some_and(|at| at <= Instant::now()) {
                self.scale();
            }
        }
    }

    /// Looks whether another number of workers would be better.
    fn scale(&mut self) {
        let now = Instant::now();
        let sample = self.sample(now);
        let Some(decision) = self.scaling.decide(&sample, now).filter(|_| !self.machine.is_stopping()) else { return };
        let (from, to, reason) = (self.machine.target, decision.target, decision.reason);
        self.tell(Event::Resize { target: to, idlest: self.pool.by_load() });
        self.emit(|pool| telemetry::Event::PoolScaled { pool, from, to, reason });
    }

    fn sample(&self, now: Instant) -> Sample {
        let (machine, demand) = (&self.machine, self.pool.demand());
        Sample {
            bounds: machine.bounds(),
            serving: machine.serving_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since)),
            ready: machine.ready(),
            starting: machine.starting(),
            processes: machine.workers.len(),
            slots: machine.slots(),
            busy: demand.busy,
            busy_least: demand.busy_least,
            waiting: demand.waiting,
            waited: demand.waits_since.map(|since| now.saturating_duration_since(since)),
            finished: demand.finished,
            run_ns: demand.run_ns,
            private: machine.private(),
        }
    }

    // ---- events in

    fn take_notices(&mut self) {
        for notice in self.pool.drain_notices() {
            match notice {
                Notice::Worn(worker) => self.tell(Event::Worn { worker }),
                Notice::Drained(worker) => self.tell(Event::Drained { worker }),
                Notice::Stuck { worker, cause } => self.tell(Event::Stuck { worker, cause }),
                Notice::Memory(figures) => self.tell(Event::Memory(figures)),
                Notice::LinkEnded(worker, _) => self.tell(Event::LinkEnded { worker }),
                Notice::Ready(worker, json) => self.greet_worker(worker, &json),
                Notice::StartFailed(worker, json) => {
                    let reason = reason_of(&json);
                    self.tell(Event::StartFailed { worker, reason });
                }
                Notice::WantWrite(worker) => self.pool.want_write(worker, true),
                Notice::Empty => self.tell(Event::Empty),
                Notice::Order { ticket, command } => self.take_order(ticket, command),
                Notice::Stop { grace, term } => self.tell(Event::Stop { grace, term }),
            }
        }
    }

    fn take_order(&mut self, ticket: Ticket, command: Command) {
        self.tell(match command {
            Command::Reload => Event::Reload { ticket },
            Command::Recycle { nr } => Event::Recycle { ticket, nr },
            Command::Scale { min, max } => Event::Scale { ticket, min, max, idle: self.pool.idle_workers() },
        });
    }

    fn read_zygote(&mut self, generation: u32) {
        let Some(zygote) = self.zygotes.get_mut(&generation) else { return };
        let said = match zygote.is_ending() {
            false => zygote.read(),
            true => (!zygote.has_ended()).then(Vec::new),
        };
        match said {
            Some(said) => said.into_iter().for_each(|one| self.hear(generation, one)),
            None => self.lose_zygote(generation),
        }
    }

    fn hear(&mut self, generation: u32, said: Said) {
        match said {
            Said::Hello(hello) => self.greet(generation, hello),
            Said::Up(up) => self.take_image(generation, *up),
            Said::Failed(reason) => self.tell(Event::ZygoteFailed { generation, reason }),
            Said::Forked { worker, error: Some(reason), .. } => {
                self.outputs.remove(&worker);
                self.tell(Event::ForkFailed { worker, reason });
            }
            Said::Forked { worker, pid, error: None } => {
                self.tell(Event::Forked { worker, pid });
                if let Some(Worker { nr, generation, .. }) = self.machine.workers.get(&worker).cloned() {
                    self.emit(|pool| telemetry::Event::WorkerStarting { pool, nr, generation, pid });
                }
            }
            Said::Fate { worker, fate } => self.tell(Event::Fate { worker, fate }),
        }
    }

    fn take_image(&mut self, generation: u32, up: zygote::Up) {
        let Some(zygote) = self.zygotes.get_mut(&generation) else { return };
        let (shape, warnings) = (up.shape, up.warnings);
        let mut image = up.rest;
        image.insert("warnings".to_owned(), warnings.clone().into());
        zygote.image = serde_json::Value::Object(image);
        let python = zygote.hello.as_ref().map(|hello| (hello.tag.clone(), hello.python.clone()));
        let foreign = python.filter(|(tag, _)| *tag != self.identity.tag).map(|(_, version)| version);
        self.pool.set_foreign(foreign);
        self.emit(|pool| telemetry::Event::ZygoteReady { pool, generation, warnings });
        self.tell(Event::ZygoteUp { generation, shape });
    }

    /// Versions must fit, or nothing that follows means anything.
    fn greet(&mut self, generation: u32, hello: zygote::Hello) {
        let ours = env!("CARGO_PKG_VERSION");
        if hello.wire != WIRE_VERSION || hello.clutch != ours {
            let python = &self.pool.config.python;
            let reason = format!(
                "pool '{}': {python} has clutch {} (wire {}), the dispatcher {ours} (wire {WIRE_VERSION}); mend it with: \
                 {python} -m pip install 'clutch=={ours}'",
                self.pool.config.name, hello.clutch, hello.wire
            );
            self.tell(Event::ZygoteFailed { generation, reason });
        } else if let Some(zygote) = self.zygotes.get_mut(&generation) {
            zygote.hello = Some(hello);
        }
    }

    /// A worker's ready may overtake the zygote's word that it was forked: it brings its pid, so that nobody sees it
    /// ready without one.
    fn greet_worker(&mut self, worker: WorkerKey, json: &str) {
        let ready: serde_json::Value = serde_json::from_str(json).unwrap_or_default();
        if let Some(pid) = ready.get("pid").and_then(serde_json::Value::as_i64) {
            self.tell(Event::Forked { worker, pid: pid as i32 });
        }
        self.tell(Event::WorkerReady { worker });
    }

    fn lose_zygote(&mut self, generation: u32) {
        let Some(zygote) = self.zygotes.remove(&generation) else { return };
        zygote.unwatch(&self.pool.poller);
        let (greeted, told_to) = (zygote.hello.is_some(), zygote.is_ending());
        let Ended { text: end, signaled } = zygote.end();
        let (name, python) = (&self.pool.config.name, &self.pool.config.python);
        let reason = match greeted {
            true => format!("the zygote of pool '{name}' ended: {end}"),
            false => format!("{python} could not run the zygote of pool '{name}': {end}"),
        };
        if !told_to {
            self.emit(|pool| telemetry::Event::ZygoteLost { pool, generation, reason: reason.clone() });
        }
        let workers = self.machine.workers.iter().filter(|(_, worker)| worker.generation == generation);
        self.pool.orphaned(&workers.map(|(key, _)| *key).collect::<Vec<_>>());
        self.tell(Event::ZygoteGone { generation, reason, signaled });
    }

    // ---- actions out

    fn tell(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.untold = Some(RefCell::default());
        self.machine.on(event, Instant::now(), &mut actions);
        let mut queue = VecDeque::from(actions);
        while let Some(action) = queue.pop_front() {
            let mut follow = Vec::new();
            if let Some(event) = self.act(action) {
                self.machine.on(event, Instant::now(), &mut follow);
            }
            queue.extend(follow);
        }
        self.publish();
        for event in self.untold.take().into_iter().flat_map(RefCell::into_inner) {
            self.pool.telemetry.emit(|| event);
        }
        // Whoever waited finds it in the stats and among the events.
        for (ticket, carried) in self.carried.drain(..) {
            self.pool.order_done(ticket, carried);
        }
    }

    /// Carries out one action; what came of it at once, if anything.
    fn act(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::StartZygote { generation } => return self.start_zygote(generation).err(),
            Action::EndZygote { generation, at_once } => return self.end_zygote(generation, at_once),
            Action::Fork { worker, nr, generation } => return self.fork(worker, nr, generation).err(),
            Action::Admit { worker, calls } => {
                let slots = self.machine.workers.get(&worker).map_or(0, |worker| worker.slots);
                self.pool.worker_ready(worker, slots, calls);
                self.about(worker, |pool, nr, generation, pid| telemetry::Event::WorkerReady {
                    pool,
                    nr,
                    generation,
                    pid,
                });
            }
            Action::Hold { worker, held } => self.hold(worker, held),
            Action::Bar { worker, barred } => self.pool.worker_barred(worker, barred),
            Action::Drain { worker, reason } => {
                let reason = reason.to_owned();
                self.about(worker, |pool, nr, _, pid| telemetry::Event::WorkerDraining { pool, nr, pid, reason });
                self.pool.worker_draining(worker);
            }
            Action::Short { worker } => self.short(worker),
            Action::End { worker } => self.pool.send_drain(worker),
            Action::Kill { worker, signal } => self.signal(worker, signal),
            Action::Gone { worker, fate, record } => self.gone(worker, fate, &record),
            Action::Failing { reason, loaded } => self.failing(reason, loaded),
            Action::RefuseWaiting => self.pool.refuse_waiting(),
            Action::ReloadStarted { generation } => {
                self.emit(|pool| telemetry::Event::ReloadStarted { pool, generation });
            }
            Action::ReloadFinished { generation } => {
                self.emit(|pool| telemetry::Event::ReloadFinished { pool, generation });
            }
            Action::ReloadFailed { generation, reason } => {
                self.emit(|pool| telemetry::Event::ReloadFailed { pool, generation, reason });
            }
            Action::Done { ticket, outcome } => self.carried.push((ticket, outcome)),
            Action::Closed => {
                self.outputs.clear();
                self.emit(|pool| telemetry::Event::PoolClosed { pool });
            }
        }
        None
    }

    fn start_zygote(&mut self, generation: u32) -> Result<(), Event> {
        let failed = |error: io::Error| Event::ZygoteFailed {
            generation,
            reason: format!("cannot start {} for pool '{}': {error}", self.pool.config.python, self.pool.config.name),
        };
        let zygote = Zygote::start(&self.pool.config, generation).map_err(failed)?;
        let pid = zygote.pid;
        let watched = zygote.watch(&self.pool.poller).map_err(failed);
        self.zygotes.insert(generation, zygote);
        self.emit(|pool| telemetry::Event::ZygoteStarted { pool, generation, pid });
        watched
    }

    fn end_zygote(&mut self, generation: u32, at_once: bool) -> Option<Event> {
        let waited_for = |zygote: &mut Zygote| zygote.tell_end(at_once, &self.pool.poller);
        if self.zygotes.get_mut(&generation).is_some_and(waited_for) {
            return None;
        }
        // It was never started, or its end cannot be watched: so it is waited for here, briefly.
        let ended = self.zygotes.remove(&generation).map(Zygote::end);
        let (reason, signaled) = ended.map_or_else(Default::default, |ended| (ended.text, ended.signaled));
        Some(Event::ZygoteGone { generation, reason, signaled })
    }

    fn fork(&mut self, worker: WorkerKey, nr: u32, generation: u32) -> Result<(), Event> {
        let failed = |error: io::Error| Event::ForkFailed {
            worker,
            reason: format!(
                "cannot start a worker of pool '{}': {error}; a pool of {} workers needs about {} descriptors (ulimit -n)",
                self.pool.config.name,
                self.machine.max,
                self.machine.max * 8 + 64
            ),
        };
        let Some(zygote) = self.zygotes.get(&generation) else { return Ok(()) };
        let slots = self.machine.workers.get(&worker).map_or(1, |worker| worker.slots) as u32;
        let (ours, theirs) = sys::socket_pair().map_err(failed)?;
        let (alarm, their_alarm) = sys::socket_pair().map_err(failed)?;
        let (board, board_fd) = Board::create(Board::words_for(slots)).map_err(failed)?;
        let prefix = format!("{}/{nr}", self.pool.config.name);
        let (output, out, err) = Output::open(&prefix, self.pool.config.output_kept_bytes).map_err(failed)?;
        self.outputs.insert(worker, output);
        self.pool.attach(Link::new(worker, ours, board, alarm));
        zygote.fork(worker, nr, vec![theirs, board_fd, their_alarm, out, err]);
        Ok(())
    }

    fn short(&self, worker: WorkerKey) {
        let most = self.pool.config.memory_max_bytes.unwrap_or(u64::MAX);
        let reason = format!("memory_max ({most} bytes) has no room for a worker and its replacement at the same time");
        self.about(worker, |pool, nr, _, _| telemetry::Event::PoolShort { pool, nr, reason });
    }

    fn hold(&mut self, worker: WorkerKey, held: bool) {
        self.pool.worker_held(worker, held);
        self.about(worker, |pool, nr, _, pid| match held {
            true => telemetry::Event::WorkerStopped { pool, nr, pid },
            false => telemetry::Event::WorkerContinued { pool, nr, pid },
        });
    }

    /// By its zygote, which is its parent; without one by its group, which the worker made itself leader of.
    fn signal(&mut self, worker: WorkerKey, signal: EndSignal) {
        let Some(known) = self.machine.workers.get(&worker) else { return };
        match (self.zygotes.get(&known.generation), known.pid) {
            (Some(zygote), _) if !zygote.is_ending() => zygote.signal_worker(worker, signal),
            (_, Some(pid)) => sys::end_group(pid, signal),
            _ => {}
        }
    }

    fn gone(&mut self, worker: WorkerKey, fate: Option<Fate>, record: &WorkerRecord) {
        if fate.is_none() && record.pid > 0 {
            // Its zygote is gone and cannot do it.
            sys::end_group(record.pid, EndSignal::Kill);
        }
        let output = self.outputs.remove(&worker).map(|output| output.last()).unwrap_or_default();
        let failure = self.lost(fate, record, output);
        let cause = failure.to_string();
        // Whoever learns of the death finds it in the stats too.
        self.publish();
        self.pool.worker_gone(worker, failure, record.cause.is_some());
        let (nr, pid) = (record.nr, record.pid);
        self.emit(|pool| telemetry::Event::WorkerGone { pool, nr, pid, cause });
    }

    fn lost(&self, fate: Option<Fate>, record: &WorkerRecord, output: String) -> Failure {
        let why =
            record.cause.as_ref().or(record.said.as_ref()).map(|reason| format!(" ({reason})")).unwrap_or_default();
        let (name, nr, pid) = (&self.pool.config.name, record.nr, record.pid);
        let message = format!("worker {name}/{nr} (pid {pid}) {}{why}", fate_text(fate));
        let (signal, exit_code) = match fate {
            Some(Fate::Signaled(signal)) => (Some(signal), None),
            Some(Fate::Exited(code)) => (None, Some(code)),
            _ => (None, None),
        };
        let cause = record.cause.clone();
        Failure::WorkerLost { message, worker_pid: pid, signal, exit_code, output, cause }
    }

    fn failing(&mut self, reason: String, loaded: bool) {
        if !self.was_failing {
            self.emit(|pool| telemetry::Event::PoolFailing { pool, reason: reason.clone() });
        }
        let message = reason;
        let failure = match loaded {
            true => {
                let output = String::new();
                Failure::WorkerLost { message, worker_pid: 0, signal: None, exit_code: None, output, cause: None }
            }
            false => Failure::Config { message },
        };
        self.pool.set_failing(Some(failure));
        self.was_failing = true;
    }

    fn about(&self, worker: WorkerKey, make: impl FnOnce(String, u32, u32, i32) -> telemetry::Event) {
        if let Some(known) = self.machine.workers.get(&worker) {
            let (nr, generation, pid) = (known.nr, known.generation, known.pid.unwrap_or(0));
            self.emit(|pool| make(pool, nr, generation, pid));
        }
    }

    fn emit(&self, make: impl FnOnce(String) -> telemetry::Event) {
        match &self.untold {
            Some(untold) if self.pool.telemetry.is_watched() => {
                untold.borrow_mut().push(make(self.pool.config.name.clone()));
            }
            Some(_) => {}
            None => self.pool.telemetry.emit(|| make(self.pool.config.name.clone())),
        }
    }

    /// Brings the public status up to date.
    fn publish(&mut self) {
        let health = match &self.machine {
            machine if machine.is_closed() => Health::Closed,
            machine if machine.is_stopping() => Health::Draining,
            machine if machine.failing().is_some() => Health::Failing,
            machine if machine.ready() > 0 => Health::Ready,
            _ => Health::Starting,
        };
        let recovered = health == Health::Ready && std::mem::take(&mut self.was_failing);
        let workers = self.machine.workers.iter().map(|(key, worker)| (*key, view(worker))).collect();
        let machine = &self.machine;
        let zygote = self.zygotes.get(&machine.generation());
        let zygote_pid = zygote.map(|zygote| zygote.pid);
        self.pool.update_status(|status| {
            status.set_health(health);
            status.reason = machine.reason();
            status.ready = machine.ready();
            (status.target, status.min, status.max) = (machine.target, machine.min, machine.max);
            status.workers = workers;
            status.zygote_pid = zygote_pid;
            status.generation = machine.generation();
            status.restarts = machine.restarts;
            // That of the last one stays known while the next one loads.
            if let Some(zygote) = zygote.filter(|zygote| !zygote.image.is_null() && status.image != zygote.image) {
                status.image = zygote.image.clone();
            }
        });
        if recovered {
            self.emit(|pool| telemetry::Event::PoolRecovered { pool });
        }
    }
}

fn view(worker: &Worker) -> WorkerView {
    let state = if worker.state == State::Killed { "draining" } else { worker.state.as_str() };
    let pid = worker.pid.unwrap_or(0);
    let (rss, private) = worker.memory.map_or((None, None), |memory| (Some(memory.rss), memory.private));
    WorkerView { nr: worker.nr, pid, generation: worker.generation, state, calls: 0, sent: 0, rss, private }
}

/// What a worker that could not start says.
fn reason_of(json: &str) -> String {
    let parsed: Result<serde_json::Value, _> = serde_json::from_str(json);
    let reason =
        parsed.ok().and_then(|value| value.get("reason").and_then(|reason| reason.as_str().map(str::to_owned)));
    reason.unwrap_or_else(|| json.to_owned())
}
